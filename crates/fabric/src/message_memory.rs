//! Limit of the memory for long messages that have not completely arrived, over all peers.
//!
//! A connection claims the announced length of a long message before it receives more than a small part of it. It
//! releases the memory once the message was processed. While there is not enough memory, the claim waits and the bytes
//! stay in the sender's socket. A claim covers the whole message, so two messages cannot deadlock by each holding
//! memory that the other needs.
//!
//! Peers that hold memory and send too slowly would keep others waiting. While a claim waits, claims that fall behind
//! [`SlowPeerLimits`] are revoked, and their connections are closed. The next claim to be granted is that of the party
//! with the least memory, and within a party the one with the longest wait for its size. So short messages overtake
//! long ones, and no claim waits forever.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Atomic};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::stream::Party;

/// Limits for a peer that sends a message while another message waits for memory.
#[derive(Clone, Copy, Debug)]
pub struct SlowPeerLimits {
    /// Longest time without a byte.
    pub idle_max: Duration,
    /// Tolerated delay compared to a constant rate of [`SlowPeerLimits::bytes_per_second`].
    pub lag_max: Duration,
    pub bytes_per_second: u64,
}

impl Default for SlowPeerLimits {
    fn default() -> Self {
        Self { idle_max: Duration::from_secs(1), lag_max: Duration::from_secs(5), bytes_per_second: 16 << 20 }
    }
}

/// Interval at which a waiting claim checks for slow peers.
const LAG_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Memory for the long messages of all connections of a server.
#[derive(Debug)]
pub struct MessageMemory {
    limit: AtomicU64,
    patience: SlowPeerLimits,
    state: Mutex<ClaimTable>,
    /// True while a claim waits.
    is_short: AtomicBool,
}

#[derive(Debug, Default)]
struct ClaimTable {
    claimed: u64,
    /// Bytes claimed by connections that were told to close.
    leaving: u64,
    next: u64,
    waiting: BTreeMap<u64, WaitingClaim>,
    held: BTreeMap<u64, GrantedClaim>,
    of_party: HashMap<Party, u64>,
}

#[derive(Debug)]
struct WaitingClaim {
    party: Party,
    bytes: u64,
    since: Instant,
    stage: watch::Sender<ClaimStage>,
}

#[derive(Debug)]
struct GrantedClaim {
    party: Party,
    bytes: u64,
    granted: Instant,
    /// Time when the last byte arrived.
    moved: Instant,
    received: u64,
    /// The message has arrived completely; the claim lasts until the message was processed.
    is_whole: bool,
    is_revoked: bool,
    stage: watch::Sender<ClaimStage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClaimStage {
    Waiting,
    Granted,
    Revoked,
}

/// Memory for one message; released on drop.
#[derive(Debug)]
pub struct Claim {
    memory: Arc<MessageMemory>,
    number: u64,
    bytes: u64,
    stage: watch::Receiver<ClaimStage>,
}

impl MessageMemory {
    /// Creates the limit. `limit`: bytes of all messages. A single longer message counts as `limit` bytes.
    pub fn new(limit: u64, patience: SlowPeerLimits) -> Arc<Self> {
        let limit = AtomicU64::new(limit.max(1));
        Arc::new(Self { limit, patience, state: Mutex::default(), is_short: AtomicBool::new(false) })
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Atomic::Relaxed)
    }

    /// Changes the limit. Memory that is claimed beyond a lower limit stays claimed until its messages are processed.
    pub fn set_limit(&self, limit: u64) {
        let mut state = self.state.lock();
        self.limit.store(limit.max(1), Atomic::Relaxed);
        self.serve(&mut state, Instant::now());
    }

    /// Claims memory for a message of `bytes`. The claim may have to wait: [`Claim::granted`].
    pub fn claim(self: &Arc<Self>, party: Party, bytes: usize) -> Claim {
        self.claim_at(party, bytes, Instant::now())
    }

