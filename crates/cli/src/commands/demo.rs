//! `hearth demo [FILE]`: shows a newcomer what Hearth does. It starts a NameNode and three DataNodes in a temporary
//! directory, stores a file three times, and reads it back over every path. During one read it kills a DataNode. At the
//! end it prints a table of times and CPU costs.

mod cpu;
mod sample;
mod table;

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use hearth_client::FileSystem;
use hearth_config::parse;
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::configuration;
use crate::local_cluster::{LocalCluster, LocalClusterOptions, Process, ProcessCluster};
use sample::Hash;
use table::Row;

const DATANODES: usize = 3;
/// Memory needed besides the replicas and the file: for the processes, plus a reserve for the machine.
const SPARE_BYTES: u64 = 512 << 20;

#[derive(Args)]
pub struct DemoArguments {
    /// The file to store. Default: the demo makes a file of varied content.
    file: Option<PathBuf>,
    /// Size of the file that the demo makes (suffix k, m or g).
    #[arg(long, default_value = "1g", value_parser = parse::bytes, conflicts_with = "file")]
    size: u64,
    /// Keep the file system running afterwards, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// The tmpfs for the replicas, and for the file if the demo makes it.
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
}

pub fn run(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    // One thread: the servers end together with the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(show(arguments))
}

/// Runs the demo in its own directories. They are removed at the end, also after an interruption, because replicas in
/// memory would stay there otherwise.
async fn show(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let interrupted = interruption()?;
    tokio::pin!(interrupted);
    let scratch =
        tempfile::Builder::new().prefix("hearth-demo-").tempdir().context("cannot make a temporary directory")?;
    // The generated file lies in memory too, so that no disk is measured.
    let copies = tempfile::Builder::new()
        .prefix("hearth-demo-")
        .tempdir_in(&arguments.memory)
        .with_context(|| format!("cannot make a directory in {}", arguments.memory.display()))?;
    // Declared last, so that the processes end before their directories are removed.
    let processes = tokio::select! {
        code = &mut interrupted => {
            eprintln!("hearth: interrupted; removing what the demo made");
            return Ok(code);
        }
        processes = measure(arguments, scratch.path(), copies.path()) => processes?,
    };
    if !arguments.keep {
        println!("\nRun it again with --keep to leave the file system running, or start one of your own: hearth up");
        return Ok(ExitCode::SUCCESS);
    }
    println!("\nRunning until Ctrl-C (one DataNode was killed: hearth admin -report shows it).");
    // The user has asked for this end, so the signal's exit code is not reported.
    let _ = interrupted.await;
    processes.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// Starts to listen for SIGINT and SIGTERM. The future resolves with the first of them to the exit code that shells
/// use.
fn interruption() -> anyhow::Result<impl Future<Output = ExitCode>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => ExitCode::from(130),
            _ = terminate.recv() => ExitCode::from(143),
        }
    })
}

