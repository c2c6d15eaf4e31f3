//! Differences between two snapshots: as a whole report, and as lists, a page at a time, from which newer clients build
//! the report.

use std::cmp::Ordering;

use bytes::Bytes;
use hearth_types::Access;
use hearth_wire::proto::hdfs::{
    GetSnapshotDiffReportListingRequestProto, GetSnapshotDiffReportListingResponseProto,
    GetSnapshotDiffReportRequestProto, GetSnapshotDiffReportResponseProto, SnapshotDiffReportCursorProto,
    SnapshotDiffReportEntryProto, SnapshotDiffReportListingEntryProto, SnapshotDiffReportListingProto,
    SnapshotDiffReportProto,
};

use super::audited::Audited;
use super::snapshots::snapshot_path;
use crate::error::Error;
use crate::namespace::{Difference, Name, Need, Purpose, RelativePath, Slot, SnapshotId, Trail, compare_paths, join};
use crate::state::{CallContext, Namenode, State, encode};

/// Entries per page. Source: the default of `dfs.namenode.snapshotdiff.listing.limit`.
const PAGE: usize = 1000;

/// Two states of a directory to compare.
struct Compared {
    /// The path of the directory that has the snapshots.
    root: String,
    /// True if `from` is the earlier one.
    forward: bool,
    directory: Slot,
    /// The earlier and the later state (an inner `None` is the current state). `None`: the two are the same.
    states: Option<(SnapshotId, Option<SnapshotId>)>,
}

impl Compared {
    /// Differences in the order of their paths, from `start` on.
    fn differences<'a>(&self, state: &'a State, start: &[Name]) -> impl Iterator<Item = Difference> + use<'a> {
        let (directory, namespace) = (self.directory, &state.namespace);
        let found = self.states.map(|(earlier, later)| namespace.differences(directory, earlier, later, start));
        found.into_iter().flatten()
    }
}

/// Returns the directory whose snapshots are compared for a path. If the path does not exist or is a file, the search
/// begins at its parent, so that the caller can refuse it with the right error.
///
/// Source: `SnapshotManager.getSnapshottableAncestorDir`.
fn snapshot_root(state: &State, trail: &Trail) -> Result<Option<Slot>, Error> {
    let namespace = &state.namespace;
    let directory = match trail.target().filter(|target| namespace.inode(*target).is_directory()) {
        Some(target) => target,
        None => trail.parent().ok_or_else(|| Error::DirectoryMissing { path: trail.parent_path() })?,
    };
    // The root directory counts as snapshottable even without snapshots.
    if namespace.is_snapshottable(directory) {
        return Ok(Some(directory));
    }
    Ok(namespace.snapshottable_above(directory))
}

fn compare(state: &State, context: &CallContext, path: &str, from: &str, to: &str) -> Result<Compared, Error> {
    let namespace = &state.namespace;
    let trail = namespace.resolve(&context.caller, path, Purpose::Read)?;
    let root = match trail.snapshot {
        Some(_) => None,
        None => snapshot_root(state, &trail)?,
    };
    let root = root.ok_or_else(|| Error::NoSnapshotRoot { path: trail.path() })?;
    let slot = trail.target().ok_or_else(|| Error::DirectoryMissing { path: trail.path() })?;
    if !namespace.inode(slot).is_directory() {
        return Err(Error::QuotaOnFile { path: trail.path() });
    }
    for name in [from, to] {
        let snapshot = namespace.snapshot_named(root, name)?;
        let need = Need { target: Some(Access::READ), subtree: Some(Access::READ), ..Need::default() };
        if snapshot.is_none() {
            namespace.check(&context.caller, &trail, need)?;
        } else if slot == root {
            let path = join(&join(&trail.path(), b".snapshot"), name.as_bytes());
            let trail = namespace.resolve(&context.caller, &path, Purpose::Read)?;
            namespace.check(&context.caller, &trail, need)?;
        }
    }
    let (from, to) = (namespace.snapshot_named(root, from)?, namespace.snapshot_named(root, to)?);
    // The current state is later than every snapshot.
    let forward = to.is_none_or(|to| from.is_some_and(|from| from < to));
    let (earlier, later) = if forward { (from, to) } else { (to, from) };
    let states = earlier.filter(|earlier| Some(*earlier) != later).map(|earlier| (earlier, later));
    Ok(Compared { root: namespace.path_of(root), forward, directory: slot, states })
}

fn text(path: &RelativePath) -> Bytes {
    path.join(&b'/').into()
}

fn below(path: &RelativePath, name: &[u8]) -> Bytes {
    let mut path = path.clone();
    path.push(name.into());
    text(&path)
}

