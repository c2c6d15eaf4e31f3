use std::sync::Arc;

use hearth_types::{ExtendedBlock, ReplicaState, StorageType};

use crate::ReplicaSummary;
use crate::error::{Result, StoreError};
use crate::hands::Wanted;
use crate::inner::Inner;
use crate::pool::Pool;
use crate::replica::{Core, Replica};
use crate::snapshot::Snapshot;
use crate::volume::Slice;

impl Inner {
    /// Copies a finalized replica to a volume of another type, then removes it where it was.
    pub fn move_to_storage_type(&self, block: &ExtendedBlock, to: StorageType) -> Result<ReplicaSummary> {
        let replica = self.replica(block)?;
        let _change = replica.change.lock();
        let content = {
            let mut core = replica.core();
            let state = core.state_now();
            if state != ReplicaState::Finalized || core.gone {
                return Err(StoreError::WrongState { block: replica.block(&core), state, action: "move it" });
            }
            if core.stamp != block.stamp() {
                return Err(StoreError::StampMismatch {
                    block: replica.block(&core),
                    stored: core.stamp,
                    wanted: block.stamp().to_string(),
                    action: "move it",
                });
            }
            replica.snapshot(&mut core)?
        };
        if replica.slice.volume.storage_type == to {
            return Ok(self.summary(&replica));
        }
        let pool = self.pool(block)?;
        let slice = self.place(&pool, to, content.length)?;
        self.relocate(&pool, &replica, &content, slice)
    }

    /// Copies the finalized `replica`, whose bytes `content` are, to `slice`, which has promised their room; when all is on disk there, the
    /// replica is no more where it was. Under its `change`.
    pub(super) fn relocate(
        &self,
        pool: &Pool,
        replica: &Arc<Replica>,
        content: &Snapshot,
        slice: Arc<Slice>,
    ) -> Result<ReplicaSummary> {
        let mut core = Core::of_copy(replica.core().stamp, content);
        let wanted =
            Wanted { slice: &slice, id: replica.id, checksum: content.checksum, expected_bytes: content.length };
        let mut hands = self
            .hands_for(&wanted, &mut core, content.length, Some(content))
            .inspect_err(|_| slice.volume.change_reserved(content.length, 0))?;
        let moved = Arc::new(Replica::new(replica.id, slice, core));
        let _moved = moved.change.lock();
        self.finish_copy(&moved, &mut hands)?;
        self.discard(replica);
        match pool.replicas.insert(moved.clone()) {
            Ok(()) => Ok(self.summary(&moved)),
            Err(there) => {
                self.discard(&moved);
                let core = there.core();
                Err(StoreError::ReplicaExists { block: there.block(&core), state: core.state, stamp: core.stamp })
            }
        }
    }
}
