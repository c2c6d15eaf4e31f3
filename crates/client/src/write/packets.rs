//! WRITE_BLOCK over TCP: connects to the first datanode of a pipeline, sends packets and receives acknowledgements.

use hearth_fabric::tcp;
use hearth_protocol::data_transfer::{DataReceiver, DataSender, Timeouts, TransferError};
use hearth_types::{ExtendedBlock, Token};
use hearth_wire::data_transfer::{AckReply, HEARTBEAT_SEQNO, Operation, PacketHeader, Status, TransferBlock};

use super::packet::Packet;
use super::pipeline_set_up::{PipelineFailure, SetUp, Stage, Target, check, message, pipeline_target};
use crate::datanode::Peer;
use crate::session::Session;
use crate::{DataPath, DatanodeError};

/// Connects the client and the pipeline's datanodes.
pub(super) async fn set_up(
    session: &Session,
    spec: &SetUp<'_>,
) -> Result<(StreamPacketSender, StreamAckReceiver), PipelineFailure> {
    let Some(head) = spec.targets.first() else {
        let what = "the pipeline has no datanodes".to_owned();
        return Err(first(DatanodeError::Address { address: String::new(), why: what }));
    };
    let mut timeouts = session.datanodes.options.pipeline_timeouts(spec.targets.len());
    if spec.stage == Stage::CloseRecovery {
        // Each datanode in turn may write the whole block to its disk before it answers.
        timeouts.read *= spec.targets.len() as u32 + 1;
    }
    let operation = Operation::WriteBlock(Box::new(message(session, spec, head)));
    let mut peer = session.datanodes.request(&head.datanode.id, &operation, timeouts).await.map_err(first)?;
    let response = peer.receiver.receive_response().await.map_err(|error| first(error.into()))?;
    check(spec, response)?;
    let Peer { sender, receiver } = peer;
    Ok((StreamPacketSender { sender }, StreamAckReceiver { receiver }))
}

fn first(source: DatanodeError) -> PipelineFailure {
    PipelineFailure::of_first(DataPath::Packets, source)
}

/// Bytes of a copy per [`Timeouts::PER_TARGET`] of time-out. Same as in Apache's client: 200 packets of 64 KiB.
const TRANSFER_BYTES_PER_TIMEOUT: u64 = 200 * (64 << 10);

/// Has `source` copy its part of the block to `target`.
pub(super) async fn transfer(
    session: &Session,
    block: &ExtendedBlock,
    token: &Token,
    source: &Target,
    target: &Target,
) -> Result<(), DatanodeError> {
    let operation = Operation::TransferBlock(TransferBlock {
        block: block.clone(),
        token: token.clone(),
        client_name: session.client_name().to_owned(),
        targets: vec![pipeline_target(target)],
    });
    // The response arrives when the copy is complete: allow for a slow or a large one.
    let mut timeouts = session.datanodes.options.pipeline_timeouts(2);
    let slow_copies = u32::try_from(block.length() / TRANSFER_BYTES_PER_TIMEOUT).unwrap_or(u32::MAX).min(100_000);
    timeouts.read = timeouts.read * 2 + Timeouts::PER_TARGET * slow_copies;
    let mut peer = session.datanodes.request(&source.datanode.id, &operation, timeouts).await?;
    peer.accepted("TRANSFER_BLOCK", block).await?;
    Ok(())
}

/// Sending half.
pub(super) struct StreamPacketSender {
    sender: DataSender,
}

impl StreamPacketSender {
    pub(super) fn new(sender: DataSender) -> Self {
        Self { sender }
    }

    pub(super) async fn send(&self, packet: &Packet) -> Result<(), DatanodeError> {
        let data = packet.data().map_err(|source| DatanodeError::ReadBack { offset: packet.offset, source })?;
        Ok(self.sender.send_packet(&packet.header(), packet.checksums(), &data).await?)
    }

    /// Sends a heartbeat, so that the pipeline does not time out while the writer is idle.
    pub(super) async fn send_heartbeat(&self) -> Result<(), DatanodeError> {
        let header = PacketHeader { offset: 0, seqno: HEARTBEAT_SEQNO, last: false, data_bytes: 0, sync: false };
        Ok(self.sender.send_packet(&header, &[], &[]).await?)
    }
}

/// Receiving half.
pub(super) struct StreamAckReceiver {
    receiver: DataReceiver,
}

/// One acknowledgement.
pub(super) struct Reply {
    pub sequence: i64,
    /// See `PipelineAck::granted`.
    pub granted: Option<u64>,
    pub failed: Option<Failed>,
}

/// The datanode that an acknowledgement blames.
pub(super) struct Failed {
    pub index: usize,
    pub status: String,
    pub restarting: bool,
}

/// Returns the datanode that an acknowledgement blames. Searches from the far end, as Apache's client does: the last
/// datanode that failed made those before it fail.
pub(super) fn failed(replies: &[AckReply]) -> Option<Failed> {
    replies.iter().enumerate().rev().find_map(|(index, reply)| {
        let status = reply.status();
        (status != Status::Success).then(|| Failed {
            index,
            status: format!("{status:?}"),
            restarting: status == Status::OobRestart,
        })
    })
}

impl StreamAckReceiver {
    pub(super) fn new(receiver: DataReceiver) -> Self {
        Self { receiver }
    }

    /// Receives the next acknowledgement. `oldest`: the sequence number that is awaited, for error messages.
    pub(super) async fn next(&mut self, oldest: Option<i64>, block: &ExtendedBlock) -> Result<Reply, DatanodeError> {
        let acknowledgement = match self.receiver.receive_ack().await {
            Err(TransferError::Connection(tcp::Error::ReadTimedOut { after, .. })) => {
                return Err(DatanodeError::AcknowledgementTimedOut {
                    sequence: oldest.unwrap_or(HEARTBEAT_SEQNO),
                    block: Box::new(block.clone()),
                    after,
                });
            }
            received => received?,
        };
        let failed = failed(&acknowledgement.replies);
        Ok(Reply { sequence: acknowledgement.seqno, granted: acknowledgement.granted, failed })
    }

    pub(super) fn unexpected(&self, sequence: i64, expected: Option<i64>) -> DatanodeError {
        let what = format!("packet {sequence} acknowledged instead of {expected:?}");
        DatanodeError::Protocol { peer: self.receiver.peer(), what }
    }
}
