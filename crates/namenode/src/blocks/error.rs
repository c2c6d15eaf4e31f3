use hearth_types::{Block, BlockId, GenerationStamp};

use super::BlockState;

/// Errors of the block map. A failed call has changed nothing. The display texts are those that Apache's clients see.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockError {
    #[error("{block} does not exist.")]
    UnknownBlock { block: BlockId },
    #[error("Commit block with mismatching GS. NN has {stored}, client submits {offered}")]
    StampMismatch { stored: Block, offered: Block },
    #[error(
        "commitBlock length is less than the stored one {stored}; client submits {offered} of length {offered_length}"
    )]
    LengthShrank { stored: Block, offered: Block, offered_length: u64 },
    #[error("Unexpected BlockUCState: {block} is {state} but not UNDER_CONSTRUCTION")]
    NotUnderConstruction { block: Block, state: BlockState },
    #[error("Unexpected BlockUCState: {block} is {state} but not COMPLETE")]
    NotComplete { block: Block, state: BlockState },
    /// Source of the text: `updatePipeline` of FSNamesystem.
    #[error("Update {old} (size={old_length}) to an older state: {new} (size={new_length})")]
    OlderState { old: Block, old_length: u64, new: Block, new_length: u64 },
    #[error("The recovery id {offered} does not match current recovery id {current} for block {block}")]
    RecoveryMismatch { block: Block, current: GenerationStamp, offered: GenerationStamp },
    #[error("{block} is not under recovery")]
    NotUnderRecovery { block: Block },
    /// The operation prepends the first part, because it knows the path: `File P could only be written to ...`.
    #[error(
        "could only be written to {found} of the {minimum} minReplication nodes. There are {running} datanode(s) running and {} node(s) are excluded in this operation.",
        if *excluded == 0 { "no".to_owned() } else { excluded.to_string() }
    )]
    NotEnoughTargets { found: usize, minimum: u16, running: usize, excluded: usize },
}
