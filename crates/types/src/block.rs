use std::fmt;
use std::sync::Arc;

/// The number of a block within its pool. Negative ids belong to striped (erasure-coded) block groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub i64);

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blk_{}", self.0)
    }
}

/// Generation stamp, part of the block's identity. It rises whenever a block is reopened or recovered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GenerationStamp(pub u64);

impl fmt::Display for GenerationStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a namespace's set of blocks, `BP-<random>-<ip>-<milliseconds>`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockPoolId(Arc<str>);

impl BlockPoolId {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlockPoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A block as the namenode counts it: identity and length in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    pub id: BlockId,
    pub stamp: GenerationStamp,
    /// Length in bytes. Each user documents which bytes it counts (acknowledged, on disk, committed).
    pub length: u64,
}

impl fmt::Display for Block {
    /// Formats the block as Hadoop's logs do: `blk_<id>_<stamp>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.id, self.stamp)
    }
}

/// A block together with its pool: unique over all namespaces that a datanode serves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ExtendedBlock {
    pub pool: BlockPoolId,
    pub block: Block,
}

impl ExtendedBlock {
    pub fn id(&self) -> BlockId {
        self.block.id
    }

    pub fn stamp(&self) -> GenerationStamp {
        self.block.stamp
    }

    pub fn length(&self) -> u64 {
        self.block.length
    }
}

impl fmt::Display for ExtendedBlock {
    /// Formats the block as Hadoop's logs do: `BP-...:blk_<id>_<stamp>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pool, self.block)
    }
}

/// The state of a replica on one datanode. The numbers are those of block reports and of recovery answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ReplicaState {
    /// Immutable; length and stamp agree with the committed block or the replica is stale.
    Finalized = 0,
    /// RBW: a pipeline writes it, or wrote it until it broke.
    BeingWritten = 1,
    /// RWR: was being written when the datanode stopped.
    WaitingToBeRecovered = 2,
    /// RUR: block recovery is choosing its length.
    UnderRecovery = 3,
    /// Target of a replication or move; never reported, dropped at restart.
    Temporary = 4,
}

impl ReplicaState {
    /// Returns `None` for a number that no Hadoop version uses.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Finalized,
            1 => Self::BeingWritten,
            2 => Self::WaitingToBeRecovered,
            3 => Self::UnderRecovery,
            4 => Self::Temporary,
            _ => return None,
        })
    }
}
