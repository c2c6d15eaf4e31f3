//! Targets of a writer's bytes, and the moves between them when memory or a slot is full: slot → own file → disk.

use std::io;
use std::sync::Arc;

use hearth_types::{BlockId, ChecksumSpec, GenerationStamp, ReplicaState};

use crate::blockstore::Blockstore;
use crate::counters::count;
use crate::disk::copy::DiskWriter;
use crate::disk::files::DiskCopy;
use crate::disk::layout::ReplicaDir;
use crate::disk::stream::DiskStream;
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::memory::file::{FileWriter, NewCopy, crc_file_bytes};
use crate::memory::header::Identity;
use crate::memory::slab::{NoSlot, Slot};
use crate::options::Engine;
use crate::replica::writer_shared::WriteTarget;
use crate::replica::{Core, Replica};
use crate::snapshot::{CopyError, Snapshot};
use crate::sys;
use crate::volume::Slice;

/// Parameters of a new copy.
#[derive(Clone, Copy)]
pub struct CopyRequest<'a> {
    pub slice: &'a Slice,
    pub id: BlockId,
    pub checksum: ChecksumSpec,
    /// Expected number of bytes, as far as is known.
    pub expected_bytes: u64,
}

impl WriteTarget {
    pub fn read(&self, received: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Slot(slot) => {
                let data = slot.data(received);
                into.copy_from_slice(&data[offset as usize..][..into.len()]);
                Ok(())
            }
            Self::File(file) => file.read_data(offset, into),
            Self::Disk(disk) => std::os::unix::fs::FileExt::read_exact_at(&disk.files.data, into, offset),
            Self::Stream(_) if into.is_empty() => Ok(()),
            Self::Stream(_) => Err(io::Error::other("a stream must be ended before it is read")),
            Self::Detached => Err(gone()),
        }
    }

    /// Writes the data, then the CRCs of chunks that are now whole; on disk also that of the partial chunk after them.
    pub fn write(&self, offset: u64, data: &[u8], crc_at: u64, whole: &[u8], partial: &[u8]) -> io::Result<()> {
        match self {
            Self::Slot(slot) => {
                slot.write_data(offset, data);
                slot.write_crcs(crc_at, whole);
                Ok(())
            }
            Self::File(file) => {
                file.write_data(offset, data)?;
                file.write_crcs(crc_at, whole);
                Ok(())
            }
            Self::Disk(disk) => {
                disk.write_data(offset, data)?;
                if partial.is_empty() {
                    return disk.write_crcs(crc_at, whole);
                }
                let mut crcs = Vec::with_capacity(whole.len() + partial.len());
                crcs.extend_from_slice(whole);
                crcs.extend_from_slice(partial);
                disk.write_crcs(crc_at, &crcs)
            }
            Self::Stream(_) => Err(io::Error::other("a stream can only be appended to")),
            Self::Detached => Err(gone()),
        }
    }

    /// Like [`Self::write`], for data that joins what is there.
    pub fn append(&mut self, offset: u64, data: &[u8], crc_at: u64, whole: &[u8], partial: &[u8]) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.write(offset, data, whole, partial),
            _ => self.write(offset, data, crc_at, whole, partial),
        }
    }

    fn memory(&self) -> Option<MemoryCopy> {
        match self {
            Self::Slot(slot) => Some(MemoryCopy::Slot(slot.clone())),
            Self::File(file) => Some(MemoryCopy::File(file.copy.clone())),
            Self::Disk(_) | Self::Stream(_) | Self::Detached => None,
        }
    }

    /// Points `core` at this target. Returns the copy in memory that it pointed at before.
    pub fn install(&self, core: &mut Core) -> Option<MemoryCopy> {
        let open_header = if let Self::File(file) = self { Some(file.crcs.clone()) } else { None };
        let disk_files = if let Self::Disk(disk) = self { Some(disk.files.clone()) } else { None };
        core.copies.install(self.memory(), open_header, disk_files)
    }
}

/// Replaces `target` by `moved`, which holds the same bytes.
fn replace(core: &mut Core, target: &mut WriteTarget, moved: WriteTarget) {
    if let Some(old) = moved.install(core) {
        old.retire();
    }
    *target = moved;
}

