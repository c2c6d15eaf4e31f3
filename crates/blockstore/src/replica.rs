//! One replica: what is known of it, under which lock.
//!
//! `change` is held through every change of state, also while that waits for a disk. `core` is held for moments only, and
//! guards all that readers need. A writer's own state has a third lock. Order: change, writer, core.
//!
//! Nobody but the flusher waits for one replica's `change` while holding another's: it takes those of a batch, in no order. That of a
//! replica that was just made is free, and may be held beside that of its source.

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
use crate::volume::Slice;

/// How long somebody who must not wait for a disk waits for others who look at the same replica: they need far less, unless
/// they wait for a disk.
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
    /// Bytes that readers had from disk since it was last in memory.
    pub disk_bytes: AtomicU64,
    core: Mutex<Core>,
}

pub struct Core {
    /// Never UNDER_RECOVERY: see `recovery`.
    pub state: ReplicaState,
    pub stamp: GenerationStamp,
    pub received: u64,
    pub acked: u64,
    /// CRC of the last chunk when it is not whole. Not known (0) of replicas that are on disk only and finalized.
    pub partial_crc: u32,
    /// Not known before the first use of a replica that was found on disk.
    pub checksum: Option<ChecksumSpec>,
    /// Id of the block recovery that has the replica.
    pub recovery: Option<GenerationStamp>,
    pub memory: Option<MemoryCopy>,
    /// The mapped header of `memory` while a writer has it open.
    pub open_header: Option<Arc<CrcMap>>,
    /// Of the last progress recorded.
    pub sequence: u64,
    pub disk: Option<DiskCopy>,
    /// Its files, kept open for readers.
    pub cached_files: Option<CachedFiles>,
    /// Files that the writer writes, when it writes on disk.
    pub disk_files: Option<Arc<DiskFiles>>,
    pub writer: Option<Arc<WriterShared>>,
    /// Bytes of disk space reserved.
    pub reserved: u64,
    /// Bytes counted as used in `slice`.
    pub counted: u64,
    /// Finalized, and not yet on disk; since when, in ms of the monotonic clock.
    pub dirty_since: Option<u64>,
    /// Which entry of the flusher's queue stands for `dirty_since`; older ones are stale.
    pub dirty_ticket: u64,
    /// Read since the clock hand last came by.
    pub referenced: bool,
    /// Readers that were served from disk since it was last in memory.
    pub disk_reads: u8,
    /// It is to come back into memory, and has not been looked at yet.
    pub is_read_back_queued: bool,
    pub corrupt: Option<Box<str>>,
    /// Taken out of the map, or about to be: it may have moved to another storage. See `Store::change_replica`.
    pub gone: bool,
    /// How often what was shown of it was withdrawn.
    pub withdrawals: u32,
    /// It is being changed: nothing of it is to be shown.
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

    /// Of a copy that `content` is being written into, whose room is promised.
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

    /// What `replica` and recovery answers call the state.
    pub fn state_now(&self) -> ReplicaState {
        if self.recovery.is_some() { ReplicaState::UnderRecovery } else { self.state }
    }

    /// Bytes that readers may rely on. `None`: not readable.
    pub fn visible_length(&self) -> Option<u64> {
        match self.state {
            ReplicaState::Finalized => Some(self.received),
            ReplicaState::BeingWritten => Some(self.acked),
            ReplicaState::WaitingToBeRecovered | ReplicaState::Temporary | ReplicaState::UnderRecovery => None,
        }
    }

    /// The disk has all of it as it is now.
    pub fn is_on_disk(&self) -> bool {
        let place =
            if self.state == ReplicaState::Finalized { ReplicaDir::Finalized } else { ReplicaDir::BeingWritten };
        self.disk == Some(DiskCopy { place, stamp: self.stamp, length: self.received })
    }

    /// Opening its bytes opens files on disk, which may have to be waited for.
    pub fn opens_on_disk(&self) -> bool {
        let kept = self.cached_files.as_ref().is_some_and(|kept| kept.is_of(self.disk));
        self.memory.is_none() && self.disk_files.is_none() && !kept
    }

    /// The record of what `self` says, with the next sequence.
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

    /// Makes what `self` says outlive the process, as far as it is in memory.
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

