//! Path to a pipeline's first datanode. Dispatches to one of the three implementations; the retry loop above it is
//! shared.

use super::granted_memory::GrantedMemory;
use super::packet::Packet;
use super::packets::{self, Reply};
use super::pipeline_set_up::{PipelineFailure, SetUp};
use super::{local_sender, one_sided_sender};
use hearth_protocol::trace::{self, Span};
use hearth_types::ExtendedBlock;

use crate::session::Session;
use crate::{DataPath, DatanodeError};

/// Sending half, one variant per path.
pub(super) enum PacketSender {
    Packets(packets::StreamPacketSender),
    Local(local_sender::LocalPacketSender),
    OneSided(one_sided_sender::OneSidedPacketSender),
}

/// Receiving half.
pub(super) enum AckReceiver {
    Stream(packets::StreamAckReceiver),
    OneSided(one_sided_sender::OneSidedAckReceiver),
}

/// Connects the client and the pipeline's datanodes, by the first path that leads to the first of them.
///
/// `paths`: the paths that may be tried, in order.
pub(super) async fn set_up(
    session: &Session,
    spec: &SetUp<'_>,
    paths: &[DataPath],
) -> Result<(PacketSender, AckReceiver), PipelineFailure> {
    let mut span = Span::child("set up pipeline");
    if span.is_recording() {
        let targets = spec.targets.iter().map(|target| target.datanode.id.transfer_address());
        span.set("hdfs.datanodes", targets.collect::<Vec<_>>().join(","));
    }
    let made = trace::within(span.context(), set_up_by(session, spec, paths)).await;
    match &made {
        Ok((packet_sender, _)) => span.set("hearth.path", packet_sender.path().name()),
        Err(failure) => span.fail(failure),
    }
    made
}

async fn set_up_by(
    session: &Session,
    spec: &SetUp<'_>,
    paths: &[DataPath],
) -> Result<(PacketSender, AckReceiver), PipelineFailure> {
    if let Some(head) = spec.targets.first() {
        session.datanodes.offers.note(&head.datanode);
    }
    for path in paths {
        match path {
            DataPath::Local => {
                if let Some((packet_sender, acknowledgements)) = local_sender::set_up(session, spec).await? {
                    return Ok((PacketSender::Local(packet_sender), AckReceiver::Stream(acknowledgements)));
                }
            }
            DataPath::OneSided => {
                if let Some((packet_sender, acknowledgements)) = one_sided_sender::set_up(session, spec).await? {
                    return Ok((PacketSender::OneSided(packet_sender), AckReceiver::OneSided(acknowledgements)));
                }
            }
            DataPath::Packets => break,
        }
    }
    let (packet_sender, acknowledgements) = packets::set_up(session, spec).await?;
    Ok((PacketSender::Packets(packet_sender), AckReceiver::Stream(acknowledgements)))
}

impl PacketSender {
    pub(super) async fn send(&self, packet: &Packet) -> Result<(), DatanodeError> {
        match self {
            Self::Packets(packet_sender) => packet_sender.send(packet).await,
            Self::Local(packet_sender) => packet_sender.send(packet).await,
            Self::OneSided(packet_sender) => packet_sender.send(packet).await,
        }
    }

    /// Sends a heartbeat, so that the pipeline does not time out while the writer is idle.
    pub(super) async fn send_heartbeat(&self) -> Result<(), DatanodeError> {
        match self {
            Self::Packets(packet_sender) => packet_sender.send_heartbeat().await,
            Self::Local(packet_sender) => packet_sender.send_heartbeat().await,
            Self::OneSided(packet_sender) => packet_sender.send_heartbeat().await,
        }
    }

    /// Returns the memory into which the writer may put its bytes itself.
    pub(super) fn granted_memory(&self) -> GrantedMemory {
        match self {
            Self::Packets(_) => GrantedMemory::Packets,
            Self::Local(packet_sender) => packet_sender.granted_memory(),
            Self::OneSided(packet_sender) => packet_sender.granted_memory(),
        }
    }

    pub(super) fn path(&self) -> DataPath {
        match self {
            Self::Packets(_) => DataPath::Packets,
            Self::Local(_) => DataPath::Local,
            Self::OneSided(_) => DataPath::OneSided,
        }
    }
}

impl AckReceiver {
    /// Receives the next acknowledgement. `oldest`: the sequence number that is awaited, for error messages.
    pub(super) async fn next(&mut self, oldest: Option<i64>, block: &ExtendedBlock) -> Result<Reply, DatanodeError> {
        match self {
            Self::Stream(acknowledgements) => acknowledgements.next(oldest, block).await,
            Self::OneSided(acknowledgements) => acknowledgements.next(oldest, block).await,
        }
    }

    pub(super) fn unexpected(&self, sequence: i64, expected: Option<i64>) -> DatanodeError {
        match self {
            Self::Stream(acknowledgements) => acknowledgements.unexpected(sequence, expected),
            Self::OneSided(acknowledgements) => acknowledgements.unexpected(),
        }
    }

    /// Called when the block's end is acknowledged.
    pub(super) fn ended(&self) {
        if let Self::OneSided(acknowledgements) = self {
            acknowledgements.ended();
        }
    }
}
