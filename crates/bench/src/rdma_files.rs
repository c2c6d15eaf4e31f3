//! A remote client end to end: a file written, read sequentially and read at random, over RDMA and with packets over
//! TCP. Client, NameNode and DataNode each run on their own host (a network namespace of the virtual machine,
//! SoftiWARP).
//!
//! `cargo xtask bench rdma-files` starts this on the client's host. Both paths use the same processor for the network,
//! so only their ratio is meaningful.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, DataPath, FileSystem, os_user_name};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Content, Process, Settings, hearth_program, in_virtual_machine, usage, wait_until};

use crate::amounts::at_least_one;
use crate::chart;
use crate::measure::percentile;
use crate::memory;
use crate::random::Random;
use crate::record::{Figures, Recording};

const NAMENODE: u8 = 2;
const DATANODE: u8 = 3;
const FILE: &str = "/file";
const PIECE: usize = 1 << 20;
const RANDOM_BYTES: usize = 4096;

#[derive(clap::Args)]
pub struct Arguments {
    /// Bytes of the file, in MiB
    #[arg(long, default_value_t = 256, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of its blocks, in MiB
    #[arg(long, default_value_t = 64, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Number of reads of 4 KiB in each run
    #[arg(long, default_value_t = 5000, value_parser = at_least_one::<usize>)]
    reads: usize,
    /// Number of runs
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<usize>)]
    runs: usize,
    #[command(flatten)]
    recording: Recording,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(in_virtual_machine(), "this workload needs the hosts of the virtual machine: run cargo xtask bench");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = Cluster::start(arguments)?;
    memory::touch(arguments.mib << 20)?;
    let mut figures = Figures::default();
    for run in 0..=arguments.runs {
        // The first run only warms up.
        let mut warming = Figures::default();
        let figures = if run == 0 { &mut warming } else { &mut figures };
        for (system, path) in [("RDMA", DataPath::OneSided), ("packets", DataPath::Packets)] {
            runtime
                .block_on(measure(&cluster, arguments, path, |work, what, unit, value| {
                    figures.add(work, system, "", what, unit, value)
                }))
                .with_context(|| format!("over {system}\n{}", cluster.datanode.log_tail()))?;
        }
    }
    figures.print();
    drop(runtime);
    if !arguments.recording.is_wanted() {
        return Ok(());
    }
    let Arguments { mib, block_mib, .. } = arguments;
    let workload = format!("rdma-files {mib} MiB, blocks of {block_mib} MiB, three hosts, siw (iWARP)");
    arguments.recording.append(&workload, &figures.0)?;
    chart::write("rdma-files", &workload, &figures.0)
}

/// The daemons on their hosts.
struct Cluster {
    conf: Configuration,
    _namenode: Process,
    datanode: Process,
    _memory: tempfile::TempDir,
    _directory: tempfile::TempDir,
}

impl Cluster {
    fn start(arguments: &Arguments) -> Result<Self> {
        let directory = tempfile::tempdir().context("a folder for the daemons")?;
        let memory = tempfile::tempdir_in(memory::TMPFS).context("a folder for replicas")?;
        let folder = |name: &str| directory.path().join(name);
        let (namenode, datanode) = (format!("10.9.0.{NAMENODE}"), format!("10.9.0.{DATANODE}"));
        let mut settings = Settings::default();
        settings
            .set("fs.defaultFS", format!("hdfs://{namenode}:9000"))
            .set("hadoop.tmp.dir", folder("tmp").display())
            .set("dfs.namenode.name.dir", format!("file://{}", folder("name").display()))
            .set("dfs.namenode.http-address", format!("{namenode}:9870"))
            .set("dfs.namenode.safemode.extension", "0")
            // The virtual machine has no name resolution.
            .set("dfs.namenode.datanode.registration.ip-hostname-check", false)
            .set("dfs.heartbeat.interval", "1")
            .set("dfs.blocksize", arguments.block_mib << 20)
            .set("dfs.replication", 1)
            .set("dfs.datanode.address", format!("{datanode}:9866"))
            .set("dfs.datanode.ipc.address", format!("{datanode}:9867"))
            .set("dfs.datanode.http.address", format!("{datanode}:9864"))
            .set("hearth.one-sided.address", format!("{datanode}:0"))
            .set("dfs.datanode.hostname", &datanode)
            .set("dfs.datanode.data.dir", format!("file://{}", folder("data").display()))
            .set("hearth.memory.dir", memory.path().join("memory").display())
            // Only a part of this limit may be registered. It must hold a written file and earlier ones, whose memory
            // readers may hold for the time of a lease. No disk is measured here.
            .set("hearth.memory.limit", (arguments.mib << 20) * 8)
            .set("hearth.memory.flush.delay", 3600);
        let conf = folder("conf");
        settings.write(&conf)?;
        let format = on_host(NAMENODE, &conf)?.args(["namenode", "-format", "-nonInteractive"]).output()?;
        ensure!(format.status.success(), "formatting: {}", String::from_utf8_lossy(&format.stderr));
        let start = |host, name: &str| {
            let mut command = on_host(host, &conf)?;
            Process::start(name, command.arg(name), &folder(&format!("{name}.log")))
        };
        let (namenode, datanode) = (start(NAMENODE, "namenode")?, start(DATANODE, "datanode")?);
        wait_until("a live DataNode", Duration::from_secs(60), || {
            let output = on_host(NAMENODE, &conf)?.args(["admin", "-report"]).output()?;
            Ok(String::from_utf8_lossy(&output.stdout).contains("Live datanodes (1)").then_some(()))
        })
        .with_context(|| format!("{}\n{}", namenode.log_tail(), datanode.log_tail()))?;
        let conf = Configuration::load_dir(&conf, Environment::empty())?;
        Ok(Self { conf, _namenode: namenode, datanode, _memory: memory, _directory: directory })
    }

