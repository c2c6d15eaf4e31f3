//! Lookups of pools and replicas.

use std::sync::Arc;

use hearth_types::{BlockPoolId, ExtendedBlock};

use crate::blockstore::Blockstore;
use crate::error::{Result, StoreError};
use crate::pool::Pool;
use crate::replica::Replica;

impl Blockstore {
    pub fn pools(&self) -> Vec<BlockPoolId> {
        self.pools.read().keys().cloned().collect()
    }

    pub(crate) fn pool(&self, block: &ExtendedBlock) -> Result<Arc<Pool>> {
        let pool = self.pools.read().get(&block.pool).cloned();
        pool.ok_or_else(|| StoreError::PoolNotAttached { block: block.clone() })
    }

    pub(crate) fn find_replica(&self, block: &ExtendedBlock) -> Result<Arc<Replica>> {
        let found = self.pool(block)?.replicas.get(block.id());
        found.ok_or_else(|| StoreError::ReplicaNotFound { block: block.clone() })
    }

    /// Runs `act` on the replica of the block, with its `change` lock held. If the replica moves to another storage
    /// while the lock is awaited, `act` gets the new one.
    pub(crate) fn change_replica<T>(
        &self,
        block: &ExtendedBlock,
        mut act: impl FnMut(&Arc<Replica>) -> Result<T>,
    ) -> Result<T> {
        self.with_replica(block, |replica| {
            let _change = replica.change.lock();
            if replica.core().lifecycle.is_gone() { Ok(None) } else { act(replica).map(Some) }
        })
    }

    /// Like [`Self::change_replica`], without the `change` lock. `act` returns `None` for a replica that is gone. A
    /// replica whose files cause an error is added to the suspects and checked later.
    pub(crate) fn with_replica<T>(
        &self,
        block: &ExtendedBlock,
        mut act: impl FnMut(&Arc<Replica>) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut replica = self.find_replica(block)?;
        loop {
            match act(&replica) {
                Ok(None) => {}
                Ok(Some(done)) => return Ok(done),
                Err(error) => {
                    if error.makes_suspect() {
                        replica.slice.volume.suspects.add(&replica);
                    }
                    return Err(error);
                }
            }
            // A replica that moves is replaced in the map before the old one is gone. A deleted replica leaves the map
            // last.
            let now = self.find_replica(block)?;
            if Arc::ptr_eq(&now, &replica) {
                return Err(StoreError::ReplicaNotFound { block: block.clone() });
            }
            replica = now;
        }
    }

    pub(crate) fn for_each_replica(&self, mut visit: impl FnMut(&Arc<Replica>)) {
        let pools: Vec<Arc<Pool>> = self.pools.read().values().cloned().collect();
        for pool in pools {
            pool.replicas.for_each(&mut visit);
        }
    }
}
