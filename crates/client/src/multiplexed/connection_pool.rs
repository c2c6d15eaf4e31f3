//! Shared connections to one endpoint of a datanode. A read uses the least loaded connection, and waits for room in its
//! window or for credit. Congested connections make the pool open more of them, as [`Scaling`] decides.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use hearth_fabric::tcp::{self, Connection, SocketOptions};
use hearth_fabric::{local, stream};
use hearth_wire::data_transfer::{RangeRefusal, Status};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::Instant;

use super::connection::{Credit, MultiplexedConnection, PendingResponse, RangeResponse, ReceivedRange, WantedRange};
use super::failure::ConnectionFailure;
use super::scaling::{PoolSize, Scaling, ScalingDecision};
use super::shared_memory::{self, Handshake};
use crate::DatanodeError;
use crate::checksummed::FetchedRange;
use crate::options::MultiplexOptions;
use crate::single_flight::SingleFlight;

/// Time for which a datanode that violated the protocol is read in other ways.
const DISABLE_INTERVAL: Duration = Duration::from_secs(60);

/// A connection with fewer bytes outstanding counts as idle. The first such connection is chosen, so that the others
/// can expire.
const LIGHT_BYTES: usize = 64 << 10;

/// A connection with this many bytes outstanding is congested if answers take longer than `QUEUEING_TIME_MAX` plus two
/// round trips.
const HEAVY_BYTES: usize = 256 << 10;
const QUEUEING_TIME_MAX: Duration = Duration::from_millis(5);

/// Poll interval of waiters. Those that wait for credit check for a better connection; those that queue for room check
/// for room that is not taken. The head of the queue may be a future that is not polled.
const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of attempts of a read whose connection was closed before it answered.
const ATTEMPTS_MAX: usize = 4;

/// Address at which a datanode listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Socket(PathBuf),
}

impl Endpoint {
    async fn connect(&self, timeout: Duration) -> Result<Connection, stream::Error> {
        match self {
            Self::Tcp(address) => tcp::connect(*address, None, SocketOptions::default(), timeout).await,
            Self::Socket(path) => match tokio::time::timeout(timeout, local::connect(path)).await {
                Ok(connected) => connected,
                Err(_) => {
                    let source = std::io::ErrorKind::TimedOut.into();
                    Err(stream::Error::NoSocket { path: path.clone(), source })
                }
            },
        }
    }
}

