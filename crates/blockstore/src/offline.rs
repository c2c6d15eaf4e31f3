//! `hearth datanode --flush`: writes the memory tier that a killed DataNode left to disk, and empties it.

use std::path::Path;
use std::{fs, io};

use hearth_types::{BlockPoolId, ReplicaState};

use crate::blockstore::Blockstore;
use crate::disk::layout::PoolDirs;
use crate::disk::version;
use crate::error::{Result, StoreError};
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
        // Only replicas that are whole on disk leave memory. The state of a disk that failed during the flush is
        // unknown.
        self.for_each_replica(|replica| {
            if replica.slice.volume.is_failed() {
                return;
            }
            let _change = replica.change.lock();
            let mut core = replica.core();
            let written = core.lifecycle.state() == ReplicaState::WaitingToBeRecovered;
            if core.copies.is_in_memory() && core.is_on_disk() && (core.lifecycle.is_finalized() || written) {
                core.copies.drop_memory();
            }
        });
        Ok(done)
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
