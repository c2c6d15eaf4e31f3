//! The audit log: one line per operation with its user, its path and its result, in the format of Apache's
//! `FSNamesystem.audit`.
//!
//! Operations put their lines into a bounded queue; one thread appends them to the file. If the queue is full, an
//! operation waits for a moment only. Lines that find no room by then are counted, and the file records how many lines
//! are missing. If the file is renamed or removed, the next lines go to a new file of the same name, so logrotate needs
//! neither a signal nor `copytruncate`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hearth_config::{ConfigError, Configuration, keys};
use hearth_types::Clock;
use parking_lot::RwLock;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use crate::date::log_time;

/// Capacity of the queue of lines that wait for the disk.
const QUEUE_LINES: usize = 4096;
/// Longest line, in bytes. Gives the queue a bound; only concat of very many files produces longer lines.
const LINE_BYTES_MAX: usize = 32 << 10;
/// Longest time an operation waits for room in the queue before its line is dropped.
const ENQUEUE_TIMEOUT: Duration = Duration::from_millis(100);
/// Approximate number of bytes written per system call.
const WRITE_BYTES: usize = 64 << 10;

/// Configuration of the audit log.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// `hearth.namenode.audit.log`.
    pub file: PathBuf,
    /// Limits on the caller context in a line; `None` if `hadoop.caller.context.enabled` is off.
    pub context: Option<ContextLimits>,
    /// `dfs.namenode.audit.log.debug.cmdlist`: operations that are not logged.
    pub quiet: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct ContextLimits {
    /// Longest context, in characters; a longer one is cut.
    pub characters_max: usize,
    /// Longest signature, in bytes; a longer one is left out.
    pub signature_bytes_max: usize,
}

impl ContextLimits {
    /// `None`: `hadoop.caller.context.enabled` is off.
    pub fn read(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        Ok(match conf.get(keys::HADOOP_CALLER_CONTEXT_ENABLED)? {
            false => None,
            true => Some(Self {
                characters_max: conf.get(keys::HADOOP_CALLER_CONTEXT_MAX_SIZE)? as usize,
                signature_bytes_max: conf.get(keys::HADOOP_CALLER_CONTEXT_SIGNATURE_MAX_SIZE)? as usize,
            }),
        })
    }
}

impl AuditSettings {
    /// Returns `None` if no file is configured: then there is no audit log.
    pub fn read(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        let Some(file) = conf.get(keys::HEARTH_NAMENODE_AUDIT_LOG)? else { return Ok(None) };
        let context = ContextLimits::read(conf)?;
        let quiet = conf.get(keys::DFS_NAMENODE_AUDIT_LOG_DEBUG_CMDLIST)?.unwrap_or_default().into_iter().collect();
        Ok(Some(Self { file, context, quiet }))
    }

    /// Directory of the file; `None` if it is the working directory.
    pub fn directory(&self) -> Option<&Path> {
        self.file.parent().filter(|directory| !directory.as_os_str().is_empty())
    }
}

/// Error from opening the audit log.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the audit log {path}: {source}")]
pub struct AuditError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// One operation to log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event<'a> {
    pub allowed: bool,
    pub user: &'a str,
    /// Real user, if it acts for `user` (proxy user).
    pub real_user: Option<&'a str>,
    /// Caller's IP address as text.
    pub machine: &'a str,
    pub command: &'a str,
    pub source: Option<&'a str>,
    pub target: Option<&'a str>,
    /// `owner:group:rwxr-xr-x` of the path after the operation.
    pub permissions: Option<&'a str>,
    /// Protocol of the call; `None` for fsck's.
    pub protocol: Option<&'a str>,
    /// Caller context that the client sent, and its signature.
    pub context: Option<(&'a str, &'a Bytes)>,
}

/// Handle by which operations write to the audit log.
pub struct AuditLog {
    /// Limits on the caller context; `None`: it is not logged.
    context: RwLock<Option<ContextLimits>>,
    /// Operations that are not logged.
    quiet: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    queue: Sender<String>,
    /// Number of dropped lines that the file does not record yet.
    lost: Arc<AtomicU64>,
}

