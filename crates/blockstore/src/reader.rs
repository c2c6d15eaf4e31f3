use std::convert::Infallible;
use std::os::fd::{BorrowedFd, OwnedFd};

use hearth_types::{ByteRange, ChecksumSpec, ExtendedBlock, ReplicaState, StorageId, StorageType};

use crate::Result;

/// A guard on the bytes of one replica, as they were when it was opened. While it lives, neither memory nor files of
/// those bytes are reused, whatever becomes of the replica: appended to, truncated, evicted, deleted.
///
/// Of a replica being written it shows the bytes received when it was opened; open it again for more.
pub struct ReplicaReader {
    never: Infallible,
}

/// Where a replica's bytes are for the shortest way out.
#[derive(Clone, Copy, Debug)]
pub enum DataSource<'a> {
    /// Byte 0 of the block is at `offset` of this file, which may be given to sendfile. Not to other processes.
    File { file: BorrowedFd<'a>, offset: u64 },
    /// All bytes of the block; to be copied, not spliced: the memory may be used again once the guard is gone.
    Bytes(&'a [u8]),
}

impl ReplicaReader {
    /// The replica as it is kept: its own stamp, and `length()`.
    pub fn block(&self) -> &ExtendedBlock {
        match self.never {}
    }

    pub fn state(&self) -> ReplicaState {
        match self.never {}
    }

    /// Bytes that can be read: all of a finalized replica, those received of one being written.
    pub fn length(&self) -> u64 {
        match self.never {}
    }

    /// Bytes that are promised to readers: those acknowledged by the whole pipeline of a replica being written.
    pub fn visible_length(&self) -> u64 {
        match self.never {}
    }

    pub fn checksum(&self) -> ChecksumSpec {
        match self.never {}
    }

    pub fn storage(&self) -> (&StorageId, StorageType) {
        match self.never {}
    }

    /// Served from memory, no disk behind it.
    pub fn in_memory(&self) -> bool {
        match self.never {}
    }

    pub fn data(&self) -> DataSource<'_> {
        match self.never {}
    }

    /// Fills `into` from `offset`.
    ///
    /// Errors: `OutOfRange`; `Io`.
    pub fn read_at(&self, _offset: u64, _into: &mut [u8]) -> Result<()> {
        match self.never {}
    }

    /// Appends to `into` the big-endian CRCs of the chunks that `range` touches. `range` starts on a chunk boundary; it
    /// ends on one or at `length()`: use `ByteRange::widened`.
    ///
    /// The CRC of a last partial chunk fits exactly the bytes up to `length()`.
    ///
    /// Errors: `OutOfRange`; `Io`.
    pub fn checksums(&self, _range: ByteRange, _into: &mut Vec<u8>) -> Result<()> {
        match self.never {}
    }

    /// Descriptors for Apache's short-circuit read: data with byte 0 at position 0, and a meta file (7 bytes of header,
    /// then CRCs). Read-only; of a replica in a slab both are sealed copies.
    ///
    /// Errors: `WrongState` unless finalized; `Io`.
    pub fn short_circuit(&self) -> Result<(OwnedFd, OwnedFd)> {
        match self.never {}
    }
}
