//! Limits the connections of a port. At the limit, an inactive connection is closed in favour of the newest.
//!
//! A connection is pending until its peer has made a first complete request. After that it is busy while the server
//! works on a request, and idle between requests. Pending connections are closed first, then idle ones. Busy
//! connections are never closed: if all are busy, the newest is refused. Among the candidates, the oldest of the party
//! with the most connections is closed, so one host cannot displace the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::stream::Party;

/// Marks a busy connection, in place of the time since which it is idle.
const BUSY: u64 = u64::MAX;

/// Maximum number of connections that are closed for a new one. More than one are closed only after the limits were
/// lowered; a bound, because each is searched among all connections.
const CLOSED_AT_ONCE_MAX: usize = 8;

/// Limits of [`ConnectionLimit`].
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimitOptions {
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of pending connections. At least one, and at most half of `connections_max` unless that is 1.
    pub pending_max: usize,
    /// Maximum number of connections of one party. At this number one of the party's own connections is closed, or its
    /// newest is refused.
    pub of_party_max: usize,
    /// Minimum idle time after which a connection may be closed.
    pub idle_min: Duration,
}

impl ConnectionLimitOptions {
    /// Returns limits without a maximum for each party. Pending connections get a quarter of all places, and at most
    /// 1024.
    pub fn new(connections_max: usize) -> Self {
        Self {
            connections_max,
            pending_max: (connections_max / 4).min(1024),
            of_party_max: usize::MAX,
            idle_min: Duration::ZERO,
        }
    }

    /// Returns the limits within their bounds.
    fn consistent(self) -> Self {
        let connections_max = self.connections_max.max(1);
        let pending_max = self.pending_max.clamp(1, (connections_max / 2).max(1));
        Self { connections_max, pending_max, ..self }
    }

    /// Returns the number of pending connections from which on they are closed before idle ones. If they always went
    /// first, they would share a single place whenever established connections hold all the others.
    fn many_pending(&self) -> usize {
        self.pending_max.div_ceil(4)
    }
}

/// All connections of one port, or of several ports that share the limit.
#[derive(Debug)]
pub struct ConnectionLimit {
    began: Instant,
    state: Mutex<OpenConnections>,
}

#[derive(Debug)]
struct OpenConnections {
    options: ConnectionLimitOptions,
    /// Ordered by age.
    pending: BTreeMap<u64, OpenConnection>,
    established: HashMap<u64, OpenConnection>,
    parties: HashMap<Party, Arc<AtomicUsize>>,
    next: u64,
}

#[derive(Debug)]
struct OpenConnection {
    party: Party,
    /// Number of connections of the party.
    of_party: Arc<AtomicUsize>,
    /// [`BUSY`], or the time at which the connection became idle, in microseconds since the creation of
    /// [`ConnectionLimit`].
    since: Arc<AtomicU64>,
    give_way: oneshot::Sender<()>,
}

/// Permit of one connection; released on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    all: Arc<ConnectionLimit>,
    number: u64,
    since: Arc<AtomicU64>,
}

/// Resolves when the connection must be closed to make room.
#[derive(Debug)]
pub struct ShedSignal(oneshot::Receiver<()>);

impl ShedSignal {
    /// Waits for the signal.
    pub async fn wait(&mut self) {
        if (&mut self.0).await.is_err() {
            // The permit was released, so no signal will come.
            std::future::pending::<()>().await;
        }
    }
}

impl ConnectionLimit {
    pub fn new(options: ConnectionLimitOptions) -> Arc<Self> {
        let state = OpenConnections {
            options: options.consistent(),
            pending: BTreeMap::new(),
            established: HashMap::new(),
            parties: HashMap::new(),
            next: 0,
        };
        Arc::new(Self { began: Instant::now(), state: Mutex::new(state) })
    }

    /// Replaces the limits. Connections beyond the maximum numbers of all and of pending ones are closed if they are
    /// pending or idle. Busy ones stay. Once they are idle, new connections displace them, several each, until the
    /// limits are kept. Connections of a party beyond a lower `of_party_max` stay until they end.
    pub fn set_options(&self, options: ConnectionLimitOptions) {
        let mut state = self.state.lock();
        state.options = options.consistent();
        let closed = state.take_surplus(self.now());
        drop(state);
        closed.into_iter().for_each(OpenConnection::leave);
    }

    /// Returns the limit of all connections.
    pub fn connections_max(&self) -> usize {
        self.state.lock().options.connections_max
    }

    /// Returns the number of admitted connections.
    pub fn taken(&self) -> usize {
        self.state.lock().count()
    }

