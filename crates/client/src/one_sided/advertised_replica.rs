//! A replica that a datanode has advertised: reads of it, and how far they are to be believed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use hearth_fabric::one_sided::{Error, Transfer};
use hearth_types::{ByteRange, ChecksumError, RemoteSlice, ValidityRecord};
use hearth_wire::rdma_control::Advertisement;
use parking_lot::Mutex;

use super::buffer_pool::{BufferPool, PooledBuffer};
use super::crc_tables::CrcTable;
use super::read_connection::ReadConnection;

/// Bytes that are copied and checked at a time: they are in the processor's cache when they are checked.
const WINDOW_BYTES: u64 = 128 << 10;

/// An advertised replica, and the connection to its datanode.
#[derive(Debug)]
pub(crate) struct AdvertisedReplica {
    read_connection: Arc<ReadConnection>,
    buffers: Arc<BufferPool>,
    advertisement: Advertisement,
    source: AdvertisementSource,
    /// Nothing is posted after this.
    lease_end: Instant,
    /// For one batch of reads.
    timeout: Duration,
    /// All CRCs, once they have come with a record that says whose they are.
    table: Arc<CrcTable>,
}

/// Who has said where a replica's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AdvertisementSource {
    Datanode,
    /// Bytes that do not fit their CRCs are no sign of corruption until the datanode has said the same.
    Namenode,
}

/// Where a replica's memory is, as somebody has said.
#[derive(Debug)]
pub(super) struct ReceivedAdvertisement {
    pub advertisement: Advertisement,
    /// When the question was sent that it answers.
    pub asked: Instant,
    pub source: AdvertisementSource,
}

/// Why a batch of reads brought nothing that may be believed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Network(#[from] Error),
    /// The memory is not the replica's any more.
    #[error("the replica was withdrawn")]
    Withdrawn,
    /// The bytes do not fit their CRCs, and only the namenode has said that they are the replica's.
    #[error("bytes at a place that the namenode named do not fit their checksums")]
    Unconfirmed,
}

/// Reads that were posted together.
pub(crate) struct PostedRead {
    replica: Arc<AdvertisedReplica>,
    /// Owned by the operation as well, until it is over.
    buffer: PooledBuffer,
    pieces: Vec<PostedPiece>,
    /// All CRCs, if they were known: pieces then have none of their own, and others may have taken the table's room meanwhile.
    table: Option<Arc<[u8]>>,
    /// The table of all CRCs begins here, if it was asked for.
    table_at: Option<u64>,
    shown_at: u64,
    /// Locked by nobody: it makes the whole fit for readers that are shared between tasks.
    done: Mutex<BoxFuture<'static, Result<(), Error>>>,
}

impl std::fmt::Debug for PostedRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostedRead").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

/// Where in the buffer one of the ranges is.
#[derive(Clone, Copy, Debug)]
struct PostedPiece {
    /// Of the block, whole chunks.
    range: ByteRange,
    data_at: u64,
    /// `None`: the CRCs are in the replica's kept table.
    crcs_at: Option<u64>,
}

/// Ranges of a replica that are its own, and are yet to be checked against their CRCs.
#[derive(Debug)]
pub(crate) struct CompletedRead {
    replica: Arc<AdvertisedReplica>,
    buffer: Option<PooledBuffer>,
    pieces: Vec<PostedPiece>,
    table: Option<Arc<[u8]>>,
}

impl AdvertisedReplica {
    /// `table`: of this copy. `timeout_max`: for a batch of reads.
    pub(super) fn new(
        read_connection: Arc<ReadConnection>,
        buffers: Arc<BufferPool>,
        table: Arc<CrcTable>,
        received: ReceivedAdvertisement,
        timeout_max: Duration,
    ) -> Self {
        let ReceivedAdvertisement { advertisement, asked, source } = received;
        // Whatever is posted has ended, one way or the other, when the lease does.
        let timeout = timeout_max.min(advertisement.lease / 3);
        let lease_end = asked + advertisement.lease - timeout;
        Self { read_connection, buffers, advertisement, source, lease_end, timeout, table }
    }

    /// The table, if this is a lease of the same copy as another with this advertisement.
    pub(super) fn table_of(&self, advertisement: &Advertisement) -> Option<Arc<CrcTable>> {
        (self.advertisement.record() == advertisement.record()).then(|| Arc::clone(&self.table))
    }

    pub(crate) fn length(&self) -> u64 {
        self.advertisement.block.length()
    }

    /// Whether reads may be posted now.
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

    /// Posts reads of `ranges` (each within the replica), of their CRCs unless they are known, and, behind them, of the record
    /// that says whose memory it is: one round trip.
    ///
    /// Errors: `Withdrawn` when its lease is over; `Network`.
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
    /// Waits until the reads are over; once, but who breaks the wait off may wait again.
    pub(crate) async fn wait(&mut self) -> Result<(), Error> {
        self.done.get_mut().await
    }

    /// The bytes, when the reads are `over` without an error. They were the replica's when they were read.
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
    /// Whether the datanode itself has said where the bytes are.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.replica.source == AdvertisementSource::Datanode
    }

    /// Copies bytes `[start, start + into.len())` of the block out of the range number `piece`, and checks them on the way.
    ///
    /// Errors: the first chunk that does not fit, at an offset in the block; `into` holds nothing useful then.
    pub(crate) fn copy(&self, piece: usize, start: u64, into: &mut [u8]) -> Result<(), (u64, ChecksumError)> {
        let piece = self.pieces[piece];
        let wanted = ByteRange::with_length(start, into.len() as u64).expect("a slice is a range");
        let whole = self.replica.widen_to_chunks(wanted);
        let within = piece.range.start() <= whole.start() && whole.end() <= piece.range.end();
        assert!(within, "bytes that were not asked for");
        let chunk = u64::from(self.replica.advertisement.checksum.bytes_per_chunk);
        let window = (WINDOW_BYTES / chunk).max(1) * chunk;
        let mut edge = Vec::new();
        let mut at = whole.start();
        while at < whole.end() {
            let mut end = (at + window).min(whole.end());
            if at >= wanted.start() {
                // A last chunk that is wanted in part only goes by itself.
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

    /// Whole chunks.
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
            // Without CRCs there is nothing to check.
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
    /// What is read.
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

    /// `count` replicas, whose tables have room for `tables` together.
    async fn shown(count: usize, tables: u64) -> Shown {
        let sim = Sim::new();
        let domain = sim.domain().unwrap();
        let listener = sim.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let accept = async { listener.accept().await.unwrap().accept(&domain, b"", Limits::default(), WAIT).await };
        let connect = sim.connect(&domain, listener.address(), b"", Limits::default(), WAIT);
        let (near, far) = tokio::join!(connect, accept);
        let read_connection = Arc::new(ReadConnection::new(near.unwrap(), 1));
        // It is never asked anything, but its end would be the other's.
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

        /// Whether a read brings the replica's bytes, or finds that they do not fit.
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
    async fn no_more_tables_are_kept_than_there_is_room_for() {
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
    async fn a_table_that_goes_while_a_read_is_under_way_still_checks_it() {
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
    async fn a_table_that_is_longer_than_all_may_be_is_done_without() {
        let shown = shown(1, TABLE_BYTES - 1).await;
        for _ in 0..20 {
            assert!(shown.reads(0).await && !shown.knows_table(0));
        }
        shown.spoil(0);
        assert!(!shown.reads(0).await);
    }
}
