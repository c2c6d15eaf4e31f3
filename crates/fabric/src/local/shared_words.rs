//! A few pages of shared memory in which two processes exchange 64-bit words, one per slot.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Distance between two words: a cache line, so that two words never cause false sharing.
const SLOT_BYTES: usize = 64;

/// Slots with one word each in native byte order at the start; the rest of a slot is unused.
///
/// Anything that the other process writes is read as a plain number. Every access is atomic, and the memory cannot be
/// shrunk under the mapping.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<u8>,
    slots: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is accessed through atomics only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Creates zeroed memory with a sealed size, and the descriptor to pass to another process.
    pub fn create(slots: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create(c"hearth-slots", flags)?;
        rustix::fs::ftruncate(&descriptor, (slots * SLOT_BYTES) as u64)?;
        rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(&descriptor, slots)?, descriptor))
    }

    /// Attaches memory that another process has created and passed. Takes all slots of the memory, but at most
    /// `slots_max`.
    ///
    /// Its size must be sealed, unless `trusted` is set: then the caller relies on the owner not to shrink it.
    pub fn attach(descriptor: OwnedFd, slots_max: usize, trusted: bool) -> io::Result<Self> {
        let file = File::from(descriptor);
        let slots = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX) / SLOT_BYTES;
        // Only a memfd has seals; other files return EINVAL.
        let sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if slots == 0 || !(sealed || trusted) {
            let reason = "shared memory has no slot, or its size is not sealed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Self::map(&file, slots.min(slots_max))
    }

    fn map(descriptor: impl AsFd, slots: usize) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let length = slots * SLOT_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing mapping.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, prot, MapFlags::SHARED, &descriptor, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Self { start, slots })
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the word of slot `index`, which must be below `slots()`.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.slots, "slot {index} of {}", self.slots);
        // SAFETY: the slot lies within the mapping, which lives as long as `self` and begins on a page, so the word is
        // aligned to 8 bytes. This process accesses it only atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(index * SLOT_BYTES).cast()) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: this is the range that `map` mapped, and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.slots * SLOT_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn words_are_shared_and_cannot_be_truncated() {
        let (ours, passed) = SharedWords::create(128).unwrap();
        assert!(rustix::fs::ftruncate(&passed, 64).is_err());
        let theirs = SharedWords::attach(passed, 1000, false).unwrap();
        assert_eq!(theirs.slots(), 128);
        theirs.word(127).store(1 << 63, Ordering::Release);
        assert_eq!(ours.word(127).load(Ordering::Acquire), 1 << 63);
        ours.word(0).fetch_or(5, Ordering::AcqRel);
        assert_eq!(theirs.word(0).load(Ordering::Acquire), 5);
        drop(ours);
        assert_eq!(theirs.word(0).load(Ordering::Acquire), 5);
    }

    #[test]
    fn unsealed_memory_is_accepted_only_if_trusted() {
        let file = tempfile::tempfile().unwrap();
        assert!(SharedWords::attach(file.try_clone().unwrap().into(), 128, true).is_err());
        file.set_len(8192).unwrap();
        assert!(SharedWords::attach(file.try_clone().unwrap().into(), 128, false).is_err());
        assert_eq!(SharedWords::attach(file.into(), 128, true).unwrap().slots(), 128);
    }
}
