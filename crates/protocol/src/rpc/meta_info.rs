//! ProtocolMetaInfoPB: reports which methods a server has. Java's admin tools ask before they use a newer method.
//!
//! Every Hadoop server answers it, so [`super::RpcServer`] answers it for every service.

use bytes::Bytes;
use hearth_wire::proto::common::{
    GetProtocolSignatureRequestProto, GetProtocolSignatureResponseProto, GetProtocolVersionsRequestProto,
    GetProtocolVersionsResponseProto, ProtocolSignatureProto, ProtocolVersionProto,
};
use hearth_wire::rpc::{RemoteError, exceptions, protocols};
use prost::Message;

use super::service::{application_error, no_such_method, undecodable};

/// Methods of Hadoop's protocols.
const METHODS: &str = include_str!("methods.txt");

const PROTOBUF: &str = "RPC_PROTOCOL_BUFFER";
/// Kinds of RPC that Hadoop names; only the last one is supported here.
const KINDS: [&str; 3] = ["RPC_BUILTIN", "RPC_WRITABLE", PROTOBUF];

/// Answers a ProtocolMetaInfoPB call for a server with the protocols `served`.
pub fn answer(served: &[&str], method: &str, request: &Bytes) -> Result<Bytes, RemoteError> {
    let wrong = |error: &prost::DecodeError| undecodable(method, error);
    let bytes = match method {
        "getProtocolVersions" => {
            let request = GetProtocolVersionsRequestProto::decode(request.clone()).map_err(|error| wrong(&error))?;
            versions(served, &request.protocol)?.encode_to_vec()
        }
        "getProtocolSignature" => {
            let request = GetProtocolSignatureRequestProto::decode(request.clone()).map_err(|error| wrong(&error))?;
            signature(served, &request.protocol, &request.rpc_kind)?.encode_to_vec()
        }
        _ => return Err(no_such_method(protocols::PROTOCOL_INFO, method)),
    };
    Ok(bytes.into())
}

/// Returns the kinds and versions of one protocol. Apache's server fails here for the kinds that it does not serve;
/// they are left out.
fn versions(served: &[&str], class: &str) -> Result<GetProtocolVersionsResponseProto, RemoteError> {
    let protocol = Protocol::of_class(class).ok_or_else(|| no_such_class(class))?;
    let version = ProtocolVersionProto { rpc_kind: PROTOBUF.to_owned(), versions: vec![protocols::VERSION] };
    let protocol_versions = protocol.is_among(served).then_some(version).into_iter().collect();
    Ok(GetProtocolVersionsResponseProto { protocol_versions })
}

fn signature(served: &[&str], class: &str, kind: &str) -> Result<GetProtocolSignatureResponseProto, RemoteError> {
    if !KINDS.contains(&kind) {
        let message = format!("No enum constant org.apache.hadoop.ipc.RPC.RpcKind.{kind}");
        return Err(application_error(exceptions::ILLEGAL_ARGUMENT, message));
    }
    let protocol = Protocol::of_class(class).ok_or_else(|| no_such_class(class))?;
    let is_served = kind == PROTOBUF && protocol.is_among(served);
    let signature = is_served.then(|| ProtocolSignatureProto {
        version: protocols::VERSION,
        methods: protocol.lines().map(|line| fingerprint(&line) as u32).collect(),
    });
    Ok(GetProtocolSignatureResponseProto { protocol_signature: signature.into_iter().collect() })
}

fn no_such_class(class: &str) -> RemoteError {
    application_error(exceptions::CLASS_NOT_FOUND, class)
}

/// A method of one of Hadoop's protocols, as of 3.4.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HadoopMethod {
    /// Name of the protocol on the wire.
    pub protocol: &'static str,
    pub name: &'static str,
    /// Names of the messages, without packages.
    pub request: &'static str,
    pub response: &'static str,
}

/// Returns every method of Hadoop's protocols that has messages, for metrics, tests and tools.
pub fn hadoop_methods() -> impl Iterator<Item = HadoopMethod> {
    METHODS.split("\n\n").filter_map(|paragraph| paragraph.strip_prefix("protocol ")).flat_map(|paragraph| {
        let protocol = paragraph.split(' ').next().unwrap_or_default();
        let lines = paragraph.lines().skip(1).filter(|line| !line.starts_with("plain "));
        lines.filter_map(move |line| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let mut message = || Some(words.next()?.rsplit(['.', '$']).next().unwrap_or_default());
            Some(HadoopMethod { protocol, name, request: message()?, response: message()? })
        })
    })
}

/// One protocol of the table.
struct Protocol {
    name: &'static str,
    package: &'static str,
    lines: &'static str,
}

