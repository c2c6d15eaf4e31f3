//! Records of the store, for code that reads or writes them without a namespace in memory: images (`crate::image`).

use hearth_types::{AclEntry, Xattr};

use super::features::Features;
use super::file::{BlockRecord, FilePart, Writer};
use super::history::{self, History};
use super::inode::{Inode, InodeId, InodeKind};
use super::packed_inode::Attributes;
use super::quota::Quota;
use super::record::{self, RecordError, RecordReader};
use super::writers::Writers;

/// Snapshot number in the key of the row that has the blocks which only snapshots of an inode have.
pub const SNAPSHOT_BLOCKS: u32 = history::SNAPSHOT_BLOCKS;

/// Decodes records. Open files of one writer share it.
#[derive(Default)]
pub struct RecordDecoder {
    writers: Writers,
}

/// Blocks of an inode that only snapshots have.
pub struct SnapshotBlocks {
    pub blocks: Vec<BlockRecord>,
    /// DataNodes have still to truncate one of them.
    pub is_being_truncated: bool,
    /// Storage policy that was in effect for a removed file; 0 for others.
    pub policy: u8,
}

impl RecordDecoder {
    /// Decodes an inode without its place in the tree, and its parent's id.
    pub fn inode(&mut self, id: u64, bytes: &[u8]) -> Result<(Inode, u64), RecordError> {
        let (inode, parent) = record::decode(InodeId(id), bytes, &mut self.writers)?;
        Ok((inode, parent.0))
    }

    /// Decodes a version: the number of the newest snapshot that does not have it, its state, and its parent's id then.
    pub fn version(&mut self, id: u64, bytes: &[u8]) -> Result<(u32, Inode, u64), RecordError> {
        let mut reader = RecordReader { bytes, at: 0 };
        let from = reader.small().ok_or(RecordError::Damaged { inode: id, offset: 0 })?;
        let (inode, parent) = self.inode(id, &bytes[reader.at..])?;
        Ok((from, inode, parent))
    }
}

/// Decodes a row with key [`SNAPSHOT_BLOCKS`].
pub fn decode_blocks(id: u64, bytes: &[u8]) -> Result<SnapshotBlocks, RecordError> {
    let found = record::decode_snapshot_blocks(&mut RecordReader { bytes, at: 0 });
    let (blocks, cuts, policy) = found.ok_or(RecordError::Damaged { inode: id, offset: 0 })?;
    Ok(SnapshotBlocks { blocks, is_being_truncated: !cuts.is_empty(), policy })
}

/// Content of an inode's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeParts {
    pub attributes: Attributes,
    pub name: Vec<u8>,
    pub xattrs: Vec<Xattr>,
    /// In the order of [`AclEntry`], without the entries that the mode bits hold.
    pub acl: Vec<AclEntry>,
    pub quota: Option<Quota>,
    /// The directory may have snapshots.
    pub is_snapshottable: bool,
    /// `None` for a directory.
    pub file: Option<FileParts>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileParts {
    pub blocks: Vec<BlockRecord>,
    /// Writer of an open file.
    pub writer: Option<Writer>,
}

impl InodeParts {
    fn inode(&self) -> Inode {
        let history =
            self.is_snapshottable.then(|| Box::new(History { snapshots: Some(Vec::new()), ..History::default() }));
        let quota = self.quota.clone().map(Box::new);
        let features = Features { xattrs: self.xattrs.clone(), acl: self.acl.clone(), quota, history };
        let kind = match &self.file {
            None => InodeKind::Directory(Box::default()),
            Some(parts) => {
                let mut file = FilePart::new(parts.blocks.clone());
                if let Some(writer) = &parts.writer {
                    file.open(writer.clone());
                }
                InodeKind::File(file)
            }
        };
        let mut inode = Inode::new(self.attributes, features, kind);
        inode.name = self.name.as_slice().into();
        inode
    }

    /// Encodes the record of an inode.
    pub fn encode(&self, parent: u64) -> Vec<u8> {
        record::encode(&self.inode(), InodeId(parent))
    }

    /// Encodes the record of a former state. `from`: number of the newest snapshot that does not have it.
    pub fn encode_version(&self, from: u32, parent: u64) -> Vec<u8> {
        record::encode_version(from, &self.inode(), InodeId(parent))
    }
}

/// Encodes a row with key [`SNAPSHOT_BLOCKS`]. `policy`: storage policy of a removed file; 0 for others.
pub fn encode_blocks(blocks: &[BlockRecord], policy: u8) -> Vec<u8> {
    record::encode_snapshot_blocks(blocks, &[], policy)
}
