//! The values of `/metrics`, in Prometheus' text format.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// A metric and its current value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Prometheus' name, without the suffix `_total` that counters get.
    pub name: &'static str,
    pub help: &'static str,
    pub value: u64,
    /// The value never falls during the life of the process.
    pub counts: bool,
}

impl Metric {
    /// A value that only rises.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, value, counts: true }
    }

    /// A value that rises and falls.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, value, counts: false }
    }
}

pub(crate) type MetricSource = Arc<dyn Fn() -> Vec<Metric> + Send + Sync>;

/// Returns the text of `/metrics`.
pub(crate) fn text(figures: MetricSource) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Now(figures)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

struct Now(MetricSource);

impl fmt::Debug for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Now")
    }
}

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for figure in (self.0)() {
            let mut write = |metric: &dyn Encode| metric.write(&mut encoder, &figure);
            if figure.counts {
                write(&ConstCounter::new(figure.value))?;
            } else {
                // No value here exceeds i64.
                write(&ConstGauge::new(i64::try_from(figure.value).unwrap_or(i64::MAX)))?;
            }
        }
        Ok(())
    }
}

/// Object-safe version of the library's trait, so that counters and gauges are written by the same code.
trait Encode {
    fn write(&self, encoder: &mut DescriptorEncoder<'_>, figure: &Metric) -> Result<(), fmt::Error>;
}

impl<M: EncodeMetric> Encode for M {
    fn write(&self, encoder: &mut DescriptorEncoder<'_>, figure: &Metric) -> Result<(), fmt::Error> {
        self.encode(encoder.encode_descriptor(figure.name, figure.help, None, self.metric_type())?)
    }
}
