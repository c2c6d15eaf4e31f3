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
    Decoded, ManyHead, ManyPiece, ManyRange, ManyRefusal, ManyTerms, MessageError, Operation, ReadMany,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use super::lent::{Begun, Lent, Place};
use super::links::credit;
use super::window::{Came, Window};
use super::{MultiplexOptions, Wanted};
use crate::DatanodeError;
use crate::local::Fetched;

/// Memory that answers are received into, a piece at a time; readers hold what they got of it until they have copied that.
const RECEIVE_BYTES: usize = 256 << 10;

/// Ranges that are asked for together at most, and how many such parts the credit is for.
const PART: usize = 32;
const PARTS: u32 = 4;

/// With less room than this left, the next piece of memory is taken.
const ROOM_BYTES: usize = 16 << 10;

/// One connection. Ends when it breaks, is closed by the datanode, or was not used for a while.
#[derive(Debug)]
pub(super) struct Link {
    connection: Connection,
    timeouts: Timeouts,
    expiry: Duration,
    credit: Arc<Semaphore>,
    credit_limit: u32,
    /// Where answers may be put.
    lent: Option<Arc<Lent>>,
    state: Mutex<State>,
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
struct State {
    /// Requests that nobody has sent.
    unsent: Vec<u8>,
    /// Somebody sends, or waits until the socket takes more.
    sending: bool,
    /// The socket takes no more: the task waits for it.
    blocked: bool,
    next_request: u64,
    waiting: HashMap<u64, Waiting>,
    window: Window,
    failure: Option<Failure>,
}

/// A range that was asked for.
#[derive(Debug)]
struct Waiting {
    range: ByteRange,
    since: Instant,
    /// Bytes that were outstanding then, its own among them.
    behind: usize,
    answer: oneshot::Sender<Answer>,
    permit: OwnedSemaphorePermit,
    place: Option<Place>,
}

/// What has come for a range, and the credit that it took: free again when this is dropped, so that whoever keeps it until he has copied
/// the bytes bounds what lies in memory uncopied.
#[derive(Debug)]
pub(super) struct Arrived {
    pub fetched: Fetched,
    pub permit: OwnedSemaphorePermit,
}

pub(super) type Answer = Result<Arrived, ManyRefusal>;

/// Credit for some ranges.
#[derive(Debug)]
pub(super) struct Credit(OwnedSemaphorePermit);

/// Its answer is on its way.
#[derive(Debug)]
pub(super) struct Asked(oneshot::Receiver<Answer>);

/// Why a connection is of no use any more, for each of those who wait on it.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Connection(Arc<TransferError>),
    Misbehaviour { peer: PeerAddress, what: Arc<str> },
}

impl Failure {
    pub(super) fn misbehaviour(peer: PeerAddress, what: String) -> Self {
        Self::Misbehaviour { peer, what: what.into() }
    }

    /// It does not want to answer many reads.
    pub(super) fn refused(peer: PeerAddress, refusal: &ManyRefusal) -> Self {
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

impl From<stream::Error> for Failure {
    fn from(error: stream::Error) -> Self {
        Self::Connection(Arc::new(error.into()))
    }
}

impl From<Failure> for DatanodeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Connection(source) => Self::Shared { source },
            Failure::Misbehaviour { peer, what } => Self::Protocol { peer, what: what.to_string() },
        }
    }
}

/// A link that ends, at the latest, with the task that receives on it: that may end with its runtime, and then nobody hands out answers.
struct Receiving(Arc<Link>);

impl Drop for Receiving {
    fn drop(&mut self) {
        let Self(link) = self;
        // Unless it has ended before, and why is known.
        link.end(stream::Error::Closed { peer: link.connection.peer() }.into());
    }
}

/// Receives until the link ends, and tells everybody why.
async fn run(receiving: Receiving, has_terms: bool) {
    let Receiving(link) = &receiving;
    link.flush();
    if let Err(failure) = link.receive(has_terms).await {
        tracing::debug!(peer = %link.connection.peer(), ?failure, "a connection of many reads ends");
        link.end(failure);
    }
}

