use std::time::Duration;

use bytes::Bytes;
use hearth_types::{Block, BlockId, DatanodeId, GenerationStamp, LocatedAdvertisement};
use hearth_wire::announcement::{ANNOUNCED_MAX, AnnouncedReplica, Announcement, AnnouncementAck};

use super::cluster::*;
use crate::blocks::*;

const LEASE: Duration = Duration::from_secs(15);

fn announced_replica(block: Block) -> AnnouncedReplica {
    AnnouncedReplica { block: block.id, stamp: block.stamp, advertisement: Bytes::from(format!("memory of {block}")) }
}

fn adding(added: Vec<AnnouncedReplica>) -> Announcement {
    Announcement { word: 0, lease: LEASE, anew: false, added, withdrawn: Vec::new() }
}

impl Cluster {
    fn id(&self, nth: usize) -> DatanodeId {
        self.nodes[nth].id.clone()
    }

    /// Advertisement part of a heartbeat without an announcement; returns the word for the next one.
    fn hear(&mut self, nth: usize) -> u64 {
        let id = self.id(nth);
        self.map.receive_announcement(&id, None, self.now).unwrap().word
    }

    fn announce(&mut self, nth: usize, word: u64, announcement: Announcement) -> AnnouncementAck {
        let id = self.id(nth);
        self.map.receive_announcement(&id, Some(Announcement { word, ..announcement }), self.now).unwrap()
    }

    /// Node `nth` announces `block`, valid from now.
    fn show(&mut self, nth: usize, block: Block) -> u64 {
        let word = self.hear(nth);
        let word = self.announce(nth, word, adding(vec![announced_replica(block)]));
        assert!(word.taken);
        word.word
    }

    fn handed_on(&self, block: Block) -> Vec<LocatedAdvertisement> {
        let mut located = self.map.locate(block.id, 0, ReaderLocation::default(), self.now).unwrap();
        let mut room = ADVERTISEMENTS_PER_ANSWER_MAX;
        self.map.add_advertisements(&mut located, self.now, &mut room);
        assert_eq!(room, ADVERTISEMENTS_PER_ANSWER_MAX - located.advertisements.len());
        located.advertisements
    }
}

#[test]
fn lease_starts_when_the_word_is_sent() {
    let mut cluster = Cluster::new(&["/a"]);
    let (block, _) = cluster.write(1, 100);
    let word = cluster.hear(0);
    cluster.pass(Duration::from_secs(3));
    let word = cluster.announce(0, word, adding(vec![announced_replica(block)]));
    assert!(word.taken);
    let handed_on = cluster.handed_on(block);
    assert_eq!(handed_on[0].lease, LEASE - Duration::from_secs(3));
    assert_eq!(handed_on[0].advertisement, announced_replica(block).advertisement);
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.handed_on(block)[0].lease, LEASE - Duration::from_secs(8));
    // The next heartbeat arrives very late: only the time at which its word was sent counts.
    cluster.pass(Duration::from_secs(6));
    assert!(cluster.announce(0, word.word, adding(Vec::new())).taken);
    assert_eq!(cluster.handed_on(block)[0].lease, LEASE - Duration::from_secs(11));
    cluster.pass(Duration::from_secs(4));
    assert_eq!(cluster.handed_on(block), []);
    assert_eq!(cluster.map.advertisement_statistics().served, 3);
}

#[test]
fn only_the_last_word_counts_once() {
    let mut cluster = Cluster::new(&["/a"]);
    let (block, _) = cluster.write(1, 100);
    let early = cluster.hear(0);
    let last = cluster.hear(0);
    assert!(
        !cluster.announce(0, early, adding(vec![announced_replica(block)])).taken,
        "the datanode has not received the last answer"
    );
    assert!(
        !cluster.announce(0, last, adding(vec![announced_replica(block)])).taken,
        "the rejected heartbeat was answered with a new word"
    );
    assert_eq!(cluster.handed_on(block), []);
    let word = cluster.show(0, block);
    let withdrawn = Announcement { withdrawn: vec![block.id], ..adding(Vec::new()) };
    assert!(cluster.announce(0, word, withdrawn).taken);
    assert_eq!(cluster.handed_on(block), []);
    // The previous heartbeat arrives once more, late.
    assert!(!cluster.announce(0, word, adding(vec![announced_replica(block)])).taken);
    assert_eq!(cluster.handed_on(block), []);
    assert_eq!(cluster.map.advertisement_statistics().kept, 0);
}

