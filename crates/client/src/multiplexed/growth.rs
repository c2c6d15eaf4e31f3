use std::time::{Duration, Instant};

/// Between two looks at whether another connection helped: several round trips, and long enough to count bytes.
const PERIOD_LEAST: Duration = Duration::from_millis(100);
const PERIOD_ROUND_TRIPS: u32 = 8;

/// As many connections again helped when so many times the bytes came in a second: twice as many where losses or windows are the limit, as many
/// as before where the network or a processor is.
const HELPED: f64 = 1.25;

/// How long no further ones are tried when the last did not help.
const SETTLED: Duration = Duration::from_secs(10);

/// Decides when as many connections again are worth a try. Fed only while connections are held up.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// When the present period began, and how many bytes had come by then.
    period: Option<(Instant, u64)>,
    /// Bytes a second before the last connections were added.
    before: Option<f64>,
    settled_until: Option<Instant>,
}

impl Growth {
    /// Whether to open as many connections again now. `bytes`: come so far; `round_trip`: as far as it is known.
    pub(super) fn is_due(&mut self, now: Instant, bytes: u64, round_trip: Duration) -> bool {
        if self.settled_until.is_some_and(|until| now < until) {
            return false;
        }
        let length = PERIOD_LEAST.max(round_trip * PERIOD_ROUND_TRIPS);
        let Some((since, had)) = self.period else {
            self.period = Some((now, bytes));
            return false;
        };
        let elapsed = now.saturating_duration_since(since);
        if elapsed < length {
            return false;
        }
        self.period = Some((now, bytes));
        // There was a pause: what came in it says nothing.
        if elapsed > 4 * length {
            self.before = None;
            return false;
        }
        let rate = bytes.saturating_sub(had) as f64 / elapsed.as_secs_f64();
        if self.before.is_some_and(|before| rate < HELPED * before) {
            (self.before, self.period) = (None, None);
            self.settled_until = Some(now + SETTLED);
            return false;
        }
        self.before = Some(rate);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_added_as_long_as_each_helps() {
        let mut growth = Growth::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let trip = Duration::from_millis(20);
        assert!(!growth.is_due(at(0), 0, trip), "nothing is known yet");
        assert!(!growth.is_due(at(100), 10, trip), "eight round trips are not over");
        assert!(growth.is_due(at(160), 1600, trip));
        assert!(growth.is_due(at(320), 1600 + 2000, trip), "a quarter more came");
        assert!(!growth.is_due(at(480), 3600 + 2100, trip), "this one did not help");
        assert!(!growth.is_due(at(9000), 1_000_000, trip), "settled");
        assert!(!growth.is_due(at(11_000), 2_000_000, trip), "a new beginning");
        assert!(growth.is_due(at(11_160), 2_001_000, trip));
        assert!(!growth.is_due(at(20_000), 2_002_000, trip), "after a pause nothing is known");
    }
}