impl Link {
    /// Makes `connection` one of many reads, unless it has `begun` to be one. `freed`: told when more may be asked for on it.
    pub(super) fn start(
        connection: Connection,
        begun: Begun,
        round_trip: Duration,
        options: &MultiplexOptions,
        client_name: &str,
        freed: Arc<Notify>,
    ) -> Arc<Self> {
        let Begun { has_terms, lent } = begun;
        let request = Operation::ReadMany(ReadMany { client_name: client_name.to_owned(), memory_bytes: 0 });
        let unsent = if has_terms { Vec::new() } else { request.encode() };
        let window = Window::new(options.outstanding_bytes, options.near, round_trip);
        let window_bytes = window.bytes();
        let state = State {
            unsent,
            sending: false,
            blocked: false,
            next_request: 0,
            waiting: HashMap::new(),
            window,
            failure: None,
        };
        let link = Arc::new(Self {
            connection,
            timeouts: options.timeouts,
            expiry: options.expiry,
            credit: Arc::new(Semaphore::new(options.outstanding_bytes as usize)),
            credit_limit: options.outstanding_bytes,
            lent,
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
        tokio::spawn(run(Receiving(Arc::clone(&link)), has_terms));
        link
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
    pub(super) fn is_wide(&self) -> bool {
        self.window_bytes() >= self.credit_limit
    }

    /// What is outstanding is enough for as long as is looked ahead on a long way.
    pub(super) fn is_full(&self) -> bool {
        !self.is_wide() && self.outstanding_bytes() >= self.window_bytes() as usize
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
    pub(super) fn part(&self, wanted: &[Wanted<'_>]) -> usize {
        let most = self.window_bytes().min(self.credit_limit) / PARTS;
        let mut bytes = 0;
        let fits = |wanted: &&Wanted<'_>| {
            bytes += credit(wanted.range, self.credit_limit);
            bytes <= most
        };
        wanted.iter().take(PART).take_while(fits).count().max(1)
    }

    fn credit_for(&self, wanted: &[Wanted<'_>]) -> u32 {
        let all = wanted.iter().map(|wanted| credit(wanted.range, self.credit_limit));
        all.fold(0, u32::saturating_add).min(self.credit_limit)
    }

    /// Credit for `wanted`, one or a `part`, if there is as much now.
    pub(super) fn try_credit(&self, wanted: &[Wanted<'_>]) -> Option<Credit> {
        Arc::clone(&self.credit).try_acquire_many_owned(self.credit_for(wanted)).ok().map(Credit)
    }

    /// As `try_credit`, and waits for it. Only for who holds none: he might wait for himself.
    pub(super) async fn credit(&self, wanted: &[Wanted<'_>]) -> Result<Credit, Failure> {
        let acquired = Arc::clone(&self.credit).acquire_many_owned(self.credit_for(wanted));
        match tokio::time::timeout(self.timeouts.read, acquired).await {
            Ok(Ok(permit)) => Ok(Credit(permit)),
            Ok(Err(_)) => Err(self.failure()),
            Err(_) => Err(self.timed_out().into()),
        }
    }

    /// Waits for credit, and asks.
    pub(super) async fn ask_alone(&self, wanted: Wanted<'_>) -> Result<Asked, Failure> {
        let credit = match self.try_credit(&[wanted]) {
            Some(credit) => Ok(credit),
            None => self.credit(&[wanted]).await,
        };
        let asked = self.ask(wanted, &mut credit?);
        self.flush();
        asked
    }

    /// Puts the request behind the others; `flush` sends it. `credit`: for this range, or with it for more.
    pub(super) fn ask(&self, wanted: Wanted<'_>, credit: &mut Credit) -> Result<Asked, Failure> {
        let since = Instant::now();
        let bytes = self.credit_for(&[wanted]);
        let permit = credit.0.split(bytes as usize).expect("the credit is for this range, too");
        let place = self.lent.as_ref().and_then(|lent| lent.take(wanted.range.length()));
        let (answer, answered) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let request = state.next_request;
        state.next_request += 1;
        let Wanted { block, token, range } = wanted;
        let message = ManyRange {
            request,
            block: block.clone(),
            token: token.clone(),
            range,
            place: place.as_ref().map(Place::name),
        };
        message.encode_into(&mut state.unsent);
        let behind = self.outstanding.fetch_add(bytes as usize, Ordering::Relaxed) + bytes as usize;
        state.waiting.insert(request, Waiting { range, since, behind, answer, permit, place });
        Ok(Asked(answered))
    }

    /// The answer to what was asked. Can be waited for again when this is dropped.
    pub(super) async fn answer(&self, asked: &mut Asked) -> Result<Answer, Failure> {
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
    pub(super) fn failure(&self) -> Failure {
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
    fn send<'a>(&'a self, mut state: parking_lot::MutexGuard<'a, State>) {
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

    fn end(&self, failure: Failure) {
        let waiting = {
            let mut state = self.state.lock();
            state.failure.get_or_insert(failure);
            std::mem::take(&mut state.waiting)
        };
        self.ended.store(true, Ordering::Release);
        self.credit.close();
        self.freed.notify_one();
        self.connection.shutdown();
        // Their senders are dropped: that is how they hear of it.
        drop(waiting);
    }

    /// Ends with `Ok` when the link was not used for long.
    async fn receive(&self, mut has_terms: bool) -> Result<(), Failure> {
        let mut buffer = BytesMut::with_capacity(RECEIVE_BYTES);
        loop {
            let missing = self.take_answers(&mut buffer, &mut has_terms)?;
            if buffer.capacity() - buffer.len() < missing.max(ROOM_BYTES) {
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
    async fn wait(&self) -> Result<bool, Failure> {
        loop {
            let (idle, blocked) = {
                let state = self.state.lock();
                (state.waiting.is_empty(), state.blocked)
            };
            let patience = if idle { self.expiry } else { self.timeouts.read };
            tokio::select! {
                readable = self.connection.readable(patience) => match readable {
                    Ok(()) => return Ok(true),
                    Err(stream::Error::ReadTimedOut { .. }) if idle => {
                        let mut state = self.state.lock();
                        if state.waiting.is_empty() {
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
    fn take_answers(&self, buffer: &mut BytesMut, has_terms: &mut bool) -> Result<usize, Failure> {
        let mut answers = Vec::new();
        let outcome = self.decode_answers(buffer, has_terms, &mut answers);
        // The last first: who reads many waits for the first of them, and finds the others when that one wakes him.
        for (waiting, answer) in answers.into_iter().rev() {
            // Who does not wait any more does not get it.
            let _ = waiting.send(answer);
        }
        outcome
    }

    fn decode_answers(
        &self,
        buffer: &mut BytesMut,
        has_terms: &mut bool,
        answers: &mut Vec<(oneshot::Sender<Answer>, Answer)>,
    ) -> Result<usize, Failure> {
        let unreadable = |source: MessageError| self.misbehaviour(source.to_string());
        if !*has_terms {
            match ManyTerms::decode(buffer).map_err(unreadable)? {
                Decoded::Needs(missing) => return Ok(missing),
                Decoded::Complete(ManyTerms::Taken { .. }, consumed) => {
                    buffer.advance(consumed);
                    *has_terms = true;
                }
                Decoded::Complete(ManyTerms::Refused(refusal), _) => {
                    return Err(Failure::refused(self.connection.peer(), &refusal));
                }
            }
        }
        loop {
            let (head, head_bytes) = match ManyHead::decode(buffer).map_err(unreadable)? {
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
    fn answered(&self, head: ManyHead, body: Bytes) -> Result<(oneshot::Sender<Answer>, Answer), Failure> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(Waiting { range, since, behind, answer, permit, place }) = state.waiting.remove(&head.request) else {
            return Err(self.misbehaviour(format!("an answer to request {}, which is not one", head.request)));
        };
        let (bytes, took) = (permit.num_permits(), now.saturating_duration_since(since));
        state.window.learn(Came { bytes: bytes as u32, behind, took });
        let (window, round_trip) = (state.window.bytes(), state.window.round_trip());
        drop(state);
        self.outstanding.fetch_sub(bytes, Ordering::Relaxed);
        // Only this task writes these.
        let lately = self.answer_time.load(Ordering::Relaxed);
        self.answer_time.store(lately - lately / 8 + microseconds(took) / 8, Ordering::Relaxed);
        self.round_trip.store(microseconds(round_trip), Ordering::Relaxed);
        // Where it is wide nobody waits for room, but for credit. Also when it has just become so: who waits is to see that.
        if !self.is_wide() || self.window_bytes() != window {
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
        Ok((answer, fetched.map(|fetched| Arrived { fetched, permit })))
    }

    /// `body` as what was asked for: the chunks that `range` touches and no others.
    fn fit(&self, range: ByteRange, piece: ManyPiece, mut body: Bytes) -> Result<Fetched, Failure> {
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
        Ok(Fetched::new(start, body, checksums, piece.checksum))
    }

    fn misbehaviour(&self, what: String) -> Failure {
        Failure::misbehaviour(self.connection.peer(), what)
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
