//! What every one-sided transport can do: connect, exchange small messages, and read or write memory that the peer has
//! registered, without code of the peer's running.
//!
//! The order that callers rely on, and the conformance suite holds:
//! - Messages of one connection arrive in order, and after the data of all writes that were posted before them on it.
//! - Reads posted together are carried out in order: what a later one shows is no older than what an earlier one does.
//! - A write's own completion says that its local memory is free again, not that the data has arrived.
//!
//! And the safety (design, rules 1, 7, 10): memory that is posted stays registered and mapped until its completion, or
//! its flush, has been seen, also when the future that waits for it is dropped. When `Connection::close` has resolved,
//! the peer can write nothing more through that connection. When a `Region` is gone, new operations on its key fail
//! and end their connection. A read in flight may still finish, on the memory as it was, which nobody uses again; of a
//! write in flight no byte arrives any more.

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

/// Longest message, bytes. Each end keeps a few dozen receives of this size posted for every connection.
pub const MESSAGE_BYTES_MAX: usize = 8192;

/// Longest private data of a connect, accept or reject, bytes. Source: rdma_cm, `RDMA_PS_TCP` over InfiniBand, which
/// has the least room: 56.
pub const PRIVATE_BYTES_MAX: usize = 56;

/// What may be done to a region from outside. Local reads and writes always may, as far as the mapping allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Source of writes, or sink of reads, of this side's own operations.
    Local,
    /// Peers in the same domain may read.
    RemoteRead,
    /// Peers in the same domain may write.
    RemoteWrite,
}

/// What a connection may have in flight. Each side states its own; the smaller counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Reads that the network carries at once; more may be posted and wait their turn.
    pub reads_in_flight: u8,
    /// Operations posted and not completed. Callers beyond it wait.
    pub operations: u16,
    /// Messages received and not yet taken by `receive`. The sender waits for credit beyond it.
    pub messages: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reads_in_flight: 16, operations: 128, messages: 32 }
    }
}

