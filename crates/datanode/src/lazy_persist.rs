//! RAM_DISK storage for the blocks of LAZY_PERSIST files. A replica there is moved to a DISK storage of this DataNode
//! within `dfs.datanode.lazywriter.interval.sec`, and the NameNodes are notified.
//!
//! Apache's NameNode never names a RAM_DISK storage: its clients mark each block of such a file as allowed to be
//! persisted lazily, and the DataNode chooses. Only blocks that arrive in packets are put there. A client that fills
//! the replica's own memory gets memory of a DISK storage, because replicas on RAM_DISK are kept in files, which cannot
//! be lent.
//!
//! Java's DataNode copies the replica to the disk and keeps serving the RAM_DISK copy until RAM_DISK is full. Here the
//! DISK storage has its own memory tier, from which the replica is served as before. Keeping the RAM_DISK copy would
//! therefore gain nothing, and without it the RAM disk has room for the next file.
//! Source: hdfs `FsDatasetImpl.createRbw`, `.LazyWriter`; the namenode takes a replica reported from another storage of
//! the same datanode for moved.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{CreateKind, CreateOptions, ReplicaWriter, StoreError};
use hearth_fabric::stream::PeerAddress;
use hearth_types::{ExtendedBlock, ReplicaState, StorageType};
use hearth_wire::data_transfer::WriteBlock;

use crate::locked_memory::{LockedBytes, LockedMemory, PAGE};
use crate::pool::Pool;
use crate::replica_service::ReplicaService;
use crate::reports::ReplicaEvent;

/// Delay between a request for memory and the round that frees it: each round walks over all replicas.
const WAKE_DELAY: Duration = Duration::from_secs(1);

/// Reserves the memory for putting a client's new block on RAM_DISK. `None`: the block goes to the storage that `write`
/// names.
///
/// Conditions, as in Java's DataNode: the length of the file's blocks is a multiple of the page size, and the client is
/// on this machine, unless `dfs.datanode.non.local.lazy.persist` allows all clients.
pub fn reserve_memory(
    replicas: &ReplicaService,
    locked_memory: &Arc<LockedMemory>,
    write: &WriteBlock,
    client: PeerAddress,
) -> Option<LockedBytes> {
    let bytes = write.block.length();
    let wanted = write.allow_lazy_persist
        && locked_memory.capacity() > 0
        && bytes > 0
        && bytes.is_multiple_of(PAGE)
        && has_storage(replicas, StorageType::RamDisk)
        && (replicas.options.transfer.non_local_lazy_persist || is_on_this_machine(client));
    if !wanted {
        return None;
    }
    let locked = locked_memory.reserve(bytes);
    if locked.is_none() {
        locked_memory.request_space();
    }
    locked
}

/// Creates the replica of `block` on RAM_DISK if `locked` is given and a RAM_DISK storage has room, else as in
/// `options`. Waits for the disk.
pub fn create(
    replicas: &ReplicaService,
    locked_memory: &LockedMemory,
    block: &ExtendedBlock,
    kind: CreateKind,
    options: &CreateOptions,
    locked: Option<LockedBytes>,
) -> Result<ReplicaWriter, StoreError> {
    // The store counts the replica from its creation on.
    if let Some(_locked) = locked {
        let on_ram_disk = CreateOptions { storage_type: StorageType::RamDisk, ..options.clone() };
        match replicas.store.create(block, kind, &on_ram_disk) {
            Err(error @ (StoreError::NoSpace { .. } | StoreError::NoSuchStorageType(_))) => {
                tracing::warn!(%block, %error, "cannot create a LAZY_PERSIST block on RAM_DISK; using another storage");
                locked_memory.request_space();
            }
            other => return other,
        }
    }
    replicas.store.create(block, kind, options)
}

fn has_storage(replicas: &ReplicaService, kind: StorageType) -> bool {
    replicas.options.store.volumes.iter().any(|volume| volume.storage_type == kind)
}

fn is_on_this_machine(peer: PeerAddress) -> bool {
    match peer {
        PeerAddress::Process { .. } => true,
        PeerAddress::Tcp(address) => is_own_address(address.ip()),
    }
}

/// Only an address of this machine can be bound.
fn is_own_address(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Moves new replicas in rounds until the DataNode stops. Returns at once without a RAM_DISK or a DISK storage.
pub async fn run(replicas: Arc<ReplicaService>, locked_memory: Arc<LockedMemory>) {
    if !has_storage(&replicas, StorageType::RamDisk) || !has_storage(&replicas, StorageType::Disk) {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(replicas.options.current().timing.lazy_writer) => {}
            // The same round also serves further requests that arrive during the delay.
            () = locked_memory.space_requested() => tokio::time::sleep(WAKE_DELAY).await,
            () = replicas.lifecycle.stopping() => return,
        }
        for pool in replicas.pools.all() {
            move_all(&replicas, &pool).await;
        }
    }
}

async fn move_all(replicas: &ReplicaService, pool: &Pool) {
    let store = replicas.store.clone();
    let id = pool.id().clone();
    let Ok(storages) = tokio::task::spawn_blocking(move || store.report(&id)).await else { return };
    let (mut moved, mut failed) = (0_u64, 0_u64);
    for storage in storages.into_iter().filter(|storage| storage.storage_type == StorageType::RamDisk) {
        for (block, state) in storage.replicas {
            if state != ReplicaState::Finalized || replicas.lifecycle.is_stopping() {
                continue;
            }
            let block = ExtendedBlock { pool: pool.id().clone(), block };
            let name = block.clone();
            match replicas.run_blocking(move |store| store.move_to_storage_type(&block, StorageType::Disk)).await {
                Ok(replica) => {
                    moved += 1;
                    // No hint and no DELETED event: the NameNode sees that the storage differs.
                    let received = ReplicaEvent::Received { delete_hint: None };
                    pool.notify(&replica.storage, replica.block.block, received);
                }
                // Appended to or deleted in the meantime, or the disk is full. Retried in the next round.
                Err(error) => {
                    failed += 1;
                    let error: &dyn std::error::Error = &error;
                    tracing::debug!(block = %name, error, "cannot move a replica from RAM_DISK to DISK; retrying in the next round");
                }
            }
        }
    }
    if moved + failed > 0 {
        tracing::info!(pool = %pool.id(), moved, failed, "replicas moved from RAM_DISK to DISK");
    }
}
