//! Limit of the bytes that are mapped at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counter of mapped bytes with a limit.
pub struct MappedBytesLimit {
    now: AtomicU64,
    max: AtomicU64,
}

impl MappedBytesLimit {
    pub fn new(max: u64) -> Self {
        Self { now: AtomicU64::new(0), max: AtomicU64::new(max) }
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes the limit. What is mapped beyond a lower one stays mapped until it is released.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<MappedShare> {
        let max = self.max();
        let add = |now: u64| now.checked_add(bytes).filter(|now| *now <= max);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(MappedShare { of: self.clone(), bytes })
    }
}

/// Share of a `MappedBytesLimit`, returned on drop.
pub struct MappedShare {
    of: Arc<MappedBytesLimit>,
    bytes: u64,
}

impl Drop for MappedShare {
    fn drop(&mut self) {
        self.of.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_bytes_limit_is_enforced() {
        let bytes = Arc::new(MappedBytesLimit::new(100));
        let share = bytes.take(60).unwrap();
        assert!(bytes.take(41).is_none() && bytes.take(u64::MAX).is_none());
        drop(share);
        assert!(bytes.take(100).is_some());
        bytes.set_max(99);
        assert!(bytes.take(100).is_none() && bytes.take(99).is_some());
    }
}
