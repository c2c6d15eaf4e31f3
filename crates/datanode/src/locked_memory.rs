//! `dfs.datanode.max.locked.memory`: one account for what centralised caching holds in memory and for the replicas on
//! RAM_DISK storage. Source: hdfs `FsDatasetCache`, with which `FsDatasetImpl` reserves for RAM_DISK.
//!
//! What lies on RAM_DISK is counted by the store, from a replica's creation to its end; here stands what the store does not
//! know of.

use std::sync::Arc;

use hearth_blockstore::Blockstore;
use hearth_types::StorageType;
use parking_lot::Mutex;

/// Java counts what it locks in pages, and namenodes plan with that.
pub const PAGE: u64 = 4096;

pub struct LockedMemory {
    /// Bytes; 0: none for anybody.
    capacity: u64,
    store: Arc<Blockstore>,
    /// Bytes of the shares that live.
    reserved: Mutex<u64>,
}

/// Bytes of the account, given back on drop.
pub struct LockedBytes {
    account: Arc<LockedMemory>,
    bytes: u64,
}

impl LockedMemory {
    pub fn new(capacity: u64, store: &Arc<Blockstore>) -> Arc<Self> {
        Arc::new(Self { capacity, store: store.clone(), reserved: Mutex::new(0) })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes, those on RAM_DISK among them; never more than there are, though a namenode may have put more on RAM_DISK.
    pub fn used(&self) -> u64 {
        let taken = self.reserved.lock();
        (*taken + self.on_ram_disk()).min(self.capacity)
    }

    /// `bytes`, rounded up to pages. `None`: the account has not so many left.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<LockedBytes> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        let mut taken = self.reserved.lock();
        let used = *taken + self.on_ram_disk();
        if used.checked_add(bytes)? > self.capacity {
            return None;
        }
        *taken += bytes;
        Some(LockedBytes { account: self.clone(), bytes })
    }

    fn on_ram_disk(&self) -> u64 {
        self.store.bytes_on(StorageType::RamDisk)
    }
}

impl LockedBytes {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It turned out to be `bytes`: no longer asked whether they fit.
    pub fn resize(&mut self, bytes: u64) {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut taken = self.account.reserved.lock();
        *taken = *taken - self.bytes + bytes;
        self.bytes = bytes;
    }
}

impl Drop for LockedBytes {
    fn drop(&mut self) {
        *self.account.reserved.lock() -= self.bytes;
    }
}
