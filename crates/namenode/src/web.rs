//! What the NameNode shows over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use hearth_config::Configuration;
use hearth_web::{Bean, ConfEntry, Site};
use prometheus_client::registry::Registry;

use crate::blocks::DatanodeFilter;
use crate::datanode_service::SOFTWARE_VERSION;
use crate::fsck::{FsckRequest, fsck};
use crate::state::Namenode;

pub fn site(namenode: Arc<Namenode>, rpc: SocketAddr, conf: &Configuration) -> Site {
    let entries: Vec<ConfEntry> = conf
        .entries()
        .into_iter()
        .map(|entry| ConfEntry {
            key: entry.name.to_owned(),
            value: entry.value.to_owned(),
            is_final: entry.is_final,
            source: entry.source.to_string(),
        })
        .collect();
    let front = {
        let namenode = namenode.clone();
        move || front(&namenode, rpc)
    };
    let checked = namenode.clone();
    Site::new(front, move || beans(&namenode, rpc), move || entries.clone(), Registry::default()).page(
        "/fsck",
        // Who asks over HTTP is not known by address here; Apache's prints it.
        move |query| fsck(checked.clone(), FsckRequest::from_query(&query, "-")),
    )
}

fn front(namenode: &Namenode, rpc: SocketAddr) -> String {
    let state = namenode.read();
    let figures = state.blocks.figures(namenode.now());
    format!(
        "<!doctype html><title>Hearth NameNode</title><h1>Hearth NameNode</h1>\
         <p>hdfs://{rpc}, cluster {}, pool {}</p>\
         <p>{} files, {} blocks, {} live and {} dead DataNodes, {} of {} bytes used{}</p>\
         <p><a href=\"/jmx\">/jmx</a> <a href=\"/conf\">/conf</a> <a href=\"/metrics\">/metrics</a></p>",
        namenode.identity.cluster_id,
        namenode.identity.pool,
        state.namespace.file_count(),
        state.namespace.block_count(),
        figures.live_nodes,
        figures.dead_nodes,
        figures.used,
        figures.capacity,
        if state.blocks.in_safe_mode() { ", in safe mode" } else { "" },
    )
}

/// The beans that monitoring and Apache's own tools read.
fn beans(namenode: &Namenode, rpc: SocketAddr) -> Vec<Bean> {
    let now = namenode.now();
    let state = namenode.read();
    let figures = state.blocks.figures(now);
    let safe_mode = state.blocks.in_safe_mode();
    let common = |bean: Bean| {
        bean.with("CapacityTotal", figures.capacity)
            .with("CapacityUsed", figures.used)
            .with("CapacityRemaining", figures.remaining)
            .with("TotalLoad", figures.load)
            .with("BlocksTotal", figures.blocks)
            .with("FilesTotal", state.namespace.inode_count())
            .with("PendingReplicationBlocks", figures.pending_replication)
            .with("UnderReplicatedBlocks", figures.low_redundancy)
            .with("LowRedundancyBlocks", figures.low_redundancy)
            .with("PendingDeletionBlocks", figures.pending_deletion)
            .with("CorruptBlocks", figures.corrupt)
            .with("MissingBlocks", figures.missing)
            .with("MissingReplOneBlocks", figures.missing_with_replication_one)
            .with("NumLiveDataNodes", figures.live_nodes)
            .with("NumDeadDataNodes", figures.dead_nodes)
            .with("NumStaleDataNodes", figures.stale_nodes)
            .with("NumDecommissioningDataNodes", figures.decommissioning_nodes)
            .with("NumFilesUnderConstruction", state.leases.file_count())
            .with("NumActiveClients", state.leases.holder_count())
    };
    let fs_state = if safe_mode { "safeMode" } else { "Operational" };
    vec![
        common(Bean::new("Hadoop:service=NameNode,name=FSNamesystemState").with("FSState", fs_state)),
        common(Bean::new("Hadoop:service=NameNode,name=FSNamesystem").with("tag.HAState", "active")),
        Bean::new("Hadoop:service=NameNode,name=NameNodeStatus")
            .with("State", "active")
            .with("NNRole", "NameNode")
            .with("HostAndPort", rpc.to_string())
            .with("SecurityEnabled", false),
        Bean::new("Hadoop:service=NameNode,name=NameNodeInfo")
            .with("Version", format!("{SOFTWARE_VERSION}, Hearth {}", env!("CARGO_PKG_VERSION")))
            .with("SoftwareVersion", SOFTWARE_VERSION)
            .with("Used", figures.used)
            .with("Free", figures.remaining)
            .with("Total", figures.capacity)
            .with("NonDfsUsedSpace", figures.non_dfs_used)
            .with("BlockPoolUsedSpace", figures.block_pool_used)
            .with("ClusterId", namenode.identity.cluster_id.clone())
            .with("BlockPoolId", namenode.identity.pool.as_str())
            .with("Safemode", if safe_mode { state.blocks.safe_mode_tip(now) } else { String::new() })
            .with("UpgradeFinalized", true)
            .with("TotalBlocks", figures.blocks)
            .with("NumberOfMissingBlocks", figures.missing)
            .with("NumberOfMissingBlocksWithReplicationFactorOne", figures.missing_with_replication_one)
            .with("LiveNodes", nodes(&state.blocks.datanodes(DatanodeFilter::Live), now.wall_ms))
            .with("DeadNodes", nodes(&state.blocks.datanodes(DatanodeFilter::Dead), now.wall_ms)),
    ]
}

/// Datanodes as Hadoop shows them there: a JSON object in a string, by `host:port`.
fn nodes(datanodes: &[(hearth_types::DatanodeInfo, Vec<hearth_types::StorageReport>)], now_ms: u64) -> String {
    let mut object = serde_json::Map::new();
    for (info, storages) in datanodes {
        let percent = if info.capacity == 0 { 0.0 } else { info.block_pool_used as f64 * 100.0 / info.capacity as f64 };
        object.insert(
            format!("{}:{}", info.id.host_name, info.id.transfer_port),
            serde_json::json!({
                "infoAddr": format!("{}:{}", info.id.ip, info.id.info_port),
                "xferaddr": info.id.transfer_address(),
                "location": info.location,
                "lastContact": now_ms.saturating_sub(info.last_update_ms) / 1000,
                "usedSpace": info.dfs_used,
                "nonDfsUsedSpace": info.non_dfs_used,
                "capacity": info.capacity,
                "numBlocks": info.block_count,
                "used": info.dfs_used,
                "remaining": info.remaining,
                "blockPoolUsed": info.block_pool_used,
                "blockPoolUsedPercent": percent,
                "volfails": storages.iter().filter(|storage| storage.failed).count(),
                "version": SOFTWARE_VERSION,
            }),
        );
    }
    serde_json::Value::Object(object).to_string()
}
