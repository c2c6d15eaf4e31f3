//! Polling for events that are expected soon, instead of sleeping until a wake-up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Consecutive unsuccessful polls after which polling is tried only occasionally.
const MISSES_MAX: u32 = 8;
/// Then one wait in `PROBE_EVERY` polls.
const PROBE_EVERY: u32 = 16;

/// Number of polls before the clock is read for the first time and the processor is yielded. They take some tens of
/// microseconds, in which a card has usually answered. Reading the clock and yielding are system calls on kernels
/// without a vDSO, where each costs more than a hundred polls.
const SPINS: u32 = 2048;

/// Tracks if polling was recently successful.
#[derive(Debug, Default)]
pub struct Polling {
    misses: AtomicU32,
}

impl Polling {
    /// Polls `is_over` for at most about `limit`; returns at once if polling was often unsuccessful. Returns the last
    /// result.
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

/// Polls in rounds, each as long as all rounds before it. Between rounds it reads the clock and yields the processor,
/// because the awaited work may itself need it (a software device runs on a processor).
#[expect(clippy::disallowed_methods, reason = "a busy wait spends real time; with a paused clock it would not end")]
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
        // The first round is not timed: an operation that completes in it needs no clock.
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
        // Number of polls that fill the remaining time at the current rate.
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
    fn polling_finds_events_until_the_limit() {
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
    fn unsuccessful_polling_is_suspended_and_resumes() {
        let polling = Polling::default();
        let long = |polling: &Polling| polls(polling, LIMIT) > 1;
        assert!((0..MISSES_MAX).all(|_| long(&polling)));
        let tried = (0..PROBE_EVERY * 4).filter(|_| long(&polling)).count();
        assert_eq!(tried, 4);
        assert!(polling.until(LIMIT, || true));
        assert!(long(&polling));
    }

    #[test]
    fn zero_limit_checks_only_once() {
        assert_eq!(polls(&Polling::default(), Duration::ZERO), 1);
    }
}
