use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use hearth_wire::rpc::{
    AuthProtocol, CallContext, ClientId, ConnectionContext, ConnectionHeader, FRAME_BYTES_MAX_DEFAULT, FrameTooLong,
    Outcome, RemoteError, Response, ResponseError, decode_response, encode_call_with, encode_context, encode_ping,
};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::frames::{FrameReader, FrameWriter};
use crate::trace::Span;

/// Maximum number of calls queued for one connection's task.
const CALLS_QUEUED_MAX: usize = 64;

/// Timeouts of a client. The defaults are Hadoop's.
#[derive(Clone, Debug)]
pub struct RpcClientOptions {
    /// `ipc.client.connect.timeout`.
    pub connect_timeout: Duration,
    /// Longest time from a call to its response: `ipc.client.rpc-timeout.ms`. If a call times out and nothing was
    /// received since it was sent, the connection is closed: its network path may be dead without any error.
    pub rpc_timeout: Duration,
    /// Time without traffic, while a call is outstanding, after which a ping is sent: `ipc.ping.interval`.
    pub ping_interval: Duration,
    /// Time without calls after which a connection is closed: `ipc.client.connection.maxidletime`.
    pub idle_timeout: Duration,
    /// Maximum length of an accepted response in bytes: `ipc.maximum.response.length`.
    pub response_bytes_max: usize,
    /// Source address of outgoing connections; a namenode takes it for the address of a datanode.
    pub bind: Option<IpAddr>,
    /// User that makes the calls on behalf of the target's user. The server decides whether that is allowed
    /// (`hadoop.proxyuser.*`). `None`: the target's user makes them.
    pub real_user: Option<Arc<str>>,
}

impl Default for RpcClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(20),
            rpc_timeout: Duration::from_secs(120),
            ping_interval: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(10),
            response_bytes_max: FRAME_BYTES_MAX_DEFAULT,
            bind: None,
            real_user: None,
        }
    }
}

/// Server, protocol and user of a call. Calls with equal targets share a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    pub address: SocketAddr,
    pub protocol: &'static str,
    pub user: Arc<str>,
}

/// Errors of a call.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: std::io::Error },
    /// The call may have been executed, unless `sent` is false.
    #[error("connection to {address} lost during {method}: {reason}")]
    Disconnected { address: SocketAddr, method: String, sent: bool, reason: String },
    /// The call may still be executed.
    #[error("no answer from {address} to {method} within {waited:?}")]
    TimedOut { address: SocketAddr, method: String, waited: Duration },
    #[error("{}: {}", .0.class, first_line(&.0.message))]
    Remote(RemoteError),
    #[error("cannot decode the response of {address} to {method}: {source}")]
    Undecodable { address: SocketAddr, method: String, source: prost::DecodeError },
}

impl RpcError {
    /// Returns the Java class name if the server answered with an exception.
    pub fn remote_class(&self) -> Option<&str> {
        match self {
            Self::Remote(error) => Some(&error.class),
            _ => None,
        }
    }

    /// Returns true if another server, or the same one later, may answer, because the error does not come from the
    /// service itself.
    pub fn is_transport(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Disconnected { .. } | Self::TimedOut { .. })
    }
}

/// Java servers append a stack trace to the message.
fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or("")
}

/// Identifies one call over all its repetitions, for the server's retry cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallId(i32);

/// Highest transaction of one namespace that this caller has seen. An observer namenode answers only once it has
/// applied that transaction. Clones share the value. Source: Hadoop's `ClientGSIContext`.
#[derive(Clone, Debug)]
pub struct StateId(Arc<AtomicI64>);

/// Value before any transaction was seen.
const NO_STATE: i64 = i64::MIN;

impl Default for StateId {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(NO_STATE)))
    }
}

impl StateId {
    fn get(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Acquire)).filter(|id| *id != NO_STATE)
    }

    fn note(&self, seen: Option<i64>) {
        if let Some(seen) = seen {
            self.0.fetch_max(seen, Ordering::AcqRel);
        }
    }
}

/// Client of Hadoop RPC servers. Cheap to clone; clones share connections and client id.
#[derive(Clone)]
pub struct RpcClient {
    inner: Arc<Inner>,
}

struct Inner {
    id: ClientId,
    next_call: AtomicI32,
    options: RpcClientOptions,
    connections: Mutex<HashMap<Target, mpsc::Sender<QueuedCall>>>,
}

