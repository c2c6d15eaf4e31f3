//! Simulated DataNodes: they register, send heartbeats and report replicas, but store no data.

use std::sync::Arc;

use anyhow::{Context, Result};
use hearth_protocol::rpc::{RpcClient, Target};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use hearth_wire::proto::hdfs::{
    BlockProto, BlockReceivedAndDeletedRequestProto, BlockReceivedAndDeletedResponseProto, BlockReportRequestProto,
    BlockReportResponseProto, DatanodeIdProto, DatanodeRegistrationProto, DatanodeStorageProto, ExtendedBlockProto,
    HeartbeatRequestProto, HeartbeatResponseProto, ReceivedDeletedBlockInfoProto, RegisterDatanodeRequestProto,
    RegisterDatanodeResponseProto, StorageBlockReportProto, StorageInfoProto, StorageReceivedDeletedBlocksProto,
    StorageReportProto, VersionRequestProto, VersionResponseProto,
};
use prost::Message;

/// DataNodeLayoutVersion of Hadoop 3.
const LAYOUT_VERSION: i32 = -57;

pub struct Node {
    registration: DatanodeRegistrationProto,
    storage: DatanodeStorageProto,
    pool: String,
    rpc: RpcClient,
    namenode: Arc<Target>,
}

impl Node {
    /// Registers DataNode `number`, which is empty.
    pub async fn join(rpc: RpcClient, namenode: Arc<Target>, number: u32) -> Result<Self> {
        let version: VersionResponseProto = rpc.call(&namenode, "versionRequest", &VersionRequestProto {}).await?;
        let namespace = version.info;
        let registration = DatanodeRegistrationProto {
            datanode_id: DatanodeIdProto {
                ip_addr: "127.0.0.1".to_owned(),
                host_name: "127.0.0.1".to_owned(),
                datanode_uuid: format!("00000000-0000-4000-8000-{number:012}"),
                xfer_port: 10_000 + number,
                info_port: 11_000 + number,
                ipc_port: 12_000 + number,
                info_secure_port: None,
            },
            storage_info: StorageInfoProto { layout_version: LAYOUT_VERSION as u32, ..namespace.storage_info },
            keys: Default::default(),
            software_version: namespace.software_version,
        };
        let request = RegisterDatanodeRequestProto { registration, ..Default::default() };
        let answer: RegisterDatanodeResponseProto = rpc.call(&namenode, "registerDatanode", &request).await?;
        let storage_uuid = format!("DS-00000000-0000-4000-8000-{number:012}");
        let storage = DatanodeStorageProto { storage_uuid, state: None, storage_type: None };
        let (registration, pool) = (answer.registration, namespace.block_pool_id);
        let node = Self { registration, storage, pool, rpc, namenode };
        node.beat().await?;
        node.report_nothing().await?;
        Ok(node)
    }

    async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A> {
        let answer = self.rpc.call(&self.namenode, method, request).await;
        answer.with_context(|| format!("{method} of {}", self.registration.datanode_id.datanode_uuid))
    }

    pub async fn beat(&self) -> Result<()> {
        let request = HeartbeatRequestProto {
            registration: self.registration.clone(),
            reports: vec![StorageReportProto {
                storage_uuid: self.storage.storage_uuid.clone(),
                capacity: Some(1 << 50),
                remaining: Some(1 << 50),
                storage: Some(self.storage.clone()),
                ..Default::default()
            }],
            ..Default::default()
        };
        self.call::<HeartbeatResponseProto>("sendHeartbeat", &request).await.map(drop)
    }

    async fn report_nothing(&self) -> Result<()> {
        let request = BlockReportRequestProto {
            registration: self.registration.clone(),
            block_pool_id: self.pool.clone(),
            reports: vec![StorageBlockReportProto {
                storage: self.storage.clone(),
                // No finalized replicas, no others, and the delimiter between them: the list of longs.
                blocks: [[0, 0].as_slice(), &[u64::MAX; 3]].concat(),
                ..Default::default()
            }],
            context: None,
        };
        self.call::<BlockReportResponseProto>("blockReport", &request).await.map(drop)
    }

    /// Reports these replicas as received, `length` bytes each.
    pub async fn received(&self, blocks: &[ExtendedBlockProto], length: u64) -> Result<()> {
        let replica = |block: &ExtendedBlockProto| ReceivedDeletedBlockInfoProto {
            block: BlockProto { block_id: block.block_id, gen_stamp: block.generation_stamp, num_bytes: Some(length) },
            delete_hint: None,
            status: BlockStatus::Received as i32,
        };
        let request = BlockReceivedAndDeletedRequestProto {
            registration: self.registration.clone(),
            block_pool_id: self.pool.clone(),
            blocks: vec![StorageReceivedDeletedBlocksProto {
                storage_uuid: self.storage.storage_uuid.clone(),
                blocks: blocks.iter().map(replica).collect(),
                storage: Some(self.storage.clone()),
            }],
        };
        self.call::<BlockReceivedAndDeletedResponseProto>("blockReceivedAndDeleted", &request).await.map(drop)
    }
}
