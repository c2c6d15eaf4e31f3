//! The blocks of a file with their locations, for readers.

use hearth_protocol::block_token::AccessMode;
use hearth_types::{LocatedBlock, LocatedBlocks};

use crate::blocks::{BlockState, Now, ReaderLocation};
use crate::namespace::{BlockRecord, Blocks, Caller, Slot};
use crate::state::{Namenode, State};

impl Namenode {
    /// Like [`State::located_as_read`], with read tokens if tokens are on: the caller has checked the read permission.
    pub fn located_for_reader(
        &self,
        state: &State,
        slot: Slot,
        range: (u64, u64),
        in_snapshot: bool,
        caller: &Caller,
        now: Now,
    ) -> LocatedBlocks {
        let mut located = state.located_as_read(slot, range, in_snapshot, caller, now);
        if self.tokens.is_on() {
            for block in located.blocks.iter_mut().chain(&mut located.last_block) {
                self.tokens.sign(block, AccessMode::Read, &caller.user, now.wall_ms);
            }
        }
        located
    }

    /// Adds the writer's token to its block.
    pub fn signed(&self, mut located: LocatedBlock, mode: AccessMode, caller: &Caller, now: Now) -> LocatedBlock {
        self.tokens.sign(&mut located, mode, &caller.user, now.wall_ms);
        located
    }
}

impl State {
    /// Like [`State::located_blocks`], also for files in a snapshot.
    pub fn located_as_read(
        &self,
        slot: Slot,
        range: (u64, u64),
        in_snapshot: bool,
        caller: &Caller,
        now: Now,
    ) -> LocatedBlocks {
        let mut located = self.located_blocks(slot, range.0, range.1, &caller.machine, now);
        if in_snapshot {
            // A file in a snapshot is not written: its length is the one known when the snapshot was made.
            located.file_length = self.namespace.inode(slot).as_file().map_or(0, |file| file.length());
            located.under_construction = false;
            located.last_block_complete = true;
        }
        located
    }

    /// Returns the blocks that contain bytes `[offset, offset + length)` of a file, and its last one.
    ///
    /// `machine`: the reader's address as text; the nearest replicas come first.
    pub fn located_blocks(&self, slot: Slot, offset: u64, length: u64, machine: &str, now: Now) -> LocatedBlocks {
        let file = self.namespace.inode(slot).as_file().expect("the caller has checked that it is a file");
        let reader = ReaderLocation { ip: Some(machine) };
        let frozen = self.namespace.is_frozen(slot);
        let blocks = located_range(file.blocks(), offset, length)
            .filter_map(|(block, at)| self.locate(block, at, frozen, reader, now))
            .collect();
        let total = file.length();
        let last = file.blocks().last();
        let last_complete = last.is_some_and(|last| self.blocks.state(last.id) == Some(BlockState::Complete));
        let last_length = last.map_or(0, |last| last.length);
        LocatedBlocks {
            file_length: if file.is_open() && !last_complete { total - last_length } else { total },
            under_construction: file.is_open(),
            blocks,
            last_block: last.and_then(|last| self.locate(last, total - last_length, frozen, reader, now)),
            last_block_complete: last_complete,
        }
    }

    fn locate(
        &self,
        block: BlockRecord,
        at: u64,
        frozen: bool,
        reader: ReaderLocation<'_>,
        now: Now,
    ) -> Option<LocatedBlock> {
        let mut located = self.blocks.locate(block.id, at, reader, now)?;
        // The namespace's length is the one that the writer reported; the map's may be ahead of it because of reports.
        let stamp = located.block.block.stamp;
        located.block.block = block.block();
        if frozen {
            // The file may have been appended to since: the block then has a newer stamp, and more bytes.
            located.block.block.stamp = stamp;
        }
        Some(located)
    }
}

/// Returns the blocks that overlap the range, with their offsets in the file. As in Apache, an empty first block of an
/// open file is part of every range, and a range that starts behind the end has no blocks.
fn located_range(blocks: Blocks<'_>, offset: u64, length: u64) -> impl Iterator<Item = (BlockRecord, u64)> {
    let end = offset.saturating_add(length);
    let first_is_empty = blocks.get(0).is_some_and(|block| block.length == 0);
    let with_starts = blocks.iter().scan(0u64, |at, block| {
        let start = *at;
        *at += block.length;
        Some((block, start))
    });
    with_starts
        .skip_while(move |(block, start)| !first_is_empty && start + block.length <= offset)
        .enumerate()
        // The block that the range starts in is included whatever the range's length is.
        .take_while(move |(nth, (_, start))| *nth == 0 || *start < end)
        .map(|(_, found)| found)
}

#[cfg(test)]
mod tests {
    use hearth_types::{Block, BlockId, GenerationStamp};

    use super::*;
    use crate::namespace::RecordState;

    fn blocks(lengths: &[u64]) -> Vec<BlockRecord> {
        lengths
            .iter()
            .enumerate()
            .map(|(i, length)| Block { id: BlockId(i as i64), stamp: GenerationStamp(1), length: *length })
            .map(|block| BlockRecord::new(block, RecordState::Complete))
            .collect()
    }

    fn found(lengths: &[u64], offset: u64, length: u64) -> Vec<(i64, u64)> {
        located_range(Blocks::Whole(&blocks(lengths)), offset, length).map(|(block, at)| (block.id.0, at)).collect()
    }

    #[test]
    fn ranges_select_whole_blocks() {
        assert_eq!(found(&[100, 100, 50], 0, 100), [(0, 0)]);
        assert_eq!(found(&[100, 100, 50], 99, 2), [(0, 0), (1, 100)]);
        assert_eq!(found(&[100, 100, 50], 150, 0), [(1, 100)]);
        assert_eq!(found(&[100, 100, 50], 200, u64::MAX), [(2, 200)]);
        assert_eq!(found(&[100, 100, 50], 250, 1), []);
        assert_eq!(found(&[], 0, 10), []);
        // An open last block without bytes yet belongs to ranges that reach beyond the end of the others.
        assert_eq!(found(&[100, 0], 0, 100), [(0, 0)]);
        assert_eq!(found(&[100, 0], 0, 101), [(0, 0), (1, 100)]);
        assert_eq!(found(&[0], 500, 10), [(0, 0)]);
    }
}
