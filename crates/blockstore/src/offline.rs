//! Emptying the memory tier: at the end of a DataNode that keeps nothing there, and for one that was killed, by `hearth
//! datanode --flush`.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use hearth_types::{BlockPoolId, ReplicaState};

use crate::blockstore::Blockstore;
use crate::disk::layout::PoolDirs;
use crate::disk::{lock, version};
use crate::error::{Result, StoreError};
use crate::memory::incarnation;
use crate::replica::Replica;
use crate::{FlushProgress, StoreOptions};

impl Blockstore {
    /// Empties the memory tier that a killed DataNode left: writes everything to disk, verified, then removes it from
    /// memory. Afterwards Apache's DataNode can use the directories. `hearth datanode --flush`.
    pub fn flush_offline(
        options: StoreOptions,
        progress: &mut dyn FnMut(FlushProgress) -> bool,
    ) -> Result<FlushProgress> {
        let store = Self::open(StoreOptions { background: false, failed_volumes_tolerated: 0, ..options })?;
        store.empty_memory(progress)
    }

    fn empty_memory(&self, progress: &mut dyn FnMut(FlushProgress) -> bool) -> Result<FlushProgress> {
        for pool in self.pools_on_disk()? {
            self.attach_pool(&pool)?;
        }
        // The memory of a failed volume cannot be flushed now. It stays for when the volume is repaired.
        self.volumes.iter().try_for_each(|volume| volume.check())?;
        let done = self.flush_all(progress);
        self.drop_memory();
        Ok(done)
    }

    /// Removes from memory all replicas that are whole and durable on disk, and the directories of memory that are empty
    /// then. Everything else stays for the next start. To be called after [`Self::flush_all`], as the last call before the
    /// store is closed: it stops the background threads and all writers. Waits for the disks.
    ///
    /// Readers in other processes keep what they have open or mapped: that memory is free when they release it.
    ///
    /// Returns the number of replicas that stay in memory, and their bytes.
    pub fn drop_memory(&self) -> (u64, u64) {
        // From now on none is read back.
        self.threads.stop();
        let (mut replicas, mut bytes) = (0, 0);
        self.for_each_replica(|replica| {
            if let Some(stay) = self.drop_from_memory(replica) {
                replicas += 1;
                bytes += stay;
            }
        });
        for pool in self.pools.read().values() {
            for slice in &pool.slices {
                slice.slabs.remove_unused();
                remove_if_empty(&slice.memory_dir, incarnation::IN_MEMORY);
            }
        }
        for volume in &self.volumes {
            // Its lock is held until the store is closed, although the file is gone.
            remove_if_empty(&volume.memory_dir, lock::LOCK_FILE);
        }
        (replicas, bytes)
    }

    /// Drops a replica's copy in memory, unless it is needed. Returns the number of bytes that stay there; `None`: the
    /// replica is not in memory any more.
    fn drop_from_memory(&self, replica: &Arc<Replica>) -> Option<u64> {
        let _change = replica.change.lock();
        let stopped = replica.stop_writer(self.options.writer_stop_timeout).is_ok();
        // The content of a disk that failed, also during the flush, is unknown.
        let volume = &replica.slice.volume;
        let is_reliable = !volume.is_failed() && !volume.has_failed_sync();
        let state = replica.core().lifecycle.state();
        let is_durable = stopped
            && is_reliable
            && match state {
                // Not dirty: the flusher has synced it, or it was read from disk.
                ReplicaState::Finalized => true,
                // What is on disk of it may be in the page cache only.
                ReplicaState::BeingWritten | ReplicaState::WaitingToBeRecovered => {
                    self.sync_being_written(replica).is_ok()
                }
                ReplicaState::UnderRecovery | ReplicaState::Temporary => false,
            };
        let mut core = replica.core();
        if !core.copies.is_in_memory() {
            return None;
        }
        let is_on_disk = core.is_on_disk() && !core.copies.is_dirty();
        // A copy that was not finished counts for no one; the next start would remove it.
        let is_unfinished_copy = stopped && state == ReplicaState::Temporary;
        if is_unfinished_copy || (is_durable && is_on_disk) {
            core.copies.drop_memory();
            return None;
        }
        Some(core.lifecycle.received())
    }

    /// Returns the pools whose directories are on the volumes, according to their own `VERSION` files.
    fn pools_on_disk(&self) -> Result<Vec<hearth_types::PoolIdentity>> {
        let mut pools: Vec<hearth_types::PoolIdentity> = Vec::new();
        for volume in &self.volumes {
            let Some(cluster_id) = volume.version.lock().as_ref().map(|version| version.cluster_id.clone()) else {
                continue;
            };
            for name in pool_names(&volume.dir.join("current"))? {
                let dirs = PoolDirs::new(&volume.dir, &name);
                let Some(found) = version::read_pool(&dirs.current)? else { continue };
                let known = pools.iter().any(|pool| pool.pool == found.pool);
                if !known && found.pool == BlockPoolId::new(name) {
                    pools.push(hearth_types::PoolIdentity { cluster_id: cluster_id.clone(), ..found });
                }
            }
        }
        Ok(pools)
    }
}

/// Removes a directory of memory that has no file but `marker`, which a start creates again.
fn remove_if_empty(dir: &Path, marker: &str) {
    let Ok(mut entries) = fs::read_dir(dir) else { return };
    if entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == marker)) {
        // If it cannot be removed, it takes a page or two, and the next start uses it.
        let _ = fs::remove_file(dir.join(marker));
        let _ = fs::remove_dir(dir);
    }
}

fn pool_names(current: &Path) -> Result<Vec<String>> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(current)? {
            let name = entry?.file_name();
            names.extend(name.to_str().filter(|name| name.starts_with("BP-")).map(str::to_owned));
        }
        Ok(names)
    };
    list().map_err(StoreError::io("list", current))
}
