//! Cache of a file's open and mapped replicas, by offset: the shortcut of positioned reads and views. Nothing here
//! waits, allocates or starts a task.

use std::sync::{Arc, Weak};

use hearth_types::LocatedBlock;
use parking_lot::RwLock;

use super::view::View;
use crate::DataPath;
use crate::short_circuit::LocalReplica;
use crate::statistics::Counters;

/// Open replicas of one file's blocks. Holds weak references: [`crate::short_circuit`] keeps them open.
#[derive(Debug, Default)]
pub(super) struct MappedCache {
    /// In order of offset.
    blocks: RwLock<Vec<Block>>,
}

#[derive(Debug)]
struct Block {
    /// Range of the block in the file.
    start: u64,
    end: u64,
    replica: Weak<LocalReplica>,
}

/// Longest read by this shortcut. Longer ones use the normal path, on which other tasks get their turn.
pub(super) const READ_BYTES_MAX: usize = 1 << 20;

impl MappedCache {
    /// Adds `replica` of `block`, which is open.
    pub(super) fn insert(&self, block: &LocatedBlock, replica: &Arc<LocalReplica>) {
        if replica.mapped().is_none() {
            return;
        }
        let (start, end) = (block.offset, block.offset + block.block.length());
        let is_cached = |entry: &Block| {
            (entry.start, entry.end) == (start, end) && std::ptr::eq(entry.replica.as_ptr(), Arc::as_ptr(replica))
        };
        // The common case: streams call this for each of their blocks repeatedly.
        if self.blocks.read().iter().any(is_cached) {
            return;
        }
        let mut blocks = self.blocks.write();
        blocks.retain(|entry| entry.replica.strong_count() > 0 && (entry.end <= start || entry.start >= end));
        let at = blocks.partition_point(|entry| entry.start < start);
        blocks.insert(at, Block { start, end, replica: Arc::downgrade(replica) });
    }

    /// Returns the open replica with the file's byte at `position`, and the start and end of its block in the file.
    fn at(&self, position: u64) -> Option<(Arc<LocalReplica>, u64, u64)> {
        let blocks = self.blocks.read();
        let after = blocks.partition_point(|entry| entry.start <= position);
        let entry = blocks.get(after.checked_sub(1)?)?;
        if position >= entry.end {
            return None;
        }
        let replica = entry.replica.upgrade()?;
        let range = (entry.start, entry.end);
        drop(blocks);
        replica.touch();
        replica.is_valid().then_some((replica, range.0, range.1))
    }

    /// Fills `into` from `offset` on, as far as open replicas reach and their bytes match their CRCs. Returns the
    /// number of bytes filled. The normal path reads the rest and reports its errors.
    pub(super) fn read(&self, offset: u64, into: &mut [u8], counters: &Counters) -> usize {
        if into.len() > READ_BYTES_MAX {
            return 0;
        }
        let mut filled = 0;
        while filled < into.len() {
            let position = offset + filled as u64;
            let Some((replica, start, end)) = self.at(position) else { break };
            let Some(mapped) = replica.mapped() else { break };
            let count = (into.len() - filled).min((end - position) as usize);
            if mapped.copy((position - start) as usize, &mut into[filled..filled + count]).is_err() {
                break;
            }
            filled += count;
        }
        if filled > 0 {
            counters.count_read(DataPath::Local, filled);
        }
        filled
    }

    /// Returns a view of at most `length` bytes from `offset` on. They are not verified yet.
    pub(super) fn view(&self, offset: u64, length: usize) -> Option<View> {
        let (replica, start, end) = self.at(offset)?;
        View::of(&replica, offset - start, end.min(offset.saturating_add(length as u64)) - start)
    }
}
