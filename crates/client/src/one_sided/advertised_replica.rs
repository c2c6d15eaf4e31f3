//! One-sided reads of a replica that a datanode has advertised, and the checks that make their bytes trustworthy:
//! lease, validity record and CRCs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hearth_fabric::one_sided::{Error, Transfer};
use hearth_types::{
    BlockId, BlockPoolId, ByteRange, ChecksumError, DatanodeId, DatanodeUuid, GenerationStamp, LocatedBlock,
    RemoteSlice, ValidityRecord,
};
use hearth_wire::rdma_control::Advertisement;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::buffer_pool::{BufferPool, PooledBuffer};
use super::crc_tables::CrcTable;
use super::read_connection::ReadConnection;

/// Bytes that are copied and verified at a time: they are still in the processor's cache when they are verified.
const WINDOW_BYTES: u64 = 128 << 10;

/// Reason to refuse an advertisement: the replica was truncated, or is older than the one that the namenode knows.
pub(super) const OTHER_REPLICA: &str = "the datanode advertises a different replica";

/// Identity of a replica: with a later stamp it is a different replica.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub pool: BlockPoolId,
    pub block: BlockId,
    pub stamp: GenerationStamp,
    pub datanode: DatanodeUuid,
}

impl Key {
    pub(super) fn new(block: &LocatedBlock, datanode: &DatanodeId) -> Self {
        let pool = block.block.pool.clone();
        Self { pool, block: block.block.id(), stamp: block.block.stamp(), datanode: datanode.uuid.clone() }
    }
}

/// An advertised replica, and the connection to its datanode.
#[derive(Debug)]
pub(crate) struct AdvertisedReplica {
    read_connection: Arc<ReadConnection>,
    buffers: Arc<BufferPool>,
    advertisement: Advertisement,
    source: AdvertisementSource,
    /// No reads are posted after this time.
    lease_end: Instant,
    /// Time-out of one batch of reads.
    timeout: Duration,
    /// Table of all CRCs, once fetched together with a valid record.
    table: Arc<CrcTable>,
}

/// Source of an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AdvertisementSource {
    Datanode,
    /// Bytes that do not match their CRCs are no sign of corruption until the datanode has confirmed the advertisement.
    Namenode,
}

/// An advertisement as received.
#[derive(Debug)]
pub(super) struct ReceivedAdvertisement {
    pub advertisement: Advertisement,
    /// Time of the request that it answers.
    pub asked: Instant,
    pub source: AdvertisementSource,
}

/// Failure of a batch of reads.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Network(#[from] Error),
    /// The memory no longer belongs to the replica.
    #[error("the replica was withdrawn")]
    Withdrawn,
    /// The bytes do not match their CRCs, and only the namenode has advertised them as the replica's.
    #[error("bytes at the location from the namenode do not match their checksums")]
    Unconfirmed,
}

/// Reads that were posted together.
pub(crate) struct PostedRead {
    replica: Arc<AdvertisedReplica>,
    /// Also held by the operation until it ends.
    buffer: PooledBuffer,
    pieces: Vec<PostedPiece>,
    /// Table of all CRCs, if it was cached. The pieces then have no CRCs of their own, and the table may have been
    /// evicted since.
    table: Option<Arc<[u8]>>,
    /// Offset in the buffer of the table of all CRCs, if it was requested.
    table_at: Option<u64>,
    shown_at: u64,
    /// Never locked. The mutex only makes the type `Sync`, for readers that are shared between tasks.
    done: Mutex<BoxFuture<'static, Result<(), Error>>>,
}

impl std::fmt::Debug for PostedRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostedRead").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

/// Position of one of the ranges in the buffer.
#[derive(Clone, Copy, Debug)]
struct PostedPiece {
    /// Range of the block, in whole chunks.
    range: ByteRange,
    data_at: u64,
    /// `None` if the CRCs are in the replica's cached table.
    crcs_at: Option<u64>,
}

/// Ranges of a replica that passed the validity check, not yet verified against their CRCs.
#[derive(Debug)]
pub(crate) struct CompletedRead {
    replica: Arc<AdvertisedReplica>,
    buffer: Option<PooledBuffer>,
    pieces: Vec<PostedPiece>,
    table: Option<Arc<[u8]>>,
}

impl AdvertisedReplica {
    /// `table`: of this copy of the replica. `timeout_max`: upper limit of the time-out of a batch of reads.
    pub(super) fn new(
        read_connection: Arc<ReadConnection>,
        buffers: Arc<BufferPool>,
        table: Arc<CrcTable>,
        received: ReceivedAdvertisement,
        timeout_max: Duration,
    ) -> Self {
        let ReceivedAdvertisement { advertisement, asked, source } = received;
        // Every posted read has completed or failed by the end of the lease.
        let timeout = timeout_max.min(advertisement.lease / 3);
        let lease_end = asked + advertisement.lease - timeout;
        Self { read_connection, buffers, advertisement, source, lease_end, timeout, table }
    }