struct QueuedCall {
    call_id: i32,
    frame: Bytes,
    waiting: PendingCall,
}

/// A call that waits for its response.
struct PendingCall {
    answer: oneshot::Sender<Result<Bytes, CallFailure>>,
    /// Updated with the state id of the response.
    state: Option<StateId>,
    /// Time when the caller gives up.
    deadline: Instant,
}

impl PendingCall {
    fn fail(self, lost: CallFailure) {
        // The waiting caller may have given up.
        let _ = self.answer.send(Err(lost));
    }
}

/// Reasons why the response to a call will not come.
#[derive(Debug)]
enum CallFailure {
    Remote(RemoteError),
    Connection { sent: bool, reason: String },
}

impl RpcClient {
    pub fn new(options: RpcClientOptions) -> Self {
        let mut id = [0; 16];
        // Without random ids two clients could get each other's responses from a retry cache.
        getrandom::fill(&mut id).expect("the system provides random bytes");
        Self {
            inner: Arc::new(Inner {
                id: ClientId(id),
                next_call: AtomicI32::new(0),
                options,
                connections: Mutex::new(HashMap::new()),
            }),
        }
    }

    /// Returns the number of open connections.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.inner.connections.lock().values().filter(|sender| !sender.is_closed()).count()
    }

    pub fn id(&self) -> ClientId {
        self.inner.id
    }

    /// Returns an id for a call that may be repeated.
    pub fn new_call(&self) -> CallId {
        CallId(self.inner.next_call.fetch_add(1, Ordering::Relaxed) & i32::MAX)
    }

    /// Makes a single call.
    pub async fn call<A: Message + Default>(
        &self,
        target: &Target,
        method: &str,
        request: &impl Message,
    ) -> Result<A, RpcError> {
        self.call_as(self.new_call(), 0, target, method, request).await
    }

    /// Calls under `id`; `retry`: number of earlier tries. A call that was certainly not sent (because the server had
    /// closed the idle connection) is sent again over a new connection.
    pub async fn call_as<A: Message + Default>(
        &self,
        id: CallId,
        retry: i32,
        target: &Target,
        method: &str,
        request: &impl Message,
    ) -> Result<A, RpcError> {
        self.call_after(None, id, retry, target, method, request).await
    }

    /// Calls like [`Self::call_as`], with a state id that the response raises.
    pub async fn call_after<A: Message + Default>(
        &self,
        state: Option<&StateId>,
        id: CallId,
        retry: i32,
        target: &Target,
        method: &str,
        request: &impl Message,
    ) -> Result<A, RpcError> {
        let mut span = Span::client(|| super::span_name(target.protocol, method));
        if span.is_recording() {
            span.set("server.address", target.address.to_string());
        }
        let context = CallContext { state_id: state.and_then(StateId::get), trace: span.context() };
        let frame = encode_call_with(context, id.0, self.inner.id, retry, target.protocol, method, request);
        let mut answer = self.send(id, target, method, frame.clone(), state).await;
        if let Err(RpcError::Disconnected { sent: false, .. }) = answer {
            answer = self.send(id, target, method, frame, state).await;
        }
        let answer = answer.inspect_err(|error| span.fail(error))?;
        A::decode(answer).map_err(|source| RpcError::Undecodable {
            address: target.address,
            method: method.to_string(),
            source,
        })
    }

    async fn send(
        &self,
        id: CallId,
        target: &Target,
        method: &str,
        frame: Bytes,
        state: Option<&StateId>,
    ) -> Result<Bytes, RpcError> {
        let disconnected =
            |sent, reason| RpcError::Disconnected { address: target.address, method: method.to_string(), sent, reason };
        let waited = self.inner.options.rpc_timeout;
        let deadline = Instant::now() + waited;
        let timed_out = |_| RpcError::TimedOut { address: target.address, method: method.to_string(), waited };
        let connection = self.connection(target).await?;
        let (answer, answered) = oneshot::channel();
        let outgoing =
            QueuedCall { call_id: id.0, frame, waiting: PendingCall { answer, state: state.cloned(), deadline } };
        tokio::time::timeout_at(deadline, connection.send(outgoing))
            .await
            .map_err(timed_out)?
            .map_err(|_| disconnected(false, "closed while idle".to_string()))?;
        match tokio::time::timeout_at(deadline, answered).await.map_err(timed_out)? {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(CallFailure::Remote(error))) => Err(RpcError::Remote(error)),
            Ok(Err(CallFailure::Connection { sent, reason })) => Err(disconnected(sent, reason)),
            // The connection task ended with the call still in its queue.
            Err(_) => Err(disconnected(false, "closed while idle".to_string())),
        }
    }

    async fn connection(&self, target: &Target) -> Result<mpsc::Sender<QueuedCall>, RpcError> {
        if let Some(sender) = self.inner.connections.lock().get(target).filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = self.connect(target.address).await?;
        let (sender, receiver) = mpsc::channel(CALLS_QUEUED_MAX);
        {
            let mut connections = self.inner.connections.lock();
            connections.retain(|_, sender| !sender.is_closed());
            if let Some(other) = connections.get(target) {
                // Another call connected first; dropping our connection closes it.
                return Ok(other.clone());
            }
            connections.insert(target.clone(), sender.clone());
        }
        let mut connection = ClientConnection {
            stream,
            client: self.inner.id,
            options: self.inner.options.clone(),
            input: FrameReader::default(),
            output: FrameWriter::default(),
            waiting: HashMap::new(),
        };
        connection.queue_preamble(target);
        tokio::spawn(connection.run(receiver));
        Ok(sender)
    }

    async fn connect(&self, address: SocketAddr) -> Result<TcpStream, RpcError> {
        let failed = |source| RpcError::Connect { address, source };
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }
        .map_err(failed)?;
        if let Some(bind) = self.inner.options.bind.filter(|bind| bind.is_ipv4() == address.is_ipv4()) {
            socket.bind(SocketAddr::new(bind, 0)).map_err(failed)?;
        }
        let limit = self.inner.options.connect_timeout;
        let stream = match tokio::time::timeout(limit, socket.connect(address)).await {
            Ok(connected) => connected.map_err(failed)?,
            Err(_) => return Err(failed(std::io::ErrorKind::TimedOut.into())),
        };
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    }
}

