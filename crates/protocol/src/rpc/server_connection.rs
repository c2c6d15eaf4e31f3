//! One connection of a server. A single task reads frames, runs the calls concurrently, and writes responses in the
//! order in which they become ready. A call that is ready at once is answered without being queued.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hearth_fabric::{Claim, ConnectionPermit, Party};
use hearth_wire::proto::common::RpcSaslProto;
use hearth_wire::proto::common::rpc_sasl_proto::SaslState;
use hearth_wire::rpc::{
    AuthProtocol, CONNECTION_HEADER_BYTES, CallFrame, ClientId, ConnectionHeader, ConnectionHeaderError, ErrorCode,
    FrameTooLong, IPC_VERSION, RemoteError, Request, call_id, decode_request, encode_error, encode_sasl_response,
    encode_success, exceptions, protocols,
};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::buffered_bytes::ConnectionBytes;
use super::frames::{FrameReader, FrameWriter, LONG_FRAME_BYTES};
use super::meta_info;
use super::metrics::{Counted, MethodIndex, RpcMetrics};
use super::server::RpcServerOptions;
use super::service::{Call, Caller, Service, application_error};
use crate::trace::{self, Span};

/// Frames before the context are small: an unauthenticated peer gets no large buffer.
const FRAME_BYTES_MAX_BEFORE_CONTEXT: usize = 64 * 1024;

/// Number of the next connection of any server in this process.
static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// Answer to browsers and probes.
const HTTP_ANSWER: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This port speaks Hadoop RPC, not HTTP. The status pages of this daemon have a port of their own.\r\n";

/// Reasons for closing a connection from this side.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionEnd {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Header(#[from] ConnectionHeaderError),
    #[error("{0}")]
    TooLong(#[from] FrameTooLong),
    #[error("{0}")]
    Refused(String),
    #[error("no progress for too long")]
    Stalled,
    #[error("idle for too long")]
    Idle,
    #[error("a long request arrived too slowly while other requests waited for memory")]
    Slow,
}

type Answer = Pin<Box<dyn Future<Output = CompletedCall> + Send>>;

/// A call that was not answered at once.
struct PendingAnswer {
    answer: Answer,
    _counted: Counted,
}

impl Future for PendingAnswer {
    type Output = CompletedCall;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CompletedCall> {
        self.answer.as_mut().poll(context)
    }
}

/// A call that has its response.
struct CompletedCall {
    frame: Bytes,
    /// Bytes of the call's request.
    request_bytes: usize,
    /// Request bytes not covered by a memory claim.
    short_bytes: usize,
    /// When its operation ended.
    ended: Instant,
}

/// Stages of a connection.
enum Stage {
    Header,
    /// The peer sends its context, after SASL if it requested SASL.
    Context {
        sasl: bool,
    },
    Calls(Arc<Caller>),
}

pub(super) struct ServerConnection<S> {
    stream: TcpStream,
    remote: SocketAddr,
    service: Arc<S>,
    options: Arc<RpcServerOptions>,
    metrics: Arc<RpcMetrics>,
    _counted: Counted,
    stage: Stage,
    place: ConnectionPermit,
    /// Memory claim of the long request that is arriving.
    claim: Option<Claim>,
    input: FrameReader,
    output: FrameWriter,
    in_flight: FuturesUnordered<PendingAnswer>,
    /// Bytes of the requests in flight.
    in_flight_bytes: usize,
    /// The part of `in_flight_bytes` not covered by a memory claim.
    short_bytes: usize,
    /// `short_bytes` plus the responses that the peer has not taken.
    held: ConnectionBytes,
    /// True if a call has arrived since the connection was last marked idle.
    is_active: bool,
    /// Time of the last read from the socket, which completed the frames that are complete in `input` now: all of them are
    /// taken before more is read.
    read_at: Instant,
    /// Start time of the next call: the time of the last read, or the end of the previous call. `None`: the clock has to
    /// be read, which short calls avoid.
    now: Option<Instant>,
    /// Method of the last call.
    last_method: Option<MethodIndex>,
}

