//! Times as the shell prints them: of listings in local time, of `stat` in UTC.

pub use hearth_types::Calendar;

/// Milliseconds since the epoch, now.
pub fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
