//! The beans of `/jmx` for monitoring and for Apache's own tools, including the router.
//!
//! Each has every attribute that Apache's NameNode has (3.4.2), in the same form. `docs/compatibility/jmx.md` lists the
//! attributes that are constant here, and why. Sources: `FSNamesystem.java`, `FSNamesystemMBean.java`,
//! `NameNodeMXBean.java`, `NameNodeStatusMXBean.java`, `BlockStatsMXBean.java`.

mod activity;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hearth_types::{DatanodeAdminState, HistogramSnapshot};
use hearth_web::Bean;
use serde_json::{Map, Value, json};

use crate::blocks::{ClusterStatistics, DatanodeFilter, DatanodeReport, StartupSafeMode};
use crate::datanode_service::SOFTWARE_VERSION;
use crate::metrics::CallMetrics;
use crate::namespace::{InodeId, Namespace, SNAPSHOT_QUOTA, Snapshottable};
use crate::state::{Namenode, State};

/// Limit of paths in `CorruptFiles`. Source: FSNamesystem.java, `getCorruptFiles`.
const CORRUPT_FILES_MAX: usize = 100;

const GIB: f64 = (1u64 << 30) as f64;

/// Returns all beans. `started_ms`: start of service of this NameNode, in milliseconds since the epoch.
pub fn beans(namenode: &Namenode, rpc: SocketAddr, calls: &CallMetrics, started_ms: u64) -> Vec<Bean> {
    let (mut beans, cluster, safe_mode) = of_state(namenode, rpc, started_ms);
    beans.extend(activity::beans(namenode, calls, &cluster, safe_mode));
    beans
}

/// Returns the beans about the state, and with them the values of the same moment that other beans need.
fn of_state(namenode: &Namenode, rpc: SocketAddr, started_ms: u64) -> (Vec<Bean>, ClusterStatistics, StartupSafeMode) {
    let now_ms = namenode.now().wall_ms;
    let directory = namenode.store.directory().path().display().to_string();
    let directory_bytes = bytes_in(&namenode.store.directory().path().join("current"));
    let threads = threads();
    let syncs = namenode.store.journal_figures().syncs;
    let monotonic = namenode.clock.monotonic();
    let top_users = namenode.top_users.json();
    let state = namenode.read();
    let figures = state.blocks.cluster_statistics(namenode.now());
    let view = View { figures, state: &state, started_ms, syncs, top_users };
    let startup = state.blocks.startup_safe_mode(namenode.now());
    let safe_mode = state.blocks.in_safe_mode();
    let tip = if safe_mode { state.blocks.safe_mode_tip(namenode.now()) } else { String::new() };
    let beans = vec![
        view.name_system(&namenode.settings.host_name, now_ms),
        view.name_system_state(safe_mode, now_ms),
        view.replicated_blocks(Bean::new("Hadoop:service=NameNode,name=ReplicatedBlocksState")),
        erasure_coded_blocks(Bean::new("Hadoop:service=NameNode,name=ECBlockGroupsState"))
            .with("EnabledEcPolicies", ""),
        Bean::new("Hadoop:service=NameNode,name=NameNodeStatus")
            .with("State", "active")
            .with("NNRole", "NameNode")
            .with("HostAndPort", rpc.to_string())
            .with("SecurityEnabled", false)
            .with("LastHATransitionTime", 0)
            .with("BytesWithFutureGenerationStamps", view.figures.bytes_in_future)
            .with("SlowPeersReport", namenode.slow_nodes.peers_json(monotonic))
            .with("SlowDisksReport", namenode.slow_nodes.disks_json(monotonic)),
        view.info(&Identity { namenode, directory, directory_bytes, threads }, tip, now_ms),
        view.block_stats(),
        snapshot_info(&state.namespace),
    ];
    (beans, view.figures, startup)
}

/// Values that are looked up before the lock is taken.
struct Identity<'a> {
    namenode: &'a Namenode,
    directory: String,
    directory_bytes: u64,
    threads: usize,
}

/// Data of the beans of one answer, taken under one lock.
struct View<'a> {
    figures: ClusterStatistics,
    state: &'a State,
    started_ms: u64,
    /// Syncs of the journal.
    syncs: HistogramSnapshot,
    /// Windows of recent calls by user.
    top_users: Vec<Value>,
}

