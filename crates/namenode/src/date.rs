//! Dates as text, in UTC.

use hearth_types::Calendar;

/// Time of a log4j line: `2026-11-21 07:19:24,051`.
pub fn log_time(wall_ms: u64) -> String {
    format!("{},{:03}", Calendar::utc(wall_ms).to_the_second(), wall_ms % 1000)
}

/// Time of day: `07:19:24`.
pub fn time_of_day(wall_ms: u64) -> String {
    let Calendar { hour, minute, second, .. } = Calendar::utc(wall_ms);
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// Date as Java prints it: `Sat Nov 21 07:19:24 UTC 2026`.
pub fn date_text(wall_ms: u64) -> String {
    Calendar::utc(wall_ms).java_text("UTC")
}

/// ISO 8601 time as Java writes it: `2026-11-21T07:19:24+0000`.
pub fn iso_time(wall_ms: u64) -> String {
    let Calendar { year, month, day, hour, minute, second } = Calendar::utc(wall_ms);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+0000")
}

/// Default name of a snapshot, from its creation time: `20261121-071924.051`.
pub fn snapshot_time(wall_ms: u64) -> String {
    let Calendar { year, month, day, hour, minute, second } = Calendar::utc(wall_ms);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}.{:03}", wall_ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::{date_text, iso_time, log_time, time_of_day};

    #[test]
    fn times_as_iso_8601_has_them() {
        assert_eq!(iso_time(1_795_245_564_051), "2026-11-21T07:19:24+0000");
        // Expiry of a cache directive that never expires.
        assert_eq!(iso_time(i64::MAX as u64 / 4), "73071226-02-26T19:48:13+0000");
    }

    #[test]
    fn times_as_log4j_writes_them() {
        assert_eq!(log_time(1_795_245_564_051), "2026-11-21 07:19:24,051");
        assert_eq!(log_time(951_782_400_000), "2000-02-29 00:00:00,000");
    }

    #[test]
    fn dates_as_date_prints_them() {
        assert_eq!(time_of_day(1_795_245_564_051), "07:19:24");
        assert_eq!(date_text(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date_text(1_795_245_564_000), "Sat Nov 21 07:19:24 UTC 2026");
        assert_eq!(date_text(951_782_400_000), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(date_text(4_107_542_399_000), "Sun Feb 28 23:59:59 UTC 2100");
        assert_eq!(date_text(1_735_689_599_999), "Tue Dec 31 23:59:59 UTC 2024");
    }
}
