//! Values of the last hour, for the charts of a server's pages. Kept in memory and lost with the process.
//!
//! Memory: `SAMPLES_MAX` samples of 8 bytes for each series and 40 bytes more; 20 series take about 75 KB.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Interval between two samples.
const INTERVAL: Duration = Duration::from_secs(10);
/// Number of samples that are kept: an hour.
const SAMPLES_MAX: usize = 360;

/// What the recorded values of a series are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeriesKind {
    /// Shown as they are.
    Level,
    /// Totals since the start, of which the increase per second is shown.
    Total,
}

/// A line of a chart.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// Name in the JSON.
    pub name: &'static str,
    pub kind: SeriesKind,
}

/// The samples of a server's series.
pub struct History {
    series: &'static [Series],
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    samples: VecDeque<Sample>,
    /// Monotonic time of the last sample and its values as they were given.
    last: Option<(Duration, Vec<Option<u64>>)>,
}

struct Sample {
    /// Milliseconds since the epoch.
    at_ms: u64,
    /// Not a number where there is no value.
    values: Box<[f64]>,
}

impl History {
    /// Interval at which [`History::record`] is to be called.
    pub const INTERVAL: Duration = INTERVAL;

    pub fn new(series: &'static [Series]) -> Self {
        Self { series, recorded: Mutex::default() }
    }

    /// Adds a sample, and forgets the oldest one if there are `SAMPLES_MAX`.
    ///
    /// `at_ms`: milliseconds since the epoch. `monotonic`: the same moment on a clock that never goes back. `values`: one
    /// for each series, in their order.
    pub fn record(&self, at_ms: u64, monotonic: Duration, values: Vec<Option<u64>>) {
        assert_eq!(values.len(), self.series.len(), "a value for each series");
        let mut recorded = self.recorded.lock();
        let shown = self.series.iter().enumerate().map(|(place, series)| match series.kind {
            SeriesKind::Level => values[place].map_or(f64::NAN, |value| value as f64),
            SeriesKind::Total => rate(recorded.last.as_ref(), place, monotonic, values[place]),
        });
        let values_shown: Box<[f64]> = shown.collect();
        if recorded.samples.len() >= SAMPLES_MAX {
            recorded.samples.pop_front();
        }
        recorded.samples.push_back(Sample { at_ms, values: values_shown });
        recorded.last = Some((monotonic, values));
    }

    /// Returns `{"intervalSeconds": 10, "times": [...], "series": {NAME: [...], ...}}`, the oldest sample first. A value
    /// that is missing is null.
    pub fn json(&self) -> Value {
        let recorded = self.recorded.lock();
        let times: Vec<u64> = recorded.samples.iter().map(|sample| sample.at_ms).collect();
        let series: serde_json::Map<String, Value> = self
            .series
            .iter()
            .enumerate()
            .map(|(place, series)| {
                // `Value::from` makes null of what is not a number.
                let values = recorded.samples.iter().map(|sample| Value::from(sample.values[place])).collect();
                (series.name.to_owned(), Value::Array(values))
            })
            .collect();
        json!({ "intervalSeconds": INTERVAL.as_secs(), "times": times, "series": series })
    }
}

/// Returns the increase per second since the last sample; not a number if there was none, or if the total has fallen.
fn rate(last: Option<&(Duration, Vec<Option<u64>>)>, place: usize, now: Duration, value: Option<u64>) -> f64 {
    let (Some((then, before)), Some(value)) = (last, value) else { return f64::NAN };
    let seconds = now.saturating_sub(*then).as_secs_f64();
    match before[place].and_then(|before| value.checked_sub(before)) {
        Some(increase) if seconds > 0.0 => increase as f64 / seconds,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: &[Series] =
        &[Series { name: "open", kind: SeriesKind::Level }, Series { name: "read", kind: SeriesKind::Total }];

    #[test]
    fn totals_become_rates_and_levels_stay() {
        let history = History::new(SERIES);
        let seconds = Duration::from_secs;
        history.record(1000, seconds(1), vec![Some(5), Some(100)]);
        history.record(11_000, seconds(11), vec![None, Some(150)]);
        history.record(21_000, seconds(21), vec![Some(7), Some(20)]);
        history.record(31_000, seconds(31), vec![Some(8), None]);
        history.record(41_000, seconds(41), vec![Some(8), Some(40)]);
        history.record(51_000, seconds(41), vec![Some(8), Some(50)]);
        let wanted = json!({
            "intervalSeconds": 10,
            "times": [1000, 11_000, 21_000, 31_000, 41_000, 51_000],
            "series": {
                "open": [5.0, null, 7.0, 8.0, 8.0, 8.0],
                "read": [null, 5.0, null, null, null, null],
            },
        });
        assert_eq!(history.json(), wanted);
    }

    #[test]
    fn only_an_hour_is_kept() {
        let history = History::new(SERIES);
        for number in 0..SAMPLES_MAX as u64 + 5 {
            history.record(number, INTERVAL * number as u32, vec![Some(number), Some(number)]);
        }
        let told = history.json();
        let times = told["times"].as_array().unwrap();
        assert_eq!((times.len(), &times[0]), (SAMPLES_MAX, &json!(5)));
        assert_eq!(INTERVAL * SAMPLES_MAX as u32, Duration::from_secs(3600));
        assert_eq!(told["series"]["open"].as_array().unwrap().len(), SAMPLES_MAX);
    }
}
