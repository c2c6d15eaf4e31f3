//! What one namenode is told of memory that clients may read, heartbeat by heartbeat, so that it can hand this on with the
//! locations of blocks.
//!
//! Only a namenode of Hearth's says words ([`AnnouncementAck`]), and only who has heard one announces. With each announcement everything that
//! was announced and not withdrawn holds for a lease from when that word was said: so before it is sent, the memory of all of it is
//! held for a lease from when the word was heard, which is later. docs/design/0002, "What the NameNode hands on".
//!
//! When a heartbeat failed it is not known what the namenode has taken: everything is announced anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{BlockId, BlockPoolId, GenerationStamp};
use hearth_wire::announcement::{AnnouncedReplica, Announcement, AnnouncementAck};

use crate::advertise::{Advertiser, AnnouncementMetrics};

/// Advertisements in one heartbeat; more go with the next ones. Some 400.
const ADDED_BYTES_MAX: usize = 64 << 10;

/// How long after its last use a replica is announced.
const RECENT_USE: Duration = Duration::from_secs(60);

/// What there is to announce. Times are in ms of one clock that never goes back.
pub trait Announceable {
    fn now_ms(&self) -> u64;

    /// Replicas that were finalized or asked for at `since_ms` or later, and are of `bytes_max` bytes together.
    fn recent(&self, since_ms: u64, bytes_max: u64) -> Vec<BlockId>;

    /// Keeps the memory of a replica until `until_ms` at least. `None`: it is not shown.
    fn lease_until(&self, block: BlockId, until_ms: u64) -> Option<(GenerationStamp, Bytes)>;
}

/// The replicas of a pool that one-sided readers can read.
pub struct PoolMemory<'a> {
    pub advertiser: &'a Advertiser,
    pub pool: &'a BlockPoolId,
}

impl Announceable for PoolMemory<'_> {
    fn now_ms(&self) -> u64 {
        self.advertiser.now_ms()
    }

    fn recent(&self, since_ms: u64, bytes_max: u64) -> Vec<BlockId> {
        self.advertiser.recent(self.pool, since_ms, bytes_max)
    }

    fn lease_until(&self, block: BlockId, until_ms: u64) -> Option<(GenerationStamp, Bytes)> {
        let advertisement = self.advertiser.lease_until(self.pool, block, until_ms)?;
        Some((advertisement.block.stamp(), advertisement.encode()))
    }
}

/// What a namenode knows.
pub struct Announcer {
    lease: Duration,
    /// Of the replicas that are announced, together.
    bytes_max: u64,
    /// Its last word, and when it was heard.
    last_word: Option<(u64, u64)>,
    /// As it was told.
    announced: HashMap<BlockId, Bytes>,
    /// It may know more than that.
    announce_all: bool,
    /// The heartbeat under way has an announcement.
    in_flight: bool,
    metrics: Arc<AnnouncementMetrics>,
}

impl Announcer {
    /// `lease`: zero for a datanode that announces nothing.
    pub fn new(lease: Duration, bytes_max: u64, metrics: Arc<AnnouncementMetrics>) -> Self {
        Self {
            lease,
            bytes_max,
            last_word: None,
            announced: HashMap::new(),
            announce_all: true,
            in_flight: false,
            metrics,
        }
    }

