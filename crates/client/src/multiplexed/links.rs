use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hearth_types::ByteRange;
use hearth_wire::data_transfer::{ManyRefusal, Status};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, OwnedSemaphorePermit};

use super::growth::{Connections, Growth, Next};
use super::lent::{self, Begun};
use super::link::{Answer, Arrived, Asked, Credit, Failure, Link};
use super::{MultiplexOptions, Place, Wanted};
use crate::DatanodeError;
use crate::attempt::Attempt;
use crate::local::Fetched;

/// How long a datanode that broke the protocol is read in other ways.
const OFF: Duration = Duration::from_secs(60);

/// A connection with less than this outstanding is as good as an idle one: the first of them is taken, so that others can end.
const LIGHT_BYTES: usize = 64 << 10;

/// A connection with so much outstanding is held up when answers take longer than this and two round trips.
const HEAVY_BYTES: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_millis(5);

/// Who waits for credit looks so often whether there is another connection by now. And who waits behind others for room, whether there is
/// some that nobody takes: the first of them may be a read that nobody polls.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How often a read is begun anew because its connection had ended before it could be asked for.
const TRIES: usize = 4;

/// The connections to one place where a datanode listens.
#[derive(Debug)]
pub(crate) struct Links {
    place: Place,
    options: MultiplexOptions,
    client_name: String,
    links: Mutex<Vec<Arc<Link>>>,
    /// Of who makes the first connection.
    opening: Attempt,
    growth: Mutex<Growth>,
    growing: AtomicBool,
    /// Where no connection's window has room, who came first takes what becomes free on any of them.
    queue: Arc<tokio::sync::Mutex<()>>,
    /// Told when there may be room; who is first in the queue waits for it.
    freed: Arc<Notify>,
    /// Bytes that came over connections that have ended.
    ended_bytes: Mutex<u64>,
    off_until: Mutex<Option<Instant>>,
}

impl Links {
    pub(crate) fn new(place: Place, options: MultiplexOptions, client_name: String) -> Self {
        Self {
            place,
            options,
            client_name,
            links: Mutex::default(),
            opening: Attempt::default(),
            growth: Mutex::default(),
            growing: AtomicBool::new(false),
            queue: Arc::default(),
            freed: Arc::default(),
            ended_bytes: Mutex::default(),
            off_until: Mutex::default(),
        }
    }

    /// Whether the datanode has kept to the protocol lately.
    pub(crate) fn is_on(&self) -> bool {
        self.off_until.lock().is_none_or(|until| Instant::now() >= until)
    }

