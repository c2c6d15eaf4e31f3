//! rdma_cm: finds a route to a peer, connects, accepts connections, and reports their end.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;

use super::check;
use super::device::Device;
use super::library::Functions;
use super::sys::*;

/// Makes a descriptor non-blocking.
pub(super) fn do_not_block(descriptor: &impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Channel that delivers events of connections. Its descriptor does not block.
pub struct EventChannel {
    channel: *mut rdma_event_channel,
    functions: &'static Functions,
}

// SAFETY: librdmacm's functions may be called from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// Kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    AddressResolved,
    RouteResolved,
    /// A peer wants to connect.
    ConnectRequest,
    Established,
    Rejected,
    Disconnected,
    DeviceRemoved,
    /// The request failed: no address, no route, or no listener.
    Failed(&'static str),
    /// Requires no action.
    Other,
}

impl EventKind {
    fn new(event: c_int) -> Self {
        // In the order of `enum rdma_cm_event_type`.
        match event {
            0 => Self::AddressResolved,
            1 => Self::Failed("no address"),
            2 => Self::RouteResolved,
            3 => Self::Failed("no route"),
            4 => Self::ConnectRequest,
            6 => Self::Failed("connecting failed"),
            7 => Self::Failed("unreachable"),
            8 => Self::Rejected,
            9 => Self::Established,
            10 => Self::Disconnected,
            11 => Self::DeviceRemoved,
            14 => Self::Failed("the address moved to another device"),
            _ => Self::Other,
        }
    }
}

/// One event, copied out.
#[derive(Debug)]
pub struct Event {
    pub kind: EventKind,
    /// 0, an error number, or the network's own reason.
    pub status: i32,
    /// For a `ConnectRequest`: the new connection.
    pub request: Option<Id>,
    pub private: Vec<u8>,
    /// Reads in flight that the peer supports, and that it requests, seen from this side.
    pub responder_resources: u8,
    pub initiator_depth: u8,
}

/// InfiniBand's reason for a rejection if no program listens. Source: InfiniBand specification 12.6.7.2, "invalid
/// service ID".
const REJECTED_NOBODY_LISTENS: i32 = 8;

impl Event {
    /// For a `Rejected`: returns true if a program rejected it, as opposed to the network because no program listens.
    pub fn is_by_the_peer(&self) -> bool {
        self.status != REJECTED_NOBODY_LISTENS && self.status != -libc::ECONNREFUSED
    }
}

/// One of these exists where the kernel has its RDMA connection manager (module rdma_ucm).
const SIGNS_OF_THE_MODULE: [&str; 2] = ["/sys/class/misc/rdma_cm", "/dev/infiniband/rdma_cm"];

impl EventChannel {
    /// Errors: `ENODEV` if the kernel has no RDMA connection manager. The library is not asked then: it takes a lock of the
    /// process to find out, and a child of a fork in that time would wait for the lock for ever.
    pub(super) fn new(functions: &'static Functions) -> io::Result<Self> {
        if !SIGNS_OF_THE_MODULE.iter().any(|path| Path::new(path).exists()) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        // SAFETY: no arguments.
        let channel = unsafe { (functions.rdma_create_event_channel)() };
        if channel.is_null() {
            return Err(io::Error::last_os_error());
        }
        let channel = Self { channel, functions };
        do_not_block(&channel)?;
        Ok(channel)
    }

    pub fn of(device: &Device) -> io::Result<Arc<Self>> {
        Self::new(device.functions()).map(Arc::new)
    }

    /// Registers the channel with the runtime, to wait for events.
    pub fn watched(self: Arc<Self>) -> io::Result<AsyncFd<Arc<Self>>> {
        // SAFETY: the descriptor stays open and the same as long as the channel lives.
        Ok(unsafe { AsyncFd::register(self)? })
    }

    /// Returns the next event, if there is one.
    pub fn next(self: &Arc<Self>) -> io::Result<Option<Event>> {
        let mut event: *mut rdma_cm_event = std::ptr::null_mut();
        // SAFETY: the function fills in a pointer to an event, which is ours until it is acknowledged.
        if unsafe { (self.functions.rdma_get_cm_event)(self.channel, &mut event) } != 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: as above.
        let raw = unsafe { &*event };
        let kind = EventKind::new(raw.event);
        let has_private = matches!(kind, EventKind::ConnectRequest | EventKind::Established | EventKind::Rejected);
        let private = if has_private && !raw.conn.private_data.is_null() {
            let length = usize::from(raw.conn.private_data_len);
            // SAFETY: that many bytes of the event, until it is acknowledged.
            unsafe { std::slice::from_raw_parts(raw.conn.private_data.cast::<u8>(), length) }.to_vec()
        } else {
            Vec::new()
        };
        let request = (kind == EventKind::ConnectRequest).then(|| Id {
            id: raw.id,
            functions: self.functions,
            channel: Mutex::new(Arc::clone(self)),
        });
        let taken = Event {
            kind,
            status: raw.status,
            request,
            private,
            responder_resources: if has_private { raw.conn.responder_resources } else { 0 },
            initiator_depth: if has_private { raw.conn.initiator_depth } else { 0 },
        };
        // SAFETY: the event from above, from which nothing is borrowed any more.
        check(unsafe { (self.functions.rdma_ack_cm_event)(event) })?;
        Ok(Some(taken))
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as this.
        unsafe { (*self.channel).fd }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as this lives.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: its ids hold it, so there are no ids any more; all its events were acknowledged.
        unsafe { (self.functions.rdma_destroy_event_channel)(self.channel) };
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventChannel({})", self.as_raw_fd())
    }
}

/// Parameters of a new connection that both ends receive.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParameters<'a> {
    pub private: &'a [u8],
    /// Reads in flight that this side supports, and that it requests.
    pub responder_resources: u8,
    pub initiator_depth: u8,
}

