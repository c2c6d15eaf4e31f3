//! How much may be asked for on a connection before it comes.
//!
//! What is asked for on one connection no other brings any more. Over a long way with losses one brings a megabyte a second or less, and
//! whichever was unlucky is waited for in the end. So it is asked for what it brings in a quarter of a second, by what it has shown:
//! an answer comes behind all that was outstanding when it was asked for, and how long that took says how fast the connection is.

use std::time::Duration;

/// Who has answered sooner than this is near: all that may be outstanding there comes in a few milliseconds, unless a disk is waited for, and
/// that wants many ranges at once.
pub(super) const LAN_ROUND_TRIP_MAX: Duration = Duration::from_millis(2);

/// To begin with: what a new connection brings in its first four round trips or five.
const INITIAL_BYTES: u32 = 256 << 10;

/// A connection of a megabyte a second and twenty milliseconds has six times as much as is on the way at once: it is not without
/// work while a lost packet is sent again.
const BYTES_MIN: u32 = 128 << 10;

/// What is outstanding shall have come in this time, or in so many round trips, of which some are the losses'.
const TARGET_TIME_MIN: Duration = Duration::from_millis(250);
const TARGET_ROUND_TRIPS: u32 = 6;

/// Bytes that may be outstanding on one connection.
#[derive(Debug)]
pub(super) struct Window {
    limit: u32,
    lan_round_trip_max: Duration,
    /// The shortest time in which it was made, or anything answered.
    round_trip: Duration,
    bytes: u32,
}

/// What came, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub bytes: u32,
    /// What was outstanding when it was asked for, itself among it.
    pub outstanding: usize,
    /// From when it was asked for.
    pub elapsed: Duration,
}

impl Window {
    /// `limit`: bytes at most; at once where the round trip is shorter than `lan_round_trip_max`.
    pub(super) fn new(limit: u32, lan_round_trip_max: Duration, round_trip: Duration) -> Self {
        let bytes = if round_trip < lan_round_trip_max { limit } else { INITIAL_BYTES.min(limit) };
        Self { limit, lan_round_trip_max, round_trip, bytes }
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Learns from an answer.
    pub(super) fn update(&mut self, Sample { bytes, outstanding, elapsed }: Sample) {
        self.round_trip = self.round_trip.min(elapsed);
        if self.round_trip < self.lan_round_trip_max {
            self.bytes = self.limit;
            return;
        }
        let target_time = TARGET_TIME_MIN.max(self.round_trip * TARGET_ROUND_TRIPS);
        if elapsed > target_time {
            // All the others that are outstanding will say the same: this is no step down from where they were asked for.
            let brings = outstanding as f64 * target_time.as_secs_f64() / elapsed.as_secs_f64();
            self.bytes = self.bytes.min(brings as u32);
        } else if elapsed <= target_time / 2 && outstanding >= self.bytes as usize / 2 {
            // As TCP begins: twice as much for each time that all of it came.
            self.bytes = self.bytes.saturating_add(bytes);
        }
        // Two, for else nothing is on the way between one long range and the next.
        let least = BYTES_MIN.max(bytes.saturating_mul(2));
        self.bytes = self.bytes.max(least).min(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 4 << 20;
    const RANGE: u32 = 34_631;
    const TRIP: Duration = Duration::from_millis(20);

    fn far() -> Window {
        Window::new(LIMIT, LAN_ROUND_TRIP_MAX, TRIP)
    }

    /// As many answers of a connection that is kept full and brings so many bytes a second.
    fn bring(window: &mut Window, answers: usize, bytes_per_second: f64) {
        for _ in 0..answers {
            let outstanding = window.bytes() as usize;
            let elapsed = window.round_trip() + Duration::from_secs_f64(outstanding as f64 / bytes_per_second);
            window.update(Sample { bytes: RANGE, outstanding, elapsed });
        }
    }

    #[test]
    fn what_is_near_has_all_of_it_at_once_and_keeps_it() {
        let mut window = Window::new(LIMIT, LAN_ROUND_TRIP_MAX, Duration::from_micros(200));
        assert_eq!(window.bytes(), LIMIT);
        window.update(Sample { bytes: RANGE, outstanding: 100_000, elapsed: Duration::from_secs(10) });
        assert_eq!(window.bytes(), LIMIT, "a disk, or the machine, stood still");
    }

    #[test]
    fn one_quick_answer_shows_that_it_is_near() {
        let mut window = Window::new(LIMIT, LAN_ROUND_TRIP_MAX, Duration::from_secs(1));
        assert!(window.bytes() < LIMIT);
        window.update(Sample { bytes: 100, outstanding: 100, elapsed: Duration::from_micros(300) });
        assert_eq!((window.bytes(), window.round_trip()), (LIMIT, Duration::from_micros(300)));
    }

    #[test]
    fn a_fast_one_has_twice_as_much_with_each_round_trip() {
        let mut window = far();
        for doubled in 1..=4 {
            let before = window.bytes();
            bring(&mut window, before.div_ceil(RANGE) as usize, 1e9);
            assert!(window.bytes() >= (INITIAL_BYTES << doubled).min(LIMIT), "{doubled}: {}", window.bytes());
        }
        assert_eq!(window.bytes(), LIMIT);
    }

    #[test]
    fn a_slow_one_has_what_it_brings_in_a_quarter_of_a_second() {
        let speeds = [(0.3e6, BYTES_MIN, BYTES_MIN), (1e6, BYTES_MIN, 250_000), (4e6, 400_000, 1_000_000)];
        for (bytes_per_second, least, most) in speeds {
            let mut window = far();
            bring(&mut window, 200, bytes_per_second);
            assert!((least..=most).contains(&window.bytes()), "{bytes_per_second}: {}", window.bytes());
        }
    }

    #[test]
    fn one_that_stood_still_has_less_and_soon_more_again() {
        let mut window = far();
        bring(&mut window, 200, 1e9);
        // All of it comes after a second: each of those that were outstanding says how fast that was.
        for outstanding in (RANGE..LIMIT).step_by(RANGE as usize).rev() {
            window.update(Sample { bytes: RANGE, outstanding: outstanding as usize, elapsed: Duration::from_secs(1) });
        }
        assert_eq!(window.bytes(), BYTES_MIN);
        bring(&mut window, 200, 1e9);
        assert_eq!(window.bytes(), LIMIT);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut window = far();
        for _ in 0..1000 {
            window.update(Sample { bytes: RANGE, outstanding: RANGE as usize, elapsed: TRIP });
        }
        assert_eq!(window.bytes(), INITIAL_BYTES);
    }

    #[test]
    fn there_is_room_for_two_long_ranges_and_never_for_more_than_the_limit() {
        let mut window = far();
        window.update(Sample { bytes: 266_301, outstanding: 266_301, elapsed: Duration::from_millis(200) });
        assert_eq!(window.bytes(), 2 * 266_301);
        let mut little = Window::new(64 << 10, LAN_ROUND_TRIP_MAX, TRIP);
        assert_eq!(little.bytes(), 64 << 10);
        little.update(Sample { bytes: RANGE, outstanding: RANGE as usize, elapsed: Duration::from_secs(3) });
        assert_eq!(little.bytes(), 64 << 10);
    }
}
