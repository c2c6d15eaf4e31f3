//! The same cluster with each role as a process of its own.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use hearth_config::Configuration;
use rustix::process::{Pid, Signal, kill_process};

use super::LocalCluster;
use crate::announce::Announcement;
use crate::parent::DIES_WITH_PARENT;

/// A server that has not announced itself by then has failed.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Between SIGTERM and SIGKILL: a DataNode flushes what is only in memory meanwhile.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// One running role.
pub struct Process {
    role: String,
    child: Child,
    announcement: Announcement,
}

impl Process {
    /// Starts `hearth ROLE` with `configuration` written to a directory of its own, and waits until it announces itself.
    ///
    /// Errors: with the end of the log, when it ends or says nothing.
    fn start(
        cluster: &LocalCluster,
        name: &str,
        command: &[&str],
        configuration: &Configuration,
    ) -> anyhow::Result<Self> {
        let role = command.join(" ");
        let conf = cluster.dir().join("processes").join(name);
        std::fs::create_dir_all(&conf).with_context(|| format!("cannot make the directory {}", conf.display()))?;
        configuration.write_dir(&conf)?;
        let log_path = cluster.log_file(name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log_path)
            .with_context(|| format!("cannot write the log {}", log_path.display()))?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut child = Command::new(program)
            .args(command)
            .env("HADOOP_CONF_DIR", &conf)
            .env(DIES_WITH_PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start hearth {role}"))?;
        let stdout = child.stdout.take().context("the child's output is piped")?;
        let (sender, receiver) = mpsc::sync_channel(1);
        // Reads on to the end, so that the child never blocks on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout.take(1 << 20)).lines().map_while(Result::ok) {
                if let Some(announcement) = Announcement::parse(&line) {
                    let _ = sender.try_send(announcement);
                }
            }
        });
        let mut process =
            Self { role: name.to_string(), child, announcement: Announcement::new(name, std::iter::empty()) };
        match receiver.recv_timeout(START_TIMEOUT) {
            Ok(announcement) => {
                process.announcement = announcement;
                Ok(process)
            }
            Err(_) => {
                let how = match process.child.try_wait() {
                    Ok(Some(status)) => format!("ended with {status}"),
                    _ => format!("did not become ready within {} s", START_TIMEOUT.as_secs()),
                };
                process.kill();
                Err(anyhow!("hearth {role} ({name}) {how}; the end of {}:\n{}", log_path.display(), tail(&log_path)))
            }
        }
    }

    pub fn role(&self) -> &str {
        &self.role
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One of its ports, by the name under which it was announced.
    pub fn port(&self, name: &str) -> anyhow::Result<SocketAddr> {
        self.announcement
            .port(name)
            .with_context(|| format!("{} announced no port named {name}: {}", self.role, self.announcement))
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        // Fails only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn terminate(&self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for the end after `terminate`; then SIGKILL. Returns whether it ended by itself.
    fn wait_until(&mut self, deadline: Instant) -> bool {
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) | Err(_) => return true,
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                Ok(None) => {
                    self.kill();
                    return false;
                }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All roles of a cluster as processes. Dropping it kills them; `stop` lets them flush first.
pub struct ProcessCluster {
    pub namenode: Process,
    pub datanodes: Vec<Process>,
}

impl ProcessCluster {
    /// Starts the NameNode, then the DataNodes. `step` is told what is being started.
    pub fn start(cluster: &LocalCluster, mut step: impl FnMut(&str)) -> anyhow::Result<Self> {
        step("NameNode");
        let namenode = Process::start(cluster, "namenode", &["namenode", "-format-if-empty"], &cluster.namenode())?;
        let rpc = namenode.port("rpc")?;
        let mut datanodes = Vec::new();
        for number in 1..=cluster.datanodes() {
            step(&format!("DataNode {number}"));
            let configuration = cluster.datanode(number, rpc);
            datanodes.push(Process::start(cluster, &format!("datanode{number}"), &["datanode"], &configuration)?);
        }
        Ok(Self { namenode, datanodes })
    }

    pub fn rpc(&self) -> anyhow::Result<SocketAddr> {
        self.namenode.port("rpc")
    }

    /// Errors when a role has ended by itself.
    pub fn check(&mut self, cluster: &LocalCluster) -> anyhow::Result<()> {
        for process in std::iter::once(&mut self.namenode).chain(&mut self.datanodes) {
            if let Some(status) = process.ended() {
                let log = cluster.log_file(&process.role);
                bail!("{} ended with {status}; the end of {}:\n{}", process.role, log.display(), tail(&log));
            }
        }
        Ok(())
    }

    /// SIGTERM to all, DataNodes first; they write what is only in memory to disk before they end.
    ///
    /// Errors: names of those that had to be killed.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut killed = Vec::new();
        for process in &self.datanodes {
            process.terminate();
        }
        for process in &mut self.datanodes {
            if !process.wait_until(deadline) {
                killed.push(process.role.clone());
            }
        }
        self.namenode.terminate();
        if !self.namenode.wait_until(deadline) {
            killed.push(self.namenode.role.clone());
        }
        if !killed.is_empty() {
            bail!("did not stop within {} s and had to be killed: {}", STOP_TIMEOUT.as_secs(), killed.join(", "));
        }
        Ok(())
    }
}

/// The last lines of a log.
fn tail(path: &Path) -> String {
    const BYTES: u64 = 4096;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.take(BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_else(|error| format!("(cannot be read: {error})"));
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
