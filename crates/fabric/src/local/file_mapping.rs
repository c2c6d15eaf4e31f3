//! Memory of another process, seen through a descriptor that it handed over.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The first bytes of a file, mapped for reading. No copy: the pages are the file's own.
///
/// Two things are asked of whoever handed the descriptor over, since nobody can check them for good: that the file is not
/// shortened while it is mapped (touching what was cut off ends this process with SIGBUS), and that the bytes do not change.
/// Map only files of peers that promise the first; sums over the bytes find a breach of the second.
#[derive(Debug)]
pub struct FileMapping {
    /// Dangling when `length` is 0.
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
    /// Errors: `UnexpectedEof` when the file is shorter; what `mmap` says.
    pub fn new(file: impl AsFd, length: u64) -> io::Result<Self> {
        let has = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if has < length {
            let why = format!("a file of {has} bytes where {length} were to be mapped");
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
        // SAFETY: `length` bytes from `start` are mapped readable until this value is dropped (any pointer does for none), and
        // the file had as many. That it keeps them unchanged is what the type's documentation asks of the peer.
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
    fn a_map_shows_the_file_and_outlives_its_name_and_descriptor() {
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
    fn what_the_file_does_not_have_is_not_mapped() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(FileMapping::new(&file, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(FileMapping::new(&file, 0).unwrap().bytes().is_empty());
    }
}
