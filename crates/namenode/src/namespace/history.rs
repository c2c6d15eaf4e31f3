//! Snapshot history: former states of inodes that have changed since a snapshot.
//!
//! Snapshots are numbered upwards. A state of an inode belongs to the snapshots that were made while it was current.
//! Creating a snapshot copies nothing: it takes the next number.
//!
//! Before the first change of an inode after that ([`Namespace::inode_mut`]), its state is frozen if some snapshot has
//! it. The frozen copy stays in the arena without an id or a place in the tree. The inode's [`History`] lists it with
//! the range of snapshots for which it holds. An inode that is removed while snapshots have it becomes a ghost: it is
//! `gone` and unreachable, but keeps its versions. A ghost of a file also keeps the storage policy that was in effect,
//! because its blocks are still replicated by that policy. A directory remembers the names under which such inodes were
//! its children (`former`).
//!
//! So the state of an inode in snapshot `s` is the inode itself if it has not changed since, else the version that
//! holds for `s`. The children of a directory in `s` are found among its present and former children. Names and parents
//! are part of the state, so renames need no extra records.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use hearth_types::{Block, BlockId};

use super::children::{Children, compare_names};
use super::features::Features;
use super::file::{BlockRecord, FilePart, RecordState, Writer};
use super::inode::{Inode, InodeId, InodeKind, Slot};
use super::packed_inode::Attributes;
use super::quota::{Quota, Usage};
use super::{Name, Namespace, Removed, record};
use crate::changes::{Changes, SnapshotRow};

/// Number of a snapshot, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotId(pub u32);

impl SnapshotId {
    /// No snapshot has this number.
    pub(super) const NONE: Self = Self(0);
}

/// Value of `until` in the stored key of [`History::snapshot_blocks`].
pub(super) const SNAPSHOT_BLOCKS: u32 = u32::MAX;

/// A snapshot of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    pub id: u32,
    pub name: String,
    /// Time in milliseconds since the epoch when the snapshot was created or last renamed.
    pub modification_time_ms: u64,
}

/// A former state of an inode. It holds for snapshots `from < number <= until`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InodeVersion {
    pub from: u32,
    pub until: u32,
    pub frozen: Slot,
}

impl InodeVersion {
    fn holds_for(&self, snapshot: u32) -> bool {
        self.from < snapshot && snapshot <= self.until
    }
}

/// Name that sorts in the order of listings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EntryName(pub Name);

impl Ord for EntryName {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_names(&self.0, &other.0)
    }
}

impl PartialOrd for EntryName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A block that only snapshots have, for the block map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotBlock {
    pub file: InodeId,
    pub replication: u16,
    /// Number of the file's effective storage policy, or of the one in effect when the file was removed; 0 for none.
    pub policy: u8,
    pub record: BlockRecord,
}

/// A block that only versions have, and that DataNodes have not yet truncated to the length in its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingTruncation {
    pub block: BlockId,
    /// Source block, if the block is to become a shorter copy of another. `None` if it is truncated in place.
    pub copied_from: Option<BlockId>,
}

impl PendingTruncation {
    /// Returns the truncation in progress on the last block of a file.
    fn of(last: Option<BlockRecord>, writer: &Writer) -> Option<Self> {
        let (last, truncation) = (last?, writer.truncation?);
        let is_open = last.state == RecordState::UnderConstruction;
        is_open.then_some(Self { block: last.id, copied_from: truncation.copied_from })
    }
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct History {
    /// Former states, oldest first.
    pub(super) versions: Vec<InodeVersion>,
    /// For a directory: inodes that had this parent in some version, by their name in it.
    pub(super) former: BTreeMap<EntryName, Vec<Slot>>,
    /// For a file: blocks that only versions have, as they last were, and source blocks of truncations by copy.
    pub(super) snapshot_blocks: Vec<BlockRecord>,
    /// Blocks among `snapshot_blocks` that were being truncated when the file lost them.
    pub(super) truncations: Vec<PendingTruncation>,
    /// For a directory that may have snapshots: its snapshots, by name.
    pub(super) snapshots: Option<Vec<Snapshot>>,
    /// True if the inode is removed and only its versions are left.
    pub(super) gone: bool,
}

impl History {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// All snapshots, and the pending changes of the history for the store.
#[derive(Default)]
pub(super) struct Timeline {
    /// Snapshot directories by snapshot number. Such a directory is neither removed nor moved.
    pub roots: BTreeMap<u32, Slot>,
    /// Directories that may have snapshots.
    pub snapshottable: BTreeSet<InodeId>,
    /// All versions, as `until` and inode id.
    versions: BTreeSet<(u32, InodeId)>,
    /// Number of inodes that only snapshots have.
    pub gone: u64,
    versions_put: Vec<(InodeId, u32)>,
    versions_removed: Vec<(InodeId, u32)>,
    pub(super) snapshots_put: Vec<u32>,
    pub(super) snapshots_removed: Vec<u32>,
}

impl Timeline {
    /// Returns whether any inode has a former state.
    pub fn has_versions(&self) -> bool {
        !self.versions.is_empty()
    }
}

impl Inode {
    pub fn snapshots(&self) -> Option<&[Snapshot]> {
        self.history()?.snapshots.as_deref()
    }

