use std::collections::HashMap;
use std::time::{Duration, Instant};

use hearth_types::DatanodeUuid;
use parking_lot::Mutex;

/// Time for which a datanode that could not be reached comes last in every choice of this client.
const UNREACHABLE_BACKOFF: Duration = Duration::from_secs(60);

/// Maximum number of entries. Further ones are not stored: this is a cache, not a complete list.
const ENTRIES_MAX: usize = 4096;

/// Datanodes that recently did not answer. After one reader's time-out, the next readers avoid the same wait.
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
