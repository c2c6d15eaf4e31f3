use std::sync::atomic::AtomicBool;

use hearth_types::{ExtendedBlock, LocatedBlock};

/// Description of the file that a writer writes.
#[derive(Debug)]
pub(crate) struct WrittenFile {
    pub path: String,
    /// Stays the same across renames, so writing continues when another client renames the file.
    pub inode: u64,
    pub replication: u16,
    pub block_size: u64,
    /// Set by the first flush.
    pub flushed: AtomicBool,
}

/// Position at which writing starts.
#[derive(Debug, Default)]
pub(crate) struct WriteStart {
    /// The last block, if it is not full and is to be continued.
    pub append: Option<LocatedBlock>,
    /// The last block, which the next one follows regardless of its length.
    pub previous: Option<ExtendedBlock>,
    /// Length of the file in bytes.
    pub length: u64,
}

impl WrittenFile {
    pub(crate) fn new(path: String, inode: u64, replication: u16, block_size: u64) -> Self {
        Self { path, inode, replication, block_size, flushed: AtomicBool::new(false) }
    }
}
