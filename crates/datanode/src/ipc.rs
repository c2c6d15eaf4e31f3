//! The DataNode's IPC port: ClientDatanodeProtocol, InterDatanodeProtocol, ReconfigurationProtocol.
//! Source: ClientDatanodeProtocol.proto, InterDatanodeProtocol.proto, ReconfigurationProtocol.proto.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_blockstore::StoreError;
use hearth_config::ReconfigurationTask;
use hearth_protocol::rpc::{Call, RemoteError, Service, application_error, no_such_method, undecodable};
use hearth_types::{BlockId, BlockPoolId, ExtendedBlock, GenerationStamp};
use hearth_wire::proto::hdfs::{
    BlockProto, DatanodeLocalInfoProto, DatanodeVolumeInfoProto, DeleteBlockPoolRequestProto,
    DeleteBlockPoolResponseProto, EvictWritersResponseProto, GetBalancerBandwidthResponseProto,
    GetBlockLocalPathInfoRequestProto, GetDatanodeInfoResponseProto, GetReconfigurationStatusConfigChangeProto,
    GetReconfigurationStatusResponseProto, GetReplicaVisibleLengthRequestProto, GetReplicaVisibleLengthResponseProto,
    GetVolumeReportResponseProto, InitReplicaRecoveryRequestProto, InitReplicaRecoveryResponseProto,
    ListReconfigurablePropertiesResponseProto, ShutdownDatanodeRequestProto, ShutdownDatanodeResponseProto,
    TriggerBlockReportRequestProto, TriggerBlockReportResponseProto, UpdateReplicaUnderRecoveryRequestProto,
    UpdateReplicaUnderRecoveryResponseProto,
};
use hearth_wire::rpc::{exceptions, protocols};
use prost::Message;

use crate::datanode::Datanode;
use crate::namenode::SOFTWARE_VERSION;
use crate::ops::OpError;
use crate::pool::PoolNotReady;
use crate::replica_recovery;

const PROTOCOLS: &[&str] = &[protocols::CLIENT_DATANODE, protocols::INTER_DATANODE, protocols::RECONFIGURATION];

/// Versions of the configuration's schema, as Java's DataNode returns them.
const CONFIG_VERSION: &str = "core-3.0.0,hdfs-1";

/// Delay before a requested shutdown, so that the answer is sent first. Hadoop's value.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(1);

/// Time that writers have to react to a restart. Hadoop's value (`dfs.datanode.oob.timeout-ms`).
const RESTART_NOTICE: Duration = Duration::from_millis(1500);

/// IPC service of one DataNode.
pub struct IpcService {
    datanode: Arc<Datanode>,
}

impl IpcService {
    pub fn new(datanode: Arc<Datanode>) -> Self {
        Self { datanode }
    }
}

impl Service for IpcService {
    fn protocols(&self) -> &[&'static str] {
        PROTOCOLS
    }

    async fn call(&self, call: Call) -> Result<Bytes, RemoteError> {
        match call.protocol.as_str() {
            protocols::INTER_DATANODE => self.inter_datanode(call).await,
            protocols::CLIENT_DATANODE => self.client_datanode(call).await,
            _ => self.reconfiguration(call).await,
        }
    }
}

