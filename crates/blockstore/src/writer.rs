//! The writer of a replica. It appends data with its CRCs to the replica's write target, records progress after each
//! write, and finalizes the replica. `grant` and `receive` are its zero-copy paths.

mod grant;
mod receive;

use std::borrow::Cow;
use std::sync::Arc;

use hearth_types::{ChecksumSpec, ExtendedBlock, ReplicaState, StorageId, StorageType};
use parking_lot::MutexGuard;

use crate::blockstore::Blockstore;
use crate::disk::layout::ReplicaDir;
use crate::disk::stream::{CompletedWrite, PendingWrite};
use crate::replica::Replica;
use crate::replica::writer_shared::{WriteTarget, WriterShared};
use crate::{Checksums, Durability, ReplicaSummary, Result, StoreError};

/// The single writer of a replica. A later operation on the replica may stop it; every call then returns
/// `WriterStopped`.
///
/// If dropped before `finalize`, it leaves a replica being written unchanged, since a pipeline recovery may follow, and
/// removes a TEMPORARY one. A borrower of the replica's memory is untrusted from then on, unless
/// [`ReplicaWriter::abandon`] has revoked its access.
pub struct ReplicaWriter {
    store: Blockstore,
    replica: Arc<Replica>,
    shared: Arc<WriterShared>,
    checksum: ChecksumSpec,
    /// Copy of `Lifecycle::received`; like `partial_crc`, changed only by this writer while it is not stopped.
    received: u64,
    partial_crc: u32,
    expected_bytes: u64,
    /// End of the range of the data file that borrowers may fill.
    granted: u64,
    /// Buffer for checking committed bytes; empty before the first commit.
    scratch: Vec<u8>,
    /// The caller checks the CRCs that it gives with data.
    checked: bool,
    /// Memory is lent only until the stop hook revokes access to it.
    until_shut_out: bool,
    done: bool,
}

/// Records the acknowledgements of a whole pipeline. Used by the task that sends the acks, concurrently with the
/// writer.
#[derive(Clone)]
pub struct Acker {
    replica: Arc<Replica>,
    shared: Arc<WriterShared>,
}

impl Acker {
    /// Records that every DataNode of the pipeline has `length` bytes of the block. Call it before the ack is sent
    /// upstream. The value only rises.
    ///
    /// Errors: `WriterStopped`: the ack must not be sent.
    pub fn set(&self, length: u64) -> Result<()> {
        let mut core = self.replica.core();
        let current = core.copies.writer().is_some_and(|writer| Arc::ptr_eq(writer, &self.shared));
        if !current {
            // Either finalized by its own writer, which acknowledges everything, or taken over by another operation.
            let finished =
                core.lifecycle.is_finalized() && length <= core.lifecycle.acked() && !core.lifecycle.is_gone();
            return if finished { Ok(()) } else { Err(StoreError::WriterStopped { block: self.replica.block(&core) }) };
        }
        if self.shared.is_stopped() {
            return Err(StoreError::WriterStopped { block: self.replica.block(&core) });
        }
        if !core.lifecycle.acknowledge(length) {
            return Ok(());
        }
        core.record().map_err(StoreError::io("record the acknowledged length in", &self.replica.slice.memory_dir))
    }
}

impl ReplicaWriter {
    /// Makes the caller the writer of `replica`. The caller holds `change`, and the replica has no writer.
    pub(crate) fn new(store: &Blockstore, replica: &Arc<Replica>, target: WriteTarget, expected_bytes: u64) -> Self {
        let shared = WriterShared::new(target);
        let mut core = replica.core();
        core.copies.begin_writing(shared.clone());
        let checksum = core.lifecycle.checksum().expect("a replica with a write target has a checksum");
        let (received, partial_crc) = (core.lifecycle.received(), core.lifecycle.partial_crc());
        drop(core);
        Self {
            store: store.share(),
            replica: replica.clone(),
            shared,
            checksum,
            received,
            partial_crc,
            expected_bytes,
            granted: 0,
            scratch: Vec::new(),
            checked: true,
            until_shut_out: false,
            done: false,
        }
    }

    /// Returns the replica's block with its stamp and the bytes received.
    pub fn block(&self) -> ExtendedBlock {
        self.replica.block(&self.replica.core())
    }

    pub fn storage(&self) -> (StorageId, StorageType) {
        let volume = &self.replica.slice.volume;
        (volume.id.clone(), volume.storage_type)
    }

    /// Checksum type of the replica. For appends it may differ from the one that the client sends.
    pub fn checksum(&self) -> ChecksumSpec {
        self.checksum
    }

