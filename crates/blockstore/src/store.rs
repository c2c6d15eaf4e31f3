//! State shared by the public `Blockstore`, its writers and its threads.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use hearth_types::{BlockPoolId, ChecksumSpec, DatanodeUuid, ExtendedBlock, ReplicaState, StorageType};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::disk::copy;
use crate::error::{Result, StoreError};
use crate::lent_replicas::LentReplicas;
use crate::memory::budget::Budget;
use crate::open_files::OpenFileCache;
use crate::pool::Pool;
use crate::replica::{Core, MemoryCopy, Replica};
use crate::sync_behind::Unsynced;
use crate::sys;
use crate::volume::{Slice, Volume};
use crate::{ReplicaSummary, StoreEvent, StoreOptions, WithdrawHook, WithdrawReason, WithdrawReply};

pub struct Store {
    pub options: StoreOptions,
    pub uuid: DatanodeUuid,
    pub volumes: Vec<Arc<Volume>>,
    pub warnings: Vec<String>,
    pub budget: Arc<Budget>,
    pub pools: RwLock<HashMap<BlockPoolId, Arc<Pool>>>,
    /// Serializes pool attachment.
    pub attaching: Mutex<()>,
    /// Finalized replicas not yet on disk, by volume, oldest first, with their tickets. Entries may be stale.
    pub dirty: Vec<Mutex<DirtyQueue>>,
    next_ticket: AtomicU64,
    /// One flush batch per volume at a time.
    pub flushing: Vec<Mutex<()>>,
    /// Replicas in memory, in the order in which the clock hand visits them. Entries may be stale.
    pub resident: Mutex<Resident>,
    /// Replicas on disk that are worth loading into memory.
    pub read_back_queue: Mutex<VecDeque<Weak<Replica>>>,
    pub open_files: OpenFileCache,
    pub lent: LentReplicas,
    /// Replicas finalized in files and not yet known to be on disk, by volume, oldest first.
    pub unsynced: Vec<Mutex<VecDeque<Unsynced>>>,
    pub events: Mutex<VecDeque<StoreEvent>>,
    pub counters: Counters,
    nonce: AtomicU64,
    next_volume: AtomicU64,
    pub threads: Threads,
    pub withdraw_hook: OnceLock<Arc<dyn WithdrawHook>>,
}

type DirtyQueue = VecDeque<(u64, Weak<Replica>)>;

/// Number of entries below which stale entries are not looked for.
const RESIDENT_SWEPT_MIN: usize = 4096;

#[derive(Default)]
pub struct Resident {
    entries: VecDeque<Weak<Replica>>,
    /// Above this number of entries, those of deleted replicas are dropped.
    entries_max: usize,
}

/// Signals that wake and end the background threads.
#[derive(Default)]
pub struct Threads {
    pub stopping: AtomicBool,
    pub lock: Mutex<()>,
    pub wake: Condvar,
}

#[derive(Default)]
pub struct Counters {
    pub dirty_replicas: AtomicU64,
    pub dirty_bytes: AtomicU64,
    pub evictions: AtomicU64,
    pub read_backs: AtomicU64,
    pub memory_full: AtomicU64,
    pub flushed_replicas: AtomicU64,
    pub flushed_bytes: AtomicU64,
    pub flush_failures: AtomicU64,
    pub scrubbed_bytes: AtomicU64,
    pub corruptions: AtomicU64,
    pub granted_bytes: AtomicU64,
    pub grant_nanos: AtomicU64,
    pub committed_bytes: AtomicU64,
    pub copied_back_bytes: AtomicU64,
    pub received_in_place_bytes: AtomicU64,
}

pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

const EVENTS_MAX: usize = 10_000;

