//! Too few replicas, too many, bad ones: every change of a block ends in [`BlockMap::refresh`], which puts the block where it
//! belongs; [`BlockMap::tick`] and heartbeats turn the queues into work.

use std::collections::BTreeSet;
use std::time::Duration;

use hearth_types::{Block, BlockId, DatanodeAdminState, GenerationStamp};

use super::block_info::{BlockInfo, BlockRef, Counts};
use super::datanodes::{Datanode, DatanodeIndex, Invalidation, StorageIndex, Transfer};
use super::pending_replications::{PendingReplications, PendingTarget};
use super::placement::PlacementRequest;
use super::replicas::{Health, Replica};
use super::{BlockMap, Now};
use crate::round_robin;

/// Queue of blocks with a single replica, or replicas only on nodes that leave.
pub(super) const HIGHEST: u8 = 0;
/// Fewer than a third of the replicas asked for.
pub(super) const VERY_LOW: u8 = 1;
pub(super) const LOW: u8 = 2;
/// Enough replicas, all in one rack.
pub(super) const BADLY_SPREAD: u8 = 3;
/// No good replica: nothing to copy from.
pub(super) const MISSING: u8 = 4;

/// Blocks looked at in one round of scheduling: bounds how long the lock is held.
const ROUND_MAX: usize = 2_000;
/// The same for the round that a heartbeat makes before it is answered.
pub(super) const HEARTBEAT_ROUND_MAX: usize = 200;
/// Small blocks are handed to a source many at a time, up to so many and so many bytes, so that they do not trickle at the pace
/// of heartbeats. Apache hands out `dfs.namenode.replication.max-streams` blocks a heartbeat, however small.
const BATCH_BLOCKS_MAX: usize = 64;
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Windows of sources that may be on their way to one target.
const TARGET_WINDOWS: u64 = 2;
/// A pipeline's last replicas are reported within a moment of the first, or not at all.
const PIPELINE_REPORT_TIMEOUT: Duration = Duration::from_secs(60);
/// A source that has had nothing to send for this long will not deliver what it was told to before.
const SOURCE_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(super) struct Redundancy {
    /// False until safe mode is first left: before that, everything looks lost.
    pub active: bool,
    pub queues: [BTreeSet<BlockId>; 5],
    /// Those in the queue of missing ones of which one replica is wanted.
    pub missing_with_replication_one: u64,
    /// Where the last round stopped in each queue.
    pub cursors: [Option<BlockId>; 5],
    pub pending_replications: PendingReplications,
    /// Whose copies have arrived: they may be able to take the next.
    pub freed: BTreeSet<DatanodeIndex>,
    /// Complete blocks with enough replicas for safe mode.
    pub safe: u64,
    /// Blocks with corrupt replicas.
    pub corrupt: BTreeSet<BlockId>,
    /// Blocks with too many replicas, some on storages whose contents are unsure.
    pub postponed: BTreeSet<BlockId>,
    /// Where the last round stopped among them.
    pub postponed_cursor: Option<BlockId>,
}

impl BlockMap {
    /// Time has passed: finds dead nodes, goes on with safe mode, gives up on transfers that never arrive, makes new ones.
    /// To be called every second or so.
    pub fn tick(&mut self, now: Now) {
        self.expire_advertisements(now);
        // While blocks are still being reported for the first time nobody is declared dead, as in Apache's.
        if !self.in_startup_safe_mode() {
            let dead_after = self.settings.dead_after();
            for index in self.nodes.indices() {
                let node = self.nodes.node(index);
                if node.alive && now.monotonic.saturating_sub(node.last_heartbeat) > dead_after {
                    tracing::warn!(datanode = %node.id, "datanode is dead: no heartbeat");
                    self.expired_heartbeats += 1;
                    self.node_died(index, now);
                }
            }
        }
        self.check_safe_mode(now);
        if self.in_safe_mode() || !self.redundancy.active {
            return;
        }
        self.expire_pending(now);
        self.retry_postponed(now);
        self.schedule_transfers(ROUND_MAX, now);
        self.check_decommissions(now);
    }

    /// Safe mode has ended: what was reported until now is taken as it is, and repaired where it is not enough.
    pub(super) fn start_repairs(&mut self, now: Now) {
        self.redundancy.active = true;
        self.deletions_from = now.monotonic + self.settings.deletion_delay;
        self.refresh_all(now);
    }

    fn refresh_all(&mut self, now: Now) {
        let all: Vec<BlockId> = self.blocks.keys().collect();
        for block in all {
            self.refresh(block, now);
        }
    }

