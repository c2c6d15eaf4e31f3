//! Quotas: limits on the number of names and on the bytes of replicas that a directory tree may hold, in total and per
//! storage medium.
//!
//! A directory with a quota keeps the usage of its tree. Before an operation changes a file, its usage is recorded
//! ([`Namespace::inode_mut`]); the difference is counted at the end of the operation ([`Namespace::settle`]). Trees
//! that are added, removed or moved are counted at that point. Limits are stored; usage is computed again at start-up.

use std::collections::BTreeSet;

use hearth_types::StorageType;

use super::file::FilePart;
use super::history::{EntryName, SnapshotId};
use super::inode::{Inode, InodeId, InodeKind, Slot};
use super::path::Trail;
use super::permission::Caller;
use super::{Namespace, Purpose, RecordState};
use crate::blocks::StoragePolicy;
use crate::error::Error;

/// Media that can have a quota, in the order in which they are stored.
pub const QUOTA_TYPES: [StorageType; 5] =
    [StorageType::Disk, StorageType::Ssd, StorageType::Archive, StorageType::Provided, StorageType::Nvdimm];

/// Usage of an inode or tree, or an increase of it.
///
/// Clients choose block sizes of up to 2^63 bytes, so the replicas of a file may exceed a u64. Bytes therefore have
/// twice as many bits. Saturating arithmetic would not do: later subtractions would give too small a result.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    pub names: i64,
    /// Bytes of all replicas.
    pub space: i128,
    /// Bytes of replicas on each of [`QUOTA_TYPES`].
    pub types: [i128; QUOTA_TYPES.len()],
}

impl Usage {
    pub(super) fn plus(mut self, other: &Self, sign: i8) -> Self {
        self.names += i64::from(sign) * other.names;
        self.space += i128::from(sign) * other.space;
        for (mine, theirs) in self.types.iter_mut().zip(other.types) {
            *mine += i128::from(sign) * theirs;
        }
        self
    }

    /// Returns the bytes of all replicas as reported to clients, limited to a Java long.
    pub fn reported_space(&self) -> u64 {
        told(self.space)
    }

    /// Like [`Self::reported_space`], for each of [`QUOTA_TYPES`].
    pub fn reported_types(&self) -> [u64; QUOTA_TYPES.len()] {
        self.types.map(told)
    }
}

fn told(bytes: i128) -> u64 {
    bytes.clamp(0, i128::from(i64::MAX)) as u64
}

/// Limits of a directory and the usage that counts against them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Quota {
    pub names: Option<u64>,
    /// Limit in bytes.
    pub space: Option<u64>,
    /// Limits in bytes for each of [`QUOTA_TYPES`].
    pub types: [Option<u64>; QUOTA_TYPES.len()],
    pub used: Usage,
}

impl Quota {
    pub(super) fn limits(&self) -> impl Iterator<Item = Option<u64>> {
        [self.names, self.space].into_iter().chain(self.types)
    }

    pub(super) fn limits_mut(&mut self) -> impl Iterator<Item = &mut Option<u64>> {
        [&mut self.names, &mut self.space].into_iter().chain(&mut self.types)
    }

    fn verify(&self, more: &Usage, path: impl Fn() -> String) -> Result<(), Error> {
        let exceeded = |limit: Option<u64>, used: i128, more: i128| {
            limit.filter(|limit| more > 0 && used + more > i128::from(*limit))
        };
        let names = self.used.names + more.names;
        if let Some(quota) = exceeded(self.names, self.used.names.into(), more.names.into()) {
            return Err(Error::NameQuota { path: path(), quota, count: names });
        }
        let in_all = self.used.plus(more, 1);
        if let Some(quota) = exceeded(self.space, self.used.space, more.space) {
            return Err(Error::space_quota(path(), quota, told(in_all.space)));
        }
        for (at, medium) in QUOTA_TYPES.iter().enumerate() {
            if let Some(quota) = exceeded(self.types[at], self.used.types[at], more.types[at]) {
                return Err(Error::type_quota(*medium, path(), quota, told(in_all.types[at])));
            }
        }
        Ok(())
    }
}

