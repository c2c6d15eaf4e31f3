//! A shared, writable mapping of a file of the store's own.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use super::region::Region;

/// A shared, writable mapping of the first bytes of a file of the store's own, which does not become shorter.
///
/// Accesses are copies in and out by offset. The callers' locks and lengths ensure that no bytes are read while they
/// are written. The mapping itself lends no reference except through a
/// [`WriteOnceRange`](super::write_once::WriteOnceRange).
pub struct SharedMap(Region);

impl SharedMap {
    /// Maps `length` bytes from the start of `file`. Bytes beyond the file's end must not be touched before it has
    /// grown; the accessors cannot check that.
    pub fn new(file: &File, length: u64) -> io::Result<Self> {
        Region::of_file(file, length, true).map(Self)
    }

    pub fn length(&self) -> u64 {
        self.0.length() as u64
    }

    /// Copies `bytes` to `offset`. The caller is the only writer there, and nothing reads there during the call.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.0.at(offset, bytes.len());
        // SAFETY: `to` is valid for that many bytes, and the caller keeps others away from them (see above).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        // Later stores must not become visible before these bytes, even after a kill.
        fence(Ordering::Release);
    }

    /// Copies bytes from `offset`. Nothing writes there during the call.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.0.at(offset, into.len());
        // SAFETY: `from` is valid for that many bytes, and the caller ensures that nothing writes them (see above).
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Writes one byte so that other processes and a later start see it after all earlier writes.
    pub fn store(&self, offset: u64, value: u8) {
        let to = self.0.at(offset, 1);
        // SAFETY: `to` is valid and always aligned for one byte; the mapping outlives the reference.
        unsafe { AtomicU8::from_ptr(to) }.store(value, Ordering::Release);
    }

    /// Lends the bytes `[offset, offset + length)`.
    ///
    /// # Safety
    /// Nothing writes to them, and the file does not become shorter than them, while the reference lives.
    pub(super) unsafe fn bytes(&self, offset: u64, length: usize) -> &[u8] {
        let from = self.0.at(offset, length);
        // SAFETY: valid for that length within the mapping; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(from, length) }
    }
}
