//! Metrics of the store, for its owner's pages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::StoreMetrics;
use crate::blockstore::Blockstore;
use crate::memory::copy::MemoryCopy;
use crate::replica::CORE_LOCK_TIMEOUT;
use crate::replica::cached_files::CachedFiles;

impl Blockstore {
    /// Walks all replicas: meant for a metrics page, not for every request.
    pub fn metrics(&self) -> StoreMetrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
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
            flushes: counters.flushes.snapshot(),
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
            oldest = oldest.into_iter().chain(core.copies.dirty().map(|dirty| dirty.since_ms)).min();
            // For shown memory the kernel is asked which processes have it open. It does not distinguish the store's
            // own descriptors.
            if core.copies.memory().is_some_and(MemoryCopy::is_shown) {
                core.copies.take_cached_files();
            }
            let Some(memory) = core.copies.memory() else { return };
            metrics.replicas_in_memory += 1;
            metrics.shown += u64::from(memory.is_still_shown());
            let bytes = core.lifecycle.received();
            if memory.is_pinned_beside(core.copies.cached_files().and_then(CachedFiles::in_memory)) {
                metrics.pinned += 1;
                metrics.pinned_bytes += bytes;
            } else if core.lifecycle.is_finalized() && !core.copies.is_dirty() && core.is_on_disk() {
                metrics.evictable_bytes += bytes;
            }
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

    /// Returns only the memory in use and its limit, the bytes not yet on disk, and the numbers of evictions and of
    /// reads back. Looks at no replica, so it may be called often. The other figures are 0.
    pub fn quick_metrics(&self) -> StoreMetrics {
        StoreMetrics {
            memory_limit: self.budget.limit(),
            memory_used: self.budget.used(),
            dirty_bytes: self.counters.dirty_bytes.load(Ordering::Relaxed),
            evictions: self.counters.evictions.load(Ordering::Relaxed),
            read_backs: self.counters.read_backs.load(Ordering::Relaxed),
            ..StoreMetrics::default()
        }
    }
}