impl Store {
    pub fn new(
        options: StoreOptions,
        uuid: DatanodeUuid,
        volumes: Vec<Arc<Volume>>,
        warnings: Vec<String>,
        budget: Arc<Budget>,
        first_nonce: u64,
    ) -> Arc<Self> {
        let dirty = volumes.iter().map(|_| Mutex::new(VecDeque::new())).collect();
        let unsynced = volumes.iter().map(|_| Mutex::new(VecDeque::new())).collect();
        let open_files = OpenFileCache::new(&options.open_file_cache);
        let flushing = volumes.iter().map(|_| Mutex::new(())).collect();
        Arc::new(Self {
            options,
            uuid,
            volumes,
            warnings,
            budget,
            pools: RwLock::new(HashMap::new()),
            attaching: Mutex::new(()),
            dirty,
            next_ticket: AtomicU64::new(1),
            flushing,
            resident: Mutex::default(),
            read_back_queue: Mutex::new(VecDeque::new()),
            open_files,
            lent: LentReplicas::default(),
            unsynced,
            events: Mutex::new(VecDeque::new()),
            counters: Counters::default(),
            nonce: AtomicU64::new(first_nonce),
            next_volume: AtomicU64::new(0),
            threads: Threads::default(),
            withdraw_hook: OnceLock::new(),
        })
    }

    /// Returns a number that differs from all others of this store, and most likely from those of former processes.
    pub fn next_nonce(&self) -> u64 {
        self.nonce.fetch_add(1, Ordering::Relaxed)
    }

    pub fn now_ms(&self) -> u64 {
        self.options.clock.monotonic().as_millis() as u64
    }

    pub fn pool(&self, block: &ExtendedBlock) -> Result<Arc<Pool>> {
        let pool = self.pools.read().get(&block.pool).cloned();
        pool.ok_or_else(|| StoreError::PoolNotAttached { block: block.clone() })
    }

    pub fn replica(&self, block: &ExtendedBlock) -> Result<Arc<Replica>> {
        let found = self.pool(block)?.replicas.get(block.id());
        found.ok_or_else(|| StoreError::ReplicaNotFound { block: block.clone() })
    }

    /// Runs `act` on the replica of the block, with its `change` lock held. If the replica moves to another storage
    /// while the lock is awaited, `act` gets the new one.
    pub fn change_replica<T>(
        &self,
        block: &ExtendedBlock,
        mut act: impl FnMut(&Arc<Replica>) -> Result<T>,
    ) -> Result<T> {
        self.with_replica(block, |replica| {
            let _change = replica.change.lock();
            if replica.core().gone { Ok(None) } else { act(replica).map(Some) }
        })
    }

    /// Like [`Self::change_replica`], without the `change` lock. `act` returns `None` for a replica that is gone. A
    /// replica whose files cause an error is added to the suspects and checked later.
    pub fn with_replica<T>(
        &self,
        block: &ExtendedBlock,
        mut act: impl FnMut(&Arc<Replica>) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut replica = self.replica(block)?;
        loop {
            match act(&replica) {
                Ok(None) => {}
                Ok(Some(done)) => return Ok(done),
                Err(error) => {
                    if error.makes_suspect() {
                        replica.slice.volume.suspects.add(&replica);
                    }
                    return Err(error);
                }
            }
            // A replica that moves is replaced in the map before the old one is gone. A deleted replica leaves the map
            // last.
            let now = self.replica(block)?;
            if Arc::ptr_eq(&now, &replica) {
                return Err(StoreError::ReplicaNotFound { block: block.clone() });
            }
            replica = now;
        }
    }

    pub fn for_each_replica(&self, mut visit: impl FnMut(&Arc<Replica>)) {
        let pools: Vec<Arc<Pool>> = self.pools.read().values().cloned().collect();
        for pool in pools {
            pool.replicas.for_each(&mut visit);
        }
    }

    pub fn used_on(&self, volume: &Volume) -> u64 {
        let pools = self.pools.read();
        pools.values().map(|pool| pool.slices[volume.index].used.load(Ordering::Relaxed)).sum()
    }

