//! Account of `dfs.datanode.max.locked.memory`: covers both the replicas that centralised caching holds in memory and
//! the replicas on RAM_DISK storage. Source: hdfs `FsDatasetCache`, with which `FsDatasetImpl` reserves for RAM_DISK.
//!
//! The store counts replicas on RAM_DISK from their creation to their deletion; this account holds only the bytes that
//! the store does not count.

use std::sync::Arc;

use hearth_blockstore::Blockstore;
use hearth_types::StorageType;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Page size: Java counts locked memory in pages, and NameNodes plan with that.
pub const PAGE: u64 = 4096;

pub struct LockedMemory {
    /// Capacity in bytes; 0 disables all uses.
    capacity: u64,
    store: Arc<Blockstore>,
    /// Bytes of the reservations that exist.
    reserved: Mutex<u64>,
    /// Notified when RAM_DISK storage is requested and the account is full.
    space_wanted: Notify,
}

/// Bytes reserved in the account, returned on drop.
pub struct LockedBytes {
    account: Arc<LockedMemory>,
    bytes: u64,
}

impl LockedMemory {
    pub fn new(capacity: u64, store: &Arc<Blockstore>) -> Arc<Self> {
        Arc::new(Self { capacity, store: store.clone(), reserved: Mutex::new(0), space_wanted: Notify::new() })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the used bytes, including those on RAM_DISK. At most the capacity, even if a NameNode has put more on
    /// RAM_DISK.
    pub fn used(&self) -> u64 {
        let taken = self.reserved.lock();
        (*taken + self.on_ram_disk()).min(self.capacity)
    }

    /// Reserves `bytes`, rounded up to pages. `None`: the account has too little left.
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

    /// Requests that replicas leave RAM_DISK, for the next reservation.
    pub fn request_space(&self) {
        self.space_wanted.notify_one();
    }

    /// Resolves when space was requested since the last call.
    pub async fn space_requested(&self) {
        self.space_wanted.notified().await;
    }

    fn on_ram_disk(&self) -> u64 {
        self.store.bytes_on(StorageType::RamDisk)
    }
}

impl LockedBytes {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the reservation to `bytes`, the actual size, without checking the limit.
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
