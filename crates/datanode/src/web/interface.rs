//! Data of the user interface, at `/ui/...`. The NameNode's pages ask DataNodes for it, too.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hearth_types::{BlockId, BlockPoolId, ReplicaState};
use hearth_web::log_level::{check_administrator, is_of_administrator};
use hearth_web::webhdfs::{Exception, USER_NAME};
use hearth_web::{Protection, Query, log_level, log_lines};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::status;
use crate::datanode::Datanode;
use crate::namenode::SOFTWARE_VERSION;

/// Time for which a status is used again. Making it looks at every replica.
const STATUS_LIFETIME: Duration = Duration::from_secs(4);
/// Maximum number of replicas in a request.
const REPLICAS_MAX: usize = 200;
/// Maximum number of threads that look replicas up. They may wait for a disk.
const LOOKUPS_MAX: usize = 2;

type Answer = Result<Value, Exception>;

/// Tells who acts, and what the server allows.
pub fn session(protection: &Protection, query: &Query, peer: IpAddr) -> Value {
    json!({
        "user": user(query),
        // The user that runs the DataNode, or someone on its machine. The name is a claim.
        "administrator": is_of_administrator(query, peer),
        "readOnly": protection.is_read_only(),
        "requiredHeader": protection.required_header(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// Returns the user in a request's parameters; empty if it has none.
fn user(query: &Query) -> &str {
    query.get(USER_NAME).map_or("", String::as_str)
}

/// Returns lines of the log from number `from` on, for the user that runs the DataNode.
pub fn log(query: &Query, peer: IpAddr) -> Answer {
    check_administrator(query, peer)?;
    let from = query.get("from").map_or(Ok(0), |from| from.parse());
    Ok(log_lines(from.map_err(|_| Exception::illegal_argument("from: wanted a whole number"))?))
}

/// Returns the levels of the log, for the user that runs the DataNode.
pub fn log_levels(query: &Query, peer: IpAddr) -> Answer {
    check_administrator(query, peer)?;
    log_level::shown("the user that runs the DataNode, and users of its machine")
}

/// Changes a level of the log, for the user that runs the DataNode.
pub async fn set_log_level(query: Query, peer: IpAddr) -> Answer {
    check_administrator(&query, peer)?;
    let user = actor(&query, peer);
    log_level::change(query, user).await
}

/// Takes changes of levels back, for the user that runs the DataNode.
pub async fn reset_log_level(query: Query, peer: IpAddr) -> Answer {
    check_administrator(&query, peer)?;
    let user = actor(&query, peer);
    log_level::reset(query, user).await
}

/// Returns who asks, for a line of the log: the user, else the address.
fn actor(query: &Query, peer: IpAddr) -> String {
    match user(query) {
        "" => peer.to_string(),
        user => user.to_owned(),
    }
}

/// Source of the status, which is made by one thread at a time. If a disk hangs, only that thread is held.
pub struct StatusPage {
    datanode: Weak<Datanode>,
    permits: Arc<Semaphore>,
    /// The last status, and the monotonic time at which it was made.
    made: Mutex<Option<(Duration, Value)>>,
}

impl StatusPage {
    pub fn new(datanode: Weak<Datanode>) -> Arc<Self> {
        Arc::new(Self { datanode, permits: Arc::new(Semaphore::new(1)), made: Mutex::new(None) })
    }

    pub async fn answer(self: Arc<Self>) -> Answer {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| stopping())?;
        on_thread(move || {
            let _permit = permit;
            let datanode = self.datanode.upgrade().ok_or_else(stopping)?;
            let now = datanode.options.clock.monotonic();
            let kept = self.made.lock().clone();
            if let Some((at, value)) = kept
                && now.saturating_sub(at) < STATUS_LIFETIME
            {
                return Ok(value);
            }
            let value = status_of(&datanode);
            *self.made.lock() = Some((now, value.clone()));
            Ok(value)
        })
        .await
    }
}

/// Source of the states of replicas.
pub struct ReplicaPage {
    datanode: Weak<Datanode>,
    permits: Arc<Semaphore>,
}

impl ReplicaPage {
    pub fn new(datanode: Weak<Datanode>) -> Arc<Self> {
        Arc::new(Self { datanode, permits: Arc::new(Semaphore::new(LOOKUPS_MAX)) })
    }

    /// Tells where the bytes of replicas are. Parameters: `pool`; `blocks`, numbers separated by commas. Replicas that
    /// this DataNode does not have are left out.
    pub async fn answer(self: Arc<Self>, query: Query) -> Answer {
        let pool = query.get("pool").map(String::as_str).unwrap_or_default();
        let pool = BlockPoolId::new(pool);
        let blocks = block_numbers(query.get("blocks").map(String::as_str).unwrap_or_default())?;
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| stopping())?;
        on_thread(move || {
            let _permit = permit;
            let datanode = self.datanode.upgrade().ok_or_else(stopping)?;
            let mut found = Map::new();
            for block in blocks {
                let Some(replica) = datanode.replicas.store.replica(&pool, block) else { continue };
                let shown = json!({
                    "state": state_name(replica.state),
                    "length": replica.block.length,
                    "medium": replica.storage_type.name(),
                    "inMemory": replica.in_memory,
                    "onDisk": replica.on_disk,
                });
                found.insert(block.0.to_string(), shown);
            }
            Ok(json!({ "replicas": found }))
        })
        .await
    }
}

fn block_numbers(text: &str) -> Result<Vec<BlockId>, Exception> {
    let refused = |why: &str| Exception::illegal_argument(format!("blocks={text}: {why}"));
    let numbers = text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().map(BlockId));
    let numbers = numbers.collect::<Result<Vec<_>, _>>().map_err(|_| refused("wanted numbers separated by commas"))?;
    if numbers.len() > REPLICAS_MAX {
        return Err(Exception::illegal_argument(format!("at most {REPLICAS_MAX} blocks can be asked for")));
    }
    Ok(numbers)
}

/// Name of a state, as Hadoop's `ReplicaState` spells it.
fn state_name(state: ReplicaState) -> &'static str {
    match state {
        ReplicaState::Finalized => "FINALIZED",
        ReplicaState::BeingWritten => "RBW",
        ReplicaState::WaitingToBeRecovered => "RWR",
        ReplicaState::UnderRecovery => "RUR",
        ReplicaState::Temporary => "TEMPORARY",
    }
}

