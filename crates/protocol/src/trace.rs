//! Traces of requests over client, NameNode and DataNode, for OpenTelemetry.
//!
//! A client begins a trace with [`Span::root`] for a share of its reads and writes. The span of the work at hand is
//! ambient: [`within`] sets it for a future, and [`current`] returns it. RPC calls and data transfer operations carry it
//! (`hearth_wire::trace`), and servers continue the trace with [`Span::server`]. A span ends when it is dropped. It then
//! goes to a bounded queue, from which a thread sends it to the collector (`trace/exporter.rs`). Nothing waits for the
//! thread: if the queue is full, spans are dropped.
//!
//! Without the feature `opentelemetry` a span is empty, and all functions do nothing.

#[cfg(not(feature = "opentelemetry"))]
mod disabled;
#[cfg(feature = "opentelemetry")]
mod exporter;
#[cfg(feature = "opentelemetry")]
mod otlp;
#[cfg(feature = "opentelemetry")]
mod recording;

use std::sync::Arc;

use hearth_types::Clock;
pub use hearth_wire::trace::SpanContext;

#[cfg(not(feature = "opentelemetry"))]
pub use disabled::{Span, current, flush, install, within};
#[cfg(feature = "opentelemetry")]
pub use recording::{Span, current, flush, install, within};

/// Where the traces of this process go, and what it says about itself.
pub struct TraceOptions {
    /// Host of the collector, with its port for OTLP over HTTP.
    pub host: String,
    pub port: u16,
    /// Path of the request, such as `/v1/traces`.
    pub path: String,
    /// Share of the requests that begin a trace, from 0 to 1. A trace that another process began is always continued.
    pub sample_ratio: f64,
    /// Attribute `service.name` of this process.
    pub service: String,
    /// Attribute `host.name`.
    pub host_name: String,
    pub clock: Arc<dyn Clock>,
}

/// Reasons why traces are not recorded.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("this program was built without tracing; build it with `--features opentelemetry`")]
    NotBuilt,
    #[error("cannot start the thread that sends traces: {0}")]
    Thread(std::io::Error),
}

/// Value of an attribute of a span.
#[derive(Clone, PartialEq, Debug)]
pub enum AttributeValue {
    Text(String),
    Number(i64),
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}
