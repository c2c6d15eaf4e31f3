//! One replica: its state, and the locks that guard it.
//!
//! `change` is held through every change of state, even while that waits for a disk. `core` is held only briefly, and
//! guards everything that readers need. A writer's own state has a third lock. Lock order: change, writer, core.
//!
//! Only the flusher waits for one replica's `change` while holding another's: it takes those of a batch, in no order.
//! The `change` of a replica that was just created is uncontended, and may be held together with that of its source.

pub mod cached_files;
pub mod copies;
pub mod eviction;
pub mod lifecycle;
pub mod showing;
pub mod space;
pub mod writer_shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearth_types::{Block, BlockId, ExtendedBlock, GenerationStamp, ReplicaState};
use parking_lot::{Mutex, MutexGuard};

use self::copies::Copies;
use self::eviction::Eviction;
use self::lifecycle::Lifecycle;
use self::showing::Showing;
use self::space::Space;
use crate::disk::files::{DiskCopy, DiskFiles};
use crate::disk::layout::ReplicaDir;
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::memory::header::Progress;
use crate::snapshot::{Snapshot, Source};
use crate::summary::ReplicaSummary;
use crate::volume::Slice;

/// Maximum wait for a replica's core lock by a caller that must not wait for a disk. Other holders need far less time
/// than this, unless they wait for a disk.
pub const CORE_LOCK_TIMEOUT: Duration = Duration::from_millis(2);

pub struct Replica {
    pub id: BlockId,
    pub slice: Arc<Slice>,
    pub change: Mutex<()>,
    /// Bytes that readers read from disk since the replica was last in memory.
    pub disk_bytes: AtomicU64,
    core: Mutex<Core>,
}

/// What `Replica::core` guards, each part with the transitions that keep its invariants.
pub struct Core {
    pub lifecycle: Lifecycle,
    pub copies: Copies,
    pub showing: Showing,
    pub eviction: Eviction,
    pub space: Space,
}

impl Core {
    /// A replica without bytes. `sequence`: that of the last progress recorded for the block, or 0.
    pub fn new(lifecycle: Lifecycle, sequence: u64) -> Self {
        Self::with(lifecycle, Copies::new(sequence), Space::default())
    }

    pub fn with(lifecycle: Lifecycle, copies: Copies, space: Space) -> Self {
        Self { lifecycle, copies, showing: Showing::default(), eviction: Eviction::default(), space }
    }

    /// Creates the core of a copy into which `content` is being written, and whose space is reserved.
    pub fn of_copy(stamp: GenerationStamp, content: &Snapshot) -> Self {
        let state = ReplicaState::BeingWritten;
        let mut lifecycle = Lifecycle::of_copy(state, stamp, content.length, content.partial_crc);
        lifecycle.set_checksum(content.checksum);
        Self::with(lifecycle, Copies::new(0), Space::reserved(content.length))
    }

    /// Returns whether the disk has the whole replica in its current state.
    pub fn is_on_disk(&self) -> bool {
        let place = if self.lifecycle.is_finalized() { ReplicaDir::Finalized } else { ReplicaDir::BeingWritten };
        let (stamp, length) = (self.lifecycle.stamp(), self.lifecycle.received());
        self.copies.disk() == Some(DiskCopy { place, stamp, length })
    }

    /// Returns a progress record of `self` with the next sequence number.
    pub fn progress(&mut self) -> Progress {
        self.lifecycle.progress(self.copies.next_sequence())
    }

    /// Records `self` so that it outlives the process, as far as the replica is in memory.
    pub fn record(&mut self) -> std::io::Result<()> {
        match (self.copies.memory().cloned(), self.copies.open_header().cloned()) {
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

impl Replica {
    pub fn new(id: BlockId, slice: Arc<Slice>, core: Core) -> Self {
        Self { id, slice, change: Mutex::new(()), disk_bytes: AtomicU64::new(0), core: Mutex::new(core) }
    }

    /// Resets the statistics of reads from disk.
    pub fn forget_disk_reads(&self, core: &mut Core) {
        core.eviction.forget_disk_reads();
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
        let block = Block { id: self.id, stamp: core.lifecycle.stamp(), length: core.lifecycle.received() };
        ExtendedBlock { pool: self.slice.pool.clone(), block }
    }

    pub fn named(&self, stamp: GenerationStamp) -> ExtendedBlock {
        ExtendedBlock { pool: self.slice.pool.clone(), block: Block { id: self.id, stamp, length: 0 } }
    }

    /// Updates the counters of used and reserved bytes to match `core`.
    pub fn settle_space(&self, core: &mut Core) {
        let is_on_disk = core.is_on_disk();
        core.space.settle(&self.slice, &core.lifecycle, is_on_disk);
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
            path: match core.copies.memory() {
                Some(_) => self.slice.memory_dir.clone(),
                None => {
                    self.slice.dirs.dir(core.copies.disk().map_or(ReplicaDir::Finalized, |disk| disk.place), self.id)
                }
            },
            source: error,
        };
        let source = match core.copies.memory() {
            Some(MemoryCopy::Slot(slot)) => Source::Slot(slot.clone()),
            Some(MemoryCopy::File(copy)) => Source::File { files: copy.open().map_err(failed)?, copy: copy.clone() },
            None => {
                if let Some(files) = core.copies.disk_files() {
                    Source::Disk(files.clone())
                } else {
                    return self.disk_snapshot(core);
                }
            }
        };
        let checksum = core.lifecycle.checksum().expect("known of every replica that is in memory or written");
        Ok(Snapshot { checksum, length: core.lifecycle.received(), partial_crc: core.lifecycle.partial_crc(), source })
    }

    /// Opens the copy on disk, even if there is one in memory.
    pub fn disk_snapshot(&self, core: &mut Core) -> Result<Snapshot> {
        let Some(disk) = core.copies.disk() else {
            return Err(StoreError::ReplicaNotFound { block: self.block(core) });
        };
        let opened = DiskFiles::open(&self.slice.dirs, self.id, disk).map(Arc::new);
        let snapshot = opened.and_then(|files| Snapshot::of_disk(files, disk.length));
        match snapshot {
            Ok(snapshot) => {
                core.lifecycle.set_checksum(snapshot.checksum);
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
        let Some(writer) = self.core().copies.writer().cloned() else { return Ok(()) };
        if !writer.stop(timeout) {
            return Err(StoreError::WriterStillRunning { block: self.block(&self.core()) });
        }
        let mut core = self.core();
        core.copies.end_writing();
        Ok(())
    }
}