impl View<'_> {
    /// Adds the attributes that `FSNamesystem` and `FSNamesystemState` have in common.
    fn common(&self, bean: Bean) -> Bean {
        let figures = &self.figures;
        bean.with("CapacityTotal", figures.capacity)
            .with("CapacityUsed", figures.used)
            .with("CapacityRemaining", figures.remaining)
            .with("ProvidedCapacityTotal", 0)
            .with("TotalLoad", figures.load)
            .with("NumEncryptionZones", 0)
            .with("CurrentTokensCount", 0)
            .with("PendingSPSPaths", 0)
            // Queues are kept at all times: there is nothing to initialize.
            .with("ReconstructionQueuesInitProgress", 1.0)
            .with("BlocksTotal", figures.blocks)
            .with("FilesTotal", self.state.namespace.inode_count())
            .with("PendingReplicationBlocks", figures.pending_replication)
            .with("PendingReconstructionBlocks", figures.pending_replication)
            .with("UnderReplicatedBlocks", figures.low_redundancy)
            .with("LowRedundancyBlocks", figures.low_redundancy)
            .with("ScheduledReplicationBlocks", figures.scheduled)
            .with("PendingDeletionBlocks", figures.pending_deletion)
            .with("CorruptBlocks", figures.corrupt)
            .with("MissingBlocks", figures.missing)
            .with("MissingReplOneBlocks", figures.missing_with_replication_one)
            .with("NumLiveDataNodes", figures.live_nodes)
            .with("NumDeadDataNodes", figures.dead_nodes)
            .with("NumDecomLiveDataNodes", figures.decommissioned_nodes)
            .with("NumDecomDeadDataNodes", figures.dead_decommissioned_nodes)
            .with("NumInServiceLiveDataNodes", figures.in_service_nodes)
            .with("NumStaleDataNodes", figures.stale_nodes)
            .with("NumStaleStorages", figures.stale_storages)
            .with("VolumeFailuresTotal", figures.failed_volumes)
            .with("EstimatedCapacityLostTotal", 0)
            .with("NumDecommissioningDataNodes", figures.decommissioning_nodes)
            .with("NumEnteringMaintenanceDataNodes", figures.entering_maintenance_nodes)
            .with("NumInMaintenanceLiveDataNodes", figures.in_maintenance_nodes)
            .with("NumInMaintenanceDeadDataNodes", figures.dead_in_maintenance_nodes)
            .with("NumFilesUnderConstruction", self.state.leases.file_count())
            .with("NumActiveClients", self.state.leases.holder_count())
            .with("TotalSyncCount", self.syncs.count())
    }

    /// Total time of the journal's syncs in milliseconds. Apache lists one for each journal, with a space behind it.
    fn sync_times(&self) -> String {
        format!("{} ", self.syncs.sum().as_millis())
    }

    fn replicated_blocks(&self, bean: Bean) -> Bean {
        let figures = &self.figures;
        bean.with("LowRedundancyReplicatedBlocks", figures.low_redundancy)
            .with("CorruptReplicatedBlocks", figures.corrupt)
            .with("MissingReplicatedBlocks", figures.missing)
            .with("MissingReplicationOneBlocks", figures.missing_with_replication_one)
            .with("BytesInFutureReplicatedBlocks", figures.bytes_in_future)
            .with("PendingDeletionReplicatedBlocks", figures.pending_deletion)
            .with("TotalReplicatedBlocks", figures.blocks)
    }

    fn name_system(&self, host_name: &str, now_ms: u64) -> Bean {
        let figures = &self.figures;
        let (snapshots, snapshottable) = self.state.namespace.snapshot_counts();
        let gib = |bytes: u64| (bytes as f64 / GIB).round();
        let bean = Bean::new("Hadoop:service=NameNode,name=FSNamesystem")
            .with("tag.Context", "dfs")
            .with("tag.EnabledEcPolicies", "")
            .with("tag.HAState", "active")
            .with("tag.TotalSyncTimes", self.sync_times())
            .with("tag.Hostname", host_name);
        let bean = erasure_coded_blocks(self.replicated_blocks(self.common(bean)));
        bean.with("Snapshots", snapshots)
            .with("SnapshottableDirectories", snapshottable)
            .with("CapacityTotalGB", gib(figures.capacity))
            .with("CapacityUsedGB", gib(figures.used))
            .with("CapacityRemainingGB", gib(figures.remaining))
            .with("CapacityUsedNonDFS", figures.non_dfs_used)
            .with("HighestPriorityLowRedundancyReplicatedBlocks", figures.highest_priority_low_redundancy)
            .with("HighestPriorityLowRedundancyECBlocks", 0)
            .with("ExcessBlocks", figures.excess)
            .with("StaleDataNodes", figures.stale_nodes)
            .with("ExpiredHeartbeats", figures.expired_heartbeats)
            // The journal has no numbered transactions and no checkpoints.
            .with("TransactionsSinceLastCheckpoint", 0)
            .with("TransactionsSinceLastLogRoll", 0)
            .with("LastWrittenTransactionId", 0)
            .with("LastCheckpointTime", now_ms)
            .with("MillisSinceLastLoadedEdits", 0)
            // Calls wait for one lock, without a queue that could be counted.
            .with("LockQueueLength", 0)
            .with("ReadLockLongHoldCount", 0)
            .with("WriteLockLongHoldCount", 0)
            .with("NumTimedOutPendingReconstructions", figures.timed_out_copies)
            .with("PostponedMisreplicatedBlocks", 0)
            .with("PendingDataNodeMessageCount", 0)
            // A table that grows as needed.
            .with("BlockCapacity", figures.blocks)
    }

    fn name_system_state(&self, safe_mode: bool, now_ms: u64) -> Bean {
        let (snapshots, snapshottable) = self.state.namespace.snapshot_counts();
        let top = json!({"timestamp": crate::date::iso_time(now_ms), "windows": self.top_users}).to_string();
        self.common(Bean::new("Hadoop:service=NameNode,name=FSNamesystemState"))
            .with(
                "SnapshotStats",
                json!({"SnapshottableDirectories": snapshottable, "Snapshots": snapshots}).to_string(),
            )
            .with("FsLockQueueLength", 0)
            .with("MaxObjects", self.state.namespace.limits.objects_max)
            .with("BlockDeletionStartTime", self.started_ms)
            .with("FSState", if safe_mode { "safeMode" } else { "Operational" })
            .with("TopUserOpCounts", top)
            .with("TotalSyncTimes", self.sync_times())
    }

    fn info(&self, identity: &Identity<'_>, safe_mode_tip: String, now_ms: u64) -> Bean {
        let figures = &self.figures;
        let percent =
            |part: u64| if figures.capacity == 0 { 0.0 } else { part as f64 * 100.0 / figures.capacity as f64 };
        let list = |filter| nodes(&self.state.blocks.datanode_reports(filter), now_ms);
        let live = self.state.blocks.datanode_reports(DatanodeFilter::Live);
        let mut versions = BTreeMap::<&str, u64>::new();
        for report in &live {
            *versions.entry(&report.software_version).or_default() += 1;
        }
        let versions: Vec<Value> = versions.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
        let Identity { namenode, directory, directory_bytes, threads } = identity;
        let mut states = Map::new();
        states.insert(directory.clone(), "IMAGE_AND_EDITS".into());
        let mut sizes = Map::new();
        sizes.insert(directory.clone(), (*directory_bytes).into());
        let journal = json!([{
            "manager": format!("FileJournalManager(root={directory})"),
            "stream": format!("{directory}/current/journal"),
            "required": "true",
            "disabled": "false",
        }]);
        let corrupt = self.corrupt_files();
        Bean::new("Hadoop:service=NameNode,name=NameNodeInfo")
            .with("Threads", *threads)
            .with("Version", format!("{SOFTWARE_VERSION}, Hearth {}", env!("CARGO_PKG_VERSION")))
            .with("SoftwareVersion", SOFTWARE_VERSION)
            .with("CompileInfo", format!("Hearth {}", env!("CARGO_PKG_VERSION")))
            .with("Used", figures.used)
            .with("Free", figures.remaining)
            .with("Total", figures.capacity)
            .with("ProvidedCapacity", 0)
            .with("NonDfsUsedSpace", figures.non_dfs_used)
            .with("PercentUsed", percent(figures.used))
            .with("BlockPoolUsedSpace", figures.block_pool_used)
            .with("PercentBlockPoolUsed", percent(figures.block_pool_used))
            .with("PercentRemaining", percent(figures.remaining))
            .with("CacheCapacity", figures.cache_capacity)
            .with("CacheUsed", figures.cache_used)
            .with("HighestPriorityLowRedundancyReplicatedBlocks", figures.highest_priority_low_redundancy)
            .with("HighestPriorityLowRedundancyECBlocks", 0)
            .with("ClusterId", namenode.identity.cluster_id.clone())
            .with("BlockPoolId", namenode.identity.pool.as_str())
            .with("Safemode", safe_mode_tip)
            .with("UpgradeFinalized", true)
            .with("RollingUpgradeStatus", Value::Null)
            .with("TotalBlocks", figures.blocks)
            .with("NumberOfMissingBlocks", figures.missing)
            .with("NumberOfMissingBlocksWithReplicationFactorOne", figures.missing_with_replication_one)
            .with("CorruptFiles", Value::from(corrupt).to_string())
            .with("CorruptFilesCount", figures.missing)
            .with("NumberOfSnapshottableDirs", self.state.namespace.snapshot_counts().1)
            .with("DistinctVersionCount", versions.len())
            .with("DistinctVersions", versions)
            .with("LiveNodes", nodes(&live, now_ms))
            .with("DeadNodes", list(DatanodeFilter::Dead))
            .with("DecomNodes", list(DatanodeFilter::Decommissioning))
            .with("EnteringMaintenanceNodes", list(DatanodeFilter::EnteringMaintenance))
            .with("NodeUsage", json!({"nodeUsage": usage(&live)}).to_string())
            .with("NameDirStatuses", json!({"active": states, "failed": {}}).to_string())
            .with("NameDirSize", Value::Object(sizes).to_string())
            .with("NameJournalStatus", journal.to_string())
            .with(
                "JournalTransactionInfo",
                json!({"LastAppliedOrWrittenTxId": "0", "MostRecentCheckpointTxId": "0"}).to_string(),
            )
            .with("NNStartedTimeInMillis", self.started_ms)
            .with(
                "VerifyECWithTopologyResult",
                json!({"isSupported": "true", "resultMessage": "No erasure coding policy is given."}).to_string(),
            )
    }

    /// Paths of the first files with a block that has no good replica left.
    fn corrupt_files(&self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for block in self.state.blocks.missing_blocks(None, CORRUPT_FILES_MAX) {
            let slot = self.state.blocks.inode_of(block).and_then(|inode| self.state.namespace.slot(InodeId(inode)));
            let path = slot.map(|slot| self.state.namespace.path_of(slot));
            if let Some(path) = path.filter(|path| paths.last() != Some(path)) {
                paths.push(path);
            }
        }
        paths
    }

    /// Statistics by medium.
    fn block_stats(&self) -> Bean {
        let stats: Vec<Value> = self
            .state
            .blocks
            .statistics_by_storage_type()
            .into_iter()
            .map(|(medium, figures)| {
                json!({
                    "key": medium.name(),
                    "value": {
                        "blockPoolUsed": figures.block_pool_used,
                        "capacityNonDfsUsed": figures.non_dfs_used,
                        "capacityRemaining": figures.remaining,
                        "capacityTotal": figures.capacity,
                        "capacityUsed": figures.used,
                        "nodesInService": figures.in_service_nodes,
                        "nodesInServiceXceiverCount": figures.load,
                    },
                })
            })
            .collect();
        Bean::new("Hadoop:service=NameNode,name=BlockStats").with("StorageTypeStats", stats)
    }
}