/// Connections to one endpoint of a datanode.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    endpoint: Endpoint,
    options: MultiplexOptions,
    client_name: String,
    connections: Mutex<Vec<Arc<MultiplexedConnection>>>,
    /// Single-flight for the first connection.
    opening: SingleFlight,
    scaling: Mutex<Scaling>,
    growing: AtomicBool,
    /// If no connection's window has room, waiters get room on any connection in the order of this queue.
    queue: Arc<tokio::sync::Mutex<()>>,
    /// Notified when there may be room; the head of the queue waits for it.
    freed: Arc<Notify>,
    /// Bytes received over connections that have ended.
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

    /// Returns true unless the datanode recently violated the protocol.
    pub(crate) fn is_enabled(&self) -> bool {
        self.disabled_until.lock().is_none_or(|until| Instant::now() >= until)
    }

    /// Fetches the chunks that the range touches, with their CRCs, not verified.
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
                // The datanode may have closed the connection just now, which does not mean that the datanode failed.
                Err(failure) if !fresh && tries < ATTEMPTS_MAX && failure.is_closed() => {}
                Err(failure) => return Err(self.failed(failure)),
            }
        }
    }

    /// Sends the request on `connection`, or, if its window is limited, waits for room on any connection. Returns the
    /// connection used.
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

    /// Like `fetch`, for many ranges at once; their answers may arrive in any order. Calls `take` with the index and
    /// outcome of each range, once the earlier ones have been taken. Outcomes not taken yet limit the further requests.
    /// Stops at the first range for which the datanode cannot be reached.
    pub(crate) async fn fetch_many(self: &Arc<Self>, wanted: &[WantedRange<'_>], mut take: impl FnMut(usize, Outcome)) {
        let mut under_way = VecDeque::<Batch<'_>>::new();
        let (mut next, mut unreachable) = (0, None);
        while next < wanted.len() {
            // One batch at a time: the next batch may use another connection.
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
                    // Take answers before requesting more.
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
                    // After a time-out, do not request the next ranges on another connection, which would take as long
                    // again.
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

    /// Waits for credit on `connection`, or on another connection that is much less loaded by then. Returns the
    /// connection and the credit. Takes at most two read time-outs.
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
                    // At most half the load, so that waiters do not switch back and forth. Only until the deadline,
                    // because the credit may also be held by answers that are not taken.
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

    /// Like `room`, but also takes arriving answers of the batches under way. The first batch may be on a stalled
    /// connection, and the other connections must not run idle because of it.
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

    /// Waits for its turn, and for a connection whose window has room, with credit for the first batch of `wanted`.
    /// Alternatively returns a connection that only the credit limits. Takes at most one read time-out.
    ///
    /// Errors: `connection`, the intended one, has ended. A waiter gets this error once instead of waiting as long for
    /// the next connection.
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
            // A closed connection says nothing about the others; a time-out or a protocol violation does.
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

    /// Returns the least loaded connection with room in its window and credit for the first batch of `wanted`, and the
    /// size of the batch. The least loaded connection may have no credit, because answers not yet taken also hold
    /// credit.
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

    /// Releases the credit of an answer from `connection` that has been taken.
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

    /// Passes an outcome to `take`. Ranges of an ended connection are not requested again here, because the answers of
    /// other batches may hold the credit for them.
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

    /// Returns the connection to use, and whether it was opened for this call.
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
        // Measured before the handshake. On this machine it is close to zero.
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

    /// Returns the least loaded connection, preferring those whose window has room, or `None` if there is no
    /// connection.
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
        // If even the best window is full, the caller will have to wait.
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
                    tracing::debug!(place = ?self.endpoint, count, "closing connections without gain");
                    // Their outstanding requests are answered; then they are idle and expire.
                    let given_up = connections.drain(count..);
                    *self.ended_bytes.lock() += given_up.map(|connection| connection.received_bytes()).sum::<u64>();
                }
            }
            return Some(best);
        }
        Some(Arc::clone(best))
    }

    /// Opens `count` more connections in the background. The caller must have set `growing`.
    fn grow(self: &Arc<Self>, count: usize) {
        let growing = GrowthGuard(Arc::clone(self));
        tokio::spawn(async move {
            let GrowthGuard(pool) = &growing;
            let opened = join_all((0..count).map(|_| pool.open())).await;
            let error = opened.into_iter().find_map(Result::err);
            let count = pool.connections.lock().len();
            match error {
                None => {
                    tracing::debug!(place = ?pool.endpoint, count, "opened more connections: others are congested")
                }
                Some(error) => tracing::debug!(place = ?pool.endpoint, count, %error, "cannot open all connections"),
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

/// Clears `growing` on drop, also when the runtime ended the task.
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

/// Result of waiting for room.
enum Found {
    Room {
        connection: Arc<MultiplexedConnection>,
        /// Number of ranges that may be requested on it, with this credit.
        count: usize,
        credit: Credit,
        /// Held until they are requested, because only then is the room taken.
        turn: Option<OwnedMutexGuard<()>>,
    },
    /// A connection on which only the credit limits the requests.
    CreditLimited(Arc<MultiplexedConnection>),
}

/// Ranges requested on one connection, with their pending answers.
struct Batch<'a> {
    /// Index of the first range among all ranges.
    first: usize,
    wanted: &'a [WantedRange<'a>],
    connection: Arc<MultiplexedConnection>,
    /// Requests of the ranges that have not been answered.
    asked: VecDeque<Result<PendingResponse, ConnectionFailure>>,
}

/// Outcome of one range of a batch.
struct Answered<'a> {
    index: usize,
    wanted: WantedRange<'a>,
    connection: Arc<MultiplexedConnection>,
    outcome: Result<RangeResponse, ConnectionFailure>,
}

impl<'a> Batch<'a> {
    /// Requests all of `wanted` on `connection`, with credit for them.
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

    /// Waits for the next answer, in the order of the ranges; `None` after the last. Cancel safe.
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

/// Final result of a range.
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

#[cfg(test)]
mod tests {
    use hearth_config::Configuration;
    use hearth_protocol::data_transfer::Timeouts;

    use super::*;

    #[test]
    fn growth_resumes_after_runtime_ended() {
        const WAIT: Duration = Duration::from_secs(60);
        let timeouts = Timeouts { connect: WAIT, read: WAIT, write: WAIT };
        let options = MultiplexOptions::read(&Configuration::empty(), timeouts).unwrap();
        // No server listens there; the attempts end before they begin.
        let connections =
            Arc::new(ConnectionPool::new(Endpoint::Socket("/nowhere".into()), options, "test".to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        connections.growing.store(true, Ordering::Release);
        runtime.block_on(async { connections.grow(1) });
        drop(runtime);
        assert!(!connections.growing.load(Ordering::Acquire));
    }
}
