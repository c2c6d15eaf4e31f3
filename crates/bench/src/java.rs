//! Reads and writes of Java programs on the DataNode's machine: Apache's client as it is, over TCP and by file descriptor, on
//! Apache's DataNode and on Hearth's, and with Hearth's jar, which gives it single blocks or reads and writes whole files. The
//! reference is a copy of the same bytes in the same JVM. The systems alternate within each run. All JVMs are warm, and the
//! data is in memory. With `--jobs`, whole jobs instead.

mod jobs;

use anyhow::{Context, Result, ensure};
use hearth_testkit::{Apache, Cluster, Driver, Implementation};
use serde_json::{Value, json};

use crate::amounts::at_least_one;
use crate::measure::{ServerClock, median};
use crate::record::{Figures, Recording};
use crate::{local_cluster, memory};

#[derive(clap::Args)]
pub struct Arguments {
    /// Size of the files that are read sequentially and written, in MiB
    #[arg(long, default_value_t = 128, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of the file that is read at random, in MiB
    #[arg(long, default_value_t = 512, value_parser = at_least_one::<u64>)]
    random_mib: u64,
    /// Size of a block in MiB
    #[arg(long, default_value_t = 128, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Number of random reads in each run
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one::<usize>)]
    random_reads: usize,
    /// Number of small files
    #[arg(long, default_value_t = 17_836, value_parser = at_least_one::<usize>)]
    files: usize,
    /// Number of threads that read small files
    #[arg(long, default_value_t = 60, value_parser = at_least_one::<usize>)]
    threads: usize,
    /// Number of runs
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Leave out Apache's servers
    #[arg(long)]
    no_apache: bool,
    #[command(flatten)]
    jobs: jobs::JobArguments,
    #[command(flatten)]
    recording: Recording,
}

const WHOLE: &str = "/whole";
const RANDOM: &str = "/random";
const SMALL: &str = "/small";
const WRITTEN: &str = "/written";

/// Sequential reads of the file in one measurement.
const READS: usize = 10;
/// Files written in one measurement.
const WRITES: usize = 5;
/// Bytes of one sequential read or write call, and of one random read.
const PIECE: usize = 128 << 10;
const RANDOM_BYTES: usize = 4096;
const SMALL_BYTES: u64 = 32 << 10;
/// Vectored reads in one measurement, ranges of each, and bytes of a range.
const VECTORED_READS: usize = 200;
const RANGES: usize = 64;
const RANGE_BYTES: usize = 64 << 10;

/// Files of one bulk call, and threads that make them.
const BATCH: usize = 500;
const BULK_THREADS: usize = 4;
/// Times that all small files are read in one measurement: once takes less than a second, in which the JIT compiler still
/// works.
const BULK_ROUNDS: usize = 7;

const SEQUENTIAL: &str = "read whole, 128 KiB at a time";
const AT_RANDOM: &str = "read 4 KiB at random";
const VECTORED: &str = "read 64 ranges of 64 KiB at once";
const SMALL_FILES: &str = "small files";
const WRITING: &str = "write whole, 128 KiB at a time";
const JAR: &str = "with Hearth's jar";
const FILES: &str = "with Hearth's file system";

struct System {
    name: &'static str,
    cluster: Cluster,
    /// Directory of the sockets. Only root and this user can write to its ancestors.
    _sockets: tempfile::TempDir,
}

impl System {
    fn start(make: Implementation, arguments: &Arguments) -> Result<Self> {
        let (cluster, sockets) = local_cluster::start(make, |spec| {
            spec.set("dfs.blocksize", arguments.block_mib << 20)
                // The JVMs and the DataNode have one user.
                .set("hearth.local.write.trusted", true)
                // See docs/benchmarks: the default makes writers of many small files sleep.
                .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
                .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
        })?;
        let system = Self { name: local_cluster::name(make), cluster, _sockets: sockets };
        let mut driver = Driver::java(&Apache::for_measuring()?, system.cluster.conf())?;
        for (path, mib, seed) in [(WHOLE, arguments.mib, 1), (RANDOM, arguments.random_mib, 2)] {
            memory::touch(mib << 20)?;
            driver.call("store", json!({"path": path, "seed": seed, "length": mib << 20}))?;
        }
        memory::touch(arguments.files as u64 * SMALL_BYTES)?;
        let small = json!({"dir": SMALL, "count": arguments.files, "threads": 12, "seed": 3, "length": SMALL_BYTES});
        driver.call("storeMany", small)?;
        Ok(system)
    }
}

/// A warm JVM with Apache's client.
struct Client {
    name: &'static str,
    driver: Driver,
    /// Reads go by file descriptor or from memory, not over TCP.
    is_local: bool,
}

/// What distinguishes a client: its name, whether it has the jar and reads locally, and settings.
type Kind = (&'static str, bool, bool, &'static [(&'static str, &'static str)]);