/// A method as Java's reflection reports it: name, result type, parameter types.
type Signature = Vec<String>;

impl Protocol {
    /// Finds the protocol with Java's class `class`.
    fn of_class(class: &str) -> Option<Self> {
        let mut paragraphs = METHODS.split("\n\n");
        paragraphs.find_map(|paragraph| {
            let (head, lines) = paragraph.strip_prefix("protocol ")?.split_once('\n')?;
            let mut words = head.split(' ');
            let (name, of, package) = (words.next()?, words.next()?, words.next()?);
            (of == class).then_some(Self { name, package, lines })
        })
    }

    fn is_among(&self, served: &[&str]) -> bool {
        // Not in any service's list, because every server has it.
        self.name == protocols::PROTOCOL_INFO || served.contains(&self.name)
    }

    fn lines(&self) -> impl Iterator<Item = Signature> {
        self.lines.lines().map(|line| {
            let mut words = line.split(' ');
            let first = words.next().unwrap_or_default();
            if first == "plain" {
                return words.map(str::to_owned).collect();
            }
            let mut class = || {
                let name = words.next().unwrap_or_default();
                if name.contains('.') { name.to_owned() } else { format!("{}.{name}", self.package) }
            };
            let (request, response) = (class(), class());
            vec![first.to_owned(), response, "org.apache.hadoop.thirdparty.protobuf.RpcController".to_owned(), request]
        })
    }
}

/// Hadoop's hash of a method. Source: `ProtocolSignature.getFingerprint`.
fn fingerprint(signature: &[String]) -> i32 {
    let hash = |index: usize| signature.get(index).map_or(0, |text| java_hash(text));
    let start = hash(0).wrapping_add(hash(1).wrapping_mul(31));
    signature.iter().skip(2).fold(start, |sum, parameter| sum.wrapping_mul(31) ^ java_hash(parameter))
}

/// Computes `String.hashCode` of an ASCII text.
fn java_hash(text: &str) -> i32 {
    text.bytes().fold(0, |sum: i32, byte| sum.wrapping_mul(31).wrapping_add(i32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_CLASS: &str = "org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolPB";

    fn methods_of(class: &str, kind: &str) -> Vec<u32> {
        let request = GetProtocolSignatureRequestProto { protocol: class.into(), rpc_kind: kind.into() };
        let bytes = request.encode_to_vec().into();
        let answer = answer(&[protocols::CLIENT, protocols::HA_SERVICE], "getProtocolSignature", &bytes).unwrap();
        let answer = GetProtocolSignatureResponseProto::decode(answer).unwrap();
        answer.protocol_signature.into_iter().flat_map(|one| one.methods).collect()
    }

    #[test]
    fn fingerprints_match_java() {
        let mut hashes: Vec<i32> = methods_of(CLIENT_CLASS, PROTOBUF).into_iter().map(|hash| hash as i32).collect();
        hashes.sort_unstable();
        assert_eq!((hashes.len(), &hashes[..3]), (111, &[-2_051_273_777, -1_948_114_995, -1_923_910_441][..]));
        let ha = methods_of("org.apache.hadoop.ha.protocolPB.HAServiceProtocolPB", PROTOBUF);
        assert_eq!(ha.iter().map(|hash| i64::from(*hash as i32)).sum::<i64>(), -1_378_070_014);
    }

    #[test]
    fn unserved_protocols_have_no_signature() {
        assert!(methods_of("org.apache.hadoop.hdfs.protocolPB.DatanodeProtocolPB", PROTOBUF).is_empty());
        assert!(methods_of(CLIENT_CLASS, "RPC_WRITABLE").is_empty());
    }

    #[test]
    fn unknown_classes_and_kinds_are_refused() {
        let refused = |protocol: &str, rpc_kind: &str| {
            let request = GetProtocolSignatureRequestProto { protocol: protocol.into(), rpc_kind: rpc_kind.into() };
            answer(&[], "getProtocolSignature", &request.encode_to_vec().into()).unwrap_err().class
        };
        assert_eq!(refused("a.B", PROTOBUF), exceptions::CLASS_NOT_FOUND);
        assert_eq!(refused(CLIENT_CLASS, "RPC_NEW"), exceptions::ILLEGAL_ARGUMENT);
    }

    #[test]
    fn every_served_protocol_is_in_table() {
        for name in [protocols::CLIENT, protocols::NAMENODE, protocols::CLIENT_DATANODE, protocols::GENERIC_REFRESH] {
            assert!(METHODS.contains(&format!("protocol {name} ")), "{name}");
        }
    }
}
