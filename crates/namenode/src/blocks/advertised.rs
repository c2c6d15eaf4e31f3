//! Memory that datanodes have announced, for readers to receive together with the locations of blocks.
//!
//! An announcement is opaque bytes to the namenode. The namenode must only know how long it holds; it counts that time
//! on its own clock, starting at a word (a nonce) of its own. Each answer to a heartbeat carries a new word. The next
//! heartbeat repeats the word and says "my announcements hold for L from then". The datanode received the word later
//! than it was sent, and keeps its memory for L from that receipt. So no clocks are compared and no delay is assumed.
//! Only the last word counts, so a heartbeat that comes late, twice or out of order changes nothing; the answer tells
//! the datanode so, and it announces everything again.
//!
//! ```text
//!  namenode    word 7 sent at t ─┐            ┌─► holds until t + L        hands on the remaining time
//!  datanode                      └─► received at h: keeps it until h + L ≥ t + L; announces with word 7
//! ```

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{BlockId, DatanodeId, GenerationStamp, LocatedAdvertisement, LocatedBlock};
use hearth_wire::announcement::{ADVERTISEMENT_BYTES_MAX, ANNOUNCED_MAX, Announcement, AnnouncementAck, LEASE_MAX};

use super::datanodes::{DatanodeIndex, StorageIndex};
use super::{BlockMap, Now};
use crate::dense_map::IdHasher;

/// Approximate overhead of an entry in addition to its bytes.
const ENTRY_BYTES: usize = 96;

/// Limit per answer: a long range may have thousands of blocks.
pub const ADVERTISEMENTS_PER_ANSWER_MAX: usize = 256;

/// Announcements of one datanode.
#[derive(Default)]
pub(super) struct NodeAdvertisements {
    /// The last word sent to it, and when.
    word: Option<(u64, Duration)>,
    /// Monotonic time until which the announcements hold.
    valid_until: Duration,
    replicas: HashMap<BlockId, AdvertisedReplica, BuildHasherDefault<IdHasher>>,
    /// Size of `replicas`.
    bytes: usize,
}

struct AdvertisedReplica {
    stamp: GenerationStamp,
    advertisement: Bytes,
}

impl AdvertisedReplica {
    fn bytes(&self) -> usize {
        self.advertisement.len() + ENTRY_BYTES
    }
}

impl NodeAdvertisements {
    /// Returns the number of bytes that this frees.
    fn remove(&mut self, block: BlockId) -> usize {
        let freed = self.replicas.remove(&block).map_or(0, |kept| kept.bytes());
        self.bytes -= freed;
        freed
    }

    fn clear(&mut self) -> usize {
        // Releases the memory too: most datanodes that lose everything do not announce as much again.
        self.replicas = HashMap::default();
        std::mem::take(&mut self.bytes)
    }
}

/// Announcements of all datanodes.
#[derive(Default)]
pub(super) struct Advertisements {
    bytes: usize,
    refused: u64,
    served: AtomicU64,
}

/// Metrics of the announcements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdvertisementStatistics {
    /// Replicas with an announcement.
    pub kept: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Announcements refused for lack of room.
    pub refused: u64,
    /// Announcements given to readers.
    pub served: u64,
}

impl BlockMap {
    /// Returns true if datanodes shall announce memory. With block tokens on they shall not: a remote key is not
    /// limited to one block.
    fn wants_announcements(&self) -> bool {
        self.settings.advertisement_bytes_max > 0 && !self.settings.block_tokens
    }

    /// Changes the limit of the kept announcements. If they take more, or if some were refused and there is more room
    /// now, all are forgotten, and the datanodes announce again what fits. A datanode does not repeat a refused
    /// announcement by itself.
    pub fn set_advertisement_bytes_max(&mut self, bytes: usize) {
        let is_raised = bytes > self.settings.advertisement_bytes_max;
        self.settings.advertisement_bytes_max = bytes;
        if self.advertisements.bytes > bytes || (is_raised && self.advertisements.refused > 0) {
            for index in self.nodes.indices() {
                self.forget_advertisements(index);
            }
        }
    }

