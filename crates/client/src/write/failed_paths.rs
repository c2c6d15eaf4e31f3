use std::collections::HashMap;
use std::time::{Duration, Instant};

use hearth_types::DatanodeUuid;
use parking_lot::Mutex;

use crate::DataPath;

/// Another try that fails costs the recovery of a pipeline. Not longer: a datanode may also have ended a write for a reason of its own.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Entries beyond this are not kept: a memory, not a directory.
const ENTRIES_MAX: usize = 4096;

/// Paths that broke under a writer whose datanode then took packets. For writers alone: what is written and what is read goes different
/// ways through a card and a datanode, and what failed the one says little of the other.
#[derive(Debug, Default)]
pub(crate) struct FailedPaths {
    since: Mutex<HashMap<(DatanodeUuid, DataPath), Instant>>,
}

impl FailedPaths {
    pub(super) fn note(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) {
        let mut since = self.since.lock();
        if since.len() >= ENTRIES_MAX {
            since.retain(|_, at| is_recent(*at, now));
        }
        if since.len() < ENTRIES_MAX {
            since.insert((datanode.clone(), path), now);
        }
    }

    pub(super) fn has(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) -> bool {
        self.since.lock().get(&(datanode.clone(), path)).is_some_and(|at| is_recent(*at, now))
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_to_each_datanode_is_left_alone_for_a_while() {
        let failed = FailedPaths::default();
        let (one, other) = (DatanodeUuid("one".into()), DatanodeUuid("other".into()));
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        failed.note(&one, DataPath::OneSided, start);
        assert!(failed.has(&one, DataPath::OneSided, later(59)));
        assert!(!failed.has(&one, DataPath::Local, later(1)));
        assert!(!failed.has(&other, DataPath::OneSided, later(1)));
        assert!(!failed.has(&one, DataPath::OneSided, later(60)));
    }
}