    /// Admits a connection that was just accepted, as pending. Returns `None` if all places are taken by busy
    /// connections.
    pub fn admit(self: &Arc<Self>, party: Party) -> Option<(ConnectionPermit, ShedSignal)> {
        let mut state = self.state.lock();
        let of_party = state.parties.get(&party).map_or(0, |count| count.load(Ordering::Relaxed));
        let left = if of_party >= state.options.of_party_max {
            Some(self.make_room(&mut state, Some(party))?)
        } else if state.pending.len() >= state.options.pending_max {
            Some(state.take_pending(None)?)
        } else if state.count() >= state.options.connections_max {
            Some(self.make_room(&mut state, None)?)
        } else {
            None
        };
        // After the limits were lowered.
        let mut surplus = Vec::new();
        while state.count() >= state.options.connections_max
            && surplus.len() + 1 < CLOSED_AT_ONCE_MAX
            && let Some(further) = self.make_room(&mut state, None)
        {
            surplus.push(further);
        }
        let number = state.next;
        state.next += 1;
        let of_party = state.parties.entry(party).or_default().clone();
        of_party.fetch_add(1, Ordering::Relaxed);
        let since = Arc::new(AtomicU64::new(self.now()));
        let (give_way, gives_way) = oneshot::channel();
        state.pending.insert(number, OpenConnection { party, of_party, since: since.clone(), give_way });
        drop(state);
        left.into_iter().chain(surplus).for_each(OpenConnection::leave);
        Some((ConnectionPermit { all: self.clone(), number, since }, ShedSignal(gives_way)))
    }

    /// Closes one pending or idle connection, for example when file descriptors run out. Returns true if there was one.
    pub fn shed(&self) -> bool {
        let mut state = self.state.lock();
        let left = self.make_room(&mut state, None);
        drop(state);
        left.map(OpenConnection::leave).is_some()
    }

    /// Removes a connection to make room; only a connection of `party`, if given.
    fn make_room(&self, state: &mut OpenConnections, party: Option<Party>) -> Option<OpenConnection> {
        let few = state.pending.len() < state.options.many_pending();
        let idle_min = state.options.idle_min;
        let quiet = |state: &mut OpenConnections| state.take_idle(party, self.now(), idle_min);
        if party.is_none() && few {
            quiet(state).or_else(|| state.take_pending(party))
        } else {
            state.take_pending(party).or_else(|| quiet(state))
        }
    }

    /// Returns microseconds, always less than [`BUSY`].
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(BUSY - 1)
    }
}

impl OpenConnections {
    fn count(&self) -> usize {
        self.pending.len() + self.established.len()
    }

    /// Returns the number of connections beyond the maximum.
    fn surplus(&self) -> usize {
        self.count().saturating_sub(self.options.connections_max)
    }

    /// Removes the oldest pending connection of the party with the most connections.
    fn take_pending(&mut self, party: Option<Party>) -> Option<OpenConnection> {
        let mut best: Option<(usize, u64)> = None;
        for (number, entry) in &self.pending {
            let count = entry.of_party.load(Ordering::Relaxed);
            // On a tie, the first is the oldest.
            if party.is_none_or(|party| party == entry.party) && best.is_none_or(|(most, _)| count > most) {
                best = Some((count, *number));
            }
        }
        let entry = self.pending.remove(&best?.1)?;
        self.count_back(&entry);
        Some(entry)
    }

    /// Removes the longest idle connection of the party with the most connections.
    fn take_idle(&mut self, party: Option<Party>, now: u64, idle_min: Duration) -> Option<OpenConnection> {
        let mut best: Option<(usize, u64, u64)> = None;
        for (since, number, entry) in self.idle(now, idle_min) {
            if party.is_some_and(|party| party != entry.party) {
                continue;
            }
            let count = entry.of_party.load(Ordering::Relaxed);
            if best.is_none_or(|(most, oldest, _)| (count, oldest) > (most, since)) {
                best = Some((count, since, number));
            }
        }
        let entry = self.established.remove(&best?.2)?;
        self.count_back(&entry);
        Some(entry)
    }

    /// Returns the connections that have been idle for `idle_min`: the time since when, and the number of each.
    fn idle(&self, now: u64, idle_min: Duration) -> impl Iterator<Item = (u64, u64, &OpenConnection)> {
        let latest = u64::try_from(idle_min.as_micros()).ok().and_then(|idle_min| now.checked_sub(idle_min));
        latest.into_iter().flat_map(move |latest| {
            self.established.iter().filter_map(move |(number, entry)| {
                let since = entry.since.load(Ordering::Relaxed);
                (since != BUSY && since <= latest).then_some((since, *number, entry))
            })
        })
    }