    /// Somebody beside the replica holds it.
    pub fn is_pinned(&self) -> bool {
        self.is_pinned_beside(None)
    }

    /// Somebody holds it beside the replica and what the store itself keeps open of it.
    pub fn is_pinned_beside(&self, kept: Option<&CachedFiles>) -> bool {
        match self {
            Self::Slot(slot) => Arc::strong_count(slot) > 1,
            Self::File(copy) => {
                copy.is_open_beside(kept.and_then(CachedFiles::in_memory)) || Arc::strong_count(copy) > 1
            }
        }
    }

    /// Other processes may hold it, or have held it.
    pub fn is_shown(&self) -> bool {
        match self {
            Self::Slot(_) => false,
            Self::File(copy) => copy.is_shown(),
        }
    }

    /// Another process may have it open for writing.
    pub fn may_be_written_outside(&self) -> bool {
        match self {
            Self::Slot(_) => false,
            Self::File(copy) => copy.may_be_written_outside(),
        }
    }

    /// Others have it open that it was shown to; if not, it is as if it had never been shown. Under the core lock: whoever is
    /// about to show it has it open himself.
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

    /// Other processes hold it, as far as the kernel knows.
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

    /// What was read from disk up to here says nothing any more.
    pub fn forget_disk_reads(&self, core: &mut Core) {
        core.disk_reads = 0;
        self.disk_bytes.store(0, Ordering::Relaxed);
    }

    pub fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// The same for somebody who must not wait: `None`: somebody else opens its files, and a disk takes its time over that.
    pub fn core_within(&self, patience: Duration) -> Option<MutexGuard<'_, Core>> {
        self.core.try_lock_for(patience)
    }

    /// The replica's name with its stamp and the bytes received.
    pub fn block(&self, core: &Core) -> ExtendedBlock {
        let block = Block { id: self.id, stamp: core.stamp, length: core.received };
        ExtendedBlock { pool: self.slice.pool.clone(), block }
    }

    pub fn named(&self, stamp: GenerationStamp) -> ExtendedBlock {
        ExtendedBlock { pool: self.slice.pool.clone(), block: Block { id: self.id, stamp, length: 0 } }
    }

    /// The bytes received, from memory if they are there.
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

    /// The copy on disk, though there may be one in memory.
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

    /// Stops whoever writes, so that lengths hold still. Under `change`.
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

/// What a writer shares with whoever may stop it.
pub struct WriterShared {
    stopped: AtomicBool,
    hook: Mutex<Option<StopHook>>,
    pub target: Mutex<WriteTarget>,
}

/// Where a writer's bytes go.
pub enum WriteTarget {
    Slot(Arc<Slot>),
    File(FileWriter),
    Disk(DiskWriter),
    /// On disk too, of a copy that nobody reads before its end: see `Store::end_stream`.
    Stream(Box<DiskStream>),
    /// Taken away by `stop`.
    Detached,
}

impl WriterShared {
    pub fn new(target: WriteTarget) -> Arc<Self> {
        Arc::new(Self { stopped: AtomicBool::new(false), hook: Mutex::new(None), target: Mutex::new(target) })
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// `Some` gives the hook back: the writer was stopped already.
    pub fn set_hook(&self, hook: StopHook) -> Option<StopHook> {
        let mut place = self.hook.lock();
        if self.is_stopped() {
            return Some(hook);
        }
        *place = Some(hook);
        None
    }

    /// The writer itself shuts out whoever else may write, as `stop` would. If the hook says that it has, it has done its work.
    pub fn shut_out(&self) {
        // Held meanwhile: somebody who stops the writer waits for the same.
        let mut place = self.hook.lock();
        if place.as_mut().is_some_and(|hook| hook()) {
            *place = None;
        }
    }

    /// There is somebody to shut out.
    pub fn has_hook(&self) -> bool {
        self.hook.lock().is_some()
    }

    /// From here on the writer's calls fail; when true is returned none of them is running.
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

    /// The writer itself is done.
    pub fn finish(&self, target: &mut WriteTarget) {
        self.stopped.store(true, Ordering::Release);
        *target = WriteTarget::Detached;
        self.hook.lock().take();
    }
}
