//! Differences between two snapshots of a directory, or between a snapshot and the current state.
//!
//! The walk follows the earlier tree and compares the entries of each directory in both states by name and inode id. An
//! inode that left its place and is elsewhere below the compared directory in the later tree was renamed.
//!
//! The walk proceeds in report order, breadth first, and only as far as results are requested. Differences are returned
//! in pages, and each page begins where the last one ended. Entries before that place are not visited, with one
//! exception. If a page begins in the middle of a level and continues to the next level, the directories of the current
//! level are located again from the top, without any comparison. So all pages together walk the tree about as many
//! times as it is deep, not once for each page.

use std::collections::HashMap;

use super::history::SnapshotId;
use super::inode::{InodeId, Slot};
use super::{Inode, Name, Namespace, compare_names};

/// Directory entries that are visited as one step; a page may end within them. Small in tests, where directories are
/// small.
const ENTRIES_AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };

/// Path below the compared directory, one name per element.
pub type RelativePath = Vec<Name>;

/// A directory entry that only one of the two states has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub id: InodeId,
    pub name: Name,
    /// For an entry of the earlier state: its path in the later state, below the compared directory.
    pub renamed_to: Option<RelativePath>,
}

/// A file or directory that both states have and that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub id: InodeId,
    /// Path in the earlier state.
    pub path: RelativePath,
    pub is_directory: bool,
    /// Entries only in the later state, by name.
    pub created: Vec<Changed>,
    /// Entries only in the earlier state, by name.
    pub deleted: Vec<Changed>,
}

/// Lazy iterator of the differences, in the order of [`compare_paths`].
pub struct Differences<'a> {
    namespace: &'a Namespace,
    /// The compared directory.
    top: Slot,
    earlier: SnapshotId,
    /// `None` for the current state.
    later: Option<SnapshotId>,
    /// Depth of the level that is being compared.
    depth: usize,
    /// Pending steps; the next one is last.
    waiting: Vec<Step>,
    /// Directories, in their earlier states, where the walk continues when no step is pending.
    above: std::vec::IntoIter<Slot>,
    /// Directories that were compared at this depth: the parents of the next level. `None` if the walk began in the
    /// middle of the level.
    level: Option<Vec<Slot>>,
}

/// An inode that both trees have, at its place in the earlier tree.
struct ComparedNode {
    /// Earlier state.
    state: Slot,
    path: RelativePath,
}

enum Step {
    Compare(ComparedNode),
    /// Finds the inodes to compare among a directory's entries after a name.
    Enter(ComparedNode, Option<Name>),
}

impl Namespace {
    /// Returns the differences below the directory `scope`, starting with the one at the path `start`.
    ///
    /// `later` is `None` for the current state.
    pub fn differences(
        &self,
        scope: Slot,
        earlier: SnapshotId,
        later: Option<SnapshotId>,
        start: &[Name],
    ) -> Differences<'_> {
        let mut found = Differences {
            namespace: self,
            top: self.main(scope),
            earlier,
            later,
            depth: start.len(),
            waiting: Vec::new(),
            above: Vec::new().into_iter(),
            level: None,
        };
        found.go_to(start);
        found
    }

    /// Returns the state of an inode in a snapshot or now. `None` if it does not exist there.
    fn state_at(&self, snapshot: Option<SnapshotId>, main: Slot) -> Option<Slot> {
        match snapshot {
            Some(snapshot) => self.state_in(snapshot, main),
            None => Some(main).filter(|main| !self.inode(*main).is_gone()),
        }
    }

    /// Returns the path of an inode below `top`, in a snapshot or now.
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

