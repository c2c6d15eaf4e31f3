//! Counters of the store's work.

use std::sync::atomic::{AtomicU64, Ordering};

use hearth_types::Histogram;

#[derive(Default)]
pub struct Counters {
    pub dirty_replicas: AtomicU64,
    pub dirty_bytes: AtomicU64,
    pub evictions: AtomicU64,
    pub read_backs: AtomicU64,
    pub memory_full: AtomicU64,
    pub flushed_replicas: AtomicU64,
    pub flushed_bytes: AtomicU64,
    pub flush_failures: AtomicU64,
    pub flushes: Histogram,
    pub scrubbed_bytes: AtomicU64,
    pub corruptions: AtomicU64,
    pub granted_bytes: AtomicU64,
    pub grant_nanos: AtomicU64,
    pub committed_bytes: AtomicU64,
    pub copied_back_bytes: AtomicU64,
    pub received_in_place_bytes: AtomicU64,
}

pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
