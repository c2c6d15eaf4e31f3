//! What datanodes say they hold, one replica at a time and all at once.

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
    /// A writer has begun on it.
    Receiving(Block),
    /// Finalized; `delete_hint`: the datanode whose copy is now one too many (balancer).
    Received {
        block: Block,
        delete_hint: Option<DatanodeUuid>,
    },
    Deleted(Block),
}

/// All that one storage holds.
#[derive(Clone, Debug)]
pub struct StorageContents {
    pub storage: StorageId,
    pub storage_type: StorageType,
    pub replicas: Vec<ReportedReplica>,
}

/// Where a full report's call stands among the calls of the whole report, and by what right it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportContext {
    pub calls: u32,
    /// From 0.
    pub call: u32,
    /// 0: forced by an administrator, needs no lease.
    pub lease: u64,
}

/// Replicas of no block that one datanode is to delete, known at once: bounds what its reports can take of memory.
const INVALIDATIONS_MAX: usize = 1 << 20;
/// Deletions of one datanode since its last full report, as far as they are remembered: two bytes each, where ids are close together.
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
    /// Books the events of one storage. `Unregistered`: ignored; the node is made to register with its next heartbeat.
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
                    // Its length is what the writer expects to write.
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
                    // A new copy, whatever was wrong with the one before.
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
                    // A datanode has one replica of a block, and tells the last that became of it: not that it had moved to the storage
                    // where it was deleted. Source: hdfs `BlocksMap.removeNode`.
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

    /// Whether a full report may be taken: the node is registered, and the lease is its own. Looked at before the report is
    /// decoded.
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

    /// Makes the map agree with all that a storage holds. True: the datanode has no storage left whose contents are unsure, and
    /// may finalize an upgrade.
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
        // In startup safe mode the first report of a storage is enough; the others wait.
        if self.in_startup_safe_mode() && self.nodes.storage(storage).reports > 0 {
            return;
        }
        let node = self.nodes.storage(storage).node;
        let mut reported = BlockSet::default();
        for replica in replicas {
            // The report is older than the deletion, and was long on its way. Counted again, the replica could have a real one deleted.
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

    /// One replica is said to be on this storage.
    pub(super) fn replica_reported(&mut self, storage: StorageIndex, replica: ReportedReplica, now: Now) {
        let block = replica.block;
        let node = self.nodes.storage(storage).node;
        let Some(entry) = self.blocks.get(&block.id) else {
            self.unknown_reported(storage, block);
            return;
        };
        // On its way to the dustbin already.
        if self.nodes.node(node).invalidations.get(&block.id).is_some_and(|doomed| doomed.stamp == block.stamp) {
            return;
        }
        if is_corrupt(entry, replica) || self.is_known_corrupt(node, block) {
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

    /// The datanode has no replica of the block any more. One that the namespace does not have need not be remembered: named again, it is
    /// only deleted again.
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
        // This namespace has never given out such a stamp: it may be an old copy of itself, and deleting would destroy what the
        // right one knows. Apache's deletes such replicas once safe mode is over; here they stay until somebody insists.
        if block.stamp > self.newest_stamp && !self.safe_mode.future_given_up {
            if self.in_startup_safe_mode() {
                self.safe_mode.bytes_in_future = self.safe_mode.bytes_in_future.saturating_add(block.length);
            }
            return;
        }
        // Further ones are named again by the next full report.
        let node = self.nodes.storage(storage).node;
        if self.nodes.node(node).invalidations.len() < INVALIDATIONS_MAX {
            self.invalidate(storage, block, Some(block.length));
        }
    }

    /// A pipeline member has been heard of. A node counts once, with the storage it last named.
    fn note_pipeline_member(&mut self, storage: StorageIndex, replica: ReportedReplica) {
        let node = self.nodes.storage(storage).node;
        let nodes = &self.nodes;
        let entry = self.blocks.get_mut(&replica.block.id).expect("the caller has just seen the block");
        let stamp = entry.stamp();
        let Some(construction) = entry.construction_mut() else { return };
        // It left the pipeline before the last stamp was given: what it has is of no use.
        if replica.block.stamp < stamp {
            return;
        }
        let said = ExpectedReplica {
            storage,
            stamp: replica.block.stamp,
            length: replica.block.length,
            state: replica.state,
            // One that its datanode found empty when it started may have been more before the machine went down.
            is_unconfirmed: replica.state == ReplicaState::WaitingToBeRecovered && replica.block.length == 0,
            was_primary: false,
        };
        match construction.expected.iter_mut().find(|expected| nodes.storage(expected.storage).node == node) {
            // A late "receiving" does not take back "received".
            Some(known)
                if known.storage == storage
                    && known.stamp == said.stamp
                    && known.state == ReplicaState::Finalized
                    && said.state == ReplicaState::BeingWritten => {}
            Some(known) => *known = ExpectedReplica { was_primary: known.was_primary, ..said },
            None => construction.expected.push(said),
        }
    }

    /// A good finalized replica: counts from now on.
    fn book_finalized(&mut self, storage: StorageIndex, block: Block, now: Now) {
        let node = self.nodes.storage(storage).node;
        // A node has one replica of a block: it has moved between its storages.
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

    /// Marks one replica as bad: a report contradicts the block, or somebody saw a checksum fail. It is deleted once there are
    /// enough good ones; the last ones are kept, bad as they are.
    pub(super) fn mark_corrupt(&mut self, storage: StorageIndex, reported: Block, now: Now) {
        self.book_replica(reported.id, storage, reported.stamp, Health::Corrupt);
        self.forget_advertisement(reported.id, storage);
        self.refresh(reported.id, now);
    }

    /// A client or datanode found this replica's bytes wrong (reportBadBlocks).
    pub fn report_bad_replica(&mut self, block: Block, datanode: &DatanodeId, storage: Option<&StorageId>, now: Now) {
        let Some(node) = self.find_datanode(datanode) else { return };
        let Some(entry) = self.blocks.get(&block.id) else { return };
        // While a block is written, a reader can see a chunk before its checksum; the pipeline looks after itself.
        if entry.is_open() {
            return;
        }
        // Where the client says, else wherever that node keeps it.
        let held = entry.replicas().map(|replica| replica.storage);
        let held = held.chain(entry.construction().into_iter().flat_map(|c| c.expected.iter().map(|e| e.storage)));
        let on_node: Vec<StorageIndex> = held.filter(|storage| self.nodes.storage(*storage).node == node).collect();
        let named = storage.and_then(|id| self.nodes.storage_of(node, id));
        let found = named.filter(|named| on_node.contains(named)).or(on_node.first().copied());
        // An older replica than the block's is out of date, not rotten; the next full report sorts it out.
        if entry.stamp() != block.stamp {
            return;
        }
        // A node that is dead at the moment may come back with it.
        if let Some(storage) = found.or(named) {
            self.note_corrupt_replica(node, storage, block);
        }
        if let Some(storage) = found {
            self.mark_corrupt(storage, block, now);
        }
    }
}

/// No good replica of this stamp is booked for this storage yet. One that was bad for its stamp can come back with the right one;
/// one whose bytes were found wrong cannot, whatever it says of its length. One of an open block can come back with a stamp that
/// its writer has yet to tell: a finalized replica only takes on the new stamp, and reports it at once.
fn entry_wants(entry: BlockRef<'_>, storage: StorageIndex, stamp: GenerationStamp) -> bool {
    entry.replica(storage).is_none_or(|known| match known.health {
        Health::Corrupt => known.stamp != entry.stamp(),
        Health::Live => !entry.is_complete() && known.stamp < stamp,
        _ => false,
    })
}

/// Whether a reported replica contradicts the block. Source: `checkReplicaCorrupt` of BlockManager.
fn is_corrupt(entry: BlockRef<'_>, replica: ReportedReplica) -> bool {
    let (stored, said) = (entry.block(), replica.block);
    match replica.state {
        ReplicaState::Finalized => match entry.phase() {
            Phase::Open => said.stamp < stored.stamp,
            Phase::Committed | Phase::Complete => said.stamp != stored.stamp || said.length != stored.length,
        },
        ReplicaState::BeingWritten => entry.is_complete() && said.stamp != stored.stamp,
        ReplicaState::WaitingToBeRecovered => entry.is_complete(),
        // Never reported by a sound datanode; the block's good replicas decide.
        ReplicaState::UnderRecovery | ReplicaState::Temporary => true,
    }
}
