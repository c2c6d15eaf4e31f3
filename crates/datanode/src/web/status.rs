//! Status of this DataNode: the beans that Apache's DataNode page, monitoring and operators use, and the table of
//! NameNodes on the page at `/`. Names and formats are those of Apache's `DataNodeMXBean` and `FSDatasetMBean`.

use std::time::Duration;

use hearth_blockstore::DiskTimes;
use hearth_types::{HistogramSnapshot, StorageReport};
use hearth_web::Bean;
use serde_json::{Value, json};

use crate::block_pool_service::{BlockPoolService, ServedNamenode};
use crate::datanode::Datanode;
use crate::namenode::SOFTWARE_VERSION;
use crate::pool::NamenodeIndex;

/// Value of Apache's DataNode while no plan was submitted to its disk balancer.
const NO_DISK_BALANCER_PLAN: &str = r#"{"currentState":[],"result":"NO_PLAN","planID":"","planFile":""}"#;

/// Returns `DataNodeInfo` and `FSDatasetState`, with every attribute of Apache's DataNode (3.4.2).
pub fn beans(datanode: &Datanode) -> Vec<Bean> {
    let addresses = datanode.addresses();
    let services = datanode.services.all();
    let cluster = services.iter().find_map(|service| service.pool()).map(|pool| pool.identity.cluster_id.clone());
    let addresses_of: serde_json::Map<String, Value> = services
        .iter()
        .flat_map(|service| service.namenodes.iter().map(move |namenode| (service, namenode)))
        .map(|(service, namenode)| {
            let pool = service.pool().map(|pool| pool.id().to_string());
            (namenode.address.host.clone(), pool.into())
        })
        .collect();
    let actors: Vec<Value> = services
        .iter()
        .flat_map(|service| service.namenodes.iter().enumerate().map(move |(index, node)| (service, index, node)))
        .map(|(service, index, namenode)| {
            actor(service, NamenodeIndex(index), namenode, datanode.options.rpc.frame_bytes_max)
        })
        .collect();
    let storages = storages(datanode);
    let volumes: serde_json::Map<String, Value> = storages
        .iter()
        .map(|storage| {
            let volume = json!({
                "usedSpace": storage.report.dfs_used,
                "freeSpace": storage.report.remaining,
                "reservedSpace": storage.reserved,
                "reservedSpaceForReplicas": 0,
                "numBlocks": storage.replicas,
                "storageType": storage.report.storage_type.name(),
            });
            (storage.dir.clone(), volume)
        })
        .collect();
    let sum = |figure: fn(&StorageReport) -> u64| storages.iter().map(|storage| figure(&storage.report)).sum::<u64>();
    let failed = datanode.services.failed_volumes();
    let uptime = datanode.lifecycle.uptime().as_millis() as u64;
    let storage_info = storages.iter().map(|storage| storage.dir.as_str()).collect::<Vec<_>>().join(", ");
    // Apache's DataNode has two of them, with nearly the same attributes: one of its metrics, one of its management
    // interface.
    let data_set = |name: &str| {
        Bean::new(format!("Hadoop:service=DataNode,name={name}"))
            .with("tag.Context", "FSDatasetState")
            .with("tag.Hostname", datanode.options.host_name.clone())
            .with("tag.StorageInfo", storage_info.clone())
            .with("Capacity", sum(|report| report.capacity))
            .with("DfsUsed", sum(|report| report.dfs_used))
            .with("Remaining", sum(|report| report.remaining))
            .with("NumFailedVolumes", failed.dirs.len())
            .with("FailedStorageLocations", failed.dirs.clone())
            .with("LastVolumeFailureDate", failed.last_ms)
            .with("EstimatedCapacityLostTotal", failed.capacity_lost)
            .with("CacheUsed", datanode.locked_memory.used())
            .with("CacheCapacity", datanode.locked_memory.capacity())
            .with("NumBlocksCached", datanode.cache.replicas())
            .with("NumBlocksFailedToCache", datanode.cache.failures())
            .with("StorageInfo", storage_info.clone())
            // Cached replicas are released at once.
            .with("NumBlocksFailedToUncache", 0)
            .with("NumBlocksFailedToUnCache", 0)
            // There is no directory scan, and replicas are deleted as soon as this is requested.
            .with("LastDirScannerFinishTime", 0)
            .with("LastDirectoryScannerFinishTime", 0)
            .with("PendingAsyncDeletions", 0)
    };
    vec![
        Bean::new("Hadoop:service=DataNode,name=DataNodeInfo")
            .with("Version", format!("{SOFTWARE_VERSION}, Hearth {}", env!("CARGO_PKG_VERSION")))
            .with("SoftwareVersion", SOFTWARE_VERSION)
            .with("DatanodeHostname", datanode.options.host_name.clone())
            .with("RpcPort", addresses.ipc.port().to_string())
            .with("DataPort", addresses.transfer.port().to_string())
            .with("HttpPort", addresses.http.port().to_string())
            .with("ClusterId", cluster.unwrap_or_default())
            // Strings that contain JSON, as in Apache's DataNode.
            .with("NamenodeAddresses", Value::Object(addresses_of).to_string())
            .with("BPServiceActorInfo", Value::Array(actors).to_string())
            .with("VolumeInfo", Value::Object(volumes).to_string())
            .with("XceiverCount", datanode.replicas.metrics.xceiver_count() as u64)
            .with("ActiveTransferThreadCount", datanode.replicas.metrics.xceivers() as u64)
            .with("XmitsInProgress", datanode.replicas.metrics.transfers() as u64)
            .with("DNStartedTimeInMillis", datanode.options.clock.wall_ms().saturating_sub(uptime))
            .with("SecurityEnabled", false)
            .with("DatanodeNetworkCounts", Vec::<Value>::new())
            .with("DiskBalancerStatus", NO_DISK_BALANCER_PLAN)
            .with("SendPacketDownstreamAvgInfo", peer_latencies(datanode))
            .with("SlowDisks", slow_disks(datanode)),
        data_set("FSDatasetState"),
        data_set(&format!("FSDatasetState-{}", datanode.replicas.store.datanode_uuid())),
    ]
}

