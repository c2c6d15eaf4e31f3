//! Bytes per second for copies of a kind, shared by all of them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Spends a budget of bytes that grows with time. Who comes first passes at once, whatever he asks for; who comes next waits until that
/// is earned: what is asked for at a time should be small.
pub struct Throttle {
    /// Bytes a second; 0 is no limit. Changed under `paid_until`.
    rate: watch::Sender<u64>,
    /// When the bytes spent so far will have been earned.
    paid_until: Mutex<Option<Instant>>,
}

impl Throttle {
    /// `bytes_per_second`: 0 for no limit.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { rate: watch::Sender::new(bytes_per_second), paid_until: Mutex::new(None) }
    }

    /// Bytes a second; 0 is no limit.
    pub fn rate(&self) -> u64 {
        *self.rate.borrow()
    }

    /// What was spent at another rate is forgotten, and whoever waits for it reckons anew.
    pub fn set_rate(&self, bytes_per_second: u64) {
        let mut paid_until = self.paid_until.lock();
        if bytes_per_second != self.rate() {
            *paid_until = None;
            self.rate.send_replace(bytes_per_second);
        }
    }

    /// Waits until `bytes` more may pass. Dropped, it has not spent them.
    pub async fn pass(&self, bytes: u64) {
        let mut rate = self.rate.subscribe();
        while let Some(spending) = self.spend(&mut rate, bytes) {
            tokio::select! {
                () = tokio::time::sleep_until(spending.from) => return spending.done(),
                // The sender lives in self.
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

/// Of one piece: more is not a time that an [`Instant`] can have.
const COST_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes that are counted as spent, and not used yet: given back when it is dropped.
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
        // With another rate it is forgotten already.
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
        let unlimited = throttle.pass(u64::MAX);
        assert!(tokio::time::timeout(Duration::ZERO, unlimited).await.is_ok(), "it waits for nothing");
    }

    #[tokio::test]
    async fn another_rate_is_that_of_those_who_wait_too() {
        let throttle = Throttle::new(1);
        throttle.pass(1 << 40).await;
        let short = Duration::from_millis(20);
        assert!(tokio::time::timeout(short, throttle.pass(1)).await.is_err());
        let change = async {
            tokio::time::sleep(short).await;
            throttle.set_rate(1 << 40);
        };
        let both = async { tokio::join!(throttle.pass(1 << 20), change) };
        assert!(tokio::time::timeout(Duration::from_secs(60), both).await.is_ok());
        throttle.set_rate(0);
        throttle.set_rate(u64::MAX);
        assert!(tokio::time::timeout(Duration::from_secs(60), throttle.pass(1)).await.is_ok());
    }

    #[tokio::test]
    async fn who_gives_up_has_spent_nothing() {
        let throttle = Throttle::new(1);
        // For an hour nobody else passes, however slow this machine is.
        throttle.pass(3600).await;
        let paid_until = *throttle.paid_until.lock();
        for _ in 0..50 {
            assert!(tokio::time::timeout(Duration::ZERO, throttle.pass(1_000_000)).await.is_err());
        }
        assert_eq!(*throttle.paid_until.lock(), paid_until);
    }
}
