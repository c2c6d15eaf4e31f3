use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hearth_types::ByteRange;
use hearth_wire::data_transfer::{RangeRefusal, Status};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, OwnedSemaphorePermit};

use super::connection::{
    ConnectionFailure, Credit, MultiplexedConnection, PendingResponse, RangeResponse, ReceivedRange,
};
use super::scaling::{PoolSize, Scaling, ScalingDecision};
use super::shared_memory::{self, Handshake};
use super::{Endpoint, MultiplexOptions, WantedRange};
use crate::DatanodeError;
use crate::short_circuit::FetchedRange;
use crate::single_flight::SingleFlight;

/// How long a datanode that broke the protocol is read in other ways.
const DISABLE_INTERVAL: Duration = Duration::from_secs(60);

/// A connection with less than this outstanding is as good as an idle one: the first of them is taken, so that others can end.
const LIGHT_BYTES: usize = 64 << 10;

/// A connection with so much outstanding is held up when answers take longer than this and two round trips.
const HEAVY_BYTES: usize = 256 << 10;
const QUEUEING_TIME_MAX: Duration = Duration::from_millis(5);

/// Who waits for credit looks so often whether there is another connection by now. And who waits behind others for room, whether there is
/// some that nobody takes: the first of them may be a read that nobody polls.
const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How often a read is begun anew because its connection had ended before it could be asked for.
const ATTEMPTS_MAX: usize = 4;

/// The connections to one place where a datanode listens.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    endpoint: Endpoint,
    options: MultiplexOptions,
    client_name: String,
    connections: Mutex<Vec<Arc<MultiplexedConnection>>>,
    /// Of who makes the first connection.
    opening: SingleFlight,
    scaling: Mutex<Scaling>,
    growing: AtomicBool,
    /// Where no connection's window has room, who came first takes what becomes free on any of them.
    queue: Arc<tokio::sync::Mutex<()>>,
    /// Told when there may be room; who is first in the queue waits for it.
    freed: Arc<Notify>,
    /// Bytes that came over connections that have ended.
    ended_bytes: Mutex<u64>,
    disabled_until: Mutex<Option<Instant>>,
}

impl ConnectionPool {
    pub(crate) fn new(endpoint: Endpoint, options: MultiplexOptions, client_name: String) -> Self {
        Self {
            endpoint,
            options,
            client_name,
            connections: Mutex::default(),
            opening: SingleFlight::default(),
            scaling: Mutex::default(),
            growing: AtomicBool::new(false),
            queue: Arc::default(),
            freed: Arc::default(),
            ended_bytes: Mutex::default(),
            disabled_until: Mutex::default(),
        }
    }

    /// Whether the datanode has kept to the protocol lately.
    pub(crate) fn is_enabled(&self) -> bool {
        self.disabled_until.lock().is_none_or(|until| Instant::now() >= until)
    }

