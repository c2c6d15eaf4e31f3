//! READ_MANY (0xA3): a connection that carries ranges of many replicas, each answered as soon as it is ready.
//!
//! Ranges in memory are answered at once, many in one write: bytes of slabs straight from the slab, bytes of files by
//! sendfile, short ones copied next to their heads; or written straight into memory that a client on this machine has
//! lent. A range that has to wait for a disk or for its pool waits in a task of its own, and later ranges overtake it.
//! The number of reads that wait for disks is limited over all connections and per disk (`disk_reads`). An error in a
//! range is reported in that range's answer.
//!
//! Bounds: a new range is accepted only when everything that was ready has been sent and fewer than [`WAITING_MAX`]
//! wait. Otherwise it stays in the socket, and its sender waits.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{DataSource, Reading, ReplicaReader, StoreError};
use hearth_fabric::Memory;
use hearth_protocol::block_token::AccessMode;
use hearth_protocol::trace::Span;
use hearth_types::{ByteRange, ChecksumSpec};
use hearth_wire::data_transfer::{
    AnswerSlot, Decoded, RangeHead, RangePiece, RangeRefusal, RangeRequest, ReadMany, ReadManyTerms,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::metrics::{LentBytes, Metrics};
use crate::ops::{Continuation, OpError};
use crate::replica_service::ReplicaService;
use crate::session::{Session, SessionError};

/// Maximum number of ranges that wait for a disk or a pool, and the number of their bytes (whole chunks and their CRCs)
/// from which no further range is accepted. One range at a time may take more, if its chunks are longer than expected.
const WAITING_MAX: usize = 64;
const WAITING_BYTES_MAX: u64 = 4 << 20;

/// Data bytes that are prepared before they are sent.
const BATCH_BYTES: u64 = 512 << 10;

/// Maximum data size of a file that is copied next to its head: up to this size, copying is cheaper than a second
/// system call.
const INLINE_BYTES_MAX: u64 = 32 << 10;

/// Requests are short, so one call receives many.
const RECEIVE_BYTES: usize = 32 << 10;

pub async fn serve(replicas: &ReplicaService, session: &Session, request: ReadMany) -> Result<Continuation, OpError> {
    tracing::debug!(peer = %session.connection.peer(), client = request.client_name, "accepting READ_MANY on a connection");
    let bytes = request.memory_bytes;
    let may_lend = (1..=ReadMany::MEMORY_BYTES_MAX).contains(&bytes) && session.connection.is_unix();
    let memory = may_lend
        .then(|| replicas.metrics.reserve_lent_bytes(bytes))
        .flatten()
        .map(|counted| PromisedMemory { bytes, counted });
    let range_bytes_max = ReadMany::RANGE_BYTES_MAX;
    session.send(&ReadManyTerms::Accepted { range_bytes_max, takes_memory: memory.is_some() }.encode()).await?;
    Ok(Continuation::ReadMany { memory })
}

/// Memory that a client has announced to lend.
pub struct PromisedMemory {
    bytes: u64,
    counted: LentBytes,
}

/// Receives the memory that the client lends, and answers ranges until the client has no more, or sends none for
/// `read_timeout`.
pub async fn serve_ranges(
    replicas: &Arc<ReplicaService>,
    session: &mut Session,
    memory: Option<PromisedMemory>,
    place: &hearth_fabric::ConnectionPermit,
) -> Result<(), OpError> {
    session.buffer.release();
    let lent = match memory {
        Some(promised) => ClientMemory::take(session, promised, replicas.options.transfer.read_timeout).await?,
        None => ClientMemory::default(),
    };
    let timeout = replicas.options.transfer.read_timeout;
    session.buffer.grow_to(RECEIVE_BYTES);
    let mut waiting = PendingReads::default();
    let mut ready = ReadyAnswers::default();
    loop {
        let mut wanted = 0;
        // Counted as an operation while there is work, not while the client has no requests.
        let served = replicas.metrics.count_operation();
        while ready.bytes < BATCH_BYTES && waiting.has_room() {
            let peer = session.connection.peer();
            let decoded = RangeRequest::decode(session.buffer.available());
            match decoded.map_err(|source| SessionError::Message { peer, source })? {
                Decoded::Complete(range, consumed) => {
                    session.buffer.consume(consumed);
                    ready.began.get_or_insert_with(Instant::now);
                    begin(replicas, range, &mut ready, &mut waiting, &lent);
                }
                Decoded::Needs(missing) => {
                    wanted = session.buffer.available().len() + missing;
                    break;
                }
            }
        }
        while ready.bytes < BATCH_BYTES
            && let Some(done) = waiting.tasks.try_join_next()
        {
            waiting.take(done, &mut ready);
        }
        if !ready.parts.is_empty() {
            ready.send(replicas, session).await?;
            // Lets other connections of this thread run between one client's many reads.
            tokio::task::consume_budget().await;
            continue;
        }
        // All ranges so far wait, and have their own times.
        ready.began = None;
        drop(served);
        // Either more requests have to be received, or the maximum number of ranges is waiting.
        if waiting.tasks.is_empty() {
            place.mark_idle();
        }
        tokio::select! {
            Some(done) = waiting.tasks.join_next(), if !waiting.tasks.is_empty() => waiting.take(done, &mut ready),
            readable = session.connection.readable(timeout), if waiting.has_room() => {
                match readable {
                    Ok(()) => {}
                    // No request for the whole timeout, and no range waits.
                    Err(hearth_fabric::tcp::Error::ReadTimedOut { .. })
                        if session.buffer.available().is_empty() && waiting.tasks.is_empty() => return Ok(()),
                    Err(hearth_fabric::tcp::Error::ReadTimedOut { .. }) if !waiting.tasks.is_empty() => {}
                    Err(error) => return Err(error.into()),
                }
                match session.buffer.try_fill(&session.connection, wanted)? {
                    // The client has no more requests; ranges that still wait are answered.
                    Some(0) if session.buffer.available().is_empty() => return finish(replicas, session, waiting).await,
                    Some(0) => return Err(hearth_fabric::tcp::Error::Closed { peer: session.connection.peer() }.into()),
                    _ => place.mark_busy(),
                }
            }
        }
    }
}

/// Answers the remaining ranges after the client's last request.
async fn finish(replicas: &Arc<ReplicaService>, session: &Session, mut waiting: PendingReads) -> Result<(), OpError> {
    let mut ready = ReadyAnswers::default();
    while let Some(done) = waiting.tasks.join_next().await {
        waiting.take(done, &mut ready);
        ready.send(replicas, session).await?;
    }
    Ok(())
}

/// Memory of the client for answers.
#[derive(Default)]
struct ClientMemory(Option<(Memory, LentBytes)>);

impl ClientMemory {
    /// Receives the memory, whose descriptor arrives with the next byte. `None` if the memory is unusable: then all
    /// answers are sent over the connection.
    async fn take(session: &Session, promised: PromisedMemory, timeout: Duration) -> Result<Self, OpError> {
        if !session.buffer.available().is_empty() {
            return Err(OpError::Malformed("ranges arrived before the announced shared memory"));
        }
        let (received, mut descriptors) = session.connection.receive_with_descriptors(&mut [0; 1], timeout).await?;
        let (1, Some(descriptor), true) = (received, descriptors.pop(), descriptors.is_empty()) else {
            return Err(OpError::Malformed("expected exactly one descriptor of shared memory"));
        };
        let PromisedMemory { bytes, counted } = promised;
        match Memory::of_peer(descriptor, bytes) {
            Ok(memory) => Ok(Self(Some((memory, counted)))),
            Err(error) => {
                tracing::warn!(%error, bytes, "cannot map the memory that a client lends; sending answers over the connection");
                Ok(Self(None))
            }
        }
    }

    /// Returns the memory if `place` lies in it.
    fn memory_at(&self, place: &AnswerSlot) -> Option<&Memory> {
        let (memory, _) = self.0.as_ref()?;
        let end = place.offset.checked_add(u64::from(place.bytes))?;
        (end <= memory.length()).then_some(memory)
    }
}

/// Answers `range`, or starts a task that does.
fn begin(
    replicas: &Arc<ReplicaService>,
    range: RangeRequest,
    ready: &mut ReadyAnswers,
    waiting: &mut PendingReads,
    lent: &ClientMemory,
) {
    let request = range.request;
    let span = Span::server(range.trace, || "DataTransfer/ReadRange".to_owned());
    match open_now(replicas, &range) {
        Ok(Some(opened)) if ready.copy_to_client(request, &opened, range.place, lent) => {}
        Ok(Some(opened)) if opened.reader.in_memory() => {
            ready.push(request, opened, replicas.options.transfer.transfer_to)
        }
        Ok(Some(opened)) if ready.push_now(request, &opened) => {}
        Ok(opened) => {
            let bytes = waiting_bytes(&range, opened.as_ref());
            waiting.start(replicas.clone(), range, bytes, span);
        }
        Err(error) => ready.refuse(request, &error),
    }
}

/// Returns the bytes that a range occupies while it waits. The chunk size is unknown until the replica is opened, so
/// HDFS's default, which nearly all replicas use, is assumed.
fn waiting_bytes(asked: &RangeRequest, opened: Option<&OpenedRange>) -> u64 {
    match opened {
        Some(opened) => opened.memory_bytes(),
        None => {
            let usual = ChecksumSpec::DEFAULT;
            let asked = asked.range.length().min(u64::from(ReadMany::RANGE_BYTES_MAX));
            let widened = asked + 2 * u64::from(usual.bytes_per_chunk);
            widened + usual.checksum_bytes(widened)
        }
    }
}

/// Returns the bytes of the data and CRCs of whole chunks.
fn fetched_bytes(range: ByteRange, checksum: ChecksumSpec) -> u64 {
    range.length() + checksum.checksum_bytes(range.length())
}

/// A replica that may be read, and the whole chunks to read from it.
struct OpenedRange {
    reader: ReplicaReader,
    range: ByteRange,
}

impl OpenedRange {
    /// Widens the requested range to whole chunks.
    fn new(reader: ReplicaReader, asked: &RangeRequest) -> Result<Self, OpError> {
        if asked.range.end() > reader.length() {
            let (block, range, length) = (reader.block().clone(), asked.range, reader.length());
            return Err(StoreError::OutOfRange { block, range, length }.into());
        }
        let checksum = reader.checksum();
        let range = asked.range.widened(checksum.bytes_per_chunk, reader.length());
        if range.length() > u64::from(ReadMany::RANGE_BYTES_MAX)
            || checksum.checksum_bytes(range.length()) > ReadMany::CHECKSUM_BYTES_MAX as u64
        {
            return Err(OpError::Malformed("a range is too long for READ_MANY"));
        }
        Ok(Self { reader, range })
    }

    /// Returns the memory that the fetched range takes.
    fn memory_bytes(&self) -> u64 {
        fetched_bytes(self.range, self.reader.checksum())
    }

    /// Reads the range. Waits for the disk.
    fn read(self, request: u64, more: Option<OwnedSemaphorePermit>) -> Result<Body, OpError> {
        let mut bytes = Vec::with_capacity(self.memory_bytes() as usize);
        self.reader.checksums(self.range, &mut bytes)?;
        let at = bytes.len();
        bytes.resize(at + self.range.length() as usize, 0);
        self.reader.read_at(self.range.start(), &mut bytes[at..])?;
        Ok(Body { head: self.head(request, false), bytes, _more: more })
    }

    /// `placed`: CRCs and data are in the client's memory, not after the head.
    fn head(&self, request: u64, placed: bool) -> RangeHead {
        let piece = RangePiece {
            stamp: self.reader.block().stamp(),
            replica_length: self.reader.length(),
            checksum: self.reader.checksum(),
            offset: self.range.start(),
            data_bytes: self.range.length() as u32,
            placed,
        };
        RangeHead { request, piece: Ok(piece) }
    }
}

/// `None`: opening the replica has to wait.
fn open_now(replicas: &ReplicaService, asked: &RangeRequest) -> Result<Option<OpenedRange>, OpError> {
    let pool = replicas.pools.get(&asked.block.pool).filter(|pool| pool.is_registered());
    let Some(pool) = pool else { return Ok(None) };
    pool.tokens.check(&asked.token, &asked.block, AccessMode::Read)?;
    match replicas.store.reader_now(&asked.block)? {
        Reading::Now(reader) => OpenedRange::new(reader, asked).map(Some),
        Reading::OnDisk(_) => Ok(None),
    }
}

/// Answers that are ready to be sent.
#[derive(Default)]
struct ReadyAnswers {
    /// Heads, CRCs, and data that was copied.
    heads: Vec<u8>,
    parts: Vec<AnswerPart>,
    /// Data bytes.
    bytes: u64,
    ranges: u64,
    /// When the first range of those that were answered at once was received.
    began: Option<Instant>,
    /// When each of those that had to wait was received.
    waited: Vec<Instant>,
}

/// A part of `heads`, and the data after it.
struct AnswerPart {
    head: Range<usize>,
    data: Option<OpenedRange>,
}

impl ReadyAnswers {
    fn push(&mut self, request: u64, opened: OpenedRange, transfer_to: bool) {
        let start = self.heads.len();
        opened.head(request, false).encode_into(&mut self.heads);
        let (bytes, mut failed) = (opened.range.length(), None);
        let mut data = None;
        if let Err(error) = opened.reader.checksums(opened.range, &mut self.heads) {
            failed = Some(error);
        } else if matches!(opened.reader.data(), DataSource::File { .. }) && (bytes <= INLINE_BYTES_MAX || !transfer_to)
        {
            let at = self.heads.len();
            self.heads.resize(at + bytes as usize, 0);
            failed = opened.reader.read_at(opened.range.start(), &mut self.heads[at..]).err();
        } else {
            data = Some(opened);
        }
        if let Some(error) = failed {
            self.heads.truncate(start);
            self.refuse(request, &error.into());
            return;
        }
        self.add(start, data, bytes);
    }

    /// Copies bytes of a slab and their CRCs into the client's memory. False: there is no space for them, or they are
    /// not in a slab.
    fn copy_to_client(
        &mut self,
        request: u64,
        opened: &OpenedRange,
        place: Option<AnswerSlot>,
        lent: &ClientMemory,
    ) -> bool {
        let Some(place) = place else { return false };
        let (Some(memory), DataSource::Bytes(bytes)) = (lent.memory_at(&place), opened.reader.data()) else {
            return false;
        };
        let start = self.heads.len();
        let data = &bytes[opened.range.start() as usize..opened.range.end() as usize];
        let placed = opened.reader.checksums(opened.range, &mut self.heads).is_ok_and(|()| {
            let checksums = &self.heads[start..];
            let fits = checksums.len() + data.len() <= place.bytes as usize;
            if fits {
                memory.write(place.offset, checksums);
                memory.write(place.offset + checksums.len() as u64, data);
            }
            fits
        });
        self.heads.truncate(start);
        if placed {
            opened.head(request, true).encode_into(&mut self.heads);
            self.add(start, None, opened.range.length());
        }
        placed
    }

    /// Adds bytes of a replica on disk that can be read without waiting. False: nothing was added.
    fn push_now(&mut self, request: u64, opened: &OpenedRange) -> bool {
        let start = self.heads.len();
        opened.head(request, false).encode_into(&mut self.heads);
        // The task handles errors, too.
        let read = opened.reader.read_now(opened.range, &mut self.heads).unwrap_or(false);
        match read {
            true => self.add(start, None, opened.range.length()),
            false => self.heads.truncate(start),
        }
        read
    }

    /// Notes that the next answer is of a range that was received at `began` and had to wait.
    fn note_waited(&mut self, began: Instant) {
        self.waited.push(began);
    }

    /// Records the times of all answers, which have been sent.
    fn record_times(&mut self, metrics: &Metrics) {
        let at_once = self.ranges - self.waited.len() as u64;
        if let Some(began) = self.began.take().filter(|_| at_once > 0) {
            metrics.observe_ranges(at_once, began.elapsed());
        }
        for began in self.waited.drain(..) {
            metrics.observe_ranges(1, began.elapsed());
        }
    }

    /// Adds bytes that a task has read: CRCs, then data.
    fn push_read(&mut self, head: &RangeHead, body: &[u8]) {
        let start = self.heads.len();
        head.encode_into(&mut self.heads);
        self.heads.extend_from_slice(body);
        self.add(start, None, body.len() as u64);
    }

    fn refuse(&mut self, request: u64, error: &OpError) {
        tracing::debug!(error = error as &dyn std::error::Error, "refusing a range");
        let refusal = RangeRefusal { status: error.status(), message: error.text() };
        let start = self.heads.len();
        RangeHead { request, piece: Err(refusal) }.encode_into(&mut self.heads);
        // Refusals count too, so that a large number of them is sent at some point.
        self.add(start, None, (self.heads.len() - start) as u64);
    }

    fn add(&mut self, start: usize, data: Option<OpenedRange>, bytes: u64) {
        self.bytes += bytes;
        self.ranges += 1;
        let end = self.heads.len();
        // Adjacent pieces in memory are merged into one part.
        match self.parts.last_mut() {
            Some(last) if last.data.is_none() => {
                last.head.end = end;
                last.data = data;
            }
            _ => self.parts.push(AnswerPart { head: start..end, data }),
        }
    }

    /// Sends all answers and clears them.
    async fn send(&mut self, replicas: &ReplicaService, session: &Session) -> Result<(), OpError> {
        let (connection, timeout) = (&session.connection, session.write_timeout);
        let mut slices: Vec<&[u8]> = Vec::with_capacity(2 * self.parts.len());
        for part in &self.parts {
            slices.push(&self.heads[part.head.clone()]);
            let Some(OpenedRange { reader, range }) = &part.data else { continue };
            match reader.data() {
                DataSource::Bytes(bytes) => slices.push(&bytes[range.start() as usize..range.end() as usize]),
                DataSource::File { file, offset } => {
                    connection.write_vectored(&slices, true, timeout).await?;
                    slices.clear();
                    reader.note_sent(range.length());
                    let sent = connection.send_file_range(file, offset + range.start(), range.length(), timeout).await;
                    if let Err(hearth_fabric::tcp::Error::File { .. }) = &sent {
                        reader.suspect();
                    }
                    sent?;
                }
            }
        }
        connection.write_vectored(&slices, false, timeout).await?;
        replicas.metrics.record_ranges_read(self.bytes);
        replicas.metrics.note_client_activity();
        self.record_times(&replicas.metrics);
        self.heads.clear();
        self.parts.clear();
        (self.bytes, self.ranges) = (0, 0);
        Ok(())
    }
}

/// Ranges whose bytes are being fetched.
struct PendingReads {
    tasks: JoinSet<Fetched>,
    bytes: u64,
    /// Permit for the one range at a time that may take more than it counts for.
    more: Arc<Semaphore>,
}

struct Fetched {
    request: u64,
    /// When the range was received.
    began: Instant,
    /// Bytes that it counts for while it waits.
    bytes: u64,
    outcome: Result<Body, OpError>,
}

/// CRCs and data.
struct Body {
    head: RangeHead,
    bytes: Vec<u8>,
    _more: Option<OwnedSemaphorePermit>,
}

impl Default for PendingReads {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), bytes: 0, more: Arc::new(Semaphore::new(1)) }
    }
}

