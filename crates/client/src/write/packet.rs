//! Packets of a writer and the memory that they are filled in. Memory is reused, and its amount is the window: a packet
//! keeps its memory until every datanode of the pipeline has acknowledged it.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use hearth_fabric::local::MappedRange;
use hearth_fabric::one_sided::Region;
use hearth_types::ChecksumSpec;
use hearth_wire::data_transfer::PacketHeader;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::granted_memory::{GrantedRange, PacketMemory};

/// One packet in flight. Shared between the list of unacknowledged packets and the task that sends it.
#[derive(Debug)]
pub(super) struct Packet {
    /// Sequence number; increases by one with every packet of a writer.
    pub sequence: i64,
    /// Offset of the first data byte from the start of the block.
    pub offset: u64,
    /// The packet is empty and closes the block.
    pub last: bool,
    /// Datanodes write data and checksums to disk before they acknowledge.
    pub sync: bool,
    body: Option<PacketBody>,
}

/// Data and checksums of a packet being filled. Returns its memory to the pool on drop.
///
/// With a `granted_range`, every byte is also written there as it arrives, or only there if the range is mapped. Bytes
/// that the caller passes to [`PacketBody::take`] are also only there. `data` then has only the bytes filled in through
/// [`PacketBody::space`], and always the unfinished chunk at the end. Once the packet is finished, its bytes are in the
/// range.
#[derive(Debug)]
pub(super) struct PacketBody {
    /// Buffer of the size of the largest packet, or empty while nothing was stored there; the first `filled` bytes
    /// count.
    data: Vec<u8>,
    filled: usize,
    capacity: usize,
    granted_range: Option<GrantedRange>,
    /// The granted range, mapped; `data` is then unused.
    window: Option<MappedRange>,
    /// `data` lacks bytes that are in the granted range.
    only_placed: bool,
    /// CRCs of the first `summed` bytes, always whole chunks until the packet is finished.
    checksums: Vec<u8>,
    summed: usize,
    pool: Arc<PacketPool>,
    _permit: OwnedSemaphorePermit,
}

impl Packet {
    /// Creates a packet without data.
    pub(super) fn empty(sequence: i64, offset: u64, last: bool, sync: bool) -> Self {
        Self { sequence, offset, last, sync, body: None }
    }

    pub(super) fn with_body(sequence: i64, offset: u64, sync: bool, mut body: PacketBody) -> Self {
        body.finish();
        Self { sequence, offset, last: false, sync, body: Some(body) }
    }

    /// Returns the data. Reads it back from the granted range if it is only there.
    pub(super) fn data(&self) -> io::Result<Cow<'_, [u8]>> {
        match &self.body {
            None => Ok(Cow::Borrowed(&[])),
            Some(body) if body.only_placed => body.fetch().map(Cow::Owned),
            Some(body) => Ok(Cow::Borrowed(&body.data[..body.filled])),
        }
    }

    pub(super) fn data_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.filled)
    }

    pub(super) fn bytes_per_chunk(&self) -> u64 {
        self.body.as_ref().map_or(1, |body| u64::from(body.pool.checksum.bytes_per_chunk))
    }

    /// Returns true if the data has been written to `memory`.
    pub(super) fn is_in(&self, memory: &Arc<PacketMemory>) -> bool {
        let granted_range = self.body.as_ref().and_then(|body| body.granted_range.as_ref());
        granted_range.is_some_and(|granted_range| Arc::ptr_eq(&granted_range.memory, memory))
    }

    /// Returns the registered memory that begins with this packet's data.
    pub(super) fn registered(&self) -> Option<&Arc<dyn Region>> {
        self.body.as_ref()?.granted_range.as_ref()?.memory.region()
    }

    pub(super) fn header(&self) -> PacketHeader {
        PacketHeader {
            offset: self.offset,
            seqno: self.sequence,
            last: self.last,
            data_bytes: self.data_bytes() as u32,
            sync: self.sync,
        }
    }

    pub(super) fn checksums(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| &body.checksums)
    }

    /// Returns the number of bytes from the start of the block to the end of this packet.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.data_bytes() as u64
    }
}

