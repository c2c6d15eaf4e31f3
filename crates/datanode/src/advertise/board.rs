//! Which replicas are shown, who may still be reading them, and when their memory may go.
//!
//! ```text
//!              place            show               withdraw, a lease runs
//!   (nothing) ───────► placed ───────► advertised ───────────────────────► leaving ──► (dropped)
//!                        │ withdraw        │ withdraw, no lease runs                      ▲
//!                        ▼                 └──────────────────────────────────────────────┘ the last lease is over
//!                    (nothing)
//! ```
//! A place is taken before the replica is opened: so a withdrawal that comes while it is being registered takes the place
//! away, and `show` fails. The record beside the memory is filled and zeroed under the same lock that grants leases.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

#[cfg(test)]
mod model;

/// What is shown: memory, its registrations, and the guard on it. Dropping it ends all three, in that order.
pub trait Showing {
    /// Bytes registered.
    fn bytes(&self) -> u64;

    /// Says beside the memory whose it is. It is from here on.
    fn fill(&self);

    /// Takes that back.
    fn clear(&self);
}

/// How much may be shown at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Registered.
    pub bytes: u64,
    /// Each takes descriptors and mappings of the process, however small it is.
    pub replicas: u64,
}

/// Times are in ms of one clock that never goes back.
pub struct Board<K, S> {
    state: Mutex<State<K, S>>,
    bounds: Bounds,
}

struct State<K, S> {
    entries: HashMap<K, Entry<S>>,
    /// Withdrawn, with the end of the last lease.
    leaving: Vec<(u64, S)>,
    tickets: u64,
    /// Of all that is advertised or leaving, and of places with room.
    bytes: u64,
    /// How many those are.
    replicas: u64,
}

enum Entry<S> {
    /// Somebody is about to show it.
    Placed {
        ticket: u64,
        /// What it has room for, when it has.
        room: Option<u64>,
    },
    Advertised {
        showing: S,
        lease_end: u64,
    },
}

/// The right to show one replica; a withdrawal ends it.
#[derive(Debug)]
pub struct Place<K> {
    key: K,
    ticket: u64,
}

/// The answer to a wish for a place.
#[derive(Debug)]
pub enum Placing<K> {
    Yours(Place<K>),
    /// Somebody else is about to show it.
    Taken,
    /// It is advertised.
    Advertised,
}

/// What a withdrawal leaves behind.
#[derive(Debug)]
pub enum Left<S> {
    Nothing,
    /// Nobody may rely on it any more: to be dropped, now.
    Over(S),
    /// Somebody may: it goes when his lease is over.
    Leased,
}

