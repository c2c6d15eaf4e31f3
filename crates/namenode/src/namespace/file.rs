//! The part of an inode that only files have, mainly their blocks.
//!
//! Most files are closed and have one block, which is stored in the inode. More blocks take one allocation of their
//! exact size, which is small if the blocks have the regular form that a writer produces ([`Sequence`]). An open file
//! is stored differently: it has a writer, and its blocks may grow in number. A writer is shared by all files that it
//! has open ([`super::writers`]). An open file without blocks needs only that writer.

use std::sync::Arc;

use hearth_types::{Block, BlockId, GenerationStamp};

use super::sequence::Sequence;
use crate::packed::{Field, Number};

/// Data that only files have, except the block size and replication, which are attributes of the inode.
#[derive(Debug, Default)]
pub struct FilePart {
    content: Content,
}

#[derive(Debug, Default)]
enum Content {
    #[default]
    Empty,
    One(PackedRecord),
    /// The form of nearly all files with several blocks.
    Sequence(Box<Sequence>),
    /// A list of arbitrary blocks, behind one more pointer.
    Many(Box<Many>),
    /// Open for writing without a block, as a file is created.
    OpenEmpty(Arc<Writer>),
    /// Open for writing.
    Open(Box<Open>),
}

#[derive(Debug)]
enum Many {
    Packed(Box<[PackedRecord]>),
    Whole(Box<[BlockRecord]>),
}

#[derive(Debug)]
struct Open {
    writer: Arc<Writer>,
    blocks: Vec<BlockRecord>,
}

impl Content {
    fn open(writer: Arc<Writer>, blocks: Vec<BlockRecord>) -> Self {
        if blocks.is_empty() { Self::OpenEmpty(writer) } else { Self::Open(Box::new(Open { writer, blocks })) }
    }
}

impl From<Vec<BlockRecord>> for Content {
    fn from(blocks: Vec<BlockRecord>) -> Self {
        if let [block] = blocks[..]
            && let Some(block) = PackedRecord::new(&block)
        {
            return Self::One(block);
        }
        if blocks.is_empty() {
            return Self::Empty;
        }
        if let Some(sequence) = Sequence::new(&blocks) {
            return Self::Sequence(Box::new(sequence));
        }
        let plain: Option<Box<[PackedRecord]>> = blocks.iter().map(PackedRecord::new).collect();
        Self::Many(Box::new(plain.map_or_else(|| Many::Whole(blocks.into_boxed_slice()), Many::Packed)))
    }
}