/// A limit in `setQuota`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    Keep,
    Clear,
    Set(u64),
}

impl Limit {
    fn apply(self, to: &mut Option<u64>) {
        match self {
            Self::Keep => {}
            Self::Clear => *to = None,
            Self::Set(limit) => *to = Some(limit),
        }
    }
}

/// Returns the usage of a file's blocks. A block under construction counts with the full block size.
fn file_usage(file: &FilePart, block_size: u64, replication: u16, policy: u8) -> Usage {
    let size = |block: super::BlockRecord| match block.state {
        RecordState::UnderConstruction => block.length.max(block_size),
        RecordState::Committed | RecordState::Complete => block.length,
    };
    bytes_usage(file.blocks().iter().map(|block| i128::from(size(block))).sum(), replication, policy)
}

fn bytes_usage(bytes: i128, replication: u16, policy: u8) -> Usage {
    let mut usage = Usage { space: bytes * i128::from(replication), ..Usage::default() };
    // A file without a policy counts for no medium, as in Apache's NameNode.
    let media = StoragePolicy::by_id(policy).map_or(&[][..], |policy| policy.storage_types);
    for replica in 0..usize::from(replication) {
        let medium = media.get(replica).or(media.last());
        if let Some(at) = QUOTA_TYPES.iter().position(|of| Some(of) == medium) {
            usage.types[at] += bytes;
        }
    }
    usage
}

/// A former child of a directory that snapshots still have there.
pub(super) enum FormerChild {
    Gone(Slot),
    /// The inode exists elsewhere now. `snapshot` is the newest snapshot that has it here, and `state` its state in
    /// that snapshot.
    Moved {
        snapshot: SnapshotId,
        state: Slot,
    },
}

impl Namespace {
    /// Returns whether owners may set quotas (`dfs.permissions.allow.owner.set.quota`), so that no superuser is needed.
    pub fn owner_sets_quota(&self) -> bool {
        self.limits.owner_sets_quota
    }

    fn check_may_set_quota(&self, caller: &Caller, trail: &Trail) -> Result<(), Error> {
        let owns_parent = || trail.parent().is_some_and(|parent| self.owns(caller, self.inode(parent)));
        if self.limits.owner_sets_quota && self.checks_rights_of(caller) && !owns_parent() {
            return Err(Error::QuotaDenied { user: caller.user.to_string() });
        }
        Ok(())
    }

    /// Errors: `QuotaIllegal`, `QuotaType`, `QuotaDenied`, `DirectoryMissing`, `QuotaOnFile`, traversal errors.
    pub fn set_quota(
        &mut self,
        caller: &Caller,
        path: &str,
        names: Limit,
        space: Limit,
        medium: Option<StorageType>,
    ) -> Result<(), Error> {
        let missing = |path| Error::DirectoryMissing { path };
        let (trail, slot) = self.resolve_existing(caller, path, Purpose::Write, missing)?;
        self.check_may_set_quota(caller, &trail)?;
        if !self.inode(slot).is_directory() {
            return Err(Error::QuotaOnFile { path: trail.path() });
        }
        let mut quota = self.inode(slot).quota().cloned().unwrap_or_default();
        match medium {
            None => {
                names.apply(&mut quota.names);
                space.apply(&mut quota.space);
            }
            Some(medium) => {
                let at = QUOTA_TYPES.iter().position(|of| *of == medium);
                space.apply(&mut quota.types[at.ok_or(Error::QuotaType { medium: medium.name() })?]);
            }
        }
        self.settle();
        self.quotas -= u64::from(self.inode(slot).quota().is_some());
        let any = quota.limits().any(|limit| limit.is_some());
        if any {
            quota.used = self.tree_usage(slot);
        }
        self.quotas += u64::from(any);
        let inode = self.inode_mut(slot);
        inode.features_mut().quota = any.then(|| Box::new(quota));
        inode.drop_empty_features();
        Ok(())
    }

