//! Accounting of a data file that another process may still write to: it can take more of the tmpfs than it was
//! granted.

use std::fs::{self, OpenOptions};
use std::io;

use super::{Borrower, FileCopy};
use crate::sys;

/// Memory beyond a grant that is no sign of misbehaviour: the kernel allocates memory in huge pages of this size.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// State of a replica whose data file was lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LentState {
    /// A writer of the store has it: the borrower may be filling the granted memory now.
    Written,
    /// Its writer is gone without finalizing it; `received` bytes count.
    Abandoned { received: u64 },
    /// It is finalized with `length` bytes.
    Finalized { length: u64 },
}

/// Outcome of [`FileCopy::settle_lent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// Another process may still write to the file: check again later.
    StillLent,
    /// No other process has the file open or mapped.
    Returned,
}

impl FileCopy {
    /// Returns whether another process may have the data file open for writing, or may have had it when this process
    /// started.
    pub fn may_be_written_outside(&self) -> bool {
        self.lent() != Borrower::Nobody || self.is_shown()
    }

    /// Returns whether the data file takes more of the tmpfs than huge pages explain.
    pub fn is_overfilled(&self) -> bool {
        self.beyond_share().is_ok_and(|beyond| beyond >= HUGE_PAGE_BYTES)
    }

    /// Bytes of the tmpfs that the data file takes beyond its share of the budget.
    fn beyond_share(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let taken = fs::metadata(&self.data.path)?.blocks() * 512;
        Ok(taken.saturating_sub(self.data.share.bytes()))
    }

    /// Counts the bytes that the data file takes beyond its share, and frees them once no writer of the store has it.
    /// The granted memory stays while another process has the file open: an honest borrower may still be filling its
    /// mapping.
    ///
    /// The caller keeps writers of the store from the replica during the call, unless `state` is `Written`.
    pub fn settle_lent(&self, state: LentState) -> io::Result<Settled> {
        let outcome = self.take_back(state);
        // Also if the bytes could not be freed.
        self.data.beyond.set(self.beyond_share()?);
        outcome
    }

    fn take_back(&self, state: LentState) -> io::Result<Settled> {
        if state == LentState::Written {
            return Ok(Settled::StillLent);
        }
        let beyond = self.beyond_share()?;
        let spare = match state {
            LentState::Finalized { .. } => HUGE_PAGE_BYTES - 1,
            LentState::Written | LentState::Abandoned { .. } => 0,
        };
        if self.is_held() {
            if beyond > spare {
                self.cut(self.data.share.bytes())?;
            }
            return Ok(Settled::StillLent);
        }
        // Free the rest of the grant, too: no other process has the file, and a new writer allocates memory of its own.
        match state {
            LentState::Abandoned { received } => self.give_back(received)?,
            LentState::Finalized { length } if !self.is_shown() => self.give_back(length)?,
            _ => {}
        }
        Ok(Settled::Returned)
    }

    /// Frees memory behind `length` bytes of data, and behind the file's end.
    fn cut(&self, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.data.path)?;
        // Never extend the file: a borrower may have truncated it.
        let length = length.min(file.metadata()?.len());
        file.set_len(length)
    }

    fn give_back(&self, length: u64) -> io::Result<()> {
        self.cut(sys::pages(length))?;
        self.data.share.shrink_to(sys::pages(length));
        Ok(())
    }
}
