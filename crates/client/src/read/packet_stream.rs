//! Stream of a replica, or a range of it, as packets over TCP (READ_BLOCK).

use hearth_types::{ByteRange, ChecksumError, ChecksumSpec, DatanodeInfo, ExtendedBlock, LocatedBlock};
use hearth_wire::data_transfer::{CachingStrategy, Operation, PacketHead, PacketHeader, ReadBlock, Status};

use super::candidate::Checks;
use super::window::VerifiedWindow;
use crate::DatanodeError;
use crate::datanode::{Datanodes, Peer, PeerCache};

/// Destinations smaller than this get a copy from the receive buffer, because one receive call may bring more bytes
/// than they hold.
const IN_PLACE_BYTES_MIN: usize = 64 << 10;

/// Bytes of a replica, in order, in the memory where they were received. Verified, unless the reader was opened without
/// checks.
#[derive(Debug)]
pub(super) struct PacketStream {
    peer: Peer,
    block: ExtendedBlock,
    pub window: VerifiedWindow,
    checksum: ChecksumSpec,
    checks: Checks,
    /// Offset at which the next packet starts.
    next_offset: u64,
    next_sequence: i64,
    /// Index in the receiver's buffer at which the data of the shown packet starts, and its offset in the block.
    data_start: usize,
    data_offset: u64,
    /// The last packet has arrived; the final status is being sent or was sent.
    ended: bool,
    /// The final status was sent, so the connection can serve another request.
    finished: bool,
}

impl PacketStream {
    /// Requests `range` (not empty) of the block from `datanode`, over a cached connection if there is one.
    pub(super) async fn open(
        datanodes: &Datanodes,
        located: &LocatedBlock,
        datanode: &DatanodeInfo,
        range: ByteRange,
        checks: Checks,
    ) -> Result<Self, DatanodeError> {
        let address = datanodes.address(&datanode.id, datanode.id.transfer_port).await?;
        let operation = Operation::ReadBlock(ReadBlock {
            block: located.block.clone(),
            token: located.token.clone(),
            client_name: datanodes.client_name.clone(),
            offset: range.start(),
            length: Some(range.length()),
            send_checksums: true,
            caching: CachingStrategy::default(),
        });
        while let Some(peer) = datanodes.peer_cache.reuse(address).await {
            match Self::start(peer, &operation, located, range, checks).await {
                // The datanode may have closed the cached connection just now, which does not mean that the datanode
                // failed.
                Err(DatanodeError::Transfer(error)) if error.is_closed() => {}
                outcome => return outcome,
            }
        }
        let peer = datanodes.peer_cache.connect_for_packets(address, datanodes.options.read_timeouts()).await?;
        Self::start(peer, &operation, located, range, checks).await
    }

    async fn start(
        mut peer: Peer,
        operation: &Operation,
        located: &LocatedBlock,
        wanted: ByteRange,
        checks: Checks,
    ) -> Result<Self, DatanodeError> {
        peer.sender.send_operation(operation).await?;
        let response = peer.accepted("READ_BLOCK", &located.block).await?;
        let protocol = |what: String| DatanodeError::Protocol { peer: peer.receiver.peer(), what };
        let checksum = response.read_checksum.ok_or_else(|| protocol("no checksum in the answer".to_owned()))?;
        let first = checksum.chunk_offset;
        if first > wanted.start() || wanted.start() - first >= u64::from(checksum.spec.bytes_per_chunk) {
            return Err(protocol(format!("data from offset {first} instead of {}", wanted.start())));
        }
        peer.receiver.expect(wanted.end() - first);
        Ok(Self {
            peer,
            block: located.block.clone(),
            window: VerifiedWindow::new(wanted),
            checksum: checksum.spec,
            checks,
            next_offset: first,
            next_sequence: 0,
            data_start: 0,
            data_offset: first,
            ended: false,
            finished: false,
        })
    }

    /// Returns the bytes that `advance` received and that were not consumed.
    pub(super) fn data(&self) -> &[u8] {
        self.window.of(&self.peer.receiver.lent()[self.data_start..], self.data_offset)
    }

    /// Shows nothing. The receiver's buffer is not lent from here on.
    fn clear(&mut self) {
        self.window.clear();
        self.data_start = 0;
    }

