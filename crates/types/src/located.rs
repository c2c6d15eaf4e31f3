use std::time::Duration;

use bytes::Bytes;

use crate::{DatanodeInfo, ExtendedBlock, StorageId, StorageType, Token};

/// One block of a file with the datanodes that hold it, nearest first. Source: hdfs.proto, `LocatedBlockProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedBlock {
    pub block: ExtendedBlock,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// As long as `storage_ids` and `storage_types`, or those are empty.
    pub locations: Vec<DatanodeInfo>,
    pub storage_ids: Vec<StorageId>,
    pub storage_types: Vec<StorageType>,
    /// True when every replica is known to be corrupt; the locations are then the corrupt ones.
    pub corrupt: bool,
    /// Which of the locations have their replica locked in memory; empty: none.
    pub cached: Vec<bool>,
    pub token: Token,
    /// Memory of some of the replicas that may be read one-sidedly, as their datanodes announced it. Hints with a lease.
    pub advertisements: Vec<LocatedAdvertisement>,
}

impl LocatedBlock {
    /// A file's first block of which no place is known, without a token.
    pub fn nowhere(block: ExtendedBlock) -> Self {
        Self {
            block,
            offset: 0,
            locations: Vec::new(),
            storage_ids: Vec::new(),
            storage_types: Vec::new(),
            corrupt: false,
            cached: Vec::new(),
            token: Token::default(),
            advertisements: Vec::new(),
        }
    }
}

/// What a Hearth namenode hands on of one replica's memory without knowing what it means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedAdvertisement {
    /// Which of the block's locations.
    pub location: usize,
    /// The memory stays for so long, counted from before the question was sent.
    pub lease: Duration,
    pub advertisement: Bytes,
}

/// The blocks of a file, or a part of them. Source: hdfs.proto, `LocatedBlocksProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedBlocks {
    /// Bytes, without the last block when that is still being written.
    pub file_length: u64,
    pub under_construction: bool,
    pub blocks: Vec<LocatedBlock>,
    /// The file's last block, whether or not the range asked for reaches it.
    pub last_block: Option<LocatedBlock>,
    pub last_block_complete: bool,
}

impl LocatedBlocks {
    /// Whether the last block is being written: only its datanodes know how much of it there is.
    pub fn has_open_block(&self) -> bool {
        !self.last_block_complete && self.last_block.is_some()
    }
}
