//! The calls of datanodes (and of the balancer): DatanodeProtocol, its lifeline, NamenodeProtocol.
//!
//! Each call is decoded, processed under the namenode's one lock by [`crate::blocks::BlockMap`], and answered. I/O
//! (racks, the hosts files, the reverse lookup of an address) is done before the lock is taken.

mod background;
mod balancer;
mod commands;
mod error_reports;
mod heartbeat;
mod hosts_files;
mod namenode_protocol;
mod racks;
mod register;
mod replica_list;
mod reports;
mod reverse_lookup;
mod synchronization;
mod version;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hearth_config::{ConfigError, Configuration, keys};
use hearth_protocol::rpc::{Call, RemoteError, application_error, no_such_method, undecodable};
use hearth_types::{DatanodeId, StorageId, StorageType};
use hearth_wire::convert::{ConvertError, storage_type_from_wire};
use hearth_wire::proto::hdfs::{DatanodeRegistrationProto, DatanodeStorageProto};
use hearth_wire::rpc::{exceptions, protocols};
use prost::Message;

use crate::Namenode;
use crate::block_tokens::BlockTokens;
use crate::blocks::ConnectionId;

pub use background::run_block_monitor;
pub use hosts_files::read_hosts;
pub use racks::Racks;
pub(crate) use register::is_of_this_machine;
pub use synchronization::Synchronization;

/// Hadoop release that this NameNode reports: datanodes and clients compare it with their own.
pub const SOFTWARE_VERSION: &str = "3.4.2";
/// The storage layout version of an Apache NameNode of that release.
const LAYOUT_VERSION: i32 = -67;

/// The protocols that [`DatanodeService`] answers.
pub const PROTOCOLS: [&str; 3] = [protocols::DATANODE, protocols::DATANODE_LIFELINE, protocols::NAMENODE];

/// Settings of registration. The configuration key is given at each field.
#[derive(Clone, Debug)]
pub struct DatanodeServiceSettings {
    /// `dfs.namenode.min.supported.datanode.version`.
    pub oldest_datanode: String,
    /// `dfs.namenode.datanode.registration.ip-hostname-check`.
    pub check_host_names: bool,
    /// `dfs.namenode.reject-unresolved-dn-topology-mapping`.
    pub reject_unknown_racks: bool,
    /// `dfs.hosts`.
    pub include_file: Option<PathBuf>,
    /// `dfs.hosts.exclude`.
    pub exclude_file: Option<PathBuf>,
    /// True if `dfs.namenode.hosts.provider.classname` is CombinedHostFileManager: `dfs.hosts` is the only file, in
    /// JSON.
    pub hosts_are_json: bool,
}

impl Default for DatanodeServiceSettings {
    fn default() -> Self {
        Self {
            oldest_datanode: "2.1.0-beta".to_owned(),
            check_host_names: true,
            reject_unknown_racks: false,
            include_file: None,
            exclude_file: None,
            hosts_are_json: false,
        }
    }
}

impl DatanodeServiceSettings {
    pub fn from_configuration(configuration: &Configuration) -> Result<Self, ConfigError> {
        let key = keys::DFS_NAMENODE_HOSTS_PROVIDER_CLASSNAME;
        let provider = configuration.get(key)?;
        let hosts_are_json = match provider.rsplit('.').next() {
            Some("HostFileManager") => false,
            Some("CombinedHostFileManager") => true,
            _ => {
                let wanted = "wanted HostFileManager or CombinedHostFileManager of Hadoop's blockmanagement package";
                return Err(configuration.value_error(key.name, &provider, wanted));
            }
        };
        let file = |name: Option<String>| name.filter(|name| !name.is_empty()).map(PathBuf::from);
        Ok(Self {
            oldest_datanode: configuration.get(keys::DFS_NAMENODE_MIN_SUPPORTED_DATANODE_VERSION)?,
            check_host_names: configuration.get(keys::DFS_NAMENODE_DATANODE_REGISTRATION_IP_HOSTNAME_CHECK)?,
            reject_unknown_racks: configuration.get(keys::DFS_NAMENODE_REJECT_UNRESOLVED_DN_TOPOLOGY_MAPPING)?,
            include_file: file(configuration.get(keys::DFS_HOSTS)?),
            exclude_file: file(configuration.get(keys::DFS_HOSTS_EXCLUDE)?),
            hosts_are_json,
        })
    }
}

/// The operation that applies a finished block recovery to the namespace and makes it durable.
pub type CommitSynchronization =
    Box<dyn Fn(Synchronization) -> Pin<Box<dyn Future<Output = Result<(), RemoteError>> + Send>> + Send + Sync>;

/// Answers calls of datanodes. Calls of other protocols must not be passed to it.
pub struct DatanodeService {
    namenode: Arc<Namenode>,
    settings: DatanodeServiceSettings,
    racks: Racks,
    tokens: Arc<BlockTokens>,
    commit_synchronization: CommitSynchronization,
}

impl DatanodeService {
    pub fn new(
        namenode: Arc<Namenode>,
        settings: DatanodeServiceSettings,
        racks: Racks,
        tokens: Arc<BlockTokens>,
        commit_synchronization: CommitSynchronization,
    ) -> Self {
        Self { namenode, settings, racks, tokens, commit_synchronization }
    }

