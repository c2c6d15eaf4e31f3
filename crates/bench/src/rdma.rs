//! Hearth's RDMA transport beside a probe in C (`bench/baselines/rdma_probe.c`) that posts the same READs, WRITEs and
//! messages at the same depth on memory of the same kind, and beside perftest's tools. The systems alternate in one
//! run.
//!
//! `cargo xtask bench rdma` runs this in the virtual machine. Software RDMA shows correctness and ratios; its latencies
//! say nothing about a network card's.

mod latency;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Connection, Domain, Limits, Region, Transfer, Transport};
use hearth_fabric::rdma::{Rdma, Settings};
use hearth_testkit::{usage, workspace_root};
use hearth_types::{ChecksumKind, ChecksumSpec, RemoteSlice};
use serde_json::{Value, json};

use crate::amounts::at_least_one;
use crate::chart;
use crate::record::{Figures, Recording};

/// Timeout, far longer than any operation here.
const LONG: Duration = Duration::from_secs(60);
const CRC32C: ChecksumSpec = ChecksumSpec { kind: ChecksumKind::Crc32c, bytes_per_chunk: 512 };
/// Chunks are copied and checked this many bytes at a time, so that the copy is still in the cache.
const CHECKED_AT_ONCE: usize = 64 << 10;

#[derive(clap::Args)]
pub struct Arguments {
    /// Bytes of the replica, in MiB
    #[arg(long, default_value_t = 256, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Bytes of one READ, and of one slice that is written, in KiB
    #[arg(long, default_value_t = 1024, value_parser = at_least_one::<u64>)]
    piece_kib: u64,
    /// Number of READs or slices in flight
    #[arg(long, default_value_t = 8, value_parser = at_least_one::<usize>)]
    depth: usize,
    /// Number of runs
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Number of single READs of 4 KiB in each run
    #[arg(long, default_value_t = 5000, value_parser = at_least_one::<usize>)]
    reads: usize,
    /// Only measurements with this text in their name, e.g. `4 KiB`
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    recording: Recording,
    /// Run as the remote side of the measured transport; the benchmark starts it itself
    #[arg(long, hide = true)]
    pub far: bool,
    /// Number of memories that the remote side offers for writing
    #[arg(long, hide = true, default_value_t = 0)]
    sinks: usize,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    // One thread, as in the probe: in User Mode Linux the threads of one process do not run in parallel, and waking
    // each other costs many system calls of the host.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if arguments.far {
        return runtime.block_on(far(arguments));
    }
    let rdma = open()?;
    let folder = tempfile::tempdir().context("a folder for the probe")?;
    let probe = compile(folder.path())?;
    let mut figures = Figures::default();
    let mut note = |work: &str, system: &str, what: &str, unit: &'static str, value: f64| {
        println!("  {work}, {system}: {what} {value:.2} {unit}");
        figures.add(work, system, "", what, unit, value);
    };
    let bytes = (arguments.mib << 20) as f64;
    for turn in 0..arguments.runs {
        println!("run {} of {}", turn + 1, arguments.runs);
        for (work, kind, checked) in [
            ("read", "read", false),
            ("read, checked", "read", true),
            ("write", "write", false),
            ("write, checked", "write", true),
        ] {
            if !work.contains(&arguments.only) {
                continue;
            }
            let seconds = probe_passes(&probe, &rdma, arguments, kind, checked)?;
            note(work, "probe in C", "throughput", "GB/s", bytes / seconds / 1e9);
            let (seconds, far_cpu) = runtime.block_on(own_passes(&rdma, arguments, kind == "write", checked))?;
            note(work, "Hearth", "throughput", "GB/s", bytes / seconds / 1e9);
            note(work, "Hearth", "far end's CPU", "s", far_cpu);
        }
        latency::measure(&runtime, &probe, &rdma, arguments, &mut note)?;
        for (tool, work, what, unit, per) in [
            ("ib_read_bw", "read", "throughput", "GB/s", 1e-3),
            ("ib_write_bw", "write", "throughput", "GB/s", 1e-3),
            ("ib_read_lat", "4 KiB read", "p50", "us", 1.0),
        ] {
            if !work.contains(&arguments.only) {
                continue;
            }
            match perftest(tool, &rdma, arguments) {
                Ok(value) => note(work, tool, what, unit, value * per),
                Err(error) => eprintln!("skipping {tool}: {error:#}"),
            }
        }
    }
    figures.print();
    if !arguments.recording.is_wanted() {
        return Ok(());
    }
    let kind = if rdma.is_iwarp() { "iWARP" } else { "RoCE or InfiniBand" };
    let workload = format!(
        "rdma {} MiB, pieces of {} KiB, depth {}, over {} ({kind})",
        arguments.mib,
        arguments.piece_kib,
        arguments.depth,
        rdma.device()
    );
    arguments.recording.append(&workload, &figures.0)?;
    // Draws the chart only if all systems were measured.
    if arguments.only.is_empty() { chart::write("rdma", &workload, &figures.0) } else { Ok(()) }
}

