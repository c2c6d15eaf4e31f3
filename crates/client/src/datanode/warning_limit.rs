use hearth_types::DatanodeUuid;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::recent_paths::RecentPaths;
use crate::DataPath;

/// Rate limit of warnings about failed paths, so that a thousand reads that fall back to the next path do not log a
/// thousand warnings.
#[derive(Debug, Default)]
pub(crate) struct WarningLimit {
    recent: Mutex<RecentPaths>,
}

impl WarningLimit {
    /// Returns true if a warning that `path` to `datanode` failed is due. The warning then counts as given.
    pub(crate) fn is_due(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) -> bool {
        let mut recent = self.recent.lock();
        if recent.has(datanode, path, now) {
            return false;
        }
        recent.note(datanode, path, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn warnings_are_limited_per_path_and_datanode() {
        let warning_limit = WarningLimit::default();
        let (one, other) = (DatanodeUuid("one".into()), DatanodeUuid("other".into()));
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(warning_limit.is_due(&one, DataPath::Local, start));
        assert!(!warning_limit.is_due(&one, DataPath::Local, later(59)));
        assert!(warning_limit.is_due(&one, DataPath::OneSided, later(59)));
        assert!(warning_limit.is_due(&other, DataPath::Local, later(59)));
        assert!(warning_limit.is_due(&one, DataPath::Local, later(60)));
        assert!(!warning_limit.is_due(&one, DataPath::Local, later(119)));
    }
}
