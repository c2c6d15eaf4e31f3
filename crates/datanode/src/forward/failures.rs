//! Recent failures of connections to other DataNodes.

use std::collections::HashMap;
use std::time::Duration;

use hearth_types::DatanodeId;
use parking_lot::Mutex;
use tokio::time::Instant;

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
    pub fn failed_recently(&self, datanode: &DatanodeId, now: Instant) -> bool {
        self.0.lock().get(datanode).is_some_and(|failed| now.saturating_duration_since(*failed) < RETRY_AFTER)
    }

    pub fn note(&self, datanode: &DatanodeId, now: Instant) {
        let mut failed = self.0.lock();
        if failed.len() >= FAILED_MAX {
            failed.clear();
        }
        failed.insert(datanode.clone(), now);
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::DatanodeUuid;

    use super::*;

    #[test]
    fn unreachable_datanode_is_retried_after_a_while() {
        let datanode = |port| DatanodeId {
            ip: "127.0.0.1".to_owned(),
            host_name: "localhost".to_owned(),
            uuid: DatanodeUuid("uuid".into()),
            transfer_port: port,
            info_port: 0,
            ipc_port: 0,
            info_secure_port: 0,
        };
        let (failures, start) = (RecentFailures::default(), Instant::now());
        failures.note(&datanode(1), start);
        assert!(failures.failed_recently(&datanode(1), start + RETRY_AFTER - Duration::from_millis(1)));
        assert!(!failures.failed_recently(&datanode(1), start + RETRY_AFTER));
        assert!(!failures.failed_recently(&datanode(2), start), "another address is another datanode");
        failures.note(&datanode(1), start + RETRY_AFTER);
        assert!(failures.failed_recently(&datanode(1), start + RETRY_AFTER));
    }
}
