//! What differs between two snapshots: as a whole report, and as the lists, a page at a time, from which newer clients make it.

use std::cmp::Ordering;

use bytes::Bytes;
use hearth_types::Access;
use hearth_wire::proto::hdfs::{
    GetSnapshotDiffReportListingRequestProto, GetSnapshotDiffReportListingResponseProto,
    GetSnapshotDiffReportRequestProto, GetSnapshotDiffReportResponseProto, SnapshotDiffReportCursorProto,
    SnapshotDiffReportEntryProto, SnapshotDiffReportListingEntryProto, SnapshotDiffReportListingProto,
    SnapshotDiffReportProto,
};

use crate::error::Error;
use crate::namespace::{Difference, Need, Purpose, RelativePath, compare_paths, join};
use crate::state::{Context, Namenode, State, encode};

/// Entries of one page. Source: the default of `dfs.namenode.snapshotdiff.listing.limit`.
const PAGE: usize = 1000;

/// Two states of a directory, compared.
struct Compared {
    /// The path of the directory that has the snapshots.
    root: String,
    /// Whether `from` is the earlier one.
    forward: bool,
    /// In the order of their paths.
    differences: Vec<Difference>,
}

fn compare(state: &State, context: &Context, path: &str, from: &str, to: &str) -> Result<Compared, Error> {
    let namespace = &state.namespace;
    let missing = |path| Error::DirectoryMissing { path };
    let (trail, slot) = namespace.resolve_existing(&context.caller, path, Purpose::Read, missing)?;
    if !namespace.inode(slot).is_directory() {
        return Err(Error::QuotaOnFile { path: trail.path() });
    }
    let root = match trail.snapshot {
        Some(_) => None,
        None => namespace.snapshottable_above(slot),
    };
    let root = root.ok_or_else(|| Error::NoSnapshotRoot { path: trail.path() })?;
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
    // Now is later than every snapshot.
    let forward = to.is_none_or(|to| from.is_some_and(|from| from < to));
    let (earlier, later) = if forward { (from, to) } else { (to, from) };
    let mut differences = match earlier {
        Some(earlier) if Some(earlier) != later => namespace.differences(slot, earlier, later),
        _ => Vec::new(),
    };
    differences.sort_by(|a, b| compare_paths(&a.path, &b.path));
    Ok(Compared { root: namespace.path_of(root), forward, differences })
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
    context: &Context,
    request: GetSnapshotDiffReportRequestProto,
) -> Result<Bytes, Error> {
    let (from, to) = (&request.from_snapshot, &request.to_snapshot);
    let compared = compare(&namenode.read(), context, &request.snapshot_root, from, to)?;
    let renamed: std::collections::HashSet<_> = compared
        .differences
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
    for difference in &compared.differences {
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

/// What is still to be told of differences in the order of their paths: from where on in the created and deleted entries of that at
/// `start_path`, one list behind the other. -1: the difference itself first.
fn page(differences: &[Difference], start_path: &[u8], start_index: i32) -> (SnapshotDiffReportListingProto, bool) {
    let mut answer = SnapshotDiffReportListingProto {
        cursor: Some(SnapshotDiffReportCursorProto { start_path: Bytes::new(), index: -1 }),
        ..Default::default()
    };
    let mut count = 0;
    let start: RelativePath = match start_path {
        b"" => Vec::new(),
        path => path.split(|byte| *byte == b'/').map(Into::into).collect(),
    };
    for difference in differences {
        // Where the last page ended may be no difference any more.
        let mut index = match compare_paths(&difference.path, &start) {
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
                target_path: None,
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
                    (deleted.renamed_to.is_some(), deleted.renamed_to.as_ref().map(text));
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
    context: &Context,
    request: GetSnapshotDiffReportListingRequestProto,
) -> Result<Bytes, Error> {
    let (from, to) = (&request.from_snapshot, &request.to_snapshot);
    let compared = compare(&namenode.read(), context, &request.snapshot_root, from, to)?;
    let (start_path, index) = match request.cursor {
        Some(cursor) => (cursor.start_path, cursor.index),
        None => (Bytes::new(), -1),
    };
    let (mut diff_report, _) = page(&compared.differences, &start_path, index);
    diff_report.is_from_earlier = compared.forward;
    Ok(encode(&GetSnapshotDiffReportListingResponseProto { diff_report }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{Changed, InodeId};

    #[test]
    fn pages_tell_everything_once() {
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
            let (answer, more) = page(&all, &start, index);
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
        // Where the last page ended is none any more: it goes on with the next.
        let (answer, more) = page(&all, b"aa", 700);
        assert!(more && answer.modified_entries.len() == 1 && answer.created_entries.len() == 900);
        let (answer, more) = page(&all, b"a", -1);
        assert!(more && answer.modified_entries.len() == 2);
    }
}
