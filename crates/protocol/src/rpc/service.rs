use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hearth_wire::rpc::{ClientId, ErrorCode, RemoteError, exceptions};
use tokio::time::Instant;

/// Identity of the caller, from the connection's context. Shared by all calls of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The user to act as; empty if the client sent none.
    pub user: Arc<str>,
    /// The proxy user that acts for `user`.
    pub real_user: Option<String>,
    pub address: SocketAddr,
    /// IP address as text, formatted once for all calls.
    pub machine: Arc<str>,
    /// Number of the connection, not used again by this process. 0 for a caller without a connection to an RPC server.
    pub connection: u64,
}

/// One call as it arrived.
#[derive(Clone, Debug)]
pub struct Call {
    pub caller: Arc<Caller>,
    pub protocol: String,
    pub method: String,
    /// The encoded request message.
    pub request: Bytes,
    /// `None` if the header did not have exactly 16 bytes; the call then cannot use a retry cache.
    pub client_id: Option<ClientId>,
    pub call_id: i32,
    /// 0 for a first call, higher for repetitions, -1 if unknown. Informative only.
    pub retry_count: i32,
    /// Namenode transaction that the client has seen.
    pub state_id: Option<i64>,
    /// Free text for the audit log.
    pub caller_context: Option<String>,
    /// Proof that the context comes from its client; often empty.
    pub caller_signature: Bytes,
    /// When it began to be served.
    pub began: Instant,
}

/// A service that a server offers over RPC.
pub trait Service: Send + Sync + 'static {
    /// Names of the protocols served; calls of other protocols are refused before they reach the service.
    fn protocols(&self) -> &[&'static str];

    /// Decides if `caller` may connect. Called once for each connection; an error closes it.
    ///
    /// The default has no rules for proxy users (`hadoop.proxyuser.*`), so it allows no user to act for another.
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

    /// Called once when a peer has closed its connection, or the connection has failed. Not called if this side closes it,
    /// for example because it was idle or the server stops. Calls that arrived over it may still be running.
    fn disconnected(&self, _caller: &Caller) {}

    /// Answers one call with an encoded response message. Calls of one connection run concurrently on one task, so the
    /// service must move blocking work to other threads.
    fn call(&self, call: Call) -> impl Future<Output = Result<Bytes, RemoteError>> + Send;
}

/// Creates an exception of the service itself: Java class `class`, text `message`.
pub fn application_error(class: &str, message: impl Into<String>) -> RemoteError {
    RemoteError {
        class: class.to_string(),
        message: message.into(),
        code: Some(ErrorCode::ErrorApplication),
        fatal: false,
    }
}

/// Creates an error of the server itself, such as a call that cannot be queued.
pub fn server_error(class: &str, message: impl Into<String>) -> RemoteError {
    RemoteError { code: Some(ErrorCode::ErrorRpcServer), ..application_error(class, message) }
}

/// Creates the error for a method that the protocol does not have here.
pub fn no_such_method(protocol: &str, method: &str) -> RemoteError {
    RemoteError {
        code: Some(ErrorCode::ErrorNoSuchMethod),
        ..application_error(
            exceptions::RPC_NO_SUCH_METHOD,
            format!("Unknown method {method} called on {protocol} protocol."),
        )
    }
}

/// Creates the error for a request message that cannot be decoded. The connection stays open.
pub fn undecodable(method: &str, error: &prost::DecodeError) -> RemoteError {
    server_error(exceptions::RPC_SERVER, format!("cannot decode the request of {method}: {error}"))
}
