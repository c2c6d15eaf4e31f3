use bytes::{BufMut, Bytes};
use prost::Message;

use super::request::frame;
use super::{ErrorCode, IPC_VERSION, call_id};
use crate::delimited::{self, DelimitedError};
use crate::proto::common::rpc_response_header_proto::RpcStatusProto;
use crate::proto::common::{RpcResponseHeaderProto, RpcSaslProto};

/// A server's answer as a client receives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// Id of the answered call; negative for [`call_id::SASL`] and errors of the connection.
    pub call_id: i32,
    /// Empty if the server does not echo it.
    pub client_id: Bytes,
    /// The server's last transaction id, sent by NameNodes.
    pub state_id: Option<i64>,
    pub outcome: Outcome,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The response message, not delimited.
    Success(Bytes),
    Error(RemoteError),
}

/// Error answer of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteError {
    /// Java class name; see [`super::exceptions`].
    pub class: String,
    /// Java servers append lines with a stack trace.
    pub message: String,
    /// `None` if the server sent no code, or an unknown one.
    pub code: Option<ErrorCode>,
    /// The server closes the connection after it.
    pub fatal: bool,
}

/// Error of an invalid response frame: the connection is unusable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResponseError {
    #[error("unreadable RPC response: {0}")]
    Unreadable(#[from] DelimitedError),
    #[error("RPC response with unknown status {status}")]
    Status { status: i32 },
    #[error("{bytes} bytes after the end of an RPC response")]
    TrailingBytes { bytes: usize },
}

/// Decodes the frame of a server (without the length prefix). The message shares its memory.
pub fn decode_response(mut frame: Bytes) -> Result<Response, ResponseError> {
    let header: RpcResponseHeaderProto = delimited::take(&mut frame)?;
    let outcome = match RpcStatusProto::try_from(header.status) {
        Ok(RpcStatusProto::Success) => Outcome::Success(delimited::take_bytes(&mut frame)?),
        Ok(status) => Outcome::Error(RemoteError {
            code: header.error_detail.and_then(|code| ErrorCode::try_from(code).ok()),
            class: header.exception_class_name.unwrap_or_default(),
            message: header.error_msg.unwrap_or_default(),
            fatal: status == RpcStatusProto::Fatal,
        }),
        Err(_) => return Err(ResponseError::Status { status: header.status }),
    };
    if !frame.is_empty() {
        return Err(ResponseError::TrailingBytes { bytes: frame.len() });
    }
    Ok(Response {
        // A uint32 on the wire, unlike the request's zig-zag.
        call_id: header.call_id as i32,
        client_id: header.client_id.unwrap_or_default(),
        state_id: header.state_id,
        outcome,
    })
}

/// Returns the frame, with the length prefix, that answers a call with `message` (an encoded protobuf message, not
/// delimited).
pub fn encode_success(call_id: i32, client_id: &Bytes, retry_count: i32, message: &[u8]) -> Bytes {
    let header = header(call_id, client_id, retry_count, RpcStatusProto::Success);
    frame(|into| {
        into.reserve(64 + message.len());
        delimited::put(&header, into);
        delimited::put_length(message.len(), into);
        into.put_slice(message);
    })
}

/// Returns the frame, with the length prefix, that answers a call with an error.
pub fn encode_error(call_id: i32, client_id: &Bytes, retry_count: i32, error: &RemoteError) -> Bytes {
    let status = if error.fatal { RpcStatusProto::Fatal } else { RpcStatusProto::Error };
    let header = RpcResponseHeaderProto {
        exception_class_name: Some(error.class.clone()),
        error_msg: Some(error.message.clone()),
        error_detail: error.code.map(|code| code as i32),
        ..header(call_id, client_id, retry_count, status)
    };
    frame(|into| delimited::put(&header, into))
}

/// Returns a server's step of SASL negotiation.
pub fn encode_sasl_response(message: &RpcSaslProto) -> Bytes {
    encode_success(call_id::SASL, &Bytes::new(), -1, &message.encode_to_vec())
}

fn header(call_id: i32, client_id: &Bytes, retry_count: i32, status: RpcStatusProto) -> RpcResponseHeaderProto {
    RpcResponseHeaderProto {
        call_id: call_id as u32,
        status: status as i32,
        server_ipc_version_num: Some(u32::from(IPC_VERSION)),
        client_id: Some(client_id.clone()),
        retry_count: Some(retry_count),
        ..Default::default()
    }
}
