//! Zero-copy writing by another process: it fills memory of the replica's own data file, and the store checks the bytes
//! in place, against the CRCs that come with the commit.
//!
//! ```text
//! 0             acked        received             granted                     data file, allocated up to granted
//! ├───────────────┼──────────────┼────────────────────┤
//!   read by readers   committed      filled by the borrower, unchecked
//! ```
//! Memory that untrusted borrowers could still write to after the replica is finalized is copied then; see rules 3 and
//! 5 of docs/design/0001.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;

use hearth_types::ChecksumError;

use super::ReplicaWriter;
use crate::counters::count;
use crate::memory::file::{Borrower, FileWriter, HUGE_PAGE_BYTES};
use crate::replica::writer_shared::WriteTarget;
use crate::{ReplicaReader, Result, StoreError, sys};

/// Bytes that are checked at once. Bytes that must first be fetched for the check then stay in the CPU cache in
/// between.
const CHECK_BYTES: usize = 128 << 10;

/// A checksum over committed bytes that does not match, or bytes that are gone.
pub(super) enum Bad {
    Sum(ChecksumError),
    Io(io::Error),
}

impl ReplicaWriter {
    /// Allocates memory for the replica's bytes up to `up_to`, to be filled by another process. Returns the end of the
    /// granted range: at most `received()` when no memory is available, and the caller then continues with `write`.
    ///
    /// All of it is allocated and counted on return. Another call extends the grant.
    ///
    /// Errors: `WriterStopped`; `Io`.
    pub fn grant(&mut self, up_to: u64) -> Result<u64> {
        let shared = self.shared.clone();
        let mut target = self.target(&shared)?;
        let before = sys::thread_cpu_time();
        let granted = self.store.make_grant(&self.replica, &mut target, up_to, self.expected_bytes)?;
        let spent = sys::thread_cpu_time().saturating_sub(before);
        let counters = &self.store.counters;
        count(&counters.grant_nanos, spent.as_nanos() as u64);
        count(&counters.granted_bytes, granted.saturating_sub(self.granted.max(self.received)));
        self.granted = granted;
        Ok(granted.max(self.received))
    }

    /// Returns the end of the grant; below `received()` when nothing is granted.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Returns whether finalize has to copy the replica's bytes to other memory, write to disk or rename files, and
    /// takes as long as that.
    pub fn waits_at_end(&self) -> bool {
        if self.store.options.sync_on_finalize {
            return true;
        }
        let stays_durable = || self.replica.core().copies.disk().is_some();
        match &*self.shared.target.lock() {
            WriteTarget::Stream(_) | WriteTarget::Disk(_) => true,
            WriteTarget::File(file) => file.is_to_be_copied(self.received) || stays_durable(),
            WriteTarget::Slot(_) => stays_durable(),
            WriteTarget::Detached => false,
        }
    }

    /// Returns a descriptor for writing the granted memory. Once it is passed on, finalize copies the replica's bytes
    /// to memory out of its reach, unless its holder is `trusted`. In that case the unused rest of the grant stays
    /// counted, or, if it is large, is freed by the same copy.
    ///
    /// Errors: `BadWrite` when nothing is granted; `WriterStopped`; `Io`.
    pub fn lend(&mut self, trusted: bool) -> Result<OwnedFd> {
        let shared = self.shared.clone();
        let mut target = self.target(&shared)?;
        let file = self.granted_file(&mut target)?;
        let lent = file.lend(if trusted { Borrower::Trusted } else { Borrower::Untrusted });
        self.store.lent.add(&self.replica);
        lent.map_err(StoreError::io("lend a replica in", &self.replica.slice.memory_dir))
    }

    /// Commits `length` bytes from `offset` of the block that were filled in within the grant. Checks them against
    /// `checksums` (one big-endian CRC per chunk, chunks counted from `offset`) and counts them as received. Returns
    /// the bytes received.
    ///
    /// Bytes received before are not counted again, and a range that begins within a chunk ends with it, as in `write`.
    /// They are checked again, though, since a client that commits them again may also have filled them again.
    ///
    /// Errors: `BadCommit`: the bytes do not match their CRCs; nothing is counted. `Gap`, `BadWrite` (also when an
    /// untrusted borrower has taken far more memory than was granted, which it loses), `Corrupt`, `WriterStopped`,
    /// `Io`.
    pub fn commit(&mut self, offset: u64, length: u64, checksums: &[u8]) -> Result<u64> {
        let shared = self.shared.clone();
        let mut target = self.target(&shared)?;
        let end = self.checked_end(offset, length, checksums.len())?;
        let is_known = end <= self.received;
        if is_known && !matches!(&*target, WriteTarget::File(_)) {
            // The replica has left the granted memory: the bytes there are no longer part of it.
            return Ok(self.received);
        }
        if !is_known && end > self.granted {
            return Err(self.bad_write(format!("committed up to {end}, granted up to {}", self.granted)));
        }
        if let WriteTarget::File(file) = &*target {
            let slack = u64::from(self.store.options.memory.slice_bytes).max(HUGE_PAGE_BYTES);
            let taken = file.reclaim_overfill(slack);
            if taken.map_err(StoreError::io("check the memory of a replica in", &self.replica.slice.memory_dir))? {
                return Err(self.bad_write("the borrower has allocated more memory than was granted"));
            }
        }
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        let first = self.received / chunk;
        let mut scratch = std::mem::take(&mut self.scratch);
        let crcs = self.committed_crcs(&mut target, offset, end, checksums, &mut scratch);
        self.scratch = scratch;
        let crcs = crcs?;
        if is_known {
            return Ok(self.received);
        }
        let size = self.checksum.kind.size() as u64;
        let (whole, partial) = crcs.split_at(((end / chunk - first) * size) as usize);
        if let WriteTarget::File(file) = &*target {
            file.write_crcs(first * size, whole);
        }
        count(&self.store.counters.committed_bytes, end - self.received);
        self.advance(&mut target, end, partial)
    }