    /// What goes with the next heartbeat. `allowed`: false when keys must not be handed on.
    pub fn next_announcement(&mut self, memory: &impl Announceable, allowed: bool) -> Option<Announcement> {
        self.in_flight = false;
        if self.lease.is_zero() {
            return None;
        }
        let (word, heard_ms) = self.last_word?;
        let until_ms = heard_ms + self.lease.as_millis() as u64;
        let since_ms = memory.now_ms().saturating_sub(RECENT_USE.as_millis() as u64);
        let wanted = if allowed { memory.recent(since_ms, self.bytes_max) } else { Vec::new() };
        let (mut told, mut added, mut added_bytes) = (HashMap::with_capacity(wanted.len()), Vec::new(), 0);
        for block in wanted {
            let before = self.announced.get(&block);
            if before.is_none() && added_bytes >= ADDED_BYTES_MAX {
                continue;
            }
            let Some((stamp, advertisement)) = memory.lease_until(block, until_ms) else { continue };
            if before != Some(&advertisement) {
                added_bytes += advertisement.len();
                added.push(AnnouncedReplica { block, stamp, advertisement: advertisement.clone() });
            }
            told.insert(block, advertisement);
        }
        let withdrawn: Vec<BlockId> =
            self.announced.keys().copied().filter(|block| !told.contains_key(block)).collect();
        if told.is_empty() && withdrawn.is_empty() {
            // What it may know of an earlier time ends by itself.
            return None;
        }
        self.metrics.record(added.len(), told.len(), self.announced.len());
        self.announced = told;
        self.in_flight = true;
        Some(Announcement { word, lease: self.lease, anew: self.announce_all, added, withdrawn })
    }

    /// The heartbeat was answered, at `heard_ms` at the latest.
    pub fn on_answer(&mut self, word: Option<AnnouncementAck>, heard_ms: u64) {
        let taken = word.is_some_and(|word| word.taken);
        self.last_word = word.map(|word| (word.word, heard_ms));
        if self.last_word.is_none() || (self.in_flight && !taken) {
            self.reset();
        } else if self.in_flight {
            self.announce_all = false;
        }
    }

    /// The heartbeat failed, or its answer did not come.
    pub fn on_failure(&mut self) {
        self.reset();
    }

