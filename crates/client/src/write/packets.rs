//! WRITE_BLOCK over TCP: connects to the first datanode of a pipeline, sends packets and receives acknowledgements.

use hearth_fabric::tcp;
use hearth_protocol::data_transfer::{DataReceiver, DataSender, Timeouts, TransferError};
use hearth_types::{ExtendedBlock, GenerationStamp, Token};
use hearth_wire::data_transfer::{
    AckReply, BlockOpResponse, CachingStrategy, HEARTBEAT_SEQNO, Operation, PacketHeader, PipelineTarget,
    Stage as WireStage, Status, TransferBlock, WriteBlock,
};

use super::packet::Packet;
use super::pipeline::{Blame, PipelineFailure, Target};
use crate::datanode::Peer;
use crate::session::Session;
use crate::{DataPath, DatanodeError};

/// Purpose for which a pipeline is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Create,
    Append,
    AppendRecovery,
    StreamingRecovery,
    /// Everything was acknowledged except the block's end.
    CloseRecovery,
}

impl Stage {
    /// Returns the stage of the next attempt after a failed set-up.
    pub(super) fn after_failure(self) -> Self {
        match self {
            Self::Append => Self::AppendRecovery,
            stage => stage,
        }
    }

    fn to_wire(self) -> WireStage {
        match self {
            Self::Create => WireStage::PipelineSetupCreate,
            Self::Append => WireStage::PipelineSetupAppend,
            Self::AppendRecovery => WireStage::PipelineSetupAppendRecovery,
            Self::StreamingRecovery => WireStage::PipelineSetupStreamingRecovery,
            Self::CloseRecovery => WireStage::PipelineCloseRecovery,
        }
    }
}

/// Parameters of a pipeline set-up.
pub(super) struct SetUp<'a> {
    /// Block with the generation stamp that the replicas have now.
    pub block: &'a ExtendedBlock,
    pub token: &'a Token,
    pub targets: &'a [Target],
    pub stage: Stage,
    pub acknowledged_bytes: u64,
    pub sent_bytes: u64,
    /// Generation stamp that the replicas get; `None` for a new block.
    pub stamp: Option<GenerationStamp>,
    /// Block size of the file, which the datanodes reserve.
    pub block_size: u64,
}

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

/// Checks that the response to a set-up is a success; otherwise returns the datanode to blame.
pub(super) fn check(spec: &SetUp<'_>, response: BlockOpResponse) -> Result<(), PipelineFailure> {
    let bad_link = response.first_bad_link.as_deref().is_some_and(|link| !link.is_empty());
    if response.status == Status::Success && !bad_link { Ok(()) } else { Err(refused(spec, response)) }
}

/// Builds the request to the first datanode, `head`.
pub(super) fn message(session: &Session, spec: &SetUp<'_>, head: &Target) -> WriteBlock {
    let mut block = spec.block.clone();
    block.block.length = spec.block_size;
    WriteBlock {
        block,
        token: spec.token.clone(),
        client_name: session.client_name().to_owned(),
        targets: spec.targets[1..].iter().map(pipeline_target).collect(),
        source: None,
        stage: spec.stage.to_wire(),
        pipeline_size: spec.targets.len() as u32,
        bytes_received_min: spec.acknowledged_bytes,
        bytes_received_max: spec.sent_bytes,
        latest_stamp: spec.stamp.unwrap_or_default(),
        checksum: session.options.write.packets.checksum,
        caching: CachingStrategy::default(),
        storage_type: head.storage_type,
        storage_id: Some(head.storage.clone()),
        allow_lazy_persist: false,
        pinned: false,
    }
}

fn pipeline_target(target: &Target) -> PipelineTarget {
    PipelineTarget {
        datanode: target.datanode.clone(),
        storage_type: target.storage_type,
        storage_id: Some(target.storage.clone()),
        pinned: false,
    }
}

/// Converts a refused set-up into the failure that names the datanode to blame.
pub(super) fn refused(spec: &SetUp<'_>, response: BlockOpResponse) -> PipelineFailure {
    let link = response.first_bad_link.unwrap_or_default();
    let bad = spec.targets.iter().position(|target| target.datanode.id.transfer_address() == link).unwrap_or(0);
    let block = Box::new(spec.block.clone());
    let source = match response.status {
        Status::ErrorAccessToken => DatanodeError::AccessToken { block },
        status => DatanodeError::BadLink {
            block,
            first_bad_link: link,
            status: format!("{status:?}"),
            message: response.message.unwrap_or_default(),
        },
    };
    let blame = if response.status == Status::OobRestart { Blame::Restart } else { Blame::Datanode };
    PipelineFailure { bad, blame, source }
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
