//! Reports to NameNodes and pages: the replicas and the space of each storage, and the state of one replica.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use hearth_types::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp, ReplicaState, StorageReport};

use crate::blockstore::Blockstore;
use crate::disk_times::DiskTimes;
use crate::replica::Replica;
use crate::{ReplicaInfo, StorageReplicas, StorageState, StorageSummary};

impl Blockstore {
    /// Returns a summary of each storage. Asks the file systems for their sizes, which may block.
    pub fn storages(&self) -> Vec<StorageSummary> {
        let volumes = self.volumes.iter();
        volumes
            .map(|volume| StorageSummary {
                id: volume.id.clone(),
                storage_type: volume.storage_type,
                dir: volume.dir.clone(),
                failed: volume.is_failed(),
                reserved_bytes: volume.kept_free(),
                replicas: self.finalized_on(volume),
                times: volume.timers.times(),
            })
            .collect()
    }

    /// Returns the state of each storage. Does not access the disks.
    pub fn storage_states(&self) -> Vec<StorageState> {
        let volumes = self.volumes.iter();
        volumes
            .map(|volume| StorageState {
                id: volume.id.clone(),
                storage_type: volume.storage_type,
                failed: volume.is_failed(),
            })
            .collect()
    }

    /// Returns the times of each healthy storage, by its directory. Does not access the disks.
    pub fn disk_times(&self) -> Vec<(PathBuf, DiskTimes)> {
        let healthy = self.volumes.iter().filter(|volume| !volume.is_failed());
        healthy.map(|volume| (volume.dir.clone(), volume.timers.times())).collect()
    }

    /// Returns the full block report of a pool: one entry per healthy storage, empty ones too.
    pub fn report(&self, pool: &BlockPoolId) -> Vec<StorageReplicas> {
        let Some(pool) = self.pools.read().get(pool).cloned() else { return Vec::new() };
        let mut lists: Vec<Vec<_>> = vec![Vec::new(); pool.slices.len()];
        let mut list = |replica: &Replica| {
            let core = replica.core();
            if core.lifecycle.state() != ReplicaState::Temporary && !core.lifecycle.is_gone() {
                lists[replica.slice.volume.index].push((replica.block(&core).block, core.lifecycle.state()));
            }
            core.lifecycle.is_gone()
        };
        pool.replicas.for_each(|replica| {
            // It may have moved to another storage since its shard was listed, where no list has it yet.
            if list(replica)
                && let Some(now) = pool.replicas.get(replica.id)
            {
                list(&now);
            }
        });
        let slices = pool.slices.iter().zip(lists).filter(|(slice, _)| !slice.volume.is_failed());
        slices
            .map(|(slice, replicas)| StorageReplicas {
                storage: slice.volume.id.clone(),
                storage_type: slice.volume.storage_type,
                replicas,
            })
            .collect()
    }

    /// Returns one entry per healthy storage, for heartbeats.
    pub fn storage_reports(&self, pool: &BlockPoolId) -> Vec<StorageReport> {
        let pool = self.pools.read().get(pool).cloned();
        let healthy = self.volumes.iter().filter(|volume| !volume.is_failed());
        healthy
            .filter_map(|volume| {
                let dfs_used = self.used_on(volume);
                let space = match volume.space(dfs_used) {
                    Ok(space) => space,
                    Err(error) if self.probe_volume(volume) => {
                        tracing::warn!(%error, "cannot get the free space of a storage");
                        Default::default()
                    }
                    Err(_) => return None,
                };
                let slice = pool.as_ref().map(|pool| &pool.slices[volume.index]);
                Some(StorageReport {
                    storage: volume.id.clone(),
                    storage_type: volume.storage_type,
                    failed: false,
                    capacity: space.capacity,
                    dfs_used,
                    remaining: space.remaining,
                    block_pool_used: slice.map_or(0, |slice| slice.used.load(Ordering::Relaxed)),
                    non_dfs_used: space.non_dfs_used,
                })
            })
            .collect()
    }

    /// Returns the state of a replica, or `None` if there is no such replica.
    pub fn replica(&self, pool: &BlockPoolId, id: BlockId) -> Option<ReplicaInfo> {
        let block = Block { id, stamp: GenerationStamp(0), length: 0 };
        let found = self.with_replica(&ExtendedBlock { pool: pool.clone(), block }, |replica| {
            let core = replica.core();
            let info = || ReplicaInfo {
                block: replica.block(&core).block,
                state: core.lifecycle.state_now(),
                reported_state: core.lifecycle.state(),
                visible_length: core.lifecycle.visible_length(),
                storage: replica.slice.volume.id.clone(),
                storage_type: replica.slice.volume.storage_type,
                in_memory: core.copies.is_in_memory(),
                on_disk: core.is_on_disk(),
            };
            Ok((!core.lifecycle.is_gone()).then(info))
        });
        found.ok()
    }
}
