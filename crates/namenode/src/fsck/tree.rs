//! The walk over a tree: parents first, names in order, one page of a directory at a time. The pending items form a
//! stack, to which each level of the tree adds at most one page. The lock may be released between two entries. A
//! directory is then found again by its path, like in a client's listing with Apache; an entry is examined only where
//! it was found.

use std::sync::Arc;

use hearth_types::Access;
use hearth_wire::rpc::exceptions;

use super::{BATCH, FoundFile, Fsck, Outcome, PART_BYTES};
use crate::State;
use crate::error::Error;
use crate::namespace::{InodeId, Namespace, Need, Purpose, Slot, SnapshotId, compare_names, join};

/// Number of entries of a directory that are listed at a time.
const PAGE: usize = 1_000;

/// Pending item of the walk.
pub(super) enum WalkItem {
    /// A current file or directory, found in the directory with that path.
    Now { inode: InodeId, within: Arc<str> },
    /// A file or directory in a snapshot.
    InSnapshot { snapshot: SnapshotId, inode: InodeId, within: Arc<str> },
    /// A directory in a snapshot, under the snapshot's name.
    SnapshotTop { path: Arc<str> },
    /// The `.snapshot` of a directory.
    SnapshotList { path: Arc<str> },
    /// A directory whose snapshots have been examined.
    Directory { path: Arc<str> },
    /// The entries of a directory whose names come after this one; all, if it is empty.
    Rest { path: Arc<str>, after: Vec<u8> },
    /// The same for snapshots. `path`: that of the `.snapshot`.
    RestOfSnapshots { path: Arc<str>, after: Vec<u8> },
}

/// Returns the path of the parent directory; the root is its own parent.
fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => &path[..at],
    }
}

impl Fsck {
    /// Begins at the requested path. Returns false if it does not exist.
    pub(super) fn enter(&mut self) -> Result<bool, Box<Error>> {
        let namenode = self.namenode.clone();
        let state = namenode.read();
        let namespace = &state.namespace;
        let trail = namespace.resolve(&self.caller, &self.request.path, Purpose::Read)?;
        let path: Arc<str> = trail.path().into();
        if trail.is_snapshot_list {
            self.pending.push(WalkItem::SnapshotList { path });
            return Ok(true);
        }
        let Some(top) = trail.target() else { return Ok(false) };
        let (inode, within) = (namespace.id_of(top), parent_of(&path).into());
        self.pending.push(match trail.snapshot {
            Some(_) if namespace.inode(top).is_directory() => WalkItem::SnapshotTop { path },
            Some(snapshot) => WalkItem::InSnapshot { snapshot, inode, within },
            None => WalkItem::Now { inode, within },
        });
        Ok(true)
    }

    /// Examines the next entries: as many as the lock may be held for, or until an entry needs an action, or a part of
    /// the report is full.
    pub(super) fn continue_walk(&mut self) -> Result<Outcome, Box<Error>> {
        let namenode = self.namenode.clone();
        let state = namenode.read();
        let mut looked_at = 0;
        while looked_at < BATCH && self.out.len() < PART_BYTES {
            let Some(entry) = self.pending.pop() else {
                drop(state);
                let mis_replicated = std::mem::take(&mut self.mis_replicated);
                return Ok(if mis_replicated.is_empty() { self.finish() } else { Outcome::Replicate(mis_replicated) });
            };
            looked_at += self.look_at(&state, entry)?;
            if let Some(to_repair) = self.to_repair.take() {
                return Ok(Outcome::Repair(to_repair));
            }
        }
        let mis_replicated = std::mem::take(&mut self.mis_replicated);
        Ok(if mis_replicated.is_empty() { Outcome::Continue } else { Outcome::Replicate(mis_replicated) })
    }

