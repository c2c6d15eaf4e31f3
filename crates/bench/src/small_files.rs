//! Many threads of one client each read the first bytes of many small files. Compares Hearth's client over every path,
//! with and without opening many files at once, with Apache's client on Apache's servers. The systems alternate within
//! each run. The data is in memory and all clients are warm.

mod network;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use futures_util::future::try_join_all;
use hearth_client::{CreateOptions, DataPath, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Apache, Cluster, Content, Driver, Implementation, usage};
use hearth_types::ByteRange;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::amounts::at_least_one;
use crate::record::{Figures, Recording};
use crate::{chart, local_cluster, memory};
use network::Network;

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of files
    #[arg(long, default_value_t = 17_836, value_parser = at_least_one::<usize>)]
    files: usize,
    /// Size of each in KiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<usize>)]
    file_kib: usize,
    /// Amount that is read from the start of each, in KiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<usize>)]
    read_kib: usize,
    /// Numbers of concurrent reader threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 60], value_parser = at_least_one::<usize>)]
    threads: Vec<usize>,
    /// Number of files that a thread reads with one call if many are opened at once
    #[arg(long, default_value_t = 64, value_parser = at_least_one::<usize>)]
    batch: usize,
    /// Number of runs
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Emulate a network with these properties in each direction, in the syntax of tc-netem(8): "delay 10ms loss 0.1%".
    /// Only in the virtual machine
    #[arg(long, value_name = "NETEM")]
    network: Option<String>,
    /// Leave out Apache's servers and client
    #[arg(long)]
    no_apache: bool,
    /// Only measurements with this text in their name, e.g. "local" or "one by one"
    #[arg(long)]
    only: Option<String>,
    #[command(flatten)]
    recording: Recording,
}

const DIRECTORY: &str = "/small";

/// Number of files that are stored concurrently.
const STORED_AT_ONCE: usize = 32;

/// Time for the DataNode's flusher before anything is measured.
const FLUSHED_AFTER: Duration = Duration::from_secs(13);

impl Arguments {
    fn path(&self, index: usize) -> String {
        // The driver's form of the name.
        format!("{DIRECTORY}/file-{index}")
    }

    fn content(&self, index: usize, bytes: usize) -> Vec<u8> {
        Content::new(index as u64).bytes(0, bytes)
    }

    /// Returns the number of files for a number of threads. A single thread takes so much longer that it has fewer
    /// files to read.
    fn files_for(&self, threads: usize) -> usize {
        if threads < 8 { (self.files / 8).max(1) } else { self.files }
    }

    /// Returns whether each system reads everything once before it is measured. This brings back data that the systems
    /// before it have evicted from the caches, or that a virtual machine's host has reclaimed. Over a slow network
    /// these costs do not matter.
    fn warms(&self) -> bool {
        self.network.is_none()
    }

    /// Returns the runtime of Hearth's client. In the virtual machine a process has one processor at a time, and a
    /// waiting thread burns the other one. There everything runs on one thread, and the readers are tasks.
    fn runtime(&self) -> Result<Runtime> {
        Ok(if self.network.is_some() { Builder::new_current_thread().enable_all().build()? } else { Runtime::new()? })
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }
}

struct System {
    name: &'static str,
    cluster: Cluster,
    _sockets: tempfile::TempDir,
}

impl System {
    fn start(make: Implementation) -> Result<Self> {
        // Sixty readers with a connection each are the point of this benchmark.
        let (cluster, sockets) =
            local_cluster::start(make, |spec| spec.set("dfs.datanode.max.transfer.threads", 4096))?;
        Ok(Self { name: local_cluster::name(make), cluster, _sockets: sockets })
    }

    fn client(&self, settings: &[(&str, &str)]) -> Result<FileSystem> {
        let mut configuration = Configuration::load_dir(self.cluster.conf(), Environment::empty())?;
        for (key, value) in settings {
            configuration.set(key, (*value).to_owned());
        }
        Ok(FileSystem::connect(&configuration, None, &hearth_client::os_user_name())?)
    }