fn gone() -> io::Error {
    io::Error::other("the writer was stopped")
}

/// Returns the directory that a replica in this state is written in.
pub fn dir_for_state(state: ReplicaState) -> ReplicaDir {
    if state == ReplicaState::Temporary { ReplicaDir::Temporary } else { ReplicaDir::BeingWritten }
}

impl Blockstore {
    fn memory_error(&self, slice: &Slice, source: io::Error) -> StoreError {
        StoreError::Io { action: "take memory in", path: slice.memory_dir.clone(), source }
    }

    fn new_copy<'a>(&'a self, wanted: &CopyRequest<'a>, nonce: u64) -> NewCopy<'a> {
        NewCopy {
            dir: &wanted.slice.memory_dir,
            budget: &self.budget,
            block: wanted.id,
            nonce,
            checksum: wanted.checksum,
            created_ms: self.options.clock.wall_ms(),
            expected_bytes: wanted.expected_bytes,
        }
    }

    /// Allocates a slot for `capacity` bytes. `Ok(None)`: memory is full, or slots are too small.
    fn take_slot(&self, wanted: &CopyRequest<'_>, capacity: u64) -> Result<Option<Arc<Slot>>> {
        let largest = u64::from(self.options.memory.slab_replica_bytes_max);
        if wanted.slice.volume.engine != Engine::Memory || capacity > largest || largest == 0 {
            return Ok(None);
        }
        let mut too_large = false;
        let slot = self.with_memory(|| match wanted.slice.slabs.take(wanted.checksum, capacity as u32) {
            Ok(slot) => Ok(Some(Arc::new(slot))),
            Err(NoSlot::TooLarge) => {
                too_large = true;
                Ok(None)
            }
            Err(NoSlot::Full) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            Err(NoSlot::Io(error)) => Err(error),
        });
        Ok(slot.map_err(|error| self.memory_error(wanted.slice, error))?.flatten())
    }

    fn identity(&self, slot: &Slot, wanted: &CopyRequest<'_>) -> Identity {
        Identity {
            block: wanted.id,
            nonce: self.next_nonce(),
            checksum: wanted.checksum,
            data_offset: slot.data_offset(),
            slot_bytes: slot.slot_bytes(),
            created_ms: self.options.clock.wall_ms(),
        }
    }

    /// Creates an empty file copy with room for `room` bytes. `Ok(None)`: memory is full.
    fn take_file(&self, wanted: &CopyRequest<'_>, room: u64) -> Result<Option<FileWriter>> {
        if wanted.slice.volume.engine != Engine::Memory {
            return Ok(None);
        }
        let made = self.with_memory(|| self.make_file(wanted, room));
        made.map_err(|error| self.memory_error(wanted.slice, error))
    }

    fn make_file(&self, wanted: &CopyRequest<'_>, room: u64) -> io::Result<FileWriter> {
        let mut writer = self.new_copy(wanted, self.next_nonce()).create()?;
        writer.reserve(&self.budget, room, u64::from(self.options.memory.slice_bytes)).inspect_err(|_| {
            writer.copy.retire();
        })?;
        Ok(writer)
    }

    /// Allocates the write target of a new, empty replica, recorded as `core` says, and installs it in `core`.
    pub(crate) fn new_target(&self, wanted: &CopyRequest<'_>, core: &mut Core) -> Result<WriteTarget> {
        let largest = u64::from(self.options.memory.slab_replica_bytes_max);
        let capacity = match wanted.expected_bytes {
            0 => largest,
            known => known.min(largest),
        };
        let target = self.target_for(wanted, core, capacity, None)?;
        core.lifecycle.set_checksum(wanted.checksum);
        Ok(target)
    }

