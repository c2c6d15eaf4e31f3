//! A range of a block, streamed over whichever path.

use std::sync::Arc;

use hearth_types::ByteRange;

use super::local::LocalStream;
use super::multiplexed::MultiplexedStream;
use super::one_sided::OneSidedStream;
use super::packets::PacketStream;
use super::way::{Checks, Way};
use crate::file_system::Shared;
use crate::local::LocalReplica;
use crate::{DataPath, DatanodeError};

/// Bytes of a replica, in order, where the path left them; verified, unless it was opened without checks.
#[derive(Debug)]
pub(super) struct BlockStream {
    way: Way,
    source: Source,
    /// Bytes have come over it.
    brought: bool,
}

#[derive(Debug)]
enum Source {
    Local(LocalStream),
    OneSided(OneSidedStream),
    Packets(PacketStream),
    Multiplexed(MultiplexedStream),
}

impl BlockStream {
    /// Starts reading `range` (not empty) of the block over `way`.
    pub(super) async fn open(
        shared: &Shared,
        way: Way,
        range: ByteRange,
        checks: Checks,
    ) -> Result<Self, (Way, DatanodeError)> {
        let packets = || PacketStream::open(shared, &way.block, way.datanode(), range, checks);
        let opened = match way.path {
            DataPath::Packets if checks == Checks::None => packets().await.map(Source::Packets),
            DataPath::Packets => match MultiplexedStream::open(shared, &way, range).await {
                Ok(Some(stream)) => Ok(Source::Multiplexed(stream)),
                Ok(None) => packets().await.map(Source::Packets),
                Err(error) => Err(error),
            },
            DataPath::Local => LocalStream::open(shared, &way, range).await.map(Source::Local),
            DataPath::OneSided => OneSidedStream::open(shared, &way, range).await.map(Source::OneSided),
        };
        match opened {
            Ok(source) => Ok(Self { way, source, brought: false }),
            Err(error) => Err((way, error)),
        }
    }

    pub(super) fn way(&self) -> &Way {
        &self.way
    }

    /// Whether bytes have come over it.
    pub(super) fn has_brought(&self) -> bool {
        self.brought
    }

    /// The replica, when it is open on this machine.
    pub(super) fn local_replica(&self) -> Option<&Arc<LocalReplica>> {
        match &self.source {
            Source::Local(stream) => stream.replica(),
            Source::OneSided(_) | Source::Packets(_) | Source::Multiplexed(_) => None,
        }
    }

    /// What `advance` brought and was not consumed.
    pub(super) fn data(&self) -> &[u8] {
        match &self.source {
            Source::Local(stream) => stream.data(),
            Source::OneSided(stream) => stream.data(),
            Source::Packets(stream) => stream.data(),
            Source::Multiplexed(stream) => stream.data(),
        }
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        match &mut self.source {
            Source::Local(stream) => stream.consume(bytes),
            Source::OneSided(stream) => stream.consume(bytes),
            Source::Packets(stream) => stream.consume(bytes),
            Source::Multiplexed(stream) => stream.consume(bytes),
        }
    }

    /// Brings more and verifies it; what was not consumed before is gone. False when everything asked for has come.
    pub(super) async fn advance(&mut self, shared: &Shared) -> Result<bool, DatanodeError> {
        let more = match &mut self.source {
            Source::Local(stream) => stream.advance(shared, &self.way).await,
            Source::OneSided(stream) => stream.advance(shared, &self.way).await,
            Source::Packets(stream) => stream.advance().await,
            Source::Multiplexed(stream) => stream.advance(&self.way),
        }?;
        self.brought |= more;
        shared.counters.count_read(self.way.path, self.data().len());
        Ok(more)
    }

    /// Copies verified bytes into `into` (not empty), as many as come in one go. 0 when everything asked for has come.
    pub(super) async fn read(&mut self, shared: &Shared, into: &mut [u8]) -> Result<usize, DatanodeError> {
        let shown = self.data().len();
        let copied = match &mut self.source {
            Source::Local(stream) if stream.is_mapped() => stream.read(shared, &self.way, into).await?,
            Source::OneSided(stream) => stream.read(shared, &self.way, into).await?,
            Source::Multiplexed(stream) => stream.read(&self.way, into)?,
            Source::Packets(stream) => match stream.receive(into).await? {
                Some(received) => received,
                None => return self.read_shown(shared, into).await,
            },
            Source::Local(_) => return self.read_shown(shared, into).await,
        };
        self.brought |= copied > 0;
        // What was shown is counted already.
        shared.counters.count_read(self.way.path, if shown > 0 { 0 } else { copied });
        Ok(copied)
    }

    /// As `read`, of what `advance` brings.
    async fn read_shown(&mut self, shared: &Shared, into: &mut [u8]) -> Result<usize, DatanodeError> {
        while self.data().is_empty() {
            if !self.advance(shared).await? {
                return Ok(0);
            }
        }
        let data = self.data();
        let count = data.len().min(into.len());
        into[..count].copy_from_slice(&data[..count]);
        self.consume(count);
        Ok(count)
    }

    /// What the path keeps for the next reader, when the read came to its end.
    pub(super) fn finish(self, shared: &Shared) {
        match self.source {
            Source::Local(_) => {}
            Source::OneSided(_) | Source::Multiplexed(_) => {}
            Source::Packets(stream) => stream.finish(&shared.peers),
        }
    }
}
