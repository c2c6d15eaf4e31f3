//! Bandwidth limit that all copies of a kind share.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Spends a budget of bytes that grows with time. The first caller passes at once, whatever it requests; the next one
/// waits until that is paid off. Requests should therefore be small.
pub struct Throttle {
    /// Rate in bytes per second; 0 is no limit. Changed under `paid_until`.
    rate: watch::Sender<u64>,
    /// Time at which the bytes spent so far are paid off.
    paid_until: Mutex<Option<Instant>>,
}

impl Throttle {
    /// `bytes_per_second`: 0 for no limit.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { rate: watch::Sender::new(bytes_per_second), paid_until: Mutex::new(None) }
    }

    /// Returns the rate in bytes per second; 0 is no limit.
    pub fn rate(&self) -> u64 {
        *self.rate.borrow()
    }

    /// Changes the rate. Bytes spent at another rate are forgotten, and waiting callers recompute their wait.
    pub fn set_rate(&self, bytes_per_second: u64) {
        let mut paid_until = self.paid_until.lock();
        if bytes_per_second != self.rate() {
            *paid_until = None;
            self.rate.send_replace(bytes_per_second);
        }
    }

    /// Waits until `bytes` more may pass. Cancel safety: if dropped, it has not spent them.
    pub async fn pass(&self, bytes: u64) {
        let mut rate = self.rate.subscribe();
        while let Some(spending) = self.spend(&mut rate, bytes) {
            tokio::select! {
                () = tokio::time::sleep_until(spending.from) => return spending.done(),
                // The sender is a field of `self`.
                _ = rate.changed() => {}
            }
        }
    }

    /// `None`: there is no limit.
    fn spend(&self, rate: &mut watch::Receiver<u64>, bytes: u64) -> Option<Spending<'_>> {
        let mut paid_until = self.paid_until.lock();
        let rate = *rate.borrow_and_update();
        if rate == 0 {
            return None;
        }
        let now = Instant::now();
        let from = paid_until.map_or(now, |paid| paid.max(now));
        let cost = Duration::try_from_secs_f64(bytes as f64 / rate as f64).map_or(COST_MAX, |cost| cost.min(COST_MAX));
        *paid_until = Some(from + cost);
        Some(Spending { throttle: self, rate, from, cost })
    }
}

/// Maximum wait for one piece: an [`Instant`] cannot represent arbitrarily late times.
const COST_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes that are counted as spent but not yet used; returned to the budget when dropped.
struct Spending<'a> {
    throttle: &'a Throttle,
    rate: u64,
    from: Instant,
    cost: Duration,
}

impl Spending<'_> {
    fn done(mut self) {
        self.cost = Duration::ZERO;
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        let mut paid_until = self.throttle.paid_until.lock();
        // After a change of the rate they are already forgotten.
        if self.throttle.rate() == self.rate
            && let Some(paid) = &mut *paid_until
        {
            *paid = paid.checked_sub(self.cost).unwrap_or(*paid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_at_configured_rate() {
        let throttle = Throttle::new(100_000);
        let start = Instant::now();
        for _ in 0..5 {
            throttle.pass(5_000).await;
        }
        // The first call passes at once; each of the others waits for the 50 ms of the one before.
        assert_eq!(start.elapsed().as_millis(), 200);
        throttle.set_rate(0);
        let unlimited = throttle.pass(u64::MAX);
        assert!(tokio::time::timeout(Duration::ZERO, unlimited).await.is_ok(), "it does not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn new_rate_applies_to_waiting_callers() {
        let throttle = Throttle::new(1);
        throttle.pass(1 << 40).await;
        let short = Duration::from_millis(20);
        assert!(tokio::time::timeout(short, throttle.pass(1)).await.is_err());
        // The first of both waits before the second is polled.
        let both = async { tokio::join!(biased; throttle.pass(1 << 20), async { throttle.set_rate(1 << 40) }) };
        assert!(tokio::time::timeout(Duration::from_secs(60), both).await.is_ok());
        throttle.set_rate(0);
        throttle.set_rate(u64::MAX);
        assert!(tokio::time::timeout(Duration::from_secs(60), throttle.pass(1)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_caller_spends_nothing() {
        let throttle = Throttle::new(1);
        // No other call passes for an hour.
        throttle.pass(3600).await;
        let paid_until = *throttle.paid_until.lock();
        for _ in 0..50 {
            assert!(tokio::time::timeout(Duration::ZERO, throttle.pass(1_000_000)).await.is_err());
        }
        assert_eq!(*throttle.paid_until.lock(), paid_until);
    }
}
