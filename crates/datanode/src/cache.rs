//! Centralised caching: replicas that a NameNode wants cached are held in memory, so that they are not evicted.
//!
//! A NameNode's CACHE command is put into a queue that one task processes, because loading replicas waits for the disk.
//! The next cache report lists the held blocks. Replicas that were appended to, truncated or deleted in between are
//! released before each report. The bytes count against `dfs.datanode.max.locked.memory` (`locked_memory.rs`), and are
//! part of `hearth.memory.limit`.
//! Source: DatanodeProtocol.proto, `BlockIdCommandProto`, `CacheReportRequestProto`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_blockstore::{Blockstore, PinnedReplica, StoreError};
use hearth_types::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp};
use parking_lot::Mutex;

use crate::locked_memory::{LockedBytes, LockedMemory};

/// Maximum number of blocks that wait to be loaded; a NameNode repeats commands for blocks that are not reported in
/// time.
const WANTED_MAX: usize = 1 << 20;

type BlockKey = (BlockPoolId, BlockId);

/// Cached blocks, and the queue of blocks to cache.
pub struct Cache {
    memory: Arc<LockedMemory>,
    state: Mutex<CacheState>,
    failed: AtomicU64,
}

#[derive(Default)]
struct CacheState {
    held: HashMap<BlockKey, (PinnedReplica, LockedBytes)>,
    wanted: VecDeque<BlockKey>,
    /// The blocks in `wanted` that are still wanted.
    queued: HashSet<BlockKey>,
    /// A task is processing `wanted`.
    worker_running: bool,
    /// Block that the task is loading, as long as it is wanted.
    loading_block: Option<BlockKey>,
    /// True when the DataNode stops: no block is wanted any more.
    stopped: bool,
}

impl Cache {
    pub fn new(memory: Arc<LockedMemory>) -> Self {
        Self { memory, state: Mutex::new(CacheState::default()), failed: AtomicU64::new(0) }
    }

    /// Returns the bytes of the held replicas, in whole pages.
    pub fn bytes(&self) -> u64 {
        self.state.lock().held.values().map(|(_, locked)| locked.bytes()).sum()
    }

    pub fn replicas(&self) -> usize {
        self.state.lock().held.len()
    }

    /// Returns how many replicas could not be loaded since the start.
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Handles CACHE: queues `blocks` of `pool` to be loaded and held. Returns at once.
    pub fn cache_blocks(self: &Arc<Self>, store: &Arc<Blockstore>, pool: &BlockPoolId, blocks: &[BlockId]) {
        if self.memory.capacity() == 0 {
            tracing::warn!("ignoring blocks that a namenode wants cached: dfs.datanode.max.locked.memory is 0");
            return;
        }
        let start = {
            let mut state = self.state.lock();
            if state.stopped {
                return;
            }
            for id in blocks {
                let name = (pool.clone(), *id);
                if state.wanted.len() < WANTED_MAX
                    && state.loading_block.as_ref() != Some(&name)
                    && !state.held.contains_key(&name)
                    && state.queued.insert(name.clone())
                {
                    state.wanted.push_back(name);
                }
            }
            !std::mem::replace(&mut state.worker_running, true)
        };
        if start {
            let (cache, store) = (self.clone(), store.clone());
            tokio::task::spawn_blocking(move || cache.load_queued(&store));
        }
    }

    /// Clears the queue when the DataNode stops.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.wanted.clear();
        state.queued.clear();
        state.loading_block = None;
    }

    /// Handles UNCACHE and deletions: releases `blocks`. A block that is being loaded is not kept.
    pub fn uncache(&self, pool: &BlockPoolId, blocks: &[BlockId]) {
        let mut state = self.state.lock();
        for id in blocks {
            let name = (pool.clone(), *id);
            state.queued.remove(&name);
            state.held.remove(&name);
            state.loading_block.take_if(|coming| *coming == name);
        }
    }

    /// Returns the blocks of `pool` that are held in their current version.
    pub fn report(&self, pool: &BlockPoolId) -> Vec<BlockId> {
        let mut state = self.state.lock();
        state.held.retain(|_, (held, _)| held.is_current());
        state.held.keys().filter(|(of, _)| of == pool).map(|(_, id)| *id).collect()
    }

    /// Loads the queued blocks one after the other. Waits for the disk.
    fn load_queued(&self, store: &Blockstore) {
        while let Some(name) = self.next() {
            if let Err(error) = self.load_block(store, &name) {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let error: &dyn std::error::Error = &error;
                tracing::warn!(pool = %name.0, block = %name.1, error, "cannot cache a block");
            }
        }
    }

    /// Returns the next block to load. `None`: the queue is empty; the next request starts a new task.
    fn next(&self) -> Option<BlockKey> {
        let mut state = self.state.lock();
        while let Some(name) = state.wanted.pop_front() {
            if state.queued.remove(&name) {
                state.loading_block = Some(name.clone());
                return Some(name);
            }
        }
        (state.worker_running, state.loading_block) = (false, None);
        None
    }

    fn load_block(&self, store: &Blockstore, name: &BlockKey) -> Result<(), CacheError> {
        // Any generation stamp matches.
        let block = Block { id: name.1, stamp: GenerationStamp(0), length: 0 };
        let block = ExtendedBlock { pool: name.0.clone(), block };
        let Some(found) = store.replica(&block.pool, block.id()) else {
            return Err(StoreError::ReplicaNotFound { block }.into());
        };
        let bytes = found.block.length;
        let Some(mut locked) = self.memory.reserve(bytes) else {
            return Err(CacheError::Full { bytes, used: self.memory.used(), capacity: self.memory.capacity() });
        };
        let held = store.pin(&block)?.ok_or(CacheError::NoMemory { bytes })?;
        // The replica may have grown since it was opened.
        locked.resize(held.length());
        let mut state = self.state.lock();
        // Unless it was cancelled in the meantime.
        if let Some(name) = state.loading_block.take_if(|coming| coming == name) {
            state.held.insert(name, (held, locked));
        }
        Ok(())
    }
}