fn decode<M: Message + Default>(call: &Call) -> Result<M, RemoteError> {
    M::decode(call.request.clone()).map_err(|error| undecodable(&call.method, &error))
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Returns the Java exception for an error of this crate.
fn exception(error: &OpError) -> RemoteError {
    let class = match (error, error.store()) {
        (_, Some(StoreError::ReplicaNotFound { .. } | StoreError::FilesMissing { .. })) => {
            exceptions::REPLICA_NOT_FOUND
        }
        (_, Some(StoreError::ReplicaExists { .. })) => exceptions::REPLICA_ALREADY_EXISTS,
        (_, Some(StoreError::RecoveryInProgress { .. })) => exceptions::RECOVERY_IN_PROGRESS,
        (_, Some(StoreError::PoolNotAttached { .. })) | (OpError::PoolNotReady(_), _) => exceptions::RETRIABLE,
        (OpError::AccessDenied(_), _) => exceptions::INVALID_TOKEN,
        _ => exceptions::IO,
    };
    application_error(class, error.to_string())
}

/// `None`: no task has run, whose start Apache's tool recognizes by 0.
fn reconfiguration_status(last: Option<ReconfigurationTask>) -> GetReconfigurationStatusResponseProto {
    let Some(task) = last else { return GetReconfigurationStatusResponseProto::default() };
    let changes = task.changes.into_iter().map(|change| GetReconfigurationStatusConfigChangeProto {
        name: change.key.to_owned(),
        old_value: change.old,
        new_value: change.new,
        error_message: change.error,
    });
    GetReconfigurationStatusResponseProto {
        start_time: task.started_ms as i64,
        end_time: Some(task.ended_ms as i64),
        changes: changes.collect(),
    }
}

fn block_of(message: hearth_wire::proto::hdfs::ExtendedBlockProto) -> Result<ExtendedBlock, RemoteError> {
    ExtendedBlock::try_from(message).map_err(|error| application_error(exceptions::IO, error.to_string()))
}

impl IpcService {
    async fn inter_datanode(&self, call: Call) -> Result<Bytes, RemoteError> {
        match call.method.as_str() {
            "initReplicaRecovery" => self.init_replica_recovery(decode(&call)?).await,
            "updateReplicaUnderRecovery" => self.update_replica_under_recovery(decode(&call)?).await,
            method => Err(no_such_method(&call.protocol, method)),
        }
    }

    async fn client_datanode(&self, call: Call) -> Result<Bytes, RemoteError> {
        match call.method.as_str() {
            "getReplicaVisibleLength" => return self.replica_visible_length(decode(&call)?).await,
            "getBlockLocalPathInfo" => return self.block_local_path_info(&call),
            "getDatanodeInfo" => return Ok(self.datanode_info()),
            "getBalancerBandwidth" => {
                let bandwidth = self.datanode.replicas.balance_throttle.rate();
                return Ok(encoded(&GetBalancerBandwidthResponseProto { bandwidth }));
            }
            _ => {}
        }
        self.require_administrator(&call)?;
        match call.method.as_str() {
            "refreshNamenodes" => Err(application_error(
                exceptions::IO,
                "the datanode reads its namenodes from the configuration only at startup; restart it",
            )),
            "deleteBlockPool" => self.delete_block_pool(decode(&call)?),
            "shutdownDatanode" => self.shutdown(decode(&call)?),
            "evictWriters" => {
                self.datanode.writers.disconnect_all();
                Ok(encoded(&EvictWritersResponseProto {}))
            }
            "triggerBlockReport" => self.trigger_block_report(decode(&call)?),
            "getVolumeReport" => self.volume_report().await,
            // Same answer as Apache's DataNode with `dfs.disk.balancer.enabled` off.
            "submitDiskBalancerPlan"
            | "cancelDiskBalancerPlan"
            | "queryDiskBalancerPlan"
            | "getDiskBalancerSetting" => {
                Err(application_error(exceptions::DISK_BALANCER, "Disk Balancer is not enabled."))
            }
            _ => self.reconfiguration(call).await,
        }
    }

    /// Answers reconfiguration calls. The task of a start is done when the start is answered.
    async fn reconfiguration(&self, call: Call) -> Result<Bytes, RemoteError> {
        self.require_administrator(&call)?;
        let reconfiguration = &self.datanode.reconfiguration;
        match call.method.as_str() {
            "getReconfigurationStatus" => Ok(encoded(&reconfiguration_status(reconfiguration.last()))),
            "listReconfigurableProperties" => {
                let name = reconfiguration.keys().map(str::to_owned).collect();
                Ok(encoded(&ListReconfigurablePropertiesResponseProto { name }))
            }
            "startReconfiguration" => {
                let datanode = self.datanode.clone();
                let done = tokio::task::spawn_blocking(move || datanode.reconfigure()).await;
                let done =
                    done.map_err(|error| error.to_string()).and_then(|done| done.map_err(|error| error.to_string()));
                done.map_err(|message| application_error(exceptions::IO, message))?;
                // An empty message.
                Ok(encoded(&()))
            }
            method => Err(no_such_method(&call.protocol, method)),
        }
    }

    fn require_administrator(&self, call: &Call) -> Result<(), RemoteError> {
        let options = &self.datanode.options;
        let user = &call.caller.user;
        if **user == *options.user || crate::groups::is_member(user, &options.superuser_group) {
            return Ok(());
        }
        let message = format!("Access denied for user {user}. Superuser privilege is required");
        Err(application_error(exceptions::ACCESS_CONTROL, message))
    }

    async fn replica_visible_length(&self, request: GetReplicaVisibleLengthRequestProto) -> Result<Bytes, RemoteError> {
        let block = block_of(request.block)?;
        if !self.datanode.replicas.pools.get(&block.pool).is_some_and(|pool| pool.is_registered()) {
            // Clients repeat the call after this answer.
            return Err(exception(&PoolNotReady { pool: block.pool }.into()));
        }
        let replica = self
            .datanode
            .replicas
            .store
            .replica(&block.pool, block.id())
            .ok_or_else(|| exception(&StoreError::ReplicaNotFound { block: block.clone() }.into()))?;
        if replica.block.stamp < block.stamp() {
            let error = StoreError::StampMismatch {
                stored: replica.block.stamp,
                wanted: format!("at least {}", block.stamp()),
                action: "tell its visible length",
                block,
            };
            return Err(exception(&error.into()));
        }
        // -1: not readable here.
        let length = replica.visible_length.unwrap_or(u64::MAX);
        Ok(encoded(&GetReplicaVisibleLengthResponseProto { length }))
    }

    /// Refuses the call, because paths are not exposed: short-circuit readers get descriptors.
    fn block_local_path_info(&self, call: &Call) -> Result<Bytes, RemoteError> {
        decode::<GetBlockLocalPathInfoRequestProto>(call)?;
        let message = format!(
            "Can't continue with getBlockLocalPathInfo() authorization. The user {} is not configured in dfs.block.local-path-access.user",
            call.caller.user
        );
        Err(application_error(exceptions::ACCESS_CONTROL, message))
    }

    fn datanode_info(&self) -> Bytes {
        encoded(&GetDatanodeInfoResponseProto {
            local_info: DatanodeLocalInfoProto {
                software_version: SOFTWARE_VERSION.to_owned(),
                config_version: CONFIG_VERSION.to_owned(),
                uptime: self.datanode.lifecycle.uptime().as_secs(),
            },
        })
    }

    fn delete_block_pool(&self, request: DeleteBlockPoolRequestProto) -> Result<Bytes, RemoteError> {
        let id = BlockPoolId::new(request.block_pool.as_str());
        if self.datanode.replicas.pools.get(&id).is_some() {
            let message = format!(
                "The block pool is still running. First do a refreshNamenodes to shutdown the block pool service, then delete {id}"
            );
            return Err(application_error(exceptions::IO, message));
        }
        if !self.datanode.replicas.store.pools().contains(&id) {
            return Ok(encoded(&DeleteBlockPoolResponseProto {}));
        }
        let message =
            format!("Block pool {id} is in use by this process; stop the datanode and delete its directories");
        Err(application_error(exceptions::IO, message))
    }

    fn shutdown(&self, request: ShutdownDatanodeRequestProto) -> Result<Bytes, RemoteError> {
        tracing::info!(for_upgrade = request.for_upgrade, "an administrator shuts down this datanode");
        let datanode = self.datanode.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SHUTDOWN_DELAY).await;
            if request.for_upgrade {
                datanode.announce_restart(tokio::time::Instant::now() + RESTART_NOTICE).await;
            }
            datanode.lifecycle.request_shutdown();
        });
        Ok(encoded(&ShutdownDatanodeResponseProto {}))
    }

    fn trigger_block_report(&self, request: TriggerBlockReportRequestProto) -> Result<Bytes, RemoteError> {
        for service in self.datanode.services.all() {
            for namenode in &service.namenodes {
                let named = request.nn_address.as_deref().is_none_or(|name| name == namenode.address.to_string());
                if named && !request.incremental {
                    namenode.report_trigger.request_full_report();
                }
            }
            if let Some(pool) = service.pool() {
                pool.flush_reports();
            }
        }
        Ok(encoded(&TriggerBlockReportResponseProto {}))
    }

    async fn volume_report(&self) -> Result<Bytes, RemoteError> {
        let pool = self.datanode.replicas.pools.all().first().map(|pool| pool.id().clone());
        // Querying the file systems may block.
        let listed = self.datanode.replicas.run_blocking(move |store| {
            let reports = pool.map(|pool| store.storage_reports(&pool)).unwrap_or_default();
            let volumes = store.storages().into_iter().map(|storage| {
                let report = reports.iter().find(|report| report.storage == storage.id);
                DatanodeVolumeInfoProto {
                    path: storage.dir.display().to_string(),
                    storage_type: storage.storage_type as i32,
                    used_space: report.map_or(0, |report| report.dfs_used),
                    free_space: report.map_or(0, |report| report.remaining),
                    reserved_space: 0,
                    reserved_space_for_replicas: 0,
                    num_blocks: storage.replicas,
                }
            });
            Ok(volumes.collect::<Vec<_>>())
        });
        let volume_info = listed.await.map_err(|error| exception(&error.into()))?;
        Ok(encoded(&GetVolumeReportResponseProto { volume_info }))
    }

    async fn init_replica_recovery(&self, request: InitReplicaRecoveryRequestProto) -> Result<Bytes, RemoteError> {
        let block = block_of(request.block.block.b)?;
        let recovery_id = GenerationStamp(request.block.new_gen_stamp);
        self.datanode.replicas.ready_pool(&block.pool).await.map_err(|error| exception(&error.into()))?;
        let found = replica_recovery::initiate(&self.datanode.replicas, &block, recovery_id)
            .await
            .map_err(|error| exception(&error.into()))?;
        Ok(encoded(&match found {
            None => InitReplicaRecoveryResponseProto { replica_found: false, state: None, block: None },
            Some(found) => InitReplicaRecoveryResponseProto {
                replica_found: true,
                state: Some(found.original_state as i32),
                block: Some(BlockProto::from(&found.block)),
            },
        }))
    }

    async fn update_replica_under_recovery(
        &self,
        request: UpdateReplicaUnderRecoveryRequestProto,
    ) -> Result<Bytes, RemoteError> {
        let new_id = Some(BlockId(request.new_block_id() as i64)).filter(|id| id.0 != 0);
        let old = block_of(request.block)?;
        let recovery_id = GenerationStamp(request.recovery_id);
        let pool = self.datanode.replicas.ready_pool(&old.pool).await.map_err(|error| exception(&error.into()))?;
        let replica =
            replica_recovery::update(&self.datanode.replicas, &pool, &old, recovery_id, request.new_length, new_id)
                .await
                .map_err(|error| exception(&error.into()))?;
        let storage_uuid = Some(replica.storage.0.as_ref().to_owned());
        Ok(encoded(&UpdateReplicaUnderRecoveryResponseProto { storage_uuid }))
    }
}