    /// Returns the usage of one inode without its descendants.
    pub(super) fn own_usage(&self, slot: Slot) -> Usage {
        let inode = self.inode(slot);
        let blocks = match inode.kind() {
            InodeKind::Directory(_) => Usage::default(),
            InodeKind::File(file) => {
                let policy = self.storage_policy(slot).number;
                let replication = self.replication_with_snapshots(slot);
                let own = file_usage(file, inode.block_size(), replication, policy);
                own.plus(&self.lost_usage(slot, policy), 1)
            }
        };
        Usage { names: 1, ..blocks }
    }

    /// Returns the usage of a file's blocks that only snapshots have.
    fn lost_usage(&self, slot: Slot, policy: u8) -> Usage {
        let lost = self.inode(slot).history().map_or(&[][..], |history| &history.snapshot_blocks);
        match lost.iter().map(|block| i128::from(block.length)).sum() {
            0 => Usage::default(),
            bytes => bytes_usage(bytes, self.replication_with_snapshots(slot), policy),
        }
    }

    /// Returns the children of a directory that are kept for snapshots, because they were removed or moved away. Each
    /// such place counts, as in Apache's NameNode.
    pub(super) fn former_children(&self, directory: Slot) -> Vec<FormerChild> {
        let former = self.inode(directory).history().into_iter().flat_map(|history| &history.former);
        let of_names = former.flat_map(|(name, slots)| slots.iter().map(move |slot| (name, *slot)));
        of_names.filter_map(|(name, slot)| self.former_child(directory, name, slot)).collect()
    }

    /// Returns how a former child counts in the directory under one of its names.
    fn former_child(&self, directory: Slot, name: &EntryName, slot: Slot) -> Option<FormerChild> {
        let inode = self.inode(slot);
        if inode.is_gone() {
            // It counts once, under its last name only.
            let last = self.inode(inode.history()?.versions.last()?.frozen);
            return (last.parent == directory && last.name == name.0).then_some(FormerChild::Gone(slot));
        }
        let is_elsewhere = inode.parent != directory || inode.name != name.0;
        is_elsewhere.then(|| self.moved_from(directory, &name.0, slot)).flatten()
    }

    /// Returns the usage that a directory keeps because an inode was removed or moved away. The difference between
    /// before and after the operation is the directory's additional usage: only that inode's places in the directory
    /// change.
    pub(super) fn kept_usage(&self, directory: Slot, id: InodeId) -> Usage {
        let mut usage = Usage::default();
        let (Some(slot), Some(history)) = (self.by_id.get(id.0), self.inode(directory).history()) else { return usage };
        if self.quotas == 0 || self.timeline.roots.is_empty() {
            return usage;
        }
        let versions = self.inode(*slot).history().map_or(&[][..], |history| &history.versions);
        let states = versions.iter().map(|version| self.inode(version.frozen));
        let names: BTreeSet<EntryName> =
            states.filter(|state| state.parent == directory).map(|state| EntryName(state.name.clone())).collect();
        for name in names.iter().filter(|name| history.former.get(name).is_some_and(|slots| slots.contains(slot))) {
            match self.former_child(directory, name, *slot) {
                Some(FormerChild::Gone(slot)) => usage = usage.plus(&self.tree_usage(slot), 1),
                Some(FormerChild::Moved { .. }) => usage.names += 1,
                None => {}
            }
        }
        usage
    }

    /// Counts the change of a directory's usage for snapshots. `before` is the earlier result of [`Self::kept_usage`].
    pub(super) fn count_kept(&mut self, directory: Slot, id: InodeId, before: &Usage) {
        let more = self.kept_usage(directory, id).plus(before, -1);
        self.count_at(directory, &more, 1);
    }

    fn moved_from(&self, directory: Slot, name: &[u8], slot: Slot) -> Option<FormerChild> {
        let versions = self.inode(slot).history().map_or(&[][..], |history| &history.versions);
        let was_here = |state: &Inode| state.parent == directory && *state.name == *name;
        let version = versions.iter().rev().find(|version| was_here(self.inode(version.frozen)))?;
        let mut held = self.timeline.roots.range(version.from + 1..=version.until).rev();
        let snapshot = held.find(|(snapshot, root)| self.is_in(SnapshotId(**snapshot), **root, slot))?;
        Some(FormerChild::Moved { snapshot: SnapshotId(*snapshot.0), state: version.frozen })
    }