/// Blocks of a file, in order.
#[derive(Clone, Copy)]
pub enum Blocks<'a> {
    Sequence(&'a Sequence),
    Packed(&'a [PackedRecord]),
    Whole(&'a [BlockRecord]),
}

impl<'a> Blocks<'a> {
    pub fn len(self) -> usize {
        match self {
            Self::Sequence(blocks) => blocks.len(),
            Self::Packed(blocks) => blocks.len(),
            Self::Whole(blocks) => blocks.len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn get(self, place: usize) -> Option<BlockRecord> {
        match self {
            Self::Sequence(blocks) => blocks.get(place),
            Self::Packed(blocks) => blocks.get(place).map(|block| block.record()),
            Self::Whole(blocks) => blocks.get(place).copied(),
        }
    }

    pub fn last(self) -> Option<BlockRecord> {
        self.get(self.len().checked_sub(1)?)
    }

    pub fn iter(self) -> impl DoubleEndedIterator<Item = BlockRecord> + ExactSizeIterator + use<'a> {
        (0..self.len()).map(move |place| self.get(place).expect("the index is below the length"))
    }

    pub fn to_vec(self) -> Vec<BlockRecord> {
        self.iter().collect()
    }
}

impl FilePart {
    /// Returns the part of a closed file.
    pub fn new(blocks: Vec<BlockRecord>) -> Self {
        Self { content: blocks.into() }
    }

    pub fn blocks(&self) -> Blocks<'_> {
        match &self.content {
            Content::Empty => Blocks::Packed(&[]),
            Content::OpenEmpty(_) => Blocks::Whole(&[]),
            Content::One(block) => Blocks::Packed(std::slice::from_ref(block)),
            Content::Sequence(blocks) => Blocks::Sequence(blocks),
            Content::Many(many) => match &**many {
                Many::Packed(blocks) => Blocks::Packed(blocks),
                Many::Whole(blocks) => Blocks::Whole(blocks),
            },
            Content::Open(open) => Blocks::Whole(&open.blocks),
        }
    }

    /// Appends blocks.
    pub(super) fn add_blocks(&mut self, blocks: impl IntoIterator<Item = BlockRecord>) {
        self.change_blocks(|all| all.extend(blocks));
    }

    pub(super) fn pop(&mut self) -> Option<BlockRecord> {
        self.change_blocks(Vec::pop)
    }

    pub(super) fn take_blocks(&mut self) -> Vec<BlockRecord> {
        self.change_blocks(std::mem::take)
    }

    /// Changes the last block, if any.
    pub fn change_last(&mut self, change: impl FnOnce(&mut BlockRecord)) {
        self.change_blocks(|all| {
            if let Some(last) = all.last_mut() {
                change(last);
            }
        });
    }

    fn change_blocks<R>(&mut self, change: impl FnOnce(&mut Vec<BlockRecord>) -> R) -> R {
        if let Content::Open(open) = &mut self.content {
            return change(&mut open.blocks);
        }
        let mut blocks = self.blocks().to_vec();
        let result = change(&mut blocks);
        self.content = match std::mem::take(&mut self.content) {
            Content::OpenEmpty(writer) => Content::open(writer, blocks),
            _ => blocks.into(),
        };
        result
    }

    /// Returns the length of all blocks in bytes, with the known length of the last one. Saturates at `u64::MAX`, since
    /// clients may report more.
    pub fn length(&self) -> u64 {
        self.blocks().iter().map(|block| block.length).fold(0, u64::saturating_add)
    }

    /// Returns the length shown in the file's status: [`Self::length`], or more while the last block is being truncated
    /// in place.
    pub fn visible_length(&self) -> u64 {
        let truncation = self.writer().and_then(|writer| writer.truncation);
        truncation.map_or_else(|| self.length(), |truncation| truncation.told)
    }

    /// Returns the writer while the file is open.
    pub fn writer(&self) -> Option<&Writer> {
        match &self.content {
            Content::OpenEmpty(writer) => Some(writer),
            Content::Open(open) => Some(&open.writer),
            _ => None,
        }
    }

    /// Returns the writer for changing it in this file only.
    pub fn writer_mut(&mut self) -> Option<&mut Writer> {
        match &mut self.content {
            Content::OpenEmpty(writer) => Some(Arc::make_mut(writer)),
            Content::Open(open) => Some(Arc::make_mut(&mut open.writer)),
            _ => None,
        }
    }

    pub fn is_open(&self) -> bool {
        self.writer().is_some()
    }

    /// Opens the file for `writer` only. [`Namespace::open_file`](super::Namespace::open_file) shares the writer with
    /// other files.
    pub fn open(&mut self, writer: impl Into<Arc<Writer>>) {
        self.content = Content::open(writer.into(), self.blocks().to_vec());
    }

    /// Marks all blocks as complete: their replicas are final and none is being written.
    pub fn complete_blocks(&mut self) {
        self.change_blocks(|all| all.iter_mut().for_each(|block| block.state = RecordState::Complete));
    }

    /// Closes the file for writing. Returns the former writer.
    pub fn close(&mut self) -> Option<Arc<Writer>> {
        match std::mem::take(&mut self.content) {
            Content::OpenEmpty(writer) => Some(writer),
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

/// Writer of an open file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Writer {
    /// Lease holder: the client's own name for itself.
    pub client: String,
    /// Address from which the client called.
    pub machine: String,
    /// Set while the last block is being shortened by a truncation that ends inside it.
    pub truncation: Option<Truncation>,
}

/// A truncation that the DataNodes have not finished.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Truncation {
    /// Length of the file after the truncation, in bytes.
    pub length: u64,
    /// Length of the file that status calls report until the truncation is done. If the last block is truncated in
    /// place, it is the length that is still readable. Clients that wait for a truncation (`hdfs dfs -truncate -w`)
    /// poll this length.
    pub told: u64,
    /// Block that a snapshot has, and of which the last block becomes a shorter copy. It is kept until the copy is
    /// made, even if the snapshot is deleted.
    pub copied_from: Option<BlockId>,
}

/// State of a file's block. The numbers are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordState {
    /// Last block of an open file; its length may still grow.
    UnderConstruction = 0,
    /// Length and stamp are final, but too few replicas had been reported when this was recorded.
    Committed = 1,
    Complete = 2,
}

impl RecordState {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::UnderConstruction,
            1 => Self::Committed,
            2 => Self::Complete,
            _ => return None,
        })
    }
}

/// A block of a file as the namespace records it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRecord {
    pub id: BlockId,
    /// Length in bytes. For a block under construction, the length that the writer last reported.
    pub length: u64,
    /// Stamp in seven bytes, so that the state fits in the eighth. Stamps are counters and never get so large.
    stamp: Number<7>,
    pub state: RecordState,
}

