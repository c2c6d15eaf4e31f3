//! Conversion of timestamps to calendar fields, in UTC and in the local time zone.

/// A timestamp split into calendar fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calendar {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

impl Calendar {
    /// Converts to UTC. `ms`: milliseconds since the epoch.
    pub fn utc(ms: u64) -> Self {
        let seconds = ms / 1000;
        let (year, month, day) = civil((seconds / 86_400) as i64);
        let of_day = (seconds % 86_400) as u32;
        Self { year, month, day, hour: of_day / 3600, minute: of_day / 60 % 60, second: of_day % 60 }
    }

    /// Converts to the local time zone of this machine (TZ, /etc/localtime).
    pub fn local(ms: u64) -> Self {
        let seconds: libc::time_t = (ms / 1000) as libc::time_t;
        // SAFETY: `tm` is plain data for which zeros are valid.
        let mut parts: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live values of ours; the function keeps neither.
        let done = unsafe { libc::localtime_r(&seconds, &mut parts) };
        if done.is_null() {
            return Self::utc(ms);
        }
        Self {
            year: i64::from(parts.tm_year) + 1900,
            month: parts.tm_mon as u32 + 1,
            day: parts.tm_mday as u32,
            hour: parts.tm_hour as u32,
            minute: parts.tm_min as u32,
            second: parts.tm_sec as u32,
        }
    }

    /// `2026-11-21 07:15`
    pub fn to_the_minute(self) -> String {
        let Self { year, month, day, hour, minute, .. } = self;
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
    }

    /// `2026-11-21 07:15:42`
    pub fn to_the_second(self) -> String {
        format!("{}:{:02}", self.to_the_minute(), self.second)
    }

    /// Formats local time as Java's `Date` prints it: `Sat Nov 21 07:36:57 UTC 2026`.
    pub fn java_date(ms: u64) -> String {
        Self::local(ms).java_text(&zone(ms))
    }

    /// Formats any timestamp in the same format. `zone`: the name of its time zone.
    pub fn java_text(self, zone: &str) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        let weekday = days[(days_from_civil(year, month, day).rem_euclid(7)) as usize];
        let name = self.month_name();
        format!("{weekday} {name} {day:02} {hour:02}:{minute:02}:{second:02} {zone} {year}")
    }

    /// Java's default format of date and time: `Nov 21, 2026, 1:37:22 PM`.
    pub fn java_default(self) -> String {
        let Self { year, day, hour, minute, second, .. } = self;
        let half = if hour < 12 { "AM" } else { "PM" };
        format!("{} {day}, {year}, {}:{minute:02}:{second:02} {half}", self.month_name(), (hour + 11) % 12 + 1)
    }

    fn month_name(self) -> &'static str {
        const NAMES: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        NAMES[(self.month as usize - 1) % 12]
    }

    /// `261121071542`
    pub fn compact(self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{:02}{month:02}{day:02}{hour:02}{minute:02}{second:02}", year % 100)
    }

    /// Returns the name of a trash checkpoint created at `ms`. `attempt`: number of names for that second that are
    /// already taken.
    pub fn checkpoint_name(ms: u64, attempt: u32) -> String {
        let stamp = Self::local(ms).compact();
        if attempt == 0 { stamp } else { format!("{stamp}-{attempt}") }
    }

    /// Returns the creation time of a trash checkpoint in milliseconds, parsed from its name; `None` for other names.
    pub fn checkpoint_ms(name: &str) -> Option<u64> {
        let digits = name.split_once('-').map_or(name, |(digits, _)| digits);
        if digits.len() != 12 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let part = |at: usize| digits[at..at + 2].parse::<u32>().ok();
        let made = Self {
            year: 2000 + i64::from(part(0)?),
            month: part(2).filter(|month| (1..=12).contains(month))?,
            day: part(4).filter(|day| (1..=31).contains(day))?,
            hour: part(6)?,
            minute: part(8)?,
            second: part(10)?,
        };
        made.local_to_ms()
    }

    /// Converts to milliseconds since the epoch, taking the fields as local time. `None` before 1970.
    pub fn local_to_ms(self) -> Option<u64> {
        // SAFETY: as above.
        let mut parts: libc::tm = unsafe { std::mem::zeroed() };
        parts.tm_year = i32::try_from(self.year - 1900).ok()?;
        parts.tm_mon = self.month as i32 - 1;
        parts.tm_mday = self.day as i32;
        parts.tm_hour = self.hour as i32;
        parts.tm_min = self.minute as i32;
        parts.tm_sec = self.second as i32;
        parts.tm_isdst = -1;
        // SAFETY: the pointer is to a live value of ours, which the function may normalize.
        let seconds = unsafe { libc::mktime(&mut parts) };
        u64::try_from(seconds).ok()?.checked_mul(1000)
    }
}

/// Converts days since the epoch to year, month, day. Source: Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted + 2) / 5 + 1) as u32;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Inverse of `civil`. Source: Howard Hinnant's `days_from_civil`.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let shifted = (i64::from(month) + 9) % 12;
    let of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the name of the local time zone at that time.
fn zone(ms: u64) -> String {
    let seconds: libc::time_t = (ms / 1000) as libc::time_t;
    // SAFETY: `tm` is plain data for which zeros are valid.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of ours; the function keeps neither.
    let done = unsafe { libc::localtime_r(&seconds, &mut parts) };
    if done.is_null() || parts.tm_zone.is_null() {
        return "UTC".to_owned();
    }
    // SAFETY: not null, and by localtime_r's contract a string that lives until the time zone is changed, which nothing
    // in this process does.
    let name = unsafe { std::ffi::CStr::from_ptr(parts.tm_zone) };
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lies outside every hour that daylight saving time repeats in some time zone.
    const NOW: u64 = 1_795_245_342_000;

    #[test]
    fn timestamps_convert_to_calendars_and_back() {
        assert_eq!(Calendar::utc(0).to_the_second(), "1970-01-01 00:00:00");
        assert_eq!(Calendar::utc(951_782_399_000).to_the_second(), "2000-02-28 23:59:59");
        assert_eq!(Calendar::utc(951_782_400_000).to_the_second(), "2000-02-29 00:00:00");
        assert_eq!(Calendar::utc(NOW).compact(), "261121071542");
        for days in [-1, 0, 1, 10_957, 11_016, 20_000] {
            let (year, month, day) = civil(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
        assert_eq!(Calendar::local(NOW).local_to_ms(), Some(NOW));
    }

    #[test]
    fn checkpoint_names_round_trip() {
        let name = Calendar::local(NOW).compact();
        assert_eq!(Calendar::checkpoint_name(NOW, 0), name);
        assert_eq!(Calendar::checkpoint_name(NOW, 2), format!("{name}-2"));
        assert_eq!(Calendar::checkpoint_ms(&name), Some(NOW));
        assert_eq!(Calendar::checkpoint_ms(&format!("{name}-2")), Some(NOW));
        assert_eq!(Calendar::checkpoint_ms("Current"), None);
        assert_eq!(Calendar::checkpoint_ms("269999999999"), None);
    }
}
