use std::time::Instant;

use hearth_types::DatanodeUuid;
use parking_lot::Mutex;

use crate::DataPath;
use crate::datanode::RecentPaths;

/// Paths that broke under a writer whose datanode then took packets: another try that fails costs the recovery of a pipeline. Not for long: a
/// datanode may also have ended a write for a reason of its own. For writers alone: what is written and what is read goes different ways
/// through a card and a datanode, and what failed the one says little of the other.
#[derive(Debug, Default)]
pub(crate) struct FailedPaths {
    lately: Mutex<RecentPaths>,
}

impl FailedPaths {
    pub(super) fn note(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) {
        self.lately.lock().note(datanode, path, now);
    }

    pub(super) fn has(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) -> bool {
        self.lately.lock().has(datanode, path, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