    /// Computes the usage of every directory with a quota again. A deleted snapshot's inodes may have been anywhere.
    pub(super) fn recount_all(&mut self) {
        if self.quotas == 0 {
            return;
        }
        let limited = |slot: &Slot| self.inode(*slot).quota().is_some();
        let limited: Vec<Slot> = self.by_id.values().copied().filter(limited).collect();
        for slot in limited {
            self.recount(slot);
        }
    }

    /// Returns the usage of an inode and everything below it.
    pub fn tree_usage(&self, top: Slot) -> Usage {
        let mut usage = Usage::default();
        let mut waiting = vec![top];
        while let Some(slot) = waiting.pop() {
            #[cfg(test)]
            super::visited_inodes::count();
            usage = usage.plus(&self.own_usage(slot), 1);
            if let InodeKind::Directory(children) = self.inode(slot).kind() {
                waiting.extend(children.iter());
            }
            for place in self.former_children(slot) {
                match place {
                    FormerChild::Gone(slot) => waiting.push(slot),
                    FormerChild::Moved { .. } => usage.names += 1,
                }
            }
        }
        usage
    }

    /// Records the usage of a file before it changes.
    pub(super) fn touch(&mut self, slot: Slot) {
        if self.quotas == 0 {
            return;
        }
        let id = self.inode(slot).id();
        if self.is_file(slot) && !self.touched.iter().any(|(other, _)| *other == id) {
            let before = self.own_usage(slot);
            self.touched.push((id, before));
        }
    }

    /// Counts the changes of all files that were touched since the last call.
    pub(super) fn settle(&mut self) {
        for (id, before) in std::mem::take(&mut self.touched) {
            if let Some(slot) = self.slot(id) {
                let more = self.own_usage(slot).plus(&before, -1);
                self.count_above(slot, &more, 1);
            }
        }
    }

    /// Counts usage for every directory with a quota above an inode.
    fn count_above(&mut self, slot: Slot, usage: &Usage, sign: i8) {
        if slot != self.root {
            self.count_at(self.inode(slot).parent, usage, sign);
        }
    }

    /// Counts usage for a directory and all its ancestors that have quotas.
    fn count_at(&mut self, directory: Slot, usage: &Usage, sign: i8) {
        if self.quotas == 0 || *usage == Usage::default() {
            return;
        }
        let mut at = directory;
        loop {
            if let Some(quota) = self.inodes.get_mut(at).quota_mut() {
                quota.used = quota.used.plus(usage, sign);
            }
            if at == self.root {
                break;
            }
            at = self.inode(at).parent;
        }
    }

    /// Counts a single inode that was added to its directory.
    pub(super) fn count_new(&mut self, slot: Slot) {
        if self.quotas > 0 {
            let usage = self.own_usage(slot);
            self.count_above(slot, &usage, 1);
        }
    }

    /// Counts a tree that leaves its place or was added to it. Quotas of directories within the tree do not change.
    pub(super) fn count_tree(&mut self, top: Slot, comes: bool) {
        if self.quotas > 0 {
            self.settle();
            let usage = self.tree_usage(top);
            self.count_above(top, &usage, if comes { 1 } else { -1 });
        }
    }

    /// Counts a tree in place that has another effective storage policy now. `before` is its former usage. Only the
    /// tree is visited: its ancestors get the difference.
    pub(super) fn count_other_policy(&mut self, top: Slot, before: &Usage) {
        let more = self.tree_usage(top).plus(before, -1);
        self.count_above(top, &more, 1);
        self.recount_tree(top);
    }

    /// Computes the usage again for each directory with a quota in a tree that has another effective storage policy
    /// now. Its ancestors are counted by the caller.
    pub(super) fn recount_tree(&mut self, top: Slot) {
        if self.quotas == 0 {
            return;
        }
        self.settle();
        let mut waiting = vec![top];
        while let Some(slot) = waiting.pop() {
            self.recount(slot);
            if let InodeKind::Directory(children) = self.inode(slot).kind() {
                waiting.extend(children.iter());
            }
        }
    }