#[test]
fn full_announcement_replaces_earlier_ones() {
    let mut cluster = Cluster::new(&["/a"]);
    let (first, _) = cluster.write(1, 100);
    let (second, _) = cluster.write(1, 100);
    let word = cluster.show(0, first);
    let anew = Announcement { anew: true, ..adding(vec![announced_replica(second)]) };
    assert!(cluster.announce(0, word, anew).taken);
    assert_eq!(cluster.handed_on(first), []);
    assert_eq!(cluster.handed_on(second).len(), 1);
}

#[test]
fn silence_expires_advertisements() {
    let mut cluster = Cluster::new(&["/a"]);
    let (block, _) = cluster.write(1, 100);
    let word = cluster.show(0, block);
    cluster.pass(LEASE - Duration::from_millis(1));
    cluster.map.tick(cluster.now);
    assert_eq!(cluster.handed_on(block)[0].lease, Duration::from_millis(1));
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.handed_on(block), []);
    cluster.map.tick(cluster.now);
    assert_eq!(cluster.map.advertisement_statistics().bytes, 0);
    // Its next heartbeat would extend announcements that the namenode no longer has.
    assert!(!cluster.announce(0, word, adding(Vec::new())).taken);
}

#[test]
fn restart_and_death_drop_advertisements() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 100);
    let words = [cluster.show(0, block), cluster.show(1, block)];
    assert_eq!(cluster.handed_on(block).len(), 2);
    cluster.nodes[0].registered = false;
    cluster.beat(0);
    let left = cluster.handed_on(block);
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(located.locations.len(), 2);
    // A heartbeat from before the restart.
    assert!(!cluster.announce(0, words[0], adding(vec![announced_replica(block)])).taken);
    let id = cluster.id(1);
    cluster.map.datanode_failed(&id, cluster.now);
    assert_eq!(cluster.handed_on(block), []);
    assert_eq!(
        cluster.map.receive_announcement(&id, Some(Announcement { word: words[1], ..adding(Vec::new()) }), cluster.now),
        None
    );
    assert_eq!(cluster.map.advertisement_statistics().bytes, 0);
}

#[test]
fn changed_block_is_not_advertised() {
    let mut cluster = Cluster::new(&["/a"]);
    // Appended to: under construction, then with another stamp.
    let (block, _) = cluster.write(1, 100);
    let word = cluster.show(0, block);
    let targets = cluster.map.reopen(block.id).unwrap();
    assert_eq!(cluster.handed_on(block), []);
    let stamp = cluster.new_stamp();
    cluster.map.update_pipeline(block, stamp, 100, &targets).unwrap();
    let longer = Block { stamp, length: 200, ..block };
    cluster.receive(0, longer);
    cluster.map.commit(longer, cluster.now).unwrap();
    assert_eq!(cluster.handed_on(longer), []);
    // The datanode has not noticed, and announces the old stamp.
    let word = cluster.announce(0, word, adding(vec![announced_replica(block)])).word;
    assert_eq!(cluster.handed_on(longer), []);
    let word = cluster.announce(0, word, adding(vec![announced_replica(longer)])).word;
    assert_eq!(cluster.handed_on(longer)[0].advertisement, announced_replica(longer).advertisement);
    // Corrupt.
    let id = cluster.id(0);
    cluster.map.report_bad_replica(longer, &id, None, cluster.now);
    assert_eq!(cluster.handed_on(longer), []);
    cluster.announce(0, word, adding(vec![announced_replica(longer)]));
    assert_eq!(cluster.handed_on(longer), [], "the only replica is corrupt");
    // Deleted.
    let (block, _) = cluster.write(1, 100);
    cluster.show(0, block);
    cluster.map.remove(block.id);
    cluster.map.remove(longer.id);
    assert_eq!(cluster.map.advertisement_statistics().bytes, 0);
}

