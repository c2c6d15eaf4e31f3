//! Questions about rights.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    AclStatusProto, CheckAccessRequestProto, CheckAccessResponseProto, GetAclStatusRequestProto,
    GetAclStatusResponseProto,
};

use crate::error::Error;
use crate::namespace::{Access, Need, Purpose};
use crate::state::{Context, Namenode, encode};

pub async fn check_access(
    namenode: &Namenode,
    context: &Context,
    request: CheckAccessRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let missing = |path| Error::PathMissing { path };
    let (trail, _) = state.namespace.resolve_existing(&context.caller, &request.path, Purpose::Read, missing)?;
    let target = Some(Access::from_bits(request.mode as u8));
    state.namespace.check(&context.caller, &trail, Need { target, ..Need::default() })?;
    Ok(encode(&CheckAccessResponseProto {}))
}

/// Owner, group and mode; there are no further entries.
pub async fn get_acl_status(
    namenode: &Namenode,
    context: &Context,
    request: GetAclStatusRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let missing = |path| Error::CannotFind { path };
    let (_, slot) = state.namespace.resolve_existing(&context.caller, &request.src, Purpose::Read, missing)?;
    let inode = state.namespace.inode(slot);
    let result = AclStatusProto {
        owner: state.namespace.names.text(inode.owner).to_string(),
        group: state.namespace.names.text(inode.group).to_string(),
        sticky: inode.permission.0 & 0o1000 != 0,
        entries: Vec::new(),
        permission: Some(inode.permission.into()),
    };
    Ok(encode(&GetAclStatusResponseProto { result }))
}
