//! One connection that carries many reads.
//!
//! Whoever asks takes credit, puts his request behind the others', and sends what is there, unless somebody is sending: then that one sends it too. A task
//! receives the answers and hands each to who waits for it. When nobody does any more, the answer is dropped, and its credit is free as well.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use hearth_fabric::stream;
use hearth_fabric::tcp::{Connection, PeerAddress};
use hearth_protocol::data_transfer::{Timeouts, TransferError};
use hearth_types::ByteRange;
use hearth_wire::data_transfer::{
    Decoded, MessageError, Operation, RangeHead, RangePiece, RangeRefusal, RangeRequest, ReadMany, ReadManyTerms,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use super::connection_pool::credit;
use super::shared_memory::{Handshake, ResponseBuffer, SharedMemory};
use super::window::{Sample, Window};
use super::{MultiplexOptions, WantedRange};
use crate::DatanodeError;
use crate::short_circuit::FetchedRange;

/// Memory that answers are received into, a piece at a time; readers hold what they got of it until they have copied that.
const RECEIVE_BYTES: usize = 256 << 10;

/// Ranges that are asked for together at most, and how many such parts the credit is for.
const BATCH_RANGES_MAX: usize = 32;
const BATCHES_IN_CREDIT: u32 = 4;

/// With less room than this left, the next piece of memory is taken.
const RECEIVE_ROOM_BYTES_MIN: usize = 16 << 10;

/// One connection. Ends when it breaks, is closed by the datanode, or was not used for a while.
#[derive(Debug)]
pub(super) struct MultiplexedConnection {
    connection: Connection,
    timeouts: Timeouts,
    expiry: Duration,
    credit: Arc<Semaphore>,
    credit_limit: u32,
    /// Where answers may be put.
    shared_memory: Option<Arc<SharedMemory>>,
    state: Mutex<ConnectionState>,
    ended: AtomicBool,
    /// Something is to be sent that the socket did not take, or the link is to end.
    wake: Notify,
    outstanding: AtomicUsize,
    /// From so many on, nothing more is asked for.
    window: AtomicU32,
    /// Told when there may be room in the window, and when the link has ended.
    freed: Arc<Notify>,
    received: AtomicU64,
    /// How long answers took lately, in microseconds.
    answer_time: AtomicU64,
    /// In microseconds.
    round_trip: AtomicU64,
}

#[derive(Debug)]
struct ConnectionState {
    /// Requests that nobody has sent.
    unsent: Vec<u8>,
    /// Somebody sends, or waits until the socket takes more.
    sending: bool,
    /// The socket takes no more: the task waits for it.
    blocked: bool,
    next_request: u64,
    pending: HashMap<u64, PendingRange>,
    window: Window,
    failure: Option<ConnectionFailure>,
}

/// A range that was asked for.
#[derive(Debug)]
struct PendingRange {
    range: ByteRange,
    since: Instant,
    /// Bytes that were outstanding then, its own among them.
    outstanding_then: usize,
    answer: oneshot::Sender<RangeResponse>,
    permit: OwnedSemaphorePermit,
    place: Option<ResponseBuffer>,
}

/// What has come for a range, and the credit that it took: free again when this is dropped, so that whoever keeps it until he has copied
/// the bytes bounds what lies in memory uncopied.
#[derive(Debug)]
pub(super) struct ReceivedRange {
    pub fetched: FetchedRange,
    pub permit: OwnedSemaphorePermit,
}

pub(super) type RangeResponse = Result<ReceivedRange, RangeRefusal>;

/// Credit for some ranges.
#[derive(Debug)]
pub(super) struct Credit(OwnedSemaphorePermit);

/// Its answer is on its way.
#[derive(Debug)]
pub(super) struct PendingResponse(oneshot::Receiver<RangeResponse>);

/// Why a connection is of no use any more, for each of those who wait on it.
#[derive(Clone, Debug)]
pub(super) enum ConnectionFailure {
    Connection(Arc<TransferError>),
    Misbehaviour { peer: PeerAddress, what: Arc<str> },
}

impl ConnectionFailure {
    pub(super) fn misbehaviour(peer: PeerAddress, what: String) -> Self {
        Self::Misbehaviour { peer, what: what.into() }
    }

    /// It does not want to answer many reads.
    pub(super) fn refused(peer: PeerAddress, refusal: &RangeRefusal) -> Self {
        Self::misbehaviour(peer, format!("READ_MANY: {:?}: {}", refusal.status, refusal.message))
    }

    /// The datanode closed it. One that said nothing for as long as is borne has not: to ask it again takes as long.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_closed())
    }

    /// The datanode does not keep to the protocol.
    pub(super) fn is_misbehaviour(&self) -> bool {
        matches!(self, Self::Misbehaviour { .. })
    }
}

