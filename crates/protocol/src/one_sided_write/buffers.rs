//! Registered memory of a writer.

use std::sync::Arc;

use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Domain, Error, Region};
use parking_lot::Mutex;

/// Registered memory for packets. Each buffer holds a packet's data, followed by its CRCs.
#[derive(Debug)]
pub struct WriteBuffers {
    domain: Arc<dyn Domain>,
    data_bytes: u64,
    checksum_bytes: u64,
    free: Mutex<Vec<Arc<dyn Region>>>,
    free_max: usize,
}

impl WriteBuffers {
    pub fn new(domain: Arc<dyn Domain>, data_bytes: u64, checksum_bytes: u64, free_max: usize) -> Arc<Self> {
        Arc::new(Self { domain, data_bytes, checksum_bytes, free: Mutex::default(), free_max })
    }

    /// Data capacity of one buffer; its CRCs begin at this offset.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    pub fn take(&self) -> Result<Arc<dyn Region>, Error> {
        if let Some(region) = self.free.lock().pop() {
            return Ok(region);
        }
        let bytes = self.data_bytes + self.checksum_bytes;
        let memory = Memory::fresh(bytes).map_err(|source| Error::Register { bytes, source })?;
        self.domain.register(&Arc::new(memory), 0..bytes, Access::Local)
    }

    /// Returns a buffer for reuse by another packet, unless a write in flight still holds the region; that write then
    /// keeps it.
    ///
    /// A queue pair holds only what is registered. A posted write that the sender no longer waits for may therefore
    /// still read the buffer after the next packet was put there, and its receiver would find a CRC mismatch.
    pub fn give_back(&self, region: Arc<dyn Region>) {
        let mut free = self.free.lock();
        if Arc::strong_count(&region) == 1 && free.len() < self.free_max {
            free.push(region);
        }
    }
}
