//! Deletion of replicas, block reports, and the end of a writer.

use hearth_types::{Block, BlockPoolId, ExtendedBlock, ReplicaState};

use crate::error::{Result, StoreError};
use crate::replica::Replica;
use crate::store::Store;
use crate::{ReplicaSummary, StorageReplicas};

impl Store {
    pub fn invalidate(&self, pool: &BlockPoolId, block: Block) -> Result<ReplicaSummary> {
        let block = ExtendedBlock { pool: pool.clone(), block };
        self.change_replica(&block, |replica| {
            {
                let core = replica.core();
                // The order may refer to the block before it was reopened.
                if core.stamp != block.stamp() {
                    return Err(StoreError::StampMismatch {
                        block: replica.block(&core),
                        stored: core.stamp,
                        wanted: block.stamp().to_string(),
                        action: "delete it",
                    });
                }
            }
            replica.stop_writer(self.options.writer_stop_timeout)?;
            let summary = self.summary(replica);
            self.discard(replica);
            Ok(summary)
        })
    }

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

    pub fn say_corrupt_again(&self, pool: &BlockPoolId) {
        let Some(pool) = self.pools.read().get(pool).cloned() else { return };
        pool.replicas.for_each(|replica| {
            let core = replica.core();
            if core.corrupt.is_some() && !core.gone {
                self.event(self.corrupt_event(replica, &core));
            }
        });
    }

    pub fn stop_writer(&self, block: &ExtendedBlock) -> Result<()> {
        let replica = self.replica(block)?;
        let _change = replica.change.lock();
        replica.stop_writer(self.options.writer_stop_timeout)
    }
}
