//! Meaning of an error of a file operation on a storage directory, and what follows from it.
//!
//! `docs/compatibility/volume-errors.md` is the table for operators; a test holds it to [`of`].

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::layout::PoolDirs;
use crate::error::StoreError;
use crate::store::Store;
use crate::volume::{Slice, Volume};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultScope {
    /// No room: another storage directory may have some. The volume stays.
    NoSpace,
    /// This process or machine is short of something, or was interrupted. Nothing is said of the volume.
    Process,
    /// The disk or its file system is broken: the volume fails at once.
    Volume,
    /// One file, or all of the volume: the volume is looked at, and fails if it cannot be used.
    Unclear,
}

/// Errors of a disk, a file system, or the way to it.
const BROKEN: &[i32] = &[
    libc::EIO,
    libc::EROFS,
    libc::ENODEV,
    libc::ENXIO,
    libc::ENOMEDIUM,
    libc::EREMOTEIO,
    libc::EUCLEAN,
    libc::EBADMSG,
    libc::ESTALE,
    libc::ENOTCONN,
    libc::ESHUTDOWN,
    libc::EHOSTDOWN,
    libc::ENOLINK,
];

/// Errors that say nothing of the disk.
const OF_PROCESS: &[i32] =
    &[libc::EMFILE, libc::ENFILE, libc::EINTR, libc::EAGAIN, libc::ENOMEM, libc::EBADF, libc::EINVAL, libc::EFAULT];

/// Meaning of an error while a file is created, written, synced, renamed or cut. A read error may come from one bad sector: there the replica
/// is looked at, see `suspects.rs`.
pub fn of(error: &io::Error) -> FaultScope {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => FaultScope::NoSpace,
        // A file that ended early, or what is in it: its content is judged by its CRCs.
        None => FaultScope::Process,
        Some(code) if OF_PROCESS.contains(&code) => FaultScope::Process,
        Some(code) if BROKEN.contains(&code) => FaultScope::Volume,
        Some(_) => FaultScope::Unclear,
    }
}

impl Store {
    /// Sorts out an error of a change on a volume's disk: a lack of space is one, a broken disk ends the volume, and one that may be
    /// broken is looked at.
    pub fn disk_error(&self, slice: &Slice, action: &'static str, source: io::Error) -> StoreError {
        match of(&source) {
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

    /// Has the volume fail unless it can be used: its directories are there, and a file can be written. Waits for the disk.
    /// Returns whether it can be used.
    pub fn check_volume(&self, volume: &Arc<Volume>) -> bool {
        self.judge_volume(volume, true)
    }

    /// The same without writing: only its directories are looked for.
    pub fn probe_volume(&self, volume: &Arc<Volume>) -> bool {
        self.judge_volume(volume, false)
    }

    fn judge_volume(&self, volume: &Arc<Volume>, write: bool) -> bool {
        if volume.is_failed() {
            return false;
        }
        let slices: Vec<Arc<Slice>> =
            self.pools.read().values().map(|pool| pool.slices[volume.index].clone()).collect();
        let dirs: Vec<&PoolDirs> = slices.iter().map(|slice| &slice.dirs).collect();
        let looked = look_for(volume, &dirs).and_then(|()| match write && volume.is_write_check_due() {
            true => dirs.iter().try_for_each(|dirs| try_to_write(&dirs.temporary)),
            false => Ok(()),
        });
        let Err(StoreError::Io { action, path, source }) = looked else { return true };
        match of(&source) {
            FaultScope::Volume | FaultScope::Unclear => {
                self.fail_volume(volume, &format!("cannot {action} {}: {source}", path.display()));
                false
            }
            FaultScope::NoSpace | FaultScope::Process => true,
        }
    }
}

/// Each directory that a volume needs is there.
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

/// A file can be made in `dir`, written to the disk, and removed. A kill in between leaves one that the next start removes.
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
    written.and(removed).map_err(StoreError::io("write a file of its own in", dir))
}

#[cfg(test)]
mod tests;
