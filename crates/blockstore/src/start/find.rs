//! Search for the copies in one memory directory, and the choice of the copy that counts for a replica.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use hearth_types::{BlockId, ReplicaState};

use crate::disk::files::DiskCopy;
use crate::disk::layout::ReplicaDir;
use crate::memory::budget::Budget;
use crate::memory::copy::MemoryCopy;
use crate::memory::file::{FileCopy, FileName};
use crate::memory::header::{self, HEADER_BYTES, Identity, Progress};
use crate::memory::slab::{Slabs, Slot};

/// A replica found in memory.
pub struct FoundMemory {
    pub memory: MemoryCopy,
    pub identity: Identity,
    pub progress: Progress,
}

enum Candidate {
    Slot(Slot),
    File { replaced: u32 },
}

/// Finds all replicas of a memory directory, with the newest whole copy of each. Other files of replicas are removed.
pub fn in_memory(dir: &Path, budget: &Arc<Budget>, slabs: &Slabs) -> io::Result<HashMap<BlockId, FoundMemory>> {
    let mut candidates: HashMap<BlockId, Vec<(Identity, Progress, Candidate)>> = HashMap::new();
    for found in slabs.load()? {
        let list = candidates.entry(found.identity.block).or_default();
        list.push((found.identity, found.progress, Candidate::Slot(found.slot)));
    }
    let mut data_files = Vec::new();
    let mut crc_files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_name().to_str().and_then(FileName::parse) {
            Some(FileName::Data { nonce, .. }) => data_files.push((nonce, entry.path())),
            Some(FileName::Crc { block, nonce, replaced }) => {
                let mut bytes = [0; HEADER_BYTES as usize];
                let header = match File::open(entry.path())?.read_exact_at(&mut bytes, 0) {
                    Ok(()) => header::read(&bytes),
                    // A kill truncated it. Any other error is the system's, and the file must not be removed as a
                    // leftover.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
                    Err(error) => return Err(error),
                };
                if let Some((identity, progress)) =
                    header.filter(|(identity, _)| identity.block == block && identity.nonce == nonce)
                {
                    candidates.entry(block).or_default().push((identity, progress, Candidate::File { replaced }));
                }
                crc_files.push((nonce, replaced, entry.path()));
            }
            None => {}
        }
    }
    let mut kept_files = HashSet::new();
    let mut found = HashMap::with_capacity(candidates.len());
    for (block, mut copies) in candidates {
        copies.sort_by_key(|(_, progress, _)| std::cmp::Reverse((progress.stamp, progress.sequence)));
        for (identity, progress, candidate) in copies {
            if found.contains_key(&block) {
                if let Candidate::Slot(slot) = candidate {
                    slot.retire();
                }
                continue;
            }
            let memory = match candidate {
                Candidate::Slot(slot) => MemoryCopy::Slot(Arc::new(slot)),
                Candidate::File { replaced } => {
                    let Some(copy) = FileCopy::found(dir, budget, &identity, &progress, replaced)? else { continue };
                    kept_files.insert((identity.nonce, replaced));
                    MemoryCopy::File(Arc::new(copy))
                }
            };
            found.insert(block, FoundMemory { memory, identity, progress });
        }
    }
    let kept_data: HashSet<u64> = kept_files.iter().map(|(nonce, _)| *nonce).collect();
    for (_, path) in data_files.iter().filter(|(nonce, _)| !kept_data.contains(nonce)) {
        fs::remove_file(path)?;
    }
    for (_, _, path) in crc_files.iter().filter(|(nonce, replaced, _)| !kept_files.contains(&(*nonce, *replaced))) {
        fs::remove_file(path)?;
    }
    Ok(found)
}

/// Returns the copy that counts of one block's copies in `finalized` and in `rbw`, then the other.
pub fn better_on_disk(a: DiskCopy, b: DiskCopy) -> (DiskCopy, DiskCopy) {
    let (finalized, written) = if a.place == ReplicaDir::Finalized { (a, b) } else { (b, a) };
    // A newer copy with fewer bytes is an append that was never acknowledged.
    if written.stamp > finalized.stamp && written.length >= finalized.length {
        (written, finalized)
    } else {
        (finalized, written)
    }
}

/// Returns whether the copy in memory counts if there is one on disk too. The highest stamp wins; then a finalized copy
/// that has all acknowledged bytes; then memory, which was checked to reach its recorded length.
pub fn memory_counts(memory: &Progress, disk: &DiskCopy) -> bool {
    if memory.stamp != disk.stamp {
        return memory.stamp > disk.stamp;
    }
    let finalized_on_disk = disk.place == ReplicaDir::Finalized && disk.length >= memory.acked;
    memory.state == ReplicaState::Finalized || !finalized_on_disk
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_types::GenerationStamp;

    fn memory(stamp: u64, state: ReplicaState, received: u64, acked: u64) -> Progress {
        Progress { sequence: 1, stamp: GenerationStamp(stamp), received, acked, partial_crc: 0, state }
    }

    fn disk(stamp: u64, place: ReplicaDir, length: u64) -> DiskCopy {
        DiskCopy { place, stamp: GenerationStamp(stamp), length }
    }

    #[test]
    fn restart_chooses_the_right_copy() {
        use ReplicaDir::{BeingWritten as Rbw, Finalized as Done};
        use ReplicaState::{BeingWritten, Finalized};
        // The stamp takes precedence.
        assert!(memory_counts(&memory(2, BeingWritten, 1, 0), &disk(1, Done, 9)));
        assert!(!memory_counts(&memory(1, Finalized, 9, 9), &disk(2, Rbw, 1)));
        // Both finalized: the same bytes, and memory is faster.
        assert!(memory_counts(&memory(1, Finalized, 9, 9), &disk(1, Done, 9)));
        // hsync has put a part on disk.
        assert!(memory_counts(&memory(1, BeingWritten, 9, 5), &disk(1, Rbw, 5)));
        assert!(memory_counts(&memory(1, Finalized, 9, 9), &disk(1, Rbw, 9)));
        // Finalized on disk, killed before memory recorded it; and a copy that lacks acknowledged bytes.
        assert!(!memory_counts(&memory(1, BeingWritten, 9, 9), &disk(1, Done, 9)));
        assert!(memory_counts(&memory(1, BeingWritten, 9, 9), &disk(1, Done, 8)));

        let (best, _) = better_on_disk(disk(1, Done, 9), disk(2, Rbw, 9));
        assert_eq!(best.place, Rbw);
        let (best, _) = better_on_disk(disk(2, Rbw, 3), disk(1, Done, 9));
        assert_eq!(best.place, Done);
        let (best, _) = better_on_disk(disk(1, Rbw, 9), disk(1, Done, 9));
        assert_eq!(best.place, Done);
    }
}