    /// The chunks that the range touches, with their CRCs, not verified.
    pub(crate) async fn fetch(self: &Arc<Self>, wanted: WantedRange<'_>) -> Result<FetchedRange, DatanodeError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (connection, fresh) = self.connection().await?;
            let outcome = match self.request(connection, wanted).await {
                Ok((connection, mut asked)) => connection.answer(&mut asked).await.map(|answer| {
                    answer.map(|ReceivedRange { fetched, permit }| {
                        self.release_credit(permit, &connection);
                        fetched
                    })
                }),
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok(Ok(fetched)) => return Ok(fetched),
                Ok(Err(refusal)) => return Err(refused(wanted, refusal)),
                // The datanode may have closed it in this moment: that says nothing of the datanode.
                Err(failure) if !fresh && tries < ATTEMPTS_MAX && failure.is_closed() => {}
                Err(failure) => return Err(self.failed(failure)),
            }
        }
    }

    /// Asks on `connection`, or, when it is its turn, on another that has room: on which.
    async fn request(
        self: &Arc<Self>,
        connection: Arc<MultiplexedConnection>,
        wanted: WantedRange<'_>,
    ) -> Result<(Arc<MultiplexedConnection>, PendingResponse), ConnectionFailure> {
        let connection = match connection.is_credit_limited() {
            true => connection,
            false => match self.room(&connection, &[wanted]).await? {
                Found::CreditLimited(connection) => connection,
                Found::Room { connection, mut credit, turn: _turn, .. } => {
                    let asked = connection.enqueue(wanted, &mut credit)?;
                    connection.flush();
                    return Ok((connection, asked));
                }
            },
        };
        let asked = connection.request(wanted).await?;
        Ok((connection, asked))
    }

    /// As `fetch`, for many ranges at once: their answers come in any order. `take` is given the index of each and its outcome, as soon
    /// as those before it have been taken; what it has not taken bounds what is asked for. The first for which the datanode cannot be
    /// reached is the last.
    pub(crate) async fn fetch_many(self: &Arc<Self>, wanted: &[WantedRange<'_>], mut take: impl FnMut(usize, Outcome)) {
        let mut under_way = VecDeque::<Batch<'_>>::new();
        let (mut next, mut unreachable) = (0, None);
        while next < wanted.len() {
            // A part at a time: another part may take another connection.
            let connection = match self.connection().await {
                Ok((connection, _)) => connection,
                Err(error) => {
                    unreachable = Some(error);
                    break;
                }
            };
            let rest = &wanted[next..];
            let batch = if connection.is_credit_limited() {
                let batch = &rest[..connection.batch_len(rest)];
                let (connection, credit) = match connection.try_credit(batch) {
                    Some(credit) => (connection, Ok(credit)),
                    // What has come is taken before more is asked for.
                    None => match under_way.pop_front() {
                        Some(batch) => {
                            self.take(batch, &mut take).await;
                            continue;
                        }
                        None => self.credit(connection, batch).await,
                    },
                };
                Batch::enqueue(next, batch, connection, credit)
            } else {
                match self.room_and_take(&connection, rest, &mut under_way, &mut take).await {
                    Ok(Found::Room { connection, count, credit, turn: _turn }) => {
                        Batch::enqueue(next, &rest[..count], connection, Ok(credit))
                    }
                    Ok(Found::CreditLimited(_)) => continue,
                    Err(failure) if failure.is_closed() => {
                        let batch = &rest[..connection.batch_len(rest)];
                        Batch::enqueue(next, batch, connection, Err(failure))
                    }
                    // Who was silent for so long is not asked for the next few on another connection, to be silent as long again.
                    Err(failure) => {
                        unreachable = Some(self.failed(failure));
                        break;
                    }
                }
            };
            next += batch.wanted.len();
            under_way.push_back(batch);
        }
        for batch in under_way {
            self.take(batch, &mut take).await;
        }
        if let Some(error) = unreachable {
            take(next, Err(error));
        }
    }

    /// Waits for credit on `connection`, or on another connection that has come to be much less loaded meanwhile: on which, and the credit. Takes
    /// two read timeouts at most.
    async fn credit(
        self: &Arc<Self>,
        mut connection: Arc<MultiplexedConnection>,
        batch: &[WantedRange<'_>],
    ) -> (Arc<MultiplexedConnection>, Result<Credit, ConnectionFailure>) {
        let until = Instant::now() + self.options.timeouts.read;
        loop {
            let other = {
                let mut credit = std::pin::pin!(connection.credit(batch));
                loop {
                    if let Ok(credit) = tokio::time::timeout(RECHECK_INTERVAL, &mut credit).await {
                        return (Arc::clone(&connection), credit);
                    }
                    // Half: those who wait shall not go to and fro. Nor for ever: credit may also be held by what nobody takes.
                    let is_better = |other: &Arc<MultiplexedConnection>| {
                        other.outstanding_bytes() <= connection.outstanding_bytes() / 2
                    };
                    if Instant::now() < until
                        && let Some(other) = self.pick().filter(is_better)
                    {
                        break other;
                    }
                }
            };
            connection = other;
        }
    }

    /// As `room`, and takes meanwhile what comes of the parts that are under way: their first may be on a connection that stands still, and
    /// then the others are not left without work for that.
    async fn room_and_take(
        self: &Arc<Self>,
        connection: &Arc<MultiplexedConnection>,
        wanted: &[WantedRange<'_>],
        under_way: &mut VecDeque<Batch<'_>>,
        take: &mut impl FnMut(usize, Outcome),
    ) -> Result<Found, ConnectionFailure> {
        let mut room = std::pin::pin!(self.room(connection, wanted));
        loop {
            let Some(first) = under_way.front_mut() else { return room.await };
            let answered = tokio::select! {
                biased;
                found = &mut room => return found,
                answered = first.answered() => answered,
            };
            match answered {
                Some(answered) => self.deliver(answered, take),
                None => drop(under_way.pop_front()),
            }
        }
    }

    /// Waits for its turn, and for a connection whose window has room: with credit there for the first of `wanted`, as many as are asked for
    /// together. Or for one where only credit bounds what is asked for. Takes a read time-out at most.
    ///
    /// Errors: `connection`, which was to be used, has ended. Who waits hears it once, and does not wait for the next one as long again.
    async fn room(
        self: &Arc<Self>,
        connection: &Arc<MultiplexedConnection>,
        wanted: &[WantedRange<'_>],
    ) -> Result<Found, ConnectionFailure> {
        let found = tokio::time::timeout(self.options.timeouts.read, self.find_room(connection, wanted)).await;
        found.unwrap_or_else(|_| Err(connection.timed_out().into()))
    }

    async fn find_room(
        self: &Arc<Self>,
        connection: &Arc<MultiplexedConnection>,
        wanted: &[WantedRange<'_>],
    ) -> Result<Found, ConnectionFailure> {
        let mut queued = std::pin::pin!(Arc::clone(&self.queue).lock_owned());
        let mut turn = tokio::time::timeout(RECHECK_INTERVAL, &mut queued).await.ok();
        loop {
            // One that was closed says nothing of the others; one that was silent, or broke the protocol, does.
            if connection.has_ended() && !connection.failure().is_closed() {
                return Err(connection.failure());
            }
            let Some(best) = self.pick() else { return Err(connection.failure()) };
            if best.is_credit_limited() {
                return Ok(Found::CreditLimited(best));
            }
            if let Some((connection, count, credit)) = self.with_room(wanted) {
                return Ok(Found::Room { connection, count, credit, turn });
            }
            if turn.is_some() {
                let _ = tokio::time::timeout(RECHECK_INTERVAL, self.freed.notified()).await;
            } else {
                turn = tokio::time::timeout(RECHECK_INTERVAL, &mut queued).await.ok();
            }
        }
    }

    /// The least loaded connection with room in its window and credit for the first of `wanted`, and for how many of them. Credit is also held
    /// by what has come and nobody has taken: the least loaded one of all may have none.
    fn with_room(&self, wanted: &[WantedRange<'_>]) -> Option<(Arc<MultiplexedConnection>, usize, Credit)> {
        let connections = self.connections.lock();
        let mut with_room: Vec<_> =
            connections.iter().filter(|connection| !connection.has_ended() && !connection.is_window_full()).collect();
        with_room.sort_by_key(|connection| connection.outstanding_bytes());
        with_room.into_iter().find_map(|connection| {
            let count = connection.batch_len(wanted);
            let credit = connection.try_credit(&wanted[..count])?;
            Some((Arc::clone(connection), count, credit))
        })
    }

    /// What came over `connection` with this credit has been taken.
    fn release_credit(&self, permit: OwnedSemaphorePermit, connection: &MultiplexedConnection) {
        drop(permit);
        if !connection.is_credit_limited() {
            self.freed.notify_one();
        }
    }

    async fn take(&self, mut batch: Batch<'_>, take: &mut impl FnMut(usize, Outcome)) {
        while let Some(answered) = batch.answered().await {
            self.deliver(answered, take);
        }
    }

    /// What a connection that ended owes is not asked for again here: the answers of other parts may hold the credit for that.
    fn deliver(&self, answered: Answered<'_>, take: &mut impl FnMut(usize, Outcome)) {
        let Answered { index, wanted, connection, outcome } = answered;
        match outcome {
            Ok(Ok(ReceivedRange { fetched, permit })) => {
                take(index, Ok(fetched));
                self.release_credit(permit, &connection);
            }
            Ok(Err(refusal)) => take(index, Err(refused(wanted, refusal))),
            Err(failure) => take(index, Err(self.failed(failure))),
        }
    }

    fn failed(&self, failure: ConnectionFailure) -> DatanodeError {
        if failure.is_misbehaviour() {
            *self.disabled_until.lock() = Some(Instant::now() + DISABLE_INTERVAL);
        }
        failure.into()
    }

    /// The connection to use, and whether it was made for this.
    async fn connection(self: &Arc<Self>) -> Result<(Arc<MultiplexedConnection>, bool), DatanodeError> {
        if let Some(connection) = self.pick() {
            return Ok((connection, false));
        }
        let find = || self.pick().map(|connection| (connection, false));
        self.opening.get_or_try_init(find, async { Ok((self.open().await?, true)) }).await
    }

    async fn open(&self) -> Result<Arc<MultiplexedConnection>, DatanodeError> {
        let started = Instant::now();
        let connected = self.endpoint.connect(self.options.timeouts.connect).await;
        let connection = connected.map_err(|error| DatanodeError::Transfer(error.into()))?;
        // Whoever is on this machine has been reached before the clock ticks.
        let round_trip = started.elapsed();
        let handshake = match self.endpoint {
            Endpoint::Tcp(_) => Handshake::default(),
            Endpoint::Socket(_) => {
                let shared_memory = shared_memory::set_up(&connection, &self.options, &self.client_name).await;
                shared_memory.map_err(|failure| self.failed(failure))?
            }
        };
        let freed = Arc::clone(&self.freed);
        let connection =
            MultiplexedConnection::start(connection, handshake, round_trip, &self.options, &self.client_name, freed);
        self.connections.lock().push(Arc::clone(&connection));
        self.freed.notify_one();
        Ok(connection)
    }

    /// The least loaded of the connections, before those whose window is full; `None` when there is none.
    fn pick(self: &Arc<Self>) -> Option<Arc<MultiplexedConnection>> {
        let mut connections = self.connections.lock();
        if connections.iter().any(|connection| connection.has_ended()) {
            let mut ended = self.ended_bytes.lock();
            connections.retain(|connection| {
                *ended += if connection.has_ended() { connection.received_bytes() } else { 0 };
                !connection.has_ended()
            });
        }
        let load = |connection: &&Arc<MultiplexedConnection>| {
            let bytes = connection.outstanding_bytes();
            (connection.is_window_full(), if bytes < LIGHT_BYTES { 0 } else { bytes })
        };
        let best = connections.iter().min_by_key(load)?;
        let round_trip = best.round_trip();
        // Where even the best is full, somebody is going to wait.
        let is_heavy = best.is_window_full() || best.outstanding_bytes() >= HEAVY_BYTES;
        if is_heavy && best.answer_time() > QUEUEING_TIME_MAX + 2 * round_trip {
            let best = Arc::clone(best);
            let bytes = connections.iter().map(|connection| connection.received_bytes()).sum::<u64>()
                + *self.ended_bytes.lock();
            let count = connections.len();
            let most = self.options.connections_max;
            match self.scaling.lock().decide(Instant::now(), PoolSize { count, most }, bytes, round_trip) {
                ScalingDecision::Keep => {}
                ScalingDecision::GrowTo(wanted) => {
                    if !self.growing.swap(true, Ordering::AcqRel) {
                        self.grow(wanted - count);
                    }
                }
                ScalingDecision::ShrinkTo(count) => {
                    tracing::debug!(place = ?self.endpoint, count, "the last connections brought nothing");
                    // What is asked on them is answered; then they are idle, and expire.
                    let given_up = connections.drain(count..);
                    *self.ended_bytes.lock() += given_up.map(|connection| connection.received_bytes()).sum::<u64>();
                }
            }
            return Some(best);
        }
        Some(Arc::clone(best))
    }

    /// Opens `count` further connections, while reads go on. Called by who has set `growing`.
    fn grow(self: &Arc<Self>, count: usize) {
        let growing = GrowthGuard(Arc::clone(self));
        tokio::spawn(async move {
            let GrowthGuard(pool) = &growing;
            let opened = join_all((0..count).map(|_| pool.open())).await;
            let error = opened.into_iter().find_map(Result::err);
            let count = pool.connections.lock().len();
            match error {
                None => {
                    tracing::debug!(place = ?pool.endpoint, count, "further connections, for the others are held up")
                }
                Some(error) => tracing::debug!(place = ?pool.endpoint, count, %error, "not all further connections"),
            }
        });
    }

    #[cfg(test)]
    pub(super) async fn open_another(&self) {
        self.open().await.unwrap();
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.lock().iter().filter(|connection| !connection.has_ended()).count()
    }
}

/// Lets the next look for further connections, also when the runtime ended this one.
struct GrowthGuard(Arc<ConnectionPool>);

impl Drop for GrowthGuard {
    fn drop(&mut self) {
        self.0.growing.store(false, Ordering::Release);
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        self.connections.get_mut().iter().for_each(|connection| connection.close());
    }
}

/// What there is for who has waited for room.
enum Found {
    Room {
        connection: Arc<MultiplexedConnection>,
        /// So many ranges may be asked for on it, with this credit.
        count: usize,
        credit: Credit,
        /// Kept until they are asked for: only then is the room taken.
        turn: Option<OwnedMutexGuard<()>>,
    },
    /// A connection on which only credit bounds what is asked for.
    CreditLimited(Arc<MultiplexedConnection>),
}

/// Some ranges, asked for on one connection, and what became of each question.
struct Batch<'a> {
    /// Index of its first among all of them.
    first: usize,
    wanted: &'a [WantedRange<'a>],
    connection: Arc<MultiplexedConnection>,
    /// Of those that have not been answered.
    asked: VecDeque<Result<PendingResponse, ConnectionFailure>>,
}

/// What came of one of its ranges.
struct Answered<'a> {
    index: usize,
    wanted: WantedRange<'a>,
    connection: Arc<MultiplexedConnection>,
    outcome: Result<RangeResponse, ConnectionFailure>,
}

impl<'a> Batch<'a> {
    /// Asks on `connection` for all of `wanted`, with credit for them.
    fn enqueue(
        first: usize,
        wanted: &'a [WantedRange<'a>],
        connection: Arc<MultiplexedConnection>,
        credit: Result<Credit, ConnectionFailure>,
    ) -> Self {
        let asked: VecDeque<_> = match credit {
            Ok(mut credit) => wanted.iter().map(|range| connection.enqueue(*range, &mut credit)).collect(),
            Err(failure) => wanted.iter().map(|_| Err(failure.clone())).collect(),
        };
        connection.flush();
        Self { first, wanted, connection, asked }
    }

    /// The next answer, in the order of the ranges; `None` when all have been. Nothing is lost when it is not waited for any more.
    async fn answered(&mut self) -> Option<Answered<'a>> {
        let nth = self.wanted.len() - self.asked.len();
        let outcome = match self.asked.front_mut()? {
            Ok(asked) => self.connection.answer(asked).await,
            Err(failure) => Err(failure.clone()),
        };
        self.asked.pop_front();
        let connection = Arc::clone(&self.connection);
        Some(Answered { index: self.first + nth, wanted: self.wanted[nth], connection, outcome })
    }
}

