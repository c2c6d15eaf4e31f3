//! A range of addresses that is mapped, and unmapped on drop.

use std::fs::File;
use std::io;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A mapped range of addresses.
pub struct Region {
    start: *mut u8,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; its users state the rules of access.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `length` bytes from the start of `file`, shared with its other users. With `writable`, also for writing.
    pub fn of_file(file: &File, length: u64, writable: bool) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let allowed = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing of ours is there.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, allowed, MapFlags::SHARED, file, 0)? };
        Ok(Self { start: start.cast(), length })
    }

    /// Maps `length` bytes of zeroed memory.
    ///
    /// Errors: no memory.
    pub fn anonymous(length: usize) -> io::Result<Self> {
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `of_file`.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, allowed, MapFlags::PRIVATE)? };
        Ok(Self { start: start.cast(), length })
    }

    /// Advises the kernel how the memory is used. Failing is harmless. `advice` leaves the bytes as they are.
    pub fn advise(&self, advice: Advice) {
        debug_assert!(matches!(advice, Advice::Random | Advice::LinuxHugepage), "the bytes stay as they are");
        // SAFETY: the range is mapped, and such advice does not change its bytes.
        let _ = unsafe { rustix::mm::madvise(self.start.cast(), self.length, advice) };
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the address of `length` bytes from `offset`, which are within the mapping.
    pub fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let offset = offset as usize;
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.length), "access beyond the mapping");
        // SAFETY: the range was just checked to lie within the mapping.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is the range that was mapped; users lend references into it only while they borrow it.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.length) };
    }
}
