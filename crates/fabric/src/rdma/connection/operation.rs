//! State of one read or write of a caller: the number of outstanding pieces, and the waiting task.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::task::AtomicWaker;

/// State of an operation, shared by its future and its posted pieces.
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

    /// Records that `pieces` of it have ended, successfully or not.
    pub fn over(&self, pieces: usize, well: bool) {
        if !well {
            self.failed.store(true, Ordering::Relaxed);
        }
        if self.left.fetch_sub(pieces, Ordering::Release) == pieces {
            self.waker.wake();
        }
    }

    /// Returns `None` while pieces are outstanding, then true if all succeeded.
    pub fn outcome(&self) -> Option<bool> {
        (self.left.load(Ordering::Acquire) == 0).then(|| !self.failed.load(Ordering::Relaxed))
    }
}