    /// Sets whether the caller checks the CRCs that it gives with its data; true at first. If false, the replica counts
    /// as verified only once the store has verified it.
    pub fn set_checked(&mut self, checked: bool) {
        self.checked = checked;
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received
    }

    pub fn acked(&self) -> u64 {
        self.replica.core().lifecycle.acked()
    }

    pub fn acker(&self) -> Acker {
        Acker { replica: self.replica.clone(), shared: self.shared.clone() }
    }

    /// Appends `data`, which begins at `offset` of the block. Returns the bytes received so far.
    ///
    /// Bytes that were received before are skipped, and the CRC of the chunk at the seam is replaced. A packet that
    /// lies wholly below `received()` changes nothing. Data that begins within a chunk must not extend beyond it: its
    /// CRC covers the new bytes only, and is combined here with the chunk's earlier bytes, after those were checked.
    ///
    /// Touches memory only, unless the memory tier is full: then the replica is continued in files. See
    /// [`Self::write_may_wait`].
    ///
    /// Errors: `Gap`; `BadWrite` (CRCs of a wrong size, data across a seam); `Corrupt` (the bytes before the seam);
    /// `WriterStopped`; `NoSpace`, `VolumeFailed`, `Io`.
    pub fn write(&mut self, offset: u64, data: &[u8], checksums: Checksums<'_>) -> Result<u64> {
        let shared = self.shared.clone();
        let mut target = self.target(&shared)?;
        let crc_bytes = match checksums {
            Checksums::Given(given) => given.len(),
            Checksums::Compute => self.checksum.checksum_bytes(data.len() as u64) as usize,
        };
        let end = self.checked_end(offset, data.len() as u64, crc_bytes)?;
        if end <= self.received {
            return Ok(self.received);
        }
        let within = u64::from(self.checksum.bytes_per_chunk);
        if !self.received.is_multiple_of(within) {
            // The chunk at the seam is read and its CRC replaced, which a stream does not support.
            self.store.end_stream(&self.replica, &mut target)?;
        }
        let fresh = &data[(self.received - offset) as usize..];
        let crcs = self.crcs(&target, offset, fresh, end, checksums)?;

        let chunk = u64::from(self.checksum.bytes_per_chunk);
        let size = self.checksum.kind.size() as u64;
        let first = self.received / chunk;
        let (whole, partial) = crcs.split_at(((end / chunk - first) * size) as usize);
        self.store.make_room(&self.replica, &mut target, end, self.expected_bytes)?;
        target
            .append(self.received, fresh, first * size, whole, partial)
            .map_err(|error| self.store.disk_error(&self.replica.slice, "write a replica in", error))?;
        if !self.checked && matches!(checksums, Checksums::Given(_)) {
            self.replica.core().lifecycle.mark_unverified();
        }
        self.advance(&mut target, end, partial)
    }

    /// Returns whether [`Self::write`] of `bytes` more may wait for a disk, and belongs on a blocking thread: the
    /// replica is written in files, or memory is so full that it may have to move there.
    pub fn write_may_wait(&self, bytes: u64) -> bool {
        let end = self.received.saturating_add(bytes);
        let within = u64::from(self.checksum.bytes_per_chunk.max(1));
        match &*self.shared.target.lock() {
            WriteTarget::Disk(_) => true,
            // Buffered bytes are written out before a partial chunk is continued.
            WriteTarget::Stream(_) => !self.received.is_multiple_of(within),
            WriteTarget::Slot(slot) => end > u64::from(slot.capacity()) && self.store.is_short_of(self.checksum, end),
            WriteTarget::File(file) => {
                end > file.allocated() && self.store.is_short_of(self.checksum, end - file.allocated())
            }
            WriteTarget::Detached => false,
        }
    }

    /// Returns whether the received bytes are in memory, and the next ones will be while there is room.
    pub fn is_in_memory(&self) -> bool {
        matches!(&*self.shared.target.lock(), WriteTarget::Slot(_) | WriteTarget::File(_))
    }

    /// Records that the bytes up to `end` and the CRCs of their whole chunks are written. `partial`: CRC of the last
    /// chunk, if it is not whole.
    fn advance(&mut self, target: &mut WriteTarget, end: u64, partial: &[u8]) -> Result<u64> {
        self.received = end;
        self.partial_crc = partial.try_into().map_or(0, u32::from_be_bytes);
        let mut core = self.replica.core();
        core.lifecycle.receive(end, self.partial_crc);
        if matches!(target, WriteTarget::Disk(_)) {
            core.copies.grow_disk(end);
        }
        core.record().map_err(StoreError::io("record the received length in", &self.replica.slice.memory_dir))?;
        Ok(end)
    }