    /// To be called when a node comes, goes or moves: with the second rack every block is to be spread over racks, with the
    /// last but one gone none can be.
    pub(super) fn recount_racks(&mut self, now: Now) {
        let before = self.nodes.rack_count() > 1;
        self.nodes.recount_racks();
        if self.redundancy.active && before != (self.nodes.rack_count() > 1) {
            self.refresh_all(now);
        }
    }

    /// Looks at these blocks again, so that those which are on too few racks are queued. How many there were; none before repairs
    /// have begun.
    pub fn recheck_redundancy(&mut self, blocks: &[BlockId], now: Now) -> u64 {
        if !self.redundancy.active {
            return 0;
        }
        let known = blocks.iter().filter(|block| self.blocks.get(block).is_some()).copied();
        let known: Vec<BlockId> = known.collect();
        for block in &known {
            self.refresh(*block, now);
        }
        known.len() as u64
    }

    /// Brings everything that is derived from the block's replicas up to date.
    pub(super) fn refresh(&mut self, block: BlockId, now: Now) {
        let Some(entry) = self.blocks.get(&block) else { return };
        let counts = entry.counts(&self.nodes);
        let complete = entry.is_complete();
        let safe = complete && counts.readable() >= self.settings.safe_replication.max(1);
        self.mark_safe(block, safe);
        if counts.corrupt > 0 {
            self.redundancy.corrupt.insert(block);
        } else {
            self.redundancy.corrupt.remove(&block);
        }
        if !self.redundancy.active {
            return;
        }
        if complete {
            self.rescue_excess(block);
            self.trim_excess(block, now);
            if counts.corrupt > 0 {
                self.trim_corrupt(block);
            }
        }
        self.requeue(block);
    }

    fn requeue(&mut self, block: BlockId) {
        let entry = self.entry(block);
        let wanted = if entry.is_complete() { self.priority_of(entry, &entry.counts(&self.nodes)) } else { None };
        if entry.counts(&self.nodes).corrupt == 0 {
            self.redundancy.corrupt.remove(&block);
        }
        if self.entry(block).queued() != wanted {
            self.leave_queue(block);
            if let Some(priority) = wanted {
                let entry = self.entry_mut(block);
                entry.set_queued(Some(priority));
                let is_only_one = priority == MISSING && entry.replication() == 1;
                self.redundancy.queues[usize::from(priority)].insert(block);
                self.redundancy.missing_with_replication_one += u64::from(is_only_one);
            }
        }
    }

    /// The queue in which a complete block belongs; `None` when it has what it needs, or that is on its way.
    fn priority_of(&self, entry: BlockRef<'_>, counts: &Counts) -> Option<u8> {
        let pending = self.redundancy.pending_replications.of(entry.id).len() as u16;
        let wanted = self.wanted_live(entry, counts);
        if counts.live.saturating_add(pending) < wanted {
            return Some(match counts.live {
                0 if counts.readable() == 0 => MISSING,
                0 | 1 => HIGHEST,
                live if live * 3 < wanted => VERY_LOW,
                _ => LOW,
            });
        }
        let spread_wanted = wanted > 1 && pending == 0 && self.nodes.rack_count() > 1 && self.in_one_rack(entry);
        spread_wanted.then_some(BADLY_SPREAD)
    }

    fn wanted_live(&self, entry: BlockRef<'_>, counts: &Counts) -> u16 {
        counts.wanted_live(entry.replication(), self.settings.maintenance_min_replication)
    }

    fn in_one_rack(&self, entry: BlockRef<'_>) -> bool {
        let mut racks = entry
            .replicas()
            .filter(|replica| replica.health == Health::Live)
            .map(|replica| self.nodes.node_of(replica.storage))
            .filter(|node| node.admin == DatanodeAdminState::Normal)
            .map(|node| node.rack.as_str());
        let Some(first) = racks.next() else { return false };
        racks.all(|rack| rack == first)
    }

    fn mark_safe(&mut self, block: BlockId, safe: bool) {
        let entry = self.blocks.get_mut(&block).expect("the caller has just seen the block");
        if entry.is_safe() != safe {
            entry.set_safe(safe);
            if safe {
                self.redundancy.safe += 1;
            } else {
                self.redundancy.safe -= 1;
            }
        }
    }

    /// The block has just been taken out of the map.
    pub(super) fn forget_safe(&mut self, entry: &BlockInfo) {
        if entry.is_safe() {
            self.redundancy.safe -= 1;
        }
    }

