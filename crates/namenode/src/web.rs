//! Web pages of the NameNode.

mod interface;
mod probes;
pub mod sampler;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hearth_config::{Configuration, Program};
use hearth_web::axum::http::HeaderMap;
use hearth_web::log_level::INTERFACE_PATH as LOG_LEVEL;
use hearth_web::{ConfEntry, History, Page, Protection, Query, Server, Site, configuration_findings, size};

use crate::blocks::{DatanodeFilter, DatanodeReport};
use crate::fsck::{FsckRequest, fsck};
use crate::image::image_transfer;
use crate::jmx;
use crate::metrics::{CallMetrics, metrics};
use crate::service::Webhdfs;
use crate::state::Namenode;

pub use probes::Loading;

/// Returns the pages. `rpc`: the address of the RPC port for clients. `loading`: how the namespace was read. `history`:
/// the samples that [`sampler::run`] takes.
pub fn site(
    namenode: Arc<Namenode>,
    rpc: SocketAddr,
    calls: CallMetrics,
    webhdfs: Arc<Webhdfs>,
    conf: &Configuration,
    loading: Loading,
    history: Arc<History>,
) -> Site {
    let protection = namenode.protection.clone();
    let in_force = namenode.clone();
    let started_ms = namenode.clock.wall_ms();
    let shared = namenode.clone();
    let front = {
        let namenode = namenode.clone();
        move || front(&namenode, rpc)
    };
    let [checked, counted, copied] = [(); 3].map(|()| namenode.clone());
    let counted_calls = calls.clone();
    let site = Site::new(
        front,
        move || jmx::beans(&namenode, rpc, &calls, started_ms),
        move || ConfEntry::all(&in_force.reconfiguration.configuration()),
        move || metrics(&counted, &counted_calls),
    )
    .page("/fsck", move |query, peer, telling| {
        let request = FsckRequest::from_query(&query, &peer.to_string(), &checked.settings.http_user);
        fsck(checked.clone(), request, telling)
    })
    .file("/imagetransfer", move |query| image_transfer(copied.clone(), query))
    .webhdfs(webhdfs);
    let findings = configuration_findings(conf, Program::Namenode);
    let site = with_interface(site, &shared, rpc, started_ms, &protection, history);
    let site = site.data("/ui/findings", move |_, _| {
        let findings = findings.clone();
        async move { Ok(findings) }
    });
    with_probes(site, &shared, loading).protection(protection)
}

/// Adds the user interface and its data.
fn with_interface(
    site: Site,
    namenode: &Arc<Namenode>,
    rpc: SocketAddr,
    started_ms: u64,
    protection: &Protection,
    history: Arc<History>,
) -> Site {
    let protection = Arc::new(protection.clone());
    let [for_session, for_overview, for_datanodes, for_problems, for_open_files, for_users, for_log] =
        [(); 7].map(|()| namenode.clone());
    let [for_levels, for_change, for_reset] = [(); 3].map(|()| namenode.clone());
    site.interface(Server::Namenode)
        .data("/ui/session", move |query: Query, peer: IpAddr| {
            interface::session(for_session.clone(), protection.clone(), query, peer)
        })
        .data("/ui/overview", move |_, _| {
            let namenode = for_overview.clone();
            async move { Ok(interface::overview(&namenode, rpc, started_ms)) }
        })
        .data("/ui/datanodes", move |query: Query, _| {
            let namenode = for_datanodes.clone();
            async move { interface::datanodes(&namenode, &query) }
        })
        .data("/ui/problems", move |query: Query, peer: IpAddr| interface::problems(for_problems.clone(), query, peer))
        .data("/ui/open-files", move |query: Query, peer: IpAddr| {
            interface::open_files(for_open_files.clone(), query, peer)
        })
        .data("/ui/users", move |_, _| {
            let namenode = for_users.clone();
            async move { Ok(interface::users(&namenode)) }
        })
        .data("/ui/log", move |query: Query, peer: IpAddr| interface::log(for_log.clone(), query, peer))
        .data(LOG_LEVEL, move |query: Query, peer: IpAddr| interface::log_levels(for_levels.clone(), query, peer))
        .put(LOG_LEVEL, move |query: Query, peer: IpAddr| interface::set_log_level(for_change.clone(), query, peer))
        .delete(LOG_LEVEL, move |query: Query, peer: IpAddr| interface::reset_log_level(for_reset.clone(), query, peer))
        .data("/ui/history", move |_, _| {
            let history = history.clone();
            async move { Ok(history.json()) }
        })
}

/// Adds the pages of Apache's NameNode that tools ask for.
fn with_probes(site: Site, namenode: &Arc<Namenode>, loading: Loading) -> Site {
    let (for_topology, for_progress) = (namenode.clone(), namenode.clone());
    site.document("/isActive", probes::is_active)
        .document("/topology", move |headers: &HeaderMap| probes::topology(&for_topology, headers))
        .document("/startupProgress", move |_: &HeaderMap| probes::startup_progress(&for_progress, loading))
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
