use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::{self, Connection, PeerAddress, ReceiveBuffer};
use hearth_wire::data_transfer::{
    BlockOpResponse, Decoded, MessageError, Operation, PACKET_BYTES_MAX, PACKET_HEADER_BYTES_MAX, PacketHead,
    PacketHeader, PipelineAck, Status, client_read_status,
};

use super::TransferError;

/// A packet that has arrived whole, in the memory of the receiver.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pub header: PacketHeader,
    /// Big-endian CRCs, one per chunk of `data`; none when the sender has none.
    pub checksums: &'a [u8],
    pub data: &'a [u8],
    /// All of the packet as it arrived, to pass it on unchanged.
    pub raw: &'a [u8],
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct DataReceiver {
    connection: Arc<Connection>,
    buffer: ReceiveBuffer,
    /// Ends a wait for a byte from the peer.
    timeout: Duration,
    /// Bytes at the front of the buffer that were lent as a packet and are done with at the next call.
    lent: usize,
}

impl DataReceiver {
    /// `buffer_bytes`: the buffer's first size; `timeout`: longest wait for a byte.
    pub fn new(connection: Arc<Connection>, buffer_bytes: usize, timeout: Duration) -> Self {
        let limit = (PACKET_BYTES_MAX + PACKET_HEADER_BYTES_MAX).max(buffer_bytes);
        Self { connection, buffer: ReceiveBuffer::new(buffer_bytes, limit), timeout, lent: 0 }
    }

    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub fn peer(&self) -> PeerAddress {
        self.connection.peer()
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Whether bytes have arrived that no call has taken yet.
    pub fn has_unread(&self) -> bool {
        self.buffer.available().len() > self.lent
    }

    /// At least `bytes` more come than have been taken, unless the peer ends: they are waited for in good pieces.
    pub fn expect(&self, bytes: u64) {
        let unread = self.buffer.available().len() - self.lent;
        self.connection.expect(bytes.saturating_sub(unread as u64));
    }

    /// The next request, or `None` when the peer closed where one could have begun. `timeout`: for its first byte.
    pub async fn receive_operation(&mut self, timeout: Duration) -> Result<Option<Operation>, TransferError> {
        self.give_back();
        if self.buffer.available().is_empty() && !self.buffer.fill_some(&self.connection, timeout).await? {
            return Ok(None);
        }
        let peer = self.peer();
        loop {
            match Operation::decode(self.buffer.available())
                .map_err(|source| TransferError::Operation { peer, source })?
            {
                Decoded::Needs(missing) => self.need(missing).await?,
                Decoded::Complete(operation, consumed) => {
                    self.buffer.consume(consumed);
                    return Ok(Some(operation));
                }
            }
        }
    }

    /// A DataNode's answer to an operation.
    pub async fn receive_response(&mut self) -> Result<BlockOpResponse, TransferError> {
        self.receive(BlockOpResponse::decode).await
    }

    /// The acknowledgement of a packet.
    pub async fn receive_ack(&mut self) -> Result<PipelineAck, TransferError> {
        self.receive(PipelineAck::decode).await
    }

    /// What a reader says after the last packet.
    pub async fn receive_read_status(&mut self) -> Result<Status, TransferError> {
        self.receive(client_read_status).await
    }

    /// The next packet. It stays in the receiver's memory until the next call.
    pub async fn receive_packet(&mut self) -> Result<Packet<'_>, TransferError> {
        self.give_back();
        let peer = self.peer();
        let (head, head_bytes) = loop {
            match PacketHead::decode(self.buffer.available())
                .map_err(|source| TransferError::Packet { peer, source })?
            {
                Decoded::Needs(missing) => self.need(missing).await?,
                Decoded::Complete(head, consumed) => break (head, consumed),
            }
        };
        let bytes = head_bytes + head.body_bytes();
        self.buffer.fill_to(&self.connection, bytes, self.timeout).await?;
        self.lent = bytes;
        let raw = &self.buffer.available()[..bytes];
        let (checksums, data) = raw[head_bytes..].split_at(head.checksum_bytes);
        Ok(Packet { header: head.header, checksums, data, raw })
    }

    /// The packet that `receive_packet` brought last, as it arrived; empty after any other call. For callers that cannot
    /// hold on to what `receive_packet` lends.
    pub fn lent(&self) -> &[u8] {
        &self.buffer.available()[..self.lent]
    }

    /// Any other message that `decode` understands.
    pub async fn receive<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>,
    ) -> Result<T, TransferError> {
        self.give_back();
        let peer = self.peer();
        loop {
            match decode(self.buffer.available()).map_err(|source| TransferError::Message { peer, source })? {
                Decoded::Needs(missing) => self.need(missing).await?,
                Decoded::Complete(message, consumed) => {
                    self.buffer.consume(consumed);
                    return Ok(message);
                }
            }
        }
    }

    /// Waits until the peer closes or sends something, at most `timeout`. True when it closed; what came stays unread.
    pub async fn wait_closed(&mut self, timeout: Duration) -> bool {
        !self.has_unread() && self.connection.wait_closed(timeout).await
    }

    fn give_back(&mut self) {
        self.buffer.consume(std::mem::take(&mut self.lent));
    }

    async fn need(&mut self, missing: usize) -> Result<(), tcp::Error> {
        let wanted = self.buffer.available().len() + missing;
        self.buffer.fill_to(&self.connection, wanted, self.timeout).await
    }
}
