use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hearth_types::{BlockPoolId, StorageId, StorageType};
use parking_lot::{Mutex, RwLock};

use crate::disk::layout::PoolDirs;
use crate::disk::lock::DirLock;
use crate::disk::version::VolumeVersion;
use crate::error::{Result, StoreError};
use crate::memory::slab::Slabs;
use crate::options::{Engine, Reserved};
use crate::suspects::Suspects;
use crate::sys;

/// Pause between two checks that write to a disk: many errors at once have one cause.
const WRITE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// One storage directory.
pub struct Volume {
    /// Place in the list of volumes.
    pub index: usize,
    pub id: StorageId,
    pub storage_type: StorageType,
    pub engine: Engine,
    pub dir: PathBuf,
    /// Of this volume, in the memory tier.
    pub memory_dir: PathBuf,
    /// What is not for HDFS.
    kept_free: Reserved,
    /// Bytes promised to replicas that are not on disk yet.
    reserved: AtomicU64,
    /// What `VERSION` says; `None` before the first pool.
    pub version: Mutex<Option<VolumeVersion>>,
    failed: AtomicBool,
    pub failure: RwLock<Option<String>>,
    /// Failed, when its replicas are looked at again, in ms of the monotonic clock; `u64::MAX`: all have left it.
    evacuate_at_ms: AtomicU64,
    locks: Mutex<Vec<DirLock>>,
    pub suspects: Suspects,
    /// When a file was last written to see whether that can be done.
    write_checked: Mutex<Option<Instant>>,
}

/// Bytes, as heartbeats carry them.
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
            failure: RwLock::new(None),
            evacuate_at_ms: AtomicU64::new(0),
            locks: Mutex::new(locks),
            suspects: Suspects::default(),
            write_checked: Mutex::new(None),
        }
    }

    /// Whether a file is to be written to see that it can be done: true at most once a [`WRITE_CHECK_INTERVAL`].
    pub fn is_write_check_due(&self) -> bool {
        let mut last = self.write_checked.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= WRITE_CHECK_INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    /// The directories may be somebody else's from here on.
    pub fn unlock(&self) {
        self.locks.lock().clear();
    }

    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// True for the first call.
    pub fn fail(&self, reason: &str) -> bool {
        let mut failure = self.failure.write();
        if failure.is_some() {
            return false;
        }
        *failure = Some(reason.to_owned());
        self.failed.store(true, Ordering::Release);
        true
    }

    /// Whether replicas may be left on it that are to leave it, and it is time to look. It has failed.
    pub fn is_evacuation_due(&self, now_ms: u64) -> bool {
        now_ms >= self.evacuate_at_ms.load(Ordering::Relaxed)
    }

    /// `None`: nothing is left on it that could.
    pub fn schedule_evacuation(&self, when_ms: Option<u64>) {
        self.evacuate_at_ms.store(when_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Errors: `VolumeFailed`, once it has.
    pub fn check(&self) -> Result<()> {
        if self.is_failed() { Err(self.failed_error()) } else { Ok(()) }
    }

    pub fn failed_error(&self) -> StoreError {
        let reason = self.failure.read().clone().unwrap_or_default();
        StoreError::VolumeFailed { storage: self.id.clone(), dir: self.dir.clone(), reason }
    }

    /// Source: hdfs `FsVolumeImpl`: capacity is the file system's less what is kept free; what remains is the smaller of what
    /// HDFS has not used and what the file system has, both less what is promised.
    pub fn space(&self, dfs_used: u64) -> Result<VolumeSpace> {
        let space = sys::space(&self.dir).map_err(StoreError::io("look at the space of", &self.dir))?;
        let reserved = self.reserved.load(Ordering::Relaxed);
        let kept_free = self.kept_free.of(space.size);
        let capacity = space.size.saturating_sub(kept_free);
        let non_dfs_used = space.used.saturating_sub(dfs_used).saturating_sub(kept_free);
        // What others use counts against what is kept free first.
        let others = space.used.saturating_sub(dfs_used);
        let still_kept = kept_free.saturating_sub(others);
        let by_use = capacity.saturating_sub(dfs_used).saturating_sub(reserved);
        let by_space = space.available.saturating_sub(still_kept).saturating_sub(reserved);
        Ok(VolumeSpace { capacity, remaining: by_use.min(by_space), non_dfs_used })
    }

    /// Bytes that are not for HDFS; 0 when the file system does not say how large it is.
    pub fn kept_free(&self) -> u64 {
        sys::space(&self.dir).map_or(0, |space| self.kept_free.of(space.size))
    }

    /// Promises `bytes` of disk if they are there.
    pub fn reserve(&self, dfs_used: u64, bytes: u64) -> Result<bool> {
        let fits = self.space(dfs_used)?.remaining >= bytes;
        if fits {
            self.reserved.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(fits)
    }

    /// Bytes promised and not yet used.
    pub fn promised(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Changes a promise of `before` bytes into one of `after`.
    pub fn change_reserved(&self, before: u64, after: u64) {
        self.reserved.fetch_add(after, Ordering::Relaxed);
        self.reserved.fetch_sub(before, Ordering::Relaxed);
    }
}

/// What one pool has on one volume.
pub struct Slice {
    pub volume: Arc<Volume>,
    pub pool: BlockPoolId,
    pub dirs: PoolDirs,
    /// Of this pool and volume, in the memory tier.
    pub memory_dir: PathBuf,
    pub slabs: Arc<Slabs>,
    /// Bytes of finalized replicas with their meta files, on disk or on their way there.
    pub used: AtomicU64,
    /// Those replicas.
    pub finalized: AtomicU64,
}
