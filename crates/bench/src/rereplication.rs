//! One of three Hearth DataNodes under a Hearth NameNode dies. Measures the time from the moment at which the NameNode
//! declares it dead until every block has its two replicas again, and the throughput of readers during it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, get_text, usage, wait_until};

use crate::amounts::at_least_one;
use crate::random::Random;
use crate::record::{Figures, Recording};
use crate::{chart, memory};

#[derive(clap::Args)]
pub struct Arguments {
    /// Amount of data that loses a replica, in MiB
    #[arg(long, default_value_t = 1024, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of a block in MiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Number of threads that read during it
    #[arg(long, default_value_t = 2)]
    readers: usize,
    /// Number of runs, for each size of reads
    #[arg(long, default_value_t = 1, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// A setting of the NameNode and the DataNodes, KEY=VALUE
    #[arg(long)]
    set: Vec<String>,
    #[command(flatten)]
    recording: Recording,
}

const PATH: &str = "/file";
const DATANODES: u64 = 3;
const REPLICATION: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for which the readers are measured before the failure.
const BEFORE: Duration = Duration::from_secs(2);
/// Interval between queries of the NameNode's metrics.
const LOOK: Duration = Duration::from_millis(10);

/// Sizes of the reads.
const READS: [(&str, usize); 2] = [("4 KiB", 4 << 10), ("1 MiB", 1 << 20)];

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut figures = Figures::default();
    for _ in 0..arguments.runs {
        for (name, bytes) in READS {
            one(arguments, name, bytes, &mut figures)?;
        }
    }
    figures.print();
    let workload = described(arguments);
    if arguments.recording.is_wanted() {
        arguments.recording.append(&workload, &figures.0)?;
        if arguments.set.is_empty() {
            chart::write("rereplication", &workload, &figures.0)?;
        }
    }
    Ok(())
}

/// Describes the measurement. Settings are appended to the name, so that no requirement is compared with it.
fn described(arguments: &Arguments) -> String {
    let set: String = arguments.set.iter().map(|setting| format!(" with {setting}")).collect();
    format!(
        "rereplication{set} of {} MiB, blocks of {} MiB, by Hearth's NameNode to 2 of 3 DataNodes; {} readers; {}",
        arguments.mib,
        arguments.block_mib,
        arguments.readers,
        memory::place()
    )
}

