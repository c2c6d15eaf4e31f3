//! Datanodes' reports of their replicas: incremental (one replica at a time) and full.

use hearth_types::{Block, BlockId, DatanodeId, DatanodeUuid, GenerationStamp, ReplicaState, StorageId, StorageType};
use hearth_wire::block_report::ReportedReplica;

use super::block_info::{BlockRef, ExpectedReplica, Phase};
use super::datanodes::{DatanodeIndex, StorageIndex};
use super::replicas::Health;
use super::table::BlockSet;
use super::{BlockMap, Now};

/// One event of an incremental report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaEvent {
    /// A writer has begun to write the replica.
    Receiving(Block),
    /// Finalized. `delete_hint`: the datanode whose copy is now excess (balancer).
    Received {
        block: Block,
        delete_hint: Option<DatanodeUuid>,
    },
    Deleted(Block),
}

/// All replicas of one storage.
#[derive(Clone, Debug)]
pub struct StorageContents {
    pub storage: StorageId,
    pub storage_type: StorageType,
    pub replicas: Vec<ReportedReplica>,
}

/// Position of a full report's call among the calls of the whole report, and its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportContext {
    pub calls: u32,
    /// Counted from 0.
    pub call: u32,
    /// 0: forced by an administrator, needs no lease.
    pub lease: u64,
}

/// Limit, per datanode, of remembered deletions of replicas without a block: bounds the memory that its reports can
/// take.
const INVALIDATIONS_MAX: usize = 1 << 20;
/// Limit of remembered deletions per datanode since its last full report: two bytes each if the ids are close together.
const DELETED_MAX: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReportError {
    /// Answered with a register command.
    #[error("the datanode is not registered")]
    Unregistered,
    /// Apache's InvalidBlockReportLeaseException.
    #[error("the full block report lease {lease:#x} is not valid")]
    InvalidLease { lease: u64 },
}

impl BlockMap {
    /// Records the events of one storage. `Unregistered`: the events are ignored, and the node must register at its
    /// next heartbeat.
    pub fn replica_events(
        &mut self,
        datanode: &DatanodeId,
        storage: &StorageId,
        storage_type: StorageType,
        events: &[ReplicaEvent],
        now: Now,
    ) -> Result<(), ReportError> {
        let node = self.find_live(datanode)?;
        let Some(storage) = self.storage_or_insert(node, storage, storage_type) else { return Ok(()) };
        let storages = self.nodes.node(node).storages.clone();
        for event in events {
            match event {
                ReplicaEvent::Receiving(block) => {
                    // Its length is the length that the writer expects to write.
                    let block = Block { length: 0, ..*block };
                    self.replica_reported(storage, ReportedReplica { block, state: ReplicaState::BeingWritten }, now);
                }
                ReplicaEvent::Received { block, delete_hint } => {
                    self.nodes.node_mut(node).note_received();
                    self.nodes.node_mut(node).deleted.remove(block.id);
                    if self.report_leases.is_held(node) && self.blocks.get(&block.id).is_some() {
                        self.nodes.storage_mut(storage).received_under_lease.insert(block.id);
                    }
                    if let Some(hint) = delete_hint
                        && let Some(hinted) = self.nodes.by_uuid(hint)
                    {
                        self.delete_hints.insert(block.id, hinted);
                    }
                    // A new copy; a mark on the previous one no longer applies.
                    self.forget_corrupt_replica(node, block.id);
                    self.forget_corrupt(storage, block.id);
                    self.replica_reported(
                        storage,
                        ReportedReplica { block: *block, state: ReplicaState::Finalized },
                        now,
                    );
                    self.delete_hints.remove(&block.id);
                }
                ReplicaEvent::Deleted(block) => {
                    self.nodes.node_mut(node).invalidations.remove(&block.id);
                    self.note_deleted(node, block.id);
                    self.forget_corrupt_replica(node, block.id);
                    // A datanode has one replica of a block, and reports only the last event: it does not report that
                    // the replica had moved to the storage where it was deleted. Source: hdfs `BlocksMap.removeNode`.
                    for storage in &storages {
                        self.nodes.storage_mut(*storage).received_under_lease.remove(block.id);
                        self.forget_replica(block.id, *storage);
                    }
                    self.refresh(block.id, now);
                }
            }
        }
        self.check_safe_mode(now);
        self.refill_sources(now);
        Ok(())
    }

