//! Access control lists.

use bytes::Bytes;
use hearth_types::{AclChange, AclEntry, AclStatus, FsPermission};
use hearth_wire::convert::ConvertError;
use hearth_wire::proto::hdfs::{
    AclEntryProto, GetAclStatusRequestProto, GetAclStatusResponseProto, ModifyAclEntriesRequestProto,
    ModifyAclEntriesResponseProto, RemoveAclEntriesRequestProto, RemoveAclEntriesResponseProto, RemoveAclRequestProto,
    RemoveAclResponseProto, RemoveDefaultAclRequestProto, RemoveDefaultAclResponseProto, SetAclRequestProto,
    SetAclResponseProto,
};

use super::audited::Audited;
use crate::error::Error;
use crate::namespace::Purpose;
use crate::state::{CallContext, Namenode, Remember, encode};

fn from_wire(entries: Vec<AclEntryProto>) -> Result<Vec<AclEntry>, Error> {
    let converted = entries.into_iter().map(TryInto::try_into).collect::<Result<_, ConvertError>>();
    converted.map_err(|error| Error::Malformed(error.to_string()))
}

fn check_on(namenode: &Namenode) -> Result<(), Error> {
    if namenode.settings.acls_enabled { Ok(()) } else { Err(Error::AclsOff) }
}

/// Changes an ACL. `action`: as in "Cannot `action` PATH".
async fn change<M: prost::Message>(
    namenode: &Namenode,
    context: &CallContext,
    path: &str,
    action: &'static str,
    change: AclChange,
    answer: M,
) -> Result<Bytes, Error> {
    check_on(namenode)?;
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("{action} {path}"))?;
            state.namespace.change_acl(&context.caller, path, &change)?;
            Ok((answer, Remember::Yes))
        })
        .await
}

pub async fn modify_acl_entries(
    namenode: &Namenode,
    context: &CallContext,
    request: ModifyAclEntriesRequestProto,
) -> Result<Bytes, Error> {
    let entries = from_wire(request.acl_spec)?;
    change(
        namenode,
        context,
        &request.src,
        "modify ACL entries on",
        AclChange::Modify(entries),
        ModifyAclEntriesResponseProto {},
    )
    .await
}

pub fn audit_modify_acl_entries(request: &ModifyAclEntriesRequestProto) -> Audited {
    Audited::on("modifyAclEntries", &request.src).changed()
}

pub async fn remove_acl_entries(
    namenode: &Namenode,
    context: &CallContext,
    request: RemoveAclEntriesRequestProto,
) -> Result<Bytes, Error> {
    let entries = from_wire(request.acl_spec)?;
    change(
        namenode,
        context,
        &request.src,
        "remove ACL entries on",
        AclChange::Remove(entries),
        RemoveAclEntriesResponseProto {},
    )
    .await
}

pub fn audit_remove_acl_entries(request: &RemoveAclEntriesRequestProto) -> Audited {
    Audited::on("removeAclEntries", &request.src).changed()
}

pub async fn remove_default_acl(
    namenode: &Namenode,
    context: &CallContext,
    request: RemoveDefaultAclRequestProto,
) -> Result<Bytes, Error> {
    change(
        namenode,
        context,
        &request.src,
        "remove default ACL entries on",
        AclChange::RemoveDefault,
        RemoveDefaultAclResponseProto {},
    )
    .await
}

pub fn audit_remove_default_acl(request: &RemoveDefaultAclRequestProto) -> Audited {
    Audited::on("removeDefaultAcl", &request.src).changed()
}

pub async fn remove_acl(
    namenode: &Namenode,
    context: &CallContext,
    request: RemoveAclRequestProto,
) -> Result<Bytes, Error> {
    change(namenode, context, &request.src, "remove ACL on", AclChange::RemoveAll, RemoveAclResponseProto {}).await
}

pub fn audit_remove_acl(request: &RemoveAclRequestProto) -> Audited {
    Audited::on("removeAcl", &request.src).changed()
}

pub async fn set_acl(namenode: &Namenode, context: &CallContext, request: SetAclRequestProto) -> Result<Bytes, Error> {
    let entries = from_wire(request.acl_spec)?;
    change(namenode, context, &request.src, "set ACL on", AclChange::Set(entries), SetAclResponseProto {}).await
}

pub fn audit_set_acl(request: &SetAclRequestProto) -> Audited {
    Audited::on("setAcl", &request.src).changed()
}

/// Returns owner, group and mode, and the entries that are not part of the mode.
pub async fn get_acl_status(
    namenode: &Namenode,
    context: &CallContext,
    request: GetAclStatusRequestProto,
) -> Result<Bytes, Error> {
    check_on(namenode)?;
    let state = namenode.read();
    if state.namespace.resolve(&context.caller, &request.src, Purpose::Read)?.is_snapshot_list {
        // The path has no inode.
        let (owner, group, entries) = (String::new(), String::new(), Vec::new());
        let status = AclStatus { owner, group, permission: FsPermission(0), entries };
        return Ok(encode(&GetAclStatusResponseProto { result: (&status).into() }));
    }
    let missing = |path| Error::CannotFind { path };
    let (_, slot) = state.namespace.resolve_existing(&context.caller, &request.src, Purpose::Read, missing)?;
    let inode = state.namespace.inode(slot);
    let status = AclStatus {
        owner: state.namespace.names.text(inode.owner()).to_string(),
        group: state.namespace.names.text(inode.group()).to_string(),
        permission: inode.permission(),
        entries: inode.acl().to_vec(),
    };
    Ok(encode(&GetAclStatusResponseProto { result: (&status).into() }))
}

pub fn audit_get_acl_status(request: &GetAclStatusRequestProto) -> Audited {
    Audited::on("getAclStatus", &request.src)
}