async fn on_thread(make: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    tokio::task::spawn_blocking(make).await.unwrap_or_else(|error| Err(Exception::io(error.to_string())))
}

fn stopping() -> Exception {
    Exception::io("the DataNode is stopping")
}

fn status_of(datanode: &Datanode) -> Value {
    let metrics = datanode.replicas.store.metrics();
    let counters = &datanode.replicas.metrics;
    let totals = counters.totals();
    let addresses = datanode.addresses();
    let one_sided = datanode.one_sided.as_ref();
    let registered = one_sided.map(|one_sided| one_sided.advertiser.metrics()).unwrap_or_default();
    json!({
        "nowMs": datanode.options.clock.wall_ms(),
        "uptimeMs": datanode.lifecycle.uptime().as_millis() as u64,
        "hostName": datanode.options.host_name,
        "uuid": datanode.replicas.store.datanode_uuid().to_string(),
        "version": env!("CARGO_PKG_VERSION"),
        "softwareVersion": SOFTWARE_VERSION,
        "addresses": {
            "transfer": addresses.transfer.to_string(),
            "ipc": addresses.ipc.to_string(),
            "oneSided": one_sided.map(|one_sided| one_sided.address().to_string()),
            "domainSocket": datanode.endpoints.domain_socket().map(|path| path.display().to_string()),
        },
        "memory": {
            "limit": metrics.memory_limit,
            "used": metrics.memory_used,
            "lingering": metrics.memory_lingering,
            "replicas": metrics.replicas_in_memory,
            "pinnedReplicas": metrics.pinned,
            "pinnedBytes": metrics.pinned_bytes,
            "evictableBytes": metrics.evictable_bytes,
            "shownReplicas": metrics.shown,
            "dirtyReplicas": metrics.dirty_replicas,
            "dirtyBytes": metrics.dirty_bytes,
            "oldestDirtyMs": metrics.oldest_dirty_age.as_millis() as u64,
            "evictions": metrics.evictions,
            "readBacks": metrics.read_backs,
            "full": metrics.memory_full,
            "flushedBytes": metrics.flushed_bytes,
            "flushFailures": metrics.flush_failures,
        },
        "replicas": metrics.replicas,
        "corruptions": metrics.corruptions,
        "cache": {
            "capacity": datanode.locked_memory.capacity(),
            "used": datanode.cache.bytes(),
            "replicas": datanode.cache.replicas(),
        },
        "totals": {
            "reads": totals.reads,
            "readBytes": totals.read_bytes,
            "writes": totals.writes,
            "writtenBytes": totals.written_bytes,
        },
        "connections": counters.connections(),
        "operations": counters.xceivers(),
        "transfers": counters.transfers(),
        "oneSided": { "registeredBytes": registered.bytes, "advertisedReplicas": registered.advertised },
        "failedVolumes": datanode.services.failed_volumes().dirs,
        "volumes": status::volumes(datanode),
        "namenodes": status::namenode_list(datanode),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_blocks_are_checked() {
        assert_eq!(block_numbers("1,-2,").unwrap(), [BlockId(1), BlockId(-2)]);
        assert!(block_numbers("").unwrap().is_empty());
        assert!(block_numbers("1,<b>").unwrap_err().message.contains("blocks=1,<b>"));
        assert!(block_numbers(&"7,".repeat(REPLICAS_MAX)).is_ok());
        assert!(block_numbers(&"7,".repeat(REPLICAS_MAX + 1)).is_err());
    }
}
