//! Readers of replicas. A reader holds a snapshot of the bytes, so that they stay valid while the replica changes.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearth_types::{ByteRange, ChecksumSpec, ExtendedBlock, ReplicaState, StorageId, StorageType};
use parking_lot::MutexGuard;

use crate::blockstore::Blockstore;
use crate::options::Engine;
use crate::replica::{CORE_LOCK_TIMEOUT, Core, Replica};
use crate::snapshot::{CopyError, Snapshot, Source};
use crate::{Result, StoreError};

/// A guard on the bytes of one replica, as they were when it was opened. While it lives, neither memory nor files of
/// these bytes are reused, even if the replica is appended to, truncated, evicted or deleted.
///
/// For a replica being written, it shows the bytes received when it was opened; open it again for more.
pub struct ReplicaReader {
    pub(crate) replica: Arc<Replica>,
    pub(crate) block: ExtendedBlock,
    pub(crate) state: ReplicaState,
    pub(crate) visible_length: u64,
    pub(crate) snapshot: Snapshot,
    /// `Showing::withdrawals` when it was opened.
    pub(crate) withdrawals: u32,
}

/// A replica opened for a caller that must not wait for a disk.
pub enum Reading {
    Now(ReplicaReader),
    /// Its files on this storage must be opened first, with [`Blockstore::reader`](crate::Blockstore::reader) on a
    /// blocking thread.
    OnDisk(StorageId),
}

