//! Memory of another process that was lent for writing.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Read-write mapping of a range of a file that its owner lent. No copy: the pages are the file's own.
///
/// The owner must guarantee two things, because nothing can verify them for the whole lifetime of the mapping. First,
/// the file must not be shortened while it is mapped. Accessing a removed part, or a part that the file never had, ends
/// this process with SIGBUS; a system call that does so fails with EFAULT. Second, no other process may write to the
/// bytes. Within this process this value has the only reference to its mapping; a caller that maps the same range twice
/// must itself ensure the second guarantee.
#[derive(Debug)]
pub struct MappedRange {
    start: NonNull<c_void>,
    length: usize,
    /// Offset of its first byte in the file.
    at: u64,
}

// SAFETY: the mapping belongs to this value alone and can be accessed and removed on any thread.
unsafe impl Send for MappedRange {}
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for MappedRange {}

impl MappedRange {
    /// Maps `length` bytes from `at`, a whole number of pages. The file may be shorter, but only the part that exists
    /// at the time of the access may be accessed. The descriptor may be closed afterwards.
    ///
    /// Errors: those of `mmap`.
    pub fn new(file: impl AsFd, at: u64, length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, &file, at) }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { start, length, at })
    }

    /// Returns true if it contains all of `range`, in bytes of the file.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.start <= range.end && range.start >= self.at && range.end - self.at <= self.length as u64
    }

    /// Returns the bytes of `range`, in bytes of the file. The file must contain the range, and this mapping must cover
    /// it.
    pub fn bytes(&self, range: Range<u64>) -> &[u8] {
        let (from, length) = self.within(&range);
        // SAFETY: `within` has checked that the range is mapped, and it stays mapped until this value is dropped. The
        // type's documentation requires that the file has these bytes and that no other process changes them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<u8>().add(from), length) }
    }

    /// Like `bytes`, but for filling them.
    pub fn bytes_mut(&mut self, range: Range<u64>) -> &mut [u8] {
        let (from, length) = self.within(&range);
        // SAFETY: as in `bytes`; mapped writable, and this value is borrowed for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast::<u8>().add(from), length) }
    }

    fn within(&self, range: &Range<u64>) -> (usize, usize) {
        assert!(
            self.covers(range),
            "bytes {range:?} are outside the mapping, which starts at {} and has {} bytes",
            self.at,
            self.length
        );
        ((range.start - self.at) as usize, (range.end - range.start) as usize)
    }
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        // SAFETY: this value mapped it, and no slice of it can outlive the value. An error would leave it mapped.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn mapping_and_file_show_each_others_writes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(20_000).unwrap();
        let mut window = MappedRange::new(&file, 4096, 8192).unwrap();
        assert!(window.covers(&(4096..12_288)) && window.covers(&(5000..5000)));
        assert!(!window.covers(&(4095..5000)) && !window.covers(&(5000..12_289)) && !window.covers(&(13_000..13_001)));
        window.bytes_mut(5000..5010).copy_from_slice(b"in a place");
        let mut found = [0; 10];
        file.read_exact_at(&mut found, 5000).unwrap();
        assert_eq!(&found, b"in a place");
        file.write_all_at(b"an", 5003).unwrap();
        drop(file);
        assert_eq!(window.bytes(5000..5010), b"in anplace");
    }

    #[test]
    fn file_may_grow_into_the_mapping() {
        let file = tempfile::tempfile().unwrap();
        let mut window = MappedRange::new(&file, 0, 1 << 20).unwrap();
        file.set_len(8192).unwrap();
        window.bytes_mut(8000..8192).fill(7);
        assert!(window.bytes(0..8000).iter().all(|byte| *byte == 0) && window.bytes(8191..8192) == [7]);
    }

    #[test]
    #[should_panic(expected = "which starts at 4096")]
    fn out_of_bounds_access_panics() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(20_000).unwrap();
        MappedRange::new(&file, 4096, 4096).unwrap().bytes_mut(8000..8193);
    }
}
