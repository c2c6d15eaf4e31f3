//! Extended attributes.

use bytes::Bytes;
use hearth_types::Xattr;
use hearth_wire::convert::ConvertError;
use hearth_wire::proto::hdfs::{
    GetXAttrsRequestProto, GetXAttrsResponseProto, ListXAttrsRequestProto, ListXAttrsResponseProto,
    RemoveXAttrRequestProto, RemoveXAttrResponseProto, SetXAttrRequestProto, SetXAttrResponseProto, XAttrProto,
};

use super::audited::Audited;
use crate::error::Error;
use crate::namespace::XattrFlags;
use crate::state::{CallContext, Namenode, Remember, encode};

/// Bits of `flag`. Source: `XAttrSetFlagProto`.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

fn from_wire(xattr: XAttrProto) -> Result<Xattr, Error> {
    xattr.try_into().map_err(|error: ConvertError| Error::Malformed(error.to_string()))
}

fn named(xattr: Option<XAttrProto>) -> Result<Xattr, Error> {
    from_wire(xattr.ok_or_else(|| Error::Malformed("the request has no attribute".into()))?)
}

fn check_on(namenode: &Namenode) -> Result<(), Error> {
    if namenode.settings.xattrs_enabled { Ok(()) } else { Err(Error::XattrsOff) }
}

pub async fn set_xattr(
    namenode: &Namenode,
    context: &CallContext,
    request: SetXAttrRequestProto,
) -> Result<Bytes, Error> {
    check_on(namenode)?;
    let xattr = named(request.xattr)?;
    let flag = request.flag.unwrap_or_default();
    let flags = XattrFlags { create: flag & CREATE != 0, replace: flag & REPLACE != 0 };
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("set XAttr on {}", request.src))?;
            state.namespace.set_xattr(&context.caller, &request.src, xattr, flags)?;
            Ok((SetXAttrResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_set_xattr(request: &SetXAttrRequestProto) -> Audited {
    Audited::on("setXAttr", &request.src).changed()
}

pub async fn remove_xattr(
    namenode: &Namenode,
    context: &CallContext,
    request: RemoveXAttrRequestProto,
) -> Result<Bytes, Error> {
    check_on(namenode)?;
    let xattr = named(request.xattr)?;
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("remove XAttr entry on {}", request.src))?;
            state.namespace.remove_xattr(&context.caller, &request.src, &xattr)?;
            Ok((RemoveXAttrResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_remove_xattr(request: &RemoveXAttrRequestProto) -> Audited {
    Audited::on("removeXAttr", &request.src).changed()
}

/// Returns the requested attributes; all that the caller may see if none is given.
pub async fn get_xattrs(
    namenode: &Namenode,
    context: &CallContext,
    request: GetXAttrsRequestProto,
) -> Result<Bytes, Error> {
    check_on(namenode)?;
    let wanted: Vec<Xattr> = request.xattrs.into_iter().map(from_wire).collect::<Result<_, _>>()?;
    let found = namenode.read().namespace.xattrs(&context.caller, &request.src, &wanted)?;
    let xattrs = found.into_iter().map(Into::into).collect();
    Ok(encode(&GetXAttrsResponseProto { xattrs }))
}

pub fn audit_get_xattrs(request: &GetXAttrsRequestProto) -> Audited {
    Audited::on("getXAttrs", &request.src)
}

/// Returns the attributes that the caller may see, with their values, as Apache does: Go's client takes the values from
/// here.
pub async fn list_xattrs(
    namenode: &Namenode,
    context: &CallContext,
    request: ListXAttrsRequestProto,
) -> Result<Bytes, Error> {
    check_on(namenode)?;
    let found = namenode.read().namespace.xattrs(&context.caller, &request.src, &[])?;
    let xattrs = found.into_iter().map(Into::into).collect();
    Ok(encode(&ListXAttrsResponseProto { xattrs }))
}

pub fn audit_list_xattrs(request: &ListXAttrsRequestProto) -> Audited {
    Audited::on("listXAttrs", &request.src)
}
