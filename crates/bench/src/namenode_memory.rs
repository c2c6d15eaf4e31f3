//! What a file and a block take of a NameNode's memory: ours and Apache's are given the same files, whose replicas three nodes without
//! disks report, as Hadoop's NNThroughputBenchmark has them. What counts of a JVM is what lives after a full collection, which is less than it
//! needs to run; of ours, what is resident, the allocator's room between things and all, but for pages that are empty: those go back to
//! the system at once here, which else happens when the allocator comes by, and none comes along because it is part of a huge one.

mod fill;
mod nodes;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_testkit::{Cluster, ClusterSpec, Make, usage};

use crate::amounts::at_least_one;
use crate::chart;
use crate::namenodes::Namenodes;
use crate::record::{Figure, Figures, Recording};
use fill::{Filler, Shape};

#[derive(clap::Args)]
pub struct Arguments {
    /// Files of one block each, behind half as many that are not counted; a tenth as many have ten blocks each
    #[arg(long, default_value_t = 300_000, value_parser = at_least_one::<usize>)]
    files: usize,
    /// How often all is measured, on new NameNodes
    #[arg(long, default_value_t = 2, value_parser = at_least_one::<usize>)]
    runs: usize,
    #[command(flatten)]
    namenodes: Namenodes,
    #[command(flatten)]
    recording: Recording,
}

/// A file of many blocks, to tell what each of them takes.
const MANY: usize = 10;
/// Of our NameNode's journal: its rest that is not in the tables is in memory.
const JOURNAL_BYTES: u64 = 1 << 20;
const FILE: &str = "a file with one block, three replicas";
const BLOCK: &str = "each further block";
const MEMORY: &str = "memory";
const RESIDENT: &str = "resident";

/// What a NameNode holds at one moment, in bytes.
#[derive(Clone, Copy)]
struct Held {
    memory: f64,
    resident: f64,
}

impl Held {
    fn of(cluster: &Cluster, ask: impl Fn() -> Result<()>) -> Result<Self> {
        let process = cluster.namenode.id()?;
        if cluster.is_apache() {
            let memory = live_objects(process)?;
            return Ok(Self { memory, resident: usage(process)?.resident as f64 });
        }
        // What is done behind the last answer is over: changes go from the journal into the tables.
        std::thread::sleep(Duration::from_secs(3));
        // A thread's allocator takes back what others have freed of its memory when that thread allocates.
        ask()?;
        let resident = usage(process)?.resident as f64;
        Ok(Self { memory: resident, resident })
    }

    fn since(self, before: Self, count: usize) -> Self {
        let each = |now: f64, before: f64| (now - before) / count as f64;
        Self { memory: each(self.memory, before.memory), resident: each(self.resident, before.resident) }
    }
}

/// Bytes of all objects of a JVM that live after a full collection.
fn live_objects(process: u32) -> Result<f64> {
    let output = Command::new("jcmd").args([&process.to_string(), "GC.class_histogram"]).output();
    let output = output.context("cannot run jcmd, which comes with a JDK (apt-get install openjdk-17-jdk-headless)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let total = text.lines().rev().find_map(|line| line.strip_prefix("Total"));
    let bytes = total.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    bytes.with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("jcmd {process} GC.class_histogram tells no total, but: {} {errors}", text.trim())
    })
}

fn one(arguments: &Arguments, (name, make): (&str, Make), disk: &Path, figures: &mut Figures) -> Result<()> {
    // Answers kept for repeated calls are no part of a file, nor are changes that are not in the tables yet: they take what they take
    // however many files there are.
    let spec = ClusterSpec::new(make, make).only_namenode().within(disk).for_measuring();
    let spec = spec.set("dfs.namenode.enable.retrycache", false).set("hearth.namenode.journal.bytes", JOURNAL_BYTES);
    // A huge page is resident as a whole, whatever of it was ever used: which places get one differs from run to run by more than
    // what is measured.
    let spec = spec.environment("MIMALLOC_PURGE_DELAY", "0").environment("MIMALLOC_ALLOW_THP", "0");
    let cluster = spec.start().with_context(|| format!("starting {name}'s NameNode"))?;
    let address = SocketAddr::from(([127, 0, 0, 1], cluster.namenode_rpc_port()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let filler = runtime.block_on(Filler::join(address))?;
    let fill = |shape: Shape| runtime.block_on(filler.fill(&format!("{name}: {shape}"), shape));

    let held = || Held::of(&cluster, || runtime.block_on(filler.ask()));

    // Buffers, caches and what the allocator keeps for the next call are as large as they get.
    fill(Shape { directory: "warm", files: arguments.files.div_ceil(2), blocks: 1 })?;
    let before = held()?;
    let small = Shape { directory: "small", files: arguments.files, blocks: 1 };
    fill(small)?;
    let with_small = held()?;
    let large = Shape { directory: "large", files: arguments.files.div_ceil(MANY), blocks: MANY };
    fill(large)?;
    let with_large = held()?;

    let file = with_small.since(before, small.files);
    let many = with_large.since(with_small, large.files);
    let mut add = |work: &str, held: Held| {
        figures.add(work, name, "", MEMORY, "bytes", held.memory);
        figures.add(work, name, "", RESIDENT, "bytes", held.resident);
    };
    let further = (MANY - 1) as f64;
    let block = |many: f64, file: f64| (many - file) / further;
    add(FILE, file);
    add(BLOCK, Held { memory: block(many.memory, file.memory), resident: block(many.resident, file.resident) });
    Ok(())
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
        "namenode-memory: {} files of one block, {} of {MANY}, three replicas each; Apache's: what lives after a full collection",
        arguments.files,
        arguments.files.div_ceil(MANY)
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