    /// Checks that a full report may be accepted: the node is registered, and holds the lease. Called before the report
    /// is decoded.
    pub fn check_report(
        &self,
        datanode: &DatanodeId,
        context: Option<ReportContext>,
        now: Now,
    ) -> Result<(), ReportError> {
        let node = self.find_live(datanode)?;
        match context {
            Some(context) if context.lease != 0 && !self.report_leases.is_valid(node, context.lease, now) => {
                Err(ReportError::InvalidLease { lease: context.lease })
            }
            _ => Ok(()),
        }
    }

    /// Updates the map from a storage's full contents. Returns true if no storage of the datanode has uncertain
    /// contents any more, so that it may finalize an upgrade.
    pub fn full_report(
        &mut self,
        datanode: &DatanodeId,
        context: Option<ReportContext>,
        storages: &[StorageContents],
        now: Now,
    ) -> Result<bool, ReportError> {
        self.check_report(datanode, context, now)?;
        let node = self.find_live(datanode)?;
        for contents in storages {
            let Some(storage) = self.storage_or_insert(node, &contents.storage, contents.storage_type) else {
                continue;
            };
            self.storage_reported(storage, &contents.replicas, now);
        }
        let known = self.nodes.node_mut(node);
        known.last_report_wall_ms = now.wall_ms;
        if context.is_none_or(|context| context.call.saturating_add(1) >= context.calls) {
            self.report_leases.drop_lease(node);
            self.nodes.node_mut(node).deleted.clear();
            for storage in self.nodes.node(node).storages.clone() {
                self.nodes.storage_mut(storage).received_under_lease.clear();
            }
        }
        self.check_safe_mode(now);
        let storages = &self.nodes.node(node).storages;
        Ok(storages.iter().all(|storage| !self.nodes.storage(*storage).stale))
    }

    fn storage_reported(&mut self, storage: StorageIndex, replicas: &[ReportedReplica], now: Now) {
        // In startup safe mode the first report of a storage is enough; later ones wait.
        if self.in_startup_safe_mode() && self.nodes.storage(storage).reports > 0 {
            return;
        }
        let node = self.nodes.storage(storage).node;
        let mut reported = BlockSet::default();
        for replica in replicas {
            // The report was made before the deletion and arrived late. Counting the replica again could cause the
            // deletion of a real one.
            if replica.state == ReplicaState::Finalized && self.nodes.node(node).deleted.contains(replica.block.id) {
                continue;
            }
            reported.insert(replica.block.id);
            self.replica_reported(storage, *replica, now);
        }
        let known = self.nodes.storage(storage);
        let vanished: Vec<BlockId> = known
            .blocks
            .iter()
            .filter(|block| !reported.contains(*block) && !known.received_under_lease.contains(*block))
            .collect();
        for block in vanished {
            self.forget_replica(block, storage);
            self.refresh(block, now);
        }
        self.forget_corrupt_replicas_unless(node, storage, &reported);
        let known = self.nodes.storage_mut(storage);
        known.reports += 1;
        if known.heartbeated {
            known.stale = false;
        }
        self.storages.reported(&known.id);
    }

    pub(super) fn find_live(&self, datanode: &DatanodeId) -> Result<DatanodeIndex, ReportError> {
        let node = self.find_datanode(datanode).ok_or(ReportError::Unregistered)?;
        let known = self.nodes.node(node);
        if !known.alive || known.disallowed || known.must_register { Err(ReportError::Unregistered) } else { Ok(node) }
    }