    /// Returns an empty inode in place of a removed one. The versions are added later, and the storage policy is set
    /// with its blocks.
    pub(super) fn ghost(&self) -> Self {
        let kind = match self.kind() {
            InodeKind::Directory(_) => InodeKind::Directory(Box::default()),
            InodeKind::File(_) => InodeKind::File(FilePart::default()),
        };
        let history = Some(Box::new(History { gone: true, ..History::default() }));
        let attributes = Attributes { storage_policy: 0, ..self.attributes() };
        let mut ghost = Self::new(attributes, Features { history, ..Features::default() }, kind);
        ghost.parent = self.parent;
        ghost
    }

    /// Returns the state for snapshots. It has no writer, and a last block without known bytes is dropped.
    fn freeze(&self) -> Self {
        let kind = match self.kind() {
            InodeKind::Directory(children) => InodeKind::Directory(Box::new(Children::counted(children.len()))),
            InodeKind::File(file) => {
                let mut blocks = file.blocks().to_vec();
                while blocks.last().is_some_and(|last| last.state == RecordState::UnderConstruction && last.length == 0)
                {
                    blocks.pop();
                }
                InodeKind::File(FilePart::new(blocks))
            }
        };
        // Difference reports include a changed quota. A frozen state needs no usage.
        let quota = self.quota().map(|quota| Box::new(Quota { used: Usage::default(), ..quota.clone() }));
        let features =
            Features { xattrs: self.xattrs().to_vec(), acl: self.acl().to_vec(), quota, ..Features::default() };
        let mut frozen = Self::new(self.attributes(), features, kind);
        (frozen.parent, frozen.name) = (self.parent, self.name.clone());
        frozen
    }
}

impl Namespace {
    /// Returns the slot of the inode whose state is at `slot`.
    pub(super) fn main(&self, slot: Slot) -> Slot {
        *self.by_id.get(self.inode(slot).id().0).expect("a state belongs to an inode")
    }

    /// Returns whether a slot holds a former state of an inode.
    pub fn is_frozen(&self, slot: Slot) -> bool {
        self.main(slot) != slot
    }

    /// Returns the state of an inode at the time of a snapshot. `None` if the inode did not exist then or is not in the
    /// snapshot.
    pub(super) fn state_in(&self, snapshot: SnapshotId, main: Slot) -> Option<Slot> {
        let inode = self.inode(main);
        if !inode.is_gone() && inode.since() < snapshot.0 {
            return Some(main);
        }
        let version = inode.history()?.versions.iter().find(|version| version.holds_for(snapshot.0))?;
        Some(version.frozen)
    }

    /// Returns whether a snapshot has an inode.
    pub(super) fn is_in(&self, snapshot: SnapshotId, root: Slot, main: Slot) -> bool {
        let mut at = main;
        loop {
            #[cfg(test)]
            super::visited_inodes::count();
            let Some(state) = self.state_in(snapshot, at) else { return false };
            if at == root {
                return true;
            }
            if at == self.root {
                return false;
            }
            at = self.inode(state).parent;
        }
    }

