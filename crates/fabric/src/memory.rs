//! Memory that peers may read and write: shared mappings of tmpfs files and memfds.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// A shared mapping of a file's bytes `[offset, offset + length)`, with the descriptor that keeps the file there.
///
/// Others (processes, cards) may change these bytes at any time, so they are lent to nobody: they are copied in and
/// out. Whether a copy is whole is settled by what stands beside it: a CRC, a header, a message that came after it.
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
    /// Maps part of `file`. `offset`: a whole number of pages. The file must be that long already and stay so: a page
    /// that is cut off under a mapping kills the process that touches it.
    ///
    /// Errors: `InvalidInput` when the file is shorter, `length` is 0 or `offset` is within a page; those of mmap.
    pub fn map(file: OwnedFd, offset: u64, length: u64, writable: bool) -> io::Result<Self> {
        let file = File::from(file);
        let end = offset.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        if length == 0 || !offset.is_multiple_of(4096) || file.metadata()?.len() < end {
            let why = format!("bytes {offset}..{end} are not whole pages of a file that long");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing of ours is there.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, offset)? };
        Ok(Self { start: start.cast(), length, writable, file })
    }

    /// Fresh, zeroed, writable memory of this process, allocated now: it can be registered, and handed out as a descriptor.
    ///
    /// Errors: those of memfd_create, fallocate (`StorageFull`), mmap.
    pub fn fresh(length: u64) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(c"hearth", MemfdFlags::CLOEXEC)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length)?;
        Self::map(file, 0, length, true)
    }

    /// A memfd of a size that nobody can change any more: for a peer on this machine, who takes it with [`Memory::of_peer`].
    /// Its pages are allocated when they are touched.
    ///
    /// Errors: those of memfd_create, ftruncate and fcntl.
    pub fn sealed(length: u64) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(c"hearth-lent", flags)?;
        rustix::fs::ftruncate(&file, length)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// The first `length` bytes of memory that a peer on this machine lends for writing. Whatever the peer does, writing there
    /// is possible: the size is sealed, and the pages are the kernel's ordinary ones (of huge ones there may be none left
    /// when they are touched, which would end this process).
    ///
    /// Errors: `InvalidInput` when it is shorter, or not of that kind; those of mmap.
    pub fn of_peer(file: OwnedFd, length: u64) -> io::Result<Self> {
        /// Source: linux/magic.h.
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        // Only memfds have seals; other files answer EINVAL.
        let sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed || rustix::fs::fstatfs(&file)?.f_type as u64 != TMPFS_MAGIC {
            let why = "memory of a peer is not a memfd of ordinary pages with its size sealed";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Self::map(file, 0, length, true)
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Where it is mapped: for registration with a card, and as the address that peers name.
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

    /// Copies `into.len()` bytes from `offset` out.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `from` is valid for that many bytes, and `into` is not part of a shared mapping. Bytes that change
        // meanwhile come out old or new; nothing is concluded from them before they are checked.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(self.writable, "this memory was mapped for reading");
        let to = self.at(offset, bytes.len());
        // SAFETY: `to` is valid for that many bytes and mapped writable; `bytes` is not part of a shared mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// A second descriptor of the same file.
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
    fn what_is_written_is_in_the_file_and_in_other_mappings() {
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
    fn a_file_that_is_too_short_is_refused() {
        let memory = Memory::fresh(4096).unwrap();
        for (offset, length) in [(0, 4097), (4096, 1), (1, 100), (0, 0), (u64::MAX, 2)] {
            let error = Memory::map(memory.descriptor().unwrap(), offset, length, false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{offset} {length}");
        }
    }

    #[test]
    fn memory_of_a_peer_is_taken_only_when_it_cannot_shrink() {
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
    fn memory_that_is_sealed_against_writing_is_refused() {
        let lent = rustix::fs::memfd_create(c"hearth", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&lent, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&lent, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
        assert!(Memory::of_peer(lent, 4096).is_err());
    }

    #[test]
    #[should_panic(expected = "access beyond the memory")]
    fn access_stays_within() {
        Memory::fresh(4096).unwrap().read(4090, &mut [0; 7]);
    }
}
