//! Table of shown replicas: their state, the leases on them, and when their memory may be released.
//!
//! ```text
//!              place            show               withdraw, a lease runs
//!   (nothing) ───────► placed ───────► advertised ───────────────────────► leaving ──► (dropped)
//!                        │ withdraw        │ withdraw, no lease runs                      ▲
//!                        ▼                 └──────────────────────────────────────────────┘ the last lease is over
//!                    (nothing)
//! ```
//! A place is claimed before the replica is opened, so that a withdrawal during the registration removes the place, and
//! `show` fails. The record beside the memory is written and zeroed under the same lock that grants leases.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

#[cfg(test)]
mod model;

/// A shown replica: memory, its registrations, and the guard on it. Dropping it ends all three, in that order.
pub trait AdvertisedMemory {
    /// Returns the number of registered bytes.
    fn bytes(&self) -> u64;

    /// Writes the record beside the memory that identifies its owner. It is valid from then on.
    fn write_record(&self);

    /// Clears that record.
    fn clear_record(&self);
}

/// Limits of what is shown at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Registered bytes.
    pub bytes: u64,
    /// Number of replicas: each takes descriptors and mappings of the process, however small it is.
    pub replicas: u64,
}

/// Times are in ms of one monotonic clock.
pub struct LeaseTable<K, S> {
    state: Mutex<LeaseTableState<K, S>>,
}

struct LeaseTableState<K, S> {
    bounds: Bounds,
    entries: HashMap<K, LeaseEntry<S>>,
    /// Withdrawn replicas, each with the end of its last lease.
    leaving: Vec<(u64, S)>,
    tickets: u64,
    /// Bytes of all replicas that are advertised or leaving, and of claims with reserved room.
    bytes: u64,
    /// Number of those replicas and claims.
    replicas: u64,
}

enum LeaseEntry<S> {
    /// A task is about to show it.
    Claimed {
        ticket: u64,
        /// Bytes reserved for it, if any.
        room: Option<u64>,
    },
    Advertised {
        showing: S,
        lease_end: u64,
    },
}

/// The right to show one replica; a withdrawal revokes it.
#[derive(Debug)]
pub struct Claim<K> {
    key: K,
    ticket: u64,
}

/// Result of claiming a place.
#[derive(Debug)]
pub enum ClaimResult<K> {
    Claimed(Claim<K>),
    /// Another task is about to show the replica.
    Busy,
    /// The replica is already advertised.
    Advertised,
}

/// Result of a withdrawal.
#[derive(Debug)]
pub enum WithdrawOutcome<S> {
    Nothing,
    /// No lease is valid any more: the caller drops it now.
    Over(S),
    /// A lease is still valid: the replica is released when the lease has expired.
    Leased,
}

/// Contents of the lease table, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdvertisedMetrics {
    pub advertised: u64,
    pub leaving: u64,
    /// Bytes of the advertised and the leaving replicas.
    pub bytes: u64,
}

impl<K: Clone + Eq + Hash, S: AdvertisedMemory> LeaseTable<K, S> {
    pub fn new(bounds: Bounds) -> Self {
        let state =
            LeaseTableState { bounds, entries: HashMap::new(), leaving: Vec::new(), tickets: 0, bytes: 0, replicas: 0 };
        Self { state: Mutex::new(state) }
    }

    pub fn bounds(&self) -> Bounds {
        self.state.lock().bounds
    }