/// What the board has, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    pub advertised: u64,
    pub leaving: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl<K: Clone + Eq + Hash, S: Showing> Board<K, S> {
    pub fn new(bounds: Bounds) -> Self {
        let state = State { entries: HashMap::new(), leaving: Vec::new(), tickets: 0, bytes: 0, replicas: 0 };
        Self { state: Mutex::new(state), bounds }
    }

    /// Takes a place before the replica is opened.
    pub fn place(&self, key: &K) -> Placing<K> {
        let mut state = self.state.lock();
        match state.entries.get(key) {
            Some(Entry::Advertised { .. }) => return Placing::Advertised,
            Some(Entry::Placed { .. }) => return Placing::Taken,
            None => {}
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.entries.insert(key.clone(), Entry::Placed { ticket, room: None });
        Placing::Yours(Place { key: key.clone(), ticket })
    }

    /// Makes room for `bytes` of registrations, once for a place. With `push`, advertised replicas that nobody has a lease of make way, those
    /// whose lease ended first go first; they are added to `gone`. False: there is no room.
    pub fn reserve(&self, place: &Place<K>, bytes: u64, push: Option<u64>, gone: &mut Vec<S>) -> bool {
        let mut state = self.state.lock();
        if bytes > self.bounds.bytes || self.bounds.replicas == 0 {
            return false;
        }
        while state.bytes + bytes > self.bounds.bytes || state.replicas >= self.bounds.replicas {
            let Some(now) = push else { return false };
            let ended = state.entries.iter().filter_map(|(key, entry)| match entry {
                Entry::Advertised { lease_end, .. } if *lease_end <= now => Some((*lease_end, key)),
                Entry::Advertised { .. } | Entry::Placed { .. } => None,
            });
            let Some(key) = ended.min_by_key(|(end, _)| *end).map(|(_, key)| key.clone()) else { return false };
            if let Left::Over(showing) = state.withdraw(&key, now, false) {
                gone.push(showing);
            }
        }
        match state.entries.get_mut(&place.key) {
            Some(Entry::Placed { ticket, room }) if *ticket == place.ticket => {
                *room = Some(bytes);
                state.enter(bytes);
                true
            }
            // Withdrawn: `show` will say so.
            _ => true,
        }
    }

    /// The replica is registered, and the store has agreed that it is shown. Gives `showing` back when it was withdrawn
    /// meanwhile.
    pub fn show(&self, place: Place<K>, showing: S) -> Result<(), S> {
        let mut state = self.state.lock();
        match state.entries.get(&place.key) {
            Some(Entry::Placed { ticket, room }) if *ticket == place.ticket => {
                let room = *room;
                state.leave(room);
                state.enter(showing.bytes());
                showing.fill();
                state.entries.insert(place.key, Entry::Advertised { showing, lease_end: 0 });
                Ok(())
            }
            _ => Err(showing),
        }
    }

    /// It is not shown after all.
    pub fn give_up(&self, place: Place<K>) {
        let mut state = self.state.lock();
        if let Some(Entry::Placed { ticket, room }) = state.entries.get(&place.key)
            && *ticket == place.ticket
        {
            let room = *room;
            state.leave(room);
            state.entries.remove(&place.key);
        }
    }

    /// Grants a lease until `end`, if the replica is advertised. `what` sees it under the lock.
    pub fn lease<R>(&self, key: &K, end: u64, what: impl FnOnce(&S) -> R) -> Option<R> {
        let mut state = self.state.lock();
        match state.entries.get_mut(key) {
            Some(Entry::Advertised { showing, lease_end }) => {
                *lease_end = (*lease_end).max(end);
                Some(what(showing))
            }
            Some(Entry::Placed { .. }) | None => None,
        }
    }

    /// The replica is about to change or to leave. `at_once`: leases do not count, what is read by them is bad.
    pub fn withdraw(&self, key: &K, now: u64, at_once: bool) -> Left<S> {
        self.state.lock().withdraw(key, now, at_once)
    }

    /// Takes off what nobody may rely on any more: to be dropped by the caller.
    #[must_use]
    pub fn sweep(&self, now: u64) -> Vec<S> {
        let mut state = self.state.lock();
        let mut over = Vec::new();
        let mut at = 0;
        while at < state.leaving.len() {
            if state.leaving[at].0 <= now {
                let (_, showing) = state.leaving.swap_remove(at);
                state.leave(Some(showing.bytes()));
                over.push(showing);
            } else {
                at += 1;
            }
        }
        over
    }

    /// Withdraws everything.
    #[must_use]
    pub fn clear(&self) -> Vec<S> {
        let mut state = self.state.lock();
        let keys: Vec<K> = state.entries.keys().cloned().collect();
        let mut over: Vec<S> = Vec::new();
        for key in keys {
            if let Left::Over(showing) = state.withdraw(&key, 0, true) {
                over.push(showing);
            }
        }
        over.extend(std::mem::take(&mut state.leaving).into_iter().map(|(_, showing)| showing));
        (state.bytes, state.replicas) = (0, 0);
        over
    }

    pub fn figures(&self) -> Figures {
        let state = self.state.lock();
        let advertised = state.entries.values().filter(|entry| matches!(entry, Entry::Advertised { .. })).count();
        Figures { advertised: advertised as u64, leaving: state.leaving.len() as u64, bytes: state.bytes }
    }
}

impl<K: Clone + Eq + Hash, S: Showing> State<K, S> {
    /// One more, of so many bytes.
    fn enter(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.replicas += 1;
    }

    /// One less, if it had room.
    fn leave(&mut self, room: Option<u64>) {
        if let Some(bytes) = room {
            self.bytes -= bytes;
            self.replicas -= 1;
        }
    }

    fn withdraw(&mut self, key: &K, now: u64, at_once: bool) -> Left<S> {
        match self.entries.remove(key) {
            None => Left::Nothing,
            Some(Entry::Placed { room, .. }) => {
                self.leave(room);
                Left::Nothing
            }
            Some(Entry::Advertised { showing, lease_end }) => {
                showing.clear();
                if at_once || lease_end <= now {
                    self.leave(Some(showing.bytes()));
                    return Left::Over(showing);
                }
                self.leaving.push((lease_end, showing));
                Left::Leased
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const ROOM: Bounds = Bounds { bytes: 100, replicas: 9 };

    #[derive(Debug, Default)]
    struct Memory {
        shown: Arc<AtomicBool>,
        bytes: u64,
    }

    impl Showing for Memory {
        fn bytes(&self) -> u64 {
            self.bytes
        }
        fn fill(&self) {
            self.shown.store(true, Ordering::Relaxed);
        }
        fn clear(&self) {
            self.shown.store(false, Ordering::Relaxed);
        }
    }

    fn show(board: &Board<u32, Memory>, key: u32, bytes: u64) -> Arc<AtomicBool> {
        let Placing::Yours(place) = board.place(&key) else { panic!("the place is taken") };
        assert!(board.reserve(&place, bytes, None, &mut Vec::new()));
        let memory = Memory { bytes, ..Memory::default() };
        let shown = memory.shown.clone();
        board.show(place, memory).unwrap();
        shown
    }

    #[test]
    fn a_lease_keeps_memory_and_a_withdrawal_ends_what_it_shows() {
        let board = Board::new(ROOM);
        let shown = show(&board, 1, 60);
        assert!(shown.load(Ordering::Relaxed));
        assert!(matches!(board.place(&1), Placing::Advertised));
        assert_eq!(board.lease(&1, 50, |memory| memory.bytes), Some(60));
        // An earlier end does not shorten it.
        board.lease(&1, 40, |_| ());
        assert!(matches!(board.withdraw(&1, 10, false), Left::Leased));
        assert!(!shown.load(Ordering::Relaxed));
        assert_eq!(board.figures(), Figures { advertised: 0, leaving: 1, bytes: 60 });
        assert_eq!(board.lease(&1, 60, |_| ()), None);
        assert!(board.sweep(49).is_empty());
        assert_eq!(board.sweep(50).len(), 1);
        assert_eq!(board.figures(), Figures::default());
        assert!(matches!(board.withdraw(&1, 50, false), Left::Nothing));
    }

    #[test]
    fn without_a_lease_or_when_it_is_bad_memory_goes_at_once() {
        let board = Board::new(ROOM);
        show(&board, 1, 10);
        assert!(matches!(board.withdraw(&1, 0, false), Left::Over(_)));
        show(&board, 1, 10);
        board.lease(&1, 50, |_| ());
        assert!(matches!(board.withdraw(&1, 0, true), Left::Over(_)));
        assert_eq!(board.figures().bytes, 0);
    }

    #[test]
    fn a_withdrawal_takes_the_place_away() {
        let board = Board::new(ROOM);
        let Placing::Yours(place) = board.place(&1) else { panic!() };
        assert!(matches!(board.place(&1), Placing::Taken));
        board.reserve(&place, 10, None, &mut Vec::new());
        assert!(matches!(board.withdraw(&1, 0, false), Left::Nothing));
        let Placing::Yours(second) = board.place(&1) else { panic!() };
        let memory = board.show(place, Memory::default()).unwrap_err();
        assert!(!memory.shown.load(Ordering::Relaxed), "it was never filled");
        board.give_up(second);
        assert_eq!(board.figures(), Figures::default());
    }

    #[test]
    fn registered_memory_has_a_limit_and_those_without_a_lease_make_way() {
        let board = Board::new(ROOM);
        show(&board, 1, 40);
        show(&board, 2, 40);
        board.lease(&1, 50, |_| ());
        board.lease(&2, 30, |_| ());
        let Placing::Yours(place) = board.place(&3) else { panic!() };
        let mut gone = Vec::new();
        assert!(!board.reserve(&place, 40, None, &mut gone));
        assert!(!board.reserve(&place, 40, Some(20), &mut gone), "both are leased");
        assert!(!board.reserve(&place, 101, Some(200), &mut gone), "more than all");
        assert!(board.reserve(&place, 40, Some(60), &mut gone));
        assert_eq!(gone.len(), 1);
        assert!(board.lease(&2, 0, |_| ()).is_none(), "the one whose lease ended first made way");
        assert!(board.lease(&1, 0, |_| ()).is_some());
        assert_eq!(board.figures().bytes, 80);
        assert_eq!(board.clear().len(), 1);
    }

    #[test]
    fn replicas_have_a_limit_however_small_they_are() {
        let board = Board::new(Bounds { bytes: 100, replicas: 2 });
        show(&board, 1, 1);
        board.lease(&1, 50, |_| ());
        let Placing::Yours(second) = board.place(&2) else { panic!() };
        assert!(board.reserve(&second, 1, None, &mut Vec::new()));
        let Placing::Yours(third) = board.place(&3) else { panic!() };
        let mut gone = Vec::new();
        assert!(!board.reserve(&third, 1, Some(10), &mut gone), "one that is about to be shown counts");
        assert!(board.reserve(&third, 1, Some(60), &mut gone));
        assert_eq!(gone.len(), 1, "the one whose lease is over made way");
        board.give_up(second);
        board.show(third, Memory { bytes: 1, ..Memory::default() }).unwrap();
        board.lease(&3, 50, |_| ());
        show(&board, 4, 1);
        assert!(matches!(board.withdraw(&3, 10, false), Left::Leased));
        let Placing::Yours(fifth) = board.place(&5) else { panic!() };
        assert!(!board.reserve(&fifth, 1, None, &mut gone), "one that is leaving counts until it has gone");
        assert_eq!(board.sweep(50).len(), 1);
        assert!(board.reserve(&fifth, 1, None, &mut gone));
        board.give_up(fifth);
        assert!(matches!(board.withdraw(&4, 50, false), Left::Over(_)));
        assert_eq!(board.figures(), Figures::default());
    }
}