    /// Opens the replica in its present state, for forwarding what was committed.
    ///
    /// Errors: `WriterStopped`: it may have other files by now; `Io`.
    pub fn reader(&self) -> Result<ReplicaReader> {
        let shared = self.shared.clone();
        let _hands = self.target(&shared)?;
        let mut core = self.replica.core();
        let snapshot = self.replica.snapshot(&mut core)?;
        Ok(ReplicaReader {
            block: self.replica.block(&core),
            state: core.lifecycle.state(),
            visible_length: core.lifecycle.acked(),
            withdrawals: core.showing.withdrawals(),
            replica: self.replica.clone(),
            snapshot,
        })
    }

    fn granted_file<'a>(&self, target: &'a mut WriteTarget) -> Result<&'a mut FileWriter> {
        match target {
            WriteTarget::File(file) if self.granted > 0 => Ok(file),
            _ => Err(self.bad_write("no memory is granted")),
        }
    }

    /// Returns the CRCs starting with the chunk that holds the byte at `received` (none if the range ends before it),
    /// after all given CRCs were found to match the bytes.
    fn committed_crcs<'a>(
        &self,
        target: &mut WriteTarget,
        offset: u64,
        end: u64,
        given: &'a [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Cow<'a, [u8]>> {
        let file = self.granted_file(target)?;
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        if offset.is_multiple_of(chunk) {
            self.check(file, offset, end, given, scratch).map_err(|bad| self.bad_commit(offset, bad))?;
            let known = (self.received / chunk - offset / chunk) * self.checksum.kind.size() as u64;
            return Ok(Cow::Borrowed(given.get(known as usize..).unwrap_or_default()));
        }
        if end > offset.next_multiple_of(chunk) {
            return Err(self.bad_write(format!("bytes {offset}..{end} begin within a chunk and go beyond it")));
        }
        // Its CRC covers the new bytes only: they are few, and are handled like bytes passed to `write`.
        scratch.resize((end - offset) as usize, 0);
        let read = file.read_data(offset, scratch).map_err(Bad::Io);
        read.and_then(|()| self.checksum.verify(scratch, given).map_err(Bad::Sum))
            .map_err(|bad| self.bad_commit(offset, bad))?;
        let Some(fresh) = scratch.get((self.received - offset) as usize..).filter(|fresh| !fresh.is_empty()) else {
            return Ok(Cow::Borrowed(&[]));
        };
        let crcs = self.crcs(target, offset, fresh, end, crate::Checksums::Given(given))?;
        Ok(Cow::Owned(crcs.into_owned()))
    }

    /// Checks the bytes from `start`, which is a chunk boundary, to `end`.
    pub(super) fn check(
        &self,
        file: &mut FileWriter,
        start: u64,
        end: u64,
        given: &[u8],
        scratch: &mut Vec<u8>,
    ) -> std::result::Result<(), Bad> {
        let chunk = self.checksum.bytes_per_chunk as usize;
        let step = (CHECK_BYTES / chunk).max(1) * chunk;
        let size = self.checksum.kind.size();
        if size == 0 {
            return Ok(());
        }
        let mut at = start;
        while at < end {
            let bytes = step.min((end - at) as usize);
            let first = ((at - start) as usize / chunk) * size;
            let crcs = &given[first..first + bytes.div_ceil(chunk) * size];
            let fits = file.check(at, bytes, crcs, scratch).map_err(Bad::Io)?;
            fits.map_err(|error| Bad::Sum(moved(error, at - start, chunk)))?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// `start`: start of the checked range, from the start of the block.
    pub(super) fn bad_commit(&self, start: u64, bad: Bad) -> StoreError {
        match bad {
            Bad::Sum(source) => StoreError::BadCommit { block: self.block(), start, source },
            // The file was granted up to there: the borrower has truncated it.
            Bad::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.bad_write("the borrower has truncated the granted memory")
            }
            Bad::Io(error) => StoreError::Io {
                action: "check committed bytes in",
                path: self.replica.slice.memory_dir.clone(),
                source: error,
            },
        }
    }
}

/// Translates the error of a piece into one of the range in which the piece begins `by` bytes from the start.
fn moved(error: ChecksumError, by: u64, chunk_bytes: usize) -> ChecksumError {
    match error {
        ChecksumError::Mismatch { chunk, offset, expected, actual } => ChecksumError::Mismatch {
            chunk: chunk + by as usize / chunk_bytes,
            offset: offset + by as usize,
            expected,
            actual,
        },
        other => other,
    }
}