    /// Allocates the write target of a new, empty replica that a DataNode copies here and that no client waits for.
    /// Memory for all its bytes is allocated now, without evicting anything. If there is not enough, the bytes go
    /// straight to disk. Waits for the disk.
    pub(crate) fn new_copy_target(&self, wanted: &CopyRequest<'_>, core: &mut Core) -> Result<WriteTarget> {
        let bytes = wanted.expected_bytes;
        if bytes <= u64::from(self.options.memory.slab_replica_bytes_max) {
            // It fits a slot; a replica of unknown length starts in one.
            return self.new_target(wanted, core);
        }
        let file = match wanted.slice.volume.engine {
            Engine::Memory => self.budget.for_copy(bytes, || self.make_file(wanted, bytes)),
            Engine::Mmap | Engine::File => None,
        };
        match file {
            Some(Ok(file)) => {
                self.new_copy(wanted, file.copy.nonce).begin(&file, &core.progress());
                let target = WriteTarget::File(file);
                target.install(core);
                core.lifecycle.set_checksum(wanted.checksum);
                return Ok(target);
            }
            Some(Err(error)) if !sys::is_out_of_space(&error) => return Err(self.memory_error(wanted.slice, error)),
            Some(Err(_)) | None => {}
        }
        let failed = |error| self.disk_error(wanted.slice, "write a replica in", error);
        let (place, dirs) = (dir_for_state(core.lifecycle.state()), &wanted.slice.dirs);
        let stream =
            DiskStream::create(dirs, place, wanted.id, core.lifecycle.stamp(), wanted.checksum, wanted.expected_bytes)
                .map_err(failed)?;
        // Nothing of it counts before its end.
        core.copies.set_disk(DiskCopy { place, stamp: core.lifecycle.stamp(), length: 0 });
        core.lifecycle.set_checksum(wanted.checksum);
        let target = WriteTarget::Stream(Box::new(stream));
        target.install(core);
        Ok(target)
    }

    /// Converts a stream to disk into a file that is written in any order, and writes out the buffered bytes. The
    /// caller holds the writer's lock.
    pub(crate) fn end_stream(&self, replica: &Replica, target: &mut WriteTarget) -> Result<()> {
        let WriteTarget::Stream(_) = target else { return Ok(()) };
        let WriteTarget::Stream(stream) = std::mem::replace(target, WriteTarget::Detached) else { return Ok(()) };
        let writer = stream.end().map_err(|error| self.disk_error(&replica.slice, "write a replica in", error))?;
        *target = WriteTarget::Disk(writer);
        let mut core = replica.core();
        target.install(&mut core);
        let received = core.lifecycle.received();
        core.copies.grow_disk(received);
        Ok(())
    }

    /// Allocates a write target with a copy of all of `content` and room for at least `capacity` bytes: in a slot, in
    /// files of the memory tier, or on disk. Recorded as `core` says, and installed in `core`.
    pub(crate) fn target_for(
        &self,
        wanted: &CopyRequest<'_>,
        core: &mut Core,
        capacity: u64,
        content: Option<&Snapshot>,
    ) -> Result<WriteTarget> {
        let target = match self.memory_target(wanted, core, capacity, content)? {
            Some(target) => target,
            None => WriteTarget::Disk(self.disk_target(wanted, core, content)?),
        };
        target.install(core);
        Ok(target)
    }

    /// Like [`Self::target_for`], in memory only. `Ok(None)`: memory is full, or the volume does not use it.
    pub(crate) fn memory_target(
        &self,
        wanted: &CopyRequest<'_>,
        core: &mut Core,
        capacity: u64,
        content: Option<&Snapshot>,
    ) -> Result<Option<WriteTarget>> {
        if let Some(slot) = self.take_slot(wanted, capacity)? {
            let target = WriteTarget::Slot(slot.clone());
            self.fill(wanted, &target, content)?;
            slot.begin(&self.identity(&slot, wanted), &core.progress());
            return Ok(Some(target));
        }
        let room = content.map_or(0, |content| content.length);
        let Some(file) = self.take_file(wanted, room)? else { return Ok(None) };
        let copy = file.copy.clone();
        let target = WriteTarget::File(file);
        self.fill(wanted, &target, content).inspect_err(|_| copy.retire())?;
        if let WriteTarget::File(file) = &target {
            self.new_copy(wanted, copy.nonce).begin(file, &core.progress());
        }
        Ok(Some(target))
    }

