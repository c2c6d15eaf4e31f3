//! Spans that are recorded, and the span at hand.

use std::fmt::Display;
use std::future::Future;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hearth_types::Clock;

use super::exporter::{self, Exporter, Message};
use super::otlp::SpanKind;
use super::{AttributeValue, SpanContext, TraceError, TraceOptions};

/// Longest name, error or attribute that is kept. Peers choose method names and error messages, and 8,192 spans may wait
/// for the collector.
const TEXT_BYTES_MAX: usize = 1024;

/// Recorder of this process.
static TRACER: OnceLock<Tracer> = OnceLock::new();

tokio::task_local! {
    static CURRENT: SpanContext;
}

struct Tracer {
    clock: Arc<dyn Clock>,
    /// Wall-clock time at the zero of the monotonic clock, in nanoseconds. Durations must not change with the wall clock.
    epoch_nanos: u64,
    /// A trace is sampled if the last eight bytes of its id are below this number.
    threshold: u64,
    ended: SyncSender<Message>,
}

impl Tracer {
    fn now_nanos(&self) -> u64 {
        let since = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        self.epoch_nanos.saturating_add(since)
    }
}

/// Starts recording. Only the first call of a process has an effect.
pub fn install(options: TraceOptions) -> Result<(), TraceError> {
    if TRACER.get().is_some() {
        return Ok(());
    }
    let (ended, receiver) = sync_channel(exporter::QUEUE_MAX);
    let (wall_ms, monotonic) = (options.clock.wall_ms(), options.clock.monotonic());
    let since = u64::try_from(monotonic.as_nanos()).unwrap_or(u64::MAX);
    let tracer = Tracer {
        clock: options.clock.clone(),
        epoch_nanos: wall_ms.saturating_mul(1_000_000).saturating_sub(since),
        threshold: threshold(options.sample_ratio),
        ended,
    };
    if TRACER.set(tracer).is_err() {
        return Ok(());
    }
    let exporter = Exporter::new(options);
    let thread = std::thread::Builder::new().name("trace-exporter".to_owned());
    thread.spawn(move || exporter.run(&receiver)).map(drop).map_err(TraceError::Thread)
}

/// Waits until the spans that have ended so far are sent, but not longer than `patience`. For programs that end.
pub fn flush(patience: Duration) {
    let Some(tracer) = TRACER.get() else { return };
    let (done, finished) = sync_channel(1);
    // With a full queue the collector does not keep up, and waiting for it would not help.
    if tracer.ended.try_send(Message::Flush(done)).is_ok() {
        let _ = finished.recv_timeout(patience);
    }
}

/// Returns the bound of sampled ids for a share of traces.
fn threshold(ratio: f64) -> u64 {
    // The conversion saturates: 1.0 gives the largest number.
    (ratio.clamp(0.0, 1.0) * 2f64.powi(64)) as u64
}

fn is_sampled(trace_id: &[u8; 16], threshold: u64) -> bool {
    let [.., a, b, c, d, e, f, g, h] = *trace_id;
    let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    threshold == u64::MAX || number < threshold
}

/// Returns a random id, never all zeros.
fn random_id<const N: usize>() -> [u8; N] {
    let mut id = [0; N];
    if getrandom::fill(&mut id).is_err() || id == [0; N] {
        // Ids tell spans apart, and nothing depends on them otherwise.
        id[N - 1] = 1;
    }
    id
}

/// Cuts `text` at the last character that ends within `TEXT_BYTES_MAX`, and frees the rest.
fn bounded(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.shrink_to_fit();
    }
    text
}

/// Returns the span at hand, if its trace is sampled.
pub fn current() -> Option<SpanContext> {
    CURRENT.try_with(|context| *context).ok()
}

/// Runs `work` as part of the span `context`. Without a context, the span at hand stays.
pub async fn within<F: Future>(context: Option<SpanContext>, work: F) -> F::Output {
    match context {
        Some(context) => CURRENT.scope(context, work).await,
        None => work.await,
    }
}

/// A piece of work, from its creation until it is dropped. Empty if its trace is not sampled.
#[derive(Debug, Default)]
pub struct Span(Option<Box<Recording>>);

/// A span that has not ended.
#[derive(Debug)]
struct Recording {
    context: SpanContext,
    parent: Option<[u8; 8]>,
    name: String,
    kind: SpanKind,
    start_nanos: u64,
    attributes: Vec<(&'static str, AttributeValue)>,
    error: Option<String>,
}

/// A span that has ended.
#[derive(Debug)]
pub(super) struct EndedSpan {
    pub context: SpanContext,
    /// `None` for the root of a trace.
    pub parent: Option<[u8; 8]>,
    pub name: String,
    pub kind: SpanKind,
    pub start_nanos: u64,
    pub end_nanos: u64,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    pub error: Option<String>,
}

impl Span {
    /// Returns an empty span.
    pub fn none() -> Self {
        Self(None)
    }

    /// Begins a trace, if it is to be sampled. Within another trace: continues that one.
    pub fn root(name: &'static str) -> Self {
        let Some(tracer) = TRACER.get() else { return Self(None) };
        if let Some(parent) = current() {
            return Self::begin(tracer, parent, name.to_owned(), SpanKind::Internal);
        }
        if tracer.threshold == 0 {
            return Self(None);
        }
        let trace_id = random_id();
        if !is_sampled(&trace_id, tracer.threshold) {
            return Self(None);
        }
        let context = SpanContext { trace_id, span_id: random_id() };
        Self::record(tracer, context, None, name.to_owned(), SpanKind::Internal)
    }

