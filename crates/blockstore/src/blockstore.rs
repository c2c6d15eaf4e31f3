//! The store of one DataNode: its state, which its writers and threads share, and how it ends. Its operations are in the
//! files of their subject.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

use hearth_types::{BlockPoolId, DatanodeUuid};
use parking_lot::{Mutex, RwLock};

use crate::counters::Counters;
use crate::limits::ShrinkPace;
use crate::memory::budget::Budget;
use crate::open_files::OpenFileCache;
use crate::pool::Pool;
use crate::queues::{DirtyQueue, LentReplicas, Resident, Unsynced};
use crate::replica::Replica;
use crate::thread_signals::ThreadSignals;
use crate::volume::Volume;
use crate::{StoreEvent, StoreOptions, WithdrawHook};

/// All replicas of one DataNode. Threads share it by reference. When it is dropped, nothing more is flushed.
pub struct Blockstore {
    state: Arc<State>,
    /// The background threads, joined on drop. `None`: this is a [`Self::share`], whose drop ends nothing.
    pub(crate) owned_threads: Option<Vec<JoinHandle<()>>>,
}

/// The state of a store.
pub struct State {
    pub(crate) options: StoreOptions,
    pub(crate) uuid: DatanodeUuid,
    pub(crate) volumes: Vec<Arc<Volume>>,
    pub(crate) warnings: Vec<String>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) shrink_pace: Mutex<ShrinkPace>,
    /// Milliseconds; `StoreOptions::flush_delay` at the start.
    pub(crate) flush_delay_ms: AtomicU64,
    pub(crate) pools: RwLock<HashMap<BlockPoolId, Arc<Pool>>>,
    /// Serializes pool attachment.
    pub(crate) attaching: Mutex<()>,
    /// Finalized replicas not yet on disk, by volume, oldest first, with their tickets. Entries may be stale.
    pub(crate) dirty: Vec<Mutex<DirtyQueue>>,
    pub(crate) next_ticket: AtomicU64,
    /// One flush batch per volume at a time.
    pub(crate) flushing: Vec<Mutex<()>>,
    pub(crate) resident: Mutex<Resident>,
    /// Replicas on disk that are worth loading into memory.
    pub(crate) read_back_queue: Mutex<VecDeque<Weak<Replica>>>,
    pub(crate) open_files: OpenFileCache,
    pub(crate) lent: LentReplicas,
    /// Replicas finalized in files and not yet known to be on disk, by volume, oldest first.
    pub(crate) unsynced: Vec<Mutex<VecDeque<Unsynced>>>,
    pub(crate) events: Mutex<VecDeque<StoreEvent>>,
    pub(crate) counters: Counters,
    pub(crate) nonce: AtomicU64,
    pub(crate) next_volume: AtomicU64,
    pub(crate) threads: ThreadSignals,
    pub(crate) withdraw_hook: OnceLock<Arc<dyn WithdrawHook>>,
}

impl State {
    pub(crate) fn new(
        options: StoreOptions,
        uuid: DatanodeUuid,
        volumes: Vec<Arc<Volume>>,
        warnings: Vec<String>,
        budget: Arc<Budget>,
        first_nonce: u64,
    ) -> Self {
        let dirty = volumes.iter().map(|_| Mutex::new(VecDeque::new())).collect();
        let unsynced = volumes.iter().map(|_| Mutex::new(VecDeque::new())).collect();
        let open_files = OpenFileCache::new(&options.open_file_cache);
        let flushing = volumes.iter().map(|_| Mutex::new(())).collect();
        let flush_delay_ms = AtomicU64::new(u64::try_from(options.flush_delay.as_millis()).unwrap_or(u64::MAX));
        Self {
            options,
            uuid,
            volumes,
            warnings,
            budget,
            shrink_pace: Mutex::default(),
            flush_delay_ms,
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
            threads: ThreadSignals::default(),
            withdraw_hook: OnceLock::new(),
        }
    }
}

impl Deref for Blockstore {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl Blockstore {
    pub(crate) fn new(state: State) -> Self {
        Self { state: Arc::new(state), owned_threads: None }
    }

    /// Returns the same store for a writer or a thread of it, which may outlive its owner's value.
    pub(crate) fn share(&self) -> Self {
        Self { state: self.state.clone(), owned_threads: None }
    }

    /// UUID of this DataNode. It never changes, and is written to the volumes' `VERSION` files with the first pool.
    pub fn datanode_uuid(&self) -> &DatanodeUuid {
        &self.uuid
    }

    /// Problems that start-up found and tolerated, for the log and the operator.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns a number that differs from all others of this store, and most likely from those of former processes.
    pub(crate) fn next_nonce(&self) -> u64 {
        self.nonce.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.options.clock.monotonic().as_millis() as u64
    }

    /// Stops the background threads and unlocks the directories; does not flush (see `flush_all`).
    pub fn close(self) {
        drop(self)
    }

    /// Ends the store: writers and readers that outlive it must not touch directories that another process may use by
    /// then.
    fn release(&self) {
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
}

impl Drop for Blockstore {
    fn drop(&mut self) {
        let Some(threads) = self.owned_threads.take() else { return };
        self.threads.stop();
        for thread in threads {
            let _ = thread.join();
        }
        self.release();
    }
}
