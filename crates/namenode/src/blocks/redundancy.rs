//! Repair of blocks with too few, too many or corrupt replicas. Every change of a block ends in [`BlockMap::refresh`],
//! which puts the block into the right queue; [`BlockMap::tick`] and heartbeats turn the queues into work.

use std::collections::BTreeSet;
use std::time::Duration;

use hearth_types::{Block, BlockId, DatanodeAdminState, GenerationStamp};

use super::block_info::{BlockInfo, BlockRef, Counts};
use super::datanodes::{Datanode, DatanodeIndex, StorageIndex, Transfer};
use super::invalidations::Invalidation;
use super::pending_replications::{PendingReplications, PendingTarget};
use super::placement::PlacementRequest;
use super::replicas::{Health, Replica};
use super::{BlockMap, Now};
use crate::round_robin;

/// Queue of blocks with a single replica, or with replicas only on leaving nodes.
pub(super) const HIGHEST: u8 = 0;
/// Less than a third of the requested replicas.
pub(super) const VERY_LOW: u8 = 1;
pub(super) const LOW: u8 = 2;
/// Enough replicas, all in one rack.
pub(super) const BADLY_SPREAD: u8 = 3;
/// No good replica: nothing to copy from.
pub(super) const MISSING: u8 = 4;

/// Limit of blocks examined per round of scheduling: bounds how long the lock is held.
const ROUND_MAX: usize = 2_000;
/// The same limit for the round that a heartbeat makes before it is answered.
pub(super) const HEARTBEAT_ROUND_MAX: usize = 200;
/// Limits of a batch: small blocks are given to a source in batches of at most this many blocks and bytes, so that
/// their rate is not bound to the rate of heartbeats. Apache gives out `dfs.namenode.replication.max-streams` blocks
/// per heartbeat, whatever their size.
const BATCH_BLOCKS_MAX: usize = 64;
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Number of source windows that may be pending to one target.
const TARGET_WINDOWS: u64 = 2;
/// A pipeline's last replicas are reported within a moment of the first, or not at all.
const PIPELINE_REPORT_TIMEOUT: Duration = Duration::from_secs(60);
/// A source that has had nothing to send for this long will not send the replicas assigned to it before.
const SOURCE_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(super) struct Redundancy {
    /// False until safe mode is first left: before that, everything looks lost.
    pub active: bool,
    pub queues: [BTreeSet<BlockId>; 5],
    /// Number of blocks in the queue of missing ones that have replication 1.
    pub missing_with_replication_one: u64,
    /// Position of the last round in each queue.
    pub cursors: [Option<BlockId>; 5],
    pub pending_replications: PendingReplications,
    /// Sources whose copies have arrived: they may be able to take the next.
    pub freed: BTreeSet<DatanodeIndex>,
    /// Complete blocks with enough replicas for safe mode.
    pub safe: u64,
    /// Blocks with corrupt replicas.
    pub corrupt: BTreeSet<BlockId>,
    /// Blocks to check again: with too many replicas, some of them uncertain; or with corrupt replicas that were
    /// protected.
    pub postponed: BTreeSet<BlockId>,
    /// Position of the last round in `postponed`.
    pub postponed_cursor: Option<BlockId>,
    /// Parts of the block table that [`BlockMap::continue_check`] has still to check.
    pub unchecked: Vec<u64>,
}

impl BlockMap {
    /// Does the periodic work: finds dead nodes, advances safe mode, gives up overdue transfers, schedules new ones. To
    /// be called about every second.
    pub fn tick(&mut self, now: Now) {
        self.expire_advertisements(now);
        // While blocks are still being reported for the first time, no node is declared dead, as in Apache.
        if !self.in_startup_safe_mode() {
            let dead_after = self.settings.dead_after();
            for index in self.nodes.indices() {
                let node = self.nodes.node(index);
                if node.alive && now.monotonic.saturating_sub(node.last_heartbeat) > dead_after {
                    tracing::warn!(datanode = %node.id, "datanode is dead: no heartbeat in time");
                    self.expired_heartbeats += 1;
                    self.node_died(index, now);
                }
            }
        }
        self.check_safe_mode(now);
        self.continue_check(now);
        if self.in_safe_mode() || !self.redundancy.active {
            return;
        }
        self.expire_pending(now);
        self.retry_postponed(now);
        self.schedule_transfers(ROUND_MAX, now);
        self.check_decommissions(now);
    }

    /// Starts repairs when safe mode has ended: blocks with too few reported replicas are repaired from now on.
    pub(super) fn start_repairs(&mut self, now: Now) {
        self.redundancy.active = true;
        self.deletions_from = now.monotonic + self.settings.deletion_delay;
        self.check_all(now);
    }