pub async fn get_snapshot_diff_report(
    namenode: &Namenode,
    context: &CallContext,
    request: GetSnapshotDiffReportRequestProto,
) -> Result<Bytes, Error> {
    let (from, to) = (&request.from_snapshot, &request.to_snapshot);
    let (compared, differences) = {
        let state = namenode.read();
        let compared = compare(&state, context, &request.snapshot_root, from, to)?;
        let differences: Vec<Difference> = compared.differences(&state, &[]).collect();
        (compared, differences)
    };
    let renamed: std::collections::HashSet<_> = differences
        .iter()
        .flat_map(|difference| &difference.deleted)
        .filter(|entry| entry.renamed_to.is_some())
        .map(|entry| entry.id)
        .collect();
    let entry = |label: &str, fullpath: Bytes, target_path: Option<Bytes>| SnapshotDiffReportEntryProto {
        fullpath,
        modification_label: label.into(),
        target_path,
    };
    let (appeared, vanished) = if compared.forward { ("+", "-") } else { ("-", "+") };
    let mut diff_report_entries = Vec::new();
    for difference in &differences {
        diff_report_entries.push(entry("M", text(&difference.path), None));
        for created in difference.created.iter().filter(|created| !renamed.contains(&created.id)) {
            diff_report_entries.push(entry(appeared, below(&difference.path, &created.name), None));
        }
        for deleted in &difference.deleted {
            let here = below(&difference.path, &deleted.name);
            diff_report_entries.push(match &deleted.renamed_to {
                None => entry(vanished, here, None),
                Some(there) if compared.forward => entry("R", here, Some(text(there))),
                Some(there) => entry("R", text(there), Some(here)),
            });
        }
    }
    Ok(encode(&GetSnapshotDiffReportResponseProto {
        diff_report: SnapshotDiffReportProto {
            snapshot_root: compared.root,
            from_snapshot: request.from_snapshot,
            to_snapshot: request.to_snapshot,
            diff_report_entries,
        },
    }))
}

pub fn audit(request: &GetSnapshotDiffReportRequestProto) -> Audited {
    let end = |name: &str| match name {
        "" => request.snapshot_root.clone(),
        name => snapshot_path(&request.snapshot_root, name),
    };
    Audited::on("computeSnapshotDiff", end(&request.from_snapshot)).to(end(&request.to_snapshot))
}

/// Parses the path at which a page begins.
fn start_of(start_path: &[u8]) -> RelativePath {
    match start_path {
        b"" => Vec::new(),
        path => path.split(|byte| *byte == b'/').map(Into::into).collect(),
    }
}

/// Builds a page from differences in the order of their paths. `start_index` is a position in the created and then the
/// deleted entries of the difference at `start`; -1 is the difference itself. Consumes no more differences than the
/// page has room for.
fn page(
    differences: impl IntoIterator<Item = Difference>,
    start: &RelativePath,
    start_index: i32,
) -> (SnapshotDiffReportListingProto, bool) {
    let mut answer = SnapshotDiffReportListingProto {
        cursor: Some(SnapshotDiffReportCursorProto { start_path: Bytes::new(), index: -1 }),
        ..Default::default()
    };
    let mut count = 0;
    for difference in differences {
        // The difference at which the last page ended may no longer exist.
        let mut index = match compare_paths(&difference.path, start) {
            Ordering::Less => continue,
            Ordering::Equal => start_index.max(-1),
            Ordering::Greater => -1,
        };
        let path = text(&difference.path);
        let last = (difference.created.len() + difference.deleted.len()) as i32;
        while index < last {
            if count == PAGE {
                answer.cursor = Some(SnapshotDiffReportCursorProto { start_path: path, index });
                return (answer, true);
            }
            let mut entry = SnapshotDiffReportListingEntryProto {
                fullpath: path.clone(),
                dir_id: difference.id.0,
                is_reference: difference.is_directory,
                // Apache's NameNode always sends it.
                target_path: Some(Bytes::new()),
                file_id: Some(difference.id.0),
            };
            let behind = index - difference.created.len() as i32;
            if index < 0 {
                answer.modified_entries.push(entry);
            } else if behind < 0 {
                let created = &difference.created[index as usize];
                (entry.fullpath, entry.is_reference) = (below(&difference.path, &created.name), false);
                entry.file_id = Some(created.id.0);
                answer.created_entries.push(entry);
            } else {
                let deleted = &difference.deleted[behind as usize];
                (entry.fullpath, entry.file_id) = (below(&difference.path, &deleted.name), Some(deleted.id.0));
                (entry.is_reference, entry.target_path) =
                    (deleted.renamed_to.is_some(), Some(deleted.renamed_to.as_ref().map(text).unwrap_or_default()));
                answer.deleted_entries.push(entry);
            }
            count += 1;
            index += 1;
        }
    }
    (answer, false)
}

pub async fn get_snapshot_diff_report_listing(
    namenode: &Namenode,
    context: &CallContext,
    request: GetSnapshotDiffReportListingRequestProto,
) -> Result<Bytes, Error> {
    let (from, to) = (&request.from_snapshot, &request.to_snapshot);
    let (start, index) = match request.cursor {
        Some(cursor) => (start_of(&cursor.start_path), cursor.index),
        None => (Vec::new(), -1),
    };
    let diff_report = {
        let state = namenode.read();
        let compared = compare(&state, context, &request.snapshot_root, from, to)?;
        let (told, _) = page(compared.differences(&state, &start), &start, index);
        SnapshotDiffReportListingProto { is_from_earlier: compared.forward, ..told }
    };
    Ok(encode(&GetSnapshotDiffReportListingResponseProto { diff_report }))
}

