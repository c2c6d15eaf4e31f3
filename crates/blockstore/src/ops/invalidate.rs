//! Deletion of replicas, and the end of a writer.

use std::sync::Arc;

use hearth_types::{Block, BlockPoolId, ExtendedBlock};

use crate::blockstore::Blockstore;
use crate::disk::copy;
use crate::error::{Result, StoreError};
use crate::replica::Replica;
use crate::{ReplicaSummary, WithdrawReason};

impl Blockstore {
    /// Deletes replicas whose stamp is exactly the requested one, and stops their writers. Returns one result per
    /// block, in order: the storage that held the replica. Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `StampMismatch`.
    pub fn invalidate(&self, pool: &BlockPoolId, blocks: &[Block]) -> Vec<Result<ReplicaSummary>> {
        blocks.iter().map(|block| self.invalidate_one(pool, *block)).collect()
    }

    fn invalidate_one(&self, pool: &BlockPoolId, block: Block) -> Result<ReplicaSummary> {
        let block = ExtendedBlock { pool: pool.clone(), block };
        self.change_replica(&block, |replica| {
            {
                let core = replica.core();
                // The order may refer to the block before it was reopened.
                if core.lifecycle.stamp() != block.stamp() {
                    return Err(StoreError::StampMismatch {
                        block: replica.block(&core),
                        stored: core.lifecycle.stamp(),
                        wanted: block.stamp().to_string(),
                        action: "delete it",
                    });
                }
            }
            replica.stop_writer(self.options.writer_stop_timeout)?;
            let summary = replica.summary();
            self.discard(replica);
            Ok(summary)
        })
    }

    /// Removes a replica from memory, disk and map, as far as present. The caller holds `change`; the writer is
    /// stopped.
    pub(crate) fn discard(&self, replica: &Arc<Replica>) {
        let disk = {
            let mut core = replica.core();
            self.withdraw(replica, &mut core, WithdrawReason::Deletion);
            self.clear_dirty(&mut core);
            core.lifecycle.remove();
            replica.settle_space(&mut core);
            core.copies.delete()
        };
        // Files on a failed disk are left for repair. When they are found again they are reported, and deleted if the
        // NameNode does not want them.
        if let Some(disk) = disk
            && !replica.slice.volume.is_failed()
        {
            copy::remove(&replica.slice.dirs, replica.id, disk);
        }
        if let Some(pool) = self.pools.read().get(&replica.slice.pool) {
            pool.replicas.remove(replica);
        }
    }

    /// Stops the writer of a replica, if it has one.
    ///
    /// Errors: `WriterStillRunning`.
    pub fn stop_writer(&self, block: &ExtendedBlock) -> Result<()> {
        let replica = self.find_replica(block)?;
        let _change = replica.change.lock();
        replica.stop_writer(self.options.writer_stop_timeout)
    }
}
