//! One file or directory, kept small: a namespace of millions of files lives in memory.

use hearth_types::{AclEntry, Block, BlockId, FsPermission, GenerationStamp, Xattr};

use super::children::Children;
use super::extra::Extra;
use super::history::History;
use super::name::Name;
use super::names::NameId;
use super::quota::Quota;

/// The number of a file or directory, never reused. The root is 16385.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InodeId(pub u64);

impl InodeId {
    pub const ROOT: Self = Self(16385);
}

/// Where an inode stands in the arena. Given out again after the inode is gone: never kept across operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot(pub(super) u32);

#[derive(Debug)]
pub struct Inode {
    pub id: InodeId,
    /// The root is its own parent.
    pub(super) parent: Slot,
    /// Empty for the root only.
    pub name: Name,
    pub owner: NameId,
    pub group: NameId,
    pub permission: FsPermission,
    /// The storage policy's number, 0 when none is set here.
    pub storage_policy: u8,
    /// Milliseconds since the epoch.
    pub modification_time_ms: u64,
    /// Milliseconds since the epoch; 0 for a directory until somebody sets it.
    pub access_time_ms: u64,
    /// The number of the newest snapshot when this state began: the inode is so in younger ones only. See `history.rs`.
    pub(super) since: u32,
    /// Extended attributes, ACL, quota, history; `None` when it has nothing of them.
    pub(super) extra: Option<Box<Extra>>,
    pub kind: InodeKind,
}

#[derive(Debug)]
pub enum InodeKind {
    Directory(Children),
    File(FilePart),
}

impl Inode {
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, InodeKind::Directory(_))
    }

    pub fn as_file(&self) -> Option<&FilePart> {
        match &self.kind {
            InodeKind::File(file) => Some(file),
            InodeKind::Directory(_) => None,
        }
    }

    pub fn as_file_mut(&mut self) -> Option<&mut FilePart> {
        match &mut self.kind {
            InodeKind::File(file) => Some(file),
            InodeKind::Directory(_) => None,
        }
    }

    pub fn xattrs(&self) -> &[Xattr] {
        self.extra.as_ref().map_or(&[], |extra| &extra.xattrs)
    }

    /// The entries that the mode bits do not hold.
    pub fn acl(&self) -> &[AclEntry] {
        self.extra.as_ref().map_or(&[], |extra| &extra.acl)
    }

    pub fn quota(&self) -> Option<&Quota> {
        self.extra.as_ref()?.quota.as_deref()
    }

    pub(super) fn history(&self) -> Option<&History> {
        self.extra.as_ref()?.history.as_deref()
    }

    pub(super) fn history_mut(&mut self) -> &mut History {
        self.extra_mut().history.get_or_insert_default()
    }

    /// Whether it was removed and is kept for snapshots only.
    pub(super) fn is_gone(&self) -> bool {
        self.history().is_some_and(|history| history.gone)
    }

    pub(super) fn quota_mut(&mut self) -> Option<&mut Quota> {
        self.extra.as_mut()?.quota.as_deref_mut()
    }

    pub(super) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(super) fn drop_empty_extra(&mut self) {
        self.extra.take_if(|extra| {
            extra.history.take_if(|history| history.is_empty());
            extra.is_empty()
        });
    }

    pub fn children(&self) -> Option<&Children> {
        match &self.kind {
            InodeKind::Directory(children) => Some(children),
            InodeKind::File(_) => None,
        }
    }
}

/// What only files have.
#[derive(Debug)]
pub struct FilePart {
    /// Bytes: the length at which a writer goes on to the next block.
    pub block_size: u64,
    pub replication: u16,
    pub blocks: BlockList,
    /// Present while somebody may write.
    pub writer: Option<Box<Writer>>,
}

impl FilePart {
    /// Bytes of all blocks, the last one as far as it is known.
    pub fn length(&self) -> u64 {
        self.blocks.iter().map(|block| block.length).sum()
    }

    pub fn is_open(&self) -> bool {
        self.writer.is_some()
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
    pub stamp: GenerationStamp,
    /// Bytes; of a block under construction, what the writer last told.
    pub length: u64,
    pub state: BlockState,
}

impl BlockRecord {
    pub fn block(&self) -> Block {
        Block { id: self.id, stamp: self.stamp, length: self.length }
    }
}

/// The blocks of a file in order. Most files have one, which then needs no allocation.
#[derive(Clone, Debug, Default)]
pub enum BlockList {
    #[default]
    Empty,
    One(BlockRecord),
    Many(Vec<BlockRecord>),
}

impl BlockList {
    pub fn as_slice(&self) -> &[BlockRecord] {
        match self {
            Self::Empty => &[],
            Self::One(block) => std::slice::from_ref(block),
            Self::Many(blocks) => blocks,
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [BlockRecord] {
        match self {
            Self::Empty => &mut [],
            Self::One(block) => std::slice::from_mut(block),
            Self::Many(blocks) => blocks,
        }
    }

    pub fn push(&mut self, block: BlockRecord) {
        *self = match std::mem::take(self) {
            Self::Empty => Self::One(block),
            Self::One(first) => Self::Many(vec![first, block]),
            Self::Many(mut blocks) => {
                blocks.push(block);
                Self::Many(blocks)
            }
        };
    }

    pub fn pop(&mut self) -> Option<BlockRecord> {
        let last = self.last().copied()?;
        self.truncate(self.len() - 1);
        Some(last)
    }

    /// Keeps the first `count` blocks.
    pub fn truncate(&mut self, count: usize) {
        if count >= self.len() {
            return;
        }
        *self = match std::mem::take(self) {
            Self::Many(mut blocks) if count > 1 => {
                blocks.truncate(count);
                Self::Many(blocks)
            }
            Self::Many(blocks) if count == 1 => Self::One(blocks[0]),
            _ => Self::Empty,
        };
    }

    pub fn last_mut(&mut self) -> Option<&mut BlockRecord> {
        self.as_mut_slice().last_mut()
    }
}

impl std::ops::Deref for BlockList {
    type Target = [BlockRecord];

    fn deref(&self) -> &[BlockRecord] {
        self.as_slice()
    }
}

impl FromIterator<BlockRecord> for BlockList {
    fn from_iter<I: IntoIterator<Item = BlockRecord>>(blocks: I) -> Self {
        let mut blocks: Vec<BlockRecord> = blocks.into_iter().collect();
        match blocks.len() {
            0 => Self::Empty,
            1 => Self::One(blocks[0]),
            _ => {
                blocks.shrink_to_fit();
                Self::Many(blocks)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: i64) -> BlockRecord {
        BlockRecord { id: BlockId(id), stamp: GenerationStamp(1), length: 1, state: BlockState::Complete }
    }

    #[test]
    fn a_block_list_behaves_as_a_vector() {
        let mut list = BlockList::default();
        let mut model = Vec::new();
        for id in 0..5 {
            list.push(record(id));
            model.push(record(id));
            assert_eq!(list.as_slice(), model.as_slice());
        }
        list.truncate(3);
        model.truncate(3);
        assert_eq!(list.as_slice(), model.as_slice());
        while let Some(last) = model.pop() {
            assert_eq!(list.pop(), Some(last));
            assert_eq!(list.as_slice(), model.as_slice());
        }
        assert_eq!(list.pop(), None);
    }

    #[test]
    fn an_inode_stays_small() {
        assert!(std::mem::size_of::<Inode>() <= 144, "{}", std::mem::size_of::<Inode>());
    }
}
