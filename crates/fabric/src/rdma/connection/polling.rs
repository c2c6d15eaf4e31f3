//! Polling for what will soon be there, instead of sleeping until somebody says so.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Polls in vain, one after the other, after which polling is only tried now and then.
const MISSES_MAX: u32 = 8;
/// How rarely then: one wait of so many.
const PROBE_EVERY: u32 = 16;

/// So many polls are made before the clock is read for the first time, and the processor offered to others: some tens of microseconds, in which a
/// card has long answered. Both are system calls where the kernel has no page of its own in the process, dearer there than a hundred polls.
const SPINS: u32 = 2048;

/// Whether polling for what is waited for has been worth it lately.
#[derive(Debug, Default)]
pub struct Polling {
    misses: AtomicU32,
}

impl Polling {
    /// Polls `is_over` for about `limit` at most; at once back when polling was in vain often. Returns what it said last.
    pub fn until(&self, limit: Duration, mut is_over: impl FnMut() -> bool) -> bool {
        let misses = self.misses.load(Ordering::Relaxed);
        let worth_it = !limit.is_zero() && (misses < MISSES_MAX || misses.is_multiple_of(PROBE_EVERY));
        if is_over() || (worth_it && spin(limit, &mut is_over)) {
            if misses > 0 {
                self.misses.store(0, Ordering::Relaxed);
            }
            return true;
        }
        self.misses.store(misses.wrapping_add(1).max(1), Ordering::Relaxed);
        false
    }
}

/// In rounds, each as long as all before it: between them the clock is read, and the processor offered to others, for what is waited for
/// may itself need it (a software device works on one).
fn spin(limit: Duration, is_over: &mut impl FnMut() -> bool) -> bool {
    let mut round = SPINS;
    let mut started = None;
    let mut polls = 0;
    loop {
        for _ in 0..round {
            if is_over() {
                return true;
            }
            std::hint::spin_loop();
        }
        // The first round is for nothing: what ends in it needs no clock.
        let Some(started) = started else {
            started = Some(Instant::now());
            continue;
        };
        polls += round;
        let spent = Instant::elapsed(&started);
        if spent >= limit {
            return false;
        }
        std::thread::yield_now();
        // As many as will take the rest of the time, if they go on as they did.
        let rest = f64::from(polls) * ((limit - spent).as_secs_f64() / spent.as_secs_f64().max(1e-9));
        round = polls.min(rest as u32).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(100);

    fn polls(polling: &Polling, limit: Duration) -> u64 {
        let mut polls = 0;
        assert!(!polling.until(limit, || {
            polls += 1;
            false
        }));
        polls
    }

    #[test]
    fn what_comes_soon_is_seen_and_what_does_not_come_is_given_up() {
        let polling = Polling::default();
        for soon in [0, 1, u64::from(SPINS), u64::from(SPINS) * 3] {
            let mut polls = 0;
            assert!(polling.until(Duration::from_secs(60), || {
                polls += 1;
                polls > soon
            }));
            assert_eq!(polls, soon + 1);
        }
        assert!(self::polls(&polling, LIMIT) > u64::from(SPINS));
    }

    #[test]
    fn polling_in_vain_ends_but_for_now_and_then_and_begins_again_when_it_was_worth_it() {
        let polling = Polling::default();
        let long = |polling: &Polling| polls(polling, LIMIT) > 1;
        assert!((0..MISSES_MAX).all(|_| long(&polling)));
        let tried = (0..PROBE_EVERY * 4).filter(|_| long(&polling)).count();
        assert_eq!(tried, 4);
        assert!(polling.until(LIMIT, || true));
        assert!(long(&polling));
    }

    #[test]
    fn who_may_not_poll_looks_once() {
        assert_eq!(polls(&Polling::default(), Duration::ZERO), 1);
    }
}
