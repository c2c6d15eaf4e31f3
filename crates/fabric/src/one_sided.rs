//! Interface of one-sided transports: connect, exchange small messages, and read or write memory that the peer has
//! registered, without running code of the peer.
//!
//! Ordering guarantees that callers rely on and the conformance suite checks:
//! - Messages of one connection arrive in order, and after the data of all writes that were posted before them on it.
//! - Reads complete in the order in which they were posted. The bytes of a read are those of the peer's memory at a time
//!   between its posting and its completion. Of two reads posted together, either may return the newer bytes.
//! - A write's own completion means only that its local memory is free again, not that the data has arrived.
//!
//! Safety guarantees (design, rules 1, 7, 10):
//! - Posted memory stays registered and mapped until its completion, or its flush, was seen, even if the future that
//!   waits for it is dropped.
//! - Once `Connection::close` has resolved, the peer can write nothing more through that connection.
//! - Once a `Region` is gone, new operations on its key fail and end their connection. A read in flight may still
//!   finish, on the memory as it was, which is not reused. A write in flight delivers no further byte.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hearth_types::RemoteSlice;

use crate::Memory;

/// Maximum length of a message in bytes. Each end keeps a few dozen receives of this size posted for every connection.
pub const MESSAGE_BYTES_MAX: usize = 8192;

/// Maximum length of the private data of a connect, accept or reject, in bytes. Source: rdma_cm, `RDMA_PS_TCP` over
/// InfiniBand, which has the least room: 56.
pub const PRIVATE_BYTES_MAX: usize = 56;

/// Remote access to a region. Local reads and writes are always allowed, within the mapping's permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Source of writes, or destination of reads, of this side's own operations.
    Local,
    /// Peers in the same domain may read.
    RemoteRead,
    /// Peers in the same domain may write.
    RemoteWrite,
}

/// Maximum operations in flight on a connection. Each side states its own limits; the smaller one applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Reads in flight on the network; further posted reads are queued.
    pub reads_in_flight: u8,
    /// Operations posted and not completed. Beyond it callers wait.
    pub operations: u16,
    /// Messages received and not yet taken by `receive`. Beyond it the sender waits for credit.
    pub messages: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reads_in_flight: 16, operations: 128, messages: 32 }
    }
}