/// Stores and reads the file, and prints what that cost. The file system still runs afterwards. If dropped early, this
/// leaves no process behind.
async fn measure(arguments: &DemoArguments, scratch: &Path, copies: &Path) -> anyhow::Result<ProcessCluster> {
    let bytes = match &arguments.file {
        Some(file) => fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len(),
        None => arguments.size,
    };
    ensure!(bytes > 0, "the demo needs a file that is not empty: give another file");
    check_memory(&arguments.memory, bytes)?;

    println!("Hearth: an HDFS whose blocks live in memory. Every HDFS client can use it unchanged.\n");
    let cluster = LocalCluster::prepare(LocalClusterOptions {
        dir: scratch.join("hearth"),
        memory_root: copies.to_path_buf(),
        datanodes: DATANODES,
        port: 0,
        http_port: 0,
        settings: Vec::new(),
    })?;
    let started = Instant::now();
    let mut processes = ProcessCluster::start(&cluster, |_| {}).await?;
    let uri = format!("hdfs://{}", processes.rpc()?);
    done(&format!("a NameNode and {DATANODES} DataNodes, each in its own process, at {uri}"), started.elapsed());
    let client_conf = cluster.dir().join("conf");
    fs::create_dir_all(&client_conf).with_context(|| format!("cannot make {}", client_conf.display()))?;
    cluster.client(processes.rpc()?, processes.http()?).write_dir(&client_conf)?;

    let started = Instant::now();
    let (file, hash) = match &arguments.file {
        Some(file) => {
            let unreadable = || format!("cannot read {}", file.display());
            let content = tokio::fs::File::open(file).await.with_context(unreadable)?;
            let read = |bar: ProgressBar| sample::hash_of(content, move |count| bar.inc(count));
            let hash = with_bar("reading", bytes, read).await.with_context(unreadable)?;
            (file.clone(), hash)
        }
        None => {
            let file = copies.join("sample");
            let make = |bar: ProgressBar| sample::make(&file, bytes, move |count| bar.inc(count));
            let hash = with_bar("making a file", bytes, make).await;
            let hash = hash.with_context(|| format!("cannot write {}", file.display()))?;
            (file, hash)
        }
    };
    done(&format!("{} of data, SHA-256 {}…", human(bytes), hex(&hash[..8])), started.elapsed());

    let demo = Demo { uri: &uri, conf: &client_conf, bytes, hash };
    let mut rows = vec![demo.put(&file, &processes).await?];
    for (name, settings) in READ_PATHS {
        rows.push(demo.get(name, settings, &processes).await?);
    }
    rows.push(demo.read_while_one_dies(&cluster, &mut processes).await?);

    println!("\n{}", table::render(&rows));
    println!(
        "Every copy read back had the SHA-256 of the file written. CPU is user + system time, in units of 10 ms.\n"
    );
    point_at(&uri, &client_conf);
    Ok(processes)
}

/// Read paths of this build, and the client settings that force each of them.
const READ_PATHS: &[(&str, &[&str])] = &[
    ("read, local, from the DataNode's own memory", &["hearth.client.paths=local"]),
    ("read, TCP, by sendfile from the DataNode's memory", &["hearth.client.paths=packets"]),
];

struct Demo<'a> {
    uri: &'a str,
    conf: &'a Path,
    bytes: u64,
    hash: Hash,
}

const STORED: &str = "/demo/file";

