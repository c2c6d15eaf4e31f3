//! Log lines as JSON objects, for programs that collect logs.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes each event as one line: `timestamp` (UTC, RFC 3339), `level`, `target` (the module), `message`, and `fields`
/// with the values of this event.
pub struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut values = Values::default();
        event.record(&mut values);
        let metadata = event.metadata();
        writeln!(
            writer,
            "{{\"timestamp\":{},\"level\":{},\"target\":{},\"message\":{},\"fields\":{}}}",
            Value::from(time),
            Value::from(metadata.level().as_str()),
            Value::from(metadata.target()),
            Value::from(values.message),
            Value::Object(values.fields)
        )
    }
}

/// Values of one event.
#[derive(Default)]
struct Values {
    message: String,
    fields: Map<String, Value>,
}

impl Values {
    fn add(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for Values {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, text.into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            _ => self.add(field, value.into()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.add(field, value.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_event_is_an_object_on_one_line() {
        let written = Shared::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().event_format(JsonLines).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(key = "a\"b", count = 3, share = 0.5, is_new = true, path = %"/x", "two\nlines of {}", 7);
            tracing::error!(target: "other", error = ?Some(1), "no");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["level"], "WARN");
        assert_eq!(lines[0]["message"], "two\nlines of 7");
        let fields = serde_json::json!({"key": "a\"b", "count": 3, "share": 0.5, "is_new": true, "path": "/x"});
        assert_eq!(lines[0]["fields"], fields);
        let timestamp = lines[0]["timestamp"].as_str().unwrap();
        assert!(timestamp.ends_with('Z') && timestamp.contains('T'), "{timestamp}");
        assert_eq!(lines[1]["target"], "other");
        assert_eq!(lines[1]["fields"]["error"], "Some(1)");
    }
}
