use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::{self, Connection, PeerAddress, ReceiveBuffer};
use hearth_types::ChecksumSpec;
use hearth_wire::data_transfer::{
    BlockOpResponse, Decoded, MessageError, Operation, PACKET_BYTES_MAX, PACKET_HEADER_BYTES_MAX, PacketHead,
    PacketHeader, PipelineAck, Status, client_read_status,
};

use super::TransferError;

/// A packet that has arrived completely, borrowed from the receiver's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pub header: PacketHeader,
    /// Bytes of the packet's data that `receive_data` returned before; `data` holds the rest.
    pub taken: usize,
    /// Big-endian CRCs, one per chunk of `data`; empty if the sender has none.
    pub checksums: &'a [u8],
    pub data: &'a [u8],
    /// The whole packet as it arrived, to forward it unchanged.
    pub raw: &'a [u8],
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct DataReceiver {
    connection: Arc<Connection>,
    buffer: ReceiveBuffer,
    /// Longest wait for a byte from the peer.
    timeout: Duration,
    /// Bytes at the front of the buffer that are lent as a packet. The next call releases them.
    lent: usize,
    /// Data bytes of the front packet that were received outside the buffer. In the buffer, the data after those
    /// follows its CRCs directly.
    taken: usize,
    /// Bytes of CRCs that belong to the `taken` data.
    taken_checksums: usize,
    /// Length of header and CRCs of the last packet whose data was received outside the buffer; 0 if there was none.
    lead_bytes: usize,
}

/// Data that was received directly into its destination.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedData<'a> {
    /// Number of bytes received: whole chunks, or up to the end of the packet.
    pub bytes: usize,
    /// Big-endian CRCs of these chunks.
    pub checksums: &'a [u8],
}

