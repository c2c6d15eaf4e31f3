//! Paths of an inode in the snapshots that have it.

use std::collections::HashMap;

use super::history::SnapshotId;
use super::inode::{InodeId, Slot};
use super::{Namespace, join};

/// Lookup of snapshot paths for many inodes in sequence. The namespace must not change in between.
pub struct SnapshotPaths<'a> {
    namespace: &'a Namespace,
    /// Directories that were looked up before.
    directories: HashMap<Slot, DirectoryPath<'a>>,
    looked_at: usize,
}

/// A directory that has snapshots.
struct DirectoryPath<'a> {
    /// Path of its `.snapshot`.
    path: String,
    /// Names of its snapshots by number. The directory itself has them ordered by name.
    names: HashMap<u32, &'a str>,
}

impl<'a> SnapshotPaths<'a> {
    pub fn new(namespace: &'a Namespace) -> Self {
        Self { namespace, directories: HashMap::new(), looked_at: 0 }
    }

    /// Returns how many snapshots were checked for all inodes so far.
    pub fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Returns the paths of an inode in the snapshots that have it, newest first, at most `limit`.
    pub fn of(&mut self, id: InodeId, limit: usize) -> Vec<String> {
        let namespace = self.namespace;
        let Some(main) = namespace.by_id.get(id.0).copied() else { return Vec::new() };
        let inode = namespace.inode(main);
        // A snapshot can have the inode only if it was made during one of the inode's states.
        let present = (!inode.is_gone()).then(|| (inode.since(), u32::MAX));
        let former = inode.history().into_iter().flat_map(|history| history.versions.iter().rev());
        let spans = present.into_iter().chain(former.map(|version| (version.from, version.until)));
        let mut paths = Vec::new();
        for (from, until) in spans.filter(|(from, until)| from < until) {
            for (snapshot, root) in namespace.timeline.roots.range(from + 1..=until).rev() {
                if paths.len() >= limit {
                    return paths;
                }
                self.looked_at += 1;
                paths.extend(self.path(SnapshotId(*snapshot), *root, main));
            }
        }
        paths
    }

    fn path(&mut self, snapshot: SnapshotId, root: Slot, main: Slot) -> Option<String> {
        let namespace = self.namespace;
        let mut names = Vec::new();
        let mut at = main;
        while at != root {
            if at == namespace.root {
                return None;
            }
            let state = namespace.inode(namespace.state_in(snapshot, at)?);
            names.push(&state.name);
            at = state.parent;
        }
        let directory = self.directories.entry(root).or_insert_with(|| DirectoryPath::new(namespace, root));
        let top = join(&directory.path, directory.names.get(&snapshot.0)?.as_bytes());
        Some(names.iter().rev().fold(top, |path, name| join(&path, name)))
    }
}

impl<'a> DirectoryPath<'a> {
    fn new(namespace: &'a Namespace, root: Slot) -> Self {
        let snapshots = namespace.inode(root).snapshots().unwrap_or_default();
        Self {
            path: join(&namespace.path_of(root), b".snapshot"),
            names: snapshots.iter().map(|snapshot| (snapshot.id, snapshot.name.as_str())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::FsPermission;

    use super::*;
    use crate::namespace::{Caller, Limits};

    #[test]
    fn snapshot_paths_skip_unrelated_snapshots() {
        let root = Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() };
        let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
        for path in ["/s", "/t"] {
            namespace.mkdirs(&root, path, FsPermission(0o755), true, 1).unwrap();
            namespace.allow_snapshots(&root, path).unwrap();
        }
        for number in 0..100 {
            namespace.create_snapshot(&root, "/t", &number.to_string(), 1).unwrap();
        }
        namespace.mkdirs(&root, "/s/d", FsPermission(0o755), true, 1).unwrap();
        let id = namespace.inode(namespace.lookup("/s/d").unwrap()).id();
        namespace.create_snapshot(&root, "/s", "one", 1).unwrap();
        namespace.rename(&root, "/s/d", "/s/e", false, false, 1).unwrap();
        namespace.create_snapshot(&root, "/s", "by another name", 1).unwrap();
        namespace.create_snapshot(&root, "/t", "of another", 1).unwrap();
        for is_gone in [false, true] {
            if is_gone {
                namespace.delete(&root, "/s/e", true, 2).unwrap();
                for number in 200..300 {
                    namespace.create_snapshot(&root, "/t", &number.to_string(), 1).unwrap();
                }
            }
            let mut paths = SnapshotPaths::new(&namespace);
            assert_eq!(paths.of(id, usize::MAX), ["/s/.snapshot/by another name/e", "/s/.snapshot/one/d"]);
            assert_eq!(paths.looked_at(), 3);
            assert_eq!(paths.of(id, 1), ["/s/.snapshot/by another name/e"]);
            assert!(paths.of(id, 0).is_empty() && paths.of(InodeId(99), 1).is_empty());
            assert_eq!(paths.looked_at(), 5);
        }
    }
}