    /// Handles one replica reported for this storage.
    pub(super) fn replica_reported(&mut self, storage: StorageIndex, replica: ReportedReplica, now: Now) {
        let block = replica.block;
        let node = self.nodes.storage(storage).node;
        let Some(entry) = self.blocks.get(&block.id) else {
            self.unknown_reported(storage, block);
            return;
        };
        // Its deletion is already scheduled.
        if self.nodes.node(node).invalidations.get(&block.id).is_some_and(|doomed| doomed.stamp == block.stamp) {
            return;
        }
        if is_corrupt(entry, replica) || self.is_known_corrupt(node, block) {
            if self.is_of_lost_change(entry, block.stamp) {
                self.note_protected(block);
            }
            self.mark_corrupt(storage, block, now);
            return;
        }
        match (entry.phase(), replica.state) {
            (Phase::Open, ReplicaState::Finalized) => {
                self.note_pipeline_member(storage, replica);
                if entry_wants(self.entry(block.id), storage, block.stamp) {
                    self.book_finalized(storage, block, now);
                }
            }
            (Phase::Open | Phase::Committed, ReplicaState::BeingWritten | ReplicaState::WaitingToBeRecovered) => {
                self.note_pipeline_member(storage, replica);
            }
            (Phase::Committed | Phase::Complete, ReplicaState::Finalized) => {
                if entry_wants(entry, storage, block.stamp) {
                    self.book_finalized(storage, block, now);
                } else if entry.replica(storage).is_some_and(|known| known.health == Health::Excess) {
                    self.excess_is_still_there(storage, block, now);
                }
            }
            _ => {}
        }
    }

    /// Remembers that the datanode has no replica of the block any more. A block that the namespace does not have need
    /// not be remembered: reported again, its replica is only deleted again.
    fn note_deleted(&mut self, node: DatanodeIndex, block: BlockId) {
        let deleted = &mut self.nodes.node_mut(node).deleted;
        if deleted.len() < DELETED_MAX && self.blocks.get(&block).is_some() {
            deleted.insert(block);
        }
    }

    fn forget_corrupt(&mut self, storage: StorageIndex, block: BlockId) {
        let corrupt = |entry: BlockRef<'_>| entry.replica(storage).is_some_and(|known| known.health == Health::Corrupt);
        if self.blocks.get(&block).is_some_and(corrupt) {
            self.forget_replica(block, storage);
        }
    }

    fn unknown_reported(&mut self, storage: StorageIndex, block: Block) {
        // As far as is known, this namespace has never issued such a stamp. The namespace may be an old copy of itself,
        // or have lost its newest changes, and a deletion would destroy replicas that the right one knows. Apache
        // deletes such replicas once safe mode is over; here they stay until an administrator forces it.
        if self.is_protected(block.stamp) {
            self.note_protected(block);
            return;
        }
        // The next full report lists further ones again.
        let node = self.nodes.storage(storage).node;
        if self.nodes.node(node).invalidations.len() < INVALIDATIONS_MAX {
            self.invalidate(storage, block, Some(block.length));
        }
    }

    /// Records a report by a pipeline member. A node counts once, with the storage it last reported.
    fn note_pipeline_member(&mut self, storage: StorageIndex, replica: ReportedReplica) {
        let node = self.nodes.storage(storage).node;
        let nodes = &self.nodes;
        let entry = self.blocks.get_mut(&replica.block.id).expect("the caller has just seen the block");
        let stamp = entry.stamp();
        let Some(construction) = entry.construction_mut() else { return };
        // The member left the pipeline before the current stamp was issued: its replica is useless.
        if replica.block.stamp < stamp {
            return;
        }
        let said = ExpectedReplica {
            storage,
            stamp: replica.block.stamp,
            length: replica.block.length,
            state: replica.state,
            // A replica that its datanode found empty at start may have had more bytes before the machine crashed.
            is_unconfirmed: replica.state == ReplicaState::WaitingToBeRecovered && replica.block.length == 0,
            was_primary: false,
        };
        match construction.expected.iter_mut().find(|expected| nodes.storage(expected.storage).node == node) {
            // A late "receiving" does not undo "received".
            Some(known)
                if known.storage == storage
                    && known.stamp == said.stamp
                    && known.state == ReplicaState::Finalized
                    && said.state == ReplicaState::BeingWritten => {}
            Some(known) => *known = ExpectedReplica { was_primary: known.was_primary, ..said },
            None => construction.expected.push(said),
        }
    }

