//! Handshake (versionRequest and registerDatanode): identifies the NameNode, and this DataNode to it.

use std::sync::Arc;
use std::time::Duration;

use hearth_config::keys;
use hearth_protocol::block_token::ExportedKeys;
use hearth_types::block_file::DATANODE_LAYOUT_VERSION;
use hearth_types::{DatanodeId, PoolIdentity};
use hearth_wire::convert::{ConvertError, storage_info};
use hearth_wire::proto::hdfs::nnha_status_heartbeat_proto::State;
use hearth_wire::proto::hdfs::{DatanodeIdProto, DatanodeRegistrationProto, RegisterDatanodeRequestProto};

use super::proxy::{CallError, FailureKind, Proxy};
use crate::block_pool_service::{AttachError, BlockPoolService};
use crate::datanode::Datanode;
use crate::pool::{HaState, NamenodeIndex, Pool};

/// Version of Apache Hadoop whose protocol this DataNode implements; NameNodes compare it with their minimum.
pub const SOFTWARE_VERSION: &str = "3.4.2";

/// Maximum interval of retries while a NameNode does not answer.
const VERSION_RETRY_MAX: Duration = Duration::from_secs(5);
/// First interval of retries, short because both may have been started at the same moment.
const VERSION_RETRY_FIRST: Duration = Duration::from_millis(100);
const REGISTER_RETRY: Duration = Duration::from_secs(1);

/// Reason why a NameNode is not served.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("the namenode refuses this datanode")]
    Refused(#[from] CallError),
    #[error("the namenode's version {found} is older than {least}")]
    TooOld { found: String, least: String },
    #[error("invalid namespace information from the namenode")]
    Malformed(#[from] ConvertError),
    #[error("cannot attach the namenode's block pool")]
    Attach(#[from] AttachError),
    #[error("the datanode is stopping")]
    Stopping,
}

/// A valid registration.
pub struct Registered {
    pub pool: Arc<Pool>,
    /// The registration as the NameNode returned it; sent with every later call.
    pub registration: DatanodeRegistrationProto,
    /// The NameNode's capabilities, such as full reports in buffers.
    pub capabilities: u64,
}

/// Performs both steps, repeated until the NameNode answers.
pub async fn run(
    datanode: &Arc<Datanode>,
    service: &Arc<BlockPoolService>,
    index: NamenodeIndex,
    proxy: &Proxy,
) -> Result<Registered, HandshakeError> {
    let info = ask_version(datanode, proxy).await?;
    let least = datanode
        .options
        .configuration
        .get(keys::DFS_DATANODE_MIN_SUPPORTED_NAMENODE_VERSION)
        .unwrap_or_else(|_| "2.1.0-beta".to_owned());
    if compare_versions(&info.software_version, &least).is_lt() {
        return Err(HandshakeError::TooOld { found: info.software_version, least });
    }
    let identity = PoolIdentity::try_from(&info)?;
    let pool = service.attach_pool(&datanode.replicas, identity).await?;
    pool.note_handshake_state(index, info.state.map(|_| ha_state(info.state())));
    let registration = register(datanode, proxy, &pool).await?;
    pool.tokens.install(index, &registration.keys.clone().into());
    pool.set_registered_id(DatanodeId::try_from(registration.datanode_id.clone())?);
    Ok(Registered { pool, registration, capabilities: info.capabilities() })
}

/// Converts a state on the wire.
pub fn ha_state(state: State) -> HaState {
    match state {
        State::Active => HaState::Active,
        State::Standby => HaState::Standby,
        State::Observer => HaState::Observer,
    }
}

async fn ask_version(
    datanode: &Arc<Datanode>,
    proxy: &Proxy,
) -> Result<hearth_wire::proto::hdfs::NamespaceInfoProto, HandshakeError> {
    let mut wait = VERSION_RETRY_FIRST;
    loop {
        match proxy.version_request().await {
            Ok(info) => return Ok(info),
            Err(error) => tracing::info!(%error, "the namenode does not answer; retrying"),
        }
        pause(datanode, wait).await?;
        wait = (wait * 2).min(VERSION_RETRY_MAX);
    }
}

async fn register(
    datanode: &Arc<Datanode>,
    proxy: &Proxy,
    pool: &Pool,
) -> Result<DatanodeRegistrationProto, HandshakeError> {
    let request = RegisterDatanodeRequestProto {
        registration: own_registration(datanode, pool),
        hearth_offer: Some(datanode.offer().encode()),
    };
    loop {
        match proxy.register(&request).await {
            Ok(answer) => return Ok(answer.registration),
            Err(error) if error.failure_kind() == FailureKind::Refused => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "cannot register with the namenode; retrying"),
        }
        pause(datanode, REGISTER_RETRY).await?;
    }
}

async fn pause(datanode: &Arc<Datanode>, wait: Duration) -> Result<(), HandshakeError> {
    tokio::select! {
        () = tokio::time::sleep(wait) => Ok(()),
        () = datanode.lifecycle.stopping() => Err(HandshakeError::Stopping),
    }
}

/// Builds this DataNode's registration. The NameNode replaces the address by that of the connection.
fn own_registration(datanode: &Datanode, pool: &Pool) -> DatanodeRegistrationProto {
    let addresses = datanode.addresses();
    let id = DatanodeId {
        ip: addresses.transfer.ip().to_string(),
        host_name: datanode.options.host_name.clone(),
        uuid: datanode.replicas.store.datanode_uuid().clone(),
        transfer_port: addresses.transfer.port(),
        info_port: addresses.http.port(),
        ipc_port: addresses.ipc.port(),
        info_secure_port: 0,
    };
    DatanodeRegistrationProto {
        datanode_id: DatanodeIdProto::from(&id),
        storage_info: storage_info(&pool.identity, DATANODE_LAYOUT_VERSION),
        keys: (&ExportedKeys::disabled()).into(),
        software_version: SOFTWARE_VERSION.to_owned(),
    }
}

/// Compares the numbers of two versions; a version with a suffix after `-` sorts before the plain version.
fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    let split = |version: &str| {
        let (numbers, suffix) = version.split_once('-').map_or((version, None), |(n, s)| (n, Some(s.to_owned())));
        let numbers: Vec<u64> = numbers.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        (numbers, suffix)
    };
    let ((a_numbers, a_suffix), (b_numbers, b_suffix)) = (split(a), split(b));
    a_numbers.cmp(&b_numbers).then_with(|| match (a_suffix, b_suffix) {
        (None, None) => std::cmp::Ordering::Equal,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (Some(_), None) => std::cmp::Ordering::Less,
        (Some(a), Some(b)) => a.cmp(&b),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(compare_versions("3.4.2", "2.1.0-beta").is_gt());
        assert!(compare_versions("2.1.0-beta", "2.1.0-beta").is_eq());
        assert!(compare_versions("2.1.0-alpha", "2.1.0-beta").is_lt());
        assert!(compare_versions("2.0.9", "2.1.0-beta").is_lt());
        assert!(compare_versions("2.1.0", "2.1.0-beta").is_gt());
        assert!(compare_versions("3.10.0", "3.9.9").is_gt());
    }
}