    fn store(&self, runtime: &Runtime, arguments: &Arguments) -> Result<()> {
        let fs = self.client(&[("hearth.client.paths", "packets")])?;
        memory::touch((arguments.files * arguments.file_kib) as u64 * 1024)?;
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        let store = || async {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= arguments.files {
                    return anyhow::Ok(());
                }
                if index % 2000 == 0 {
                    eprintln!("{}: storing file {index} of {}", self.name, arguments.files);
                }
                let mut writer = fs.create(&arguments.path(index), CreateOptions::default()).await?;
                writer.write(&arguments.content(index, arguments.file_kib << 10)).await?;
                writer.close().await?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..STORED_AT_ONCE).map(|_| scope.spawn(|| runtime.block_on(store()))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
        })?;
        eprintln!("{}: stored in {:.1} s", self.name, started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Returns the CPU seconds of NameNode and DataNode so far.
    fn cpu(&self) -> Result<(f64, f64)> {
        Ok((usage(self.cluster.namenode.id()?)?.cpu(), usage(self.cluster.datanodes[0].id()?)?.cpu()))
    }
}

/// Adds the figures of one measurement.
fn add(
    figures: &mut Figures,
    system: &System,
    client: &str,
    threads: usize,
    files: usize,
    before: (f64, f64),
    (seconds, client_cpu): (f64, f64),
) -> Result<()> {
    let (after, work) = (system.cpu()?, format!("{threads} threads"));
    let each = |cpu: f64| cpu * 1e6 / files as f64;
    figures.add(&work, system.name, client, "throughput", "files/s", files as f64 / seconds);
    figures.add(&work, system.name, client, "client CPU", "us/file", each(client_cpu));
    figures.add(&work, system.name, client, "DataNode CPU", "us/file", each(after.1 - before.1));
    figures.add(&work, system.name, client, "NameNode CPU", "us/file", each(after.0 - before.0));
    Ok(())
}

/// Read variant of Hearth's client.
struct Ours {
    name: String,
    fs: FileSystem,
    path: DataPath,
    many: bool,
}

impl Ours {
    fn all(system: &System, arguments: &Arguments) -> Result<Vec<Self>> {
        let ways = [
            ("local", DataPath::Local, "local", "64"),
            ("multiplexed", DataPath::Packets, "packets", "64"),
            ("packets", DataPath::Packets, "packets", "0"),
        ];
        let mut all = Vec::new();
        for (name, path, paths, connections) in ways {
            // The local path uses no network.
            if arguments.network.is_some() && path == DataPath::Local {
                continue;
            }
            for many in [true, false] {
                let name = format!("hearth, {name}, {}", if many { "many opened" } else { "one by one" });
                if !arguments.wants(&name) {
                    continue;
                }
                // Keeps as many connections as there are threads, which favours the packets.
                let fs = system.client(&[
                    ("hearth.client.paths", paths),
                    ("hearth.client.multiplex.connections", connections),
                    ("dfs.client.socketcache.capacity", "64"),
                ])?;
                all.push(Self { name, fs, path, many });
            }
        }
        Ok(all)
    }

