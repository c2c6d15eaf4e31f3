use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::{ConnectionLimit, ConnectionLimitOptions, MessageMemory, Party, SlowPeerLimits, tcp};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::buffered_bytes::BufferedBytes;
use super::metrics::RpcMetrics;
use super::server_connection::ServerConnection;
use super::service::Service;

/// Limits of a server. The defaults are Hadoop's where Hadoop has the same limit.
#[derive(Clone, Debug)]
pub struct RpcServerOptions {
    /// Maximum length of an accepted frame in bytes: `ipc.maximum.data.length`.
    pub frame_bytes_max: usize,
    /// Maximum number of connections. At the limit, a new connection replaces one without calls. If all have calls, the
    /// new one is closed. For the NameNode: `ipc.server.max.connections`.
    pub connections_max: usize,
    /// Maximum number of connections that have not sent their context. At the limit the oldest of them is closed. Never
    /// more than half of `connections_max`.
    pub unauthenticated_max: usize,
    /// Memory for long requests of all connections, held until they are answered. Servers may share it.
    pub message_memory: Arc<MessageMemory>,
    /// Maximum bytes, over all connections, of short requests in progress and of responses not yet taken. Beyond it,
    /// each connection may hold only a small fixed share.
    pub held_bytes_max: usize,
    /// Maximum number of concurrent calls of one connection; further calls stay in the socket.
    pub calls_in_flight_max: usize,
    /// Maximum bytes of one connection's requests in progress. The call that exceeds the limit is the last one
    /// accepted.
    pub request_bytes_max: usize,
    /// Maximum bytes of unsent responses of a connection. Beyond it, its calls stay in the socket.
    pub answer_bytes_max: usize,
    /// Longest time from accepting a connection to its context. Also the longest time without progress while a frame is
    /// arriving.
    pub stall_timeout: Duration,
    /// Time without calls after which a connection is closed.
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
    /// Returns the defaults, with `bytes` of memory for long requests of all connections.
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

    /// Returns the memory for long requests in bytes.
    pub fn message_bytes(&self) -> u64 {
        self.message_memory.limit()
    }

    /// Changes the memory for long requests, also for servers that were started with these options.
    pub fn set_message_bytes(&self, bytes: u64) {
        self.message_memory.set_limit(bytes);
    }
}

/// Error of opening a server's port.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for RPC: {source}")]
pub struct ServeError {
    pub address: String,
    pub source: std::io::Error,
}

/// A listening RPC port. Dropping it closes the port and its connections.
pub struct RpcServer {
    address: SocketAddr,
    metrics: Arc<RpcMetrics>,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl RpcServer {
    /// Listens on `address` (`host:port`; port 0 picks any free port) and serves `service`.
    pub async fn start<S: Service>(
        address: &str,
        service: Arc<S>,
        options: RpcServerOptions,
    ) -> Result<Self, ServeError> {
        let failed = |source| ServeError { address: address.to_string(), source };
        let listener = listen(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let metrics = RpcMetrics::new(service.protocols());
        let accepting = tokio::spawn(accept(listener, service, Arc::new(options), metrics.clone(), stopped));
        Ok(Self { address: local, metrics, stop, accepting })
    }

    /// Returns the listening address with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters of this port.
    pub fn metrics(&self) -> &Arc<RpcMetrics> {
        &self.metrics
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.accepting.abort();
    }
}

/// Accept backlog of the kernel. In a burst beyond it, clients wait a second before they retry.
const BACKLOG: u32 = 1024;

/// Listens on the first address of `address` that can be bound.
async fn listen(address: &str) -> std::io::Result<TcpListener> {
    let mut failed = std::io::Error::other("the name has no address");
    for address in tokio::net::lookup_host(address).await? {
        match tcp::listen(address, BACKLOG) {
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
    metrics: Arc<RpcMetrics>,
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
                // Probably out of file descriptors: close an idle connection to free one.
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
            metrics.record_refusal();
            continue;
        };
        let held = held_bytes.connection();
        let connection =
            ServerConnection::new(stream, remote, service.clone(), options.clone(), metrics.clone(), place, held);
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
                    tracing::debug!("RPC connection from {remote} closed: idle, and the connection limit is reached");
                }
            }
        });
    }
}
