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
pub trait AdvertisedMemory {
    /// Bytes registered.
    fn bytes(&self) -> u64;

    /// Says beside the memory whose it is. It is from here on.
    fn write_record(&self);

    /// Takes that back.
    fn clear_record(&self);
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
pub struct LeaseTable<K, S> {
    state: Mutex<LeaseTableState<K, S>>,
    bounds: Bounds,
}

struct LeaseTableState<K, S> {
    entries: HashMap<K, LeaseEntry<S>>,
    /// Withdrawn, with the end of the last lease.
    leaving: Vec<(u64, S)>,
    tickets: u64,
    /// Of all that is advertised or leaving, and of places with room.
    bytes: u64,
    /// How many those are.
    replicas: u64,
}

enum LeaseEntry<S> {
    /// Somebody is about to show it.
    Claimed {
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
pub struct Claim<K> {
    key: K,
    ticket: u64,
}

/// The answer to a wish for a place.
#[derive(Debug)]
pub enum ClaimResult<K> {
    Claimed(Claim<K>),
    /// Somebody else is about to show it.
    Busy,
    /// It is advertised.
    Advertised,
}

/// What a withdrawal leaves behind.
#[derive(Debug)]
pub enum WithdrawOutcome<S> {
    Nothing,
    /// Nobody may rely on it any more: to be dropped, now.
    Over(S),
    /// Somebody may: it goes when his lease is over.
    Leased,
}

/// What the board has, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdvertisedMetrics {
    pub advertised: u64,
    pub leaving: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl<K: Clone + Eq + Hash, S: AdvertisedMemory> LeaseTable<K, S> {
    pub fn new(bounds: Bounds) -> Self {
        let state = LeaseTableState { entries: HashMap::new(), leaving: Vec::new(), tickets: 0, bytes: 0, replicas: 0 };
        Self { state: Mutex::new(state), bounds }
    }

    /// Takes a place before the replica is opened.
    pub fn claim(&self, key: &K) -> ClaimResult<K> {
        let mut state = self.state.lock();
        match state.entries.get(key) {
            Some(LeaseEntry::Advertised { .. }) => return ClaimResult::Advertised,
            Some(LeaseEntry::Claimed { .. }) => return ClaimResult::Busy,
            None => {}
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.entries.insert(key.clone(), LeaseEntry::Claimed { ticket, room: None });
        ClaimResult::Claimed(Claim { key: key.clone(), ticket })
    }

    /// Makes room for `bytes` of registrations, once for a place. With `evict`, advertised replicas that nobody has a lease of make way, those
    /// whose lease ended first go first; they are added to `gone`. False: there is no room.
    pub fn reserve(&self, claim: &Claim<K>, bytes: u64, evict: Option<u64>, gone: &mut Vec<S>) -> bool {
        let mut state = self.state.lock();
        if bytes > self.bounds.bytes || self.bounds.replicas == 0 {
            return false;
        }
        while state.bytes + bytes > self.bounds.bytes || state.replicas >= self.bounds.replicas {
            let Some(now) = evict else { return false };
            let ended = state.entries.iter().filter_map(|(key, entry)| match entry {
                LeaseEntry::Advertised { lease_end, .. } if *lease_end <= now => Some((*lease_end, key)),
                LeaseEntry::Advertised { .. } | LeaseEntry::Claimed { .. } => None,
            });
            let Some(key) = ended.min_by_key(|(end, _)| *end).map(|(_, key)| key.clone()) else { return false };
            if let WithdrawOutcome::Over(showing) = state.withdraw(&key, now, false) {
                gone.push(showing);
            }
        }
        match state.entries.get_mut(&claim.key) {
            Some(LeaseEntry::Claimed { ticket, room }) if *ticket == claim.ticket => {
                *room = Some(bytes);
                state.charge(bytes);
                true
            }
            // Withdrawn: `show` will say so.
            _ => true,
        }
    }

    /// The replica is registered, and the store has agreed that it is shown. Gives `showing` back when it was withdrawn
    /// meanwhile.
    pub fn show(&self, claim: Claim<K>, showing: S) -> Result<(), S> {
        let mut state = self.state.lock();
        match state.entries.get(&claim.key) {
            Some(LeaseEntry::Claimed { ticket, room }) if *ticket == claim.ticket => {
                let room = *room;
                state.release(room);
                state.charge(showing.bytes());
                showing.write_record();
                state.entries.insert(claim.key, LeaseEntry::Advertised { showing, lease_end: 0 });
                Ok(())
            }
            _ => Err(showing),
        }
    }

    /// It is not shown after all.
    pub fn abandon_claim(&self, claim: Claim<K>) {
        let mut state = self.state.lock();
        if let Some(LeaseEntry::Claimed { ticket, room }) = state.entries.get(&claim.key)
            && *ticket == claim.ticket
        {
            let room = *room;
            state.release(room);
            state.entries.remove(&claim.key);
        }
    }

    /// Grants a lease until `end`, if the replica is advertised. `what` sees it under the lock.
    pub fn lease<R>(&self, key: &K, end: u64, what: impl FnOnce(&S) -> R) -> Option<R> {
        let mut state = self.state.lock();
        match state.entries.get_mut(key) {
            Some(LeaseEntry::Advertised { showing, lease_end }) => {
                *lease_end = (*lease_end).max(end);
                Some(what(showing))
            }
            Some(LeaseEntry::Claimed { .. }) | None => None,
        }
    }

    /// The replica is about to change or to leave. `at_once`: leases do not count, what is read by them is bad.
    pub fn withdraw(&self, key: &K, now: u64, at_once: bool) -> WithdrawOutcome<S> {
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
                state.release(Some(showing.bytes()));
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
            if let WithdrawOutcome::Over(showing) = state.withdraw(&key, 0, true) {
                over.push(showing);
            }
        }
        over.extend(std::mem::take(&mut state.leaving).into_iter().map(|(_, showing)| showing));
        (state.bytes, state.replicas) = (0, 0);
        over
    }

    pub fn metrics(&self) -> AdvertisedMetrics {
        let state = self.state.lock();
        let advertised = state.entries.values().filter(|entry| matches!(entry, LeaseEntry::Advertised { .. })).count();
        AdvertisedMetrics { advertised: advertised as u64, leaving: state.leaving.len() as u64, bytes: state.bytes }
    }
}

impl<K: Clone + Eq + Hash, S: AdvertisedMemory> LeaseTableState<K, S> {
    /// One more, of so many bytes.
    fn charge(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.replicas += 1;
    }

    /// One less, if it had room.
    fn release(&mut self, room: Option<u64>) {
        if let Some(bytes) = room {
            self.bytes -= bytes;
            self.replicas -= 1;
        }
    }

    fn withdraw(&mut self, key: &K, now: u64, at_once: bool) -> WithdrawOutcome<S> {
        match self.entries.remove(key) {
            None => WithdrawOutcome::Nothing,
            Some(LeaseEntry::Claimed { room, .. }) => {
                self.release(room);
                WithdrawOutcome::Nothing
            }
            Some(LeaseEntry::Advertised { showing, lease_end }) => {
                showing.clear_record();
                if at_once || lease_end <= now {
                    self.release(Some(showing.bytes()));
                    return WithdrawOutcome::Over(showing);
                }
                self.leaving.push((lease_end, showing));
                WithdrawOutcome::Leased
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

    impl AdvertisedMemory for Memory {
        fn bytes(&self) -> u64 {
            self.bytes
        }
        fn write_record(&self) {
            self.shown.store(true, Ordering::Relaxed);
        }
        fn clear_record(&self) {
            self.shown.store(false, Ordering::Relaxed);
        }
    }

    fn show(table: &LeaseTable<u32, Memory>, key: u32, bytes: u64) -> Arc<AtomicBool> {
        let ClaimResult::Claimed(claim) = table.claim(&key) else { panic!("the place is taken") };
        assert!(table.reserve(&claim, bytes, None, &mut Vec::new()));
        let memory = Memory { bytes, ..Memory::default() };
        let shown = memory.shown.clone();
        table.show(claim, memory).unwrap();
        shown
    }

    #[test]
    fn a_lease_keeps_memory_and_a_withdrawal_ends_what_it_shows() {
        let table = LeaseTable::new(ROOM);
        let shown = show(&table, 1, 60);
        assert!(shown.load(Ordering::Relaxed));
        assert!(matches!(table.claim(&1), ClaimResult::Advertised));
        assert_eq!(table.lease(&1, 50, |memory| memory.bytes), Some(60));
        // An earlier end does not shorten it.
        table.lease(&1, 40, |_| ());
        assert!(matches!(table.withdraw(&1, 10, false), WithdrawOutcome::Leased));
        assert!(!shown.load(Ordering::Relaxed));
        assert_eq!(table.metrics(), AdvertisedMetrics { advertised: 0, leaving: 1, bytes: 60 });
        assert_eq!(table.lease(&1, 60, |_| ()), None);
        assert!(table.sweep(49).is_empty());
        assert_eq!(table.sweep(50).len(), 1);
        assert_eq!(table.metrics(), AdvertisedMetrics::default());
        assert!(matches!(table.withdraw(&1, 50, false), WithdrawOutcome::Nothing));
    }

    #[test]
    fn without_a_lease_or_when_it_is_bad_memory_goes_at_once() {
        let table = LeaseTable::new(ROOM);
        show(&table, 1, 10);
        assert!(matches!(table.withdraw(&1, 0, false), WithdrawOutcome::Over(_)));
        show(&table, 1, 10);
        table.lease(&1, 50, |_| ());
        assert!(matches!(table.withdraw(&1, 0, true), WithdrawOutcome::Over(_)));
        assert_eq!(table.metrics().bytes, 0);
    }

    #[test]
    fn a_withdrawal_takes_the_place_away() {
        let table = LeaseTable::new(ROOM);
        let ClaimResult::Claimed(claim) = table.claim(&1) else { panic!() };
        assert!(matches!(table.claim(&1), ClaimResult::Busy));
        table.reserve(&claim, 10, None, &mut Vec::new());
        assert!(matches!(table.withdraw(&1, 0, false), WithdrawOutcome::Nothing));
        let ClaimResult::Claimed(second) = table.claim(&1) else { panic!() };
        let memory = table.show(claim, Memory::default()).unwrap_err();
        assert!(!memory.shown.load(Ordering::Relaxed), "it was never filled");
        table.abandon_claim(second);
        assert_eq!(table.metrics(), AdvertisedMetrics::default());
    }

    #[test]
    fn registered_memory_has_a_limit_and_those_without_a_lease_make_way() {
        let table = LeaseTable::new(ROOM);
        show(&table, 1, 40);
        show(&table, 2, 40);
        table.lease(&1, 50, |_| ());
        table.lease(&2, 30, |_| ());
        let ClaimResult::Claimed(claim) = table.claim(&3) else { panic!() };
        let mut gone = Vec::new();
        assert!(!table.reserve(&claim, 40, None, &mut gone));
        assert!(!table.reserve(&claim, 40, Some(20), &mut gone), "both are leased");
        assert!(!table.reserve(&claim, 101, Some(200), &mut gone), "more than all");
        assert!(table.reserve(&claim, 40, Some(60), &mut gone));
        assert_eq!(gone.len(), 1);
        assert!(table.lease(&2, 0, |_| ()).is_none(), "the one whose lease ended first made way");
        assert!(table.lease(&1, 0, |_| ()).is_some());
        assert_eq!(table.metrics().bytes, 80);
        assert_eq!(table.clear().len(), 1);
    }

    #[test]
    fn replicas_have_a_limit_however_small_they_are() {
        let table = LeaseTable::new(Bounds { bytes: 100, replicas: 2 });
        show(&table, 1, 1);
        table.lease(&1, 50, |_| ());
        let ClaimResult::Claimed(second) = table.claim(&2) else { panic!() };
        assert!(table.reserve(&second, 1, None, &mut Vec::new()));
        let ClaimResult::Claimed(third) = table.claim(&3) else { panic!() };
        let mut gone = Vec::new();
        assert!(!table.reserve(&third, 1, Some(10), &mut gone), "one that is about to be shown counts");
        assert!(table.reserve(&third, 1, Some(60), &mut gone));
        assert_eq!(gone.len(), 1, "the one whose lease is over made way");
        table.abandon_claim(second);
        table.show(third, Memory { bytes: 1, ..Memory::default() }).unwrap();
        table.lease(&3, 50, |_| ());
        show(&table, 4, 1);
        assert!(matches!(table.withdraw(&3, 10, false), WithdrawOutcome::Leased));
        let ClaimResult::Claimed(fifth) = table.claim(&5) else { panic!() };
        assert!(!table.reserve(&fifth, 1, None, &mut gone), "one that is leaving counts until it has gone");
        assert_eq!(table.sweep(50).len(), 1);
        assert!(table.reserve(&fifth, 1, None, &mut gone));
        table.abandon_claim(fifth);
        assert!(matches!(table.withdraw(&4, 50, false), WithdrawOutcome::Over(_)));
        assert_eq!(table.metrics(), AdvertisedMetrics::default());
    }
}
