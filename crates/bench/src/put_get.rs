//! One large file stored and fetched with replication 1, with its data on a tmpfs. Every client is measured with
//! Apache's servers, with Hearth's, and (for the DataNode's CPU) with a minimal DataNode in C. The systems alternate
//! within each run, memory is touched before each measurement, and medians are reported.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use hearth_testkit::{Apache, Cluster, ClusterSpec, Content, Driver, Implementation, Scratch, hearth_program, usage};
use serde_json::json;

use crate::amounts::at_least_one;
use crate::measure::{self, ServerClock, Timing};
use crate::minimal::MinimalDatanode;
use crate::record::{Figures, Recording};
use crate::{chart, memory};

#[derive(clap::Args)]
pub struct Arguments {
    /// Size of the file in MiB
    #[arg(long, default_value_t = 2048, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of a block in MiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Number of runs
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Systems to measure; all by default
    #[arg(long, value_delimiter = ',')]
    systems: Vec<SystemKind>,
    /// Clients to measure; all by default
    #[arg(long, value_delimiter = ',')]
    clients: Vec<Client>,
    #[command(flatten)]
    recording: Recording,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SystemKind {
    Apache,
    Hearth,
    Minimal,
}

/// Client that stores and fetches.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Client {
    /// `hdfs dfs`, with a new JVM for each command
    HdfsDfs,
    /// `hdfs dfs` with the sleep in close() shortened to 2 ms
    HdfsDfsTuned,
    /// Apache's FileSystem in a warm JVM
    WarmJava,
    /// hdfs-native from Python
    HdfsNative,
    /// `hearth fs`, over the shortest path
    HearthFs,
    /// `hearth fs` over TCP
    HearthFsPackets,
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::HdfsDfs => "hdfs dfs",
            Self::HdfsDfsTuned => "hdfs dfs, close delay 2 ms",
            Self::WarmJava => "warm JVM",
            Self::HdfsNative => "hdfs-native",
            Self::HearthFs => "hearth fs",
            Self::HearthFsPackets => "hearth fs, packets",
        }
    }
}

