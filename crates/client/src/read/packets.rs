//! One replica, or a range of it, as packets over TCP.

use hearth_types::{ByteRange, ChecksumSpec, DatanodeInfo, ExtendedBlock, LocatedBlock};
use hearth_wire::data_transfer::{
    CachingStrategy, Operation, PacketHead, ReadBlock, Status, encode_client_read_status,
};

use crate::DatanodeError;
use crate::datanode::{Peer, Peers, address_of};
use crate::file_system::Shared;

/// Verified bytes of a replica, in order, where they were received.
#[derive(Debug)]
pub(super) struct BlockStream {
    peer: Peer,
    datanode: DatanodeInfo,
    block: ExtendedBlock,
    /// Asked for.
    wanted: ByteRange,
    checksum: ChecksumSpec,
    timeout: std::time::Duration,
    /// Where the next packet starts.
    next_offset: u64,
    next_sequence: i64,
    /// Of the receive buffer: what of the current packet the caller has not consumed.
    start: usize,
    end: usize,
    /// Bytes of the receive buffer up to the end of the current packet.
    packet_bytes: usize,
    /// The datanode was told that all is well: the connection can serve another request.
    finished: bool,
}

impl BlockStream {
    /// Asks `datanode` for `range` (not empty) of the block, over a connection kept from before if there is one.
    pub(super) async fn open(
        shared: &Shared,
        located: &LocatedBlock,
        datanode: &DatanodeInfo,
        range: ByteRange,
    ) -> Result<Self, DatanodeError> {
        let address = address_of(&shared.options, &datanode.id, datanode.id.transfer_port).await?;
        let operation = Operation::ReadBlock(ReadBlock {
            block: located.block.clone(),
            token: located.token.clone(),
            client_name: shared.client_name.clone(),
            offset: range.start(),
            length: Some(range.length()),
            send_checksums: true,
            caching: CachingStrategy::default(),
        });
        while let Some(peer) = shared.peers.reuse(address).await {
            match Self::start(shared, peer, &operation, located, datanode, range).await {
                // The datanode may have closed it in this moment: that says nothing of the datanode.
                Err(DatanodeError::Connection(error)) if error.is_disconnect() => {}
                outcome => return outcome,
            }
        }
        let peer = shared.peers.connect(address, shared.options.socket_timeout).await?;
        Self::start(shared, peer, &operation, located, datanode, range).await
    }

    async fn start(
        shared: &Shared,
        mut peer: Peer,
        operation: &Operation,
        located: &LocatedBlock,
        datanode: &DatanodeInfo,
        wanted: ByteRange,
    ) -> Result<Self, DatanodeError> {
        let timeout = shared.options.socket_timeout;
        peer.send(operation, timeout).await?;
        let response = peer.accepted("READ_BLOCK", &located.block, timeout).await?;
        let protocol = |what: String| DatanodeError::Protocol { peer: peer.connection.peer(), what };
        let checksum = response.read_checksum.ok_or_else(|| protocol("no checksum in its answer".to_owned()))?;
        let first = checksum.chunk_offset;
        if first > wanted.start() || wanted.start() - first >= u64::from(checksum.spec.bytes_per_chunk) {
            return Err(protocol(format!("data from {first} where {} was asked for", wanted.start())));
        }
        Ok(Self {
            peer,
            datanode: datanode.clone(),
            block: located.block.clone(),
            wanted,
            checksum: checksum.spec,
            timeout,
            next_offset: first,
            next_sequence: 0,
            start: 0,
            end: 0,
            packet_bytes: 0,
            finished: false,
        })
    }

    pub(super) fn datanode(&self) -> &DatanodeInfo {
        &self.datanode
    }

    /// What `advance` brought and was not consumed.
    pub(super) fn data(&self) -> &[u8] {
        &self.peer.buffer.available()[self.start..self.end]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "more consumed than there is");
        self.start += bytes;
    }

    /// Receives and verifies the next packet; what was not consumed of the last one is gone. False when everything asked
    /// for has come.
    pub(super) async fn advance(&mut self) -> Result<bool, DatanodeError> {
        self.peer.buffer.consume(std::mem::take(&mut self.packet_bytes));
        (self.start, self.end) = (0, 0);
        if self.finished {
            return Ok(false);
        }
        let head = self.head().await?;
        if self.next_offset >= self.wanted.end() {
            if !head.header.last {
                return Err(self.protocol("more data than was asked for".to_owned()));
            }
            return self.end().await;
        }
        if head.header.last || head.data_bytes == 0 {
            return Err(self.protocol(format!("the end of the data at {} of {}", self.next_offset, self.wanted.end())));
        }
        self.body(&head).await?;
        Ok(true)
    }

    async fn head(&mut self) -> Result<PacketHead, DatanodeError> {
        let head: PacketHead = self.peer.message(PacketHead::decode, self.timeout).await?;
        if head.header.seqno != self.next_sequence {
            return Err(self.protocol(format!("packet {} instead of {}", head.header.seqno, self.next_sequence)));
        }
        if !head.header.last && head.header.offset != self.next_offset {
            return Err(self.protocol(format!("data at {} instead of {}", head.header.offset, self.next_offset)));
        }
        self.next_sequence += 1;
        Ok(head)
    }

    async fn body(&mut self, head: &PacketHead) -> Result<(), DatanodeError> {
        let Peer { connection, buffer } = &mut self.peer;
        buffer.fill_to(connection, head.body_bytes(), self.timeout).await?;
        let (checksums, rest) = buffer.available().split_at(head.checksum_bytes);
        let data = &rest[..head.data_bytes];
        self.checksum.verify(data, checksums).map_err(|source| DatanodeError::Checksum {
            block: Box::new(self.block.clone()),
            offset: self.next_offset,
            source,
        })?;
        self.packet_bytes = head.body_bytes();
        let skipped = self.wanted.start().saturating_sub(self.next_offset).min(head.data_bytes as u64) as usize;
        let end_offset = self.next_offset + head.data_bytes as u64;
        let surplus = end_offset.saturating_sub(self.wanted.end()) as usize;
        self.start = head.checksum_bytes + skipped;
        self.end = (head.checksum_bytes + head.data_bytes - surplus).max(self.start);
        self.next_offset = end_offset;
        Ok(())
    }

    async fn end(&mut self) -> Result<bool, DatanodeError> {
        let status = if self.checksum.kind.size() > 0 { Status::ChecksumOk } else { Status::Success };
        let message = encode_client_read_status(status);
        self.peer.connection.write_all(&message, self.timeout).await?;
        self.finished = true;
        Ok(false)
    }

    /// Gives the connection back for reuse, when the read came to its end.
    pub(super) fn finish(self, peers: &Peers) {
        if self.finished {
            peers.keep(self.peer);
        }
    }

    fn protocol(&self, what: String) -> DatanodeError {
        DatanodeError::Protocol { peer: self.peer.connection.peer(), what }
    }
}
