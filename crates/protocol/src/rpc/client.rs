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
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::frames::{FrameReader, FrameWriter};
use crate::trace::Span;

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
    connections: Mutex<HashMap<Target, Arc<ClientConnection>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // No call is in flight: callers hold the client.
        for connection in self.connections.get_mut().values() {
            connection.state.lock().end = Some(End::Unused);
            connection.changed.notify_one();
        }
    }
}

/// A call that waits for its response.
struct PendingCall {
    answer: oneshot::Sender<Result<Bytes, CallFailure>>,
    /// Updated with the state id of the response.
    state: Option<StateId>,
    /// Time when the caller gives up.
    deadline: Instant,
    /// Where the call begins in all output of its connection, in bytes.
    starts_at: u64,
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
        self.inner.connections.lock().values().filter(|connection| !connection.has_ended()).count()
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

    /// Calls under `id`; `retry`: number of earlier tries. A call that was certainly not sent (because its connection
    /// ended behind earlier calls) is sent again, once, over a new connection.
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
        let (answer, answered) = oneshot::channel();
        let waiting = PendingCall { answer, state: state.cloned(), deadline, starts_at: 0 };
        self.start(target, id.0, frame, waiting).await?;
        match tokio::time::timeout_at(deadline, answered).await.map_err(timed_out)? {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(CallFailure::Remote(error))) => Err(RpcError::Remote(error)),
            Ok(Err(CallFailure::Connection { sent, reason })) => Err(disconnected(sent, reason)),
            // The runtime that ran the connection has ended.
            Err(_) => Err(disconnected(true, ConnectionError::Abandoned.to_string())),
        }
    }

    /// Starts a call over the open connection to the target, or over a new one.
    async fn start(&self, target: &Target, call_id: i32, frame: Bytes, call: PendingCall) -> Result<(), RpcError> {
        let open = self.inner.connections.lock().get(target).cloned();
        let call = match open {
            Some(open) => match open.start(call_id, frame.clone(), call) {
                Ok(()) => return Ok(()),
                Err(call) => call,
            },
            None => call,
        };
        let (reading, writing) = self.connect(target.address).await?.into_split();
        let writing = Arc::new(writing);
        let mut connections = self.inner.connections.lock();
        connections.retain(|_, connection| !connection.has_ended());
        let call = match connections.get(target) {
            // Another call connected first; dropping our connection closes it.
            Some(other) => match other.start(call_id, frame.clone(), call) {
                Ok(()) => return Ok(()),
                Err(call) => call,
            },
            None => call,
        };
        let connection =
            Arc::new(ClientConnection::new(Arc::clone(&writing), self.inner.id, &self.inner.options, target));
        // Before others see the connection and its task runs, so that it does not end as unused.
        connection.push(&mut connection.state.lock(), call_id, frame, call);
        connections.insert(target.clone(), Arc::clone(&connection));
        drop(connections);
        tokio::spawn(run(Running { connection, broken: None }, reading, writing));
        Ok(())
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

/// One connection. Callers send their calls themselves, as far as the socket accepts them. A task sends the rest, reads the
/// responses, in any order, and sends pings.
struct ClientConnection {
    client: ClientId,
    options: RpcClientOptions,
    state: Mutex<State>,
    /// Notified if the task has to look at the state.
    changed: Notify,
}

struct State {
    /// `None` after the end of the task, which closes the socket.
    stream: Option<Arc<OwnedWriteHalf>>,
    /// Bounded by the number of callers, and by the time until the connection counts as silent or stalled: the calls of
    /// callers that have given up stay in it.
    output: FrameWriter,
    /// Number of bytes of the output that the socket has accepted.
    written: u64,
    /// Bounded by the number of callers: each entry has a caller with a timeout.
    waiting: HashMap<i32, PendingCall>,
    /// Time when bytes were last sent or received, or a ping was started.
    moved: Instant,
    /// Time of the last call, and of the last bytes in either direction.
    used: Instant,
    /// Earliest deadline of the calls made since anything was last received. Pings are not answered, and data for a dead
    /// path goes into the socket's buffer. As long as the kernel retransmits, this is the only sign of a dead path.
    silent_at: Option<Instant>,
    /// When the task will look at the state without being notified.
    wake_up: Instant,
    /// Set once. No call starts afterwards.
    end: Option<End>,
}

/// Why no more calls are accepted.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Every client was dropped, or none has called for a while.
    Unused,
    /// A call found that nothing was received before an earlier one timed out.
    Silent,
    /// The task has ended.
    Broken,
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
    #[error("the program has ended the runtime of the connection")]
    Abandoned,
}