impl PacketBody {
    pub(super) fn is_placed(&self) -> bool {
        self.granted_range.is_some()
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the bytes from `from` on, which lie in the last chunk if that is not whole.
    pub(super) fn unfinished(&self, from: usize) -> &[u8] {
        assert!(from >= self.summed, "bytes of whole chunks may be only in the granted range");
        self.held(from, self.filled)
    }

    /// Returns the bytes from `from` to `to` that are held here: `window` has all, `data` may lack whole chunks.
    fn held(&self, from: usize, to: usize) -> &[u8] {
        match (&self.window, &self.granted_range) {
            (Some(window), Some(granted_range)) => window.bytes(granted_range.part(from, to)),
            // An empty range needs no data: possibly nothing was stored.
            _ if from == to => &[],
            _ => &self.data[from..to],
        }
    }

    /// Returns room behind the filled bytes, up to `limit` bytes in all. Limited to what stays in the processor's cache
    /// until it is summed.
    pub(super) fn space(&mut self, limit: usize) -> &mut [u8] {
        let end = limit.min(self.capacity).min(self.filled + self.pool.data_bytes);
        let from = self.filled;
        match (&mut self.window, &self.granted_range) {
            (Some(window), Some(granted_range)) => window.bytes_mut(granted_range.part(from, end)),
            _ => &mut Self::buffer(&mut self.data, &self.pool)[from..end],
        }
    }

    /// Returns `data`, allocated to the size of the largest packet.
    fn buffer<'a>(data: &'a mut Vec<u8>, pool: &PacketPool) -> &'a mut [u8] {
        if data.is_empty() {
            *data = pool.buffer();
        }
        data
    }

    /// Records that `bytes` of the space were filled. Whole chunks are summed now, while they are in the processor's
    /// cache.
    pub(super) fn advance(&mut self, bytes: usize) -> io::Result<()> {
        assert!(bytes <= self.capacity - self.filled, "filled more bytes than the packet has space for");
        let from = self.filled;
        self.filled += bytes;
        let chunk = self.pool.checksum.bytes_per_chunk as usize;
        self.sum(self.filled / chunk * chunk);
        if self.window.is_some() {
            self.only_placed = true;
            return Ok(());
        }
        let Some(granted_range) = &self.granted_range else { return Ok(()) };
        let put = granted_range.memory.write(granted_range.offset + from as u64, &self.data[from..self.filled]);
        put.or_else(|error| self.leave_granted_range(from, error))
    }

    /// Adds the CRCs of the bytes up to `to`.
    fn sum(&mut self, to: usize) {
        let mut checksums = std::mem::take(&mut self.checksums);
        self.pool.checksum.compute(self.held(self.summed, to), &mut checksums);
        self.checksums = checksums;
        self.summed = to;
    }

    /// Writes `bytes`, for which there must be room, straight into the granted range.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.window.is_some() {
            return bytes.chunks(self.pool.data_bytes).try_for_each(|piece| {
                self.space(usize::MAX)[..piece.len()].copy_from_slice(piece);
                self.advance(piece.len())
            });
        }
        let put = match &self.granted_range {
            Some(granted_range) => granted_range.memory.write(granted_range.offset + self.filled as u64, bytes),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        if let Err(error) = put {
            self.leave_granted_range(self.filled, error)?;
            self.space(usize::MAX)[..bytes.len()].copy_from_slice(bytes);
            return self.advance(bytes.len());
        }
        let checksum = self.pool.checksum;
        let chunk = checksum.bytes_per_chunk as usize;
        let mut rest = bytes;
        if self.filled > self.summed {
            let part;
            (part, rest) = rest.split_at(rest.len().min(chunk - (self.filled - self.summed)));
            self.keep(part);
            if self.filled - self.summed == chunk {
                checksum.compute(&self.data[self.summed..self.filled], &mut self.checksums);
                self.summed = self.filled;
            }
        }
        let (whole, part) = rest.split_at(rest.len() / chunk * chunk);
        checksum.compute(whole, &mut self.checksums);
        self.only_placed |= !whole.is_empty();
        self.filled += whole.len();
        // Not if a chunk is still unfinished: that chunk took all remaining bytes.
        if self.filled - self.summed == whole.len() {
            self.summed = self.filled;
        }
        self.keep(part);
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let from = self.filled;
        Self::buffer(&mut self.data, &self.pool)[from..from + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Handles a granted range that failed to take the bytes behind the first `good`: the packet carries its data
    /// itself.
    fn leave_granted_range(&mut self, good: usize, error: io::Error) -> io::Result<()> {
        tracing::info!(%error, "cannot write to the datanode's memory, sending the bytes in the packet");
        let Some(granted_range) = self.granted_range.take() else { return Ok(()) };
        if std::mem::take(&mut self.only_placed) {
            granted_range.memory.read(granted_range.offset, &mut Self::buffer(&mut self.data, &self.pool)[..good])?;
        }
        Ok(())
    }

    fn fetch(&self) -> io::Result<Vec<u8>> {
        let mut data = vec![0; self.filled];
        if let Some(granted_range) = &self.granted_range {
            granted_range.memory.read(granted_range.offset, &mut data)?;
        }
        Ok(data)
    }

    /// Returns the most bytes that the packet may hold.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Ends filling. Bytes in the granted range need no memory here, so the next packet gets it while it is in the
    /// processor's cache.
    fn finish(&mut self) {
        self.sum(self.filled);
        if let Some(granted_range) = &self.granted_range {
            if let Some(window) = self.window.take() {
                granted_range.memory.keep(window);
            }
            self.only_placed = true;
            self.pool.give_back(std::mem::take(&mut self.data));
        }
    }
}

impl Drop for PacketBody {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.data));
        self.pool.free_checksums.lock().push(std::mem::take(&mut self.checksums));
    }
}