fn open() -> Result<Rdma> {
    Ok(Rdma::open(Settings::default())?)
}

fn compile(folder: &Path) -> Result<PathBuf> {
    let source = workspace_root().join("bench/baselines/rdma_probe.c");
    let program = folder.join("rdma_probe");
    let mut command = Command::new("cc");
    command.args(["-O2", "-msse4.2", "-o"]).arg(&program).arg(&source).args(["-lrdmacm", "-libverbs"]);
    let output = command.output().context("cannot start cc")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("compiling {} (Debian: libibverbs-dev, librdmacm-dev): {said}", source.display());
    }
    Ok(program)
}

/// Process that is killed when this is dropped.
struct RemoteProcess(Child);

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl RemoteProcess {
    /// Starts the process and waits for the line that begins with `word`. Returns the rest of the line.
    fn start(command: &mut Command, word: &str) -> Result<(Self, String)> {
        let mut far = Self(command.stdout(Stdio::piped()).spawn().with_context(|| format!("starting {command:?}"))?);
        let output = far.0.stdout.take().context("piped above")?;
        for line in BufReader::new(output).lines() {
            if let Some(rest) = line.context("reading the far end's output")?.strip_prefix(word) {
                return Ok((far, rest.trim().to_owned()));
            }
        }
        let status = far.0.wait().context("the far end")?;
        bail!("{command:?} ended before it was ready: {status}")
    }
}

