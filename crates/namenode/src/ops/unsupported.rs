//! Features that this NameNode does not have: each call gets an answer with which clients can continue.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    CodecProto, CreateEncryptionZoneRequestProto, CreateSymlinkRequestProto, GetErasureCodingCodecsResponseProto,
    GetErasureCodingPolicyRequestProto, GetEzForPathRequestProto, ListEncryptionZonesResponseProto,
    ListReencryptionStatusResponseProto, SetErasureCodingPolicyRequestProto, UnsetErasureCodingPolicyRequestProto,
};
use prost::DecodeError;

use super::audited::{Audited, When};
use crate::error::Error;
use crate::namespace::{Purpose, is_exactly_reserved, is_within_limits};
use crate::state::{CallContext, Namenode, encode};

/// The answer of an empty message: "none" in each of these calls.
const NONE: Bytes = Bytes::new();

/// Request on which the answer does not depend: it is not decoded.
pub struct Unread;

/// Request that may be undecodable.
pub struct Lenient<M>(pub Result<M, DecodeError>);

impl<M> Lenient<M> {
    fn read(self) -> Result<M, Error> {
        self.0.map_err(|error| Error::Malformed(error.to_string()))
    }
}

fn unsupported(what: &str) -> Result<Bytes, Error> {
    Err(Error::Unsupported { what: format!("{what} is not supported by this NameNode") })
}

/// Security is off: Java takes the empty answer for "no token needed" and continues.
pub async fn get_data_encryption_key(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    Ok(NONE)
}

/// Answers that no path is in an encryption zone. A caller without access to the path is refused.
pub async fn get_ez_for_path(
    namenode: &Namenode,
    context: &CallContext,
    request: Lenient<GetEzForPathRequestProto>,
) -> Result<Bytes, Error> {
    let request = request.read()?;
    namenode.read().namespace.resolve(&context.caller, &request.src, Purpose::Read)?;
    Ok(NONE)
}

pub fn audit_get_ez_for_path(request: &Lenient<GetEzForPathRequestProto>) -> Option<Audited> {
    let request = request.0.as_ref().ok()?;
    Some(Audited::on("getEZForPath", &request.src).changed())
}

/// Nothing is encrypted: the list is empty.
pub async fn list_encryption_zones(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    Ok(encode(&ListEncryptionZonesResponseProto { has_more: false, ..Default::default() }))
}

pub fn audit_list_encryption_zones(_: &Unread) -> Audited {
    Audited::new("listEncryptionZones").when(When::Always)
}

pub async fn list_reencryption_status(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    Ok(encode(&ListReencryptionStatusResponseProto { has_more: false, ..Default::default() }))
}

pub fn audit_list_reencryption_status(_: &Unread) -> Audited {
    Audited::new("listReencryptionStatus").when(When::Always)
}

pub async fn create_encryption_zone(
    _: &Namenode,
    _: &CallContext,
    request: Lenient<CreateEncryptionZoneRequestProto>,
) -> Result<Bytes, Error> {
    Err(Error::NoKeyProvider { path: request.read()?.src })
}

pub async fn reencrypt_encryption_zone(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    Err(Error::NoKeyProvider { path: "re-encryption".into() })
}

/// Nothing is erasure-coded: the list is empty.
pub async fn get_erasure_coding_policies(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    Ok(NONE)
}

pub fn audit_get_erasure_coding_policies(_: &Unread) -> Audited {
    Audited::new("getErasureCodingPolicies").when(When::Always)
}

/// Codecs of Java's clients, as Apache's NameNode lists them: the coders belong to the client, not to the NameNode. No
/// policy that uses them is enabled here.
const CODECS: [(&str, &str); 3] =
    [("rs", "rs_native, rs_java"), ("rs-legacy", "rs-legacy_java"), ("xor", "xor_native, xor_java")];

pub async fn get_erasure_coding_codecs(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    let codec = CODECS.map(|(codec, coders)| CodecProto { codec: codec.to_owned(), coders: coders.to_owned() });
    Ok(encode(&GetErasureCodingCodecsResponseProto { codec: codec.into() }))
}

pub fn audit_get_erasure_coding_codecs(_: &Unread) -> Audited {
    Audited::new("getErasureCodingCodecs").when(When::Always)
}

pub async fn get_erasure_coding_policy(
    namenode: &Namenode,
    context: &CallContext,
    request: Lenient<GetErasureCodingPolicyRequestProto>,
) -> Result<Bytes, Error> {
    let request = request.read()?;
    if is_exactly_reserved(&request.src) {
        return Ok(NONE);
    }
    let missing = |path| Error::PathMissing { path };
    namenode.read().namespace.resolve_existing(&context.caller, &request.src, Purpose::Read, missing)?;
    Ok(NONE)
}

pub fn audit_get_erasure_coding_policy(request: &Lenient<GetErasureCodingPolicyRequestProto>) -> Option<Audited> {
    let request = request.0.as_ref().ok()?;
    Some(Audited::on("getErasureCodingPolicy", &request.src).when(When::Always))
}

pub async fn set_erasure_coding_policy(
    _: &Namenode,
    _: &CallContext,
    request: Lenient<SetErasureCodingPolicyRequestProto>,
) -> Result<Bytes, Error> {
    Err(Error::NoErasureCoding { policy: request.read()?.ec_policy_name.unwrap_or_default() })
}

pub async fn unset_erasure_coding_policy(
    _: &Namenode,
    _: &CallContext,
    request: Lenient<UnsetErasureCodingPolicyRequestProto>,
) -> Result<Bytes, Error> {
    Err(Error::NoErasureCodingSet { path: request.read()?.src })
}

/// Administration of erasure coding policies.
pub async fn erasure_coding(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    unsupported("erasure coding")
}

/// Refuses like Apache's NameNode, in which symbolic links are switched off too.
pub async fn create_symlink(
    _: &Namenode,
    _: &CallContext,
    request: Lenient<CreateSymlinkRequestProto>,
) -> Result<Bytes, Error> {
    Err(if is_within_limits(&request.read()?.link) { Error::Symlinks } else { Error::SymlinkTooLong })
}

/// Both calls of Java's `DFSInotifyEventInputStream`.
pub async fn namespace_events(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    unsupported("the stream of namespace events")
}

pub async fn satisfy_storage_policy(_: &Namenode, _: &CallContext, _: Unread) -> Result<Bytes, Error> {
    Err(Error::NoPolicySatisfier)
}
