//! Streams many finalized replicas over one connection between two DataNodes. Implements both ends, independent of how
//! the bytes are stored.
//!
//! The sender has a [`ReplicaSource`] for each replica and interleaves them frame by frame ([`send`]). The receiver
//! checks every byte against its CRCs and passes it to a [`ReplicaSink`] ([`receive`]). The sender sends only as much
//! as the receiver has given it credit for. Credit returns when bytes are stored, so neither end buffers more than a
//! window, whatever the peer does.
//!
//! Frames: `hearth_wire::data_transfer::{ToReceiver, ToSender}`. Rationale: docs/design/0005.

mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::{self, Connection, PeerAddress, ReceiveBuffer};
use hearth_types::{ByteRange, ChecksumError};
use hearth_wire::data_transfer::{
    Decoded, MessageError, OpenReplica, Operation, ReplicaRefusal, ReplicaStream, StreamLimits, StreamTerms,
};

pub use incoming::receive;
pub use outgoing::{ReplicaJob, send};

/// Maximum number of data bytes received by one call, and so verified at once. A larger amount would not stay in the
/// cache and would be fetched from memory again for the CRCs.
const RECEIVE_BYTES: usize = 256 << 10;

/// The same limit for data that is received in place, where no second copy needs the cache: a frame of the usual length
/// in one call.
const IN_PLACE_BYTES_MAX: usize = 512 << 10;

/// Maximum size of the buffer: a remnant, the longest chunk or message, and room to receive.
const RECEIVE_BYTES_MAX: usize = 512 << 10;

/// Longest chunk covered by one CRC. A chunk must fit in the buffer, with room to receive.
pub const CHUNK_BYTES_MAX: u32 = 128 << 10;

/// Shortest chunk covered by one CRC.
pub const CHUNK_BYTES_MIN: u32 = 16;

/// Timeouts of either end.
#[derive(Clone, Copy, Debug)]
pub struct StreamTimeouts {
    /// Longest silence of the peer while a replica is in progress.
    pub silence: Duration,
    /// Longest time in which the peer accepts no byte, or sends only pings about the bytes it has accepted.
    pub write: Duration,
    /// Longest time without a replica in progress.
    pub idle: Duration,
}

impl StreamTimeouts {
    /// Longest time in which a sender may send only pings. Its source may be slow, and the received part of a replica
    /// is kept for the sender when the connection ends.
    fn no_data_timeout(&self) -> Duration {
        self.silence + self.write
    }

    /// Interval of pings from an end that has nothing else to send.
    fn ping_interval(&self) -> Duration {
        self.silence / 3
    }
}

/// Errors that end a replica stream early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Connection(#[from] tcp::Error),
    #[error("invalid frame from {peer}")]
    Frame { peer: PeerAddress, source: MessageError },
    #[error("{peer} violated the stream protocol: {what}")]
    Protocol { peer: PeerAddress, what: &'static str },
    #[error("nothing received from {peer} for {after:?} while replicas are in progress")]
    Silent { peer: PeerAddress, after: Duration },
    #[error("{peer} is alive, but made no progress with the sent data for {after:?}")]
    NoProgress { peer: PeerAddress, after: Duration },
    #[error("{peer} is alive, but has sent no data of its open replicas for {after:?}")]
    OnlyPings { peer: PeerAddress, after: Duration },
    #[error("{peer} refused a replica stream: {refusal}")]
    Refused { peer: PeerAddress, refusal: ReplicaRefusal },
    #[error("a task of the stream ended early")]
    Interrupted,
}

/// Errors of sending one replica.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaSendError {
    #[error("the receiver refused the replica")]
    Refused(#[source] ReplicaRefusal),
    #[error("cannot read the replica")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// `stored`: bytes that the receiver has acknowledged; it keeps them for a while.
    #[error("the stream broke after {stored} bytes of the replica were acknowledged")]
    Broken { stored: u64, source: Arc<StreamError> },
}

/// Bytes of a replica, in the form that is cheapest to send.
#[derive(Clone, Copy, Debug)]
pub enum SourceData<'a> {
    /// Bytes for sendfile, from `offset` of this file.
    File {
        file: BorrowedFd<'a>,
        offset: u64,
    },
    Bytes(&'a [u8]),
}

