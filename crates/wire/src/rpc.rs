//! Frames of Hadoop RPC (IPC version 9) as pure bytes; sockets are in `hearth-protocol`.
//!
//! A client sends seven bytes ([`ConnectionHeader`]), then frames; a server answers with frames. Each frame is `u32
//! length` and as many bytes of delimited protobuf messages:
//!
//! | frame | call id | messages |
//! |---|---|---|
//! | SASL, client | -33 | `RpcRequestHeaderProto`, `RpcSaslProto` |
//! | context, once, not answered | -3 | `RpcRequestHeaderProto`, `IpcConnectionContextProto` |
//! | call | 0 and up | `RpcRequestHeaderProto`, `RequestHeaderProto`, the request |
//! | ping, not answered | -4 | `RpcRequestHeaderProto` |
//! | success | that of the call | `RpcResponseHeaderProto`, the response |
//! | error | that of the call | `RpcResponseHeaderProto` |
//!
//! Source: RpcHeader.proto, ProtobufRpcEngine2.proto, IpcConnectionContext.proto of Hadoop 3.

mod client_id;
mod connection_header;
pub mod exceptions;
pub mod protocols;
mod request;
mod response;

pub use crate::proto::common::rpc_response_header_proto::RpcErrorCodeProto as ErrorCode;
pub use client_id::{ClientId, ClientIdError};
pub use connection_header::{AuthProtocol, CONNECTION_HEADER_BYTES, ConnectionHeader, ConnectionHeaderError};
pub use request::{
    CallContext, CallFrame, ConnectionContext, Request, RequestError, RequestErrorKind, decode_request, encode_call,
    encode_call_with, encode_context, encode_ping, encode_sasl_request,
};
pub use response::{
    Outcome, RemoteError, Response, ResponseError, decode_response, encode_error, encode_sasl_response, encode_success,
};

/// The version of Hadoop RPC that Hadoop 2 and 3 speak.
pub const IPC_VERSION: u8 = 9;

/// Longest frame that Hadoop's servers and clients accept by default: `ipc.maximum.data.length`,
/// `ipc.maximum.response.length`.
pub const FRAME_BYTES_MAX_DEFAULT: usize = 128 << 20;

/// Bytes of the length prefix of each frame.
pub const FRAME_LENGTH_BYTES: usize = 4;

/// Call ids of frames that are not calls.
pub mod call_id {
    /// Call id of errors without a call.
    pub const INVALID: i32 = -1;
    pub const CONTEXT: i32 = -3;
    pub const PING: i32 = -4;
    pub const SASL: i32 = -33;
}

/// Error of a frame that is announced longer than allowed. Java's `int` makes lengths of 2 GiB and more negative; they
/// are too long, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("frame of {length} bytes is over the limit of {limit}")]
pub struct FrameTooLong {
    pub length: usize,
    pub limit: usize,
}

/// Reads the length prefix of a frame. `limit`: bytes of the longest frame accepted.
pub fn frame_length(prefix: [u8; FRAME_LENGTH_BYTES], limit: usize) -> Result<usize, FrameTooLong> {
    let length = u32::from_be_bytes(prefix) as usize;
    if length > limit { Err(FrameTooLong { length, limit }) } else { Ok(length) }
}
