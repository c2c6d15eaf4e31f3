//! Receives data of packets straight to its place in the replica's memory. Only the packets' heads and CRCs stay in the
//! buffer, one after the other:
//!
//! ```text
//! socket  [head CRCs][data        ][head CRCs][data     ..
//!              |          |             |         |
//! buffer  [head CRCs]     |        [head CRCs]    |
//! replica        received [data        ][data     ..
//! ```
//! One call receives the rest of a packet's data and the head and CRCs of the next packet. Where packets differ in
//! size, data that was received along with the head is copied from the buffer to its place.

use hearth_blockstore::ReplicaWriter;
use hearth_fabric::tcp::{self, Connection, ReceiveBuffer};
use hearth_types::ChecksumSpec;
use hearth_wire::data_transfer::{Decoded, PacketHead};

use super::error::ReceiveError;
use super::packet::Packet;
use super::receive_loop::ReceiveLoop;
use crate::grants::IN_PLACE_BYTES_MAX;

/// Minimum amount of outstanding data that is worth a separate call.
const IN_PLACE_REST_BYTES_MIN: usize = 8 << 10;

/// Data of a batch: an amount that stays in the cache until it is checked and forwarded.
const BATCH_BYTES: u64 = 512 << 10;

/// Progress within the packet at the front of the buffer, and the length of heads.
#[derive(Default)]
pub(super) struct InPlaceProgress {
    /// State of a packet that is partly in place.
    begun: Option<PartialPacket>,
    /// Bytes of the last packet's head and CRCs; 0: no packet has been received in place.
    lead_bytes: usize,
}

#[derive(Clone, Copy)]
struct PartialPacket {
    /// Bytes of its data in the buffer, after its CRCs.
    buffered: usize,
    /// Bytes of its data that are in place.
    done: usize,
}

impl ReceiveLoop<'_> {
    /// Receives until `missing` bytes more are in the buffer. Where data may be received in place, receives no further
    /// than the next head.
    pub(super) async fn fill(&mut self, missing: usize) -> Result<(), ReceiveError> {
        let (connection, buffer) = (&self.upstream.connection, &mut self.upstream.buffer);
        let wanted = buffer.available().len() + missing;
        if self.in_place.lead_bytes == 0 {
            return Ok(buffer.fill_to(connection, wanted, self.read_timeout).await?);
        }
        let most = wanted.max(self.in_place.lead_bytes);
        Ok(buffer.fill_within(connection, wanted, most, self.read_timeout).await?)
    }

    /// Receives at least one packet to its place, and lists the packets received. Returns their bytes in the buffer.
    /// `None`: the packet at the front is not suited for that, or its head has not arrived.
    pub(super) async fn receive_in_place(&mut self) -> Result<Option<usize>, ReceiveError> {
        // Prevents a sender that always has more data from keeping this thread from other connections.
        tokio::task::consume_budget().await;
        let writer = self.writer.here_mut()?;
        let (connection, buffer) = (&self.upstream.connection, &mut self.upstream.buffer);
        let (mut at, mut offset, mut in_place) = (0, writer.received(), 0);
        loop {
            let rest = &buffer.available()[at..];
            let (head, head_bytes) = match PacketHead::decode(rest) {
                Ok(Decoded::Complete(head, bytes)) => (head, bytes),
                Ok(Decoded::Needs(_)) => break,
                // An error after whole packets will occur again once those are stored.
                Err(_) if at > 0 => break,
                Err(source) => {
                    return Err(ReceiveError::Packet {
                        block: self.batch_store.block.clone(),
                        peer: connection.peer(),
                        source,
                    });
                }
            };
            let lead_bytes = head_bytes + head.checksum_bytes;
            let Some(came) = rest.len().checked_sub(lead_bytes) else { break };
            let begun = match self.in_place.begun {
                Some(begun) => begun,
                None => {
                    let buffered = came.min(head.data_bytes);
                    let is_next = head.header.offset == offset
                        && can_receive_in_place(&head, buffered, self.batch_store.checksum);
                    if !is_next || !takes(writer, head.header.end(), at == 0) {
                        if at == 0 {
                            self.in_place.lead_bytes = 0;
                        }
                        break;
                    }
                    match writer.put_in_place(offset, &rest[lead_bytes..][..buffered]) {
                        Err(_) if at > 0 => break,
                        put => put?,
                    }
                    PartialPacket { buffered, done: buffered }
                }
            };
            self.in_place = InPlaceProgress { begun: Some(begun), lead_bytes };
            let landed = receive_rest(connection, buffer, writer, offset, head.data_bytes, &mut self.in_place);
            if at > 0 && !matches!(landed, Ok(true)) {
                break;
            }
            if !landed? {
                let left = head.data_bytes - self.in_place.begun.map_or(0, |begun| begun.done);
                connection.expect(left as u64);
                // Receiving in place needs no long buffer, and no other mechanism takes memory back from a connection
                // that waits here.
                buffer.release();
                connection.readable(self.read_timeout).await?;
                continue;
            }
            self.in_place.begun = None;
            let checksums = at + head_bytes..at + lead_bytes;
            at += lead_bytes + begun.buffered;
            let data = checksums.end..at;
            self.batch.push(Packet { header: head.header, checksums, data, in_place: false, received_in_place: true });
            offset = head.header.end();
            in_place += u64::from(head.header.data_bytes);
            if head.header.last || head.header.sync || in_place >= BATCH_BYTES {
                break;
            }
        }
        Ok((at > 0).then_some(at))
    }
}

/// Returns true if the data of a packet can be received in place and that is worthwhile. `came`: bytes already
/// received.
fn can_receive_in_place(head: &PacketHead, came: usize, checksum: ChecksumSpec) -> bool {
    !head.header.is_heartbeat()
        && head.header.offset.is_multiple_of(u64::from(checksum.bytes_per_chunk.max(1)))
        && (came + IN_PLACE_REST_BYTES_MIN..=IN_PLACE_BYTES_MAX).contains(&head.data_bytes)
        && head.checksum_bytes as u64 == checksum.checksum_bytes(head.data_bytes as u64)
}

/// Returns true if the store takes bytes up to `end` in place. After packets that are not yet stored, it takes them
/// only into existing memory.
fn takes(writer: &mut ReplicaWriter, end: u64, is_first: bool) -> bool {
    if is_first { writer.receives_in_place(end) } else { writer.goes_on_in_place(end) }
}

/// Receives the available part of a packet's data, which begins at `offset`. Returns true if all of it is in place.
fn receive_rest(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    writer: &mut ReplicaWriter,
    offset: u64,
    data_bytes: usize,
    progress: &mut InPlaceProgress,
) -> Result<bool, ReceiveError> {
    let Some(begun) = &mut progress.begun else { return Ok(false) };
    while begun.done < data_bytes {
        let left = data_bytes - begun.done;
        let with_lead = buffer.available().len() + progress.lead_bytes;
        let behind = buffer.spare(connection, with_lead)?;
        let at = offset + begun.done as u64;
        let received = connection.try_receive(|socket| writer.receive(at, left, socket, behind))??;
        match received {
            None => return Ok(false),
            Some(0) => return Err(tcp::Error::Closed { peer: connection.peer() }.into()),
            Some(bytes) => {
                let own = bytes.min(left);
                begun.done += own;
                buffer.received(bytes - own);
            }
        }
    }
    Ok(true)
}