    fn reset(&mut self) {
        self.metrics.record(0, 0, self.announced.len());
        self.announced.clear();
        self.announce_all = true;
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.metrics.record(0, 0, self.announced.len());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    /// A replica as the namenode may know it, and until when its memory stays.
    #[derive(Clone)]
    struct Shown {
        advertisement: Bytes,
        used_ms: u64,
        held_until_ms: u64,
    }

    #[derive(Default)]
    struct Memory {
        now_ms: Cell<u64>,
        shown: RefCell<BTreeMap<BlockId, Shown>>,
    }

    impl Memory {
        fn show(&self, id: i64, advertisement: &str) {
            let advertisement = Bytes::from(advertisement.to_owned());
            let shown = Shown { advertisement, used_ms: self.now_ms.get(), held_until_ms: 0 };
            self.shown.borrow_mut().insert(BlockId(id), shown);
        }

        fn held_until(&self, id: i64) -> u64 {
            self.shown.borrow()[&BlockId(id)].held_until_ms
        }
    }

    impl Announceable for Memory {
        fn now_ms(&self) -> u64 {
            self.now_ms.get()
        }

        fn recent(&self, since_ms: u64, _bytes_max: u64) -> Vec<BlockId> {
            let shown = self.shown.borrow();
            shown.iter().filter(|(_, shown)| shown.used_ms >= since_ms).map(|(block, _)| *block).collect()
        }

        fn lease_until(&self, block: BlockId, until_ms: u64) -> Option<(GenerationStamp, Bytes)> {
            let mut shown = self.shown.borrow_mut();
            let shown = shown.get_mut(&block)?;
            shown.held_until_ms = shown.held_until_ms.max(until_ms);
            Some((GenerationStamp(1001), shown.advertisement.clone()))
        }
    }

    fn announcing() -> Announcer {
        Announcer::new(LEASE, u64::MAX, Arc::default())
    }

    fn word(word: u64) -> Option<AnnouncementAck> {
        Some(AnnouncementAck { word, taken: true })
    }

    fn ids(announced: &[AnnouncedReplica]) -> Vec<i64> {
        announced.iter().map(|announced| announced.block.0).collect()
    }

    #[test]
    fn memory_is_held_from_when_the_word_was_heard() {
        let (memory, mut announcing) = (Memory::default(), announcing());
        memory.show(1, "a");
        assert_eq!(announcing.next_announcement(&memory, true), None, "no word was heard");
        announcing.on_answer(word(7), 2000);
        memory.now_ms.set(5000);
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.word, announcement.lease, announcement.anew), (7, LEASE, true));
        assert_eq!(ids(&announcement.added), [1]);
        assert_eq!(memory.held_until(1), 17_000);
        announcing.on_answer(word(8), 5100);
        // Told once; held again each time.
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.word, announcement.anew, announcement.added.len()), (8, false, 0));
        assert_eq!(memory.held_until(1), 20_100);
    }

    #[test]
    fn what_is_gone_is_withdrawn_and_what_is_another_is_told_again() {
        let (memory, mut announcing) = (Memory::default(), announcing());
        for id in 1..=3 {
            memory.show(id, "a");
        }
        announcing.on_answer(word(1), 0);
        announcing.next_announcement(&memory, true).unwrap();
        announcing.on_answer(word(2), 0);
        memory.shown.borrow_mut().remove(&BlockId(1));
        memory.show(2, "b");
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((ids(&announcement.added), announcement.withdrawn), (vec![2], vec![BlockId(1)]));
        announcing.on_answer(word(3), 0);
        // Nobody has asked for it for long.
        memory.now_ms.set(RECENT_USE.as_millis() as u64 + 1);
        memory.show(2, "b");
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.added.len(), announcement.withdrawn), (0, vec![BlockId(3)]));
        announcing.on_answer(word(4), 0);
        // Tokens were switched on.
        let announcement = announcing.next_announcement(&memory, false).unwrap();
        assert_eq!((announcement.added.len(), announcement.withdrawn), (0, vec![BlockId(2)]));
        announcing.on_answer(word(5), 0);
        assert_eq!(announcing.next_announcement(&memory, false), None);
    }

    #[test]
    fn after_a_failure_everything_is_told_anew() {
        let (memory, mut announcing) = (Memory::default(), announcing());
        memory.show(1, "a");
        memory.show(2, "a");
        announcing.on_answer(word(1), 0);
        announcing.next_announcement(&memory, true).unwrap();
        announcing.on_failure();
        memory.shown.borrow_mut().remove(&BlockId(2));
        // With the word that was heard last: the namenode says whether that still counts.
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.word, announcement.anew, ids(&announcement.added)), (1, true, vec![1]));
        announcing.on_answer(Some(AnnouncementAck { word: 3, taken: false }), 10);
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.word, announcement.anew, ids(&announcement.added)), (3, true, vec![1]));
        announcing.on_answer(word(4), 10);
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.anew, announcement.added.len()), (false, 0));
        // It does not want any more, then it does again: another namenode, perhaps.
        announcing.on_answer(None, 20);
        assert_eq!(announcing.next_announcement(&memory, true), None);
        announcing.on_answer(Some(AnnouncementAck { word: 9, taken: false }), 30);
        assert!(announcing.next_announcement(&memory, true).unwrap().anew);
    }

    #[test]
    fn many_are_told_over_several_heartbeats() {
        let (memory, mut announcing) = (Memory::default(), announcing());
        let long = "x".repeat(1000);
        for id in 0..150 {
            memory.show(id, &long);
        }
        let mut told = Vec::new();
        for heartbeat in 0..4 {
            announcing.on_answer(word(heartbeat), heartbeat);
            let announcement = announcing.next_announcement(&memory, true).unwrap();
            assert!(announcement.encode().len() < ADDED_BYTES_MAX + 4096);
            assert_eq!(announcement.withdrawn, []);
            told.extend(ids(&announcement.added));
        }
        assert_eq!(told, (0..150).collect::<Vec<i64>>());
        assert_eq!(announcing.metrics.replicas(), 150);
        drop(announcing);
    }

    #[test]
    fn a_datanode_without_a_lease_announces_nothing() {
        let memory = Memory::default();
        memory.show(1, "a");
        let mut announcing = Announcer::new(Duration::ZERO, u64::MAX, Arc::default());
        announcing.on_answer(word(1), 0);
        assert_eq!(announcing.next_announcement(&memory, true), None);
    }
}