    /// The chunks that the range touches, with their CRCs, not verified.
    pub(crate) async fn fetch(self: &Arc<Self>, wanted: Wanted<'_>) -> Result<Fetched, DatanodeError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (link, fresh) = self.link().await?;
            let outcome = match self.ask_alone(link, wanted).await {
                Ok((link, mut asked)) => link.answer(&mut asked).await.map(|answer| {
                    answer.map(|Arrived { fetched, permit }| {
                        self.give_back(permit, &link);
                        fetched
                    })
                }),
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok(Ok(fetched)) => return Ok(fetched),
                Ok(Err(refusal)) => return Err(refused(wanted, refusal)),
                // The datanode may have closed it in this moment: that says nothing of the datanode.
                Err(failure) if !fresh && tries < TRIES && failure.is_closed() => {}
                Err(failure) => return Err(self.failed(failure)),
            }
        }
    }

    /// Asks on `link`, or, when it is its turn, on another that has room: on which.
    async fn ask_alone(self: &Arc<Self>, link: Arc<Link>, wanted: Wanted<'_>) -> Result<(Arc<Link>, Asked), Failure> {
        let link = match link.is_wide() {
            true => link,
            false => match self.room(&link, &[wanted]).await? {
                Found::Wide(link) => link,
                Found::Room { link, mut credit, turn: _turn, .. } => {
                    let asked = link.ask(wanted, &mut credit)?;
                    link.flush();
                    return Ok((link, asked));
                }
            },
        };
        let asked = link.ask_alone(wanted).await?;
        Ok((link, asked))
    }

    /// As `fetch`, for many ranges at once: their answers come in any order. `take` is given the index of each and its outcome, as soon
    /// as those before it have been taken; what it has not taken bounds what is asked for. The first for which the datanode cannot be
    /// reached is the last.
    pub(crate) async fn fetch_many(self: &Arc<Self>, wanted: &[Wanted<'_>], mut take: impl FnMut(usize, Outcome)) {
        let mut under_way = VecDeque::<Part<'_>>::new();
        let (mut next, mut unreachable) = (0, None);
        while next < wanted.len() {
            // A part at a time: another part may take another connection.
            let link = match self.link().await {
                Ok((link, _)) => link,
                Err(error) => {
                    unreachable = Some(error);
                    break;
                }
            };
            let rest = &wanted[next..];
            let part = if link.is_wide() {
                let part = &rest[..link.part(rest)];
                let (link, credit) = match link.try_credit(part) {
                    Some(credit) => (link, Ok(credit)),
                    // What has come is taken before more is asked for.
                    None => match under_way.pop_front() {
                        Some(part) => {
                            self.take(part, &mut take).await;
                            continue;
                        }
                        None => self.credit(link, part).await,
                    },
                };
                Part::ask(next, part, link, credit)
            } else {
                match self.room_and_take(&link, rest, &mut under_way, &mut take).await {
                    Ok(Found::Room { link, count, credit, turn: _turn }) => {
                        Part::ask(next, &rest[..count], link, Ok(credit))
                    }
                    Ok(Found::Wide(_)) => continue,
                    Err(failure) if failure.is_closed() => {
                        let part = &rest[..link.part(rest)];
                        Part::ask(next, part, link, Err(failure))
                    }
                    // Who was silent for so long is not asked for the next few on another connection, to be silent as long again.
                    Err(failure) => {
                        unreachable = Some(self.failed(failure));
                        break;
                    }
                }
            };
            next += part.wanted.len();
            under_way.push_back(part);
        }
        for part in under_way {
            self.take(part, &mut take).await;
        }
        if let Some(error) = unreachable {
            take(next, Err(error));
        }
    }

    /// Waits for credit on `link`, or on another connection that has come to be much less loaded meanwhile: on which, and the credit. Takes
    /// two read timeouts at most.
    async fn credit(
        self: &Arc<Self>,
        mut link: Arc<Link>,
        part: &[Wanted<'_>],
    ) -> (Arc<Link>, Result<Credit, Failure>) {
        let until = Instant::now() + self.options.timeouts.read;
        loop {
            let other = {
                let mut credit = std::pin::pin!(link.credit(part));
                loop {
                    if let Ok(credit) = tokio::time::timeout(LOOK_AGAIN, &mut credit).await {
                        return (Arc::clone(&link), credit);
                    }
                    // Half: those who wait shall not go to and fro. Nor for ever: credit may also be held by what nobody takes.
                    let is_better = |other: &Arc<Link>| other.outstanding_bytes() <= link.outstanding_bytes() / 2;
                    if Instant::now() < until
                        && let Some(other) = self.pick().filter(is_better)
                    {
                        break other;
                    }
                }
            };
            link = other;
        }
    }

    /// As `room`, and takes meanwhile what comes of the parts that are under way: their first may be on a connection that stands still, and
    /// then the others are not left without work for that.
    async fn room_and_take(
        self: &Arc<Self>,
        link: &Arc<Link>,
        wanted: &[Wanted<'_>],
        under_way: &mut VecDeque<Part<'_>>,
        take: &mut impl FnMut(usize, Outcome),
    ) -> Result<Found, Failure> {
        let mut room = std::pin::pin!(self.room(link, wanted));
        loop {
            let Some(first) = under_way.front_mut() else { return room.await };
            let answered = tokio::select! {
                biased;
                found = &mut room => return found,
                answered = first.answered() => answered,
            };
            match answered {
                Some(answered) => self.hand_out(answered, take),
                None => drop(under_way.pop_front()),
            }
        }
    }

    /// Waits for its turn, and for a connection whose window has room: with credit there for the first of `wanted`, as many as are asked for
    /// together. Or for one where only credit bounds what is asked for. Takes a read time-out at most.
    ///
    /// Errors: `link`, which was to be used, has ended. Who waits hears it once, and does not wait for the next one as long again.
    async fn room(self: &Arc<Self>, link: &Arc<Link>, wanted: &[Wanted<'_>]) -> Result<Found, Failure> {
        let found = tokio::time::timeout(self.options.timeouts.read, self.find_room(link, wanted)).await;
        found.unwrap_or_else(|_| Err(link.timed_out().into()))
    }

    async fn find_room(self: &Arc<Self>, link: &Arc<Link>, wanted: &[Wanted<'_>]) -> Result<Found, Failure> {
        let mut queued = std::pin::pin!(Arc::clone(&self.queue).lock_owned());
        let mut turn = tokio::time::timeout(LOOK_AGAIN, &mut queued).await.ok();
        loop {
            // One that was closed says nothing of the others; one that was silent, or broke the protocol, does.
            if link.has_ended() && !link.failure().is_closed() {
                return Err(link.failure());
            }
            let Some(best) = self.pick() else { return Err(link.failure()) };
            if best.is_wide() {
                return Ok(Found::Wide(best));
            }
            if let Some((link, count, credit)) = self.with_room(wanted) {
                return Ok(Found::Room { link, count, credit, turn });
            }
            if turn.is_some() {
                let _ = tokio::time::timeout(LOOK_AGAIN, self.freed.notified()).await;
            } else {
                turn = tokio::time::timeout(LOOK_AGAIN, &mut queued).await.ok();
            }
        }
    }

    /// The least loaded connection with room in its window and credit for the first of `wanted`, and for how many of them. Credit is also held
    /// by what has come and nobody has taken: the least loaded one of all may have none.
    fn with_room(&self, wanted: &[Wanted<'_>]) -> Option<(Arc<Link>, usize, Credit)> {
        let links = self.links.lock();
        let mut with_room: Vec<_> = links.iter().filter(|link| !link.has_ended() && !link.is_full()).collect();
        with_room.sort_by_key(|link| link.outstanding_bytes());
        with_room.into_iter().find_map(|link| {
            let count = link.part(wanted);
            let credit = link.try_credit(&wanted[..count])?;
            Some((Arc::clone(link), count, credit))
        })
    }

    /// What came over `link` with this credit has been taken.
    fn give_back(&self, permit: OwnedSemaphorePermit, link: &Link) {
        drop(permit);
        if !link.is_wide() {
            self.freed.notify_one();
        }
    }

    async fn take(&self, mut part: Part<'_>, take: &mut impl FnMut(usize, Outcome)) {
        while let Some(answered) = part.answered().await {
            self.hand_out(answered, take);
        }
    }

    /// What a connection that ended owes is not asked for again here: the answers of other parts may hold the credit for that.
    fn hand_out(&self, answered: Answered<'_>, take: &mut impl FnMut(usize, Outcome)) {
        let Answered { index, wanted, link, outcome } = answered;
        match outcome {
            Ok(Ok(Arrived { fetched, permit })) => {
                take(index, Ok(fetched));
                self.give_back(permit, &link);
            }
            Ok(Err(refusal)) => take(index, Err(refused(wanted, refusal))),
            Err(failure) => take(index, Err(self.failed(failure))),
        }
    }

    fn failed(&self, failure: Failure) -> DatanodeError {
        if failure.is_misbehaviour() {
            *self.off_until.lock() = Some(Instant::now() + OFF);
        }
        failure.into()
    }

    /// The connection to use, and whether it was made for this.
    async fn link(self: &Arc<Self>) -> Result<(Arc<Link>, bool), DatanodeError> {
        if let Some(link) = self.pick() {
            return Ok((link, false));
        }
        let find = || self.pick().map(|link| (link, false));
        self.opening.or_make(find, async { Ok((self.open().await?, true)) }).await
    }

    async fn open(&self) -> Result<Arc<Link>, DatanodeError> {
        let started = Instant::now();
        let connected = self.place.connect(self.options.timeouts.connect).await;
        let connection = connected.map_err(|error| DatanodeError::Transfer(error.into()))?;
        // Whoever is on this machine has been reached before the clock ticks.
        let round_trip = started.elapsed();
        let begun = match self.place {
            Place::Tcp(_) => Begun::default(),
            Place::Socket(_) => {
                let lent = lent::lend(&connection, &self.options, &self.client_name).await;
                lent.map_err(|failure| self.failed(failure))?
            }
        };
        let freed = Arc::clone(&self.freed);
        let link = Link::start(connection, begun, round_trip, &self.options, &self.client_name, freed);
        self.links.lock().push(Arc::clone(&link));
        self.freed.notify_one();
        Ok(link)
    }

    /// The least loaded of the connections, before those whose window is full; `None` when there is none.
    fn pick(self: &Arc<Self>) -> Option<Arc<Link>> {
        let mut links = self.links.lock();
        if links.iter().any(|link| link.has_ended()) {
            let mut ended = self.ended_bytes.lock();
            links.retain(|link| {
                *ended += if link.has_ended() { link.received_bytes() } else { 0 };
                !link.has_ended()
            });
        }
        let load = |link: &&Arc<Link>| {
            let bytes = link.outstanding_bytes();
            (link.is_full(), if bytes < LIGHT_BYTES { 0 } else { bytes })
        };
        let best = links.iter().min_by_key(load)?;
        let round_trip = best.round_trip();
        // Where even the best is full, somebody is going to wait.
        let is_heavy = best.is_full() || best.outstanding_bytes() >= HEAVY_BYTES;
        if is_heavy && best.answer_time() > PATIENCE + 2 * round_trip {
            let best = Arc::clone(best);
            let bytes = links.iter().map(|link| link.received_bytes()).sum::<u64>() + *self.ended_bytes.lock();
            let count = links.len();
            let most = self.options.connections_max;
            match self.growth.lock().next(Instant::now(), Connections { count, most }, bytes, round_trip) {
                Next::Stay => {}
                Next::Add(wanted) => {
                    if !self.growing.swap(true, Ordering::AcqRel) {
                        self.grow(wanted - count);
                    }
                }
                Next::Return(count) => {
                    tracing::debug!(place = ?self.place, count, "the last connections brought nothing");
                    // What is asked on them is answered; then they are idle, and expire.
                    let given_up = links.drain(count..);
                    *self.ended_bytes.lock() += given_up.map(|link| link.received_bytes()).sum::<u64>();
                }
            }
            return Some(best);
        }
        Some(Arc::clone(best))
    }

    /// Opens `count` further connections, while reads go on. Called by who has set `growing`.
    fn grow(self: &Arc<Self>, count: usize) {
        let growing = Growing(Arc::clone(self));
        tokio::spawn(async move {
            let Growing(links) = &growing;
            let opened = join_all((0..count).map(|_| links.open())).await;
            let error = opened.into_iter().find_map(Result::err);
            let count = links.links.lock().len();
            match error {
                None => tracing::debug!(place = ?links.place, count, "further connections, for the others are held up"),
                Some(error) => tracing::debug!(place = ?links.place, count, %error, "not all further connections"),
            }
        });
    }

    #[cfg(test)]
    pub(super) async fn open_another(&self) {
        self.open().await.unwrap();
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.links.lock().iter().filter(|link| !link.has_ended()).count()
    }
}

/// Lets the next look for further connections, also when the runtime ended this one.
struct Growing(Arc<Links>);

impl Drop for Growing {
    fn drop(&mut self) {
        self.0.growing.store(false, Ordering::Release);
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.links.get_mut().iter().for_each(|link| link.close());
    }
}

/// What there is for who has waited for room.
enum Found {
    Room {
        link: Arc<Link>,
        /// So many ranges may be asked for on it, with this credit.
        count: usize,
        credit: Credit,
        /// Kept until they are asked for: only then is the room taken.
        turn: Option<OwnedMutexGuard<()>>,
    },
    /// A connection on which only credit bounds what is asked for.
    Wide(Arc<Link>),
}

/// Some ranges, asked for on one connection, and what became of each question.
struct Part<'a> {
    /// Index of its first among all of them.
    first: usize,
    wanted: &'a [Wanted<'a>],
    link: Arc<Link>,
    /// Of those that have not been answered.
    asked: VecDeque<Result<Asked, Failure>>,
}

/// What came of one of its ranges.
struct Answered<'a> {
    index: usize,
    wanted: Wanted<'a>,
    link: Arc<Link>,
    outcome: Result<Answer, Failure>,
}

impl<'a> Part<'a> {
    /// Asks on `link` for all of `wanted`, with credit for them.
    fn ask(first: usize, wanted: &'a [Wanted<'a>], link: Arc<Link>, credit: Result<Credit, Failure>) -> Self {
        let asked: VecDeque<_> = match credit {
            Ok(mut credit) => wanted.iter().map(|range| link.ask(*range, &mut credit)).collect(),
            Err(failure) => wanted.iter().map(|_| Err(failure.clone())).collect(),
        };
        link.flush();
        Self { first, wanted, link, asked }
    }

    /// The next answer, in the order of the ranges; `None` when all have been. Nothing is lost when it is not waited for any more.
    async fn answered(&mut self) -> Option<Answered<'a>> {
        let nth = self.wanted.len() - self.asked.len();
        let outcome = match self.asked.front_mut()? {
            Ok(asked) => self.link.answer(asked).await,
            Err(failure) => Err(failure.clone()),
        };
        self.asked.pop_front();
        let link = Arc::clone(&self.link);
        Some(Answered { index: self.first + nth, wanted: self.wanted[nth], link, outcome })
    }
}

/// What became of a range in the end.
pub(crate) type Outcome = Result<Fetched, DatanodeError>;

fn refused(wanted: Wanted<'_>, refusal: ManyRefusal) -> DatanodeError {
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
        let links = Arc::new(Links::new(Place::Socket("/nowhere".into()), options, "test".to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        links.growing.store(true, Ordering::Release);
        runtime.block_on(async { links.grow(1) });
        drop(runtime);
        assert!(!links.growing.load(Ordering::Acquire));
    }
}
