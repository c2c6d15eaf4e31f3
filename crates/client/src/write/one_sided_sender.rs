//! One-sided writes. Bytes are gathered in registered memory of this client and written from there into memory that the
//! pipeline's first datanode grants for the replica. A small message behind them on the same connection announces them.

use std::sync::Arc;

use hearth_fabric::one_sided::{Error, Transfer};
use hearth_protocol::one_sided_write::{
    BlockWriter, OpenOutcome, WriteBuffers, WriterError, WriterTimeouts, checksums_of, open,
};
use hearth_types::{ChecksumSpec, ExtendedBlock};
use hearth_wire::data_transfer::{HEARTBEAT_SEQNO, PacketHeader};

use super::granted_memory::GrantedMemory;
use super::packet::Packet;
use super::packets;
use super::pipeline_set_up::{PipelineFailure, SetUp, message, refused};
use crate::session::Session;
use crate::{DataPath, DatanodeError};

/// Sending half.
pub(super) struct OneSidedPacketSender {
    writer: Arc<BlockWriter>,
    buffers: Arc<WriteBuffers>,
    checksum: ChecksumSpec,
}

/// Sets up the pipeline over a one-sided connection to its first datanode. Returns `None` if there is no such
/// connection.
pub(super) async fn set_up(
    session: &Session,
    spec: &SetUp<'_>,
) -> Result<Option<(OneSidedPacketSender, OneSidedAckReceiver)>, PipelineFailure> {
    let Some(head) = spec.targets.first() else { return Ok(None) };
    let datanode = &head.datanode.id;
    let timeouts = session.datanodes.options.pipeline_timeouts(spec.targets.len());
    let waits =
        WriterTimeouts { read: timeouts.read, write: timeouts.write, heartbeat: session.datanodes.options.heartbeat() };
    for is_first in [true, false] {
        let Some((connection, connections, buffers)) = session.one_sided.writer(datanode).await else {
            return Ok(None);
        };
        let request = message(session, spec, head);
        let opening = open(connection, &connections, datanode, request, waits).await;
        match opening.map_err(|error| PipelineFailure::of_first(DataPath::OneSided, error.into()))? {
            // A connection kept from an earlier block may have just ended: try another.
            OpenOutcome::NotSent if is_first => {}
            OpenOutcome::NotSent => break,
            OpenOutcome::Refused(answer) => return Err(refused(spec, *answer)),
            OpenOutcome::Opened(writer) => {
                let acknowledgements = OneSidedAckReceiver { writer: writer.clone() };
                let checksum = session.options.write.packets.checksum;
                return Ok(Some((OneSidedPacketSender { writer, buffers, checksum }, acknowledgements)));
            }
        }
    }
    // The second connection failed too, or the pipeline has hundreds of datanodes.
    Ok(None)
}

impl From<WriterError> for DatanodeError {
    fn from(error: WriterError) -> Self {
        match error {
            WriterError::Connection(error) => Self::OneSided(error),
            WriterError::Unexpected { peer } => {
                Self::OneSidedProtocol { peer, what: "unexpected message from the datanode".to_owned() }
            }
            // Not a time-out: the datanode responds, so packets may well reach it.
            WriterError::NotGranted { peer, action, after } => {
                Self::OneSidedProtocol { peer, what: format!("{action} took longer than {after:?}") }
            }
        }
    }
}

impl OneSidedPacketSender {
    pub(super) fn granted_memory(&self) -> GrantedMemory {
        GrantedMemory::Remote { buffers: self.buffers.clone(), granted: self.writer.first_granted(), more: true }
    }

    /// Sends `packet` in one slice, or in several if less memory is granted than the packet needs. Its acknowledgement
    /// is that of the last slice.
    ///
    /// Waits here for memory and for a send slot. No other heartbeat is sent during that time: `BlockWriter` sends its
    /// own and bounds the wait.
    pub(super) async fn send(&self, packet: &Packet) -> Result<(), DatanodeError> {
        let header = packet.header();
        if header.data_bytes == 0 {
            return self.send_alone(header).await;
        }
        let region = match packet.registered() {
            Some(region) => region.clone(),
            None => {
                let data = packet.data().map_err(|source| DatanodeError::ReadBack { offset: packet.offset, source })?;
                let region = self.buffers.take()?;
                region.memory().write(0, &data);
                region
            }
        };
        let sums_at = self.buffers.data_bytes();
        region.memory().write(sums_at, packet.checksums());
        let mut at = header.offset;
        while at < header.end() {
            let part = self.writer.next_slice(&header, at, self.checksum).await?;
            let transfers = self.writer.transfers(&region, at - header.offset, at, part.end());
            let Some(mut transfers) = transfers else { return Err(self.writer.unexpected().into()) };
            let sums = checksums_of(&part, &header, self.checksum);
            let turn = self.writer.reserve_checksums(sums.end - sums.start).await?;
            if !sums.is_empty() {
                let (local, offset) = (region.clone(), sums_at + sums.start);
                transfers.push(Transfer { local, offset, remote: turn.checksums });
            }
            at = part.end();
            self.writer.send(transfers, part, turn, at == header.end(), false).await?;
        }
        Ok(())
    }

    pub(super) async fn send_heartbeat(&self) -> Result<(), DatanodeError> {
        let header = PacketHeader { offset: 0, seqno: HEARTBEAT_SEQNO, last: false, data_bytes: 0, sync: false };
        self.send_alone(header).await
    }

    async fn send_alone(&self, header: PacketHeader) -> Result<(), DatanodeError> {
        let turn = self.writer.reserve_checksums(0).await?;
        Ok(self.writer.send(Vec::new(), header, turn, true, false).await?)
    }
}

/// Receiving half.
pub(super) struct OneSidedAckReceiver {
    writer: Arc<BlockWriter>,
}

impl OneSidedAckReceiver {
    pub(super) async fn next(
        &mut self,
        oldest: Option<i64>,
        block: &ExtendedBlock,
    ) -> Result<packets::Reply, DatanodeError> {
        match self.writer.next_ack().await {
            Err(WriterError::Connection(Error::NoMessage { after, .. })) => {
                Err(DatanodeError::AcknowledgementTimedOut {
                    sequence: oldest.unwrap_or(HEARTBEAT_SEQNO),
                    block: Box::new(block.clone()),
                    after,
                })
            }
            received => {
                let ack = received?;
                let failed = packets::failed(&ack.replies);
                // The acknowledgement of a part of a packet says that all datanodes are alive, and may grant more
                // memory.
                let sequence = if ack.is_whole || failed.is_some() { ack.seqno } else { HEARTBEAT_SEQNO };
                Ok(packets::Reply { sequence, granted: ack.granted, failed })
            }
        }
    }

    pub(super) fn unexpected(&self) -> DatanodeError {
        self.writer.unexpected().into()
    }

    /// Called when the acknowledgement of the block's end has arrived.
    pub(super) fn ended(&self) {
        self.writer.mark_ended();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_silence_counts_as_time_out() {
        let (peer, action, after) = (([127, 0, 0, 1], 1).into(), "waiting", Duration::from_secs(1));
        for silent in [Error::TimedOut { peer, action, after }, Error::NoMessage { peer, after }] {
            assert!(DatanodeError::from(WriterError::from(silent)).is_time_out());
        }
        assert!(!DatanodeError::from(WriterError::NotGranted { peer, action, after }).is_time_out());
    }
}