/// Shortens the sleep of Apache's client in close(); see docs/benchmarks.
const TUNED: (&str, &str) = ("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "2");

struct System {
    which: SystemKind,
    cluster: Cluster,
    minimal: Option<MinimalDatanode>,
    warm_java: Option<Driver>,
    native: Option<Driver>,
    tuned_conf: PathBuf,
    apache: Apache,
    /// Directory of the DataNode's domain socket.
    _sockets: tempfile::TempDir,
}

impl System {
    fn name(&self) -> &'static str {
        match self.which {
            SystemKind::Apache => "Apache",
            SystemKind::Hearth => "Hearth",
            SystemKind::Minimal => "minimal C",
        }
    }

    fn start(which: SystemKind, arguments: &Arguments) -> Result<Self> {
        let make = if which == SystemKind::Hearth { Implementation::Hearth } else { Implementation::Apache };
        let mut spec = ClusterSpec::new(make, make)
            .set("dfs.blocksize", arguments.block_mib << 20)
            .set("dfs.heartbeat.interval", 3)
            // The default: a stopped DataNode counts as live for more than ten minutes.
            .set("dfs.namenode.heartbeat.recheck-interval", 300_000)
            .for_measuring();
        let sockets = tempfile::tempdir().context("a directory for sockets")?;
        if make == Implementation::Apache {
            // Hearth has its memory on the tmpfs, and its disk directory on a disk.
            spec = spec.within(Path::new(memory::TMPFS));
        } else {
            // The same settings as `hearth up`. Apache's client still uses TCP, because it uses sockets only if
            // configured to.
            spec = spec
                .set("dfs.domain.socket.path", sockets.path().join("dn_PORT").display())
                .set("hearth.local.write.trusted", true);
        }
        let cluster = spec.start()?;
        let tuned_conf = cluster.conf_with("tuned-conf", &[TUNED])?;
        let apache = Apache::for_measuring()?;
        Ok(Self { which, cluster, minimal: None, warm_java: None, native: None, tuned_conf, apache, _sockets: sockets })
    }

    fn datanode(&self) -> Result<u32> {
        match &self.minimal {
            Some(minimal) => Ok(minimal.id()),
            None => self.cluster.datanodes[0].id(),
        }
    }

    fn warm_java(&mut self) -> Result<&mut Driver> {
        if self.warm_java.is_none() {
            let mut java = Driver::java(&self.apache, &self.tuned_conf)?;
            // Warms up until the JIT compiler has seen both directions.
            java.call("store", json!({"path": "/warm", "seed": 1, "length": 256 << 20}))?;
            java.call("cat", json!({"path": "/warm"}))?;
            java.call("delete", json!({"path": "/warm"}))?;
            self.warm_java = Some(java);
        }
        Ok(self.warm_java.as_mut().expect("made above"))
    }

    fn native(&mut self) -> Result<&mut Driver> {
        if self.native.is_none() {
            self.native = Some(Driver::python(self.cluster.conf())?);
        }
        Ok(self.native.as_mut().expect("made above"))
    }

    fn hdfs_dfs(&self, tuned: bool, arguments: [&str; 3]) -> Command {
        let conf = if tuned { self.tuned_conf.as_path() } else { self.cluster.conf() };
        let mut command = self.apache.java(conf, "org.apache.hadoop.fs.FsShell");
        command.args(arguments);
        command
    }

    fn hearth_fs(&self, client: Client, arguments: [&str; 3]) -> Result<Command> {
        let mut command = Command::new(hearth_program()?);
        command.arg("fs").env("HADOOP_CONF_DIR", self.cluster.conf());
        if client == Client::HearthFsPackets {
            command.args(["-D", "hearth.client.paths=packets"]);
        }
        command.args(arguments);
        Ok(command)
    }

    fn put(&mut self, client: Client, local: &str, path: &str) -> Result<Timing> {
        let arguments = ["-put", local, path];
        match client {
            Client::HdfsDfs => measure::command(&mut self.hdfs_dfs(false, arguments)),
            Client::HdfsDfsTuned => measure::command(&mut self.hdfs_dfs(true, arguments)),
            Client::HearthFs | Client::HearthFsPackets => measure::command(&mut self.hearth_fs(client, arguments)?),
            Client::WarmJava => call(self.warm_java()?, "put", local, path),
            Client::HdfsNative => call(self.native()?, "put", local, path),
        }
    }

    fn get(&mut self, client: Client, path: &str, local: &str) -> Result<Timing> {
        let arguments = ["-get", path, local];
        match client {
            Client::HdfsDfs => measure::command(&mut self.hdfs_dfs(false, arguments)),
            Client::HdfsDfsTuned => measure::command(&mut self.hdfs_dfs(true, arguments)),
            Client::HearthFs | Client::HearthFsPackets => measure::command(&mut self.hearth_fs(client, arguments)?),
            Client::WarmJava => call(self.warm_java()?, "get", local, path),
            Client::HdfsNative => call(self.native()?, "get", local, path),
        }
    }
}