    /// Examines one item. Returns the work done: an entry or a block counts as one.
    fn look_at(&mut self, state: &State, entry: WalkItem) -> Result<usize, Box<Error>> {
        let namespace = &state.namespace;
        match entry {
            WalkItem::Now { inode, within } => {
                let found = namespace.slot(inode).map(|slot| (slot, namespace.path_of(slot)));
                // A moved entry is not here any more, wherever it is now.
                let Some((slot, path)) = found.filter(|(_, path)| parent_of(path) == &*within) else { return Ok(1) };
                self.mark_progress();
                if !namespace.inode(slot).is_directory() {
                    let found = FoundFile { path, inode: Some(inode) };
                    return Ok(self.look_at_readable(state, slot, found));
                }
                self.pending.push(WalkItem::Directory { path: path.as_str().into() });
                // A directory's snapshots come before it, as with Apache's NameNode.
                if self.request.include_snapshots && namespace.inode(slot).snapshots().is_some() {
                    self.pending.push(WalkItem::SnapshotList { path: join(&path, b".snapshot").into() });
                }
            }
            WalkItem::InSnapshot { snapshot, inode, within } => {
                let Some(slot) = namespace.inode_in(snapshot, inode) else { return Ok(1) };
                self.mark_progress();
                let path = join(&within, &namespace.inode(slot).name);
                if !namespace.inode(slot).is_directory() {
                    return Ok(self.look_at_readable(state, slot, FoundFile { path, inode: None }));
                }
                self.pending.push(WalkItem::Directory { path: path.into() });
            }
            WalkItem::SnapshotTop { path } => {
                self.mark_progress();
                self.pending.push(WalkItem::Directory { path });
            }
            WalkItem::SnapshotList { path } => {
                self.mark_progress();
                self.look_at_directory(&path);
                self.pending.push(WalkItem::RestOfSnapshots { path, after: Vec::new() });
            }
            WalkItem::Directory { path } => {
                self.look_at_directory(&path);
                self.pending.push(WalkItem::Rest { path, after: Vec::new() });
            }
            WalkItem::Rest { path, after } => return self.list(namespace, path, &after),
            WalkItem::RestOfSnapshots { path, after } => return self.list_snapshots(namespace, &path, &after),
        }
        Ok(1)
    }

    fn look_at_directory(&mut self, path: &str) {
        self.summary.directories += 1;
        if self.request.files {
            self.write(format_args!("{path} <dir>\n"));
        }
    }

    /// Examines a file that the caller may read, and skips others.
    fn look_at_readable(&mut self, state: &State, slot: Slot, found: FoundFile) -> usize {
        match self.check_readable(&state.namespace, slot, &found.path) {
            Ok(()) => self.look_at_file(state, slot, found),
            Err(refused) => {
                self.skip_unreadable(&found.path, &refused);
                1
            }
        }
    }

    fn check_readable(&self, namespace: &Namespace, slot: Slot, path: &str) -> Result<(), Error> {
        if self.caller.superuser {
            return namespace.check_readable_by_superuser(&self.caller, slot);
        }
        let trail = namespace.resolve(&self.caller, path, Purpose::Read)?;
        namespace.check(&self.caller, &trail, Need { target: Some(Access::READ), ..Need::default() })
    }

    /// Adds a page of a directory to the pending items, and the rest behind it. Skips directories that the caller may
    /// not list.
    fn list(&mut self, namespace: &Namespace, path: Arc<str>, after: &[u8]) -> Result<usize, Box<Error>> {
        let page = match namespace.list(&self.caller, &path, after, PAGE, |_| 0) {
            Err(refused) if refused.class() == exceptions::ACCESS_CONTROL => {
                self.skip_unreadable(&path, &refused);
                return Ok(1);
            }
            page => page?,
        };
        // It was removed since, or a file has taken its place.
        let Some(page) = page.filter(|page| !page.is_file) else { return Ok(1) };
        let snapshot = match page.in_snapshot {
            true => namespace.resolve(&self.caller, &path, Purpose::Read)?.snapshot,
            false => None,
        };
        if page.remaining > 0
            && let Some(last) = page.entries.last()
        {
            self.pending.push(WalkItem::Rest { path: path.clone(), after: namespace.inode(*last).name.to_vec() });
        }
        let entry = |slot: &Slot| {
            let (inode, within) = (namespace.id_of(*slot), path.clone());
            match snapshot {
                Some(snapshot) => WalkItem::InSnapshot { snapshot, inode, within },
                None => WalkItem::Now { inode, within },
            }
        };
        self.pending.extend(page.entries.iter().rev().map(entry));
        Ok(1 + page.entries.len())
    }

    /// Does the same for a directory's snapshots.
    fn list_snapshots(&mut self, namespace: &Namespace, path: &Arc<str>, after: &[u8]) -> Result<usize, Box<Error>> {
        let trail = namespace.resolve(&self.caller, path, Purpose::Read)?;
        if !trail.is_snapshot_list {
            return Ok(1);
        }
        let all = namespace.inode(trail.ancestor()).snapshots().unwrap_or_default();
        let is_before = |name: &str| !after.is_empty() && compare_names(name.as_bytes(), after).is_le();
        let rest = &all[all.partition_point(|snapshot| is_before(&snapshot.name))..];
        let page = &rest[..rest.len().min(PAGE)];
        if page.len() < rest.len()
            && let Some(last) = page.last()
        {
            self.pending.push(WalkItem::RestOfSnapshots { path: path.clone(), after: last.name.as_bytes().to_vec() });
        }
        let top = |name: &str| WalkItem::SnapshotTop { path: join(path, name.as_bytes()).into() };
        self.pending.extend(page.iter().rev().map(|snapshot| top(&snapshot.name)));
        Ok(1 + page.len())
    }
}
