//! Append to a finalized replica: it becomes one being written, in memory if possible, otherwise on disk.

use std::sync::Arc;

use hearth_types::{ExtendedBlock, GenerationStamp, ReplicaState};

use crate::blockstore::Blockstore;
use crate::disk::copy::{self, DiskWriter};
use crate::disk::files::DiskCopy;
use crate::disk::layout::ReplicaDir;
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::memory::file::{FileWriter, NewCopy};
use crate::replica::writer_shared::WriteTarget;
use crate::replica::{Core, Replica};
use crate::write_target::CopyRequest;
use crate::{ReplicaWriter, WithdrawReason};

impl Blockstore {
    /// PIPELINE_SETUP_APPEND: opens the finalized replica `block` of exactly `length` bytes for appending, under
    /// `new_stamp`. Waits for the disk if the replica has a copy there.
    pub fn append(&self, block: &ExtendedBlock, new_stamp: GenerationStamp, length: u64) -> Result<ReplicaWriter> {
        self.change_replica(block, |replica| {
            self.check_appendable(replica, block, new_stamp, length)?;
            self.open_finalized(replica, new_stamp)
        })
    }

    fn check_appendable(
        &self,
        replica: &Replica,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<()> {
        replica.slice.volume.check()?;
        let received = {
            let core = replica.core();
            let state = core.lifecycle.state_now();
            if state != ReplicaState::Finalized {
                return Err(StoreError::WrongState { block: replica.block(&core), state, action: "append" });
            }
            if core.lifecycle.stamp() != block.stamp() || new_stamp < core.lifecycle.stamp() {
                let wanted = format!("{} and not above {new_stamp}", block.stamp());
                return Err(StoreError::StampMismatch {
                    block: replica.block(&core),
                    stored: core.lifecycle.stamp(),
                    wanted,
                    action: "append",
                });
            }
            core.lifecycle.received()
        };
        self.check_length(replica, received, length)
    }

    /// Checks the received length. Called without the core lock.
    ///
    /// Errors: `LengthMismatch`.
    pub(crate) fn check_length(&self, replica: &Replica, actual: u64, wanted: u64) -> Result<()> {
        if actual == wanted {
            return Ok(());
        }
        let block = replica.named(replica.core().lifecycle.stamp());
        Err(StoreError::LengthMismatch { block, what: "received", actual, wanted: wanted.to_string() })
    }

    /// Opens a writer on a finalized replica, which becomes one being written under `new_stamp`. The caller holds
    /// `change` and has checked the replica.
    ///
    /// The memory side is prepared first, then the disk, and only then does the replica change: a failure leaves it
    /// unchanged.
    pub(crate) fn open_finalized(&self, replica: &Arc<Replica>, new_stamp: GenerationStamp) -> Result<ReplicaWriter> {
        if let Some(reason) = replica.core().lifecycle.corrupt() {
            return Err(StoreError::Corrupt { block: replica.named(new_stamp), reason: reason.to_owned() });
        }
        let expected = self.options.default_block_bytes.max(replica.core().lifecycle.received());
        let room = expected - replica.core().lifecycle.received();
        if !replica.slice.volume.reserve(self.used_on(&replica.slice.volume), room)? {
            return Err(StoreError::NoSpace { storage_type: replica.slice.volume.storage_type, wanted: room });
        }
        let _changing = self.begin_change(replica, WithdrawReason::Append);
        let opened = self.open_for_append(replica, new_stamp, expected);
        if opened.is_err() {
            replica.slice.volume.change_reserved(room, 0);
        }
        let (target, old) = opened?;
        {
            let mut core = replica.core();
            core.space.add_reserved(room);
            if let Some(old) = old {
                old();
            }
            replica.settle_space(&mut core);
        }
        Ok(ReplicaWriter::new(self, replica, target, expected))
    }

    #[expect(clippy::type_complexity, reason = "one use: what to retire once all has succeeded")]
    fn open_for_append(
        &self,
        replica: &Arc<Replica>,
        new_stamp: GenerationStamp,
        expected_bytes: u64,
    ) -> Result<(WriteTarget, Option<Box<dyn FnOnce()>>)> {
        let memory = replica.core().copies.memory().cloned();
        let Some(memory) = memory else { return Ok((self.disk_target_for_append(replica, new_stamp)?, None)) };
        let target = self.memory_target_for_append(replica, &memory, new_stamp, expected_bytes)?;
        let Some(target) = target else {
            // No memory for more bytes: it continues on disk.
            if replica.core().copies.is_dirty() {
                self.flush_one(replica)?;
            }
            let target = self.disk_target_for_append(replica, new_stamp)?;
            return Ok((target, Some(Box::new(move || memory.retire()))));
        };
        let shared = |file: &FileWriter| matches!(&memory, MemoryCopy::File(old) if file.copy.shares_data(old));
        let moved = self.disk_copy_for_append(replica, new_stamp).inspect_err(|_| match &target {
            WriteTarget::Slot(slot) => slot.retire(),
            WriteTarget::File(file) if shared(file) => file.copy.retire_crcs(),
            WriteTarget::File(file) => file.copy.retire(),
            WriteTarget::Disk(_) | WriteTarget::Stream(_) | WriteTarget::Detached => {}
        })?;
        let extended = matches!(&target, WriteTarget::File(file) if shared(file));
        let mut core = replica.core();
        if let Some(moved) = moved {
            core.copies.set_disk(moved);
        }
        self.becomes_written(&mut core, new_stamp);
        target.install(&mut core);
        let old: Box<dyn FnOnce()> = match memory {
            MemoryCopy::Slot(slot) => Box::new(move || slot.retire()),
            MemoryCopy::File(copy) if extended => Box::new(move || copy.retire_crcs()),
            MemoryCopy::File(copy) => Box::new(move || copy.retire()),
        };
        Ok((target, Some(old)))
    }

    /// Opens a write target on the disk copy, which becomes one being written, like the replica.
    fn disk_target_for_append(&self, replica: &Replica, new_stamp: GenerationStamp) -> Result<WriteTarget> {
        let (disk, received) = {
            let core = replica.core();
            (core.copies.disk(), core.lifecycle.received())
        };
        let Some(disk) = disk else { return Err(StoreError::ReplicaNotFound { block: replica.named(new_stamp) }) };
        // Before the files are renamed: they stay open.
        let opened = DiskWriter::open(&replica.slice.dirs, replica.id, disk);
        let writer = opened.map_err(|error| self.disk_error(&replica.slice, "open a replica in", error))?;
        let crc = writer.files.partial_crc(received);
        let partial_crc = crc.map_err(|error| self.disk_error(&replica.slice, "read a replica in", error))?;
        self.disk_copy_for_append(replica, new_stamp)?;
        let mut core = replica.core();
        core.lifecycle.set_partial_crc(partial_crc);
        core.lifecycle.set_checksum(writer.files.checksum);
        self.becomes_written(&mut core, new_stamp);
        let target = WriteTarget::Disk(writer);
        target.install(&mut core);
        Ok(target)
    }

    fn becomes_written(&self, core: &mut Core, new_stamp: GenerationStamp) {
        self.clear_dirty(core);
        core.lifecycle.append(new_stamp);
    }

    /// Converts the disk copy, if there is one, to being written under the new stamp; durable. The replica has to be as
    /// durable when it is finalized again.
    fn disk_copy_for_append(&self, replica: &Replica, new_stamp: GenerationStamp) -> Result<Option<DiskCopy>> {
        let Some(disk) = replica.core().copies.disk() else { return Ok(None) };
        let dirs = &replica.slice.dirs;
        let to = copy::relocate(dirs, replica.id, disk, ReplicaDir::BeingWritten, new_stamp, true)
            .map_err(|error| self.disk_error(&replica.slice, "open a replica in", error))?;
        let mut core = replica.core();
        core.copies.set_disk(to);
        core.copies.keep_durable();
        Ok(Some(to))
    }

    /// Opens a write target with the same bytes, recorded as being written. `Ok(None)`: memory is full.
    fn memory_target_for_append(
        &self,
        replica: &Arc<Replica>,
        memory: &MemoryCopy,
        new_stamp: GenerationStamp,
        expected_bytes: u64,
    ) -> Result<Option<WriteTarget>> {
        // A holder of a descriptor takes the file's end for the replica's, so the file must not grow.
        let copied = match memory {
            MemoryCopy::File(copy) if copy.is_shown() => {
                let held = copy.is_held();
                if !held {
                    copy.clear_shown();
                }
                held
            }
            MemoryCopy::File(_) | MemoryCopy::Slot(_) => false,
        };
        let content = replica.snapshot(&mut replica.core())?;
        let mut core = replica.core();
        // The record of the new copy states what the replica is about to become.
        let before = core.lifecycle.marks();
        core.lifecycle.append(new_stamp);
        let made = match memory {
            MemoryCopy::Slot(_) => {
                let wanted =
                    CopyRequest { slice: &replica.slice, id: replica.id, checksum: content.checksum, expected_bytes };
                let capacity = u64::from(self.options.memory.slab_replica_bytes_max).max(content.length);
                self.memory_target(&wanted, &mut core, capacity, Some(&content))
            }
            MemoryCopy::File(_) if copied => {
                let wanted =
                    CopyRequest { slice: &replica.slice, id: replica.id, checksum: content.checksum, expected_bytes };
                self.memory_target(&wanted, &mut core, u64::MAX, Some(&content))
            }
            MemoryCopy::File(copy) => {
                let progress = core.progress();
                let new = NewCopy {
                    dir: &replica.slice.memory_dir,
                    budget: &self.budget,
                    block: replica.id,
                    nonce: copy.nonce,
                    checksum: copy.checksum,
                    created_ms: self.options.clock.wall_ms(),
                    expected_bytes,
                };
                self.with_memory(|| FileWriter::reopen(copy, &new, content.length, &progress))
                    .map(|writer| writer.map(WriteTarget::File))
                    .map_err(StoreError::io("append to a replica in", &replica.slice.memory_dir))
            }
        };
        core.lifecycle.restore(before);
        made
    }
}
