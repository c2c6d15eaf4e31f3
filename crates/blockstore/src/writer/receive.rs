//! Zero-copy writing through this process: bytes are received into their final place, and checked there before they
//! count.
//!
//! ```text
//! 0              received                    end of allocated memory
//! ├─────────────────┼───────────┼──────────────────┤
//!                     received in place, unchecked
//! ```
//! Nothing reads beyond `received`, and after a kill only bytes recorded as received count.

use std::io;
use std::os::fd::BorrowedFd;

use super::ReplicaWriter;
use crate::counters::count;
use crate::replica::writer_shared::WriteTarget;
use crate::{Result, StoreError};

impl ReplicaWriter {
    /// Returns whether the bytes from `received()` to `end` are best received in place: their memory is in huge pages,
    /// and is allocated on return. Bytes received in place before that do not count yet may be lost by that. Does not
    /// wait for a disk: false if [`Self::write_may_wait`].
    pub fn receives_in_place(&mut self, end: u64) -> bool {
        if self.write_may_wait(end.saturating_sub(self.received)) {
            return false;
        }
        let shared = self.shared.clone();
        let Ok(mut target) = self.target(&shared) else { return false };
        let is_in_memory = matches!(&*target, WriteTarget::File(_) | WriteTarget::Slot(_));
        if !is_in_memory || !self.received.is_multiple_of(u64::from(self.checksum.bytes_per_chunk)) {
            return false;
        }
        // A full tmpfs may have less than the limit says.
        let made = self.store.make_room_in_memory(&self.replica, &mut target, end, self.expected_bytes);
        matches!(made, Ok(true)) && is_mapped(&mut target, end)
    }

    /// Like [`Self::receives_in_place`], for memory that is already allocated: nothing is lost.
    pub fn goes_on_in_place(&self, end: u64) -> bool {
        let shared = self.shared.clone();
        self.target(&shared).is_ok_and(|mut target| is_mapped(&mut target, end))
    }

    /// Writes bytes that arrived another way to their place in the block at `offset`, as if they had been received in
    /// place.
    ///
    /// Errors: those of [`Self::receive`].
    pub fn put_in_place(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let shared = self.shared.clone();
        match &*self.target(&shared)? {
            WriteTarget::File(file) if offset >= self.received && offset + bytes.len() as u64 <= file.allocated() => {
                file.write_data(offset, bytes).map_err(|error| self.not_in_place(error))
            }
            _ => Err(self.not_in_place(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Receives once from `socket`: up to `length` bytes into their place in the block at `offset`, and the bytes that
    /// follow into `behind`. Returns the total number of bytes received. They do not count before [`Self::accept`].
    /// Bytes that count are not touched: `offset` is not before `received()`, and the whole range is within the one
    /// given to [`Self::receives_in_place`].
    ///
    /// Errors: `WriterStopped`, `Io`: the bytes can no longer be received in place. The inner error is the socket's.
    pub fn receive(
        &mut self,
        offset: u64,
        length: usize,
        socket: BorrowedFd<'_>,
        behind: &mut [u8],
    ) -> Result<io::Result<usize>> {
        let shared = self.shared.clone();
        let mut target = self.target(&shared)?;
        let end = offset + length as u64;
        let mapped = match &mut *target {
            WriteTarget::File(file) if offset >= self.received && end <= file.allocated() => file.mapped(end),
            _ => None,
        };
        let Some(mapped) = mapped else { return Err(self.not_in_place(io::ErrorKind::Unsupported.into())) };
        match mapped.receive(offset, length, socket, behind) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Err(self.not_in_place(error)),
            received => Ok(received),
        }
    }

    /// Accepts the next `length` bytes of the block, which were received in place and end with a chunk or the block.
    /// Checks them against `checksums`, unless the caller does ([`Self::set_checked`]), and counts them as received.
    /// Returns the bytes received.
    ///
    /// Errors: `BadCommit`: they do not match; nothing is counted. `BadWrite`, `WriterStopped`, `Io`.
    pub fn accept(&mut self, length: u64, checksums: &[u8]) -> Result<u64> {
        let shared = self.shared.clone();
        let mut target = self.target(&shared)?;
        let (start, chunk) = (self.received, u64::from(self.checksum.bytes_per_chunk));
        let end = self.checked_end(start, length, checksums.len())?;
        let WriteTarget::File(file) = &mut *target else {
            return Err(self.not_in_place(io::ErrorKind::Unsupported.into()));
        };
        if !start.is_multiple_of(chunk) || end > file.allocated() {
            return Err(self.bad_write("the accepted bytes were not received in place"));
        }
        if self.checked {
            let mut scratch = std::mem::take(&mut self.scratch);
            let checked = self.check(file, start, end, checksums, &mut scratch);
            self.scratch = scratch;
            checked.map_err(|bad| self.bad_commit(start, bad))?;
        } else {
            self.replica.core().lifecycle.mark_unverified();
        }
        let size = self.checksum.kind.size() as u64;
        let (whole, partial) = checksums.split_at(((end / chunk - start / chunk) * size) as usize);
        file.write_crcs(start / chunk * size, whole);
        count(&self.store.counters.received_in_place_bytes, length);
        self.advance(&mut target, end, partial)
    }

    fn not_in_place(&self, source: io::Error) -> StoreError {
        StoreError::Io { action: "receive bytes in", path: self.replica.slice.memory_dir.clone(), source }
    }
}

/// Returns whether bytes up to `end` have memory, in huge pages, that no reader relies on.
fn is_mapped(target: &mut WriteTarget, end: u64) -> bool {
    match target {
        WriteTarget::File(file) => file.may_be_lent() && end <= file.allocated() && file.mapped(end).is_some(),
        _ => false,
    }
}
