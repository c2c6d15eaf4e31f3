//! Pipeline recovery: a client resumes or closes a replica after a failure in its pipeline.

use std::sync::Arc;

use hearth_types::{ExtendedBlock, GenerationStamp, ReplicaState};

use crate::blockstore::Blockstore;
use crate::disk::copy::{self, DiskWriter};
use crate::disk::files::DiskCopy;
use crate::disk::layout::ReplicaDir;
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::replica::Replica;
use crate::write_target::CopyRequest;
use crate::{Durability, PipelineRecovery, ReplicaSummary, ReplicaWriter, WithdrawReason, sys};

impl Blockstore {
    /// PIPELINE_SETUP_APPEND_RECOVERY: like `append`, for a finalized replica or one being written, whose writer is
    /// stopped.
    pub fn recover_append(
        &self,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<ReplicaWriter> {
        self.change_replica(block, |replica| {
            if self.check_recoverable(replica, block, new_stamp, length)? == ReplicaState::Finalized {
                return self.open_finalized(replica, new_stamp);
            }
            self.set_stamp(replica, new_stamp)?;
            let target = self.resume_target(replica)?;
            Ok(ReplicaWriter::new(self, replica, target, self.options.default_block_bytes))
        })
    }

    /// PIPELINE_CLOSE_RECOVERY: makes the checks of `recover_append`, then finalizes under `new_stamp`.
    pub fn recover_close(
        &self,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<ReplicaSummary> {
        self.change_replica(block, |replica| self.close_recovered(replica, block, new_stamp, length))
    }

    fn close_recovered(
        &self,
        replica: &Arc<Replica>,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<ReplicaSummary> {
        let state = self.check_recoverable(replica, block, new_stamp, length)?;
        self.set_stamp(replica, new_stamp)?;
        // The close that this recovers may have been a synced one, which the request does not say. Its writer assumes
        // so.
        if state == ReplicaState::BeingWritten {
            let mut target = self.resume_target(replica)?;
            self.finish(replica, &mut target, Durability::Disk)?;
            self.make_durable(replica, Durability::Disk)?;
        } else {
            self.sync_finalized(replica)?;
        }
        Ok(replica.summary())
    }

    /// Makes the finalized `replica` durable on disk, whatever its finalize asked for. The caller holds `change`.
    fn sync_finalized(&self, replica: &Arc<Replica>) -> Result<()> {
        self.make_durable(replica, Durability::Disk)?;
        let Some(disk) = replica.core().copies.disk() else { return Ok(()) };
        // A replica finalized in files may be only in the page cache, even if it has been read into memory since.
        let dirs = &replica.slice.dirs;
        let synced = DiskWriter::open(dirs, replica.id, disk)
            .and_then(|files| files.sync())
            .and_then(|()| sys::sync_dir(&dirs.dir(disk.place, replica.id)));
        synced.map_err(|error| self.disk_error(&replica.slice, "sync a replica in", error))
    }

    /// Resumes a replica that was found at a restart as being written: its client waited for the DataNode, and all
    /// bytes whose acknowledgement the client saw are there. (Apache's DataNode does so within 50 s of a restart for an
    /// upgrade.) The caller holds `change`.
    fn goes_on(&self, replica: &Replica) -> Result<()> {
        let mut core = replica.core();
        if core.lifecycle.state() != ReplicaState::WaitingToBeRecovered {
            return Ok(());
        }
        if !core.copies.is_in_memory() {
            // Reads the state that a writer needs from its meta file.
            let partial_crc = replica.disk_snapshot(&mut core)?.partial_crc;
            core.lifecycle.set_partial_crc(partial_crc);
        }
        let before = core.lifecycle.marks();
        core.lifecycle.resume();
        core.record().map_err(|source| {
            core.lifecycle.restore(before);
            StoreError::io("record a replica in", &replica.slice.memory_dir)(source)
        })
    }

    /// Makes the checks of stages 1 and 5 and stops the writer. Returns FINALIZED or BEING_WRITTEN.
    fn check_recoverable(
        &self,
        replica: &Arc<Replica>,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<ReplicaState> {
        let states = [ReplicaState::Finalized, ReplicaState::BeingWritten, ReplicaState::WaitingToBeRecovered];
        self.check_open(replica, block, new_stamp, &states)?;
        replica.stop_writer(self.options.writer_stop_timeout)?;
        let (state, received, acked) = {
            let core = replica.core();
            (core.lifecycle.state(), core.lifecycle.received(), core.lifecycle.acked())
        };
        self.check_length(replica, received, length)?;
        if acked != received {
            let block = replica.named(new_stamp);
            let wanted = received.to_string();
            return Err(StoreError::LengthMismatch { block, what: "acknowledged", actual: acked, wanted });
        }
        if state == ReplicaState::WaitingToBeRecovered {
            self.goes_on(replica)?;
            return Ok(ReplicaState::BeingWritten);
        }
        Ok(state)
    }

    fn check_open(
        &self,
        replica: &Arc<Replica>,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        states: &[ReplicaState],
    ) -> Result<()> {
        replica.slice.volume.check()?;
        let core = replica.core();
        let state = core.lifecycle.state_now();
        if !states.contains(&state) {
            return Err(StoreError::WrongState { block: replica.block(&core), state, action: "recover its pipeline" });
        }
        if core.lifecycle.stamp() < block.stamp() || core.lifecycle.stamp() > new_stamp {
            return Err(StoreError::StampMismatch {
                block: replica.block(&core),
                stored: core.lifecycle.stamp(),
                wanted: format!("between {} and {new_stamp}", block.stamp()),
                action: "recover its pipeline",
            });
        }
        Ok(())
    }

    /// PIPELINE_SETUP_STREAMING_RECOVERY: stops the writer of a replica being written, truncates the replica to the
    /// acknowledged bytes and hands it to a new writer.
    pub fn recover_being_written(&self, block: &ExtendedBlock, recovery: PipelineRecovery) -> Result<ReplicaWriter> {
        self.change_replica(block, |replica| self.recover_written(replica, block, recovery))
    }

    fn recover_written(
        &self,
        replica: &Arc<Replica>,
        block: &ExtendedBlock,
        recovery: PipelineRecovery,
    ) -> Result<ReplicaWriter> {
        let states = [ReplicaState::BeingWritten, ReplicaState::WaitingToBeRecovered];
        self.check_open(replica, block, recovery.new_stamp, &states)?;
        replica.stop_writer(self.options.writer_stop_timeout)?;
        let (acked, received) = {
            let core = replica.core();
            (core.lifecycle.acked(), core.lifecycle.received())
        };
        let named = replica.named(recovery.new_stamp);
        if acked < recovery.min_acked {
            let wanted = format!("at least {}", recovery.min_acked);
            return Err(StoreError::LengthMismatch { block: named, what: "acknowledged", actual: acked, wanted });
        }
        if received > recovery.max_received {
            let wanted = format!("at most {}", recovery.max_received);
            return Err(StoreError::LengthMismatch { block: named, what: "received", actual: received, wanted });
        }
        self.goes_on(replica)?;
        if received > acked {
            self.cut_being_written(replica, acked)?;
        }
        self.set_stamp(replica, recovery.new_stamp)?;
        let target = self.resume_target(replica)?;
        Ok(ReplicaWriter::new(self, replica, target, self.options.default_block_bytes))
    }

    /// Gives a replica without a writer a new stamp: in memory first, then on disk, durably. After a kill in between,
    /// the copy with more bytes has the newer stamp: a part that hsync wrote must not take precedence over the whole
    /// replica.
    pub(crate) fn set_stamp(&self, replica: &Arc<Replica>, stamp: GenerationStamp) -> Result<()> {
        let (disk, old) = {
            let core = replica.core();
            (core.copies.disk(), core.lifecycle.stamp())
        };
        if old == stamp {
            // The earlier response may have been that this could not be made durable.
            return disk.map_or(Ok(()), |disk| {
                sys::sync_dir(&replica.slice.dirs.dir(disk.place, replica.id))
                    .map_err(|error| self.disk_error(&replica.slice, "give a new stamp to a replica in", error))
            });
        }
        let _changing = self.begin_change(replica, WithdrawReason::Recovery);
        let record = |stamp| {
            let mut core = replica.core();
            core.lifecycle.set_stamp(stamp);
            core.record().map_err(StoreError::io("record a new stamp in", &replica.slice.memory_dir))
        };
        record(stamp)?;
        let Some(disk) = disk else { return Ok(()) };
        // `sync_behind` knows a replica finalized in files by its earlier copy, and its bytes may not be on disk yet.
        let renamed = |to| {
            let mut core = replica.core();
            core.copies.set_disk(to);
            if core.lifecycle.is_finalized() {
                self.note_unsynced(replica, to);
            }
        };
        match copy::relocate(&replica.slice.dirs, replica.id, disk, disk.place, stamp, true) {
            Ok(to) => {
                renamed(to);
                Ok(())
            }
            Err(error) => {
                let failed = self.disk_error(&replica.slice, "give a new stamp to a replica in", error);
                if replica.slice.dirs.meta(disk.place, replica.id, stamp).exists() {
                    // It has its new name, perhaps not durably: memory must not be older.
                    renamed(DiskCopy { stamp, ..disk });
                } else {
                    record(old)?;
                }
                Err(failed)
            }
        }
    }

    /// Truncates a replica being written, without a writer, to `length`. Bytes that a reader may hold are not touched.
    fn cut_being_written(&self, replica: &Arc<Replica>, length: u64) -> Result<()> {
        let whole = replica.snapshot(&mut replica.core())?;
        let cut = whole
            .cut(length)
            .map_err(|error| self.copy_error(&replica.slice, replica.id, replica.core().lifecycle.stamp(), error))?;
        drop(whole);
        let mut core = replica.core();
        match core.copies.memory().cloned() {
            // A reader may hold the truncated bytes, so the replica's own files are copied: see rule 4 of
            // docs/design/0001.
            Some(old) => {
                let checksum = cut.checksum;
                let expected_bytes = self.options.default_block_bytes;
                let wanted = CopyRequest { slice: &replica.slice, id: replica.id, checksum, expected_bytes };
                let capacity = match old {
                    MemoryCopy::Slot(_) => u64::from(self.options.memory.slab_replica_bytes_max).max(length),
                    MemoryCopy::File(_) => u64::MAX,
                };
                // First the part that hsync has put on disk: it may be longer, and must never be shorter than what was
                // acknowledged as durable.
                self.cut_synced(&wanted, &mut core, &cut)?;
                let before = core.lifecycle.marks();
                core.lifecycle.truncate(length, cut.partial_crc);
                let made = match self.memory_target(&wanted, &mut core, capacity, Some(&cut)) {
                    Ok(Some(target)) => {
                        target.install(&mut core);
                        Ok(())
                    }
                    Ok(None) => self.synced_target(&wanted, &mut core, &cut).map(drop),
                    Err(error) => Err(error),
                };
                if let Err(error) = made {
                    core.lifecycle.restore(before);
                    return Err(error);
                }
                old.retire();
            }
            None => {
                let Some(disk) = core.copies.disk().filter(|disk| disk.place == ReplicaDir::BeingWritten) else {
                    return Err(StoreError::ReplicaNotFound { block: replica.block(&core) });
                };
                let opened = DiskWriter::open(&replica.slice.dirs, replica.id, disk);
                opened
                    .and_then(|writer| writer.truncate(&cut))
                    .map_err(|error| self.disk_error(&replica.slice, "truncate a replica in", error))?;
                core.copies.set_disk(DiskCopy { length, ..disk });
                core.lifecycle.truncate(length, cut.partial_crc);
            }
        }
        core.copies.close_written();
        Ok(())
    }
}