    /// Removes the connections beyond the limits that are pending or idle, in the order in which
    /// [`make_room`](ConnectionLimit::make_room) would. Sorts them, because it may be most of them.
    fn take_surplus(&mut self, now: u64) -> Vec<OpenConnection> {
        let options = self.options;
        let pending = self.pending.len();
        let beyond_pending = pending.saturating_sub(options.pending_max);
        let beyond_few = (pending + 1).saturating_sub(options.many_pending());
        let mut closed = self.take_first_pending(self.surplus().min(beyond_few).max(beyond_pending));
        let idle = first_closed(self.idle(now, options.idle_min), self.surplus());
        for number in idle {
            if let Some(entry) = self.established.remove(&number) {
                self.count_back(&entry);
                closed.push(entry);
            }
        }
        closed.extend(self.take_first_pending(self.surplus()));
        closed
    }

    /// Removes `count` pending connections, in the order of [`take_pending`](Self::take_pending).
    fn take_first_pending(&mut self, count: usize) -> Vec<OpenConnection> {
        let first = first_closed(self.pending.iter().map(|(number, entry)| (*number, *number, entry)), count);
        let closed: Vec<_> = first.into_iter().filter_map(|number| self.pending.remove(&number)).collect();
        closed.iter().for_each(|entry| self.count_back(entry));
        closed
    }

    fn count_back(&mut self, entry: &OpenConnection) {
        if entry.of_party.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.parties.remove(&entry.party);
        }
    }
}

/// Returns the numbers of the `count` candidates that are closed first: each time the oldest of the party with the most
/// connections. Candidates: age, number, connection.
fn first_closed<'a>(candidates: impl Iterator<Item = (u64, u64, &'a OpenConnection)>, count: usize) -> Vec<u64> {
    if count == 0 {
        return Vec::new();
    }
    let mut candidates: Vec<_> = candidates.collect();
    candidates.sort_unstable_by_key(|(age, number, _)| (*age, *number));
    let mut of_parties = HashMap::new();
    let mut order: Vec<_> = candidates
        .into_iter()
        .map(|(age, number, entry)| {
            // The connections that the party has once its older candidates are closed.
            let of_party = of_parties.entry(entry.party).or_insert_with(|| entry.of_party.load(Ordering::Relaxed));
            let place = (Reverse(*of_party), age, number);
            *of_party = of_party.saturating_sub(1);
            place
        })
        .collect();
    order.sort_unstable();
    order.into_iter().take(count).map(|(.., number)| number).collect()
}

impl OpenConnection {
    fn leave(self) {
        // The connection may already be ending by itself.
        let _ = self.give_way.send(());
    }
}

impl ConnectionPermit {
    /// Records that the peer has made a complete request: the connection is no longer pending, but busy.
    pub fn mark_established(&self) {
        self.mark_busy();
        let mut state = self.all.state.lock();
        if let Some(entry) = state.pending.remove(&self.number) {
            state.established.insert(self.number, entry);
        }
    }

    /// Records that the server works on a request.
    pub fn mark_busy(&self) {
        self.since.store(BUSY, Ordering::Relaxed);
    }

