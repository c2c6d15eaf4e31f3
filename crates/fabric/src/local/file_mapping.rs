//! Read-only view of another process's memory, through a descriptor that it passed.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Read-only mapping of the first bytes of a file. No copy: the pages are the file's own.
///
/// The process that passed the descriptor must guarantee two things, because nothing can verify them for the whole
/// lifetime of the mapping. The file must not be shortened while it is mapped (accessing the removed part ends this
/// process with SIGBUS), and the bytes must not change. Map only files of peers that guarantee the first; checksums
/// over the bytes detect a violation of the second.
#[derive(Debug)]
pub struct FileMapping {
    /// Dangling if `length` is 0.
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and can be read and removed on any thread.
unsafe impl Send for FileMapping {}
// SAFETY: as above; nothing is written through it.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps `length` bytes from the start of `file`. The descriptor may be closed afterwards.
    ///
    /// Errors: `UnexpectedEof` if the file is shorter; errors of `mmap`.
    pub fn new(file: impl AsFd, length: u64) -> io::Result<Self> {
        let has = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if has < length {
            let why = format!("cannot map {length} bytes of a file of {has} bytes");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        if length == 0 {
            return Ok(Self { start: NonNull::dangling(), length });
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { start, length })
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes from `start` are mapped readable until this value is dropped (for length 0 any pointer
        // is valid), and the file had that many bytes. The type's documentation requires the peer to keep them
        // unchanged.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.length) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: this value mapped it, and no slice of it can outlive the value. An error would leave it mapped.
            let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn mapping_outlives_file_name_and_descriptor() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"of another process").unwrap();
        let map = FileMapping::new(&file, 10).unwrap();
        drop(file);
        assert_eq!(map.bytes(), b"of another");
        let shared = std::sync::Arc::new(map);
        let other = std::sync::Arc::clone(&shared);
        assert_eq!(std::thread::spawn(move || other.bytes()[3]).join().unwrap(), b'a');
    }

    #[test]
    fn mapping_beyond_end_of_file_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(FileMapping::new(&file, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(FileMapping::new(&file, 0).unwrap().bytes().is_empty());
    }
}
