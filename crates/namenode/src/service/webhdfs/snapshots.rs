//! Snapshots: creating, renaming, removing, listing and comparing them.

use hearth_wire::proto::hdfs::{
    AllowSnapshotRequestProto, AllowSnapshotResponseProto, CreateSnapshotRequestProto, CreateSnapshotResponseProto,
    DeleteSnapshotRequestProto, DeleteSnapshotResponseProto, DisallowSnapshotRequestProto,
    DisallowSnapshotResponseProto, GetSnapshotDiffReportListingRequestProto, GetSnapshotDiffReportListingResponseProto,
    GetSnapshotDiffReportRequestProto, GetSnapshotDiffReportResponseProto, GetSnapshotListingRequestProto,
    GetSnapshotListingResponseProto, GetSnapshottableDirListingRequestProto, GetSnapshottableDirListingResponseProto,
    RenameSnapshotRequestProto, RenameSnapshotResponseProto, SnapshotDiffReportCursorProto,
    SnapshotDiffReportEntryProto, SnapshotDiffReportListingEntryProto, SnapshotStatusProto,
    SnapshottableDirectoryStatusProto,
};
use serde_json::{Value, json};

use super::status::status;
use super::{Answer, Operation, answer, list, lossy};

impl Operation {
    pub(super) async fn allow_snapshot(&self) -> Answer {
        let request = AllowSnapshotRequestProto { snapshot_root: self.path.clone() };
        self.change::<AllowSnapshotResponseProto>("allowSnapshot", &request).await
    }

    pub(super) async fn disallow_snapshot(&self) -> Answer {
        let request = DisallowSnapshotRequestProto { snapshot_root: self.path.clone() };
        self.change::<DisallowSnapshotResponseProto>("disallowSnapshot", &request).await
    }

    /// Creates a snapshot; answers with its path.
    pub(super) async fn create_snapshot(&self) -> Answer {
        let snapshot_name = self.parameters.text("snapshotname").map(str::to_owned);
        let request = CreateSnapshotRequestProto { snapshot_root: self.path.clone(), snapshot_name };
        let made: CreateSnapshotResponseProto = self.call("createSnapshot", &request).await?;
        Ok(answer(&json!({ "Path": made.snapshot_path })))
    }

    pub(super) async fn rename_snapshot(&self) -> Answer {
        let operation = "RENAMESNAPSHOT";
        let request = RenameSnapshotRequestProto {
            snapshot_root: self.path.clone(),
            snapshot_old_name: self.parameters.needed("oldsnapshotname", operation)?.to_owned(),
            snapshot_new_name: self.parameters.needed("snapshotname", operation)?.to_owned(),
        };
        self.change::<RenameSnapshotResponseProto>("renameSnapshot", &request).await
    }

    pub(super) async fn delete_snapshot(&self) -> Answer {
        let request = DeleteSnapshotRequestProto {
            snapshot_root: self.path.clone(),
            snapshot_name: self.parameters.needed("snapshotname", "DELETESNAPSHOT")?.to_owned(),
        };
        self.change::<DeleteSnapshotResponseProto>("deleteSnapshot", &request).await
    }

    /// Lists the snapshottable directories. The list is null if no directory of any user is snapshottable.
    pub(super) async fn snapshottable_directories(&self) -> Answer {
        let request = GetSnapshottableDirListingRequestProto {};
        let found: GetSnapshottableDirListingResponseProto = self.call("getSnapshottableDirListing", &request).await?;
        let name = "SnapshottableDirectoryList";
        Ok(match found.snapshottable_dir_list {
            None => answer(&json!({ name: null })),
            Some(found) => list(format!("{{\"{name}\":["), found.snapshottable_dir_listing, directory, "]}".to_owned()),
        })
    }

    pub(super) async fn snapshots(&self) -> Answer {
        let request = GetSnapshotListingRequestProto { snapshot_root: self.path.clone() };
        let found: GetSnapshotListingResponseProto = self.call("getSnapshotListing", &request).await?;
        let name = "SnapshotList";
        Ok(match found.snapshot_list {
            None => answer(&json!({ name: null })),
            Some(found) => list(format!("{{\"{name}\":["), found.snapshot_listing, snapshot, "]}".to_owned()),
        })
    }

    /// Names of the two snapshots; empty for the current state.
    fn ends(&self) -> (String, String) {
        let end = |name: &str| self.parameters.text(name).unwrap_or_default().to_owned();
        (end("oldsnapshotname"), end("snapshotname"))
    }