    /// Returns whether any snapshot numbered `from < number <= until` has an inode.
    ///
    /// This runs for every inode of a removed tree, when there may be many snapshots. If the inode and its ancestors
    /// have never been elsewhere, only snapshots of its ancestors are checked, and only those made after it arrived
    /// there.
    pub(super) fn is_in_any(&self, main: Slot, from: u32, until: u32) -> bool {
        let (mut at, mut after) = (main, from);
        while after < until {
            let inode = self.inode(at);
            if self.has_moved(at) {
                return self.is_in_some(main, from, until, |_| true);
            }
            if inode.history().is_none_or(|history| history.versions.is_empty()) {
                after = after.max(inode.since());
            }
            let has_snapshots = inode.snapshots().is_some_and(|snapshots| !snapshots.is_empty());
            if has_snapshots && self.is_in_some(main, after, until, |root| root == at) {
                return true;
            }
            if at == self.root {
                return false;
            }
            at = inode.parent;
        }
        false
    }

    /// Like [`Self::is_in_any`], limited to the snapshots of some directories.
    fn is_in_some(&self, main: Slot, from: u32, until: u32, of: impl Fn(Slot) -> bool) -> bool {
        from < until
            && self
                .timeline
                .roots
                .range(from + 1..=until)
                .rev()
                .any(|(snapshot, root)| of(*root) && self.is_in(SnapshotId(*snapshot), *root, main))
    }

    /// Computes the result of [`Self::is_in_any`] by checking every snapshot.
    #[cfg(test)]
    pub(super) fn is_in_any_of_all(&self, main: Slot, from: u32, until: u32) -> bool {
        self.is_in_some(main, from, until, |_| true)
    }

    /// Returns the newest state of an inode that only snapshots have.
    pub(super) fn newest_of_gone(&self, main: Slot) -> Option<Slot> {
        let history = self.inode(main).history().filter(|history| history.gone)?;
        history.versions.last().map(|version| version.frozen)
    }

    /// Returns whether a snapshot has the present state of an inode.
    pub(super) fn is_in_latest(&self, main: Slot) -> bool {
        self.is_in_any(main, self.inode(main).since(), self.counters.last_snapshot)
    }

    /// Returns whether a snapshot has any state of an inode.
    pub(super) fn is_in_snapshots(&self, main: Slot) -> bool {
        self.is_in_latest(main) || self.inode(main).history().is_some()
    }

    /// Freezes the state of an inode before it changes, if a snapshot has it.
    pub(super) fn preserve(&mut self, main: Slot) {
        let (now, since) = (self.counters.last_snapshot, self.inode(main).since());
        if since >= now {
            return;
        }
        if self.is_in_latest(main) {
            let frozen = self.inode(main).freeze();
            let id = frozen.id();
            let frozen = self.inodes.insert(frozen);
            self.inodes.get_mut(main).history_mut().versions.push(InodeVersion { from: since, until: now, frozen });
            self.timeline.versions.insert((now, id));
            self.timeline.versions_put.push((id, now));
        }
        let inode = self.inodes.get_mut(main);
        inode.set_since(now);
        self.changed.push(inode.id());
    }

    /// Records an inode in its directory's former children before it leaves, if a snapshot has it there.
    pub(super) fn leave_entry(&mut self, main: Slot) {
        let inode = self.inode(main);
        let Some(history) = inode.history() else { return };
        let is_here = |version: &InodeVersion| {
            let state = self.inode(version.frozen);
            state.parent == inode.parent && state.name == inode.name
        };
        if history.versions.iter().any(is_here) {
            let (parent, name) = (inode.parent, inode.name.clone());
            self.remember(parent, name, main);
        }
    }

    /// Returns whether a snapshot has an inode at another place than its present one.
    pub(super) fn has_moved(&self, main: Slot) -> bool {
        let inode = self.inode(main);
        inode.history().is_some_and(|history| {
            history.versions.iter().any(|version| self.inode(version.frozen).parent != inode.parent)
        })
    }

    fn remember(&mut self, directory: Slot, name: Name, main: Slot) {
        let slots = self.inodes.get_mut(directory).history_mut().former.entry(EntryName(name)).or_default();
        if !slots.contains(&main) {
            slots.push(main);
        }
    }

    /// Restores a stored version. All inodes must be loaded and linked before.
    pub(super) fn restore_version(&mut self, id: InodeId, version: InodeVersion) {
        let main = *self.by_id.get(id.0).expect("the ghost is created with its first version");
        let (parent, name) = (self.inode(version.frozen).parent, self.inode(version.frozen).name.clone());
        let inode = self.inode(main);
        if inode.is_gone() || inode.parent != parent || inode.name != name {
            self.remember(parent, name, main);
        }
        let versions = &mut self.inodes.get_mut(main).history_mut().versions;
        versions.push(version);
        versions.sort_by_key(|version| version.until);
        self.timeline.versions.insert((version.until, id));
    }

