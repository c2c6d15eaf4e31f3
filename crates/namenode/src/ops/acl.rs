//! Access control lists.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    AclEntryProto, AclStatusProto, GetAclStatusRequestProto, GetAclStatusResponseProto, ModifyAclEntriesRequestProto,
    ModifyAclEntriesResponseProto, RemoveAclEntriesRequestProto, RemoveAclEntriesResponseProto, RemoveAclRequestProto,
    RemoveAclResponseProto, RemoveDefaultAclRequestProto, RemoveDefaultAclResponseProto, SetAclRequestProto,
    SetAclResponseProto,
};

use crate::error::Error;
use crate::namespace::{Access, AclChange, AclEntry, AclScope, AclType, Purpose};
use crate::state::{Context, Namenode, encode};

fn from_wire(entries: Vec<AclEntryProto>) -> Result<Vec<AclEntry>, Error> {
    let number = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    let entry = |entry: AclEntryProto| {
        let scope = AclScope::from_number(number(entry.scope))?;
        let kind = AclType::from_number(number(entry.r#type))?;
        let access = Access::from_bits(number(entry.permissions));
        let name = entry.name.filter(|name| !name.is_empty()).map(Into::into);
        Some(AclEntry { scope, kind, name, access })
    };
    entries.into_iter().map(|wire| entry(wire).ok_or_else(|| Error::Malformed("an ACL entry".into()))).collect()
}

fn to_wire(entry: &AclEntry) -> AclEntryProto {
    AclEntryProto {
        r#type: entry.kind as i32,
        scope: entry.scope as i32,
        permissions: i32::from(entry.access.bits()),
        name: entry.name.as_deref().map(str::to_owned),
    }
}

fn check_on(namenode: &Namenode) -> Result<(), Error> {
    if namenode.settings.acls_enabled { Ok(()) } else { Err(Error::AclsOff) }
}

/// `action`: as in "Cannot `action` PATH".
async fn change(
    namenode: &Namenode,
    context: &Context,
    path: &str,
    action: &'static str,
    change: AclChange,
) -> Result<(), Error> {
    check_on(namenode)?;
    namenode
        .change(|state, now| {
            namenode.check_safe_mode(state, now, || format!("{action} {path}"))?;
            state.namespace.change_acl(&context.caller, path, &change)
        })
        .await
}

pub async fn modify_acl_entries(
    namenode: &Namenode,
    context: &Context,
    request: ModifyAclEntriesRequestProto,
) -> Result<Bytes, Error> {
    let entries = from_wire(request.acl_spec)?;
    change(namenode, context, &request.src, "modify ACL entries on", AclChange::Modify(entries)).await?;
    Ok(encode(&ModifyAclEntriesResponseProto {}))
}

pub async fn remove_acl_entries(
    namenode: &Namenode,
    context: &Context,
    request: RemoveAclEntriesRequestProto,
) -> Result<Bytes, Error> {
    let entries = from_wire(request.acl_spec)?;
    change(namenode, context, &request.src, "remove ACL entries on", AclChange::Remove(entries)).await?;
    Ok(encode(&RemoveAclEntriesResponseProto {}))
}

pub async fn remove_default_acl(
    namenode: &Namenode,
    context: &Context,
    request: RemoveDefaultAclRequestProto,
) -> Result<Bytes, Error> {
    change(namenode, context, &request.src, "remove default ACL entries on", AclChange::RemoveDefault).await?;
    Ok(encode(&RemoveDefaultAclResponseProto {}))
}

pub async fn remove_acl(
    namenode: &Namenode,
    context: &Context,
    request: RemoveAclRequestProto,
) -> Result<Bytes, Error> {
    change(namenode, context, &request.src, "remove ACL on", AclChange::RemoveAll).await?;
    Ok(encode(&RemoveAclResponseProto {}))
}

pub async fn set_acl(namenode: &Namenode, context: &Context, request: SetAclRequestProto) -> Result<Bytes, Error> {
    let entries = from_wire(request.acl_spec)?;
    change(namenode, context, &request.src, "set ACL on", AclChange::Set(entries)).await?;
    Ok(encode(&SetAclResponseProto {}))
}

/// Owner, group and mode, and the entries that the mode does not hold.
pub async fn get_acl_status(
    namenode: &Namenode,
    context: &Context,
    request: GetAclStatusRequestProto,
) -> Result<Bytes, Error> {
    check_on(namenode)?;
    let state = namenode.read();
    let missing = |path| Error::CannotFind { path };
    let (_, slot) = state.namespace.resolve_existing(&context.caller, &request.src, Purpose::Read, missing)?;
    let inode = state.namespace.inode(slot);
    let result = AclStatusProto {
        owner: state.namespace.names.text(inode.owner).to_string(),
        group: state.namespace.names.text(inode.group).to_string(),
        sticky: inode.permission.0 & 0o1000 != 0,
        entries: inode.acl().iter().map(to_wire).collect(),
        permission: Some(inode.permission.into()),
    };
    Ok(encode(&GetAclStatusResponseProto { result }))
}
