//! Report of the differences between two snapshots, made from the namenode's lists.
//!
//! The lists name changed directories, and new and deleted names by the number of their directory. A name that has gone
//! and come back elsewhere as a reference to the same inode was renamed. Source: Hadoop's SnapshotDiffReportGenerator.

use std::collections::HashMap;

use super::SnapshotDifference;

/// An entry of one of the namenode's lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Path below the snapshots' directory.
    pub path: String,
    /// Inode of the entry itself for modified directories, otherwise of its directory.
    pub directory: u64,
    /// The entry is a directory (in the modified list), or a reference to an inode that was renamed.
    pub is_reference: bool,
    /// New path of a renamed entry.
    pub target: Option<String>,
    pub inode: u64,
}

#[derive(Default)]
pub(super) struct Differences {
    pub modified: Vec<Entry>,
    pub created: Vec<Entry>,
    pub deleted: Vec<Entry>,
    /// The first state is the earlier one. Otherwise created and deleted swap their meaning.
    pub is_from_earlier: bool,
}

#[derive(Default)]
struct Rename {
    source: Option<String>,
    target: Option<String>,
}

/// Constructor of a difference.
type OfPath = fn(String) -> SnapshotDifference;

/// Entries of one directory.
#[derive(Default)]
struct Children<'a> {
    created: Vec<&'a Entry>,
    deleted: Vec<&'a Entry>,
}

impl Differences {
    /// Returns the differences in the order of Apache's report: by the path of the modified entries, each followed by
    /// its new and deleted entries.
    pub fn report(mut self) -> Vec<SnapshotDifference> {
        self.modified.sort_by(|one, other| by_path(&one.path, &other.path));
        let mut renames: HashMap<u64, Rename> = HashMap::new();
        let mut directories: HashMap<u64, Children<'_>> = HashMap::new();
        for entry in &self.created {
            directories.entry(entry.directory).or_default().created.push(entry);
            if entry.is_reference {
                let rename = renames.entry(entry.inode).or_default();
                if rename.target.is_some() {
                    rename.target = Some(entry.path.clone());
                }
            }
        }
        for entry in &self.deleted {
            directories.entry(entry.directory).or_default().deleted.push(entry);
            if entry.is_reference {
                let rename = renames.entry(entry.inode).or_default();
                rename.target = entry.target.clone();
                rename.source = Some(entry.path.clone());
            }
        }
        let rename_of = |entry: &Entry| match renames.get(&entry.inode) {
            Some(Rename { source: Some(source), target: Some(target) }) => Some((source.clone(), target.clone())),
            _ => None,
        };
        let (created, deleted) = (SnapshotDifference::Created, SnapshotDifference::Deleted);
        let (new, gone): (OfPath, OfPath) = if self.is_from_earlier { (created, deleted) } else { (deleted, created) };
        let mut report = Vec::new();
        for entry in &self.modified {
            report.push(SnapshotDifference::Modified(entry.path.clone()));
            let children = directories.get(&entry.directory).filter(|_| entry.is_reference);
            let Some(children) = children else { continue };
            let created = children.created.iter().filter(|entry| rename_of(entry).is_none());
            report.extend(created.map(|entry| new(entry.path.clone())));
            report.extend(children.deleted.iter().map(|entry| match rename_of(entry) {
                Some((source, target)) if self.is_from_earlier => SnapshotDifference::Renamed(source, target),
                Some((source, target)) => SnapshotDifference::Renamed(target, source),
                None => gone(entry.path.clone()),
            }));
        }
        report
    }
}

/// Compares paths component by component. Bytes are signed, as in Java.
fn by_path(one: &str, other: &str) -> std::cmp::Ordering {
    let signed = |path: &str| -> Vec<Vec<i8>> {
        path.split('/').map(|name| name.bytes().map(|byte| byte as i8).collect()).collect()
    };
    signed(one).cmp(&signed(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, directory: u64, inode: u64, target: Option<&str>) -> Entry {
        Entry {
            path: path.to_owned(),
            directory,
            is_reference: target.is_some(),
            target: target.filter(|target| !target.is_empty()).map(str::to_owned),
            inode,
        }
    }

    #[test]
    fn renames_replace_a_deletion_and_a_creation() {
        let mut root = entry("", 1, 1, Some(""));
        root.target = None;
        let differences = |is_from_earlier| Differences {
            modified: vec![entry("sub/file", 9, 9, None), root.clone()],
            created: vec![entry("new", 1, 7, None), entry("moved", 1, 5, Some(""))],
            deleted: vec![entry("old", 1, 6, None), entry("name", 1, 5, Some("moved"))],
            is_from_earlier,
        };
        use SnapshotDifference::*;
        let owned = str::to_owned;
        assert_eq!(
            differences(true).report(),
            [
                Modified(owned("")),
                Created(owned("new")),
                Deleted(owned("old")),
                Renamed(owned("name"), owned("moved")),
                Modified(owned("sub/file")),
            ]
        );
        assert_eq!(
            differences(false).report()[1..4],
            [Deleted(owned("new")), Created(owned("old")), Renamed(owned("moved"), owned("name"))]
        );
    }

    #[test]
    fn paths_are_compared_by_components() {
        let mut paths = ["a-b", "a/c", "a", "", "é"];
        paths.sort_by(|one, other| by_path(one, other));
        assert_eq!(paths, ["", "é", "a", "a/c", "a-b"]);
    }
}
