use std::sync::Arc;

use hearth_types::Access;

use super::Fsck;
use crate::State;
use crate::error::Error;
use crate::namespace::{Caller, InodeId, Namespace, Need, Purpose, Slot, SnapshotId, join};

/// What is to be looked at.
pub(super) enum Entry {
    Inode(InodeId),
    /// As a snapshot has it.
    InSnapshot {
        snapshot: SnapshotId,
        inode: InodeId,
        path: String,
    },
    /// The `.snapshot` of a directory.
    SnapshotList {
        path: String,
    },
}

/// Lists a tree, parents first, names in order.
struct Walk<'a> {
    namespace: &'a Namespace,
    caller: &'a Caller,
    include_snapshots: bool,
    found: Vec<Entry>,
}

impl Walk<'_> {
    fn now(&mut self, top: Slot) -> Result<(), Box<Error>> {
        let mut left = vec![top];
        while let Some(slot) = left.pop() {
            let inode = self.namespace.inode(slot);
            // A directory's snapshots come before it, as with Apache's NameNode.
            if self.include_snapshots && inode.snapshots().is_some() {
                self.snapshots_of(slot)?;
            }
            self.found.push(Entry::Inode(inode.id()));
            if let Some(children) = inode.children() {
                let names: Vec<_> = children.iter().collect();
                left.extend(names.into_iter().rev());
            }
        }
        Ok(())
    }

    /// What is below the `.snapshot` of a directory, itself included.
    fn snapshots_of(&mut self, root: Slot) -> Result<(), Box<Error>> {
        let list = join(&self.namespace.path_of(root), b".snapshot");
        self.found.push(Entry::SnapshotList { path: list.clone() });
        for snapshot in self.namespace.inode(root).snapshots().unwrap_or_default() {
            if let Some(top) = self.namespace.top_of(root, snapshot) {
                let path = join(&list, snapshot.name.as_bytes());
                readable(self.namespace, self.caller, &path)?;
                self.within(SnapshotId(snapshot.id), top, path);
            }
        }
        Ok(())
    }

    fn within(&mut self, snapshot: SnapshotId, top: Slot, path: String) {
        let mut left = vec![(top, Arc::<str>::from(""), path)];
        while let Some((slot, parent, name)) = left.pop() {
            let inode = self.namespace.inode(slot);
            let path = if parent.is_empty() { name } else { join(&parent, name.as_bytes()) };
            if inode.is_directory() {
                let own: Arc<str> = path.as_str().into();
                let children = self.namespace.children_in(snapshot, slot).into_iter().rev();
                let named = |child: Slot| String::from_utf8_lossy(&self.namespace.inode(child).name).into_owned();
                left.extend(children.map(|child| (child, own.clone(), named(child))));
            }
            self.found.push(Entry::InSnapshot { snapshot, inode: inode.id(), path });
        }
    }
}

impl Fsck<'_> {
    /// Everything below the path. `None`: there is no such path.
    pub(super) fn entries(&self) -> Result<Option<Vec<Entry>>, Box<Error>> {
        let state = self.namenode.read();
        let namespace = &state.namespace;
        let trail = namespace.resolve(self.caller, &self.request.path, Purpose::Read)?;
        let (caller, include_snapshots) = (self.caller, self.request.include_snapshots);
        let mut walk = Walk { namespace, caller, include_snapshots, found: Vec::new() };
        if trail.is_snapshot_list {
            walk.snapshots_of(trail.ancestor())?;
            return Ok(Some(walk.found));
        }
        let Some(top) = trail.target() else { return Ok(None) };
        readable(namespace, caller, &self.request.path)?;
        match trail.snapshot {
            Some(snapshot) => walk.within(snapshot, top, trail.path()),
            None => walk.now(top)?,
        }
        Ok(Some(walk.found))
    }

    pub(super) fn look_at(&mut self, state: &State, entry: &Entry) {
        match entry {
            Entry::Inode(inode) => {
                if let Some(slot) = state.namespace.slot(*inode) {
                    self.look_at_inode(state, slot, state.namespace.path_of(slot));
                }
            }
            Entry::InSnapshot { snapshot, inode, path } => {
                if let Some(slot) = state.namespace.inode_in(*snapshot, *inode) {
                    self.look_at_inode(state, slot, path.clone());
                }
            }
            Entry::SnapshotList { path } => self.look_at_directory(path),
        }
    }

    fn look_at_inode(&mut self, state: &State, slot: Slot, path: String) {
        match state.namespace.inode(slot).is_directory() {
            true => self.look_at_directory(&path),
            false => self.look_at_file(state, slot, &path),
        }
    }

    fn look_at_directory(&mut self, path: &str) {
        self.summary.directories += 1;
        if self.request.files {
            self.say(format_args!("{path} <dir>\n"));
        }
    }
}

/// Names and blocks are told only of directories that the caller could list.
fn readable(namespace: &Namespace, caller: &Caller, path: &str) -> Result<(), Error> {
    let trail = namespace.resolve(caller, path, Purpose::Read)?;
    namespace.check(caller, &trail, Need { subtree: Some(Access::READ_EXECUTE), ..Need::default() })
}