impl AuditLog {
    /// Opens the file and starts the writer thread. When this is dropped, the thread writes all queued lines and ends.
    pub fn start(settings: AuditSettings, clock: Arc<dyn Clock>) -> Result<Self, AuditError> {
        let failed = |source| AuditError { path: settings.file.clone(), source };
        let file = LogFile::open(&settings.file).map_err(failed)?;
        let (queue, lines) = channel(QUEUE_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = LogWriter { file, lines, lost: lost.clone(), clock: clock.clone(), failing: false };
        std::thread::Builder::new().name("audit-log".into()).spawn(|| writer.run()).map_err(failed)?;
        Ok(Self { context: RwLock::new(settings.context), quiet: settings.quiet, clock, queue, lost })
    }

    /// Returns the limits on the caller context; `None`: it is not logged.
    pub fn context(&self) -> Option<ContextLimits> {
        *self.context.read()
    }

    /// Changes the limits on the caller context. `None`: it is not logged any more.
    pub fn set_context(&self, context: Option<ContextLimits>) {
        *self.context.write() = context;
    }

    /// Logs one operation.
    pub async fn write(&self, event: Event<'_>) {
        self.write_all(std::iter::once(event)).await;
    }

    /// Logs several operations of one call. The call waits for all of them together no longer than for one.
    pub async fn write_all(&self, events: impl Iterator<Item = Event<'_>>) {
        let mut until = None;
        for event in events {
            let Some(line) = self.line(&event) else { continue };
            let Err(TrySendError::Full(line)) = self.queue.try_send(line) else { continue };
            let until = *until.get_or_insert_with(|| Instant::now() + ENQUEUE_TIMEOUT);
            if !matches!(tokio::time::timeout_at(until, self.queue.send(line)).await, Ok(Ok(()))) {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns `None` if this operation is not logged.
    fn line(&self, event: &Event<'_>) -> Option<String> {
        if self.quiet.contains(event.command) {
            return None;
        }
        let mut line = prefix(self.clock.wall_ms(), "INFO");
        append(&mut line, event, self.context());
        if line.len() > LINE_BYTES_MAX {
            // A character has at most four bytes.
            let end = (LINE_BYTES_MAX - 3..=LINE_BYTES_MAX).rev().find(|at| line.is_char_boundary(*at));
            line.truncate(end.unwrap_or(0));
        }
        line.push('\n');
        Some(line)
    }
}

/// Prefix of each line, as in Hadoop's log4j.properties.
fn prefix(wall_ms: u64, level: &str) -> String {
    format!("{} {level} FSNamesystem.audit: ", log_time(wall_ms))
}

fn append(line: &mut String, event: &Event<'_>, limits: Option<ContextLimits>) {
    let user = without_controls(event.user);
    let _ = write!(line, "allowed={}\tugi=", event.allowed);
    let _ = match event.real_user {
        None => write!(line, "{user} (auth:SIMPLE)"),
        Some(real) => write!(line, "{user} (auth:PROXY) via {} (auth:SIMPLE)", without_controls(real)),
    };
    let _ = write!(line, "\tip=/{}\tcmd={}\tsrc=", event.machine, event.command);
    escape_or_null(line, event.source);
    line.push_str("\tdst=");
    escape_or_null(line, event.target);
    let permissions = without_controls(event.permissions.unwrap_or("null"));
    let _ = write!(line, "\tperm={permissions}\tproto={}", event.protocol.unwrap_or("null"));
    let (Some(limits), Some((context, signature))) = (limits, event.context.filter(|(text, _)| !text.is_empty()))
    else {
        return;
    };
    let mut escaped = String::new();
    escape(&mut escaped, context);
    // The escaped text is ASCII.
    escaped.truncate(limits.characters_max);
    let _ = write!(line, "\tcallerContext={escaped}");
    if !signature.is_empty() && signature.len() <= limits.signature_bytes_max {
        line.push(':');
        escape(line, &String::from_utf8_lossy(signature));
    }
}

/// Names are written unescaped, as Apache does. Control characters are removed because a user can choose a user or
/// owner name that contains a line end.
fn without_controls(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::new();
    escape(&mut escaped, name);
    Cow::Owned(escaped)
}

fn escape_or_null(line: &mut String, text: Option<&str>) {
    match text {
        Some(text) => escape(line, text),
        None => line.push_str("null"),
    }
}

/// Escapes as in Java source, so that a path with a tab or a line end in it cannot forge fields or lines.
/// Source: `StringEscapeUtils.escapeJava` of commons-text.
fn escape(line: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\u{8}' => line.push_str("\\b"),
            '\n' => line.push_str("\\n"),
            '\t' => line.push_str("\\t"),
            '\u{c}' => line.push_str("\\f"),
            '\r' => line.push_str("\\r"),
            ' '..='\u{7f}' => line.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(line, "\\u{unit:04X}");
                }
            }
        }
    }
}

struct LogWriter {
    file: LogFile,
    lines: Receiver<String>,
    lost: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    /// True if the last write failed; the failure is logged once, not for each line.
    failing: bool,
}

