//! Many finalized replicas over one connection, from one DataNode to another: both ends, without knowing where the bytes are kept.
//!
//! The sender has a [`ReplicaSource`] for each replica and interleaves them frame by frame ([`send`]); the receiver checks every
//! byte against its CRCs and hands it to a [`ReplicaSink`] ([`receive`]). The sender sends no more than the receiver has given it
//! credit for, and credit comes back when bytes are stored: neither holds more than a window, whatever the other does.
//!
//! Frames: `hearth_wire::data_transfer::{ToReceiver, ToSender}`. Why it is so: docs/design/0005.

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

/// What one call receives at most on the side of the data, and so what is checked at once: more than the cache holds would be
/// fetched from memory once more for the CRCs.
const RECEIVE_BYTES: usize = 256 << 10;

/// The same of data that is received in place, where there is no second copy of it to have in the cache: a frame of the usual length in one call.
const IN_PLACE_BYTES_MAX: usize = 512 << 10;

/// The most that the buffer grows to: a remnant, the longest chunk or message, and room to receive.
const RECEIVE_BYTES_MAX: usize = 512 << 10;

/// Longest chunk under one CRC: one has to fit the buffer, with room to receive.
pub const CHUNK_BYTES_MAX: u32 = 128 << 10;

/// Shortest chunk under one CRC.
pub const CHUNK_BYTES_MIN: u32 = 16;

/// How long each end waits.
#[derive(Clone, Copy, Debug)]
pub struct StreamTimeouts {
    /// Silence of the other end while a replica is on its way.
    pub silence: Duration,
    /// The other end takes no byte, or has nothing to say of those that it took but that it is there.
    pub write: Duration,
    /// No replica is on its way.
    pub idle: Duration,
}

impl StreamTimeouts {
    /// So long a sender may only say that it is there: its source may take its time, and what came of a replica is kept for it
    /// when the connection ends.
    fn no_data_timeout(&self) -> Duration {
        self.silence + self.write
    }

    /// So often an end that has nothing to say says that it is there.
    fn ping_interval(&self) -> Duration {
        self.silence / 3
    }
}

/// Why a connection of replicas ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Connection(#[from] tcp::Error),
    #[error("frame of {peer}")]
    Frame { peer: PeerAddress, source: MessageError },
    #[error("{peer} does not keep to the rules: {what}")]
    Protocol { peer: PeerAddress, what: &'static str },
    #[error("nothing from {peer} for {after:?} while replicas are on their way")]
    Silent { peer: PeerAddress, after: Duration },
    #[error("{peer} is there, and nothing has come of what it was sent for {after:?}")]
    NoProgress { peer: PeerAddress, after: Duration },
    #[error("{peer} is there, and has sent nothing of the replicas that it has opened for {after:?}")]
    OnlyPings { peer: PeerAddress, after: Duration },
    #[error("{peer} takes no stream of replicas: {refusal}")]
    Refused { peer: PeerAddress, refusal: ReplicaRefusal },
    #[error("a task of the stream ended early")]
    Interrupted,
}

/// Why a replica did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaSendError {
    #[error("the receiver refused it")]
    Refused(#[source] ReplicaRefusal),
    #[error("reading it")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// `stored`: bytes that the receiver had acknowledged; it keeps them for a while.
    #[error("the stream broke with {stored} bytes of it acknowledged")]
    Broken { stored: u64, source: Arc<StreamError> },
}

/// The bytes of a replica for the shortest way out.
#[derive(Clone, Copy, Debug)]
pub enum SourceData<'a> {
    /// For sendfile, from `offset` of this file.
    File {
        file: BorrowedFd<'a>,
        offset: u64,
    },
    Bytes(&'a [u8]),
}

/// A replica to send. It is read front to back, perhaps from the middle on.
pub trait ReplicaSource: Send + 'static {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Appends the big-endian CRCs of `range`, which begins and ends on chunks or at the replica's end.
    fn checksums(&mut self, range: ByteRange, into: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// The bytes of `range`. It may wait: for a disk, or because it is not this replica's turn to use the network.
    fn data(&mut self, range: ByteRange) -> impl Future<Output = Result<SourceData<'_>, Self::Error>> + Send;
}

/// Where replicas come to lie.
pub trait ReplicaStore: Send + Sync + 'static {
    type Sink: ReplicaSink;

    /// Makes room for a replica, or finds what an earlier connection left of it.
    fn open(&self, request: OpenReplica) -> impl Future<Output = Result<Self::Sink, ReplicaRefusal>> + Send;
}

/// One replica on its way in. Dropped, it leaves nothing behind.
pub trait ReplicaSink: Send + 'static {
    /// Bytes from the replica's start that are stored.
    fn received(&self) -> u64;

    /// Whether [`Self::store_now`] may be called now: it waits for nothing.
    fn can_store_now(&self) -> bool;

    /// Stores verified bytes, where that waits for nothing. Bytes before `received` are left out.
    fn store_now(&mut self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<(), ReplicaRefusal>;

    /// Its memory, if the bytes from `received` to `end` had better be received straight to there, where they are verified. Asked only while
    /// it is quick.
    fn in_place(&mut self, end: u64) -> Option<&mut dyn InPlace> {
        let _ = end;
        None
    }

    /// Stores verified bytes, in a task that may wait.
    fn store(
        &mut self,
        offset: u64,
        data: &[u8],
        checksums: &[u8],
    ) -> impl Future<Output = Result<(), ReplicaRefusal>> + Send;

    /// All of it has come: makes it a replica like any other and has it reported.
    fn finish(self) -> impl Future<Output = Result<(), ReplicaRefusal>> + Send;

    /// The connection broke: the sender may come back.
    fn keep(self);
}

/// Memory of a replica to which bytes come before they are verified. They count when they have been.
pub trait InPlace: Send {
    /// Receives once from `socket`, without waiting: up to `length` bytes of the replica from `offset`, which is not before what has been
    /// received, and what comes behind them into `behind`. How many came in all.
    ///
    /// Errors: a refusal: the memory cannot be had any more. Within: the socket's.
    fn receive(
        &mut self,
        offset: u64,
        length: usize,
        socket: BorrowedFd<'_>,
        behind: &mut [u8],
    ) -> Result<std::io::Result<usize>, ReplicaRefusal>;

    /// Verifies the next `length` bytes, which end with a chunk or the replica, and counts them as received.
    fn accept(&mut self, length: usize, checksums: &[u8]) -> Result<(), NotAccepted>;
}

/// Why bytes that came in place do not count.
#[derive(Debug)]
pub enum NotAccepted {
    Corrupt(ChecksumError),
    Refused(ReplicaRefusal),
}

/// A buffer for either end.
pub fn receive_buffer() -> ReceiveBuffer {
    ReceiveBuffer::new(4 << 10, RECEIVE_BYTES_MAX)
}

/// Asks the other end to take replicas on this connection.
///
/// Errors: `Refused`, e.g. because it has no memory for one more; `Connection` closed: it knows no such thing.
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

/// Found in bytes on their way.
fn corrupt(offset: u64, error: &ChecksumError) -> ReplicaRefusal {
    let message = format!("the data at offset {offset} does not fit its CRCs: {error}");
    ReplicaRefusal::new(hearth_wire::data_transfer::Status::ErrorChecksum, message)
}
