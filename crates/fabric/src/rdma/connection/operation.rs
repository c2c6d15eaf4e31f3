//! One read or write of a caller: the pieces that are still to come, and who waits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::task::AtomicWaker;

/// What is known of an operation, shared by its future and by what is posted of it.
#[derive(Debug, Default)]
pub struct Operation {
    /// Pieces that are not done, posted or not.
    left: AtomicUsize,
    failed: AtomicBool,
    pub waker: AtomicWaker,
}

impl Operation {
    pub fn new(pieces: usize) -> Self {
        Self { left: AtomicUsize::new(pieces), ..Self::default() }
    }

    /// `pieces` of it are over, well or not.
    pub fn over(&self, pieces: usize, well: bool) {
        if !well {
            self.failed.store(true, Ordering::Relaxed);
        }
        if self.left.fetch_sub(pieces, Ordering::Release) == pieces {
            self.waker.wake();
        }
    }

    /// `None`: not all of it is over. Else whether all went well.
    pub fn outcome(&self) -> Option<bool> {
        (self.left.load(Ordering::Acquire) == 0).then(|| !self.failed.load(Ordering::Relaxed))
    }
}
