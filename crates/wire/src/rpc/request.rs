use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::{ClientId, ErrorCode, FRAME_LENGTH_BYTES, call_id, protocols};
use crate::delimited::{self, DelimitedError};
use crate::proto::common::rpc_request_header_proto::OperationProto;
use crate::proto::common::{
    IpcConnectionContextProto, RequestHeaderProto, RpcKindProto, RpcRequestHeaderProto, RpcSaslProto,
    UserInformationProto,
};
use crate::trace::{self, SpanContext};

/// Identity of the caller, for all calls of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConnectionContext {
    /// Empty if the client sent none.
    pub effective_user: String,
    /// Set when a proxy user acts for `effective_user`.
    pub real_user: Option<String>,
    /// Name of the protocol that the connection was opened for. Calls may name another one.
    pub protocol: String,
}

/// One call as a server receives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallFrame {
    pub call_id: i32,
    /// 16 bytes in calls of every client of Hadoop 2 and later.
    pub client_id: Bytes,
    /// 0 on the first attempt, -1 if not sent.
    pub retry_count: i32,
    pub protocol: String,
    pub protocol_version: u64,
    pub method: String,
    /// The request message, not delimited.
    pub request: Bytes,
    /// The client's last seen transaction, for reads from observers.
    pub state_id: Option<i64>,
    /// Text of the client for the audit log.
    pub caller_context: Option<String>,
    /// Proof that the caller context comes from the client itself; often empty.
    pub caller_signature: Bytes,
    /// Span of the caller, if its trace is sampled.
    pub trace: Option<SpanContext>,
}

/// What a call's header has besides the call's identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallContext {
    /// For a caller that tracks state ids: the answer must include everything up to this transaction, the highest one
    /// that the caller has seen.
    pub state_id: Option<i64>,
    /// Span of the caller, if its trace is sampled.
    pub trace: Option<SpanContext>,
}

/// A frame from a client.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    Call(CallFrame),
    Context(ConnectionContext),
    Ping,
    Sasl(RpcSaslProto),
}

/// Error of an invalid frame. It is fatal for the connection: the answer carries `call_id` and `code`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind}")]
pub struct RequestError {
    /// Id of the affected call, or [`call_id::INVALID`] if the header itself is unreadable.
    pub call_id: i32,
    pub client_id: Bytes,
    pub retry_count: i32,
    pub kind: RequestErrorKind,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestErrorKind {
    #[error("unreadable RPC request header: {0}")]
    Header(DelimitedError),
    #[error("unknown RPC operation {operation:?} in the request header")]
    Operation { operation: Option<i32> },
    #[error("unknown RPC kind {kind:?} in the request header")]
    Kind { kind: Option<i32> },
    #[error("unknown out-of-band call {call_id}")]
    OutOfBand { call_id: i32 },
    #[error("unreadable RPC request: {0}")]
    Body(DelimitedError),
}

impl RequestErrorKind {
    /// Returns the code of the answer.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Header(_) | Self::Body(_) => ErrorCode::FatalDeserializingRequest,
            Self::Operation { .. } | Self::Kind { .. } | Self::OutOfBand { .. } => ErrorCode::FatalInvalidRpcHeader,
        }
    }
}

