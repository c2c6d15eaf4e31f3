//! Moves of a finalized replica to another storage of this DataNode.

use std::sync::Arc;

use hearth_types::{ExtendedBlock, ReplicaState, StorageType};

use crate::ReplicaSummary;
use crate::blockstore::Blockstore;
use crate::error::{Result, StoreError};
use crate::pool::Pool;
use crate::replica::{Core, Replica};
use crate::snapshot::Snapshot;
use crate::volume::Slice;
use crate::write_target::CopyRequest;

impl Blockstore {
    /// Moves a finalized replica to a storage of another type on this DataNode (REPLACE_BLOCK to itself).
    pub fn move_to_storage_type(&self, block: &ExtendedBlock, to: StorageType) -> Result<ReplicaSummary> {
        self.change_replica(block, |replica| self.move_replica(replica, block, to))
    }

    fn move_replica(&self, replica: &Arc<Replica>, block: &ExtendedBlock, to: StorageType) -> Result<ReplicaSummary> {
        let content = {
            let mut core = replica.core();
            let state = core.lifecycle.state_now();
            if state != ReplicaState::Finalized {
                return Err(StoreError::WrongState { block: replica.block(&core), state, action: "move it" });
            }
            if core.lifecycle.stamp() != block.stamp() {
                return Err(StoreError::StampMismatch {
                    block: replica.block(&core),
                    stored: core.lifecycle.stamp(),
                    wanted: block.stamp().to_string(),
                    action: "move it",
                });
            }
            replica.snapshot(&mut core)?
        };
        if replica.slice.volume.storage_type == to {
            return Ok(replica.summary());
        }
        let pool = self.pool(block)?;
        let slice = self.choose_volume(&pool, to, content.length)?;
        self.relocate(&pool, replica, &content, slice)
    }

    /// Copies the finalized `replica`, whose bytes are `content`, to `slice`, where space is reserved. Once all of it
    /// is on disk there, removes the original. The caller holds the replica's `change`.
    ///
    /// At every moment one of them is in the map with all bytes: a recovery that finds no replica may have the block
    /// dropped.
    pub(super) fn relocate(
        &self,
        pool: &Pool,
        replica: &Arc<Replica>,
        content: &Snapshot,
        slice: Arc<Slice>,
    ) -> Result<ReplicaSummary> {
        let mut core = Core::of_copy(replica.core().lifecycle.stamp(), content);
        let wanted =
            CopyRequest { slice: &slice, id: replica.id, checksum: content.checksum, expected_bytes: content.length };
        let mut target = self
            .target_for(&wanted, &mut core, content.length, Some(content))
            .inspect_err(|_| slice.volume.change_reserved(content.length, 0))?;
        let moved = Arc::new(Replica::new(replica.id, slice, core));
        let _moved = moved.change.lock();
        self.finish_copy(&moved, &mut target)?;
        let replaced = pool.replicas.replace(replica, moved.clone());
        assert!(replaced, "a replica that is not gone and whose `change` is held is in the map");
        self.discard(replica);
        Ok(moved.summary())
    }
}
