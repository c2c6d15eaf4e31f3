//! Reports to the NameNodes what the store detects by itself: corrupt and missing replicas, moved ones, and failed
//! storage directories.

use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::StoreEvent;

use crate::datanode::Datanode;
use crate::reports::{Notice, ReplicaEvent};

/// Interval of polling the store for events (corrupt replicas, failed volumes).
const EVENTS_INTERVAL: Duration = Duration::from_secs(1);

/// Reports to the NameNodes what the store detects by itself.
pub async fn watch(datanode: Arc<Datanode>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVENTS_INTERVAL) => {}
            () = datanode.lifecycle.stopping() => return,
        }
        datanode.streams.expire();
        for event in datanode.replicas.store.take_events() {
            match event {
                StoreEvent::Corrupt { block, storage, storage_type } => {
                    if let Some(pool) = datanode.replicas.pools.get(&block.pool) {
                        pool.report_own_bad_replica(&block, &storage, storage_type);
                    }
                }
                StoreEvent::Missing(replica) => {
                    if let Some(pool) = datanode.replicas.pools.get(&replica.block.pool) {
                        pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Deleted);
                    }
                }
                StoreEvent::VolumeFailed { storage, dir, reason, capacity_lost } => {
                    let storage = storage.map(|id| id.to_string()).unwrap_or_default();
                    tracing::error!(storage, dir = %dir.display(), reason, capacity_lost, "a storage directory has failed");
                    let message = format!("storage directory {} has failed: {reason}", dir.display());
                    for pool in datanode.replicas.pools.all() {
                        pool.add_notice(&Notice::DiskError { message: message.clone() });
                    }
                    datanode.services.note_failed_volume(&dir, capacity_lost, datanode.options.clock.wall_ms());
                    end_when_too_many_failed(&datanode);
                }
                StoreEvent::Moved(replica) => {
                    // The replica may have been deleted in the meantime, which was reported to the NameNode separately.
                    let there = datanode.replicas.store.replica(&replica.block.pool, replica.block.id());
                    let is_there = there.is_some_and(|there| {
                        there.storage == replica.storage && there.block.stamp == replica.block.stamp()
                    });
                    if is_there && let Some(pool) = datanode.replicas.pools.get(&replica.block.pool) {
                        // No DELETED event: the NameNode sees that the storage differs.
                        let received = ReplicaEvent::Received { delete_hint: None };
                        pool.notify(&replica.storage, replica.block.block, received);
                    }
                }
            }
        }
    }
}

/// Stops the DataNode when too many storage directories have failed to continue.
fn end_when_too_many_failed(datanode: &Arc<Datanode>) {
    let failed = datanode.services.failed_volumes().dirs.len();
    let store = &datanode.options.store;
    let volumes = store.volumes.len();
    let tolerated = store.failed_volumes_tolerated.min(volumes - 1);
    if failed <= tolerated || datanode.lifecycle.note_volumes_failed() {
        return;
    }
    tracing::error!(
        failed,
        tolerated,
        "too many storage directories have failed (dfs.datanode.failed.volumes.tolerated)"
    );
    let message = format!("{failed} of {volumes} storage directories have failed");
    for pool in datanode.replicas.pools.all() {
        pool.add_notice(&Notice::FatalDiskError { message: message.clone() });
    }
    let datanode = datanode.clone();
    tokio::spawn(async move {
        // Leaves time to report the failure to the NameNodes first.
        tokio::time::sleep(EVENTS_INTERVAL).await;
        datanode.lifecycle.request_shutdown();
    });
}
