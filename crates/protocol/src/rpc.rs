//! Hadoop RPC over TCP: [`RpcServer`] serves a [`Service`], [`RpcClient`] calls, and [`RetryCache`] prevents a repeated
//! call from being executed twice. Frames and headers are in `hearth_wire::rpc`; this module has the sockets, timeouts
//! and limits.

mod buffered_bytes;
mod client;
mod frames;
mod meta_info;
mod metrics;
mod retry_cache;
mod server;
mod server_connection;
mod service;
#[cfg(test)]
mod tests;

pub use client::{CallId, RpcClient, RpcClientOptions, RpcError, StateId, Target};
pub use meta_info::{HadoopMethod, hadoop_methods};
pub use metrics::{OTHER_METHODS, RpcMetrics};
pub use retry_cache::{Attempt, InProgress, RetryCache, RetryCacheOptions};
pub use server::{RpcServer, RpcServerOptions, ServeError};
pub use service::{Call, Caller, Service, application_error, no_such_method, server_error, undecodable};

/// Returns the name of a call's spans: `ClientProtocol/getFileInfo`. `protocol`: the name of a Java interface.
fn span_name(protocol: &str, method: &str) -> String {
    format!("{}/{method}", protocol.rsplit('.').next().unwrap_or(protocol))
}

pub use hearth_fabric::raise_descriptor_limit;
pub use hearth_wire::rpc::{ClientId, RemoteError};
