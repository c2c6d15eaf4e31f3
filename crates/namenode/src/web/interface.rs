//! Data of the user interface, at `/ui/...`. It is the user's who is named by `user.name`, like WebHDFS.
//!
//! Everything here comes from memory, so that a slow disk delays no page. Lists are cut, and tell how much there is.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hearth_types::{BlockId, DatanodeAdminState, StorageReport};
use hearth_web::webhdfs::{Exception, USER_NAME, checked_user};
use hearth_web::{Protection, Query, log_level, log_lines};
use serde_json::{Value, json};

use crate::blocks::{DatanodeFilter, DatanodeReport, Now};
use crate::datanode_service::SOFTWARE_VERSION;
use crate::error::Error;
use crate::namespace::{Caller, InodeId};
use crate::state::{Namenode, State};

/// Maximum number of DataNodes in an answer.
const DATANODES_MAX: usize = 500;
/// Maximum number of blocks of each kind in the answer about problems.
const PROBLEMS_MAX: usize = 100;

type Answer = Result<Value, Exception>;

/// Returns the user who acts in the name of a request.
async fn caller(namenode: &Namenode, query: &Query, peer: IpAddr) -> Result<Caller, Exception> {
    let named = query.get(USER_NAME).map(String::as_str).filter(|user| !user.is_empty());
    let user = checked_user(named)?.unwrap_or(&namenode.settings.http_user);
    let rights = namenode.groups.rights(user).await;
    let machine = peer.to_string().into();
    Ok(Caller { user: user.into(), groups: rights.groups, superuser: rights.superuser, machine })
}

