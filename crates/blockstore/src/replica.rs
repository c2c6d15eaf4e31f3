//! One replica: its state, and the locks that guard it.
//!
//! `change` is held through every change of state, even while that waits for a disk. `core` is held only briefly, and
//! guards everything that readers need. A writer's own state has a third lock. Lock order: change, writer, core.
//!
//! Only the flusher waits for one replica's `change` while holding another's: it takes those of a batch, in no order.
//! The `change` of a replica that was just created is uncontended, and may be held together with that of its source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hearth_types::{Block, BlockId, ChecksumSpec, ExtendedBlock, GenerationStamp, ReplicaState};
use parking_lot::{Mutex, MutexGuard};

use crate::disk::copy::{DiskCopy, DiskFiles, DiskWriter};
use crate::disk::layout::ReplicaDir;
use crate::disk::stream::DiskStream;
use crate::error::{Result, StoreError};
use crate::memory::file::{CrcMap, FileCopy, FileWriter};
use crate::memory::header::Progress;
use crate::memory::slab::Slot;
use crate::open_files::CachedFiles;
use crate::snapshot::{Snapshot, Source};
use crate::summary::ReplicaSummary;
use crate::volume::Slice;

/// Maximum wait for a replica's core lock by a caller that must not wait for a disk. Other holders need far less time
/// than this, unless they wait for a disk.
pub const CORE_LOCK_TIMEOUT: Duration = Duration::from_millis(2);

/// A copy in memory.
#[derive(Clone)]
pub enum MemoryCopy {
    Slot(Arc<Slot>),
    File(Arc<FileCopy>),
}

pub struct Replica {
    pub id: BlockId,
    pub slice: Arc<Slice>,
    pub change: Mutex<()>,
    /// Bytes that readers read from disk since the replica was last in memory.
    pub disk_bytes: AtomicU64,
    core: Mutex<Core>,
}

pub struct Core {
    /// Never UNDER_RECOVERY: see `recovery`.
    pub state: ReplicaState,
    pub stamp: GenerationStamp,
    pub received: u64,
    pub acked: u64,
    /// CRC of the last chunk if it is not whole. Unknown (0) for finalized replicas that are only on disk.
    pub partial_crc: u32,
    /// Unknown before the first use of a replica that was found on disk.
    pub checksum: Option<ChecksumSpec>,
    /// Id of the block recovery in progress.
    pub recovery: Option<GenerationStamp>,
    pub memory: Option<MemoryCopy>,
    /// The mapped header of `memory` while a writer has it open.
    pub open_header: Option<Arc<CrcMap>>,
    /// Sequence of the last recorded progress.
    pub sequence: u64,
    pub disk: Option<DiskCopy>,
    /// The open files of the replica, cached for readers.
    pub cached_files: Option<CachedFiles>,
    /// Files that the writer writes, if it writes on disk.
    pub disk_files: Option<Arc<DiskFiles>>,
    pub writer: Option<Arc<WriterShared>>,
    /// Bytes of disk space reserved.
    pub reserved: u64,
    /// Bytes counted as used in `slice`.
    pub counted: u64,
    /// Time, in ms of the monotonic clock, since which the replica is finalized and not yet on disk.
    pub dirty_since: Option<u64>,
    /// Ticket of the flusher's queue entry for `dirty_since`; entries with older tickets are stale.
    pub dirty_ticket: u64,
    /// Read since the clock hand last passed.
    pub referenced: bool,
    /// Number of readers that were served from disk since the replica was last in memory.
    pub disk_reads: u8,
    /// Queued to be read back into memory, and not processed yet.
    pub is_read_back_queued: bool,
    pub corrupt: Option<Box<str>>,
    /// Removed from the map, or about to be. The block may have moved to another storage; see `Blockstore::change_replica`.
    pub gone: bool,
    /// Number of times that the replica's shown bytes were withdrawn.
    pub withdrawals: u32,
    /// A change is in progress: nothing of the replica may be shown.
    pub changing: bool,
    /// All bytes were checked against their CRCs while they were in this process's memory.
    pub verified: bool,
}

