//! Administrative calls to a server at a given address: a datanode, or one namenode of several.

use std::sync::Arc;

use hearth_config::{Configuration, HostPort};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, RpcError, Target};
use hearth_types::StorageType;
use hearth_wire::convert::storage_type_from_wire;
use hearth_wire::proto::common::*;
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::protocols;
use prost::Message;

use crate::error::Failure;
use crate::file_system::rpc_options;
use crate::namenode::{Exception, HaState, without_stack_trace};
use crate::{Error, resolve};

/// Client of the administrative protocols of Hadoop's servers. Each call names the server. Cheap to clone.
#[derive(Clone)]
pub struct Administration {
    rpc: RpcClient,
    user: Arc<str>,
}

/// Description of a running datanode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatanodeDescription {
    /// Version of its software.
    pub software_version: String,
    /// Version of its configuration's schema.
    pub config_version: String,
    /// Seconds since its start.
    pub uptime_seconds: u64,
}

/// A storage directory of a datanode. Sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeDescription {
    /// Path on the datanode's machine.
    pub path: String,
    /// Type of storage.
    pub storage_type: StorageType,
    /// Bytes that replicas use.
    pub used: u64,
    /// Bytes that replicas can still use.
    pub free: u64,
    /// Bytes that replicas may not use.
    pub reserved: u64,
    /// Bytes promised to replicas that are being written.
    pub reserved_for_replicas: u64,
    /// Number of replicas.
    pub blocks: u64,
}

/// Kind of server whose configuration can be changed at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerKind {
    /// A namenode.
    Namenode,
    /// A datanode.
    Datanode,
}

impl ServerKind {
    fn protocol(self) -> &'static str {
        match self {
            Self::Namenode => protocols::RECONFIGURATION,
            // Datanodes answer the same calls as part of their own protocol.
            Self::Datanode => protocols::CLIENT_DATANODE,
        }
    }
}

/// Progress of a change of the configuration at run time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reconfiguration {
    /// Start in milliseconds since the epoch; 0 if there never was a change.
    pub start_ms: i64,
    /// End in milliseconds since the epoch; `None` while it runs.
    pub end_ms: Option<i64>,
    /// The changes.
    pub changes: Vec<ReconfiguredKey>,
}

/// Change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReconfiguredKey {
    /// Name of the key.
    pub name: String,
    /// Value before.
    pub old: String,
    /// Value afterwards. `None`: the default.
    pub new: Option<String>,
    /// Why the key keeps its value. `None`: it was changed.
    pub error: Option<String>,
}

/// Answer of one handler to a request to refresh something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefreshAnswer {
    /// Exit code; 0 for success.
    pub code: i32,
    /// Text for the user.
    pub message: Option<String>,
    /// Name of the handler.
    pub sender: Option<String>,
}

/// High-availability state of a namenode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HaStatus {
    /// The state.
    pub state: HaState,
    /// Why a standby namenode cannot become active. `None`: it can.
    pub not_ready: Option<String>,
}

/// State that a namenode may be asked to enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HaTransition {
    /// To active.
    Active,
    /// To standby.
    Standby,
    /// To observer.
    Observer,
}

impl Administration {
    /// Creates a client whose calls are made as `user`. `real_user`: makes them on behalf of `user`.
    ///
    /// Errors: kind `InvalidConfiguration`.
    pub fn new(configuration: &Configuration, user: &str, real_user: Option<&str>) -> Result<Self, Error> {
        configuration.refuse_client_authentication()?;
        let options = RpcClientOptions { real_user: real_user.map(Arc::from), ..rpc_options(configuration)? };
        Ok(Self { rpc: RpcClient::new(options), user: user.into() })
    }

    async fn call<A: Message + Default>(
        &self,
        server: &HostPort,
        protocol: &'static str,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, Error> {
        let address = resolve::resolve(&server.host, server.port)
            .await
            .map_err(|why| Failure::InvalidUri { uri: server.to_string(), why })?;
        let target = Target { address, protocol, user: Arc::clone(&self.user) };
        self.rpc.call(&target, method, request).await.map_err(|error| match error {
            RpcError::Remote(remote) => Failure::Refused {
                exception: Exception::from_class(&remote.class),
                message: without_stack_trace(&remote.message).to_owned(),
                class: remote.class,
            }
            .into(),
            error => Failure::Server { method, address: server.to_string(), source: Arc::new(error) }.into(),
        })
    }

