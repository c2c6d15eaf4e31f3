//! Load generators for users: they write and read files like many clients, on any cluster. Without a given cluster they
//! start a small Hearth cluster. If Apache Hadoop is available, they also start an Apache HDFS cluster with its own
//! client and alternate between both in one run.

mod saturate;
mod task;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use hearth_testkit::{Apache, Implementation};

use crate::amounts::{at_least_one, bar, size, spelled};
use crate::bench_client::{BenchClient, System, file_name};
use crate::measure::ServerClock;
use crate::record::{Figures, Recording};
use crate::watch::watched;
use crate::{chart, memory};
pub use saturate::Saturate;
use task::{Kind, Outcome, Task};

const GB: f64 = 1e9;
const MIB: f64 = (1 << 20) as f64;

/// Default block size of clusters that are started here.
const BLOCK_BYTES: u64 = 64 << 20;

/// Interval between updates of the progress bar.
const LOOK: Duration = Duration::from_millis(100);

/// Path of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PathChoice {
    /// The DataNode's own memory, on its machine
    Local,
    /// One-sided, by RDMA
    #[value(alias = "one-sided")]
    Rdma,
    /// Packets over TCP
    #[value(alias = "packets")]
    Tcp,
}

impl PathChoice {
    /// Value of `hearth.client.paths` for this path.
    fn key(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Rdma => "one-sided",
            Self::Tcp => "packets",
        }
    }

    fn client(self) -> &'static str {
        match self {
            Self::Local => "own, local",
            Self::Rdma => "own, one-sided",
            Self::Tcp => "own, packets",
        }
    }
}

/// Options of all generators: the cluster, the directory in it, and the output of the figures.
#[derive(clap::Args)]
pub struct Target {
    /// Use a running cluster, e.g. hdfs://host:8020; without a value, the one of core-site.xml. Without this option,
    /// start a Hearth cluster and an Apache cluster
    #[arg(long, value_name = "URI")]
    fs: Option<Option<String>>,
    /// Directory for the files. `write` leaves its files there; the others first write files that are missing
    #[arg(long, default_value = "/hearth-bench")]
    path: String,
    /// Replicas of each block [default: as the cluster is configured; 1 in a started cluster]
    #[arg(long)]
    replication: Option<u16>,
    /// Bytes of a block, e.g. 128m [default: as the cluster is configured; 64m in a started cluster]
    #[arg(long, value_parser = size)]
    block_size: Option<u64>,
    /// Use only this path, and fail if it is not available [default: the shortest; in a started cluster also TCP]
    #[arg(long, value_enum)]
    path_choice: Option<PathChoice>,
    /// Number of runs [default: 1 with --fs, else 3 after a warm-up run]
    #[arg(long, value_parser = at_least_one::<usize>)]
    runs: Option<usize>,
    /// Leave out Apache's servers and client
    #[arg(long)]
    no_apache: bool,
    /// Print the figures as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Remove the files at the end, and the directory if it is then empty
    #[arg(long)]
    clean: bool,
    #[command(flatten)]
    recording: Recording,
}

/// Number of clients and files, and their sizes.
#[derive(clap::Args)]
struct Shape {
    /// Bytes of each file, e.g. 64m
    #[arg(long, default_value = "256m", value_parser = size)]
    size: u64,
    /// Number of clients, each with its own connections
    #[arg(long, default_value_t = 1, value_parser = at_least_one::<usize>)]
    clients: usize,
    /// Number of concurrent threads of each client
    #[arg(long, default_value_t = 4, value_parser = at_least_one::<usize>)]
    threads: usize,
    /// Number of files [default: one for each thread of all clients]
    #[arg(long, value_parser = at_least_one::<usize>)]
    files: Option<usize>,
}

/// Options of `write` and `read`: whole files, sequentially.
#[derive(clap::Args)]
pub struct Whole {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    shape: Shape,
    /// Bytes of one call
    #[arg(long, default_value = "1m", value_parser = size)]
    piece: u64,
}

#[derive(clap::Args)]
pub struct Pread {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    shape: Shape,
    /// Bytes of a read
    #[arg(long, default_value = "4k", value_parser = size)]
    piece: u64,
    /// Number of reads, over all threads
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one::<u64>)]
    reads: u64,
}

impl Whole {
    pub fn write(&self) -> Result<()> {
        generate(&self.target, &self.shape, Kind::Write, self.piece, 0)
    }

    pub fn read(&self) -> Result<()> {
        generate(&self.target, &self.shape, Kind::Read, self.piece, 0)
    }
}

impl Pread {
    pub fn run(&self) -> Result<()> {
        generate(&self.target, &self.shape, Kind::Pread, self.piece, self.reads)
    }
}