impl Core {
    pub fn new(state: ReplicaState, stamp: GenerationStamp) -> Self {
        Self {
            state,
            stamp,
            received: 0,
            acked: 0,
            partial_crc: 0,
            checksum: None,
            recovery: None,
            memory: None,
            open_header: None,
            sequence: 0,
            disk: None,
            cached_files: None,
            disk_files: None,
            writer: None,
            reserved: 0,
            counted: 0,
            dirty_since: None,
            dirty_ticket: 0,
            referenced: false,
            disk_reads: 0,
            is_read_back_queued: false,
            corrupt: None,
            gone: false,
            withdrawals: 0,
            changing: false,
            verified: true,
        }
    }

    /// Creates the core of a copy into which `content` is being written, and whose space is reserved.
    pub fn of_copy(stamp: GenerationStamp, content: &Snapshot) -> Self {
        Self {
            reserved: content.length,
            received: content.length,
            acked: content.length,
            partial_crc: content.partial_crc,
            checksum: Some(content.checksum),
            ..Self::new(ReplicaState::BeingWritten, stamp)
        }
    }

    /// State as `replica` and recovery responses report it.
    pub fn state_now(&self) -> ReplicaState {
        if self.recovery.is_some() { ReplicaState::UnderRecovery } else { self.state }
    }

    /// Number of bytes that readers may rely on. `None`: not readable.
    pub fn visible_length(&self) -> Option<u64> {
        match self.state {
            ReplicaState::Finalized => Some(self.received),
            ReplicaState::BeingWritten => Some(self.acked),
            ReplicaState::WaitingToBeRecovered | ReplicaState::Temporary | ReplicaState::UnderRecovery => None,
        }
    }

    /// Returns whether the disk has the whole replica in its current state.
    pub fn is_on_disk(&self) -> bool {
        let place =
            if self.state == ReplicaState::Finalized { ReplicaDir::Finalized } else { ReplicaDir::BeingWritten };
        self.disk == Some(DiskCopy { place, stamp: self.stamp, length: self.received })
    }

    /// Returns whether opening the replica's bytes opens files on disk, which may block.
    pub fn opens_on_disk(&self) -> bool {
        let kept = self.cached_files.as_ref().is_some_and(|kept| kept.is_of(self.disk));
        self.memory.is_none() && self.disk_files.is_none() && !kept
    }

    /// Returns a progress record of `self` with the next sequence number.
    pub fn progress(&mut self) -> Progress {
        self.sequence += 1;
        Progress {
            sequence: self.sequence,
            stamp: self.stamp,
            received: self.received,
            acked: self.acked,
            partial_crc: self.partial_crc,
            state: self.state,
        }
    }

    /// Records `self` so that it outlives the process, as far as the replica is in memory.
    pub fn record(&mut self) -> std::io::Result<()> {
        match (self.memory.clone(), self.open_header.clone()) {
            (None, _) => Ok(()),
            (Some(MemoryCopy::Slot(slot)), _) => {
                slot.record(&self.progress());
                Ok(())
            }
            (Some(MemoryCopy::File(_)), Some(hot)) => {
                hot.record(&self.progress());
                Ok(())
            }
            (Some(MemoryCopy::File(copy)), None) => copy.record(&self.progress()),
        }
    }
}

impl MemoryCopy {
    pub fn retire(&self) {
        match self {
            Self::Slot(slot) => slot.retire(),
            Self::File(copy) => copy.retire(),
        }
    }

    /// Returns whether it is held outside the replica.
    pub fn is_pinned(&self) -> bool {
        self.is_pinned_beside(None)
    }

