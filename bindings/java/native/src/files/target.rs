//! Memory of Java that reads fill.

use jni_sys::{jbyteArray, jint};

use crate::jvm::{Jvm, Thrown};

/// Memory of Java, which the JVM may move while nothing uses it.
pub trait Target {
    fn length(&self) -> usize;

    /// Calls `copy` with `count` bytes from `start` on, which must be within the memory. `copy` does not wait and does
    /// not call the JVM. Returns its result.
    fn with(&mut self, start: usize, count: usize, copy: impl FnOnce(&mut [u8]) -> usize) -> Result<usize, Thrown>;

    /// Copies `bytes` to the memory from `start` on.
    fn store(&mut self, start: usize, bytes: &[u8]) -> Result<(), Thrown>;

    /// Returns the memory if the JVM does not move it.
    fn direct(&mut self) -> Option<&mut [u8]>;
}

/// Part of a Java array.
pub struct Array<'a> {
    jvm: &'a Jvm,
    array: jbyteArray,
    offset: usize,
    length: usize,
}

impl<'a> Array<'a> {
    /// Errors: `Argument` if the range is not within the array.
    pub fn new(jvm: &'a Jvm, array: jbyteArray, offset: jint, length: jint) -> Result<Self, Thrown> {
        let (offset, length) = jvm.checked_range(array, offset, length)?;
        Ok(Self { jvm, array, offset, length })
    }
}

impl Target for Array<'_> {
    fn length(&self) -> usize {
        self.length
    }

    fn with(&mut self, start: usize, count: usize, copy: impl FnOnce(&mut [u8]) -> usize) -> Result<usize, Thrown> {
        // SAFETY: `copy` neither waits nor calls the JVM, as its callers promise.
        let mut array = unsafe { self.jvm.critical(self.array)? };
        Ok(copy(&mut array.bytes()[self.offset..][..self.length][start..][..count]))
    }

    fn store(&mut self, start: usize, bytes: &[u8]) -> Result<(), Thrown> {
        if start + bytes.len() > self.length {
            return Err(Thrown::Argument("range outside of the memory to read into"));
        }
        self.jvm.store(self.array, self.offset + start, bytes)
    }

    fn direct(&mut self) -> Option<&mut [u8]> {
        None
    }
}

/// Part of a direct buffer.
pub struct Direct<'a>(pub &'a mut [u8]);

impl Target for Direct<'_> {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn with(&mut self, start: usize, count: usize, copy: impl FnOnce(&mut [u8]) -> usize) -> Result<usize, Thrown> {
        Ok(copy(&mut self.0[start..][..count]))
    }

    fn store(&mut self, start: usize, bytes: &[u8]) -> Result<(), Thrown> {
        let into = self.0.get_mut(start..start + bytes.len());
        into.ok_or(Thrown::Argument("range outside of the memory to read into"))?.copy_from_slice(bytes);
        Ok(())
    }

    fn direct(&mut self) -> Option<&mut [u8]> {
        Some(self.0)
    }
}