    /// Returns the table, if this is a lease of the same copy as `advertisement`.
    pub(super) fn table_of(&self, advertisement: &Advertisement) -> Option<Arc<CrcTable>> {
        (self.advertisement.record() == advertisement.record()).then(|| Arc::clone(&self.table))
    }

    pub(crate) fn length(&self) -> u64 {
        self.advertisement.block.length()
    }

    /// Returns true if reads may be posted now.
    pub(crate) fn is_usable(&self) -> bool {
        Instant::now() < self.lease_end && self.read_connection.is_open()
    }

    fn widen_to_chunks(&self, range: ByteRange) -> ByteRange {
        range.widened(self.advertisement.checksum.bytes_per_chunk, self.length())
    }

    fn crc_range(&self, range: ByteRange) -> ByteRange {
        let checksum = self.advertisement.checksum;
        let size = checksum.kind.size() as u64;
        let chunk = u64::from(checksum.bytes_per_chunk);
        ByteRange::new(range.start() / chunk * size, range.end().div_ceil(chunk) * size).expect("in the same order")
    }

    /// Posts reads of `ranges` (each within the replica), of their CRCs unless they are cached, and, after them, of the
    /// record that identifies the replica in that memory. All in one round trip.
    ///
    /// Errors: `Withdrawn` when its lease has expired; `Network`.
    pub(crate) fn post(self: &Arc<Self>, ranges: &[ByteRange]) -> Result<PostedRead, ReadError> {
        if !self.is_usable() {
            return Err(ReadError::Withdrawn);
        }
        let advertisement = &self.advertisement;
        let table = self.table.get();
        let known = table.is_some() || advertisement.checksums.length == 0;
        let whole = !known && self.table.is_due(advertisement.checksums.length);
        let mut at = 0;
        let mut reserve = |bytes: u64| {
            let start = at;
            at += bytes;
            start
        };
        let mut pieces: Vec<PostedPiece> = ranges
            .iter()
            .map(|range| {
                let range = self.widen_to_chunks(*range);
                PostedPiece { range, data_at: reserve(range.length()), crcs_at: None }
            })
            .collect();
        if !known && !whole {
            for piece in &mut pieces {
                piece.crcs_at = Some(reserve(self.crc_range(piece.range).length()));
            }
        }
        let table_at = whole.then(|| reserve(advertisement.checksums.length));
        let shown_at = reserve(ValidityRecord::BYTES as u64);
        let buffer = self.buffers.take(at)?;
        let mut transfers = Vec::with_capacity(2 * pieces.len() + 2);
        let mut add = |offset: u64, of: RemoteSlice, range: ByteRange| {
            let remote = of.part(range.start(), range.length()).expect("ranges are within the replica");
            transfers.push(Transfer { local: buffer.region().clone(), offset, remote });
        };
        for piece in &pieces {
            add(piece.data_at, advertisement.data, piece.range);
        }
        for piece in &pieces {
            if let Some(crcs_at) = piece.crcs_at {
                add(crcs_at, advertisement.checksums, self.crc_range(piece.range));
            }
        }
        let all = |slice: RemoteSlice| ByteRange::new(0, slice.length).expect("0 is the least");
        if let Some(table_at) = table_at {
            add(table_at, advertisement.checksums, all(advertisement.checksums));
        }
        add(shown_at, advertisement.shown, all(advertisement.shown));
        let done = Mutex::new(self.read_connection.connection().read(transfers, self.timeout));
        Ok(PostedRead { replica: self.clone(), buffer, pieces, table, table_at, shown_at, done })
    }
}

impl PostedRead {
    /// Waits until the reads are over. Call it once; if the wait is cancelled, it may be called again.
    pub(crate) async fn wait(&mut self) -> Result<(), Error> {
        self.done.get_mut().await
    }

    /// Returns the bytes. Call it when `wait` has returned without an error. They belonged to the replica when they
    /// were read.
    ///
    /// Errors: `Withdrawn`.
    pub(crate) fn complete(self) -> Result<CompletedRead, ReadError> {
        let Self { replica, buffer, pieces, mut table, table_at, shown_at, done: _ } = self;
        let mut record = [0; ValidityRecord::BYTES];
        buffer.memory().read(shown_at, &mut record);
        if ValidityRecord::decode(&record) != Some(replica.advertisement.record()) {
            replica.buffers.give_back(buffer);
            return Err(ReadError::Withdrawn);
        }
        if let Some(table_at) = table_at {
            let mut bytes = vec![0; replica.advertisement.checksums.length as usize];
            buffer.memory().read(table_at, &mut bytes);
            let whole: Arc<[u8]> = bytes.into();
            replica.table.keep(Arc::clone(&whole));
            table = Some(whole);
        }
        Ok(CompletedRead { replica, buffer: Some(buffer), pieces, table })
    }
}

