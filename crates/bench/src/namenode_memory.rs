//! Resident memory of a NameNode per file, and its start-up time with these files. Hearth's NameNode and Apache's get
//! the same files: empty ones, ones with one block, and ones with ten. Three simulated DataNodes without disks report
//! the replicas, as in Hadoop's NNThroughputBenchmark.
//!
//! For Hearth the kernel's VmRSS counts, as an operator sees it: including free memory in the allocator, with all
//! options at their defaults. For Apache the live objects after a full garbage collection count, which is less than a
//! JVM needs to run.

pub mod fill;
mod nodes;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_testkit::{Cluster, ClusterSpec, Implementation, usage};

use crate::amounts::at_least_one;
use crate::chart;
use crate::namenodes::Namenodes;
use crate::record::{Figure, Figures, Recording};
use fill::{Filler, Shape};

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of empty files, and of files with one block; a tenth of it have ten blocks. Before them, some uncounted
    /// files are created
    #[arg(long, default_value_t = 300_000, value_parser = at_least_one::<usize>)]
    files: usize,
    /// Number of runs, each on new NameNodes
    #[arg(long, default_value_t = 2, value_parser = at_least_one::<usize>)]
    runs: usize,
    #[command(flatten)]
    namenodes: Namenodes,
    #[command(flatten)]
    recording: Recording,
}

/// Number of blocks of a large file, to determine the memory per block.
const MANY: usize = 10;
/// Number of uncounted files: at least as many as the NameNode's retry cache has entries. That cache has a fixed
/// maximum, which must not count as memory of the files.
const WARM_MIN: usize = 210_000;
const EMPTY: &str = "an empty file";
const FILE: &str = "a file with one block, three replicas";
const LARGE: &str = "a file with ten blocks, three replicas";
const BLOCK: &str = "each further block";
const START: &str = "a start with all files";
/// Timeout for a NameNode's first answer after its start.
const START_WITHIN: Duration = Duration::from_secs(600);
const STOP_WITHIN: Duration = Duration::from_secs(120);
const MEMORY: &str = "memory";
const RESIDENT: &str = "resident";

/// Memory use of a NameNode at one moment, in bytes.
#[derive(Clone, Copy)]
struct MemoryUse {
    memory: f64,
    resident: f64,
}

impl MemoryUse {
    fn of(cluster: &Cluster, ask: impl Fn() -> Result<()>) -> Result<Self> {
        let process = cluster.namenode.id()?;
        if cluster.is_apache() {
            let memory = live_objects(process)?;
            return Ok(Self { memory, resident: usage(process)?.resident as f64 });
        }
        // Waits for work that continues after the last answer: changes move from the journal to the tables.
        std::thread::sleep(Duration::from_secs(3));
        // A thread's allocator takes back memory that other threads have freed only when that thread allocates.
        ask()?;
        let resident = usage(process)?.resident as f64;
        Ok(Self { memory: resident, resident })
    }

    fn since(self, before: Self, count: usize) -> Self {
        let each = |now: f64, before: f64| (now - before) / count as f64;
        Self { memory: each(self.memory, before.memory), resident: each(self.resident, before.resident) }
    }
}

/// Returns the bytes of all objects of a JVM that survive a full garbage collection.
fn live_objects(process: u32) -> Result<f64> {
    let output = Command::new("jcmd").args([&process.to_string(), "GC.class_histogram"]).output();
    let output = output.context("cannot run jcmd, which comes with a JDK (apt-get install openjdk-17-jdk-headless)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let total = text.lines().rev().find_map(|line| line.strip_prefix("Total"));
    let bytes = total.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    bytes.with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("jcmd {process} GC.class_histogram printed no total: {} {errors}", text.trim())
    })
}

fn one(arguments: &Arguments, (name, make): (&str, Implementation), disk: &Path, figures: &mut Figures) -> Result<()> {
    let spec = ClusterSpec::new(make, make).only_namenode().within(disk).for_measuring();
    let mut cluster = spec.start().with_context(|| format!("starting {name}'s NameNode"))?;
    let address = SocketAddr::from(([127, 0, 0, 1], cluster.namenode_rpc_port()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let filler = runtime.block_on(Filler::join(address))?;
    let fill = |shape: Shape| runtime.block_on(filler.fill(&format!("{name}: {shape}"), shape));
    let held = |cluster: &Cluster| MemoryUse::of(cluster, || runtime.block_on(filler.ask()));

    // Lets buffers, caches and the allocator's reserves reach their maximum size.
    let warm = Shape { directory: "warm", files: arguments.files.div_ceil(2).max(WARM_MIN), blocks: 1 };
    fill(warm)?;
    let mut before = held(&cluster)?;
    let shapes = arguments.shapes();
    let mut each = Vec::with_capacity(shapes.len());
    for shape in shapes {
        fill(shape)?;
        let after = held(&cluster)?;
        each.push(after.since(before, shape.files));
        before = after;
    }
    let mut add = |work: &str, held: MemoryUse| {
        figures.add(work, name, "", MEMORY, "bytes", held.memory);
        figures.add(work, name, "", RESIDENT, "bytes", held.resident);
    };
    let [empty, file, many] = each[..] else { unreachable!("there are three shapes") };
    add(EMPTY, empty);
    add(FILE, file);
    add(LARGE, many);
    let block = |many: f64, file: f64| (many - file) / (MANY - 1) as f64;
    add(BLOCK, MemoryUse { memory: block(many.memory, file.memory), resident: block(many.resident, file.resident) });

    cluster.namenode.stop(STOP_WITHIN)?;
    let began = Instant::now();
    cluster.start_namenode()?;
    runtime.block_on(filler.wait_for_answer(START_WITHIN))?;
    figures.add(START, name, "", "wall", "s", began.elapsed().as_secs_f64());
    figures.add(START, name, "", "resident in all", "bytes", held(&cluster)?.resident);
    Ok(())
}

impl Arguments {
    /// Returns the counted sets of files, in the order in which they are created.
    fn shapes(&self) -> [Shape; 3] {
        [
            Shape { directory: "empty", files: self.files, blocks: 0 },
            Shape { directory: "small", files: self.files, blocks: 1 },
            Shape { directory: "large", files: self.files.div_ceil(MANY), blocks: MANY },
        ]
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.files >= MANY, "--files {}: fewer than {MANY}", arguments.files);
    let disk = arguments.namenodes.disk()?;
    let mut figures = Figures::default();
    for _ in 0..arguments.runs {
        for (name, make) in arguments.namenodes.makes() {
            one(arguments, (name, make), &disk, &mut figures)?;
        }
    }
    let is_shown = |figure: &Figure| figure.what == MEMORY;
    let ratios = figures.ratios_to_apache(is_shown);
    figures.print();
    Figures(ratios.clone()).print();
    let workload = format!(
        "namenode-memory: {} files of one block, {} of {MANY}, {} empty, names of 20 bytes, three replicas each; \
         Apache's: what lives after a full collection",
        arguments.files,
        arguments.files.div_ceil(MANY),
        arguments.files
    );
    if arguments.recording.is_wanted() {
        arguments.recording.append(&workload, &[figures.0.as_slice(), &ratios].concat())?;
        if arguments.namenodes.are_both() {
            let shown: Vec<Figure> = figures.0.iter().filter(|figure| is_shown(figure)).cloned().collect();
            chart::write("namenode-memory", &workload, &shown)?;
        }
    }
    Ok(())
}