    /// Returns the blocks of a file's versions.
    fn blocks_in_versions(&self, main: Slot) -> HashSet<BlockId> {
        let versions = self.inode(main).history().map_or(&[][..], |history| &history.versions);
        let files = versions.iter().filter_map(|version| self.inode(version.frozen).as_file());
        files.flat_map(|file| file.blocks().iter().map(|block| block.id)).collect()
    }

    /// Returns the blocks that a file's versions need: their own, and the source blocks of pending truncations.
    fn needed_by_versions(&self, main: Slot) -> HashSet<BlockId> {
        let mut needed = self.blocks_in_versions(main);
        let cuts = self.inode(main).history().map_or(&[][..], |history| &history.truncations);
        let sources: Vec<BlockId> =
            cuts.iter().filter(|cut| needed.contains(&cut.block)).filter_map(|cut| cut.copied_from).collect();
        needed.extend(sources);
        needed
    }

    /// Removes an inode that is no longer referenced, except perhaps by snapshots. Lost blocks and files are added to
    /// `removed`.
    ///
    /// `policy` is the number of the storage policy that was in effect for it.
    pub(super) fn remove_inode(&mut self, main: Slot, policy: u8, removed: &mut Removed) {
        removed.inodes += 1;
        let (id, had_quota) = (self.inode(main).id(), self.inode(main).quota().is_some());
        self.removed.push(id);
        self.forget_counted(id, had_quota);
        self.timeline.snapshottable.remove(&id);
        let mut cut = None;
        if let InodeKind::File(file) = self.inodes.get_mut(main).kind_mut() {
            self.files -= 1;
            self.blocks -= file.blocks().len() as u64;
            if let Some(writer) = file.close() {
                cut = PendingTruncation::of(file.blocks().last(), &writer);
                removed.open_files.push((id, writer.client.clone()));
            }
        }
        let is_kept = self.inode(main).history().is_some_and(|history| !history.versions.is_empty());
        if !is_kept {
            let inode = self.inodes.remove(main);
            self.by_id.remove(id.0);
            let lost = inode.history().map_or(&[][..], |history| &history.snapshot_blocks);
            if !lost.is_empty() {
                // Source blocks of truncations.
                removed.blocks.extend(lost.iter().map(|block| block.id));
                self.timeline.versions_removed.push((id, SNAPSHOT_BLOCKS));
            }
            if let InodeKind::File(file) = inode.kind() {
                removed.blocks.extend(file.blocks().iter().map(|block| block.id));
            }
            return;
        }
        if let Some(cut) = cut.filter(|cut| self.blocks_in_versions(main).contains(&cut.block)) {
            // Snapshots have the block, so its source block stays, whether or not a snapshot has the source itself.
            self.inodes.get_mut(main).history_mut().truncations.push(cut);
        }
        let held = self.needed_by_versions(main);
        let root = self.root;
        let inode = self.inodes.get_mut(main);
        let mut lost = Vec::new();
        match inode.kind_mut() {
            InodeKind::File(file) => {
                for block in file.take_blocks() {
                    match held.contains(&block.id) {
                        true => lost.push(block),
                        false => removed.blocks.push(block.id),
                    }
                }
            }
            InodeKind::Directory(children) => **children = Children::default(),
        }
        (inode.parent, inode.name) = (root, Name::default());
        // A removed file has no parent to inherit a policy from, so it keeps the policy as its own. For a removed
        // directory the policy no longer matters.
        let policy = if inode.is_directory() { 0 } else { policy };
        inode.change(|attributes| attributes.storage_policy = policy);
        let mut history = std::mem::take(inode.history_mut());
        history.gone = true;
        history.snapshots = None;
        let had = history.snapshot_blocks.len();
        removed
            .blocks
            .extend(history.snapshot_blocks.extract_if(.., |block| !held.contains(&block.id)).map(|block| block.id));
        let has_policy = policy != 0 && !history.snapshot_blocks.is_empty();
        let changed = history.snapshot_blocks.len() < had || !lost.is_empty() || has_policy;
        if lost.iter().any(|block| block.state == RecordState::UnderConstruction) {
            removed.unfinished.push(id);
        }
        history.snapshot_blocks.extend(lost);
        match (changed, history.snapshot_blocks.is_empty()) {
            (true, true) => self.timeline.versions_removed.push((id, SNAPSHOT_BLOCKS)),
            (true, false) => self.timeline.versions_put.push((id, SNAPSHOT_BLOCKS)),
            (false, _) => {}
        }
        *inode.features_mut() = Features { history: Some(Box::new(history)), ..Features::default() };
        self.timeline.gone += 1;
    }

