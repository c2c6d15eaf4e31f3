use std::sync::atomic::AtomicBool;

use hearth_types::{ExtendedBlock, LocatedBlock};

/// Description of the file that a writer writes.
#[derive(Debug)]
pub(crate) struct WrittenFile {
    pub path: String,
    /// Stays the same across renames, so writing continues when another client renames the file.
    pub inode: u64,
    /// Holder of the file's lease: this client, or the one that opened the file for it.
    pub client_name: String,
    pub replication: u16,
    pub block_size: u64,
    /// Set by the first flush.
    pub flushed: AtomicBool,
    /// Held while a block is allocated, while the file is closed, and while the namenode is told the length of the last
    /// block: `fsync` names no block, so the namenode would take the length for that of the next one.
    pub last_block: tokio::sync::Mutex<LastBlock>,
}

/// Record of the last block at the namenode.
#[derive(Debug, Default)]
pub(crate) struct LastBlock {
    /// Number of the block, counted from 1, whose length was recorded last, and that length.
    pub recorded: (u64, u64),
    /// No length is recorded any more: this client is closing the file, or has closed it.
    pub is_closed: bool,
}

/// Position at which writing starts.
#[derive(Debug, Default)]
pub(crate) struct WriteStart {
    /// The last block, if it is not full and is to be continued.
    pub append: Option<LocatedBlock>,
    /// The last block, which the next one follows regardless of its length.
    pub previous: Option<ExtendedBlock>,
    /// The first block, if the namenode has allocated it already.
    pub first: Option<LocatedBlock>,
    /// Length of the file in bytes.
    pub length: u64,
}

impl WrittenFile {
    pub(crate) fn new(path: String, inode: u64, client_name: String, replication: u16, block_size: u64) -> Self {
        let (flushed, last_block) = (AtomicBool::new(false), tokio::sync::Mutex::default());
        Self { path, inode, client_name, replication, block_size, flushed, last_block }
    }
}
