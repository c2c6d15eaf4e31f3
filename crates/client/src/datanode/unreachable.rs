use std::collections::HashMap;
use std::time::Duration;

use hearth_types::DatanodeUuid;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which a datanode counts as unreachable.
const UNREACHABLE_BACKOFF: Duration = Duration::from_secs(60);

/// Maximum number of entries. Further ones are not stored: this is a cache, not a complete list.
const ENTRIES_MAX: usize = 4096;

/// Datanodes that recently did not answer. After one caller's time-out, the next callers avoid the same wait.
#[derive(Debug, Default)]
pub(crate) struct Unreachable {
    since: Mutex<HashMap<DatanodeUuid, Instant>>,
}

impl Unreachable {
    pub(crate) fn insert(&self, datanode: DatanodeUuid) {
        let mut since = self.since.lock();
        if since.len() >= ENTRIES_MAX {
            since.retain(|_, at| at.elapsed() < UNREACHABLE_BACKOFF);
        }
        if since.len() < ENTRIES_MAX {
            since.insert(datanode, Instant::now());
        }
    }

    pub(crate) fn contains(&self, datanode: &DatanodeUuid) -> bool {
        let mut since = self.since.lock();
        match since.get(datanode) {
            Some(at) if at.elapsed() < UNREACHABLE_BACKOFF => true,
            Some(_) => {
                since.remove(datanode);
                false
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unreachable_datanode_is_tried_again_after_a_while() {
        const LITTLE: Duration = Duration::from_millis(1);
        let (unreachable, [one, other]) =
            (Unreachable::default(), ["one", "other"].map(|name| DatanodeUuid(name.into())));
        unreachable.insert(one.clone());
        advance(UNREACHABLE_BACKOFF - LITTLE).await;
        assert!(unreachable.contains(&one) && !unreachable.contains(&other));
        advance(LITTLE).await;
        assert!(!unreachable.contains(&one) && unreachable.since.lock().is_empty());
    }
}
