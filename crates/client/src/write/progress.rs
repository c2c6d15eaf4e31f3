use std::sync::Arc;

use hearth_types::{DatanodeInfo, ExtendedBlock};

use super::granted_memory::GrantedMemory;
use crate::Error;

/// Status that the task reports to the writer.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    /// Sequence number of the last packet that all datanodes acknowledged; -1 before the first.
    pub acknowledged: i64,
    /// Number of pipelines set up so far, including recovered ones. The first flush after each reports it to the
    /// namenode.
    pub pipelines: u64,
    /// The datanodes of the current pipeline, in its order. Empty between two blocks.
    pub datanodes: Arc<[DatanodeInfo]>,
    /// The last block that all datanodes have in full, with its length.
    pub last: Option<ExtendedBlock>,
    /// Number of the block that `granted_memory` refers to, counted from 1.
    pub block: u64,
    /// Memory where that block's bytes may be put.
    pub granted_memory: GrantedMemory,
    /// The block's first pipeline broke, so `granted_memory` says nothing about the next block.
    pub broken: bool,
    pub failed: Option<Error>,
}
