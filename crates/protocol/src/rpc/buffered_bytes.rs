//! Limit of the bytes that all connections of a server hold for short requests in flight and for responses not yet
//! taken by their peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a connection may always hold, however much the others hold.
const OWN_BYTES: usize = 64 << 10;

/// Sum over all connections.
#[derive(Debug)]
pub(super) struct BufferedBytes {
    limit: usize,
    all: AtomicUsize,
}

/// Bytes that one connection holds; subtracted from the sum on drop.
#[derive(Debug)]
pub(super) struct ConnectionBytes {
    shared: Arc<BufferedBytes>,
    own: usize,
}

impl BufferedBytes {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, all: AtomicUsize::new(0) })
    }

    pub fn connection(self: &Arc<Self>) -> ConnectionBytes {
        ConnectionBytes { shared: self.clone(), own: 0 }
    }
}

impl ConnectionBytes {
    /// Records that the connection now holds `bytes`.
    pub fn set(&mut self, bytes: usize) {
        if bytes > self.own {
            self.shared.all.fetch_add(bytes - self.own, Ordering::Relaxed);
        } else if bytes < self.own {
            self.shared.all.fetch_sub(self.own - bytes, Ordering::Relaxed);
        }
        self.own = bytes;
    }

    /// Returns true if the connection may hold more.
    pub fn has_room(&self) -> bool {
        self.own <= OWN_BYTES || self.shared.all.load(Ordering::Relaxed) < self.shared.limit
    }
}

impl Drop for ConnectionBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_beyond_the_limit_keep_a_small_share() {
        let all = BufferedBytes::new(10 * OWN_BYTES);
        let (mut large, mut small) = (all.connection(), all.connection());
        large.set(9 * OWN_BYTES);
        assert!(large.has_room());
        small.set(OWN_BYTES);
        assert!(!large.has_room() && small.has_room());
        small.set(OWN_BYTES + 1);
        assert!(!small.has_room());
        drop(large);
        assert!(small.has_room());
        drop(small);
        assert_eq!(all.all.load(Ordering::Relaxed), 0);
    }
}