/// Returns the mean times of acknowledgements by other DataNodes in milliseconds, as JSON in a text; null if they are not
/// measured. Names are in Apache's form.
fn peer_latencies(datanode: &Datanode) -> Value {
    let Some(peers) = datanode.replicas.metrics.peers() else { return Value::Null };
    let means = peers.means_ms(0, datanode.options.clock.monotonic());
    let named = means.into_iter().map(|(peer, ms)| (format!("[{peer}]RollingAvgTime"), Value::from(ms)));
    Value::Object(named.collect()).to_string().into()
}

/// Returns the slow disks with their mean latencies in milliseconds, as JSON in a text; null if they are not measured.
fn slow_disks(datanode: &Datanode) -> Value {
    if !datanode.options.current().outliers.measures_disks {
        return Value::Null;
    }
    let slow = datanode.slow_disks().into_iter().map(|disk| {
        let latencies = [("METADATA", disk.metadata_ms), ("READ", disk.read_ms), ("WRITE", disk.write_ms)];
        let latencies = latencies.into_iter().filter_map(|(kind, ms)| Some((kind.to_owned(), Value::from(ms?))));
        (disk.directory, Value::Object(latencies.collect()))
    });
    Value::Object(slow.collect()).to_string().into()
}

pub const NAMENODE_COLUMNS: &[&str] =
    &["address", "nameservice", "block pool", "state", "last heartbeat", "last full block report"];

/// Returns a table row for each NameNode.
pub fn namenodes(datanode: &Datanode) -> Vec<Vec<String>> {
    let ago = |since: Option<Duration>| {
        since.map_or_else(|| "never".to_owned(), |since| format!("{} s ago", since.as_secs()))
    };
    let services = datanode.services.all();
    let each =
        services.iter().flat_map(|service| service.namenodes.iter().enumerate().map(move |(i, n)| (service, i, n)));
    each.map(|(service, index, namenode)| {
        vec![
            namenode.address.to_string(),
            service.name.clone(),
            service.pool().map(|pool| pool.id().to_string()).unwrap_or_default(),
            state(service, NamenodeIndex(index), namenode).to_owned(),
            ago(namenode.last_contact.since_heartbeat()),
            ago(namenode.last_contact.since_full_report()),
        ]
    })
    .collect()
}