    fn disk_target(&self, wanted: &CopyRequest<'_>, core: &mut Core, content: Option<&Snapshot>) -> Result<DiskWriter> {
        let place = dir_for_state(core.lifecycle.state());
        let dirs = &wanted.slice.dirs;
        let failed = |error| self.disk_error(wanted.slice, "write a replica in", error);
        let disk =
            DiskWriter::create(dirs, place, wanted.id, core.lifecycle.stamp(), wanted.checksum).map_err(failed)?;
        if let Some(content) = content {
            disk.extend(content, 0)
                .map_err(|error| self.copy_error(wanted.slice, wanted.id, core.lifecycle.stamp(), error))?;
        }
        let length = content.map_or(0, |content| content.length);
        core.copies.set_disk(DiskCopy { place, stamp: core.lifecycle.stamp(), length });
        Ok(disk)
    }

    /// Opens a write target on disk, in the being-written place, that holds all of `content`, synced. Bytes that hsync
    /// wrote there are truncated or extended: at no time is there less on disk than was acknowledged as durable.
    /// Installed in `core`.
    pub(crate) fn synced_target(
        &self,
        wanted: &CopyRequest<'_>,
        core: &mut Core,
        content: &Snapshot,
    ) -> Result<WriteTarget> {
        self.cut_synced(wanted, core, content)?;
        let (place, stamp) = (dir_for_state(core.lifecycle.state()), core.lifecycle.stamp());
        let dirs = &wanted.slice.dirs;
        let (disk, is_new) = DiskWriter::holding(dirs, place, wanted.id, stamp, core.copies.disk(), content)
            .map_err(|error| self.copy_error(wanted.slice, wanted.id, stamp, error))?;
        disk.sync()
            .and_then(|()| if is_new { sys::sync_dir(&dirs.dir(place, wanted.id)) } else { Ok(()) })
            .map_err(|error| self.disk_error(wanted.slice, "write a replica in", error))?;
        core.copies.set_disk(DiskCopy { place, stamp, length: content.length });
        core.copies.keep_durable();
        let target = WriteTarget::Disk(disk);
        target.install(core);
        Ok(target)
    }

    /// Durably truncates the bytes that hsync wrote to disk to the length of `content`.
    pub(crate) fn cut_synced(&self, wanted: &CopyRequest<'_>, core: &mut Core, content: &Snapshot) -> Result<()> {
        let longer = |there: &DiskCopy| there.place == ReplicaDir::BeingWritten && there.length > content.length;
        let Some(there) = core.copies.disk().filter(longer) else { return Ok(()) };
        // This much of it is good, even if the steps below fail.
        core.copies.set_disk(DiskCopy { length: content.length, ..there });
        DiskWriter::open(&wanted.slice.dirs, wanted.id, there)
            .and_then(|disk| disk.truncate(content).and_then(|()| disk.sync()))
            .map_err(|error| self.disk_error(wanted.slice, "cut a replica in", error))
    }

    /// Copies all bytes of `content` with their CRCs, and the CRC of a partial chunk into its place in the table.
    fn fill(&self, wanted: &CopyRequest<'_>, target: &WriteTarget, content: Option<&Snapshot>) -> Result<()> {
        let Some(content) = content else { return Ok(()) };
        let copied = content.for_each_window(0, |window| {
            target.write(window.offset, window.data, window.crc_at, window.crcs, &[]).map_err(CopyError::Write)?;
            Ok(true)
        });
        copied.map_err(|error| match error {
            CopyError::Write(source) => self.memory_error(wanted.slice, source),
            error => self.copy_error(wanted.slice, wanted.id, GenerationStamp(0), error),
        })
    }

    pub(crate) fn copy_error(
        &self,
        slice: &Slice,
        id: BlockId,
        stamp: GenerationStamp,
        error: CopyError,
    ) -> StoreError {
        match error {
            CopyError::Read(source) => {
                StoreError::Io { action: "read a replica in", path: slice.dirs.root.clone(), source }
            }
            CopyError::Write(source) => self.disk_error(slice, "write a replica in", source),
            CopyError::Corrupt { .. } => {
                let block = hearth_types::Block { id, stamp, length: 0 };
                let block = hearth_types::ExtendedBlock { pool: slice.pool.clone(), block };
                StoreError::Corrupt { block, reason: error.to_string() }
            }
        }
    }