    /// Makes a call whose request and answer have no fields.
    async fn order(&self, server: &HostPort, protocol: &'static str, method: &'static str) -> Result<(), Error> {
        self.call::<()>(server, protocol, method, &()).await
    }

    /// Returns versions and uptime of a datanode.
    pub async fn datanode(&self, datanode: &HostPort) -> Result<DatanodeDescription, Error> {
        let answer: GetDatanodeInfoResponseProto =
            self.call(datanode, protocols::CLIENT_DATANODE, "getDatanodeInfo", &()).await?;
        Ok(DatanodeDescription {
            software_version: answer.local_info.software_version,
            config_version: answer.local_info.config_version,
            uptime_seconds: answer.local_info.uptime,
        })
    }

    /// Returns the storage directories of a datanode.
    pub async fn volumes(&self, datanode: &HostPort) -> Result<Vec<VolumeDescription>, Error> {
        let answer: GetVolumeReportResponseProto =
            self.call(datanode, protocols::CLIENT_DATANODE, "getVolumeReport", &GetVolumeReportRequestProto {}).await?;
        let volumes = answer.volume_info.into_iter().map(|volume| VolumeDescription {
            storage_type: storage_type_from_wire(volume.storage_type),
            path: volume.path,
            used: volume.used_space,
            free: volume.free_space,
            reserved: volume.reserved_space,
            reserved_for_replicas: volume.reserved_space_for_replicas,
            blocks: volume.num_blocks,
        });
        Ok(volumes.collect())
    }

    /// Makes a datanode send a block report. `namenode`: only to this one.
    pub async fn trigger_block_report(
        &self,
        datanode: &HostPort,
        incremental: bool,
        namenode: Option<&HostPort>,
    ) -> Result<(), Error> {
        let request = TriggerBlockReportRequestProto { incremental, nn_address: namenode.map(HostPort::to_string) };
        let TriggerBlockReportResponseProto {} =
            self.call(datanode, protocols::CLIENT_DATANODE, "triggerBlockReport", &request).await?;
        Ok(())
    }

    /// Makes a datanode close the connections of all clients that write to it.
    pub async fn evict_writers(&self, datanode: &HostPort) -> Result<(), Error> {
        self.order(datanode, protocols::CLIENT_DATANODE, "evictWriters").await
    }

    /// Shuts a datanode down. `for_upgrade`: writers are told to wait for its restart.
    pub async fn shut_down_datanode(&self, datanode: &HostPort, for_upgrade: bool) -> Result<(), Error> {
        let request = ShutdownDatanodeRequestProto { for_upgrade };
        let ShutdownDatanodeResponseProto {} =
            self.call(datanode, protocols::CLIENT_DATANODE, "shutdownDatanode", &request).await?;
        Ok(())
    }

    /// Returns the bandwidth of a datanode for balancing, in bytes per second.
    pub async fn balancer_bandwidth(&self, datanode: &HostPort) -> Result<u64, Error> {
        let answer: GetBalancerBandwidthResponseProto =
            self.call(datanode, protocols::CLIENT_DATANODE, "getBalancerBandwidth", &()).await?;
        Ok(answer.bandwidth)
    }

    /// Makes a datanode read its list of namenodes again.
    pub async fn refresh_namenodes(&self, datanode: &HostPort) -> Result<(), Error> {
        self.order(datanode, protocols::CLIENT_DATANODE, "refreshNamenodes").await
    }

    /// Deletes the directories of a block pool that a datanode no longer serves. `force`: also if they are not empty.
    pub async fn delete_block_pool(&self, datanode: &HostPort, block_pool: &str, force: bool) -> Result<(), Error> {
        let request = DeleteBlockPoolRequestProto { block_pool: block_pool.to_owned(), force };
        let DeleteBlockPoolResponseProto {} =
            self.call(datanode, protocols::CLIENT_DATANODE, "deleteBlockPool", &request).await?;
        Ok(())
    }

    /// Makes a server read its configuration again and apply what can change at run time.
    pub async fn start_reconfiguration(&self, kind: ServerKind, server: &HostPort) -> Result<(), Error> {
        self.order(server, kind.protocol(), "startReconfiguration").await
    }

    /// Returns the progress of the last change of a server's configuration.
    pub async fn reconfiguration(&self, kind: ServerKind, server: &HostPort) -> Result<Reconfiguration, Error> {
        let answer: GetReconfigurationStatusResponseProto =
            self.call(server, kind.protocol(), "getReconfigurationStatus", &()).await?;
        let changes = answer.changes.into_iter().map(|change| ReconfiguredKey {
            name: change.name,
            old: change.old_value,
            new: change.new_value,
            error: change.error_message,
        });
        Ok(Reconfiguration { start_ms: answer.start_time, end_ms: answer.end_time, changes: changes.collect() })
    }

