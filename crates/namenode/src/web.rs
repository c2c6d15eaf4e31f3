//! Web pages of the NameNode.

use std::net::SocketAddr;
use std::sync::Arc;

use hearth_config::Configuration;
use hearth_web::{ConfEntry, Page, Site, size};

use crate::blocks::{DatanodeFilter, DatanodeReport};
use crate::fsck::{FsckRequest, fsck};
use crate::jmx;
use crate::metrics::{CallMetrics, metrics};
use crate::service::Webhdfs;
use crate::state::Namenode;

/// `rpc`: the address of the RPC port for clients.
pub fn site(
    namenode: Arc<Namenode>,
    rpc: SocketAddr,
    calls: CallMetrics,
    webhdfs: Arc<Webhdfs>,
    conf: &Configuration,
) -> Site {
    let entries = ConfEntry::all(conf);
    let started_ms = namenode.clock.wall_ms();
    let front = {
        let namenode = namenode.clone();
        move || front(&namenode, rpc)
    };
    let (checked, counted) = (namenode.clone(), namenode.clone());
    let counted_calls = calls.clone();
    Site::new(
        front,
        move || jmx::beans(&namenode, rpc, &calls, started_ms),
        move || entries.clone(),
        move || metrics(&counted, &counted_calls),
    )
    .page("/fsck", move |query, peer, telling| {
        let request = FsckRequest::from_query(&query, &peer.to_string(), &checked.settings.http_user);
        fsck(checked.clone(), request, telling)
    })
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