const TCP: Kind = ("TCP", false, false, &[("dfs.client.read.shortcircuit", "false")]);
const BY_DESCRIPTOR: Kind = ("short-circuit", false, true, &[("dfs.client.read.shortcircuit", "true")]);
/// The fastest settings known for short positioned reads.
const TUNED: Kind = (
    "short-circuit, tuned",
    false,
    true,
    &[
        ("dfs.client.read.shortcircuit", "true"),
        ("dfs.client.read.shortcircuit.buffer.size", "8192"),
        ("dfs.client.cache.readahead", "0"),
    ],
);
const WITH_JAR: Kind = (
    JAR,
    true,
    true,
    &[
        ("dfs.client.read.shortcircuit", "false"),
        ("dfs.client.replica.accessor.builder.classes", "io.hearth.hdfs.LocalReplicaAccessorBuilder"),
        ("hearth.java.required", "true"),
    ],
);

/// Whole files by Hearth's client, instead of single blocks.
const WITH_FILES: Kind = (
    FILES,
    true,
    true,
    &[
        ("fs.hdfs.impl", "io.hearth.hdfs.HearthFileSystem"),
        ("fs.AbstractFileSystem.hdfs.impl", "io.hearth.hdfs.HearthHdfs"),
        ("hearth.java.required", "true"),
    ],
);

impl Client {
    fn start(system: &System, kind: Kind, arguments: &Arguments) -> Result<Self> {
        let (name, has_jar, is_local, settings) = kind;
        let mut apache = Apache::for_measuring()?.with_native()?;
        if has_jar {
            apache = apache.with_hearth_jar()?;
        }
        let conf = system.cluster.conf_with(&name.replace([' ', ',', '\''], "-"), settings)?;
        let mut client = Self { name, driver: Driver::java(&apache, &conf)?, is_local };
        // Warms up until the JIT compiler has seen all of the code.
        let mut warming = Figures::default();
        client.measure(&mut warming, system, 0, arguments)?;
        Ok(client)
    }

    fn measure(&mut self, figures: &mut Figures, system: &System, run: usize, arguments: &Arguments) -> Result<()> {
        let clock = ServerClock::start(system.cluster.datanodes[0].id()?)?;
        let client_clock = ServerClock::start(self.driver.id())?;
        let answer = self.driver.call("timedReads", json!({"path": WHOLE, "piece": PIECE, "rounds": READS}))?;
        self.check(&answer)?;
        figures.add(SEQUENTIAL, system.name, self.name, "wall", "ms", median(&seconds(&answer)) * 1e3);
        figures.add(SEQUENTIAL, system.name, self.name, "client CPU of 10 reads", "s", client_clock.elapsed()?.0);
        figures.add(SEQUENTIAL, system.name, self.name, "DataNode CPU of 10 reads", "s", clock.elapsed()?.0);

        let random =
            json!({"path": RANDOM, "length": RANDOM_BYTES, "count": arguments.random_reads, "seed": run as u64});
        let answer = self.driver.call("timedPreads", random)?;
        self.check(&answer)?;
        for what in ["p50", "p99"] {
            let value = answer[what].as_f64().context("a number")?;
            figures.add(AT_RANDOM, system.name, self.name, what, "us", value);
        }

        let vectored = json!({"path": RANDOM, "ranges": RANGES, "length": RANGE_BYTES, "rounds": VECTORED_READS});
        let answer = self.driver.call("timedVectored", vectored)?;
        self.check(&answer)?;
        figures.add(VECTORED, system.name, self.name, "p50", "ms", median(&seconds(&answer)) * 1e3);

        let small =
            json!({"dir": SMALL, "count": arguments.files, "threads": arguments.threads, "length": SMALL_BYTES});
        let answer = self.driver.call("firstMany", small)?;
        self.check(&answer)?;
        let rate = |answer: &Value| -> Result<f64> {
            Ok(arguments.files as f64 / answer["seconds"].as_f64().context("a number")?)
        };
        figures.add(SMALL_FILES, system.name, self.name, "rate", "files/s", rate(&answer)?);
        if self.name == FILES {
            let bulk = json!({"dir": SMALL, "count": arguments.files, "threads": BULK_THREADS, "length": SMALL_BYTES,
                "batch": BATCH});
            let mut rates = Vec::new();
            for _ in 0..BULK_ROUNDS {
                let answer = self.driver.call("bulkMany", bulk.clone())?;
                let bytes = answer["bytes"].as_u64().context("a number of bytes")?;
                ensure!(bytes == arguments.files as u64 * SMALL_BYTES, "{bytes} bytes of small files");
                rates.push(rate(&answer)?);
            }
            figures.add(SMALL_FILES, system.name, self.name, "rate, by one call", "files/s", median(&rates));
        }
        self.measure_writes(figures, system, arguments)
    }