/// One connection: a single task sends calls, reads responses in any order, and sends pings.
struct ClientConnection {
    stream: TcpStream,
    client: ClientId,
    options: RpcClientOptions,
    input: FrameReader,
    output: FrameWriter,
    /// Bounded by the number of callers: each entry has a caller with a timeout.
    waiting: HashMap<i32, PendingCall>,
}

/// Reasons for the end of a connection.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("closed by the other side")]
    Closed,
    #[error("{0}")]
    TooLong(#[from] FrameTooLong),
    #[error("{0}")]
    Response(#[from] ResponseError),
    #[error("refused: {}: {}", .0.class, first_line(&.0.message))]
    Refused(RemoteError),
    #[error("the server neither accepts nor sends data")]
    Stalled,
    #[error("nothing was received from the server before a call timed out")]
    Silent,
}

impl ClientConnection {
    fn queue_preamble(&mut self, target: &Target) {
        let header = ConnectionHeader { service_class: 0, auth: AuthProtocol::Simple };
        self.output.push(Bytes::copy_from_slice(&header.encode()));
        let context = ConnectionContext {
            effective_user: target.user.to_string(),
            real_user: self.options.real_user.as_deref().map(str::to_owned),
            protocol: target.protocol.to_string(),
        };
        self.output.push(encode_context(self.client, &context));
    }

    async fn run(mut self, mut calls: mpsc::Receiver<QueuedCall>) {
        let broken = self.exchange(&mut calls).await.err();
        // From here on callers open a new connection; calls still queued were never sent.
        calls.close();
        while let Ok(unsent) = calls.try_recv() {
            let reason = "connection ended".to_string();
            unsent.waiting.fail(CallFailure::Connection { sent: false, reason });
        }
        let Some(broken) = broken else { return };
        for (_, waiting) in self.waiting.drain() {
            let lost = match &broken {
                ConnectionError::Refused(error) => CallFailure::Remote(error.clone()),
                other => CallFailure::Connection { sent: true, reason: other.to_string() },
            };
            waiting.fail(lost);
        }
    }

    /// Runs the connection. Returns `Ok` after it was idle for too long.
    async fn exchange(&mut self, calls: &mut mpsc::Receiver<QueuedCall>) -> Result<(), ConnectionError> {
        // Time when bytes were last sent or received, or a ping was started.
        let mut moved = Instant::now();
        let mut used = moved;
        // Earliest deadline of the calls made since anything was last received. Pings are not answered, and data for a
        // dead path goes into the socket's buffer. As long as the kernel retransmits, this is the only sign of a dead
        // path.
        let mut silent_at: Option<Instant> = None;
        loop {
            let (mut reading, writing) = self.stream.split();
            if !self.output.is_empty() && self.output.write_to(&writing)? > 0 {
                moved = Instant::now();
                used = moved;
            }
            self.waiting.retain(|_, waiting| !waiting.answer.is_closed());
            let mut wake_up = if self.waiting.is_empty() {
                used + self.options.idle_timeout
            } else {
                moved + self.options.ping_interval
            };
            if let Some(silent_at) = silent_at {
                wake_up = wake_up.min(silent_at);
            }
            tokio::select! {
                call = calls.recv() => match call {
                    Some(call) => {
                        used = Instant::now();
                        if silent_at.is_some_and(|at| at <= used) {
                            // The caller may be the one whose call just timed out. This call needs a working connection
                            // and must not get the dead one again.
                            calls.close();
                            call.waiting.fail(CallFailure::Connection { sent: false, reason: ConnectionError::Silent.to_string() });
                            return Err(ConnectionError::Silent);
                        }
                        if self.waiting.is_empty() {
                            moved = used;
                        }
                        let deadline = call.waiting.deadline;
                        silent_at = Some(silent_at.map_or(deadline, |at| at.min(deadline)));
                        self.waiting.insert(call.call_id, call.waiting);
                        self.output.push(call.frame);
                    }
                    // Every client was dropped, and so was every caller.
                    None => return Ok(()),
                },
                count = self.input.read_from(&mut reading) => {
                    if count? == 0 {
                        return Err(ConnectionError::Closed);
                    }
                    moved = Instant::now();
                    used = moved;
                    silent_at = None;
                    self.handle_responses()?;
                }
                ready = writing.writable(), if !self.output.is_empty() => ready?,
                () = tokio::time::sleep_until(wake_up) => {
                    if silent_at == Some(wake_up) {
                        // This process may have been suspended while responses arrived.
                        match self.input.read_from(&mut reading).now_or_never() {
                            Some(Ok(0)) => return Err(ConnectionError::Closed),
                            Some(Ok(_)) => {}
                            Some(Err(error)) => return Err(error.into()),
                            None => return Err(ConnectionError::Silent),
                        }
                        moved = Instant::now();
                        used = moved;
                        silent_at = None;
                        self.handle_responses()?;
                        continue;
                    }
                    if self.waiting.is_empty() {
                        return if self.output.is_empty() { Ok(()) } else { Err(ConnectionError::Stalled) };
                    }
                    if !self.output.is_empty() {
                        // This process may have been suspended while the server accepted all data.
                        if self.output.write_to(&writing)? == 0 {
                            // Not one byte of it was sent since, even if it is only the last ping.
                            return Err(ConnectionError::Stalled);
                        }
                        moved = Instant::now();
                        used = moved;
                        continue;
                    }
                    moved = Instant::now();
                    self.output.push(encode_ping(self.client));
                }
            }
        }
    }

    fn handle_responses(&mut self) -> Result<(), ConnectionError> {
        while let Some(frame) = self.input.next_frame(self.options.response_bytes_max)? {
            let Response { call_id, client_id, outcome, state_id, .. } = decode_response(frame)?;
            if call_id < 0 {
                if let Outcome::Error(error) = outcome {
                    return Err(ConnectionError::Refused(error));
                }
                continue;
            }
            if !client_id.is_empty() && client_id[..] != self.client.0 {
                return Err(ConnectionError::Io(std::io::Error::other("received a response for another client")));
            }
            let fatal = matches!(&outcome, Outcome::Error(error) if error.fatal);
            // A response whose caller has given up is dropped.
            if let Some(PendingCall { answer, state, .. }) = self.waiting.remove(&call_id) {
                if let Some(state) = state {
                    state.note(state_id);
                }
                let _ = answer.send(match outcome {
                    Outcome::Success(message) => Ok(message),
                    Outcome::Error(error) => Err(CallFailure::Remote(error)),
                });
            }
            if fatal {
                return Err(ConnectionError::Closed);
            }
        }
        Ok(())
    }
}
