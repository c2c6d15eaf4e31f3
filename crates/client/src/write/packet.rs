//! Packets of a writer and the memory that they are filled in. Memory is reused, and its amount is the window: a packet
//! keeps its place until every datanode of the pipeline has acknowledged it.

use std::sync::Arc;

use hearth_types::ChecksumSpec;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One packet on its way: shared by the window that keeps it until it is acknowledged and the task that sends it.
#[derive(Debug)]
pub(super) struct Packet {
    /// Rises by one with every packet of a writer.
    pub sequence: i64,
    /// Of the first data byte, from the start of the block.
    pub offset: u64,
    /// Empty, and closes the block.
    pub last: bool,
    /// Datanodes write data and checksums to disk before they acknowledge.
    pub sync: bool,
    body: Option<Body>,
}

/// Data and checksums of a packet being filled. Returns its memory to the pool when dropped.
#[derive(Debug)]
pub(super) struct Body {
    /// As long as the packet may become; the first `filled` bytes count.
    data: Vec<u8>,
    filled: usize,
    /// Of the first `summed` bytes of `data`: always whole chunks until the packet is finished.
    checksums: Vec<u8>,
    summed: usize,
    pool: Arc<PacketPool>,
    _permit: OwnedSemaphorePermit,
}

impl Packet {
    /// A packet without data.
    pub(super) fn empty(sequence: i64, offset: u64, last: bool, sync: bool) -> Self {
        Self { sequence, offset, last, sync, body: None }
    }

    pub(super) fn with_body(sequence: i64, offset: u64, sync: bool, mut body: Body) -> Self {
        body.sum_rest();
        Self { sequence, offset, last: false, sync, body: Some(body) }
    }

    pub(super) fn data(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| &body.data[..body.filled])
    }

    pub(super) fn checksums(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| &body.checksums)
    }

    /// Bytes from the start of the block to the end of this packet.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.data().len() as u64
    }
}

impl Body {
    pub(super) fn filled(&self) -> &[u8] {
        &self.data[..self.filled]
    }

    /// Room for at most `limit` bytes in all, behind what is filled.
    pub(super) fn space(&mut self, limit: usize) -> &mut [u8] {
        let end = limit.min(self.data.len());
        &mut self.data[self.filled..end]
    }

    /// `bytes` of the space were filled. Whole chunks are summed now, while they are in the processor's cache.
    pub(super) fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.data.len() - self.filled, "more bytes than there was space for");
        self.filled += bytes;
        let chunk = self.pool.checksum.bytes_per_chunk as usize;
        let whole = self.filled / chunk * chunk;
        self.pool.checksum.compute(&self.data[self.summed..whole], &mut self.checksums);
        self.summed = whole;
    }

    pub(super) fn capacity(&self) -> usize {
        self.data.len()
    }

    fn sum_rest(&mut self) {
        self.pool.checksum.compute(&self.data[self.summed..self.filled], &mut self.checksums);
        self.summed = self.filled;
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        let checksums = std::mem::take(&mut self.checksums);
        self.pool.free.lock().push((data, checksums));
    }
}

/// The memory of one writer's packets.
#[derive(Debug)]
pub(super) struct PacketPool {
    free: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    permits: Arc<Semaphore>,
    data_bytes: usize,
    checksum: ChecksumSpec,
}

impl PacketPool {
    /// `packets` of at most `data_bytes` data each, a whole number of chunks.
    pub(super) fn new(packets: usize, data_bytes: usize, checksum: ChecksumSpec) -> Arc<Self> {
        assert!(data_bytes.is_multiple_of(checksum.bytes_per_chunk as usize), "packets hold whole chunks");
        Arc::new(Self {
            free: Mutex::new(Vec::new()),
            permits: Arc::new(Semaphore::new(packets)),
            data_bytes,
            checksum,
        })
    }

    /// Memory for the next packet, when the window allows one more. `None` after `close`.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Body> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
        let (data, mut checksums) = self.free.lock().pop().unwrap_or_else(|| (vec![0; self.data_bytes], Vec::new()));
        checksums.clear();
        Some(Body { data, filled: 0, checksums, summed: 0, pool: Arc::clone(self), _permit: permit })
    }

    /// Wakes and refuses everybody who waits for memory: the writer failed.
    pub(super) fn close(&self) {
        self.permits.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn checksums_grow_with_the_data_and_memory_comes_back() {
        let pool = PacketPool::new(1, 1024, ChecksumSpec::DEFAULT);
        let mut body = pool.take().await.unwrap();
        let data: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        for piece in [&data[..100], &data[100..700], &data[700..]] {
            body.space(1024)[..piece.len()].copy_from_slice(piece);
            body.advance(piece.len());
        }
        assert_eq!(body.checksums.len(), 4);
        let packet = Packet::with_body(0, 512, false, body);
        assert_eq!(packet.end(), 1512);
        // The sums of these 1000 bytes under CRC32C, as Apache's datanode stores them.
        assert_eq!(packet.checksums(), [0xae, 0x10, 0xee, 0x5a, 0x84, 0xf9, 0xef, 0xef]);
        assert!(pool.permits.try_acquire().is_err());
        drop(packet);
        let body = pool.take().await.unwrap();
        assert_eq!((body.filled().len(), body.checksums.len()), (0, 0));
        pool.close();
        drop(body);
        assert!(pool.take().await.is_none());
    }
}