fn call(driver: &mut Driver, operation: &str, local: &str, path: &str) -> Result<Timing> {
    measure::in_process(driver.id(), || {
        driver.call(operation, json!({"path": path, "local": local}))?;
        Ok(())
    })
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let chosen = |which: SystemKind| arguments.systems.is_empty() || arguments.systems.contains(&which);
    let clients: Vec<Client> = Client::value_variants()
        .iter()
        .copied()
        .filter(|client| arguments.clients.is_empty() || arguments.clients.contains(client))
        .collect();
    let bytes = arguments.mib << 20;
    let scratch = Scratch::within(Path::new(memory::TMPFS), "hearth-bench-")?;
    let source = scratch.path().join("source");
    let source_text = source.to_str().context("a path of text")?.to_owned();
    let back = scratch.path().join("back");
    let back_text = back.to_str().context("a path of text")?.to_owned();
    let content = Content::new(2048);
    let digest = content.sha256(0, bytes);
    let mut figures = Figures::default();

    let mut systems = Vec::new();
    for which in [SystemKind::Apache, SystemKind::Hearth].into_iter().filter(|which| chosen(*which)) {
        let started = Instant::now();
        let system = System::start(which, arguments)?;
        eprintln!("{} is up after {:.1} s", system.name(), started.elapsed().as_secs_f64());
        idle_memory(&system, &mut figures)?;
        systems.push(system);
    }
    content.write_file(&source, bytes)?;
    let mut minimal = None;
    if chosen(SystemKind::Minimal) {
        minimal = Some(start_minimal(arguments, &source_text)?);
    }

    for run in 1..=arguments.runs {
        for client in &clients {
            for system in &mut systems {
                if matches!(client, Client::HearthFs | Client::HearthFsPackets) && system.which != SystemKind::Hearth {
                    continue;
                }
                eprintln!("run {run} of {}: {} with {}", arguments.runs, system.name(), client.name());
                let used = memory::tmpfs_used()?;
                // Done after the warm clients are warm, outside of the measurement.
                match client {
                    Client::WarmJava => drop(system.warm_java()?),
                    Client::HdfsNative => drop(system.native()?),
                    _ => {}
                }
                memory::touch(bytes)?;
                measured(&mut figures, system, "put", *client, |system| system.put(*client, &source_text, "/file"))?;
                memory::touch(bytes)?;
                measured(&mut figures, system, "get", *client, |system| system.get(*client, "/file", &back_text))?;
                if run == 1 {
                    same_content(&back, &digest)?;
                }
                std::fs::remove_file(&back).with_context(|| format!("cannot remove {back_text}"))?;
                system.warm_java()?.call("delete", json!({"path": "/file"}))?;
                memory::emptied(used + bytes / 2)?;
            }
        }
        if let Some(system) = &mut minimal {
            eprintln!("run {run} of {}: the minimal datanode", arguments.runs);
            minimal_run(system, &mut figures, &source_text, &back_text, bytes)?;
            std::fs::remove_file(&back).with_context(|| format!("cannot remove {back_text}"))?;
        }
    }
    for system in systems.iter_mut().filter(|system| system.which == SystemKind::Hearth) {
        flush(system, &mut figures, &source_text)?;
    }

    figures.print();
    print_goals(&figures);
    if arguments.recording.is_wanted() {
        let workload = format!(
            "put-get {} MiB, blocks of {} MiB, replication 1; {}",
            arguments.mib,
            arguments.block_mib,
            memory::place()
        );
        arguments.recording.append(&workload, &figures.0)?;
        // Draws the chart only if all systems and clients were measured.
        if arguments.systems.is_empty() && arguments.clients.is_empty() {
            chart::write("put-get", &workload, &figures.0)?;
        }
    }
    Ok(())
}

/// Measures one direction with one client.
fn measured(
    figures: &mut Figures,
    system: &mut System,
    work: &str,
    client: Client,
    act: impl FnOnce(&mut System) -> Result<Timing>,
) -> Result<()> {
    let datanode = ServerClock::start(system.datanode()?)?;
    let namenode = ServerClock::start(system.cluster.namenode.id()?)?;
    let took = act(system)?;
    let (datanode_cpu, _) = datanode.elapsed()?;
    let (namenode_cpu, _) = namenode.elapsed()?;
    let name = system.name();
    for (what, value) in [
        ("wall", took.wall),
        ("client CPU", took.client_cpu),
        ("DataNode CPU", datanode_cpu),
        ("NameNode CPU", namenode_cpu),
    ] {
        figures.add(work, name, client.name(), what, "s", value);
    }
    Ok(())
}

/// Resident memory of servers that have not served anything yet.
fn idle_memory(system: &System, figures: &mut Figures) -> Result<()> {
    std::thread::sleep(Duration::from_secs(2));
    for (what, process) in [("NameNode", system.cluster.namenode.id()?), ("DataNode", system.datanode()?)] {
        let resident = usage(process)?.resident as f64 / f64::from(1 << 20);
        figures.add("idle", system.name(), "", &format!("{what} memory"), "MiB", resident);
    }
    Ok(())
}

/// Starts Apache's NameNode with the file stored, and replaces its DataNode by the one in C.
fn start_minimal(arguments: &Arguments, source: &str) -> Result<System> {
    let mut system = System::start(SystemKind::Minimal, arguments)?;
    system.put(Client::HdfsDfs, source, "/file")?;
    system.minimal = Some(MinimalDatanode::replace(&mut system.cluster)?);
    Ok(system)
}