impl Differences<'_> {
    /// Starts at the inode at a path, or where it would be.
    fn go_to(&mut self, start: &[Name]) {
        let top = self.namespace.state_in(self.earlier, self.top);
        let mut at = top.map(|state| ComparedNode { state, path: Vec::new() });
        for name in start {
            let Some(directory) = at else { return };
            let child = self.namespace.child_in(self.earlier, directory.state, name);
            at = child.and_then(|child| self.place(&directory, child));
            self.waiting.push(Step::Enter(directory, Some(name.clone())));
        }
        self.waiting.extend(at.map(Step::Compare));
        if start.is_empty() {
            self.level = Some(Vec::new());
        }
    }

    /// Returns a directory entry that both trees have. `None` if the later tree does not have it below the compared
    /// directory.
    ///
    /// `state` is its earlier state.
    fn place(&self, directory: &ComparedNode, state: Slot) -> Option<ComparedNode> {
        let namespace = self.namespace;
        let (then, main) = (namespace.inode(state), namespace.main(state));
        let now = namespace.inode(namespace.state_at(self.later, main)?);
        let stays = now.parent == namespace.main(directory.state) && now.name == then.name;
        if !stays {
            namespace.path_below(self.top, main, self.later)?;
        }
        let mut path = directory.path.clone();
        path.push(then.name.clone());
        Some(ComparedNode { state, path })
    }

    fn enter(&mut self, directory: ComparedNode, behind: Option<Name>) {
        let namespace = self.namespace;
        let behind = behind.as_deref().unwrap_or_default();
        let states = namespace.children_after(self.earlier, directory.state, behind);
        let states: Vec<Slot> = states.take(ENTRIES_AT_ONCE).collect();
        let next = states.get(ENTRIES_AT_ONCE - 1).map(|last| namespace.inode(*last).name.clone());
        let are_compared = directory.path.len() + 1 == self.depth;
        let mut places = Vec::new();
        for state in states {
            if are_compared || namespace.inode(state).is_directory() {
                places.extend(self.place(&directory, state));
            }
        }
        if next.is_some() {
            self.waiting.push(Step::Enter(directory, next));
        }
        self.waiting.extend(places.into_iter().rev().map(|place| match are_compared {
            true => Step::Compare(place),
            false => Step::Enter(place, None),
        }));
    }

    /// Enters the next directory or the next level. `None` if no deeper level is left.
    fn go_on(&mut self) -> Option<()> {
        let namespace = self.namespace;
        if let Some(state) = self.above.next() {
            let path = namespace.path_below(self.top, namespace.main(state), Some(self.earlier));
            let path = path.expect("the directory was compared before");
            self.waiting.push(Step::Enter(ComparedNode { state, path }, None));
            return Some(());
        }
        let directories = match self.level.replace(Vec::new()) {
            Some(directories) => directories,
            None => namespace.state_in(self.earlier, self.top).into_iter().collect(),
        };
        if directories.is_empty() {
            return None;
        }
        self.depth += 1;
        self.above = directories.into_iter();
        Some(())
    }

    fn compare(&self, place: &ComparedNode) -> Option<Difference> {
        let namespace = self.namespace;
        let then = namespace.inode(place.state);
        let now = namespace.state_at(self.later, namespace.main(place.state));
        if now == Some(place.state) {
            // Any change of its entries changes the directory, so the entries are equal, too.
            return None;
        }
        let mut difference = Difference {
            id: then.id(),
            path: place.path.clone(),
            is_directory: then.is_directory(),
            created: Vec::new(),
            deleted: Vec::new(),
        };
        let differs = now.is_some_and(|now| {
            let now = namespace.inode(now);
            attributes_differ(then, now) || file_length(then) != file_length(now)
        });
        if !then.is_directory() {
            return differs.then_some(difference);
        }
        let then_children = namespace.children_in(self.earlier, place.state);
        let now_children = now.map(|now| namespace.children_at(self.later, now)).unwrap_or_default();
        let entries = |children: &[Slot]| -> HashMap<Name, InodeId> {
            children.iter().map(|slot| (namespace.inode(*slot).name.clone(), namespace.inode(*slot).id())).collect()
        };
        let (then_entries, now_entries) = (entries(&then_children), entries(&now_children));
        for slot in now_children {
            #[cfg(test)]
            super::visited_inodes::count();
            let child = namespace.inode(slot);
            if then_entries.get(&child.name) != Some(&child.id()) {
                difference.created.push(Changed { id: child.id(), name: child.name.clone(), renamed_to: None });
            }
        }
        for slot in then_children {
            let child = namespace.inode(slot);
            if now_entries.get(&child.name) != Some(&child.id()) {
                let renamed_to = namespace.path_below(self.top, namespace.main(slot), self.later);
                difference.deleted.push(Changed { id: child.id(), name: child.name.clone(), renamed_to });
            }
        }
        let has_changed = differs || !difference.created.is_empty() || !difference.deleted.is_empty();
        has_changed.then_some(difference)
    }
}

impl Iterator for Differences<'_> {
    type Item = Difference;

    fn next(&mut self) -> Option<Difference> {
        loop {
            match self.waiting.pop() {
                None => self.go_on()?,
                Some(Step::Enter(directory, behind)) => self.enter(directory, behind),
                Some(Step::Compare(place)) => {
                    let difference = self.compare(&place);
                    if let Some(level) = &mut self.level
                        && self.namespace.inode(place.state).is_directory()
                    {
                        level.push(place.state);
                    }
                    if difference.is_some() {
                        return difference;
                    }
                }
            }
        }
    }
}

fn file_length(inode: &Inode) -> u64 {
    inode.as_file().map_or(0, super::FilePart::length)
}

/// Compares the attributes that Apache's NameNode compares. Times are not among them.
fn attributes_differ(a: &Inode, b: &Inode) -> bool {
    let shape = |inode: &Inode| (inode.is_directory(), inode.replication(), inode.block_size());
    let limits = |inode: &Inode| inode.quota().map(|quota| quota.limits().collect::<Vec<_>>());
    (a.owner(), a.group(), a.permission(), a.storage_policy())
        != (b.owner(), b.group(), b.permission(), b.storage_policy())
        || shape(a) != shape(b)
        || limits(a) != limits(b)
        || a.acl() != b.acl()
        || a.xattrs() != b.xattrs()
}

/// Orders paths as in a report: by depth, then by names.
pub fn compare_paths(a: &RelativePath, b: &RelativePath) -> std::cmp::Ordering {
    let names = || a.iter().zip(b).map(|(a, b)| compare_names(a, b)).find(|order| order.is_ne());
    a.len().cmp(&b.len()).then_with(|| names().unwrap_or(std::cmp::Ordering::Equal))
}
