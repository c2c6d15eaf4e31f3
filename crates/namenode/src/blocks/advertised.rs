//! Memory that datanodes have announced, to be handed on to readers with the locations of blocks.
//!
//! What is announced is bytes to the namenode. What it must know is how long they hold, and that is counted on its own clock from
//! its own word. Each answer to a heartbeat says a new word; the next heartbeat repeats it, and says "what I announced holds for L
//! from then". The datanode heard the word later than it was said, and keeps its memory L from hearing it: no clock is compared,
//! no delay is assumed. Only the last word counts, so a heartbeat that comes late, twice or out of order changes nothing; the datanode
//! is told so, and announces everything anew.
//!
//! ```text
//!  namenode    word 7 said at t ─┐            ┌─► holds until t + L        hands on what is left of it
//!  datanode                      └─► heard at h: keeps it until h + L ≥ t + L; announces with word 7
//! ```

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{BlockId, DatanodeId, GenerationStamp, LocatedAdvertisement, LocatedBlock};
use hearth_wire::announcement::{ADVERTISEMENT_BYTES_MAX, ANNOUNCED_MAX, Announcement, AnnouncementAck};

use super::datanodes::{DatanodeIndex, StorageIndex};
use super::{BlockMap, Now};
use crate::dense_map::IdHasher;

/// No datanode keeps memory for longer on a namenode's account; who says so is not believed.
const LEASE_MAX: Duration = Duration::from_secs(600);

/// What an entry takes beside its bytes, about.
const ENTRY_BYTES: usize = 96;

/// Handed on in one answer at most: the blocks of a long range may be thousands.
pub const ADVERTISEMENTS_PER_ANSWER_MAX: usize = 256;

/// What one datanode has announced.
#[derive(Default)]
pub(super) struct NodeAdvertisements {
    /// The last word that it was told, and when.
    word: Option<(u64, Duration)>,
    /// Monotonic time.
    valid_until: Duration,
    replicas: HashMap<BlockId, AdvertisedReplica, BuildHasherDefault<IdHasher>>,
    /// Of `replicas`.
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
    /// Returns the bytes that are free by it.
    fn remove(&mut self, block: BlockId) -> usize {
        let freed = self.replicas.remove(&block).map_or(0, |kept| kept.bytes());
        self.bytes -= freed;
        freed
    }

    fn clear(&mut self) -> usize {
        // The memory, too: most datanodes that lose all do not come back with as much.
        self.replicas = HashMap::default();
        std::mem::take(&mut self.bytes)
    }
}

/// Of all datanodes.
#[derive(Default)]
pub(super) struct Advertisements {
    bytes: usize,
    refused: u64,
    served: AtomicU64,
}

/// What there is of advertisements, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdvertisementStatistics {
    /// Replicas whose memory is known.
    pub kept: u64,
    /// Bytes that this takes.
    pub bytes: u64,
    /// Those for which there was no room.
    pub refused: u64,
    /// Given to readers.
    pub served: u64,
}

impl BlockMap {
    /// Whether datanodes are asked to announce memory at all. With tokens on not: a key is not for one block alone.
    fn wants_announcements(&self) -> bool {
        self.settings.advertisement_bytes_max > 0 && !self.settings.block_tokens
    }

    /// Takes in what came with a heartbeat, and gives the word for the next. `None`: nothing is to be announced.
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
            // A copy: the frame that it came in is not kept.
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

    /// Adds to a block's locations what is known of its replicas' memory, `room` of them at most. The caller has seen that whoever
    /// asks may read the block.
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

    /// The datanode is gone, or begins anew: nothing that it announced counts, and no word that it was told.
    pub(super) fn forget_advertisements(&mut self, index: DatanodeIndex) {
        let known = &mut self.nodes.node_mut(index).advertised;
        self.advertisements.bytes -= known.clear();
        *known = NodeAdvertisements::default();
    }

    /// The replica has changed, or leaves: its memory is not to be handed on.
    pub(super) fn forget_advertisement(&mut self, block: BlockId, storage: StorageIndex) {
        let node = self.nodes.storage(storage).node;
        self.advertisements.bytes -= self.nodes.node_mut(node).advertised.remove(block);
    }

    /// Frees what datanodes have not confirmed for so long that it does not hold any more.
    pub(super) fn expire_advertisements(&mut self, now: Now) {
        for index in self.nodes.indices() {
            let known = &mut self.nodes.node_mut(index).advertised;
            if known.bytes > 0 && known.valid_until <= now.monotonic {
                self.advertisements.bytes -= known.clear();
                // It has to begin anew: what it thinks is known is not.
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
