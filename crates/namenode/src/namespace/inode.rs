//! One file or directory, kept small: a namespace of millions of files lives in memory.

use hearth_types::{AclEntry, FsPermission, Xattr};

use super::children::Children;
use super::extra::Extra;
use super::file::FilePart;
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
    /// How many replicas a file's blocks are to have; 0 for a directory. It stands here, in bytes that would else be padding.
    pub replication: u16,
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
    /// Apart, so that it takes no more of the inode than a file does: there are fewer of them.
    Directory(Box<Children>),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_stays_small() {
        // As the arena keeps them.
        assert_eq!(size_of::<Option<Inode>>(), 112);
    }
}