    /// Returns whether a snapshot has a block that was just removed from a file. Such a block stays on the DataNodes.
    pub fn keeps_block(&mut self, main: Slot, block: BlockRecord) -> bool {
        if self.inode(main).history().is_none_or(|history| history.versions.is_empty())
            || !self.blocks_in_versions(main).contains(&block.id)
        {
            return false;
        }
        let inode = self.inodes.get_mut(main);
        if let Some(writer) = inode.as_file_mut().and_then(FilePart::writer_mut)
            && let Some(cut) = PendingTruncation::of(Some(block), writer)
        {
            writer.truncation = None;
            inode.history_mut().truncations.push(cut);
        }
        inode.history_mut().snapshot_blocks.push(block);
        self.timeline.versions_put.push((inode.id(), SNAPSHOT_BLOCKS));
        true
    }

    /// Returns the block that only snapshots have and that was being written when the file lost it. Some of its bytes
    /// are known: otherwise no snapshot would have it.
    pub fn unfinished_snapshot_block(&self, file: InodeId) -> Option<BlockId> {
        let main = *self.by_id.get(file.0)?;
        let lost = self.inode(main).history().map_or(&[][..], |history| &history.snapshot_blocks);
        lost.iter().find(|block| block.state == RecordState::UnderConstruction).map(|block| block.id)
    }

    /// Records that the unfinished snapshot block is complete, as described by `block`. Returns its source block if
    /// that is no longer needed.
    pub fn finish_snapshot_block(&mut self, file: InodeId, block: Block) -> Option<BlockId> {
        let main = self.by_id.get(file.0).copied()?;
        self.settle();
        let history = self.inodes.get_mut(main).history_mut();
        let is_it = |cut: &mut PendingTruncation| cut.block == block.id;
        let source = history.truncations.extract_if(.., is_it).find_map(|cut| cut.copied_from);
        for record in history.snapshot_blocks.iter_mut().filter(|record| record.id == block.id) {
            *record = BlockRecord::new(block, RecordState::Complete);
            self.timeline.versions_put.push((file, SNAPSHOT_BLOCKS));
        }
        let source = source.filter(|source| !self.needed_by_versions(main).contains(source));
        if let Some(source) = source {
            self.inodes.get_mut(main).history_mut().snapshot_blocks.retain(|record| record.id != source);
        }
        self.recount_all();
        source
    }

    /// Releases the source block after the truncation of an open file has made its copy. From then on only snapshots
    /// keep the source. Returns the source if no snapshot has it, so that it can be deleted.
    pub fn release_copied(&mut self, main: Slot) -> Option<BlockId> {
        let truncation = self.inode(main).as_file()?.writer()?.truncation.as_ref()?;
        truncation.copied_from?;
        let truncation = self.written_mut(main).writer_mut()?.truncation.as_mut()?;
        let source = truncation.copied_from.take()?;
        if self.needed_by_versions(main).contains(&source) {
            return None;
        }
        let inode = self.inodes.get_mut(main);
        let id = inode.id();
        let lost = &mut inode.history_mut().snapshot_blocks;
        lost.retain(|block| block.id != source);
        match lost.is_empty() {
            true => self.timeline.versions_removed.push((id, SNAPSHOT_BLOCKS)),
            false => self.timeline.versions_put.push((id, SNAPSHOT_BLOCKS)),
        }
        inode.drop_empty_features();
        Some(source)
    }

    /// Returns the size in bytes of one replica of each of the file's blocks from index `keep` on that no snapshot has.
    pub fn bytes_not_in_snapshots(&self, main: Slot, keep: usize) -> u64 {
        let Some(file) = self.inode(main).as_file() else { return 0 };
        if self.is_in_latest(main) {
            return 0;
        }
        let held = self.blocks_in_versions(main);
        let own = file.blocks().iter().skip(keep).filter(|block| !held.contains(&block.id));
        own.map(|block| block.length).fold(0, u64::saturating_add)
    }

    /// Returns whether a snapshot has a block of a file.
    pub fn is_block_in_snapshot(&self, main: Slot, block: BlockId) -> bool {
        self.blocks_in_versions(main).contains(&block) || self.is_in_latest(main)
    }

