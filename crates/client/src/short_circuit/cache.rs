//! Cache of open replicas on this machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hearth_types::{BlockId, BlockPoolId, DatanodeUuid, ExtendedBlock, GenerationStamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::local_replica::LocalReplica;

/// Identity of a replica: the block with its generation stamp, on one datanode.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pool: BlockPoolId,
    id: BlockId,
    stamp: GenerationStamp,
    datanode: DatanodeUuid,
}

impl Key {
    pub(crate) fn new(block: &ExtendedBlock, datanode: &DatanodeUuid) -> Self {
        Self { pool: block.pool.clone(), id: block.id(), stamp: block.stamp(), datanode: datanode.clone() }
    }
}

/// Cache of open replicas, bounded in number. Each is closed `expiry` after its last use.
///
/// Sources: `dfs.client.read.shortcircuit.streams.cache.size` and `.expiry.ms`.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: Mutex<HashMap<Key, Entry>>,
    /// Maximum number of entries; with 0, replicas are closed when their last reader ends.
    size: usize,
    expiry: Duration,
}

#[derive(Debug)]
struct Entry {
    replica: Arc<LocalReplica>,
    /// Time of the last observed use.
    used: Instant,
}

impl Cache {
    pub(crate) fn new(size: usize, expiry: Duration) -> Self {
        Self { entries: Mutex::default(), size, expiry }
    }

    /// Returns the replica of `key`, if it is open and still valid. Removes an invalid one.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<LocalReplica>> {
        let mut entries = self.entries.lock();
        let replica = &entries.get(key)?.replica;
        if replica.is_valid() {
            replica.touch();
            return Some(Arc::clone(replica));
        }
        let stale = entries.remove(key);
        // Dropped outside the lock, because it may return memory to the system.
        drop(entries);
        drop(stale);
        None
    }

    /// Adds `replica`; evicts the least recently used entry if full. The caller must ensure that `expire` is called
    /// from now on.
    pub(crate) fn insert(&self, key: Key, replica: Arc<LocalReplica>) {
        if self.size == 0 {
            return;
        }
        let mut gone = Vec::new();
        let mut entries = self.entries.lock();
        while entries.len() >= self.size {
            let Some(victim) = entries.iter().min_by_key(|(_, entry)| entry.used()).map(|(key, _)| key.clone()) else {
                break;
            };
            gone.extend(entries.remove(&victim));
        }
        gone.extend(entries.insert(key, Entry { replica, used: Instant::now() }));
        drop(entries);
        drop(gone);
    }

    /// Removes `replica`, which had bad bytes.
    pub(crate) fn remove(&self, key: &Key, replica: &Arc<LocalReplica>) {
        let mut entries = self.entries.lock();
        if entries.get(key).is_some_and(|entry| Arc::ptr_eq(&entry.replica, replica)) {
            let stale = entries.remove(key);
            drop(entries);
            drop(stale);
        }
    }

    /// Removes entries that were not used for `expiry` or are no longer valid. Returns false when the cache is empty.
    pub(crate) fn expire(&self) -> bool {
        let mut gone = Vec::new();
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| {
            entry.look();
            let keep = entry.replica.is_valid() && entry.used.elapsed() < self.expiry;
            if !keep {
                gone.push(Arc::clone(&entry.replica));
            }
            keep
        });
        let left = !entries.is_empty();
        drop(entries);
        drop(gone);
        left
    }
}

impl Entry {
    /// Readers only set a flag: reading the clock would cost them more than the rest of a short read.
    fn look(&mut self) {
        if self.replica.take_touch() {
            self.used = Instant::now();
        }
    }

    fn used(&self) -> (bool, Instant) {
        (self.replica.is_touched(), self.used)
    }
}
