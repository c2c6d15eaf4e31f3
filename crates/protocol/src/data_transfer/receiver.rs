use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::{self, Connection, PeerAddress, ReceiveBuffer};
use hearth_types::ChecksumSpec;
use hearth_wire::data_transfer::{
    BlockOpResponse, Decoded, MessageError, Operation, PACKET_BYTES_MAX, PACKET_HEADER_BYTES_MAX, PacketHead,
    PacketHeader, PipelineAck, Status, client_read_status,
};

use super::TransferError;

/// A packet that has arrived whole, in the memory of the receiver.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pub header: PacketHeader,
    /// Bytes of its data that `receive_data` had brought before: the rest is here.
    pub taken: usize,
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
    /// Data of the packet at the front of the buffer that was received elsewhere: behind its CRCs stands what comes after that.
    taken: usize,
    /// Bytes of that data's CRCs.
    taken_checksums: usize,
    /// Bytes of head and CRCs of the last packet whose data was received elsewhere; 0: none was.
    lead_bytes: usize,
}

/// Data that was received to its place.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedData<'a> {
    /// How much: whole chunks, or up to the end of the packet.
    pub bytes: usize,
    /// Big-endian CRCs of these chunks.
    pub checksums: &'a [u8],
}

impl DataReceiver {
    /// `buffer_bytes`: the buffer's first size; `timeout`: longest wait for a byte.
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
        let bytes = bytes - self.taken;
        self.buffer.fill_to(&self.connection, bytes, self.timeout).await?;
        let (taken, taken_checksums) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.taken_checksums));
        self.lent = bytes;
        let raw = &self.buffer.available()[..bytes];
        let (checksums, data) = raw[head_bytes..].split_at(head.checksum_bytes);
        Ok(Packet { header: head.header, taken, checksums: &checksums[taken_checksums..], data, raw })
    }

    /// The head of the packet that comes, and how much of its data was taken before. The packet is still to be received.
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

    /// Receives data of the packet whose head `receive_head` has shown to the front of `into`, as much as comes in one go. `None`: all of it
    /// is in the buffer already, or so much of it that `into` has no room for more: `receive_packet` brings it.
    ///
    /// `head` has as many CRCs as `spec` says. Nothing is lost when the caller stops waiting.
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
            // Behind the packet comes the next one's head.
            let behind = if room == left { lead_bytes } else { 0 };
            let spare = self.buffer.spare(&self.connection, lead_bytes + buffered + behind)?;
            let wanted = &mut into[buffered..];
            let most = wanted.len();
            let came = self.connection.read_into_both(wanted, spare, self.timeout).await?;
            if came == 0 {
                return Err(tcp::Error::Closed { peer }.into());
            }
            // From here on nothing is waited for.
            into[..buffered].copy_from_slice(&self.buffer.available()[lead_bytes..]);
            self.buffer.received_for(buffered, came.saturating_sub(most));
            let filled = buffered + came.min(most);
            let whole = if filled == left { left } else { filled / chunk * chunk };
            // The beginning of a chunk waits for the rest of it.
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

    /// As `need`, and no further than the next head and its CRCs are likely to reach, where data comes to its place.
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