    /// Records that the server waits for the next request.
    pub fn mark_idle(&self) {
        self.since.store(self.all.now(), Ordering::Relaxed);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        let entry = state.pending.remove(&self.number).or_else(|| state.established.remove(&self.number));
        if let Some(entry) = entry {
            state.count_back(&entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(connections_max: usize, pending_max: usize) -> Arc<ConnectionLimit> {
        ConnectionLimit::new(ConnectionLimitOptions { pending_max, ..ConnectionLimitOptions::new(connections_max) })
    }

    fn party(last: u8) -> Party {
        Party::from(std::net::IpAddr::from([10, 0, 0, last]))
    }

    /// Returns true if the connection was told to close.
    fn gave_way(gives_way: &mut ShedSignal) -> bool {
        gives_way.0.try_recv() == Ok(())
    }

    #[test]
    fn oldest_pending_connection_is_closed() {
        let places = places(8, 2);
        let (known, mut first) = places.admit(party(1)).unwrap();
        known.mark_established();
        let (_second, mut second) = places.admit(party(1)).unwrap();
        let (_third, mut third) = places.admit(party(1)).unwrap();
        assert!(!gave_way(&mut second));
        let (_fourth, mut fourth) = places.admit(party(1)).unwrap();
        assert!(gave_way(&mut second));
        assert!(![&mut first, &mut third, &mut fourth].into_iter().any(gave_way));
        assert_eq!(places.taken(), 3);
    }

    #[test]
    fn party_with_most_connections_loses_one() {
        let places = places(100, 4);
        let (_honest, mut honest) = places.admit(party(1)).unwrap();
        let mut others: Vec<_> = (0..50).map(|_| places.admit(party(2)).unwrap()).collect();
        assert!(!gave_way(&mut honest));
        assert_eq!(others.iter_mut().filter_map(|(_, other)| gave_way(other).then_some(())).count(), 47);
    }

    #[test]
    fn idle_connections_are_closed_busy_are_not() {
        let places = places(4, 2);
        let mut known = Vec::new();
        for _ in 0..4 {
            let (place, gives_way) = places.admit(party(1)).unwrap();
            place.mark_established();
            known.push((place, gives_way));
        }
        assert!(places.admit(party(1)).is_none(), "all are busy");
        assert!(!places.shed());
        known[2].0.mark_idle();
        let now = places.now();
        while places.now() == now {}
        known[1].0.mark_idle();
        let (_fifth, mut fifth) = places.admit(party(1)).unwrap();
        assert!(gave_way(&mut known[2].1));
        assert!(!gave_way(&mut known[1].1));
        // Now a connection is pending, and there are enough pending ones.
        let _sixth = places.admit(party(1)).unwrap();
        assert!(gave_way(&mut fifth));
        assert!(!gave_way(&mut known[1].1));
        drop(known);
        assert_eq!(places.taken(), 1);
    }

    #[test]
    fn changed_limit_closes_idle_connections() {
        let places = places(8, 4);
        let mut known = [(); 4].map(|()| places.admit(party(1)).unwrap());
        known.iter().for_each(|(place, _)| place.mark_established());
        known[0].0.mark_idle();
        known[1].0.mark_idle();
        places.set_options(ConnectionLimitOptions::new(1));
        assert_eq!((places.connections_max(), places.taken()), (1, 2), "the busy ones stay");
        assert_eq!(known.each_mut().map(|(_, gives_way)| gave_way(gives_way)), [true, true, false, false]);
        assert!(places.admit(party(1)).is_none());
        places.set_options(ConnectionLimitOptions::new(3));
        assert!(places.admit(party(1)).is_some());
    }

    #[test]
    fn new_connections_close_those_beyond_a_lowered_limit() {
        let places = places(16, 8);
        let mut known = Vec::new();
        for _ in 0..12 {
            known.push(places.admit(party(1)).unwrap());
            known.iter().for_each(|(place, _)| place.mark_established());
        }
        places.set_options(ConnectionLimitOptions::new(2));
        assert_eq!(places.taken(), 12, "all are busy");
        known.iter().for_each(|(place, _)| place.mark_idle());
        let (first, mut first_gives_way) = places.admit(party(1)).unwrap();
        first.mark_established();
        assert_eq!(places.taken(), 12 - CLOSED_AT_ONCE_MAX + 1);
        let _second = places.admit(party(1)).unwrap();
        assert_eq!(places.taken(), 2);
        assert!(known.iter_mut().all(|(_, gives_way)| gave_way(gives_way)) && !gave_way(&mut first_gives_way));
    }

    #[test]
    fn lowered_limit_of_pending_connections_closes_the_oldest_of_the_largest_party() {
        let places = places(100, 50);
        let (_honest, mut honest) = places.admit(party(1)).unwrap();
        let mut others: Vec<_> = (0..10).map(|_| places.admit(party(2)).unwrap()).collect();
        places.set_options(ConnectionLimitOptions { pending_max: 3, ..ConnectionLimitOptions::new(100) });
        assert_eq!(places.taken(), 3);
        let closed: Vec<_> = others.iter_mut().map(|(_, other)| gave_way(other)).collect();
        assert!(closed[..8].iter().all(|closed| *closed) && closed[8..] == [false, false] && !gave_way(&mut honest));
    }

    #[test]
    fn briefly_idle_connections_stay() {
        let options = ConnectionLimitOptions { idle_min: Duration::from_secs(3600), ..ConnectionLimitOptions::new(1) };
        let (place, _gives_way) = {
            let places = ConnectionLimit::new(options);
            let admitted = places.admit(party(1)).unwrap();
            admitted.0.mark_established();
            admitted.0.mark_idle();
            assert!(places.admit(party(1)).is_none());
            admitted
        };
        let places = place.all.clone();
        assert!(!places.shed());
    }

    #[test]
    fn party_limit_closes_its_own_connections() {
        let places = ConnectionLimit::new(ConnectionLimitOptions {
            of_party_max: 2,
            pending_max: 4,
            ..ConnectionLimitOptions::new(8)
        });
        let (_other, mut other) = places.admit(party(2)).unwrap();
        let mut of_party: Vec<_> = (0..2).map(|_| places.admit(party(1)).unwrap()).collect();
        of_party[0].0.mark_established();
        let (third, mut third_gives_way) = places.admit(party(1)).unwrap();
        assert!(gave_way(&mut of_party[1].1));
        third.mark_established();
        assert!(places.admit(party(1)).is_none(), "both of its places are busy");
        assert!(![&mut other, &mut third_gives_way].into_iter().any(gave_way));
        drop((third, of_party));
        assert_eq!(places.state.lock().parties.len(), 1);
    }
}
