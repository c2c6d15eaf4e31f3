//! One connection, from the connection request to its end.

mod driver;
mod operation;
mod outgoing;
mod polling;
mod shared;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use self::operation::Operation;
use self::outgoing::{BUFFER_BYTES, CONTROL_MESSAGES, Outgoing, QueuedOperation};
use self::shared::RdmaShared;
use super::domain::{RdmaDomain, RdmaRegion};
use super::message::RdmaHello;
use super::verbs::{
    self, CompletionChannel, CompletionQueue, ConnectParameters, Event, EventChannel, EventKind, Id, MemoryRegion,
    Opcode, QueuePair, QueuePairSize,
};
use crate::Memory;
use crate::one_sided::{Access, Connection, Error, Limits, MESSAGE_BYTES_MAX, PRIVATE_BYTES_MAX, Transfer};

/// Maximum length of a single operation in bytes. Every device must support at least 2^31.
const PIECE_BYTES_MAX: u64 = 1 << 30;

/// Operations longer than this are not polled for: they take much longer than a wake-up.
const POLLED_BYTES_MAX: u64 = 256 << 10;

/// Timeout of the first address resolution; it doubles with each retry.
const RESOLVE_FIRST: Duration = Duration::from_millis(100);

/// Maximum number of ports that are tried. See [`is_port_in_use`].
pub(super) const PORTS_MAX: usize = 8;

/// Names of the two completion queues of a connection.
const SENDS: usize = 1;
const RECEIVES: usize = 2;

#[derive(Debug)]
pub struct RdmaConnection {
    shared: Arc<RdmaShared>,
    private: Bytes,
    peer: SocketAddr,
}

/// Resolves the peer's address. The first timeouts are short, because the kernel may miss the answer of a neighbour
/// that was not contacted before, and retries only after the timeout. This was seen with network namespaces.
async fn resolve_address(
    events: &Events,
    id: &Id,
    from: Option<SocketAddr>,
    peer: SocketAddr,
    timeout: Duration,
) -> Result<(), Error> {
    let mut wait = RESOLVE_FIRST;
    let mut left = timeout;
    loop {
        let tried = wait.min(left);
        id.resolve_address(from, peer, tried).map_err(|source| Error::Connect { peer, source })?;
        left -= tried;
        match events.until(EventKind::AddressResolved, peer).await {
            Err(Error::Connect { source, .. }) if source.kind() == io::ErrorKind::TimedOut && !left.is_zero() => {
                wait *= 2;
            }
            resolved => return resolved.map(drop),
        }
    }
}

/// Returns true if the port that the connection manager has chosen is in use.
///
/// The connection manager chooses among its own ports. An iWARP network then opens the same port of TCP, which another
/// socket of this machine may have. The connection manager does not know of it, and the next port is most likely free.
pub(super) fn is_port_in_use(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}

/// Connects to `peer`. If dropped early, it leaves nothing behind. The caller bounds the time.
pub async fn connect(
    domain: &RdmaDomain,
    peer: SocketAddr,
    private: &[u8],
    limits: Limits,
    busy_poll: Duration,
    timeout: Duration,
) -> Result<RdmaConnection, Error> {
    let mut ports_left = PORTS_MAX;
    loop {
        ports_left -= 1;
        match connect_from_new_port(domain, peer, private, limits, busy_poll, timeout).await {
            Err(Error::Connect { source, .. }) if ports_left > 0 && is_port_in_use(&source) => {
                tracing::debug!(%peer, error = %source, "the port is in use; connecting from another one");
            }
            outcome => return outcome,
        }
    }
}

