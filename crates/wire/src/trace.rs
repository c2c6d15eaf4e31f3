//! Contexts of traces. A sampled request carries one in the fields that Hadoop's messages have for it, in the form of W3C's
//! header `traceparent`. Peers without tracing ignore these fields.
//!
//! Source: <https://www.w3.org/TR/trace-context/>; RpcHeader.proto, datatransfer.proto.

use std::fmt::Write;

use bytes::Bytes;

use crate::proto::common::RpcTraceInfoProto;
use crate::proto::hdfs::DataTransferTraceInfoProto;

/// Length of `traceparent` in version 00: `00-TRACE-SPAN-FLAGS` in hexadecimal digits.
const TEXT_BYTES: usize = 2 + 1 + 32 + 1 + 16 + 1 + 2;

/// Identity of a sampled span: that of its trace, and its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpanContext {
    /// Never all zeros.
    pub trace_id: [u8; 16],
    /// Never all zeros.
    pub span_id: [u8; 8],
}

impl SpanContext {
    /// Returns the value of `traceparent`.
    pub fn to_text(self) -> String {
        let mut text = String::with_capacity(TEXT_BYTES);
        text.push_str("00-");
        push_hex(&mut text, &self.trace_id);
        text.push('-');
        push_hex(&mut text, &self.span_id);
        text.push_str("-01");
        text
    }

    /// Parses a value of `traceparent`. Returns `None` for another version, for a trace that is not sampled, and for text
    /// that is malformed: a peer must not fail because of its caller's trace.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != TEXT_BYTES || text[..3] != *b"00-" || text[35] != b'-' || text[52] != b'-' {
            return None;
        }
        let [flags] = from_hex::<1>(&text[53..])?;
        let (trace_id, span_id) = (from_hex::<16>(&text[3..35])?, from_hex::<8>(&text[36..52])?);
        let is_valid = flags & 1 != 0 && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self { trace_id, span_id })
    }

    /// Returns the ids of HTrace, which older versions of Hadoop require beside the context.
    fn numbers(self) -> (u64, u64) {
        let [.., a, b, c, d, e, f, g, h] = self.trace_id;
        (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes(self.span_id))
    }
}

impl From<SpanContext> for RpcTraceInfoProto {
    fn from(context: SpanContext) -> Self {
        let (trace, span) = context.numbers();
        let text = Bytes::from(context.to_text());
        Self { trace_id: Some(trace as i64), parent_id: Some(span as i64), span_context: Some(text) }
    }
}

impl From<SpanContext> for DataTransferTraceInfoProto {
    fn from(context: SpanContext) -> Self {
        let (trace, span) = context.numbers();
        let text = Bytes::from(context.to_text());
        Self { trace_id: Some(trace), parent_id: Some(span), span_context: Some(text) }
    }
}

/// Returns the context of a call, if it has one that can be read.
pub(crate) fn of_rpc(info: Option<&RpcTraceInfoProto>) -> Option<SpanContext> {
    SpanContext::parse(info?.span_context.as_deref()?)
}

/// Returns the context of an operation, if it has one that can be read.
pub(crate) fn of_data_transfer(info: Option<&DataTransferTraceInfoProto>) -> Option<SpanContext> {
    SpanContext::parse(info?.span_context.as_deref()?)
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

/// Parses `2 * N` lower-case hexadecimal digits.
fn from_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn example_of_the_specification_survives_a_round_trip() {
        let context = SpanContext::parse(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(context.to_text(), EXAMPLE);
        assert_eq!(context.span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        let rpc = RpcTraceInfoProto::from(context);
        assert_eq!((rpc.trace_id, rpc.parent_id), (Some(0xa3ce929d0e0e4736_u64 as i64), Some(0x00f067aa0ba902b7)));
        assert_eq!(of_rpc(Some(&rpc)), Some(context));
        let transfer = DataTransferTraceInfoProto::from(context);
        assert_eq!(of_data_transfer(Some(&transfer)), Some(context));
    }

    #[test]
    fn contexts_that_cannot_be_continued_are_ignored() {
        let upper = EXAMPLE.replace("4bf9", "4BF9");
        for text in [
            "",
            "00",
            // Not sampled, another version, longer.
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            // Ids of zeros.
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00 4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            upper.as_str(),
        ] {
            assert_eq!(SpanContext::parse(text.as_bytes()), None, "{text}");
        }
        // HTrace's ids alone.
        let old = DataTransferTraceInfoProto { trace_id: Some(1), parent_id: Some(2), span_context: None };
        assert_eq!(of_data_transfer(Some(&old)), None);
        assert_eq!(of_rpc(None), None);
    }
}
