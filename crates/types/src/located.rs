use std::time::Duration;

use bytes::Bytes;

use crate::{DatanodeInfo, ExtendedBlock, StorageId, StorageType, Token};

/// One block of a file with the datanodes that hold it, nearest first. Source: hdfs.proto, `LocatedBlockProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedBlock {
    pub block: ExtendedBlock,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Datanodes with a replica. Has the same length as `storage_ids` and `storage_types`, unless those are empty.
    pub locations: Vec<DatanodeInfo>,
    pub storage_ids: Vec<StorageId>,
    pub storage_types: Vec<StorageType>,
    /// True when every replica is known to be corrupt; the locations are then the corrupt ones.
    pub corrupt: bool,
    /// For each location, true if its replica is locked in memory. Empty if none is.
    pub cached: Vec<bool>,
    pub token: Token,
    /// Replicas whose memory can be read one-sidedly, as their datanodes advertised them. Hints that are valid until
    /// their lease expires.
    pub advertisements: Vec<LocatedAdvertisement>,
}

impl LocatedBlock {
    /// Creates a file's first block without known locations and without a token.
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

/// Advertised memory of one replica. A Hearth namenode forwards it without interpreting it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedAdvertisement {
    /// Index into the block's locations.
    pub location: usize,
    /// Time for which the memory stays valid, counted from before the request was sent.
    pub lease: Duration,
    pub advertisement: Bytes,
}

/// The blocks of a file, or of a part of it. Source: hdfs.proto, `LocatedBlocksProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedBlocks {
    /// Bytes. Excludes the last block while it is being written.
    pub file_length: u64,
    pub under_construction: bool,
    pub blocks: Vec<LocatedBlock>,
    /// The file's last block, even if the requested range does not reach it.
    pub last_block: Option<LocatedBlock>,
    pub last_block_complete: bool,
}

impl LocatedBlocks {
    /// Returns true while the last block is being written; then only its datanodes know its length.
    pub fn has_open_block(&self) -> bool {
        !self.last_block_complete && self.last_block.is_some()
    }
}
