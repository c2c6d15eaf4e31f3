use std::fmt;
use std::time::Duration;

use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState};

use super::datanodes::{DatanodeIndex, Datanodes, StorageIndex};
use super::replicas::{Health, Replica, Replicas};

/// Where a block stands in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    UnderConstruction,
    UnderRecovery,
    /// Length and stamp are final; too few finalized replicas have been reported.
    Committed,
    Complete,
}

impl fmt::Display for BlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnderConstruction => "UNDER_CONSTRUCTION",
            Self::UnderRecovery => "UNDER_RECOVERY",
            Self::Committed => "COMMITTED",
            Self::Complete => "COMPLETE",
        })
    }
}

/// How far a block has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    /// Keeps the pipeline: readers are sent to it until the replicas have reported.
    Committed,
    Complete,
}

/// What the map knows of one block. Kept small: there are as many as there are blocks.
pub(super) struct Entry {
    block: Block,
    pub inode: u64,
    replicas: Replicas,
    /// Until the block is COMPLETE.
    construction: Option<Box<Construction>>,
    pub replication: u16,
    /// Id of the storage policy; 0: none named.
    pub policy: u8,
    /// The under-replicated queue in which the block stands.
    pub queued: Option<u8>,
    /// Complete, and with enough replicas for safe mode.
    pub safe: bool,
}

/// A block while it is written: the pipeline and what its members last said.
#[derive(Default)]
pub(super) struct Construction {
    /// Length and stamp are final: only reports are awaited.
    pub is_committed: bool,
    pub expected: Vec<Expected>,
    pub recovery: Option<Recovery>,
    /// Recovery is to cut the block to this length, bytes.
    pub truncate_to: Option<u64>,
    /// The cut is a copy of this block, which stays as it is: a snapshot has it.
    pub copied_from: Option<BlockId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub storage: StorageIndex,
    pub stamp: GenerationStamp,
    /// Bytes, as last reported; 0 before any report.
    pub length: u64,
    pub state: ReplicaState,
    /// Was asked to lead the recovery in this round.
    pub was_primary: bool,
}

impl Expected {
    pub fn new(storage: StorageIndex, stamp: GenerationStamp) -> Self {
        Self { storage, stamp, length: 0, state: ReplicaState::BeingWritten, was_primary: false }
    }
}

/// A running block recovery.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    /// The stamp that the block will have.
    pub id: GenerationStamp,
    /// Monotonic time of the last attempt.
    pub attempted: Duration,
    /// Who was told to lead it; `None` when nobody was there.
    pub primary: Option<DatanodeIndex>,
}

/// The replicas of a block by what they are good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    /// Good and on nodes that stay.
    pub live: u16,
    /// Good, on nodes that are leaving (decommissioning).
    pub decommissioning: u16,
    /// Good, on nodes that have left but still answer.
    pub decommissioned: u16,
    /// Good, on nodes in or entering maintenance.
    pub maintenance: u16,
    /// Those of `maintenance` that nobody is sent to: their nodes may be switched off at any moment, or are.
    pub out_of_reach: u16,
    pub excess: u16,
    pub corrupt: u16,
    /// Good ones whose storage's contents are not sure since the last start.
    pub stale: u16,
}

impl Counts {
    /// Replicas that a reader can use.
    pub fn readable(&self) -> u16 {
        self.live + self.decommissioning + self.decommissioned + (self.maintenance - self.out_of_reach) + self.excess
    }

    /// Live replicas that are enough for a block of which `replication` are asked for. Those in maintenance will be back: while
    /// they are away, `least` live ones do.
    pub fn wanted_live(&self, replication: u16, least: u16) -> u16 {
        replication.saturating_sub(self.maintenance).max(least.min(replication))
    }
}

impl Entry {
    /// An open block without a replica.
    pub fn new(block: Block, inode: u64, replication: u16, policy: u8, construction: Construction) -> Self {
        Self {
            block,
            inode,
            replicas: Replicas::default(),
            construction: Some(Box::new(construction)),
            replication,
            policy,
            queued: None,
            safe: false,
        }
    }

    /// Length: as far as it is known; final once committed.
    pub fn block(&self) -> Block {
        self.block
    }

    pub fn set_block(&mut self, block: Block) {
        self.replicas.block_restamped(self.block.stamp, block.stamp);
        self.block = block;
    }

    pub fn phase(&self) -> Phase {
        match &self.construction {
            Some(construction) if construction.is_committed => Phase::Committed,
            Some(_) => Phase::Open,
            None => Phase::Complete,
        }
    }

    pub fn state(&self) -> BlockState {
        match (self.phase(), &self.construction) {
            (Phase::Open, Some(construction)) if construction.recovery.is_some() => BlockState::UnderRecovery,
            (Phase::Open, _) => BlockState::UnderConstruction,
            (Phase::Committed, _) => BlockState::Committed,
            (Phase::Complete, _) => BlockState::Complete,
        }
    }

    pub fn is_open(&self) -> bool {
        self.phase() == Phase::Open
    }

    pub fn is_complete(&self) -> bool {
        self.construction.is_none()
    }

    /// What there is of it until the block is COMPLETE.
    pub fn construction(&self) -> Option<&Construction> {
        self.construction.as_deref()
    }

    pub fn construction_mut(&mut self) -> Option<&mut Construction> {
        self.construction.as_deref_mut()
    }

    /// The block is being written, again perhaps, or as `construction` says.
    pub fn set_construction(&mut self, construction: Box<Construction>) {
        self.construction = Some(construction);
    }

    /// The block is COMPLETE; answers what there was of its construction.
    pub fn complete(&mut self) -> Option<Box<Construction>> {
        self.construction.take()
    }

    /// Finalized replicas that datanodes reported; at most one a datanode.
    pub fn replicas(&self) -> impl Iterator<Item = Replica> {
        self.replicas.iter(self.block.stamp)
    }

    pub fn replica(&self, storage: StorageIndex) -> Option<Replica> {
        self.replicas().find(|replica| replica.storage == storage)
    }

    /// Adds a replica, or has it take the place of what was known of its storage.
    pub fn put_replica(&mut self, replica: Replica) {
        self.replicas.put(replica, self.block.stamp);
    }

    pub fn remove_replica(&mut self, storage: StorageIndex) {
        self.replicas.remove(storage, self.block.stamp);
    }

    pub fn counts(&self, nodes: &Datanodes) -> Counts {
        use hearth_types::DatanodeAdminState::*;
        let mut counts = Counts::default();
        for replica in self.replicas() {
            let storage = nodes.storage(replica.storage);
            match replica.health {
                Health::Corrupt => counts.corrupt += 1,
                Health::Excess => counts.excess += 1,
                Health::Live => {
                    match nodes.node(storage.node).admin {
                        Normal => counts.live += 1,
                        DecommissionInProgress => counts.decommissioning += 1,
                        Decommissioned => counts.decommissioned += 1,
                        EnteringMaintenance => counts.maintenance += 1,
                        InMaintenance => {
                            counts.maintenance += 1;
                            counts.out_of_reach += 1;
                        }
                    }
                    if storage.stale {
                        counts.stale += 1;
                    }
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stays_small() {
        assert!(std::mem::size_of::<Entry>() <= 64, "{}", std::mem::size_of::<Entry>());
    }
}
