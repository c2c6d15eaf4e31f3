//! One file on a tmpfs, stored by a warm client on the DataNode's machine, with one replica or several. Compares
//! Apache's client and servers, Hearth's client by packets, and Hearth's client directly into the DataNode's memory.
//! The latter is measured as a trusted client (`hearth.local.write.trusted`) and as an untrusted one. All alternate.
//! The DataNodes' CPU is shown without their flushers, with the time of memory allocation as a separate figure.
//!
//! Reading the source file is part of all clients' figures: Apache's client reads it into a buffer and passes that on,
//! Hearth's client reads directly into the buffer of its API. The sleep of Apache's client in close() is shortened.
//!
//! With `--huge-pages` all data is on a tmpfs with huge pages, as recommended for production.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Apache, Cluster, ClusterSpec, Content, Driver, Implementation, Scratch, jmx_bean};

use crate::amounts::at_least_one;
use crate::bench_client::{BenchClient, Kind};
use crate::measure::{self, ServerClock, Timing};
use crate::memory;
use crate::record::{Figures, Recording};

#[derive(clap::Args)]
pub struct Arguments {
    /// Size of the file in MiB
    #[arg(long, default_value_t = 128, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of a block in MiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Number of files written between two readings of the CPU clocks, which have a resolution of 10 ms
    #[arg(long, default_value_t = 8, value_parser = at_least_one::<u64>)]
    files: u64,
    /// Number of DataNodes, and of replicas
    #[arg(long, default_value_t = 1, value_parser = at_least_one::<usize>)]
    datanodes: usize,
    /// Number of runs
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Leave out Apache's servers
    #[arg(long)]
    no_apache: bool,
    #[command(flatten)]
    recording: Recording,
}

/// Memory for the replicas of one measurement and for earlier ones that are not yet deleted, in files.
const FILES_IN_MEMORY: u64 = 4;

struct System {
    name: &'static str,
    cluster: Cluster,
    /// Its only client.
    party: BenchClient,
}

impl System {
    fn apache(arguments: &Arguments) -> Result<Self> {
        let cluster = spec(Implementation::Apache, arguments).within(Path::new(memory::TMPFS)).start()?;
        let driver = Driver::java(&Apache::for_measuring()?, cluster.conf())?;
        let party = BenchClient { system: 0, client: "warm JVM", kind: Kind::Java(Box::new(driver)) };
        Ok(Self { name: "Apache", cluster, party })
    }

    fn hearth(name: &'static str, sockets: &Path, settings: &[(&str, &str)], arguments: &Arguments) -> Result<Self> {
        let socket = sockets.join(format!("{}_PORT", name.replace(' ', "-")));
        let mut spec = spec(Implementation::Hearth, arguments)
            .set("dfs.domain.socket.path", socket.display())
            .set("hearth.memory.limit", (arguments.files + FILES_IN_MEMORY) * (arguments.mib << 20));
        for (key, value) in settings {
            spec = spec.set(key, value);
        }
        let cluster = spec.start()?;
        let configuration = Configuration::load_dir(cluster.conf(), Environment::empty())?;
        let party = BenchClient::with(0, configuration, hearth_client::os_user_name(), "own", None)?;
        Ok(Self { name, cluster, party })
    }

    fn is_ours(&self) -> bool {
        matches!(self.party.kind, Kind::Own { .. })
    }

    /// Starts to measure the CPU time of the DataNodes.
    fn clocks(&self) -> Result<Clocks> {
        let clocks = self.cluster.datanodes.iter().map(|datanode| ServerClock::start(datanode.id()?));
        Ok(Clocks(clocks.collect::<Result<_>>()?))
    }

    /// Stores `source` as `/file0`, `/file1`, ... .
    fn write(&mut self, source: &Path, files: u64) -> Result<Timing> {
        measure::in_process(self.party.process(), || {
            for file in 0..files {
                self.party.write(source, &format!("/file{file}"))?;
            }
            Ok(())
        })
    }

    fn delete(&mut self, files: u64) -> Result<()> {
        (0..files).try_for_each(|file| self.party.delete(&format!("/file{file}")))
    }

    /// Returns the CPU seconds that the stores have spent on allocating memory for writers, and the bytes that they have
    /// verified in place.
    fn allocation(&self) -> Result<Option<(f64, u64)>> {
        if !self.is_ours() {
            return Ok(None);
        }
        let mut sum = (0.0, 0);
        for datanode in &self.cluster.datanodes {
            let bean = jmx_bean(datanode.port("dfs.datanode.http.address")?, "Hearth:service=DataNode,name=Memory")?;
            let number = |key: &str| bean[key].as_u64().with_context(|| format!("no {key} in the DataNode's figures"));
            sum.0 += number("GrantCpuMicros")? as f64 / 1e6;
            sum.1 += number("CommittedBytes")?;
        }
        Ok(Some(sum))
    }
}

/// CPU seconds of all DataNodes of a system since a moment.
struct Clocks(Vec<ServerClock>);

impl Clocks {
    /// Returns `(all but the flushers, the flushers)`.
    fn elapsed(&self) -> Result<(f64, f64)> {
        self.0.iter().try_fold((0.0, 0.0), |(all, flushers), clock| {
            let (cpu, flusher) = clock.elapsed()?;
            Ok((all + cpu, flushers + flusher))
        })
    }