    /// Returns whether it is held by anything but the replica and the store's own cache of open files.
    pub fn is_pinned_beside(&self, kept: Option<&CachedFiles>) -> bool {
        match self {
            Self::Slot(slot) => Arc::strong_count(slot) > 1,
            Self::File(copy) => {
                copy.is_open_beside(kept.and_then(CachedFiles::in_memory)) || Arc::strong_count(copy) > 1
            }
        }
    }

    /// Returns whether other processes may hold it or have held it.
    pub fn is_shown(&self) -> bool {
        match self {
            Self::Slot(_) => false,
            Self::File(copy) => copy.is_shown(),
        }
    }

    /// Returns whether another process may have it open for writing.
    pub fn may_be_written_outside(&self) -> bool {
        match self {
            Self::Slot(_) => false,
            Self::File(copy) => copy.may_be_written_outside(),
        }
    }

    /// Returns whether a process that the copy was shown to still has it open. If not, the shown mark is cleared.
    /// Called under the core lock: a caller that is about to show the copy has it open itself.
    pub fn is_still_shown(&self) -> bool {
        if !self.is_shown() {
            return false;
        }
        let held = self.is_pinned() || self.is_held_outside();
        if let (Self::File(copy), false) = (self, held) {
            copy.clear_shown();
        }
        held
    }