    /// Returns the names of the keys that a server can change at run time.
    pub async fn reconfigurable_keys(&self, kind: ServerKind, server: &HostPort) -> Result<Vec<String>, Error> {
        let answer: ListReconfigurablePropertiesResponseProto =
            self.call(server, kind.protocol(), "listReconfigurableProperties", &()).await?;
        Ok(answer.name)
    }

    /// Makes a namenode read its policy for the use of its protocols again.
    pub async fn refresh_service_acl(&self, namenode: &HostPort) -> Result<(), Error> {
        self.order(namenode, protocols::REFRESH_AUTHORIZATION_POLICY, "refreshServiceAcl").await
    }

    /// Makes a namenode look up the groups of users again.
    pub async fn refresh_user_groups(&self, namenode: &HostPort) -> Result<(), Error> {
        self.order(namenode, protocols::REFRESH_USER_MAPPINGS, "refreshUserToGroupsMappings").await
    }

    /// Makes a namenode read its rules for proxy users again.
    pub async fn refresh_proxy_users(&self, namenode: &HostPort) -> Result<(), Error> {
        self.order(namenode, protocols::REFRESH_USER_MAPPINGS, "refreshSuperUserGroupsConfiguration").await
    }

    /// Makes a namenode replace its queue of calls.
    pub async fn refresh_call_queue(&self, namenode: &HostPort) -> Result<(), Error> {
        self.order(namenode, protocols::REFRESH_CALL_QUEUE, "refreshCallQueue").await
    }

    /// Makes a server refresh what `identifier` names.
    pub async fn refresh(
        &self,
        server: &HostPort,
        identifier: &str,
        arguments: &[String],
    ) -> Result<Vec<RefreshAnswer>, Error> {
        let request = GenericRefreshRequestProto { identifier: Some(identifier.to_owned()), args: arguments.to_vec() };
        let answer: GenericRefreshResponseCollectionProto =
            self.call(server, protocols::GENERIC_REFRESH, "refresh", &request).await?;
        let answers = answer.responses.into_iter().map(|answer| RefreshAnswer {
            code: answer.exit_status(),
            message: answer.user_message,
            sender: answer.sender_name,
        });
        Ok(answers.collect())
    }

    /// Returns the groups of a user as a namenode knows them.
    pub async fn groups(&self, namenode: &HostPort, user: &str) -> Result<Vec<String>, Error> {
        let request = GetGroupsForUserRequestProto { user: user.to_owned() };
        let answer: GetGroupsForUserResponseProto =
            self.call(namenode, protocols::GET_USER_MAPPINGS, "getGroupsForUser", &request).await?;
        Ok(answer.groups)
    }

    /// Returns the high-availability state of a namenode.
    pub async fn ha_status(&self, namenode: &HostPort) -> Result<HaStatus, Error> {
        let answer: GetServiceStatusResponseProto =
            self.call(namenode, protocols::HA_SERVICE, "getServiceStatus", &()).await?;
        let is_ready = answer.ready_to_become_active.unwrap_or(false);
        Ok(HaStatus {
            state: answer.state().into(),
            not_ready: (!is_ready).then(|| answer.not_ready_reason.unwrap_or_default()),
        })
    }

    /// Returns an error if a namenode does not consider itself healthy.
    pub async fn check_health(&self, namenode: &HostPort) -> Result<(), Error> {
        self.order(namenode, protocols::HA_SERVICE, "monitorHealth").await
    }

    /// Makes a namenode change its state. `forced`: although automatic failover is on.
    pub async fn change_ha_state(&self, namenode: &HostPort, to: HaTransition, forced: bool) -> Result<(), Error> {
        let source = match forced {
            true => HaRequestSource::RequestByUserForced,
            false => HaRequestSource::RequestByUser,
        };
        let method = match to {
            HaTransition::Active => "transitionToActive",
            HaTransition::Standby => "transitionToStandby",
            HaTransition::Observer => "transitionToObserver",
        };
        // The three requests have the same fields.
        let req_info = HaStateChangeRequestInfoProto { req_source: source as i32 };
        let request = TransitionToActiveRequestProto { req_info };
        self.call::<()>(namenode, protocols::HA_SERVICE, method, &request).await
    }
}

impl std::fmt::Debug for Administration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Administration").field("user", &self.user).finish_non_exhaustive()
    }
}