#[test]
fn advertisements_are_bounded_per_node_and_total() {
    let settings = BlockSettings { advertisement_bytes_max: 1 << 20, ..BlockSettings::default() };
    let mut cluster = Cluster::with(&["/a", "/a"], settings);
    let many = |count: usize, bytes: usize| {
        let announced = |id| AnnouncedReplica {
            block: BlockId(id as i64),
            stamp: GenerationStamp(1),
            advertisement: Bytes::from(vec![1; bytes]),
        };
        adding((0..count).map(announced).collect())
    };
    let word = cluster.hear(0);
    let word = cluster.announce(0, word, many(ANNOUNCED_MAX + 10, 1));
    let figures = cluster.map.advertisement_statistics();
    assert!(word.taken);
    assert_eq!((figures.kept, figures.refused), (ANNOUNCED_MAX as u64, 10));
    let other = cluster.hear(1);
    cluster.announce(1, other, many(1000, 1000));
    let figures = cluster.map.advertisement_statistics();
    assert!(figures.bytes <= 1 << 20 && figures.bytes > 900 << 10, "{figures:?}");
    assert!(figures.refused > 10);
    // Room that one node gives up is available to the other.
    let anew = Announcement { anew: true, ..adding(Vec::new()) };
    cluster.announce(0, word.word, anew);
    let other = cluster.hear(1);
    cluster.announce(1, other, Announcement { anew: true, ..many(900, 1000) });
    assert_eq!(cluster.map.advertisement_statistics().kept, 900);
}

#[test]
fn lowered_limit_forgets_announcements_until_they_are_repeated() {
    let mut cluster = Cluster::new(&["/a"]);
    let (block, _) = cluster.write(1, 100);
    let word = cluster.show(0, block);
    assert_eq!(cluster.handed_on(block).len(), 1);
    cluster.map.set_advertisement_bytes_max(1);
    assert_eq!(cluster.map.advertisement_statistics().bytes, 0);
    assert_eq!(cluster.handed_on(block), []);
    assert!(!cluster.announce(0, word, adding(Vec::new())).taken, "the datanode must announce everything again");
    cluster.map.set_advertisement_bytes_max(1 << 20);
    cluster.show(0, block);
    assert_eq!(cluster.handed_on(block).len(), 1);
}

#[test]
fn raised_limit_lets_refused_announcements_be_repeated() {
    let mut cluster = Cluster::new(&["/a"]);
    let (first, _) = cluster.write(1, 100);
    let (second, _) = cluster.write(1, 100);
    cluster.show(0, first);
    let room_for_one = cluster.map.advertisement_statistics().bytes as usize;
    // Lowered to what is used: nothing is forgotten.
    cluster.map.set_advertisement_bytes_max(room_for_one);
    let word = cluster.show(0, second);
    assert_eq!(cluster.map.advertisement_statistics().refused, 1);
    assert_eq!((cluster.handed_on(first).len(), cluster.handed_on(second).len()), (1, 0));
    cluster.map.set_advertisement_bytes_max(2 * room_for_one + 100);
    assert!(!cluster.announce(0, word, adding(Vec::new())).taken, "the datanode must announce everything again");
    cluster.show(0, first);
    let word = cluster.show(0, second);
    assert_eq!((cluster.handed_on(first).len(), cluster.handed_on(second).len()), (1, 1));
    // Lowered to a limit that still fits: the announcements stay.
    cluster.map.set_advertisement_bytes_max(2 * room_for_one + 50);
    assert!(cluster.announce(0, word, adding(Vec::new())).taken);
}

#[test]
fn tokens_or_zero_room_disable_announcements() {
    for settings in [
        BlockSettings { block_tokens: true, ..BlockSettings::default() },
        BlockSettings { advertisement_bytes_max: 0, ..BlockSettings::default() },
    ] {
        let mut cluster = Cluster::with(&["/a"], settings);
        let id = cluster.id(0);
        assert_eq!(cluster.map.receive_announcement(&id, None, cluster.now), None);
    }
}

#[test]
fn advertisements_per_answer_are_limited() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 100);
    cluster.show(0, block);
    cluster.show(1, block);
    let mut located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    let mut room = 1;
    cluster.map.add_advertisements(&mut located, cluster.now, &mut room);
    assert_eq!((located.advertisements.len(), room), (1, 0));
}
