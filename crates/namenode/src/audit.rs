//! The audit log: who did what to which path, one line an operation, in the format of Apache's `FSNamesystem.audit`.
//!
//! Operations hand their lines to a queue; one thread appends them to the file. A full queue makes an operation wait for a moment
//! only: what finds no room then is counted, and the file says how many lines are missing. When the file is renamed or removed, the
//! next lines go to a new one of the same name, so that logrotate needs neither a signal nor `copytruncate`.

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
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use crate::date::log_time;

/// Lines that wait for the disk.
const QUEUE_LINES: usize = 4096;
/// Bytes of a line, so that the queue has a bound; only concat of very many files makes longer ones.
const LINE_BYTES_MAX: usize = 32 << 10;
/// How long an operation waits for room in the queue before its line is given up.
const ENQUEUE_TIMEOUT: Duration = Duration::from_millis(100);
/// What is written by one system call, about; bytes.
const WRITE_BYTES: usize = 64 << 10;

/// What configuration says of it.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// `hearth.namenode.audit.log`.
    pub file: PathBuf,
    /// `hadoop.caller.context.enabled` and the limits of what is written of it; `None` when that is off.
    pub context: Option<ContextLimits>,
    /// `dfs.namenode.audit.log.debug.cmdlist`: operations that are left out.
    pub quiet: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct ContextLimits {
    /// Characters; longer ones are cut.
    pub characters_max: usize,
    /// Bytes; longer ones are left out.
    pub signature_bytes_max: usize,
}

impl AuditSettings {
    /// `None` when no file is named: there is no audit log then.
    pub fn read(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        let Some(file) = conf.get(keys::HEARTH_NAMENODE_AUDIT_LOG)? else { return Ok(None) };
        let context = match conf.get(keys::HADOOP_CALLER_CONTEXT_ENABLED)? {
            false => None,
            true => Some(ContextLimits {
                characters_max: conf.get(keys::HADOOP_CALLER_CONTEXT_MAX_SIZE)? as usize,
                signature_bytes_max: conf.get(keys::HADOOP_CALLER_CONTEXT_SIGNATURE_MAX_SIZE)? as usize,
            }),
        };
        let quiet = conf.get(keys::DFS_NAMENODE_AUDIT_LOG_DEBUG_CMDLIST)?.unwrap_or_default().into_iter().collect();
        Ok(Some(Self { file, context, quiet }))
    }
}

/// The audit log cannot be begun.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the audit log {path}: {source}")]
pub struct AuditError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// One operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event<'a> {
    pub allowed: bool,
    pub user: &'a str,
    /// The user who acts for `user`.
    pub real_user: Option<&'a str>,
    /// Text of the caller's IP address.
    pub machine: &'a str,
    pub command: &'a str,
    pub source: Option<&'a str>,
    pub target: Option<&'a str>,
    /// `owner:group:rwxr-xr-x`, of what the operation left there.
    pub permissions: Option<&'a str>,
    /// How the call came; `None` for fsck's.
    pub protocol: Option<&'a str>,
    /// What the client says of itself, and its signature.
    pub context: Option<(&'a str, &'a Bytes)>,
}

/// Where operations leave their lines.
pub struct AuditLog {
    settings: AuditSettings,
    clock: Arc<dyn Clock>,
    queue: Sender<String>,
    /// Lines that never got into the file, not yet told.
    lost: Arc<AtomicU64>,
}

impl AuditLog {
    /// Opens the file and starts the thread that writes it; the thread ends, all written, when this is dropped.
    pub fn start(settings: AuditSettings, clock: Arc<dyn Clock>) -> Result<Self, AuditError> {
        let failed = |source| AuditError { path: settings.file.clone(), source };
        let file = LogFile::open(&settings.file).map_err(failed)?;
        let (queue, lines) = channel(QUEUE_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = LogWriter { file, lines, lost: lost.clone(), clock: clock.clone(), failing: false };
        std::thread::Builder::new().name("audit-log".into()).spawn(|| writer.run()).map_err(failed)?;
        Ok(Self { settings, clock, queue, lost })
    }

    /// Puts down one operation.
    pub async fn write(&self, event: Event<'_>) {
        self.write_all(std::iter::once(event)).await;
    }

    /// Puts down several that came in one call, which waits for all of them together as long as for one.
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

    /// `None`: this one is left out.
    fn line(&self, event: &Event<'_>) -> Option<String> {
        if self.settings.quiet.contains(event.command) {
            return None;
        }
        let mut line = prefix(self.clock.wall_ms(), "INFO");
        append(&mut line, event, self.settings.context);
        if line.len() > LINE_BYTES_MAX {
            // A character has four bytes at most.
            let end = (LINE_BYTES_MAX - 3..=LINE_BYTES_MAX).rev().find(|at| line.is_char_boundary(*at));
            line.truncate(end.unwrap_or(0));
        }
        line.push('\n');
        Some(line)
    }
}

/// What Hadoop's log4j.properties puts in front.
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
    // What was escaped is ASCII.
    escaped.truncate(limits.characters_max);
    let _ = write!(line, "\tcallerContext={escaped}");
    if !signature.is_empty() && signature.len() <= limits.signature_bytes_max {
        line.push(':');
        escape(line, &String::from_utf8_lossy(signature));
    }
}

/// Names as they are, as Apache puts them down; but anybody may call himself, or an owner, by a name with a line's end in it.
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

/// As Java source would have it, so that a path with a tab or a line's end in it forges no fields and no lines.
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
    /// The last write failed: said once, not for each line.
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
                        tracing::error!(path = %self.file.path.display(), %error, "the audit log cannot be written");
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
    /// Device and inode, to see that the name leads elsewhere now.
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
    fn names_forge_no_lines() {
        let user = "ann\n2026-01-01 00:00:00,000 INFO FSNamesystem.audit: allowed=true\tugi=bob";
        let event = Event { user, permissions: Some("a\tb:c:rw-r--r--"), ..Event::default() };
        let line = text(&event, None);
        assert!(!line.contains('\n') && line.matches('\t').count() == 7, "{line}");
        assert!(line.contains(r"ugi=ann\n2026") && line.contains(r"perm=a\tb:c:"), "{line}");
        assert_eq!(without_controls("DOMAIN\\zoë"), "DOMAIN\\zoë");
    }

    #[test]
    fn paths_forge_no_fields() {
        let mut line = String::new();
        escape(&mut line, "/a\tb\n\"c\"\\é😀\u{1}/");
        assert_eq!(line, r#"/a\tb\n\"c\"\\\u00E9\uD83D\uDE00\u0001/"#);
    }

    #[tokio::test]
    async fn lines_follow_the_name_of_the_file_and_are_all_written_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("audit.log"), directory.path().join("audit.log.1"));
        let quiet = ["open".to_owned()].into();
        let settings = AuditSettings { file: path.clone(), context: None, quiet };
        let log = AuditLog::start(settings.clone(), Arc::new(SystemClock::new())).unwrap();
        log.write(Event { command: "mkdirs", ..Event::default() }).await;
        log.write(Event { command: "open", ..Event::default() }).await;
        while std::fs::read_to_string(&path).unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        std::fs::rename(&path, &old).unwrap();
        for _ in 0..1000 {
            log.write(Event { command: "delete", ..Event::default() }).await;
        }
        drop(log);
        let count = |path| std::fs::read_to_string(path).map(|text| text.lines().count()).unwrap_or(0);
        for _ in 0..6000 {
            if count(&path) == 1000 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((count(&old), count(&path)), (1, 1000));
        assert!(std::fs::read_to_string(&old).unwrap().contains("cmd=mkdirs"));
    }
}
