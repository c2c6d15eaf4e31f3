//! Paths: which may be created, and their parts.

use super::history::SnapshotId;
use super::inode::Slot;

/// Longest path that may be created, in UTF-16 units as Java counts them.
pub const PATH_LENGTH_MAX: usize = 8000;
/// Most components of a path that may be created.
pub const PATH_DEPTH_MAX: usize = 1000;

/// Names of most paths, at most.
pub(super) const DEPTH_USUAL: usize = 8;

/// The parts of a path between slashes; empty ones are skipped, `.` and `..` are names like others.
pub fn components(path: &str) -> impl Iterator<Item = &[u8]> {
    path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// Whether something may be created at `path`.
pub fn is_valid(path: &str) -> bool {
    if !path.starts_with('/') {
        return false;
    }
    // `..` may only follow a number: what is above the inode of that number.
    let by_inode = path.strip_prefix("/.reserved/.inodes/").is_some_and(|rest| rest.contains('/'));
    let mut parts = path[1..].split('/').peekable();
    std::iter::from_fn(|| parts.next().map(|part| (part, parts.peek().is_none()))).all(|(part, is_last)| match part {
        "." => false,
        ".." => by_inode,
        "" => is_last,
        part => !part.contains(':'),
    })
}

/// Whether `path` is short and shallow enough to be created.
pub fn is_within_limits(path: &str) -> bool {
    path.encode_utf16().count() <= PATH_LENGTH_MAX && components(path).count() <= PATH_DEPTH_MAX
}

/// `/.reserved` itself.
pub fn is_exactly_reserved(path: &str) -> bool {
    path == "/.reserved"
}

/// `/.reserved` or anything below it.
pub fn is_reserved(path: &str) -> bool {
    path == "/.reserved" || path.starts_with("/.reserved/")
}

/// Whether `path` names something by its number, or in the tree of raw bytes.
pub fn is_reserved_alias(path: &str) -> bool {
    path.starts_with("/.reserved/.inodes") || path.starts_with("/.reserved/raw")
}

/// Whether `path` lies below `ancestor` in the tree; both canonical.
pub fn is_below(path: &str, ancestor: &str) -> bool {
    ancestor == "/" && path != "/"
        || path.strip_prefix(ancestor).is_some_and(|rest| rest.starts_with('/') && rest.len() > 1)
}

/// The names of a path, and so its canonical text.
#[derive(Clone, Debug, Default)]
pub(super) struct Components {
    /// Each name behind a slash.
    text: String,
    /// Where each name ends in the text.
    ends: Vec<usize>,
}

impl Components {
    /// With room for the names of `path`.
    pub fn for_path(path: &str) -> Self {
        Self { text: String::with_capacity(path.len()), ends: Vec::with_capacity(DEPTH_USUAL) }
    }

    pub fn push(&mut self, name: &str) {
        self.text.push('/');
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name at `depth`, which is below `len`; the first one's is 0.
    pub fn name(&self, depth: usize) -> &str {
        let start = depth.checked_sub(1).map_or(0, |above| self.ends[above]);
        &self.text[start + 1..self.ends[depth]]
    }

    /// The same, as inodes have it.
    pub fn get(&self, depth: usize) -> &[u8] {
        self.name(depth).as_bytes()
    }

    /// The canonical text of the first `count`.
    pub fn text(&self, count: usize) -> &str {
        count.checked_sub(1).map_or("/", |last| &self.text[..self.ends[last]])
    }
}

/// A path walked through the tree: the inodes that exist from the root on, and the names of all components.
#[derive(Clone, Debug)]
pub struct Trail {
    /// The root first; as many of the components as exist.
    pub(super) existing: Vec<Slot>,
    /// All components, the last one's existing or not.
    pub(super) names: Components,
    /// The snapshot that the path leads into: what follows its name are states in it.
    pub snapshot: Option<SnapshotId>,
    /// The path ends with the `.snapshot` of a directory that can have snapshots. The parent exists, the target does not.
    pub is_snapshot_list: bool,
}

impl Trail {
    /// The inode that the whole path names, if it exists.
    pub fn target(&self) -> Option<Slot> {
        (self.existing.len() == self.names.len() + 1).then(|| self.existing[self.names.len()])
    }

    /// The directory that holds, or would hold, the target; `None` for the root or when it is missing.
    pub fn parent(&self) -> Option<Slot> {
        let depth = self.names.len();
        (depth > 0 && self.existing.len() >= depth).then(|| self.existing[depth - 1])
    }

    /// The nearest inode above the target that exists. The root's is the root.
    pub fn ancestor(&self) -> Slot {
        self.existing[(self.existing.len() - 1).min(self.names.len().saturating_sub(1))]
    }

    /// Goes on as if the target were not there: it was just removed.
    pub(super) fn forget_target(&mut self) {
        if self.target().is_some() && !self.is_root() {
            self.existing.pop();
        }
    }

    pub fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether the path is that of a snapshot itself.
    pub fn is_snapshot_top(&self) -> bool {
        self.snapshot.is_some() && self.names.len() >= 2 && self.names.get(self.names.len() - 2) == b".snapshot"
    }

    pub fn last_name(&self) -> &[u8] {
        self.names.len().checked_sub(1).map_or(&[], |last| self.names.get(last))
    }

    /// The canonical text of the first `count` components.
    pub fn prefix(&self, count: usize) -> String {
        self.names.text(count).into()
    }

    /// The canonical text of the path.
    pub fn path(&self) -> String {
        self.text().into()
    }

    /// As `path`.
    pub fn text(&self) -> &str {
        self.names.text(self.names.len())
    }

    /// The canonical text of the path without its last component.
    pub fn parent_path(&self) -> String {
        self.prefix(self.names.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_absolute_paths_may_be_created() {
        for good in ["/", "/a", "/a/b/", "/a b", "/.reserved/.inodes/16385/../x", "/é"] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "a", "a/b", "/a//b", "/a/./b", "/a/../b", "/a:b", "/.", "/..", "//"] {
            assert!(!is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn below_means_below() {
        assert!(is_below("/a/b", "/a"));
        assert!(is_below("/a", "/"));
        assert!(!is_below("/ab", "/a"));
        assert!(!is_below("/a", "/a"));
        assert!(!is_below("/", "/"));
    }

    #[test]
    fn the_limits_count_as_java_does() {
        assert!(is_within_limits(&format!("/{}", "x".repeat(7999))));
        assert!(!is_within_limits(&format!("/{}", "x".repeat(8000))));
        assert!(is_within_limits(&"/x".repeat(1000)));
        assert!(!is_within_limits(&"/x".repeat(1001)));
    }
}