impl From<stream::Error> for ConnectionFailure {
    fn from(error: stream::Error) -> Self {
        Self::Connection(Arc::new(error.into()))
    }
}

impl From<ConnectionFailure> for DatanodeError {
    fn from(failure: ConnectionFailure) -> Self {
        match failure {
            ConnectionFailure::Connection(source) => Self::SharedConnection { source },
            ConnectionFailure::Misbehaviour { peer, what } => Self::Protocol { peer, what: what.to_string() },
        }
    }
}

/// A link that ends, at the latest, with the task that receives on it: that may end with its runtime, and then nobody hands out answers.
struct ReceiveGuard(Arc<MultiplexedConnection>);

impl Drop for ReceiveGuard {
    fn drop(&mut self) {
        let Self(connection) = self;
        // Unless it has ended before, and why is known.
        connection.end(stream::Error::Closed { peer: connection.connection.peer() }.into());
    }
}

/// Receives until the link ends, and tells everybody why.
async fn run(receive_guard: ReceiveGuard, has_terms: bool) {
    let ReceiveGuard(connection) = &receive_guard;
    connection.flush();
    if let Err(failure) = connection.receive(has_terms).await {
        tracing::debug!(peer = %connection.connection.peer(), ?failure, "a connection of many reads ends");
        connection.end(failure);
    }
}

impl MultiplexedConnection {
    /// Makes `connection` one of many reads, unless its `handshake` has. `freed`: told when more may be asked for on it.
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

    /// Asked for, and not yet there.
    pub(super) fn outstanding_bytes(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    fn window_bytes(&self) -> u32 {
        self.window.load(Ordering::Relaxed)
    }

    /// Only the credit bounds what is asked for: the way is short, or carries as much.
    pub(super) fn is_credit_limited(&self) -> bool {
        self.window_bytes() >= self.credit_limit
    }

    /// What is outstanding is enough for as long as is looked ahead on a long way.
    pub(super) fn is_window_full(&self) -> bool {
        !self.is_credit_limited() && self.outstanding_bytes() >= self.window_bytes() as usize
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// How long answers took lately.
    pub(super) fn answer_time(&self) -> Duration {
        Duration::from_micros(self.answer_time.load(Ordering::Relaxed))
    }

    /// The shortest time in which the connection was made, or anything answered.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip.load(Ordering::Relaxed))
    }

    /// Nobody asks for anything any more.
    pub(super) fn close(&self) {
        self.connection.shutdown();
    }

    /// How many of `wanted`, from the first on, are asked for together: a part of the credit's, or of the window's, so that others have
    /// some too.
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

    /// Credit for `wanted`, one or a batch, if there is as much now.
    pub(super) fn try_credit(&self, wanted: &[WantedRange<'_>]) -> Option<Credit> {
        Arc::clone(&self.credit).try_acquire_many_owned(self.credit_for(wanted)).ok().map(Credit)
    }

    /// As `try_credit`, and waits for it. Only for who holds none: he might wait for himself.
    pub(super) async fn credit(&self, wanted: &[WantedRange<'_>]) -> Result<Credit, ConnectionFailure> {
        let acquired = Arc::clone(&self.credit).acquire_many_owned(self.credit_for(wanted));
        match tokio::time::timeout(self.timeouts.read, acquired).await {
            Ok(Ok(permit)) => Ok(Credit(permit)),
            Ok(Err(_)) => Err(self.failure()),
            Err(_) => Err(self.timed_out().into()),
        }
    }

    /// Waits for credit, and asks.
    pub(super) async fn request(&self, wanted: WantedRange<'_>) -> Result<PendingResponse, ConnectionFailure> {
        let credit = match self.try_credit(&[wanted]) {
            Some(credit) => Ok(credit),
            None => self.credit(&[wanted]).await,
        };
        let asked = self.enqueue(wanted, &mut credit?);
        self.flush();
        asked
    }

    /// Puts the request behind the others; `flush` sends it. `credit`: for this range, or with it for more.
    pub(super) fn enqueue(
        &self,
        wanted: WantedRange<'_>,
        credit: &mut Credit,
    ) -> Result<PendingResponse, ConnectionFailure> {
        let since = Instant::now();
        let bytes = self.credit_for(&[wanted]);
        let permit = credit.0.split(bytes as usize).expect("the credit is for this range, too");
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
        };
        message.encode_into(&mut state.unsent);
        let outstanding_then = self.outstanding.fetch_add(bytes as usize, Ordering::Relaxed) + bytes as usize;
        state.pending.insert(request, PendingRange { range, since, outstanding_then, answer, permit, place });
        Ok(PendingResponse(answered))
    }

    /// The answer to what was asked. Can be waited for again when this is dropped.
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

    /// Why it has ended.
    pub(super) fn failure(&self) -> ConnectionFailure {
        let failure = self.state.lock().failure.clone();
        failure.unwrap_or_else(|| stream::Error::Closed { peer: self.connection.peer() }.into())
    }

    /// Sends what is there, as far as the socket takes it now; the rest, the task sends. Never waits.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        if !state.sending {
            state.sending = true;
            self.send(state);
        }
    }

