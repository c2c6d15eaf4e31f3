//! What the public `Blockstore`, its writers and its threads share.

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
    /// Makes attaching one at a time.
    pub attaching: Mutex<()>,
    /// Finalized replicas not yet on disk, by volume, oldest first, with their tickets. Entries may be stale.
    pub dirty: Vec<Mutex<DirtyQueue>>,
    next_ticket: AtomicU64,
    /// One flush batch per volume at a time.
    pub flushing: Vec<Mutex<()>>,
    /// Replicas in memory, in the order in which the clock hand comes by. Entries may be stale.
    pub resident: Mutex<Resident>,
    /// Replicas on disk that are worth memory.
    pub read_back_queue: Mutex<VecDeque<Weak<Replica>>>,
    pub open_files: OpenFileCache,
    pub lent: LentReplicas,
    /// Finalized in files, and not yet known to be on disk, by volume, oldest first.
    pub unsynced: Vec<Mutex<VecDeque<Unsynced>>>,
    pub events: Mutex<VecDeque<StoreEvent>>,
    pub counters: Counters,
    nonce: AtomicU64,
    next_volume: AtomicU64,
    pub threads: Threads,
    pub withdraw_hook: OnceLock<Arc<dyn WithdrawHook>>,
}

type DirtyQueue = VecDeque<(u64, Weak<Replica>)>;

/// Entries below which it is not worth looking for those of replicas that are gone.
const RESIDENT_SWEPT_MIN: usize = 4096;

#[derive(Default)]
pub struct Resident {
    entries: VecDeque<Weak<Replica>>,
    /// With more, those of replicas that are gone are dropped.
    entries_max: usize,
}

/// How the background threads are woken and ended.
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

    /// Differs from all others of this store, and most likely from those of former lives.
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

    /// Does `act` with the replica of the block, under its `change`: with the one that counts, if it has moved to another storage while it
    /// was waited for.
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

    /// The same for those who do not take `change`. `act` says `None` of a replica that is gone. One that fails by its files is looked at
    /// later.
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
            // One that moves is in the map in the place of the other before that is gone; one that is deleted leaves it last of all.
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

    /// Bytes of replicas on volumes of this type, and those that being-written ones there may come to need.
    pub fn bytes_on(&self, storage_type: StorageType) -> u64 {
        let volumes = self.volumes.iter().filter(|volume| volume.storage_type == storage_type && !volume.is_failed());
        volumes.map(|volume| self.used_on(volume) + volume.promised()).sum()
    }

    /// A volume of this type with `bytes` of disk, promised to the caller: round robin.
    ///
    /// Not the one that a namenode names: Apache's names the same one of a datanode for every block, and its datanode
    /// takes that for the type only. Source: `RoundRobinVolumeChoosingPolicy`.
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

    /// Runs `attempt`, which takes memory, and again after making room while that helps. `Ok(None)`: memory is full.
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

    /// Room is made for more than one caller at a time.
    pub fn reclaim_step(&self) -> u64 {
        (self.budget.limit() / 32).clamp(1 << 20, 64 << 20)
    }

    /// Takes clean replicas out of memory, in clock order, until `bytes` are free. False: that freed not one byte.
    ///
    /// Those that other processes hold are last, and only asked for: their memory is free when they have let go.
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

    /// Evicts what `may` go until no more than `goal` bytes are used, or replicas of `bytes` have gone. Returns the bytes of
    /// those that went.
    fn evict(&self, goal: u64, bytes: u64, may: impl Fn(&MemoryCopy) -> bool) -> u64 {
        let mut gone = 0;
        let mut looks = self.resident.lock().entries.len() * 2;
        while looks > 0 && gone < bytes && self.budget.used() > goal {
            looks -= 1;
            let Some(entry) = self.resident.lock().entries.pop_front() else { break };
            let Some(replica) = entry.upgrade() else { continue };
            // Whoever changes it now needs it.
            let Some(_change) = replica.change.try_lock() else {
                self.resident.lock().entries.push_back(entry);
                continue;
            };
            let mut core = replica.core();
            if core.memory.is_none() {
                continue;
            }
            // The store's own descriptors hold nothing.
            core.cached_files = None;
            // What a failed disk has may not be what was written to it: memory's copy leaves for another storage.
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

    /// Takes the copy out of memory; the disk has one.
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
            // Of those that are gone each entry keeps the memory, and one that was opened again has two.
            let mut seen = HashSet::new();
            resident.entries.retain(|entry| entry.strong_count() > 0 && seen.insert(entry.as_ptr()));
            resident.entries_max = (resident.entries.len() * 2).max(RESIDENT_SWEPT_MIN);
        }
    }

    /// A finalized replica whose newest bytes are in memory only.
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

    /// Sets what is counted as used, and what is still promised, to what `core` says.
    pub fn settle_space(&self, replica: &Replica, core: &mut Core) {
        let checksum = core.checksum.unwrap_or(ChecksumSpec::DEFAULT);
        let meta = ChecksumSpec::META_HEADER_BYTES as u64 + checksum.checksum_bytes(core.received);
        let finalized = core.state == ReplicaState::Finalized && !core.gone;
        let counted = if finalized { core.received + meta } else { 0 };
        // Whatever is counted has the header of a meta file at least.
        replica.slice.finalized.fetch_add(u64::from(counted > 0), Ordering::Relaxed);
        replica.slice.finalized.fetch_sub(u64::from(core.counted > 0), Ordering::Relaxed);
        replica.slice.used.fetch_add(counted, Ordering::Relaxed);
        replica.slice.used.fetch_sub(core.counted, Ordering::Relaxed);
        core.counted = counted;
        let reserved = match () {
            () if core.gone => 0,
            // Counted as used already, and not yet taken from the disk: the promise makes up for it.
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

    /// Takes a replica out: memory, disk, map, if it is there. Under `change`, its writer stopped.
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
        // What a failed one has is for whoever repairs it: it is reported when it is found again, and deleted then if nobody wants it.
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

    /// No good copy is left.
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

    /// The volume is out of use from here on. Replicas that are in memory are still served, and leave it: see `ops/evacuate.rs`.
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

    /// The end: writers and readers that outlive the store must not touch directories that others may have by then.
    pub fn close(&self) {
        self.for_each_replica(|replica| {
            let _change = replica.change.lock();
            if let Err(error) = replica.stop_writer(self.options.writer_stop_timeout) {
                tracing::warn!(%error, "closing the store");
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