/// Tells who acts, and what the server allows.
pub async fn session(namenode: Arc<Namenode>, protection: Arc<Protection>, query: Query, peer: IpAddr) -> Answer {
    let caller = caller(&namenode, &query, peer).await?;
    Ok(json!({
        "user": &*caller.user,
        "superuser": caller.superuser,
        // As over RPC, the name is a claim.
        "verified": false,
        "readOnly": protection.is_read_only(),
        "requiredHeader": protection.required_header(),
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// The figures of the overview. `started_ms`: start of service, in milliseconds since the epoch.
pub fn overview(namenode: &Namenode, rpc: SocketAddr, started_ms: u64) -> Value {
    let now = namenode.now();
    let directory = namenode.store.directory().path().display().to_string();
    let slow = namenode.slow_nodes.counts(now.monotonic);
    let state = namenode.read();
    let figures = state.blocks.cluster_statistics(now);
    let advertised = state.blocks.advertisement_statistics();
    let (snapshots, snapshottable) = state.namespace.snapshot_counts();
    let (files, inodes) = (state.namespace.file_count(), state.namespace.inode_count());
    let media: Vec<Value> = state
        .blocks
        .statistics_by_storage_type()
        .into_iter()
        .map(|(medium, figures)| {
            json!({
                "medium": medium.name(),
                "total": figures.capacity,
                "used": figures.used,
                "remaining": figures.remaining,
                "datanodes": figures.in_service_nodes,
            })
        })
        .collect();
    json!({
        "nowMs": now.wall_ms,
        "startedMs": started_ms,
        "state": "active",
        "safeMode": { "on": state.blocks.in_safe_mode(), "tip": state.blocks.safe_mode_tip(now) },
        "version": env!("CARGO_PKG_VERSION"),
        "softwareVersion": SOFTWARE_VERSION,
        "fileSystem": format!("hdfs://{rpc}"),
        "hostName": namenode.settings.host_name,
        "clusterId": namenode.identity.cluster_id,
        "blockPoolId": namenode.identity.pool.as_str(),
        "store": { "directory": directory },
        "files": files,
        "directories": inodes.saturating_sub(files),
        "blocks": figures.blocks,
        "openFiles": state.leases.file_count(),
        "writers": state.leases.holder_count(),
        "capacity": {
            "total": figures.capacity,
            "used": figures.used,
            "nonDfsUsed": figures.non_dfs_used,
            "remaining": figures.remaining,
        },
        "media": media,
        "cache": { "capacity": figures.cache_capacity, "used": figures.cache_used },
        "advertised": { "replicas": advertised.kept, "bytes": advertised.bytes },
        "redundancy": {
            "low": figures.low_redundancy,
            "highestPriority": figures.highest_priority_low_redundancy,
            "corrupt": figures.corrupt,
            "missing": figures.missing,
            "missingWithReplicationOne": figures.missing_with_replication_one,
            "pending": figures.pending_replication,
            "scheduled": figures.scheduled,
            "pendingDeletion": figures.pending_deletion,
        },
        "datanodes": {
            "live": figures.live_nodes,
            "dead": figures.dead_nodes,
            "stale": figures.stale_nodes,
            "decommissioning": figures.decommissioning_nodes,
            "decommissioned": figures.decommissioned_nodes,
            "enteringMaintenance": figures.entering_maintenance_nodes,
            "inMaintenance": figures.in_maintenance_nodes,
            "deadInMaintenance": figures.dead_in_maintenance_nodes,
            "failedVolumes": figures.failed_volumes,
            "load": figures.load,
        },
        "snapshots": { "directories": snapshottable, "snapshots": snapshots },
        "slow": { "datanodes": slow.datanodes, "disks": slow.disks },
    })
}

/// DataNodes that a page shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Live,
    Dead,
    /// Decommissioning or decommissioned.
    Leaving,
    /// In maintenance or entering it.
    Maintenance,
    FailedVolumes,
}

impl NodeState {
    fn parse(name: Option<&str>) -> Result<Self, Exception> {
        Ok(match name {
            None | Some("live") => Self::Live,
            Some("dead") => Self::Dead,
            Some("decommissioning") => Self::Leaving,
            Some("maintenance") => Self::Maintenance,
            Some("failed-volumes") => Self::FailedVolumes,
            Some(other) => {
                let wanted = "wanted live, dead, decommissioning, maintenance or failed-volumes";
                return Err(Exception::illegal_argument(format!("state={other}: {wanted}")));
            }
        })
    }

    /// The lists in which such DataNodes are, and whether these are dead.
    fn lists(self) -> &'static [(DatanodeFilter, bool)] {
        const LIVE: (DatanodeFilter, bool) = (DatanodeFilter::Live, false);
        const DEAD: (DatanodeFilter, bool) = (DatanodeFilter::Dead, true);
        match self {
            Self::Live => &[LIVE],
            Self::Dead => &[DEAD],
            Self::Leaving | Self::Maintenance | Self::FailedVolumes => &[LIVE, DEAD],
        }
    }

    fn includes(self, report: &DatanodeReport) -> bool {
        use DatanodeAdminState::{DecommissionInProgress, Decommissioned, EnteringMaintenance, InMaintenance};
        match self {
            Self::Live | Self::Dead => true,
            Self::Leaving => matches!(report.info.admin_state, DecommissionInProgress | Decommissioned),
            Self::Maintenance => matches!(report.info.admin_state, EnteringMaintenance | InMaintenance),
            Self::FailedVolumes => report.failed_volumes > 0,
        }
    }
}

/// Returns a number of the query; `otherwise` if it is absent.
fn number(query: &Query, name: &str, otherwise: u64) -> Result<u64, Exception> {
    match query.get(name).filter(|text| !text.is_empty()) {
        None => Ok(otherwise),
        Some(text) => {
            text.parse().map_err(|_| Exception::illegal_argument(format!("{name}={text}: wanted a whole number")))
        }
    }
}

/// Lists DataNodes. Parameters: `state`, see [`NodeState`]; `find`, a part of a name, address or rack; `offset` and
/// `limit`.
pub fn datanodes(namenode: &Namenode, query: &Query) -> Answer {
    let wanted = NodeState::parse(query.get("state").map(String::as_str))?;
    let offset = usize::try_from(number(query, "offset", 0)?).unwrap_or(usize::MAX);
    let limit = usize::try_from(number(query, "limit", 100)?).unwrap_or(DATANODES_MAX).min(DATANODES_MAX);
    let find = query.get("find").map(|text| text.to_lowercase()).unwrap_or_default();
    let now = namenode.now();
    let mut found = Vec::new();
    {
        let state = namenode.read();
        for (filter, is_dead) in wanted.lists() {
            // Both lists have the same order.
            let storages = state.blocks.datanodes(*filter).into_iter().map(|(_, storages)| storages);
            let reports = state.blocks.datanode_reports(*filter).into_iter().zip(storages);
            let chosen = reports.filter(|(report, _)| wanted.includes(report) && is_named(report, &find));
            found.extend(chosen.map(|(report, storages)| (report, storages, *is_dead)));
        }
    }
    let stale_after_ms = namenode.settings.blocks.stale_after().as_millis() as u64;
    let total = found.len();
    let rows: Vec<Value> = found
        .iter()
        .skip(offset)
        .take(limit)
        .map(|(report, storages, is_dead)| datanode(report, storages, *is_dead, now, stale_after_ms))
        .collect();
    Ok(json!({ "total": total, "offset": offset, "datanodes": rows }))
}

/// `find`: in lower case.
fn is_named(report: &DatanodeReport, find: &str) -> bool {
    let id = &report.info.id;
    let names = [&format!("{}:{}", id.host_name, id.transfer_port), &id.transfer_address(), &report.info.location];
    names.iter().any(|name| name.to_lowercase().contains(find))
}

fn datanode(
    report: &DatanodeReport,
    storages: &[StorageReport],
    is_dead: bool,
    now: Now,
    stale_after_ms: u64,
) -> Value {
    let DatanodeReport { info, software_version, failed_volumes, scheduled } = report;
    // A DataNode of the hosts file that has never come has no time.
    let silent_ms = (info.last_update_ms > 0).then(|| now.wall_ms.saturating_sub(info.last_update_ms));
    let state = match silent_ms {
        _ if is_dead => "dead",
        Some(silent_ms) if silent_ms < stale_after_ms => "live",
        _ => "stale",
    };
    let storages: Vec<Value> = storages
        .iter()
        .map(|storage| {
            json!({
                "id": storage.storage.to_string(),
                "medium": storage.storage_type.name(),
                "failed": storage.failed,
                "capacity": storage.capacity,
                "used": storage.dfs_used,
                "remaining": storage.remaining,
            })
        })
        .collect();
    json!({
        "name": format!("{}:{}", info.id.host_name, info.id.transfer_port),
        "address": info.id.transfer_address(),
        "web": web_address(&info.id.ip, info.id.info_port),
        "rack": info.location,
        "state": state,
        "adminState": info.admin_state.to_string(),
        "lastContactSeconds": silent_ms.map(|silent_ms| silent_ms / 1000),
        "capacity": info.capacity,
        "used": info.dfs_used,
        "nonDfsUsed": info.non_dfs_used,
        "remaining": info.remaining,
        "blocks": info.block_count,
        "load": info.xceiver_count,
        "scheduled": scheduled,
        "cacheCapacity": info.cache_capacity,
        "cacheUsed": info.cache_used,
        "failedVolumes": failed_volumes,
        "version": software_version,
        "storages": storages,
    })
}

/// Returns the address of a DataNode's pages; `None` if its web port is unknown.
fn web_address(ip: &str, port: u16) -> Option<String> {
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    (port != 0).then(|| format!("http://{host}:{port}"))
}

/// Lists blocks that need repair, with their files. As in `/jmx`, all users see the missing ones; superusers see all.
pub async fn problems(namenode: Arc<Namenode>, query: Query, peer: IpAddr) -> Answer {
    let caller = caller(&namenode, &query, peer).await?;
    let now = namenode.now();
    let slow = namenode.slow_nodes.shown(PROBLEMS_MAX, now.monotonic);
    let state = namenode.read();
    let figures = state.blocks.cluster_statistics(now);
    let sees_all = state.namespace.require_superuser(&caller, "problems").is_ok();
    let rows = |blocks: Vec<BlockId>| -> Vec<Value> {
        blocks.into_iter().filter_map(|block| problem(&state, block, now)).collect()
    };
    let missing = rows(state.blocks.missing_blocks(None, PROBLEMS_MAX));
    let corrupt = sees_all.then(|| rows(state.blocks.corrupt_blocks(PROBLEMS_MAX)));
    let low = sees_all.then(|| rows(state.blocks.low_redundancy_blocks(PROBLEMS_MAX)));
    Ok(json!({
        "safeMode": state.blocks.in_safe_mode(),
        // Until then, no block counts as missing.
        "starting": state.blocks.in_startup_safe_mode(),
        "missing": { "count": figures.missing, "blocks": missing },
        "corrupt": { "count": figures.corrupt, "blocks": corrupt },
        "lowRedundancy": { "count": figures.low_redundancy, "blocks": low },
        "slow": slow,
    }))
}

fn problem(state: &State, block: BlockId, now: Now) -> Option<Value> {
    let report = state.blocks.block_report(block, now)?;
    let path = state.namespace.slot(InodeId(report.inode)).map(|slot| state.namespace.path_of(slot));
    Some(json!({
        "block": block.to_string(),
        // None: only snapshots have the file.
        "path": path,
        "live": report.live,
        "replication": report.replication,
        "corrupt": report.corrupt,
    }))
}

/// Lists files that are open for writing, after the one with the number `after`, for superusers.
pub async fn open_files(namenode: Arc<Namenode>, query: Query, peer: IpAddr) -> Answer {
    let caller = caller(&namenode, &query, peer).await?;
    let after = number(&query, "after", 0)?;
    let now = namenode.now();
    let state = namenode.read();
    state.namespace.require_superuser(&caller, "listOpenFiles").map_err(exception)?;
    let limit = namenode.settings.open_files_max;
    // One more shows that there are more.
    let found = state.leases.open_files_after(InodeId(after), limit.saturating_add(1));
    let has_more = found.len() > limit;
    let shown = &found[..found.len().min(limit)];
    let files: Vec<Value> = shown
        .iter()
        .filter_map(|(id, holder)| {
            let slot = state.namespace.slot(*id)?;
            let writer = state.namespace.inode(slot).as_file().and_then(|file| file.writer());
            Some(json!({
                "id": id.0,
                "path": state.namespace.path_of(slot),
                "holder": &**holder,
                "machine": writer.map(|writer| &*writer.machine),
                "idleSeconds": state.leases.idle(holder, now.monotonic).map(|idle| idle.as_secs()),
            }))
        })
        .collect();
    let limits = state.leases.limits();
    Ok(json!({
        "total": state.leases.file_count(),
        "holders": state.leases.holder_count(),
        "softLimitSeconds": limits.soft.as_secs(),
        "hardLimitSeconds": limits.hard.as_secs(),
        "files": files,
        "hasMore": has_more,
        "next": shown.last().map_or(after, |(id, _)| id.0),
    }))
}

/// Lists the users with the most calls in each window. As in `/jmx`, all users see them.
pub fn users(namenode: &Namenode) -> Value {
    json!({ "windows": namenode.top_users.json() })
}

/// Returns the user of a request. Error: the user is not a superuser.
async fn superuser(
    namenode: &Namenode,
    query: &Query,
    peer: IpAddr,
    operation: &'static str,
) -> Result<Caller, Exception> {
    let caller = caller(namenode, query, peer).await?;
    namenode.read().namespace.require_superuser(&caller, operation).map_err(exception)?;
    Ok(caller)
}

/// Returns lines of the log from number `from` on, for superusers.
pub async fn log(namenode: Arc<Namenode>, query: Query, peer: IpAddr) -> Answer {
    superuser(&namenode, &query, peer, "log").await?;
    Ok(log_lines(number(&query, "from", 0)?))
}

/// Returns the levels of the log, for superusers.
pub async fn log_levels(namenode: Arc<Namenode>, query: Query, peer: IpAddr) -> Answer {
    superuser(&namenode, &query, peer, "log").await?;
    log_level::shown("superusers")
}

/// Changes a level of the log, for superusers.
pub async fn set_log_level(namenode: Arc<Namenode>, query: Query, peer: IpAddr) -> Answer {
    let caller = superuser(&namenode, &query, peer, "setLogLevel").await?;
    log_level::change(query, caller.user.to_string()).await
}

/// Takes changes of levels back, for superusers.
pub async fn reset_log_level(namenode: Arc<Namenode>, query: Query, peer: IpAddr) -> Answer {
    let caller = superuser(&namenode, &query, peer, "resetLogLevel").await?;
    log_level::reset(query, caller.user.to_string()).await
}

fn exception(error: Error) -> Exception {
    Exception::new(error.class(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_datanodes_are_links() {
        assert_eq!(web_address("10.0.0.1", 9864).as_deref(), Some("http://10.0.0.1:9864"));
        assert_eq!(web_address("::1", 9864).as_deref(), Some("http://[::1]:9864"));
        assert_eq!(web_address("10.0.0.1", 0), None);
    }

    #[test]
    fn invalid_parameters_are_refused() {
        let query = |name: &str, value: &str| Query::from([(name.to_owned(), value.to_owned())]);
        assert_eq!(number(&query("after", "7"), "after", 0), Ok(7));
        assert_eq!(number(&query("after", ""), "after", 3), Ok(3));
        let refused = number(&query("after", "-1"), "after", 0).unwrap_err();
        assert!(refused.message.contains("after=-1"), "{refused}");
        assert!(NodeState::parse(Some("none")).is_err_and(|refused| refused.message.contains("state=none")));
    }
}