impl State {
    /// Writes until the socket is full.
    fn flush(&mut self) -> std::io::Result<usize> {
        let Some(stream) = &self.stream else { return Ok(0) };
        if self.output.is_empty() {
            return Ok(0);
        }
        let before = self.output.len();
        let outcome = self.output.write_to((**stream).as_ref());
        // An error may come after some bytes.
        let count = before - self.output.len();
        self.written += count as u64;
        if count > 0 {
            self.moved = Instant::now();
            self.used = self.moved;
        }
        outcome.map(|_| count)
    }

    fn received(&mut self) {
        self.moved = Instant::now();
        self.used = self.moved;
        self.silent_at = None;
    }

    /// Returns why no call may start any more although the task has not noticed yet. The process may have been suspended.
    fn overdue(&self, now: Instant, options: &RpcClientOptions) -> Option<End> {
        if self.silent_at.is_some_and(|at| at <= now) {
            // The caller may be the one whose call just timed out. This call needs a working connection and must not get
            // the dead one again.
            return Some(End::Silent);
        }
        // The server may have closed it, too.
        (self.waiting.is_empty() && self.used + options.idle_timeout <= now).then_some(End::Unused)
    }

    /// Returns when the task has to look at the state.
    fn next_look(&self, options: &RpcClientOptions) -> Instant {
        let look =
            if self.waiting.is_empty() { self.used + options.idle_timeout } else { self.moved + options.ping_interval };
        self.silent_at.map_or(look, |silent_at| look.min(silent_at))
    }
}

/// Runs a connection to its end. Callers open a new one from then on.
async fn run(mut running: Running, reading: OwnedReadHalf, writing: Arc<OwnedWriteHalf>) {
    running.broken = running.connection.exchange(reading, &writing).await.err();
}

/// The task of a connection. Its end is the end of the connection, also if the program ends the runtime.
struct Running {
    connection: Arc<ClientConnection>,
    broken: Option<ConnectionError>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let (unanswered, written) = {
            let mut state = self.connection.state.lock();
            state.end.get_or_insert(End::Broken);
            state.stream = None;
            state.output = FrameWriter::default();
            (std::mem::take(&mut state.waiting), state.written)
        };
        for (_, waiting) in unanswered {
            let sent = written > waiting.starts_at;
            waiting.fail(match &self.broken {
                Some(ConnectionError::Refused(error)) => CallFailure::Remote(error.clone()),
                Some(other) => CallFailure::Connection { sent, reason: other.to_string() },
                None => CallFailure::Connection { sent, reason: ConnectionError::Abandoned.to_string() },
            });
        }
    }
}

impl ClientConnection {
    fn new(stream: Arc<OwnedWriteHalf>, client: ClientId, options: &RpcClientOptions, target: &Target) -> Self {
        let header = ConnectionHeader { service_class: 0, auth: AuthProtocol::Simple };
        let context = ConnectionContext {
            effective_user: target.user.to_string(),
            real_user: options.real_user.as_deref().map(str::to_owned),
            protocol: target.protocol.to_string(),
        };
        let mut output = FrameWriter::default();
        output.push(Bytes::copy_from_slice(&header.encode()));
        output.push(encode_context(client, &context));
        let now = Instant::now();
        let state = State {
            stream: Some(stream),
            output,
            written: 0,
            waiting: HashMap::new(),
            moved: now,
            used: now,
            silent_at: None,
            wake_up: now,
            end: None,
        };
        Self { client, options: options.clone(), state: Mutex::new(state), changed: Notify::new() }
    }

    fn has_ended(&self) -> bool {
        self.state.lock().end.is_some()
    }