impl BlockRecord {
    /// Largest stamp that fits.
    pub const STAMP_MAX: GenerationStamp = GenerationStamp(Number::<7>::MAX);

    /// Creates a record. The stamp must have been issued here or checked to be at most [`Self::STAMP_MAX`].
    pub fn new(block: Block, state: RecordState) -> Self {
        let mut record = Self { id: block.id, length: block.length, stamp: Number::ZERO, state };
        record.set_stamp(block.stamp);
        record
    }

    pub fn stamp(&self) -> GenerationStamp {
        GenerationStamp(self.stamp.get())
    }

    /// Sets the stamp, with the same condition as [`Self::new`].
    pub fn set_stamp(&mut self, stamp: GenerationStamp) {
        self.stamp = Number::new(stamp.0).expect("the stamp was checked to fit");
    }

    pub fn block(&self) -> Block {
        Block { id: self.id, stamp: self.stamp(), length: self.length }
    }
}

/// A block of a closed file in fifteen bytes. There is one for every such block.
///
/// The fields fit the numbers of real clusters: non-negative ids and stamps up to 10^12, and 256 GiB per block. A file
/// with any other block keeps [`BlockRecord`]s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedRecord {
    id: Number<5>,
    stamp: Number<5>,
    length_and_state: Number<5>,
}

const LENGTH: Field = Field::first(38);
const STATE: Field = LENGTH.then(2);

impl PackedRecord {
    /// `None` if a field does not fit.
    fn new(block: &BlockRecord) -> Option<Self> {
        let mut length_and_state = 0;
        let fits = LENGTH.set(&mut length_and_state, block.length)
            && STATE.set(&mut length_and_state, u64::from(block.state as u8));
        let id = Number::new(u64::try_from(block.id.0).ok()?)?;
        let stamp = Number::new(block.stamp().0)?;
        fits.then_some(Self { id, stamp, length_and_state: Number::new(length_and_state)? })
    }