    /// Called by who has set `sending`.
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
                        // The task sees the end of the connection and tells everybody.
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
                // Its memory serves the next.
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
        // Their senders are dropped: that is how they hear of it.
        drop(pending);
    }

    /// Ends with `Ok` when the link was not used for long.
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

    /// Waits for something to receive, and sends meanwhile. False when nobody has used the link for long.
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
                        // Somebody has come meanwhile, and has all his time before him.
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

    /// Hands out the whole answers at the front of `buffer`. How many bytes the next one lacks.
    fn take_answers(&self, buffer: &mut BytesMut, has_terms: &mut bool) -> Result<usize, ConnectionFailure> {
        let mut answers = Vec::new();
        let outcome = self.decode_answers(buffer, has_terms, &mut answers);
        // The last first: who reads many waits for the first of them, and finds the others when that one wakes him.
        for (pending, answer) in answers.into_iter().rev() {
            // Who does not wait any more does not get it.
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

    /// What has come for a range, and who waits for it.
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
            return Err(self.misbehaviour(format!("an answer to request {}, which is not one", head.request)));
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
        // Where it is wide nobody waits for room, but for credit. Also when it has just become so: who waits is to see that.
        if !self.is_credit_limited() || self.window_bytes() != window {
            self.window.store(window, Ordering::Relaxed);
            self.freed.notify_one();
        }
        let fetched = match head.piece {
            Ok(piece) if piece.placed => {
                let filled = place.and_then(|place| place.filled(&piece));
                let body =
                    filled.ok_or_else(|| self.misbehaviour("an answer in a place that it has not".to_owned()))?;
                self.received.fetch_add(body.len() as u64, Ordering::Relaxed);
                Ok(self.fit(range, piece, body)?)
            }
            Ok(piece) => Ok(self.fit(range, piece, body)?),
            Err(refusal) => Err(refusal),
        };
        Ok((answer, fetched.map(|fetched| ReceivedRange { fetched, permit })))
    }

    /// `body` as what was asked for: the chunks that `range` touches and no others.
    fn fit(&self, range: ByteRange, piece: RangePiece, mut body: Bytes) -> Result<FetchedRange, ConnectionFailure> {
        let chunk = u64::from(piece.checksum.bytes_per_chunk.max(1));
        let (start, end) = (piece.offset, piece.offset.saturating_add(u64::from(piece.data_bytes)));
        let fits = start % chunk == 0
            && start <= range.start()
            && range.start() - start < chunk
            && end >= range.end()
            && end - range.end() < chunk;
        if !fits {
            let what = format!("bytes {start}..{end} for {}..{}", range.start(), range.end());
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
