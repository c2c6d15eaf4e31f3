//! Places of a replica's bytes, in memory and on disk, and the files that are open there.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::cached_files::CachedFiles;
use super::writer_shared::WriterShared;
use crate::disk::files::{DiskCopy, DiskFiles};
use crate::disk::layout::ReplicaDir;
use crate::memory::copy::MemoryCopy;
use crate::memory::file::CrcMap;

/// Copies of a replica.
///
/// A writer writes in one place. In memory files, `open_header` is the header of `memory`. On disk, `disk_files` are
/// those of `disk`, and there is no copy in memory.
pub struct Copies {
    memory: Option<MemoryCopy>,
    /// The mapped header of `memory` while a writer has it open.
    open_header: Option<Arc<CrcMap>>,
    /// Sequence of the last progress recorded in memory.
    sequence: u64,
    disk: Option<DiskCopy>,
    /// A client relies on bytes of the replica to be durable: it called hsync, or the disk had them before an append.
    kept_durable: bool,
    /// The open files of the replica, cached for readers.
    cached_files: Option<CachedFiles>,
    /// Files that the writer writes, if it writes on disk.
    disk_files: Option<Arc<DiskFiles>>,
    writer: Option<Arc<WriterShared>>,
    dirty: Option<Dirty>,
}

/// Mark of a finalized replica whose newest bytes are only in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirty {
    /// Time, in ms of the monotonic clock, since which it is.
    pub since_ms: u64,
    /// Ticket of the flusher's queue entry; entries with other tickets are stale.
    pub ticket: NonZeroU64,
}

impl Copies {
    /// A replica without copies. `sequence`: that of the last progress recorded for the block, or 0.
    pub fn new(sequence: u64) -> Self {
        Self {
            memory: None,
            open_header: None,
            sequence,
            disk: None,
            kept_durable: false,
            cached_files: None,
            disk_files: None,
            writer: None,
            dirty: None,
        }
    }

    /// The copies that a start finds. `memory`: with the sequence of its progress record. The bytes on disk of a replica
    /// that was being written count as kept durable, since nothing says whether they were synced.
    pub fn found(memory: Option<(MemoryCopy, u64)>, disk: Option<DiskCopy>) -> Self {
        let (memory, sequence) = memory.map_or((None, 0), |(memory, sequence)| (Some(memory), sequence));
        let kept_durable = disk.is_some_and(|disk| disk.place == ReplicaDir::BeingWritten);
        Self { memory, disk, kept_durable, ..Self::new(sequence) }
    }

    pub fn memory(&self) -> Option<&MemoryCopy> {
        self.memory.as_ref()
    }

    pub fn is_in_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub fn open_header(&self) -> Option<&Arc<CrcMap>> {
        self.open_header.as_ref()
    }

    pub fn disk(&self) -> Option<DiskCopy> {
        self.disk
    }

    /// Files that the writer writes on disk.
    pub fn disk_files(&self) -> Option<&Arc<DiskFiles>> {
        self.disk_files.as_ref()
    }

    pub fn writer(&self) -> Option<&Arc<WriterShared>> {
        self.writer.as_ref()
    }

    pub fn dirty(&self) -> Option<Dirty> {
        self.dirty
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty.is_some()
    }

    /// Returns whether opening the replica's bytes opens files on disk, which may block.
    pub fn opens_on_disk(&self) -> bool {
        let kept = self.cached_files.as_ref().is_some_and(|kept| kept.is_of(self.disk));
        self.memory.is_none() && self.disk_files.is_none() && !kept
    }

    /// Returns the sequence of the next progress record.
    pub fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Sequence of the last progress record.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A writer begins. Its place is [`Self::install`]ed.
    pub fn begin_writing(&mut self, writer: Arc<WriterShared>) {
        debug_assert!(self.writer.is_none(), "a replica has one writer");
        self.writer = Some(writer);
    }

    /// The writer has ended or was stopped. The bytes stay where they are.
    pub fn end_writing(&mut self) {
        self.writer = None;
        self.close_written();
    }

    /// Closes what is open for writing, since the place of the bytes may change before the next writer.
    pub fn close_written(&mut self) {
        self.open_header = None;
        self.disk_files = None;
    }

    /// Makes one place that of the replica's bytes: memory with its open header, if it is in files, or open files on
    /// disk. Returns the copy in memory that was there before.
    pub fn install(
        &mut self,
        memory: Option<MemoryCopy>,
        open_header: Option<Arc<CrcMap>>,
        disk_files: Option<Arc<DiskFiles>>,
    ) -> Option<MemoryCopy> {
        debug_assert!(open_header.is_none() || matches!(memory, Some(MemoryCopy::File(_))), "a header is of a file");
        debug_assert!(memory.is_none() || disk_files.is_none(), "a writer writes in one place");
        let before = std::mem::replace(&mut self.memory, memory);
        self.open_header = open_header;
        self.disk_files = disk_files;
        before
    }

    /// The header of the copy in memory was mapped again, since its table has grown.
    pub fn replace_open_header(&mut self, header: Arc<CrcMap>) {
        debug_assert!(matches!(self.memory, Some(MemoryCopy::File(_))), "a header is of a file");
        self.open_header = Some(header);
    }

    /// The copy on disk was read into memory.
    pub fn read_back(&mut self, memory: Option<MemoryCopy>, sequence: u64) {
        self.memory = memory;
        self.sequence = sequence;
    }

    /// Takes the copy out of memory, for another replica that is to have it.
    pub fn take_memory(&mut self) -> Option<MemoryCopy> {
        self.open_header = None;
        self.memory.take()
    }