/// Memory of one writer's packets.
#[derive(Debug)]
pub(super) struct PacketPool {
    /// Last in, first out: the most recently returned buffer is still in the processor's cache.
    free: Mutex<Vec<Vec<u8>>>,
    free_checksums: Mutex<Vec<Vec<u8>>>,
    permits: Arc<Semaphore>,
    /// Number of packets that fit in the window.
    packets: usize,
    data_bytes: usize,
    /// Data bytes of a packet that is filled in place.
    placed_bytes: usize,
    checksum: ChecksumSpec,
}

impl PacketPool {
    /// Creates a pool of `packets` packets of at most `data_bytes` data each, a whole number of chunks. A packet that
    /// is filled in place may have `placed_bytes`, and takes as many places in the window as its size in packets.
    pub(super) fn new(packets: usize, data_bytes: usize, placed_bytes: usize, checksum: ChecksumSpec) -> Arc<Self> {
        let chunk = checksum.bytes_per_chunk as usize;
        assert!(data_bytes.is_multiple_of(chunk) && placed_bytes.is_multiple_of(chunk), "packets hold whole chunks");
        Arc::new(Self {
            free: Mutex::default(),
            free_checksums: Mutex::default(),
            permits: Arc::new(Semaphore::new(packets)),
            packets,
            data_bytes,
            placed_bytes,
            checksum,
        })
    }

    /// Returns the next packet once the window allows one more. Its bytes go to `granted_range`, if given. Returns
    /// `None` after `close`.
    pub(super) async fn take(self: &Arc<Self>, granted_range: Option<GrantedRange>) -> Option<PacketBody> {
        let small =
            granted_range.as_ref().map_or(self.data_bytes, |granted_range| granted_range.at_most(self.data_bytes));
        let large = granted_range.as_ref().map_or(small, |granted_range| granted_range.at_most(self.placed_bytes));
        let window =
            granted_range.as_ref().and_then(|granted_range| granted_range.memory.window(&granted_range.part(0, large)));
        // Without a mapped window, the packet may need a buffer.
        let capacity = if window.is_some() { large } else { small };
        let permit = self.permit(capacity.div_ceil(self.data_bytes)).await?;
        let mut checksums = self.free_checksums.lock().pop().unwrap_or_default();
        checksums.clear();
        Some(PacketBody {
            data: Vec::new(),
            filled: 0,
            capacity,
            granted_range,
            window,
            only_placed: false,
            checksums,
            summed: 0,
            pool: Arc::clone(self),
            _permit: permit,
        })
    }

