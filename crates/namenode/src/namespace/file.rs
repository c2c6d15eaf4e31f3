//! What only files have: above all their blocks.
//!
//! Most files are closed and have one block. That stands in the inode; of more, there is an allocation of just their size. An open
//! file is another matter: it has a writer, and its blocks may become more.

use hearth_types::{Block, BlockId, GenerationStamp};

/// What only files have.
#[derive(Debug)]
pub struct FilePart {
    /// Bytes: the length at which a writer goes on to the next block.
    pub block_size: u64,
    content: Content,
}

#[derive(Debug, Default)]
enum Content {
    #[default]
    Empty,
    One(BlockRecord),
    Many(Box<[BlockRecord]>),
    /// Somebody may write.
    Open(Box<Open>),
}

#[derive(Debug)]
struct Open {
    writer: Writer,
    blocks: Vec<BlockRecord>,
}

impl Content {
    fn into_blocks(self) -> Vec<BlockRecord> {
        match self {
            Self::Empty => Vec::new(),
            Self::One(block) => vec![block],
            Self::Many(blocks) => blocks.into_vec(),
            Self::Open(open) => open.blocks,
        }
    }
}

impl From<Vec<BlockRecord>> for Content {
    fn from(blocks: Vec<BlockRecord>) -> Self {
        match blocks[..] {
            [] => Self::Empty,
            [block] => Self::One(block),
            _ => Self::Many(blocks.into_boxed_slice()),
        }
    }
}

impl FilePart {
    /// A closed file.
    pub fn new(block_size: u64, blocks: Vec<BlockRecord>) -> Self {
        Self { block_size, content: blocks.into() }
    }

    pub fn blocks(&self) -> &[BlockRecord] {
        match &self.content {
            Content::Empty => &[],
            Content::One(block) => std::slice::from_ref(block),
            Content::Many(blocks) => blocks,
            Content::Open(open) => &open.blocks,
        }
    }

    pub fn blocks_mut(&mut self) -> &mut [BlockRecord] {
        match &mut self.content {
            Content::Empty => &mut [],
            Content::One(block) => std::slice::from_mut(block),
            Content::Many(blocks) => blocks,
            Content::Open(open) => &mut open.blocks,
        }
    }

    /// Puts blocks behind those that are there.
    pub(super) fn add_blocks(&mut self, blocks: impl IntoIterator<Item = BlockRecord>) {
        self.change_blocks(|all| all.extend(blocks));
    }

    pub(super) fn pop(&mut self) -> Option<BlockRecord> {
        self.change_blocks(Vec::pop)
    }

    pub(super) fn take_blocks(&mut self) -> Vec<BlockRecord> {
        self.change_blocks(std::mem::take)
    }

    fn change_blocks<R>(&mut self, change: impl FnOnce(&mut Vec<BlockRecord>) -> R) -> R {
        if let Content::Open(open) = &mut self.content {
            return change(&mut open.blocks);
        }
        let mut blocks = std::mem::take(&mut self.content).into_blocks();
        let result = change(&mut blocks);
        self.content = blocks.into();
        result
    }

    /// Bytes of all blocks, the last one as far as it is known.
    pub fn length(&self) -> u64 {
        self.blocks().iter().map(|block| block.length).sum()
    }

    /// Present while somebody may write.
    pub fn writer(&self) -> Option<&Writer> {
        match &self.content {
            Content::Open(open) => Some(&open.writer),
            _ => None,
        }
    }

    pub fn writer_mut(&mut self) -> Option<&mut Writer> {
        match &mut self.content {
            Content::Open(open) => Some(&mut open.writer),
            _ => None,
        }
    }

    pub fn is_open(&self) -> bool {
        self.writer().is_some()
    }

    /// From now on `writer` may write, and nobody else.
    pub fn open(&mut self, writer: Writer) {
        let blocks = std::mem::take(&mut self.content).into_blocks();
        self.content = Content::Open(Box::new(Open { writer, blocks }));
    }

    /// From now on nobody may write. Returns who could.
    pub fn close(&mut self) -> Option<Writer> {
        match std::mem::take(&mut self.content) {
            Content::Open(open) => {
                self.content = open.blocks.into();
                Some(open.writer)
            }
            closed => {
                self.content = closed;
                None
            }
        }
    }
}

