//! One connection that carries many reads.
//!
//! A read takes credit, appends its request to the unsent requests, and sends all of them. If another task is already
//! sending, that task sends the new request too. A background task receives the answers and passes each to the read
//! that waits for it. If a read was dropped, its answer is discarded, and its credit is free again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hearth_fabric::stream;
use hearth_fabric::tcp::Connection;
use hearth_protocol::data_transfer::Timeouts;
use hearth_protocol::trace;
use hearth_types::{ByteRange, ExtendedBlock, Token};
use hearth_wire::data_transfer::{
    Decoded, MessageError, Operation, RangeHead, RangePiece, RangeRefusal, RangeRequest, ReadMany, ReadManyTerms,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use super::failure::ConnectionFailure;
use super::shared_memory::{Handshake, ResponseBuffer, SharedMemory};
use super::window::{Sample, Window};
use crate::checksummed::FetchedRange;
use crate::options::MultiplexOptions;

/// Size of the pieces of memory that answers are received into. Readers hold their part of a piece until they have
/// copied it.
const RECEIVE_BYTES: usize = 256 << 10;

/// Maximum number of ranges requested together, and the number of such batches that the credit is divided into.
const BATCH_RANGES_MAX: usize = 32;
const BATCHES_IN_CREDIT: u32 = 4;

/// With less room than this left, the next piece of memory is allocated.
const RECEIVE_ROOM_BYTES_MIN: usize = 16 << 10;

/// A requested range of a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedRange<'a> {
    pub block: &'a ExtendedBlock,
    pub token: &'a Token,
    pub range: ByteRange,
}

/// One connection. Ends when it breaks, when the datanode closes it, or when it was idle for a while.
#[derive(Debug)]
pub(super) struct MultiplexedConnection {
    connection: Connection,
    timeouts: Timeouts,
    expiry: Duration,
    credit: Arc<Semaphore>,
    credit_limit: u32,
    /// Memory into which the datanode may put answers.
    shared_memory: Option<Arc<SharedMemory>>,
    state: Mutex<ConnectionState>,
    ended: AtomicBool,
    /// Signalled when the socket did not accept all unsent bytes.
    wake: Notify,
    outstanding: AtomicUsize,
    /// Once this many bytes are outstanding, no more are requested.
    window: AtomicU32,
    /// Notified when there may be room in the window, and when the connection has ended.
    freed: Arc<Notify>,
    received: AtomicU64,
    /// Moving average of the answer time, in microseconds.
    answer_time: AtomicU64,
    /// Shortest round trip seen, in microseconds.
    round_trip: AtomicU64,
}

#[derive(Debug)]
struct ConnectionState {
    /// Requests not yet sent.
    unsent: Vec<u8>,
    /// A task is sending, or the background task waits until the socket accepts more.
    sending: bool,
    /// The socket accepts no more bytes; the background task waits for it.
    blocked: bool,
    next_request: u64,
    pending: HashMap<u64, PendingRange>,
    window: Window,
    failure: Option<ConnectionFailure>,
}

/// A requested range.
#[derive(Debug)]
struct PendingRange {
    range: ByteRange,
    since: Instant,
    /// Bytes that were outstanding when it was requested, including its own.
    outstanding_then: usize,
    answer: oneshot::Sender<RangeResponse>,
    permit: OwnedSemaphorePermit,
    place: Option<ResponseBuffer>,
}

/// Bytes received for a range, with the credit that they took. The credit is released on drop, so a reader that holds
/// it until it has copied the bytes bounds the uncopied bytes in memory.
#[derive(Debug)]
pub(super) struct ReceivedRange {
    pub fetched: FetchedRange,
    pub permit: OwnedSemaphorePermit,
}

pub(super) type RangeResponse = Result<ReceivedRange, RangeRefusal>;

/// Credit for one or more ranges.
#[derive(Debug)]
pub(super) struct Credit(OwnedSemaphorePermit);

/// A requested range whose answer has not arrived yet.
#[derive(Debug)]
pub(super) struct PendingResponse(oneshot::Receiver<RangeResponse>);