    fn client(&self, path: DataPath) -> Result<FileSystem> {
        let conf = self.conf.clone().with("hearth.client.paths", path.name().to_owned());
        Ok(FileSystem::connect(&conf, None, &os_user_name())?)
    }
}

fn on_host(host: u8, conf: &Path) -> Result<Command> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("host{host}")]).arg(hearth_program()?).env("HADOOP_CONF_DIR", conf);
    Ok(command)
}

/// Makes one run over one path. `note` takes work, figure, unit and value.
async fn measure(
    cluster: &Cluster,
    arguments: &Arguments,
    path: DataPath,
    mut note: impl FnMut(&str, &str, &'static str, f64),
) -> Result<()> {
    let client = cluster.client(path)?;
    let bytes = arguments.mib << 20;
    let gb = bytes as f64 / 1e9;
    let content = Content::new(1).bytes(0, bytes as usize);
    let mut figures = |work: &str, clock: CpuClock, took: f64| -> Result<()> {
        let (datanode, machine) = clock.elapsed(cluster)?;
        note(work, "throughput", "GB/s", gb / took);
        note(work, "DataNode CPU", "s/GB", datanode / gb);
        note(work, "machine's CPU", "s/GB", machine / gb);
        Ok(())
    };

    let clock = CpuClock::start(cluster)?;
    let started = Instant::now();
    let mut writer = client.create(FILE, CreateOptions { overwrite: true, ..CreateOptions::default() }).await?;
    for piece in content.chunks(PIECE) {
        writer.write(piece).await?;
    }
    writer.close().await?;
    figures("write", clock, started.elapsed().as_secs_f64())?;

    let mut buffer = vec![1; bytes as usize];
    // The first read finds no connection and no lease.
    for warm in [false, true] {
        let mut reader = client.open(FILE).await?;
        buffer.fill(1);
        let clock = CpuClock::start(cluster)?;
        let started = Instant::now();
        let mut filled = 0;
        while filled < buffer.len() {
            let count = reader.read(&mut buffer[filled..]).await?;
            ensure!(count > 0, "the file ended after {filled} bytes");
            filled += count;
        }
        let took = started.elapsed().as_secs_f64();
        ensure!(buffer == content, "the bytes differ from those written");
        if warm {
            figures("read whole", clock, took)?;
        }
    }

    let reader = client.open(FILE).await?.positioned();
    let mut took = Vec::with_capacity(arguments.reads);
    let mut random = Random::new(1);
    let datanode = usage(cluster.datanode.id())?.cpu();
    let mut bytes_read = [0; RANDOM_BYTES];
    for _ in 0..arguments.reads {
        let at = random.below(bytes / RANDOM_BYTES as u64) * RANDOM_BYTES as u64;
        let started = Instant::now();
        let count = reader.read_at(at, &mut bytes_read).await?;
        took.push(started.elapsed().as_secs_f64() * 1e6);
        let wanted = &content[at as usize..at as usize + RANDOM_BYTES];
        ensure!(count == RANDOM_BYTES && bytes_read == wanted, "{count} bytes at {at}, or wrong ones");
    }
    took.sort_by(f64::total_cmp);
    let work = "4 KiB at random";
    for (what, part) in [("p50", 0.5), ("p99", 0.99)] {
        note(work, what, "us", percentile(&took, part).context("nothing was read")?);
    }
    note(work, "DataNode CPU of all", "s", usage(cluster.datanode.id())?.cpu() - datanode);

    let statistics = client.statistics();
    for other in DataPath::ALL.into_iter().filter(|other| *other != path) {
        let strayed = statistics.read_bytes(other) + statistics.written_bytes(other);
        ensure!(strayed == 0, "{strayed} bytes went by {other}, not by {path}");
    }
    Ok(())
}

/// CPU seconds of the DataNode and of the whole machine since a moment.
struct CpuClock {
    datanode: f64,
    machine: f64,
}

impl CpuClock {
    fn start(cluster: &Cluster) -> Result<Self> {
        Ok(Self { datanode: usage(cluster.datanode.id())?.cpu(), machine: machine_cpu()? })
    }

    fn elapsed(&self, cluster: &Cluster) -> Result<(f64, f64)> {
        let now = Self::start(cluster)?;
        Ok((now.datanode - self.datanode, now.machine - self.machine))
    }
}

/// Returns the CPU seconds of this machine since its start, without idle time and waits for disks.
fn machine_cpu() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let line =
        text.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("/proc/stat has no first line")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _disks, interrupts, soft, ..] = ticks[..] else {
        anyhow::bail!("/proc/stat: {line}")
    };
    let per_second = rustix::param::clock_ticks_per_second();
    Ok((user + nice + system + interrupts + soft) as f64 / per_second as f64)
}
