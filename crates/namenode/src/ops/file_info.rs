//! Queries about one path.

use bytes::Bytes;
use hearth_types::Access;
use hearth_wire::proto::hdfs::{
    GetFileInfoRequestProto, GetFileInfoResponseProto, GetFileLinkInfoRequestProto, GetFileLinkInfoResponseProto,
    GetLinkTargetRequestProto, GetLocatedFileInfoRequestProto, GetLocatedFileInfoResponseProto,
    GetPreferredBlockSizeRequestProto, GetPreferredBlockSizeResponseProto, HdfsFileStatusProto,
    IsFileClosedRequestProto, IsFileClosedResponseProto,
};

use super::audited::{Audited, When};
use super::status::{file_status, flags_in_snapshot, is_reserved_root, reserved_status, snapshot_list_status};
use crate::error::Error;
use crate::namespace::{Purpose, Slot};
use crate::state::{CallContext, Namenode, State, encode};

pub async fn get_file_info(
    namenode: &Namenode,
    context: &CallContext,
    request: GetFileInfoRequestProto,
) -> Result<Bytes, Error> {
    let fs = find(&namenode.read(), context, &request.src, |state, slot, _| file_status(&state.namespace, slot, &[]))?;
    Ok(encode(&GetFileInfoResponseProto { fs }))
}

pub fn audit_get_file_info(request: &GetFileInfoRequestProto) -> Audited {
    Audited::on("getfileinfo", &request.src)
}

/// Same as `get_file_info`; there are no symbolic links to follow.
pub async fn get_file_link_info(
    namenode: &Namenode,
    context: &CallContext,
    request: GetFileLinkInfoRequestProto,
) -> Result<Bytes, Error> {
    let fs = find(&namenode.read(), context, &request.src, |state, slot, _| file_status(&state.namespace, slot, &[]))?;
    Ok(encode(&GetFileLinkInfoResponseProto { fs }))
}

pub fn audit_get_file_link_info(request: &GetFileLinkInfoRequestProto) -> Audited {
    Audited::on("getfileinfo", &request.src)
}

/// Like `get_file_info`, with the locations of a file's blocks, which Java's client requires for files.
pub async fn get_located_file_info(
    namenode: &Namenode,
    context: &CallContext,
    request: GetLocatedFileInfoRequestProto,
) -> Result<Bytes, Error> {
    let (now, caller) = (namenode.now(), &context.caller);
    let fs = find(&namenode.read(), context, request.src(), |state, slot, in_snapshot| {
        let mut status = file_status(&state.namespace, slot, &[]);
        if state.namespace.is_file(slot) {
            let namespace = &state.namespace;
            let may_read =
                !namespace.checks_rights_of(caller) || namespace.may(caller, namespace.inode(slot), Access::READ);
            let located = if request.need_block_token()
                && may_read
                && namespace.check_readable_by_superuser(caller, slot).is_ok()
            {
                namenode.located_for_reader(state, slot, (0, u64::MAX), in_snapshot, caller, now)
            } else {
                state.located_as_read(slot, (0, u64::MAX), in_snapshot, caller, now)
            };
            status.locations = Some((&located).into());
        }
        status
    })?;
    Ok(encode(&GetLocatedFileInfoResponseProto { fs }))
}

pub fn audit_get_located_file_info(request: &GetLocatedFileInfoRequestProto) -> Audited {
    let command = if request.need_block_token() { "open" } else { "getfileinfo" };
    Audited::on(command, request.src())
}

/// Returns the status of a path, `None` if it does not exist. For a superuser also `None` if a parent is a file.
fn find(
    state: &State,
    context: &CallContext,
    path: &str,
    status: impl FnOnce(&State, Slot, bool) -> HdfsFileStatusProto,
) -> Result<Option<HdfsFileStatusProto>, Error> {
    if is_reserved_root(path) {
        return Ok(Some(reserved_status()));
    }
    let trail = match state.namespace.resolve(&context.caller, path, Purpose::Read) {
        Err(Error::NotADirectory { .. }) if !state.namespace.checks_rights_of(&context.caller) => return Ok(None),
        other => other?,
    };
    if trail.is_snapshot_list {
        return Ok(Some(snapshot_list_status()));
    }
    let Some(slot) = trail.target() else { return Ok(None) };
    let mut status = status(state, slot, trail.snapshot.is_some());
    if let Some(snapshot) = state.namespace.snapshot_of(&trail) {
        status.modification_time = snapshot.modification_time_ms;
        status.flags = flags_in_snapshot(status.flags);
    }
    Ok(Some(status))
}

pub async fn is_file_closed(
    namenode: &Namenode,
    context: &CallContext,
    request: IsFileClosedRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let (_, slot) = state.namespace.resolve_file(&context.caller, &request.src, Purpose::Read)?;
    let result = state.namespace.inode(slot).as_file().is_some_and(|file| !file.is_open());
    Ok(encode(&IsFileClosedResponseProto { result }))
}

pub fn audit_is_file_closed(request: &IsFileClosedRequestProto) -> Audited {
    Audited::on("isFileClosed", &request.src).when(When::True)
}

pub async fn get_preferred_block_size(
    namenode: &Namenode,
    context: &CallContext,
    request: GetPreferredBlockSizeRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let (_, slot) = state.namespace.resolve_file(&context.caller, &request.filename, Purpose::Read)?;
    let bsize = state.namespace.inode(slot).block_size();
    Ok(encode(&GetPreferredBlockSizeResponseProto { bsize }))
}

/// There are no symbolic links, so any existing path is not one.
pub async fn get_link_target(
    namenode: &Namenode,
    context: &CallContext,
    request: GetLinkTargetRequestProto,
) -> Result<Bytes, Error> {
    let path = request.path;
    match find(&namenode.read(), context, &path, |state, slot, _| file_status(&state.namespace, slot, &[]))? {
        Some(_) => Err(Error::NotASymlink { path }),
        None => Err(Error::FileMissing { path }),
    }
}

pub fn audit_get_link_target(request: &GetLinkTargetRequestProto) -> Audited {
    Audited::on("getfileinfo", &request.path).when(When::Always)
}