/// Errors of a one-sided transport. Each names the peer or object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The transport is not available on this machine: no library, no device, or not configured.
    #[error("{transport} is not available here: {why}")]
    Unavailable { transport: &'static str, why: String },
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot connect to {peer}")]
    Connect { peer: SocketAddr, source: io::Error },
    /// The peer rejected the connection; `private` is the data that it sent as the reason.
    #[error("{peer} rejected the connection")]
    Rejected { peer: SocketAddr, private: Bytes },
    /// The connection has ended: by the peer, by `close`, by a timeout, or because an operation on it failed. Every
    /// operation posted on it gets this error, whichever caused it.
    #[error("the connection to {peer} has ended: {why}")]
    Closed { peer: SocketAddr, why: String },
    /// `action` did not complete in time. This closes the connection.
    #[error("{action} with {peer} took longer than {after:?}")]
    TimedOut { peer: SocketAddr, action: &'static str, after: Duration },
    /// The wait for a message timed out; the connection stays open.
    #[error("no message from {peer} for {after:?}")]
    NoMessage { peer: SocketAddr, after: Duration },
    #[error("cannot register {bytes} bytes of memory")]
    Register { bytes: u64, source: io::Error },
    #[error("{what} of {bytes} bytes exceeds the limit of {limit}")]
    TooLong { what: &'static str, bytes: usize, limit: usize },
}

/// A one-sided transport, e.g. RDMA through this machine's cards.
pub trait Transport: Send + Sync + Debug {
    /// Name for logs, metrics and messages: `rdma`, `tcp`, `sim`.
    fn name(&self) -> &'static str;

    /// Creates a domain for registrations. The keys of its regions are valid only on connections made in it.
    ///
    /// Errors: `Unavailable`; `Register`.
    fn domain(&self) -> Result<Arc<dyn Domain>, Error>;

    /// Listens on `address`; port 0 picks a free port. Errors: `Listen`; `Unavailable`.
    fn listen(&self, address: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, Error>>;

    /// Connects to a peer. `private`: at most `PRIVATE_BYTES_MAX`, visible to the peer before it accepts.
    ///
    /// Errors: `Connect`; `Rejected`; `TimedOut`; `TooLong`; `Unavailable`.
    fn connect<'a>(
        &'a self,
        domain: &'a Arc<dyn Domain>,
        peer: SocketAddr,
        private: &'a [u8],
        limits: Limits,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, Error>>;
}

/// Container of registrations (with verbs: a protection domain).
pub trait Domain: Send + Sync + Debug {
    /// Registers the bytes `range` of `memory`. This pins them, and takes milliseconds for large ranges: do not call it
    /// on a runtime thread, or while a request waits.
    ///
    /// Errors: `Register`; also if `RemoteWrite` is requested for memory that is mapped for reading only.
    fn register(&self, memory: &Arc<Memory>, range: Range<u64>, access: Access) -> Result<Arc<dyn Region>, Error>;

    /// Number of bytes currently registered in it.
    fn registered_bytes(&self) -> u64;

    /// Allows a transport to recover its own domain type from the trait object.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Registered memory. Dropping the last reference deregisters it; the memory itself lives as long as any reference to
/// it.
pub trait Region: Send + Sync + Debug {
    fn memory(&self) -> &Arc<Memory>;

    /// Range within the memory.
    fn range(&self) -> Range<u64>;

    /// Slice that a peer needs to access all of it. For `Access::Local` a peer cannot use it.
    fn remote(&self) -> RemoteSlice;

    fn as_any(&self) -> &dyn std::any::Any;
}

/// Listens for peers.
pub trait Listener: Send + Sync + Debug {
    /// Returns the address in use.
    fn address(&self) -> SocketAddr;

    /// Waits for the next peer that wants to connect.
    fn accept(&self) -> BoxFuture<'_, Result<Box<dyn Incoming>, Error>>;
}

/// A connection request of a peer. It is rejected on drop.
pub trait Incoming: Send + Debug {
    fn peer(&self) -> SocketAddr;

    /// Private data of the request. Some networks pad it with zeros to `PRIVATE_BYTES_MAX`.
    fn private(&self) -> &[u8];

    fn accept<'a>(
        self: Box<Self>,
        domain: &'a Arc<dyn Domain>,
        private: &'a [u8],
        limits: Limits,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, Error>>;

    fn reject<'a>(self: Box<Self>, private: &'a [u8]) -> BoxFuture<'a, Result<(), Error>>;
}

/// Local and remote memory of the same length: `remote.length` bytes.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub local: Arc<dyn Region>,
    /// Offset from the start of the region.
    pub offset: u64,
    pub remote: RemoteSlice,
}

/// A connection. Any number of tasks may use it concurrently.
///
/// The futures of `read` and `write` own what they move: dropping one does not affect the operation.
pub trait Connection: Send + Sync + Debug {
    fn peer(&self) -> SocketAddr;

    /// Private data that the peer sent when it accepted (or, on the accepting side, with its request).
    fn private(&self) -> &[u8];

    /// Limits agreed by both sides.
    fn limits(&self) -> Limits;

    /// Reads from the peer's memory into this side's. All transfers are posted together and complete in order; the
    /// future resolves when the last is complete. More than `limits().operations` are split into several rounds.
    ///
    /// Errors: `Closed`; `TimedOut`. Panics if a transfer is not within its local region, or if that region is mapped
    /// for reading only.
    fn read(&self, transfers: Vec<Transfer>, timeout: Duration) -> BoxFuture<'static, Result<(), Error>>;

    /// Writes from this side's memory into the peer's, in order, and then sends `message`, if any, which the peer
    /// receives after the data. Resolves when the local memory is free again. Waits for credit before it posts
    /// anything.
    ///
    /// Errors: `Closed`; `TimedOut`; `TooLong` for the message. Panics if a transfer is not within its local region.
    fn write(
        &self,
        transfers: Vec<Transfer>,
        message: Option<Bytes>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<(), Error>>;

    /// Sends a message of 1 to `MESSAGE_BYTES_MAX` bytes; waits for credit.
    ///
    /// Errors: like `write`; `TooLong` also for an empty message.
    fn send(&self, message: Bytes, timeout: Duration) -> BoxFuture<'static, Result<(), Error>> {
        self.write(Vec::new(), Some(message), timeout)
    }

    /// Receives the next message. Only one task may call it at a time.
    ///
    /// Errors: `NoMessage`, after which the connection stays open; `Closed` if there are no more messages.
    fn receive(&self, timeout: Duration) -> BoxFuture<'_, Result<Bytes, Error>>;

    /// Closes the connection. Resolves when it is over: everything posted was flushed, and the peer can no longer
    /// access this side through it. Takes a bounded time. Can be called repeatedly.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Resolves when the connection has ended, for any reason.
    fn closed(&self) -> BoxFuture<'_, ()>;
}