impl CompletedRead {
    /// Returns true if the datanode itself sent the advertisement.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.replica.source == AdvertisementSource::Datanode
    }

    /// Copies bytes `[start, start + into.len())` of the block out of range number `piece`, and verifies them in the
    /// same pass.
    ///
    /// Errors: the first chunk that does not match, with its offset in the block. The contents of `into` are then
    /// unspecified.
    pub(crate) fn copy(&self, piece: usize, start: u64, into: &mut [u8]) -> Result<(), (u64, ChecksumError)> {
        let piece = self.pieces[piece];
        let wanted = ByteRange::with_length(start, into.len() as u64).expect("a slice is a range");
        let whole = self.replica.widen_to_chunks(wanted);
        let within = piece.range.start() <= whole.start() && whole.end() <= piece.range.end();
        assert!(within, "bytes outside of the requested range");
        let chunk = u64::from(self.replica.advertisement.checksum.bytes_per_chunk);
        let window = (WINDOW_BYTES / chunk).max(1) * chunk;
        let mut edge = Vec::new();
        let mut at = whole.start();
        while at < whole.end() {
            let mut end = (at + window).min(whole.end());
            if at >= wanted.start() {
                // A partly requested last chunk is copied separately.
                if end > wanted.end() && wanted.end() / chunk * chunk > at {
                    end = wanted.end() / chunk * chunk;
                }
            } else {
                end = (at + chunk).min(whole.end());
            }
            let part = ByteRange::new(at, end).expect("forwards");
            if at >= wanted.start() && end <= wanted.end() {
                let to = (at - wanted.start()) as usize;
                self.copy_chunks(piece, part, &mut into[to..to + (end - at) as usize])?;
            } else {
                edge.resize((end - at) as usize, 0);
                self.copy_chunks(piece, part, &mut edge)?;
                let shown = part.intersection(wanted).expect("every chunk has a wanted byte");
                let to = (shown.start() - wanted.start()) as usize;
                let from = (shown.start() - at) as usize;
                let length = shown.length() as usize;
                into[to..to + length].copy_from_slice(&edge[from..from + length]);
            }
            at = end;
        }
        Ok(())
    }

    /// Copies and verifies whole chunks.
    fn copy_chunks(&self, piece: PostedPiece, range: ByteRange, into: &mut [u8]) -> Result<(), (u64, ChecksumError)> {
        let memory = self.buffer.as_ref().expect("it is given back on drop").memory();
        memory.read(piece.data_at + (range.start() - piece.range.start()), into);
        let crcs = self.replica.crc_range(range);
        let checksum = self.replica.advertisement.checksum;
        let checked = match (piece.crcs_at, &self.table) {
            (Some(crcs_at), _) => {
                let mut bytes = [0; 4096];
                let length = crcs.length() as usize;
                let offset = crcs_at + (crcs.start() - self.replica.crc_range(piece.range).start());
                if let Some(bytes) = bytes.get_mut(..length) {
                    memory.read(offset, bytes);
                    checksum.verify(into, bytes)
                } else {
                    let mut bytes = vec![0; length];
                    memory.read(offset, &mut bytes);
                    checksum.verify(into, &bytes)
                }
            }
            (None, Some(table)) => checksum.verify(into, &table[crcs.start() as usize..crcs.end() as usize]),
            // Without CRCs there is nothing to verify.
            (None, None) => Ok(()),
        };
        checked.map_err(|error| (range.start(), error))
    }
}

impl Drop for CompletedRead {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.replica.buffers.give_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use hearth_fabric::Memory;
    use hearth_fabric::one_sided::{Access, Limits, Region, Transport};
    use hearth_fabric::sim::Sim;
    use hearth_types::{Block, BlockId, BlockPoolId, ChecksumSpec, ExtendedBlock, GenerationStamp};

    use super::super::crc_tables::CrcTables;
    use super::*;

    const WAIT: Duration = Duration::from_secs(60);
    const LENGTH: u64 = 100_000;
    const TABLE_BYTES: u64 = LENGTH.div_ceil(512) * 4;
    /// Range that is read.
    const START: u64 = 700;
    const END: u64 = 3000;

    /// Replicas in the memory of a datanode, and a client's leases of them.
    struct Shown {
        memory: Vec<Arc<dyn Region>>,
        replicas: Vec<Arc<AdvertisedReplica>>,
    }

    fn content(replica: usize) -> Vec<u8> {
        (0..LENGTH as usize).map(|index| (index / 7 + replica) as u8).collect()
    }