/// There are no erasure-coded files.
fn erasure_coded_blocks(bean: Bean) -> Bean {
    bean.with("LowRedundancyECBlockGroups", 0)
        .with("CorruptECBlockGroups", 0)
        .with("MissingECBlockGroups", 0)
        .with("BytesInFutureECBlockGroups", 0)
        .with("PendingDeletionECBlocks", 0)
        .with("TotalECBlockGroups", 0)
}

/// Returns the total size of the files in a directory; 0 if it cannot be read.
fn bytes_in(directory: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.len()).sum()
}

/// Returns the number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Minimum, median, maximum and standard deviation of the live datanodes' usage, in percent.
fn usage(live: &[DatanodeReport]) -> Value {
    let share = |report: &DatanodeReport| match report.info.capacity {
        0 => 0.0,
        capacity => report.info.dfs_used as f64 * 100.0 / capacity as f64,
    };
    let mut shares: Vec<f64> = live.iter().map(share).collect();
    shares.sort_by(f64::total_cmp);
    let count = shares.len().max(1) as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let deviation = (shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / count).sqrt();
    let text = |value: Option<&f64>| format!("{:.2}%", value.copied().unwrap_or_default());
    json!({
        "min": text(shares.first()),
        "median": text(shares.get(shares.len() / 2)),
        "max": text(shares.last()),
        "stdDev": text(Some(&deviation)),
    })
}