    /// Waits for room in the window for a packet as large as `packets`. If the window is full, waits until a quarter of
    /// it is free: waking the writer for each packet that leaves would cost about the same as sending the packet.
    async fn permit(&self, packets: usize) -> Option<OwnedSemaphorePermit> {
        let wanted = packets.clamp(1, self.packets) as u32;
        match Arc::clone(&self.permits).try_acquire_many_owned(wanted) {
            Ok(permit) => Some(permit),
            Err(TryAcquireError::Closed) => None,
            Err(TryAcquireError::NoPermits) => {
                let quarter = wanted.max(self.packets as u32 / 4);
                let mut permits = Arc::clone(&self.permits).acquire_many_owned(quarter).await.ok()?;
                permits.split(wanted as usize)
            }
        }
    }

    fn buffer(&self) -> Vec<u8> {
        let free = self.free.lock().pop();
        free.unwrap_or_else(|| vec![0; self.data_bytes])
    }

    fn give_back(&self, data: Vec<u8>) {
        if !data.is_empty() {
            self.free.lock().push(data);
        }
    }

    /// Wakes and refuses all tasks that wait for memory, because the writer failed.
    pub(super) fn close(&self) {
        self.permits.close();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn checksums_follow_data_and_memory_is_reused() {
        let pool = PacketPool::new(1, 1024, 1024, ChecksumSpec::DEFAULT);
        let mut body = pool.take(None).await.unwrap();
        let data: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        for piece in [&data[..100], &data[100..700], &data[700..]] {
            body.space(1024)[..piece.len()].copy_from_slice(piece);
            body.advance(piece.len()).unwrap();
        }
        assert_eq!(body.checksums.len(), 4);
        let packet = Packet::with_body(0, 512, false, body);
        assert_eq!(packet.end(), 1512);
        // CRC32C of these 1000 bytes, as Apache's datanode stores them.
        assert_eq!(packet.checksums(), [0xae, 0x10, 0xee, 0x5a, 0x84, 0xf9, 0xef, 0xef]);
        assert!(pool.permits.try_acquire().is_err());
        drop(packet);
        let body = pool.take(None).await.unwrap();
        assert_eq!((body.filled(), body.checksums.len()), (0, 0));
        pool.close();
        drop(body);
        assert!(pool.take(None).await.is_none());
    }

    /// A file of `length` bytes as a datanode lends it: in huge pages, which are mapped, or in small ones.
    fn memory_of(length: u64, in_huge_pages: bool) -> Arc<PacketMemory> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        PacketMemory::with_pages(file, if in_huge_pages { 2 << 20 } else { 4096 })
    }

