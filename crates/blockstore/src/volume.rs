//! Volumes (storage directories) and slices, which are one pool's share of a volume. They account for disk space, used
//! and reserved, and record whether the disk has failed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hearth_types::{BlockPoolId, StorageId, StorageType};
use parking_lot::{Mutex, RwLock};

use crate::disk::layout::PoolDirs;
use crate::disk::lock::DirLock;
use crate::disk::version::VolumeVersion;
use crate::disk_times::DiskTimers;
use crate::error::{Result, StoreError};
use crate::memory::slab::Slabs;
use crate::options::{Engine, Reserved};
use crate::queues::Suspects;
use crate::sys;

/// Minimum interval between two checks that write to a disk: many errors at once have one cause.
const WRITE_CHECK_INTERVAL_MS: u64 = 1_000;

/// One storage directory.
pub struct Volume {
    /// Place in the list of volumes.
    pub index: usize,
    pub id: StorageId,
    pub storage_type: StorageType,
    pub engine: Engine,
    pub dir: PathBuf,
    /// Directory of this volume in the memory tier.
    pub memory_dir: PathBuf,
    /// Part of the file system that HDFS must not use.
    kept_free: Reserved,
    /// Bytes reserved for replicas that are not on disk yet.
    reserved: AtomicU64,
    /// Content of `VERSION`; `None` before the first pool.
    pub version: Mutex<Option<VolumeVersion>>,
    failed: AtomicBool,
    /// A sync of a file that was already counted as written has failed.
    sync_failed: AtomicBool,
    pub failure: RwLock<Option<String>>,
    /// Time of the next evacuation attempt once the volume has failed, in ms of the monotonic clock; `u64::MAX`: all
    /// replicas have left it.
    evacuate_at_ms: AtomicU64,
    locks: Mutex<Vec<DirLock>>,
    pub suspects: Suspects,
    pub timers: DiskTimers,
    /// Time of the last write check, in ms of the monotonic clock.
    write_checked_ms: Mutex<Option<u64>>,
}

/// Disk space in bytes, as reported in heartbeats.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeSpace {
    pub capacity: u64,
    pub remaining: u64,
    pub non_dfs_used: u64,
}

impl Volume {
    #[expect(clippy::too_many_arguments, reason = "one caller, every field named there")]
    pub fn new(
        index: usize,
        id: StorageId,
        storage_type: StorageType,
        engine: Engine,
        dir: PathBuf,
        memory_dir: PathBuf,
        kept_free: Reserved,
        version: Option<VolumeVersion>,
        locks: Vec<DirLock>,
    ) -> Self {
        Self {
            index,
            id,
            storage_type,
            engine,
            dir,
            memory_dir,
            kept_free,
            reserved: AtomicU64::new(0),
            version: Mutex::new(version),
            failed: AtomicBool::new(false),
            sync_failed: AtomicBool::new(false),
            failure: RwLock::new(None),
            evacuate_at_ms: AtomicU64::new(0),
            locks: Mutex::new(locks),
            suspects: Suspects::default(),
            timers: DiskTimers::default(),
            write_checked_ms: Mutex::new(None),
        }
    }

    /// Returns whether a write check is due: true at most once per [`WRITE_CHECK_INTERVAL_MS`].
    pub fn is_write_check_due(&self, now_ms: u64) -> bool {
        let mut last = self.write_checked_ms.lock();
        let is_due = last.is_none_or(|last| now_ms.saturating_sub(last) >= WRITE_CHECK_INTERVAL_MS);
        if is_due {
            *last = Some(now_ms);
        }
        is_due
    }

    /// Releases the locks: another process may use the directories from now on.
    pub fn unlock(&self) {
        self.locks.lock().clear();
    }

    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Records that files which were counted as written may not be on disk.
    pub fn note_failed_sync(&self) {
        self.sync_failed.store(true, Ordering::Release);
    }

    pub fn has_failed_sync(&self) -> bool {
        self.sync_failed.load(Ordering::Acquire)
    }

    /// Marks the volume as failed. Returns true for the first call.
    pub fn fail(&self, reason: &str) -> bool {
        let mut failure = self.failure.write();
        if failure.is_some() {
            return false;
        }
        *failure = Some(reason.to_owned());
        self.failed.store(true, Ordering::Release);
        true
    }

    /// Returns whether replicas may be left that have to leave this failed volume, and an attempt is due.
    pub fn is_evacuation_due(&self, now_ms: u64) -> bool {
        now_ms >= self.evacuate_at_ms.load(Ordering::Relaxed)
    }

    /// Sets the time of the next evacuation attempt. `None`: no replica is left that could leave.
    pub fn schedule_evacuation(&self, when_ms: Option<u64>) {
        self.evacuate_at_ms.store(when_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Errors: `VolumeFailed`, once the volume has failed.
    pub fn check(&self) -> Result<()> {
        if self.is_failed() { Err(self.failed_error()) } else { Ok(()) }
    }

    pub fn failed_error(&self) -> StoreError {
        let reason = self.failure.read().clone().unwrap_or_default();
        StoreError::VolumeFailed { storage: self.id.clone(), dir: self.dir.clone(), reason }
    }

    /// Returns the space of the volume. Capacity is the file system's size less the reserved part. Remaining is the
    /// smaller of the part that HDFS has not used and the free space of the file system, both less the bytes promised
    /// to replicas. Source: hdfs `FsVolumeImpl`.
    pub fn space(&self, dfs_used: u64) -> Result<VolumeSpace> {
        let space = sys::space(&self.dir).map_err(StoreError::io("get the free space of", &self.dir))?;
        let reserved = self.reserved.load(Ordering::Relaxed);
        let kept_free = self.kept_free.of(space.size);
        let capacity = space.size.saturating_sub(kept_free);
        let non_dfs_used = space.used.saturating_sub(dfs_used).saturating_sub(kept_free);
        // Use by other programs counts against the reserved part first.
        let others = space.used.saturating_sub(dfs_used);
        let still_kept = kept_free.saturating_sub(others);
        let by_use = capacity.saturating_sub(dfs_used).saturating_sub(reserved);
        let by_space = space.available.saturating_sub(still_kept).saturating_sub(reserved);
        Ok(VolumeSpace { capacity, remaining: by_use.min(by_space), non_dfs_used })
    }

    /// Bytes that HDFS must not use; 0 if the file system's size is unknown.
    pub fn kept_free(&self) -> u64 {
        sys::space(&self.dir).map_or(0, |space| self.kept_free.of(space.size))
    }

    /// Reserves `bytes` of disk if they are free. Returns whether it did.
    pub fn reserve(&self, dfs_used: u64, bytes: u64) -> Result<bool> {
        let fits = self.space(dfs_used)?.remaining >= bytes;
        if fits {
            self.reserved.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(fits)
    }

    /// Bytes reserved and not yet used.
    pub fn promised(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Replaces a reservation of `before` bytes by one of `after` bytes.
    pub fn change_reserved(&self, before: u64, after: u64) {
        self.reserved.fetch_add(after, Ordering::Relaxed);
        self.reserved.fetch_sub(before, Ordering::Relaxed);
    }
}

/// One pool's share of one volume.
pub struct Slice {
    pub volume: Arc<Volume>,
    pub pool: BlockPoolId,
    pub dirs: PoolDirs,
    /// Directory of this pool and volume in the memory tier.
    pub memory_dir: PathBuf,
    pub slabs: Arc<Slabs>,
    /// Bytes of finalized replicas with their meta files, on disk or to be flushed there.
    pub used: AtomicU64,
    /// Number of those replicas.
    pub finalized: AtomicU64,
}