    /// Begins a part of the span at hand.
    pub fn child(name: &'static str) -> Self {
        Self::of_current(SpanKind::Internal, || name.to_owned())
    }

    /// Begins a request to another process, as a part of the span at hand.
    pub fn client(name: impl FnOnce() -> String) -> Self {
        Self::of_current(SpanKind::Client, name)
    }

    /// Begins the work for a request of another process, whose span is `parent`.
    pub fn server(parent: Option<SpanContext>, name: impl FnOnce() -> String) -> Self {
        match (parent, TRACER.get()) {
            (Some(parent), Some(tracer)) => Self::begin(tracer, parent, name(), SpanKind::Server),
            _ => Self(None),
        }
    }

    fn of_current(kind: SpanKind, name: impl FnOnce() -> String) -> Self {
        match (TRACER.get(), current()) {
            (Some(tracer), Some(parent)) => Self::begin(tracer, parent, name(), kind),
            _ => Self(None),
        }
    }

    fn begin(tracer: &Tracer, parent: SpanContext, name: String, kind: SpanKind) -> Self {
        let context = SpanContext { trace_id: parent.trace_id, span_id: random_id() };
        Self::record(tracer, context, Some(parent.span_id), name, kind)
    }

    fn record(tracer: &Tracer, context: SpanContext, parent: Option<[u8; 8]>, name: String, kind: SpanKind) -> Self {
        let (name, start_nanos) = (bounded(name), tracer.now_nanos());
        let attributes = Vec::new();
        Self(Some(Box::new(Recording { context, parent, name, kind, start_nanos, attributes, error: None })))
    }

    /// Returns the context to send with requests that are a part of this span.
    pub fn context(&self) -> Option<SpanContext> {
        self.0.as_ref().map(|recording| recording.context)
    }

    /// Returns true if attributes are kept. Callers ask before they build an expensive one.
    pub fn is_recording(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an attribute. Each key is set once.
    pub fn set(&mut self, key: &'static str, value: impl Into<AttributeValue>) {
        if let Some(recording) = &mut self.0 {
            let mut value: AttributeValue = value.into();
            if let AttributeValue::Text(text) = &mut value {
                *text = bounded(std::mem::take(text));
            }
            recording.attributes.push((key, value));
        }
    }

    /// Marks the span as failed.
    pub fn fail(&mut self, error: &(impl Display + ?Sized)) {
        if let Some(recording) = &mut self.0 {
            recording.error = Some(bounded(error.to_string()));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (Some(recording), Some(tracer)) = (self.0.take(), TRACER.get()) else { return };
        let Recording { context, parent, name, kind, start_nanos, attributes, error } = *recording;
        let end_nanos = tracer.now_nanos();
        let ended = EndedSpan { context, parent, name, kind, start_nanos, end_nanos, attributes, error };
        if tracer.ended.try_send(Message::Ended(Box::new(ended))).is_err() {
            exporter::count_dropped();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_sampled_ids_is_the_ratio() {
        let id = |number: u64| {
            let mut id = [1; 16];
            id[8..].copy_from_slice(&number.to_be_bytes());
            id
        };
        for (ratio, number, sampled) in [
            (0.0, 0, false),
            (0.5, (1 << 63) - 1, true),
            (0.5, 1 << 63, false),
            (0.01, u64::MAX / 101, true),
            (0.01, u64::MAX / 99, false),
            (1.0, u64::MAX, true),
        ] {
            assert_eq!(is_sampled(&id(number), threshold(ratio)), sampled, "{ratio} {number}");
        }
    }

    #[test]
    fn text_of_peers_is_bounded() {
        assert_eq!(bounded("short".to_owned()), "short");
        let kept = bounded("ä".repeat(1 << 20));
        assert_eq!(kept, "ä".repeat(TEXT_BYTES_MAX / 2));
        assert!(kept.capacity() < 2 * TEXT_BYTES_MAX, "{} bytes", kept.capacity());
        // The characters of two bytes begin at odd places.
        assert_eq!(bounded(format!("x{}", "ä".repeat(TEXT_BYTES_MAX))).len(), TEXT_BYTES_MAX - 1);
    }

    #[test]
    fn spans_without_a_tracer_are_empty() {
        // No test of this program installs one.
        let span = Span::root("read");
        assert!(!span.is_recording() && span.context().is_none());
        assert!(Span::child("part").context().is_none());
    }

    #[tokio::test]
    async fn context_is_set_for_the_work_and_its_parts() {
        let context = SpanContext { trace_id: [1; 16], span_id: [2; 8] };
        assert_eq!(current(), None);
        let seen = within(Some(context), async {
            tokio::task::yield_now().await;
            // Without a context of its own, a part belongs to the span at hand.
            within(None, async { current() }).await
        });
        assert_eq!(seen.await, Some(context));
        assert_eq!(current(), None);
        // A task of its own has no context unless it is given one.
        let spawned = within(Some(context), async { tokio::spawn(async { current() }).await.unwrap() });
        assert_eq!(spawned.await, None);
    }
}
