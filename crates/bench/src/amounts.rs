//! Parsers of amounts on the command line, and progress bars.

use std::str::FromStr;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Parses a number of bytes above 0: `700`, `32k`, `64m`, `5g`.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err("expected a number with an optional k, m or g".to_owned()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "a number of bytes".to_owned())
}

/// Parses a number of at least one. Zero runs or zero bytes would give no result.
pub fn at_least_one<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text.parse::<T>().ok().filter(|number| *number >= T::from(1));
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// Parses a duration: `1s`, `50ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| "expected a number followed by s or ms".to_owned())?;
    match unit {
        "s" | "" => Ok(Duration::from_secs(number)),
        "ms" => Ok(Duration::from_millis(number)),
        _ => Err("expected a number followed by s or ms".to_owned()),
    }
}

/// Formats bytes in the form that `size` parses.
pub fn spelled(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// Progress bar for bytes, on standard error, and only if that is a terminal.
pub fn bar(what: &str, bytes: u64) -> ProgressBar {
    styled(what, bytes, "{bytes}/{total_bytes} {bytes_per_sec}")
}

/// Progress bar for a count of items.
pub fn bar_of(what: &str, count: u64) -> ProgressBar {
    styled(what, count, "{pos}/{len} {per_sec}")
}

fn styled(what: &str, length: u64, amounts: &str) -> ProgressBar {
    let template = format!("{{msg:>22}} {{bar:36}} {amounts}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_parsed() {
        assert_eq!(size("5g"), Ok(5 << 30));
        assert_eq!(size("700"), Ok(700));
        assert!(size("0").is_err() && size("g").is_err() && size("1t").is_err());
        assert_eq!(
            (spelled(5 << 30), spelled(1536 << 10), spelled(700)),
            ("5 GiB".into(), "1536 KiB".into(), "700 bytes".into())
        );
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
        assert!(duration("x").is_err());
        assert_eq!(at_least_one::<usize>("7"), Ok(7));
        assert!(["0", "-1", "x", ""].iter().all(|text| at_least_one::<u64>(text).is_err()));
    }
}
