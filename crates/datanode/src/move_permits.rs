//! Limit of the copies that the balancer runs at once (`dfs.datanode.balance.max.concurrent.moves`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counter of the running copies, with a limit that can change.
pub struct MovePermits {
    max: AtomicUsize,
    taken: AtomicUsize,
}

/// Permit of one copy, returned on drop.
pub struct MovePermit(Arc<MovePermits>);

impl MovePermits {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: AtomicUsize::new(max), taken: AtomicUsize::new(0) })
    }

    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes the limit. Copies beyond a lower one run to their end.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// `None`: the maximum number of copies is running.
    pub fn try_acquire(self: &Arc<Self>) -> Option<MovePermit> {
        let max = self.max();
        let add = |taken: usize| (taken < max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(MovePermit(self.clone()))
    }
}

impl Drop for MovePermit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_applies_to_new_copies() {
        let permits = MovePermits::new(2);
        let (first, second) = (permits.try_acquire().unwrap(), permits.try_acquire().unwrap());
        assert!(permits.try_acquire().is_none());
        permits.set_max(1);
        drop(first);
        assert!(permits.try_acquire().is_none(), "one is still running");
        drop(second);
        let _third = permits.try_acquire().unwrap();
        permits.set_max(2);
        assert!(permits.try_acquire().is_some());
    }
}
