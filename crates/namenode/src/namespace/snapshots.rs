//! User-visible snapshots: allowing, creating, renaming and deleting them, and reading in them.

use std::ops::Bound;

use super::children::compare_names;
use super::history::{EntryName, Snapshot, SnapshotId};
use super::inode::Slot;
use super::path::is_below;
use super::permission::Caller;
use super::{InodeId, Namespace, Purpose, Removed, Trail};
use crate::error::Error;

/// Maximum number of snapshots of one directory, whatever the configuration says. Source: `SNAPSHOT_QUOTA_DEFAULT` of
/// `DirectorySnapshottableFeature`.
pub const SNAPSHOT_QUOTA: usize = 65536;
/// Largest snapshot number, as in Apache's NameNode.
const SNAPSHOT_ID_MAX: u32 = (1 << 28) - 1;

/// A directory that may have snapshots.
pub struct Snapshottable {
    pub slot: Slot,
    /// Path of the parent; empty for the root.
    pub parent_path: String,
    pub snapshots: usize,
}

impl Namespace {
    /// Returns whether `.snapshot` is special in a directory. In the root it always is.
    pub fn is_snapshottable(&self, slot: Slot) -> bool {
        slot == self.root || self.inode(slot).snapshots().is_some()
    }

    /// Returns the top of the snapshot `name` of the directory at `root`.
    pub(super) fn snapshot_top(&self, root: Slot, name: &[u8]) -> Option<(SnapshotId, Slot)> {
        let snapshots = self.inode(root).snapshots()?;
        let at = snapshots.binary_search_by(|snapshot| compare_names(snapshot.name.as_bytes(), name)).ok()?;
        let id = SnapshotId(snapshots[at].id);
        Some((id, self.state_in(id, root)?))
    }

    /// Returns the state of the directory in one of its snapshots.
    pub fn top_of(&self, root: Slot, snapshot: &Snapshot) -> Option<Slot> {
        self.state_in(SnapshotId(snapshot.id), root)
    }

    /// Returns the snapshot, if the path names the top of one.
    pub fn snapshot_of(&self, trail: &Trail) -> Option<&Snapshot> {
        let (id, true) = (trail.snapshot?, trail.is_snapshot_top()) else { return None };
        let root = *self.timeline.roots.get(&id.0)?;
        self.inode(root).snapshots()?.iter().find(|snapshot| snapshot.id == id.0)
    }

    /// Returns the state of a child in a snapshot.
    ///
    /// `directory` is the directory's state in that snapshot.
    pub(super) fn child_in(&self, snapshot: SnapshotId, directory: Slot, name: &[u8]) -> Option<Slot> {
        let main = self.main(directory);
        let is_here = |state: &Slot| {
            let inode = self.inode(*state);
            inode.parent == main && *inode.name == *name
        };
        let present = self.child(main, name).and_then(|child| self.state_in(snapshot, child)).filter(is_here);
        present.or_else(|| {
            let former = &self.inode(main).history()?.former;
            let slots = former.get(&EntryName(name.into()))?;
            slots.iter().find_map(|slot| self.state_in(snapshot, *slot).filter(is_here))
        })
    }

    /// Returns the states of a directory's children in a snapshot, ordered by name.
    ///
    /// `directory` is the directory's state in that snapshot.
    pub fn children_in(&self, snapshot: SnapshotId, directory: Slot) -> Vec<Slot> {
        self.children_after(snapshot, directory, b"").collect()
    }