    /// Sends a call, or as much of it as the socket accepts now. The call waits for its response from then on.
    ///
    /// Errors: the connection has ended. Nothing was sent, and the call is returned.
    fn start(&self, call_id: i32, frame: Bytes, call: PendingCall) -> Result<(), PendingCall> {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return Err(call);
        }
        if let Some(end) = state.overdue(Instant::now(), &self.options) {
            state.end = Some(end);
            self.changed.notify_one();
            return Err(call);
        }
        self.push(&mut state, call_id, frame, call);
        Ok(())
    }

    /// Puts a call behind the output, and writes it at once if it is the first.
    fn push(&self, state: &mut State, call_id: i32, frame: Bytes, mut call: PendingCall) {
        state.used = Instant::now();
        if state.waiting.is_empty() {
            state.moved = state.used;
        }
        state.silent_at = Some(state.silent_at.map_or(call.deadline, |at| at.min(call.deadline)));
        call.starts_at = state.written + state.output.len() as u64;
        state.waiting.insert(call_id, call);
        let is_first = state.output.is_empty();
        state.output.push(frame);
        if is_first {
            // After an error the output is left to the task, which meets the error again.
            let _ = state.flush();
        }
        // Behind earlier output, the task writes.
        if !state.output.is_empty() || state.next_look(&self.options) < state.wake_up {
            self.changed.notify_one();
        }
    }

    /// Runs the connection. Returns `Ok` after it was idle for too long.
    async fn exchange(&self, mut reading: OwnedReadHalf, writing: &OwnedWriteHalf) -> Result<(), ConnectionError> {
        let mut input = FrameReader::default();
        loop {
            let (wake_up, is_full) = {
                let mut state = self.state.lock();
                match state.end {
                    None => {}
                    Some(End::Silent) => return Err(ConnectionError::Silent),
                    Some(End::Unused | End::Broken) => return Ok(()),
                }
                state.flush()?;
                state.waiting.retain(|_, waiting| !waiting.answer.is_closed());
                state.wake_up = state.next_look(&self.options);
                (state.wake_up, !state.output.is_empty())
            };
            tokio::select! {
                count = input.read_from(&mut reading) => {
                    if count? == 0 {
                        return Err(ConnectionError::Closed);
                    }
                    self.state.lock().received();
                    self.handle_responses(&mut input)?;
                }
                ready = writing.writable(), if is_full => ready?,
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(wake_up) => {
                    if self.look(&mut reading, &mut input)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Looks at a connection on which nothing has moved for a while. Returns whether it is unused.
    fn look(&self, reading: &mut OwnedReadHalf, input: &mut FrameReader) -> Result<bool, ConnectionError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.silent_at.is_some_and(|at| at <= now) {
            drop(state);
            // This process may have been suspended while responses arrived.
            match input.read_from(reading).now_or_never() {
                Some(Ok(0)) => return Err(ConnectionError::Closed),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err(ConnectionError::Silent),
            }
            self.state.lock().received();
            self.handle_responses(input)?;
            return Ok(false);
        }
        if state.next_look(&self.options) > now {
            // Calls have arrived since.
            return Ok(false);
        }
        if state.waiting.is_empty() {
            if !state.output.is_empty() {
                return Err(ConnectionError::Stalled);
            }
            // Under the lock, so that no call starts any more.
            state.end = Some(End::Unused);
            return Ok(true);
        }
        if !state.output.is_empty() {
            // This process may have been suspended while the server accepted all data. Otherwise, not one byte was sent
            // since, even if it is only the last ping.
            return if state.flush()? == 0 { Err(ConnectionError::Stalled) } else { Ok(false) };
        }
        state.moved = now;
        state.output.push(encode_ping(self.client));
        Ok(false)
    }

    fn handle_responses(&self, input: &mut FrameReader) -> Result<(), ConnectionError> {
        while let Some(frame) = input.next_frame(self.options.response_bytes_max)? {
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
            let answered = self.state.lock().waiting.remove(&call_id);
            if let Some(PendingCall { answer, state, .. }) = answered {
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
