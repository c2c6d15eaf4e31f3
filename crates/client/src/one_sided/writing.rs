//! What writers share of one-sided connections: those that finished a block, and registered memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Region};
use hearth_types::DatanodeUuid;
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
pub(crate) struct WriterConnections {
    idle: Mutex<HashMap<DatanodeUuid, Vec<Kept>>>,
}

impl WriterConnections {
    /// One that is open as far as can be seen.
    pub(super) fn take(&self, datanode: &DatanodeUuid) -> Option<Arc<dyn Connection>> {
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
    pub(crate) fn keep(&self, datanode: DatanodeUuid, connection: Arc<dyn Connection>) {
        let mut idle = self.idle.lock();
        if idle.len() >= DATANODES_MAX && !idle.contains_key(&datanode) {
            idle.clear();
        }
        let connections = idle.entry(datanode).or_default();
        connections.truncate(KEPT_PER_DATANODE - 1);
        connections.push((connection, Instant::now()));
    }
}

/// Registered memory for packets: each as large as a packet's data with its CRCs behind.
#[derive(Debug)]
pub(crate) struct WriteBuffers {
    domain: Arc<dyn Domain>,
    data_bytes: u64,
    checksum_bytes: u64,
    free: Mutex<Vec<Arc<dyn Region>>>,
    kept_max: usize,
}

impl WriteBuffers {
    pub(super) fn new(domain: Arc<dyn Domain>, data_bytes: u64, checksum_bytes: u64, kept_max: usize) -> Arc<Self> {
        Arc::new(Self { domain, data_bytes, checksum_bytes, free: Mutex::default(), kept_max })
    }

    /// Bytes of data that one holds; its CRCs begin there.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    pub(crate) fn take(&self) -> Result<Arc<dyn Region>, Error> {
        if let Some(region) = self.free.lock().pop() {
            return Ok(region);
        }
        let bytes = self.data_bytes + self.checksum_bytes;
        let memory = Memory::fresh(bytes).map_err(|source| Error::Register { bytes, source })?;
        self.domain.register(&Arc::new(memory), 0..bytes, Access::Local)
    }

    /// For another packet; unless a write from it may still be on its way: that one keeps it.
    pub(crate) fn give_back(&self, region: Arc<dyn Region>) {
        let mut free = self.free.lock();
        if Arc::strong_count(&region) == 1 && free.len() < self.kept_max {
            free.push(region);
        }
    }
}