/// Decodes the frame of a client (without the length prefix). Parts of the result share its memory.
pub fn decode_request(mut frame: Bytes) -> Result<Request, RequestError> {
    let header: RpcRequestHeaderProto = delimited::take(&mut frame).map_err(|error| RequestError {
        call_id: call_id::INVALID,
        client_id: Bytes::new(),
        retry_count: -1,
        kind: RequestErrorKind::Header(error),
    })?;
    let fail = |kind| RequestError {
        call_id: header.call_id,
        client_id: header.client_id.clone(),
        retry_count: header.retry_count(),
        kind,
    };
    let body_error = |error| fail(RequestErrorKind::Body(error));
    if header.rpc_op != Some(OperationProto::RpcFinalPacket as i32) {
        return Err(fail(RequestErrorKind::Operation { operation: header.rpc_op }));
    }
    if header.rpc_kind != Some(RpcKindProto::RpcProtocolBuffer as i32) {
        return Err(fail(RequestErrorKind::Kind { kind: header.rpc_kind }));
    }
    match header.call_id {
        call_id::CONTEXT => {
            let context: IpcConnectionContextProto = delimited::take(&mut frame).map_err(body_error)?;
            let user = context.user_info.unwrap_or_default();
            Ok(Request::Context(ConnectionContext {
                effective_user: user.effective_user.unwrap_or_default(),
                real_user: user.real_user,
                protocol: context.protocol.unwrap_or_default(),
            }))
        }
        call_id::PING => Ok(Request::Ping),
        call_id::SASL => Ok(Request::Sasl(delimited::take(&mut frame).map_err(body_error)?)),
        0.. => {
            let call: RequestHeaderProto = delimited::take(&mut frame).map_err(body_error)?;
            let request = delimited::take_bytes(&mut frame).map_err(body_error)?;
            let retry_count = header.retry_count();
            let trace = trace::of_rpc(header.trace_info.as_ref());
            let (caller_context, signature) =
                header.caller_context.map(|context| (context.context, context.signature)).unzip();
            Ok(Request::Call(CallFrame {
                call_id: header.call_id,
                retry_count,
                client_id: header.client_id,
                protocol: call.declaring_class_protocol_name,
                protocol_version: call.client_protocol_version,
                method: call.method_name,
                request,
                state_id: header.state_id,
                caller_context,
                caller_signature: signature.flatten().unwrap_or_default(),
                trace,
            }))
        }
        call_id => Err(fail(RequestErrorKind::OutOfBand { call_id })),
    }
}

/// Returns the frame of one call, with the length prefix. `call_id`: 0 and up.
pub fn encode_call(
    call_id: i32,
    client_id: ClientId,
    retry_count: i32,
    protocol: &str,
    method: &str,
    request: &impl Message,
) -> Bytes {
    encode_call_with(CallContext::default(), call_id, client_id, retry_count, protocol, method, request)
}

/// Like `encode_call`, with a context.
pub fn encode_call_with(
    context: CallContext,
    call_id: i32,
    client_id: ClientId,
    retry_count: i32,
    protocol: &str,
    method: &str,
    request: &impl Message,
) -> Bytes {
    assert!(call_id >= 0, "negative call ids are not calls");
    let call = RequestHeaderProto {
        method_name: method.to_owned(),
        declaring_class_protocol_name: protocol.to_owned(),
        client_protocol_version: protocols::VERSION,
    };
    let header = RpcRequestHeaderProto {
        state_id: context.state_id,
        trace_info: context.trace.map(Into::into),
        ..header(call_id, Bytes::copy_from_slice(&client_id.0), retry_count)
    };
    frame(|into| {
        delimited::put(&header, into);
        delimited::put(&call, into);
        delimited::put(request, into);
    })
}

/// Returns the frame with the caller's identity, sent once before the first call.
pub fn encode_context(client_id: ClientId, context: &ConnectionContext) -> Bytes {
    let message = IpcConnectionContextProto {
        user_info: Some(UserInformationProto {
            effective_user: Some(context.effective_user.clone()),
            real_user: context.real_user.clone(),
        }),
        protocol: Some(context.protocol.clone()),
    };
    frame(|into| {
        delimited::put(&header(call_id::CONTEXT, Bytes::copy_from_slice(&client_id.0), -1), into);
        delimited::put(&message, into);
    })
}

/// Returns a frame that shows the server that the client is still waiting.
pub fn encode_ping(client_id: ClientId) -> Bytes {
    frame(|into| delimited::put(&header(call_id::PING, Bytes::copy_from_slice(&client_id.0), -1), into))
}

/// Returns a client's step of SASL negotiation.
pub fn encode_sasl_request(message: &RpcSaslProto) -> Bytes {
    frame(|into| {
        delimited::put(&header(call_id::SASL, Bytes::new(), -1), into);
        delimited::put(message, into);
    })
}

fn header(call_id: i32, client_id: Bytes, retry_count: i32) -> RpcRequestHeaderProto {
    RpcRequestHeaderProto {
        rpc_kind: Some(RpcKindProto::RpcProtocolBuffer as i32),
        rpc_op: Some(OperationProto::RpcFinalPacket as i32),
        call_id,
        client_id,
        retry_count: Some(retry_count),
        ..Default::default()
    }
}

/// Runs `fill` after a length prefix, which is set afterwards.
pub(super) fn frame(fill: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut bytes = BytesMut::with_capacity(256);
    bytes.put_u32(0);
    fill(&mut bytes);
    let length = u32::try_from(bytes.len() - FRAME_LENGTH_BYTES).expect("a frame is shorter than 4 GiB");
    bytes[..FRAME_LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    bytes.freeze()
}