/// Lists the snapshottable directories and the snapshots. Source: `SnapshotStatsMXBean`.
fn snapshot_info(namespace: &Namespace) -> Bean {
    let directories = namespace.every_snapshottable_directory();
    let directory = |directory: &Snapshottable| {
        let inode = namespace.inode(directory.slot);
        json!({
            "path": namespace.path_of(directory.slot),
            "snapshotNumber": directory.snapshots,
            "snapshotQuota": SNAPSHOT_QUOTA,
            "modificationTime": inode.modification_time_ms(),
            // Octal digits, read as a decimal number.
            "permission": format!("{:o}", inode.permission().0).parse::<u32>().unwrap_or_default(),
            "owner": &**namespace.names.text(inode.owner()),
            "group": &**namespace.names.text(inode.group()),
        })
    };
    let mut snapshots = Vec::new();
    for directory in &directories {
        let path = namespace.path_of(directory.slot);
        for snapshot in namespace.inode(directory.slot).snapshots().unwrap_or_default() {
            snapshots.push(json!({
                // Apache counts from 0.
                "snapshotID": snapshot.id - 1,
                "snapshotDirectory": format!("{}/.snapshot/{}", path.trim_end_matches('/'), snapshot.name),
                "modificationTime": snapshot.modification_time_ms,
                "status": "ACTIVE",
            }));
        }
    }
    Bean::new("Hadoop:service=NameNode,name=SnapshotInfo")
        .with("SnapshottableDirectories", directories.iter().map(directory).collect::<Vec<_>>())
        .with("Snapshots", snapshots)
}