/// Returns the address of the next remote side. Each has its own port, so that none waits for an earlier one.
fn address(rdma: &Rdma) -> SocketAddr {
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(21000);
    SocketAddr::new(rdma.address(), NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

/// Passes of one measurement. The first one runs on cold memory and is not counted.
const PASSES: usize = 3;

fn probe(program: &Path, rdma: &Rdma, arguments: &Arguments, kind: &str, rest: &[String]) -> Result<Vec<f64>> {
    let address = address(rdma);
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let mut serve = Command::new(program);
    let sinks = if kind == "write" { PASSES } else { 0 };
    serve.args(["serve", &ip, &port, &arguments.mib.to_string(), &sinks.to_string()]);
    let _far = RemoteProcess::start(&mut serve, "listening")?;
    let output = Command::new(program).args([kind, &ip, &port]).args(rest).output().context("the probe")?;
    ensure!(output.status.success(), "the probe: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().map(|word| word.parse().context("the probe's figures")).collect()
}

/// Returns the seconds of the best pass.
fn probe_passes(program: &Path, rdma: &Rdma, arguments: &Arguments, kind: &str, checked: bool) -> Result<f64> {
    let numbers = [arguments.piece_kib << 10, arguments.depth as u64, PASSES as u64, checked.into()];
    let seconds = probe(program, rdma, arguments, kind, &numbers.map(|number| number.to_string()))?;
    seconds.into_iter().skip(1).reduce(f64::min).context("the probe printed nothing")
}

/// Runs the remote side of Hearth's transport: advertises memory for reading and, newly allocated for each pass, for
/// writing; checks slices.
async fn far(arguments: &Arguments) -> Result<()> {
    let rdma = open()?;
    let listener = rdma.listen(SocketAddr::new(rdma.address(), 0)).await?;
    let domain = rdma.domain()?;
    let bytes = arguments.mib << 20;
    let region = |bytes: u64, access| -> Result<Arc<dyn Region>> {
        Ok(domain.register(&Arc::new(Memory::fresh(bytes)?), 0..bytes, access)?)
    };
    let source = region(bytes, Access::RemoteRead)?;
    fill(source.memory());
    let mut sinks = Vec::new();
    for _ in 0..arguments.sinks {
        sinks.push((region(bytes, Access::RemoteWrite)?, region(bytes / 512 * 4, Access::RemoteWrite)?));
    }
    // Printed only now: the kernel drops a connection that is not accepted within seconds, and both sides may share a
    // processor.
    println!("listening on {}", listener.address());
    let connection = listener.accept().await?.accept(&domain, b"", Limits::default(), LONG).await?;
    let slice = |region: &Arc<dyn Region>| {
        let RemoteSlice { address, length, key } = region.remote();
        json!([address, length, key])
    };
    let sinks_shown: Vec<_> = sinks.iter().map(|(data, crcs)| json!([slice(data), slice(crcs)])).collect();
    let offer = json!({ "source": slice(&source), "sinks": sinks_shown });
    connection.send(Bytes::from(offer.to_string()), LONG).await?;
    let mut scratch = Scratch::default();
    while let Ok(message) = connection.receive(LONG).await {
        let [pass, at, length, checked] = numbers(&message)?;
        if checked == 1 {
            let (data, crcs) = sinks.get(pass as usize).context("no such pass")?;
            scratch.check(data.memory(), at, length, crcs.memory())?;
        }
        connection.send(Bytes::from_static(b"checked"), LONG).await?;
    }
    Ok(())
}

fn fill(memory: &Memory) {
    for at in (0..memory.length()).step_by(1 << 20) {
        let words =
            (at / 8..(at + (1 << 20)) / 8).flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        memory.write(at, &words.collect::<Vec<u8>>());
    }
}

fn numbers(message: &[u8]) -> Result<[u64; 4]> {
    let mut numbers = [0; 4];
    ensure!(message.len() == 32, "a message of {} bytes", message.len());
    for (number, bytes) in numbers.iter_mut().zip(message.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into()?);
    }
    Ok(numbers)
}

/// Buffers for checking and computing CRCs.
#[derive(Default)]
struct Scratch {
    data: Vec<u8>,
    crcs: Vec<u8>,
}

impl Scratch {
    fn check(&mut self, data: &Memory, at: u64, length: u64, crcs: &Memory) -> Result<()> {
        for start in (at..at + length).step_by(CHECKED_AT_ONCE) {
            let bytes = (at + length - start).min(CHECKED_AT_ONCE as u64) as usize;
            self.data.resize(bytes, 0);
            self.crcs.resize(bytes / 512 * 4, 0);
            data.read(start, &mut self.data);
            crcs.read(start / 512 * 4, &mut self.crcs);
            CRC32C.verify(&self.data, &self.crcs)?;
        }
        Ok(())
    }

    fn compute(&mut self, data: &Memory, at: u64, length: u64, crcs: &Memory) {
        for start in (at..at + length).step_by(CHECKED_AT_ONCE) {
            self.data.resize((at + length - start).min(CHECKED_AT_ONCE as u64) as usize, 0);
            data.read(start, &mut self.data);
            self.crcs.clear();
            CRC32C.compute(&self.data, &mut self.crcs);
            crcs.write(start / 512 * 4, &self.crcs);
        }
    }
}

/// Local side of Hearth's transport, with a newly started remote side.
struct LocalEnd {
    far: RemoteProcess,
    connection: Arc<dyn Connection>,
    source: RemoteSlice,
    sinks: Vec<(RemoteSlice, RemoteSlice)>,
    data: Arc<dyn Region>,
    crcs: Arc<dyn Region>,
}

impl LocalEnd {
    async fn connect(rdma: &Rdma, arguments: &Arguments, sinks: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("this program")?);
        command.args(["rdma", "--far", "--mib", &arguments.mib.to_string(), "--sinks", &sinks.to_string()]);
        let (far, address) = RemoteProcess::start(&mut command, "listening on ")?;
        let domain: Arc<dyn Domain> = rdma.domain()?;
        let connection = rdma.connect(&domain, address.parse()?, b"", Limits::default(), LONG).await?;
        let offer: Value = serde_json::from_slice(&connection.receive(LONG).await?)?;
        let slice = |value: &Value| -> Result<RemoteSlice> {
            let number = |at: usize| value[at].as_u64().context("a slice has three numbers");
            Ok(RemoteSlice { address: number(0)?, length: number(1)?, key: u32::try_from(number(2)?)? })
        };
        let pairs = offer["sinks"].as_array().context("the offer")?.iter();
        let sinks = pairs.map(|pair| Ok((slice(&pair[0])?, slice(&pair[1])?))).collect::<Result<_>>()?;
        let region = |bytes: u64| -> Result<Arc<dyn Region>> {
            Ok(domain.register(&Arc::new(Memory::fresh(bytes)?), 0..bytes, Access::Local)?)
        };
        let bytes = arguments.mib << 20;
        let (data, crcs) = (region(bytes)?, region(bytes / 512 * 4)?);
        fill(data.memory());
        Scratch::default().compute(data.memory(), 0, bytes, crcs.memory());
        Ok(Self { far, connection, source: slice(&offer["source"])?, sinks, data, crcs })
    }

    fn far_cpu(&self) -> Result<f64> {
        Ok(usage(self.far.0.id())?.cpu())
    }

    fn read(&self, at: u64, length: u64) -> Result<Transfer> {
        let remote = self.source.part(at, length).context("a range of the source")?;
        Ok(Transfer { local: self.data.clone(), offset: at, remote })
    }
}

/// Returns the seconds of the best pass, and the maximum CPU seconds of the remote side in any pass: a passive side is
/// idle in all of them.
async fn own_passes(rdma: &Rdma, arguments: &Arguments, writing: bool, checked: bool) -> Result<(f64, f64)> {
    let near = LocalEnd::connect(rdma, arguments, if writing { PASSES } else { 0 }).await?;
    let mut passes = Vec::new();
    for pass in 0..PASSES {
        let cpu = near.far_cpu()?;
        let started = Instant::now();
        if writing {
            write_pass(&near, arguments, pass, checked).await?;
        } else {
            read_pass(&near, arguments, checked).await?;
        }
        passes.push((started.elapsed().as_secs_f64(), near.far_cpu()? - cpu));
    }
    let counted = passes.into_iter().skip(1);
    let best = counted.reduce(|best, pass: (f64, f64)| (best.0.min(pass.0), best.1.max(pass.1)));
    best.context("there are passes")
}

async fn read_pass(near: &LocalEnd, arguments: &Arguments, checked: bool) -> Result<()> {
    let (bytes, piece) = (arguments.mib << 20, arguments.piece_kib << 10);
    let mut places = (0..bytes).step_by(piece as usize);
    let mut under_way = VecDeque::new();
    let mut scratch = Scratch::default();
    loop {
        while under_way.len() < arguments.depth
            && let Some(at) = places.next()
        {
            under_way.push_back((at, near.connection.read(vec![near.read(at, piece)?], LONG)));
        }
        let Some((at, read)) = under_way.pop_front() else { return Ok(()) };
        read.await?;
        if checked {
            scratch.check(near.data.memory(), at, piece, near.crcs.memory())?;
        }
    }
}

async fn write_pass(near: &LocalEnd, arguments: &Arguments, pass: usize, checked: bool) -> Result<()> {
    let (bytes, piece) = (arguments.mib << 20, arguments.piece_kib << 10);
    let (data, crcs) = near.sinks[pass];
    let mut places = (0..bytes).step_by(piece as usize);
    let mut under_way = VecDeque::new();
    let mut scratch = Scratch::default();
    loop {
        while under_way.len() < arguments.depth
            && let Some(at) = places.next()
        {
            let mut transfers = Vec::new();
            let remote = data.part(at, piece).context("a range of the sink")?;
            transfers.push(Transfer { local: near.data.clone(), offset: at, remote });
            if checked {
                scratch.compute(near.data.memory(), at, piece, near.crcs.memory());
                let (table, length) = (at / 512 * 4, piece / 512 * 4);
                let remote = crcs.part(table, length).context("a range of the table")?;
                transfers.push(Transfer { local: near.crcs.clone(), offset: table, remote });
            }
            let message: Vec<u8> =
                [pass as u64, at, piece, checked.into()].iter().flat_map(|number| number.to_le_bytes()).collect();
            under_way.push_back(near.connection.write(transfers, Some(message.into()), LONG));
        }
        let Some(write) = under_way.pop_front() else { return Ok(()) };
        write.await?;
        near.connection.receive(LONG).await?;
    }
}

/// Returns the result of one of perftest's tools: MB/s, or microseconds.
fn perftest(tool: &str, rdma: &Rdma, arguments: &Arguments) -> Result<f64> {
    let IpAddr::V4(ip) = rdma.address() else { bail!("it is called by an IPv4 address") };
    let port = address(rdma).port().to_string();
    let is_latency = tool.ends_with("_lat");
    let size = if is_latency { 4096 } else { arguments.piece_kib << 10 };
    let call = || {
        let mut command = Command::new(tool);
        // Connects by rdma_cm, which iWARP needs.
        command.args(["-R", "-F", "-d", rdma.device(), "-p", &port, "-s", &size.to_string(), "-n", "1000"]);
        if !is_latency {
            command.args(["-t", &arguments.depth.to_string()]);
        }
        command
    };
    let far =
        RemoteProcess(call().stdout(Stdio::null()).stderr(Stdio::null()).spawn().with_context(|| tool.to_owned())?);
    // The tool prints nothing when it is ready.
    std::thread::sleep(Duration::from_millis(500));
    let output = call().arg(ip.to_string()).output().with_context(|| tool.to_owned())?;
    drop(far);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = text.lines().filter(|line| line.trim().starts_with(&size.to_string()));
    let columns: Vec<f64> =
        rows.next_back().context("no figures")?.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Latency: bytes, iterations, min, max, typical. Throughput: bytes, iterations, peak, average, messages.
    columns.get(if is_latency { 4 } else { 3 }).copied().context("too few figures")
}