    /// Each file is deleted after its time was taken.
    fn measure_writes(&mut self, figures: &mut Figures, system: &System, arguments: &Arguments) -> Result<()> {
        memory::touch((WRITES as u64 * arguments.mib) << 20)?;
        let clock = ServerClock::start(system.cluster.datanodes[0].id()?)?;
        let client_clock = ServerClock::start(self.driver.id())?;
        let write = json!({"path": WRITTEN, "length": arguments.mib << 20, "piece": PIECE, "rounds": WRITES});
        let answer = self.driver.call("timedWrites", write)?;
        let stream = answer["stream"].as_str().context("a description")?;
        ensure!(stream.contains("by Hearth's client") == (self.name == FILES), "{} wrote by {stream}", self.name);
        figures.add(WRITING, system.name, self.name, "wall", "ms", median(&seconds(&answer)) * 1e3);
        figures.add(WRITING, system.name, self.name, "client CPU of 5 writes", "s", client_clock.elapsed()?.0);
        figures.add(WRITING, system.name, self.name, "DataNode CPU of 5 writes", "s", clock.elapsed()?.0);
        Ok(())
    }

    /// Checks that the bytes came over the named path: otherwise the figures would have the wrong name.
    fn check(&self, answer: &Value) -> Result<()> {
        let by_descriptor = answer["shortCircuit"].as_u64().context("a number of bytes")?;
        ensure!((by_descriptor > 0) == self.is_local, "{} read by another path: {answer}", self.name);
        Ok(())
    }
}

fn seconds(answer: &Value) -> Vec<f64> {
    answer["seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.jobs.jobs {
        return jobs::run(&arguments.jobs, arguments.no_apache, &arguments.recording);
    }
    let mut systems = vec![System::start(Implementation::Hearth, arguments)?];
    if !arguments.no_apache {
        systems.push(System::start(Implementation::Apache, arguments)?);
    }
    let mut clients = Vec::new();
    for system in &systems {
        let kinds: &[Kind] =
            if system.name == "Hearth" { &[TCP, WITH_JAR, WITH_FILES] } else { &[TCP, BY_DESCRIPTOR, TUNED] };
        for kind in kinds {
            clients.push((system, Client::start(system, *kind, arguments)?));
        }
    }
    let mut figures = Figures::default();
    for run in 1..=arguments.runs {
        eprintln!("run {run} of {}", arguments.runs);
        let (_, client) = &mut clients[0];
        let copied = client.driver.call("timedCopies", json!({"length": arguments.mib << 20, "rounds": READS}))?;
        figures.add(SEQUENTIAL, "memcpy", "", "wall", "ms", median(&seconds(&copied)) * 1e3);
        for (system, client) in &mut clients {
            client.measure(&mut figures, system, run, arguments)?;
        }
    }
    figures.print();
    goals(&figures);
    if arguments.recording.is_wanted() {
        let Arguments { mib, random_mib, block_mib, files, threads, .. } = arguments;
        let workload = format!(
            "java {mib} MiB, blocks of {block_mib} MiB, at random in {random_mib} MiB, {files} small files by {threads} threads; {}",
            memory::place()
        );
        arguments.recording.append(&workload, &figures.0)?;
    }
    Ok(())
}

fn goals(figures: &Figures) {
    let jar = |work: &str, what: &str| figures.median(work, "Hearth", JAR, what);
    let files = |work: &str, what: &str| figures.median(work, "Hearth", FILES, what);
    let memcpy = || figures.median(SEQUENTIAL, "memcpy", "", "wall");
    let stock = |client: &str, work: &str, what: &str| figures.median(work, "Apache", client, what);
    let lines = [
        ("whole file, to memcpy", jar(SEQUENTIAL, "wall"), memcpy()),
        ("whole file by the file system, to memcpy", files(SEQUENTIAL, "wall"), memcpy()),
        ("whole file, to Apache's TCP", jar(SEQUENTIAL, "wall"), stock("TCP", SEQUENTIAL, "wall")),
        ("whole file, to Apache's short-circuit", jar(SEQUENTIAL, "wall"), stock("short-circuit", SEQUENTIAL, "wall")),
        ("4 KiB at random, p50, to 8 us", jar(AT_RANDOM, "p50"), Some(8.0)),
        ("4 KiB at random by the file system, p50, to 3 us", files(AT_RANDOM, "p50"), Some(3.0)),
        ("64 ranges by the file system, to Apache's TCP", files(VECTORED, "p50"), stock("TCP", VECTORED, "p50")),
        ("4 KiB at random, p50, to tuned", jar(AT_RANDOM, "p50"), stock("short-circuit, tuned", AT_RANDOM, "p50")),
        (
            "small files by one call, to Apache's TCP",
            files(SMALL_FILES, "rate, by one call"),
            stock("TCP", SMALL_FILES, "rate"),
        ),
        ("small files, to Apache's TCP", jar(SMALL_FILES, "rate"), stock("TCP", SMALL_FILES, "rate")),
        ("write by the file system, to Apache's", files(WRITING, "wall"), stock("TCP", WRITING, "wall")),
    ];
    println!();
    for (what, value, to) in lines {
        if let (Some(value), Some(to)) = (value, to) {
            println!("{what:<50} {value:>10.2} / {to:>10.2} = {:.2}", value / to);
        }
    }
}
