//! Disk space: what is used of each volume, and the choice of one for a new replica.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearth_types::StorageType;

use crate::blockstore::Blockstore;
use crate::error::{Result, StoreError};
use crate::pool::Pool;
use crate::volume::{Slice, Volume};

impl Blockstore {
    pub(crate) fn used_on(&self, volume: &Volume) -> u64 {
        let pools = self.pools.read();
        pools.values().map(|pool| pool.slices[volume.index].used.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn finalized_on(&self, volume: &Volume) -> u64 {
        let pools = self.pools.read();
        pools.values().map(|pool| pool.slices[volume.index].finalized.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of the replicas of all pools on storages of this type, plus the bytes that replicas being written there
    /// may need.
    pub fn bytes_on(&self, storage_type: StorageType) -> u64 {
        let volumes = self.volumes.iter().filter(|volume| volume.storage_type == storage_type && !volume.is_failed());
        volumes.map(|volume| self.used_on(volume) + volume.promised()).sum()
    }

    /// Chooses a volume of this type, round robin, and reserves `bytes` of its disk for the caller.
    ///
    /// The volume that a NameNode names is not used: Apache's NameNode names the same one of a DataNode for every
    /// block, and Apache's DataNode uses only its type. Source: `RoundRobinVolumeChoosingPolicy`.
    pub(crate) fn choose_volume(&self, pool: &Pool, storage_type: StorageType, bytes: u64) -> Result<Arc<Slice>> {
        let mut slices: Vec<&Arc<Slice>> = pool
            .slices
            .iter()
            .filter(|slice| slice.volume.storage_type == storage_type && !slice.volume.is_failed())
            .collect();
        if slices.is_empty() {
            return Err(StoreError::NoSuchStorageType(storage_type));
        }
        let turn = self.next_volume.fetch_add(1, Ordering::Relaxed) as usize;
        let by = turn % slices.len();
        slices.rotate_left(by);
        let mut problem = None;
        for slice in slices {
            match slice.volume.reserve(self.used_on(&slice.volume), bytes) {
                Ok(true) => return Ok(slice.clone()),
                Ok(false) => {}
                Err(error) => {
                    self.probe_volume(&slice.volume);
                    problem = Some(error);
                }
            }
        }
        Err(problem.unwrap_or(StoreError::NoSpace { storage_type, wanted: bytes }))
    }
}