    /// Begins to check every block, and makes the first round. Blocks that are added or changed before their round are
    /// checked by that change.
    fn check_all(&mut self, now: Now) {
        self.redundancy.unchecked = self.blocks.pages().collect();
        self.continue_check(now);
    }

    /// Makes the next round of a check of all blocks, of at most 2,000 blocks. Returns true if some are left.
    /// [`BlockMap::tick`] makes one round. Callers that give other calls the lock between rounds can make more.
    pub fn continue_check(&mut self, now: Now) -> bool {
        let mut round: Vec<BlockId> = Vec::new();
        // Parts may have become empty: their number is limited too.
        for _ in 0..ROUND_MAX {
            let Some(page) = self.redundancy.unchecked.last() else { break };
            let before = round.len();
            round.extend(self.blocks.in_page(*page));
            if round.len() > ROUND_MAX {
                round.truncate(before);
                break;
            }
            self.redundancy.unchecked.pop();
        }
        for block in round {
            self.refresh(block, now);
        }
        !self.redundancy.unchecked.is_empty()
    }

    /// Recounts the racks. To be called when a node comes, goes or moves: with the second rack every block must be
    /// spread over racks, with only one rack left none can be.
    pub(super) fn recount_racks(&mut self, now: Now) {
        let before = self.nodes.rack_count() > 1;
        self.nodes.recount_racks();
        if self.redundancy.active && before != (self.nodes.rack_count() > 1) {
            self.check_all(now);
        }
    }

    /// Checks these blocks again and queues those that are on too few racks. Returns the number of blocks checked; 0
    /// before repairs have begun.
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

    /// Updates all state that is derived from the block's replicas.
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

    /// Returns the queue for a complete block; `None` if it has the replicas that it needs, or they are pending.
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

    /// Updates the count of safe blocks for a block that has just been removed from the map.
    pub(super) fn forget_safe(&mut self, entry: &BlockInfo) {
        if entry.is_safe() {
            self.redundancy.safe -= 1;
        }
    }

    /// Removes the block from its queue. Also to be called before a change of the values that a queue counts of its
    /// blocks.
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

    /// Stops all repair of a block that is gone or under construction again.
    pub(super) fn leave_queues(&mut self, block: BlockId) {
        self.leave_queue(block);
        self.redundancy.pending_replications.forget(block);
        self.redundancy.corrupt.remove(&block);
        self.redundancy.postponed.remove(&block);
    }

    /// Records a pipeline's members that are about to report the block.
    pub(super) fn expect_replicas(&mut self, block: BlockId, targets: Vec<StorageIndex>, now: Now) {
        let alive = targets.into_iter().filter(|storage| self.nodes.node_of(*storage).alive);
        let alive = alive.map(|storage| self.pending_target(storage)).collect();
        self.redundancy.pending_replications.expect(block, alive, now.monotonic);
    }

    fn pending_target(&self, storage: StorageIndex) -> PendingTarget {
        PendingTarget { storage, node: self.nodes.storage(storage).node }
    }

    /// Records that a replica that was pending for this node has arrived.
    pub(super) fn replica_arrived(&mut self, block: BlockId, node: DatanodeIndex) {
        self.redundancy.freed.extend(self.redundancy.pending_replications.arrived(block, node));
    }

    /// Gives sources whose copies may have arrived their next work, without waiting for a heartbeat. To be called after
    /// a datanode's events are recorded.
    pub(super) fn refill_sources(&mut self, now: Now) {
        let freed = std::mem::take(&mut self.redundancy.freed);
        let highest = !self.redundancy.queues[usize::from(HIGHEST)].is_empty();
        let priority = if highest { HIGHEST } else { LOW };
        // Only nodes that wait in awaitWork can be notified now, and the queues are worth a look only if one of them
        // has room again.
        let hears = |source: &DatanodeIndex| {
            // The node may have been removed since.
            let awaits = |node: &Datanode| node.alive && node.awaits_work;
            self.nodes.get(*source).is_some_and(awaits) && self.can_send(*source, 1, priority)
        };
        if freed.iter().any(hears) && self.redundancy.active && !self.in_safe_mode() {
            self.schedule_transfers(HEARTBEAT_ROUND_MAX, now);
        }
    }

    /// Cancels the replicas that were pending for this storage.
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

    /// Cancels the transfers that were assigned to this node.
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

    /// Records a finalized replica.
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

