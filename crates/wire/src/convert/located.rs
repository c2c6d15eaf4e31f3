use hearth_types::{DatanodeInfo, ExtendedBlock, LocatedBlock, LocatedBlocks, StorageId};

use super::{ConvertError, storage_types_from_wire, storage_types_to_wire};
use crate::announcement;
use crate::proto::hdfs::{LocatedBlockProto, LocatedBlocksProto};

impl From<&LocatedBlock> for LocatedBlockProto {
    fn from(located: &LocatedBlock) -> Self {
        Self {
            b: (&located.block).into(),
            offset: located.offset,
            locs: located.locations.iter().map(Into::into).collect(),
            corrupt: located.corrupt,
            block_token: (&located.token).into(),
            // Java's client requires one per location.
            is_cached: match located.cached.is_empty() {
                true => vec![false; located.locations.len()],
                false => located.cached.clone(),
            },
            storage_types: storage_types_to_wire(&located.storage_types),
            storage_ids: located.storage_ids.iter().map(|id| id.0.as_ref().to_owned()).collect(),
            block_indices: None,
            block_tokens: Vec::new(),
            hearth_handed_on: located.advertisements.iter().map(announcement::encode_located_advertisement).collect(),
        }
    }
}

impl TryFrom<LocatedBlockProto> for LocatedBlock {
    type Error = ConvertError;

    fn try_from(message: LocatedBlockProto) -> Result<Self, ConvertError> {
        let block = ExtendedBlock::try_from(message.b)?;
        if message.block_indices.is_some() {
            return Err(ConvertError::Striped { block: block.to_string() });
        }
        let expected = message.locs.len();
        let parallel = |field, actual: usize| match actual {
            0 => Ok(()),
            _ if actual == expected => Ok(()),
            _ => Err(ConvertError::Count { field, expected, actual }),
        };
        parallel("storage ids", message.storage_ids.len())?;
        parallel("storage types", message.storage_types.len())?;
        parallel("cached locations", message.is_cached.len())?;
        // Advertisements are hints: an invalid one, or one without a matching location, is dropped.
        let advertisements = message.hearth_handed_on.iter().filter_map(announcement::decode_located_advertisement);
        let advertisements =
            advertisements.filter(|advertised| advertised.location < expected).take(expected).collect();
        Ok(Self {
            advertisements,
            block,
            offset: message.offset,
            locations: message.locs.into_iter().map(DatanodeInfo::try_from).collect::<Result<_, _>>()?,
            storage_ids: message.storage_ids.into_iter().map(|id| StorageId(id.into())).collect(),
            storage_types: storage_types_from_wire(&message.storage_types),
            corrupt: message.corrupt,
            cached: if message.is_cached.contains(&true) { message.is_cached } else { Vec::new() },
            token: message.block_token.into(),
        })
    }
}

impl From<&LocatedBlocks> for LocatedBlocksProto {
    fn from(located: &LocatedBlocks) -> Self {
        Self {
            file_length: located.file_length,
            blocks: located.blocks.iter().map(Into::into).collect(),
            under_construction: located.under_construction,
            last_block: located.last_block.as_ref().map(Into::into),
            is_last_block_complete: located.last_block_complete,
            file_encryption_info: None,
            ec_policy: None,
        }
    }
}

impl TryFrom<LocatedBlocksProto> for LocatedBlocks {
    type Error = ConvertError;

    fn try_from(message: LocatedBlocksProto) -> Result<Self, ConvertError> {
        Ok(Self {
            file_length: message.file_length,
            under_construction: message.under_construction,
            blocks: message.blocks.into_iter().map(LocatedBlock::try_from).collect::<Result<_, _>>()?,
            last_block: message.last_block.map(LocatedBlock::try_from).transpose()?,
            last_block_complete: message.is_last_block_complete,
        })
    }
}