impl LogWriter {
    fn run(mut self) {
        while let Some(mut text) = self.lines.blocking_recv() {
            let mut count = 1;
            while text.len() < WRITE_BYTES
                && let Ok(line) = self.lines.try_recv()
            {
                text.push_str(&line);
                count += 1;
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let _ = writeln!(text, "{}lines lost here: {lost}", prefix(self.clock.wall_ms(), "WARN"));
            }
            match self.file.append(text.as_bytes()) {
                Ok(()) => self.failing = false,
                Err(error) => {
                    self.lost.fetch_add(lost + count, Ordering::Relaxed);
                    if !self.failing {
                        tracing::error!(path = %self.file.path.display(), %error, "cannot write the audit log");
                    }
                    self.failing = true;
                }
            }
        }
    }
}

struct LogFile {
    path: PathBuf,
    file: File,
    /// Device and inode of the open file, to detect that the name now refers to another file.
    identity: (u64, u64),
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let data = file.metadata()?;
        Ok(Self { path: path.to_owned(), file, identity: (data.dev(), data.ino()) })
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let is_same = std::fs::metadata(&self.path).is_ok_and(|data| (data.dev(), data.ino()) == self.identity);
        if !is_same {
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(text)
    }
}

#[cfg(test)]
mod tests {
    use hearth_testkit::until;
    use hearth_types::SystemClock;

    use super::*;

    const LIMITS: Option<ContextLimits> = Some(ContextLimits { characters_max: 8, signature_bytes_max: 4 });

    fn text(event: &Event<'_>, limits: Option<ContextLimits>) -> String {
        let mut line = String::new();
        append(&mut line, event, limits);
        line
    }

    #[test]
    fn a_line_has_apaches_fields() {
        let event = Event {
            allowed: true,
            user: "ann",
            real_user: None,
            machine: "10.0.0.7",
            command: "rename",
            source: Some("/a"),
            target: Some("/b"),
            permissions: Some("ann:staff:rw-r-----"),
            protocol: Some("rpc"),
            context: None,
        };
        let wanted = "allowed=true\tugi=ann (auth:SIMPLE)\tip=/10.0.0.7\tcmd=rename\tsrc=/a\tdst=/b\t\
            perm=ann:staff:rw-r-----\tproto=rpc";
        assert_eq!(text(&event, LIMITS), wanted);
        let (short, long) = (Bytes::from_static(b"sig"), Bytes::from_static(b"a long one"));
        let event = Event { context: Some(("job_20261122", &short)), ..event };
        assert_eq!(text(&event, LIMITS), format!("{wanted}\tcallerContext=job_2026:sig"));
        assert_eq!(text(&event, None), wanted);
        let event = Event { context: Some(("job", &long)), ..event };
        assert_eq!(text(&event, LIMITS), format!("{wanted}\tcallerContext=job"));
        let event = Event { real_user: Some("hive"), context: None, ..event };
        assert_eq!(text(&event, None), wanted.replace("ann (auth:SIMPLE)", "ann (auth:PROXY) via hive (auth:SIMPLE)"));
    }

    #[test]
    fn user_names_cannot_forge_lines() {
        let user = "ann\n2026-01-01 00:00:00,000 INFO FSNamesystem.audit: allowed=true\tugi=bob";
        let event = Event { user, permissions: Some("a\tb:c:rw-r--r--"), ..Event::default() };
        let line = text(&event, None);
        assert!(!line.contains('\n') && line.matches('\t').count() == 7, "{line}");
        assert!(line.contains(r"ugi=ann\n2026") && line.contains(r"perm=a\tb:c:"), "{line}");
        assert_eq!(without_controls("DOMAIN\\zoë"), "DOMAIN\\zoë");
    }

    #[test]
    fn paths_cannot_forge_fields() {
        let mut line = String::new();
        escape(&mut line, "/a\tb\n\"c\"\\é😀\u{1}/");
        assert_eq!(line, r#"/a\tb\n\"c\"\\\u00E9\uD83D\uDE00\u0001/"#);
    }

    #[tokio::test]
    async fn lines_follow_the_renamed_file_and_are_flushed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("audit.log"), directory.path().join("audit.log.1"));
        let quiet = ["open".to_owned()].into();
        let settings = AuditSettings { file: path.clone(), context: None, quiet };
        let log = AuditLog::start(settings.clone(), Arc::new(SystemClock::new())).unwrap();
        log.write(Event { command: "mkdirs", ..Event::default() }).await;
        log.write(Event { command: "open", ..Event::default() }).await;
        until("the first line", async || !std::fs::read_to_string(&path).unwrap().is_empty()).await;
        std::fs::rename(&path, &old).unwrap();
        for _ in 0..1000 {
            log.write(Event { command: "delete", ..Event::default() }).await;
        }
        drop(log);
        let count = |path| std::fs::read_to_string(path).map(|text| text.lines().count()).unwrap_or(0);
        until("all lines in the new file", async || count(&path) == 1000).await;
        assert_eq!(count(&old), 1);
        assert!(std::fs::read_to_string(&old).unwrap().contains("cmd=mkdirs"));
    }
}