async fn connect_from_new_port(
    domain: &RdmaDomain,
    peer: SocketAddr,
    private: &[u8],
    limits: Limits,
    busy_poll: Duration,
    timeout: Duration,
) -> Result<RdmaConnection, Error> {
    let failed = |source: io::Error| Error::Connect { peer, source };
    let device = domain.verbs().device();
    let events = Events::new(EventChannel::of(device).map_err(failed)?).map_err(failed)?;
    let id = Id::new(events.channel()).map_err(failed)?;
    // From the device's own address, so that the route goes through it.
    let from = (device.address().is_ipv4() == peer.is_ipv4()).then(|| SocketAddr::new(device.address(), 0));
    resolve_address(&events, &id, from, peer, timeout).await?;
    if !id.is_on(device) {
        let why = format!("the route does not go through device {}", device.name());
        return Err(failed(io::Error::new(io::ErrorKind::NetworkUnreachable, why)));
    }
    id.resolve_route(timeout).map_err(failed)?;
    events.until(EventKind::RouteResolved, peer).await?;

    let limits = Offer::new(domain, limits);
    let ends = Endpoint::new(domain, id, &limits).map_err(failed)?;
    let (said, responder_resources, initiator_depth) =
        (private.to_vec(), limits.responder_resources, limits.initiator_depth);
    // SoftiWARP blocks in this call until the peer's machine has answered.
    let connecting = tokio::task::spawn_blocking(move || {
        let parameters = ConnectParameters { private: &said, responder_resources, initiator_depth };
        ends.queue_pair.with_id(|id| id.connect(&parameters)).map(|()| ends)
    });
    let ends = connecting.await.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)?;
    let established = events.until(EventKind::Established, peer).await?;
    let starting = Starting { events, ends, peer, private: established.private, is_first: true };
    starting.introduce(&limits, private.len(), busy_poll).await
}

