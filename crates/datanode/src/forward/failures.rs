//! Recent failures of connections to other DataNodes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hearth_types::DatanodeId;
use parking_lot::Mutex;

/// Timeout for requests and connections of copies. Long, because no client waits for a copy and the other path costs
/// both ends more than the wait.
pub const COPY_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which an unreachable DataNode is not retried while there is another path to it.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Maximum number of DataNodes that are remembered.
const FAILED_MAX: usize = 4096;

/// Failures of one kind of path.
#[derive(Default)]
pub struct RecentFailures(Mutex<HashMap<DatanodeId, Instant>>);

impl RecentFailures {
    pub fn failed_recently(&self, datanode: &DatanodeId) -> bool {
        self.0.lock().get(datanode).is_some_and(|failed| failed.elapsed() < RETRY_AFTER)
    }

    pub fn note(&self, datanode: &DatanodeId) {
        let mut failed = self.0.lock();
        if failed.len() >= FAILED_MAX {
            failed.clear();
        }
        failed.insert(datanode.clone(), Instant::now());
    }
}
