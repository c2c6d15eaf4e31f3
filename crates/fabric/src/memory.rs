//! Memory that peers may read and write: shared mappings of tmpfs files and memfds.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Shared mapping of a file's bytes `[offset, offset + length)`, together with the descriptor that keeps the file
/// alive.
///
/// Other processes and devices may change these bytes at any time. So the mapping never hands out references; bytes are
/// copied in and out. Additional data shows that a copy is consistent: a CRC, a header, or a message that came after
/// it.
#[derive(Debug)]
pub struct Memory {
    start: *mut u8,
    length: usize,
    writable: bool,
    file: File,
}

// SAFETY: a mapping belongs to the process, not to a thread, and all access to it is by copies.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps part of `file`. `offset`: a whole number of pages. The file must already be long enough and stay so:
    /// accessing a page that was cut off under a mapping kills the process.
    ///
    /// Errors: `InvalidInput` if the file is shorter, `length` is 0 or `offset` is within a page; those of mmap.
    pub fn map(file: OwnedFd, offset: u64, length: u64, writable: bool) -> io::Result<Self> {
        let file = File::from(file);
        let end = offset.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        if length == 0 || !offset.is_multiple_of(4096) || file.metadata()?.len() < end {
            let why = format!("bytes {offset}..{end} do not start on a page, are empty, or exceed the file");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing mapping.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, offset)? };
        Ok(Self { start: start.cast(), length, writable, file })
    }

    /// Allocates zeroed, writable memory of this process. It can be registered, and passed to another process as a
    /// descriptor.
    ///
    /// Errors: those of memfd_create, fallocate (`StorageFull`), mmap.
    pub fn fresh(length: u64) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(c"hearth", MemfdFlags::CLOEXEC)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length)?;
        Self::map(file, 0, length, true)
    }

    /// Creates a memfd with a sealed size, for a peer on this machine that maps it with [`Memory::of_peer`]. Its pages
    /// are allocated on first access.
    ///
    /// Errors: those of memfd_create, ftruncate and fcntl.
    pub fn sealed(length: u64) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(c"hearth-lent", flags)?;
        rustix::fs::ftruncate(&file, length)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Maps the first `length` bytes of memory that a peer on this machine lends for writing. Writing to it is safe
    /// whatever the peer does. The size is sealed, and the pages are the kernel's ordinary ones; huge pages could run
    /// out on first access, which would kill this process.
    ///
    /// Errors: `InvalidInput` if it is shorter, or not a sealed memfd of ordinary pages; those of mmap.
    pub fn of_peer(file: OwnedFd, length: u64) -> io::Result<Self> {
        /// Source: linux/magic.h.
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        // Only memfds have seals; other files return EINVAL.
        let sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed || rustix::fs::fstatfs(&file)?.f_type as u64 != TMPFS_MAGIC {
            let why = "the peer's memory is not a memfd of ordinary pages with a sealed size";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Self::map(file, 0, length, true)
    }

    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the address of the mapping, for registration with a card, and as the address that peers use.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let whole = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(length));
        assert!(whole.is_some_and(|end| end <= self.length), "access beyond the memory");
        // SAFETY: the range was just checked to lie within the mapping.
        unsafe { self.start.add(offset as usize) }
    }

    /// Copies `into.len()` bytes out, starting at `offset`.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `from` is valid for that many bytes, and `into` is not part of a shared mapping. Bytes that change
        // during the copy come out old or new; nothing relies on them before they are checked.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(self.writable, "the memory is mapped read-only");
        let to = self.at(offset, bytes.len());
        // SAFETY: `to` is valid for that many bytes and mapped writable; `bytes` is not part of a shared mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Duplicates the file descriptor.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the range that `map` mapped; nothing borrows from it.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn writes_are_visible_in_file_and_mappings() {
        let memory = Memory::fresh(8192).unwrap();
        memory.write(4090, b"across a page");
        let other = Memory::map(memory.descriptor().unwrap(), 4096, 4096, false).unwrap();
        let mut bytes = [0; 7];
        other.read(0, &mut bytes);
        assert_eq!(&bytes, b" a page");
        memory.file().read_exact_at(&mut bytes, 4090).unwrap();
        assert_eq!(&bytes, b"across ");
    }

    #[test]
    fn too_short_file_is_refused() {
        let memory = Memory::fresh(4096).unwrap();
        for (offset, length) in [(0, 4097), (4096, 1), (1, 100), (0, 0), (u64::MAX, 2)] {
            let error = Memory::map(memory.descriptor().unwrap(), offset, length, false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{offset} {length}");
        }
    }

    #[test]
    fn peer_memory_must_be_sealed_against_shrinking() {
        let lent = Memory::sealed(8192).unwrap();
        assert!(rustix::fs::ftruncate(&lent, 4096).is_err() && rustix::fs::ftruncate(&lent, 12_288).is_err());
        let theirs = Memory::of_peer(lent.try_clone().unwrap(), 8192).unwrap();
        theirs.write(8000, b"an answer");
        let mut bytes = [0; 9];
        File::from(lent.try_clone().unwrap()).read_exact_at(&mut bytes, 8000).unwrap();
        assert_eq!(&bytes, b"an answer");

        let unsealed = Memory::fresh(8192).unwrap().descriptor().unwrap();
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(8192).unwrap();
        for (file, length) in [(unsealed, 8192), (plain.into(), 8192), (lent, 8193)] {
            assert_eq!(Memory::of_peer(file, length).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn write_sealed_memory_is_refused() {
        let lent = rustix::fs::memfd_create(c"hearth", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&lent, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&lent, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
        assert!(Memory::of_peer(lent, 4096).is_err());
    }

    #[test]
    #[should_panic(expected = "access beyond the memory")]
    fn out_of_bounds_access_panics() {
        Memory::fresh(4096).unwrap().read(4090, &mut [0; 7]);
    }
}
