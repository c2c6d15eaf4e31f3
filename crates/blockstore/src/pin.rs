//! Replicas that are pinned in memory on request (centralized caching).

use std::sync::Arc;

use hearth_types::{ExtendedBlock, GenerationStamp, ReplicaState};

use crate::blockstore::Blockstore;
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::options::Engine;
use crate::replica::Replica;

/// Guard that keeps the memory copy of a finalized replica from being evicted. The replica can still be appended to,
/// truncated or deleted; see [`PinnedReplica::is_current`].
pub struct PinnedReplica {
    replica: Arc<Replica>,
    copy: MemoryCopy,
    stamp: GenerationStamp,
    length: u64,
}

impl PinnedReplica {
    /// Length of the replica in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns whether the pinned copy is still the replica's current one, from which it is read.
    pub fn is_current(&self) -> bool {
        let core = self.replica.core();
        !core.lifecycle.is_gone()
            && !core.lifecycle.is_corrupt()
            && core.lifecycle.state_now() == ReplicaState::Finalized
            && core.lifecycle.stamp() == self.stamp
            && core.copies.memory().is_some_and(|memory| memory.same(&self.copy))
    }
}

impl Blockstore {
    /// Loads a finalized replica into memory if needed, verifies it, and keeps it in memory while the returned pin
    /// lives. `None`: memory is full, or the volume keeps its replicas in files. Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `WrongState`, `Corrupt`, `Io`.
    pub fn pin(&self, block: &ExtendedBlock) -> Result<Option<PinnedReplica>> {
        self.with_replica(block, |replica| match self.pin_replica(replica) {
            // It may have moved to another storage.
            Err(StoreError::ReplicaNotFound { .. }) if replica.core().lifecycle.is_gone() => Ok(None),
            other => other.map(Some),
        })
    }

    fn pin_replica(&self, replica: &Arc<Replica>) -> Result<Option<PinnedReplica>> {
        let engine = replica.slice.volume.engine;
        if engine == Engine::Memory {
            self.read_back(replica)?;
        }
        self.verify_replica(replica, &mut |_| true)?;
        let core = replica.core();
        let state = core.lifecycle.state_now();
        if core.lifecycle.is_gone() {
            return Err(StoreError::ReplicaNotFound { block: replica.block(&core) });
        }
        if state != ReplicaState::Finalized {
            return Err(StoreError::WrongState { block: replica.block(&core), state, action: "hold it in memory" });
        }
        let Some(copy) = core.copies.memory().cloned() else { return Ok(None) };
        let (stamp, length) = (core.lifecycle.stamp(), core.lifecycle.received());
        drop(core);
        Ok(Some(PinnedReplica { replica: replica.clone(), copy, stamp, length }))
    }
}
