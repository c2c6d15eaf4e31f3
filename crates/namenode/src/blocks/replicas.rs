//! Replicas of a block on datanodes.

use hearth_types::GenerationStamp;

use super::datanodes::StorageIndex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    Live,
    /// Being deleted because there are more than requested.
    Excess,
    Corrupt,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Replica {
    pub storage: StorageIndex,
    pub health: Health,
    /// As reported; differs from the block's stamp only in corrupt replicas and while the block is open.
    pub stamp: GenerationStamp,
}
