//! Announces readable memory to one NameNode, heartbeat by heartbeat, so that it can pass the advertisements on
//! together with the locations of blocks.
//!
//! Only Hearth's NameNode sends words ([`AnnouncementAck`]), and only a DataNode that has received a word announces.
//! Each announcement extends everything that was announced and not withdrawn by one lease, counted from when that word
//! was sent. Before it is sent, the memory of all of it is therefore held for one lease from when the word was
//! received, which is later. docs/design/0002, "What the NameNode hands on".
//!
//! After a failed heartbeat it is unknown what the NameNode has received: everything is announced again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{BlockId, BlockPoolId, GenerationStamp};
use hearth_wire::announcement::{AnnouncedReplica, Announcement, AnnouncementAck};

use crate::advertise::{Advertiser, AnnouncementMetrics};
use crate::options::AnnouncementOptions;

/// Maximum bytes of advertisements in one heartbeat, about 400 of them; the rest is sent with the next heartbeats.
const ADDED_BYTES_MAX: usize = 64 << 10;

/// Time after its last use for which a replica is announced.
const RECENT_USE: Duration = Duration::from_secs(60);

/// Source of replicas to announce. Times are in ms of one monotonic clock.
pub trait Announceable {
    fn now_ms(&self) -> u64;

    /// Returns replicas that were finalized or requested at `since_ms` or later, with at most `bytes_max` bytes in
    /// total.
    fn recent(&self, since_ms: u64, bytes_max: u64) -> Vec<BlockId>;

    /// Keeps the memory of a replica until at least `until_ms`. `None`: it is not shown.
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

/// State of the announcements to one NameNode.
pub struct Announcer {
    options: AnnouncementOptions,
    /// The last word from the NameNode, and the time of its receipt.
    last_word: Option<(u64, u64)>,
    /// Advertisements as sent to the NameNode.
    announced: HashMap<BlockId, Bytes>,
    /// The NameNode may know more than `announced`.
    announce_all: bool,
    /// The heartbeat in flight contains an announcement.
    in_flight: bool,
    metrics: Arc<AnnouncementMetrics>,
}

impl Announcer {
    pub fn new(options: AnnouncementOptions, metrics: Arc<AnnouncementMetrics>) -> Self {
        Self { options, last_word: None, announced: HashMap::new(), announce_all: true, in_flight: false, metrics }
    }

    /// Changes the options for the next announcements. The leases of earlier ones stay as they are. If nothing is to be
    /// announced any more, they expire, so everything is announced again afterwards.
    pub fn set_options(&mut self, options: AnnouncementOptions) {
        if options.lease.is_zero() && !self.options.lease.is_zero() {
            self.reset();
        }
        self.options = options;
    }

    /// Returns the announcement for the next heartbeat. `allowed`: false when keys must not be passed on.
    pub fn next_announcement(&mut self, memory: &impl Announceable, allowed: bool) -> Option<Announcement> {
        self.in_flight = false;
        let AnnouncementOptions { lease, bytes_max } = self.options;
        if lease.is_zero() {
            return None;
        }
        let (word, heard_ms) = self.last_word?;
        let until_ms = heard_ms + lease.as_millis() as u64;
        let since_ms = memory.now_ms().saturating_sub(RECENT_USE.as_millis() as u64);
        let wanted = if allowed { memory.recent(since_ms, bytes_max) } else { Vec::new() };
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
            // Leases of earlier announcements expire on their own.
            return None;
        }
        self.metrics.record(added.len(), told.len(), self.announced.len());
        self.announced = told;
        self.in_flight = true;
        Some(Announcement { word, lease, anew: self.announce_all, added, withdrawn })
    }

    /// Handles the answer to the heartbeat, which was received at `heard_ms` at the latest.
    pub fn on_answer(&mut self, word: Option<AnnouncementAck>, heard_ms: u64) {
        let taken = word.is_some_and(|word| word.taken);
        self.last_word = word.map(|word| (word.word, heard_ms));
        if self.last_word.is_none() || (self.in_flight && !taken) {
            self.reset();
        } else if self.in_flight {
            self.announce_all = false;
        }
    }