    #[tokio::test]
    async fn placed_bytes_are_summed_and_read_back() {
        let data: Vec<u8> = (0..5000u32).map(|i| (i * 7 / 3) as u8).collect();
        let mut sums = Vec::new();
        ChecksumSpec::DEFAULT.compute(&data, &mut sums);
        for pieces in [vec![5000], vec![1, 510, 1, 512, 513, 1000, 2463], vec![100, 100, 100, 4700]] {
            for (by_space, mapped) in [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)] {
                let pool = PacketPool::new(1, 8192, 8192, ChecksumSpec::DEFAULT);
                let memory = memory_of(7024, mapped);
                let granted_range = GrantedRange { memory: Arc::clone(&memory), offset: 1024, room: 6000 };
                let mut body = pool.take(Some(granted_range)).await.unwrap();
                assert_eq!((body.capacity(), body.window.is_some()), (6000, mapped));
                let mut at = 0;
                for (index, piece) in pieces.iter().enumerate() {
                    let piece = &data[at..at + piece];
                    if by_space == 2 || (by_space == 1 && index % 2 == 0) {
                        body.space(6000)[..piece.len()].copy_from_slice(piece);
                        body.advance(piece.len()).unwrap();
                    } else {
                        body.take(piece).unwrap();
                    }
                    at += piece.len();
                    let whole = at / 512 * 512;
                    assert_eq!(body.unfinished(whole), &data[whole..at]);
                }
                let mut placed = vec![0; data.len()];
                memory.read(1024, &mut placed).unwrap();
                assert!(placed == data);
                let packet = Packet::with_body(3, 1024, false, body);
                assert_eq!(packet.checksums(), sums);
                assert!(packet.data().unwrap() == data);
                // A finished packet needs no memory of the client, and the next range is mapped already.
                assert!(packet.body.as_ref().is_some_and(|body| body.data.is_empty()));
                assert_eq!(memory.window(&(1024..6144)).is_some(), mapped);
                assert!(packet.is_in(&memory) && !packet.is_in(&PacketMemory::new(tempfile::tempfile().unwrap())));
            }
        }
    }

    #[tokio::test]
    async fn placed_packet_takes_permits_by_size() {
        let pool = PacketPool::new(8, 1024, 4096, ChecksumSpec::DEFAULT);
        let granted_range =
            |mapped| Some(GrantedRange { memory: memory_of(1 << 20, mapped), offset: 0, room: 1 << 20 });
        let small = pool.take(granted_range(false)).await.unwrap();
        assert_eq!((small.capacity(), pool.permits.available_permits()), (1024, 7));
        let mut large = pool.take(granted_range(true)).await.unwrap();
        assert_eq!((large.capacity(), pool.permits.available_permits()), (4096, 3));
        // One piece at a time, so that it is summed while it is in the cache.
        assert_eq!(large.space(usize::MAX).len(), 1024);
        large.advance(512).unwrap();
        large.take(&[7; 3584]).unwrap();
        assert_eq!((large.filled(), large.checksums.len(), large.space(usize::MAX).len()), (4096, 32, 0));
    }

    #[tokio::test]
    async fn waiter_wakes_when_quarter_is_free() {
        let pool = PacketPool::new(8, 512, 512, ChecksumSpec::DEFAULT);
        let mut packets = Vec::new();
        for _ in 0..8 {
            packets.push(pool.take(None).await.unwrap());
        }
        let mut next = Box::pin(pool.take(None));
        assert!(next.as_mut().now_or_never().is_none(), "none is free");
        packets.pop();
        assert!(next.as_mut().now_or_never().is_none(), "one is free, of eight");
        packets.pop();
        assert!(next.as_mut().now_or_never().is_some_and(|body| body.is_some()));
        assert_eq!(pool.permits.available_permits(), 2, "the last one was dropped with the answer");
    }

    #[tokio::test]
    async fn memory_shorter_than_grant_is_not_mapped() {
        let pool = PacketPool::new(1, 8192, 8192, ChecksumSpec::DEFAULT);
        let memory = memory_of(5000, true);
        let body = pool.take(Some(GrantedRange { memory, offset: 0, room: 6000 })).await.unwrap();
        assert!(body.is_placed() && body.window.is_none());
    }

    #[tokio::test]
    async fn packet_keeps_bytes_when_placing_fails() {
        let pool = PacketPool::new(1, 8192, 8192, ChecksumSpec::DEFAULT);
        let file = tempfile::NamedTempFile::new().unwrap();
        let data = vec![7u8; 3000];
        std::fs::write(file.path(), &data[..2000]).unwrap();
        // Opened read-only, so the first write fails.
        let memory = PacketMemory::new(std::fs::File::open(file.path()).unwrap());
        let mut body =
            pool.take(Some(GrantedRange { memory: Arc::clone(&memory), offset: 0, room: 8192 })).await.unwrap();
        body.take(&data).unwrap();
        assert!(!body.is_placed());
        let packet = Packet::with_body(0, 0, false, body);
        assert!(!packet.is_in(&memory) && packet.data().unwrap() == data);
        assert_eq!(packet.checksums().len(), 24);
    }
}