    fn record(self) -> BlockRecord {
        let length_and_state = self.length_and_state.get();
        let block = Block {
            id: BlockId(self.id.get() as i64),
            stamp: GenerationStamp(self.stamp.get()),
            length: LENGTH.get(length_and_state),
        };
        let state = RecordState::from_number(STATE.get(length_and_state) as u8);
        BlockRecord::new(block, state.expect("a packed record has a valid state"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn record(id: i64) -> BlockRecord {
        let block = Block { id: BlockId(id), stamp: BlockRecord::STAMP_MAX, length: u64::MAX };
        BlockRecord::new(block, RecordState::Complete)
    }

    fn writer() -> Writer {
        Writer { client: "w".into(), machine: "m".into(), truncation: None }
    }

    #[test]
    fn taking_the_blocks_leaves_the_writer() {
        let mut file = FilePart::new(vec![record(1), record(2)]);
        file.open(writer());
        assert_eq!(file.take_blocks(), [record(1), record(2)]);
        assert!(file.blocks().is_empty());
        assert_eq!(file.writer(), Some(&writer()));
    }

    #[test]
    fn single_block_is_stored_without_allocation() {
        assert_eq!(size_of::<PackedRecord>(), 15);
        assert_eq!(size_of::<Content>(), 16);
        assert_eq!(size_of::<BlockRecord>(), 24);
        assert_eq!(size_of::<Sequence>(), 40);
        assert_eq!(size_of::<Open>(), 32);
        assert_eq!(record(1).stamp(), BlockRecord::STAMP_MAX);
        assert_eq!(record(1).block().length, u64::MAX);
    }

    #[test]
    fn changing_shared_writer_affects_one_file() {
        let shared = Arc::new(writer());
        let (mut one, mut other) = (FilePart::default(), FilePart::new(vec![record(1)]));
        one.open(shared.clone());
        other.open(shared.clone());
        assert!(matches!(one.content, Content::OpenEmpty(_)), "the file has no allocation of its own");
        one.writer_mut().unwrap().client = "x".into();
        assert_eq!((one.writer().unwrap().client.as_str(), other.writer()), ("x", Some(&writer())));
        other.writer_mut().unwrap().client = "y".into();
        assert_eq!((other.writer().unwrap().client.as_str(), shared.client.as_str()), ("y", "w"));
        one.add_blocks([record(2)]);
        assert_eq!((one.blocks().len(), one.close().unwrap().client.as_str()), (1, "x"));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(BlockRecord),
        /// The next block as a writer gets it, with the id increased by this much.
        Next(u64),
        Pop,
        Grow(u64),
        Open,
        Close,
        Complete,
        Take,
    }

    /// Usual blocks, and blocks around the limits of a packed record.
    fn any_record() -> impl Strategy<Value = BlockRecord> {
        let number = |bits: u32| prop_oneof![8 => 0u64..9, 1 => (1u64 << bits) - 2..(1 << bits) + 2, 1 => any::<u64>()];
        (number(40), number(40), number(38), 0u8..3, prop::bool::weighted(0.1)).prop_map(
            |(id, stamp, length, state, negative)| {
                let id = BlockId(if negative { -(id as i64 >> 1) } else { id as i64 });
                let stamp = GenerationStamp(stamp.min(BlockRecord::STAMP_MAX.0));
                BlockRecord::new(Block { id, stamp, length }, RecordState::from_number(state).unwrap())
            },
        )
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => any_record().prop_map(Step::Add),
            4 => prop_oneof![8 => 1u64..9, 1 => (1u64 << 24) - 2..(1 << 24) + 2].prop_map(Step::Next),
            2 => Just(Step::Pop),
            1 => any::<u64>().prop_map(Step::Grow),
            1 => Just(Step::Open),
            2 => Just(Step::Close),
            1 => Just(Step::Complete),
            1 => Just(Step::Take),
        ]
    }

    /// The block that follows `blocks`.
    fn next(blocks: &[BlockRecord], further: u64) -> BlockRecord {
        let last = blocks.last().copied().unwrap_or_else(|| record(1));
        let block = Block {
            id: BlockId(last.id.0.wrapping_add_unsigned(further)),
            stamp: GenerationStamp((last.stamp().0 + further).min(BlockRecord::STAMP_MAX.0)),
            length: last.length,
        };
        BlockRecord::new(block, RecordState::Complete)
    }

    /// Returns whether the blocks fit the form with six bytes per block.
    fn is_sequence(blocks: &[BlockRecord]) -> bool {
        let [first, .., last] = blocks else { return false };
        let near = |number: u64, first: u64| (first..first + (1 << 24)).contains(&number);
        let fits = |number: u64| number < 1 << 40;
        fits(first.id.0 as u64)
            && fits(first.stamp().0)
            && fits(first.length)
            && fits(last.length)
            && blocks.iter().all(|block| {
                block.state == RecordState::Complete
                    && near(block.id.0 as u64, first.id.0 as u64)
                    && near(block.stamp().0, first.stamp().0)
            })
            && blocks[..blocks.len() - 1].iter().all(|block| block.length == first.length)
    }

    fn is_plain(block: &BlockRecord) -> bool {
        (0..1 << 40).contains(&block.id.0) && block.stamp().0 < 1 << 40 && block.length < 1 << 38
    }

    proptest! {
        #[test]
        fn packed_record_round_trips_or_is_refused(block in any_record()) {
            prop_assert_eq!(PackedRecord::new(&block).map(PackedRecord::record), is_plain(&block).then_some(block));
        }

        #[test]
        fn blocks_behave_as_vector_in_every_form(steps in prop::collection::vec(step(), 1..40)) {
            let mut file = FilePart::default();
            let (mut model, mut is_open) = (Vec::new(), false);
            for step in steps {
                match step {
                    Step::Add(block) => {
                        model.push(block);
                        file.add_blocks([block]);
                    }
                    Step::Next(further) => {
                        let block = next(&model, further);
                        model.push(block);
                        file.add_blocks([block]);
                    }
                    Step::Pop => prop_assert_eq!(file.pop(), model.pop()),
                    Step::Grow(length) => {
                        model.last_mut().into_iter().for_each(|last| last.length = length);
                        file.change_last(|last| last.length = length);
                    }
                    Step::Open => {
                        is_open = true;
                        file.open(writer());
                    }
                    Step::Close => {
                        prop_assert_eq!(file.close(), is_open.then(|| Arc::new(writer())));
                        is_open = false;
                    }
                    Step::Complete => {
                        model.iter_mut().for_each(|block| block.state = RecordState::Complete);
                        file.complete_blocks();
                    }
                    Step::Take => prop_assert_eq!(file.take_blocks(), std::mem::take(&mut model)),
                }
                prop_assert_eq!(file.blocks().to_vec(), model.clone());
                prop_assert_eq!((file.blocks().len(), file.blocks().last()), (model.len(), model.last().copied()));
                prop_assert_eq!(file.is_open(), is_open);
                let is_small = !is_open && (model.iter().all(is_plain) || is_sequence(&model));
                prop_assert_eq!(matches!(file.blocks(), Blocks::Whole(_)), !is_small);
                prop_assert_eq!(matches!(file.blocks(), Blocks::Sequence(_)), !is_open && is_sequence(&model));
            }
        }
    }
}
