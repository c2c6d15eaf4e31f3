use hearth_types::{
    Block, BlockId, BlockPoolId, ChecksumKind, ChecksumSpec, ExtendedBlock, GenerationStamp, PoolIdentity,
};

use super::{ConvertError, not_empty};
use crate::proto::hdfs::{
    BlockProto, ChecksumProto, ChecksumTypeProto, ExtendedBlockProto, NamespaceInfoProto, StorageInfoProto,
};

impl From<&Block> for BlockProto {
    fn from(block: &Block) -> Self {
        Self { block_id: block.id.0 as u64, gen_stamp: block.stamp.0, num_bytes: Some(block.length) }
    }
}

impl From<BlockProto> for Block {
    fn from(message: BlockProto) -> Self {
        Self {
            id: BlockId(message.block_id as i64),
            stamp: GenerationStamp(message.gen_stamp),
            length: message.num_bytes(),
        }
    }
}

impl From<&ExtendedBlock> for ExtendedBlockProto {
    fn from(block: &ExtendedBlock) -> Self {
        Self {
            pool_id: block.pool.as_str().to_owned(),
            block_id: block.id().0 as u64,
            generation_stamp: block.stamp().0,
            num_bytes: Some(block.length()),
        }
    }
}

impl TryFrom<ExtendedBlockProto> for ExtendedBlock {
    type Error = ConvertError;

    fn try_from(message: ExtendedBlockProto) -> Result<Self, ConvertError> {
        let block = Block {
            id: BlockId(message.block_id as i64),
            stamp: GenerationStamp(message.generation_stamp),
            length: message.num_bytes(),
        };
        Ok(Self { pool: BlockPoolId::new(not_empty(message.pool_id, "block pool id")?), block })
    }
}

/// Maximum bytes under one CRC that a peer may request. Hadoop sets no limit; a chunk must fit into a packet with its
/// CRC.
const BYTES_PER_CHUNK_MAX: u32 = 8 << 20;

impl From<&ChecksumSpec> for ChecksumProto {
    fn from(spec: &ChecksumSpec) -> Self {
        Self { r#type: spec.kind as i32, bytes_per_checksum: spec.bytes_per_chunk }
    }
}

impl TryFrom<ChecksumProto> for ChecksumSpec {
    type Error = ConvertError;

    fn try_from(message: ChecksumProto) -> Result<Self, ConvertError> {
        let bytes_per_chunk = message.bytes_per_checksum;
        if bytes_per_chunk == 0 || bytes_per_chunk > BYTES_PER_CHUNK_MAX {
            let value = u64::from(bytes_per_chunk);
            return Err(ConvertError::OutOfRange { field: "bytes per checksum", value });
        }
        Ok(Self { kind: checksum_kind(message.r#type)?, bytes_per_chunk })
    }
}

pub(super) fn checksum_kind(number: i32) -> Result<ChecksumKind, ConvertError> {
    match ChecksumTypeProto::try_from(number) {
        Ok(ChecksumTypeProto::Null) => Ok(ChecksumKind::Null),
        Ok(ChecksumTypeProto::Crc32) => Ok(ChecksumKind::Crc32),
        Ok(ChecksumTypeProto::Crc32c) => Ok(ChecksumKind::Crc32c),
        Err(_) => Err(ConvertError::UnknownNumber { field: "checksum type", number }),
    }
}

impl TryFrom<&NamespaceInfoProto> for PoolIdentity {
    type Error = ConvertError;

    fn try_from(message: &NamespaceInfoProto) -> Result<Self, ConvertError> {
        Ok(Self {
            pool: BlockPoolId::new(not_empty(message.block_pool_id.clone(), "block pool id")?),
            namespace_id: message.storage_info.namespace_id,
            cluster_id: message.storage_info.cluster_id.clone(),
            created_ms: message.storage_info.c_time,
        })
    }
}

/// Identity that NameNodes and DataNodes compare in every call. `layout_version`: that of the sender's own storage.
pub fn storage_info(identity: &PoolIdentity, layout_version: i32) -> StorageInfoProto {
    StorageInfoProto {
        layout_version: layout_version as u32,
        namespace_id: identity.namespace_id,
        cluster_id: identity.cluster_id.clone(),
        c_time: identity.created_ms,
    }
}