    /// Computes the usage of a directory with a quota again.
    pub(super) fn recount(&mut self, slot: Slot) {
        if self.inode(slot).quota().is_some() {
            let used = self.tree_usage(slot);
            if let Some(quota) = self.inodes.get_mut(slot).quota_mut() {
                quota.used = used;
            }
        }
    }

    /// Checks that `directory` and its ancestors up to but excluding `below` have room for `more`.
    ///
    /// Errors: `NameQuota`, `SpaceQuota`, `TypeQuota`.
    pub(super) fn check_quota(&self, directory: Slot, below: Option<Slot>, more: &Usage) -> Result<(), Error> {
        if self.quotas == 0 {
            return Ok(());
        }
        let mut at = directory;
        while Some(at) != below {
            if let Some(quota) = self.inode(at).quota() {
                quota.verify(more, || self.path_of(at))?;
            }
            if at == self.root {
                break;
            }
            at = self.inode(at).parent;
        }
        Ok(())
    }

    /// Checks the name quota for a chain of `names` new inodes, each the parent of the next.
    pub(super) fn check_name_quota(&self, directory: Slot, names: usize) -> Result<(), Error> {
        (1..=names as i64).try_for_each(|names| self.check_quota(directory, None, &Usage { names, ..Usage::default() }))
    }

    /// Checks the space quota for `bytes` more of each replica of a file.
    pub fn check_space_quota(&self, slot: Slot, bytes: u64) -> Result<(), Error> {
        let inode = self.inode(slot);
        if inode.is_directory() || self.quotas == 0 {
            return Ok(());
        }
        let more = bytes_usage(bytes.into(), inode.replication(), self.storage_policy(slot).number);
        self.check_quota(inode.parent, None, &more)
    }

    /// Checks the quotas for a new replication of a file.
    pub(super) fn check_replication_quota(&self, slot: Slot, replication: u16) -> Result<(), Error> {
        let inode = self.inode(slot);
        let Some(file) = inode.as_file().filter(|_| self.quotas > 0) else { return Ok(()) };
        let policy = self.storage_policy(slot).number;
        let usage = |replication| file_usage(file, inode.block_size(), replication, policy);
        let more = usage(replication).plus(&usage(inode.replication()), -1);
        self.check_quota(inode.parent, None, &more)
    }

    /// Checks the quotas for appending the blocks of some files to another file in the same directory.
    pub(super) fn check_concat_quota(&self, target: Slot, sources: &[Slot]) -> Result<(), Error> {
        if self.quotas == 0 {
            return Ok(());
        }
        let into = self.inode(target);
        let policy = self.storage_policy(target).number;
        let mut more = Usage::default();
        for source in sources {
            let inode = self.inode(*source);
            let Some(file) = inode.as_file() else { continue };
            let there = file_usage(file, inode.block_size(), into.replication(), policy);
            more = more.plus(&there, 1).plus(&self.own_usage(*source), -1);
        }
        self.check_quota(into.parent, None, &more)
    }

    /// Checks the quotas for moving a tree into `directory`, in place of `replaced`. Common ancestors of both places
    /// hold no more than before.
    pub(super) fn check_rename_quota(&self, moved: Slot, directory: Slot, replaced: Option<Slot>) -> Result<(), Error> {
        if self.quotas == 0 {
            return Ok(());
        }
        let mut above = Vec::new();
        let mut at = moved;
        while at != self.root {
            at = self.inode(at).parent;
            above.push(at);
        }
        let mut common = directory;
        while !above.contains(&common) {
            common = self.inode(common).parent;
        }
        let leaves = replaced.map(|slot| self.tree_usage(slot)).unwrap_or_default();
        let mut comes = self.tree_usage(moved);
        comes.types = self.types_under(moved, self.storage_policy(directory).number);
        self.check_quota(directory, Some(common), &comes.plus(&leaves, -1))
    }