    /// Drops the copy in memory, which frees it.
    pub fn drop_memory(&mut self) {
        self.cached_files = None;
        if let Some(memory) = self.take_memory() {
            memory.retire();
        }
    }

    /// The copy on disk is `copy` now. Returns the one before.
    pub fn set_disk(&mut self, copy: DiskCopy) -> Option<DiskCopy> {
        self.disk.replace(copy)
    }

    /// Bytes of the replica are durable, and a client relies on them: the whole replica must be durable once it is
    /// finalized.
    pub fn keep_durable(&mut self) {
        self.kept_durable = true;
    }

    pub fn is_kept_durable(&self) -> bool {
        self.kept_durable
    }

    /// The copy on disk that the writer writes has `length` bytes.
    pub fn grow_disk(&mut self, length: u64) {
        if let Some(disk) = &mut self.disk {
            disk.length = length;
        }
    }

    /// The copy on disk no longer counts. Returns it, for its files to be removed.
    pub fn lose_disk(&mut self) -> Option<DiskCopy> {
        self.disk.take()
    }

    /// The replica is deleted: its memory is freed. Returns the copy on disk, for its files to be removed.
    pub fn delete(&mut self) -> Option<DiskCopy> {
        debug_assert!(self.dirty.is_none(), "it is marked clean first");
        self.end_writing();
        self.drop_memory();
        self.lose_disk()
    }

    /// The replica is ignored: its copies stay where they are, for the next start.
    pub fn ignore(&mut self) {
        self.memory = None;
        self.disk = None;
    }

    /// The newest bytes of the finalized replica are only in memory.
    pub fn mark_dirty(&mut self, dirty: Dirty) {
        debug_assert!(self.dirty.is_none(), "a replica has one entry in the flusher's queue");
        self.dirty = Some(dirty);
    }

    /// The replica is on disk, or no longer finalized. Returns whether it was dirty.
    pub fn mark_clean(&mut self) -> bool {
        self.dirty.take().is_some()
    }

    pub fn cached_files(&self) -> Option<&CachedFiles> {
        self.cached_files.as_ref()
    }

    pub fn cached_files_mut(&mut self) -> Option<&mut CachedFiles> {
        self.cached_files.as_mut()
    }

    pub fn cache_files(&mut self, files: CachedFiles) {
        self.cached_files = Some(files);
    }

    /// Takes the cached files, to close or to replace them.
    pub fn take_cached_files(&mut self) -> Option<CachedFiles> {
        self.cached_files.take()
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::{ChecksumSpec, GenerationStamp};

    use super::*;
    use crate::memory::budget::Budget;
    use crate::memory::slab::Slabs;
    use crate::replica::writer_shared::WriteTarget;

    fn slot(slabs: &Slabs) -> MemoryCopy {
        MemoryCopy::Slot(Arc::new(slabs.take(ChecksumSpec::DEFAULT, 100).unwrap()))
    }

    fn on_disk(length: u64) -> DiskCopy {
        DiskCopy { place: ReplicaDir::BeingWritten, stamp: GenerationStamp(1), length }
    }

    #[test]
    fn bytes_stay_where_they_are_after_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let slabs = Slabs::new(dir.path().to_owned(), Budget::new(1 << 20));
        let (first, second) = (slot(&slabs), slot(&slabs));
        let mut copies = Copies::new(0);
        assert!(copies.install(Some(first.clone()), None, None).is_none());
        copies.begin_writing(WriterShared::new(WriteTarget::Detached));
        let before = copies.install(Some(second.clone()), None, None);
        assert!(before.is_some_and(|before| before.same(&first)));
        copies.end_writing();
        assert!(copies.writer().is_none() && copies.disk_files().is_none());
        assert!(copies.memory().is_some_and(|memory| memory.same(&second)));
        copies.drop_memory();
        assert!(!copies.is_in_memory() && copies.opens_on_disk());
    }

    #[test]
    fn sequence_rises_with_every_record() {
        let mut copies = Copies::found(None, Some(on_disk(5)));
        assert_eq!((copies.next_sequence(), copies.next_sequence()), (1, 2));
        copies.read_back(None, 7);
        assert_eq!((copies.next_sequence(), copies.sequence()), (8, 8));
    }

    #[test]
    fn bytes_found_being_written_stay_durable() {
        assert!(Copies::found(None, Some(on_disk(5))).is_kept_durable());
        let finalized = DiskCopy { place: ReplicaDir::Finalized, ..on_disk(5) };
        let mut copies = Copies::found(None, Some(finalized));
        assert!(!copies.is_kept_durable() && !Copies::new(0).is_kept_durable());
        copies.keep_durable();
        copies.end_writing();
        copies.set_disk(on_disk(6));
        assert!(copies.is_kept_durable());
    }

    #[test]
    fn dirty_mark_is_cleared_once() {
        let mut copies = Copies::new(0);
        let dirty = Dirty { since_ms: 3, ticket: NonZeroU64::MIN };
        copies.mark_dirty(dirty);
        assert_eq!(copies.dirty(), Some(dirty));
        assert!(copies.mark_clean() && !copies.mark_clean() && !copies.is_dirty());
    }

    #[test]
    fn deleted_replica_leaves_only_files_to_remove() {
        let dir = tempfile::tempdir().unwrap();
        let budget = Budget::new(1 << 20);
        let slabs = Slabs::new(dir.path().to_owned(), budget.clone());
        let mut copies = Copies::found(Some((slot(&slabs), 4)), Some(on_disk(5)));
        assert_eq!(copies.sequence(), 4);
        copies.grow_disk(6);
        assert_eq!(copies.delete(), Some(on_disk(6)));
        assert!(!copies.is_in_memory() && copies.disk().is_none());
        assert_eq!(slabs.use_now().0, 0, "its slot is free");
    }
}