/// Accepts a peer's connection request. Otherwise like [`connect`].
pub async fn accept(
    domain: &RdmaDomain,
    id: Id,
    request: &Event,
    peer: SocketAddr,
    private: &[u8],
    limits: Limits,
    busy_poll: Duration,
) -> Result<RdmaConnection, Error> {
    let failed = |source: io::Error| Error::Connect { peer, source };
    let device = domain.verbs().device();
    if !id.is_on(device) {
        let why = format!("the request did not arrive through device {}", device.name());
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    let events = Events::new(EventChannel::of(device).map_err(failed)?).map_err(failed)?;
    id.migrate(events.channel()).map_err(failed)?;
    let mut limits = Offer::new(domain, limits);
    // The peer's values as seen from this side; 0 means that its network does not report them.
    let smaller = |ours: u8, theirs: u8| if theirs == 0 { ours } else { ours.min(theirs) };
    limits.responder_resources = smaller(limits.responder_resources, request.responder_resources);
    limits.initiator_depth = smaller(limits.initiator_depth, request.initiator_depth);
    let ends = Endpoint::new(domain, id, &limits).map_err(failed)?;
    let parameters = ConnectParameters {
        private,
        responder_resources: limits.responder_resources,
        initiator_depth: limits.initiator_depth,
    };
    ends.queue_pair.with_id(|id| id.accept(&parameters)).map_err(failed)?;
    events.until(EventKind::Established, peer).await?;
    let starting = Starting { events, ends, peer, private: request.private.clone(), is_first: false };
    starting.introduce(&limits, private.len(), busy_poll).await
}

/// Limits that this side offers: the caller's limits, within the device's.
struct Offer {
    limits: Limits,
    responder_resources: u8,
    initiator_depth: u8,
}

impl Offer {
    fn new(domain: &RdmaDomain, limits: Limits) -> Self {
        let device = domain.verbs().device();
        let (towards, own) = device.reads_in_flight_max();
        let reads = limits.reads_in_flight.max(1);
        let room = device.operations_max().saturating_sub(u32::from(CONTROL_MESSAGES)).max(1);
        let operations = u16::try_from(room).unwrap_or(u16::MAX).min(limits.operations.max(1));
        let (responder_resources, initiator_depth) = (reads.min(towards), reads.min(own));
        let reads_in_flight = responder_resources.min(initiator_depth);
        let limits = Limits { reads_in_flight, operations, messages: limits.messages.clamp(1, 4096) };
        Self { limits, responder_resources, initiator_depth }
    }
}

/// A connection's queue pair with its buffers.
struct Endpoint {
    queue_pair: QueuePair<outgoing::Batch>,
    completions: Arc<CompletionChannel>,
    outgoing: Outgoing,
}

impl Endpoint {
    fn new(domain: &RdmaDomain, id: Id, offer: &Offer) -> io::Result<Self> {
        let domain = domain.verbs();
        let Limits { operations, messages, .. } = offer.limits;
        let slots = messages + CONTROL_MESSAGES;
        let buffers = |count: u16| -> io::Result<Arc<MemoryRegion>> {
            let bytes = (u64::from(count) * u64::from(BUFFER_BYTES)).next_multiple_of(4096);
            let memory = Arc::new(Memory::fresh(bytes)?);
            MemoryRegion::new(domain, &memory, 0..bytes, Access::Local, None).map(Arc::new)
        };
        let size = QueuePairSize {
            operations: u32::from(operations) + u32::from(CONTROL_MESSAGES),
            receives: u32::from(slots),
        };
        let completions = Arc::new(CompletionChannel::new(domain.device())?);
        // One more, because devices may define a full queue differently.
        let sends = CompletionQueue::new(&completions, size.operations + 1, SENDS)?;
        let receives = CompletionQueue::new(&completions, size.receives + 1, RECEIVES)?;
        let queue_pair = QueuePair::new(id, domain, sends, receives, size, buffers(slots)?, BUFFER_BYTES)?;
        for slot in 0..slots {
            queue_pair.post_receive(slot.into())?;
        }
        Ok(Self { queue_pair, completions, outgoing: Outgoing::new(buffers(slots)?, messages) })
    }
}

/// A connection that the network has established, but whose sides have not exchanged hello messages.
struct Starting {
    events: Events,
    ends: Endpoint,
    peer: SocketAddr,
    /// The peer's private data, possibly padded with zeros.
    private: Vec<u8>,
    /// On iWARP the connecting side must be the first to send anything.
    is_first: bool,
}

impl Starting {
    async fn introduce(
        self,
        offer: &Offer,
        private_bytes: usize,
        busy_poll: Duration,
    ) -> Result<RdmaConnection, Error> {
        let Self { events, ends: Endpoint { queue_pair, completions, outgoing }, peer, mut private, is_first } = self;
        let shared = RdmaShared::new(queue_pair, outgoing, offer.limits.messages, peer, busy_poll);
        // From here on, dropping this ends the connection.
        let mut connection = RdmaConnection { shared: Arc::clone(&shared), private: Bytes::new(), peer };
        driver::start(&shared, completions, events).map_err(|source| Error::Connect { peer, source })?;

        let private_bytes = u8::try_from(private_bytes).expect("callers limit its length");
        let hello = RdmaHello { limits: offer.limits, private_bytes }.encode();
        if is_first {
            shared.send_control(&hello);
        }
        let theirs = loop {
            if let Some(hello) = shared.hello() {
                break hello;
            }
            if shared.is_over() {
                let Error::Closed { why, .. } = shared.closed_error() else { unreachable!("always Closed") };
                return Err(Error::Connect { peer, source: io::Error::new(io::ErrorKind::ConnectionAborted, why) });
            }
            shared.arrival().await;
        };
        shared.open(Limits {
            reads_in_flight: offer.limits.reads_in_flight.min(theirs.limits.reads_in_flight).max(1),
            operations: offer.limits.operations.min(theirs.limits.operations),
            messages: offer.limits.messages.min(theirs.limits.messages),
        });
        if !is_first {
            shared.send_control(&hello);
        }
        private.truncate(usize::from(theirs.private_bytes).min(PRIVATE_BYTES_MAX));
        connection.private = private.into();
        Ok(connection)
    }
}

/// Events of the connection manager.
pub struct Events(AsyncFd<Arc<EventChannel>>);

impl Events {
    pub fn new(channel: Arc<EventChannel>) -> io::Result<Self> {
        Ok(Self(channel.watched()?))
    }

    pub fn channel(&self) -> &Arc<EventChannel> {
        self.0.get_ref()
    }

    pub async fn next(&self) -> io::Result<Event> {
        loop {
            let mut ready = self.0.readable().await?;
            match self.channel().next()? {
                Some(event) => return Ok(event),
                None => ready.clear_ready(),
            }
        }
    }

    /// Waits for `kind`. Errors: `Rejected`; `Connect` for every other failure event.
    async fn until(&self, kind: EventKind, peer: SocketAddr) -> Result<Event, Error> {
        let refused = |what: &str, status: i32| {
            // Error numbers are negative; InfiniBand's reasons for a rejection are not.
            let source = match status {
                ..0 => io::Error::from_raw_os_error(-status),
                _ => io::Error::new(io::ErrorKind::ConnectionRefused, format!("{what} (reason {status})")),
            };
            Error::Connect { peer, source }
        };
        loop {
            let event = self.next().await.map_err(|source| Error::Connect { peer, source })?;
            match event.kind {
                found if found == kind && event.status == 0 => return Ok(event),
                EventKind::Rejected if event.is_by_the_peer() => {
                    let mut private = event.private;
                    private.truncate(PRIVATE_BYTES_MAX);
                    return Err(Error::Rejected { peer, private: private.into() });
                }
                EventKind::Rejected => return Err(refused("no listener at this address", event.status)),
                EventKind::Failed(what) => return Err(refused(what, event.status)),
                EventKind::Disconnected => return Err(refused("disconnected before it was established", event.status)),
                EventKind::DeviceRemoved => return Err(refused("the device is gone", event.status)),
                _ => {}
            }
        }
    }
}

impl RdmaConnection {
    fn submit(
        &self,
        kind: Opcode,
        transfers: Vec<Transfer>,
        message: Option<Bytes>,
        action: &'static str,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<(), Error>> {
        let pieces: VecDeque<verbs::WorkRequest> =
            transfers.iter().flat_map(|transfer| pieces(kind, transfer)).collect();
        let bytes = transfers.iter().map(|transfer| transfer.remote.length).sum();
        let count = pieces.len() + usize::from(message.is_some());
        if count == 0 {
            return std::future::ready(Ok(())).boxed();
        }
        let operation = Arc::new(Operation::new(count));
        let waiting = QueuedOperation { operation: Arc::clone(&operation), pieces, message };
        let is_read = kind == Opcode::Read;
        self.shared.submit(waiting, is_read);
        Box::pin(Pending {
            shared: Arc::clone(&self.shared),
            operation,
            bytes,
            action,
            timeout,
            started: (bytes > POLLED_BYTES_MAX).then(Instant::now),
            has_polled: false,
            sleep: None,
            is_rest: false,
        })
    }
}

/// Returns the operations of one transfer: one, unless it is longer than a device allows.
fn pieces(kind: Opcode, transfer: &Transfer) -> impl Iterator<Item = verbs::WorkRequest> {
    let region = transfer.local.as_any().downcast_ref::<RdmaRegion>().expect("a region of another transport");
    let region = Arc::clone(region.verbs());
    let (offset, remote) = (transfer.offset, transfer.remote);
    (0..remote.length).step_by(PIECE_BYTES_MAX as usize).map(move |start| verbs::WorkRequest {
        kind,
        local: Arc::clone(&region),
        offset: offset + start,
        length: u32::try_from((remote.length - start).min(PIECE_BYTES_MAX)).expect("bounded"),
        remote_address: remote.address.wrapping_add(start),
        remote_key: remote.key,
    })
}

impl Connection for RdmaConnection {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn private(&self) -> &[u8] {
        &self.private
    }

    fn limits(&self) -> Limits {
        self.shared.limits()
    }

    fn read(&self, transfers: Vec<Transfer>, timeout: Duration) -> BoxFuture<'static, Result<(), Error>> {
        self.submit(Opcode::Read, transfers, None, "reading", timeout)
    }

    fn write(
        &self,
        transfers: Vec<Transfer>,
        message: Option<Bytes>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<(), Error>> {
        if let Some(message) = &message
            && !(1..=MESSAGE_BYTES_MAX).contains(&message.len())
        {
            let error = Error::TooLong { what: "message", bytes: message.len(), limit: MESSAGE_BYTES_MAX };
            return std::future::ready(Err(error)).boxed();
        }
        let action = if transfers.is_empty() { "sending" } else { "writing" };
        self.submit(Opcode::Write, transfers, message, action, timeout)
    }

    fn receive(&self, timeout: Duration) -> BoxFuture<'_, Result<Bytes, Error>> {
        Box::pin(async move {
            let shared = &self.shared;
            let mut message = None;
            shared.polling_receives.until(shared.busy_poll.min(timeout), || {
                shared.poll_receives();
                message = shared.take_message();
                message.is_some() || !shared.is_open()
            });
            if let Some(message) = message {
                return Ok(message);
            }
            let waiting = async {
                loop {
                    if let Some(message) = shared.take_message() {
                        return Ok(message);
                    }
                    if shared.is_over() {
                        return Err(shared.closed_error());
                    }
                    shared.arrival().await;
                }
            };
            let waited = tokio::time::timeout(timeout, waiting).await;
            waited.unwrap_or(Err(Error::NoMessage { peer: self.peer, after: timeout }))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.fail(|| "closed by this side".to_owned());
        self.shared.wait_over().boxed()
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        self.shared.wait_over().boxed()
    }
}

impl Drop for RdmaConnection {
    fn drop(&mut self) {
        self.shared.fail(|| "dropped by this side".to_owned());
    }
}

/// Waits for an operation: polls for a moment, then sleeps until the driver wakes it.
struct Pending {
    shared: Arc<RdmaShared>,
    operation: Arc<Operation>,
    bytes: u64,
    action: &'static str,
    timeout: Duration,
    /// Start of the timeout. For an operation that is polled for, the end of the unsuccessful poll, so that the usual
    /// case does not read the clock.
    started: Option<Instant>,
    has_polled: bool,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    /// True if only the background task still waits for it.
    is_rest: bool,
}

impl Pending {
    fn outcome(&self) -> Option<Result<(), Error>> {
        self.operation.outcome().map(|well| if well { Ok(()) } else { Err(self.shared.closed_error()) })
    }
}

impl Future for Pending {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.has_polled {
            self.has_polled = true;
            if self.bytes <= POLLED_BYTES_MAX {
                let Self { shared, operation, timeout, .. } = &*self;
                shared.polling_sends.until(shared.busy_poll.min(*timeout), || {
                    shared.poll_sends();
                    operation.outcome().is_some()
                });
            }
        }
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        self.operation.waker.register(context.waker());
        self.shared.arm_sends();
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        let until = *self.started.get_or_insert_with(Instant::now) + self.timeout;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.as_mut().poll(context).is_ready() {
            let Self { shared, action, timeout, .. } = &*self;
            shared.fail(|| format!("{action} took longer than {timeout:?}"));
            return Poll::Ready(Err(Error::TimedOut { peer: shared.peer, action, after: *timeout }));
        }
        Poll::Pending
    }
}

impl Drop for Pending {
    /// Lets the operation continue without a waiter; the timeout still applies.
    fn drop(&mut self) {
        if self.operation.outcome().is_some() || !self.shared.is_open() {
            return;
        }
        if self.is_rest {
            // The runtime is shutting down, so no other task can enforce the operation's timeout.
            return self.shared.fail(|| "the runtime of the connection has ended".to_owned());
        }
        self.shared.arm_sends();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let rest = Pending {
            shared: Arc::clone(&self.shared),
            operation: Arc::clone(&self.operation),
            bytes: self.bytes,
            action: self.action,
            timeout: self.timeout,
            started: self.started,
            has_polled: true,
            sleep: None,
            is_rest: true,
        };
        runtime.spawn(async move {
            // Other code observes the result.
            let _ = rest.await;
        });
    }
}
