//! Calls of a balancer: the storages of all datanodes, the blocks to choose from, and the keys that sign its tokens.

use std::time::Duration;

use hearth_protocol::block_token::ExportedKeys;
use hearth_types::{Block, BlockPoolId, DatanodeId, DatanodeInfo, DatanodeUuid, StorageReport, StorageType};
use hearth_wire::convert::{ConvertError, storage_type_from_wire};
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::protocols;

use super::files::converted;
use super::{DatanodeReportKind, Namenode};
use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;

/// A datanode with its storages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatanodeStorages {
    /// The datanode.
    pub datanode: DatanodeInfo,
    /// Its storages.
    pub storages: Vec<StorageReport>,
}

/// A block and its replicas, for a balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedBlock {
    /// The block.
    pub block: Block,
    /// Datanode and storage type of each replica.
    pub replicas: Vec<(DatanodeUuid, StorageType)>,
}

impl FileSystem {
    /// Returns the storages of the cluster's datanodes. Requires superuser rights.
    pub async fn datanode_storages(&self, kind: DatanodeReportKind) -> Result<Vec<DatanodeStorages>, Error> {
        const METHOD: &str = "getDatanodeStorageReport";
        let request = GetDatanodeStorageReportRequestProto { r#type: kind as i32 };
        let answer: GetDatanodeStorageReportResponseProto = self.session.namenode.call(METHOD, &request).await?;
        let reports = answer.datanode_storage_reports.into_iter().map(|report| {
            Ok::<_, ConvertError>(DatanodeStorages {
                datanode: report.datanode_info.try_into()?,
                storages: report.storage_reports.into_iter().map(StorageReport::try_from).collect::<Result<_, _>>()?,
            })
        });
        converted(METHOD, reports.collect::<Result<Vec<_>, ConvertError>>())
    }

    /// Returns complete blocks with a replica on `datanode`, about `bytes` of them, in no order. Groups of erasure-coded
    /// blocks are left out. Requires superuser rights.
    ///
    /// - `length_min`: smaller blocks are left out.
    /// - `hot_interval`: blocks of files that were read within this time come last. Zero: no difference.
    /// - `storage_type`: type of the storage with that replica. Old namenodes ignore it.
    pub async fn blocks_of(
        &self,
        datanode: &DatanodeId,
        bytes: u64,
        length_min: u64,
        hot_interval: Duration,
        storage_type: StorageType,
    ) -> Result<Vec<PlacedBlock>, Error> {
        const METHOD: &str = "getBlocks";
        let request = GetBlocksRequestProto {
            datanode: datanode.into(),
            size: bytes,
            min_block_size: Some(length_min),
            time_interval: Some(u64::try_from(hot_interval.as_millis()).unwrap_or(u64::MAX)),
            storage_type: Some(storage_type as i32),
        };
        let answer: GetBlocksResponseProto =
            self.session.namenode.call_active_by(protocols::NAMENODE, METHOD, &request).await?;
        let whole = answer.blocks.blocks.into_iter().filter(|block| block.indices.is_none());
        whole.map(|block| placed(METHOD, block)).collect()
    }
}

fn placed(method: &'static str, message: BlockWithLocationsProto) -> Result<PlacedBlock, Error> {
    let (uuids, types) = (message.datanode_uuids, message.storage_types);
    // Old namenodes send no types.
    if !types.is_empty() && types.len() != uuids.len() {
        let why = format!("a block has {} datanodes, but {} storage types", uuids.len(), types.len());
        return Err(Failure::Answer { method, why }.into());
    }
    let replicas = uuids.into_iter().enumerate().map(|(index, uuid)| {
        let storage_type = types.get(index).map_or(StorageType::Disk, |number| storage_type_from_wire(*number));
        (DatanodeUuid(uuid.into()), storage_type)
    });
    Ok(PlacedBlock { replicas: replicas.collect(), block: message.block.into() })
}

impl Namenode {
    /// Returns the id of the namespace's block pool.
    pub(crate) async fn block_pool(&self) -> Result<BlockPoolId, Error> {
        const METHOD: &str = "versionRequest";
        let answer: VersionResponseProto =
            self.call_active_by(protocols::NAMENODE, METHOD, &VersionRequestProto {}).await?;
        if answer.info.block_pool_id.is_empty() {
            return Err(Failure::Answer { method: METHOD, why: "block pool id is empty".to_owned() }.into());
        }
        Ok(BlockPoolId::new(answer.info.block_pool_id))
    }

    /// Returns the keys that sign block tokens. Requires superuser rights.
    pub(crate) async fn block_keys(&self) -> Result<ExportedKeys, Error> {
        // The request has no fields.
        let answer: GetBlockKeysResponseProto = self.call_active_by(protocols::NAMENODE, "getBlockKeys", &()).await?;
        Ok(answer.keys.map_or_else(ExportedKeys::disabled, ExportedKeys::from))
    }
}
