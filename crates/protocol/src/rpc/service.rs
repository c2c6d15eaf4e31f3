use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hearth_wire::rpc::{ClientId, ErrorCode, RemoteError, exceptions};

/// Who calls, as the connection's context said. Shared by all calls of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The user to act as; empty when the client said none.
    pub user: Arc<str>,
    /// The proxy user who acts for `user`.
    pub real_user: Option<String>,
    pub address: SocketAddr,
    /// Text of the IP address, made once for all calls.
    pub machine: Arc<str>,
}

/// One call as it arrived.
#[derive(Clone, Debug)]
pub struct Call {
    pub caller: Arc<Caller>,
    pub protocol: String,
    pub method: String,
    /// The encoded request message.
    pub request: Bytes,
    /// `None` when the header carried something else than 16 bytes: the call then has no place in a retry cache.
    pub client_id: Option<ClientId>,
    pub call_id: i32,
    /// 0 for a first call, higher for repetitions, -1 when unknown. Informative only.
    pub retry_count: i32,
    /// The namenode transaction that the client has seen.
    pub state_id: Option<i64>,
    /// Free text for the audit log.
    pub caller_context: Option<String>,
    /// What shows that the context is its client's own; often empty.
    pub caller_signature: Bytes,
}

/// What a server offers over RPC.
pub trait Service: Send + Sync + 'static {
    /// Names of the protocols answered; calls of others are refused before they get here.
    fn protocols(&self) -> &[&'static str];

    /// Whether `caller` may speak here at all; asked once for each connection, which an error ends.
    ///
    /// Without rules for proxy users (`hadoop.proxyuser.*`) nobody acts for another: that is the default.
    fn authorize(&self, caller: &Caller) -> Result<(), RemoteError> {
        match &caller.real_user {
            Some(real) if **real != *caller.user => Err(RemoteError {
                class: exceptions::AUTHORIZATION.to_string(),
                message: format!("User: {real} is not allowed to impersonate {}", caller.user),
                code: Some(ErrorCode::FatalUnauthorized),
                fatal: true,
            }),
            _ => Ok(()),
        }
    }

    /// Answers one call with an encoded response message. Calls of one connection run interleaved on one task, so what blocks a thread
    /// must be moved to one of its own by the service.
    fn call(&self, call: Call) -> impl Future<Output = Result<Bytes, RemoteError>> + Send;
}

/// An exception of the service itself: Java class `class`, text `message`.
pub fn application_error(class: &str, message: impl Into<String>) -> RemoteError {
    RemoteError {
        class: class.to_string(),
        message: message.into(),
        code: Some(ErrorCode::ErrorApplication),
        fatal: false,
    }
}

/// The server's own trouble, such as a call that cannot be queued.
pub fn server_error(class: &str, message: impl Into<String>) -> RemoteError {
    RemoteError { code: Some(ErrorCode::ErrorRpcServer), ..application_error(class, message) }
}

/// The answer to a method that the protocol does not have here.
pub fn no_such_method(protocol: &str, method: &str) -> RemoteError {
    RemoteError {
        code: Some(ErrorCode::ErrorNoSuchMethod),
        ..application_error(
            exceptions::RPC_NO_SUCH_METHOD,
            format!("Unknown method {method} called on {protocol} protocol."),
        )
    }
}

/// The answer to a request message that cannot be decoded. The connection goes on.
pub fn undecodable(method: &str, error: &prost::DecodeError) -> RemoteError {
    server_error(exceptions::RPC_SERVER, format!("cannot decode the request of {method}: {error}"))
}
