//! Reads a replica of this DataNode to send it to another one.

use std::sync::Arc;

use hearth_blockstore::{DataSource, ReplicaReader};
use hearth_protocol::replica_stream::{ReplicaSource, SourceData};
use hearth_types::ByteRange;

use super::order::RequestedBy;
use crate::read_ahead::ReadAhead;
use crate::replica_service::ReplicaService;
use crate::sender::SendError;

/// Data bytes of a frame: the amount read from a disk at once, large enough to make the framing cost negligible.
pub const FRAME_BYTES: u32 = 512 << 10;

pub struct StreamSource {
    replicas: Arc<ReplicaService>,
    reader: Arc<ReplicaReader>,
    /// Read-ahead, for a replica on disk that is sent from its first byte on in frames of full length.
    ahead: Option<ReadAhead<Arc<ReplicaReader>>>,
    started: bool,
    /// Buffer for when files cannot be sent to the socket directly.
    scratch: Vec<u8>,
    requested_by: RequestedBy,
    /// The replica is sent into memory at the target, which is counted there.
    into_memory: bool,
}

impl StreamSource {
    pub fn new(replicas: &Arc<ReplicaService>, reader: Arc<ReplicaReader>, requested_by: RequestedBy) -> Self {
        let (replicas, scratch) = (replicas.clone(), Vec::new());
        Self { replicas, reader, ahead: None, started: false, scratch, requested_by, into_memory: false }
    }

    /// Creates a source for a transfer that does not use a stream connection.
    pub fn into_memory(replicas: &Arc<ReplicaService>, reader: Arc<ReplicaReader>, requested_by: RequestedBy) -> Self {
        Self { into_memory: true, ..Self::new(replicas, reader, requested_by) }
    }
}

impl ReplicaSource for StreamSource {
    type Error = SendError;

    fn checksums(&mut self, range: ByteRange, into: &mut Vec<u8>) -> Result<(), SendError> {
        Ok(self.reader.checksums(range, into)?)
    }

    async fn data(&mut self, range: ByteRange) -> Result<SourceData<'_>, SendError> {
        let throttle = match self.requested_by {
            RequestedBy::Namenode => &self.replicas.transfer_throttle,
            RequestedBy::Balancer => &self.replicas.balance_throttle,
        };
        throttle.pass(range.length()).await;
        if !self.into_memory {
            self.replicas.metrics.record_stream_sent(range.length());
        }
        if !self.started {
            self.started = true;
            let in_frames = range.start() == 0 && range.length() == u64::from(FRAME_BYTES);
            self.ahead = in_frames.then(|| ReadAhead::start(self.reader.clone(), FRAME_BYTES.into())).flatten();
        }
        if let Some(ahead) = &mut self.ahead {
            return Ok(SourceData::Bytes(ahead.packet(range.start(), range.length()).await?));
        }
        match self.reader.data() {
            DataSource::Bytes(bytes) => Ok(SourceData::Bytes(&bytes[range.start() as usize..range.end() as usize])),
            DataSource::File { file, offset } if self.replicas.options.transfer.transfer_to => {
                Ok(SourceData::File { file, offset: offset + range.start() })
            }
            DataSource::File { .. } => {
                self.scratch.resize(range.length() as usize, 0);
                self.reader.read_at(range.start(), &mut self.scratch)?;
                Ok(SourceData::Bytes(&self.scratch))
            }
        }
    }
}
