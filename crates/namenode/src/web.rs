//! Web pages and metrics of the NameNode.

use std::net::SocketAddr;
use std::sync::Arc;

use hearth_config::Configuration;
use hearth_web::{ConfEntry, Metric, Page, Site, size};

use crate::blocks::{DatanodeFilter, DatanodeReport};
use crate::fsck::{FsckRequest, fsck};
use crate::image::image_transfer;
use crate::jmx;
use crate::service::Webhdfs;
use crate::state::Namenode;

pub fn site(namenode: Arc<Namenode>, rpc: SocketAddr, webhdfs: Arc<Webhdfs>, conf: &Configuration) -> Site {
    let entries = ConfEntry::all(conf);
    let started_ms = namenode.clock.wall_ms();
    let front = {
        let namenode = namenode.clone();
        move || front(&namenode, rpc)
    };
    let (checked, counted, copied) = (namenode.clone(), namenode.clone(), namenode.clone());
    Site::new(front, move || jmx::beans(&namenode, rpc, started_ms), move || entries.clone(), move || figures(&counted))
        .page("/fsck", move |query, peer, telling| {
            let request = FsckRequest::from_query(&query, &peer.to_string(), &checked.settings.http_user);
            fsck(checked.clone(), request, telling)
        })
        .file("/imagetransfer", move |query| image_transfer(copied.clone(), query))
        .webhdfs(webhdfs)
}

fn front(namenode: &Namenode, rpc: SocketAddr) -> String {
    let now = namenode.now();
    let state = namenode.read();
    let figures = state.blocks.cluster_statistics(now);
    let datanodes: Vec<Vec<String>> = state
        .blocks
        .datanode_reports(DatanodeFilter::All)
        .into_iter()
        .map(|DatanodeReport { info, software_version, failed_volumes, .. }| {
            vec![
                format!("{}:{}", info.id.host_name, info.id.transfer_port),
                info.location,
                format!("{} s ago", now.wall_ms.saturating_sub(info.last_update_ms) / 1000),
                format!("{} of {}", size(info.dfs_used), size(info.capacity)),
                info.block_count.to_string(),
                failed_volumes.to_string(),
                software_version,
            ]
        })
        .collect();
    Page::new("Hearth NameNode")
        .facts(&[
            ("File system", format!("hdfs://{rpc}")),
            ("Cluster", namenode.identity.cluster_id.clone()),
            ("Block pool", namenode.identity.pool.to_string()),
            (
                "State",
                if state.blocks.in_safe_mode() { state.blocks.safe_mode_tip(now) } else { "in service".to_owned() },
            ),
            ("Files and blocks", format!("{}, {}", state.namespace.file_count(), state.namespace.block_count())),
            ("Used", format!("{} of {}", size(figures.used), size(figures.capacity))),
            (
                "Blocks to repair",
                format!(
                    "{} too few replicas, {} corrupt, {} missing",
                    figures.low_redundancy, figures.corrupt, figures.missing
                ),
            ),
        ])
        .table(
            "DataNodes",
            &["address", "rack", "last heartbeat", "used", "blocks", "failed storage directories", "version"],
            &datanodes,
        )
        .html(&["/fsck"])
}

/// Returns the metrics for `/metrics`.
fn figures(namenode: &Namenode) -> Vec<Metric> {
    let state = namenode.read();
    let figures = state.blocks.cluster_statistics(namenode.now());
    let advertised = state.blocks.advertisement_statistics();
    let (snapshots, snapshottable) = state.namespace.snapshot_counts();
    let (gauge, counter) = (Metric::gauge, Metric::counter);
    vec![
        gauge("hearth_namenode_files", "Files", state.namespace.file_count()),
        gauge("hearth_namenode_inodes", "Files and directories", state.namespace.inode_count()),
        gauge("hearth_namenode_blocks", "Blocks", figures.blocks),
        gauge("hearth_namenode_files_being_written", "Files being written", state.leases.file_count() as u64),
        gauge("hearth_namenode_writers", "Clients with files open for writing", state.leases.holder_count() as u64),
        gauge("hearth_namenode_capacity_bytes", "Capacity of live DataNodes", figures.capacity),
        gauge("hearth_namenode_used_bytes", "Capacity used by replicas", figures.used),
        gauge("hearth_namenode_remaining_bytes", "Free capacity", figures.remaining),
        gauge("hearth_namenode_low_redundancy_blocks", "Blocks with too few replicas", figures.low_redundancy),
        gauge("hearth_namenode_corrupt_blocks", "Blocks with a corrupt replica", figures.corrupt),
        gauge("hearth_namenode_missing_blocks", "Blocks without a readable replica", figures.missing),
        gauge("hearth_namenode_pending_copies", "Blocks with pending replicas", figures.pending_replication),
        gauge("hearth_namenode_pending_deletions", "Replicas yet to be deleted", figures.pending_deletion),
        gauge("hearth_namenode_live_datanodes", "DataNodes alive", figures.live_nodes as u64),
        gauge("hearth_namenode_dead_datanodes", "DataNodes dead", figures.dead_nodes as u64),
        gauge("hearth_namenode_stale_datanodes", "DataNodes without a recent heartbeat", figures.stale_nodes as u64),
        gauge(
            "hearth_namenode_leaving_datanodes",
            "Live DataNodes that are decommissioning or decommissioned",
            (figures.decommissioning_nodes + figures.decommissioned_nodes) as u64,
        ),
        gauge(
            "hearth_namenode_maintained_datanodes",
            "DataNodes in maintenance, alive or not, or entering it",
            (figures.entering_maintenance_nodes + figures.in_maintenance_nodes + figures.dead_in_maintenance_nodes)
                as u64,
        ),
        gauge(
            "hearth_namenode_cache_capacity_bytes",
            "Memory that live DataNodes can use to lock replicas",
            figures.cache_capacity,
        ),
        gauge("hearth_namenode_cache_used_bytes", "Locked memory", figures.cache_used),
        gauge("hearth_namenode_failed_volumes", "Failed storage directories of live DataNodes", figures.failed_volumes),
        gauge("hearth_namenode_load", "Operations that DataNodes are running", figures.load),
        gauge("hearth_namenode_advertisements", "Replicas whose memory is advertised to readers", advertised.kept),
        gauge("hearth_namenode_advertisement_bytes", "Bytes of the kept advertisements", advertised.bytes),
        counter(
            "hearth_namenode_advertisements_refused",
            "Advertisements refused for lack of room",
            advertised.refused,
        ),
        counter("hearth_namenode_advertisements_handed_on", "Advertisements sent to readers", advertised.served),
        gauge("hearth_namenode_snapshots", "Snapshots", snapshots as u64),
        gauge("hearth_namenode_snapshottable_directories", "Snapshottable directories", snapshottable as u64),
        gauge("hearth_namenode_safe_mode", "1 in safe mode", u64::from(state.blocks.in_safe_mode())),
    ]
}