impl PendingReads {
    fn has_room(&self) -> bool {
        self.tasks.len() < WAITING_MAX && self.bytes < WAITING_BYTES_MAX
    }

    /// `bytes`: the bytes that the range counts for.
    /// `span`: ends when the range has been read.
    fn start(&mut self, replicas: Arc<ReplicaService>, range: RangeRequest, bytes: u64, span: Span) {
        let (request, began) = (range.request, Instant::now());
        self.bytes += bytes;
        let more = self.more.clone();
        self.tasks.spawn(async move {
            let _span = span;
            let outcome = fetch(&replicas, range, bytes, more).await;
            Fetched { request, began, bytes, outcome }
        });
    }

    fn take(&mut self, done: Result<Fetched, tokio::task::JoinError>, ready: &mut ReadyAnswers) {
        let Fetched { request, began, bytes, outcome } = match done {
            Ok(fetched) => fetched,
            // The tasks are never cancelled, so this is a panic.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        self.bytes -= bytes;
        ready.note_waited(began);
        match outcome {
            Ok(body) => ready.push_read(&body.head, &body.bytes),
            Err(error) => ready.refuse(request, &error),
        }
    }
}

/// Reads a range that may have to wait. `counted`: the bytes that it counts for.
async fn fetch(
    replicas: &Arc<ReplicaService>,
    range: RangeRequest,
    counted: u64,
    more: Arc<Semaphore>,
) -> Result<Body, OpError> {
    let pool = replicas.ready_pool(&range.block.pool).await?;
    pool.tokens.check(&range.token, &range.block, AccessMode::Read)?;
    let (request, disk_reads) = (range.request, &replicas.disk_reads);
    let opened = match replicas.store.reader_now(&range.block)? {
        Reading::Now(reader) => OpenedRange::new(reader, &range)?,
        Reading::OnDisk(storage) => {
            let store = replicas.store.clone();
            let open_and_read = move || {
                let opened = OpenedRange::new(store.reader(&range.block)?, &range)?;
                match opened.memory_bytes() > counted {
                    true => Ok(Err(opened)),
                    false => opened.read(request, None).map(Ok),
                }
            };
            match disk_reads.run(&storage, open_and_read).await? {
                Ok(body) => return Ok(body),
                Err(opened) => opened,
            }
        }
    };
    let more = match opened.memory_bytes() > counted {
        false => None,
        true => match tokio::time::timeout(disk_reads.queue_timeout(), more.acquire_owned()).await {
            Ok(permit) => Some(permit.map_err(|_| OpError::Interrupted)?),
            Err(_) => return Err(OpError::TooManyLongChunks),
        },
    };
    let storage = opened.reader.storage().0.clone();
    disk_reads.run(&storage, move || opened.read(request, more)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_range_counts_whole_chunks() {
        let checksum = ChecksumSpec { bytes_per_chunk: 1 << 20, ..ChecksumSpec::DEFAULT };
        let asked = ByteRange::with_length((3 << 20) + 5, 1).expect("a byte");
        let mut waiting = PendingReads::default();
        let mut ranges = 0;
        while waiting.has_room() {
            waiting.bytes += fetched_bytes(asked.widened(checksum.bytes_per_chunk, 8 << 20), checksum);
            ranges += 1;
        }
        assert_eq!(ranges, WAITING_BYTES_MAX >> 20, "limited by the bytes of their chunks");
    }
}