/// What became of a range in the end.
pub(crate) type Outcome = Result<FetchedRange, DatanodeError>;

fn refused(wanted: WantedRange<'_>, refusal: RangeRefusal) -> DatanodeError {
    let block = Box::new(wanted.block.clone());
    match refusal.status {
        Status::ErrorAccessToken => DatanodeError::AccessToken { block },
        status => DatanodeError::Refused {
            operation: "READ_MANY",
            block,
            status: format!("{status:?}"),
            message: refusal.message,
        },
    }
}

/// Credit that a range takes: its data, the chunks around it, CRCs and head, about.
pub(super) fn credit(range: ByteRange, limit: u32) -> u32 {
    let length = range.length().min(u64::from(limit));
    u32::try_from(length + length / 100 + 1536).unwrap_or(u32::MAX).min(limit)
}

#[cfg(test)]
mod tests {
    use hearth_config::Configuration;
    use hearth_protocol::data_transfer::Timeouts;

    use super::*;

    #[test]
    fn further_connections_can_be_opened_though_a_runtime_ended_while_some_were() {
        const WAIT: Duration = Duration::from_secs(60);
        let timeouts = Timeouts { connect: WAIT, read: WAIT, write: WAIT };
        let options = MultiplexOptions::read(&Configuration::empty(), timeouts).unwrap();
        // Nobody is there; the attempts are over before they have begun.
        let connections =
            Arc::new(ConnectionPool::new(Endpoint::Socket("/nowhere".into()), options, "test".to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        connections.growing.store(true, Ordering::Release);
        runtime.block_on(async { connections.grow(1) });
        drop(runtime);
        assert!(!connections.growing.load(Ordering::Acquire));
    }
}
