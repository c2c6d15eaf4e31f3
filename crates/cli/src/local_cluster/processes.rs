//! A local cluster with each role in its own process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use hearth_config::Configuration;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;

use super::LocalCluster;
use crate::announce::Announcement;
use crate::parent::DIES_WITH_PARENT;

/// A server that has not announced itself within this time has failed. As in the units of the packages: a NameNode may
/// load many files, and a DataNode many replicas.
const START_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Time between SIGTERM and SIGKILL of a DataNode. It flushes replicas that are only in memory during it. As in the
/// units of the packages.
const DATANODE_STOP_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The same of the NameNode, whose acknowledged changes are already on disk.
const NAMENODE_STOP_TIMEOUT: Duration = Duration::from_secs(120);
/// A start or stop that takes long is reported at this interval.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);
/// Time between two checks whether a process has ended, during another one's start.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// One running role.
pub struct Process {
    role: String,
    child: Child,
    log: PathBuf,
    announcement: Announcement,
    /// Set after `kill`, or after `supervise` has reported the end. `stop` does not report it again.
    end_is_known: bool,
}

impl Process {
    /// Starts `hearth ROLE` with `configuration` written to its own directory, and waits until it announces itself.
    /// `say` gets a line at intervals if that takes long.
    ///
    /// Errors: the process ends or announces nothing; includes the end of the log. If dropped early, this kills the
    /// process.
    async fn start(
        cluster: &LocalCluster,
        name: &str,
        command: &[&str],
        configuration: &Configuration,
        say: &mut dyn FnMut(&str),
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
        let mut child = Command::new(own_program()?)
            .args(command)
            .env("HADOOP_CONF_DIR", &conf)
            .env(DIES_WITH_PARENT, std::process::id().to_string())
            // Only this process reports to systemd.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start hearth {role}"))?;
        let stdout = child.stdout.take().context("the child's output is piped")?;
        let (sender, mut receiver) = mpsc::channel(1);
        // Reads to the end of the output, so that the child never blocks on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout.take(1 << 20)).lines().map_while(Result::ok) {
                if let Some(announcement) = Announcement::parse(&line) {
                    let _ = sender.try_send(announcement);
                }
            }
        });
        let mut process = Self {
            role: name.to_string(),
            child,
            log: log_path,
            announcement: Announcement::new(name, std::iter::empty()),
            end_is_known: false,
        };
        let began = Instant::now();
        let announced = loop {
            let left = START_TIMEOUT.saturating_sub(began.elapsed());
            if let Ok(announced) = tokio::time::timeout(left.min(PROGRESS_INTERVAL), receiver.recv()).await {
                break announced;
            }
            if began.elapsed() >= START_TIMEOUT {
                break None;
            }
            let (seconds, log) = (began.elapsed().as_secs(), process.log.display());
            say(&format!("{name} is not ready after {seconds} s; its log is {log}"));
        };
        match announced {
            Some(announcement) => {
                process.announcement = announcement;
                Ok(process)
            }
            None => {
                let how = match process.child.try_wait() {
                    Ok(Some(status)) => format!("ended with {status}"),
                    _ => format!("did not become ready within {} s", START_TIMEOUT.as_secs()),
                };
                process.kill();
                Err(anyhow!("hearth {role} ({name}) {how}; {}", process.end_of_log()))
            }
        }
    }

    pub fn role(&self) -> &str {
        &self.role
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns one of its ports, by the announced name.
    pub fn port(&self, name: &str) -> anyhow::Result<SocketAddr> {
        self.announcement
            .port(name)
            .with_context(|| format!("{} announced no port named {name}: {}", self.role, self.announcement))
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until the process has ended.
    async fn wait_for_exit(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            tokio::time::sleep(END_CHECK_INTERVAL).await;
        }
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.end_is_known = true;
        // Fails only if the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn terminate(&mut self) {
        // After its end was collected, its process id may belong to another process.
        if self.ended().is_none()
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for the end after `terminate` at `began`; sends SIGKILL after `timeout`. `say` gets a line at intervals.
    ///
    /// Errors: the process had to be killed or failed, for example a DataNode that still has bytes only in memory.
    /// Includes the end of the log.
    fn wait_for_end(&mut self, began: Instant, timeout: Duration, mut say: impl FnMut(&str)) -> anyhow::Result<()> {
        let mut next_report = PROGRESS_INTERVAL;
        loop {
            let elapsed = began.elapsed();
            match self.child.try_wait().with_context(|| format!("cannot wait for {}", self.role))? {
                Some(status) if status.success() || self.end_is_known => return Ok(()),
                Some(status) => return Err(self.ended_with(status)),
                None if elapsed < timeout => {
                    if elapsed >= next_report {
                        next_report = elapsed + PROGRESS_INTERVAL;
                        let (role, log) = (&self.role, self.log.display());
                        say(&format!("{role} has been stopping for {} s; its log is {log}", elapsed.as_secs()));
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                None => {
                    self.kill();
                    let waited = timeout.as_secs();
                    bail!("{} did not stop within {waited} s and had to be killed; {}", self.role, self.end_of_log());
                }
            }
        }
    }

    fn ended_with(&self, status: ExitStatus) -> anyhow::Error {
        anyhow!("{} ended with {status}; {}", self.role, self.end_of_log())
    }

    fn end_of_log(&self) -> String {
        format!("the end of {}:\n{}", self.log.display(), tail(&self.log))
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
    /// Restart histories, by index in `datanodes`.
    ends: BTreeMap<usize, RestartHistory>,
}

/// A DataNode that ends more often than this within [`RESTARTS_WITHIN`] is not restarted.
const RESTARTS_MAX: usize = 3;
const RESTARTS_WITHIN: Duration = Duration::from_secs(60);

/// Restart history of one DataNode.
#[derive(Default)]
struct RestartHistory {
    /// Times of its restarts within [`RESTARTS_WITHIN`].
    restarts: Vec<Instant>,
    left_out: bool,
}

impl RestartHistory {
    /// Decides about a restart after the DataNode ended with `status`. The error says why it is not restarted.
    fn record_exit(&mut self, status: ExitStatus, now: Instant) -> Result<(), String> {
        if status.success() {
            return Err("it was asked to stop".to_owned());
        }
        self.restarts.retain(|at| now.duration_since(*at) < RESTARTS_WITHIN);
        if self.restarts.len() >= RESTARTS_MAX {
            return Err(format!("it was started again {RESTARTS_MAX} times within {} s", RESTARTS_WITHIN.as_secs()));
        }
        self.restarts.push(now);
        Ok(())
    }
}

impl ProcessCluster {
    /// Starts the NameNode, then the DataNodes. `say` gets a line at intervals if a start takes long.
    ///
    /// The processes end with the thread that polls this.
    pub async fn start(cluster: &LocalCluster, mut say: impl FnMut(&str)) -> anyhow::Result<Self> {
        let (command, configuration) = (["namenode", "-format-if-empty"], cluster.namenode());
        let mut namenode = Process::start(cluster, "namenode", &command, &configuration, &mut say).await?;
        let mut datanodes = Vec::new();
        for number in 1..=cluster.datanodes() {
            datanodes.push(Self::start_datanode(cluster, &mut namenode, number, &mut say).await?);
        }
        Ok(Self { namenode, datanodes, ends: BTreeMap::new() })
    }

    /// Starts DataNode `number` (from 1).
    ///
    /// Errors: it fails, or the NameNode ends before the DataNode is ready, which would wait for it.
    async fn start_datanode(
        cluster: &LocalCluster,
        namenode: &mut Process,
        number: usize,
        say: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Process> {
        let (name, configuration) = (format!("datanode{number}"), cluster.datanode(number, namenode.port("rpc")?));
        tokio::select! {
            started = Process::start(cluster, &name, &["datanode"], &configuration, say) => started,
            status = namenode.wait_for_exit() => Err(namenode.ended_with(status)),
        }
    }

    pub fn rpc(&self) -> anyhow::Result<SocketAddr> {
        self.namenode.port("rpc")
    }

    /// The NameNode's web port.
    pub fn http(&self) -> anyhow::Result<SocketAddr> {
        self.namenode.port("http")
    }

    /// Restarts DataNodes that have ended. Each finds the replicas that it left. A DataNode that was asked to stop,
    /// fails to start, or ends too often is not restarted; the file system continues without it. `say` gets a line for
    /// each.
    ///
    /// Must be awaited by the thread that started the cluster. If dropped early, the next call starts the DataNode.
    ///
    /// Errors: the NameNode has ended, or no DataNode is left.
    pub async fn supervise(&mut self, cluster: &LocalCluster, mut say: impl FnMut(&str)) -> anyhow::Result<()> {
        if let Some(status) = self.namenode.ended() {
            self.namenode.end_is_known = true;
            return Err(self.namenode.ended_with(status));
        }
        for place in 0..self.datanodes.len() {
            if self.ends.get(&place).is_some_and(|ends| ends.left_out) {
                continue;
            }
            let process = &mut self.datanodes[place];
            let Some(status) = process.ended() else { continue };
            process.end_is_known = true;
            let (name, pid) = (process.role.clone(), process.pid());
            let judged = self.ends.entry(place).or_default().record_exit(status, Instant::now());
            if judged.is_ok() {
                say(&format!("{name} (process {pid}) ended with {status}; it is started again"));
            }
            let outcome = match judged {
                Ok(()) => {
                    let started = Self::start_datanode(cluster, &mut self.namenode, place + 1, &mut say).await;
                    started.map_err(|error| format!("it does not start: {error:#}"))
                }
                Err(why) => Err(why),
            };
            match outcome {
                Ok(process) => {
                    say(&format!("{name} is back, as process {}", process.pid()));
                    self.datanodes[place] = process;
                }
                Err(why) => {
                    self.ends.entry(place).or_default().left_out = true;
                    let left = self.datanodes.len() - self.ends.values().filter(|ends| ends.left_out).count();
                    let log = self.datanodes[place].log.display();
                    say(&format!(
                        "{name} (process {pid}) ended with {status} and is left out: {why}. {left} DataNodes are left; its log is {log}"
                    ));
                    ensure!(left > 0, "no DataNode is left; {}", self.datanodes[place].end_of_log());
                }
            }
        }
        Ok(())
    }

    /// Returns whether a DataNode has failed and was not started again: what it had only in memory is not on disk.
    pub fn is_datanode_lost(&mut self) -> bool {
        self.datanodes
            .iter_mut()
            .any(|process| process.end_is_known && process.ended().is_some_and(|status| !status.success()))
    }

    /// Sends SIGTERM to all, DataNodes first. They write data that is only in memory to disk before they end. `say` gets
    /// a line at intervals if that takes long.
    ///
    /// Errors: each process that had to be killed or failed, unless `supervise` has reported it. Returned after all
    /// have stopped.
    pub fn stop(mut self, mut say: impl FnMut(&str)) -> anyhow::Result<()> {
        let began = Instant::now();
        for process in &mut self.datanodes {
            process.terminate();
        }
        let mut ends = Vec::new();
        for process in &mut self.datanodes {
            ends.push(process.wait_for_end(began, DATANODE_STOP_TIMEOUT, &mut say));
        }
        self.namenode.terminate();
        ends.push(self.namenode.wait_for_end(Instant::now(), NAMENODE_STOP_TIMEOUT, &mut say));
        let failures: Vec<_> = ends.into_iter().filter_map(Result::err).map(|failure| format!("{failure:#}")).collect();
        ensure!(failures.is_empty(), "{}", failures.join("\n"));
        Ok(())
    }
}

/// Returns the file of this program.
fn own_program() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("cannot find the executable of this program")?;
    // After an upgrade its file is gone, and the kernel still has it. The other servers are of this version, too.
    Ok(if path.exists() { path } else { PathBuf::from("/proc/self/exe") })
}

/// Returns the last lines of a log.
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

#[cfg(test)]
mod tests {
    use hearth_testkit::{eventually, wait_until};

    use super::*;

    /// Process that runs `at_the_end` on SIGTERM.
    fn process(directory: &Path, role: &str, at_the_end: &str) -> Process {
        let log = directory.join(format!("{role}.log"));
        let script = format!("trap '{at_the_end}' TERM; echo; while :; do sleep 0.01; done");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        // The process has set its signal handler.
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let announcement = Announcement::new(role, std::iter::empty());
        Process { role: role.to_string(), child, log, announcement, end_is_known: false }
    }

    #[test]
    fn stop_reports_unknown_failed_exits() {
        let directory = tempfile::tempdir().unwrap();
        let start = |role: &str, at_the_end: &str| process(directory.path(), role, at_the_end);
        let (namenode, datanode) = (start("namenode", "exit 0"), start("datanode", "exit 0"));
        cluster(namenode, vec![datanode]).stop(|_| {}).unwrap();

        let full = start("datanode1", "echo the disk is full >&2; exit 1");
        let mut killed = start("datanode2", "exit 0");
        killed.kill();
        // Like Ctrl-C, which reaches all processes at once: this end was not yet collected.
        let mut earlier = start("datanode3", "exit 3");
        earlier.terminate();
        wait_until("its end", Duration::from_secs(60), || Ok(earlier.ended())).unwrap();
        let namenode = start("namenode", "echo stopped >&2; exit 0");
        let log = namenode.log.clone();
        let error = cluster(namenode, vec![full, killed, earlier]).stop(|_| {}).unwrap_err().to_string();
        for part in ["datanode1 ended with exit status: 1", "datanode1.log", "disk is full", "datanode3 ended with"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("datanode2"), "{error}");
        assert!(!error.contains("namenode"), "{error}");
        assert_eq!(std::fs::read_to_string(log).unwrap(), "stopped\n");
    }

    #[test]
    fn long_stop_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let reported = directory.path().join("reported");
        let at_the_end = format!("until [ -e {} ]; do sleep 0.01; done; exit 0", reported.display());
        let mut datanode = process(directory.path(), "datanode1", &at_the_end);
        datanode.terminate();
        let mut said = Vec::new();
        let say = |what: &str| {
            said.push(what.to_owned());
            File::create(&reported).unwrap();
        };
        // As if it had begun a while ago.
        datanode.wait_for_end(Instant::now() - PROGRESS_INTERVAL, DATANODE_STOP_TIMEOUT, say).unwrap();
        let words = said[0].strip_prefix("datanode1 has been stopping for ").map(|rest| rest.split(' '));
        let seconds = words.and_then(|mut words| words.next()?.parse::<u64>().ok());
        assert!(seconds.is_some_and(|seconds| seconds >= 30), "{said:?}");
        assert!(said[0].contains("datanode1.log"), "{said:?}");
    }

    fn cluster(namenode: Process, datanodes: Vec<Process>) -> ProcessCluster {
        ProcessCluster { namenode, datanodes, ends: BTreeMap::new() }
    }

    fn prepared(directory: &Path) -> LocalCluster {
        let options = crate::local_cluster::LocalClusterOptions {
            dir: directory.join("data"),
            memory_root: directory.to_path_buf(),
            datanodes: 2,
            port: 0,
            http_port: 0,
            settings: Vec::new(),
        };
        LocalCluster::prepare(options).unwrap()
    }

    #[tokio::test]
    async fn namenode_exit_ends_cluster_and_is_reported_once() {
        let directory = tempfile::tempdir().unwrap();
        let start = |role: &str, at_the_end: &str| process(directory.path(), role, at_the_end);
        let mut cluster = cluster(start("namenode", "exit 5"), vec![start("datanode1", "exit 0")]);
        let local = prepared(directory.path());
        cluster.supervise(&local, |_| panic!("nothing has ended")).await.unwrap();
        cluster.namenode.terminate();
        let error = eventually("the end", async || cluster.supervise(&local, |_| {}).await.err()).await.to_string();
        assert!(error.contains("namenode ended with exit status: 5"), "{error}");
        cluster.stop(|_| {}).unwrap();
    }

    #[tokio::test]
    async fn stopped_datanode_is_not_restarted() {
        let directory = tempfile::tempdir().unwrap();
        let start = |role: &str, at_the_end: &str| process(directory.path(), role, at_the_end);
        let (namenode, one, two) =
            (start("namenode", "exit 0"), start("datanode1", "exit 0"), start("datanode2", "exit 0"));
        let mut cluster = cluster(namenode, vec![one, two]);
        let local = prepared(directory.path());
        cluster.datanodes[1].terminate();
        let said = eventually("the end of a DataNode", async || {
            let mut said = None;
            cluster.supervise(&local, |what| said = said.take().or(Some(what.to_owned()))).await.unwrap();
            said
        })
        .await;
        for part in ["datanode2", "left out: it was asked to stop. 1 DataNodes"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        cluster.supervise(&local, |what| panic!("said again: {what}")).await.unwrap();
        cluster.datanodes[0].terminate();
        let error = eventually("the end", async || cluster.supervise(&local, |_| {}).await.err()).await.to_string();
        assert!(error.starts_with("no DataNode is left"), "{error}");
        cluster.stop(|_| {}).unwrap();
    }

    #[test]
    fn repeatedly_failing_datanode_is_not_restarted() {
        use std::os::unix::process::ExitStatusExt;
        let (killed, now) = (ExitStatus::from_raw(9), Instant::now());
        let mut ends = RestartHistory::default();
        for _ in 0..RESTARTS_MAX {
            ends.record_exit(killed, now).unwrap();
        }
        assert!(ends.record_exit(killed, now + Duration::from_secs(1)).unwrap_err().contains("3 times within 60 s"));
        // Earlier restarts outside the window do not count.
        ends.record_exit(killed, now + RESTARTS_WITHIN).unwrap();
        assert!(ends.record_exit(ExitStatus::from_raw(0), now).unwrap_err().contains("asked to stop"));
    }
}