/// Datanodes in Hadoop's form: a JSON object in a string, by `host:port`.
fn nodes(datanodes: &[DatanodeReport], now_ms: u64) -> String {
    let mut object = Map::new();
    for DatanodeReport { info, software_version, failed_volumes, scheduled } in datanodes {
        let percent = if info.capacity == 0 { 0.0 } else { info.block_pool_used as f64 * 100.0 / info.capacity as f64 };
        let seconds_since = |then_ms: u64| now_ms.saturating_sub(then_ms) / 1000;
        object.insert(
            format!("{}:{}", info.id.host_name, info.id.transfer_port),
            json!({
                "infoAddr": format!("{}:{}", info.id.ip, info.id.info_port),
                "infoSecureAddr": format!("{}:0", info.id.ip),
                "xferaddr": info.id.transfer_address(),
                "location": info.location,
                "adminState": info.admin_state.to_string(),
                "decommissioned": info.admin_state == DatanodeAdminState::Decommissioned,
                "lastContact": seconds_since(info.last_update_ms),
                // In minutes, like Apache.
                "lastBlockReport": seconds_since(info.last_block_report_ms) / 60,
                "usedSpace": info.dfs_used,
                "nonDfsUsedSpace": info.non_dfs_used,
                "capacity": info.capacity,
                "numBlocks": info.block_count,
                "used": info.dfs_used,
                "remaining": info.remaining,
                "blockScheduled": scheduled,
                "blockPoolUsed": info.block_pool_used,
                "blockPoolUsedPercent": percent,
                "blockPoolUsedPercentStdDev": 0.0,
                "volfails": failed_volumes,
                "version": software_version,
            }),
        );
    }
    Value::Object(object).to_string()
}
