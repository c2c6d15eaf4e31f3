//! Between the messages of this room's protocols and the nouns of the house.

use std::net::IpAddr;

use hearth_types::{
    Block, BlockId, BlockPoolId, DatanodeId, DatanodeUuid, ExtendedBlock, GenerationStamp, StorageType,
};
use hearth_wire::proto::hdfs::{BlockProto, DatanodeIdProto, ExtendedBlockProto};

use crate::ops::OpError;

pub fn extended_block(proto: &ExtendedBlockProto) -> Result<ExtendedBlock, OpError> {
    if proto.pool_id.is_empty() {
        return Err(OpError::Malformed("the block names no pool"));
    }
    Ok(ExtendedBlock {
        pool: BlockPoolId::new(proto.pool_id.as_str()),
        block: Block {
            id: BlockId(proto.block_id as i64),
            stamp: GenerationStamp(proto.generation_stamp),
            length: proto.num_bytes(),
        },
    })
}