    /// To be called before what is counted of a queue's blocks changes, too.
    pub(super) fn leave_queue(&mut self, block: BlockId) {
        if let Some(entry) = self.blocks.get_mut(&block)
            && let Some(priority) = entry.queued()
        {
            entry.set_queued(None);
            let was_only_one = priority == MISSING && entry.replication() == 1;
            self.redundancy.queues[usize::from(priority)].remove(&block);
            self.redundancy.missing_with_replication_one -= u64::from(was_only_one);
        }
    }

    /// No repair of this block any more: it is gone, or being written again.
    pub(super) fn leave_queues(&mut self, block: BlockId) {
        self.leave_queue(block);
        self.redundancy.pending_replications.forget(block);
        self.redundancy.corrupt.remove(&block);
        self.redundancy.postponed.remove(&block);
    }

    /// A pipeline's members that are about to report the block.
    pub(super) fn expect_replicas(&mut self, block: BlockId, targets: Vec<StorageIndex>, now: Now) {
        let alive = targets.into_iter().filter(|storage| self.nodes.node_of(*storage).alive);
        let alive = alive.map(|storage| self.pending_target(storage)).collect();
        self.redundancy.pending_replications.expect(block, alive, now.monotonic);
    }

    fn pending_target(&self, storage: StorageIndex) -> PendingTarget {
        PendingTarget { storage, node: self.nodes.storage(storage).node }
    }

    /// A replica that was on its way to this node is there.
    pub(super) fn replica_arrived(&mut self, block: BlockId, node: DatanodeIndex) {
        self.redundancy.freed.extend(self.redundancy.pending_replications.arrived(block, node));
    }

    /// Copies have arrived, perhaps: who sent them gets the next, without waiting for a heartbeat. To be called when a
    /// datanode's events are booked.
    pub(super) fn refill_sources(&mut self, now: Now) {
        let freed = std::mem::take(&mut self.redundancy.freed);
        let highest = !self.redundancy.queues[usize::from(HIGHEST)].is_empty();
        let priority = if highest { HIGHEST } else { LOW };
        // Only who awaits work hears of it now, and only when there is some room again is it worth a look at the queues.
        let hears = |source: &DatanodeIndex| {
            // It may have been taken out meanwhile.
            let awaits = |node: &Datanode| node.alive && node.awaits_work;
            self.nodes.get(*source).is_some_and(awaits) && self.can_send(*source, 1, priority)
        };
        if freed.iter().any(hears) && self.redundancy.active && !self.in_safe_mode() {
            self.schedule_transfers(HEARTBEAT_ROUND_MAX, now);
        }
    }

    /// This storage will not report what was on its way to it.
    pub(super) fn cancel_pending_target(&mut self, storage: StorageIndex, now: Now) {
        let touched = self.redundancy.pending_replications.cancel_target(storage);
        for index in self.nodes.indices() {
            for transfer in &mut self.nodes.node_mut(index).transfers {
                transfer.targets.retain(|target| *target != storage);
            }
            self.nodes.node_mut(index).transfers.retain(|transfer| !transfer.targets.is_empty());
        }
        for block in touched {
            self.refresh(block, now);
        }
    }

    /// This node will not send what it was told to.
    pub(super) fn cancel_transfers(&mut self, source: DatanodeIndex, now: Now) {
        self.nodes.node_mut(source).transfers.clear();
        let touched = self.redundancy.pending_replications.forget_where(|_, pending| pending.source == Some(source));
        for block in touched {
            self.refresh(block, now);
        }
    }

    pub(super) fn set_health(&mut self, block: BlockId, storage: StorageIndex, health: Health) {
        let entry = self.entry_mut(block);
        if let Some(replica) = entry.replica(storage) {
            entry.put_replica(Replica { health, ..replica });
        }
        if health == Health::Corrupt {
            self.forget_advertisement(block, storage);
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
        self.entry_mut(block).put_replica(Replica { storage, health, stamp });
        self.nodes.storage_mut(storage).blocks.insert(block);
    }

    /// The storage does not hold the block any more.
    pub(super) fn forget_replica(&mut self, block: BlockId, storage: StorageIndex) {
        self.forget_advertisement(block, storage);
        self.nodes.storage_mut(storage).blocks.remove(block);
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.remove_replica(storage);
        }
    }

    /// Has the storage's datanode delete this replica. `length`: `None` when the block is gone from the namespace.
    pub(super) fn invalidate(&mut self, storage: StorageIndex, block: Block, length: Option<u64>) {
        let node = self.nodes.storage(storage).node;
        let node = self.nodes.node_mut(node);
        // A dead one forgets; it is told when it comes back and reports.
        if node.alive {
            node.invalidations.insert(block.id, Invalidation { stamp: block.stamp, length });
        }
    }

