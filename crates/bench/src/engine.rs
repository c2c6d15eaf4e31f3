//! Random reads through the storage engines: 4 KiB with their CRCs, from a data set that fits in memory and from one
//! that is four times as large.
//!
//! Measures the store itself, called as the DataNode calls it (`reader`, `read_at`, `checksums`), without a network.
//! All engines read the same directory, one after the other in each round. Each runs in its own process, whose memory
//! is limited by a cgroup of this run. The reference is a plain `pread` of 4 KiB from an open file, which no `pread`
//! engine can beat.

mod gets;
mod limit;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use hearth_testkit::Scratch;
use serde::{Deserialize, Serialize};

use crate::amounts::at_least_one;
use crate::chart::{self, curves};
use crate::record::{Figures, Recording};
use limit::MemoryLimit;

#[derive(clap::Args)]
pub struct Arguments {
    /// Memory limit of each engine, page cache included, in MiB
    #[arg(long, default_value_t = 256, value_parser = at_least_one::<u64>)]
    memory_mib: u64,
    /// Size of a replica in MiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Numbers of concurrent reader threads: a disk reaches its peak with several outstanding reads
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,16", value_parser = at_least_one::<usize>)]
    threads: Vec<usize>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<u64>)]
    seconds: u64,
    /// Number of runs
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Directory on a disk for the replicas
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    recording: Recording,
    /// One measurement, as JSON, to be made by this process
    #[arg(long, hide = true)]
    pub one: Option<String>,
}

/// System that reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum System {
    Mmap,
    File,
    Memory,
    Pread,
}

impl System {
    const ALL: [Self; 4] = [Self::Mmap, Self::File, Self::Memory, Self::Pread];

    fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::File => "file",
            Self::Memory => "memory",
            Self::Pread => "pread alone",
        }
    }
}

/// Task of one process.
#[derive(Clone, Serialize, Deserialize)]
struct Task {
    /// `None`: creates the replicas.
    system: Option<System>,
    /// Directory of the replicas.
    disk: PathBuf,
    /// Directory of this process alone, on a tmpfs.
    memory: PathBuf,
    /// Memory limit of the process in bytes.
    memory_bytes: u64,
    replicas: u64,
    replica_bytes: u64,
    threads: usize,
    seconds: u64,
    limit: Option<MemoryLimit>,
}

/// Result of one measurement.
#[derive(Clone, Serialize, Deserialize)]
struct Measured {
    gets_per_second: f64,
    /// CPU microseconds of one read, in user mode.
    user_us: f64,
    kernel_us: f64,
    /// Latency distribution as a curve: an upper bound in microseconds, and the fraction of all reads below it.
    latencies: Vec<(f64, f64)>,
}

impl Measured {
    fn percentile(&self, part: f64) -> f64 {
        self.latencies
            .iter()
            .find(|(_, below)| *below >= part)
            .or(self.latencies.last())
            .map_or(f64::NAN, |(us, _)| *us)
    }
}

const FITS: &str = "set of half of memory";
const LARGER: &str = "set of 4 times memory";

pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(task) = &arguments.one {
        return one(&serde_json::from_str(task).context("a task in JSON")?);
    }
    let memory_bytes = arguments.memory_mib << 20;
    let limit = MemoryLimit::new(memory_bytes);
    let limit = match limit {
        Ok(limit) => Some(limit),
        Err(error) => {
            println!("SKIPPED: sets larger than memory: cannot make a cgroup with a memory limit here ({error:#})");
            None
        }
    };
    let outcome = measure(arguments, memory_bytes, limit.as_ref());
    // The first failure is reported.
    outcome.and(limit.map_or(Ok(()), |limit| limit.remove()))
}

