//! System calls that the standard library lacks, with their errors as `io::Error`. Those that map memory are in
//! `mmap/`.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Advice, FallocateFlags, MemfdFlags, SealFlags};

/// Granularity of memory and of direct I/O.
pub const PAGE: u64 = 4096;

/// Rounds `bytes` up to whole pages.
pub fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE) * PAGE
}

/// Allocates `[offset, offset + length)` of `file` and extends it to that length if it was shorter.
pub fn allocate(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    retry(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, length))
}

/// Bytes of the file system that `file` occupies.
pub fn memory_of(file: &File) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.blocks() * 512)
}

/// Returns whether an error means that a file system or a quota is out of space.
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM))
}

/// CPU time that this thread has used.
pub fn thread_cpu_time() -> Duration {
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Not through rustix: it looks up everything that a kernel's vDSO may have, and panics under User Mode Linux, which
    // has less.
    // SAFETY: the structure is ours and outlives the call. It stays zero where there is no such clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut spent) };
    Duration::new(spent.tv_sec.max(0) as u64, spent.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// Advises the kernel to drop the cached pages of `file`; they must be clean. Failing is harmless.
pub fn drop_cache(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// Advises the kernel that `file` is read in short, random pieces, so that reading ahead is useless. Failing is
/// harmless.
pub fn advise_random(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
}

/// Advises the kernel that `file` is read sequentially: it reads twice as far ahead. Failing is harmless.
pub fn advise_sequential(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential);
}

/// Reads from the page cache only. False: some of the bytes are not cached, or the file system cannot tell.
pub fn read_cached(file: &File, offset: u64, into: &mut [u8]) -> bool {
    let mut slices = [io::IoSliceMut::new(into)];
    let wanted = slices[0].len();
    wanted == 0 || rustix::io::preadv2(file, &mut slices, offset, rustix::io::ReadWriteFlags::NOWAIT) == Ok(wanted)
}

/// Returns whether `file` is on a tmpfs: reads then never wait for a disk, and the kernel does not answer
/// [`read_cached`] there.
pub fn is_in_memory(file: &File) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 & 0xFFFF_FFFF == TMPFS_MAGIC)
}

/// Maximum number of descriptors of this process.
pub fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours and outlives the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => 1024,
    }
}

/// Starts writing dirty pages of `file` without waiting. Failing is harmless: a sync follows.
pub fn start_writeback(file: &File) {
    // SAFETY: the call takes no pointers; the descriptor is open.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Tries to lock the whole file against other processes, Java's included, and against other openings in this process.
///
/// `Ok(false)`: another opening holds the lock.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match set_lock(file, libc::F_WRLCK) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the lock at once, even if a child that was just forked still has the file open.
pub fn unlock(file: &File) {
    let _ = set_lock(file, libc::F_UNLCK);
}

fn set_lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero flock is valid: it is plain numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: `lock` is a valid flock that outlives the call; OFD locks want l_pid 0, which it is.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the entries of a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Creates a file for writing around the page cache. `Ok(None)`: not supported by this file system.
pub fn create_direct(path: &Path) -> io::Result<Option<File>> {
    let opened =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).custom_flags(libc::O_DIRECT).open(path);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens an existing file for writing around the page cache. `Ok(None)`: not supported by this file system.
pub fn open_direct(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the same file again, for reading around the page cache, even if it has been renamed.
pub fn reopen_direct(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Creates anonymous memory with `content`, sealed against any change: safe to hand to another process.
pub fn sealed_copy(name: &CStr, parts: &[&[u8]]) -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let file = File::from(memory);
    let mut at = 0;
    for part in parts {
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    // A new opening: read-only, with a position of its own.
    reopen(&file)
}

/// Opens the same file again, read-only, with a position of its own, even if its name is gone.
pub fn reopen(file: &impl AsFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(File::open(path)?.into())
}

/// Size and free space of the file system that holds `path`.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Bytes.
    pub size: u64,
    /// Bytes that this process may still use.
    pub available: u64,
    /// Bytes.
    pub used: u64,
    pub in_memory: bool,
}

pub fn space(path: &Path) -> io::Result<Space> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    let stat = rustix::fs::statfs(path)?;
    let block = stat.f_bsize as u64;
    let kind = stat.f_type as u64 & 0xffff_ffff;
    Ok(Space {
        size: stat.f_blocks * block,
        available: stat.f_bavail * block,
        used: stat.f_blocks.saturating_sub(stat.f_bfree) * block,
        in_memory: kind == TMPFS_MAGIC || kind == RAMFS_MAGIC,
    })
}

/// Returns whether the same file is open for reading or writing, or mapped, anywhere but through `file`: in this
/// process or another. `file` is open for reading only. `None`: the kernel cannot say, since leases are disabled or the
/// file belongs to another user.
///
/// Implemented by taking a write lease, which the kernel grants only if no one else has the file open. It is released
/// at once; a concurrent open of the file waits for that.
pub fn is_open_elsewhere(file: &File) -> Option<bool> {
    // Signal for the lease holder when the file is opened: SIGIO would end the process, SIGURG is ignored.
    const F_SETSIG: libc::c_int = 10;
    let fd = file.as_raw_fd();
    // SAFETY: the calls take no pointers; the descriptor is open.
    unsafe {
        if libc::fcntl(fd, F_SETSIG, libc::SIGURG) != 0 {
            return None;
        }
        if libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) != 0 {
            return (io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)).then_some(true);
        }
        libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
    }
    Some(false)
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => continue,
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmap::shared_map::SharedMap;
    use std::io::Read;

    #[test]
    fn locks_exclude_within_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let open = || OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        let first = open();
        assert!(try_lock(&first).unwrap());
        assert!(!try_lock(&open()).unwrap());
        drop(first);
        assert!(try_lock(&open()).unwrap());
    }

    #[test]
    fn open_and_mapped_files_are_detected() {
        for dir in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
            let path = dir.path().join("file");
            std::fs::write(&path, [7; 8192]).unwrap();
            let file = File::open(&path).unwrap();
            assert_eq!(is_open_elsewhere(&file), Some(false));
            let other = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            assert_eq!(is_open_elsewhere(&file), Some(true));
            let map = SharedMap::new(&other, 4096).unwrap();
            drop(other);
            std::fs::remove_file(&path).unwrap();
            assert_eq!(is_open_elsewhere(&file), Some(true));
            drop(map);
            assert_eq!(is_open_elsewhere(&file), Some(false));
        }
    }

    #[test]
    fn sealed_copies_cannot_be_written() {
        let mut file = File::from(sealed_copy(c"test", &[b"ab", b"c"]).unwrap());
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        assert!(file.write_all_at(b"x", 0).is_err());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Ok(writable) = OpenOptions::new().write(true).open(path) {
            assert!(writable.write_all_at(b"x", 0).is_err());
        }
    }
}
