//! Reads on the DataNode's own machine: Hearth's client from the DataNode's memory and by packets, Apache's client over
//! TCP and by file descriptor from its own DataNode and from Hearth's. The reference is a memcpy of the same bytes. The
//! systems alternate within each run. The data is in memory and all clients are warm.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, DataPath, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Apache, Cluster, Content, Driver, Implementation};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::amounts::at_least_one;
use crate::measure::{ServerClock, median, percentile};
use crate::random::Random;
use crate::record::{Figures, Recording};
use crate::{chart, local_cluster, memory};

#[derive(clap::Args)]
pub struct Arguments {
    /// Size of the file that is read sequentially, in MiB
    #[arg(long, default_value_t = 128, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of a block in MiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Size of the file that is read at random, in MiB
    #[arg(long, default_value_t = 1024, value_parser = at_least_one::<u64>)]
    random_mib: u64,
    /// Number of random reads
    #[arg(long, default_value_t = 200_000, value_parser = at_least_one::<usize>)]
    random_reads: usize,
    /// Number of runs
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Leave out Apache's servers and client
    #[arg(long)]
    no_apache: bool,
    #[command(flatten)]
    recording: Recording,
}

/// Sequential reads of the file in one measurement of the DataNode's CPU time, which has a resolution of 10 ms.
const READS_PER_CPU: usize = 10;

/// Bytes of one random read.
const RANDOM_BYTES: usize = 4096;

/// Sizes of the reads of Apache's client: the default of its buffers, and a size that suits it.
const JAVA_PIECES: [usize; 2] = [1 << 10, 128 << 10];

const WHOLE: &str = "/whole";
const RANDOM: &str = "/random";

struct System {
    name: &'static str,
    cluster: Cluster,
    /// Directory of the sockets. Only root and this user can write to its ancestors.
    _sockets: tempfile::TempDir,
}

impl System {
    fn start(make: Implementation, arguments: &Arguments) -> Result<Self> {
        let (cluster, sockets) =
            local_cluster::start(make, |spec| spec.set("dfs.blocksize", arguments.block_mib << 20))?;
        Ok(Self { name: local_cluster::name(make), cluster, _sockets: sockets })
    }

    fn client(&self, paths: &str) -> Result<FileSystem> {
        let mut configuration = Configuration::load_dir(self.cluster.conf(), Environment::empty())?;
        configuration.set("hearth.client.paths", paths.to_owned());
        Ok(FileSystem::connect(&configuration, None, &hearth_client::os_user_name())?)
    }

    fn datanode(&self) -> Result<ServerClock> {
        ServerClock::start(self.cluster.datanodes[0].id()?)
    }
}

/// Apache's client in a warm JVM, by file descriptor or over TCP.
struct Java {
    name: &'static str,
    driver: Driver,
    short_circuit: bool,
}

impl Java {
    fn start(apache: &Apache, system: &System, short_circuit: bool, arguments: &Arguments) -> Result<Self> {
        let conf = system.cluster.conf_with(
            if short_circuit { "short-circuit-conf" } else { "tcp-conf" },
            &[("dfs.client.read.shortcircuit", if short_circuit { "true" } else { "false" })],
        )?;
        let mut driver = Driver::java(apache, &conf)?;
        // Warms up until the JIT compiler has seen all of the code.
        for piece in JAVA_PIECES {
            driver.call("timedReads", json!({"path": WHOLE, "piece": piece, "rounds": 10}))?;
        }
        let count = arguments.random_reads.min(20_000);
        driver.call("timedPreads", json!({"path": RANDOM, "length": RANDOM_BYTES, "count": count, "seed": 1}))?;
        let name = if short_circuit { "warm JVM, short-circuit" } else { "warm JVM, TCP" };
        Ok(Self { name, driver, short_circuit })
    }

    /// Returns whether the bytes came over the named path: without Hadoop's native library the client silently reads
    /// over TCP.
    fn is_as_named(&self, answer: &serde_json::Value) -> bool {
        (answer["shortCircuit"].as_u64().unwrap_or(0) > 0) == self.short_circuit
    }

