//! Descriptors of a replica's own files, for an owner that shows its memory in place.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use hearth_types::{ReplicaState, ValidityRecord};

use crate::memory::header::{HEADER_BYTES, SHOWN};
use crate::snapshot::Source;
use crate::{ReplicaReader, Result};

/// Files of a finalized replica in memory that does not share them with another.
///
/// A process that maps them holds the [`ReplicaReader`] that they came from for at least as long: it keeps the memory
/// counted.
#[derive(Debug)]
pub struct InPlace {
    /// For reading only: byte 0 of the block at position 0.
    pub data: OwnedFd,
    /// For reading, and for writing at `InPlace::SHOWN` alone. The table of CRCs begins at `InPlace::TABLE`. It is
    /// complete: one big-endian CRC for each chunk, including the last.
    pub crcs: OwnedFd,
    /// Number of this copy of the block.
    pub nonce: u64,
}

impl InPlace {
    /// Offset in `crcs` for a [`ValidityRecord`], which must be zeroed when the replica is withdrawn.
    pub const SHOWN: u64 = SHOWN;
    pub const TABLE: u64 = HEADER_BYTES;
}

const _: () = assert!(SHOWN + ValidityRecord::BYTES as u64 <= HEADER_BYTES);

impl ReplicaReader {
    /// Opens the replica's files for showing them in place. `None` for a replica that is on disk, in a slab, empty, or
    /// not finalized.
    ///
    /// Call [`ReplicaReader::mark_shown`] before passing any of it on.
    ///
    /// Errors: `Io`.
    pub fn in_place(&self) -> Result<Option<InPlace>> {
        let Source::File { files, copy } = &self.snapshot.source else { return Ok(None) };
        if self.state != ReplicaState::Finalized || self.length() == 0 {
            return Ok(None);
        }
        let opened = || {
            let data = crate::sys::reopen(&files.data)?;
            // Through the descriptor: the name may be gone by now.
            let path = format!("/proc/self/fd/{}", files.crc.as_fd().as_raw_fd());
            let crcs: File = OpenOptions::new().read(true).write(true).open(path)?;
            let chunk = u64::from(self.checksum().bytes_per_chunk);
            if self.checksum().kind.size() > 0 && !self.length().is_multiple_of(chunk) {
                // A recovery that truncated the replica may have kept the CRC only in the header.
                let at = HEADER_BYTES + self.length() / chunk * self.checksum().kind.size() as u64;
                let crc = self.snapshot.partial_crc.to_be_bytes();
                let mut there = [0; 4];
                let read = crcs.read_exact_at(&mut there, at);
                if read.is_err() || there != crc {
                    crcs.write_all_at(&crc, at)?;
                }
            }
            Ok((data, OwnedFd::from(crcs)))
        };
        let (data, crcs) = opened().map_err(|error| self.io("show", error))?;
        Ok(Some(InPlace { data, crcs, nonce: copy.nonce }))
    }
}
