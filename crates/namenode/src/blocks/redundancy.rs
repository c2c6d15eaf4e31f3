//! Too few replicas, too many, bad ones: every change of a block ends in [`BlockMap::refresh`], which puts the block where it
//! belongs; [`BlockMap::tick`] and heartbeats turn the queues into work.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use hearth_types::{Block, BlockId, GenerationStamp};

use super::datanodes::{Invalidation, StorageIndex};
use super::entry::{Counts, Entry, Health, Replica};
use super::{BlockMap, Now};

/// Queue of blocks with a single replica, or replicas only on nodes that leave.
pub(super) const HIGHEST: u8 = 0;
/// Fewer than a third of the replicas asked for.
pub(super) const VERY_LOW: u8 = 1;
pub(super) const LOW: u8 = 2;
/// Enough replicas, all in one rack.
pub(super) const BADLY_SPREAD: u8 = 3;
/// No good replica: nothing to copy from.
pub(super) const MISSING: u8 = 4;

/// Replicas on their way: told to a source, or promised by a pipeline, and not yet reported.
pub(super) struct Pending {
    pub targets: Vec<StorageIndex>,
    pub since: Duration,
}

#[derive(Default)]
pub(super) struct Redundancy {
    /// False until safe mode is first left: before that, everything looks lost.
    pub active: bool,
    pub queues: [BTreeSet<BlockId>; 5],
    /// Where the last round stopped in each queue.
    pub cursors: [Option<BlockId>; 5],
    pub pending: HashMap<BlockId, Pending>,
    /// Complete blocks, and those of them with enough replicas for safe mode.
    pub complete: u64,
    pub safe: u64,
}

impl BlockMap {
    /// Brings everything that is derived from the block's replicas up to date.
    pub(super) fn refresh(&mut self, block: BlockId, now: Now) {
        let Some(entry) = self.blocks.get(&block) else { return };
        let counts = entry.counts(&self.nodes);
        let safe = entry.is_complete() && counts.readable() >= self.settings.safe_replication.max(1);
        self.mark_safe(block, safe);
        if !self.redundancy.active {
            return;
        }
        let entry = self.entry(block);
        if !entry.is_complete() {
            self.leave_queue(block);
            return;
        }
        let _ = now;
        let wanted = self.priority_of(entry, &counts);
        if entry.queued != wanted {
            self.leave_queue(block);
            if let Some(priority) = wanted {
                self.redundancy.queues[usize::from(priority)].insert(block);
                self.entry_mut(block).queued = Some(priority);
            }
        }
    }

    /// The queue in which a complete block belongs; `None` when it has what it needs, or that is on its way.
    fn priority_of(&self, entry: &Entry, counts: &Counts) -> Option<u8> {
        let pending = self.redundancy.pending.get(&entry.block.id).map_or(0, |pending| pending.targets.len() as u16);
        if counts.live + pending >= entry.replication {
            return None;
        }
        Some(match counts.live {
            0 if counts.readable() == 0 => MISSING,
            0 | 1 => HIGHEST,
            live if live * 3 < entry.replication => VERY_LOW,
            _ => LOW,
        })
    }

    fn mark_safe(&mut self, block: BlockId, safe: bool) {
        let entry = self.blocks.get_mut(&block).expect("the caller has just seen the block");
        if entry.safe != safe {
            entry.safe = safe;
            if safe {
                self.redundancy.safe += 1;
            } else {
                self.redundancy.safe -= 1;
            }
        }
    }

    /// The block has just been taken out of the map.
    pub(super) fn forget_safe(&mut self, entry: &Entry) {
        if entry.safe {
            self.redundancy.safe -= 1;
        }
    }

    fn leave_queue(&mut self, block: BlockId) {
        if let Some(entry) = self.blocks.get_mut(&block)
            && let Some(priority) = entry.queued.take()
        {
            self.redundancy.queues[usize::from(priority)].remove(&block);
        }
    }

    /// No repair of this block any more: it is gone, or being written again.
    pub(super) fn leave_queues(&mut self, block: BlockId) {
        self.leave_queue(block);
        self.redundancy.pending.remove(&block);
    }

    /// These storages are about to report the block.
    pub(super) fn expect_replicas(&mut self, block: BlockId, targets: Vec<StorageIndex>, now: Now) {
        if !targets.is_empty() {
            self.redundancy.pending.insert(block, Pending { targets, since: now.monotonic });
        }
    }

    pub(super) fn set_health(&mut self, block: BlockId, storage: StorageIndex, health: Health) {
        let entry = self.entry_mut(block);
        if let Some(replica) = entry.replicas.iter_mut().find(|replica| replica.storage == storage) {
            replica.health = health;
        }
    }

    /// Books a finalized replica.
    pub(super) fn book_replica(
        &mut self,
        block: BlockId,
        storage: StorageIndex,
        stamp: GenerationStamp,
        health: Health,
    ) {
        let entry = self.entry_mut(block);
        match entry.replicas.iter_mut().find(|replica| replica.storage == storage) {
            Some(replica) => *replica = Replica { storage, health, stamp },
            None => entry.replicas.push(Replica { storage, health, stamp }),
        }
        self.nodes.storage_mut(storage).blocks.insert(block);
    }

    /// The storage does not hold the block any more.
    pub(super) fn forget_replica(&mut self, block: BlockId, storage: StorageIndex) {
        self.nodes.storage_mut(storage).blocks.remove(&block);
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.replicas.retain(|replica| replica.storage != storage);
        }
    }

    /// Has the storage's datanode delete this replica. `length`: `None` when the block is gone from the namespace.
    pub(super) fn invalidate(&mut self, storage: StorageIndex, block: Block, length: Option<u64>) {
        let node = self.nodes.storage(storage).node;
        let invalidation = Invalidation { stamp: block.stamp, length };
        self.nodes.node_mut(node).invalidations.insert(block.id, invalidation);
    }
}
