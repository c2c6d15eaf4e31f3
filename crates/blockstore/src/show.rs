//! A replica's bytes for other processes: descriptors that they read and map.

use std::fs::File;
use std::os::fd::OwnedFd;

use hearth_types::{ByteRange, ReplicaState};

use crate::memory::file::Borrower;
use crate::reader::ReplicaReader;
use crate::replica::MemoryCopy;
use crate::snapshot::Source;
use crate::{DataSource, Result, StoreError, sys};

/// What another process gets of a finalized replica. All of it is read-only, and stays as it is whatever becomes of the
/// replica.
#[derive(Debug)]
pub struct Shown {
    /// Byte 0 of the block at position 0; it ends with the replica's last byte.
    pub data: OwnedFd,
    /// A meta file as Apache's: 7 bytes of header, then big-endian CRCs.
    pub meta: OwnedFd,
    /// `data` is the replica's own memory, not a copy and not a file on a disk.
    pub in_place: bool,
    /// Every byte in memory was checked against its CRC since this process began.
    pub verified: bool,
}

impl ReplicaReader {
    /// Descriptors of the replica for another process.
    ///
    /// Memory of its own file is handed out as it is, and from then on never written in place, cut or used for anything else. A
    /// replica in a slab is copied, into memory that nobody can change. Of one on disk these are the disk's files.
    ///
    /// The caller has made known before this that he shows it: a withdrawal from here on reaches him.
    ///
    /// Errors: `WrongState` unless finalized; `Withdrawn` when the replica has changed since it was opened, or is about to: open
    /// it again; `NotShowable`; `Io`.
    pub fn show(&self) -> Result<Shown> {
        if self.state != ReplicaState::Finalized {
            let (block, state) = (self.block.clone(), self.state);
            return Err(StoreError::WrongState { block, state, action: "hand out its descriptors" });
        }
        let verified = self.mark_shown()?;
        let failed = |error| self.io("hand out", error);
        if let Source::Disk(files) = &self.snapshot.source {
            // What is read of it nobody hears of here.
            self.note_sent(self.length());
            let data = sys::reopen(&files.data).map_err(failed)?;
            let meta = sys::reopen(&files.meta).map_err(failed)?;
            return Ok(Shown { data: self.of_whole_length(data)?, meta, in_place: false, verified: false });
        }
        let mut crcs = Vec::new();
        self.checksums(ByteRange::new(0, self.length()).expect("0 is the least"), &mut crcs)?;
        // A copy, since the CRC file in memory begins with a header of our own; sealed, since the CRCs are ours to say.
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

    /// Takes note that the replica's memory leaves this process, by descriptor or by remote key. The memory is from then on
    /// treated as [`ReplicaReader::show`] says. Returns whether all of it was verified in this life of the process.
    ///
    /// Errors: `Withdrawn`, as in `show`.
    pub fn mark_shown(&self) -> Result<bool> {
        let core = self.replica.core();
        let unchanged = core.withdrawals == self.withdrawals && !core.changing && !core.gone && core.corrupt.is_none();
        if !unchanged {
            return Err(StoreError::Withdrawn { block: self.block.clone() });
        }
        let copy = match &core.memory {
            Some(memory) if self.snapshot.is_of(memory) => memory,
            // Read from disk, which nothing marks.
            _ => return Ok(false),
        };
        match copy {
            MemoryCopy::Slot(_) => Ok(core.verified),
            MemoryCopy::File(copy) => {
                copy.cut_before_showing(core.received).map_err(|error| self.io("hand out", error))?;
                copy.set_shown();
                // Who was lent it may still write to it: readers look at the CRCs.
                Ok(core.verified && copy.lent() == Borrower::Nobody)
            }
        }
    }

    /// Java's client takes the file's end for the replica's.
    fn of_whole_length(&self, data: OwnedFd) -> Result<OwnedFd> {
        let file = File::from(data);
        let length = file.metadata().map_err(|error| self.io("hand out", error))?.len();
        if length != self.length() {
            return Err(StoreError::NotShowable { block: self.block.clone(), file_bytes: length });
        }
        Ok(file.into())
    }
}
