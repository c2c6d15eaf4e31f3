//! Snapshots: allowing, creating, renaming, removing and listing them.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    AllowSnapshotRequestProto, AllowSnapshotResponseProto, CreateSnapshotRequestProto, CreateSnapshotResponseProto,
    DeleteSnapshotRequestProto, DeleteSnapshotResponseProto, DisallowSnapshotRequestProto,
    DisallowSnapshotResponseProto, GetSnapshotListingRequestProto, GetSnapshotListingResponseProto,
    GetSnapshottableDirListingRequestProto, GetSnapshottableDirListingResponseProto, HdfsFileStatusProto,
    RenameSnapshotRequestProto, RenameSnapshotResponseProto, SnapshotListingProto, SnapshotStatusProto,
    SnapshottableDirectoryListingProto, SnapshottableDirectoryStatusProto,
};
use prost::Message;

use super::audited::{Audited, When};
use super::status::{file_status, flags_in_snapshot};
use crate::date::snapshot_time;
use crate::error::Error;
use crate::namespace::SNAPSHOT_QUOTA;
use crate::state::{CallContext, Namenode, Remember, encode};

pub async fn allow_snapshot(
    namenode: &Namenode,
    context: &CallContext,
    request: AllowSnapshotRequestProto,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            state.namespace.require_superuser(&context.caller, "allowSnapshot")?;
            namenode.check_safe_mode(state, now, || format!("allow snapshot for {}", request.snapshot_root))?;
            state.namespace.allow_snapshots(&context.caller, &request.snapshot_root)?;
            Ok((AllowSnapshotResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_allow_snapshot(request: &AllowSnapshotRequestProto) -> Audited {
    Audited::on("allowSnapshot", &request.snapshot_root)
}

pub async fn disallow_snapshot(
    namenode: &Namenode,
    context: &CallContext,
    request: DisallowSnapshotRequestProto,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            state.namespace.require_superuser(&context.caller, "disallowSnapshot")?;
            namenode.check_safe_mode(state, now, || format!("disallow snapshot for {}", request.snapshot_root))?;
            state.namespace.disallow_snapshots(&context.caller, &request.snapshot_root)?;
            Ok((DisallowSnapshotResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_disallow_snapshot(request: &DisallowSnapshotRequestProto) -> Audited {
    Audited::on("disallowSnapshot", &request.snapshot_root)
}

pub async fn create_snapshot(
    namenode: &Namenode,
    context: &CallContext,
    request: CreateSnapshotRequestProto,
) -> Result<Bytes, Error> {
    let given = request.snapshot_name.filter(|name| !name.is_empty());
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("create snapshot for {}", request.snapshot_root))?;
            let name = given.unwrap_or_else(|| default_name(now.wall_ms));
            let (caller, root) = (&context.caller, &request.snapshot_root);
            let snapshot_path = state.namespace.create_snapshot(caller, root, &name, now.wall_ms)?;
            Ok((CreateSnapshotResponseProto { snapshot_path }, Remember::Yes))
        })
        .await
}

/// Audit line. The snapshot's path is in the answer.
pub fn audit_create_snapshot(request: &CreateSnapshotRequestProto) -> Audited {
    Audited::on("createSnapshot", &request.snapshot_root).target_from_answer(|answer| {
        CreateSnapshotResponseProto::decode(answer.clone()).ok().map(|made| made.snapshot_path)
    })
}

/// Returns the path of a snapshot for the audit log.
pub fn snapshot_path(root: &str, name: &str) -> String {
    format!("{}/.snapshot/{name}", root.trim_end_matches('/'))
}

/// `'s'yyyyMMdd-HHmmss.SSS`, in UTC.
fn default_name(wall_ms: u64) -> String {
    format!("s{}", snapshot_time(wall_ms))
}

pub async fn rename_snapshot(
    namenode: &Namenode,
    context: &CallContext,
    request: RenameSnapshotRequestProto,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("rename snapshot for {}", request.snapshot_root))?;
            let (old, new) = (&request.snapshot_old_name, &request.snapshot_new_name);
            state.namespace.rename_snapshot(&context.caller, &request.snapshot_root, old, new, now.wall_ms)?;
            Ok((RenameSnapshotResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_rename_snapshot(request: &RenameSnapshotRequestProto) -> Audited {
    let path = |name: &str| snapshot_path(&request.snapshot_root, name);
    Audited::on("renameSnapshot", path(&request.snapshot_old_name)).to(path(&request.snapshot_new_name))
}

/// Removes a snapshot, with the blocks that only it contains.
pub async fn delete_snapshot(
    namenode: &Namenode,
    context: &CallContext,
    request: DeleteSnapshotRequestProto,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("delete snapshot for {}", request.snapshot_root))?;
            let (caller, name) = (&context.caller, &request.snapshot_name);
            let removed = state.namespace.delete_snapshot(caller, &request.snapshot_root, name, now.wall_ms)?;
            for (block, replication) in &removed.replications {
                state.blocks.set_replication(*block, *replication, now);
            }
            state.forget(removed);
            Ok((DeleteSnapshotResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_delete_snapshot(request: &DeleteSnapshotRequestProto) -> Audited {
    Audited::on("deleteSnapshot", snapshot_path(&request.snapshot_root, &request.snapshot_name))
}

pub async fn get_snapshottable_dir_listing(
    namenode: &Namenode,
    context: &CallContext,
    _: GetSnapshottableDirListingRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let namespace = &state.namespace;
    let directories = namespace.snapshottable_directories(&context.caller);
    let entry = |directory: &crate::namespace::Snapshottable| SnapshottableDirectoryStatusProto {
        // Apache's NameNode sends no flags there.
        dir_status: HdfsFileStatusProto {
            flags: Some(0),
            ..file_status(namespace, directory.slot, &namespace.inode(directory.slot).name)
        },
        snapshot_quota: SNAPSHOT_QUOTA as u32,
        snapshot_number: directory.snapshots as u32,
        parent_fullpath: directory.parent_path.clone().into(),
    };
    let snapshottable_dir_list = (namespace.snapshot_counts().1 > 0).then(|| SnapshottableDirectoryListingProto {
        snapshottable_dir_listing: directories.iter().map(entry).collect(),
    });
    Ok(encode(&GetSnapshottableDirListingResponseProto { snapshottable_dir_list }))
}

pub fn audit_get_snapshottable_dir_listing(_: &GetSnapshottableDirListingRequestProto) -> Audited {
    Audited::new("listSnapshottableDirectory")
}

pub async fn get_snapshot_listing(
    namenode: &Namenode,
    context: &CallContext,
    request: GetSnapshotListingRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let namespace = &state.namespace;
    let (trail, root, snapshots) = namespace.list_snapshots(&context.caller, &request.snapshot_root)?;
    let mut snapshot_listing = Vec::with_capacity(snapshots.len());
    for snapshot in snapshots {
        let Some(top) = namespace.top_of(root, snapshot) else { continue };
        let mut dir_status = file_status(namespace, top, snapshot.name.as_bytes());
        dir_status.modification_time = snapshot.modification_time_ms;
        dir_status.flags = flags_in_snapshot(dir_status.flags);
        // As Apache's NameNode answers: the number of children that the directory has now.
        dir_status.children_num = namespace.inode(root).children().map(|children| children.len() as i32);
        snapshot_listing.push(SnapshotStatusProto {
            dir_status,
            // Apache counts from 0.
            snapshot_id: snapshot.id - 1,
            parent_fullpath: trail.path().into(),
            is_deleted: false,
        });
    }
    Ok(encode(&GetSnapshotListingResponseProto { snapshot_list: Some(SnapshotListingProto { snapshot_listing }) }))
}

pub fn audit_get_snapshot_listing(request: &GetSnapshotListingRequestProto) -> Audited {
    Audited::on("ListSnapshot", &request.snapshot_root).when(When::Always)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_default_name_is_the_time() {
        assert_eq!(super::default_name(1_795_245_564_012), "s20261121-071924.012");
    }
}