impl ConnectParameters<'_> {
    fn raw(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.private.as_ptr().cast(),
            private_data_len: u8::try_from(self.private.len()).expect("callers limit the length of the private data"),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 1,
            // Number of retransmissions of a lost packet (InfiniBand, RoCE). For "receiver not ready", 7 would mean
            // forever. Every message has its credit, so that case never occurs.
            retry_count: 7,
            rnr_retry_count: 3,
            srq: 0,
            qp_num: 0,
        }
    }
}

/// One end of a connection, or a listener: the counterpart of a TCP socket.
pub struct Id {
    id: *mut rdma_cm_id,
    functions: &'static Functions,
    channel: Mutex<Arc<EventChannel>>,
}

// SAFETY: librdmacm's functions may be called from any thread.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

impl Id {
    pub fn new(channel: &Arc<EventChannel>) -> io::Result<Self> {
        let mut id: *mut rdma_cm_id = std::ptr::null_mut();
        let functions = channel.functions;
        // SAFETY: the channel lives as long as the result, which holds it.
        check(unsafe {
            (functions.rdma_create_id)(channel.channel, &mut id, std::ptr::null_mut::<c_void>(), RDMA_PS_TCP)
        })?;
        Ok(Self { id, functions, channel: Mutex::new(Arc::clone(channel)) })
    }

    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let address = sockaddr_storage::new(address);
        // SAFETY: the address lives during the call.
        check(unsafe { (self.functions.rdma_bind_addr)(self.id, address.as_ptr()) })
    }

    pub fn listen(&self, backlog: u16) -> io::Result<()> {
        // SAFETY: the id is alive.
        check(unsafe { (self.functions.rdma_listen)(self.id, c_int::from(backlog)) })
    }

    /// Starts resolving `peer`, from the address `from`; `AddressResolved` follows.
    pub fn resolve_address(&self, from: Option<SocketAddr>, peer: SocketAddr, timeout: Duration) -> io::Result<()> {
        let from = from.map(sockaddr_storage::new);
        let peer = sockaddr_storage::new(peer);
        let from = from.as_ref().map_or(std::ptr::null(), sockaddr_storage::as_ptr);
        // SAFETY: the addresses live during the call.
        check(unsafe { (self.functions.rdma_resolve_addr)(self.id, from, peer.as_ptr(), milliseconds(timeout)) })
    }

    /// Starts resolving a route; `RouteResolved` follows.
    pub fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        // SAFETY: the id is alive.
        check(unsafe { (self.functions.rdma_resolve_route)(self.id, milliseconds(timeout)) })
    }

    /// Delivers events to another channel from now on.
    pub fn migrate(&self, channel: &Arc<EventChannel>) -> io::Result<()> {
        let mut current = self.channel.lock();
        // SAFETY: both channels are alive. All events of this id were acknowledged when they were taken.
        check(unsafe { (self.functions.rdma_migrate_id)(self.id, channel.channel) })?;
        *current = Arc::clone(channel);
        Ok(())
    }

    /// Starts connecting; `Established` or `Rejected` follows.
    pub fn connect(&self, parameters: &ConnectParameters<'_>) -> io::Result<()> {
        let mut raw = parameters.raw();
        // SAFETY: the parameters live during the call.
        check(unsafe { (self.functions.rdma_connect)(self.id, &mut raw) })
    }

    /// Accepts a `ConnectRequest`; `Established` follows.
    pub fn accept(&self, parameters: &ConnectParameters<'_>) -> io::Result<()> {
        let mut raw = parameters.raw();
        // SAFETY: the parameters live during the call.
        check(unsafe { (self.functions.rdma_accept)(self.id, &mut raw) })
    }

    pub fn reject(&self, private: &[u8]) -> io::Result<()> {
        let length = u8::try_from(private.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the bytes live during the call.
        check(unsafe { (self.functions.rdma_reject)(self.id, private.as_ptr().cast(), length) })
    }

    /// Disconnects; both ends get `Disconnected`.
    pub fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the id is alive.
        check(unsafe { (self.functions.rdma_disconnect)(self.id) })
    }

    /// Returns this end's address, once it is bound.
    pub fn local(&self) -> Option<SocketAddr> {
        // SAFETY: the id is alive; the address is written before the event that leads to this call.
        unsafe { (*self.id).route.addr.src }.address()
    }

    pub fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        unsafe { (*self.id).route.addr.dst }.address()
    }

    /// Returns true if its packets go through `device`.
    pub fn is_on(&self, device: &Device) -> bool {
        self.context() == Some(device.context())
    }

    pub(super) fn context(&self) -> Option<*mut ibv_context> {
        // SAFETY: the id is alive.
        let context = unsafe { (*self.id).verbs };
        (!context.is_null()).then_some(context)
    }

    pub(super) fn as_ptr(&self) -> *mut rdma_cm_id {
        self.id
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.functions
    }
}

fn milliseconds(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX).max(1)
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: its queue pair, if it had one, is destroyed before (a queue pair holds its id).
        unsafe { (self.functions.rdma_destroy_id)(self.id) };
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({:?} to {:?})", self.local(), self.peer())
    }
}
