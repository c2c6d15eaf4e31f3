//! Memory of a few pages that two processes map and tell each other things in, one 64-bit word a slot.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// From one word to the next: a cache line, so that two words are never fought over by two processors.
const SLOT_BYTES: usize = 64;

/// Slots, each with one word in native byte order at its beginning; the rest of a slot is not used.
///
/// Whatever the other process writes, here it is a number: every access is atomic, and the memory cannot be made smaller under
/// the mapping.
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
    /// Fresh memory, all zero, of a size that nobody can change any more; and the descriptor by which another process gets it.
    pub fn create(slots: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create(c"hearth-slots", flags)?;
        rustix::fs::ftruncate(&descriptor, (slots * SLOT_BYTES) as u64)?;
        rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(&descriptor, slots)?, descriptor))
    }

    /// What another process has created and passed on: as many slots as the memory has room for, `slots_max` at most.
    ///
    /// Its size must be sealed, or `trusted`: that its owner will not cut it.
    pub fn attach(descriptor: OwnedFd, slots_max: usize, trusted: bool) -> io::Result<Self> {
        let file = File::from(descriptor);
        let slots = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX) / SLOT_BYTES;
        // Only a memfd has seals; another file answers EINVAL.
        let sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if slots == 0 || !(sealed || trusted) {
            let reason = "shared memory without a slot, or of a size that may still change";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Self::map(&file, slots.min(slots_max))
    }

    fn map(descriptor: impl AsFd, slots: usize) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let length = slots * SLOT_BYTES;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing of ours is there.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, prot, MapFlags::SHARED, &descriptor, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Self { start, slots })
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The word of slot `index`, which is below `slots()`.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.slots, "slot {index} of {}", self.slots);
        // SAFETY: the slot lies within the mapping, which lives as long as `self`, begins on a page and so is aligned for
        // 8 bytes; nobody here accesses it but atomically.
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
    fn both_sides_see_each_others_words_and_neither_can_cut_them() {
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
    fn memory_that_may_shrink_is_taken_only_on_trust() {
        let file = tempfile::tempfile().unwrap();
        assert!(SharedWords::attach(file.try_clone().unwrap().into(), 128, true).is_err());
        file.set_len(8192).unwrap();
        assert!(SharedWords::attach(file.try_clone().unwrap().into(), 128, false).is_err());
        assert_eq!(SharedWords::attach(file.into(), 128, true).unwrap().slots(), 128);
    }
}
