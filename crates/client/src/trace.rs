//! Traces of reads and writes, for OpenTelemetry. They need the feature `opentelemetry`.

use std::sync::Arc;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys};
use hearth_protocol::trace::{self, TraceOptions};
use hearth_types::SystemClock;

/// Sends traces of this process to the collector of `hearth.trace.otlp.endpoint`, if that key is set. A share of the
/// files that are read and written begins a trace (`hearth.trace.sample.ratio`). Only the first call of a process has an
/// effect.
///
/// `service` and `host_name`: the attributes `service.name` and `host.name` of the spans.
///
/// Errors: a value that cannot be used. A build without tracing, and a collector that does not answer, are only logged.
pub fn start(configuration: &Configuration, service: &str, host_name: &str) -> Result<(), ConfigError> {
    let Some(collector) = configuration.get(keys::HEARTH_TRACE_OTLP_ENDPOINT)? else { return Ok(()) };
    let options = TraceOptions {
        host: collector.host,
        port: collector.port,
        path: format!("{}/v1/traces", collector.base),
        sample_ratio: configuration.get(keys::HEARTH_TRACE_SAMPLE_RATIO)?,
        service: service.to_owned(),
        host_name: host_name.to_owned(),
        clock: Arc::new(SystemClock::new()),
    };
    if let Err(error) = trace::install(options) {
        tracing::warn!(%error, "{} has no effect", keys::HEARTH_TRACE_OTLP_ENDPOINT.name);
    }
    Ok(())
}

/// Waits until the spans that have ended so far are sent, but not longer than `patience`. For programs that end.
pub fn flush(patience: Duration) {
    trace::flush(patience);
}
