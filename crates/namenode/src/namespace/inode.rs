//! A file or directory in a compact form, since a namespace of millions of files is kept in memory.

use std::fmt;

use hearth_types::{AclEntry, FsPermission, Xattr};

use super::children::Children;
use super::features::Features;
use super::file::FilePart;
use super::history::History;
use super::name::Name;
use super::packed_inode::{Attributes, PackedAttributes};
use super::principals::PrincipalId;
use super::quota::Quota;

/// Id of a file or directory, never reused. The root is 16385.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InodeId(pub u64);

impl InodeId {
    pub const ROOT: Self = Self(16385);
}

/// Index of an inode in the arena. It is reused after the inode is removed, so never keep it across operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot(pub(super) u32);

pub struct Inode {
    /// Name; empty only for the root.
    pub name: Name,
    /// Parent directory. The root is its own parent.
    pub(super) parent: Slot,
    /// Valid unless the attributes are stored in [`Extended`].
    packed: PackedAttributes,
    part: Part,
}

/// Content of an inode. Rare features are behind one more pointer.
enum Part {
    Compact(InodeKind),
    Extended(Box<Extended>),
}

struct Extended {
    /// Set if the attributes do not fit [`PackedAttributes`].
    attributes: Option<Attributes>,
    features: Features,
    kind: InodeKind,
}

#[derive(Debug)]
pub enum InodeKind {
    /// Boxed so that it takes no more of the inode than a file does. There are fewer directories than files.
    Directory(Box<Children>),
    File(FilePart),
}

impl InodeKind {
    fn empty() -> Self {
        Self::File(FilePart::default())
    }
}