    /// Returns the replication of a file's blocks: the maximum of the file's own and that of its states in snapshots.
    pub fn replication_with_snapshots(&self, main: Slot) -> u16 {
        let inode = self.inode(main);
        let own = if inode.is_gone() { 0 } else { inode.replication() };
        let versions = inode.history().map_or(&[][..], |history| &history.versions);
        let of_version = |version: &InodeVersion| self.inode(version.frozen).replication();
        versions.iter().map(of_version).fold(own, u16::max)
    }

    /// Returns the blocks that only snapshots have and that DataNodes have still to truncate, for the block map.
    pub fn pending_truncations(&self, main: Slot) -> impl Iterator<Item = (BlockRecord, Option<BlockId>)> {
        self.inode(main).history().into_iter().flat_map(|history| {
            let record_of =
                |cut: &PendingTruncation| history.snapshot_blocks.iter().find(|block| block.id == cut.block).copied();
            history.truncations.iter().filter_map(move |cut| Some((record_of(cut)?, cut.copied_from)))
        })
    }

    /// Returns the blocks of a file that only snapshots have.
    pub fn snapshot_blocks_of(&self, main: Slot) -> &[BlockRecord] {
        match self.inode(main).history() {
            Some(history) => &history.snapshot_blocks,
            None => &[],
        }
    }

    /// Returns the blocks of an inode that only snapshots have, for the block map.
    pub fn blocks_of_snapshots(&self, main: Slot) -> impl Iterator<Item = SnapshotBlock> {
        let lost = self.snapshot_blocks_of(main);
        let (replication, policy) = match lost {
            [] => (0, 0),
            _ => (self.replication_with_snapshots(main), self.storage_policy(main).number),
        };
        let file = self.inode(main).id();
        lost.iter().map(move |record| SnapshotBlock { file, replication, policy, record: *record })
    }

    /// Like [`Self::blocks_of_snapshots`], for all inodes.
    #[cfg(test)]
    pub(super) fn blocks_of_all_snapshots(&self) -> impl Iterator<Item = SnapshotBlock> {
        self.by_id.values().flat_map(|main| self.blocks_of_snapshots(*main))
    }

    /// Returns whether a version may add to the usage of a directory. That of an existing directory in its present place
    /// does not: the directory counts there anyway, and it has no blocks.
    fn adds_usage(&self, main: Slot, version: &InodeVersion) -> bool {
        let (now, then) = (self.inode(main), self.inode(version.frozen));
        now.is_gone() || !now.is_directory() || then.parent != now.parent || then.name != now.name
    }

    /// Drops the versions that only the deleted snapshot had, and the inodes that were kept for them. Quotas are
    /// counted again if such a version added to the usage of a directory.
    pub(super) fn drop_versions_of(&mut self, snapshot: u32) -> Removed {
        let mut dropped: Vec<(Slot, InodeId, InodeVersion)> = Vec::new();
        for (until, id) in self.timeline.versions.range((snapshot, InodeId(0))..) {
            let main = *self.by_id.get(id.0).expect("a version belongs to an inode");
            let versions = &self.inode(main).history().expect("it has a version").versions;
            let version = *versions.iter().find(|version| version.until == *until).expect("it is listed");
            if version.holds_for(snapshot) && !self.is_in_any(main, version.from, version.until) {
                dropped.push((main, *id, version));
            }
        }
        let changes_usage = dropped.iter().any(|(main, _, version)| self.adds_usage(*main, version));
        // All inodes still exist here, so the places that they had can be removed from the directories.
        for (main, id, version) in &dropped {
            self.timeline.versions.remove(&(version.until, *id));
            self.timeline.versions_removed.push((*id, version.until));
            self.inodes.get_mut(*main).history_mut().versions.retain(|other| other != version);
            self.forget_former_child(*main, version.frozen);
        }
        let mut removed = Removed::default();
        for (main, id, version) in dropped {
            let state = self.inodes.remove(version.frozen);
            self.drop_blocks(main, id, &state, &mut removed);
            let inode = self.inodes.get_mut(main);
            if inode.is_gone() && inode.history_mut().versions.is_empty() {
                self.inodes.remove(main);
                self.by_id.remove(id.0);
                self.timeline.gone -= 1;
                removed.inodes += 1;
            } else {
                inode.drop_empty_features();
            }
        }
        if changes_usage {
            self.recount_all();
        }
        removed
    }