    /// Returns the end of `length` bytes from `offset`, if they join the received bytes and have the right number of
    /// CRCs.
    fn checked_end(&self, offset: u64, length: u64, crc_bytes: usize) -> Result<u64> {
        if offset > self.received {
            return Err(StoreError::Gap { block: self.block(), offset, received: self.received });
        }
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or_else(|| self.bad_write("end offset overflow"))?;
        let wanted = self.checksum.checksum_bytes(length);
        if crc_bytes as u64 != wanted {
            return Err(self.bad_write(format!("{length} bytes with {crc_bytes} bytes of CRCs, not {wanted}")));
        }
        Ok(end)
    }

    /// Locks the target for the writer itself.
    fn target<'a>(&self, shared: &'a WriterShared) -> Result<MutexGuard<'a, WriteTarget>> {
        let target = shared.target.lock();
        if shared.is_stopped() {
            return Err(StoreError::WriterStopped { block: self.block() });
        }
        self.replica.slice.volume.check()?;
        Ok(target)
    }

    fn bad_write(&self, reason: impl Into<String>) -> StoreError {
        StoreError::BadWrite { block: self.block(), reason: reason.into() }
    }

    /// Returns the CRCs of the chunks from the one that holds the byte at `received` to the one before `end`.
    fn crcs<'a>(
        &self,
        target: &WriteTarget,
        offset: u64,
        fresh: &[u8],
        end: u64,
        checksums: Checksums<'a>,
    ) -> Result<Cow<'a, [u8]>> {
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        let size = self.checksum.kind.size() as u64;
        if size == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let first = self.received / chunk;
        if let Checksums::Given(given) = checksums {
            if offset.is_multiple_of(chunk) {
                return Ok(Cow::Borrowed(&given[((first - offset / chunk) * size) as usize..]));
            }
            if end > offset.next_multiple_of(chunk) {
                return Err(self.bad_write(format!("bytes {offset}..{end} begin within a chunk and extend beyond it")));
            }
        }
        // The chunk at the seam already has bytes: their CRC is checked before a new CRC covers them.
        let mut old = vec![0; (self.received - first * chunk) as usize];
        target
            .read(self.received, first * chunk, &mut old)
            .map_err(|error| self.store.disk_error(&self.replica.slice, "read a replica in", error))?;
        if !old.is_empty() && self.checksum.kind.of(&old) != self.partial_crc {
            let reason = format!("the partial chunk of {} bytes at {} has a wrong CRC", old.len(), first * chunk);
            return Err(StoreError::Corrupt { block: self.block(), reason });
        }
        let mut crcs = Vec::new();
        if old.is_empty() {
            self.checksum.compute(fresh, &mut crcs);
        } else {
            let rest = fresh.len().min(chunk as usize - old.len());
            old.extend_from_slice(&fresh[..rest]);
            self.checksum.compute(&old, &mut crcs);
            self.checksum.compute(&fresh[rest..], &mut crcs);
        }
        Ok(Cow::Owned(crcs))
    }

    /// Takes bytes that are ready to be written to disk, for [`PendingWrite::write`] on a blocking thread. Return the
    /// result with [`Self::complete_write`] before taking the next piece and before the end. Taking pieces is optional:
    /// later calls write those that were not taken.
    pub fn take_pending_write(&mut self) -> Option<PendingWrite> {
        match &mut *self.shared.target.lock() {
            WriteTarget::Stream(stream) => stream.take_due(),
            _ => None,
        }
    }

    /// Returns whether writing `bytes` more makes a piece due. A piece that was taken should be returned before that.
    pub fn makes_piece_due(&self, bytes: usize) -> bool {
        match &*self.shared.target.lock() {
            WriteTarget::Stream(stream) => stream.fills_with(bytes),
            _ => false,
        }
    }

    /// Returns whether another operation has taken over the replica: every call fails from then on.
    pub fn is_stopped(&self) -> bool {
        self.shared.is_stopped()
    }

    /// Returns a piece that was taken with [`Self::take_pending_write`].
    ///
    /// Errors: `WriterStopped`; `NoSpace`, `VolumeFailed`, `Io`: the bytes are lost.
    pub fn complete_write(&mut self, piece: CompletedWrite) -> Result<()> {
        let mut target = self.target(&self.shared)?;
        let outcome = match &mut *target {
            WriteTarget::Stream(stream) => stream.take_back(piece),
            _ => piece.outcome,
        };
        outcome.map_err(|error| self.store.disk_error(&self.replica.slice, "write a replica in", error))
    }

    /// hsync: on return, all received bytes, their CRCs and the directory entries are on disk. Waits for the disk.
    pub fn sync(&mut self) -> Result<()> {
        let _change = self.replica.change.lock();
        let mut target = self.target(&self.shared)?;
        self.store.end_stream(&self.replica, &mut target)?;
        if let WriteTarget::Disk(disk) = &*target {
            let synced = disk.sync().and_then(|()| self.sync_dir());
            synced.map_err(|error| self.store.disk_error(&self.replica.slice, "sync a replica in", error))?;
            self.replica.core().copies.keep_durable();
            return Ok(());
        }
        self.store.sync_being_written(&self.replica)
    }

    fn sync_dir(&self) -> std::io::Result<()> {
        let place = self.replica.core().copies.disk().map_or(ReplicaDir::BeingWritten, |disk| disk.place);
        crate::sys::sync_dir(&self.replica.slice.dirs.dir(place, self.replica.id))
    }

    /// Finalizes the replica after its last packet; it is immutable from then on. All received bytes count as
    /// acknowledged.
    ///
    /// Waits for the disk with `Durability::Disk`, when part of the replica is already durable, or when it is written
    /// in files.
    pub fn finalize(mut self, durability: Durability) -> Result<ReplicaSummary> {
        let replica = self.replica.clone();
        let shared = self.shared.clone();
        let _change = replica.change.lock();
        {
            let mut target = self.target(&shared)?;
            self.store.finish(&replica, &mut target, durability)?;
            shared.finish(&mut target);
        }
        self.done = true;
        self.store.stay_durable(&replica);
        self.store.make_durable(&replica, durability)?;
        Ok(replica.summary())
    }

    /// TRANSFER_RBW: converts the TEMPORARY replica into one being written, with all received bytes visible and no
    /// writer.
    pub fn convert_temporary_to_being_written(mut self) -> Result<ReplicaSummary> {
        let replica = self.replica.clone();
        let shared = self.shared.clone();
        let _change = replica.change.lock();
        let mut target = self.target(&shared)?;
        self.store.end_stream(&replica, &mut target)?;
        self.store.convert_temporary_to_being_written(&replica)?;
        shared.finish(&mut target);
        self.done = true;
        Ok(replica.summary())
    }

    /// Sets a hook that the thread that stops this writer calls before it proceeds. The hook closes the connection and,
    /// if remote peers write into the replica's memory, revokes their access. It returns whether no one can write any
    /// more; the callee bounds its duration. Until it has returned true, each further attempt to stop the writer calls
    /// it again. If the writer is stopped already, it is called at once. [`Self::abandon`] calls it, too.
    pub fn on_stop(&mut self, hook: Box<dyn FnMut() -> bool + Send>) {
        if let Some(mut hook) = self.shared.set_hook(hook) {
            hook();
        }
    }

    /// Declares that borrowers access the replica's memory only by means that the hook of [`Self::on_stop`] revokes,
    /// such as registered memory. If they were not revoked when this writer is dropped, the borrowers are untrusted
    /// from then on.
    pub fn lend_until_shut_out(&mut self) {
        self.until_shut_out = true;
    }

    /// Ends writing, as a drop does, but first revokes all other write access, as stopping the writer would. Until that
    /// is done, the replica is not seen without a writer. Takes as long as the hook of [`Self::on_stop`].
    pub fn abandon(self) {
        self.shared.shut_out();
    }
}

impl Drop for ReplicaWriter {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let replica = self.replica.clone();
        // A drop may wait, but never while the replica is being taken over: that operation has stopped this writer.
        if self.shared.is_stopped() {
            return;
        }
        let _change = replica.change.lock();
        let mut target = self.shared.target.lock();
        if self.shared.is_stopped() {
            return;
        }
        // A borrower whose access was not revoked may continue to write, and the next writer has no hook for it.
        if let WriteTarget::File(file) = &*target
            && self.until_shut_out
            && self.shared.has_hook()
        {
            file.distrust();
        }
        self.shared.finish(&mut target);
        let temporary = {
            let mut core = replica.core();
            core.copies.end_writing();
            // Memory that the borrower took beyond the grant is released with the connection.
            self.store.settle_lent(&replica, &core);
            core.lifecycle.state() == ReplicaState::Temporary
        };
        if temporary {
            self.store.discard(&replica);
        }
    }
}