impl Demo<'_> {
    async fn put(&self, file: &Path, processes: &ProcessCluster) -> anyhow::Result<Row> {
        self.client(&["-mkdir", "-p", "/demo"], &[]).await?;
        let file = file.to_str().context("the file's name is not UTF-8")?;
        let path = format!("write, local, and {} more replicas, memory to memory", DATANODES - 1);
        let row = self.measured(&path, processes, self.client(&["-put", "-f", file, STORED], &[])).await?;
        done(&format!("stored with {DATANODES} replicas"), Duration::from_secs_f64(row.seconds));
        Ok(row)
    }

    /// Reads through `hearth fs -cat` and hashes the output.
    async fn get(&self, path: &str, settings: &[&str], processes: &ProcessCluster) -> anyhow::Result<Row> {
        let mut found = Hash::default();
        let work = async {
            let mut client = self.command(&["-cat", STORED], settings)?.stdout(Stdio::piped()).spawn()?;
            let output = client.stdout.take().context("the client's output is piped")?;
            let read = |bar: ProgressBar| sample::hash_of(output, move |count| bar.inc(count));
            found = with_bar(path, self.bytes, read).await?;
            finished("-cat", client.wait().await?)
        };
        let row = self.measured(path, processes, work).await?;
        self.check(path, found)?;
        done(&format!("{path}: SHA-256 equal"), Duration::from_secs_f64(row.seconds));
        Ok(row)
    }

    /// Opens the file, reads half of it, kills the DataNode that serves the next byte, and continues to read.
    async fn read_while_one_dies(&self, cluster: &LocalCluster, processes: &mut ProcessCluster) -> anyhow::Result<Row> {
        let bar = bar("reading while a DataNode dies", self.bytes);
        let started = Instant::now();
        let files = FileSystem::connect(
            &cluster.client(processes.rpc()?, processes.http()?),
            Some(self.uri),
            &configuration::user(),
        )?;
        let mut reader = files.open(STORED).await?;
        let mut hash = Sha256::new();
        let mut killed = None;
        let mut position = 0u64;
        loop {
            let piece = reader.next().await?;
            let count = piece.len();
            if count == 0 {
                break;
            }
            hash.update(piece);
            reader.consume(count);
            position += count as u64;
            bar.inc(count as u64);
            // Data in memory is ready at once, so without this the task that handles an interruption would not run.
            tokio::task::yield_now().await;
            if killed.is_none() && position >= self.bytes / 2 {
                let at = position.min(self.bytes - 1);
                let located = files.locations(STORED, at, 1).await?;
                let serving = located
                    .blocks
                    .first()
                    .and_then(|block| block.locations.first())
                    .context("the NameNode reports no replica of the block being read")?;
                let victim = serving_process(&mut processes.datanodes, serving.id.transfer_port)?;
                victim.kill();
                killed = Some(victim.role().to_string());
            }
        }
        let found: Hash = hash.finalize().into();
        bar.finish_and_clear();
        let seconds = started.elapsed().as_secs_f64();
        let path = "read, local, a DataNode killed half way";
        self.check(path, found)?;
        let killed = killed.context("no DataNode was killed")?;
        done(
            &format!("{killed} killed (SIGKILL) after half of the file; the read continued from another replica"),
            started.elapsed(),
        );
        Ok(Row { path: path.to_string(), bytes: self.bytes, seconds, client_cpu: None, datanode_cpu: None })
    }

    fn check(&self, path: &str, found: Hash) -> anyhow::Result<()> {
        if found != self.hash {
            bail!("{path}: the bytes read back differ: SHA-256 {} instead of {}", hex(&found), hex(&self.hash));
        }
        Ok(())
    }

    async fn measured(
        &self,
        path: &str,
        processes: &ProcessCluster,
        work: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<Row> {
        let datanodes =
            || processes.datanodes.iter().map(|process| cpu::of_process(process.pid())).sum::<Option<f64>>();
        let (client_before, datanodes_before) = (cpu::of_ended_children(), datanodes());
        let started = Instant::now();
        work.await?;
        let seconds = started.elapsed().as_secs_f64();
        let used = |before: Option<f64>, after: Option<f64>| Some(after? - before?);
        Ok(Row {
            path: path.to_string(),
            bytes: self.bytes,
            seconds,
            client_cpu: used(client_before, cpu::of_ended_children()),
            datanode_cpu: used(datanodes_before, datanodes()),
        })
    }

    /// Runs `hearth fs` as a separate process, with its progress on this terminal.
    async fn client(&self, command: &[&str], settings: &[&str]) -> anyhow::Result<()> {
        let status = self.command(command, settings)?.status().await.context("cannot start hearth fs")?;
        finished(&command.join(" "), status)
    }

    fn command(&self, command: &[&str], settings: &[&str]) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("cannot find the executable of this program")?;
        let mut process = Command::new(program);
        process
            .arg("fs")
            .args(settings.iter().flat_map(|setting| ["-D", setting]))
            .args(command)
            .env("HADOOP_CONF_DIR", self.conf)
            .stdin(Stdio::null())
            // An interrupted demo does not wait for this process.
            .kill_on_drop(true);
        Ok(process)
    }
}

fn finished(command: &str, status: ExitStatus) -> anyhow::Result<()> {
    ensure!(status.success(), "hearth fs {command} failed: {status}");
    Ok(())
}

fn serving_process(datanodes: &mut [Process], transfer_port: u16) -> anyhow::Result<&mut Process> {
    datanodes
        .iter_mut()
        .find(|process| process.port("transfer").is_ok_and(|address| address.port() == transfer_port))
        .with_context(|| format!("no DataNode of the demo has port {transfer_port}"))
}