    /// Returns whether other processes hold it, as far as the kernel knows.
    pub fn is_held_outside(&self) -> bool {
        match self {
            Self::Slot(_) => false,
            Self::File(copy) => copy.is_held(),
        }
    }

    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Slot(a), Self::Slot(b)) => Arc::ptr_eq(a, b),
            (Self::File(a), Self::File(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Replica {
    pub fn new(id: BlockId, slice: Arc<Slice>, core: Core) -> Self {
        Self { id, slice, change: Mutex::new(()), disk_bytes: AtomicU64::new(0), core: Mutex::new(core) }
    }

    /// Resets the statistics of reads from disk.
    pub fn forget_disk_reads(&self, core: &mut Core) {
        core.disk_reads = 0;
        self.disk_bytes.store(0, Ordering::Relaxed);
    }

    pub fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Like `core`, for callers that must not wait. `None`: a thread holds the lock while it opens files, which
    /// may wait for a disk.
    pub fn core_within(&self, patience: Duration) -> Option<MutexGuard<'_, Core>> {
        self.core.try_lock_for(patience)
    }

    /// Returns the replica's block with its stamp and the bytes received.
    pub fn block(&self, core: &Core) -> ExtendedBlock {
        let block = Block { id: self.id, stamp: core.stamp, length: core.received };
        ExtendedBlock { pool: self.slice.pool.clone(), block }
    }

    pub fn named(&self, stamp: GenerationStamp) -> ExtendedBlock {
        ExtendedBlock { pool: self.slice.pool.clone(), block: Block { id: self.id, stamp, length: 0 } }
    }

    /// Returns the replica's block and storage.
    pub fn summary(&self) -> ReplicaSummary {
        ReplicaSummary {
            block: self.block(&self.core()),
            storage: self.slice.volume.id.clone(),
            storage_type: self.slice.volume.storage_type,
        }
    }

    /// Opens the bytes received, from memory if they are there.
    pub fn snapshot(&self, core: &mut Core) -> Result<Snapshot> {
        let failed = |error| StoreError::Io {
            action: "open the replica in",
            path: match core.memory {
                Some(_) => self.slice.memory_dir.clone(),
                None => self.slice.dirs.dir(core.disk.map_or(ReplicaDir::Finalized, |disk| disk.place), self.id),
            },
            source: error,
        };
        let source = match &core.memory {
            Some(MemoryCopy::Slot(slot)) => Source::Slot(slot.clone()),
            Some(MemoryCopy::File(copy)) => Source::File { files: copy.open().map_err(failed)?, copy: copy.clone() },
            None => {
                if let Some(files) = &core.disk_files {
                    Source::Disk(files.clone())
                } else {
                    return self.disk_snapshot(core);
                }
            }
        };
        let checksum = core.checksum.expect("known of every replica that is in memory or written");
        Ok(Snapshot { checksum, length: core.received, partial_crc: core.partial_crc, source })
    }

    /// Opens the copy on disk, even if there is one in memory.
    pub fn disk_snapshot(&self, core: &mut Core) -> Result<Snapshot> {
        let Some(disk) = core.disk else {
            return Err(StoreError::ReplicaNotFound { block: self.block(core) });
        };
        let opened = DiskFiles::open(&self.slice.dirs, self.id, disk).map(Arc::new);
        let snapshot = opened.and_then(|files| files.snapshot(disk.length));
        match snapshot {
            Ok(snapshot) => {
                core.checksum = Some(snapshot.checksum);
                Ok(snapshot)
            }
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
            {
                Err(StoreError::Corrupt { block: self.block(core), reason: error.to_string() })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let dir = self.slice.dirs.dir(disk.place, self.id);
                Err(StoreError::FilesMissing { block: self.block(core), dir })
            }
            Err(error) => {
                Err(StoreError::Io { action: "open", path: self.slice.dirs.data(disk.place, self.id), source: error })
            }
        }
    }

    /// Stops the writer, so that lengths no longer change. The caller holds `change`.
    pub fn stop_writer(&self, timeout: Duration) -> Result<()> {
        let Some(writer) = self.core().writer.clone() else { return Ok(()) };
        if !writer.stop(timeout) {
            return Err(StoreError::WriterStillRunning { block: self.block(&self.core()) });
        }
        let mut core = self.core();
        core.writer = None;
        core.open_header = None;
        core.disk_files = None;
        Ok(())
    }
}

pub type StopHook = Box<dyn FnMut() -> bool + Send>;

/// State that a writer shares with operations that may stop it.
pub struct WriterShared {
    stopped: AtomicBool,
    hook: Mutex<Option<StopHook>>,
    pub target: Mutex<WriteTarget>,
}

/// Destination of a writer's bytes.
pub enum WriteTarget {
    Slot(Arc<Slot>),
    File(FileWriter),
    Disk(DiskWriter),
    /// Also on disk, for a copy that is not read before its end: see `Blockstore::end_stream`.
    Stream(Box<DiskStream>),
    /// The writer was stopped.
    Detached,
}

impl WriterShared {
    pub fn new(target: WriteTarget) -> Arc<Self> {
        Arc::new(Self { stopped: AtomicBool::new(false), hook: Mutex::new(None), target: Mutex::new(target) })
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Sets the stop hook. `Some` returns the hook: the writer was stopped already.
    pub fn set_hook(&self, hook: StopHook) -> Option<StopHook> {
        let mut place = self.hook.lock();
        if self.is_stopped() {
            return Some(hook);
        }
        *place = Some(hook);
        None
    }

    /// Called by the writer itself to revoke all other write access, as `stop` would. A hook that succeeds is removed.
    pub fn shut_out(&self) {
        // Held during the call: a thread that stops the writer has to wait for the same.
        let mut place = self.hook.lock();
        if place.as_mut().is_some_and(|hook| hook()) {
            *place = None;
        }
    }

    /// Returns whether a stop hook is set.
    pub fn has_hook(&self) -> bool {
        self.hook.lock().is_some()
    }

    /// Stops the writer: its calls fail from now on. If true is returned, none of them is running.
    fn stop(&self, timeout: Duration) -> bool {
        self.stopped.store(true, Ordering::Release);
        let hook = self.hook.lock().take();
        if let Some(mut hook) = hook
            && !hook()
        {
            *self.hook.lock() = Some(hook);
            return false;
        }
        let Some(mut target) = self.target.try_lock_for(timeout) else { return false };
        *target = WriteTarget::Detached;
        true
    }

    /// Called by the writer itself when it is done.
    pub fn finish(&self, target: &mut WriteTarget) {
        self.stopped.store(true, Ordering::Release);
        *target = WriteTarget::Detached;
        self.hook.lock().take();
    }
}