    /// Reads `files` files with some threads, `passes` times with the same ones, like a long-lived program. Returns the
    /// seconds of the last pass. `before`: called before each pass. `check`: compare the data read.
    fn read(
        &self,
        runtime: &Runtime,
        (threads, files): (usize, usize),
        passes: usize,
        mut before: impl FnMut(),
        arguments: &Arguments,
        check: bool,
    ) -> Result<f64> {
        let next: Vec<_> = (0..passes).map(|_| AtomicUsize::new(0)).collect();
        let bytes = arguments.read_kib.min(arguments.file_kib) << 10;
        let batch = if self.many { arguments.batch.min(files.div_ceil(threads)).max(1) } else { 1 };
        let range = ByteRange::new(0, bytes as u64).context("a range")?;
        let verify = |index: usize, read: &[u8]| {
            ensure!(read.len() == bytes, "{} of {bytes} bytes of file {index}", read.len());
            ensure!(!check || read == arguments.content(index, bytes), "file {index} differs");
            Ok(())
        };
        let work = async |pass: usize| {
            let mut into = vec![0; bytes];
            loop {
                let first = next[pass].fetch_add(batch, Ordering::Relaxed);
                let indices = first..(first + batch).min(files);
                if indices.is_empty() {
                    return anyhow::Ok(());
                }
                let paths: Vec<_> = indices.clone().map(|index| arguments.path(index)).collect();
                if self.many {
                    let wanted: Vec<_> = paths.iter().map(|path| (path.as_str(), range)).collect();
                    let mut outcome = Ok(());
                    let visit = |place: usize, read: Result<Cow<'_, [u8]>, hearth_client::Error>| {
                        let verified = read.map_err(anyhow::Error::from).and_then(|read| verify(first + place, &read));
                        outcome = std::mem::replace(&mut outcome, Ok(())).and(verified);
                    };
                    self.fs.visit_many(&wanted, visit).await;
                    outcome?;
                    continue;
                }
                for (index, path) in indices.zip(&paths) {
                    let count = self.fs.open(path).await?.read_at(0, &mut into).await?;
                    verify(index, &into[..count])?;
                }
            }
        };
        let carried = self.fs.statistics().read_bytes(self.path);
        let mut seconds = 0.0;
        if arguments.network.is_some() {
            for pass in 0..passes {
                before();
                let started = Instant::now();
                runtime.block_on(try_join_all((0..threads).map(|_| work(pass))))?;
                seconds = started.elapsed().as_secs_f64();
            }
        } else {
            // Number of all threads and this one. They meet at the start and the end of a pass, also a thread that has
            // failed.
            let together = Barrier::new(threads + 1);
            std::thread::scope(|scope| {
                let reader = || {
                    let mut outcome = Ok(());
                    for pass in 0..passes {
                        together.wait();
                        if outcome.is_ok() {
                            let read = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work(pass))));
                            outcome = read.unwrap_or_else(|_| Err(anyhow!("a reader panicked")));
                        }
                        together.wait();
                    }
                    outcome
                };
                let readers: Vec<_> = (0..threads).map(|_| scope.spawn(reader)).collect();
                for _ in 0..passes {
                    before();
                    let started = Instant::now();
                    together.wait();
                    together.wait();
                    seconds = started.elapsed().as_secs_f64();
                }
                readers.into_iter().try_for_each(|reader| reader.join().expect("a thread does not panic"))
            })?;
        }
        let carried = self.fs.statistics().read_bytes(self.path) - carried;
        ensure!(carried == (passes * files * bytes) as u64, "{}: {carried} bytes by {}", self.name, self.path);
        Ok(seconds)
    }

    fn measure(
        &self,
        runtime: &Runtime,
        system: &System,
        threads: usize,
        arguments: &Arguments,
        figures: &mut Figures,
    ) -> Result<()> {
        let files = arguments.files_for(threads);
        let passes = if arguments.warms() { 2 } else { 1 };
        let mut clocks = None;
        let look = || clocks = Some((system.cpu(), usage(std::process::id())));
        let seconds = self.read(runtime, (threads, files), passes, look, arguments, false)?;
        let (before, own) = clocks.context("a pass")?;
        let (before, own) = (before?, own?.cpu());
        let took = (seconds, usage(std::process::id())?.cpu() - own);
        add(figures, system, &self.name, threads, files, before, took)
    }
}

/// Apache's client in its own JVM.
struct Java {
    name: &'static str,
    driver: Driver,
    short_circuit: bool,
}

impl Java {
    fn start(apache: &Apache, system: &System, short_circuit: bool, arguments: &Arguments) -> Result<Self> {
        let conf = system.cluster.conf_with(
            if short_circuit { "short-circuit-conf" } else { "tcp-conf" },
            &[
                ("dfs.client.read.shortcircuit", if short_circuit { "true" } else { "false" }),
                ("dfs.client.socketcache.capacity", "64"),
                // Sixty readers want more slots than it has. It logs a warning for each, and continues to read.
                ("log4j.logger.org.apache.hadoop.hdfs.shortcircuit", "ERROR"),
            ],
        )?;
        let name = if short_circuit { "warm JVM, short-circuit" } else { "warm JVM, TCP" };
        let mut driver = Driver::java(apache, &conf)?;
        driver.set_answer_timeout(Duration::from_secs(600));
        let mut java = Self { name, driver, short_circuit };
        // Warms up until the JIT compilers of the client and its servers have seen all of the code.
        for _ in 0..3 {
            java.read(8, arguments.files, arguments)?;
        }
        Ok(java)
    }