    /// Changes the limit of registered bytes. What is shown beyond a lower one makes room as others are to be shown.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.state.lock().bounds.bytes = bytes;
    }

    /// Claims a place before the replica is opened.
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

    /// Reserves room for `bytes` of registrations; at most once per claim. With `evict`, advertised replicas without a
    /// valid lease are removed to make room, in the order in which their leases expired; they are added to `gone`.
    /// False: there is no room.
    pub fn reserve(&self, claim: &Claim<K>, bytes: u64, evict: Option<u64>, gone: &mut Vec<S>) -> bool {
        let mut state = self.state.lock();
        let bounds = state.bounds;
        if bytes > bounds.bytes || bounds.replicas == 0 {
            return false;
        }
        while state.bytes + bytes > bounds.bytes || state.replicas >= bounds.replicas {
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
            // Withdrawn: `show` will report it.
            _ => true,
        }
    }

    /// Advertises a replica that is registered and that the store has agreed to show. Returns `showing` if the claim
    /// was withdrawn in between.
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

    /// Gives up a claim whose replica is not shown after all.
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

    /// Grants a lease until `end` if the replica is advertised. `what` is called with it under the lock.
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

    /// Withdraws a replica that is about to change or to be released. `at_once`: leases are ignored, because the data
    /// is bad.
    pub fn withdraw(&self, key: &K, now: u64, at_once: bool) -> WithdrawOutcome<S> {
        self.state.lock().withdraw(key, now, at_once)
    }

    /// Removes replicas whose leases have all expired. The caller drops them.
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

    /// Withdraws all replicas.
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
    /// Adds one replica of `bytes`.
    fn charge(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.replicas += 1;
    }

    /// Removes one replica, if it had reserved room.
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
    fn lease_keeps_withdrawn_memory() {
        let table = LeaseTable::new(ROOM);
        let shown = show(&table, 1, 60);
        assert!(shown.load(Ordering::Relaxed));
        assert!(matches!(table.claim(&1), ClaimResult::Advertised));
        assert_eq!(table.lease(&1, 50, |memory| memory.bytes), Some(60));
        // An earlier end does not shorten the lease.
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
    fn unleased_or_corrupt_memory_is_freed_at_once() {
        let table = LeaseTable::new(ROOM);
        show(&table, 1, 10);
        assert!(matches!(table.withdraw(&1, 0, false), WithdrawOutcome::Over(_)));
        show(&table, 1, 10);
        table.lease(&1, 50, |_| ());
        assert!(matches!(table.withdraw(&1, 0, true), WithdrawOutcome::Over(_)));
        assert_eq!(table.metrics().bytes, 0);
    }

    #[test]
    fn withdrawal_revokes_claim() {
        let table = LeaseTable::new(ROOM);
        let ClaimResult::Claimed(claim) = table.claim(&1) else { panic!() };
        assert!(matches!(table.claim(&1), ClaimResult::Busy));
        table.reserve(&claim, 10, None, &mut Vec::new());
        assert!(matches!(table.withdraw(&1, 0, false), WithdrawOutcome::Nothing));
        let ClaimResult::Claimed(second) = table.claim(&1) else { panic!() };
        let memory = table.show(claim, Memory::default()).unwrap_err();
        assert!(!memory.shown.load(Ordering::Relaxed), "the record was never written");
        table.abandon_claim(second);
        assert_eq!(table.metrics(), AdvertisedMetrics::default());
    }

    #[test]
    fn unleased_replicas_are_evicted_at_byte_limit() {
        let table = LeaseTable::new(ROOM);
        show(&table, 1, 40);
        show(&table, 2, 40);
        table.lease(&1, 50, |_| ());
        table.lease(&2, 30, |_| ());
        let ClaimResult::Claimed(claim) = table.claim(&3) else { panic!() };
        let mut gone = Vec::new();
        assert!(!table.reserve(&claim, 40, None, &mut gone));
        assert!(!table.reserve(&claim, 40, Some(20), &mut gone), "both are leased");
        assert!(!table.reserve(&claim, 101, Some(200), &mut gone), "more than the limit");
        assert!(table.reserve(&claim, 40, Some(60), &mut gone));
        assert_eq!(gone.len(), 1);
        assert!(table.lease(&2, 0, |_| ()).is_none(), "the replica whose lease ended first was removed");
        assert!(table.lease(&1, 0, |_| ()).is_some());
        assert_eq!(table.metrics().bytes, 80);
        assert_eq!(table.clear().len(), 1);
    }

    #[test]
    fn number_of_replicas_is_limited() {
        let table = LeaseTable::new(Bounds { bytes: 100, replicas: 2 });
        show(&table, 1, 1);
        table.lease(&1, 50, |_| ());
        let ClaimResult::Claimed(second) = table.claim(&2) else { panic!() };
        assert!(table.reserve(&second, 1, None, &mut Vec::new()));
        let ClaimResult::Claimed(third) = table.claim(&3) else { panic!() };
        let mut gone = Vec::new();
        assert!(!table.reserve(&third, 1, Some(10), &mut gone), "a claim with reserved room counts");
        assert!(table.reserve(&third, 1, Some(60), &mut gone));
        assert_eq!(gone.len(), 1, "the replica with the expired lease was removed");
        table.abandon_claim(second);
        table.show(third, Memory { bytes: 1, ..Memory::default() }).unwrap();
        table.lease(&3, 50, |_| ());
        show(&table, 4, 1);
        assert!(matches!(table.withdraw(&3, 10, false), WithdrawOutcome::Leased));
        let ClaimResult::Claimed(fifth) = table.claim(&5) else { panic!() };
        assert!(!table.reserve(&fifth, 1, None, &mut gone), "a leaving replica counts until it is dropped");
        assert_eq!(table.sweep(50).len(), 1);
        assert!(table.reserve(&fifth, 1, None, &mut gone));
        table.abandon_claim(fifth);
        assert!(matches!(table.withdraw(&4, 50, false), WithdrawOutcome::Over(_)));
        assert_eq!(table.metrics(), AdvertisedMetrics::default());
    }
}
