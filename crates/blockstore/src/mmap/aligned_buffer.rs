//! Buffers for direct I/O.

use std::io;
use std::ops::{Deref, DerefMut};

use rustix::mm::Advice;

use super::region::Region;
use crate::sys::pages;

/// A buffer whose address and length suit direct I/O, in huge pages if the machine has them: the disk then gets its
/// bytes in few pieces, and the first fill causes few page faults.
pub struct AlignedBuffer(Region);

impl AlignedBuffer {
    /// Allocates `length` bytes, rounded up to whole pages; zeroed.
    ///
    /// Errors: no memory.
    pub fn new(length: usize) -> io::Result<Self> {
        let region = Region::anonymous(pages(length.max(1) as u64) as usize)?;
        region.advise(Advice::LinuxHugepage);
        Ok(Self(region))
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped with this length; the kernel hands out zeros.
        unsafe { std::slice::from_raw_parts(self.0.start(), self.0.length()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way in.
        unsafe { std::slice::from_raw_parts_mut(self.0.start(), self.0.length()) }
    }
}