/// Location of a replica's bytes, for sending them with the fewest copies.
#[derive(Clone, Copy, Debug)]
pub enum DataSource<'a> {
    /// Byte 0 of the block is at `offset` of this file, which may be passed to sendfile. Other processes get a
    /// descriptor from [`ReplicaReader::show`].
    File { file: BorrowedFd<'a>, offset: u64 },
    /// All bytes of the block. Copy them, do not splice: the memory may be reused once the guard is dropped.
    Bytes(&'a [u8]),
}

impl Blockstore {
    /// Opens the replica for reading. Its stamp may be higher than `block`'s but not lower; its length is not compared.
    ///
    /// Errors: `ReplicaNotFound`, `StampMismatch`, `WrongState` (not readable), `Corrupt`.
    pub fn reader(&self, block: &ExtendedBlock) -> Result<ReplicaReader> {
        self.with_replica(block, |replica| self.reader_of(replica, replica.core(), block))
    }

    /// Like [`Blockstore::reader`], for callers that must not wait for a disk.
    ///
    /// Errors: those of [`Blockstore::reader`].
    pub fn reader_now(&self, block: &ExtendedBlock) -> Result<Reading> {
        self.with_replica(block, |replica| {
            let core = replica.core_within(CORE_LOCK_TIMEOUT).filter(|core| !core.copies.opens_on_disk());
            match core {
                Some(core) => Ok(self.reader_of(replica, core, block)?.map(Reading::Now)),
                None => Ok(Some(Reading::OnDisk(replica.slice.volume.id.clone()))),
            }
        })
    }

    /// `Ok(None)`: the replica is gone.
    fn reader_of(
        &self,
        replica: &Arc<Replica>,
        mut core: MutexGuard<'_, Core>,
        block: &ExtendedBlock,
    ) -> Result<Option<ReplicaReader>> {
        if core.lifecycle.is_gone() {
            return Ok(None);
        }
        if core.lifecycle.stamp() < block.stamp() {
            return Err(StoreError::StampMismatch {
                block: replica.block(&core),
                stored: core.lifecycle.stamp(),
                wanted: format!("at least {}", block.stamp()),
                action: "read it",
            });
        }
        if let Some(reason) = core.lifecycle.corrupt() {
            return Err(StoreError::Corrupt { block: replica.block(&core), reason: reason.to_string() });
        }
        let Some(visible_length) = core.lifecycle.visible_length() else {
            let state = core.lifecycle.state_now();
            return Err(StoreError::WrongState { block: replica.block(&core), state, action: "read it" });
        };
        if !core.copies.is_in_memory() {
            replica.slice.volume.check()?;
        }
        // Replicas that may be read back into memory are not kept open on disk.
        let keep = replica.slice.volume.engine != Engine::Memory
            && core.lifecycle.is_finalized()
            && !core.copies.is_in_memory()
            && core.copies.disk_files().is_none();
        let opened = match keep {
            true => self.open_files.open(replica, &mut core),
            false => replica.snapshot(&mut core).map(|snapshot| (snapshot, false)),
        };
        let (snapshot, mut tidy) = match opened {
            Err(StoreError::Corrupt { reason, .. }) => return Err(self.mark_corrupt(replica, &mut core, &reason)),
            other => other?,
        };
        core.eviction.reference();
        tidy |= self.open_files.keep_memory(replica, &mut core, &snapshot);
        if !snapshot.in_memory() {
            self.note_disk_read(replica, &mut core);
        }
        let block = replica.block(&core);
        let (state, withdrawals) = (core.lifecycle.state(), core.showing.withdrawals());
        drop(core);
        if tidy {
            self.open_files.tidy();
        }
        let replica = replica.clone();
        Ok(Some(ReplicaReader { replica, block, state, visible_length, snapshot, withdrawals }))
    }
}

impl ReplicaReader {
    /// Returns the stored replica's block: its own stamp, and `length()`.
    pub fn block(&self) -> &ExtendedBlock {
        &self.block
    }

    pub fn state(&self) -> ReplicaState {
        self.state
    }

    /// Number of readable bytes: all of a finalized replica, those received of one being written.
    pub fn length(&self) -> u64 {
        self.snapshot.length
    }

    /// Number of bytes promised to readers: those acknowledged by the whole pipeline for a replica being written.
    pub fn visible_length(&self) -> u64 {
        self.visible_length
    }

    pub fn checksum(&self) -> ChecksumSpec {
        self.snapshot.checksum
    }

    pub fn storage(&self) -> (&StorageId, StorageType) {
        let volume = &self.replica.slice.volume;
        (&volume.id, volume.storage_type)
    }

    /// Returns whether the replica is served from memory, without a disk behind it.
    pub fn in_memory(&self) -> bool {
        self.snapshot.in_memory()
    }

    pub fn data(&self) -> DataSource<'_> {
        match &self.snapshot.source {
            Source::Slot(slot) => DataSource::Bytes(slot.data(self.snapshot.length)),
            Source::File { files, .. } => DataSource::File { file: files.data.as_fd(), offset: 0 },
            Source::Disk(files) => DataSource::File { file: files.data.as_fd(), offset: 0 },
        }
    }

    /// Fills `into` from `offset`.
    ///
    /// Errors: `OutOfRange`; `Io`.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.within(ByteRange::with_length(offset, into.len() as u64))?;
        self.note_sent(into.len() as u64);
        self.snapshot.read_at(offset, into).map_err(|error| self.io("read", error))
    }

    /// Counts bytes that the caller sent from the file that [`ReplicaReader::data`] returned. For a replica on disk,
    /// the count decides whether it is read back into memory.
    pub fn note_sent(&self, bytes: u64) {
        if !self.in_memory() {
            self.replica.disk_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Appends to `into` the CRCs of the chunks that `range` touches, as [`ReplicaReader::checksums`] does, and then
    /// its data, unless that would wait for a disk. False: it most likely would, and nothing was appended.
    ///
    /// Errors: `OutOfRange`; `Io`.
    pub fn read_now(&self, range: ByteRange, into: &mut Vec<u8>) -> Result<bool> {
        self.within(Some(range))?;
        let read = self.snapshot.read_now(range, into).map_err(|error| self.io("read", error))?;
        if read {
            self.note_sent(range.length());
        }
        Ok(read)
    }

    /// Prepares for reading most of the replica from front to back: for one on disk, the kernel reads ahead for this
    /// reader alone. (The files that readers share are advised for short random reads.) Failing is harmless.
    pub fn read_ahead(&mut self) {
        if let Source::Disk(files) = &self.snapshot.source {
            match files.for_stream() {
                Ok(files) => self.snapshot.source = Source::Disk(Arc::new(files)),
                Err(error) => tracing::debug!(%error, "cannot reopen a replica for sequential reads"),
            }
        }
    }

    /// Appends to `into` the big-endian CRCs of the chunks that `range` touches. `range` starts on a chunk boundary; it
    /// ends on one or at `length()`: use `ByteRange::widened`.
    ///
    /// The CRC of a last partial chunk covers exactly the bytes up to `length()`.
    ///
    /// Errors: `OutOfRange`; `Io`.
    pub fn checksums(&self, range: ByteRange, into: &mut Vec<u8>) -> Result<()> {
        self.within(Some(range))?;
        let chunk = u64::from(self.checksum().bytes_per_chunk);
        if range.is_empty() {
            return Ok(());
        }
        let (first, end) = (range.start() / chunk, range.end().div_ceil(chunk));
        self.snapshot.checksums(first, end, into).map_err(|error| self.io("read the CRCs of", error))
    }

    /// Checks the bytes against their CRCs, if they are in memory and have not been checked before.
    ///
    /// Errors: `Corrupt`: call [`Blockstore::verify`](crate::Blockstore::verify) for the replica; `Io`.
    pub fn verify_memory(&self) -> Result<()> {
        if !self.in_memory() || self.replica.core().lifecycle.is_verified() {
            return Ok(());
        }
        match self.snapshot.verify(&mut |_| true) {
            Ok(()) => {
                let mut core = self.replica.core();
                if core.copies.memory().is_some_and(|memory| self.snapshot.is_of(memory))
                    && core.lifecycle.received() == self.length()
                {
                    core.lifecycle.mark_verified();
                }
                Ok(())
            }
            Err(CopyError::Corrupt { .. }) => {
                let reason = "bytes in memory do not match their CRCs".to_owned();
                Err(StoreError::Corrupt { block: self.block.clone(), reason })
            }
            Err(CopyError::Read(error) | CopyError::Write(error)) => Err(self.io("read", error)),
        }
    }

    fn within(&self, range: Option<ByteRange>) -> Result<()> {
        let length = self.length();
        match range {
            Some(range) if range.end() <= length => Ok(()),
            _ => {
                let range = range.unwrap_or(ByteRange::new(length, u64::MAX).expect("no length is larger"));
                Err(StoreError::OutOfRange { block: self.block.clone(), range, length })
            }
        }
    }

    /// Converts the error of a read that the caller made of the replica's files.
    pub fn disk_error(&self, source: std::io::Error) -> StoreError {
        self.io("read", source)
    }

    /// Reports that the bytes could not be read: the store checks the replica and its volume in the background, and
    /// reports the result.
    pub fn suspect(&self) {
        self.replica.slice.volume.suspects.add(&self.replica);
    }

    pub(crate) fn io(&self, action: &'static str, source: std::io::Error) -> StoreError {
        let slice = &self.replica.slice;
        self.suspect();
        let path = if self.in_memory() { slice.memory_dir.clone() } else { slice.dirs.root.clone() };
        StoreError::Io { action, path: path.join(self.block.id().to_string()), source }
    }
}
