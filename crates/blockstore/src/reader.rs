use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearth_types::{ByteRange, ChecksumSpec, ExtendedBlock, ReplicaState, StorageId, StorageType};

use crate::replica::Replica;
use crate::snapshot::{CopyError, Snapshot, Source};
use crate::{Result, StoreError};

/// A guard on the bytes of one replica, as they were when it was opened. While it lives, neither memory nor files of
/// those bytes are reused, whatever becomes of the replica: appended to, truncated, evicted, deleted.
///
/// Of a replica being written it shows the bytes received when it was opened; open it again for more.
pub struct ReplicaReader {
    pub(crate) replica: Arc<Replica>,
    pub(crate) block: ExtendedBlock,
    pub(crate) state: ReplicaState,
    pub(crate) visible_length: u64,
    pub(crate) snapshot: Snapshot,
    /// `Core::withdrawals` when it was opened.
    pub(crate) withdrawals: u32,
}

/// What somebody who must not wait for a disk gets of a replica.
pub enum Reading {
    Now(ReplicaReader),
    /// Its files on this storage have to be opened: by [`Blockstore::reader`](crate::Blockstore::reader), on a thread that may wait.
    OnDisk(StorageId),
}

/// Where a replica's bytes are for the shortest way out.
#[derive(Clone, Copy, Debug)]
pub enum DataSource<'a> {
    /// Byte 0 of the block is at `offset` of this file, which may be given to sendfile. Other processes get theirs from
    /// [`ReplicaReader::show`].
    File { file: BorrowedFd<'a>, offset: u64 },
    /// All bytes of the block; to be copied, not spliced: the memory may be used again once the guard is gone.
    Bytes(&'a [u8]),
}

impl ReplicaReader {
    /// The replica as it is kept: its own stamp, and `length()`.
    pub fn block(&self) -> &ExtendedBlock {
        &self.block
    }

    pub fn state(&self) -> ReplicaState {
        self.state
    }

    /// Bytes that can be read: all of a finalized replica, those received of one being written.
    pub fn length(&self) -> u64 {
        self.snapshot.length
    }

    /// Bytes that are promised to readers: those acknowledged by the whole pipeline of a replica being written.
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

    /// Served from memory, no disk behind it.
    pub fn in_memory(&self) -> bool {
        self.snapshot.in_memory()
    }

    pub fn data(&self) -> DataSource<'_> {
        match &self.snapshot.source {
            // SAFETY: a snapshot's length was recorded in its slot.
            Source::Slot(slot) => DataSource::Bytes(unsafe { slot.data(self.snapshot.length) }),
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

    /// Takes note that so many bytes went to somebody by the file that [`ReplicaReader::data`] gave out. Of a replica on disk that decides
    /// whether it comes back into memory.
    pub fn note_sent(&self, bytes: u64) {
        if !self.in_memory() {
            self.replica.disk_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Appends to `into` the CRCs of the chunks that `range` touches, as [`ReplicaReader::checksums`] does, and behind them its data,
    /// if that is possible without waiting for a disk. False: it is most likely not, and nothing was appended.
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

    /// Most of the replica is about to be read, from front to back: of one on disk, the kernel reads ahead for this reader alone.
    /// (The files that readers share are told of short reads here and there.) Failing is harmless.
    pub fn read_ahead(&mut self) {
        if let Source::Disk(files) = &self.snapshot.source {
            match files.for_stream() {
                Ok(files) => self.snapshot.source = Source::Disk(Arc::new(files)),
                Err(error) => tracing::debug!(%error, "no opening of its own for a long read"),
            }
        }
    }

    /// Appends to `into` the big-endian CRCs of the chunks that `range` touches. `range` starts on a chunk boundary; it
    /// ends on one or at `length()`: use `ByteRange::widened`.
    ///
    /// The CRC of a last partial chunk fits exactly the bytes up to `length()`.
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

    /// Checks the bytes against their CRCs, if they are in memory and that was not done before.
    ///
    /// Errors: `Corrupt`: have the store verify the replica; `Io`.
    pub fn verify_memory(&self) -> Result<()> {
        if !self.in_memory() || self.replica.core().verified {
            return Ok(());
        }
        match self.snapshot.verify(&mut |_| true) {
            Ok(()) => {
                let mut core = self.replica.core();
                if core.memory.as_ref().is_some_and(|memory| self.snapshot.is_of(memory))
                    && core.received == self.length()
                {
                    core.verified = true;
                }
                Ok(())
            }
            Err(CopyError::Corrupt { .. }) => {
                let reason = "bytes in memory do not fit their CRCs".to_owned();
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

    /// What it means that a read of its files that was given out has failed.
    pub fn disk_error(&self, source: std::io::Error) -> StoreError {
        self.io("read", source)
    }

    /// Its bytes could not be read: the store looks at the replica and its volume behind the reader, and reports what it finds.
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
