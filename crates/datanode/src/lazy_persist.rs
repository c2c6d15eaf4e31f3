//! RAM_DISK storage, on which a namenode puts the blocks of LAZY_PERSIST files: a replica there moves on to a DISK storage
//! of this datanode within `dfs.datanode.lazywriter.interval.sec`, and the namenodes are told.
//!
//! Java's datanode copies it to the disk and keeps serving the RAM_DISK one until that is full. Here the DISK storage has its
//! own tier of memory, from which the replica is served as before, so nothing is gained by holding on to the first one; and
//! the RAM disk has room for the next file.
//! Source: hdfs `FsDatasetImpl.LazyWriter`; the namenode takes a replica reported from another storage of the same
//! datanode for moved.

use std::sync::Arc;

use hearth_types::{ExtendedBlock, ReplicaState, StorageType};

use crate::datanode::Datanode;
use crate::pool::Pool;
use crate::reports::ReplicaEvent;

/// Moves what has come, again and again, until the datanode stops. Returns at once without a RAM_DISK or a DISK storage.
pub async fn run(datanode: Arc<Datanode>) {
    let has = |kind| datanode.options.store.volumes.iter().any(|volume| volume.storage_type == kind);
    if !has(StorageType::RamDisk) || !has(StorageType::Disk) {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(datanode.options.timing.lazy_writer) => {}
            () = datanode.stopping() => return,
        }
        for pool in datanode.pools.all() {
            move_all(&datanode, &pool).await;
        }
    }
}

async fn move_all(datanode: &Arc<Datanode>, pool: &Arc<Pool>) {
    let store = datanode.store.clone();
    let id = pool.id().clone();
    let Ok(storages) = tokio::task::spawn_blocking(move || store.report(&id)).await else { return };
    let (mut moved, mut failed) = (0_u64, 0_u64);
    for storage in storages.into_iter().filter(|storage| storage.storage_type == StorageType::RamDisk) {
        for (block, state) in storage.replicas {
            if state != ReplicaState::Finalized || datanode.is_stopping() {
                continue;
            }
            let block = ExtendedBlock { pool: pool.id().clone(), block };
            let name = block.clone();
            match datanode.blocking(move |store| store.move_to_storage_type(&block, StorageType::Disk)).await {
                Ok(replica) => {
                    moved += 1;
                    // No hint and no DELETED event: the namenode sees that the storage is another one.
                    let received = ReplicaEvent::Received { delete_hint: None };
                    pool.notify(&replica.storage, replica.block.block, received);
                }
                // Appended to, or deleted, meanwhile; or the disk is full. Next time.
                Err(error) => {
                    failed += 1;
                    let error: &dyn std::error::Error = &error;
                    tracing::debug!(block = %name, error, "a replica stays on RAM_DISK");
                }
            }
        }
    }
    if moved + failed > 0 {
        tracing::info!(pool = %pool.id(), moved, failed, "replicas moved from RAM_DISK to DISK");
    }
}