/// Returns the NameNodes, for the user interface.
pub fn namenode_list(datanode: &Datanode) -> Vec<Value> {
    let services = datanode.services.all();
    let each =
        services.iter().flat_map(|service| service.namenodes.iter().enumerate().map(move |(i, n)| (service, i, n)));
    each.map(|(service, index, namenode)| {
        json!({
            "address": namenode.address.to_string(),
            "nameservice": service.name,
            "pool": service.pool().map(|pool| pool.id().to_string()),
            "state": state(service, NamenodeIndex(index), namenode),
            "heartbeatSeconds": namenode.last_contact.since_heartbeat().map(|since| since.as_secs()),
            "reportSeconds": namenode.last_contact.since_full_report().map(|since| since.as_secs()),
        })
    })
    .collect()
}

/// Returns the healthy storage directories, for the user interface.
pub fn volumes(datanode: &Datanode) -> Vec<Value> {
    let volume = |storage: Storage| {
        json!({
            "directory": storage.dir,
            "storage": storage.report.storage.to_string(),
            "medium": storage.report.storage_type.name(),
            "used": storage.report.dfs_used,
            "remaining": storage.report.remaining,
            "capacity": storage.report.capacity,
            "reserved": storage.reserved,
            "replicas": storage.replicas,
            "syncMs": mean_ms(&storage.times.syncs),
            "writeMs": mean_ms(&storage.times.writes),
            "readMs": mean_ms(&storage.times.reads),
        })
    };
    storages(datanode).into_iter().map(volume).collect()
}

/// Returns the mean in milliseconds; `None` without observations.
fn mean_ms(times: &HistogramSnapshot) -> Option<f64> {
    (times.count() > 0).then(|| times.mean_ms())
}

pub(super) struct Storage {
    pub(super) dir: String,
    pub(super) report: StorageReport,
    reserved: u64,
    /// Number of finalized replicas, over all pools.
    pub(super) replicas: u64,
    pub(super) times: DiskTimes,
}

/// Returns the storages without accessing any replica: frequent requests must not wait for replicas whose files are
/// being opened.
pub(super) fn storages(datanode: &Datanode) -> Vec<Storage> {
    let pools = datanode.replicas.pools.all();
    let reports: Vec<_> =
        pools.first().map(|pool| datanode.replicas.store.storage_reports(pool.id())).unwrap_or_default();
    let storages = datanode.replicas.store.storages().into_iter();
    storages
        .filter_map(|storage| {
            let report = reports.iter().find(|report| report.storage == storage.id)?.clone();
            Some(Storage {
                reserved: storage.reserved_bytes,
                dir: storage.dir.display().to_string(),
                report,
                replicas: storage.replicas,
                times: storage.times,
            })
        })
        .collect()
}

fn state(service: &BlockPoolService, index: NamenodeIndex, namenode: &ServedNamenode) -> &'static str {
    match service.pool() {
        Some(pool) if pool.is_active(index) => "active",
        _ if namenode.last_contact.since_heartbeat().is_some() => "standby",
        _ => "connecting",
    }
}

/// `max_data_length`: maximum length of an RPC message in bytes.
fn actor(service: &BlockPoolService, index: NamenodeIndex, namenode: &ServedNamenode, max_data_length: usize) -> Value {
    let seconds = |since: Option<Duration>| since.map_or_else(|| "-1".to_owned(), |since| since.as_secs().to_string());
    json!({
        "NamenodeAddress": namenode.address.to_string(),
        "NamenodeHaState": state(service, index, namenode),
        "BlockPoolID": service.pool().map(|pool| pool.id().to_string()).unwrap_or_default(),
        "ActorState": if namenode.last_contact.since_heartbeat().is_some() { "RUNNING" } else { "CONNECTING" },
        "LastHeartbeat": seconds(namenode.last_contact.since_heartbeat()),
        "LastHeartbeatResponseTime": seconds(namenode.last_contact.since_heartbeat()),
        "LastBlockReport": seconds(namenode.last_contact.since_full_report()),
        "maxDataLength": max_data_length.to_string(),
        // The size of the largest block report is not recorded.
        "maxBlockReportSize": "0",
        "isSlownode": namenode.last_contact.is_slow().to_string(),
    })
}