/// What went wrong, and with whom.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine has no such transport: no library, no device, not configured.
    #[error("{transport} is not available here: {why}")]
    Unavailable { transport: &'static str, why: String },
    #[error("listening on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("no connection to {peer}")]
    Connect { peer: SocketAddr, source: io::Error },
    /// The peer said no; `private` is what it gave as the reason.
    #[error("{peer} rejected the connection")]
    Rejected { peer: SocketAddr, private: Bytes },
    /// The connection has ended: by the peer, by `close`, by a time-out, or because an operation failed on it. Every
    /// operation posted on it ends with this, whichever was at fault.
    #[error("the connection to {peer} has ended: {why}")]
    Closed { peer: SocketAddr, why: String },
    /// `action` did not end in time. The connection is closed by that.
    #[error("{action} with {peer} took longer than {after:?}")]
    TimedOut { peer: SocketAddr, action: &'static str, after: Duration },
    /// Only the waiting for a message timed out: the connection goes on.
    #[error("no message from {peer} for {after:?}")]
    NoMessage { peer: SocketAddr, after: Duration },
    #[error("{bytes} bytes of memory could not be registered")]
    Register { bytes: u64, source: io::Error },
    #[error("{what} of {bytes} bytes, where {limit} are the limit")]
    TooLong { what: &'static str, bytes: usize, limit: usize },
}

/// One way of moving bytes one-sidedly, e.g. RDMA through this machine's cards.
pub trait Transport: Send + Sync + Debug {
    /// For logs, metrics and messages: `rdma`, `tcp`, `sim`.
    fn name(&self) -> &'static str;

    /// A place for registrations. Keys of its regions work on connections made in it, and on no other.
    ///
    /// Errors: `Unavailable`; `Register`.
    fn domain(&self) -> Result<Arc<dyn Domain>, Error>;

    /// Errors: `Listen`; `Unavailable`. Port 0 chooses a free one.
    fn listen(&self, address: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, Error>>;

    /// `private`: at most `PRIVATE_BYTES_MAX`, seen by the peer before it accepts.
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

/// Where registrations belong (with verbs: a protection domain).
pub trait Domain: Send + Sync + Debug {
    /// Registers bytes `range` of `memory`. Pins them, and takes milliseconds for many: not on a thread of the runtime,
    /// and not while a request waits.
    ///
    /// Errors: `Register`; also when `RemoteWrite` is asked for memory that is mapped for reading only.
    fn register(&self, memory: &Arc<Memory>, range: Range<u64>, access: Access) -> Result<Arc<dyn Region>, Error>;

    /// Bytes registered in it now.
    fn registered_bytes(&self) -> u64;

    /// Allows a transport to find its own domains behind the trait.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Registered memory. Dropping the last reference deregisters it; the memory itself lives as long as anybody holds it.
pub trait Region: Send + Sync + Debug {
    fn memory(&self) -> &Arc<Memory>;

    /// Which bytes of the memory.
    fn range(&self) -> Range<u64>;

    /// What a peer must know to reach all of it. For `Access::Local` it is of no use to a peer.
    fn remote(&self) -> RemoteSlice;

    fn as_any(&self) -> &dyn std::any::Any;
}

/// Waits for peers.
pub trait Listener: Send + Sync + Debug {
    /// The address in use.
    fn address(&self) -> SocketAddr;

    /// The next peer that wants to connect.
    fn accept(&self) -> BoxFuture<'_, Result<Box<dyn Incoming>, Error>>;
}

/// A peer that wants to connect. Dropped, it is rejected.
pub trait Incoming: Send + Debug {
    fn peer(&self) -> SocketAddr;

    /// What it said with its wish. Some networks fill it up with zeros to `PRIVATE_BYTES_MAX`.
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

/// One side's memory and the other's, of the same length: `remote.length` bytes.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub local: Arc<dyn Region>,
    /// From the start of the region.
    pub offset: u64,
    pub remote: RemoteSlice,
}

/// A connection. Any number of tasks may use it at once.
///
/// The futures of `read` and `write` own what they move: dropping one changes nothing for the operation.
pub trait Connection: Send + Sync + Debug {
    fn peer(&self) -> SocketAddr;

    /// What the peer said when it accepted (or, on its side, with its wish).
    fn private(&self) -> &[u8];

    /// As agreed between both sides.
    fn limits(&self) -> Limits;

    /// Reads from the peer's memory into this side's, all posted together, carried out in order; resolves when the last
    /// is complete. More than `limits().operations` go in several rounds.
    ///
    /// Errors: `Closed`; `TimedOut`. Panics when a transfer is not within its local region, or that is mapped for reading
    /// only.
    fn read(&self, transfers: Vec<Transfer>, timeout: Duration) -> BoxFuture<'static, Result<(), Error>>;

    /// Writes from this side's memory into the peer's, in order, and then sends `message`, if any, which the peer receives
    /// after the data. Resolves when the local memory is free again. Waits for credit before it posts anything.
    ///
    /// Errors: `Closed`; `TimedOut`; `TooLong` for the message. Panics when a transfer is not within its local region.
    fn write(
        &self,
        transfers: Vec<Transfer>,
        message: Option<Bytes>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<(), Error>>;

    /// Sends a message of 1 to `MESSAGE_BYTES_MAX` bytes; waits for credit.
    ///
    /// Errors: as `write`; `TooLong` for an empty one, too.
    fn send(&self, message: Bytes, timeout: Duration) -> BoxFuture<'static, Result<(), Error>> {
        self.write(Vec::new(), Some(message), timeout)
    }

    /// The next message. One task at a time.
    ///
    /// Errors: `NoMessage`, after which the connection goes on; `Closed` when there are no more.
    fn receive(&self, timeout: Duration) -> BoxFuture<'_, Result<Bytes, Error>>;

    /// Ends the connection, and resolves when it is over: all that was posted is flushed, and the peer reaches nothing
    /// of this side through it. Bounded. Can be called any number of times.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Resolves when the connection has ended, for whatever reason.
    fn closed(&self) -> BoxFuture<'_, ()>;
}
