//! Which ways to other datanodes have failed lately.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hearth_types::DatanodeId;
use parking_lot::Mutex;

/// For a question, and for a connection, of a copy, which nobody waits for: the other way costs both ends more than the wait does.
pub const COPY_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a datanode that could not be reached so is not tried while there is another way.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Datanodes that are remembered at most.
const FAILED_MAX: usize = 4096;

/// By one kind of way.
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
