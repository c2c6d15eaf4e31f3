//! Messages of OTLP for traces, as far as they are sent. Source: opentelemetry-proto 1.x, `trace.proto`, `common.proto`,
//! `resource.proto`, `trace_service.proto`.

use prost::Message;

use super::AttributeValue;
use super::recording::EndedSpan;

/// Name under which the spans are listed as their source.
const SCOPE: &str = "hearth";
/// `SPAN_FLAGS_TRACE_FLAGS`: the trace is sampled.
const SAMPLED: u32 = 1;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: i32 = 2;

/// Relation of a span to those of other processes. The numbers are those of `SpanKind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Clone, PartialEq, Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// One of the two is set: in OTLP they are alternatives.
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
    #[prost(int64, optional, tag = "3")]
    int_value: Option<i64>,
}

/// Returns what a process says about itself.
pub(super) fn resource(service: &str, host_name: &str) -> Resource {
    let attributes = [
        ("service.name", AttributeValue::from(service)),
        ("service.version", env!("CARGO_PKG_VERSION").into()),
        ("host.name", host_name.into()),
        ("process.pid", u64::from(std::process::id()).into()),
    ];
    Resource { attributes: attributes.into_iter().map(key_value).collect() }
}

/// Returns the body of a request that exports `spans`.
pub(super) fn export_request(resource: &Resource, spans: Vec<EndedSpan>) -> Vec<u8> {
    let scope = InstrumentationScope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let scope_spans = ScopeSpans { scope: Some(scope), spans: spans.into_iter().map(span).collect() };
    let resource_spans = ResourceSpans { resource: Some(resource.clone()), scope_spans: vec![scope_spans] };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

fn span(ended: EndedSpan) -> OtlpSpan {
    OtlpSpan {
        trace_id: ended.context.trace_id.to_vec(),
        span_id: ended.context.span_id.to_vec(),
        parent_span_id: ended.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: ended.name,
        kind: ended.kind as i32,
        start_time_unix_nano: ended.start_nanos,
        end_time_unix_nano: ended.end_nanos,
        attributes: ended.attributes.into_iter().map(key_value).collect(),
        status: ended.error.map(|message| Status { message, code: STATUS_ERROR }),
        flags: SAMPLED,
    }
}

fn key_value((key, value): (&'static str, AttributeValue)) -> KeyValue {
    let value = match value {
        AttributeValue::Text(text) => AnyValue { string_value: Some(text), int_value: None },
        AttributeValue::Number(number) => AnyValue { string_value: None, int_value: Some(number) },
    };
    KeyValue { key: key.to_owned(), value: Some(value) }
}