#[cfg(test)]
mod tests {
    use hearth_types::FsPermission;

    use super::*;
    use crate::namespace::{Caller, Changed, InodeId, Limits, Namespace};

    #[test]
    fn pages_contain_each_entry_once() {
        let entries = |count: usize| -> Vec<Changed> {
            let entry = |i| Changed { id: InodeId(i as u64), name: format!("{i}").as_bytes().into(), renamed_to: None };
            (0..count).map(entry).collect()
        };
        let difference = |name: &str, created, deleted| Difference {
            id: InodeId(1),
            path: if name.is_empty() { vec![] } else { vec![name.as_bytes().into()] },
            is_directory: true,
            created: entries(created),
            deleted: entries(deleted),
        };
        let all = [difference("", 1500, 700), difference("a", 0, 0), difference("b", 900, 101)];
        let (mut start, mut index) = (Bytes::new(), -1);
        let (mut modified, mut created, mut deleted) = (0, 0, 0);
        for pages in 1.. {
            let (answer, more) = page(all.clone(), &start_of(&start), index);
            modified += answer.modified_entries.len();
            created += answer.created_entries.len();
            deleted += answer.deleted_entries.len();
            let cursor = answer.cursor.unwrap();
            assert_eq!(more, (&*cursor.start_path, cursor.index) != (&b""[..], -1));
            if !more {
                assert_eq!(pages, 4);
                break;
            }
            (start, index) = (cursor.start_path, cursor.index);
        }
        assert_eq!((modified, created, deleted), (3, 2400, 801));
        // The difference at which the last page ended is gone: the page continues with the next one.
        let (answer, more) = page(all.clone(), &start_of(b"aa"), 700);
        assert!(more && answer.modified_entries.len() == 1 && answer.created_entries.len() == 900);
        let (answer, more) = page(all, &start_of(b"a"), -1);
        assert!(more && answer.modified_entries.len() == 2);
    }

    #[test]
    fn pages_of_tree_match_full_report() {
        let caller = Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() };
        let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
        let path = |i: u32| format!("/s/{}/{}/{i}", i % 3, i % 40);
        for i in 0..1800 {
            namespace.mkdirs(&caller, &path(i), FsPermission(0o755), true, 1).unwrap();
        }
        namespace.allow_snapshots(&caller, "/s").unwrap();
        namespace.create_snapshot(&caller, "/s", "one", 1).unwrap();
        for i in (0..1800).step_by(4) {
            namespace.set_permission(&caller, &path(i), FsPermission(0o700)).unwrap();
            namespace.delete(&caller, &path(i + 1), true, 2).unwrap();
            namespace.rename(&caller, &path(i + 2), &format!("/s/moved{i}"), false, false, 2).unwrap();
            namespace.mkdirs(&caller, &format!("{}x", path(i + 3)), FsPermission(0o755), true, 2).unwrap();
        }
        let top = namespace.lookup("/s").unwrap();
        let snapshot = namespace.snapshot_named(top, "one").unwrap().unwrap();
        let (mut start, mut index) = (RelativePath::new(), -1);
        let (mut modified, mut created, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        for pages in 1.. {
            let (answer, more) = page(namespace.differences(top, snapshot, None, &start), &start, index);
            modified.extend(answer.modified_entries.into_iter().map(|entry| entry.fullpath));
            created.extend(answer.created_entries.into_iter().map(|entry| entry.fullpath));
            deleted.extend(answer.deleted_entries.into_iter().map(|entry| (entry.fullpath, entry.target_path)));
            if !more {
                assert_eq!(pages, 3);
                break;
            }
            let cursor = answer.cursor.unwrap();
            (start, index) = (start_of(&cursor.start_path), cursor.index);
        }
        assert_eq!((modified.len(), created.len(), deleted.len()), (1 + 90 + 450, 450 + 450, 450 + 450));
        let all: Vec<Difference> = namespace.differences(top, snapshot, None, &[]).collect();
        assert!(all.iter().map(|difference| text(&difference.path)).eq(modified));
        let entries = |difference: &Difference, entries: &[Changed]| -> Vec<(Bytes, Option<Bytes>)> {
            let target = |entry: &Changed| Some(entry.renamed_to.as_ref().map(text).unwrap_or_default());
            let told = |entry: &Changed| (below(&difference.path, &entry.name), target(entry));
            entries.iter().map(told).collect()
        };
        let all_created = all.iter().flat_map(|difference| entries(difference, &difference.created));
        assert!(all_created.map(|(path, _)| path).eq(created));
        assert!(all.iter().flat_map(|difference| entries(difference, &difference.deleted)).eq(deleted));
    }
}