    /// Records a good finalized replica, which counts from now on.
    fn book_finalized(&mut self, storage: StorageIndex, block: Block, now: Now) {
        let node = self.nodes.storage(storage).node;
        // A node has one replica of a block: it has moved between the node's storages.
        let entry = self.entry(block.id);
        let moved: Vec<StorageIndex> = entry
            .replicas()
            .map(|replica| replica.storage)
            .filter(|other| *other != storage && self.nodes.storage(*other).node == node)
            .collect();
        for other in moved {
            self.forget_replica(block.id, other);
        }
        self.nodes.node_mut(node).invalidations.remove(&block.id);
        self.book_replica(block.id, storage, block.stamp, Health::Live);
        self.replica_arrived(block.id, node);
        self.complete_if_replicated(block.id, now);
        self.refresh(block.id, now);
    }

    /// Marks one replica as corrupt: a report contradicts the block, or a reader found a checksum error. It is deleted
    /// once there are enough good replicas. The last replicas are kept even if all are corrupt; replicas of lost
    /// changes are kept until an administrator forces their deletion.
    pub(super) fn mark_corrupt(&mut self, storage: StorageIndex, reported: Block, now: Now) {
        self.book_replica(reported.id, storage, reported.stamp, Health::Corrupt);
        self.forget_advertisement(reported.id, storage);
        self.refresh(reported.id, now);
    }

    /// Handles a client's or datanode's report that this replica is corrupt (reportBadBlocks).
    pub fn report_bad_replica(&mut self, block: Block, datanode: &DatanodeId, storage: Option<&StorageId>, now: Now) {
        let Some(node) = self.find_datanode(datanode) else { return };
        let Some(entry) = self.blocks.get(&block.id) else { return };
        // While a block is written, a reader can see a chunk before its checksum; the pipeline detects real errors
        // itself.
        if entry.is_open() {
            return;
        }
        // The storage that the client gives, else the one where that node has the replica.
        let held = entry.replicas().map(|replica| replica.storage);
        let held = held.chain(entry.construction().into_iter().flat_map(|c| c.expected.iter().map(|e| e.storage)));
        let on_node: Vec<StorageIndex> = held.filter(|storage| self.nodes.storage(*storage).node == node).collect();
        let named = storage.and_then(|id| self.nodes.storage_of(node, id));
        let found = named.filter(|named| on_node.contains(named)).or(on_node.first().copied());
        // A replica older than the block is out of date, not corrupt; the next full report handles it.
        if entry.stamp() != block.stamp {
            return;
        }
        // A node that is dead now may come back with it.
        if let Some(storage) = found.or(named) {
            self.note_corrupt_replica(node, storage, block);
        }
        if let Some(storage) = found {
            self.mark_corrupt(storage, block, now);
        }
    }
}

/// Returns true if no good replica of this stamp is recorded for this storage yet. A replica that had the wrong stamp
/// can come back with the right one; a replica with wrong bytes cannot, whatever length it reports. A replica of an
/// open block can come back with a stamp that its writer has not reported yet: a finalized replica only takes on the
/// new stamp, and reports it at once.
fn entry_wants(entry: BlockRef<'_>, storage: StorageIndex, stamp: GenerationStamp) -> bool {
    entry.replica(storage).is_none_or(|known| match known.health {
        Health::Corrupt => known.stamp != entry.stamp(),
        Health::Live => !entry.is_complete() && known.stamp < stamp,
        _ => false,
    })
}

/// Returns true if a reported replica contradicts the block. Source: `checkReplicaCorrupt` of BlockManager.
fn is_corrupt(entry: BlockRef<'_>, replica: ReportedReplica) -> bool {
    let (stored, said) = (entry.block(), replica.block);
    match replica.state {
        ReplicaState::Finalized => match entry.phase() {
            Phase::Open => said.stamp < stored.stamp,
            Phase::Committed | Phase::Complete => said.stamp != stored.stamp || said.length != stored.length,
        },
        ReplicaState::BeingWritten => entry.is_complete() && said.stamp != stored.stamp,
        ReplicaState::WaitingToBeRecovered => entry.is_complete(),
        // Never reported by a correct datanode; the block's good replicas decide.
        ReplicaState::UnderRecovery | ReplicaState::Temporary => true,
    }
}
