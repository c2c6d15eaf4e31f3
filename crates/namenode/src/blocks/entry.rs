use std::fmt;
use std::time::Duration;

use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState};

use super::datanodes::{DatanodeIndex, Datanodes, StorageIndex};

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

/// What the map knows of one block.
pub(super) struct Entry {
    /// Length: as far as it is known; final once committed.
    pub block: Block,
    pub inode: u64,
    pub replication: u16,
    /// Id of the storage policy; 0: none named.
    pub policy: u8,
    pub phase: Phase,
    /// Finalized replicas that datanodes reported; at most one a datanode.
    pub replicas: Vec<Replica>,
    /// The under-replicated queue in which the block stands.
    pub queued: Option<u8>,
    /// Complete, and with enough replicas for safe mode.
    pub safe: bool,
}

pub(super) enum Phase {
    Open(Box<Construction>),
    /// Keeps the pipeline: readers are sent to it until the replicas have reported.
    Committed(Box<Construction>),
    Complete,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    Live,
    /// Being deleted because there are more than asked for.
    Excess,
    Corrupt,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Replica {
    pub storage: StorageIndex,
    pub health: Health,
    /// As reported; differs from the block's only in corrupt replicas and while the block is open.
    pub stamp: GenerationStamp,
}

/// A block while it is written: the pipeline and what its members last said.
#[derive(Default)]
pub(super) struct Construction {
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
    pub fn state(&self) -> BlockState {
        match &self.phase {
            Phase::Open(construction) if construction.recovery.is_some() => BlockState::UnderRecovery,
            Phase::Open(_) => BlockState::UnderConstruction,
            Phase::Committed(_) => BlockState::Committed,
            Phase::Complete => BlockState::Complete,
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.phase, Phase::Complete)
    }

    pub fn construction(&self) -> Option<&Construction> {
        match &self.phase {
            Phase::Open(construction) | Phase::Committed(construction) => Some(construction),
            Phase::Complete => None,
        }
    }

    pub fn construction_mut(&mut self) -> Option<&mut Construction> {
        match &mut self.phase {
            Phase::Open(construction) | Phase::Committed(construction) => Some(construction),
            Phase::Complete => None,
        }
    }

    pub fn replica(&self, storage: StorageIndex) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.storage == storage)
    }

    pub fn counts(&self, nodes: &Datanodes) -> Counts {
        use hearth_types::DatanodeAdminState::*;
        let mut counts = Counts::default();
        for replica in &self.replicas {
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