/// Checks that the replicas fit. The error names a size that would.
fn check_memory(memory: &Path, bytes: u64) -> anyhow::Result<()> {
    let room = hearth_datanode::available_memory(memory);
    // One for each replica, and one for the file.
    let copies = DATANODES as u64 + 1;
    let needed = bytes * copies + SPARE_BYTES;
    if needed > room {
        let fits = room.saturating_sub(SPARE_BYTES) / copies;
        bail!(
            "{} with {DATANODES} replicas needs {} of memory and {} has {} free: try --size {}m",
            human(bytes),
            human(needed),
            memory.display(),
            human(room),
            fits >> 20
        );
    }
    Ok(())
}

fn point_at(uri: &str, conf: &Path) {
    println!("Any HDFS client can use it while it runs:");
    println!("  hdfs dfs -fs {uri} -ls /demo");
    println!("  HADOOP_CONF_DIR={} hdfs dfs -cat {STORED} | sha256sum", conf.display());
    println!("  hearth fs -fs {uri} -ls /demo");
}

fn bar(what: &str, bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "  {msg} [{bar:40}] {bytes}/{total_bytes} {binary_bytes_per_sec}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style).with_message(what.to_string())
}

async fn with_bar<F: Future>(what: &str, bytes: u64, work: impl FnOnce(ProgressBar) -> F) -> F::Output {
    let bar = bar(what, bytes);
    let outcome = work(bar.clone()).await;
    bar.finish_and_clear();
    outcome
}

fn done(what: &str, took: Duration) {
    println!("  ✓ {what} ({:.2} s)", took.as_secs_f64());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit < UNITS.len() - 1 {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    use hearth_testkit::{Process, Scratch, hearth_program, wait_until};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns whether any process of a process group runs. A process that has ended but is not yet reaped by init does
    /// not count.
    fn runs(group: u32) -> bool {
        let group = group.to_string();
        let is_of_it = |stat: &str| {
            // After the name: state, parent, group. Source: proc(5).
            let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
            fields.next() != Some("Z") && fields.nth(1) == Some(group.as_str())
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok()).any(|stat| is_of_it(&stat))
    }

    fn is_empty(directory: &Path) -> bool {
        fs::read_dir(directory).unwrap().next().is_none()
    }

    #[test]
    fn an_interrupted_demo_leaves_nothing_behind() {
        // Repeated, because a demo that finished while this process was not scheduled was not interrupted.
        assert!((0..5).any(|_| is_interrupted_and_leaves_nothing_behind()));
    }

    /// Returns false if the demo had ended before the signal.
    fn is_interrupted_and_leaves_nothing_behind() -> bool {
        let memory = Scratch::within(Path::new("/dev/shm"), "hearth-test-").unwrap();
        let place = tempfile::tempdir().unwrap();
        let disk = place.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let mut command = Command::new(hearth_program().unwrap());
        command.args(["demo", "--size", "256m", "--memory"]).arg(memory.path()).env("TMPDIR", &disk);
        let mut demo = Process::start("demo", &mut command, &place.path().join("log")).unwrap();
        let group = demo.id();
        wait_until("the file to be made, which is stored next", PATIENCE, || {
            if demo.log_text().contains("of data, SHA-256") {
                return Ok(Some(()));
            }
            demo.check_alive()?;
            Ok(None)
        })
        .unwrap();
        let is_there = runs(group) && !is_empty(memory.path()) && !is_empty(&disk);

        // The signal goes to the demo only, not to its children.
        let status = demo.terminate(PATIENCE).unwrap();
        if status.success() {
            return false;
        }
        assert!(is_there);
        assert_eq!(status.code(), Some(143), "{}", demo.log_tail());
        wait_until("its processes to end", PATIENCE, || Ok((!runs(group)).then_some(()))).unwrap();
        assert!(is_empty(memory.path()) && is_empty(&disk), "{}", demo.log_tail());
        true
    }
}