    pub(super) async fn snapshot_diff(&self) -> Answer {
        let (from_snapshot, to_snapshot) = self.ends();
        let snapshot_root = self.path.clone();
        let request = GetSnapshotDiffReportRequestProto { snapshot_root, from_snapshot, to_snapshot };
        let found: GetSnapshotDiffReportResponseProto = self.call("getSnapshotDiffReport", &request).await?;
        let report = found.diff_report;
        let text = |text: String| Value::from(text).to_string();
        let after = format!(
            "],\"fromSnapshot\":{},\"snapshotRoot\":{},\"toSnapshot\":{}}}}}",
            text(report.from_snapshot),
            text(report.snapshot_root),
            text(report.to_snapshot)
        );
        let before = "{\"SnapshotDiffReport\":{\"diffList\":[".to_owned();
        Ok(list(before, report.diff_report_entries, difference, after))
    }

    pub(super) async fn snapshot_diff_listing(&self) -> Answer {
        let (from_snapshot, to_snapshot) = self.ends();
        let start_path = self.parameters.text("snapshotdiffstartpath").unwrap_or_default().to_owned().into();
        let index = self.parameters.integer("snapshotdiffindex", -1)?.unwrap_or(-1);
        let request = GetSnapshotDiffReportListingRequestProto {
            snapshot_root: self.path.clone(),
            from_snapshot,
            to_snapshot,
            cursor: Some(SnapshotDiffReportCursorProto { start_path, index }),
        };
        let found: GetSnapshotDiffReportListingResponseProto =
            self.call("getSnapshotDiffReportListing", &request).await?;
        let page = found.diff_report;
        let shown = |entries: &[SnapshotDiffReportListingEntryProto]| entries.iter().map(entry).collect::<Vec<_>>();
        let (last_path, last_index) =
            page.cursor.as_ref().map_or((String::new(), -1), |cursor| (lossy(&cursor.start_path), cursor.index));
        Ok(answer(&json!({ "SnapshotDiffReportListing": {
            "lastPath": last_path,
            "lastIndex": last_index,
            "isFromEarlier": page.is_from_earlier,
            "modifyList": shown(&page.modified_entries),
            "createList": shown(&page.created_entries),
            "deleteList": shown(&page.deleted_entries),
        }})))
    }
}

/// Source: `JsonUtil.toJsonMap(SnapshottableDirectoryStatus)`.
fn directory(directory: &SnapshottableDirectoryStatusProto) -> Value {
    json!({
        "snapshotNumber": directory.snapshot_number,
        "snapshotQuota": directory.snapshot_quota,
        "parentFullPath": lossy(&directory.parent_fullpath),
        "dirStatus": status(&directory.dir_status),
    })
}

/// Source: `JsonUtil.toJsonMap(SnapshotStatus)`.
fn snapshot(snapshot: &SnapshotStatusProto) -> Value {
    let (parent, name) = (lossy(&snapshot.parent_fullpath), lossy(&snapshot.dir_status.path));
    json!({
        "snapshotID": snapshot.snapshot_id,
        "deletionStatus": if snapshot.is_deleted { "DELETED" } else { "ACTIVE" },
        "fullPath": format!("{}/.snapshot/{name}", parent.trim_end_matches('/')),
        "dirStatus": status(&snapshot.dir_status),
    })
}

/// Source: `JsonUtil.toJsonMap(DiffReportEntry)`.
fn difference(difference: &SnapshotDiffReportEntryProto) -> Value {
    let kind = match difference.modification_label.as_str() {
        "+" => "CREATE",
        "-" => "DELETE",
        "R" => "RENAME",
        _ => "MODIFY",
    };
    let mut shown = json!({ "type": kind, "sourcePath": lossy(&difference.fullpath) });
    if let Some(target) = &difference.target_path {
        shown["targetPath"] = lossy(target).into();
    }
    shown
}

/// Source: `JsonUtil.toJsonMap(DiffReportListingEntry)`.
fn entry(entry: &SnapshotDiffReportListingEntryProto) -> Value {
    let mut shown = json!({
        "dirId": entry.dir_id as i64,
        "fileId": entry.file_id() as i64,
        "sourcePath": lossy(&entry.fullpath),
        "isReference": entry.is_reference,
    });
    if let Some(target) = entry.target_path.as_ref().filter(|target| !target.is_empty()) {
        shown["targetPath"] = lossy(target).into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_the_names_that_java_parses() {
        let of = |label: &str, target: Option<&'static str>| SnapshotDiffReportEntryProto {
            fullpath: "a/b".into(),
            modification_label: label.into(),
            target_path: target.map(Into::into),
        };
        let shown = difference(&of("R", Some("c")));
        assert_eq!(shown, json!({ "type": "RENAME", "sourcePath": "a/b", "targetPath": "c" }));
        let kinds = ["+", "-", "M"].map(|label| difference(&of(label, None))["type"].clone());
        assert_eq!(kinds, ["CREATE", "DELETE", "MODIFY"]);
    }
}
