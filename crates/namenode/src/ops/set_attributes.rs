//! Mode, owner, times and replication.

use bytes::Bytes;
use hearth_types::FsPermission;
use hearth_wire::proto::hdfs::{
    SetOwnerRequestProto, SetOwnerResponseProto, SetPermissionRequestProto, SetPermissionResponseProto,
    SetReplicationRequestProto, SetReplicationResponseProto, SetTimesRequestProto, SetTimesResponseProto,
};

use super::audited::{Audited, When};
use crate::error::Error;
use crate::state::{CallContext, Namenode, Remember};

pub async fn set_permission(
    namenode: &Namenode,
    context: &CallContext,
    request: SetPermissionRequestProto,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("set permission for {}", request.src))?;
            let permission = FsPermission::from(request.permission);
            state.namespace.set_permission(&context.caller, &request.src, permission)?;
            Ok((SetPermissionResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_set_permission(request: &SetPermissionRequestProto) -> Audited {
    Audited::on("setPermission", &request.src).changed()
}

pub async fn set_owner(
    namenode: &Namenode,
    context: &CallContext,
    request: SetOwnerRequestProto,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("set owner for {}", request.src))?;
            let (owner, group) = (request.username.as_deref(), request.groupname.as_deref());
            state.namespace.set_owner(&context.caller, &request.src, owner, group)?;
            Ok((SetOwnerResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_set_owner(request: &SetOwnerRequestProto) -> Audited {
    Audited::on("setOwner", &request.src).changed()
}

pub async fn set_times(
    namenode: &Namenode,
    context: &CallContext,
    request: SetTimesRequestProto,
) -> Result<Bytes, Error> {
    // A negative time (as a Java long, usually -1) leaves the time unchanged.
    let time = |ms: u64| (ms as i64 >= 0).then_some(ms);
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("set times {}", request.src))?;
            state.namespace.set_times(&context.caller, &request.src, time(request.mtime), time(request.atime))?;
            Ok((SetTimesResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_set_times(request: &SetTimesRequestProto) -> Audited {
    Audited::on("setTimes", &request.src).changed()
}

/// Answers false for a directory and for a path that does not exist. Copies are made or deleted afterwards.
pub async fn set_replication(
    namenode: &Namenode,
    context: &CallContext,
    request: SetReplicationRequestProto,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("set replication for {}", request.src))?;
            let changed = state.namespace.set_replication(&context.caller, &request.src, request.replication)?;
            let Some((slot, old)) = changed else {
                return Ok((SetReplicationResponseProto { result: false }, Remember::No));
            };
            let inode = state.namespace.inode(slot);
            let file = inode.as_file().expect("only files have a replication");
            if inode.replication() != old {
                let replication = state.namespace.replication_with_snapshots(slot);
                for block in file.blocks().iter() {
                    state.blocks.set_replication(block.id, replication, now);
                }
            }
            Ok((SetReplicationResponseProto { result: true }, Remember::Yes))
        })
        .await
}

pub fn audit_set_replication(request: &SetReplicationRequestProto) -> Audited {
    Audited::on("setReplication", &request.src).when(When::True)
}
