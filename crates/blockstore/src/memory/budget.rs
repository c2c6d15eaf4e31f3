use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes of the tmpfs are taken, against a limit. Shared by all volumes.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
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