    /// Like [`Self::children_in`], but only for names after `start`. An empty `start` returns all. Earlier names are
    /// not visited.
    pub(super) fn children_after<'a>(
        &'a self,
        snapshot: SnapshotId,
        directory: Slot,
        start: &'a [u8],
    ) -> impl Iterator<Item = Slot> + 'a {
        let main = self.main(directory);
        let inode = self.inode(main);
        let children = inode.children().into_iter();
        let children =
            children.flat_map(move |children| children.after(move |slot| compare_names(&self.inode(slot).name, start)));
        let present = children.filter_map(move |child| {
            #[cfg(test)]
            super::visited_inodes::count();
            // An inode with another name in the snapshot is among the former children.
            let state = self.state_in(snapshot, child)?;
            let then = self.inode(state);
            (then.parent == main && then.name == self.inode(child).name).then_some(state)
        });
        let after: (Bound<EntryName>, Bound<EntryName>) = (Bound::Excluded(EntryName(start.into())), Bound::Unbounded);
        let former = inode.history().into_iter().flat_map(move |history| history.former.range(after.clone()));
        let former = former.flat_map(|(name, slots)| slots.iter().map(move |slot| (name, *slot)));
        let former = former.filter_map(move |(name, slot)| {
            #[cfg(test)]
            super::visited_inodes::count();
            let state = self.state_in(snapshot, slot)?;
            let (then, now) = (self.inode(state), self.inode(slot));
            let is_still_here = !now.is_gone() && now.parent == main && now.name == then.name;
            (then.parent == main && then.name == name.0 && !is_still_here).then_some(state)
        });
        // Both iterators are sorted, and no name occurs in both.
        let (mut present, mut former) = (present.peekable(), former.peekable());
        std::iter::from_fn(move || match (present.peek(), former.peek()) {
            (Some(here), Some(left)) if compare_names(&self.inode(*here).name, &self.inode(*left).name).is_lt() => {
                present.next()
            }
            (Some(_), None) => present.next(),
            _ => former.next(),
        })
    }

    /// Returns the state of an inode in a snapshot, if the snapshot still exists.
    pub fn inode_in(&self, snapshot: SnapshotId, id: InodeId) -> Option<Slot> {
        self.timeline.roots.get(&snapshot.0)?;
        self.state_in(snapshot, *self.by_id.get(id.0)?)
    }

    /// Returns the children of a directory in a snapshot, or the current ones.
    pub fn children_at(&self, snapshot: Option<SnapshotId>, directory: Slot) -> Vec<Slot> {
        match snapshot {
            Some(snapshot) => self.children_in(snapshot, directory),
            None => self.inode(directory).children().map(|children| children.iter().collect()).unwrap_or_default(),
        }
    }

    fn resolve_directory(&self, caller: &Caller, path: &str, purpose: Purpose) -> Result<(Trail, Slot), Error> {
        let missing = |path| Error::DirectoryMissing { path };
        let (trail, slot) = self.resolve_existing(caller, path, purpose, missing)?;
        if !self.inode(slot).is_directory() {
            return Err(Error::QuotaOnFile { path: trail.path() });
        }
        Ok((trail, slot))
    }

    /// Resolves a path to a directory that may have snapshots.
    ///
    /// Errors: `DirectoryMissing`, `QuotaOnFile`, `NotSnapshottable`.
    pub fn resolve_snapshottable(&self, caller: &Caller, path: &str, purpose: Purpose) -> Result<(Trail, Slot), Error> {
        let (trail, slot) = self.resolve_directory(caller, path, purpose)?;
        self.check_snapshottable(&trail, slot)?;
        Ok((trail, slot))
    }

    fn check_snapshottable(&self, trail: &Trail, slot: Slot) -> Result<(), Error> {
        if !self.inode(slot).is_directory() {
            return Err(Error::QuotaOnFile { path: trail.path() });
        }
        if trail.snapshot.is_some() || !self.is_snapshottable(slot) {
            return Err(Error::NotSnapshottable { path: trail.path() });
        }
        Ok(())
    }

    /// Allows snapshots of a directory.
    ///
    /// Errors: `SuperuserRequired`, `NestedBelow`, `NestedAbove`.
    pub fn allow_snapshots(&mut self, caller: &Caller, path: &str) -> Result<(), Error> {
        let (trail, slot) = self.resolve_directory(caller, path, Purpose::Write)?;
        let own = trail.path();
        for other in &self.timeline.snapshottable {
            let Some(other) = self.slot(*other).filter(|other| *other != slot) else { continue };
            let other = self.path_of(other);
            if is_below(&other, &own) {
                return Err(Error::NestedBelow { path: path.into(), other });
            }
            if is_below(&own, &other) {
                return Err(Error::NestedAbove { path: path.into(), other });
            }
        }
        let id = self.inode(slot).id();
        self.inode_mut(slot).history_mut().snapshots.get_or_insert_default();
        self.timeline.snapshottable.insert(id);
        Ok(())
    }

    /// Errors: `HasSnapshots`.
    pub fn disallow_snapshots(&mut self, caller: &Caller, path: &str) -> Result<(), Error> {
        let (_, slot) = self.resolve_directory(caller, path, Purpose::Write)?;
        match self.inode(slot).snapshots() {
            None => return Ok(()),
            Some([]) => {}
            Some(_) => return Err(Error::HasSnapshots { path: path.into() }),
        }
        let inode = self.inode_mut(slot);
        let id = inode.id();
        inode.history_mut().snapshots = None;
        inode.drop_empty_features();
        self.timeline.snapshottable.remove(&id);
        Ok(())
    }

    /// Allows only the owner and the superuser, if permissions are checked. Changing the mode or owner always requires
    /// ownership.
    fn check_snapshot_owner(&self, caller: &Caller, trail: &Trail) -> Result<(), Error> {
        match self.limits.permissions_enabled {
            true => self.check_owner(caller, trail),
            false => Ok(()),
        }
    }

    fn check_snapshot_name(&self, name: &str, trail: &Trail) -> Result<(), Error> {
        if name.contains('/') {
            return Err(Error::SnapshotNameSlash);
        }
        // Here no name is directly below the root: `.snapshot` comes first.
        self.check_name(trail, trail.names.len().max(1), name.as_bytes())
    }

    /// Creates a snapshot and returns its path. Nothing is copied.
    ///
    /// Errors: `NotOwner`, `NotSnapshottable`, `SnapshotInvalidName`, `SnapshotExists`, `SnapshotQuota`.
    pub fn create_snapshot(&mut self, caller: &Caller, path: &str, name: &str, now_ms: u64) -> Result<String, Error> {
        let missing = |path| Error::DirectoryMissing { path };
        let (trail, slot) = self.resolve_existing(caller, path, Purpose::Write, missing)?;
        self.check_snapshot_owner(caller, &trail)?;
        if matches!(name, "." | "..") || name.contains([':', '/']) {
            return Err(Error::SnapshotInvalidName { name: name.into() });
        }
        self.check_snapshot_name(name, &trail)?;
        if !self.inode(slot).is_directory() {
            return Err(Error::QuotaOnFile { path: trail.path() });
        }
        if !self.is_snapshottable(slot) {
            return Err(Error::NotSnapshottable { path: trail.path() });
        }
        let Some(snapshots) = self.inode(slot).snapshots() else {
            return Err(Error::SnapshotQuota { count: 0, quota: 0 });
        };
        let limits = &self.limits;
        if self.counters.last_snapshot >= SNAPSHOT_ID_MAX {
            return Err(Error::SnapshotIds { limit: limits.snapshots_max });
        }
        let (count, total) = (snapshots.len(), self.timeline.roots.len());
        if total >= limits.snapshots_total_max {
            return Err(Error::SnapshotLimit { count: total, of: "file system", limit: limits.snapshots_total_max });
        }
        if count >= SNAPSHOT_QUOTA {
            return Err(Error::SnapshotQuota { count, quota: SNAPSHOT_QUOTA });
        }
        if count >= limits.snapshots_max {
            return Err(Error::SnapshotLimit { count, of: "per directory", limit: limits.snapshots_max });
        }
        let at = match snapshots.binary_search_by(|other| compare_names(other.name.as_bytes(), name.as_bytes())) {
            Ok(_) => return Err(Error::SnapshotNameTaken { name: name.into() }),
            Err(at) => at,
        };
        // The directory's modification time is part of the snapshot's state.
        self.inode_mut(slot).set_modification_time_ms(now_ms);
        self.counters.last_snapshot += 1;
        self.counters_changed = true;
        let id = self.counters.last_snapshot;
        let snapshot = Snapshot { id, name: name.into(), modification_time_ms: now_ms };
        self.inodes.get_mut(slot).history_mut().snapshots.get_or_insert_default().insert(at, snapshot);
        self.timeline.roots.insert(id, slot);
        self.timeline.snapshots_put.push(id);
        Ok(super::join(&super::join(&trail.path(), b".snapshot"), name.as_bytes()))
    }

    fn find_snapshot(&self, slot: Slot, name: &str) -> Option<usize> {
        self.inode(slot).snapshots()?.iter().position(|snapshot| snapshot.name == name)
    }

    pub fn rename_snapshot(
        &mut self,
        caller: &Caller,
        path: &str,
        old: &str,
        new: &str,
        now_ms: u64,
    ) -> Result<(), Error> {
        let missing = |path| Error::DirectoryMissing { path };
        let (trail, slot) = self.resolve_existing(caller, path, Purpose::Write, missing)?;
        self.check_snapshot_owner(caller, &trail)?;
        self.check_snapshot_name(new, &trail)?;
        self.check_snapshottable(&trail, slot)?;
        let Some(at) = self.find_snapshot(slot, old) else {
            return Err(Error::SnapshotToRenameMissing { name: old.into(), path: path.into() });
        };
        if old == new {
            return Ok(());
        }
        if self.find_snapshot(slot, new).is_some() {
            return Err(Error::SnapshotExists { name: new.into(), path: path.into() });
        }
        let snapshots = self.inodes.get_mut(slot).history_mut().snapshots.get_or_insert_default();
        (snapshots[at].name, snapshots[at].modification_time_ms) = (new.into(), now_ms);
        let id = snapshots[at].id;
        snapshots.sort_by(|a, b| compare_names(a.name.as_bytes(), b.name.as_bytes()));
        self.timeline.snapshots_put.push(id);
        Ok(())
    }

    /// Deletes a snapshot and everything that only it had.
    pub fn delete_snapshot(&mut self, caller: &Caller, path: &str, name: &str, now_ms: u64) -> Result<Removed, Error> {
        let missing = |path| Error::DirectoryMissing { path };
        let (trail, slot) = self.resolve_existing(caller, path, Purpose::Write, missing)?;
        self.check_snapshot_owner(caller, &trail)?;
        self.check_snapshottable(&trail, slot)?;
        let Some(at) = self.find_snapshot(slot, name) else {
            return Err(Error::SnapshotToDeleteMissing { name: name.into(), path: trail.path() });
        };
        self.inode_mut(slot).set_modification_time_ms(now_ms);
        let snapshot = self.inodes.get_mut(slot).history_mut().snapshots.get_or_insert_default().remove(at);
        self.timeline.roots.remove(&snapshot.id);
        self.timeline.snapshots_removed.push(snapshot.id);
        self.settle();
        Ok(self.drop_versions_of(snapshot.id))
    }

    /// Returns the snapshots of a directory, ordered by name.
    pub fn list_snapshots(&self, caller: &Caller, path: &str) -> Result<(Trail, Slot, &[Snapshot]), Error> {
        let (trail, slot) = self.resolve_snapshottable(caller, path, Purpose::Read)?;
        self.check(caller, &trail, super::Need { target: Some(hearth_types::Access::READ), ..Default::default() })?;
        Ok((trail, slot, self.inode(slot).snapshots().unwrap_or_default()))
    }

    /// Returns the directories that may have snapshots, ordered by path. A superuser gets all of them, other callers
    /// only their own, even if permissions are off.
    pub fn snapshottable_directories(&self, caller: &Caller) -> Vec<Snapshottable> {
        let mut found = self.every_snapshottable_directory();
        if !caller.superuser {
            found.retain(|directory| **self.names.text(self.inode(directory.slot).owner()) == *caller.user);
        }
        found
    }

    /// Returns all directories that may have snapshots, ordered by path.
    pub fn every_snapshottable_directory(&self) -> Vec<Snapshottable> {
        let mut found: Vec<(String, Snapshottable)> = Vec::new();
        for slot in self.timeline.snapshottable.iter().filter_map(|id| self.slot(*id)) {
            let inode = self.inode(slot);
            let parent_path = if slot == self.root { String::new() } else { self.path_of(inode.parent) };
            let snapshots = inode.snapshots().map_or(0, <[Snapshot]>::len);
            found.push((self.path_of(slot), Snapshottable { slot, parent_path, snapshots }));
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.into_iter().map(|(_, directory)| directory).collect()
    }

    /// Refuses to remove or move a tree that contains snapshots. Returns whether it contains a directory that may have
    /// some.
    pub(super) fn check_no_snapshots(&self, top: Slot) -> Result<bool, Error> {
        let mut any = false;
        for id in &self.timeline.snapshottable {
            let Some(slot) = self.slot(*id) else { continue };
            if !self.is_at_or_below(slot, top) {
                continue;
            }
            if self.inode(slot).snapshots().is_some_and(|snapshots| !snapshots.is_empty()) {
                return Err(Error::HasSnapshotsBelow { path: self.path_of(slot) });
            }
            any = true;
        }
        Ok(any)
    }

    fn is_at_or_below(&self, slot: Slot, top: Slot) -> bool {
        let mut at = slot;
        while at != top {
            if at == self.root {
                return false;
            }
            at = self.inode(at).parent;
        }
        true
    }

    /// Refuses to move snapshottable directories below another snapshottable directory.
    ///
    /// `moves` says whether the moved tree contains such directories.
    pub(super) fn check_nested(&self, moves: bool, source: &Trail, into: Slot) -> Result<(), Error> {
        let above = self.timeline.snapshottable.iter().filter_map(|id| self.slot(*id));
        if moves && above.into_iter().any(|slot| self.is_at_or_below(into, slot)) {
            return Err(Error::NestedByRename { source_path: source.path(), destination: self.path_of(into) });
        }
        Ok(())
    }

    /// Returns the nearest snapshottable directory at or above `slot`.
    pub fn snapshottable_above(&self, slot: Slot) -> Option<Slot> {
        let mut at = slot;
        loop {
            if self.inode(at).snapshots().is_some() {
                return Some(at);
            }
            if at == self.root {
                return None;
            }
            at = self.inode(at).parent;
        }
    }

    /// Returns the number of a snapshot by name. An empty name means the current state.
    pub fn snapshot_named(&self, root: Slot, name: &str) -> Result<Option<SnapshotId>, Error> {
        if name.is_empty() {
            return Ok(None);
        }
        match self.find_snapshot(root, name) {
            Some(at) => Ok(self.inode(root).snapshots().map(|snapshots| SnapshotId(snapshots[at].id))),
            None => Err(Error::SnapshotMissing { path: self.path_of(root), name: name.into() }),
        }
    }

    /// Returns the number of snapshots and the number of directories that may have some.
    pub fn snapshot_counts(&self) -> (usize, usize) {
        (self.timeline.roots.len(), self.timeline.snapshottable.len())
    }

    /// Returns the id by which later calls can refer to an inode of an answer.
    pub fn id_of(&self, slot: Slot) -> InodeId {
        self.inode(slot).id()
    }
}