    fn expire_pending(&mut self, now: Now) {
        let (timeout, nodes) = (self.settings.pending_timeout, &self.nodes);
        let expired = self.redundancy.pending_replications.forget_where(|block, pending| {
            let age = now.monotonic.saturating_sub(pending.since);
            let source_idle = pending.source.is_some_and(|source| {
                let node = nodes.node(source);
                let waiting = node.transfers.iter().any(|transfer| transfer.block == block);
                !waiting
                    && node.idle_since.is_some_and(|since| {
                        since >= pending.since && now.monotonic.saturating_sub(since) >= SOURCE_IDLE_TIMEOUT
                    })
            });
            let pipeline_over = pending.source.is_none() && age >= PIPELINE_REPORT_TIMEOUT;
            age >= timeout || source_idle || pipeline_over
        });
        self.timed_out_copies += expired.len() as u64;
        for block in expired {
            self.refresh(block, now);
        }
    }

    fn retry_postponed(&mut self, now: Now) {
        let Redundancy { postponed, postponed_cursor, .. } = &mut self.redundancy;
        for block in round_robin::next_batch(postponed, postponed_cursor, ROUND_MAX) {
            self.refresh(block, now);
        }
    }

    /// Gives sources work from the queues, the most urgent first, until they have all they can take. Looks at `round_max` blocks at
    /// most; half of what is left of that may be spent in vain on a queue: what nobody can take does not keep others from their turn.
    pub(super) fn schedule_transfers(&mut self, round_max: usize, now: Now) {
        let mut left = round_max;
        let serving = self.nodes.iter().filter(|(_, node)| node.in_service()).count();
        for priority in [HIGHEST, VERY_LOW, LOW, BADLY_SPREAD] {
            let queue = &self.redundancy.queues[usize::from(priority)];
            if queue.is_empty() {
                continue;
            }
            let cursor = self.redundancy.cursors[usize::from(priority)];
            let round: Vec<BlockId> = round_robin::iter_after(queue, cursor).take(left).collect();
            let mut in_vain = left.div_ceil(2);
            for block in round {
                if !self.any_source_free(priority) {
                    return;
                }
                self.redundancy.cursors[usize::from(priority)] = Some(block);
                left -= 1;
                // With fewer nodes than replicas asked for, most of the queue can have no more: a quick look must do.
                let is_scheduled = match priority == BADLY_SPREAD || self.may_find_target(block, serving) {
                    true => self.schedule_transfer(block, priority, now),
                    false => {
                        self.make_room(block);
                        false
                    }
                };
                in_vain -= usize::from(!is_scheduled);
                if in_vain == 0 {
                    break;
                }
            }
            if left == 0 {
                return;
            }
        }
    }

    fn may_find_target(&self, block: BlockId, serving: usize) -> bool {
        let entry = self.entry(block);
        let taken = entry.replicas().filter(|replica| self.nodes.node_of(replica.storage).in_service()).count();
        taken + self.redundancy.pending_replications.of(block).len() < serving
    }

    /// Every node has a replica, some of them bad: one of those is deleted, so that its node can take a good one. (Apache's
    /// leaves such a block as it is until there is another node.)
    fn make_room(&mut self, block: BlockId) {
        let entry = self.entry(block);
        let counts = entry.counts(&self.nodes);
        if counts.corrupt == 0 || counts.live < self.settings.min_replication.max(1) || counts.stale > 0 {
            return;
        }
        let bad = entry
            .replicas()
            .find(|replica| replica.health == Health::Corrupt && self.nodes.node_of(replica.storage).in_service());
        let Some(bad) = bad else { return };
        let as_reported = Block { stamp: bad.stamp, ..entry.block() };
        self.forget_replica(block, bad.storage);
        self.invalidate(bad.storage, as_reported, Some(as_reported.length));
        self.requeue(block);
    }

    fn any_source_free(&self, priority: u8) -> bool {
        self.nodes.iter().any(|(index, node)| node.alive && self.can_send(index, 0, priority))
    }

