//! Evacuation of a failed storage. Replicas that are whole in memory move to another storage. The others have only
//! files on the failed disk, so they are forgotten, and can be created again on another storage of this DataNode.

use std::sync::Arc;

use hearth_types::StorageType;

use crate::blockstore::Blockstore;
use crate::error::{Result, StoreError};
use crate::pool::Pool;
use crate::replica::Replica;
use crate::volume::{Slice, Volume};
use crate::{ReplicaSummary, StoreEvent};

/// Delay before another evacuation attempt.
const EVACUATION_RETRY_MS: u64 = 10_000;

enum Outcome {
    Moved(ReplicaSummary),
    Forgotten,
    /// Nothing can be done for it.
    Stays,
    NotYet,
}

impl Blockstore {
    /// Evacuates the replicas of a failed volume, if that is due. With `at_once`, it is always due.
    ///
    /// Replicas in memory are served from there until another storage has room for them. A replica being written stays:
    /// its writer gets an error at the next packet, and its bytes in memory are found again at the next start.
    pub(crate) fn evacuate_failed_volume(&self, volume: &Volume, at_once: bool) {
        let _one_at_a_time = self.flushing[volume.index].lock();
        if !at_once && !volume.is_evacuation_due(self.now_ms()) {
            return;
        }
        let (mut moved, mut forgotten, mut staying) = (0_u64, 0_u64, 0_u64);
        self.for_each_replica(|replica| {
            if replica.slice.volume.index != volume.index || self.threads.is_stopping() && !at_once {
                return;
            }
            match self.evacuate_replica(replica) {
                Ok(Outcome::Moved(summary)) => {
                    moved += 1;
                    self.event(StoreEvent::Moved(summary));
                }
                Ok(Outcome::Forgotten) => forgotten += 1,
                Ok(Outcome::Stays) => {}
                Ok(Outcome::NotYet) => staying += 1,
                Err(error) => {
                    staying += 1;
                    tracing::debug!(%error, "a replica cannot leave a failed storage");
                }
            }
        });
        if moved + forgotten > 0 {
            tracing::warn!(dir = %volume.dir.display(), moved, forgotten, staying, "replicas have left a failed storage");
        }
        volume.schedule_evacuation((staying > 0).then(|| self.now_ms() + EVACUATION_RETRY_MS));
    }

    fn evacuate_replica(&self, replica: &Arc<Replica>) -> Result<Outcome> {
        let _change = replica.change.lock();
        let content = {
            let mut core = replica.core();
            if core.lifecycle.is_gone() {
                return Ok(Outcome::Stays);
            }
            if !core.lifecycle.is_finalized() {
                // A recovery cannot complete here.
                return Ok(if core.copies.writer().is_some() { Outcome::NotYet } else { Outcome::Stays });
            }
            // Includes a replica under recovery: nothing of it has changed, and the next attempt finds it in its new
            // place.
            let good = core.copies.is_in_memory() && !core.lifecycle.is_corrupt();
            if good { Some(replica.snapshot(&mut core)?) } else { None }
        };
        let Some(content) = content else {
            self.discard(replica);
            return Ok(Outcome::Forgotten);
        };
        let pool = self.pool(&replica.named(replica.core().lifecycle.stamp()))?;
        let slice = self.choose_lasting_volume(&pool, replica.slice.volume.storage_type, content.length)?;
        match self.relocate(&pool, replica, &content, slice) {
            Ok(summary) => Ok(Outcome::Moved(summary)),
            Err(StoreError::Corrupt { reason, .. }) => {
                self.mark_corrupt(replica, &mut replica.core(), &reason);
                self.discard(replica);
                Ok(Outcome::Forgotten)
            }
            Err(error) => Err(error),
        }
    }

    /// Like [`Self::choose_volume`], but falls back to any persistent storage type if the wanted one is missing.
    fn choose_lasting_volume(&self, pool: &Pool, wanted: StorageType, bytes: u64) -> Result<Arc<Slice>> {
        let mut types = vec![wanted];
        for slice in &pool.slices {
            let other = slice.volume.storage_type;
            if other != StorageType::RamDisk && !types.contains(&other) {
                types.push(other);
            }
        }
        let mut problem = StoreError::NoSuchStorageType(wanted);
        for storage_type in types {
            match self.choose_volume(pool, storage_type, bytes) {
                Ok(slice) => return Ok(slice),
                Err(StoreError::NoSuchStorageType(_)) => {}
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }
}
