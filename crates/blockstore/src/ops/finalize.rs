//! Finalization of a replica, in whatever place its bytes are.

use std::sync::Arc;

use crate::Durability;
use crate::blockstore::Blockstore;
use crate::disk::copy;
use crate::disk::layout::ReplicaDir;
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::replica::writer_shared::WriteTarget;
use crate::replica::{Core, Replica};
use crate::write_target::CopyRequest;

impl Blockstore {
    /// Fixes the replica's bytes: in a slot that fits, in files without unused memory, or in `finalized` on disk. The
    /// caller holds `change` and the writer's lock on `target`.
    pub(crate) fn finish(
        &self,
        replica: &Arc<Replica>,
        target: &mut WriteTarget,
        durability: Durability,
    ) -> Result<()> {
        // Replicas on a failed volume are not reported, so nothing may be finalized there.
        replica.slice.volume.check()?;
        self.take_back(replica, target)?;
        self.end_stream(replica, target)?;
        match target {
            WriteTarget::Slot(_) => self.finish_slot(replica)?,
            WriteTarget::File(file) => {
                let mut core = replica.core();
                let failed = StoreError::io("finalize a replica in", &replica.slice.memory_dir);
                let at = core.lifecycle.received() / u64::from(file.copy.checksum.bytes_per_chunk) * 4;
                if let Some(crc) = partial(&core) {
                    file.write_crcs(at, &crc);
                }
                file.trim(core.lifecycle.received()).map_err(failed)?;
                let before = core.lifecycle.marks();
                core.lifecycle.finalize();
                if let Err(error) = core.record() {
                    core.lifecycle.restore(before);
                    return Err(StoreError::io("finalize a replica in", &replica.slice.memory_dir)(error));
                }
            }
            WriteTarget::Disk(disk) => {
                // Bytes that were durable in `rbw` must not be lost by the move.
                let durable = durability == Durability::Disk
                    || self.options.sync_on_finalize
                    || replica.core().copies.is_kept_durable();
                let Some(from) = replica.core().copies.disk() else {
                    return Err(StoreError::ReplicaNotFound { block: replica.block(&replica.core()) });
                };
                let failed = |error| self.disk_error(&replica.slice, "finalize a replica in", error);
                if durable {
                    disk.sync().map_err(failed)?;
                }
                let dirs = &replica.slice.dirs;
                let to = copy::relocate(dirs, replica.id, from, ReplicaDir::Finalized, from.stamp, durable)
                    .map_err(failed)?;
                let mut core = replica.core();
                core.copies.set_disk(to);
                core.lifecycle.finalize();
                if !durable {
                    self.note_unsynced(replica, to);
                }
            }
            WriteTarget::Stream(_) | WriteTarget::Detached => {
                return Err(StoreError::WriterStopped { block: replica.block(&replica.core()) });
            }
        }
        self.settle_finalized(replica);
        Ok(())
    }

    /// Updates the store after a replica has become finalized, wherever it is.
    pub(crate) fn settle_finalized(&self, replica: &Arc<Replica>) {
        let mut core = replica.core();
        core.copies.end_writing();
        core.lifecycle.end_recovery();
        replica.settle_space(&mut core);
        if core.copies.is_in_memory() {
            if !core.is_on_disk() {
                self.note_dirty(replica, &mut core);
            }
            drop(core);
            self.resident.lock().add(replica);
        }
    }

    /// Waits for the disk if the caller or the configuration requires it. The caller holds `change`.
    pub(crate) fn make_durable(&self, replica: &Arc<Replica>, durability: Durability) -> Result<()> {
        let wanted = durability == Durability::Disk || self.options.sync_on_finalize;
        if wanted && replica.core().copies.is_dirty() { self.flush_one(replica) } else { Ok(()) }
    }

    /// Moves the replica from the writer's large slot into one that fits.
    fn finish_slot(&self, replica: &Arc<Replica>) -> Result<()> {
        let content = replica.snapshot(&mut replica.core())?;
        let mut core = replica.core();
        let Some(MemoryCopy::Slot(slot)) = core.copies.memory().cloned() else {
            unreachable!("the write target is a slot, which is the replica's copy in memory")
        };
        let before = core.lifecycle.marks();
        core.lifecycle.finalize();
        let wanted = CopyRequest {
            slice: &replica.slice,
            id: replica.id,
            checksum: content.checksum,
            expected_bytes: core.lifecycle.received(),
        };
        let tight = replica.slice.slabs.slot_bytes_for(content.checksum, core.lifecycle.received());
        if tight.is_some_and(|tight| tight < slot.slot_bytes()) {
            let moved = self.memory_target(&wanted, &mut core, content.length, Some(&content));
            match moved {
                Ok(Some(target)) => {
                    target.install(&mut core);
                    slot.retire();
                    return Ok(());
                }
                // Memory is full: it stays in the large slot.
                Ok(None) => {}
                Err(error) => {
                    core.lifecycle.restore(before);
                    return Err(error);
                }
            }
        }
        if let Some(crc) = partial(&core) {
            slot.write_crcs(core.lifecycle.received() / u64::from(content.checksum.bytes_per_chunk) * 4, &crc);
        }
        core.record().map_err(StoreError::io("finalize a replica in", &replica.slice.memory_dir))
    }

    /// Converts TEMPORARY to being written, with all bytes visible. The caller holds `change`; the writer's target is
    /// idle.
    pub(crate) fn convert_temporary_to_being_written(&self, replica: &Arc<Replica>) -> Result<()> {
        let disk = {
            let core = replica.core();
            core.copies.disk().map(|disk| (disk, core.lifecycle.stamp()))
        };
        let moved = match disk {
            None => None,
            Some((disk, stamp)) => {
                let dirs = &replica.slice.dirs;
                let to = copy::relocate(dirs, replica.id, disk, ReplicaDir::BeingWritten, stamp, true);
                Some(to.map_err(|error| self.disk_error(&replica.slice, "move a replica in", error))?)
            }
        };
        let mut core = replica.core();
        if let Some(moved) = moved {
            core.copies.set_disk(moved);
        }
        core.lifecycle.begin_writing();
        let recorded = core.record();
        core.copies.end_writing();
        recorded.map_err(StoreError::io("record a replica in", &replica.slice.memory_dir))
    }
}

/// Returns the CRC that the table lacks while the last chunk is not whole.
fn partial(core: &Core) -> Option<[u8; 4]> {
    let checksum = core.lifecycle.checksum()?;
    let ends_within = !core.lifecycle.received().is_multiple_of(u64::from(checksum.bytes_per_chunk));
    (ends_within && checksum.kind.size() > 0).then(|| core.lifecycle.partial_crc().to_be_bytes())
}
