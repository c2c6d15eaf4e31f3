//! Features that this NameNode does not have: each call gets an answer with which clients can continue.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    CodecProto, CreateEncryptionZoneRequestProto, CreateSymlinkRequestProto, GetErasureCodingCodecsResponseProto,
    GetErasureCodingPolicyRequestProto, GetEzForPathRequestProto, SetErasureCodingPolicyRequestProto,
    UnsetErasureCodingPolicyRequestProto,
};
use prost::Message;

use crate::error::Error;
use crate::namespace::{Purpose, is_exactly_reserved, is_within_limits};
use crate::state::{CallContext, Namenode};

/// The answer of an empty message: "none" in each of these calls.
const NONE: Bytes = Bytes::new();

fn decode<M: Message + Default>(request: &Bytes) -> Result<M, Error> {
    M::decode(request.clone()).map_err(|error| Error::Malformed(error.to_string()))
}

fn unsupported(what: &str) -> Result<Bytes, Error> {
    Err(Error::Unsupported { what: format!("{what} is not supported by this NameNode") })
}

/// Answers a call about an unsupported feature; `None` if the method does not exist at all.
pub fn refuse(
    namenode: &Namenode,
    context: &CallContext,
    method: &str,
    request: &Bytes,
) -> Option<Result<Bytes, Error>> {
    Some(match method {
        // Security is off: Java takes the empty answer for "no token needed" and continues.
        "getDataEncryptionKey" => Ok(NONE),
        "getEZForPath" => encryption_zone(namenode, context, request),
        // Nothing is encrypted or erasure-coded: the lists are empty.
        "listEncryptionZones" | "listReencryptionStatus" | "getErasureCodingPolicies" => list_nothing(method),
        "getErasureCodingCodecs" => Ok(codecs()),
        "getErasureCodingPolicy" => erasure_coding_policy(namenode, context, request),
        "createEncryptionZone" => decode(request)
            .and_then(|request: CreateEncryptionZoneRequestProto| Err(Error::NoKeyProvider { path: request.src })),
        "reencryptEncryptionZone" => Err(Error::NoKeyProvider { path: "re-encryption".into() }),
        "setErasureCodingPolicy" => decode(request).and_then(|request: SetErasureCodingPolicyRequestProto| {
            Err(Error::NoErasureCoding { policy: request.ec_policy_name.unwrap_or_default() })
        }),
        "unsetErasureCodingPolicy" => decode(request).and_then(|request: UnsetErasureCodingPolicyRequestProto| {
            Err(Error::NoErasureCodingSet { path: request.src })
        }),
        "addErasureCodingPolicies"
        | "removeErasureCodingPolicy"
        | "enableErasureCodingPolicy"
        | "disableErasureCodingPolicy"
        | "getECTopologyResultForPolicies" => unsupported("erasure coding"),
        // As Apache's NameNode, in which symbolic links are switched off too.
        "createSymlink" => decode(request).and_then(|request: CreateSymlinkRequestProto| {
            Err(if is_within_limits(&request.link) { Error::Symlinks } else { Error::SymlinkTooLong })
        }),
        "getCurrentEditLogTxid" | "getEditsFromTxid" => unsupported("the stream of namespace events"),
        "satisfyStoragePolicy" => Err(Error::NoPolicySatisfier),
        _ => return None,
    })
}

/// Codecs of Java's clients, as Apache's NameNode lists them: the coders belong to the client, not to the NameNode. No
/// policy that uses them is enabled here.
const CODECS: [(&str, &str); 3] =
    [("rs", "rs_native, rs_java"), ("rs-legacy", "rs-legacy_java"), ("xor", "xor_native, xor_java")];

fn codecs() -> Bytes {
    let codec = CODECS.map(|(codec, coders)| CodecProto { codec: codec.to_owned(), coders: coders.to_owned() });
    GetErasureCodingCodecsResponseProto { codec: codec.into() }.encode_to_vec().into()
}

/// Empty lists whose messages have required fields.
fn list_nothing(method: &str) -> Result<Bytes, Error> {
    use hearth_wire::proto::hdfs;
    Ok(match method {
        "listEncryptionZones" => {
            hdfs::ListEncryptionZonesResponseProto { has_more: false, ..Default::default() }.encode_to_vec().into()
        }
        "listReencryptionStatus" => {
            hdfs::ListReencryptionStatusResponseProto { has_more: false, ..Default::default() }.encode_to_vec().into()
        }
        _ => NONE,
    })
}

/// Answers that no path is in an encryption zone. A caller without access to the path is refused.
fn encryption_zone(namenode: &Namenode, context: &CallContext, request: &Bytes) -> Result<Bytes, Error> {
    let request: GetEzForPathRequestProto = decode(request)?;
    namenode.read().namespace.resolve(&context.caller, &request.src, Purpose::Read)?;
    Ok(NONE)
}

fn erasure_coding_policy(namenode: &Namenode, context: &CallContext, request: &Bytes) -> Result<Bytes, Error> {
    let request: GetErasureCodingPolicyRequestProto = decode(request)?;
    if is_exactly_reserved(&request.src) {
        return Ok(NONE);
    }
    let missing = |path| Error::PathMissing { path };
    namenode.read().namespace.resolve_existing(&context.caller, &request.src, Purpose::Read, missing)?;
    Ok(NONE)
}
