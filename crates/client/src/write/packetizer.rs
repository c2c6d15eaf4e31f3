//! Cuts a writer's bytes into packets and blocks. Pure, apart from the memory that is passed in.
//!
//! A checksum covers a whole chunk. Bytes that were flushed in the middle of a chunk are therefore sent again from the
//! chunk's start, together with the bytes that follow. A datanode skips the bytes that it already has. After an append
//! to a block that ends inside a chunk, the first packet holds at most the rest of that chunk. Its checksum covers only
//! the new bytes.

use std::io;

use super::packet::{Packet, PacketBody};

#[derive(Debug)]
pub(super) struct Packetizer {
    block_size: u64,
    chunk: u64,
    next_sequence: i64,
    /// Bytes of the current block, including those of the packet being filled.
    in_block: u64,
    /// Offset of the packet being filled.
    packet_offset: u64,
    body: Option<PacketBody>,
    /// Number of bytes at the start of `body` that were sent before.
    carried: usize,
    /// Bytes to carry into the next packet: the flushed start of an unfinished chunk.
    carry: Vec<u8>,
}

impl Packetizer {
    /// `in_block`: bytes that the current block already holds (append).
    pub(super) fn new(block_size: u64, chunk: u32, in_block: u64) -> Self {
        Self {
            block_size,
            chunk: u64::from(chunk),
            next_sequence: 0,
            in_block,
            packet_offset: in_block,
            body: None,
            carried: 0,
            carry: Vec::new(),
        }
    }

    pub(super) fn needs_body(&self) -> bool {
        self.body.is_none()
    }

    /// Returns the offset of the packet that `start` would begin now.
    pub(super) fn next_offset(&self) -> u64 {
        self.in_block - self.carry.len() as u64
    }

    /// Starts the next packet in `body`. Its granted range, if any, must begin at `next_offset`.
    pub(super) fn start(&mut self, mut body: PacketBody) -> io::Result<()> {
        assert!(self.body.is_none(), "a packet is being filled already");
        let carry = std::mem::take(&mut self.carry);
        self.packet_offset = self.in_block - carry.len() as u64;
        let capacity = body.capacity();
        body.space(capacity)[..carry.len()].copy_from_slice(&carry);
        body.advance(carry.len())?;
        self.carried = carry.len();
        self.body = Some(body);
        self.carry = carry;
        self.carry.clear();
        Ok(())
    }