    /// Whether a node can be told to send `bytes` more. One that awaits work hears of it at once, and what it still has to send
    /// is known exactly: as many blocks as Hadoop's keys say, or as many as fill its window. Of another one only its last
    /// heartbeat tells.
    fn can_send(&self, index: DatanodeIndex, bytes: u64, priority: u8) -> bool {
        let node = self.nodes.node(index);
        let streams = if priority == HIGHEST { self.settings.max_streams_hard } else { self.settings.max_streams };
        if node.awaits_work {
            let sending = self.redundancy.pending_replications.sent_by(index);
            // Half a window is made free before it is filled again, or every small block would cost a heartbeat.
            let filling = !node.transfers.is_empty();
            let (blocks_max, bytes_max) = match filling {
                true => (BATCH_BLOCKS_MAX, self.settings.transfer_window),
                false => (BATCH_BLOCKS_MAX / 2, self.settings.transfer_window / 2),
            };
            return sending.blocks < streams as usize
                || (sending.blocks < blocks_max && sending.bytes.saturating_add(bytes) <= bytes_max);
        }
        let queued_bytes: u64 = node.transfers.iter().map(|transfer| transfer.bytes).sum();
        let busy = node.transmits as usize + node.transfers.len();
        busy < streams as usize
            || (node.transmits < streams && busy < BATCH_BLOCKS_MAX && queued_bytes + bytes <= BATCH_BYTES_MAX)
    }

    /// Whether a node has as much on its way to it as a few sources that await work may send at once: all of them together are
    /// faster than one target.
    fn is_flooded(&self, index: DatanodeIndex) -> bool {
        let receiving = self.redundancy.pending_replications.received_by(index);
        receiving.blocks >= self.settings.max_streams_hard as usize
            && receiving.bytes >= self.settings.transfer_window.saturating_mul(TARGET_WINDOWS)
    }

    /// Whether somebody is told to send the block.
    fn schedule_transfer(&mut self, block: BlockId, priority: u8, now: Now) -> bool {
        let entry = self.entry(block);
        let length = entry.length();
        let mut sources: Vec<DatanodeIndex> = entry
            .replicas()
            .filter(|replica| replica.health != Health::Corrupt)
            .map(|replica| self.nodes.storage(replica.storage).node)
            .filter(|node| self.nodes.node(*node).is_readable() && self.can_send(*node, length, priority))
            .collect();
        self.random.shuffle(&mut sources);
        // A node that leaves takes no new writes: it has time to send. Among equals, who has least to send, and least to do.
        let source_node = sources.into_iter().min_by_key(|index| {
            let (node, sending) = (self.nodes.node(*index), self.redundancy.pending_replications.sent_by(*index));
            (node.admin == DatanodeAdminState::Normal, sending.bytes, sending.blocks, node.xceivers)
        });
        let Some(source_node) = source_node else { return false };
        let counts = entry.counts(&self.nodes);
        let pending: Vec<StorageIndex> =
            self.redundancy.pending_replications.of(block).iter().map(|target| target.storage).collect();
        let missing = if priority == BADLY_SPREAD {
            1
        } else {
            usize::from(self.wanted_live(entry, &counts)).saturating_sub(usize::from(counts.live) + pending.len())
        };
        // Nodes that leave hold a replica, but it does not count for the spread over racks; they are merely not chosen.
        let mut chosen: Vec<StorageIndex> = Vec::new();
        let mut excluded = Vec::new();
        for replica in entry.replicas() {
            if replica.health == Health::Live && self.nodes.node_of(replica.storage).admin == DatanodeAdminState::Normal
            {
                chosen.push(replica.storage);
            } else {
                excluded.push(self.nodes.node_of(replica.storage).id.clone());
            }
        }
        chosen.extend(&pending);
        // Who is still to delete an old replica would refuse the new one.
        let deleting = self.nodes.iter().filter(|(_, node)| node.invalidations.contains_key(&block));
        excluded.extend(deleting.map(|(_, node)| node.id.clone()));
        if self.nodes.node(source_node).awaits_work {
            let flooded = self.nodes.iter().filter(|(index, _)| self.is_flooded(*index));
            excluded.extend(flooded.map(|(_, node)| node.id.clone()));
        }
        let writer = self.nodes.node(source_node).id.ip.clone();
        let request = PlacementRequest {
            additional: missing,
            block_size: length,
            writer: Some(&writer),
            excluded: &excluded,
            chosen: &chosen,
            policy: entry.policy(),
            for_replication: true,
            at_any_load: true,
            ..PlacementRequest::default()
        };
        let targets = self.choose_targets(&request, now);
        let racks_unchanged = priority == BADLY_SPREAD
            && targets.iter().all(|target| self.nodes.node_of(*target).rack == self.nodes.node(source_node).rack);
        if targets.is_empty() || racks_unchanged {
            return false;
        }
        for target in &targets {
            self.schedule_one(*target);
        }
        let arrivals: Vec<PendingTarget> = targets.iter().map(|target| self.pending_target(*target)).collect();
        self.redundancy.pending_replications.send(block, source_node, &arrivals, length, now.monotonic);
        let node = self.nodes.node_mut(source_node);
        node.transfers.push_back(Transfer { block, targets, bytes: length });
        node.wake();
        self.requeue(block);
        true
    }
}