impl<S: Service> ServerConnection<S> {
    pub fn new(
        stream: TcpStream,
        remote: SocketAddr,
        service: Arc<S>,
        options: Arc<RpcServerOptions>,
        metrics: Arc<RpcMetrics>,
        place: ConnectionPermit,
        held: ConnectionBytes,
    ) -> Self {
        Self {
            stream,
            remote,
            service,
            options,
            _counted: metrics.count_connection(),
            metrics,
            stage: Stage::Header,
            place,
            claim: None,
            input: FrameReader::default(),
            output: FrameWriter::default(),
            in_flight: FuturesUnordered::new(),
            in_flight_bytes: 0,
            short_bytes: 0,
            is_active: true,
            held,
            read_at: Instant::now(),
            now: None,
            last_method: None,
        }
    }

    /// Serves until the peer disconnects (`Ok`) or this side closes the connection.
    pub async fn run(mut self) -> Result<(), ConnectionEnd> {
        self.stream.set_nodelay(true)?;
        let outcome = self.serve().await;
        if let (Stage::Calls(caller), Ok(()) | Err(ConnectionEnd::Io(_))) = (&self.stage, &outcome) {
            self.service.disconnected(caller);
        }
        if outcome.is_err() {
            // Gives the peer some time to receive the reason.
            let _ = tokio::time::timeout(self.options.stall_timeout, self.drain()).await;
        }
        // The peer may have disconnected in order to repeat its calls over a new connection. Its first calls run to
        // completion, so that the repetitions find their responses in the retry cache.
        let unfinished = std::mem::take(&mut self.in_flight);
        if !unfinished.is_empty() {
            let patience = self.options.idle_timeout;
            tokio::spawn(async move { tokio::time::timeout(patience, unfinished.for_each(|_| async {})).await });
        }
        outcome
    }

