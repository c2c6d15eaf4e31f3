//! What snapshots have of inodes that have changed since.
//!
//! Snapshots are numbered upwards; an inode's state holds for the snapshots that were made while it was current. Making a snapshot
//! copies nothing: it takes the next number. Before an inode is first changed after that ([`Namespace::inode_mut`]), and only if some
//! snapshot has it, its state is frozen: a copy in the arena without number or place in the tree, listed in the inode's [`History`]
//! with the numbers for which it holds. An inode that is removed while snapshots have it stays as a ghost: `gone`, unreachable, with its
//! versions; of a file it keeps the storage policy that held for it, by which its blocks are still copied. A directory remembers under
//! which names such inodes stood in it (`former`). So the state of an inode in snapshot `s`
//! is the inode itself, if it has not changed since, else the version that holds for `s`; who is in a directory in `s` is found
//! among its present and its former children. Names and parents are part of the state: renames need nothing of their own.

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

/// The number of a snapshot, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotId(pub u32);

impl SnapshotId {
    /// No snapshot has it.
    pub(super) const NONE: Self = Self(0);
}

/// Stands for `until` in the stored key of [`History::snapshot_blocks`].
pub(super) const SNAPSHOT_BLOCKS: u32 = u32::MAX;

/// A snapshot of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    pub id: u32,
    pub name: String,
    /// Milliseconds since the epoch: when it was made or last renamed.
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

/// A name in the order of listings.
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
    /// The number of the storage policy that holds for the file, or held when it was removed; 0 for none.
    pub policy: u8,
    pub record: BlockRecord,
}

/// A block that only versions have, and that datanodes have not cut yet to the length in its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingTruncation {
    pub block: BlockId,
    /// The block of which it is to become a shorter copy; `None`: it is cut where it is.
    pub copied_from: Option<BlockId>,
}

impl PendingTruncation {
    /// What a truncation is doing to the last block of a file.
    fn of(last: Option<BlockRecord>, writer: &Writer) -> Option<Self> {
        let (last, truncation) = (last?, writer.truncation?);
        let is_open = last.state == RecordState::UnderConstruction;
        is_open.then_some(Self { block: last.id, copied_from: truncation.copied_from })
    }
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct History {
    /// Oldest first.
    pub(super) versions: Vec<InodeVersion>,
    /// Of a directory: inodes that some version of theirs places here, by that name.
    pub(super) former: BTreeMap<EntryName, Vec<Slot>>,
    /// Of a file: blocks that only versions have, as they last were, and what a truncation is copying from.
    pub(super) snapshot_blocks: Vec<BlockRecord>,
    /// Of those, the ones that a truncation was cutting when the file lost them.
    pub(super) truncations: Vec<PendingTruncation>,
    /// Of a directory that may have snapshots: those, by name.
    pub(super) snapshots: Option<Vec<Snapshot>>,
    /// Removed; only its versions are left.
    pub(super) gone: bool,
}

impl History {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// All snapshots, and what has to be stored of the history.
#[derive(Default)]
pub(super) struct Timeline {
    /// The directories of the snapshots, by number. Such a directory is neither removed nor moved.
    pub roots: BTreeMap<u32, Slot>,
    /// Directories that may have snapshots.
    pub snapshottable: BTreeSet<InodeId>,
    /// Every version: until when it holds, and whose it is.
    versions: BTreeSet<(u32, InodeId)>,
    /// Inodes that only snapshots have.
    pub gone: u64,
    versions_put: Vec<(InodeId, u32)>,
    versions_removed: Vec<(InodeId, u32)>,
    pub(super) snapshots_put: Vec<u32>,
    pub(super) snapshots_removed: Vec<u32>,
}

impl Timeline {
    /// Whether any inode has a former state.
    pub fn has_versions(&self) -> bool {
        !self.versions.is_empty()
    }
}

impl Inode {
    pub fn snapshots(&self) -> Option<&[Snapshot]> {
        self.history()?.snapshots.as_deref()
    }

    /// An inode without anything, to stand for one that is gone: the versions come later, and with its blocks the storage policy.
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

    /// The state as snapshots have it: nobody writes, and a block of which no byte is known is none.
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
        // Differences tell of a changed quota. Nothing is counted in a state of before.
        let quota = self.quota().map(|quota| Box::new(Quota { used: Usage::default(), ..quota.clone() }));
        let features =
            Features { xattrs: self.xattrs().to_vec(), acl: self.acl().to_vec(), quota, ..Features::default() };
        let mut frozen = Self::new(self.attributes(), features, kind);
        (frozen.parent, frozen.name) = (self.parent, self.name.clone());
        frozen
    }
}

impl Namespace {
    /// The inode whose state stands at `slot`.
    pub(super) fn main(&self, slot: Slot) -> Slot {
        *self.by_id.get(self.inode(slot).id().0).expect("a state belongs to an inode")
    }