    /// Handles a heartbeat that failed or was not answered.
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

    /// A replica as the NameNode may know it, and the time until which its memory stays.
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
        Announcer::new(AnnouncementOptions { lease: LEASE, bytes_max: u64::MAX }, Arc::default())
    }

    fn word(word: u64) -> Option<AnnouncementAck> {
        Some(AnnouncementAck { word, taken: true })
    }

    fn ids(announced: &[AnnouncedReplica]) -> Vec<i64> {
        announced.iter().map(|announced| announced.block.0).collect()
    }

    #[test]
    fn memory_is_held_from_receipt_of_word() {
        let (memory, mut announcing) = (Memory::default(), announcing());
        memory.show(1, "a");
        assert_eq!(announcing.next_announcement(&memory, true), None, "no word was received");
        announcing.on_answer(word(7), 2000);
        memory.now_ms.set(5000);
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.word, announcement.lease, announcement.anew), (7, LEASE, true));
        assert_eq!(ids(&announcement.added), [1]);
        assert_eq!(memory.held_until(1), 17_000);
        announcing.on_answer(word(8), 5100);
        // Sent once, but held again each time.
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.word, announcement.anew, announcement.added.len()), (8, false, 0));
        assert_eq!(memory.held_until(1), 20_100);
    }

    #[test]
    fn deleted_is_withdrawn_and_changed_is_reannounced() {
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
        // The replica was last requested too long ago.
        memory.now_ms.set(RECENT_USE.as_millis() as u64 + 1);
        memory.show(2, "b");
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.added.len(), announcement.withdrawn), (0, vec![BlockId(3)]));
        announcing.on_answer(word(4), 0);
        // Block tokens were enabled.
        let announcement = announcing.next_announcement(&memory, false).unwrap();
        assert_eq!((announcement.added.len(), announcement.withdrawn), (0, vec![BlockId(2)]));
        announcing.on_answer(word(5), 0);
        assert_eq!(announcing.next_announcement(&memory, false), None);
    }

    #[test]
    fn failed_heartbeat_announces_everything_again() {
        let (memory, mut announcing) = (Memory::default(), announcing());
        memory.show(1, "a");
        memory.show(2, "a");
        announcing.on_answer(word(1), 0);
        announcing.next_announcement(&memory, true).unwrap();
        announcing.on_failure();
        memory.shown.borrow_mut().remove(&BlockId(2));
        // Sent with the last word that was received: the NameNode decides if it is still valid.
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.word, announcement.anew, ids(&announcement.added)), (1, true, vec![1]));
        announcing.on_answer(Some(AnnouncementAck { word: 3, taken: false }), 10);
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.word, announcement.anew, ids(&announcement.added)), (3, true, vec![1]));
        announcing.on_answer(word(4), 10);
        let announcement = announcing.next_announcement(&memory, true).unwrap();
        assert_eq!((announcement.anew, announcement.added.len()), (false, 0));
        // The NameNode stops wanting announcements and then wants them again: perhaps another NameNode.
        announcing.on_answer(None, 20);
        assert_eq!(announcing.next_announcement(&memory, true), None);
        announcing.on_answer(Some(AnnouncementAck { word: 9, taken: false }), 30);
        assert!(announcing.next_announcement(&memory, true).unwrap().anew);
    }

    #[test]
    fn many_advertisements_span_several_heartbeats() {
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
    fn zero_lease_announces_nothing() {
        let memory = Memory::default();
        memory.show(1, "a");
        let options = AnnouncementOptions { lease: Duration::ZERO, bytes_max: u64::MAX };
        let mut announcing = Announcer::new(options, Arc::default());
        announcing.on_answer(word(1), 0);
        assert_eq!(announcing.next_announcement(&memory, true), None);
    }
}
