//! Dates as texts, in UTC.

/// Year, month from 0 and day from 1 of a day counted from 1970-01-01.
fn calendar(days: u64) -> (u64, u64, u64) {
    // Days of the Gregorian calendar, counted in eras of 400 years from 0000-03-01.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    (year, month, day)
}

/// As log4j writes the time of a line: `2026-11-21 07:19:24,051`.
pub fn log_time(wall_ms: u64) -> String {
    let seconds = wall_ms / 1000;
    let (year, month, day) = calendar(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{:02}-{day:02} {hour:02}:{minute:02}:{second:02},{:03}", month + 1, wall_ms % 1000)
}

/// As Java prints a date: `Sat Nov 21 07:19:24 UTC 2026`.
pub fn date_text(wall_ms: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = wall_ms / 1000;
    let days = seconds / 86_400;
    let (year, month, day) = calendar(days);
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// As Java writes ISO 8601: `2026-11-21T07:19:24+0000`.
pub fn iso_time(wall_ms: u64) -> String {
    let seconds = wall_ms / 1000;
    let (year, month, day) = calendar(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+0000", month + 1)
}

/// As a snapshot is named by the time when it is made: `20261121-071924.051`.
pub fn snapshot_time(wall_ms: u64) -> String {
    let seconds = wall_ms / 1000;
    let (year, month, day) = calendar(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{:02}{day:02}-{hour:02}{minute:02}{second:02}.{:03}", month + 1, wall_ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::{date_text, iso_time, log_time};

    #[test]
    fn times_as_iso_8601_has_them() {
        assert_eq!(iso_time(1_795_245_564_051), "2026-11-21T07:19:24+0000");
        // When a cache directive ends that never does.
        assert_eq!(iso_time(i64::MAX as u64 / 4), "73071226-02-26T19:48:13+0000");
    }

    #[test]
    fn times_as_log4j_writes_them() {
        assert_eq!(log_time(1_795_245_564_051), "2026-11-21 07:19:24,051");
        assert_eq!(log_time(951_782_400_000), "2000-02-29 00:00:00,000");
    }

    #[test]
    fn dates_as_date_prints_them() {
        assert_eq!(date_text(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date_text(1_795_245_564_000), "Sat Nov 21 07:19:24 UTC 2026");
        assert_eq!(date_text(951_782_400_000), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(date_text(4_107_542_399_000), "Sun Feb 28 23:59:59 UTC 2100");
        assert_eq!(date_text(1_735_689_599_999), "Tue Dec 31 23:59:59 UTC 2024");
    }
}
