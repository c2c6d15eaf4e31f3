//! One-sided connections that writers share: those that finished a block.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use hearth_fabric::one_sided::Connection;
use hearth_types::DatanodeId;
use parking_lot::Mutex;

/// Connections kept for one datanode's next block, and how long.
const KEPT_PER_DATANODE: usize = 4;
const KEPT: Duration = Duration::from_secs(120);

/// Datanodes beyond this are forgotten.
const DATANODES_MAX: usize = 1024;

/// A connection, and since when nobody uses it.
type Kept = (Arc<dyn Connection>, Instant);

/// Connections of writers that are between two blocks.
#[derive(Debug, Default)]
pub struct WriterConnections {
    idle: Mutex<HashMap<DatanodeId, Vec<Kept>>>,
}

impl WriterConnections {
    /// One that is open as far as can be seen.
    pub fn take(&self, datanode: &DatanodeId) -> Option<Arc<dyn Connection>> {
        let mut idle = self.idle.lock();
        let connections = idle.get_mut(datanode)?;
        connections.retain(|(_, since)| since.elapsed() < KEPT);
        while let Some((connection, _)) = connections.pop() {
            if connection.closed().now_or_never().is_none() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps the connection of a block that has ended.
    pub fn keep(&self, datanode: DatanodeId, connection: Arc<dyn Connection>) {
        let mut idle = self.idle.lock();
        if idle.len() >= DATANODES_MAX && !idle.contains_key(&datanode) {
            idle.clear();
        }
        let connections = idle.entry(datanode).or_default();
        connections.truncate(KEPT_PER_DATANODE - 1);
        connections.push((connection, Instant::now()));
    }
}
