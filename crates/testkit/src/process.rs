//! A child process without leftovers: dropping it, or the end of this process, kills it and its children.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

/// Number of log lines that an error shows.
const TAIL_LINES: usize = 40;

pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Shell that kills the process group when its input closes, which also happens if this process is killed.
    watchdog: Child,
    _watchdog_input: Option<ChildStdin>,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` in its own process group, with its output appended to `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log);
        let output = output.with_context(|| format!("cannot write {}", log.display()))?;
        let errors = output.try_clone().with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", command.get_program().to_string_lossy()))?;
        let mut watchdog = Command::new("sh")
            .args(["-c", "read -r _; kill -KILL -$0 2>/dev/null"])
            .arg(child.id().to_string())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let _watchdog_input = watchdog.stdin.take();
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), watchdog, _watchdog_input, ended: None })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends SIGKILL to the process and all its children. Returns when it is gone.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            // The group is already gone if the process ended by itself without children.
            let _ = kill_process_group(self.pid(), Signal::KILL);
            self.ended = self.child.wait().ok();
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(&mut self, within: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        kill_process(self.pid(), Signal::TERM).with_context(|| format!("cannot signal {}", self.name))?;
        self.wait(within)
    }

    /// Stops the process, for tests of hanging peers. Returns when none of its threads runs any more. On a busy machine
    /// a process can still answer a call after the signal was sent.
    pub fn pause(&self) -> Result<()> {
        kill_process_group(self.pid(), Signal::STOP).with_context(|| format!("cannot stop {}", self.name))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while waitid(WaitId::Pid(self.pid()), stopped).with_context(|| format!("waiting for {}", self.name))?.is_none()
        {
            if Instant::now() >= deadline {
                bail!("{} still runs after SIGSTOP", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Resumes a paused process.
    pub fn resume(&self) -> Result<()> {
        kill_process_group(self.pid(), Signal::CONT).with_context(|| format!("cannot continue {}", self.name))
    }

    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} did not end within {within:?}\n{}", self.name, self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the exit status if the process has ended.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().with_context(|| format!("waiting for {}", self.name))?;
        }
        Ok(self.ended)
    }

    /// Returns an error with the end of its log if the process has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.exited()? {
            Some(status) => bail!("{} ended with {status}\n{}", self.name, self.log_tail()),
            None => Ok(()),
        }
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn log_text(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Returns the last `count` warnings and errors of its log, each with its name in front.
    pub fn last_warnings(&self, count: usize) -> Vec<String> {
        let text = self.log_text();
        let is_warning = |line: &&str| [" WARN ", " ERROR ", " FATAL "].iter().any(|level| line.contains(level));
        let warnings: Vec<&str> = text.lines().filter(is_warning).collect();
        let last = &warnings[warnings.len().saturating_sub(count)..];
        last.iter().map(|line| format!("{}: {line}", self.name)).collect()
    }

    /// Returns the last lines of its log, for error messages.
    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        format!("--- end of the log of {}\n{}\n---", self.name, tail.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog ends first: once the process is reaped, its id may belong to another process.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let group = self.pid();
        let ended_before = self.ended.is_some();
        self.kill();
        if !ended_before {
            // Kills children that were being forked during the first signal.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Polls until `probe` returns a value. The error names `what` was waited for, and the last reason why it was missing.
pub fn wait_until<T>(what: &str, within: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_millis(10);
    let mut last = None;
    loop {
        match probe() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
        if Instant::now() >= deadline {
            return Err(last.unwrap_or_else(|| anyhow::anyhow!("the condition is still false")))
                .with_context(|| format!("waited {within:?} for {what}"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_process_kills_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let marker = directory.path().join("child");
        let script = format!("sleep 1000 & echo $! > {}; wait", marker.display());
        let process =
            Process::start("sleeper", Command::new("sh").args(["-c", &script]), &directory.path().join("log")).unwrap();
        let child: i32 = wait_until("the child", Duration::from_secs(60), || {
            Ok(std::fs::read_to_string(&marker).ok().and_then(|text| text.trim().parse().ok()))
        })
        .unwrap();
        drop(process);
        wait_until("the child's end", Duration::from_secs(60), || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            // Gone, or a zombie that init has not reaped yet.
            Ok((stat.is_empty() || stat.contains(") Z ")).then_some(()))
        })
        .unwrap();
    }

    #[test]
    fn early_exit_error_contains_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = Process::start(
            "failing",
            Command::new("sh").args(["-c", "echo out of cheese >&2; exit 3"]),
            &directory.path().join("log"),
        )
        .unwrap();
        process.wait(Duration::from_secs(60)).unwrap();
        let error = format!("{:#}", process.check_alive().unwrap_err());
        assert!(error.contains("out of cheese") && error.contains('3'), "{error}");
    }
}
