//! Sends ended spans to an OpenTelemetry collector: OTLP over HTTP, in protobuf. One thread, one request at a time.
//!
//! Bounds: [`QUEUE_MAX`] spans wait, and a request has at most [`BATCH_MAX`]. Spans of a request that fails are dropped. A
//! collector that fails is reported once, until a request succeeds again.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use hearth_types::Clock;

use super::TraceOptions;
use super::otlp::{self, Resource};
use super::recording::EndedSpan;

/// Maximum number of spans that wait. Each takes a few hundred bytes, and a few KB if its texts are as long as they may be.
pub(super) const QUEUE_MAX: usize = 8192;
/// Maximum number of spans in a request.
const BATCH_MAX: usize = 512;
/// Longest time from the first span of a request to the request.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for a connection, and for each part of the request and of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The beginning of an answer, which has the status.
const ANSWER_BYTES_MAX: usize = 1024;

/// Number of spans that were dropped because the queue was full.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Counts a span that found the queue full.
pub(super) fn count_dropped() {
    DROPPED.fetch_add(1, Ordering::Relaxed);
}

pub(super) enum Message {
    Ended(Box<EndedSpan>),
    /// Answered when all spans before it are sent, or dropped.
    Flush(SyncSender<()>),
}

pub(super) struct Exporter {
    host: String,
    port: u16,
    path: String,
    resource: Resource,
    clock: Arc<dyn Clock>,
    /// The last request failed, which has been reported.
    is_failing: bool,
}

#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the collector answered {0:?}")]
    Refused(String),
}

impl Exporter {
    pub(super) fn new(options: TraceOptions) -> Self {
        let TraceOptions { host, port, path, service, host_name, clock, .. } = options;
        Self { host, port, path, resource: otlp::resource(&service, &host_name), clock, is_failing: false }
    }

    /// Sends spans for as long as the process runs.
    pub(super) fn run(mut self, ended: &Receiver<Message>) {
        while let Ok(first) = ended.recv() {
            let mut batch = Vec::new();
            let flushed = self.gather(first, ended, &mut batch);
            if !batch.is_empty() {
                self.export(batch);
            }
            if let Some(flushed) = flushed {
                // The program may have given up waiting.
                let _ = flushed.send(());
            }
        }
    }

    /// Collects the spans of one request. Returns the sender of a program that waits for them.
    fn gather(&self, first: Message, ended: &Receiver<Message>, batch: &mut Vec<EndedSpan>) -> Option<SyncSender<()>> {
        let until = self.clock.monotonic() + INTERVAL;
        let mut next = first;
        loop {
            match next {
                Message::Ended(span) => batch.push(*span),
                Message::Flush(done) => return Some(done),
            }
            if batch.len() >= BATCH_MAX {
                return None;
            }
            next = match ended.recv_timeout(until.saturating_sub(self.clock.monotonic())) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            };
        }
    }

    fn export(&mut self, batch: Vec<EndedSpan>) {
        let spans = batch.len();
        let body = otlp::export_request(&self.resource, batch);
        let collector = format!("{}:{}", self.host, self.port);
        match self.post(&body) {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                tracing::info!(collector, "traces are sent again");
            }
            Ok(()) => {}
            Err(error) if self.is_failing => tracing::debug!(collector, %error, spans, "dropping spans"),
            Err(error) => {
                self.is_failing = true;
                tracing::warn!(
                    collector, %error, spans,
                    "cannot send traces: spans are dropped until the collector of hearth.trace.otlp.endpoint answers"
                );
            }
        }
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::debug!(dropped, "spans were dropped because too many were waiting");
        }
    }

    fn post(&self, body: &[u8]) -> Result<(), ExportError> {
        let mut stream = self.connect()?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {host}:{}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.path,
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let status = read_status(&mut stream)?;
        // HTTP/1.1 200 OK
        let is_accepted = status.split(' ').nth(1).is_some_and(|code| code.starts_with('2'));
        if is_accepted { Ok(()) } else { Err(ExportError::Refused(status)) }
    }

    /// Connects to the first address of the collector that accepts.
    fn connect(&self) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// Reads the first line of an answer.
fn read_status(stream: &mut impl Read) -> io::Result<String> {
    let mut answer = Vec::new();
    let mut piece = [0; 256];
    while answer.len() < ANSWER_BYTES_MAX {
        let count = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        answer.extend_from_slice(&piece[..count]);
        if let Some(end) = answer.windows(2).position(|two| two == b"\r\n") {
            answer.truncate(end);
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_the_first_line_only() {
        assert_eq!(read_status(&mut &b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"[..]).unwrap(), "HTTP/1.1 200 OK");
        assert!(read_status(&mut &b"HTTP/1.1 200"[..]).is_err());
        let long = vec![b'x'; 1 << 20];
        let mut rest = &long[..];
        assert!(read_status(&mut rest).is_err());
        assert!(rest.len() >= long.len() - 2 * ANSWER_BYTES_MAX, "only the beginning is read");
    }
}