/// Reason why a replica is not cached.
#[derive(Debug, thiserror::Error)]
enum CacheError {
    #[error("{bytes} bytes do not fit in dfs.datanode.max.locked.memory: {used} of {capacity} bytes are in use")]
    Full { bytes: u64, used: u64, capacity: u64 },
    #[error(
        "no memory for {bytes} bytes: hearth.memory.limit is reached, or the storage directory keeps replicas in files"
    )]
    NoMemory { bytes: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use hearth_blockstore::{
        Checksums, CreateKind, CreateOptions, Durability, MemoryOptions, StoreOptions, VolumeOptions,
    };
    use hearth_types::PoolIdentity;

    use super::*;

    /// Creates a store with replicas of `ids`. The returned directories must outlive it.
    fn store(pool: &BlockPoolId, ids: &[BlockId]) -> (Arc<Blockstore>, [tempfile::TempDir; 2]) {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let volume = VolumeOptions::memory(directories[0].path().join("disk"));
        let tier = MemoryOptions::new(directories[1].path().join("memory"), 16 << 20);
        let mut options = StoreOptions::new(vec![volume], tier);
        options.background = false;
        options.default_block_bytes = 1 << 20;
        let store = Arc::new(Blockstore::open(options).unwrap());
        let identity =
            PoolIdentity { pool: pool.clone(), namespace_id: 1, cluster_id: "CID-test".to_owned(), created_ms: 1 };
        store.attach_pool(&identity).unwrap();
        for id in ids {
            let block = Block { id: *id, stamp: GenerationStamp(1001), length: 0 };
            let block = ExtendedBlock { pool: pool.clone(), block };
            let kind = CreateKind::BeingWritten { replace: false };
            let mut writer = store.create(&block, kind, &CreateOptions::default()).unwrap();
            writer.write(0, &[7; 5000], Checksums::Compute).unwrap();
            writer.finalize(Durability::Memory).unwrap();
        }
        (store, directories)
    }

    #[test]
    fn block_uncached_during_load_is_not_kept() {
        let (pool, ids) = (BlockPoolId::new("BP-1-127.0.0.1-1"), [BlockId(1), BlockId(2)]);
        let (store, _directories) = store(&pool, &ids);
        let cache = Arc::new(Cache::new(LockedMemory::new(1 << 20, &store)));
        let want = |ids: &[BlockId]| {
            let mut state = cache.state.lock();
            // The test takes the role of the task.
            state.worker_running = true;
            drop(state);
            cache.cache_blocks(&store, &pool, ids);
        };
        want(&ids);
        let one = cache.next().unwrap();
        // A second request for a block that is being loaded does not load it twice.
        want(&ids);
        cache.uncache(&pool, &ids[..1]);
        cache.load_block(&store, &one).unwrap();
        assert_eq!((cache.replicas(), cache.bytes(), cache.memory.used()), (0, 0, 0));
        let two = cache.next().unwrap();
        cache.load_block(&store, &two).unwrap();
        assert_eq!(cache.report(&pool), [BlockId(2)]);
        // The block is requested again before the first load has finished.
        want(&ids[..1]);
        let one = cache.next().unwrap();
        cache.uncache(&pool, &ids[..1]);
        want(&ids[..1]);
        cache.load_block(&store, &one).unwrap();
        assert_eq!(cache.replicas(), 1);
        let one = cache.next().unwrap();
        cache.load_block(&store, &one).unwrap();
        assert_eq!(cache.replicas(), 2);
        assert_eq!(cache.next(), None);
    }
}