    /// Returns room for the next bytes, never empty. If `needs_body` is true, call `start` first.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let limit = self.limit();
        self.body.as_mut().map_or(&mut [], |body| body.space(limit))
    }

    /// Returns the most bytes that the packet being filled may hold.
    fn limit(&self) -> usize {
        let capacity = self.body.as_ref().map_or(0, PacketBody::capacity) as u64;
        let mut limit = capacity.min(self.block_size - self.packet_offset);
        let into_chunk = self.packet_offset % self.chunk;
        if into_chunk != 0 {
            limit = limit.min(self.chunk - into_chunk);
        }
        limit as usize
    }

    /// Records that `bytes` of `space` were filled. Returns the packet when it is full.
    pub(super) fn advance(&mut self, bytes: usize) -> io::Result<Option<Packet>> {
        let Some(body) = self.body.as_mut() else { return Ok(None) };
        body.advance(bytes)?;
        Ok(self.filled(bytes))
    }

    /// Takes as many bytes of `data` as fit in the packet, bypassing `space` if the packet has a granted range. Returns
    /// their number, and the packet when it is full.
    pub(super) fn take(&mut self, data: &[u8]) -> io::Result<(usize, Option<Packet>)> {
        let limit = self.limit();
        let Some(body) = self.body.as_mut() else { return Ok((0, None)) };
        let data = &data[..data.len().min(limit - body.filled())];
        if body.is_placed() {
            body.take(data)?;
        } else {
            body.space(limit)[..data.len()].copy_from_slice(data);
            body.advance(data.len())?;
        }
        Ok((data.len(), self.filled(data.len())))
    }

    fn filled(&mut self, bytes: usize) -> Option<Packet> {
        self.in_block += bytes as u64;
        let limit = self.limit();
        let full = self.body.as_ref().is_some_and(|body| body.filled() >= limit);
        if full { self.take_packet(false) } else { None }
    }

    /// Returns the bytes not yet sent as a packet, or `None` if there are none. The start of an unfinished chunk is
    /// kept.
    pub(super) fn flush(&mut self, sync: bool) -> Option<Packet> {
        let body = self.body.as_ref()?;
        if body.filled() == self.carried {
            return None;
        }
        let end = self.in_block % self.chunk;
        if end != 0 && self.in_block < self.block_size {
            let from = self.packet_offset;
            let chunk_start = (self.in_block - end).max(from);
            self.carry.clear();
            self.carry.extend_from_slice(body.unfinished((chunk_start - from) as usize));
        }
        self.take_packet(sync)
    }

    /// Returns a packet without data that requests a sync.
    pub(super) fn empty_sync(&mut self) -> Packet {
        let sequence = self.sequence();
        Packet::empty(sequence, self.in_block, false, true)
    }

    /// Returns true when the current block is full.
    pub(super) fn block_full(&self) -> bool {
        self.in_block >= self.block_size
    }

    /// Returns the number of bytes in the current block.
    pub(super) fn in_block(&self) -> u64 {
        self.in_block
    }

    /// Returns the packet that closes the current block; the next byte starts another. All bytes must have been flushed
    /// before.
    pub(super) fn end_block(&mut self, sync: bool) -> Packet {
        let unsent = self.body.as_ref().map_or(0, |body| body.filled() - self.carried);
        assert_eq!(unsent, 0, "a block ended with unsent bytes");
        self.body = None;
        self.carried = 0;
        self.carry.clear();
        let sequence = self.sequence();
        let packet = Packet::empty(sequence, self.in_block, true, sync);
        self.in_block = 0;
        self.packet_offset = 0;
        packet
    }

    fn take_packet(&mut self, sync: bool) -> Option<Packet> {
        let body = self.body.take()?;
        self.carried = 0;
        let sequence = self.sequence();
        Some(Packet::with_body(sequence, self.packet_offset, sync, body))
    }

    fn sequence(&mut self) -> i64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::super::granted_memory::{GrantedMemory, PacketMemory};
    use super::super::packet::PacketPool;
    use super::*;
    use hearth_types::ChecksumSpec;
    use std::sync::Arc;

    /// Model of a datanode's replica: applies packets in order, skips overlaps, and verifies checksums.
    #[derive(Default)]
    struct Replica {
        bytes: Vec<u8>,
        blocks: Vec<Vec<u8>>,
        next_sequence: i64,
        granted_memory: GrantedMemory,
    }

    impl Replica {
        fn take(&mut self, packet: &Packet) {
            assert_eq!(packet.sequence, self.next_sequence);
            let data = packet.data().unwrap();
            self.next_sequence += 1;
            let offset = packet.offset as usize;
            assert!(offset <= self.bytes.len(), "a gap");
            if !offset.is_multiple_of(512) && !data.is_empty() {
                assert!(data.len() <= 512 - offset % 512);
            }
            ChecksumSpec::DEFAULT.verify(&data, packet.checksums()).unwrap();
            let known = (self.bytes.len() - offset).min(data.len());
            assert_eq!(&self.bytes[offset..offset + known], &data[..known]);
            self.bytes.extend_from_slice(&data[known..]);
            if packet.last {
                assert_eq!(offset, self.bytes.len());
                self.blocks.push(std::mem::take(&mut self.bytes));
            }
        }
    }

    async fn write(packetizer: &mut Packetizer, pool: &Arc<PacketPool>, replica: &mut Replica, mut data: &[u8]) {
        while !data.is_empty() {
            if packetizer.needs_body() {
                let granted_range =
                    replica.granted_memory.range_at(packetizer.next_offset(), 5000, ChecksumSpec::DEFAULT);
                packetizer.start(pool.take(granted_range).await.unwrap()).unwrap();
            }
            let (count, packet) = if data.len().is_multiple_of(3) {
                packetizer.take(data).unwrap()
            } else {
                let space = packetizer.space();
                let count = space.len().min(data.len());
                space[..count].copy_from_slice(&data[..count]);
                (count, packetizer.advance(count).unwrap())
            };
            assert!(count > 0);
            data = &data[count..];
            if let Some(packet) = packet {
                replica.take(&packet);
            }
            if packetizer.block_full() {
                let packet = packetizer.end_block(false);
                replica.take(&packet);
            }
        }
    }

    #[tokio::test]
    async fn mixed_writes_and_flushes_preserve_bytes() {
        let pool = PacketPool::new(2, 2048, 3072, ChecksumSpec::DEFAULT);
        let data: Vec<u8> = (0..30_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        let unplaced = [0usize, 1, 511, 512, 700].map(|start| (start, 0, false));
        let placed = [(0usize, 3000), (0, 5000), (512, 5000)];
        let placed = placed.into_iter().flat_map(|(start, granted)| [(start, granted, false), (start, granted, true)]);
        for (start, granted, mapped) in unplaced.into_iter().chain(placed) {
            let mut packetizer = Packetizer::new(5000, 512, start as u64);
            let file = tempfile::tempfile().unwrap();
            file.set_len(granted).unwrap();
            let memory = PacketMemory::with_pages(file, if mapped { 2 << 20 } else { 4096 });
            let granted_memory = GrantedMemory::Local { memory, granted, more: false };
            let mut replica = Replica { bytes: data[..start].to_vec(), granted_memory, ..Replica::default() };
            let mut at = start;
            let mut step = 1usize;
            while at < data.len() {
                let count = (step * 37 % 1500 + 1).min(data.len() - at);
                write(&mut packetizer, &pool, &mut replica, &data[at..at + count]).await;
                at += count;
                step += 1;
                if step.is_multiple_of(3) {
                    if let Some(packet) = packetizer.flush(true) {
                        replica.take(&packet);
                    }
                    assert!(packetizer.flush(true).is_none(), "nothing new to flush");
                    assert_eq!(replica.bytes.len() as u64, packetizer.in_block());
                }
            }
            if let Some(packet) = packetizer.flush(false) {
                replica.take(&packet);
            }
            if packetizer.in_block() > 0 {
                let packet = packetizer.end_block(false);
                replica.take(&packet);
            }
            assert!(replica.blocks[..replica.blocks.len() - 1].iter().all(|block| block.len() == 5000));
            assert!(replica.blocks.concat() == data, "start {start}");
        }
    }
}
