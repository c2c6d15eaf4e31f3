//! Paths: which ones may be created, and their components.

use super::history::SnapshotId;
use super::inode::Slot;

/// Maximum length of a path that may be created, in UTF-16 units as Java counts them.
pub const PATH_LENGTH_MAX: usize = 8000;
/// Maximum number of components of a path that may be created.
pub const PATH_DEPTH_MAX: usize = 1000;

/// Usual maximum number of components; used as initial capacity.
pub(super) const DEPTH_USUAL: usize = 8;

/// Iterates over the components of a path. Empty ones are skipped; `.` and `..` are ordinary names.
pub fn components(path: &str) -> impl Iterator<Item = &[u8]> {
    path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// Returns whether something may be created at `path`.
pub fn is_valid(path: &str) -> bool {
    if !path.starts_with('/') {
        return false;
    }
    // `..` may only follow an inode id: it means the parent of that inode.
    let by_inode = path.strip_prefix("/.reserved/.inodes/").is_some_and(|rest| rest.contains('/'));
    let mut parts = path[1..].split('/').peekable();
    std::iter::from_fn(|| parts.next().map(|part| (part, parts.peek().is_none()))).all(|(part, is_last)| match part {
        "." => false,
        ".." => by_inode,
        "" => is_last,
        part => !part.contains(':'),
    })
}

/// Returns whether `path` is short and shallow enough to be created.
pub fn is_within_limits(path: &str) -> bool {
    path.encode_utf16().count() <= PATH_LENGTH_MAX && components(path).count() <= PATH_DEPTH_MAX
}

/// Returns whether `path` is `/.reserved` itself.
pub fn is_exactly_reserved(path: &str) -> bool {
    path == "/.reserved"
}

/// Returns whether `path` is `/.reserved` or below it.
pub fn is_reserved(path: &str) -> bool {
    path == "/.reserved" || path.starts_with("/.reserved/")
}

/// Returns whether `path` refers to an inode by its id, or to the tree of raw bytes.
pub fn is_reserved_alias(path: &str) -> bool {
    path.starts_with("/.reserved/.inodes") || path.starts_with("/.reserved/raw")
}

/// Returns whether `path` is below `ancestor`. Both must be canonical.
pub fn is_below(path: &str, ancestor: &str) -> bool {
    ancestor == "/" && path != "/"
        || path.strip_prefix(ancestor).is_some_and(|rest| rest.starts_with('/') && rest.len() > 1)
}

/// Components of a path, from which its canonical text is taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Components {
    /// The text, with a slash before each name.
    text: String,
    /// End of each name in the text.
    ends: Vec<usize>,
}

impl Components {
    /// Creates an empty value with capacity for the components of `path`.
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

    /// Returns the name at `depth`, which must be less than `len`. The first name has depth 0.
    pub fn name(&self, depth: usize) -> &str {
        let start = depth.checked_sub(1).map_or(0, |above| self.ends[above]);
        &self.text[start + 1..self.ends[depth]]
    }

    /// Like [`Self::name`], as bytes, the type of inode names.
    pub fn get(&self, depth: usize) -> &[u8] {
        self.name(depth).as_bytes()
    }

    /// Returns the canonical text of the first `count` components.
    pub fn text(&self, count: usize) -> &str {
        count.checked_sub(1).map_or("/", |last| &self.text[..self.ends[last]])
    }
}

/// A path resolved in the tree: the existing inodes from the root on, and the names of all components.
#[derive(Clone, Debug)]
pub struct Trail {
    /// Existing inodes, starting with the root. It ends at the first missing component.
    pub(super) existing: Vec<Slot>,
    /// All components, whether or not the last one exists.
    pub(super) names: Components,
    /// Snapshot that the path leads into. The inodes after its name are states in it.
    pub snapshot: Option<SnapshotId>,
    /// True if the path ends with the `.snapshot` of a directory that can have snapshots. Then the parent exists, but
    /// the target does not.
    pub is_snapshot_list: bool,
}

impl Trail {
    /// Returns the inode that the whole path names, if it exists.
    pub fn target(&self) -> Option<Slot> {
        (self.existing.len() == self.names.len() + 1).then(|| self.existing[self.names.len()])
    }

    /// Returns the directory that contains, or would contain, the target. `None` for the root, or if that directory is
    /// missing.
    pub fn parent(&self) -> Option<Slot> {
        let depth = self.names.len();
        (depth > 0 && self.existing.len() >= depth).then(|| self.existing[depth - 1])
    }

    /// Returns the nearest existing ancestor of the target. For the root it is the root.
    pub fn ancestor(&self) -> Slot {
        self.existing[(self.existing.len() - 1).min(self.names.len().saturating_sub(1))]
    }

    /// Treats the target as missing, after it was removed.
    pub(super) fn forget_target(&mut self) {
        if self.target().is_some() && !self.is_root() {
            self.existing.pop();
        }
    }

    pub fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns whether the path is the top of a snapshot.
    pub fn is_snapshot_top(&self) -> bool {
        self.snapshot.is_some() && self.names.len() >= 2 && self.names.get(self.names.len() - 2) == b".snapshot"
    }

    pub fn last_name(&self) -> &[u8] {
        self.names.len().checked_sub(1).map_or(&[], |last| self.names.get(last))
    }

    /// Returns the canonical text of the first `count` components.
    pub fn prefix(&self, count: usize) -> String {
        self.names.text(count).into()
    }

    /// Returns the canonical text of the path.
    pub fn path(&self) -> String {
        self.text().into()
    }

    /// Like `path`, but borrowed.
    pub fn text(&self) -> &str {
        self.names.text(self.names.len())
    }

    /// Returns the canonical text of the path without its last component.
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
    fn is_below_compares_whole_components() {
        assert!(is_below("/a/b", "/a"));
        assert!(is_below("/a", "/"));
        assert!(!is_below("/ab", "/a"));
        assert!(!is_below("/a", "/a"));
        assert!(!is_below("/", "/"));
    }

    #[test]
    fn path_length_and_depth_are_limited() {
        assert!(is_within_limits(&format!("/{}", "x".repeat(7999))));
        assert!(!is_within_limits(&format!("/{}", "x".repeat(8000))));
        assert!(is_within_limits(&"/x".repeat(1000)));
        assert!(!is_within_limits(&"/x".repeat(1001)));
    }
}
