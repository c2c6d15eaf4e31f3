//! One file or directory, kept small: a namespace of millions of files lives in memory.

use std::fmt;

use hearth_types::{AclEntry, FsPermission, Xattr};

use super::children::Children;
use super::extra::Extra;
use super::file::FilePart;
use super::history::History;
use super::name::Name;
use super::names::NameId;
use super::plain::{Attributes, Plain};
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

pub struct Inode {
    /// Empty for the root only.
    pub name: Name,
    /// The root is its own parent.
    pub(super) parent: Slot,
    /// Counts unless the attributes stand in [`Rare`].
    plain: Plain,
    part: Part,
}

/// The content, and what few inodes have: those are one pointer further away.
enum Part {
    Usual(InodeKind),
    Rare(Box<Rare>),
}

struct Rare {
    /// Those that are no [`Plain`] ones.
    attributes: Option<Attributes>,
    extra: Extra,
    kind: InodeKind,
}

#[derive(Debug)]
pub enum InodeKind {
    /// Apart, so that it takes no more of the inode than a file does: there are fewer of them.
    Directory(Box<Children>),
    File(FilePart),
}

impl InodeKind {
    fn empty() -> Self {
        Self::File(FilePart::default())
    }
}

/// One that is out of the usual: from the attributes of the inode.
macro_rules! attribute {
    ($(#[$doc:meta])* $visibility:vis $name:ident: $type:ty) => {
        $(#[$doc])*
        $visibility fn $name(&self) -> $type {
            match self.unusual() {
                None => self.plain.$name(),
                Some(attributes) => attributes.$name,
            }
        }
    };
}

impl Inode {
    /// Without a place and a name.
    pub fn new(attributes: Attributes, extra: Extra, kind: InodeKind) -> Self {
        let (plain, unusual) = match Plain::new(&attributes) {
            Some(plain) => (plain, None),
            None => (Plain::NONE, Some(attributes)),
        };
        let part = if extra.is_empty() && unusual.is_none() {
            Part::Usual(kind)
        } else {
            Part::Rare(Box::new(Rare { attributes: unusual, extra, kind }))
        };
        Self { name: Name::default(), parent: Slot(0), plain, part }
    }

    fn unusual(&self) -> Option<&Attributes> {
        match &self.part {
            Part::Usual(_) => None,
            Part::Rare(rare) => rare.attributes.as_ref(),
        }
    }

    pub fn attributes(&self) -> Attributes {
        self.unusual().copied().unwrap_or_else(|| self.plain.attributes())
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Attributes)) {
        let mut attributes = self.attributes();
        change(&mut attributes);
        match (Plain::new(&attributes), &mut self.part) {
            (Some(plain), Part::Usual(_)) => self.plain = plain,
            (Some(plain), Part::Rare(rare)) => {
                self.plain = plain;
                rare.attributes = None;
                self.drop_empty_extra();
            }
            (None, _) => self.rare_mut().attributes = Some(attributes),
        }
    }

    attribute!(pub id: InodeId);
    attribute!(pub owner: NameId);
    attribute!(pub group: NameId);
    attribute!(pub permission: FsPermission);
    attribute!(
        /// The storage policy's number, 0 when none is set here.
        pub storage_policy: u8
    );
    attribute!(
        /// How many replicas a file's blocks are to have; 0 for a directory.
        pub replication: u16
    );
    attribute!(
        /// Bytes: the length at which the writer of a file goes on to the next block; 0 for a directory.
        pub block_size: u64
    );
    attribute!(
        /// Milliseconds since the epoch.
        pub modification_time_ms: u64
    );
    attribute!(
        /// Milliseconds since the epoch; 0 for a directory until somebody sets it.
        pub access_time_ms: u64
    );
    attribute!(
        /// The number of the newest snapshot when this state began: the inode is so in younger ones only. See `history.rs`.
        pub(super) since: u32
    );

    pub fn set_modification_time_ms(&mut self, time_ms: u64) {
        self.change(|attributes| attributes.modification_time_ms = time_ms);
    }

    pub fn set_access_time_ms(&mut self, time_ms: u64) {
        self.change(|attributes| attributes.access_time_ms = time_ms);
    }

    pub(super) fn set_since(&mut self, snapshot: u32) {
        self.change(|attributes| attributes.since = snapshot);
    }

    pub fn kind(&self) -> &InodeKind {
        match &self.part {
            Part::Usual(kind) => kind,
            Part::Rare(rare) => &rare.kind,
        }
    }

    pub(super) fn kind_mut(&mut self) -> &mut InodeKind {
        match &mut self.part {
            Part::Usual(kind) => kind,
            Part::Rare(rare) => &mut rare.kind,
        }
    }

    pub fn is_directory(&self) -> bool {
        matches!(self.kind(), InodeKind::Directory(_))
    }

    pub fn as_file(&self) -> Option<&FilePart> {
        match self.kind() {
            InodeKind::File(file) => Some(file),
            InodeKind::Directory(_) => None,
        }
    }

    pub fn as_file_mut(&mut self) -> Option<&mut FilePart> {
        match self.kind_mut() {
            InodeKind::File(file) => Some(file),
            InodeKind::Directory(_) => None,
        }
    }

    pub fn children(&self) -> Option<&Children> {
        match self.kind() {
            InodeKind::Directory(children) => Some(children),
            InodeKind::File(_) => None,
        }
    }

    /// Extended attributes, ACL, quota, history; `None` when it has nothing of them.
    pub(super) fn extra(&self) -> Option<&Extra> {
        match &self.part {
            Part::Usual(_) => None,
            Part::Rare(rare) => Some(&rare.extra),
        }
    }

    /// [`Inode::drop_empty_extra`] is to follow where it may be left empty.
    pub(super) fn extra_mut(&mut self) -> &mut Extra {
        &mut self.rare_mut().extra
    }

    fn rare_mut(&mut self) -> &mut Rare {
        if let Part::Usual(kind) = &mut self.part {
            let kind = std::mem::replace(kind, InodeKind::empty());
            self.part = Part::Rare(Box::new(Rare { attributes: None, extra: Extra::default(), kind }));
        }
        match &mut self.part {
            Part::Rare(rare) => rare,
            Part::Usual(_) => unreachable!("just made rare"),
        }
    }

    pub(super) fn drop_empty_extra(&mut self) {
        let Part::Rare(rare) = &mut self.part else { return };
        rare.extra.history.take_if(|history| history.is_empty());
        if rare.extra.is_empty() && rare.attributes.is_none() {
            self.part = Part::Usual(std::mem::replace(&mut rare.kind, InodeKind::empty()));
        }
    }

    pub fn xattrs(&self) -> &[Xattr] {
        self.extra().map_or(&[], |extra| &extra.xattrs)
    }

    /// The entries that the mode bits do not hold.
    pub fn acl(&self) -> &[AclEntry] {
        self.extra().map_or(&[], |extra| &extra.acl)
    }

    pub fn quota(&self) -> Option<&Quota> {
        self.extra()?.quota.as_deref()
    }

    pub(super) fn quota_mut(&mut self) -> Option<&mut Quota> {
        match &mut self.part {
            Part::Usual(_) => None,
            Part::Rare(rare) => rare.extra.quota.as_deref_mut(),
        }
    }

    pub(super) fn history(&self) -> Option<&History> {
        self.extra()?.history.as_deref()
    }

    pub(super) fn history_mut(&mut self) -> &mut History {
        self.extra_mut().history.get_or_insert_default()
    }

    /// Whether snapshots have anything of it beside its present state.
    pub fn has_history(&self) -> bool {
        self.history().is_some()
    }

    /// Whether it was removed and is kept for snapshots only.
    pub fn is_gone(&self) -> bool {
        self.history().is_some_and(|history| history.gone)
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inode")
            .field("name", &self.name)
            .field("parent", &self.parent)
            .field("attributes", &self.attributes())
            .field("extra", &self.extra())
            .field("kind", self.kind())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::plain::tests::attributes;
    use super::*;

    #[test]
    fn an_inode_stays_small() {
        // As the arena keeps them.
        assert_eq!(size_of::<Option<Inode>>(), 72);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Attributes(Attributes),
        Quota(Option<u64>),
        Open(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            attributes().prop_map(Step::Attributes),
            any::<Option<u64>>().prop_map(Step::Quota),
            any::<bool>().prop_map(Step::Open),
        ]
    }

    proptest! {
        #[test]
        fn an_inode_holds_what_it_is_given(first in attributes(), steps in prop::collection::vec(step(), 0..20)) {
            let (mut model, mut limit, mut is_open) = (first, None, false);
            let mut inode = Inode::new(first, Extra::default(), InodeKind::empty());
            for step in std::iter::once(Step::Attributes(first)).chain(steps) {
                match step {
                    Step::Attributes(attributes) => {
                        model = attributes;
                        inode.change(|all| *all = attributes);
                    }
                    Step::Quota(names) => {
                        limit = names;
                        let quota = Quota { names, ..Quota::default() };
                        inode.extra_mut().quota = names.is_some().then(|| Box::new(quota));
                        inode.drop_empty_extra();
                    }
                    Step::Open(opens) => {
                        is_open = opens;
                        let file = inode.as_file_mut().unwrap();
                        file.close();
                        if opens {
                            file.open(super::super::Writer { client: "w".into(), machine: "m".into(), truncation: None });
                        }
                    }
                }
                prop_assert_eq!(inode.attributes(), model);
                prop_assert_eq!((inode.id(), inode.owner(), inode.group()), (model.id, model.owner, model.group));
                let (rights, number) = (inode.permission(), inode.storage_policy());
                prop_assert_eq!((rights, number), (model.permission, model.storage_policy));
                let shape = (inode.replication(), inode.block_size());
                prop_assert_eq!(shape, (model.replication, model.block_size));
                let times = (inode.modification_time_ms(), inode.access_time_ms(), inode.since());
                prop_assert_eq!(times, (model.modification_time_ms, model.access_time_ms, model.since));
                prop_assert_eq!(inode.quota().and_then(|quota| quota.names), limit);
                prop_assert_eq!(inode.as_file().unwrap().is_open(), is_open);
                let is_rare = limit.is_some() || Plain::new(&model).is_none();
                prop_assert_eq!(matches!(inode.part, Part::Rare(_)), is_rare);
            }
        }
    }
}
