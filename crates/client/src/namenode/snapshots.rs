//! Calls about snapshots beyond their creation: snapshottable directories, lists and differences.

use hearth_types::FileStatus;
use hearth_wire::proto::hdfs::*;

use super::files::converted;
use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;

mod differences;

use differences::{Differences, Entry};

/// A directory that may have snapshots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshottableDirectory {
    /// Status of the directory.
    pub status: FileStatus,
    /// Absolute path.
    pub path: String,
    /// Number of its snapshots.
    pub snapshots: u32,
    /// Maximum number of snapshots.
    pub snapshots_max: u32,
}

/// A snapshot of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    /// Status of the directory in the snapshot. Its name is that of the snapshot.
    pub status: FileStatus,
    /// Absolute path: the directory, `.snapshot`, and the name.
    pub path: String,
    /// Number of the snapshot.
    pub id: u32,
    /// The snapshot is deleted and waits for its predecessors to be deleted.
    pub is_deleted: bool,
}

/// Difference between two states of a directory. Paths are relative to it; that of the directory itself is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotDifference {
    /// The file, or the list of entries of the directory, changed.
    Modified(String),
    /// The path is new.
    Created(String),
    /// The path is gone.
    Deleted(String),
    /// The path has a new name.
    Renamed(String, String),
}

/// Returns bytes of a path as text.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Joins the path of a parent and a name.
fn joined(parent: &[u8], name: &[u8]) -> String {
    let parent = text(parent);
    match parent.trim_end_matches('/') {
        "" => format!("/{}", text(name)),
        parent => format!("{parent}/{}", text(name)),
    }
}

impl FileSystem {
    /// Allows snapshots of a directory. Requires superuser rights.
    pub async fn allow_snapshot(&self, path: &str) -> Result<(), Error> {
        let request = AllowSnapshotRequestProto { snapshot_root: self.absolute(path)? };
        let AllowSnapshotResponseProto {} = self.session.namenode.call("allowSnapshot", &request).await?;
        Ok(())
    }

    /// Disallows snapshots of a directory that has none. Requires superuser rights.
    pub async fn disallow_snapshot(&self, path: &str) -> Result<(), Error> {
        let request = DisallowSnapshotRequestProto { snapshot_root: self.absolute(path)? };
        let DisallowSnapshotResponseProto {} = self.session.namenode.call("disallowSnapshot", &request).await?;
        Ok(())
    }

    /// Returns the directories that may have snapshots: those of the user, or all for a superuser.
    pub async fn snapshottable_directories(&self) -> Result<Vec<SnapshottableDirectory>, Error> {
        const METHOD: &str = "getSnapshottableDirListing";
        let answer: GetSnapshottableDirListingResponseProto =
            self.session.namenode.call(METHOD, &GetSnapshottableDirListingRequestProto {}).await?;
        let listed = answer.snapshottable_dir_list.map(|list| list.snapshottable_dir_listing).unwrap_or_default();
        let directories = listed.into_iter().map(|entry| {
            let status = FileStatus::try_from(entry.dir_status)?;
            Ok(SnapshottableDirectory {
                path: joined(&entry.parent_fullpath, &status.local_name),
                status,
                snapshots: entry.snapshot_number,
                snapshots_max: entry.snapshot_quota,
            })
        });
        converted(METHOD, directories.collect())
    }

    /// Returns the snapshots of a directory.
    pub async fn snapshots(&self, path: &str) -> Result<Vec<SnapshotInfo>, Error> {
        const METHOD: &str = "getSnapshotListing";
        let request = GetSnapshotListingRequestProto { snapshot_root: self.absolute(path)? };
        let answer: GetSnapshotListingResponseProto = self.session.namenode.call(METHOD, &request).await?;
        let listed = answer.snapshot_list.map(|list| list.snapshot_listing).unwrap_or_default();
        let snapshots = listed.into_iter().map(|entry| {
            let status = FileStatus::try_from(entry.dir_status)?;
            Ok(SnapshotInfo {
                path: format!(
                    "{}/.snapshot/{}",
                    text(&entry.parent_fullpath).trim_end_matches('/'),
                    text(&status.local_name)
                ),
                status,
                id: entry.snapshot_id,
                is_deleted: entry.is_deleted,
            })
        });
        converted(METHOD, snapshots.collect())
    }

    /// Returns the changes of a directory from one state to another. `from`, `to`: names of snapshots, or empty for the
    /// current state. Requires that the directory allows snapshots.
    pub async fn snapshot_differences(
        &self,
        path: &str,
        from: &str,
        to: &str,
    ) -> Result<Vec<SnapshotDifference>, Error> {
        let root = self.absolute(path)?;
        // Two snapshots do not change while their differences are read in several calls.
        if !from.is_empty() && !to.is_empty() {
            return self.differences_of_snapshots(root, from, to).await;
        }
        const METHOD: &str = "getSnapshotDiffReport";
        let request = GetSnapshotDiffReportRequestProto {
            snapshot_root: root,
            from_snapshot: from.to_owned(),
            to_snapshot: to.to_owned(),
        };
        let answer: GetSnapshotDiffReportResponseProto = self.session.namenode.call(METHOD, &request).await?;
        let entries = answer.diff_report.diff_report_entries.into_iter().map(|entry| {
            let path = text(&entry.fullpath);
            match entry.modification_label.as_str() {
                "M" => Ok(SnapshotDifference::Modified(path)),
                "+" => Ok(SnapshotDifference::Created(path)),
                "-" => Ok(SnapshotDifference::Deleted(path)),
                "R" => Ok(SnapshotDifference::Renamed(path, text(&entry.target_path.unwrap_or_default()))),
                label => {
                    let why = format!("{label:?} is not the label of a difference");
                    Err(Failure::Answer { method: METHOD, why }.into())
                }
            }
        });
        entries.collect()
    }

    async fn differences_of_snapshots(
        &self,
        root: String,
        from: &str,
        to: &str,
    ) -> Result<Vec<SnapshotDifference>, Error> {
        const METHOD: &str = "getSnapshotDiffReportListing";
        let mut cursor = SnapshotDiffReportCursorProto { start_path: Default::default(), index: -1 };
        let mut differences = Differences::default();
        loop {
            let request = GetSnapshotDiffReportListingRequestProto {
                snapshot_root: root.clone(),
                from_snapshot: from.to_owned(),
                to_snapshot: to.to_owned(),
                cursor: Some(cursor.clone()),
            };
            let answer: GetSnapshotDiffReportListingResponseProto =
                self.session.namenode.call(METHOD, &request).await?;
            let report = answer.diff_report;
            let entries = |listed: Vec<SnapshotDiffReportListingEntryProto>| {
                listed.into_iter().map(|entry| Entry {
                    path: text(&entry.fullpath),
                    directory: entry.dir_id,
                    is_reference: entry.is_reference,
                    target: entry.target_path.as_deref().map(text),
                    inode: entry.file_id(),
                })
            };
            differences.modified.extend(entries(report.modified_entries));
            differences.created.extend(entries(report.created_entries));
            differences.deleted.extend(entries(report.deleted_entries));
            differences.is_from_earlier = report.is_from_earlier;
            match report.cursor {
                Some(next) if !(next.start_path.is_empty() && next.index == -1) => {
                    if next == cursor {
                        let why = "the list of differences does not advance".to_owned();
                        return Err(Failure::Answer { method: METHOD, why }.into());
                    }
                    cursor = next;
                }
                _ => return Ok(differences.report()),
            }
        }
    }
}
