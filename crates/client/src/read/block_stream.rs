//! Stream of a range of a block. Dispatches to the stream of the candidate's path.

use std::sync::Arc;

use hearth_fabric::local;
use hearth_protocol::trace::{self, Span};
use hearth_types::{ByteRange, ChecksumError};

use super::candidate::{Candidate, Checks};
use super::local_stream::LocalStream;
use super::multiplexed_stream::MultiplexedStream;
use super::one_sided_stream::OneSidedStream;
use super::packet_stream::PacketStream;
use crate::session::Session;
use crate::short_circuit::LocalReplica;
use crate::{DataPath, DatanodeError};

/// Bytes of a replica, in order, in the memory where the path left them. Verified, unless opened without checks.
#[derive(Debug)]
pub(super) struct BlockStream {
    candidate: Candidate,
    source: PathStream,
    /// The stream has delivered bytes.
    delivered: bool,
    /// Ends with the stream.
    _span: Span,
}

#[derive(Debug)]
enum PathStream {
    Local(LocalStream),
    OneSided(OneSidedStream),
    Packets(PacketStream),
    Multiplexed(MultiplexedStream),
}

impl BlockStream {
    /// Starts reading `range` (not empty) of the block over `candidate`.
    pub(super) async fn open(
        session: &Session,
        candidate: Candidate,
        range: ByteRange,
        checks: Checks,
    ) -> Result<Self, (Candidate, DatanodeError)> {
        let mut span = Span::child("read block");
        if span.is_recording() {
            span.set("hdfs.block", candidate.block.block.to_string());
            span.set("hdfs.datanode", candidate.datanode().id.transfer_address());
            span.set("hearth.path", candidate.path.to_string());
            span.set("hearth.offset", range.start());
            span.set("hearth.bytes", range.length());
        }
        match trace::within(span.context(), Self::open_path(session, &candidate, range, checks)).await {
            Ok(source) => Ok(Self { candidate, source, delivered: false, _span: span }),
            Err(error) => {
                span.fail(&error);
                Err((candidate, error))
            }
        }
    }

    async fn open_path(
        session: &Session,
        candidate: &Candidate,
        range: ByteRange,
        checks: Checks,
    ) -> Result<PathStream, DatanodeError> {
        let packets = || PacketStream::open(&session.datanodes, &candidate.block, candidate.datanode(), range, checks);
        match candidate.path {
            DataPath::Packets if checks == Checks::None => packets().await.map(PathStream::Packets),
            DataPath::Packets => match MultiplexedStream::open(&session.multiplexed, candidate, range).await? {
                Some(stream) => Ok(PathStream::Multiplexed(stream)),
                None => packets().await.map(PathStream::Packets),
            },
            DataPath::Local => LocalStream::open(&session.short_circuit, candidate, range).await.map(PathStream::Local),
            DataPath::OneSided => {
                OneSidedStream::open(&session.one_sided, candidate, range).await.map(PathStream::OneSided)
            }
        }
    }

    pub(super) fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Returns true if the stream has delivered bytes.
    pub(super) fn has_delivered(&self) -> bool {
        self.delivered
    }

    /// Returns the replica, if it is open on this machine.
    pub(super) fn local_replica(&self) -> Option<&Arc<LocalReplica>> {
        match &self.source {
            PathStream::Local(stream) => stream.replica(),
            PathStream::OneSided(_) | PathStream::Packets(_) | PathStream::Multiplexed(_) => None,
        }
    }

    /// Builds the error for bytes of the replica that a caller found not to match their checksums, at `offset` of the
    /// block.
    pub(super) fn bad(&self, session: &Session, offset: u64, source: ChecksumError) -> DatanodeError {
        match &self.source {
            PathStream::Local(stream) => stream.bad(&session.short_circuit, &self.candidate, offset, source),
            PathStream::OneSided(_) | PathStream::Packets(_) | PathStream::Multiplexed(_) => {
                self.candidate.checksum_error(offset, source)
            }
        }
    }

    /// Returns the bytes that `advance` brought and that were not consumed.
    pub(super) fn data(&self) -> &[u8] {
        match &self.source {
            PathStream::Local(stream) => stream.data(),
            PathStream::OneSided(stream) => stream.data(),
            PathStream::Packets(stream) => stream.data(),
            PathStream::Multiplexed(stream) => stream.data(),
        }
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        let window = match &mut self.source {
            PathStream::Local(stream) => &mut stream.window,
            PathStream::OneSided(stream) => &mut stream.window,
            PathStream::Packets(stream) => &mut stream.window,
            PathStream::Multiplexed(stream) => &mut stream.window,
        };
        window.consume(bytes);
    }

    /// Fetches and verifies the next bytes; unconsumed bytes are dropped. Returns false when all requested bytes have
    /// been shown.
    pub(super) async fn advance(&mut self, session: &Session) -> Result<bool, DatanodeError> {
        let more = match &mut self.source {
            PathStream::Local(stream) => stream.advance(&session.short_circuit, &self.candidate).await,
            PathStream::OneSided(stream) => stream.advance(&session.one_sided, &self.candidate).await,
            PathStream::Packets(stream) => stream.advance().await,
            PathStream::Multiplexed(stream) => stream.advance(&self.candidate),
        }?;
        self.delivered |= more;
        session.counters.count_read(self.candidate.path, self.data().len());
        Ok(more)
    }

    /// Copies verified bytes into `into` (not empty), as many as are available at once. Returns 0 when all requested
    /// bytes have been read.
    pub(super) async fn read(&mut self, session: &Session, into: &mut [u8]) -> Result<usize, DatanodeError> {
        if !self.data().is_empty() {
            return Ok(self.copy_shown(into));
        }
        let copied = match &mut self.source {
            PathStream::Local(stream) if stream.is_mapped() => {
                stream.read(&session.short_circuit, &self.candidate, into).await?
            }
            PathStream::OneSided(stream) => stream.read(&session.one_sided, &self.candidate, into).await?,
            PathStream::Multiplexed(stream) => stream.read(&self.candidate, into)?,
            PathStream::Packets(stream) => match stream.receive(into).await? {
                Some(received) => received,
                None => return self.advance_and_copy(session, into).await,
            },
            PathStream::Local(_) => return self.advance_and_copy(session, into).await,
        };
        self.delivered |= copied > 0;
        session.counters.count_read(self.candidate.path, copied);
        Ok(copied)
    }

    /// Implements `read` with the bytes that `advance` brings.
    async fn advance_and_copy(&mut self, session: &Session, into: &mut [u8]) -> Result<usize, DatanodeError> {
        while self.data().is_empty() {
            if !self.advance(session).await? {
                return Ok(0);
            }
        }
        Ok(self.copy_shown(into))
    }

    /// Copies shown bytes, which `advance` has counted, and consumes them.
    fn copy_shown(&mut self, into: &mut [u8]) -> usize {
        let data = self.data();
        let count = data.len().min(into.len());
        local::copy(&data[..count], &mut into[..count]);
        self.consume(count);
        count
    }

    /// Returns the path's resources for the next reader, if the read is complete.
    pub(super) fn finish(self, session: &Session) {
        match self.source {
            PathStream::Local(_) => {}
            PathStream::OneSided(_) | PathStream::Multiplexed(_) => {}
            PathStream::Packets(stream) => stream.finish(&session.datanodes.peer_cache),
        }
    }
}
