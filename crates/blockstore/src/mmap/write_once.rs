//! A range of a shared map whose bytes are written once, front to back, and then lent to readers without a copy.

use std::sync::atomic::{AtomicU32, Ordering};

use super::shared_map::SharedMap;

/// A range of a [`SharedMap`]. Its first bytes are fixed: they can be lent, and are never written again. The others
/// can be written, and are never lent.
pub struct WriteOnceRange {
    start: u32,
    length: u32,
    /// Number of bytes, from the start, that are fixed; it only rises.
    fixed: AtomicU32,
}

impl WriteOnceRange {
    /// Takes the range of `length` bytes from `start` of a map, in which the first `fixed` bytes are written.
    ///
    /// While the value lives, the caller gives no byte of the range to another value, and uses the methods with the
    /// same map, through which it writes only outside the range.
    pub fn new(start: u32, length: u32, fixed: u64) -> Self {
        assert!(fixed <= u64::from(length), "data beyond the range");
        Self { start, length, fixed: AtomicU32::new(fixed as u32) }
    }

    pub fn start(&self) -> u32 {
        self.start
    }

    pub fn length(&self) -> u32 {
        self.length
    }

    /// Writes bytes at `offset` of the range that are not fixed. Only one caller at a time.
    pub fn write(&self, map: &SharedMap, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= u64::from(self.length), "data beyond the range");
        assert!(offset >= u64::from(self.fixed.load(Ordering::Relaxed)), "fixed bytes are not written again");
        map.write(u64::from(self.start) + offset, bytes);
    }

    /// Fixes the first `length` bytes, which are written. Only one caller at a time.
    pub fn fix(&self, length: u64) {
        assert!(length <= u64::from(self.length), "data beyond the range");
        if length > u64::from(self.fixed.load(Ordering::Relaxed)) {
            self.fixed.store(length as u32, Ordering::Release);
        }
    }

    /// Lends the first `length` bytes, which are fixed.
    pub fn bytes<'a>(&'a self, map: &'a SharedMap, length: u64) -> &'a [u8] {
        assert!(length <= u64::from(self.fixed.load(Ordering::Acquire)), "bytes that are not fixed yet");
        // SAFETY: fixed bytes are not written again: `write` refuses, and the caller of `new` has the range to itself.
        // The files of shared maps are not truncated.
        unsafe { map.bytes(u64::from(self.start), length as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_bytes_are_lent_and_not_written_again() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let map = SharedMap::new(&file, 4096).unwrap();
        let range = WriteOnceRange::new(100, 10, 0);
        range.write(&map, 0, b"abc");
        range.fix(3);
        range.write(&map, 3, b"de");
        assert_eq!(range.bytes(&map, 3), b"abc");
        range.fix(5);
        range.fix(4);
        assert_eq!(range.bytes(&map, 5), b"abcde");
        let refused = |act: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err();
        assert!(refused(&|| range.write(&map, 4, b"x")));
        assert!(refused(&|| range.write(&map, 5, b"123456")));
        assert!(refused(&|| drop(range.bytes(&map, 6).to_vec())));
        assert!(refused(&|| range.fix(11)));
    }
}