/// Participants of a measurement.
struct Testbed {
    /// Clusters that were started here. Empty if the user has given a cluster.
    systems: Vec<System>,
    /// Name of the user's cluster in the figures.
    name: String,
    parties: Vec<BenchClient>,
    /// At the end, the first client of each system removes the system's files.
    clean: bool,
    path: String,
}

impl Target {
    /// Returns whether the cluster was given by the user.
    fn is_given(&self) -> bool {
        self.fs.is_some()
    }

    /// Returns whether all systems of the chart take part.
    fn is_whole(&self) -> bool {
        !self.no_apache && self.path_choice.is_none()
    }

    fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.is_given() { 1 } else { 3 })
    }

    fn enter(&self) -> Result<Testbed> {
        let clean = self.clean && self.is_given();
        let path = self.path.trim_end_matches('/').to_owned();
        if let Some(uri) = &self.fs {
            let (mut configuration, user) = crate::config_and_user()?;
            if let Some(uri) = uri {
                configuration.set("fs.defaultFS", uri.clone());
            }
            let name = configuration.get(hearth_config::keys::FS_DEFAULT_FS)?;
            let (client, paths) = match self.path_choice {
                Some(choice) => (choice.client(), Some(choice.key())),
                None => ("own", None),
            };
            let party = BenchClient::with(0, configuration, user, client, paths)?;
            return Ok(Testbed { systems: Vec::new(), name, parties: vec![party], clean, path });
        }
        let (replication, block) = (self.replication.unwrap_or(1), self.block_size.unwrap_or(BLOCK_BYTES));
        let start = |make| System::start(make, usize::from(replication), block);
        let mut systems = vec![start(Implementation::Hearth)?];
        let mut parties = match self.path_choice {
            Some(choice) => vec![BenchClient::own(0, &systems[0], choice.client(), Some(choice.key()))?],
            None => vec![
                BenchClient::own(0, &systems[0], "own, packets", Some("packets"))?,
                BenchClient::own(0, &systems[0], "own, shortest path", None)?,
            ],
        };
        if !self.no_apache {
            match Apache::for_measuring() {
                Ok(_) => {
                    systems.push(start(Implementation::Apache)?);
                    parties.insert(0, BenchClient::java(1, &systems[1])?);
                }
                Err(error) => eprintln!("skipping Apache HDFS: {error:#}"),
            }
        }
        Ok(Testbed { systems, name: String::new(), parties, clean, path })
    }

    /// Prints the figures and records them, unless they were measured on a cluster given by the user.
    fn tell(&self, name: &str, workload: &str, figures: &Figures, columns: &[&str]) -> Result<()> {
        if self.json {
            println!("{}", figures.json(workload));
        } else {
            println!("{workload}");
            figures.print_wide(columns);
        }
        if !self.is_given() && self.recording.is_wanted() {
            self.recording.append(workload, &figures.0)?;
            if self.is_whole() {
                chart::write(name, workload, &figures.0)?;
            }
        }
        Ok(())
    }
}

impl Testbed {
    fn system(&self, party: usize) -> String {
        let system = self.systems.get(self.parties[party].system);
        system.map_or_else(|| self.name.clone(), |system| system.name.to_owned())
    }

    /// Returns the CPU clocks of the DataNodes that a party uses. Empty for a cluster given by the user.
    fn datanodes(&self, party: usize) -> Result<Vec<ServerClock>> {
        let Some(system) = self.systems.get(self.parties[party].system) else { return Ok(Vec::new()) };
        system.datanodes()?.into_iter().map(ServerClock::start).collect()
    }

    /// Writes the files of `task`, once for each system, if any is missing or too short.
    fn store(&mut self, task: &Task, configuration: &str) -> Result<()> {
        for system in 0..self.systems.len().max(1) {
            let Some(party) = self.parties.iter().position(|party| party.system == system) else { continue };
            if self.parties[party].has(task)? {
                continue;
            }
            eprintln!("{}: writing {} files of {}{configuration}", self.system(party), task.files, spelled(task.size));
            if !self.systems.is_empty() {
                memory::touch(task.files as u64 * task.size)?;
            }
            let write = Task { kind: Kind::Write, ..task.clone() };
            self.carry_out(party, &write)?;
        }
        Ok(())
    }

    /// Runs a task with a progress bar.
    fn carry_out(&mut self, party: usize, task: &Task) -> Result<Outcome> {
        let progress = AtomicU64::new(0);
        let bar = bar(&format!("{}: {}", self.system(party), task.kind.name()), task.bytes());
        let party = &mut self.parties[party];
        let look = |bar: &mut indicatif::ProgressBar| bar.set_position(progress.load(Ordering::Relaxed));
        let outcome = watched(LOOK, bar.clone(), look, || task.carry_out(party, &progress));
        bar.finish_and_clear();
        Ok(outcome?.0)
    }

