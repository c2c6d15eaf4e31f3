use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::sys;

/// How many bytes of the tmpfs are taken, against a limit. Shared by all volumes.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    /// Held by whoever takes memory for a copy, from the look at what is free on.
    copying: Mutex<()>,
    /// Memory that left the store and that other processes still have open or mapped: their bytes stay counted.
    lingering: Mutex<Vec<(File, Share)>>,
}

/// So many files are watched, a descriptor each; of what comes beyond, the bytes are given back though they are still in use.
const LINGERING_MAX: usize = 1024;

impl Budget {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0), copying: Mutex::new(()), lingering: Mutex::new(Vec::new()) })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes over the bytes of a file that is unlinked, until nobody has it open any more.
    pub fn watch(self: &Arc<Self>, file: File, share: Share) {
        self.count_beyond(&file, &share);
        let mut lingering = self.lingering.lock();
        if lingering.len() < LINGERING_MAX {
            lingering.push((file, share));
        } else {
            tracing::warn!(bytes = share.bytes(), "more memory is held by other processes than can be watched");
        }
    }

    /// Gives back the bytes of what other processes have let go of; also of what one cannot know.
    pub fn sweep(self: &Arc<Self>) {
        self.lingering.lock().retain(|(file, share)| {
            let is_held = sys::is_open_elsewhere(file) == Some(true);
            if is_held {
                self.count_beyond(file, share);
            }
            is_held
        });
    }

    /// Whoever was lent the file may have taken more than was granted, and may go on so.
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

    /// The store ends.
    pub fn forget_lingering(&self) {
        self.lingering.lock().clear();
    }

    /// Runs `take` if there is room for `bytes` of a copy that nobody has asked to read: such copies push out nothing, and leave a
    /// quarter to those who wait for their writes. One at a time, so that they leave it together, too.
    pub fn for_copy<T>(&self, bytes: u64, take: impl FnOnce() -> T) -> Option<T> {
        let _one = self.copying.lock();
        (!self.is_short_with(bytes)).then(take)
    }

    /// Whether `more` bytes would leave less than a quarter.
    pub fn is_short_with(&self, more: u64) -> bool {
        self.used().saturating_add(more) > self.limit / 4 * 3
    }

    /// `None` when that would exceed the limit.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let mut used = self.used();
        loop {
            let wanted = used.checked_add(bytes).filter(|wanted| *wanted <= self.limit)?;
            match self.used.compare_exchange_weak(used, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Share { budget: self.clone(), bytes: AtomicU64::new(bytes) }),
                Err(now) => used = now,
            }
        }
    }

    /// For what is there already when the store starts, whatever the limit says.
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

    /// All of it, for another owner.
    pub fn take_all(&self) -> Self {
        Self { budget: self.budget.clone(), bytes: AtomicU64::new(self.bytes.swap(0, Ordering::Relaxed)) }
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Makes it `bytes`, whatever the limit says: they are taken already.
    pub fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(before, Ordering::Relaxed);
    }

    /// Gives back all but `bytes`.
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
    fn shares_come_back() {
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
