//! Times as the shell prints them: in listings in local time, in `stat` in UTC.

pub use hearth_types::Calendar;

/// Returns the current time in milliseconds since the epoch.
pub fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
