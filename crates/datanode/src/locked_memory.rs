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
    taken: Mutex<u64>,
}

/// Bytes of the account, given back on drop.
pub struct Locked {
    account: Arc<LockedMemory>,
    bytes: u64,
}

impl LockedMemory {
    pub fn new(capacity: u64, store: &Arc<Blockstore>) -> Arc<Self> {
        Arc::new(Self { capacity, store: store.clone(), taken: Mutex::new(0) })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes, those on RAM_DISK among them; never more than there are, though a namenode may have put more on RAM_DISK.
    pub fn used(&self) -> u64 {
        let taken = self.taken.lock();
        (*taken + self.on_ram_disk()).min(self.capacity)
    }

    /// `bytes`, rounded up to pages. `None`: the account has not so many left.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Locked> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        let mut taken = self.taken.lock();
        let used = *taken + self.on_ram_disk();
        if used.checked_add(bytes)? > self.capacity {
            return None;
        }
        *taken += bytes;
        Some(Locked { account: self.clone(), bytes })
    }

    fn on_ram_disk(&self) -> u64 {
        self.store.bytes_on(StorageType::RamDisk)
    }
}

impl Locked {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It turned out to be `bytes`: no longer asked whether they fit.
    pub fn set(&mut self, bytes: u64) {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut taken = self.account.taken.lock();
        *taken = *taken - self.bytes + bytes;
        self.bytes = bytes;
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        *self.account.taken.lock() -= self.bytes;
    }
}