    fn read(&mut self, threads: usize, files: usize, arguments: &Arguments) -> Result<f64> {
        let length = arguments.read_kib.min(arguments.file_kib) << 10;
        let request = json!({"dir": DIRECTORY, "count": files, "threads": threads, "length": length});
        let answer = self.driver.call("firstMany", request)?;
        // Without Hadoop's native library it silently reads over TCP.
        let by_descriptor = answer["shortCircuit"].as_u64().unwrap_or(0) > 0;
        ensure!(by_descriptor == self.short_circuit, "{} used another path", self.name);
        answer["seconds"].as_f64().context("a number")
    }

    fn measure(&mut self, system: &System, threads: usize, arguments: &Arguments, figures: &mut Figures) -> Result<()> {
        let files = arguments.files_for(threads);
        if arguments.warms() {
            self.read(threads, files, arguments)?;
        }
        let (before, own) = (system.cpu()?, usage(self.driver.id())?.cpu());
        let seconds = self.read(threads, files, arguments)?;
        let took = (seconds, usage(self.driver.id())?.cpu() - own);
        add(figures, system, self.name, threads, files, before, took)
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let runtime = arguments.runtime()?;
    let mut figures = Figures::default();
    let hearth = System::start(Implementation::Hearth)?;
    hearth.store(&runtime, arguments)?;
    let mut apache = None;
    if !arguments.no_apache {
        let system = System::start(Implementation::Apache)?;
        system.store(&runtime, arguments)?;
        let program = Apache::for_measuring()?.with_native()?;
        let mut java = Vec::new();
        let ways: &[bool] = if arguments.network.is_some() { &[false] } else { &[false, true] };
        for short_circuit in ways.iter().copied() {
            eprintln!("warming a JVM");
            java.push(Java::start(&program, &system, short_circuit, arguments)?);
        }
        apache = Some((system, java));
    }
    // Waits for the flusher.
    std::thread::sleep(FLUSHED_AFTER);
    let _network = arguments.network.as_deref().map(Network::begin).transpose()?;
    let ours = Ours::all(&hearth, arguments)?;
    for way in &ours {
        way.read(&runtime, (8, arguments.files), 1, || {}, arguments, true).with_context(|| way.name.clone())?;
    }
    for run in 1..=arguments.runs {
        eprintln!("run {run} of {}", arguments.runs);
        for threads in &arguments.threads {
            for way in &ours {
                way.measure(&runtime, &hearth, *threads, arguments, &mut figures)?;
            }
            if let Some((system, java)) = &mut apache {
                for java in java {
                    java.measure(system, *threads, arguments, &mut figures)?;
                }
            }
        }
    }
    print(&figures, arguments);
    if arguments.recording.is_wanted() {
        let Arguments { files, file_kib, read_kib, batch, .. } = arguments;
        let what = format!("{files} files of {file_kib} KiB, the first {read_kib} KiB, {batch} a batch");
        let (name, workload) = match &arguments.network {
            Some(words) => {
                ("small-files-network", format!("network small-files {what}; each way {words}, MTU 1500, in the VM"))
            }
            None => ("small-files", format!("small-files {what}; {}", memory::place())),
        };
        arguments.recording.append(&workload, &figures.0)?;
        // Draws the chart only if all systems were measured.
        if arguments.only.is_none() && !arguments.no_apache {
            chart::write(name, &workload, &figures.0)?;
        }
    }
    Ok(())
}

fn print(figures: &Figures, arguments: &Arguments) {
    figures.print();
    let Some(most) = arguments.threads.iter().max() else { return };
    let work = format!("{most} threads");
    let of = |system, client: &str| figures.median(&work, system, client, "throughput");
    let java = ["warm JVM, TCP", "warm JVM, short-circuit"].map(|client| of("Apache", client));
    let best = java.into_iter().flatten().reduce(f64::max);
    let goals = [
        ("local, many opened, to Apache's better", "hearth, local, many opened", best, 10.0),
        (
            "multiplexed, many opened, to Apache's by TCP",
            "hearth, multiplexed, many opened",
            java[0],
            if arguments.network.is_some() { 10.0 } else { 4.0 },
        ),
    ];
    println!();
    for (what, client, to, goal) in goals {
        let (Some(value), Some(to)) = (of("Hearth", client), to) else { continue };
        let ratio = value / to;
        let met = if ratio >= goal { "met" } else { "not met" };
        println!("{what:<46} {value:>9.0} / {to:>9.0} = {ratio:.2} (goal at least {goal:.0}: {met})");
    }
}