    /// Removes a party's files, and waits until their replicas in memory are gone.
    fn remove(&mut self, party: usize, below: u64) -> Result<()> {
        let path = self.path.clone();
        self.parties[party].delete(&path)?;
        if self.systems.is_empty() { Ok(()) } else { memory::emptied(below) }
    }

    /// With --clean, removes the files of a load from the user's cluster, and their directory unless it contains other
    /// files.
    fn leave(mut self, files: usize) -> Result<()> {
        if !self.clean {
            return Ok(());
        }
        for index in 0..files {
            let file = format!("{}/{}", self.path, file_name(index));
            self.parties[0].delete(&file)?;
        }
        // The root directory is never deleted.
        if self.path.is_empty() { Ok(()) } else { self.parties[0].delete_if_empty(&self.path) }
    }
}

/// Runs `write`, `read` or `pread`.
fn generate(target: &Target, shape: &Shape, kind: Kind, piece: u64, reads: u64) -> Result<()> {
    let workers = (shape.clients.max(1), shape.threads.max(1));
    let task = Task {
        kind,
        directory: target.path.trim_end_matches('/').to_owned(),
        files: shape.files.unwrap_or(workers.0 * workers.1).max(1),
        size: shape.size,
        piece: usize::try_from(piece.min(shape.size)).context("piece is too large for this machine")?,
        reads,
        clients: workers.0,
        threads: workers.1,
        replication: target.replication,
        block_size: target.block_size,
    };
    let mut field = target.enter()?;
    let figures = measure(target, &mut field, &task);
    let place = field.place();
    // Also after a failure: written files must not stay in the user's cluster.
    let left = field.leave(task.files);
    let figures = figures?;
    let name = kind.name();
    let what = match kind {
        Kind::Pread => format!("{reads} reads of {} at random", spelled(task.piece as u64)),
        _ => format!("{} at once", spelled(task.piece as u64)),
    };
    let Task { files, clients, threads, .. } = task;
    let workload = format!(
        "{name} {files} files of {}, {what}, {clients} client{} with {threads} thread{}{}",
        spelled(task.size),
        if clients == 1 { "" } else { "s" },
        if threads == 1 { "" } else { "s" },
        place
    );
    target.tell(name, &workload, &figures, task::COLUMNS)?;
    left
}

/// Makes all runs of all parties, alternately.
fn measure(target: &Target, field: &mut Testbed, task: &Task) -> Result<Figures> {
    if task.kind != Kind::Write {
        field.store(task, "")?;
    }
    let mut figures = Figures::default();
    // In a started cluster, the first run only warms up.
    let first = usize::from(target.is_given());
    for run in first..=target.runs() {
        for party in 0..field.parties.len() {
            let mut warming = Figures::default();
            let into = if run == 0 { &mut warming } else { &mut figures };
            one(field, party, task, into)?;
        }
    }
    Ok(figures)
}

impl Testbed {
    /// Describes the cluster, for a workload's description.
    fn place(&self) -> String {
        match self.systems.len() {
            0 => format!("; {}", self.name),
            1 => format!("; {}", memory::place()),
            _ => format!("; {}; Apache's client in a warm JVM", memory::place()),
        }
    }
}

/// Makes one run of one party.
fn one(field: &mut Testbed, party: usize, task: &Task, figures: &mut Figures) -> Result<()> {
    let own = !field.systems.is_empty();
    let used = if own { memory::tmpfs_used()? } else { 0 };
    if own && task.kind == Kind::Write {
        memory::touch(task.bytes() * u64::from(task.replication.unwrap_or(1)))?;
    }
    let clocks = field.datanodes(party)?;
    let cpu = field.parties[party].cpu()?;
    let outcome = field.carry_out(party, task)?;
    let cpu = field.parties[party].cpu()? - cpu;
    let datanodes = clocks.iter().map(|clock| Ok(clock.elapsed()?.0)).sum::<Result<f64>>()?;
    let (system, client) = (field.system(party), field.parties[party].client);
    let gigabytes = outcome.bytes as f64 / GB;
    let mut add = |what: &str, unit, value| figures.add(task.kind.name(), &system, client, what, unit, value);
    add("throughput", "MB/s", outcome.bytes as f64 / 1e6 / outcome.seconds);
    add("operations", "/s", outcome.operations as f64 / outcome.seconds);
    for (what, value) in task::RANKS.iter().zip(outcome.ranks.into_iter().flatten()) {
        add(what.0, "us", value);
    }
    add("client CPU", "s/GB", cpu / gigabytes);
    if own {
        add("DataNode CPU", "s/GB", datanodes / gigabytes);
    }
    for (path, bytes) in outcome.by_path {
        add(&format!("by {path}"), "MiB", bytes as f64 / MIB);
    }
    if own && task.kind == Kind::Write {
        field.remove(party, used + task.bytes() / 2)?;
    }
    Ok(())
}
