use std::collections::HashMap;
use std::time::{Duration, Instant};

use hearth_types::DatanodeUuid;
use parking_lot::Mutex;

use crate::DataPath;

/// Between two warnings of the same.
const PAUSE: Duration = Duration::from_secs(60);

/// Paths that are remembered at most: those beyond it are warned of each time.
const ENTRIES_MAX: usize = 4096;

/// Which failed paths people were told of lately: a thousand reads that take the next path need not say so a thousand times.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    told: Mutex<HashMap<(DatanodeUuid, DataPath), Instant>>,
}

impl Complaints {
    /// Whether it is time for a warning that `path` to `datanode` has failed. Then it counts as given.
    pub(crate) fn is_due(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) -> bool {
        let mut told = self.told.lock();
        let recent = |at: &Instant| now.saturating_duration_since(*at) < PAUSE;
        let key = (datanode.clone(), path);
        if told.get(&key).is_some_and(recent) {
            return false;
        }
        if told.len() >= ENTRIES_MAX {
            told.retain(|_, at| recent(at));
        }
        if told.len() < ENTRIES_MAX {
            told.insert(key, now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_to_each_datanode_is_complained_of_once_a_minute() {
        let complaints = Complaints::default();
        let (one, other) = (DatanodeUuid("one".into()), DatanodeUuid("other".into()));
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(complaints.is_due(&one, DataPath::Local, start));
        assert!(!complaints.is_due(&one, DataPath::Local, later(59)));
        assert!(complaints.is_due(&one, DataPath::OneSided, later(59)));
        assert!(complaints.is_due(&other, DataPath::Local, later(59)));
        assert!(complaints.is_due(&one, DataPath::Local, later(60)));
        assert!(!complaints.is_due(&one, DataPath::Local, later(119)));
    }
}
