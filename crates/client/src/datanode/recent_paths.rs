use std::collections::HashMap;
use std::time::Duration;

use hearth_types::DatanodeUuid;
use tokio::time::Instant;

use crate::DataPath;

/// Maximum number of entries. Further ones are not stored.
const ENTRIES_MAX: usize = 4096;

/// Paths to datanodes with an event noted within [`RecentPaths::RECENT`].
#[derive(Debug, Default)]
pub(crate) struct RecentPaths(HashMap<(DatanodeUuid, DataPath), Instant>);

impl RecentPaths {
    const RECENT: Duration = Duration::from_secs(60);

    pub(crate) fn has(&self, datanode: &DatanodeUuid, path: DataPath, now: Instant) -> bool {
        self.0.get(&(datanode.clone(), path)).is_some_and(|at| is_recent(*at, now))
    }

    pub(crate) fn note(&mut self, datanode: &DatanodeUuid, path: DataPath, now: Instant) {
        if self.0.len() >= ENTRIES_MAX {
            self.0.retain(|_, at| is_recent(*at, now));
        }
        if self.0.len() < ENTRIES_MAX {
            self.0.insert((datanode.clone(), path), now);
        }
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < RecentPaths::RECENT
}