fn minimal_run(system: &mut System, figures: &mut Figures, source: &str, back: &str, bytes: u64) -> Result<()> {
    memory::touch(bytes)?;
    measured(figures, system, "get", Client::HdfsDfs, |system| system.get(Client::HdfsDfs, "/file", back))?;
    // No NameNode gets reports of blocks that the minimal DataNode has received, so a second block could not be
    // allocated. So the whole file is one block, and it is abandoned after the last acknowledgement.
    let mut java = Driver::java(&system.apache, system.cluster.conf())?;
    java.call("create", json!({"path": "/written", "handle": "out", "blockSize": bytes}))?;
    memory::touch(bytes)?;
    let datanode = ServerClock::start(system.datanode()?)?;
    java.call("pour", json!({"handle": "out", "local": source}))?;
    java.call("hflush", json!({"handle": "out"}))?;
    figures.add("put", system.name(), Client::HdfsDfs.name(), "DataNode CPU", "s", datanode.elapsed()?.0);
    java.kill();
    system.minimal.as_ref().context("it was started")?.forget_written()
}

/// Measures the CPU of the flusher for the whole file, which it copies to disk after the write.
fn flush(system: &mut System, figures: &mut Figures, source: &str) -> Result<()> {
    eprintln!("waiting for the flusher");
    let datanode = ServerClock::start(system.datanode()?)?;
    system.put(Client::HdfsDfs, source, "/flushed")?;
    figures.add("put", system.name(), "", "flusher CPU", "s", datanode.flushed()?);
    Ok(())
}

fn same_content(path: &Path, digest: &str) -> Result<()> {
    let output = Command::new("sha256sum").arg(path).output().context("cannot start sha256sum")?;
    anyhow::ensure!(String::from_utf8_lossy(&output.stdout).starts_with(digest), "what came back differs");
    Ok(())
}

/// Prints the project's goals for this workload with the measured values.
fn print_goals(figures: &Figures) {
    let dfs = Client::HdfsDfs.name();
    let own = Client::HearthFs.name();
    let median = |work, system, client, what| figures.median(work, system, client, what);
    let datanode = |work, system| median(work, system, dfs, "DataNode CPU");
    let ratios = [
        ("get, DataNode CPU, to Apache's", datanode("get", "Hearth"), datanode("get", "Apache"), 0.5),
        ("get, DataNode CPU, to minimal C's", datanode("get", "Hearth"), datanode("get", "minimal C"), 1.3),
        ("put, DataNode CPU, to Apache's", datanode("put", "Hearth"), datanode("put", "Apache"), 1.0),
        ("put, DataNode CPU, to minimal C's", datanode("put", "Hearth"), datanode("put", "minimal C"), 1.4),
        (
            "put, own client's wall time, to Apache's",
            median("put", "Hearth", own, "wall"),
            median("put", "Apache", dfs, "wall"),
            0.5,
        ),
        (
            "get, own client's wall time, to Apache's",
            median("get", "Hearth", own, "wall"),
            median("get", "Apache", dfs, "wall"),
            0.5,
        ),
        (
            "put, own client's CPU, to Apache's",
            median("put", "Hearth", own, "client CPU"),
            median("put", "Apache", dfs, "client CPU"),
            1.0 / 3.0,
        ),
        (
            "get, own client's CPU, to Apache's",
            median("get", "Hearth", own, "client CPU"),
            median("get", "Apache", dfs, "client CPU"),
            1.0 / 3.0,
        ),
    ];
    println!();
    for (name, ours, theirs, goal) in ratios {
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let ratio = ours / theirs;
            let verdict = if ratio <= goal { "met" } else { "missed" };
            println!("{name:<42} {ours:6.2} / {theirs:6.2} = {ratio:5.2}  (at most {goal:.2}: {verdict})");
        }
    }
    let idle = |what| figures.median("idle", "Hearth", "", what);
    if let (Some(namenode), Some(datanode)) = (idle("NameNode memory"), idle("DataNode memory")) {
        let verdict = if namenode + datanode < 60.0 { "met" } else { "missed" };
        println!("idle memory of both servers: {:.0} MiB (below 60: {verdict})", namenode + datanode);
    }
}