/// Who has a file open for writing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writer {
    /// The lease holder: the client's own name for itself.
    pub client: String,
    /// The address the client called from.
    pub machine: String,
    /// Set while the last block is being cut by a truncation that ends inside it.
    pub truncation: Option<Truncation>,
}

/// A truncation that the datanodes have not finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncation {
    /// Of the file after it, bytes.
    pub length: u64,
    /// The block that a snapshot has, of which the last block is to become a shorter copy. It stays until that is done, whatever
    /// becomes of the snapshot.
    pub copied_from: Option<BlockId>,
}

/// Where a block of a file stands. Numbers are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockState {
    /// The last block of an open file: its length may still grow.
    UnderConstruction = 0,
    /// Length and stamp are final; too few replicas were reported when this was written.
    Committed = 1,
    Complete = 2,
}

impl BlockState {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::UnderConstruction,
            1 => Self::Committed,
            2 => Self::Complete,
            _ => return None,
        })
    }
}

/// One block of a file as the namespace records it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRecord {
    pub id: BlockId,
    /// Bytes; of a block under construction, what the writer last told.
    pub length: u64,
    /// Seven bytes of it, the lowest first, so that the state has the eighth: stamps are counted, and no count gets so far.
    stamp: [u8; 7],
    pub state: BlockState,
}

impl BlockRecord {
    /// The largest stamp there is room for.
    pub const STAMP_MAX: GenerationStamp = GenerationStamp((1 << 56) - 1);

    /// The stamp is one that was given out, or was seen to be no larger than [`Self::STAMP_MAX`].
    pub fn new(block: Block, state: BlockState) -> Self {
        let mut record = Self { id: block.id, length: block.length, stamp: [0; 7], state };
        record.set_stamp(block.stamp);
        record
    }

    pub fn stamp(&self) -> GenerationStamp {
        let mut bytes = [0; 8];
        bytes[..7].copy_from_slice(&self.stamp);
        GenerationStamp(u64::from_le_bytes(bytes))
    }

    /// As for [`Self::new`].
    pub fn set_stamp(&mut self, stamp: GenerationStamp) {
        assert!(stamp <= Self::STAMP_MAX, "{stamp} is a stamp that was given out");
        self.stamp.copy_from_slice(&stamp.0.to_le_bytes()[..7]);
    }

    pub fn block(&self) -> Block {
        Block { id: self.id, stamp: self.stamp(), length: self.length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: i64) -> BlockRecord {
        let block = Block { id: BlockId(id), stamp: BlockRecord::STAMP_MAX, length: u64::MAX };
        BlockRecord::new(block, BlockState::Complete)
    }

    fn writer() -> Writer {
        Writer { client: "w".into(), machine: "m".into(), truncation: None }
    }

    #[test]
    fn blocks_behave_as_a_vector_whether_the_file_is_open_or_not() {
        for opened in [0, 1, 3] {
            let mut file = FilePart::new(1, Vec::new());
            let mut model = Vec::new();
            for id in 0..5 {
                if id == opened {
                    file.open(writer());
                }
                file.add_blocks([record(id)]);
                model.push(record(id));
                assert_eq!(file.blocks(), model);
                assert_eq!(file.blocks_mut(), model);
            }
            assert_eq!(file.close(), Some(writer()));
            assert_eq!(file.close(), None);
            assert_eq!(file.blocks(), model);
            while let Some(last) = model.pop() {
                assert_eq!(file.pop(), Some(last));
                assert_eq!(file.blocks(), model);
            }
            assert_eq!(file.pop(), None);
        }
    }

    #[test]
    fn taking_the_blocks_leaves_the_writer() {
        let mut file = FilePart::new(1, vec![record(1), record(2)]);
        file.open(writer());
        assert_eq!(file.take_blocks(), [record(1), record(2)]);
        assert!(file.blocks().is_empty());
        assert_eq!(file.writer(), Some(&writer()));
    }

    #[test]
    fn one_block_of_a_closed_file_needs_no_room_of_its_own() {
        assert_eq!(size_of::<BlockRecord>(), 24);
        assert_eq!(size_of::<Content>(), 24);
        assert_eq!(record(1).stamp(), BlockRecord::STAMP_MAX);
        assert_eq!(record(1).block().length, u64::MAX);
    }
}