    /// Allocates memory for bytes up to `up_to` in a data file of the replica's own; the bytes of a slot are moved
    /// there. Returns the end of the allocated range: less than requested when memory is full, 0 when the replica is
    /// not in memory.
    pub(crate) fn make_grant(
        &self,
        replica: &Arc<Replica>,
        target: &mut WriteTarget,
        up_to: u64,
        expected_bytes: u64,
    ) -> Result<u64> {
        if let WriteTarget::Slot(_) = target {
            let wanted = self.copy_request(replica, expected_bytes.max(up_to));
            self.leave_slot(replica, target, &wanted, up_to)?;
        }
        let WriteTarget::File(file) = target else { return Ok(0) };
        if !file.may_be_lent() {
            return Ok(0);
        }
        if up_to > file.allocated() {
            // Do not allocate a slice beyond the request: a grant is not trimmed.
            let before = Arc::as_ptr(&file.crcs);
            self.with_memory(|| file.reserve(&self.budget, up_to, 0))
                .map_err(|error| self.memory_error(&replica.slice, error))?;
            if Arc::as_ptr(&file.crcs) != before {
                replica.core().copies.replace_open_header(file.crcs.clone());
            }
        }
        Ok(file.allocated().min(up_to))
    }

    /// Ensures that the memory copy about to be finalized cannot be changed from outside and is not much larger than
    /// its bytes. Otherwise the bytes are copied, with their CRCs checked, to another memory copy, or to disk when
    /// memory is full.
    pub(crate) fn take_back(&self, replica: &Arc<Replica>, target: &mut WriteTarget) -> Result<()> {
        let WriteTarget::File(file) = &*target else { return Ok(()) };
        let received = replica.core().lifecycle.received();
        if !file.is_to_be_copied(received) {
            return Ok(());
        }
        let wanted = self.copy_request(replica, received);
        let content = replica.snapshot(&mut replica.core())?;
        count(&self.counters.copied_back_bytes, received);
        if let Some(slot) = self.take_slot(&wanted, received)? {
            let moved = WriteTarget::Slot(slot.clone());
            self.fill(&wanted, &moved, Some(&content))?;
            let mut core = replica.core();
            slot.begin(&self.identity(&slot, &wanted), &core.progress());
            replace(&mut core, target, moved);
            return Ok(());
        }
        if let Some(file) = self.take_file(&wanted, content.length)? {
            return self.move_to_file(replica, target, &wanted, &content, file);
        }
        self.move_to_disk(replica, target, &content)
    }