    /// Whether a slot holds a former state of an inode.
    pub fn is_frozen(&self, slot: Slot) -> bool {
        self.main(slot) != slot
    }

    /// The state of an inode in a snapshot. `None`: it was not there, or not in that snapshot.
    pub(super) fn state_in(&self, snapshot: SnapshotId, main: Slot) -> Option<Slot> {
        let inode = self.inode(main);
        if !inode.is_gone() && inode.since() < snapshot.0 {
            return Some(main);
        }
        let version = inode.history()?.versions.iter().find(|version| version.holds_for(snapshot.0))?;
        Some(version.frozen)
    }

    /// Whether a snapshot has an inode.
    pub(super) fn is_in(&self, snapshot: SnapshotId, root: Slot, main: Slot) -> bool {
        let mut at = main;
        loop {
            #[cfg(test)]
            super::steps::count();
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

    /// Whether any snapshot numbered `from < number <= until` has an inode.
    ///
    /// Asked of every inode of a tree that is removed, when snapshots may be many: only those of directories above the inode are looked at,
    /// where it and those above it have stood nowhere else, and of these none from before they came there.
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

    /// As [`Self::is_in_any`], of the snapshots of some directories.
    fn is_in_some(&self, main: Slot, from: u32, until: u32, of: impl Fn(Slot) -> bool) -> bool {
        from < until
            && self
                .timeline
                .roots
                .range(from + 1..=until)
                .rev()
                .any(|(snapshot, root)| of(*root) && self.is_in(SnapshotId(*snapshot), *root, main))
    }

    /// What [`Self::is_in_any`] says, found by looking at every snapshot.
    #[cfg(test)]
    pub(super) fn is_in_any_of_all(&self, main: Slot, from: u32, until: u32) -> bool {
        self.is_in_some(main, from, until, |_| true)
    }

    /// The newest state of an inode that only snapshots have.
    pub(super) fn newest_of_gone(&self, main: Slot) -> Option<Slot> {
        let history = self.inode(main).history().filter(|history| history.gone)?;
        history.versions.last().map(|version| version.frozen)
    }

    /// Whether the present state of an inode is one that a snapshot has.
    pub(super) fn is_in_latest(&self, main: Slot) -> bool {
        self.is_in_any(main, self.inode(main).since(), self.counters.last_snapshot)
    }

    /// Whether a snapshot has an inode, as it is or as it was.
    pub(super) fn is_in_snapshots(&self, main: Slot) -> bool {
        self.is_in_latest(main) || self.inode(main).history().is_some()
    }

    /// An inode is about to change: keeps its state if a snapshot has it.
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

    /// An inode is about to leave its place: the directory remembers it if a snapshot has it there.
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

    /// Whether a snapshot has an inode at another place than it is at now.
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

    /// A version that was stored. All inodes are there and linked.
    pub(super) fn restore_version(&mut self, id: InodeId, version: InodeVersion) {
        let main = *self.by_id.get(id.0).expect("made with its first version");
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

    /// The blocks that versions of a file have.
    fn blocks_in_versions(&self, main: Slot) -> HashSet<BlockId> {
        let versions = self.inode(main).history().map_or(&[][..], |history| &history.versions);
        let files = versions.iter().filter_map(|version| self.inode(version.frozen).as_file());
        files.flat_map(|file| file.blocks().iter().map(|block| block.id)).collect()
    }

    /// The blocks that versions of a file need: those they have, and what those are yet to be copied from.
    fn needed_by_versions(&self, main: Slot) -> HashSet<BlockId> {
        let mut needed = self.blocks_in_versions(main);
        let cuts = self.inode(main).history().map_or(&[][..], |history| &history.truncations);
        let sources: Vec<BlockId> =
            cuts.iter().filter(|cut| needed.contains(&cut.block)).filter_map(|cut| cut.copied_from).collect();
        needed.extend(sources);
        needed
    }

    /// Takes an inode out that nothing refers to any more; snapshots may still have it. What is lost goes to `removed`.
    ///
    /// `policy`: the number of the storage policy that held for it.
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
                // What a truncation was copying from.
                removed.blocks.extend(lost.iter().map(|block| block.id));
                self.timeline.versions_removed.push((id, SNAPSHOT_BLOCKS));
            }
            if let InodeKind::File(file) = inode.kind() {
                removed.blocks.extend(file.blocks().iter().map(|block| block.id));
            }
            return;
        }
        if let Some(cut) = cut.filter(|cut| self.blocks_in_versions(main).contains(&cut.block)) {
            // Snapshots have it, so what it is to be copied from stays, whether or not one has that itself.
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
        // A file has it as its own from now on: nothing is above it. A directory has nothing of which it matters.
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

    /// Whether a snapshot has a block that was just taken off a file: then it stays on the datanodes.
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

    /// A block that only snapshots have, and that was being written when the file lost it. Some of its bytes are known, or no
    /// snapshot would have it.
    pub fn unfinished_snapshot_block(&self, file: InodeId) -> Option<BlockId> {
        let main = *self.by_id.get(file.0)?;
        let lost = self.inode(main).history().map_or(&[][..], |history| &history.snapshot_blocks);
        lost.iter().find(|block| block.state == RecordState::UnderConstruction).map(|block| block.id)
    }

    /// That block is whole now, as `block` says. Answers the block that it is a copy of, if nothing has that any more.
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

    /// The truncation of an open file has its copy of a block: that block is kept for snapshots alone now. `Some`: none has it, it
    /// goes.
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

    /// Bytes of one replica of each of a file's blocks from the `keep`th on that no snapshot has.
    pub fn bytes_not_in_snapshots(&self, main: Slot, keep: usize) -> u64 {
        let Some(file) = self.inode(main).as_file() else { return 0 };
        if self.is_in_latest(main) {
            return 0;
        }
        let held = self.blocks_in_versions(main);
        let own = file.blocks().iter().skip(keep).filter(|block| !held.contains(&block.id));
        own.map(|block| block.length).fold(0, u64::saturating_add)
    }

    /// Whether a snapshot has a block of a file.
    pub fn is_block_in_snapshot(&self, main: Slot, block: BlockId) -> bool {
        self.blocks_in_versions(main).contains(&block) || self.is_in_latest(main)
    }

    /// How many replicas the blocks of a file need: for itself, and for the snapshots that have it.
    pub fn replication_with_snapshots(&self, main: Slot) -> u16 {
        let inode = self.inode(main);
        let own = if inode.is_gone() { 0 } else { inode.replication() };
        let versions = inode.history().map_or(&[][..], |history| &history.versions);
        let of_version = |version: &InodeVersion| self.inode(version.frozen).replication();
        versions.iter().map(of_version).fold(own, u16::max)
    }

    /// What only snapshots have of an inode and datanodes are yet to cut, for the block map.
    pub fn pending_truncations(&self, main: Slot) -> impl Iterator<Item = (BlockRecord, Option<BlockId>)> {
        self.inode(main).history().into_iter().flat_map(|history| {
            let record_of =
                |cut: &PendingTruncation| history.snapshot_blocks.iter().find(|block| block.id == cut.block).copied();
            history.truncations.iter().filter_map(move |cut| Some((record_of(cut)?, cut.copied_from)))
        })
    }

    /// The blocks of a file that only snapshots have.
    pub fn snapshot_blocks_of(&self, main: Slot) -> &[BlockRecord] {
        match self.inode(main).history() {
            Some(history) => &history.snapshot_blocks,
            None => &[],
        }
    }

    /// The blocks of an inode that only snapshots have, for the block map.
    pub fn blocks_of_snapshots(&self, main: Slot) -> impl Iterator<Item = SnapshotBlock> {
        let lost = self.snapshot_blocks_of(main);
        let (replication, policy) = match lost {
            [] => (0, 0),
            _ => (self.replication_with_snapshots(main), self.storage_policy(main).number),
        };
        let file = self.inode(main).id();
        lost.iter().map(move |record| SnapshotBlock { file, replication, policy, record: *record })
    }

    /// As [`Self::blocks_of_snapshots`], of all inodes.
    #[cfg(test)]
    pub(super) fn blocks_of_all_snapshots(&self) -> impl Iterator<Item = SnapshotBlock> {
        self.by_id.values().flat_map(|main| self.blocks_of_snapshots(*main))
    }

    /// A snapshot is gone: drops the versions that no other one has, and the inodes that were kept for them.
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
        // All inodes are still there: the places they had can be forgotten.
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

    /// Blocks of a dropped version that nothing else has.
    fn drop_blocks(&mut self, main: Slot, id: InodeId, dropped: &Inode, removed: &mut Removed) {
        let Some(file) = dropped.as_file() else { return };
        let mut held = self.needed_by_versions(main);
        let writer = self.inode(main).as_file().and_then(|file| file.writer());
        // A truncation still copies from it.
        held.extend(writer.and_then(|writer| writer.truncation?.copied_from));
        let live: HashSet<BlockId> = self
            .inode(main)
            .as_file()
            .map(|file| file.blocks().iter().map(|block| block.id).collect())
            .unwrap_or_default();
        let history = self.inodes.get_mut(main).history_mut();
        history.truncations.retain(|cut| held.contains(&cut.block));
        // With those of the version goes what one of them was to be copied from.
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

    /// What has changed of the history since the last call, encoded.
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
                    // While the file is there its record has it.
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