    async fn serve(&mut self) -> Result<(), ConnectionEnd> {
        // Updated by every byte in either direction and by every response.
        let mut progress = Instant::now();
        // Reset only when it fires, not with every byte, which would change a runtime timer each time.
        let mut look = pin!(tokio::time::sleep_until(self.deadline(progress).0));
        loop {
            self.read_frames()?;
            self.now = None;
            let was_full = !self.has_room();
            if !self.output.is_empty() {
                let sent = self.output.write_to(&self.stream)?;
                if sent > 0 {
                    self.metrics.record_sent(sent);
                    progress = Instant::now();
                }
            }
            // After the write, which may have been all that the peer was waited for.
            let (deadline, _) = self.deadline(progress);
            if deadline < look.deadline() {
                look.as_mut().reset(deadline);
            }
            self.note_held();
            let may_read = self.has_room();
            if was_full && may_read {
                // Process the calls that are already buffered first: no further bytes may ever arrive.
                continue;
            }
            let may_read = may_read && self.claim.as_ref().is_none_or(Claim::is_granted);
            let (mut reading, writing) = self.stream.split();
            tokio::select! {
                count = self.input.read_from(&mut reading), if may_read => {
                    let count = count?;
                    if count == 0 {
                        return Ok(());
                    }
                    if let Some(claim) = &self.claim {
                        claim.received(count);
                    }
                    self.metrics.record_received(count);
                    progress = Instant::now();
                    self.read_at = progress;
                    self.now = Some(progress);
                }
                granted = step_of(&mut self.claim), if self.claim.is_some() => {
                    if !granted {
                        return Err(ConnectionEnd::Slow);
                    }
                    if let Some(bytes) = self.input.awaited_bytes() {
                        self.input.reserve(bytes);
                    }
                    progress = Instant::now();
                }
                Some(answered) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.take(answered);
                    // Responses that became ready together, for example after a commit of many changes, leave in one
                    // write.
                    while let Some(Some(answered)) = self.in_flight.next().now_or_never() {
                        self.take(answered);
                    }
                    progress = Instant::now();
                }
                ready = writing.writable(), if !self.output.is_empty() => ready?,
                () = look.as_mut() => {
                    let (deadline, ended) = self.deadline(progress);
                    if Instant::now() >= deadline {
                        return Err(ended);
                    }
                    look.as_mut().reset(deadline);
                }
            }
        }
    }

    /// Returns when this side closes the connection, and with which reason. Calls in flight have their own limits.
    fn deadline(&self, progress: Instant) -> (Instant, ConnectionEnd) {
        let waits_for_peer =
            !self.output.is_empty() || self.input.is_mid_frame() || !matches!(self.stage, Stage::Calls(_));
        if waits_for_peer && self.in_flight.is_empty() {
            (progress + self.options.stall_timeout, ConnectionEnd::Stalled)
        } else if self.in_flight.is_empty() {
            (progress + self.options.idle_timeout, ConnectionEnd::Idle)
        } else {
            // A long call: check again later.
            (Instant::now() + self.options.idle_timeout.max(self.options.stall_timeout), ConnectionEnd::Idle)
        }
    }

    fn take(&mut self, answered: CompletedCall) {
        self.in_flight_bytes -= answered.request_bytes;
        self.short_bytes -= answered.short_bytes;
        self.output.push(answered.frame);
    }

    /// Updates the held bytes, and marks the connection idle or busy. A partly received call does not make it busy.
    fn note_held(&mut self) {
        self.held.set(self.short_bytes + self.output.len());
        if !matches!(self.stage, Stage::Calls(_)) {
            return;
        }
        if !self.in_flight.is_empty() || !self.output.is_empty() {
            self.is_active = true;
            self.place.mark_busy();
        } else if std::mem::take(&mut self.is_active) {
            self.place.mark_idle();
        }
    }

    /// Returns true if another call can be accepted. Otherwise calls stay in the socket, and the peer waits.
    fn has_room(&self) -> bool {
        self.held.has_room()
            && self.in_flight.len() < self.options.calls_in_flight_max
            && self.in_flight_bytes < self.options.request_bytes_max
            && self.output.len() < self.options.answer_bytes_max
    }

    async fn drain(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            self.stream.writable().await?;
            self.output.write_to(&self.stream)?;
        }
        Ok(())
    }

    /// Processes every complete frame that has been read, as far as the limits allow.
    fn read_frames(&mut self) -> Result<(), ConnectionEnd> {
        if matches!(self.stage, Stage::Header) && !self.read_header()? {
            return Ok(());
        }
        while self.has_room() {
            let limit = match self.stage {
                Stage::Calls(_) => self.options.frame_bytes_max,
                _ => FRAME_BYTES_MAX_BEFORE_CONTEXT.min(self.options.frame_bytes_max),
            };
            let Some(frame) = self.input.next_frame(limit)? else {
                if self.claim.is_none()
                    && matches!(self.stage, Stage::Calls(_))
                    && let Some(bytes) = self.input.awaited_bytes().filter(|bytes| *bytes > LONG_FRAME_BYTES)
                {
                    self.claim = Some(self.options.message_memory.claim(Party::from(self.remote.ip()), bytes));
                }
                break;
            };
            let claim = self.claim.take().inspect(Claim::whole);
            let request = decode_request(frame).map_err(|error| {
                let remote_error = RemoteError {
                    code: Some(error.kind.code()),
                    fatal: true,
                    ..application_error(exceptions::RPC_SERVER, error.kind.to_string())
                };
                self.output.push(encode_error(error.call_id, &error.client_id, error.retry_count, &remote_error));
                ConnectionEnd::Refused(error.kind.to_string())
            })?;
            self.handle_request(request, claim)?;
        }
        Ok(())
    }

    /// Reads the seven-byte connection header; `false` until it has arrived.
    fn read_header(&mut self) -> Result<bool, ConnectionEnd> {
        let Some(bytes) = self.input.take::<CONNECTION_HEADER_BYTES>() else { return Ok(false) };
        match ConnectionHeader::decode(bytes) {
            Ok(header) => {
                self.stage = Stage::Context { sasl: header.auth == AuthProtocol::Sasl };
                Ok(true)
            }
            Err(error) => {
                match error {
                    ConnectionHeaderError::Http => self.output.push(Bytes::from_static(HTTP_ANSWER)),
                    ConnectionHeaderError::Magic { version, .. } | ConnectionHeaderError::Version { version } => {
                        // Older versions use other response formats; they only see the connection close.
                        if version >= IPC_VERSION {
                            let text = format!(
                                "Server IPC version {IPC_VERSION} cannot communicate with client version {version}"
                            );
                            self.refuse_connection(
                                ErrorCode::FatalVersionMismatch,
                                exceptions::RPC_VERSION_MISMATCH,
                                text,
                            );
                        }
                    }
                    ConnectionHeaderError::Auth { auth } => {
                        let text = format!("Unknown auth protocol:{auth}");
                        self.refuse_connection(ErrorCode::FatalUnauthorized, exceptions::IPC, text);
                    }
                }
                Err(error.into())
            }
        }
    }

    /// `claim`: memory claim of the request, if it is long.
    fn handle_request(&mut self, request: Request, claim: Option<Claim>) -> Result<(), ConnectionEnd> {
        match request {
            Request::Ping => Ok(()),
            Request::Sasl(message) => self.negotiate(&message),
            Request::Context(context) => {
                if matches!(self.stage, Stage::Calls(_)) {
                    return Err(self.fatal(ErrorCode::FatalInvalidRpcHeader, "Connection context already processed"));
                }
                let caller = Caller {
                    user: context.effective_user.into(),
                    real_user: context.real_user,
                    address: self.remote,
                    machine: self.remote.ip().to_canonical().to_string().into(),
                    connection: NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed),
                };
                let authorized = self.service.authorize(&caller);
                self.metrics.record_authorization(authorized.is_ok());
                if let Err(error) = authorized {
                    let reason = error.message.clone();
                    let error = RemoteError { fatal: true, ..error };
                    self.output.push(encode_error(call_id::INVALID, &Bytes::new(), -1, &error));
                    return Err(ConnectionEnd::Refused(reason));
                }
                self.stage = Stage::Calls(Arc::new(caller));
                self.place.mark_established();
                Ok(())
            }
            Request::Call(call) => match &self.stage {
                Stage::Calls(caller) => {
                    let caller = caller.clone();
                    self.start(caller, call, claim);
                    Ok(())
                }
                _ => Err(self.fatal(ErrorCode::FatalInvalidRpcHeader, "Connection context not established")),
            },
        }
    }

    /// Without Kerberos there is nothing to negotiate: the client is told to continue with SIMPLE.
    fn negotiate(&mut self, message: &RpcSaslProto) -> Result<(), ConnectionEnd> {
        let Stage::Context { sasl: true } = self.stage else {
            return Err(self.fatal(ErrorCode::FatalInvalidRpcHeader, "SASL protocol not requested by client"));
        };
        match SaslState::try_from(message.state) {
            Ok(SaslState::Negotiate) => {
                let switch = RpcSaslProto { state: SaslState::Success as i32, ..Default::default() };
                self.output.push(encode_sasl_response(&switch));
                Ok(())
            }
            // A client that starts directly with SIMPLE gets no reply.
            Ok(SaslState::Initiate) if message.auths.first().is_some_and(|auth| auth.method == "SIMPLE") => Ok(()),
            _ => {
                let text = "only SIMPLE authentication is enabled on this server";
                self.refuse_connection(ErrorCode::FatalUnauthorized, exceptions::ACCESS_CONTROL, text.to_string());
                Err(ConnectionEnd::Refused(text.to_string()))
            }
        }
    }

    fn start(&mut self, caller: Arc<Caller>, frame: CallFrame, claim: Option<Claim>) {
        let client_id = frame.client_id.clone();
        let (call_id, retry_count) = (frame.call_id, frame.retry_count);
        if let Err(error) = self.check_protocol(&frame) {
            self.output.push(encode_error(call_id, &client_id, retry_count, &error));
            return;
        }
        let began = self.now.take().unwrap_or_else(Instant::now);
        let mut span = Span::server(frame.trace, || super::span_name(&frame.protocol, &frame.method));
        let call = Call {
            caller,
            protocol: frame.protocol,
            method: frame.method,
            request: frame.request,
            client_id: ClientId::try_from(&frame.client_id[..]).ok(),
            call_id,
            retry_count,
            state_id: frame.state_id,
            caller_context: frame.caller_context,
            caller_signature: frame.caller_signature,
            began,
        };
        let (service, metrics) = (self.service.clone(), self.metrics.clone());
        let method = metrics.method(&call.method, self.last_method);
        self.last_method = Some(method);
        let queued = began.saturating_duration_since(self.read_at);
        metrics.record_start(method, queued);
        if span.is_recording() {
            span.set("client.address", self.remote.to_string());
            span.set("hearth.queue_ns", u64::try_from(queued.as_nanos()).unwrap_or(u64::MAX));
        }
        let request_bytes = call.request.len();
        let short_bytes = if claim.is_some() { 0 } else { request_bytes };
        self.is_active = true;
        let answer = async move {
            // Ends with the call.
            let mut span = span;
            let outcome = match call.protocol.as_str() {
                protocols::PROTOCOL_INFO => meta_info::answer(service.protocols(), &call.method, &call.request),
                _ => trace::within(span.context(), service.call(call)).await,
            };
            let ended = Instant::now();
            metrics.record_end(method, ended.saturating_duration_since(began), outcome.is_ok());
            let frame = match outcome {
                Ok(message) => encode_success(call_id, &client_id, retry_count, &message),
                Err(error) => {
                    span.fail(&error.class);
                    encode_error(call_id, &client_id, retry_count, &error)
                }
            };
            drop(claim);
            CompletedCall { frame, request_bytes, short_bytes, ended }
        };
        let mut answer: Answer = Box::pin(answer);
        // Most calls only access memory and are ready here, without a queue or another task.
        let mut context = Context::from_waker(std::task::Waker::noop());
        match pin!(&mut answer).poll(&mut context) {
            Poll::Ready(CompletedCall { frame, ended, .. }) => {
                self.output.push(frame);
                self.now = Some(ended);
            }
            // Polled again with a real waker once it is in the set.
            Poll::Pending => {
                self.in_flight_bytes += request_bytes;
                self.short_bytes += short_bytes;
                let counted = self.metrics.count_call();
                self.in_flight.push(PendingAnswer { answer, _counted: counted });
            }
        }
    }

    fn check_protocol(&self, frame: &CallFrame) -> Result<(), RemoteError> {
        let is_served = |protocol| self.service.protocols().contains(&protocol) || protocol == protocols::PROTOCOL_INFO;
        if !is_served(frame.protocol.as_str()) {
            return Err(RemoteError {
                code: Some(ErrorCode::ErrorNoSuchProtocol),
                ..application_error(exceptions::RPC_NO_SUCH_PROTOCOL, format!("Unknown protocol: {}", frame.protocol))
            });
        }
        if frame.protocol_version != protocols::VERSION {
            return Err(RemoteError {
                code: Some(ErrorCode::ErrorRpcVersionMismatch),
                ..application_error(
                    exceptions::RPC_VERSION_MISMATCH,
                    format!(
                        "Protocol {} version mismatch. (client = {}, server = {})",
                        frame.protocol,
                        frame.protocol_version,
                        protocols::VERSION
                    ),
                )
            });
        }
        Ok(())
    }

    fn fatal(&mut self, code: ErrorCode, text: &str) -> ConnectionEnd {
        self.refuse_connection(code, exceptions::RPC_SERVER, text.to_string());
        ConnectionEnd::Refused(text.to_string())
    }

    fn refuse_connection(&mut self, code: ErrorCode, class: &str, text: String) {
        let error = RemoteError { code: Some(code), fatal: true, ..application_error(class, text) };
        self.output.push(encode_error(call_id::INVALID, &Bytes::new(), -1, &error));
    }
}

/// Waits for the state of a claim to change: `true` if it is granted, `false` if it is revoked.
async fn step_of(claim: &mut Option<Claim>) -> bool {
    match claim {
        Some(claim) if claim.is_granted() => {
            claim.revoked().await;
            false
        }
        Some(claim) => {
            claim.granted().await;
            true
        }
        None => std::future::pending().await,
    }
}