    fn copy_request<'a>(&self, replica: &'a Replica, expected_bytes: u64) -> CopyRequest<'a> {
        let checksum = replica.core().lifecycle.checksum().expect("set when the replica was made");
        CopyRequest { slice: &replica.slice, id: replica.id, checksum, expected_bytes }
    }

    /// Moves the replica from a slot to a file with room for `room` bytes. False: memory is full, nothing has changed.
    fn leave_slot(
        &self,
        replica: &Arc<Replica>,
        target: &mut WriteTarget,
        wanted: &CopyRequest<'_>,
        room: u64,
    ) -> Result<bool> {
        let content = replica.snapshot(&mut replica.core())?;
        let Some(file) = self.take_file(wanted, room.max(content.length))? else { return Ok(false) };
        self.move_to_file(replica, target, wanted, &content, file)?;
        Ok(true)
    }

    /// Copies all bytes to `file`, new and empty, which becomes the copy in memory.
    fn move_to_file(
        &self,
        replica: &Arc<Replica>,
        target: &mut WriteTarget,
        wanted: &CopyRequest<'_>,
        content: &Snapshot,
        file: FileWriter,
    ) -> Result<()> {
        let copy = file.copy.clone();
        let moved = WriteTarget::File(file);
        self.fill(wanted, &moved, Some(content)).inspect_err(|_| copy.retire())?;
        let mut core = replica.core();
        if let WriteTarget::File(file) = &moved {
            self.new_copy(wanted, copy.nonce).begin(file, &core.progress());
        }
        replace(&mut core, target, moved);
        Ok(())
    }

    /// Makes room for bytes up to `end`, moving the replica if necessary. The caller holds its writer lock.
    pub(crate) fn make_room(
        &self,
        replica: &Arc<Replica>,
        target: &mut WriteTarget,
        end: u64,
        expected_bytes: u64,
    ) -> Result<()> {
        if self.make_room_in_memory(replica, target, end, expected_bytes)? {
            return Ok(());
        }
        let content = replica.snapshot(&mut replica.core())?;
        self.move_to_disk(replica, target, &content)
    }

    /// Like [`Self::make_room`], but does not wait for a disk. False: memory is full, and the replica is where it was.
    pub(crate) fn make_room_in_memory(
        &self,
        replica: &Arc<Replica>,
        target: &mut WriteTarget,
        end: u64,
        expected_bytes: u64,
    ) -> Result<bool> {
        match target {
            WriteTarget::Slot(slot) if end <= u64::from(slot.capacity()) => Ok(true),
            WriteTarget::Slot(_) => {
                let wanted = self.copy_request(replica, expected_bytes.max(end));
                self.leave_slot(replica, target, &wanted, end)
            }
            WriteTarget::File(file) => {
                let slice_bytes = u64::from(self.options.memory.slice_bytes);
                let before = Arc::as_ptr(&file.crcs);
                let made = self.with_memory(|| file.reserve(&self.budget, end, slice_bytes));
                if Arc::as_ptr(&file.crcs) != before {
                    replica.core().copies.replace_open_header(file.crcs.clone());
                }
                Ok(made.map_err(|error| self.memory_error(&replica.slice, error))?.is_some())
            }
            WriteTarget::Disk(_) | WriteTarget::Stream(_) | WriteTarget::Detached => Ok(true),
        }
    }

    /// Returns whether memory for `bytes` more of a replica's data may require evictions. Considers only the limit.
    pub(crate) fn is_short_of(&self, checksum: ChecksumSpec, bytes: u64) -> bool {
        let data = bytes.saturating_add(u64::from(self.options.memory.slice_bytes));
        let wanted = data.saturating_add(crc_file_bytes(checksum, data));
        self.budget.used().saturating_add(wanted) > self.budget.limit()
    }

    /// Continues the replica in files, since memory is full. Reuses what hsync has put there already.
    fn move_to_disk(&self, replica: &Arc<Replica>, target: &mut WriteTarget, content: &Snapshot) -> Result<()> {
        let (stamp, state, there) = {
            let core = replica.core();
            (core.lifecycle.stamp(), core.lifecycle.state(), core.copies.disk())
        };
        let place = dir_for_state(state);
        let dirs = &replica.slice.dirs;
        let (disk, _) = DiskWriter::holding(dirs, place, replica.id, stamp, there, content)
            .map_err(|error| self.copy_error(&replica.slice, replica.id, stamp, error))?;
        let mut core = replica.core();
        core.copies.set_disk(DiskCopy { place, stamp, length: content.length });
        *target = WriteTarget::Disk(disk);
        if let Some(old) = target.install(&mut core) {
            old.retire();
        }
        Ok(())
    }

    /// Opens a write target on a replica being written whose previous writer is gone. The caller holds `change`.
    pub(crate) fn resume_target(&self, replica: &Arc<Replica>) -> Result<WriteTarget> {
        let (memory, disk) = {
            let core = replica.core();
            (core.copies.memory().cloned(), core.copies.disk())
        };
        let target = match (memory, disk) {
            (Some(MemoryCopy::Slot(slot)), _) => WriteTarget::Slot(slot),
            (Some(MemoryCopy::File(copy)), _) => {
                WriteTarget::File(FileWriter::resume(&copy).map_err(|error| self.memory_error(&replica.slice, error))?)
            }
            (None, Some(disk)) => {
                let opened = DiskWriter::open(&replica.slice.dirs, replica.id, disk);
                WriteTarget::Disk(opened.map_err(|error| self.disk_error(&replica.slice, "open a replica in", error))?)
            }
            (None, None) => return Err(StoreError::ReplicaNotFound { block: replica.block(&replica.core()) }),
        };
        target.install(&mut replica.core());
        Ok(target)
    }
}