    /// Returns the usage per medium of a tree if it inherited the storage policy `inherited`.
    fn types_under(&self, top: Slot, inherited: u8) -> [i128; QUOTA_TYPES.len()] {
        let mut usage = Usage::default();
        let mut waiting = vec![(top, inherited)];
        while let Some((slot, inherited)) = waiting.pop() {
            let inode = self.inode(slot);
            let policy = if inode.storage_policy() == 0 { inherited } else { inode.storage_policy() };
            match inode.kind() {
                InodeKind::Directory(children) => waiting.extend(children.iter().map(|child| (child, policy))),
                InodeKind::File(file) => {
                    let replication = self.replication_with_snapshots(slot);
                    usage = usage.plus(&file_usage(file, inode.block_size(), replication, policy), 1);
                    usage = usage.plus(&self.lost_usage(slot, policy), 1);
                }
            }
        }
        usage.types
    }

    /// Forgets the recorded usage and the quota of a removed inode.
    pub(super) fn forget_counted(&mut self, id: InodeId, had_quota: bool) {
        self.quotas -= u64::from(had_quota);
        if !self.touched.is_empty() {
            self.touched.retain(|(other, _)| *other != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::{Block, BlockId, FsPermission, GenerationStamp};

    use super::*;
    use crate::namespace::tests::make_file;
    use crate::namespace::{BlockRecord, Limits, visited_inodes};

    fn caller() -> Caller {
        Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() }
    }

    #[test]
    fn usage_above_u64_is_exact() {
        let huge = 1 << 62;
        let block = |id, length, state| {
            let block = Block { id: BlockId(id), stamp: GenerationStamp(1001), length };
            BlockRecord::new(block, state)
        };
        let blocks = (1..=4).map(|id| block(id, huge, RecordState::Complete));
        let file = FilePart::new(blocks.chain([block(5, 0, RecordState::UnderConstruction)]).collect());
        let held = file_usage(&file, huge, 512, 7);
        assert_eq!((held.space, held.types[0]), (5 * 512 * i128::from(huge), 5 * 512 * i128::from(huge)));
        assert_eq!((held.reported_space(), file.length()), (i64::MAX as u64, u64::MAX));
        // The smaller usage is exact again after the large one is subtracted.
        let few = bytes_usage(1000, 2, 7);
        assert_eq!(few.plus(&held, 1).plus(&held, -1), few);
        let quota = Quota { space: Some(1 << 40), used: few, ..Quota::default() };
        let refused = quota.verify(&held, || "/a".into());
        assert!(matches!(refused, Err(Error::SpaceQuota { count: 0x7FFF_FFFF_FFFF_FFFF, .. })), "{refused:?}");
        assert!(quota.verify(&Usage::default().plus(&held, -1), || "/a".into()).is_ok());
    }

    #[test]
    fn usage_follows_moved_and_removed_trees() {
        let caller = caller();
        let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
        let mkdirs = |namespace: &mut Namespace, path: &str| {
            namespace.mkdirs(&caller, path, FsPermission(0o755), true, 2).map(drop)
        };
        mkdirs(&mut namespace, "/a/b/c").unwrap();
        mkdirs(&mut namespace, "/other/x/y").unwrap();
        let limit = |count| Limit::Set(count);
        namespace.set_quota(&caller, "/a", limit(4), Limit::Keep, None).unwrap();
        let used = |namespace: &Namespace| {
            let slot = namespace.lookup("/a").unwrap();
            let counted = namespace.inode(slot).quota().unwrap().used;
            assert_eq!(counted, namespace.tree_usage(slot));
            counted.names
        };
        assert_eq!(used(&namespace), 3);
        mkdirs(&mut namespace, "/a/d").unwrap();
        let full = mkdirs(&mut namespace, "/a/e").unwrap_err().to_string();
        assert_eq!(
            full,
            "The NameSpace quota (directories and files) of directory /a is exceeded: quota=4 file count=5"
        );
        assert!(matches!(
            namespace.rename(&caller, "/other/x", "/a/x", false, false, 3),
            Err(Error::NameQuota { count: 6, .. })
        ));
        // A move within the tree does not change its usage.
        namespace.rename(&caller, "/a/d", "/a/b/d", false, false, 4).unwrap();
        assert_eq!(used(&namespace), 4);
        namespace.rename(&caller, "/a/b", "/other/b", false, false, 5).unwrap();
        assert_eq!(used(&namespace), 1);
        namespace.rename(&caller, "/other/x", "/a/x", false, false, 6).unwrap();
        namespace.delete(&caller, "/a/x/y", true, 7).unwrap();
        assert_eq!(used(&namespace), 2);
        namespace.delete(&caller, "/a", true, 8).unwrap();
        assert_eq!(namespace.quotas, 0);
    }

    #[test]
    fn policy_change_recounts_type_quotas_in_tree() {
        let caller = caller();
        let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
        for (path, policy) in [("/hot", 7), ("/ssd", 12)] {
            namespace.mkdirs(&caller, path, FsPermission(0o755), true, 2).unwrap();
            let slot = namespace.lookup(path).unwrap();
            namespace.set_storage_policy(slot, policy);
        }
        assert!(make_file(&mut namespace, "/hot/q/f", 100));
        for path in ["/hot/q", "/ssd"] {
            for medium in [StorageType::Disk, StorageType::Ssd] {
                namespace.set_quota(&caller, path, Limit::Keep, Limit::Set(1000), Some(medium)).unwrap();
            }
        }
        let used = |namespace: &Namespace, path: &str| {
            let slot = namespace.lookup(path).unwrap();
            let counted = namespace.inode(slot).quota().unwrap().used;
            assert_eq!(counted, namespace.tree_usage(slot));
            (counted.types[0], counted.types[1])
        };
        assert_eq!(used(&namespace, "/hot/q"), (100, 0));
        namespace.rename(&caller, "/hot/q", "/ssd/q", false, false, 3).unwrap();
        assert_eq!((used(&namespace, "/ssd/q"), used(&namespace, "/ssd")), ((0, 100), (0, 100)));
        namespace.delete(&caller, "/ssd/q/f", true, 4).unwrap();
        assert_eq!((used(&namespace, "/ssd/q"), used(&namespace, "/ssd")), ((0, 0), (0, 0)));
    }

    /// Checks that the ancestors of a file get the difference when its storage policy changes, without a new count of
    /// their trees.
    #[test]
    fn policy_change_does_not_recount_ancestors() {
        let caller = caller();
        let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
        for name in 0..500 {
            namespace.mkdirs(&caller, &format!("/a/{name}"), FsPermission(0o755), true, 2).unwrap();
        }
        assert!(make_file(&mut namespace, "/a/b/f", 100));
        assert!(make_file(&mut namespace, "/a/b/c/g", 10));
        for path in ["/a", "/a/b"] {
            namespace.set_quota(&caller, path, Limit::Set(1000), Limit::Set(1000), None).unwrap();
        }
        let used = |namespace: &Namespace, path: &str| {
            let slot = namespace.lookup(path).unwrap();
            let counted = namespace.inode(slot).quota().unwrap().used;
            assert_eq!(counted, namespace.tree_usage(slot));
            (counted.space, counted.types[0], counted.types[1])
        };
        let file = namespace.lookup("/a/b/f").unwrap();
        let before = visited_inodes::counted();
        for policy in [7, 12].repeat(150) {
            namespace.set_storage_policy(file, policy);
        }
        assert!(visited_inodes::counted() - before < 1000, "{} visited", visited_inodes::counted() - before);
        assert_eq!((used(&namespace, "/a"), used(&namespace, "/a/b")), ((110, 0, 100), (110, 0, 100)));
        // A policy that is in effect already changes nothing. The directory's policy is not the file's.
        let directory = namespace.lookup("/a/b").unwrap();
        namespace.set_storage_policy(directory, 7);
        namespace.set_storage_policy(file, 7);
        namespace.set_storage_policy(file, 0);
        assert_eq!((used(&namespace, "/a"), used(&namespace, "/a/b")), ((110, 110, 0), (110, 110, 0)));
        namespace.set_storage_policy(directory, 0);
        assert_eq!((used(&namespace, "/a"), used(&namespace, "/a/b")), ((110, 0, 0), (110, 0, 0)));
    }
}