impl DataReceiver {
    /// Creates a receiver. `buffer_bytes`: initial size of the buffer; `timeout`: longest wait for a byte.
    pub fn new(connection: Arc<Connection>, buffer_bytes: usize, timeout: Duration) -> Self {
        let limit = (PACKET_BYTES_MAX + PACKET_HEADER_BYTES_MAX).max(buffer_bytes);
        Self {
            connection,
            buffer: ReceiveBuffer::new(buffer_bytes, limit),
            timeout,
            lent: 0,
            taken: 0,
            taken_checksums: 0,
            lead_bytes: 0,
        }
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

    /// Returns true if bytes have arrived that no call has taken yet.
    pub fn has_unread(&self) -> bool {
        self.buffer.available().len() > self.lent
    }

    /// Announces that at least `bytes` more will arrive after those already taken, unless the peer closes. The receiver
    /// then waits for large pieces.
    pub fn expect(&self, bytes: u64) {
        let unread = self.buffer.available().len() - self.lent;
        self.connection.expect(bytes.saturating_sub(unread as u64));
    }

    /// Receives the next request, or `None` if the peer closed the connection between requests. `timeout`: for the
    /// first byte of the request.
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

    /// Receives a DataNode's response to an operation.
    pub async fn receive_response(&mut self) -> Result<BlockOpResponse, TransferError> {
        self.receive(BlockOpResponse::decode).await
    }

    /// Receives the acknowledgement of a packet.
    pub async fn receive_ack(&mut self) -> Result<PipelineAck, TransferError> {
        self.receive(PipelineAck::decode).await
    }

    /// Receives the status that a reader sends after the last packet.
    pub async fn receive_read_status(&mut self) -> Result<Status, TransferError> {
        self.receive(client_read_status).await
    }

    /// Receives the next packet. It stays in the receiver's buffer until the next call.
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
        let bytes = bytes - self.taken;
        self.buffer.fill_to(&self.connection, bytes, self.timeout).await?;
        let (taken, taken_checksums) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.taken_checksums));
        self.lent = bytes;
        let raw = &self.buffer.available()[..bytes];
        let (checksums, data) = raw[head_bytes..].split_at(head.checksum_bytes);
        Ok(Packet { header: head.header, taken, checksums: &checksums[taken_checksums..], data, raw })
    }

    /// Returns the header of the next packet, and how much of its data was already taken. Does not consume the packet.
    pub async fn receive_head(&mut self) -> Result<(PacketHead, usize), TransferError> {
        self.give_back();
        let peer = self.peer();
        loop {
            match PacketHead::decode(self.buffer.available())
                .map_err(|source| TransferError::Packet { peer, source })?
            {
                Decoded::Needs(missing) => self.need_no_data(missing).await?,
                Decoded::Complete(head, _) => return Ok((head, self.taken)),
            }
        }
    }

    /// Receives data of the current packet directly into the front of `into`, with a single successful read. Call
    /// `receive_head` first.
    ///
    /// Returns `None` if all of the data is already in the buffer, or if `into` has no room beyond the buffered part;
    /// then `receive_packet` returns the data. The number of CRCs in `head` must match `spec`. Cancel safe: no data is
    /// lost if the future is dropped.
    pub async fn receive_data(
        &mut self,
        head: &PacketHead,
        spec: ChecksumSpec,
        into: &mut [u8],
    ) -> Result<Option<ReceivedData<'_>>, TransferError> {
        let peer = self.peer();
        let head_bytes = loop {
            let available = self.buffer.available();
            let missing =
                match PacketHead::decode(available).map_err(|source| TransferError::Packet { peer, source })? {
                    Decoded::Complete(_, bytes) if available.len() >= bytes + head.checksum_bytes => break bytes,
                    Decoded::Complete(_, bytes) => bytes + head.checksum_bytes - available.len(),
                    Decoded::Needs(missing) => missing,
                };
            self.need_no_data(missing).await?;
        };
        let lead_bytes = head_bytes + head.checksum_bytes;
        let chunk = spec.bytes_per_chunk.max(1) as usize;
        let left = head.data_bytes - self.taken;
        let room = left.min(into.len());
        let bytes = loop {
            let buffered = self.buffer.available().len() - lead_bytes;
            if buffered >= left || buffered + chunk > room {
                return Ok(None);
            }
            let into = &mut into[..room];
            // The next packet's header follows this packet.
            let behind = if room == left { lead_bytes } else { 0 };
            let spare = self.buffer.spare(&self.connection, lead_bytes + buffered + behind)?;
            let wanted = &mut into[buffered..];
            let most = wanted.len();
            let came = self.connection.read_into_both(wanted, spare, self.timeout).await?;
            if came == 0 {
                return Err(tcp::Error::Closed { peer }.into());
            }
            // No await from here on, so the following steps cannot be interrupted.
            into[..buffered].copy_from_slice(&self.buffer.available()[lead_bytes..]);
            self.buffer.received_for(buffered, came.saturating_sub(most));
            let filled = buffered + came.min(most);
            let whole = if filled == left { left } else { filled / chunk * chunk };
            // An incomplete chunk waits in the buffer for its remaining bytes.
            self.buffer.push(&self.connection, &into[whole..filled])?;
            if whole > 0 {
                break whole;
            }
        };
        let checksums = head_bytes + self.taken_checksums;
        let checksums = checksums..checksums + spec.checksum_bytes(bytes as u64) as usize;
        (self.taken, self.taken_checksums) = (self.taken + bytes, checksums.end - head_bytes);
        if bytes == left {
            (self.taken, self.taken_checksums, self.lent, self.lead_bytes) = (0, 0, lead_bytes, lead_bytes);
        }
        Ok(Some(ReceivedData { bytes, checksums: &self.buffer.available()[checksums] }))
    }

    /// Returns the last packet from `receive_packet` as it arrived; empty after any other call. For callers that cannot
    /// keep the borrow of `receive_packet`.
    pub fn lent(&self) -> &[u8] {
        &self.buffer.available()[..self.lent]
    }

    /// Receives any other message that `decode` understands.
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

    /// Waits until the peer closes or sends something, at most `timeout`. Returns true if it closed. Received bytes
    /// stay unread.
    pub async fn wait_closed(&mut self, timeout: Duration) -> bool {
        !self.has_unread() && self.connection.wait_closed(timeout).await
    }

    fn give_back(&mut self) {
        self.buffer.consume(std::mem::take(&mut self.lent));
    }

    /// Reads like `need`. If data is received directly into its destination, reads no further than the expected length
    /// of the next header and its CRCs.
    async fn need_no_data(&mut self, missing: usize) -> Result<(), tcp::Error> {
        if self.lead_bytes == 0 {
            return self.need(missing).await;
        }
        let wanted = self.buffer.available().len() + missing;
        let most = wanted.max(self.lead_bytes);
        self.buffer.fill_within(&self.connection, wanted, most, self.timeout).await
    }

    async fn need(&mut self, missing: usize) -> Result<(), tcp::Error> {
        let wanted = self.buffer.available().len() + missing;
        self.buffer.fill_to(&self.connection, wanted, self.timeout).await
    }
}