/// Returns the credit that a range takes: approximately its data, the chunks around it, CRCs and head.
fn credit(range: ByteRange, limit: u32) -> u32 {
    let length = range.length().min(u64::from(limit));
    u32::try_from(length + length / 100 + 1536).unwrap_or(u32::MAX).min(limit)
}

/// Ends the connection, at the latest, with the task that receives on it. The task may end with its runtime, and then
/// no more answers are delivered.
struct ReceiveGuard(Arc<MultiplexedConnection>);

impl Drop for ReceiveGuard {
    fn drop(&mut self) {
        let Self(connection) = self;
        // Has no effect if the connection has already ended, with a known reason.
        connection.end(stream::Error::Closed { peer: connection.connection.peer() }.into());
    }
}

/// Receives until the connection ends, and reports the reason to all waiters.
async fn run(receive_guard: ReceiveGuard, has_terms: bool) {
    let ReceiveGuard(connection) = &receive_guard;
    connection.flush();
    if let Err(failure) = connection.receive(has_terms).await {
        tracing::debug!(peer = %connection.connection.peer(), ?failure, "shared connection ended");
        connection.end(failure);
    }
}

impl MultiplexedConnection {
    /// Starts READ_MANY on `connection`, unless its `handshake` has done so. `freed`: notified when more may be
    /// requested on it.
    pub(super) fn start(
        connection: Connection,
        handshake: Handshake,
        round_trip: Duration,
        options: &MultiplexOptions,
        client_name: &str,
        freed: Arc<Notify>,
    ) -> Arc<Self> {
        let Handshake { has_terms, shared_memory } = handshake;
        let request = Operation::ReadMany(ReadMany { client_name: client_name.to_owned(), memory_bytes: 0 });
        let unsent = if has_terms { Vec::new() } else { request.encode() };
        let window = Window::new(options.outstanding_bytes, options.lan_round_trip_max, round_trip);
        let window_bytes = window.bytes();
        let state = ConnectionState {
            unsent,
            sending: false,
            blocked: false,
            next_request: 0,
            pending: HashMap::new(),
            window,
            failure: None,
        };
        let connection = Arc::new(Self {
            connection,
            timeouts: options.timeouts,
            expiry: options.expiry,
            credit: Arc::new(Semaphore::new(options.outstanding_bytes as usize)),
            credit_limit: options.outstanding_bytes,
            shared_memory,
            state: Mutex::new(state),
            ended: AtomicBool::new(false),
            wake: Notify::new(),
            outstanding: AtomicUsize::new(0),
            window: AtomicU32::new(window_bytes),
            freed,
            received: AtomicU64::new(0),
            answer_time: AtomicU64::new(0),
            round_trip: AtomicU64::new(microseconds(round_trip)),
        });
        tokio::spawn(run(ReceiveGuard(Arc::clone(&connection)), has_terms));
        connection
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the number of bytes requested and not yet received.
    pub(super) fn outstanding_bytes(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    fn window_bytes(&self) -> u32 {
        self.window.load(Ordering::Relaxed)
    }

    /// Returns true if only the credit limits the requests: the round trip is short, or the window is as large as the
    /// credit.
    pub(super) fn is_credit_limited(&self) -> bool {
        self.window_bytes() >= self.credit_limit
    }

    /// Returns true if enough bytes are outstanding for the target time of the window. Always false if only the credit
    /// limits.
    pub(super) fn is_window_full(&self) -> bool {
        !self.is_credit_limited() && self.outstanding_bytes() >= self.window_bytes() as usize
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the moving average of the answer time.
    pub(super) fn answer_time(&self) -> Duration {
        Duration::from_micros(self.answer_time.load(Ordering::Relaxed))
    }

    /// Returns the shortest time of the connection set-up or of any answer.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip.load(Ordering::Relaxed))
    }

    /// Closes the connection. No requests may follow.
    pub(super) fn close(&self) {
        self.connection.shutdown();
    }

    /// Returns how many of `wanted`, from the first on, are requested together. This is a part of the credit or of the
    /// window, so that other reads get some too.
    pub(super) fn batch_len(&self, wanted: &[WantedRange<'_>]) -> usize {
        let most = self.window_bytes().min(self.credit_limit) / BATCHES_IN_CREDIT;
        let mut bytes = 0;
        let fits = |wanted: &&WantedRange<'_>| {
            bytes += credit(wanted.range, self.credit_limit);
            bytes <= most
        };
        wanted.iter().take(BATCH_RANGES_MAX).take_while(fits).count().max(1)
    }

    fn credit_for(&self, wanted: &[WantedRange<'_>]) -> u32 {
        let all = wanted.iter().map(|wanted| credit(wanted.range, self.credit_limit));
        all.fold(0, u32::saturating_add).min(self.credit_limit)
    }

    /// Returns credit for `wanted`, one range or a batch, if it is available now.
    pub(super) fn try_credit(&self, wanted: &[WantedRange<'_>]) -> Option<Credit> {
        Arc::clone(&self.credit).try_acquire_many_owned(self.credit_for(wanted)).ok().map(Credit)
    }

    /// Like `try_credit`, but waits. The caller must hold no credit of this connection, otherwise it could wait for
    /// itself.
    pub(super) async fn credit(&self, wanted: &[WantedRange<'_>]) -> Result<Credit, ConnectionFailure> {
        let acquired = Arc::clone(&self.credit).acquire_many_owned(self.credit_for(wanted));
        match tokio::time::timeout(self.timeouts.read, acquired).await {
            Ok(Ok(permit)) => Ok(Credit(permit)),
            Ok(Err(_)) => Err(self.failure()),
            Err(_) => Err(self.timed_out().into()),
        }
    }

    /// Waits for credit and sends the request.
    pub(super) async fn request(&self, wanted: WantedRange<'_>) -> Result<PendingResponse, ConnectionFailure> {
        let credit = match self.try_credit(&[wanted]) {
            Some(credit) => Ok(credit),
            None => self.credit(&[wanted]).await,
        };
        let asked = self.enqueue(wanted, &mut credit?);
        self.flush();
        asked
    }

    /// Appends the request to the unsent ones; `flush` sends it. `credit`: for this range, and possibly for more
    /// ranges.
    pub(super) fn enqueue(
        &self,
        wanted: WantedRange<'_>,
        credit: &mut Credit,
    ) -> Result<PendingResponse, ConnectionFailure> {
        let since = Instant::now();
        let bytes = self.credit_for(&[wanted]);
        let permit = credit.0.split(bytes as usize).expect("the credit covers this range");
        let place = self.shared_memory.as_ref().and_then(|shared_memory| shared_memory.take(wanted.range.length()));
        let (answer, answered) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let request = state.next_request;
        state.next_request += 1;
        let WantedRange { block, token, range } = wanted;
        let message = RangeRequest {
            request,
            block: block.clone(),
            token: token.clone(),
            range,
            place: place.as_ref().map(ResponseBuffer::name),
            trace: trace::current(),
        };
        message.encode_into(&mut state.unsent);
        let outstanding_then = self.outstanding.fetch_add(bytes as usize, Ordering::Relaxed) + bytes as usize;
        state.pending.insert(request, PendingRange { range, since, outstanding_then, answer, permit, place });
        Ok(PendingResponse(answered))
    }

    /// Waits for the answer to a request. Cancel safe: can be called again.
    pub(super) async fn answer(&self, asked: &mut PendingResponse) -> Result<RangeResponse, ConnectionFailure> {
        match tokio::time::timeout(self.timeouts.read, &mut asked.0).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(self.failure()),
            Err(_) => Err(self.timed_out().into()),
        }
    }

    pub(super) fn timed_out(&self) -> stream::Error {
        stream::Error::ReadTimedOut { peer: self.connection.peer(), after: self.timeouts.read }
    }

    /// Returns the reason why the connection has ended.
    pub(super) fn failure(&self) -> ConnectionFailure {
        let failure = self.state.lock().failure.clone();
        failure.unwrap_or_else(|| stream::Error::Closed { peer: self.connection.peer() }.into())
    }

    /// Sends the unsent requests as far as the socket accepts them now. The background task sends the rest. Never
    /// waits.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        if !state.sending {
            state.sending = true;
            self.send(state);
        }
    }

    /// Sends the unsent requests. The caller must have set `sending`.
    fn send<'a>(&'a self, mut state: parking_lot::MutexGuard<'a, ConnectionState>) {
        loop {
            if state.unsent.is_empty() {
                state.sending = false;
                return;
            }
            let bytes = std::mem::take(&mut state.unsent);
            drop(state);
            let mut sent = 0;
            let blocked = loop {
                if sent == bytes.len() {
                    break false;
                }
                match self.connection.try_write(&bytes[sent..]) {
                    Ok(Some(count)) => sent += count,
                    Ok(None) => break true,
                    Err(_) => {
                        // The background task sees the end of the connection and reports it to all waiters.
                        self.connection.shutdown();
                        break true;
                    }
                }
            };
            state = self.state.lock();
            if blocked {
                let mut rest = bytes[sent..].to_vec();
                rest.append(&mut state.unsent);
                state.unsent = rest;
                state.blocked = true;
                drop(state);
                self.wake.notify_one();
                return;
            }
            if state.unsent.is_empty() {
                // Reuse the buffer for the next requests.
                state.unsent = bytes;
                state.unsent.clear();
            }
        }
    }

    fn end(&self, failure: ConnectionFailure) {
        let pending = {
            let mut state = self.state.lock();
            state.failure.get_or_insert(failure);
            std::mem::take(&mut state.pending)
        };
        self.ended.store(true, Ordering::Release);
        self.credit.close();
        self.freed.notify_one();
        self.connection.shutdown();
        // Dropping the senders notifies the waiters.
        drop(pending);
    }

    /// Receives answers until the connection ends. Returns `Ok` if it was idle for long.
    async fn receive(&self, mut has_terms: bool) -> Result<(), ConnectionFailure> {
        let mut buffer = BytesMut::with_capacity(RECEIVE_BYTES);
        loop {
            let missing = self.take_answers(&mut buffer, &mut has_terms)?;
            if buffer.capacity() - buffer.len() < missing.max(RECEIVE_ROOM_BYTES_MIN) {
                buffer.reserve(missing.max(RECEIVE_BYTES));
            }
            match self.connection.try_read_buf(&mut buffer)? {
                Some(0) => return Err(stream::Error::Closed { peer: self.connection.peer() }.into()),
                Some(_) => tokio::task::consume_budget().await,
                None => {
                    if !self.wait().await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits for bytes to receive, and sends unsent requests in the meantime. Returns false if the connection was idle
    /// for long.
    async fn wait(&self) -> Result<bool, ConnectionFailure> {
        loop {
            let (idle, blocked) = {
                let state = self.state.lock();
                (state.pending.is_empty(), state.blocked)
            };
            let patience = if idle { self.expiry } else { self.timeouts.read };
            tokio::select! {
                readable = self.connection.readable(patience) => match readable {
                    Ok(()) => return Ok(true),
                    Err(stream::Error::ReadTimedOut { .. }) if idle => {
                        let mut state = self.state.lock();
                        if state.pending.is_empty() {
                            state.failure = Some(stream::Error::Closed { peer: self.connection.peer() }.into());
                            return Ok(false);
                        }
                        // A request arrived in the meantime: wait for its full time-out.
                    }
                    Err(error) => return Err(error.into()),
                },
                writable = self.connection.writable(self.timeouts.write), if blocked => {
                    writable?;
                    let mut state = self.state.lock();
                    state.blocked = false;
                    self.send(state);
                }
                () = self.wake.notified() => {}
            }
        }
    }

    /// Delivers the complete answers at the front of `buffer`. Returns the number of bytes missing of the next one.
    fn take_answers(&self, buffer: &mut BytesMut, has_terms: &mut bool) -> Result<usize, ConnectionFailure> {
        let mut answers = Vec::new();
        let outcome = self.decode_answers(buffer, has_terms, &mut answers);
        // In reverse order: a reader of many ranges waits for the first, and finds the others when that one wakes it.
        for (pending, answer) in answers.into_iter().rev() {
            // The send fails if the read was dropped.
            let _ = pending.send(answer);
        }
        outcome
    }

    fn decode_answers(
        &self,
        buffer: &mut BytesMut,
        has_terms: &mut bool,
        answers: &mut Vec<(oneshot::Sender<RangeResponse>, RangeResponse)>,
    ) -> Result<usize, ConnectionFailure> {
        let unreadable = |source: MessageError| self.misbehaviour(source.to_string());
        if !*has_terms {
            match ReadManyTerms::decode(buffer).map_err(unreadable)? {
                Decoded::Needs(missing) => return Ok(missing),
                Decoded::Complete(ReadManyTerms::Accepted { .. }, consumed) => {
                    buffer.advance(consumed);
                    *has_terms = true;
                }
                Decoded::Complete(ReadManyTerms::Refused(refusal), _) => {
                    return Err(ConnectionFailure::refused(self.connection.peer(), &refusal));
                }
            }
        }
        loop {
            let (head, head_bytes) = match RangeHead::decode(buffer).map_err(unreadable)? {
                Decoded::Needs(missing) => return Ok(missing),
                Decoded::Complete(head, consumed) => (head, consumed),
            };
            let whole = head_bytes + head.following_bytes();
            if buffer.len() < whole {
                return Ok(whole - buffer.len());
            }
            buffer.advance(head_bytes);
            let body = buffer.split_to(head.following_bytes()).freeze();
            self.received.fetch_add(whole as u64, Ordering::Relaxed);
            answers.push(self.answered(head, body)?);
        }
    }

    /// Returns the answer to a range, with the sender to deliver it to.
    fn answered(
        &self,
        head: RangeHead,
        body: Bytes,
    ) -> Result<(oneshot::Sender<RangeResponse>, RangeResponse), ConnectionFailure> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(PendingRange { range, since, outstanding_then, answer, permit, place }) =
            state.pending.remove(&head.request)
        else {
            return Err(self.misbehaviour(format!("answer to unknown request {}", head.request)));
        };
        let (bytes, took) = (permit.num_permits(), now.saturating_duration_since(since));
        state.window.update(Sample { bytes: bytes as u32, outstanding: outstanding_then, elapsed: took });
        let (window, round_trip) = (state.window.bytes(), state.window.round_trip());
        drop(state);
        self.outstanding.fetch_sub(bytes, Ordering::Relaxed);
        // Only this task writes these.
        let lately = self.answer_time.load(Ordering::Relaxed);
        self.answer_time.store(lately - lately / 8 + microseconds(took) / 8, Ordering::Relaxed);
        self.round_trip.store(microseconds(round_trip), Ordering::Relaxed);
        // If only the credit limits, reads wait for credit and not for room in the window. Notify once more when this
        // has just become so, so that those that wait for room see it.
        if !self.is_credit_limited() || self.window_bytes() != window {
            self.window.store(window, Ordering::Relaxed);
            self.freed.notify_one();
        }
        let fetched = match head.piece {
            Ok(piece) if piece.placed => {
                let filled = place.and_then(|place| place.filled(&piece));
                let body =
                    filled.ok_or_else(|| self.misbehaviour("answer in a memory slot that was not lent".to_owned()))?;
                self.received.fetch_add(body.len() as u64, Ordering::Relaxed);
                Ok(self.fit(range, piece, body)?)
            }
            Ok(piece) => Ok(self.fit(range, piece, body)?),
            Err(refusal) => Err(refusal),
        };
        Ok((answer, fetched.map(|fetched| ReceivedRange { fetched, permit })))
    }

    /// Checks that `body` contains exactly the chunks that `range` touches.
    fn fit(&self, range: ByteRange, piece: RangePiece, mut body: Bytes) -> Result<FetchedRange, ConnectionFailure> {
        let chunk = u64::from(piece.checksum.bytes_per_chunk.max(1));
        let (start, end) = (piece.offset, piece.offset.saturating_add(u64::from(piece.data_bytes)));
        let fits = start % chunk == 0
            && start <= range.start()
            && range.start() - start < chunk
            && end >= range.end()
            && end - range.end() < chunk;
        if !fits {
            let what = format!("bytes {start}..{end} instead of {}..{}", range.start(), range.end());
            return Err(self.misbehaviour(what));
        }
        let checksums = body.split_to(piece.checksum_bytes());
        Ok(FetchedRange::new(start, body, checksums, piece.checksum))
    }

    fn misbehaviour(&self, what: String) -> ConnectionFailure {
        ConnectionFailure::misbehaviour(self.connection.peer(), what)
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