    /// Receives verified bytes to the front of `into`, as many bytes of one packet as are available. Returns `None` if
    /// that is not possible, or if shown bytes are not consumed: use `advance` then.
    pub(super) async fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, DatanodeError> {
        if self.ended || !self.data().is_empty() || into.len() < IN_PLACE_BYTES_MIN {
            return Ok(None);
        }
        self.clear();
        let (head, taken) = self.peer.receiver.receive_head().await?;
        let PacketHead { header, checksum_bytes, data_bytes } = head;
        let spec = self.checksum;
        // True if all data of the packet was requested and a chunk fits.
        let is_for_that = data_bytes > 0
            && !header.last
            && self.next_offset >= self.window.left().start()
            && self.next_offset + (data_bytes - taken) as u64 <= self.window.left().end()
            && spec.bytes_per_chunk as usize <= IN_PLACE_BYTES_MIN
            && checksum_bytes as u64 == spec.checksum_bytes(data_bytes as u64);
        if !is_for_that {
            return Ok(None);
        }
        self.check_order(&header, taken)?;
        let Some(arrival) = self.peer.receiver.receive_data(&head, spec, into).await? else { return Ok(None) };
        let bytes = arrival.bytes;
        if self.checks == Checks::All {
            spec.verify(&into[..bytes], arrival.checksums).map_err(|source| self.corrupt(source))?;
        }
        self.window.skip(bytes as u64);
        self.next_offset += bytes as u64;
        self.next_sequence += i64::from(taken + bytes == data_bytes);
        Ok(Some(bytes))
    }

    /// Receives and verifies the next packet, or the rest of it; unconsumed bytes are dropped. Returns false when all
    /// requested bytes have been shown.
    pub(super) async fn advance(&mut self) -> Result<bool, DatanodeError> {
        self.clear();
        if self.ended {
            return Ok(false);
        }
        let packet = self.peer.receiver.receive_packet().await?;
        let (header, taken, data_bytes) = (packet.header, packet.taken, packet.data.len());
        let data_start = packet.raw.len() - data_bytes;
        let verified = match self.checks {
            Checks::All => self.checksum.verify(packet.data, packet.checksums),
            Checks::None => Ok(()),
        };
        self.check_order(&header, taken)?;
        self.next_sequence += 1;
        let end = self.window.left().end();
        if self.next_offset >= end {
            if !header.last {
                return Err(self.protocol("more data than requested".to_owned()));
            }
            return self.finished().await;
        }
        if header.last || data_bytes == 0 {
            return Err(self.protocol(format!("the data ends at {} of {end}", self.next_offset)));
        }
        verified.map_err(|source| self.corrupt(source))?;
        self.show(data_start, data_bytes);
        Ok(true)
    }

    fn corrupt(&self, source: ChecksumError) -> DatanodeError {
        DatanodeError::Checksum { block: Box::new(self.block.clone()), offset: self.next_offset, source }
    }

    /// Checks that packets are numbered and leave no gap. `taken`: bytes of the packet's data received before.
    fn check_order(&self, header: &PacketHeader, taken: usize) -> Result<(), DatanodeError> {
        if header.seqno != self.next_sequence {
            return Err(self.protocol(format!("packet {} instead of {}", header.seqno, self.next_sequence)));
        }
        let offset = self.next_offset - taken as u64;
        if !header.last && header.offset != offset {
            return Err(self.protocol(format!("data at {} instead of {offset}", header.offset)));
        }
        Ok(())
    }

    /// Shows the requested part of the packet's data, because chunks are sent whole.
    fn show(&mut self, data_start: usize, data_bytes: usize) {
        (self.data_start, self.data_offset) = (data_start, self.next_offset);
        self.next_offset += data_bytes as u64;
        let end = self.next_offset.min(self.window.left().end());
        if end > self.window.left().start() {
            self.window.show(end);
        }
    }

    async fn finished(&mut self) -> Result<bool, DatanodeError> {
        // Set before the send: if the call is dropped there, the next call must not wait for another packet.
        self.ended = true;
        // A datanode may take `ChecksumOk` as a verification of the replica.
        let verified = self.checks == Checks::All && self.checksum.kind.size() > 0;
        let status = if verified { Status::ChecksumOk } else { Status::Success };
        self.peer.sender.send_read_status(status).await?;
        self.finished = true;
        Ok(false)
    }

    /// Returns the connection to the cache, if the read is complete.
    pub(super) fn finish(self, peers: &PeerCache) {
        if self.finished {
            peers.keep(self.peer);
        }
    }

    fn protocol(&self, what: String) -> DatanodeError {
        DatanodeError::Protocol { peer: self.peer.receiver.peer(), what }
    }
}