    fn claim_at(self: &Arc<Self>, party: Party, bytes: usize, now: Instant) -> Claim {
        let bytes = (bytes as u64).min(self.limit());
        let (sender, stage) = watch::channel(ClaimStage::Waiting);
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, WaitingClaim { party, bytes, since: now, stage: sender });
        self.serve(&mut state, now);
        drop(state);
        Claim { memory: self.clone(), number, bytes, stage }
    }

    /// Claims memory only if it is available at once and no other claim waits.
    pub fn try_claim(self: &Arc<Self>, party: Party, bytes: usize) -> Option<Claim> {
        if self.is_short() {
            return None;
        }
        // Dropped if it is not granted at once.
        Some(self.claim(party, bytes)).filter(Claim::is_granted)
    }

    /// Returns true if a claim waits; unused memory should then be released.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Atomic::Relaxed)
    }

    /// Returns the number of claimed bytes.
    pub fn claimed(&self) -> u64 {
        self.state.lock().claimed
    }

    /// Grants all claims that fit, and revokes slow ones while others wait.
    fn serve(&self, state: &mut ClaimTable, now: Instant) {
        let limit = self.limit();
        while let Some(number) = state.first(now) {
            // The limit may have been higher when the claim was made.
            let bytes = state.waiting[&number].bytes.min(limit);
            if state.claimed + bytes <= limit {
                state.grant(number, now);
                continue;
            }
            state.revoke_lagging((state.claimed + bytes).saturating_sub(limit), self.patience, now);
            break;
        }
        self.is_short.store(!state.waiting.is_empty(), Atomic::Relaxed);
    }

    fn look_at(&self, now: Instant) {
        self.serve(&mut self.state.lock(), now);
    }
}

impl ClaimTable {
    /// Returns the waiting claim to grant next.
    fn first(&self, now: Instant) -> Option<u64> {
        let held = |waiting: &WaitingClaim| self.of_party.get(&waiting.party).copied().unwrap_or(0);
        // Waiting time per claimed byte.
        let ratio = |waiting: &WaitingClaim| {
            now.saturating_duration_since(waiting.since).as_secs_f64().max(1e-6) / waiting.bytes.max(1) as f64
        };
        let before = |(_, one): &(&u64, &WaitingClaim), (_, other): &(&u64, &WaitingClaim)| {
            let by_party = held(one).cmp(&held(other));
            by_party.then_with(|| ratio(other).partial_cmp(&ratio(one)).unwrap_or(Ordering::Equal))
        };
        self.waiting.iter().min_by(before).map(|(number, _)| *number)
    }

    fn grant(&mut self, number: u64, now: Instant) {
        let Some(WaitingClaim { party, bytes, stage, .. }) = self.waiting.remove(&number) else { return };
        self.claimed += bytes;
        *self.of_party.entry(party).or_default() += bytes;
        stage.send_replace(ClaimStage::Granted);
        let held = GrantedClaim {
            party,
            bytes,
            granted: now,
            moved: now,
            received: 0,
            is_whole: false,
            is_revoked: false,
            stage,
        };
        self.held.insert(number, held);
    }

    /// Revokes slow claims, the slowest first, until their memory adds up to `wanted` bytes.
    fn revoke_lagging(&mut self, wanted: u64, patience: SlowPeerLimits, now: Instant) {
        while self.leaving < wanted {
            let lagging = self.held.values_mut().filter_map(|held| held.lag(patience, now).map(|lag| (lag, held)));
            let Some((_, slowest)) = lagging.max_by_key(|(lag, _)| *lag) else { return };
            slowest.is_revoked = true;
            self.leaving += slowest.bytes;
            slowest.stage.send_replace(ClaimStage::Revoked);
        }
    }
}