    /// Takes in the announcement of a heartbeat and returns the word for the next one. `None`: the datanode shall
    /// announce nothing.
    pub fn receive_announcement(
        &mut self,
        datanode: &DatanodeId,
        announcement: Option<Announcement>,
        now: Now,
    ) -> Option<AnnouncementAck> {
        if !self.wants_announcements() {
            return None;
        }
        let index = self.find_datanode(datanode).filter(|index| self.nodes.node(*index).alive)?;
        let taken = announcement.is_some_and(|announcement| self.take_announcement(index, announcement));
        let word = self.random.next();
        self.nodes.node_mut(index).advertised.word = Some((word, now.monotonic));
        Some(AnnouncementAck { word, taken })
    }

    fn take_announcement(&mut self, index: DatanodeIndex, announcement: Announcement) -> bool {
        let room_max = self.settings.advertisement_bytes_max;
        let all = &mut self.advertisements;
        let known = &mut self.nodes.node_mut(index).advertised;
        let Some((_, said)) = known.word.filter(|(word, _)| *word == announcement.word) else { return false };
        if announcement.anew {
            all.bytes -= known.clear();
        }
        for block in announcement.withdrawn {
            all.bytes -= known.remove(block);
        }
        for added in announcement.added {
            all.bytes -= known.remove(added.block);
            if added.advertisement.len() > ADVERTISEMENT_BYTES_MAX {
                continue;
            }
            // A copy, so that the received frame is not kept alive.
            let advertisement = Bytes::copy_from_slice(&added.advertisement);
            let kept = AdvertisedReplica { stamp: added.stamp, advertisement };
            let bytes = kept.bytes();
            if known.replicas.len() >= ANNOUNCED_MAX || all.bytes + bytes > room_max {
                all.refused += 1;
                continue;
            }
            known.bytes += bytes;
            all.bytes += bytes;
            known.replicas.insert(added.block, kept);
        }
        known.valid_until = said + announcement.lease.min(LEASE_MAX);
        true
    }

    /// Adds the known announcements of a block's replicas to its locations, at most `room` of them. The caller has
    /// checked that the requester may read the block.
    pub fn add_advertisements(&self, located: &mut LocatedBlock, now: Now, room: &mut usize) {
        let complete = self.blocks.get(&located.block.id()).is_some_and(|entry| entry.is_complete());
        if !complete || located.corrupt || !self.wants_announcements() {
            return;
        }
        for (location, datanode) in located.locations.iter().enumerate() {
            if *room == 0 {
                return;
            }
            let Some(index) = self.nodes.by_uuid(&datanode.id.uuid) else { continue };
            let known = &self.nodes.node(index).advertised;
            let lease = known.valid_until.saturating_sub(now.monotonic);
            let kept = known.replicas.get(&located.block.id()).filter(|kept| kept.stamp == located.block.stamp());
            if let Some(kept) = kept
                && !lease.is_zero()
            {
                let advertisement = kept.advertisement.clone();
                located.advertisements.push(LocatedAdvertisement { location, lease, advertisement });
                *room -= 1;
                self.advertisements.served.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Forgets a datanode's announcements and its word, because it is gone or starts again.
    pub(super) fn forget_advertisements(&mut self, index: DatanodeIndex) {
        let known = &mut self.nodes.node_mut(index).advertised;
        self.advertisements.bytes -= known.clear();
        *known = NodeAdvertisements::default();
    }

    /// Forgets a replica's announcement, because the replica has changed or will be removed.
    pub(super) fn forget_advertisement(&mut self, block: BlockId, storage: StorageIndex) {
        let node = self.nodes.storage(storage).node;
        self.advertisements.bytes -= self.nodes.node_mut(node).advertised.remove(block);
    }

    /// Frees announcements that have expired because their datanode did not confirm them.
    pub(super) fn expire_advertisements(&mut self, now: Now) {
        for index in self.nodes.indices() {
            let known = &mut self.nodes.node_mut(index).advertised;
            if known.bytes > 0 && known.valid_until <= now.monotonic {
                self.advertisements.bytes -= known.clear();
                // The datanode must announce everything again: the namenode no longer has what the datanode has
                // announced.
                known.word = None;
            }
        }
    }

    pub fn advertisement_statistics(&self) -> AdvertisementStatistics {
        let all = &self.advertisements;
        AdvertisementStatistics {
            kept: self.nodes.iter().map(|(_, node)| node.advertised.replicas.len() as u64).sum(),
            bytes: all.bytes as u64,
            refused: all.refused,
            served: all.served.load(Ordering::Relaxed),
        }
    }
}