    pub fn finalized_on(&self, volume: &Volume) -> u64 {
        let pools = self.pools.read();
        pools.values().map(|pool| pool.slices[volume.index].finalized.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of replicas on volumes of this type, plus the bytes that replicas being written there may need.
    pub fn bytes_on(&self, storage_type: StorageType) -> u64 {
        let volumes = self.volumes.iter().filter(|volume| volume.storage_type == storage_type && !volume.is_failed());
        volumes.map(|volume| self.used_on(volume) + volume.promised()).sum()
    }

    /// Chooses a volume of this type, round robin, and reserves `bytes` of its disk for the caller.
    ///
    /// The volume that a NameNode names is not used: Apache's NameNode names the same one of a DataNode for every
    /// block, and Apache's DataNode uses only its type. Source: `RoundRobinVolumeChoosingPolicy`.
    pub fn choose_volume(&self, pool: &Pool, storage_type: StorageType, bytes: u64) -> Result<Arc<Slice>> {
        let mut slices: Vec<&Arc<Slice>> = pool
            .slices
            .iter()
            .filter(|slice| slice.volume.storage_type == storage_type && !slice.volume.is_failed())
            .collect();
        if slices.is_empty() {
            return Err(StoreError::NoSuchStorageType(storage_type));
        }
        let turn = self.next_volume.fetch_add(1, Ordering::Relaxed) as usize;
        let by = turn % slices.len();
        slices.rotate_left(by);
        let mut problem = None;
        for slice in slices {
            match slice.volume.reserve(self.used_on(&slice.volume), bytes) {
                Ok(true) => return Ok(slice.clone()),
                Ok(false) => {}
                Err(error) => {
                    self.probe_volume(&slice.volume);
                    problem = Some(error);
                }
            }
        }
        Err(problem.unwrap_or(StoreError::NoSpace { storage_type, wanted: bytes }))
    }

    /// Runs `attempt`, which allocates memory. Retries after reclaiming memory while that helps. `Ok(None)`: memory is
    /// full.
    pub fn with_memory<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
        for _ in 0..8 {
            match attempt() {
                Err(error) if sys::is_out_of_space(&error) => {
                    if !self.reclaim(self.reclaim_step()) {
                        break;
                    }
                }
                other => return other.map(Some),
            }
        }
        count(&self.counters.memory_full, 1);
        self.wake();
        Ok(None)
    }

    /// Bytes to reclaim at once, enough for more than one caller.
    pub fn reclaim_step(&self) -> u64 {
        (self.budget.limit() / 32).clamp(1 << 20, 64 << 20)
    }

    /// Evicts clean replicas from memory, in clock order, until `bytes` are free. False: not one byte was freed.
    ///
    /// Replicas that other processes hold come last, and are only withdrawn: their memory is free once those processes
    /// have released it.
    pub fn reclaim(&self, bytes: u64) -> bool {
        let before = self.budget.used();
        self.budget.sweep();
        self.sweep_lent();
        let goal = before.saturating_sub(bytes);
        let free = |memory: &MemoryCopy| !(memory.is_pinned() || memory.is_shown() && memory.is_held_outside());
        if self.evict(goal, u64::MAX, free) > 0 || self.budget.used() < before {
            return true;
        }
        if self.budget.lingering() < bytes {
            self.evict(goal, bytes, MemoryCopy::is_shown);
        }
        self.budget.used() < before
    }

    /// Evicts replicas that `may` accepts until at most `goal` bytes are used or `bytes` of replicas have been evicted.
    /// Returns the bytes of the evicted replicas.
    fn evict(&self, goal: u64, bytes: u64, may: impl Fn(&MemoryCopy) -> bool) -> u64 {
        let mut gone = 0;
        let mut looks = self.resident.lock().entries.len() * 2;
        while looks > 0 && gone < bytes && self.budget.used() > goal {
            looks -= 1;
            let Some(entry) = self.resident.lock().entries.pop_front() else { break };
            let Some(replica) = entry.upgrade() else { continue };
            // An operation that changes the replica now needs it.
            let Some(_change) = replica.change.try_lock() else {
                self.resident.lock().entries.push_back(entry);
                continue;
            };
            let mut core = replica.core();
            if core.memory.is_none() {
                continue;
            }
            // Close the store's own descriptors, so that they do not hold the memory.
            core.cached_files = None;
            // The data on a failed disk may differ from what was written to it: the copy in memory is evacuated to
            // another storage.
            let clean = core.state == ReplicaState::Finalized && core.is_on_disk() && !replica.slice.volume.is_failed();
            let keep =
                !clean || !core.memory.as_ref().is_some_and(&may) || core.corrupt.is_some() || core.recovery.is_some();
            let keep = keep
                || std::mem::take(&mut core.referenced)
                || self.withdraw(&replica, &mut core, WithdrawReason::Eviction) == WithdrawReply::Later
                || core.memory.as_ref().is_some_and(MemoryCopy::is_pinned);
            if keep {
                drop(core);
                self.resident.lock().entries.push_back(entry);
                continue;
            }
            gone += core.received.max(1);
            self.drop_memory(&mut core);
            replica.forget_disk_reads(&mut core);
            count(&self.counters.evictions, 1);
        }
        gone
    }

    /// Drops the copy in memory; there is one on disk.
    pub fn drop_memory(&self, core: &mut Core) {
        core.open_header = None;
        core.cached_files = None;
        if let Some(memory) = core.memory.take() {
            memory.retire();
        }
    }

    pub fn note_resident(&self, replica: &Arc<Replica>) {
        let mut resident = self.resident.lock();
        resident.entries.push_back(Arc::downgrade(replica));
        if resident.entries.len() > resident.entries_max {
            // Each stale entry keeps the memory of a deleted replica, and a replica that was reopened has two entries.
            let mut seen = HashSet::new();
            resident.entries.retain(|entry| entry.strong_count() > 0 && seen.insert(entry.as_ptr()));
            resident.entries_max = (resident.entries.len() * 2).max(RESIDENT_SWEPT_MIN);
        }
    }

    /// Marks a finalized replica as dirty: its newest bytes are only in memory.
    pub fn note_dirty(&self, replica: &Arc<Replica>, core: &mut Core) {
        if core.dirty_since.is_none() {
            core.dirty_since = Some(self.now_ms());
            core.dirty_ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
            count(&self.counters.dirty_replicas, 1);
            count(&self.counters.dirty_bytes, core.received);
            let entry = (core.dirty_ticket, Arc::downgrade(replica));
            self.dirty[replica.slice.volume.index].lock().push_back(entry);
        }
    }

    pub fn clear_dirty(&self, core: &mut Core) {
        if core.dirty_since.take().is_some() {
            self.counters.dirty_replicas.fetch_sub(1, Ordering::Relaxed);
            self.counters.dirty_bytes.fetch_sub(core.received, Ordering::Relaxed);
        }
    }

    /// Updates the counters of used and reserved bytes to match `core`.
    pub fn settle_space(&self, replica: &Replica, core: &mut Core) {
        let checksum = core.checksum.unwrap_or(ChecksumSpec::DEFAULT);
        let meta = ChecksumSpec::META_HEADER_BYTES as u64 + checksum.checksum_bytes(core.received);
        let finalized = core.state == ReplicaState::Finalized && !core.gone;
        let counted = if finalized { core.received + meta } else { 0 };
        // Every counted replica has at least the header of a meta file, so `counted` is never 0.
        replica.slice.finalized.fetch_add(u64::from(counted > 0), Ordering::Relaxed);
        replica.slice.finalized.fetch_sub(u64::from(core.counted > 0), Ordering::Relaxed);
        replica.slice.used.fetch_add(counted, Ordering::Relaxed);
        replica.slice.used.fetch_sub(core.counted, Ordering::Relaxed);
        core.counted = counted;
        let reserved = match () {
            () if core.gone => 0,
            // Already counted as used, but not yet taken from the disk: the reservation makes up for the difference.
            () if finalized => {
                if core.is_on_disk() {
                    0
                } else {
                    counted
                }
            }
            () => core.reserved,
        };
        replica.slice.volume.change_reserved(core.reserved, reserved);
        core.reserved = reserved;
    }

    /// Removes a replica from memory, disk and map, as far as present. The caller holds `change`; the writer is
    /// stopped.
    pub fn discard(&self, replica: &Arc<Replica>) {
        let disk = {
            let mut core = replica.core();
            self.withdraw(replica, &mut core, WithdrawReason::Deletion);
            self.clear_dirty(&mut core);
            core.gone = true;
            core.cached_files = None;
            core.disk_files = None;
            core.writer = None;
            self.drop_memory(&mut core);
            self.settle_space(replica, &mut core);
            core.disk.take()
        };
        // Files on a failed disk are left for repair. When they are found again they are reported, and deleted if the
        // NameNode does not want them.
        if let Some(disk) = disk
            && !replica.slice.volume.is_failed()
        {
            copy::remove(&replica.slice.dirs, replica.id, disk);
        }
        if let Some(pool) = self.pools.read().get(&replica.slice.pool) {
            pool.replicas.remove(replica);
        }
    }

    pub fn summary(&self, replica: &Replica) -> ReplicaSummary {
        ReplicaSummary {
            block: replica.block(&replica.core()),
            storage: replica.slice.volume.id.clone(),
            storage_type: replica.slice.volume.storage_type,
        }
    }

    pub fn event(&self, event: StoreEvent) {
        let mut events = self.events.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Marks the replica corrupt: no good copy is left.
    pub fn mark_corrupt(&self, replica: &Replica, core: &mut Core, reason: &str) -> StoreError {
        let block = replica.block(core);
        if core.corrupt.is_none() {
            self.withdraw(replica, core, WithdrawReason::Corruption);
            core.corrupt = Some(reason.into());
            core.cached_files = None;
            self.clear_dirty(core);
            count(&self.counters.corruptions, 1);
            tracing::error!(%block, reason, storage = %replica.slice.volume.id, "replica is corrupt");
            self.event(self.corrupt_event(replica, core));
        }
        StoreError::Corrupt { block, reason: reason.to_owned() }
    }

    pub fn corrupt_event(&self, replica: &Replica, core: &Core) -> StoreEvent {
        let volume = &replica.slice.volume;
        StoreEvent::Corrupt {
            block: replica.block(core),
            storage: volume.id.clone(),
            storage_type: volume.storage_type,
        }
    }

    /// Takes the volume out of use. Replicas in memory are still served, and are evacuated: see `ops/evacuate.rs`.
    pub fn fail_volume(&self, volume: &Arc<Volume>, reason: &str) {
        let capacity_lost = volume.space(self.used_on(volume)).map_or(0, |space| space.capacity);
        if !volume.fail(reason) {
            return;
        }
        tracing::error!(dir = %volume.dir.display(), reason, "storage has failed");
        self.event(StoreEvent::VolumeFailed {
            storage: Some(volume.id.clone()),
            dir: volume.dir.clone(),
            reason: reason.to_owned(),
            capacity_lost,
        });
        self.wake();
    }

    /// Ends the store: writers and readers that outlive it must not touch directories that another process may use by
    /// then.
    pub fn close(&self) {
        self.for_each_replica(|replica| {
            let _change = replica.change.lock();
            if let Err(error) = replica.stop_writer(self.options.writer_stop_timeout) {
                tracing::warn!(%error, "cannot stop a writer while closing the store");
            }
        });
        for pool in self.pools.read().values() {
            pool.slices.iter().for_each(|slice| slice.slabs.close());
        }
        self.budget.forget_lingering();
        self.volumes.iter().for_each(|volume| volume.unlock());
    }

    pub fn wake(&self) {
        let _guard = self.threads.lock.lock();
        self.threads.wake.notify_all();
    }
}
