//! Descriptors of a replica's bytes for other processes, which read and map them.

use std::fs::File;
use std::os::fd::OwnedFd;

use hearth_types::{ByteRange, ReplicaState};

use crate::memory::copy::MemoryCopy;
use crate::memory::file::Borrower;
use crate::reader::ReplicaReader;
use crate::snapshot::Source;
use crate::{DataSource, Result, StoreError, sys};

/// The descriptors that another process gets of a finalized replica. They are read-only, and their content stays the
/// same whatever happens to the replica.
#[derive(Debug)]
pub struct Shown {
    /// Block data: byte 0 of the block at position 0. The file ends with the replica's last byte.
    pub data: OwnedFd,
    /// A meta file in Apache's format: 7 bytes of header, then big-endian CRCs.
    pub meta: OwnedFd,
    /// `data` is the replica's own memory, neither a copy nor a file on a disk.
    pub in_place: bool,
    /// Every byte in memory has been checked against its CRC since this process began.
    pub verified: bool,
}

impl ReplicaReader {
    /// Opens descriptors of the replica for another process.
    ///
    /// Memory in the replica's own file is handed out directly. From then on it is never written in place, truncated or
    /// reused. A replica in a slab is copied into sealed memory. For a replica on disk, the descriptors are of the
    /// disk's files.
    ///
    /// Before this call, the caller must have registered that it shows the replica: a withdrawal from now on reaches
    /// it.
    ///
    /// Errors: `WrongState` unless finalized; `Withdrawn` when the replica has changed since it was opened or is about
    /// to change: open it again; `NotShowable`; `Io`.
    pub fn show(&self) -> Result<Shown> {
        if self.state != ReplicaState::Finalized {
            let (block, state) = (self.block.clone(), self.state);
            return Err(StoreError::WrongState { block, state, action: "hand out its descriptors" });
        }
        let verified = self.mark_shown()?;
        let failed = |error| self.io("hand out", error);
        if let Source::Disk(files) = &self.snapshot.source {
            // The store does not see reads of the descriptors, so count the whole replica as read.
            self.note_sent(self.length());
            let data = sys::reopen(&files.data).map_err(failed)?;
            let meta = sys::reopen(&files.meta).map_err(failed)?;
            return Ok(Shown { data: self.of_whole_length(data)?, meta, in_place: false, verified: false });
        }
        let mut crcs = Vec::new();
        self.checksums(ByteRange::new(0, self.length()).expect("0 is the least"), &mut crcs)?;
        // A copy, since the CRC file in memory begins with Hearth's own header. Sealed, so that only the store
        // determines the CRCs.
        let meta = sys::sealed_copy(c"hearth-meta", &[&self.checksum().to_meta_header(), &crcs]).map_err(failed)?;
        match self.data() {
            DataSource::Bytes(bytes) => {
                let data = sys::sealed_copy(c"hearth-block", &[bytes]).map_err(failed)?;
                Ok(Shown { data, meta, in_place: false, verified })
            }
            DataSource::File { file, .. } => {
                let data = sys::reopen(&file).map_err(failed)?;
                Ok(Shown { data: self.of_whole_length(data)?, meta, in_place: true, verified })
            }
        }
    }

    /// Records that the replica's memory leaves this process, by descriptor or by remote key. From then on the memory
    /// is treated as [`ReplicaReader::show`] describes. Returns whether all of it was verified by this process.
    ///
    /// Errors: `Withdrawn`, as in `show`.
    pub fn mark_shown(&self) -> Result<bool> {
        let core = self.replica.core();
        let unchanged =
            core.showing.is_allowed(self.withdrawals) && !core.lifecycle.is_gone() && !core.lifecycle.is_corrupt();
        if !unchanged {
            return Err(StoreError::Withdrawn { block: self.block.clone() });
        }
        let copy = match core.copies.memory() {
            Some(memory) if self.snapshot.is_of(memory) => memory,
            // Read from disk; disk copies are not marked.
            _ => return Ok(false),
        };
        match copy {
            MemoryCopy::Slot(_) => Ok(core.lifecycle.is_verified()),
            MemoryCopy::File(copy) => {
                copy.cut_before_showing(core.lifecycle.received()).map_err(|error| self.io("hand out", error))?;
                copy.set_shown();
                // A borrower may still write to it: readers must check the CRCs.
                Ok(core.lifecycle.is_verified() && copy.lent() == Borrower::Nobody)
            }
        }
    }

    /// Checks that the file ends with the replica. Java's client takes the file's end for the replica's.
    fn of_whole_length(&self, data: OwnedFd) -> Result<OwnedFd> {
        let file = File::from(data);
        let length = file.metadata().map_err(|error| self.io("hand out", error))?.len();
        if length != self.length() {
            return Err(StoreError::NotShowable { block: self.block.clone(), file_bytes: length });
        }
        Ok(file.into())
    }
}
