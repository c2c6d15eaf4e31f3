//! Record of the paths that recently failed for writers, by datanode.

use hearth_types::DatanodeUuid;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::recent_paths::RecentPaths;
use crate::DataPath;

/// Paths that failed for a writer although the datanode then accepted packets. Another failed attempt would cost a
/// pipeline recovery. Entries expire soon, because a datanode may also have ended a write for its own reasons. Used
/// only by writers: reads and writes go different ways through a network card and a datanode, so a failure of one says
/// little about the other.
#[derive(Debug, Default)]
pub(crate) struct FailedPaths {
    lately: Mutex<RecentPaths>,
}

impl FailedPaths {
    pub(crate) fn note(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) {
        self.lately.lock().note(datanode, path, now);
    }

    pub(crate) fn has(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) -> bool {
        self.lately.lock().has(datanode, path, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn failed_path_is_remembered_per_datanode() {
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
