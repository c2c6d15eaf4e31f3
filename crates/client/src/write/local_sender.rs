//! WRITE_LOCAL: the first datanode of the pipeline is on this machine and lends its memory. Bytes are written to their
//! final place, and packets carry only their CRCs.

use std::fs::File;
use std::sync::Arc;

use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_protocol::data_transfer::{
    DataReceiver, DataSender, MESSAGE_BUFFER_BYTES, Timeouts, TransferError, receive_grant, receive_message,
};
use hearth_protocol::trace;
use hearth_wire::data_transfer::{BlockOpResponse, OpCode, Operation, PACKET_HEADER_BYTES_MAX, RESPONSE_BYTES_MAX};

use super::granted_memory::{GrantedMemory, PacketMemory};
use super::packet::Packet;
use super::packets::{StreamAckReceiver, StreamPacketSender};
use super::pipeline_set_up::{PipelineFailure, SetUp, check, message};
use crate::session::Session;
use crate::{DataPath, DatanodeError};

/// Sending half, with the memory that was lent for it.
pub(super) struct LocalPacketSender {
    packets: StreamPacketSender,
    sender: DataSender,
    /// Lent memory with the first grant. `None`: the datanode has none to give, and all bytes go in packets.
    memory: Option<(Arc<PacketMemory>, u64)>,
}

/// Sets up the pipeline over the first datanode's domain socket. Returns `None` if it has none on this machine, or does
/// not offer this operation.
pub(super) async fn set_up(
    session: &Session,
    spec: &SetUp<'_>,
) -> Result<Option<(LocalPacketSender, StreamAckReceiver)>, PipelineFailure> {
    let Some(head) = spec.targets.first() else { return Ok(None) };
    let datanode = &head.datanode.id;
    if session.short_circuit.learn_socket(datanode).await.is_err() {
        return Ok(None);
    }
    let Some(connection) = session.short_circuit.connect_for(datanode, OpCode::WriteLocal).await else {
        return Ok(None);
    };
    let timeouts = session.datanodes.options.pipeline_timeouts(spec.targets.len());
    let operation = Operation::WriteLocal(Box::new(message(session, spec, head)));
    let failed = |error: TransferError| PipelineFailure::of_first(DataPath::Local, error.into());
    let response = ask(&connection, &operation, timeouts).await.map_err(failed)?;
    check(spec, response)?;
    let (granted, descriptor) =
        receive_grant(&connection, timeouts.read).await.map_err(|error| failed(error.into()))?;
    let memory = descriptor.map(|descriptor| (PacketMemory::new(File::from(descriptor)), granted));
    let sender = DataSender::new(Arc::clone(&connection), timeouts.write);
    let receiver = DataReceiver::new(connection, MESSAGE_BUFFER_BYTES, timeouts.read);
    let packet_sender = LocalPacketSender { packets: StreamPacketSender::new(sender.clone()), sender, memory };
    Ok(Some((packet_sender, StreamAckReceiver::new(receiver))))
}

/// Receives the response to `operation`, and not a byte after it: a descriptor is attached there.
async fn ask(
    connection: &Connection,
    operation: &Operation,
    timeouts: Timeouts,
) -> Result<BlockOpResponse, TransferError> {
    connection.write_all(&operation.encode_traced(trace::current()), timeouts.write).await?;
    let peer = connection.peer();
    let mut buffer = ReceiveBuffer::new(MESSAGE_BUFFER_BYTES, RESPONSE_BYTES_MAX + 16);
    let failed = |source| TransferError::Message { peer, source };
    receive_message(connection, &mut buffer, BlockOpResponse::decode, timeouts.read, failed).await
}

impl LocalPacketSender {
    pub(super) fn granted_memory(&self) -> GrantedMemory {
        match &self.memory {
            Some((memory, granted)) => {
                GrantedMemory::Local { memory: Arc::clone(memory), granted: *granted, more: true }
            }
            None => GrantedMemory::Packets,
        }
    }

    /// Sends only the header and CRCs if the bytes are in place. Otherwise sends the bytes too, as to any datanode.
    pub(super) async fn send(&self, packet: &Packet) -> Result<(), DatanodeError> {
        let Some((memory, granted)) = &self.memory else { return self.packets.send(packet).await };
        if packet.data_bytes() > 0 && !packet.is_in(memory) {
            let within = packet.end() <= *granted && packet.offset.is_multiple_of(packet.bytes_per_chunk());
            let placed = within && packet.data().is_ok_and(|data| memory.write(packet.offset, &data).is_ok());
            if !placed {
                return self.packets.send(packet).await;
            }
        }
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let sums = packet.checksums();
        let head_bytes = packet.header().encode_in_place(sums.len(), &mut head);
        let parts = [&head[..head_bytes], sums];
        let sent = self.sender.connection().write_vectored(&parts, false, self.sender.timeout()).await;
        Ok(sent.map_err(TransferError::from)?)
    }

    pub(super) async fn send_heartbeat(&self) -> Result<(), DatanodeError> {
        self.packets.send_heartbeat().await
    }
}