impl GrantedClaim {
    /// Returns the peer's delay. `None`: it is within the limits, or its claim cannot be revoked.
    fn lag(&self, patience: SlowPeerLimits, now: Instant) -> Option<Duration> {
        if self.is_whole || self.is_revoked {
            return None;
        }
        let due = Duration::from_secs_f64(self.received as f64 / patience.bytes_per_second.max(1) as f64);
        let late = now.saturating_duration_since(self.granted).saturating_sub(due);
        let silent = now.saturating_duration_since(self.moved);
        if silent >= patience.idle_max || late >= patience.lag_max { Some(silent.max(late)) } else { None }
    }
}

impl Claim {
    /// Number of bytes that it covers.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Returns true if the memory was granted. Stays true after the claim is revoked.
    pub fn is_granted(&self) -> bool {
        *self.stage.borrow() != ClaimStage::Waiting
    }

    /// Waits for the memory. Cancel safe.
    pub async fn granted(&mut self) {
        while !self.is_granted() {
            tokio::select! {
                // The sender lives as long as this claim.
                _ = self.stage.changed() => {}
                () = tokio::time::sleep(LAG_CHECK_INTERVAL) => self.memory.look_at(Instant::now()),
            }
        }
    }

    /// Waits until the connection must close because its peer is too slow while others wait.
    pub async fn revoked(&mut self) {
        if self.stage.wait_for(|stage| *stage == ClaimStage::Revoked).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Records the arrival of `bytes` bytes of the message.
    pub fn received(&self, bytes: usize) {
        self.received_at(bytes, Instant::now());
    }

    fn received_at(&self, bytes: usize, now: Instant) {
        if let Some(held) = self.memory.state.lock().held.get_mut(&self.number) {
            held.received += bytes as u64;
            held.moved = now;
        }
    }

    /// Records that the message has arrived completely. The claim can no longer be revoked, and lasts until it is
    /// dropped.
    pub fn whole(&self) {
        if let Some(held) = self.memory.state.lock().held.get_mut(&self.number) {
            held.is_whole = true;
        }
    }

    /// Records that another message will arrive in the same memory.
    pub fn again(&self) {
        if let Some(held) = self.memory.state.lock().held.get_mut(&self.number) {
            let now = Instant::now();
            (held.received, held.granted, held.moved, held.is_whole) = (0, now, now, false);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.memory.state.lock();
        state.waiting.remove(&self.number);
        if let Some(held) = state.held.remove(&self.number) {
            state.claimed -= held.bytes;
            state.leaving -= if held.is_revoked { held.bytes } else { 0 };
            if let Some(of_party) = state.of_party.get_mut(&held.party) {
                *of_party -= held.bytes;
                if *of_party == 0 {
                    state.of_party.remove(&held.party);
                }
            }
        }
        self.memory.serve(&mut state, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn party(last: u8) -> Party {
        Party::from(std::net::IpAddr::from([10, 0, 0, last]))
    }

    fn memory(limit: usize) -> Arc<MessageMemory> {
        MessageMemory::new(limit as u64, SlowPeerLimits::default())
    }

    fn is_revoked(claim: &Claim) -> bool {
        *claim.stage.borrow() == ClaimStage::Revoked
    }

    /// Returns a function from milliseconds to an `Instant`, counted from a fixed start in the past.
    fn clock() -> impl Fn(u64) -> Instant {
        let began = Instant::now() - Duration::from_secs(60);
        move |millis| began + Duration::from_millis(millis)
    }

    #[tokio::test]
    async fn memory_is_granted_up_to_the_limit() {
        let memory = memory(10);
        let first = memory.claim(party(1), 6);
        assert!(first.is_granted() && !memory.is_short());
        let mut second = memory.claim(party(1), 5);
        assert!(!second.is_granted() && memory.is_short() && memory.try_claim(party(2), 1).is_none());
        drop(first);
        second.granted().await;
        assert_eq!((memory.claimed(), memory.is_short()), (5, false));
        assert!(memory.try_claim(party(2), 6).is_none());
        assert!(!memory.is_short(), "a failed try_claim leaves nothing behind");
        assert!(memory.try_claim(party(2), 5).is_some());
        // Longer than the limit.
        drop(second);
        assert_eq!(memory.claim(party(1), 11).bytes(), 10);
        assert_eq!(memory.claimed(), 0);
    }

    #[test]
    fn changed_limit_applies_to_waiting_claims() {
        let memory = memory(10);
        let first = memory.claim(party(1), 6);
        let second = memory.claim(party(1), 5);
        memory.set_limit(11);
        assert!(second.is_granted() && memory.limit() == 11);
        // It waits for all of the lower limit, and then counts as claimed.
        let third = memory.claim(party(1), 9);
        memory.set_limit(4);
        drop(first);
        assert!(!third.is_granted());
        drop(second);
        assert!(third.is_granted());
        drop(third);
        assert_eq!((memory.claimed(), memory.is_short()), (0, false));
    }

    #[test]
    fn slow_peers_are_revoked_while_others_wait() {
        let (memory, at) = (memory(200 * MIB), clock());
        let slow = memory.claim_at(party(1), 100 * MIB, at(0));
        let fast = memory.claim_at(party(1), 100 * MIB, at(0));
        for step in 1..=60 {
            slow.received_at(1000, at(100 * step));
            fast.received_at(MIB, at(100 * step));
        }
        memory.look_at(at(6000));
        assert!(!is_revoked(&slow), "no other peer waits");
        let waiting = memory.claim_at(party(1), 100 * MIB, at(6000));
        assert!(is_revoked(&slow) && !is_revoked(&fast));
        memory.look_at(at(6001));
        assert!(!is_revoked(&fast), "enough memory is being released");
        assert!(!waiting.is_granted(), "the memory is still in use");
        drop(slow);
        assert!(waiting.is_granted());
        // The idle time counts from the last byte.
        let next = memory.claim_at(party(1), 100 * MIB, at(6100));
        waiting.received_at(MIB, at(6900));
        memory.look_at(at(6900));
        assert!(!is_revoked(&fast) && !is_revoked(&waiting));
        memory.look_at(at(7000));
        assert!(is_revoked(&fast) && !is_revoked(&waiting));
        drop(fast);
        assert!(next.is_granted());
    }

    #[test]
    fn complete_messages_are_not_revoked() {
        let (memory, at) = (memory(10), clock());
        let first = memory.claim_at(party(1), 10, at(0));
        first.whole();
        let second = memory.claim_at(party(1), 1, at(30_000));
        assert!(!is_revoked(&first) && !second.is_granted());
        // For a following message in the same memory, time counts from now.
        first.again();
        memory.look_at(at(60_500));
        assert!(!is_revoked(&first));
        memory.look_at(at(63_000));
        assert!(is_revoked(&first));
    }

    #[test]
    fn other_parties_and_shorter_messages_come_first() {
        let (memory, at) = (memory(100), clock());
        let (kept, held) = (memory.claim_at(party(1), 10, at(0)), memory.claim_at(party(1), 90, at(0)));
        let hostile: Vec<_> = (0..50).map(|_| memory.claim_at(party(1), 100, at(0))).collect();
        let small = memory.claim_at(party(1), 5, at(0));
        let other = memory.claim_at(party(2), 90, at(500));
        drop(held);
        // The party without memory comes first. Then there is room for one more.
        assert!(other.is_granted() && !small.is_granted());
        drop(other);
        assert!(small.is_granted());
        assert!(!hostile.iter().any(Claim::is_granted));
        drop((small, kept));
        assert!(hostile[0].is_granted(), "the longest wait");
    }

    #[test]
    fn long_messages_are_not_starved_by_short_ones() {
        let (memory, at) = (memory(100), clock());
        let first = memory.claim_at(party(1), 100, at(0));
        let long = memory.claim_at(party(1), 100, at(0));
        // A message of a tenth of the length overtakes after a tenth of the wait.
        let short = memory.claim_at(party(1), 10, at(55_000));
        drop(first);
        assert!(long.is_granted() && !short.is_granted());
    }
}
