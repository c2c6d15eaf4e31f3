//! The values of `/metrics` and `/prom`, in Prometheus' text format, version 0.0.4.
//!
//! Names follow Prometheus' conventions: base units (seconds, bytes), `_total` for counters, and labels with few values.
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use hearth_types::HistogramSnapshot;

/// A metric and its current value: one series, or the series of one histogram.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Prometheus' name, without the suffix `_total` that counters get.
    pub name: &'static str,
    /// Explains the metric without its name.
    pub help: &'static str,
    labels: Vec<(&'static str, String)>,
    value: MetricValue,
}

#[derive(Clone, PartialEq, Debug)]
enum MetricValue {
    /// Never falls during the life of the process.
    Counter(f64),
    Gauge(f64),
    Histogram(Box<HistogramSnapshot>),
}

impl Metric {
    fn new(name: &'static str, help: &'static str, value: MetricValue) -> Self {
        Self { name, help, labels: Vec::new(), value }
    }

    /// A value that only rises.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self::new(name, help, MetricValue::Counter(value as f64))
    }

    /// A time that only rises, in seconds.
    pub fn seconds_counter(name: &'static str, help: &'static str, value: Duration) -> Self {
        Self::new(name, help, MetricValue::Counter(value.as_secs_f64()))
    }

    /// A value that rises and falls.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self::new(name, help, MetricValue::Gauge(value as f64))
    }

    /// A time that rises and falls, in seconds. With a name that ends with `_timestamp_seconds` or `_time_seconds`: the
    /// time since 1970.
    pub fn seconds(name: &'static str, help: &'static str, value: Duration) -> Self {
        Self::new(name, help, MetricValue::Gauge(value.as_secs_f64()))
    }

    /// A distribution of durations. The name ends with `_seconds`.
    pub fn histogram(name: &'static str, help: &'static str, value: HistogramSnapshot) -> Self {
        Self::new(name, help, MetricValue::Histogram(Box::new(value)))
    }

    /// Adds a label. The metrics of one name have the same labels and different values of them, stand behind one
    /// another, and have the same help.
    #[must_use]
    pub fn label(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((name, value.into()));
        self
    }

    /// Returns the value; for a histogram the number of its observations.
    pub fn value(&self) -> f64 {
        match &self.value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => *value,
            MetricValue::Histogram(snapshot) => snapshot.count() as f64,
        }
    }

    /// Returns the suffix of the name in the text, and the name of the type.
    fn kind(&self) -> (&'static str, &'static str) {
        match self.value {
            MetricValue::Counter(_) => ("_total", "counter"),
            MetricValue::Gauge(_) => ("", "gauge"),
            MetricValue::Histogram(_) => ("", "histogram"),
        }
    }

    fn write_head(&self, out: &mut String) -> fmt::Result {
        let (name, (suffix, kind)) = (self.name, self.kind());
        let help = self.help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(out, "# HELP {name}{suffix} {help}")?;
        writeln!(out, "# TYPE {name}{suffix} {kind}")
    }

    fn write_series(&self, out: &mut String) -> fmt::Result {
        match &self.value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => self.write_one(out, self.kind().0, None, *value),
            MetricValue::Histogram(snapshot) => {
                let mut all = 0;
                for (bound, count) in snapshot.cumulative() {
                    let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
                    self.write_one(out, "_bucket", Some(&bound), count as f64)?;
                    all = count;
                }
                self.write_one(out, "_sum", None, snapshot.sum().as_secs_f64())?;
                self.write_one(out, "_count", None, all as f64)
            }
        }
    }

    /// `bound`: value of the label `le`.
    fn write_one(&self, out: &mut String, suffix: &str, bound: Option<&str>, value: f64) -> fmt::Result {
        write!(out, "{}{suffix}", self.name)?;
        let labels = self.labels.iter().map(|(name, value)| (*name, value.as_str())).chain(bound.map(|le| ("le", le)));
        let mut separator = '{';
        for (name, value) in labels {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(out, "{separator}{name}=\"{value}\"")?;
            separator = ',';
        }
        let end = if separator == ',' { "}" } else { "" };
        writeln!(out, "{end} {value}")
    }
}

pub(crate) type MetricSource = Arc<dyn Fn() -> Vec<Metric> + Send + Sync>;

/// Content type of [`text`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the text of `/metrics`.
pub(crate) fn text(metrics: &[Metric]) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(metrics.len() * 128);
    let mut previous = "";
    for metric in metrics {
        if metric.name != previous {
            metric.write_head(&mut out)?;
            previous = metric.name;
        }
        metric.write_series(&mut out)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use hearth_types::Histogram;

    use super::*;

    #[test]
    fn series_of_a_name_share_their_head() {
        let metrics = [
            Metric::counter("hearth_reads", "Reads of replicas", 7).label("path", "packets"),
            Metric::counter("hearth_reads", "Reads of replicas", 1).label("path", "copy").label("storage", "DISK"),
            Metric::gauge("hearth_files", "Files \\ more\nthan one line", 5),
            Metric::seconds("hearth_age_seconds", "Age of the oldest", Duration::from_millis(1500)),
            Metric::seconds_counter("hearth_paused_seconds", "Pauses", Duration::from_micros(10)),
            Metric::gauge("hearth_volume_bytes", "Size", u64::MAX >> 20).label("directory", "/a\"b\\c\nd"),
        ];
        let expected = "\
            # HELP hearth_reads_total Reads of replicas\n\
            # TYPE hearth_reads_total counter\n\
            hearth_reads_total{path=\"packets\"} 7\n\
            hearth_reads_total{path=\"copy\",storage=\"DISK\"} 1\n\
            # HELP hearth_files Files \\\\ more\\nthan one line\n\
            # TYPE hearth_files gauge\n\
            hearth_files 5\n\
            # HELP hearth_age_seconds Age of the oldest\n\
            # TYPE hearth_age_seconds gauge\n\
            hearth_age_seconds 1.5\n\
            # HELP hearth_paused_seconds_total Pauses\n\
            # TYPE hearth_paused_seconds_total counter\n\
            hearth_paused_seconds_total 0.00001\n\
            # HELP hearth_volume_bytes Size\n\
            # TYPE hearth_volume_bytes gauge\n\
            hearth_volume_bytes{directory=\"/a\\\"b\\\\c\\nd\"} 17592186044415\n";
        assert_eq!(text(&metrics).unwrap(), expected);
    }

    #[test]
    fn histogram_has_cumulative_buckets() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_micros(20));
        histogram.observe(Duration::from_millis(2));
        histogram.observe(Duration::from_secs(100));
        let metric = Metric::histogram("hearth_read_seconds", "Time", histogram.snapshot()).label("path", "packets");
        assert!(metric.value() == 3.0);
        let text = text(&[metric]).unwrap();
        for line in [
            "# TYPE hearth_read_seconds histogram",
            "hearth_read_seconds_bucket{path=\"packets\",le=\"0.00001\"} 0",
            "hearth_read_seconds_bucket{path=\"packets\",le=\"0.000025\"} 1",
            "hearth_read_seconds_bucket{path=\"packets\",le=\"0.0025\"} 2",
            "hearth_read_seconds_bucket{path=\"packets\",le=\"60\"} 2",
            "hearth_read_seconds_bucket{path=\"packets\",le=\"+Inf\"} 3",
            "hearth_read_seconds_sum{path=\"packets\"} 100.00202",
            "hearth_read_seconds_count{path=\"packets\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
