//! The last lines that this process has logged, for the pages of its servers. Kept in memory, up to [`BYTES_MAX`].
//!
//! The log belongs to the process, not to a server: the servers of `hearth up` show the same lines.

use std::collections::VecDeque;
use std::io::{self, Write};

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Maximum bytes of the lines that are kept, with [`cost`] for each line.
const BYTES_MAX: usize = 256 << 10;
/// Maximum length of a line. The rest of a longer one is dropped here, not in the log itself.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Maximum number of lines that are kept.
const LINES_MAX: usize = 2000;

static TAIL: Mutex<Tail> = Mutex::new(Tail::new());

/// Writer of the log: passes everything on to standard error, and keeps the last lines.
///
/// Reports no errors. A server goes on when its log cannot be written, for example on a full disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // If nothing can be written, the pages are the only place where the line can be read.
        TAIL.lock().add(bytes);
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

/// Returns `{"lines": [...], "next": N}`: the lines from number `from` on, as far as they are still kept, and the number
/// of the line that comes next.
pub fn log_lines(from: u64) -> Value {
    TAIL.lock().since(from)
}

struct Tail {
    lines: VecDeque<String>,
    /// Sum of the [`cost`] of `lines`.
    bytes: usize,
    /// Number of the next line. The first line of the process has the number 0.
    next: u64,
    /// Start of a line whose end has not been written yet.
    started: Vec<u8>,
}

impl Tail {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, next: 0, started: Vec::new() }
    }

    fn add(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = LINE_BYTES_MAX.saturating_sub(self.started.len());
            self.started.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.started).into_owned();
        self.started.clear();
        self.bytes += cost(&line);
        self.lines.push_back(line);
        self.next += 1;
        while (self.bytes > BYTES_MAX || self.lines.len() > LINES_MAX)
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= cost(&oldest);
        }
    }

    fn since(&self, from: u64) -> Value {
        let first = self.next - self.lines.len() as u64;
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let lines: Vec<&str> = self.lines.iter().skip(skipped).map(String::as_str).collect();
        json!({ "lines": lines, "next": self.next })
    }
}

/// Returns the memory that a line takes: its text and its entry in the queue.
const fn cost(line: &str) -> usize {
    line.len() + size_of::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_numbered() {
        let mut tail = Tail::new();
        tail.add(b"one\ntw");
        tail.add(b"o\nthree");
        assert_eq!(tail.since(0), json!({ "lines": ["one", "two"], "next": 2 }));
        tail.add(b"\n<b>\n\xff\n");
        assert_eq!(tail.since(2), json!({ "lines": ["three", "<b>", "\u{fffd}"], "next": 5 }));
        assert_eq!(tail.since(5), json!({ "lines": [], "next": 5 }));
        assert_eq!(tail.since(u64::MAX), json!({ "lines": [], "next": 5 }));
    }

    #[test]
    fn memory_is_limited() {
        let mut tail = Tail::new();
        let long = [b'x'; 3 * LINE_BYTES_MAX];
        tail.add(&long);
        tail.add(&long);
        tail.add(b"\n");
        assert_eq!(tail.lines[0].len(), LINE_BYTES_MAX);
        for number in 0..100_000 {
            tail.add(format!("line {number}\n").as_bytes());
        }
        assert!(tail.bytes <= BYTES_MAX && tail.bytes == tail.lines.iter().map(|line| cost(line)).sum::<usize>());
        let told = tail.since(0);
        let lines = told["lines"].as_array().unwrap();
        assert_eq!((lines.len(), &lines[LINES_MAX - 1]), (LINES_MAX, &json!("line 99999")));
        assert_eq!(told["next"], 100_001);
        tail.add(&[b'\n'; 3 * LINES_MAX]);
        assert_eq!((tail.lines.len(), tail.bytes), (LINES_MAX, LINES_MAX * size_of::<String>()));
        let long = [[b'x'; LINE_BYTES_MAX - 1].as_slice(), b"\n"].concat();
        (0..100).for_each(|_| tail.add(&long));
        assert!(tail.bytes <= BYTES_MAX && tail.lines.len() < 100);
    }

    #[test]
    fn writer_keeps_what_it_writes() {
        let before = log_lines(u64::MAX)["next"].as_u64().unwrap();
        LogWriter.write_all(b"a line of the test of the log\n").unwrap();
        assert!(log_lines(before).to_string().contains("a line of the test of the log"));
    }
}