    fn measure(&mut self, figures: &mut Figures, system: &System, run: usize, arguments: &Arguments) -> Result<()> {
        for piece in JAVA_PIECES {
            let clock = system.datanode()?;
            let answer =
                self.driver.call("timedReads", json!({"path": WHOLE, "piece": piece, "rounds": READS_PER_CPU}))?;
            let cpu = clock.elapsed()?.0;
            if !self.is_as_named(&answer) {
                eprintln!("skipped: {} of {} used another path", self.name, system.name);
                return Ok(());
            }
            let seconds: Vec<f64> =
                answer["seconds"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect();
            let work = format!("read whole, {} KiB at a time", piece >> 10);
            figures.add(&work, system.name, self.name, "wall", "ms", median(&seconds) * 1e3);
            figures.add(&work, system.name, self.name, "DataNode CPU of 10 reads", "s", cpu);
        }
        // A tenth of the reads, because each takes about ten times as long.
        let count = (arguments.random_reads / 10).max(100);
        let random = json!({"path": RANDOM, "length": RANDOM_BYTES, "count": count, "seed": run});
        let answer = self.driver.call("timedPreads", random)?;
        for what in ["p50", "p99"] {
            let value = answer[what].as_f64().context("a number")?;
            figures.add("read 4 KiB at random", system.name, self.name, what, "us", value);
        }
        Ok(())
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let runtime = Runtime::new()?;
    let mut figures = Figures::default();
    let hearth = System::start(Implementation::Hearth, arguments)?;
    store(&runtime, &hearth, arguments)?;
    let mut java = Vec::new();
    let apache = match arguments.no_apache {
        true => None,
        false => {
            let system = System::start(Implementation::Apache, arguments)?;
            store(&runtime, &system, arguments)?;
            let apache = Apache::for_measuring()?.with_native()?;
            for short_circuit in [false, true] {
                java.push((&hearth, Java::start(&apache, &hearth, short_circuit, arguments)?));
            }
            Some((system, apache))
        }
    };
    if let Some((system, apache)) = &apache {
        for short_circuit in [false, true] {
            java.push((system, Java::start(apache, system, short_circuit, arguments)?));
        }
    }

    let mut ours = Ours::new(&runtime, &hearth, arguments)?;
    for run in 0..=arguments.runs {
        if run > 0 {
            eprintln!("run {run} of {}", arguments.runs);
        }
        // The first run only warms up.
        let mut warming = Figures::default();
        let figures = if run == 0 { &mut warming } else { &mut figures };
        ours.measure(&runtime, &hearth, figures, run, arguments)?;
        if run > 0 {
            for (system, java) in &mut java {
                java.measure(figures, system, run, arguments)?;
            }
            clients(&runtime, &hearth, figures, arguments)?;
        }
    }

    print(&figures);
    if arguments.recording.is_wanted() {
        let Arguments { mib, block_mib, random_mib, .. } = arguments;
        let workload = format!(
            "local-read {mib} MiB, blocks of {block_mib} MiB, at random in {random_mib} MiB; {}",
            memory::place()
        );
        arguments.recording.append(&workload, &figures.0)?;
        // Draws the chart only if all systems were measured.
        if !arguments.no_apache {
            chart::write("local-read", &workload, &figures.0)?;
        }
    }
    Ok(())
}

/// Stores the two files, and one for each of the concurrent clients.
fn store(runtime: &Runtime, system: &System, arguments: &Arguments) -> Result<()> {
    let fs = system.client("packets")?;
    let mut files = vec![(WHOLE.to_owned(), arguments.mib), (RANDOM.to_owned(), arguments.random_mib)];
    if system.name == "Hearth" {
        files.extend((0..CLIENTS_MAX).map(|client| (clients_file(client), arguments.mib)));
    }
    for (seed, (path, mib)) in files.into_iter().enumerate() {
        memory::touch(mib << 20)?;
        runtime.block_on(async {
            let mut writer = fs.create(&path, CreateOptions::default()).await?;
            for piece in 0..mib {
                writer.write(&Content::new(seed as u64).bytes(piece << 20, 1 << 20)).await?;
            }
            writer.close().await?;
            anyhow::Ok(())
        })?;
    }
    Ok(())
}

/// Hearth's client, and a memcpy of the same bytes.
struct Ours {
    local: FileSystem,
    packets: FileSystem,
    source: Vec<u8>,
    buffer: Vec<u8>,
    random: hearth_client::PositionedReader,
}

impl Ours {
    fn new(runtime: &Runtime, system: &System, arguments: &Arguments) -> Result<Self> {
        let (local, packets) = (system.client("local")?, system.client("packets")?);
        let bytes = (arguments.mib << 20) as usize;
        let source = Content::new(0).bytes(0, bytes);
        let random = runtime.block_on(local.open(RANDOM))?.positioned();
        Ok(Self { local, packets, source, buffer: vec![1; bytes], random })
    }

    fn measure(
        &mut self,
        runtime: &Runtime,
        system: &System,
        figures: &mut Figures,
        run: usize,
        arguments: &Arguments,
    ) -> Result<()> {
        let work = "read whole, into one buffer";
        // The median counts as one value, because a shared machine has outliers.
        let several = |mut once: Box<dyn FnMut() -> Result<f64> + '_>| -> Result<f64> {
            let seconds = (0..READS_PER_CPU).map(|_| once()).collect::<Result<Vec<f64>>>()?;
            Ok(median(&seconds) * 1e3)
        };
        let (source, buffer) = (&self.source, &mut self.buffer);
        let copied = several(Box::new(|| {
            let started = Instant::now();
            buffer.copy_from_slice(black_box(source));
            black_box(&mut *buffer);
            Ok(started.elapsed().as_secs_f64())
        }))?;
        figures.add(work, "memcpy", "", "wall", "ms", copied);

        for (fs, path) in [(&self.local, DataPath::Local), (&self.packets, DataPath::Packets)] {
            let (client, before) = (format!("hearth, {path}"), fs.statistics().read_bytes(path));
            let clock = system.datanode()?;
            let buffer = &mut self.buffer;
            let read = several(Box::new(|| {
                let started = Instant::now();
                let filled = runtime.block_on(async { fs.open(WHOLE).await?.read(buffer).await })?;
                ensure!(filled == buffer.len(), "{filled} bytes instead of {}", buffer.len());
                Ok(started.elapsed().as_secs_f64())
            }))?;
            figures.add(work, system.name, &client, "wall", "ms", read);
            figures.add(work, system.name, &client, "DataNode CPU of 10 reads", "s", clock.elapsed()?.0);
            let carried = fs.statistics().read_bytes(path) - before;
            ensure!(carried == (READS_PER_CPU * self.source.len()) as u64, "{carried} bytes by {path}");
        }
        ensure!(self.buffer == self.source, "what was read differs");

        let (client, whole) = ("hearth, local", arguments.mib << 20);
        let viewed = several(Box::new(|| {
            let started = Instant::now();
            let views = runtime.block_on(async {
                let reader = self.local.open(WHOLE).await?;
                let (mut views, mut at) = (Vec::new(), 0);
                while at < whole {
                    let view = reader.view(at, (whole - at) as usize).await?;
                    ensure!(view.is_shown(), "a copy instead of a view");
                    at += view.len() as u64;
                    views.push(view);
                }
                Ok(views)
            })?;
            let seconds = started.elapsed().as_secs_f64();
            drop(views);
            Ok(seconds)
        }))?;
        figures.add("view whole, no copy", system.name, client, "wall", "ms", viewed);
        self.read_at_random(runtime, system, figures, run, arguments)
    }

    fn read_at_random(
        &mut self,
        runtime: &Runtime,
        system: &System,
        figures: &mut Figures,
        run: usize,
        arguments: &Arguments,
    ) -> Result<()> {
        let mut random_places = Random::new(run as u64);
        let places = (arguments.random_mib << 20) - RANDOM_BYTES as u64 + 1;
        let mut micros = Vec::with_capacity(arguments.random_reads);
        let mut buffer = [0; RANDOM_BYTES];
        let before = self.local.statistics().read_bytes(DataPath::Local);
        let clock = system.datanode()?;
        let random = self.random.clone();
        runtime.block_on(async {
            for _ in 0..arguments.random_reads {
                let at = random_places.below(places);
                let started = Instant::now();
                random.read_at(at, &mut buffer).await?;
                micros.push(started.elapsed().as_secs_f64() * 1e6);
                black_box(&buffer);
            }
            anyhow::Ok(())
        })?;
        let cpu = clock.elapsed()?.0;
        let carried = self.local.statistics().read_bytes(DataPath::Local) - before;
        ensure!(carried == (arguments.random_reads * RANDOM_BYTES) as u64, "{carried} bytes by {}", DataPath::Local);
        micros.sort_by(f64::total_cmp);
        let (work, client) = ("read 4 KiB at random", "hearth, local");
        for (what, part) in [("p50", 0.5), ("p99", 0.99)] {
            let value = percentile(&micros, part).context("nothing was read at random")?;
            figures.add(work, system.name, client, what, "us", value);
        }
        figures.add(work, system.name, client, "DataNode CPU of all reads", "s", cpu);
        Ok(())
    }
}

/// Numbers of clients that concurrently read different files.
const CLIENTS: [usize; 4] = [1, 2, 4, 8];
const CLIENTS_MAX: usize = 8;
/// Number of sequential reads of each client.
const READS_PER_CLIENT: usize = 10;

fn clients_file(client: usize) -> String {
    format!("/client{client}")
}

/// Measures the total throughput of concurrent clients, each with its own file system object and thread.
fn clients(runtime: &Runtime, system: &System, figures: &mut Figures, arguments: &Arguments) -> Result<()> {
    let bytes = (arguments.mib << 20) as usize;
    for count in CLIENTS {
        let mut ready = Vec::new();
        for client in 0..count {
            let fs = system.client("local")?;
            let mut buffer = vec![0; bytes];
            // Warm-up read.
            runtime.block_on(async { fs.open(&clients_file(client)).await?.read(&mut buffer).await })?;
            ready.push((client, fs, buffer));
        }
        let started = Instant::now();
        std::thread::scope(|scope| {
            let reading: Vec<_> = ready
                .iter_mut()
                .map(|(client, fs, buffer)| {
                    scope.spawn(move || {
                        runtime.block_on(async {
                            for _ in 0..READS_PER_CLIENT {
                                let filled = fs.open(&clients_file(*client)).await?.read(buffer).await?;
                                ensure!(filled == bytes, "{filled} bytes instead of {bytes}");
                            }
                            Ok(())
                        })
                    })
                })
                .collect();
            reading.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
        })?;
        let all = (count * READS_PER_CLIENT * bytes) as f64 / f64::from(1 << 20);
        let work = format!("{count} clients, a file each");
        figures.add(&work, system.name, "hearth, local", "throughput", "MiB/s", all / started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn print(figures: &Figures) {
    figures.print();
    let (whole, local) = ("read whole, into one buffer", "hearth, local");
    let ours = figures.median(whole, "Hearth", local, "wall");
    let java = |client| {
        let by =
            |piece| figures.median(&format!("read whole, {} KiB at a time", piece >> 10), "Apache", client, "wall");
        JAVA_PIECES.into_iter().filter_map(by).reduce(f64::min)
    };
    let clients = |count| figures.median(&format!("{count} clients, a file each"), "Hearth", local, "throughput");
    let goals = [
        ("local read, to memcpy", ours, figures.median(whole, "memcpy", "", "wall"), 1.5),
        ("local read, to Apache's client by TCP", ours, java("warm JVM, TCP"), 1.0 / 3.0),
        ("local read, to its short-circuit reads", ours, java("warm JVM, short-circuit"), 1.0),
        ("view of the file, to 1 ms", figures.median("view whole, no copy", "Hearth", local, "wall"), Some(1.0), 1.0),
        (
            "4 KiB at random, p50, to 2 us",
            figures.median("read 4 KiB at random", "Hearth", local, "p50"),
            Some(2.0),
            1.0,
        ),
        ("one client's throughput, to that of 8", clients(1), clients(8), 1.0),
    ];
    println!();
    for (what, value, to, goal) in goals {
        let (Some(value), Some(to)) = (value, to) else { continue };
        let ratio = value / to;
        let met = if ratio <= goal { "met" } else { "not met" };
        println!("{what:<42} {value:>8.2} / {to:>8.2} = {ratio:.2} (goal {goal:.2}: {met})");
    }
}