    fn forget_former_child(&mut self, main: Slot, frozen: Slot) {
        let (directory, name) = (self.inode(frozen).parent, self.inode(frozen).name.clone());
        let still = self.inode(main).history().is_some_and(|history| {
            history.versions.iter().any(|version| {
                let state = self.inode(version.frozen);
                state.parent == directory && state.name == name
            })
        });
        let inode = self.inodes.get_mut(directory);
        if still || inode.history().is_none() {
            return;
        }
        let former = &mut inode.history_mut().former;
        let name = EntryName(name);
        if let Some(slots) = former.get_mut(&name) {
            slots.retain(|slot| *slot != main);
            if slots.is_empty() {
                former.remove(&name);
            }
        }
        inode.drop_empty_features();
    }

    /// Drops the blocks of a dropped version that are no longer referenced.
    fn drop_blocks(&mut self, main: Slot, id: InodeId, dropped: &Inode, removed: &mut Removed) {
        let Some(file) = dropped.as_file() else { return };
        let mut held = self.needed_by_versions(main);
        let writer = self.inode(main).as_file().and_then(|file| file.writer());
        // A truncation still copies from this block.
        held.extend(writer.and_then(|writer| writer.truncation?.copied_from));
        let live: HashSet<BlockId> = self
            .inode(main)
            .as_file()
            .map(|file| file.blocks().iter().map(|block| block.id).collect())
            .unwrap_or_default();
        let history = self.inodes.get_mut(main).history_mut();
        history.truncations.retain(|cut| held.contains(&cut.block));
        // The source blocks of the version's truncations are dropped together with its own blocks.
        let mut unheld: BTreeSet<BlockId> =
            history.snapshot_blocks.extract_if(.., |block| !held.contains(&block.id)).map(|block| block.id).collect();
        if !unheld.is_empty() {
            match history.snapshot_blocks.is_empty() {
                true => self.timeline.versions_removed.push((id, SNAPSHOT_BLOCKS)),
                false => self.timeline.versions_put.push((id, SNAPSHOT_BLOCKS)),
            }
        }
        let of_version = file.blocks().iter().map(|block| block.id);
        unheld.extend(of_version.filter(|block| !held.contains(block) && !live.contains(block)));
        removed.blocks.extend(unheld);
        let replication = self.replication_with_snapshots(main);
        removed.replications.extend(held.union(&live).map(|block| (*block, replication)));
    }

    /// Adds the changes of the history since the last call, encoded.
    pub(super) fn take_history(&mut self, changes: &mut Changes) {
        let mut put = std::mem::take(&mut self.timeline.versions_put);
        put.sort_unstable();
        put.dedup();
        for (id, until) in put {
            let Some(main) = self.by_id.get(id.0) else { continue };
            let inode = self.inode(*main);
            let Some(history) = inode.history() else { continue };
            if until == SNAPSHOT_BLOCKS {
                if !history.snapshot_blocks.is_empty() {
                    // While the file exists, its own record holds the policy.
                    let policy = if history.gone { inode.storage_policy() } else { 0 };
                    let bytes = record::encode_snapshot_blocks(&history.snapshot_blocks, &history.truncations, policy);
                    changes.versions_put.push(((id.0, until), bytes));
                }
            } else if let Some(version) = history.versions.iter().find(|version| version.until == until) {
                let frozen = self.inode(version.frozen);
                let bytes = record::encode_version(version.from, frozen, self.inode(frozen.parent).id());
                changes.versions_put.push(((id.0, until), bytes));
            }
        }
        let removed = std::mem::take(&mut self.timeline.versions_removed);
        changes.versions_removed = removed.into_iter().map(|(id, until)| (id.0, until)).collect();
        for id in std::mem::take(&mut self.timeline.snapshots_put) {
            let Some(root) = self.timeline.roots.get(&id).map(|root| self.inode(*root)) else { continue };
            let Some(snapshot) = root.snapshots().and_then(|all| all.iter().find(|snapshot| snapshot.id == id)) else {
                continue;
            };
            let row = SnapshotRow {
                root: root.id().0,
                name: snapshot.name.clone(),
                modification_time_ms: snapshot.modification_time_ms,
            };
            changes.snapshots_put.push((id, row));
        }
        changes.snapshots_removed = std::mem::take(&mut self.timeline.snapshots_removed);
    }
}