    /// Reads the hosts files again, and forgets all cached racks (refreshNodes; and once at start). If a file cannot be
    /// read, nothing changes.
    pub async fn refresh_nodes(&self) -> std::io::Result<()> {
        let hosts = read_hosts(&self.settings).await?;
        self.racks.forget();
        let clients = self.racks.all().await;
        let mut state = self.namenode.state.write();
        let now = crate::blocks::Now::of(&*self.namenode.clock);
        state.blocks.set_client_racks(clients);
        state.blocks.set_hosts(hosts, now);
        Ok(())
    }

    /// Looks up the rack of a client's machine the first time that it is needed.
    pub async fn place_client(&self, ip: &str) {
        if let Some(rack) = self.racks.of_client(ip).await {
            self.namenode.state.write().blocks.set_client_rack(ip, rack);
        }
    }

    /// Handles the end of a connection: if a datanode was heard on it, that datanode is probably gone.
    pub fn disconnected(&self, connection: u64) {
        let connection = ConnectionId(connection);
        // Most connections are those of clients, and need no lock that excludes others.
        if !self.namenode.state.read().blocks.is_datanode_on(connection) {
            return;
        }
        let mut state = self.namenode.state.write();
        let ended = state.blocks.connection_ended(connection, crate::blocks::Now::of(&*self.namenode.clock));
        drop(state);
        for datanode in ended {
            tracing::info!(%datanode, "datanode disconnected: writers are sent to others until it is heard again");
        }
    }

    /// Answers one call with an encoded response message.
    pub async fn call(&self, call: &Call) -> Result<Bytes, RemoteError> {
        if call.protocol == protocols::NAMENODE {
            return self.namenode_protocol(call).await;
        }
        match call.method.as_str() {
            "versionRequest" => answer(self.version()),
            "registerDatanode" => answer(self.register_datanode(&call.caller, decode(call)?).await?),
            "sendHeartbeat" => answer(self.send_heartbeat(&call.caller, decode(call)?).await?),
            "awaitWork" => answer(self.await_work(&call.caller, decode(call)?).await?),
            "sendLifeline" => answer(self.send_lifeline(&call.caller, decode(call)?)?),
            "blockReport" => answer(self.block_report(decode(call)?).await?),
            "blockReceivedAndDeleted" => answer(self.block_received_and_deleted(decode(call)?)?),
            "cacheReport" => answer(self.cache_report(decode(call)?)?),
            "errorReport" => answer(self.error_report(decode(call)?)?),
            "reportBadBlocks" => answer(self.report_bad_blocks(decode(call)?)),
            "commitBlockSynchronization" => answer(self.commit_block_synchronization(decode(call)?).await?),
            _ => Err(no_such_method(&call.protocol, &call.method)),
        }
    }

    /// Checks the registration that every call but the first two carries: the sender must be a node of this namespace.
    /// Returns its identity.
    fn check_registration(&self, registration: DatanodeRegistrationProto) -> Result<DatanodeId, RemoteError> {
        let (theirs, ours) = (&registration.storage_info, &self.namenode.identity);
        let same = theirs.namespace_id == ours.namespace_id
            && theirs.cluster_id == ours.cluster_id
            && theirs.c_time == ours.created_ms;
        if !same {
            let name = format!("{}:{}", registration.datanode_id.ip_addr, registration.datanode_id.xfer_port);
            return Err(application_error(
                exceptions::UNREGISTERED_NODE,
                format!(
                    "Unregistered server: DatanodeRegistration({name}, datanodeUuid={}, storageInfo=lv={};cid={};nsid={};c={})",
                    registration.datanode_id.datanode_uuid,
                    theirs.layout_version as i32,
                    theirs.cluster_id,
                    theirs.namespace_id,
                    theirs.c_time
                ),
            ));
        }
        registration.datanode_id.try_into().map_err(malformed)
    }
}

pub(crate) fn decode<M: Message + Default>(call: &Call) -> Result<M, RemoteError> {
    M::decode(call.request.clone()).map_err(|error| undecodable(&call.method, &error))
}

fn answer(message: impl Message) -> Result<Bytes, RemoteError> {
    Ok(message.encode_to_vec().into())
}

/// Error for a message that decodes but is invalid.
fn malformed(error: ConvertError) -> RemoteError {
    application_error(exceptions::IO, error.to_string())
}

/// Returns the storage that a report is about: from the embedded message, or for old senders from the id beside it.
fn storage_of(storage: Option<DatanodeStorageProto>, id: String) -> Result<(StorageId, StorageType), RemoteError> {
    let (id, storage_type) = match storage {
        Some(storage) => {
            let storage_type = storage_type_from_wire(storage.storage_type() as i32);
            (storage.storage_uuid, storage_type)
        }
        None => (id, StorageType::Disk),
    };
    if id.is_empty() {
        return Err(malformed(ConvertError::Empty { field: "storage id" }));
    }
    Ok((StorageId(id.into()), storage_type))
}
