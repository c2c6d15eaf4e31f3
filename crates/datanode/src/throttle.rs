//! Bytes per second for copies of a kind, shared by all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Spends a budget of bytes that grows with time. Who comes first passes at once, whatever he asks for; who comes next waits until that
/// is earned: what is asked for at a time should be small.
pub struct Throttle {
    /// Bytes a second; 0 is no limit.
    rate: AtomicU64,
    /// When the bytes spent so far will have been earned.
    paid_until: Mutex<Option<Instant>>,
}

impl Throttle {
    /// `bytes_per_second`: 0 for no limit.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { rate: AtomicU64::new(bytes_per_second), paid_until: Mutex::new(None) }
    }

    /// Bytes a second; 0 is no limit.
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    pub fn set_rate(&self, bytes_per_second: u64) {
        self.rate.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Waits until `bytes` more may pass.
    pub async fn pass(&self, bytes: u64) {
        let rate = self.rate();
        if rate == 0 {
            return;
        }
        let wait_until = {
            let mut paid_until = self.paid_until.lock();
            let now = Instant::now();
            let from = paid_until.map_or(now, |paid| paid.max(now));
            let until = from + Duration::from_secs_f64(bytes as f64 / rate as f64);
            *paid_until = Some(until);
            from
        };
        tokio::time::sleep_until(wait_until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn passes_at_the_rate_that_was_set() {
        let throttle = Throttle::new(100_000);
        let start = Instant::now();
        for _ in 0..5 {
            throttle.pass(5_000).await;
        }
        // The first passes at once; each of the others waits for the 50 ms of the one before.
        assert!(start.elapsed() >= Duration::from_millis(200));
        throttle.set_rate(0);
        throttle.pass(u64::MAX).await;
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
