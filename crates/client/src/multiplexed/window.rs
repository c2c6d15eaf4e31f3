//! How much may be asked for on a connection before it comes.
//!
//! What is asked for on one connection no other brings any more. Over a long way with losses one brings a megabyte a second or less, and
//! whichever was unlucky is waited for in the end. So it is asked for what it brings in a quarter of a second, by what it has shown:
//! an answer comes behind all that was outstanding when it was asked for, and how long that took says how fast the connection is.

use std::time::Duration;

/// Who has answered sooner than this is near: all that may be outstanding there comes in a few milliseconds, unless a disk is waited for, and
/// that wants many ranges at once.
pub(super) const NEAR: Duration = Duration::from_millis(2);

/// To begin with: what a new connection brings in its first four round trips or five.
const START_BYTES: u32 = 256 << 10;

/// A connection of a megabyte a second and twenty milliseconds has six times as much as is on the way at once: it is not without
/// work while a lost packet is sent again.
const LEAST_BYTES: u32 = 128 << 10;

/// What is outstanding shall have come in this time, or in so many round trips, of which some are the losses'.
const SPAN_LEAST: Duration = Duration::from_millis(250);
const SPAN_ROUND_TRIPS: u32 = 6;

/// Bytes that may be outstanding on one connection.
#[derive(Debug)]
pub(super) struct Window {
    limit: u32,
    near: Duration,
    /// The shortest time in which it was made, or anything answered.
    round_trip: Duration,
    bytes: u32,
}

/// What came, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub bytes: u32,
    /// What was outstanding when it was asked for, itself among it.
    pub behind: usize,
    /// From when it was asked for.
    pub took: Duration,
}

impl Window {
    /// `limit`: bytes at most; at once where the round trip is shorter than `near`.
    pub(super) fn new(limit: u32, near: Duration, round_trip: Duration) -> Self {
        let bytes = if round_trip < near { limit } else { START_BYTES.min(limit) };
        Self { limit, near, round_trip, bytes }
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Learns from an answer.
    pub(super) fn learn(&mut self, Came { bytes, behind, took }: Came) {
        self.round_trip = self.round_trip.min(took);
        if self.round_trip < self.near {
            self.bytes = self.limit;
            return;
        }
        let span = SPAN_LEAST.max(self.round_trip * SPAN_ROUND_TRIPS);
        if took > span {
            // All the others that are outstanding will say the same: this is no step down from where they were asked for.
            let brings = behind as f64 * span.as_secs_f64() / took.as_secs_f64();
            self.bytes = self.bytes.min(brings as u32);
        } else if took <= span / 2 && behind >= self.bytes as usize / 2 {
            // As TCP begins: twice as much for each time that all of it came.
            self.bytes = self.bytes.saturating_add(bytes);
        }
        // Two, for else nothing is on the way between one long range and the next.
        let least = LEAST_BYTES.max(bytes.saturating_mul(2));
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
        Window::new(LIMIT, NEAR, TRIP)
    }

    /// As many answers of a connection that is kept full and brings so many bytes a second.
    fn bring(window: &mut Window, answers: usize, bytes_per_second: f64) {
        for _ in 0..answers {
            let behind = window.bytes() as usize;
            let took = window.round_trip() + Duration::from_secs_f64(behind as f64 / bytes_per_second);
            window.learn(Came { bytes: RANGE, behind, took });
        }
    }

    #[test]
    fn what_is_near_has_all_of_it_at_once_and_keeps_it() {
        let mut window = Window::new(LIMIT, NEAR, Duration::from_micros(200));
        assert_eq!(window.bytes(), LIMIT);
        window.learn(Came { bytes: RANGE, behind: 100_000, took: Duration::from_secs(10) });
        assert_eq!(window.bytes(), LIMIT, "a disk, or the machine, stood still");
    }

    #[test]
    fn one_quick_answer_shows_that_it_is_near() {
        let mut window = Window::new(LIMIT, NEAR, Duration::from_secs(1));
        assert!(window.bytes() < LIMIT);
        window.learn(Came { bytes: 100, behind: 100, took: Duration::from_micros(300) });
        assert_eq!((window.bytes(), window.round_trip()), (LIMIT, Duration::from_micros(300)));
    }

    #[test]
    fn a_fast_one_has_twice_as_much_with_each_round_trip() {
        let mut window = far();
        for doubled in 1..=4 {
            let before = window.bytes();
            bring(&mut window, before.div_ceil(RANGE) as usize, 1e9);
            assert!(window.bytes() >= (START_BYTES << doubled).min(LIMIT), "{doubled}: {}", window.bytes());
        }
        assert_eq!(window.bytes(), LIMIT);
    }

    #[test]
    fn a_slow_one_has_what_it_brings_in_a_quarter_of_a_second() {
        let speeds = [(0.3e6, LEAST_BYTES, LEAST_BYTES), (1e6, LEAST_BYTES, 250_000), (4e6, 400_000, 1_000_000)];
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
        for behind in (RANGE..LIMIT).step_by(RANGE as usize).rev() {
            window.learn(Came { bytes: RANGE, behind: behind as usize, took: Duration::from_secs(1) });
        }
        assert_eq!(window.bytes(), LEAST_BYTES);
        bring(&mut window, 200, 1e9);
        assert_eq!(window.bytes(), LIMIT);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut window = far();
        for _ in 0..1000 {
            window.learn(Came { bytes: RANGE, behind: RANGE as usize, took: TRIP });
        }
        assert_eq!(window.bytes(), START_BYTES);
    }

    #[test]
    fn there_is_room_for_two_long_ranges_and_never_for_more_than_the_limit() {
        let mut window = far();
        window.learn(Came { bytes: 266_301, behind: 266_301, took: Duration::from_millis(200) });
        assert_eq!(window.bytes(), 2 * 266_301);
        let mut little = Window::new(64 << 10, NEAR, TRIP);
        assert_eq!(little.bytes(), 64 << 10);
        little.learn(Came { bytes: RANGE, behind: RANGE as usize, took: Duration::from_secs(3) });
        assert_eq!(little.bytes(), 64 << 10);
    }
}
