//! Queries of the store: readers, replica states, reports, metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearth_types::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp, ReplicaState, StorageReport};
use parking_lot::MutexGuard;

use crate::blockstore::Blockstore;
use crate::error::{Result, StoreError};
use crate::options::Engine;
use crate::replica::{CORE_LOCK_TIMEOUT, Core, MemoryCopy, Replica};
use crate::{Reading, ReplicaInfo, ReplicaReader, StorageReplicas, StorageSummary, StoreMetrics};

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
            })
            .collect()
    }

    /// Returns the full block report of a pool: one entry per healthy storage, empty ones too.
    pub fn report(&self, pool: &BlockPoolId) -> Vec<StorageReplicas> {
        let Some(pool) = self.pools.read().get(pool).cloned() else { return Vec::new() };
        let mut lists: Vec<Vec<_>> = vec![Vec::new(); pool.slices.len()];
        let mut list = |replica: &Replica| {
            let core = replica.core();
            if core.state != ReplicaState::Temporary && !core.gone {
                lists[replica.slice.volume.index].push((replica.block(&core).block, core.state));
            }
            core.gone
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

    /// Opens the replica for reading. Its stamp may be higher than `block`'s but not lower; its length is not compared.
    ///
    /// Errors: `ReplicaNotFound`, `StampMismatch`, `WrongState` (not readable), `Corrupt`.
    pub fn reader(&self, block: &ExtendedBlock) -> Result<ReplicaReader> {
        self.with_replica(block, |replica| self.reader_of(replica, replica.core(), block))
    }

    /// Like [`Blockstore::reader`], for callers that must not wait for a disk.
    ///
    /// Errors: those of [`Blockstore::reader`].
    pub fn reader_now(&self, block: &ExtendedBlock) -> Result<Reading> {
        self.with_replica(block, |replica| {
            let core = replica.core_within(CORE_LOCK_TIMEOUT).filter(|core| !core.opens_on_disk());
            match core {
                Some(core) => Ok(self.reader_of(replica, core, block)?.map(Reading::Now)),
                None => Ok(Some(Reading::OnDisk(replica.slice.volume.id.clone()))),
            }
        })
    }

    /// `Ok(None)`: the replica is gone.
    fn reader_of(
        &self,
        replica: &Arc<Replica>,
        mut core: MutexGuard<'_, Core>,
        block: &ExtendedBlock,
    ) -> Result<Option<ReplicaReader>> {
        if core.gone {
            return Ok(None);
        }
        if core.stamp < block.stamp() {
            return Err(StoreError::StampMismatch {
                block: replica.block(&core),
                stored: core.stamp,
                wanted: format!("at least {}", block.stamp()),
                action: "read it",
            });
        }
        if let Some(reason) = &core.corrupt {
            return Err(StoreError::Corrupt { block: replica.block(&core), reason: reason.to_string() });
        }
        let Some(visible_length) = core.visible_length() else {
            let state = core.state_now();
            return Err(StoreError::WrongState { block: replica.block(&core), state, action: "read it" });
        };
        if core.memory.is_none() {
            replica.slice.volume.check()?;
        }
        // Replicas that may be read back into memory are not kept open on disk.
        let keep = replica.slice.volume.engine != Engine::Memory
            && core.state == ReplicaState::Finalized
            && core.memory.is_none()
            && core.disk_files.is_none();
        let opened = match keep {
            true => self.open_files.open(replica, &mut core),
            false => replica.snapshot(&mut core).map(|snapshot| (snapshot, false)),
        };
        let (snapshot, mut tidy) = match opened {
            Err(StoreError::Corrupt { reason, .. }) => return Err(self.mark_corrupt(replica, &mut core, &reason)),
            other => other?,
        };
        core.referenced = true;
        tidy |= self.open_files.keep_memory(replica, &mut core, &snapshot);
        if !snapshot.in_memory() {
            self.note_disk_read(replica, &mut core);
        }
        let block = replica.block(&core);
        let (state, withdrawals) = (core.state, core.withdrawals);
        drop(core);
        if tidy {
            self.open_files.tidy();
        }
        let replica = replica.clone();
        Ok(Some(ReplicaReader { replica, block, state, visible_length, snapshot, withdrawals }))
    }

    /// Returns the state of a replica, or `None` if there is no such replica.
    pub fn replica(&self, pool: &BlockPoolId, id: BlockId) -> Option<ReplicaInfo> {
        let block = Block { id, stamp: GenerationStamp(0), length: 0 };
        let found = self.with_replica(&ExtendedBlock { pool: pool.clone(), block }, |replica| {
            let core = replica.core();
            let info = || ReplicaInfo {
                block: replica.block(&core).block,
                state: core.state_now(),
                reported_state: core.state,
                visible_length: core.visible_length(),
                storage: replica.slice.volume.id.clone(),
                storage_type: replica.slice.volume.storage_type,
                in_memory: core.memory.is_some(),
                on_disk: core.is_on_disk(),
            };
            Ok((!core.gone).then(info))
        });
        found.ok()
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

    /// Walks all replicas: meant for a metrics page, not for every request.
    pub fn metrics(&self) -> StoreMetrics {
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let mut metrics = StoreMetrics {
            memory_limit: self.budget.limit(),
            memory_used: self.budget.used(),
            memory_lingering: self.budget.lingering(),
            dirty_replicas: get(&counters.dirty_replicas),
            dirty_bytes: get(&counters.dirty_bytes),
            evictions: get(&counters.evictions),
            read_backs: get(&counters.read_backs),
            memory_full: get(&counters.memory_full),
            flushed_replicas: get(&counters.flushed_replicas),
            flushed_bytes: get(&counters.flushed_bytes),
            flush_failures: get(&counters.flush_failures),
            scrubbed_bytes: get(&counters.scrubbed_bytes),
            corruptions: get(&counters.corruptions),
            granted_bytes: get(&counters.granted_bytes),
            grant_time: Duration::from_nanos(get(&counters.grant_nanos)),
            committed_bytes: get(&counters.committed_bytes),
            copied_back_bytes: get(&counters.copied_back_bytes),
            received_in_place_bytes: get(&counters.received_in_place_bytes),
            kept_replicas: self.open_files.len() as u64,
            mapped_bytes: self.open_files.mapped.now(),
            failed_volumes: self.volumes.iter().filter(|volume| volume.is_failed()).count() as u64,
            ..StoreMetrics::default()
        };
        let mut oldest = None::<u64>;
        self.for_each_replica(|replica| {
            metrics.replicas += 1;
            // A replica whose files are being opened is only on disk.
            let Some(mut core) = replica.core_within(CORE_LOCK_TIMEOUT) else { return };
            oldest = oldest.into_iter().chain(core.dirty_since).min();
            // For shown memory the kernel is asked which processes have it open. It does not distinguish the store's
            // own descriptors.
            if core.memory.as_ref().is_some_and(MemoryCopy::is_shown) {
                core.cached_files = None;
            }
            let Some(memory) = &core.memory else { return };
            metrics.replicas_in_memory += 1;
            metrics.pinned += u64::from(memory.is_pinned_beside(core.cached_files.as_ref()));
            metrics.shown += u64::from(memory.is_still_shown());
        });
        for queue in &self.unsynced {
            let queue = queue.lock();
            metrics.unsynced_replicas += queue.len() as u64;
            oldest = oldest.into_iter().chain(queue.front().map(|front| front.since_ms)).min();
        }
        metrics.oldest_dirty_age =
            oldest.map_or(Duration::ZERO, |since| Duration::from_millis(self.now_ms().saturating_sub(since)));
        for pool in self.pools.read().values() {
            for slice in &pool.slices {
                let (used, slabs) = slice.slabs.use_now();
                metrics.slab_bytes_used += used;
                metrics.slabs += slabs;
                metrics.slab_bytes += slice.slabs.allocated();
            }
        }
        metrics
    }
}