/// A replica to send. It is read sequentially, possibly starting in the middle.
pub trait ReplicaSource: Send + 'static {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Appends the big-endian CRCs of `range`, which starts and ends at chunk boundaries or at the replica's end.
    fn checksums(&mut self, range: ByteRange, into: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// Returns the bytes of `range`. It may wait for a disk, or for this replica's share of the network.
    fn data(&mut self, range: ByteRange) -> impl Future<Output = Result<SourceData<'_>, Self::Error>> + Send;
}

/// Storage for incoming replicas.
pub trait ReplicaStore: Send + Sync + 'static {
    type Sink: ReplicaSink;

    /// Allocates space for a replica, or finds what an earlier connection has already stored of it.
    fn open(&self, request: OpenReplica) -> impl Future<Output = Result<Self::Sink, ReplicaRefusal>> + Send;
}

/// One incoming replica. If dropped, it leaves nothing behind.
pub trait ReplicaSink: Sized + Send + 'static {
    /// Number of bytes stored, from the replica's start.
    fn received(&self) -> u64;

    /// Returns true if [`Self::store_now`] of `bytes` more can be called without blocking.
    fn can_store_now(&self, bytes: usize) -> bool;

    /// Stores verified bytes without blocking. Skips bytes before `received`.
    fn store_now(&mut self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<(), ReplicaRefusal>;

    /// Returns the replica's memory if the bytes from `received` to `end` should be received directly into it and
    /// verified there. Called only while [`Self::can_store_now`] is true.
    fn in_place(&mut self, end: u64) -> Option<&mut dyn InPlace> {
        let _ = end;
        None
    }

    /// Stores verified bytes in a task of its own, which may wait. Returns the sink.
    fn store(
        self,
        offset: u64,
        data: &[u8],
        checksums: &[u8],
    ) -> impl Future<Output = Result<Self, ReplicaRefusal>> + Send;

    /// Finalizes the completely received replica and has it reported.
    fn finish(self) -> impl Future<Output = Result<(), ReplicaRefusal>> + Send;

    /// Keeps the received part after the connection broke, because the sender may come back.
    fn keep(self);
}

/// Memory of a replica that receives bytes before they are verified. They count as received only after verification.
pub trait InPlace: Send {
    /// Receives once from `socket`, without blocking. Up to `length` bytes go to the replica at `offset`, which is not
    /// before the received part; the bytes after them go to `behind`. Returns the total number of bytes.
    ///
    /// Errors: the outer error is a refusal: the memory is no longer available. The inner error is the socket's.
    fn receive(
        &mut self,
        offset: u64,
        length: usize,
        socket: BorrowedFd<'_>,
        behind: &mut [u8],
    ) -> Result<std::io::Result<usize>, ReplicaRefusal>;

    /// Verifies the next `length` bytes, which end at a chunk boundary or the replica's end, and counts them as
    /// received.
    fn accept(&mut self, length: usize, checksums: &[u8]) -> Result<(), NotAccepted>;
}

/// Reasons for rejecting bytes that were received in place.
#[derive(Debug)]
pub enum NotAccepted {
    Corrupt(ChecksumError),
    Refused(ReplicaRefusal),
}

/// Creates a receive buffer for either end.
pub fn receive_buffer() -> ReceiveBuffer {
    ReceiveBuffer::new(4 << 10, RECEIVE_BYTES_MAX)
}

/// Asks the peer to accept replicas on this connection.
///
/// Errors: `Refused`, e.g. because it has no memory for another stream; `Connection` closed: the peer does not know the
/// operation.
pub async fn negotiate(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    request: ReplicaStream,
    waits: &StreamTimeouts,
) -> Result<StreamLimits, StreamError> {
    let peer = connection.peer();
    connection.write_all(&Operation::ReplicaStream(request).encode(), waits.write).await?;
    loop {
        match StreamTerms::decode(buffer.available()).map_err(|source| StreamError::Frame { peer, source })? {
            Decoded::Complete(terms, bytes) => {
                buffer.consume(bytes);
                return match terms {
                    StreamTerms::Accepted(limits) => Ok(limits),
                    StreamTerms::Refused(refusal) => Err(StreamError::Refused { peer, refusal }),
                };
            }
            Decoded::Needs(missing) => {
                let wanted = buffer.available().len() + missing;
                buffer.fill_to(connection, wanted, waits.silence).await?;
            }
        }
    }
}

/// Refusal for bytes that were corrupted in transit.
fn corrupt(offset: u64, error: &ChecksumError) -> ReplicaRefusal {
    let message = format!("checksum error in the data at offset {offset}: {error}");
    ReplicaRefusal::new(hearth_wire::data_transfer::Status::ErrorChecksum, message)
}