    /// Records that the storage does not hold the block any more.
    pub(super) fn forget_replica(&mut self, block: BlockId, storage: StorageIndex) {
        self.forget_advertisement(block, storage);
        self.nodes.storage_mut(storage).blocks.remove(block);
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.remove_replica(storage);
        }
    }

    /// Schedules the deletion of this replica by its datanode. `length`: `None` if the block is gone from the
    /// namespace.
    pub(super) fn invalidate(&mut self, storage: StorageIndex, block: Block, length: Option<u64>) {
        let node = self.nodes.storage(storage).node;
        let node = self.nodes.node_mut(node);
        // A dead node loses its commands; it gets them when it comes back and reports.
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

    /// Gives sources work from the queues, the most urgent queue first, until they have all that they can take.
    /// Examines at most `round_max` blocks. A queue may use up half of the remaining budget without result, so that
    /// blocks that no node can take do not block the other queues.
    pub(super) fn schedule_transfers(&mut self, round_max: usize, now: Now) {
        let mut left = round_max;
        let serving = self.nodes.iter().filter(|(_, node)| node.takes_copies()).count();
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
                // With fewer nodes than requested replicas, most blocks in the queue can get no further replica, so
                // this check must be quick.
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
        let taken = entry.replicas().filter(|replica| self.nodes.node_of(replica.storage).takes_copies()).count();
        taken + self.redundancy.pending_replications.of(block).len() < serving
    }

    /// Handles a block for which every node has a replica, some of them corrupt: deletes a corrupt one, so that its
    /// node can take a good one. (Apache's namenode leaves such a block as it is until there is another node.) Replicas
    /// of lost changes stay.
    fn make_room(&mut self, block: BlockId) {
        let entry = self.entry(block);
        let counts = entry.counts(&self.nodes);
        if counts.corrupt == 0 || counts.live < self.settings.min_replication.max(1) || counts.uncertain > 0 {
            return;
        }
        let bad = entry.replicas().find(|replica| {
            replica.health == Health::Corrupt
                && self.nodes.node_of(replica.storage).in_service()
                && !self.is_of_lost_change(entry, replica.stamp)
        });
        let Some(bad) = bad else { return };
        let as_reported = Block { stamp: bad.stamp, ..entry.block() };
        self.forget_replica(block, bad.storage);
        self.invalidate(bad.storage, as_reported, Some(as_reported.length));
        self.requeue(block);
    }

    fn any_source_free(&self, priority: u8) -> bool {
        let can_take = |(index, node): (DatanodeIndex, &Datanode)| {
            node.alive && !node.disconnected && self.can_send(index, 0, priority)
        };
        self.nodes.iter().any(can_take)
    }

    /// Returns true if a node can be asked to send `bytes` more. A node that awaits work is notified at once, and its
    /// unfinished transfers are known exactly: the limit is the number of blocks in Hadoop's configuration, or enough
    /// blocks to fill its window. For other nodes only the last heartbeat is known.
    fn can_send(&self, index: DatanodeIndex, bytes: u64, priority: u8) -> bool {
        let node = self.nodes.node(index);
        let streams = if priority == HIGHEST { self.settings.max_streams_hard } else { self.settings.max_streams };
        if node.awaits_work {
            let sending = self.redundancy.pending_replications.sent_by(index);
            // Half a window must be free before it is filled again; otherwise every small block would cost a heartbeat.
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

    /// Returns true if the transfers pending for a node are as large as a few sources that await work may send at once:
    /// together they are faster than one target.
    fn is_flooded(&self, index: DatanodeIndex) -> bool {
        let receiving = self.redundancy.pending_replications.received_by(index);
        receiving.blocks >= self.settings.max_streams_hard as usize
            && receiving.bytes >= self.settings.transfer_window.saturating_mul(TARGET_WINDOWS)
    }

    /// Assigns the block to a source. Returns false if none can send it.
    fn schedule_transfer(&mut self, block: BlockId, priority: u8, now: Now) -> bool {
        let entry = self.entry(block);
        let length = entry.length();
        let mut sources: Vec<DatanodeIndex> = entry
            .replicas()
            .filter(|replica| replica.health != Health::Corrupt)
            .map(|replica| self.nodes.storage(replica.storage).node)
            .filter(|node| self.nodes.node(*node).is_readable() && self.can_send(*node, length, priority))
            // It would not learn of the work before it is back, and gets some then.
            .filter(|node| !self.nodes.node(*node).disconnected)
            .collect();
        self.random.shuffle(&mut sources);
        // A leaving node takes no new writes, so it has time to send. Among equals, prefer the one with the least to
        // send, then the least loaded.
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
        // Leaving nodes hold a replica that does not count for the spread over racks; they are only excluded as
        // targets.
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
        // A node that must still delete an old replica would reject the new one.
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