fn one(arguments: &Arguments, name: &str, read_bytes: usize, figures: &mut Figures) -> Result<()> {
    let mut spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(DATANODES as usize)
        .set("dfs.replication", REPLICATION)
        .set("dfs.blocksize", arguments.block_mib << 20)
        // Dead after eleven seconds of silence.
        .set("dfs.heartbeat.interval", 1)
        .set("dfs.namenode.heartbeat.recheck-interval", 500);
    for setting in &arguments.set {
        let (key, value) = setting.split_once('=').with_context(|| format!("{setting} is not KEY=VALUE"))?;
        spec = spec.set(key, value);
    }
    let mut cluster = spec.start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Every DataNode has two thirds of the blocks.
    let length = (arguments.mib << 20) * DATANODES / REPLICATION;
    memory::touch(length * REPLICATION + (arguments.mib << 20))?;
    let client = || -> Result<FileSystem> {
        let mut configuration = Configuration::load_dir(cluster.conf(), Environment::empty())?;
        // Reads like a client on another machine.
        configuration.set("hearth.client.paths", "packets".to_owned());
        Ok(FileSystem::connect(&configuration, None, &hearth_client::os_user_name())?)
    };
    let content = Content::new(11);
    let (fs, reading) = (client()?, client()?);
    runtime.block_on(store(&fs, content, length))?;
    wait_until("all replicas to be there", PATIENCE, || Ok((missing(&cluster)? == 0).then_some(())))?;
    let blocks = length / (arguments.block_mib << 20);

    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = format!("{} MiB copied, {name} read meanwhile", arguments.mib);
    let mut add = |what: &str, unit, value| figures.add(&work, "Hearth", "", what, unit, value);
    std::thread::scope(|scope| -> Result<()> {
        let readers: Vec<_> = (0..arguments.readers)
            .map(|reader| {
                let (fs, done, stop, runtime) = (&reading, &done, &stop, &runtime);
                let seed = 0x9E37_79B9 + reader as u64;
                scope.spawn(move || runtime.block_on(read(fs, content, length, read_bytes, seed, done, stop)))
            })
            .collect();
        let watched = (|| -> Result<()> {
            // The first reads open connections.
            std::thread::sleep(Duration::from_millis(500));
            let before = rate(&done, || {
                std::thread::sleep(BEFORE);
                Ok(())
            })?;
            cluster.datanodes[0].kill();
            // The dead DataNode's memory is free now, and the host takes it back before it is needed. So memory is
            // prepared for the copies.
            let copied = arguments.mib << 20;
            memory::touch(copied * 2)?;
            wait(|| Ok(figure(&cluster, "datanodes{state=\"live\"}")? == DATANODES - 1))?;
            let (detected, lost) = (Instant::now(), missing(&cluster)?);
            memory::touch(copied + copied / 4)?;
            let processes = [cluster.datanodes[1].id()?, cluster.datanodes[2].id()?];
            let used = || processes.iter().map(|process| Ok(usage(*process)?.cpu())).sum::<Result<f64>>();
            let cpu = used()?;
            let meanwhile = rate(&done, || wait(|| Ok(missing(&cluster)? == 0)))?;
            let wall = detected.elapsed().as_secs_f64();
            let bytes = (lost * (arguments.block_mib << 20)) as f64;
            eprintln!("{lost} of {blocks} blocks had lost a replica");
            add("time from detection", "s", wall);
            add("throughput", "MB/s", bytes / 1e6 / wall);
            add("CPU of both DataNodes, readers' too", "s", used()? - cpu);
            add("reads before", "/s", before);
            add("reads meanwhile", "/s", meanwhile);
            add("reads meanwhile / before", "", meanwhile / before);
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("a thread does not panic")?;
        }
        watched
    })?;
    // Locates the whole file once, at its current locations.
    let located = runtime.block_on(fs.locations(PATH, 0, u64::MAX >> 1))?;
    ensure!(located.blocks.iter().all(|block| block.locations.len() == REPLICATION as usize), "blocks lack replicas");
    Ok(())
}

async fn store(fs: &FileSystem, content: Content, length: u64) -> Result<()> {
    let mut writer = fs.create(PATH, CreateOptions::default()).await?;
    let mut at = 0;
    while at < length {
        let bytes = content.bytes(at, (1 << 20).min(length - at) as usize);
        writer.write(&bytes).await?;
        at += bytes.len() as u64;
    }
    writer.close().await?;
    Ok(())
}

/// Reads at random positions until it is stopped.
async fn read(
    fs: &FileSystem,
    content: Content,
    length: u64,
    bytes: usize,
    seed: u64,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let reader = fs.open(PATH).await?;
    let (mut into, mut random) = (vec![0; bytes], Random::new(seed));
    while !stop.load(Ordering::Relaxed) {
        let at = random.below(length - bytes as u64);
        ensure!(reader.read_at(at, &mut into).await? == bytes, "a short read at {at}");
        ensure!(into[..64] == content.bytes(at, 64), "wrong bytes at {at}");
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns the reads per second during `work`.
fn rate(done: &AtomicU64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let (started, before) = (Instant::now(), done.load(Ordering::Relaxed));
    work()?;
    Ok((done.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64())
}

fn wait(is: impl Fn() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !is()? {
        ensure!(started.elapsed() < PATIENCE, "waited too long");
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Returns the number of blocks that lack a replica, including those with a pending copy.
fn missing(cluster: &Cluster) -> Result<u64> {
    Ok(figure(cluster, "low_redundancy_blocks")? + figure(cluster, "pending_copies")?)
}

fn figure(cluster: &Cluster, name: &str) -> Result<u64> {
    let page = get_text(cluster.namenode_http_port(), "/metrics")?;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("hearth_namenode_{name} ")));
    line.with_context(|| format!("the NameNode does not report {name}"))?.parse().context("a number")
}
