//! Block recovery: the two steps that give all replicas of a block the same length and stamp.

use std::collections::BTreeSet;
use std::sync::Arc;

use hearth_types::{Block, BlockId, ExtendedBlock, GenerationStamp, ReplicaState};

use crate::blockstore::Blockstore;
use crate::disk::copy::{self, StagedCopy};
use crate::disk::layout::ReplicaDir;
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::replica::writer_shared::WriteTarget;
use crate::replica::{Core, Replica};
use crate::snapshot::Snapshot;
use crate::write_target::CopyRequest;
use crate::{Durability, RecoveryInfo, ReplicaSummary, WithdrawReason, sys};

impl Blockstore {
    /// First step of block recovery: stops the writer and makes the replica UNDER_RECOVERY. `None`: no such replica.
    ///
    /// Errors: `StampMismatch`, `RecoveryInProgress`, `WriterStillRunning`; `VolumeFailed`: the replica may turn up on
    /// another storage later.
    pub fn initiate_recovery(
        &self,
        block: &ExtendedBlock,
        recovery_id: GenerationStamp,
    ) -> Result<Option<RecoveryInfo>> {
        let initiated = self.change_replica(block, |replica| self.initiate(replica, block, recovery_id));
        match initiated {
            Err(StoreError::ReplicaNotFound { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    fn initiate(
        &self,
        replica: &Arc<Replica>,
        block: &ExtendedBlock,
        recovery_id: GenerationStamp,
    ) -> Result<RecoveryInfo> {
        // A recovery could not complete there. Replicas that are whole in memory move to another storage, and are
        // recovered there.
        replica.slice.volume.check()?;
        replica.stop_writer(self.options.writer_stop_timeout)?;
        let mut core = replica.core();
        if core.lifecycle.stamp() < block.stamp() || core.lifecycle.stamp() >= recovery_id {
            return Err(StoreError::StampMismatch {
                block: replica.block(&core),
                stored: core.lifecycle.stamp(),
                wanted: format!("at least {} and below the recovery id {recovery_id}", block.stamp()),
                action: "recover the block",
            });
        }
        if let Err(running) = core.lifecycle.initiate_recovery(recovery_id) {
            return Err(StoreError::RecoveryInProgress { block: replica.block(&core), running, asked: recovery_id });
        }
        Ok(RecoveryInfo { block: replica.block(&core).block, original_state: core.lifecycle.state() })
    }

    /// Second step of block recovery: `old` (as the first step returned it) gets `new_length` bytes and the stamp
    /// `recovery_id`, and is finalized. If `new_id` differs from its own id, the result is a copy and the old replica
    /// stays (truncate). Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `WrongState`, `StampMismatch`, `LengthMismatch`, `ReplicaExists`, `VolumeFailed`.
    pub fn update_under_recovery(
        &self,
        old: &ExtendedBlock,
        recovery_id: GenerationStamp,
        new_length: u64,
        new_id: Option<BlockId>,
    ) -> Result<ReplicaSummary> {
        let copy_id = new_id.filter(|id| *id != old.id() && id.0 != 0);
        if let Some(id) = copy_id {
            self.change_replica(old, |replica| self.check_under_recovery(replica, old, recovery_id, new_length))?;
            // An earlier copy has the same file names. The source's `change` must not be held: the flusher takes those
            // of many replicas together, in its own order.
            let block = Block { id, stamp: recovery_id, length: 0 };
            self.drop_earlier_copy(&ExtendedBlock { pool: old.pool.clone(), block });
        }
        self.change_replica(old, |replica| {
            self.check_under_recovery(replica, old, recovery_id, new_length)?;
            let whole = replica.snapshot(&mut replica.core())?;
            let cut = whole
                .cut(new_length)
                .map_err(|error| self.copy_error(&replica.slice, replica.id, recovery_id, error))?;
            drop(whole);
            match copy_id {
                Some(id) => {
                    let summary = self.copy_as(replica, id, recovery_id, &cut)?;
                    // The old replica is unchanged.
                    replica.core().lifecycle.end_recovery();
                    Ok(summary)
                }
                None => {
                    self.becomes(replica, recovery_id, &cut)?;
                    Ok(replica.summary())
                }
            }
        })
    }

    fn check_under_recovery(
        &self,
        replica: &Replica,
        old: &ExtendedBlock,
        recovery_id: GenerationStamp,
        new_length: u64,
    ) -> Result<()> {
        replica.slice.volume.check()?;
        let core = replica.core();
        let block = replica.block(&core);
        match core.lifecycle.recovery() {
            None => {
                let state = core.lifecycle.state();
                return Err(StoreError::WrongState { block, state, action: "update it under recovery" });
            }
            Some(running) if running != recovery_id => {
                return Err(StoreError::StampMismatch {
                    block,
                    stored: running,
                    wanted: format!("under recovery {recovery_id}"),
                    action: "update it under recovery",
                });
            }
            Some(_) => {}
        }
        let actual = core.lifecycle.received();
        if actual != old.length() {
            let wanted = old.length().to_string();
            return Err(StoreError::LengthMismatch { block, what: "received", actual, wanted });
        }
        if new_length > actual {
            let wanted = format!("at least the new length {new_length}");
            return Err(StoreError::LengthMismatch { block, what: "received", actual, wanted });
        }
        Ok(())
    }

    /// Makes the replica finalized under `stamp`, with the bytes of `cut`.
    fn becomes(&self, replica: &Arc<Replica>, stamp: GenerationStamp, cut: &Snapshot) -> Result<()> {
        let _changing = self.begin_change(replica, WithdrawReason::Recovery);
        let shorter = cut.length < replica.core().lifecycle.received();
        if !replica.core().copies.is_in_memory() {
            return self.becomes_on_disk(replica, stamp, cut, shorter);
        }
        let had_disk = replica.core().copies.disk().is_some();
        if shorter {
            self.replace_memory(replica, cut)?;
        }
        if !replica.core().copies.is_in_memory() {
            // Memory was full: the copy was created on disk, as being written.
            return self.becomes_on_disk(replica, stamp, cut, false);
        }
        // The stale copy on disk must not have the old stamp once this returns; the flush replaces it.
        let before = {
            let mut core = replica.core();
            let before = (core.lifecycle.stamp(), core.copies.is_dirty());
            core.lifecycle.set_stamp(stamp);
            self.clear_dirty(&mut core);
            before
        };
        let finished = self.resume_target(replica).and_then(|mut target| {
            if let WriteTarget::File(file) = &target {
                file.distrust();
            }
            self.finish(replica, &mut target, Durability::Memory)
        });
        if let Err(error) = finished {
            self.stays(replica, before);
            return Err(error);
        }
        self.make_durable(replica, if had_disk { Durability::Disk } else { Durability::Memory })
    }

    /// Restores the replica after a failed recovery, with the stamp `old_stamp`. A new recovery may then start.
    fn stays(&self, replica: &Arc<Replica>, (old_stamp, was_dirty): (GenerationStamp, bool)) {
        let mut core = replica.core();
        core.lifecycle.set_stamp(old_stamp);
        core.lifecycle.end_recovery();
        if let Err(error) = core.record() {
            // With the stamp of the recovery, it is still found again.
            tracing::warn!(%error, block = %replica.block(&core), "cannot record the old stamp");
        }
        core.copies.close_written();
        if was_dirty && core.lifecycle.is_finalized() && core.copies.is_in_memory() {
            self.note_dirty(replica, &mut core);
        }
    }

    /// Replaces the copy in memory by one with only the bytes of `cut`. If memory is full, by one on disk.
    fn replace_memory(&self, replica: &Arc<Replica>, cut: &Snapshot) -> Result<()> {
        let mut core = replica.core();
        let Some(old) = core.copies.memory().cloned() else { return Ok(()) };
        let before = core.lifecycle.marks();
        let (finalized, was_dirty) =
            (core.copies.disk().filter(|disk| disk.place == ReplicaDir::Finalized), core.copies.is_dirty());
        self.clear_dirty(&mut core);
        core.lifecycle.truncate_in_recovery(cut.length, cut.partial_crc);
        let wanted =
            CopyRequest { slice: &replica.slice, id: replica.id, checksum: cut.checksum, expected_bytes: cut.length };
        let capacity = match old {
            MemoryCopy::Slot(_) => cut.length,
            MemoryCopy::File(_) => u64::MAX,
        };
        let made = match self.memory_target(&wanted, &mut core, capacity, Some(cut)) {
            Ok(Some(target)) => {
                target.install(&mut core);
                Ok(())
            }
            // Durable before the finalized copy is removed.
            Ok(None) => self.synced_target(&wanted, &mut core, cut).map(|_| {
                if let Some(disk) = finalized {
                    copy::remove(&replica.slice.dirs, replica.id, disk);
                }
            }),
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => old.retire(),
            Err(_) => {
                core.lifecycle.restore(before);
                // For a replica being written, `core` says what is left.
                if let Some(finalized) = finalized {
                    core.copies.set_disk(finalized);
                }
                if was_dirty {
                    self.note_dirty(replica, &mut core);
                }
            }
        }
        made
    }

    fn becomes_on_disk(
        &self,
        replica: &Arc<Replica>,
        stamp: GenerationStamp,
        cut: &Snapshot,
        shorter: bool,
    ) -> Result<()> {
        let Some(disk) = replica.core().copies.disk() else {
            return Err(StoreError::ReplicaNotFound { block: replica.named(stamp) });
        };
        replica.slice.volume.check()?;
        let dirs = &replica.slice.dirs;
        let failed = |error| self.disk_error(&replica.slice, "recover a replica in", error);
        let to = if shorter {
            // Written to new files: readers that have the old file open or mapped keep their bytes.
            let prepared = StagedCopy::write(dirs, replica.id, stamp, cut, &mut None)
                .map_err(|error| self.copy_error(&replica.slice, replica.id, stamp, error))?;
            prepared.sync().map_err(failed)?;
            let mut touched = BTreeSet::new();
            let to = prepared.commit(dirs, &mut touched).map_err(failed)?;
            touched.iter().try_for_each(|dir| sys::sync_dir(dir)).map_err(failed)?;
            copy::remove_superseded(dirs, replica.id, disk, to);
            to
        } else {
            let opened = copy::DiskWriter::open(dirs, replica.id, disk).map_err(failed)?;
            // Only the bytes that count of a torn end are kept.
            opened.truncate(cut).and_then(|()| opened.sync()).map_err(failed)?;
            copy::relocate(dirs, replica.id, disk, ReplicaDir::Finalized, stamp, true).map_err(failed)?
        };
        {
            let mut core = replica.core();
            core.copies.set_disk(to);
            core.lifecycle.recover(stamp, cut.length, cut.partial_crc);
            core.lifecycle.set_checksum(cut.checksum);
        }
        self.settle_finalized(replica);
        Ok(())
    }

    /// Creates a finalized replica of another block with the bytes of `cut`, on the same volume.
    fn copy_as(
        &self,
        replica: &Arc<Replica>,
        id: BlockId,
        stamp: GenerationStamp,
        cut: &Snapshot,
    ) -> Result<ReplicaSummary> {
        let volume = &replica.slice.volume;
        if !volume.reserve(self.used_on(volume), cut.length)? {
            return Err(StoreError::NoSpace { storage_type: volume.storage_type, wanted: cut.length });
        }
        let mut core = Core::of_copy(stamp, cut);
        let wanted = CopyRequest { slice: &replica.slice, id, checksum: cut.checksum, expected_bytes: cut.length };
        let mut target = self
            .target_for(&wanted, &mut core, cut.length, Some(cut))
            .inspect_err(|_| volume.change_reserved(cut.length, 0))?;
        let copied = Arc::new(Replica::new(id, replica.slice.clone(), core));
        let _change = copied.change.lock();
        let pool = self.pool(&replica.named(stamp))?;
        if let Err(there) = pool.replicas.insert(copied.clone()) {
            self.discard(&copied);
            let core = there.core();
            return Err(StoreError::ReplicaExists {
                block: there.block(&core),
                state: core.lifecycle.state(),
                stamp: core.lifecycle.stamp(),
            });
        }
        self.finish_copy(&copied, &mut target)?;
        Ok(copied.summary())
    }

    /// Finalizes a copy of a replica, on disk. If that fails, the copy is discarded.
    pub(super) fn finish_copy(&self, copied: &Arc<Replica>, target: &mut WriteTarget) -> Result<()> {
        let finished =
            self.finish(copied, target, Durability::Disk).and_then(|()| self.make_durable(copied, Durability::Disk));
        finished.inspect_err(|_| self.discard(copied))
    }

    /// Discards the copy of an earlier attempt whose end was never reported to the NameNode: its source still exists.
    fn drop_earlier_copy(&self, wanted: &ExtendedBlock) {
        // Usually no earlier copy exists.
        let _ = self.change_replica(wanted, |earlier| {
            let is_older = {
                let core = earlier.core();
                // Includes an unfinished copy: only an attempt of the same copy operation can have written it.
                let is_left = core.copies.writer().is_none()
                    && core.lifecycle.recovery().is_none()
                    && core.lifecycle.state() != ReplicaState::Temporary;
                is_left && core.lifecycle.stamp() < wanted.stamp()
            };
            if is_older {
                self.discard(earlier);
            }
            Ok(())
        });
    }
}
