//! What is different between two snapshots of a directory, or between one and now.
//!
//! The earlier tree is walked; a directory's entries then and now are compared by name and inode number. An inode that left its
//! place and is elsewhere below the directory in the later tree was renamed.

use std::collections::HashMap;

use super::history::SnapshotId;
use super::inode::{InodeId, Slot};
use super::{Inode, Name, Namespace, compare_names};

/// A path below the compared directory, a name an element.
pub type RelativePath = Vec<Name>;

/// One entry of a directory that is in one of both states only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub id: InodeId,
    pub name: Name,
    /// Of an entry of the earlier state: where it is in the later one, below the compared directory.
    pub renamed_to: Option<RelativePath>,
}

/// A file or directory that both states have and that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub id: InodeId,
    /// Where it is in the earlier state.
    pub path: RelativePath,
    pub is_directory: bool,
    /// In the later state only, by name.
    pub created: Vec<Changed>,
    /// In the earlier state only, by name.
    pub deleted: Vec<Changed>,
}

impl Namespace {
    /// The differences below the directory `scope`, parents first.
    ///
    /// `later`: `None` for now.
    pub fn differences(&self, scope: Slot, earlier: SnapshotId, later: Option<SnapshotId>) -> Vec<Difference> {
        let mut found = Vec::new();
        let main = self.main(scope);
        let Some(state) = self.state_in(earlier, main) else { return found };
        let mut waiting: Vec<(Slot, RelativePath)> = vec![(state, Vec::new())];
        while let Some((state, path)) = waiting.pop() {
            let inode = self.inode(state);
            let main_here = self.main(state);
            let now = self.state_at(later, main_here);
            if !inode.is_directory() {
                if let Some(now) = now
                    && (file_length(inode) != file_length(self.inode(now)) || attributes_differ(inode, self.inode(now)))
                {
                    let (created, deleted) = (Vec::new(), Vec::new());
                    found.push(Difference { id: inode.id(), path, is_directory: false, created, deleted });
                }
                continue;
            }
            let then_children = self.children_in(earlier, state);
            let now_children = now.map(|now| self.children_at(later, now)).unwrap_or_default();
            let entries = |children: &[Slot]| -> HashMap<Name, InodeId> {
                children.iter().map(|slot| (self.inode(*slot).name.clone(), self.inode(*slot).id())).collect()
            };
            let (then_entries, now_entries) = (entries(&then_children), entries(&now_children));
            let mut created = Vec::new();
            for slot in now_children {
                let child = self.inode(slot);
                if then_entries.get(&child.name) != Some(&child.id()) {
                    created.push(Changed { id: child.id(), name: child.name.clone(), renamed_to: None });
                }
            }
            let mut deleted = Vec::new();
            let mut next = Vec::new();
            for slot in then_children {
                let child = self.inode(slot);
                let stays = now_entries.get(&child.name) == Some(&child.id());
                let renamed_to = if stays { None } else { self.path_below(main, self.main(slot), later) };
                if stays || renamed_to.is_some() {
                    let mut path = path.clone();
                    path.push(child.name.clone());
                    next.push((slot, path));
                }
                if !stays {
                    deleted.push(Changed { id: child.id(), name: child.name.clone(), renamed_to });
                }
            }
            let differs = now.is_some_and(|now| attributes_differ(inode, self.inode(now)));
            if differs || !created.is_empty() || !deleted.is_empty() {
                found.push(Difference { id: inode.id(), path, is_directory: true, created, deleted });
            }
            waiting.extend(next.into_iter().rev());
        }
        found
    }

    /// The state of an inode in a snapshot, or now; `None` where it is not there.
    fn state_at(&self, snapshot: Option<SnapshotId>, main: Slot) -> Option<Slot> {
        match snapshot {
            Some(snapshot) => self.state_in(snapshot, main),
            None => Some(main).filter(|main| !self.inode(*main).is_gone()),
        }
    }

    /// Where an inode is below `top`, in a snapshot or now.
    fn path_below(&self, top: Slot, main: Slot, snapshot: Option<SnapshotId>) -> Option<RelativePath> {
        let mut path = Vec::new();
        let mut at = main;
        while at != top {
            if at == self.root {
                return None;
            }
            let state = self.inode(self.state_at(snapshot, at)?);
            path.push(state.name.clone());
            at = state.parent;
        }
        path.reverse();
        Some(path)
    }
}

fn file_length(inode: &Inode) -> u64 {
    inode.as_file().map_or(0, super::FilePart::length)
}

/// What Apache's NameNode compares: not the times.
fn attributes_differ(a: &Inode, b: &Inode) -> bool {
    let shape = |inode: &Inode| (inode.is_directory(), inode.replication(), inode.block_size());
    (a.owner(), a.group(), a.permission(), a.storage_policy())
        != (b.owner(), b.group(), b.permission(), b.storage_policy())
        || shape(a) != shape(b)
        || a.acl() != b.acl()
        || a.xattrs() != b.xattrs()
}

/// The order of a report: by depth, then by names.
pub fn compare_paths(a: &RelativePath, b: &RelativePath) -> std::cmp::Ordering {
    let names = || a.iter().zip(b).map(|(a, b)| compare_names(a, b)).find(|order| order.is_ne());
    a.len().cmp(&b.len()).then_with(|| names().unwrap_or(std::cmp::Ordering::Equal))
}
