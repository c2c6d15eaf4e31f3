//! Reaction to errors of a storage directory: the volume is checked, and is taken out of use if its disk is broken.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::StoreEvent;
use crate::blockstore::Blockstore;
use crate::disk::layout::PoolDirs;
use crate::error::StoreError;
use crate::fault::{self, FaultScope};
use crate::volume::{Slice, Volume};

impl Blockstore {
    /// Converts an error of a change on a volume's disk. A lack of space becomes `NoSpace`, a broken disk fails the
    /// volume, and a possibly broken one is checked.
    pub(crate) fn disk_error(&self, slice: &Slice, action: &'static str, source: io::Error) -> StoreError {
        match fault::of(&source) {
            FaultScope::NoSpace => {
                return StoreError::NoSpace { storage_type: slice.volume.storage_type, wanted: 0 };
            }
            FaultScope::Volume => self.fail_volume(&slice.volume, &format!("cannot {action} it: {source}")),
            FaultScope::Unclear => {
                self.check_volume(&slice.volume);
            }
            FaultScope::Process => {}
        }
        if slice.volume.is_failed() {
            return slice.volume.failed_error();
        }
        StoreError::Io { action, path: slice.dirs.root.clone(), source }
    }

    /// Takes the volume out of use. Replicas in memory are still served, and are evacuated: see `ops/evacuate.rs`.
    pub(crate) fn fail_volume(&self, volume: &Arc<Volume>, reason: &str) {
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
        self.threads.wake();
    }

    /// Checks that the volume can be used: its directories exist, and a file can be written. If not, fails the volume.
    /// Waits for the disk. Returns whether the volume can be used.
    pub(crate) fn check_volume(&self, volume: &Arc<Volume>) -> bool {
        self.judge_volume(volume, true)
    }

    /// Like [`Self::check_volume`], without writing: checks only its directories.
    pub(crate) fn probe_volume(&self, volume: &Arc<Volume>) -> bool {
        self.judge_volume(volume, false)
    }

    fn judge_volume(&self, volume: &Arc<Volume>, write: bool) -> bool {
        if volume.is_failed() {
            return false;
        }
        let slices: Vec<Arc<Slice>> =
            self.pools.read().values().map(|pool| pool.slices[volume.index].clone()).collect();
        let dirs: Vec<&PoolDirs> = slices.iter().map(|slice| &slice.dirs).collect();
        let looked = look_for(volume, &dirs).and_then(|()| match write && volume.is_write_check_due(self.now_ms()) {
            true => dirs.iter().try_for_each(|dirs| try_to_write(&dirs.temporary)),
            false => Ok(()),
        });
        let Err(StoreError::Io { action, path, source }) = looked else { return true };
        match fault::of(&source) {
            FaultScope::Volume | FaultScope::Unclear => {
                self.fail_volume(volume, &format!("cannot {action} {}: {source}", path.display()));
                false
            }
            FaultScope::NoSpace | FaultScope::Process => true,
        }
    }
}

/// Checks that every directory of a volume exists.
fn look_for(volume: &Volume, pools: &[&PoolDirs]) -> Result<(), StoreError> {
    let current = volume.dir.join("current");
    let of_pools = pools.iter().flat_map(|dirs| [&dirs.current, &dirs.finalized, &dirs.being_written, &dirs.temporary]);
    for dir in [&volume.dir, &current].into_iter().chain(of_pools) {
        let failed = StoreError::io("look at", dir);
        match std::fs::metadata(dir) {
            Ok(about) if about.is_dir() => {}
            Ok(_) => return Err(failed(io::Error::from_raw_os_error(libc::ENOTDIR))),
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Creates a file in `dir`, writes it to the disk and removes it. After a kill in between, the next start removes it.
fn try_to_write(dir: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let path = dir.join(format!("check.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let written = std::fs::File::create(&path).and_then(|file| {
        file.write_all_at(&[0; 512], 0)?;
        file.sync_data()
    });
    let removed = std::fs::remove_file(&path);
    written.and(removed).map_err(StoreError::io("write a test file in", dir))
}