    /// Waits until the flushers are done, and returns their CPU seconds.
    fn flushed(&self) -> Result<f64> {
        self.0.iter().map(ServerClock::flushed).sum()
    }
}

fn spec(make: Implementation, arguments: &Arguments) -> ClusterSpec {
    ClusterSpec::new(make, make)
        .datanodes(arguments.datanodes)
        .set("dfs.replication", arguments.datanodes)
        .set("dfs.blocksize", arguments.block_mib << 20)
        .set("dfs.heartbeat.interval", 1)
        .set("dfs.namenode.heartbeat.recheck-interval", 300_000)
        // Shortens the sleep of Apache's client in close(); see docs/benchmarks.
        .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
        .set("dfs.client.block.write.locateFollowingBlock.retries", 12)
        .for_measuring()
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let bytes = arguments.mib << 20;
    let scratch = Scratch::within(Path::new(memory::TMPFS), "hearth-bench-")?;
    let source = scratch.path().join("source");
    Content::new(128).write_file(&source, bytes)?;

    let mut systems = Vec::new();
    if !arguments.no_apache {
        systems.push(System::apache(arguments)?);
    }
    let trusted = ("hearth.local.write.trusted", "true");
    for (name, settings) in [
        ("Hearth packets", &[("hearth.client.paths", "packets")][..]),
        ("Hearth local", &[trusted]),
        ("Hearth untrusted", &[]),
    ] {
        systems.push(System::hearth(name, scratch.path(), settings, arguments)?);
    }

    let mut figures = Figures::default();
    // The first round warms up compilers, allocators and buffer sizes.
    for run in 0..=arguments.runs {
        for system in &mut systems {
            eprintln!("run {run} of {}: {}", arguments.runs, system.name);
            let used = memory::tmpfs_used()?;
            memory::touch(bytes * arguments.files * arguments.datanodes as u64)?;
            let datanodes = system.clocks()?;
            let before = system.allocation()?;
            let took = system.write(&source, arguments.files)?;
            let (cpu, flusher) = datanodes.elapsed()?;
            let after = system.allocation()?;
            if run > 0 {
                let files = arguments.files as f64;
                let mut add = |what, value: f64| {
                    figures.add("write", system.name, system.party.client, what, "s", value / files);
                };
                add("wall", took.wall);
                add("client CPU", took.client_cpu);
                add("DataNode CPU", cpu);
                add("flusher so far", flusher);
                if let (Some((before, _)), Some((after, _))) = (before, after) {
                    add("of it allocation", after - before);
                }
            }
            if let (Some((_, before)), Some((_, after))) = (before, after) {
                let by_packets = system.name.ends_with("packets");
                let committed = after - before;
                let expected = bytes * arguments.files;
                // The client fills all packets in place except the first of each block, which is copied. DataNodes pass
                // replicas to each other in place, also those that came by packets.
                ensure!(
                    if by_packets { committed == 0 || arguments.datanodes > 1 } else { committed > expected / 2 },
                    "{}: {committed} of {expected} bytes were written in the DataNode's memory",
                    system.name
                );
            }
            system.delete(arguments.files)?;
            memory::emptied(used + bytes / 2)?;
        }
    }
    for system in &mut systems {
        if system.is_ours() {
            flush(system, &source, arguments.files, &mut figures)?;
        }
    }
    figures.print();
    print_goals(&figures);
    if arguments.recording.is_wanted() {
        let Arguments { mib, block_mib, datanodes, .. } = arguments;
        let replicas = if *datanodes == 1 { String::new() } else { format!(", {datanodes} replicas") };
        let workload = format!("local-write {mib} MiB, blocks of {block_mib} MiB{replicas}; {}", memory::place());
        arguments.recording.append(&workload, &figures.0)?;
    }
    Ok(())
}

/// Measures the CPU of the flusher per file. It copies several files to disk after the write.
fn flush(system: &mut System, source: &Path, files: u64, figures: &mut Figures) -> Result<()> {
    eprintln!("waiting for the flusher of {}", system.name);
    let datanodes = system.clocks()?;
    system.write(source, files)?;
    let cpu = datanodes.flushed()? / files as f64;
    figures.add("write", system.name, system.party.client, "flusher CPU", "s", cpu);
    Ok(())
}

/// Prints the project's goals for this workload with the measured values.
fn print_goals(figures: &Figures) {
    let median = |system: &str, client: &str, what: &str| figures.median("write", system, client, what);
    let sum = |system: &str| {
        let flusher = median(system, "own", "flusher CPU").unwrap_or(0.0);
        median(system, "own", "DataNode CPU").map(|cpu| cpu + flusher)
    };
    let ratios = [
        (
            "wall time, Apache's to ours in memory",
            median("Apache", "warm JVM", "wall"),
            median("Hearth local", "own", "wall"),
            "at least 3",
        ),
        (
            "DataNode CPU with flusher, ours in memory to Apache's",
            sum("Hearth local"),
            median("Apache", "warm JVM", "DataNode CPU"),
            "at most 0.33",
        ),
    ];
    for (what, value, base, goal) in ratios {
        if let (Some(value), Some(base)) = (value, base) {
            println!("{what}: {:.2} (goal: {goal})", value / base);
        }
    }
}