    /// Shows `count` replicas, with a cache of `tables` bytes for their tables.
    async fn shown(count: usize, tables: u64) -> Shown {
        let sim = Sim::new();
        let domain = sim.domain().unwrap();
        let listener = sim.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let accept = async { listener.accept().await.unwrap().accept(&domain, b"", Limits::default(), WAIT).await };
        let connect = sim.connect(&domain, listener.address(), b"", Limits::default(), WAIT);
        let (near, far) = tokio::join!(connect, accept);
        let read_connection = Arc::new(ReadConnection::new(near.unwrap(), 1));
        // It receives no requests, but dropping it would end the connection.
        tokio::spawn(async move { far.unwrap().closed().await });
        let (buffers, tables) = (Arc::new(BufferPool::new(domain.clone(), 1 << 20)), CrcTables::new(tables));
        let (mut memory, mut replicas) = (Vec::new(), Vec::new());
        for replica in 0..count {
            let data = content(replica);
            let mut crcs = Vec::new();
            ChecksumSpec::DEFAULT.compute(&data, &mut crcs);
            let block = Block { id: BlockId(replica as i64), stamp: GenerationStamp(1), length: LENGTH };
            let record = ValidityRecord { block, nonce: 7 }.encode();
            let bytes = LENGTH + (crcs.len() + record.len()) as u64;
            let all = Arc::new(Memory::fresh(bytes).unwrap());
            all.write(0, &data);
            all.write(LENGTH, &crcs);
            all.write(LENGTH + crcs.len() as u64, &record);
            let region = domain.register(&all, 0..bytes, Access::RemoteRead).unwrap();
            let part = |start, length: usize| region.remote().part(start, length as u64).unwrap();
            let advertisement = Advertisement {
                block: ExtendedBlock { pool: BlockPoolId::new("BP-1"), block },
                checksum: ChecksumSpec::DEFAULT,
                nonce: 7,
                data: part(0, data.len()),
                checksums: part(LENGTH, crcs.len()),
                shown: part(LENGTH + crcs.len() as u64, record.len()),
                lease: 10 * WAIT,
                incarnation: 1,
            };
            memory.push(region);
            let received =
                ReceivedAdvertisement { advertisement, asked: Instant::now(), source: AdvertisementSource::Datanode };
            let table = tables.new_table();
            replicas.push(Arc::new(AdvertisedReplica::new(
                read_connection.clone(),
                buffers.clone(),
                table,
                received,
                WAIT,
            )));
        }
        Shown { memory, replicas }
    }

    impl Shown {
        fn post(&self, replica: usize) -> PostedRead {
            self.replicas[replica].post(&[ByteRange::new(START, END).unwrap()]).unwrap()
        }

        /// Returns true if a read brings the replica's bytes, and false if they do not match their CRCs.
        async fn reads(&self, replica: usize) -> bool {
            fits(self.post(replica), replica).await
        }

        fn knows_table(&self, replica: usize) -> bool {
            self.replicas[replica].table.get().is_some()
        }

        async fn learn_table(&self, replica: usize) {
            while !self.knows_table(replica) {
                assert!(self.reads(replica).await);
            }
        }

        fn spoil(&self, replica: usize) {
            self.memory[replica].memory().write(START + 1, &[255]);
        }
    }

    async fn fits(mut posted: PostedRead, replica: usize) -> bool {
        let mut bytes = vec![0; (END - START) as usize];
        posted.wait().await.unwrap();
        let copied = posted.complete().unwrap().copy(0, START, &mut bytes);
        copied.inspect(|()| assert!(bytes == content(replica)[START as usize..END as usize])).is_ok()
    }

    #[tokio::test]
    async fn table_cache_stays_within_limit() {
        let shown = shown(3, 2 * TABLE_BYTES).await;
        for replica in 0..3 {
            shown.learn_table(replica).await;
        }
        assert!(!shown.knows_table(0) && shown.knows_table(1) && shown.knows_table(2));
        assert!(shown.reads(0).await, "with CRCs of its own again");
        for replica in 0..3 {
            shown.spoil(replica);
            assert!(!shown.reads(replica).await);
        }
    }

    #[tokio::test]
    async fn evicted_table_still_verifies_pending_read() {
        let shown = shown(2, TABLE_BYTES).await;
        shown.learn_table(0).await;
        let good = shown.post(0);
        shown.learn_table(1).await;
        assert!(!shown.knows_table(0) && fits(good, 0).await);
        shown.learn_table(0).await;
        shown.spoil(0);
        let bad = shown.post(0);
        shown.learn_table(1).await;
        assert!(!fits(bad, 0).await);
    }

    #[tokio::test]
    async fn oversized_table_is_not_cached() {
        let shown = shown(1, TABLE_BYTES - 1).await;
        for _ in 0..20 {
            assert!(shown.reads(0).await && !shown.knows_table(0));
        }
        shown.spoil(0);
        assert!(!shown.reads(0).await);
    }
}