/// Defines a getter that reads the packed attributes, or the full ones for an unusual inode.
macro_rules! attribute {
    ($(#[$doc:meta])* $visibility:vis $name:ident: $type:ty) => {
        $(#[$doc])*
        $visibility fn $name(&self) -> $type {
            match self.unusual() {
                None => self.packed.$name(),
                Some(attributes) => attributes.$name,
            }
        }
    };
}

impl Inode {
    /// Creates an inode without a name or a place in the tree.
    pub fn new(attributes: Attributes, features: Features, kind: InodeKind) -> Self {
        let (packed, unusual) = match PackedAttributes::new(&attributes) {
            Some(packed) => (packed, None),
            None => (PackedAttributes::NONE, Some(attributes)),
        };
        let part = if features.is_empty() && unusual.is_none() {
            Part::Compact(kind)
        } else {
            Part::Extended(Box::new(Extended { attributes: unusual, features, kind }))
        };
        Self { name: Name::default(), parent: Slot(0), packed, part }
    }

    fn unusual(&self) -> Option<&Attributes> {
        match &self.part {
            Part::Compact(_) => None,
            Part::Extended(extended) => extended.attributes.as_ref(),
        }
    }

    pub fn attributes(&self) -> Attributes {
        self.unusual().copied().unwrap_or_else(|| self.packed.attributes())
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Attributes)) {
        let mut attributes = self.attributes();
        change(&mut attributes);
        match (PackedAttributes::new(&attributes), &mut self.part) {
            (Some(packed), Part::Compact(_)) => self.packed = packed,
            (Some(packed), Part::Extended(extended)) => {
                self.packed = packed;
                extended.attributes = None;
                self.drop_empty_features();
            }
            (None, _) => self.extended_mut().attributes = Some(attributes),
        }
    }

    attribute!(pub id: InodeId);
    attribute!(pub owner: PrincipalId);
    attribute!(pub group: PrincipalId);
    attribute!(pub permission: FsPermission);
    attribute!(
        /// Number of the storage policy; 0 if none is set on this inode.
        pub storage_policy: u8
    );
    attribute!(
        /// Replication of a file's blocks; 0 for a directory.
        pub replication: u16
    );
    attribute!(
        /// Block size in bytes, at which a file's writer starts the next block; 0 for a directory.
        pub block_size: u64
    );
    attribute!(
        /// Modification time in milliseconds since the epoch.
        pub modification_time_ms: u64
    );
    attribute!(
        /// Access time in milliseconds since the epoch; 0 for a directory until it is set explicitly.
        pub access_time_ms: u64
    );
    attribute!(
        /// Number of the newest snapshot when this state began. Only later snapshots have this state. See `history.rs`.
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
            Part::Compact(kind) => kind,
            Part::Extended(extended) => &extended.kind,
        }
    }

    pub(super) fn kind_mut(&mut self) -> &mut InodeKind {
        match &mut self.part {
            Part::Compact(kind) => kind,
            Part::Extended(extended) => &mut extended.kind,
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

    /// Returns extended attributes, ACL, quota and history; `None` if the inode has none of them.
    pub(super) fn features(&self) -> Option<&Features> {
        match &self.part {
            Part::Compact(_) => None,
            Part::Extended(extended) => Some(&extended.features),
        }
    }

    /// Returns the features for changing them. Call [`Inode::drop_empty_features`] afterwards if they may be empty.
    pub(super) fn features_mut(&mut self) -> &mut Features {
        &mut self.extended_mut().features
    }

    fn extended_mut(&mut self) -> &mut Extended {
        if let Part::Compact(kind) = &mut self.part {
            let kind = std::mem::replace(kind, InodeKind::empty());
            self.part = Part::Extended(Box::new(Extended { attributes: None, features: Features::default(), kind }));
        }
        match &mut self.part {
            Part::Extended(extended) => extended,
            Part::Compact(_) => unreachable!("just made extended"),
        }
    }

    pub(super) fn drop_empty_features(&mut self) {
        let Part::Extended(extended) = &mut self.part else { return };
        extended.features.history.take_if(|history| history.is_empty());
        if extended.features.is_empty() && extended.attributes.is_none() {
            self.part = Part::Compact(std::mem::replace(&mut extended.kind, InodeKind::empty()));
        }
    }

    pub fn xattrs(&self) -> &[Xattr] {
        self.features().map_or(&[], |features| &features.xattrs)
    }

    /// Returns the entries that the mode bits do not hold.
    pub fn acl(&self) -> &[AclEntry] {
        self.features().map_or(&[], |features| &features.acl)
    }

    pub fn quota(&self) -> Option<&Quota> {
        self.features()?.quota.as_deref()
    }

    pub(super) fn quota_mut(&mut self) -> Option<&mut Quota> {
        match &mut self.part {
            Part::Compact(_) => None,
            Part::Extended(extended) => extended.features.quota.as_deref_mut(),
        }
    }

    pub(super) fn history(&self) -> Option<&History> {
        self.features()?.history.as_deref()
    }

    pub(super) fn history_mut(&mut self) -> &mut History {
        self.features_mut().history.get_or_insert_default()
    }

    /// Returns whether snapshots have former states of the inode.
    pub fn has_history(&self) -> bool {
        self.history().is_some()
    }

    /// Returns whether the inode was removed and is kept only for snapshots.
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
            .field("features", &self.features())
            .field("kind", self.kind())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::packed_inode::tests::attributes;
    use super::*;

    #[test]
    fn an_inode_stays_small() {
        // The type stored in the arena.
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
            let mut inode = Inode::new(first, Features::default(), InodeKind::empty());
            for step in std::iter::once(Step::Attributes(first)).chain(steps) {
                match step {
                    Step::Attributes(attributes) => {
                        model = attributes;
                        inode.change(|all| *all = attributes);
                    }
                    Step::Quota(names) => {
                        limit = names;
                        let quota = Quota { names, ..Quota::default() };
                        inode.features_mut().quota = names.is_some().then(|| Box::new(quota));
                        inode.drop_empty_features();
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
                let is_rare = limit.is_some() || PackedAttributes::new(&model).is_none();
                prop_assert_eq!(matches!(inode.part, Part::Extended(_)), is_rare);
            }
        }
    }
}
