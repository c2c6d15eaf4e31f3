//! Packets on their way through this DataNode.

use std::ops::Range;

use hearth_wire::data_transfer::PacketHeader;
use tokio::time::Instant;

/// A whole packet in the receive buffer.
pub struct Packet {
    pub header: PacketHeader,
    /// Positions of its CRCs and its data in the buffer.
    pub checksums: Range<usize>,
    pub data: Range<usize>,
    /// Its sender has put the data into the replica's memory.
    pub in_place: bool,
    /// This DataNode has received the data straight into the replica's memory.
    pub received_in_place: bool,
}

impl Packet {
    /// Returns the packet's entry in the queue of unacknowledged packets.
    pub fn pending(&self, received: Instant) -> Pending {
        let PacketHeader { seqno, last, sync, .. } = self.header;
        Pending { seqno, end: self.header.end(), last, sync, received, granted: None }
    }
}

/// A packet that is stored here and not yet acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub seqno: i64,
    /// Length of the block up to and including this packet.
    pub end: u64,
    pub last: bool,
    pub sync: bool,
    pub received: Instant,
    /// Memory grant to send to a local writer with the acknowledgement.
    pub granted: Option<u64>,
}
