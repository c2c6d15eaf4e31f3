/// An opaque Hadoop security token; all fields are empty if tokens are off. Source: Security.proto, `TokenProto`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Token {
    pub identifier: Vec<u8>,
    pub password: Vec<u8>,
    pub kind: String,
    pub service: String,
}