fn measure(arguments: &Arguments, memory_bytes: u64, limit: Option<&MemoryLimit>) -> Result<()> {
    let folder = Scratch::within(&arguments.dir, "hearth-bench-")?;
    let memory = Scratch::within(Path::new(crate::memory::TMPFS), "hearth-bench-")?;
    let replica_bytes = arguments.block_mib << 20;
    let mut works = vec![(FITS, memory_bytes / 2)];
    if limit.is_some() {
        works.push((LARGER, memory_bytes * 4));
    }
    let mut figures = Figures::default();
    let mut curves_of = Vec::new();
    for (work, bytes) in works {
        let task = Task {
            system: None,
            disk: folder.path().join(work.replace(' ', "-")),
            memory: memory.path().to_owned(),
            memory_bytes,
            replicas: (bytes / replica_bytes).max(1),
            replica_bytes,
            threads: 1,
            seconds: arguments.seconds,
            limit: None,
        };
        eprintln!("{work}: {} replicas of {} MiB", task.replicas, arguments.block_mib);
        start(&task)?;
        for run in 1..=arguments.runs {
            for system in System::ALL {
                let mut peak = 0.0_f64;
                for threads in &arguments.threads {
                    eprintln!("{work}, run {run} of {}: {}, {threads} threads", arguments.runs, system.name());
                    forget(&task.disk)?;
                    let task = Task { system: Some(system), threads: *threads, limit: limit.cloned(), ..task.clone() };
                    let said = start(&task)?;
                    let measured: Measured =
                        serde_json::from_str(&said).context("cannot parse the result of a measurement")?;
                    let client = format!("{threads} threads");
                    let mut add =
                        |what: &str, unit, value| figures.add(work, system.name(), &client, what, unit, value);
                    add("throughput", "1000/s", measured.gets_per_second / 1000.0);
                    add("user CPU a get", "us", measured.user_us);
                    add("kernel CPU a get", "us", measured.kernel_us);
                    for (what, part) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
                        add(what, "us", measured.percentile(part));
                    }
                    peak = peak.max(measured.gets_per_second);
                    if run == arguments.runs && *threads == arguments.threads[0] {
                        curves_of.push((work, system, measured));
                    }
                }
                figures.add(work, system.name(), "", "peak throughput", "1000/s", peak / 1000.0);
            }
        }
        std::fs::remove_dir_all(&task.disk).context("removing the replicas")?;
    }
    figures.print();
    print_goals(&figures);
    if arguments.recording.is_wanted() {
        let workload = format!(
            "engine 4 KiB gets, {} MiB of memory, replicas of {} MiB",
            arguments.memory_mib, arguments.block_mib
        );
        arguments.recording.append(&workload, &figures.0)?;
        draw(&workload, &figures, &curves_of)?;
    }
    Ok(())
}

/// Runs `task` in a separate process. Returns its output.
fn start(task: &Task) -> Result<String> {
    let program = std::env::current_exe().context("cannot find the running program")?;
    // The arguments of this process up to the workload's name, also if the workload was started by another subcommand.
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let ours = words.iter().position(|word| word == "engine").context("this is `bench engine`")?;
    let output = Command::new(program)
        .args(&words[..=ours])
        .args(["--one", &serde_json::to_string(task)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start a measurement")?;
    ensure!(output.status.success(), "a measurement ended with {}", output.status);
    for entry in std::fs::read_dir(&task.memory)? {
        let path = entry?.path();
        std::fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    String::from_utf8(output.stdout).context("a measurement answers in JSON")
}

/// Runs one task in this process.
fn one(task: &Task) -> Result<()> {
    if let Some(limit) = &task.limit {
        limit.enter()?;
    }
    match task.system {
        None => gets::fill(task),
        Some(system) => {
            println!("{}", serde_json::to_string(&gets::measure(task, system)?)?);
            Ok(())
        }
    }
}

/// Drops the cached pages of all files below `dir`, because cached pages are charged to the process that reads them
/// next.
fn forget(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else {
            let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

fn draw(title: &str, figures: &Figures, measured: &[(&str, System, Measured)]) -> Result<()> {
    let shown: Vec<_> = figures
        .0
        .iter()
        .filter(|figure| figure.client.is_empty() || (figure.client == "1 threads" && figure.what != "throughput"))
        .cloned()
        .collect();
    chart::write("engine", title, &shown)?;
    for (work, name) in [(FITS, "engine-latency"), (LARGER, "engine-latency-larger")] {
        // The last 0.1 % would compress the rest of the curve at the left.
        let until = measured
            .iter()
            .filter(|(of, _, _)| *of == work)
            .map(|(_, _, measured)| measured.percentile(0.98))
            .fold(0.0, f64::max);
        let curves: Vec<curves::Curve> = measured
            .iter()
            .filter(|(of, _, _)| *of == work)
            .map(|(_, system, measured)| {
                let points = measured.latencies.iter().take_while(|(us, _)| *us <= until);
                let points = std::iter::once((0.0, 0.0)).chain(points.map(|(us, part)| (*us, part * 100.0)));
                curves::Curve { name: system.name().to_owned(), points: points.collect() }
            })
            .collect();
        if !curves.is_empty() {
            let axes = curves::Axes { x: "us", y: "% of the gets took no longer" };
            curves::write(name, &format!("{title}; {work}, one thread"), &axes, &curves)?;
        }
    }
    Ok(())
}

/// Prints the project's goals for this workload with the measured values.
fn print_goals(figures: &Figures) {
    let peak = |work, system: System| figures.median(work, system.name(), "", "peak throughput");
    for (what, ours, base, goal) in [
        (
            "fits memory: mmap's peak throughput to pread's (file)",
            peak(FITS, System::Mmap),
            peak(FITS, System::File),
            1.4,
        ),
        (
            "4 times memory: file's peak throughput to mmap's",
            peak(LARGER, System::File),
            peak(LARGER, System::Mmap),
            1.0,
        ),
    ] {
        if let (Some(ours), Some(base)) = (ours, base) {
            println!("{what}: {:.2} (goal: at least {goal})", ours / base);
        }
    }
}
