use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::{ConnectionLimit, ConnectionLimitOptions, MessageMemory, Party, SlowPeerLimits};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::buffered_bytes::BufferedBytes;
use super::server_connection::ServerConnection;
use super::service::Service;

/// Bounds of a server. The defaults are Hadoop's where it has the same bound.
#[derive(Clone, Debug)]
pub struct RpcServerOptions {
    /// Bytes of the longest frame accepted: `ipc.maximum.data.length`.
    pub frame_bytes_max: usize,
    /// Connections at a time. At this number a connection without calls gives way to the next one. If all have calls, the next one is closed.
    /// The NameNode's: `ipc.server.max.connections`.
    pub connections_max: usize,
    /// Connections among them that have not sent their context; at the next one the oldest is closed. Never more than half of all.
    pub unauthenticated_max: usize,
    /// Memory for long requests of all connections, until they are answered. Servers may share it.
    pub message_memory: Arc<MessageMemory>,
    /// Bytes of short requests that are being answered and of answers that were not taken, of all connections. Beyond it each may have
    /// no more than a small share of its own.
    pub held_bytes_max: usize,
    /// Calls of one connection that are being answered at a time; more stay in the socket.
    pub calls_in_flight_max: usize,
    /// Bytes of the requests of one connection that are being answered at a time; the call that passes it is the last one taken.
    pub request_bytes_max: usize,
    /// Bytes of answers that a connection may owe before its calls stay in the socket.
    pub answer_bytes_max: usize,
    /// From the connection to its context, and from the first byte of a frame to its last without progress.
    pub stall_timeout: Duration,
    /// A connection without calls for so long is closed.
    pub idle_timeout: Duration,
}

/// Default of `hearth.rpc.message.memory`.
const MESSAGE_BYTES_MAX: u64 = 192 << 20;

impl Default for RpcServerOptions {
    fn default() -> Self {
        Self::with_message_bytes(MESSAGE_BYTES_MAX)
    }
}

impl RpcServerOptions {
    /// Defaults, with `bytes` of memory for long requests of all connections.
    pub fn with_message_bytes(bytes: u64) -> Self {
        Self {
            frame_bytes_max: hearth_wire::rpc::FRAME_BYTES_MAX_DEFAULT,
            connections_max: 4096,
            unauthenticated_max: 1024,
            message_memory: MessageMemory::new(bytes, SlowPeerLimits::default()),
            held_bytes_max: 128 << 20,
            calls_in_flight_max: 512,
            request_bytes_max: 64 << 20,
            answer_bytes_max: 16 << 20,
            stall_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(600),
        }
    }
}

/// The port of a server cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for RPC: {source}")]
pub struct ServeError {
    pub address: String,
    pub source: std::io::Error,
}

/// A listening RPC port. It and its connections end when this is dropped.
pub struct RpcServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl RpcServer {
    /// Listens on `address` (`host:port`; port 0 takes any free one) and answers for `service`.
    pub async fn start<S: Service>(
        address: &str,
        service: Arc<S>,
        options: RpcServerOptions,
    ) -> Result<Self, ServeError> {
        let failed = |source| ServeError { address: address.to_string(), source };
        let listener = listen(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let accepting = tokio::spawn(accept(listener, service, Arc::new(options), stopped));
        Ok(Self { address: local, stop, accepting })
    }

    /// The address that it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.accepting.abort();
    }
}

/// Connections that the kernel keeps until they are accepted. In a burst beyond it clients wait a second before they try again.
const BACKLOG: u32 = 1024;

/// Listens on the first address of `address` that can be bound.
async fn listen(address: &str) -> std::io::Result<TcpListener> {
    let mut failed = std::io::Error::other("the name has no address");
    for address in tokio::net::lookup_host(address).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restart must not wait for the last process's connections to leave TIME_WAIT.
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn accept<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    options: Arc<RpcServerOptions>,
    stopped: watch::Receiver<bool>,
) {
    let places = ConnectionLimit::new(ConnectionLimitOptions {
        pending_max: options.unauthenticated_max,
        ..ConnectionLimitOptions::new(options.connections_max)
    });
    let held_bytes = BufferedBytes::new(options.held_bytes_max);
    loop {
        let (stream, remote) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: a connection that does nothing gives its own back.
                tracing::warn!("cannot accept an RPC connection: {error}");
                places.shed();
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some((place, mut gives_way)) = places.admit(Party::from(remote.ip())) else {
            tracing::warn!(
                "refusing RPC connection from {remote}: {} are open, and all are busy; see ipc.server.max.connections",
                options.connections_max
            );
            continue;
        };
        let connection =
            ServerConnection::new(stream, remote, service.clone(), options.clone(), place, held_bytes.clone());
        let mut stopped = stopped.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                ended = connection.run() => {
                    if let Err(reason) = ended {
                        tracing::debug!("RPC connection from {remote} closed: {reason}");
                    }
                }
                _ = stopped.wait_for(|stop| *stop) => {}
                () = gives_way.wait() => {
                    tracing::debug!("RPC connection from {remote} closed: it does nothing, and there are too many");
                }
            }
        });
    }
}
