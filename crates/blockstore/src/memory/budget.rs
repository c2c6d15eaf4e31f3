//! Accounting of the tmpfs bytes that replicas use. Memory is taken as a `Share` before it is allocated; the share
//! returns its bytes when it is dropped. Unlinked files that other processes hold stay counted until a sweep finds
//! them closed.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::sys;

/// Counter of the bytes taken from the tmpfs, with a limit. Shared by all volumes.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    /// The limit was lowered below the used bytes, which must shrink. Set after the limit, so that a thread
    /// that finds it set also finds that limit.
    is_lowered: AtomicBool,
    used: AtomicU64,
    /// Held while memory for a copy is allocated, from the check of the free memory on.
    copying: Mutex<()>,
    /// Memory that left the store and that other processes still have open or mapped: its bytes stay counted.
    lingering: Mutex<Vec<(File, Share)>>,
}

/// Maximum number of watched files, with one descriptor each. The bytes of further files are released while still in
/// use.
const LINGERING_MAX: usize = 1024;

impl Budget {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(limit),
            is_lowered: AtomicBool::new(false),
            used: AtomicU64::new(0),
            copying: Mutex::new(()),
            lingering: Mutex::new(Vec::new()),
        })
    }

    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Bytes beyond a lower one stay counted, and nothing more can be taken until they are released.
    pub fn set_limit(&self, limit: u64) {
        let before = self.limit.swap(limit, Ordering::Relaxed);
        if limit < before && limit < self.used() {
            self.is_lowered.store(true, Ordering::Release);
        }
    }

    /// Returns the used bytes beyond the limit if it was lowered. Zero once the use has fallen below it.
    pub fn beyond_lowered_limit(&self) -> u64 {
        if !self.is_lowered.load(Ordering::Acquire) {
            return 0;
        }
        let beyond = || self.used().saturating_sub(self.limit());
        match beyond() {
            0 => {
                self.is_lowered.swap(false, Ordering::AcqRel);
                // The limit may have been lowered again since it was read.
                let beyond = beyond();
                if beyond > 0 {
                    self.is_lowered.store(true, Ordering::Release);
                }
                beyond
            }
            beyond => beyond,
        }
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes over the bytes of an unlinked file until no process has it open any more.
    pub fn watch(self: &Arc<Self>, file: File, share: Share) {
        self.count_beyond(&file, &share);
        let mut lingering = self.lingering.lock();
        if lingering.len() < LINGERING_MAX {
            lingering.push((file, share));
        } else {
            tracing::warn!(bytes = share.bytes(), "too many files are held by other processes; one is not counted");
        }
    }

    /// Releases the bytes of files that other processes have closed, and of files for which that is unknown.
    pub fn sweep(self: &Arc<Self>) {
        self.lingering.lock().retain(|(file, share)| {
            let is_held = sys::is_open_elsewhere(file) == Some(true);
            if is_held {
                self.count_beyond(file, share);
            }
            is_held
        });
    }

    /// A borrower of the file may have taken more than was granted, and may continue to.
    fn count_beyond(self: &Arc<Self>, file: &File, share: &Share) {
        let beyond = sys::memory_of(file).unwrap_or(0).saturating_sub(share.bytes());
        if beyond > 0 {
            share.merge(self.take_found(beyond));
        }
    }

    /// Bytes that only other processes hold, as of the last sweep.
    pub fn lingering(&self) -> u64 {
        self.lingering.lock().iter().map(|(_, share)| share.bytes()).sum()
    }

    /// Releases all watched files when the store ends.
    pub fn forget_lingering(&self) {
        self.lingering.lock().clear();
    }

    /// Runs `take` if there is room for `bytes` of a copy that no reader has asked for. Such copies evict nothing, and
    /// leave a quarter of the memory for client writes. Serialized, so that concurrent copies together leave it, too.
    pub fn for_copy<T>(&self, bytes: u64, take: impl FnOnce() -> T) -> Option<T> {
        let _one = self.copying.lock();
        (!self.is_short_with(bytes)).then(take)
    }

    /// Returns whether `more` bytes would leave less than a quarter.
    pub fn is_short_with(&self, more: u64) -> bool {
        self.used().saturating_add(more) > self.limit() / 4 * 3
    }

    /// Takes `bytes`. `None` if that would exceed the limit.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let mut used = self.used();
        loop {
            let wanted = used.checked_add(bytes).filter(|wanted| *wanted <= self.limit())?;
            match self.used.compare_exchange_weak(used, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Share { budget: self.clone(), bytes: AtomicU64::new(bytes) }),
                Err(now) => used = now,
            }
        }
    }

    /// Counts bytes that already exist when the store starts, whatever the limit says.
    pub fn take_found(self: &Arc<Self>, bytes: u64) -> Share {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Share { budget: self.clone(), bytes: AtomicU64::new(bytes) }
    }
}

/// Bytes taken from the budget, given back on drop.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: AtomicU64,
}

impl Share {
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn merge(&self, other: Share) {
        self.bytes.fetch_add(other.bytes.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Moves all of it to a new owner.
    pub fn take_all(&self) -> Self {
        Self { budget: self.budget.clone(), bytes: AtomicU64::new(self.bytes.swap(0, Ordering::Relaxed)) }
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Sets it to `bytes`, whatever the limit says: they are already in use.
    pub fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(before, Ordering::Relaxed);
    }

    /// Releases all but `bytes`.
    pub fn shrink_to(&self, bytes: u64) {
        let before = self.bytes();
        if bytes < before {
            self.bytes.store(bytes, Ordering::Relaxed);
            self.budget.used.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowered_limit_is_reported_until_it_is_kept() {
        let budget = Budget::new(100);
        let share = budget.take(80).unwrap();
        assert_eq!(budget.beyond_lowered_limit(), 0);
        budget.set_limit(50);
        assert_eq!((budget.limit(), budget.beyond_lowered_limit()), (50, 30));
        assert!(budget.take(1).is_none());
        share.shrink_to(40);
        assert_eq!(budget.beyond_lowered_limit(), 0);
        assert!(budget.take(10).is_some());
        // Found bytes alone do not count as a lowered limit, and neither does a raised one.
        let _found = budget.take_found(90);
        assert_eq!(budget.beyond_lowered_limit(), 0);
        budget.set_limit(60);
        assert_eq!(budget.beyond_lowered_limit(), 0);
        budget.set_limit(55);
        assert_eq!(budget.beyond_lowered_limit(), 75);
    }

    #[test]
    fn dropped_shares_are_returned() {
        let budget = Budget::new(100);
        let first = budget.take(60).unwrap();
        assert!(budget.take(41).is_none());
        first.merge(budget.take(40).unwrap());
        assert_eq!(budget.used(), 100);
        first.shrink_to(10);
        assert_eq!(budget.used(), 10);
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
