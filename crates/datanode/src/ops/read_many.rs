//! READ_MANY (0xA3): a connection that carries ranges of many replicas, each answered as soon as it is ready.
//!
//! What is in memory is answered at once, many ranges in one go: bytes of slabs straight from the slab, bytes of files by sendfile,
//! short ones copied beside their heads; or straight into memory that a client on this machine has lent. What has to wait, for a disk
//! or for its pool, waits in a task of its own, and others pass it; of those that wait for disks there are so many at once over all
//! connections, and of each disk's (`disk_reads`).
//! Whatever is wrong with a range is that range's answer.
//!
//! Bounds: a new range is taken on only when all that was ready has been sent and fewer than [`WAITING_MAX`] wait. Else it
//! stays in the socket, and its sender waits.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{DataSource, Reading, ReplicaReader, StoreError};
use hearth_fabric::Memory;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{ByteRange, ChecksumSpec};
use hearth_wire::data_transfer::{
    AnswerSlot, Decoded, RangeHead, RangePiece, RangeRefusal, RangeRequest, ReadMany, ReadManyTerms,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::datanode::Datanode;
use crate::metrics::LentBytes;
use crate::ops::{Continuation, OpError, check_token};
use crate::session::{Session, SessionError};

/// Ranges that wait for a disk or a pool at once, and bytes from which on no further one is taken on: those that they take here, whole
/// chunks and their CRCs. One at a time may take more, if its chunks are longer than was expected.
const WAITING_MAX: usize = 64;
const WAITING_BYTES_MAX: u64 = 4 << 20;

/// So many bytes of data are made ready before they are sent.
const BATCH_BYTES: u64 = 512 << 10;

/// Data of a file up to this many bytes is copied beside its head: below it, copying is cheaper than a second system call.
const INLINE_BYTES_MAX: u64 = 32 << 10;

/// Requests are short; one call receives many.
const RECEIVE_BYTES: usize = 32 << 10;

pub async fn serve(datanode: &Datanode, session: &Session, request: ReadMany) -> Result<Continuation, OpError> {
    tracing::debug!(peer = %session.connection.peer(), client = request.client_name, "many reads on one connection");
    let bytes = request.memory_bytes;
    let may_lend = (1..=ReadMany::MEMORY_BYTES_MAX).contains(&bytes) && session.connection.is_unix();
    let memory = may_lend
        .then(|| datanode.metrics.reserve_lent_bytes(bytes))
        .flatten()
        .map(|counted| PromisedMemory { bytes, counted });
    let range_bytes_max = ReadMany::RANGE_BYTES_MAX;
    session.send(&ReadManyTerms::Accepted { range_bytes_max, takes_memory: memory.is_some() }.encode()).await?;
    Ok(Continuation::ReadMany { memory })
}

/// Memory that a client is about to lend.
pub struct PromisedMemory {
    bytes: u64,
    counted: LentBytes,
}

/// Takes the memory that the client lends, and answers ranges until the client has no more, or none for as long as `read_timeout`.
pub async fn serve_ranges(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    memory: Option<PromisedMemory>,
    place: &hearth_fabric::ConnectionPermit,
) -> Result<(), OpError> {
    session.buffer.release();
    let lent = match memory {
        Some(promised) => ClientMemory::take(session, promised, datanode.options.transfer.read_timeout).await?,
        None => ClientMemory::default(),
    };
    let timeout = datanode.options.transfer.read_timeout;
    session.buffer.grow_to(RECEIVE_BYTES);
    let mut waiting = PendingReads::default();
    let mut ready = ReadyAnswers::default();
    loop {
        let mut wanted = 0;
        // Counted as an operation while something is done, not while the client has nothing to ask.
        let served = datanode.metrics.count_operation();
        while ready.bytes < BATCH_BYTES && waiting.has_room() {
            let peer = session.connection.peer();
            let decoded = RangeRequest::decode(session.buffer.available());
            match decoded.map_err(|source| SessionError::Message { peer, source })? {
                Decoded::Complete(range, consumed) => {
                    session.buffer.consume(consumed);
                    begin(datanode, range, &mut ready, &mut waiting, &lent);
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
            ready.send(datanode, session).await?;
            // One client's many reads leave other connections of this thread their turn.
            tokio::task::consume_budget().await;
            continue;
        }
        drop(served);
        // Something is to be received, or all places of those that wait are taken.
        if waiting.tasks.is_empty() {
            place.mark_idle();
        }
        tokio::select! {
            Some(done) = waiting.tasks.join_next(), if !waiting.tasks.is_empty() => waiting.take(done, &mut ready),
            readable = session.connection.readable(timeout), if waiting.has_room() => {
                match readable {
                    Ok(()) => {}
                    // Nothing to be done for so long, and nobody waits.
                    Err(hearth_fabric::tcp::Error::ReadTimedOut { .. })
                        if session.buffer.available().is_empty() && waiting.tasks.is_empty() => return Ok(()),
                    Err(hearth_fabric::tcp::Error::ReadTimedOut { .. }) if !waiting.tasks.is_empty() => {}
                    Err(error) => return Err(error.into()),
                }
                match session.buffer.try_fill(&session.connection, wanted)? {
                    // The client has no more to ask; what it still waits for is answered.
                    Some(0) if session.buffer.available().is_empty() => return finish(datanode, session, waiting).await,
                    Some(0) => return Err(hearth_fabric::tcp::Error::Closed { peer: session.connection.peer() }.into()),
                    _ => place.mark_busy(),
                }
            }
        }
    }
}

/// Answers what is left after the client's last range.
async fn finish(datanode: &Arc<Datanode>, session: &Session, mut waiting: PendingReads) -> Result<(), OpError> {
    let mut ready = ReadyAnswers::default();
    while let Some(done) = waiting.tasks.join_next().await {
        waiting.take(done, &mut ready);
        ready.send(datanode, session).await?;
    }
    Ok(())
}

/// Memory of the client for answers.
#[derive(Default)]
struct ClientMemory(Option<(Memory, LentBytes)>);

impl ClientMemory {
    /// The memory whose descriptor comes with the next byte. None when it is of no use: all answers go over the connection then.
    async fn take(session: &Session, promised: PromisedMemory, timeout: Duration) -> Result<Self, OpError> {
        if !session.buffer.available().is_empty() {
            return Err(OpError::Malformed("ranges came before the memory that was to be lent"));
        }
        let (received, mut descriptors) = session.connection.receive_with_descriptors(&mut [0; 1], timeout).await?;
        let (1, Some(descriptor), true) = (received, descriptors.pop(), descriptors.is_empty()) else {
            return Err(OpError::Malformed("not one descriptor of memory that was to be lent"));
        };
        let PromisedMemory { bytes, counted } = promised;
        match Memory::of_peer(descriptor, bytes) {
            Ok(memory) => Ok(Self(Some((memory, counted)))),
            Err(error) => {
                tracing::warn!(%error, bytes, "memory that a client lends for answers is of no use");
                Ok(Self(None))
            }
        }
    }

    /// The memory, if `place` lies in it.
    fn memory_at(&self, place: &AnswerSlot) -> Option<&Memory> {
        let (memory, _) = self.0.as_ref()?;
        let end = place.offset.checked_add(u64::from(place.bytes))?;
        (end <= memory.length()).then_some(memory)
    }
}

/// Makes the answer to `range`, or has a task make it.
fn begin(
    datanode: &Arc<Datanode>,
    range: RangeRequest,
    ready: &mut ReadyAnswers,
    waiting: &mut PendingReads,
    lent: &ClientMemory,
) {
    let request = range.request;
    match open_now(datanode, &range) {
        Ok(Some(opened)) if ready.copy_to_client(request, &opened, range.place, lent) => {}
        Ok(Some(opened)) if opened.reader.in_memory() => {
            ready.push(request, opened, datanode.options.transfer.transfer_to)
        }
        Ok(Some(opened)) if ready.push_now(request, &opened) => {}
        Ok(opened) => {
            let bytes = waiting_bytes(&range, opened.as_ref());
            waiting.start(datanode.clone(), range, bytes);
        }
        Err(error) => ready.refuse(request, &error),
    }
}

/// What a range takes while it waits. Nobody knows how long its chunks are before it is opened: those of nearly all are as long as
/// HDFS has them by default.
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

/// Data and CRCs of whole chunks.
fn fetched_bytes(range: ByteRange, checksum: ChecksumSpec) -> u64 {
    range.length() + checksum.checksum_bytes(range.length())
}

/// A replica that may be read, and which of its bytes: whole chunks.
struct OpenedRange {
    reader: ReplicaReader,
    range: ByteRange,
}

impl OpenedRange {
    /// Whole chunks around what is asked for.
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
            return Err(OpError::Malformed("a range is too long to be read with others"));
        }
        Ok(Self { reader, range })
    }

    /// What it takes to be fetched.
    fn memory_bytes(&self) -> u64 {
        fetched_bytes(self.range, self.reader.checksum())
    }

    /// Waits for the disk.
    fn read(self, request: u64, more: Option<OwnedSemaphorePermit>) -> Result<Body, OpError> {
        let mut bytes = Vec::with_capacity(self.memory_bytes() as usize);
        self.reader.checksums(self.range, &mut bytes)?;
        let at = bytes.len();
        bytes.resize(at + self.range.length() as usize, 0);
        self.reader.read_at(self.range.start(), &mut bytes[at..])?;
        Ok(Body { head: self.head(request, false), bytes, _more: more })
    }

    /// `placed`: CRCs and data are in the client's memory, not behind the head.
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

/// `None`: that has to be waited for.
fn open_now(datanode: &Datanode, asked: &RangeRequest) -> Result<Option<OpenedRange>, OpError> {
    let pool = datanode.pools.get(&asked.block.pool).filter(|pool| pool.is_registered());
    let Some(pool) = pool else { return Ok(None) };
    check_token(&pool, &asked.token, &asked.block, AccessMode::Read)?;
    match datanode.store.reader_now(&asked.block)? {
        Reading::Now(reader) => OpenedRange::new(reader, asked).map(Some),
        Reading::OnDisk(_) => Ok(None),
    }
}

/// Answers that can be sent.
#[derive(Default)]
struct ReadyAnswers {
    /// Heads, CRCs, and data that was copied.
    heads: Vec<u8>,
    parts: Vec<AnswerPart>,
    /// Of data.
    bytes: u64,
    ranges: u64,
}

/// A piece of `heads` and what follows it.
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

    /// Puts bytes of a slab and their CRCs into the client's memory. False: there is no room for them, or they lie elsewhere.
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

    /// Bytes of a replica on disk that need not be waited for. False: nothing was added.
    fn push_now(&mut self, request: u64, opened: &OpenedRange) -> bool {
        let start = self.heads.len();
        opened.head(request, false).encode_into(&mut self.heads);
        // An error is one for the task, too.
        let read = opened.reader.read_now(opened.range, &mut self.heads).unwrap_or(false);
        match read {
            true => self.add(start, None, opened.range.length()),
            false => self.heads.truncate(start),
        }
        read
    }

    /// Bytes that a task has read: CRCs, then data.
    fn push_read(&mut self, head: &RangeHead, body: &[u8]) {
        let start = self.heads.len();
        head.encode_into(&mut self.heads);
        self.heads.extend_from_slice(body);
        self.add(start, None, body.len() as u64);
    }

    fn refuse(&mut self, request: u64, error: &OpError) {
        tracing::debug!(error = error as &dyn std::error::Error, "a range is refused");
        let refusal = RangeRefusal { status: error.status(), message: error.text() };
        let start = self.heads.len();
        RangeHead { request, piece: Err(refusal) }.encode_into(&mut self.heads);
        // It counts for something: a thousand refusals are sent at some point, too.
        self.add(start, None, (self.heads.len() - start) as u64);
    }

    fn add(&mut self, start: usize, data: Option<OpenedRange>, bytes: u64) {
        self.bytes += bytes;
        self.ranges += 1;
        let end = self.heads.len();
        // What stands side by side in memory is one part.
        match self.parts.last_mut() {
            Some(last) if last.data.is_none() => {
                last.head.end = end;
                last.data = data;
            }
            _ => self.parts.push(AnswerPart { head: start..end, data }),
        }
    }

    /// Sends all of it, and forgets it.
    async fn send(&mut self, datanode: &Datanode, session: &Session) -> Result<(), OpError> {
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
        datanode.metrics.record_ranges_read(self.ranges, self.bytes);
        datanode.metrics.note_client_activity();
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
    /// For one at a time that turns out to be more than it counts for.
    more: Arc<Semaphore>,
}

struct Fetched {
    request: u64,
    /// What it counts for while it waits.
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

    /// `bytes`: what it counts for.
    fn start(&mut self, datanode: Arc<Datanode>, range: RangeRequest, bytes: u64) {
        let request = range.request;
        self.bytes += bytes;
        let more = self.more.clone();
        self.tasks.spawn(async move {
            let outcome = fetch(&datanode, range, bytes, more).await;
            Fetched { request, bytes, outcome }
        });
    }

    fn take(&mut self, done: Result<Fetched, tokio::task::JoinError>, ready: &mut ReadyAnswers) {
        let Fetched { request, bytes, outcome } = match done {
            Ok(fetched) => fetched,
            // Nobody cancels them.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        self.bytes -= bytes;
        match outcome {
            Ok(body) => ready.push_read(&body.head, &body.bytes),
            Err(error) => ready.refuse(request, &error),
        }
    }
}

/// Reads a range where that may take a while. `counted`: what it counts for.
async fn fetch(
    datanode: &Arc<Datanode>,
    range: RangeRequest,
    counted: u64,
    more: Arc<Semaphore>,
) -> Result<Body, OpError> {
    let pool = datanode.ready_pool(&range.block.pool).await?;
    check_token(&pool, &range.token, &range.block, AccessMode::Read)?;
    let (request, disk_reads) = (range.request, &datanode.disk_reads);
    let opened = match datanode.store.reader_now(&range.block)? {
        Reading::Now(reader) => OpenedRange::new(reader, &range)?,
        Reading::OnDisk(storage) => {
            let store = datanode.store.clone();
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
            Err(_) => return Err(OpError::Refused("another range of long chunks waits for its disk".to_owned())),
        },
    };
    let storage = opened.reader.storage().0.clone();
    disk_reads.run(&storage, move || opened.read(request, more)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_counts_for_the_whole_chunks_that_are_read_for_it() {
        let checksum = ChecksumSpec { bytes_per_chunk: 1 << 20, ..ChecksumSpec::DEFAULT };
        let asked = ByteRange::with_length((3 << 20) + 5, 1).expect("a byte");
        let mut waiting = PendingReads::default();
        let mut ranges = 0;
        while waiting.has_room() {
            waiting.bytes += fetched_bytes(asked.widened(checksum.bytes_per_chunk, 8 << 20), checksum);
            ranges += 1;
        }
        assert_eq!(ranges, WAITING_BYTES_MAX >> 20, "as many as there is room for their chunks");
    }
}
