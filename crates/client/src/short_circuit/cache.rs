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

/// Cache of open replicas, bounded in number and in mapped bytes. Each is closed `expiry` after its last use.
///
/// A replica that leaves the cache stays open for the readers that use it.
///
/// Sources: `dfs.client.read.shortcircuit.streams.cache.size` and `.expiry.ms`; `hearth.client.mapped.max`.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: Mutex<Entries>,
    /// Maximum number of entries; with 0, replicas are closed when their last reader ends.
    size: usize,
    /// Maximum number of bytes that the entries map. The newest entry stays even if it alone maps more: positioned reads
    /// only find replicas that the cache keeps open.
    mapped_bytes_max: u64,
    expiry: Duration,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    /// Number of bytes that all entries map.
    mapped_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    replica: Arc<LocalReplica>,
    /// Time of the last observed use.
    used: Instant,
}

impl Cache {
    pub(crate) fn new(size: usize, mapped_bytes_max: u64, expiry: Duration) -> Self {
        Self { entries: Mutex::default(), size, mapped_bytes_max, expiry }
    }

    /// Returns the replica of `key`, if it is open and still valid. Removes an invalid one.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<LocalReplica>> {
        let mut entries = self.entries.lock();
        let replica = &entries.by_key.get(key)?.replica;
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

    /// Adds `replica`; evicts the least recently used entries for which there is no more room. The caller must ensure that
    /// `expire` is called from now on.
    pub(crate) fn insert(&self, key: Key, replica: Arc<LocalReplica>) {
        if self.size == 0 {
            return;
        }
        let bytes = replica.mapped_bytes();
        let mut entries = self.entries.lock();
        let mut gone: Vec<Entry> = entries.remove(&key).into_iter().collect();
        while entries.by_key.len() >= self.size || entries.mapped_bytes.saturating_add(bytes) > self.mapped_bytes_max {
            let least_used = entries.by_key.iter().min_by_key(|(_, entry)| entry.used());
            let Some(victim) = least_used.map(|(key, _)| key.clone()) else { break };
            gone.extend(entries.remove(&victim));
        }
        entries.mapped_bytes += bytes;
        gone.extend(entries.by_key.insert(key, Entry { replica, used: Instant::now() }));
        drop(entries);
        drop(gone);
    }

    /// Removes `replica`, which had bad bytes.
    pub(crate) fn remove(&self, key: &Key, replica: &Arc<LocalReplica>) {
        let mut entries = self.entries.lock();
        if entries.by_key.get(key).is_some_and(|entry| Arc::ptr_eq(&entry.replica, replica)) {
            let stale = entries.remove(key);
            drop(entries);
            drop(stale);
        }
    }

    /// Removes entries that were not used for `expiry` or are no longer valid. Returns false when the cache is empty.
    pub(crate) fn expire(&self) -> bool {
        let mut gone = Vec::new();
        let mut entries = self.entries.lock();
        let Entries { by_key, mapped_bytes } = &mut *entries;
        by_key.retain(|_, entry| {
            entry.look();
            let keep = entry.replica.is_valid() && entry.used.elapsed() < self.expiry;
            if !keep {
                *mapped_bytes -= entry.replica.mapped_bytes();
                gone.push(Arc::clone(&entry.replica));
            }
            keep
        });
        let left = !entries.by_key.is_empty();
        drop(entries);
        drop(gone);
        left
    }
}

impl Entries {
    fn remove(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.by_key.remove(key)?;
        self.mapped_bytes -= entry.replica.mapped_bytes();
        Some(entry)
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
