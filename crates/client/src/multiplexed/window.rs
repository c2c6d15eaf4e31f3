//! Window: the number of bytes that may be requested on a connection before they arrive.
//!
//! A range requested on one connection cannot be served by another. Over a long, lossy path a connection may bring a
//! megabyte per second or less, and in the end all reads wait for the slowest one. The window is therefore the number
//! of bytes that the connection brings in a quarter of a second. An answer arrives after all bytes that were
//! outstanding at its request, so its time shows the speed of the connection.

use std::time::Duration;

/// Initial window: the bytes that a new connection brings in its first four or five round trips.
const INITIAL_BYTES: u32 = 256 << 10;

/// Minimum window. At a megabyte per second and twenty milliseconds, this is six times the bytes in flight, so the
/// connection is not idle while a lost packet is sent again.
const BYTES_MIN: u32 = 128 << 10;

/// Time, or number of round trips, within which the outstanding bytes should arrive. The round trips include some for
/// losses.
const TARGET_TIME_MIN: Duration = Duration::from_millis(250);
const TARGET_ROUND_TRIPS: u32 = 6;

/// Bytes that may be outstanding on one connection.
#[derive(Debug)]
pub(super) struct Window {
    limit: u32,
    lan_round_trip_max: Duration,
    /// Shortest time of the connection set-up or of any answer.
    round_trip: Duration,
    bytes: u32,
}

/// Measurement from one answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub bytes: u32,
    /// Bytes outstanding when it was requested, including its own.
    pub outstanding: usize,
    /// Time since its request.
    pub elapsed: Duration,
}

impl Window {
    /// `limit`: maximum number of bytes. Allowed at once if the round trip is shorter than `lan_round_trip_max`.
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

    /// Updates the window with the measurement of an answer.
    pub(super) fn update(&mut self, Sample { bytes, outstanding, elapsed }: Sample) {
        self.round_trip = self.round_trip.min(elapsed);
        if self.round_trip < self.lan_round_trip_max {
            self.bytes = self.limit;
            return;
        }
        let target_time = TARGET_TIME_MIN.max(self.round_trip * TARGET_ROUND_TRIPS);
        if elapsed > target_time {
            // All other outstanding answers will show the same delay. Reducing from the bytes outstanding then, not
            // from the current window, counts it once.
            let brings = outstanding as f64 * target_time.as_secs_f64() / elapsed.as_secs_f64();
            self.bytes = self.bytes.min(brings as u32);
        } else if elapsed <= target_time / 2 && outstanding >= self.bytes as usize / 2 {
            // Like TCP slow start: the window doubles each time that all of it has arrived.
            self.bytes = self.bytes.saturating_add(bytes);
        }
        // At least two ranges, otherwise nothing is in flight between one long range and the next.
        let least = BYTES_MIN.max(bytes.saturating_mul(2));
        self.bytes = self.bytes.max(least).min(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN_ROUND_TRIP_MAX: Duration = Duration::from_millis(2);

    const LIMIT: u32 = 4 << 20;
    const RANGE: u32 = 34_631;
    const TRIP: Duration = Duration::from_millis(20);

    fn far() -> Window {
        Window::new(LIMIT, LAN_ROUND_TRIP_MAX, TRIP)
    }

    /// Simulates `answers` answers of a connection whose window is kept full and that brings `bytes_per_second`.
    fn bring(window: &mut Window, answers: usize, bytes_per_second: f64) {
        for _ in 0..answers {
            let outstanding = window.bytes() as usize;
            let elapsed = window.round_trip() + Duration::from_secs_f64(outstanding as f64 / bytes_per_second);
            window.update(Sample { bytes: RANGE, outstanding, elapsed });
        }
    }

    #[test]
    fn near_connection_keeps_full_window() {
        let mut window = Window::new(LIMIT, LAN_ROUND_TRIP_MAX, Duration::from_micros(200));
        assert_eq!(window.bytes(), LIMIT);
        window.update(Sample { bytes: RANGE, outstanding: 100_000, elapsed: Duration::from_secs(10) });
        assert_eq!(window.bytes(), LIMIT, "a disk, or the machine, stood still");
    }

    #[test]
    fn quick_answer_opens_full_window() {
        let mut window = Window::new(LIMIT, LAN_ROUND_TRIP_MAX, Duration::from_secs(1));
        assert!(window.bytes() < LIMIT);
        window.update(Sample { bytes: 100, outstanding: 100, elapsed: Duration::from_micros(300) });
        assert_eq!((window.bytes(), window.round_trip()), (LIMIT, Duration::from_micros(300)));
    }

    #[test]
    fn fast_connection_doubles_window_per_round_trip() {
        let mut window = far();
        for doubled in 1..=4 {
            let before = window.bytes();
            bring(&mut window, before.div_ceil(RANGE) as usize, 1e9);
            assert!(window.bytes() >= (INITIAL_BYTES << doubled).min(LIMIT), "{doubled}: {}", window.bytes());
        }
        assert_eq!(window.bytes(), LIMIT);
    }

    #[test]
    fn slow_connection_window_covers_quarter_second() {
        let speeds = [(0.3e6, BYTES_MIN, BYTES_MIN), (1e6, BYTES_MIN, 250_000), (4e6, 400_000, 1_000_000)];
        for (bytes_per_second, least, most) in speeds {
            let mut window = far();
            bring(&mut window, 200, bytes_per_second);
            assert!((least..=most).contains(&window.bytes()), "{bytes_per_second}: {}", window.bytes());
        }
    }

    #[test]
    fn stalled_connection_shrinks_then_recovers() {
        let mut window = far();
        bring(&mut window, 200, 1e9);
        // All arrive after one second: each of the outstanding answers shows this speed.
        for outstanding in (RANGE..LIMIT).step_by(RANGE as usize).rev() {
            window.update(Sample { bytes: RANGE, outstanding: outstanding as usize, elapsed: Duration::from_secs(1) });
        }
        assert_eq!(window.bytes(), BYTES_MIN);
        bring(&mut window, 200, 1e9);
        assert_eq!(window.bytes(), LIMIT);
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut window = far();
        for _ in 0..1000 {
            window.update(Sample { bytes: RANGE, outstanding: RANGE as usize, elapsed: TRIP });
        }
        assert_eq!(window.bytes(), INITIAL_BYTES);
    }

    #[test]
    fn window_fits_two_ranges_within_limit() {
        let mut window = far();
        window.update(Sample { bytes: 266_301, outstanding: 266_301, elapsed: Duration::from_millis(200) });
        assert_eq!(window.bytes(), 2 * 266_301);
        let mut little = Window::new(64 << 10, LAN_ROUND_TRIP_MAX, TRIP);
        assert_eq!(little.bytes(), 64 << 10);
        little.update(Sample { bytes: RANGE, outstanding: RANGE as usize, elapsed: Duration::from_secs(3) });
        assert_eq!(little.bytes(), 64 << 10);
    }
}
