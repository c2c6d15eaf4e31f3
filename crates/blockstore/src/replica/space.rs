//! Disk space that one replica takes in the counters of its slice and volume.

use std::sync::atomic::Ordering;

use hearth_types::ChecksumSpec;

use super::lifecycle::Lifecycle;
use crate::volume::Slice;

/// Share of a replica in the counters of its slice and volume: they are the sums of these.
#[derive(Default)]
pub struct Space {
    /// Bytes of disk space reserved.
    reserved: u64,
    /// Bytes counted as used in the slice.
    counted: u64,
}

impl Space {
    /// A new replica for which the caller has reserved `bytes` of its volume.
    pub fn reserved(bytes: u64) -> Self {
        Self { reserved: bytes, counted: 0 }
    }

    /// The caller has reserved `bytes` more of the volume for the replica.
    pub fn add_reserved(&mut self, bytes: u64) {
        self.reserved += bytes;
    }

    /// Updates the counters to match the replica. `is_on_disk`: the disk has the whole replica in its current state.
    pub fn settle(&mut self, slice: &Slice, replica: &Lifecycle, is_on_disk: bool) {
        let checksum = replica.checksum().unwrap_or(ChecksumSpec::DEFAULT);
        let meta = ChecksumSpec::META_HEADER_BYTES as u64 + checksum.checksum_bytes(replica.received());
        let finalized = replica.is_finalized() && !replica.is_gone();
        let counted = if finalized { replica.received() + meta } else { 0 };
        // Every counted replica has at least the header of a meta file, so `counted` is never 0.
        slice.finalized.fetch_add(u64::from(counted > 0), Ordering::Relaxed);
        slice.finalized.fetch_sub(u64::from(self.counted > 0), Ordering::Relaxed);
        slice.used.fetch_add(counted, Ordering::Relaxed);
        slice.used.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = counted;
        let reserved = match () {
            () if replica.is_gone() => 0,
            // Already counted as used, but not yet taken from the disk: the reservation makes up for the difference.
            () if finalized => {
                if is_on_disk {
                    0
                } else {
                    counted
                }
            }
            () => self.reserved,
        };
        slice.volume.change_reserved(self.reserved, reserved);
        self.reserved = reserved;
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use hearth_types::{BlockPoolId, GenerationStamp, ReplicaState, StorageId, StorageType};

    use super::*;
    use crate::disk::layout::PoolDirs;
    use crate::memory::budget::Budget;
    use crate::memory::slab::Slabs;
    use crate::options::{Engine, Reserved};
    use crate::volume::Volume;

    fn slice() -> Slice {
        let (dir, id) = (PathBuf::from("/nonexistent"), StorageId("DS-1".into()));
        let (kind, engine, free) = (StorageType::Disk, Engine::Memory, Reserved::Bytes(0));
        let volume = Volume::new(0, id, kind, engine, dir.clone(), dir.clone(), free, None, Vec::new());
        Slice {
            volume: Arc::new(volume),
            pool: BlockPoolId::new("BP-1"),
            dirs: PoolDirs::new(&dir, "BP-1"),
            memory_dir: dir.clone(),
            slabs: Slabs::new(dir, Budget::new(0)),
            used: AtomicU64::new(0),
            finalized: AtomicU64::new(0),
        }
    }

    #[test]
    fn reservation_turns_into_used_bytes() {
        let slice = slice();
        let counters = || (slice.used.load(Ordering::Relaxed), slice.volume.promised());
        slice.volume.change_reserved(0, 1000);
        let mut space = Space::reserved(1000);
        let mut replica = Lifecycle::new(ReplicaState::BeingWritten, GenerationStamp(1));
        replica.receive(512, 0);
        space.settle(&slice, &replica, false);
        assert_eq!(counters(), (0, 1000));
        replica.finalize();
        // 7 bytes of header and one CRC.
        space.settle(&slice, &replica, false);
        assert_eq!(counters(), (523, 523));
        space.settle(&slice, &replica, true);
        assert_eq!(counters(), (523, 0));
        assert_eq!(slice.finalized.load(Ordering::Relaxed), 1);
        replica.remove();
        space.settle(&slice, &replica, true);
        assert_eq!(counters(), (0, 0));
        assert_eq!(slice.finalized.load(Ordering::Relaxed), 0);
    }
}
