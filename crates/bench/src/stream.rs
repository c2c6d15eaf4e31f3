//! Load generator of replica streams: many synthetic replicas from one process to another, with a tmpfs at both ends.
//! Compares Hearth's streams with gRPC and with plain sendfile. Measures the CPU time of both ends and their memory
//! above idle, also with a slow receiver.
//!
//! Each end is a process that runs this same program ([`end`]). To add a carrier, add a line to [`Carrier`] and to
//! [`end`]. The ends in [`datanodes`] are complete DataNodes.

mod datanodes;
pub mod end;
mod grpc;
mod raw;
mod replicas;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hearth_testkit::{Content, Scratch, usage};
use hearth_types::ChecksumSpec;
use indicatif::ProgressBar;

use crate::amounts::{at_least_one, bar, duration, size};
use crate::record::{self, Figures, Recording};
use crate::{chart, memory};

/// Bytes in the GB of "seconds per GB".
const GB: f64 = 1e9;

const MIB: f64 = (1 << 20) as f64;

/// Bytes that are written and checksummed at once when the data is made.
const PIECE: usize = 1 << 20;

/// Maximum time without output of an end.
const QUIET_MAX: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub struct Arguments {
    /// Size of all replicas together, e.g. 512m, 5g
    #[arg(long, default_value = "1g", value_parser = size)]
    size: u64,
    /// Number of concurrent replicas, all of one size
    #[arg(long, default_value_t = 64, value_parser = at_least_one::<u64>)]
    streams: u64,
    /// Delay of the receiver before it stores a piece, e.g. 1s, 50ms; memory is then measured, for --slow-for
    #[arg(long, value_parser = duration)]
    slow_receiver: Option<Duration>,
    /// Duration of that measurement
    #[arg(long, default_value = "20s", value_parser = duration)]
    slow_for: Duration,
    /// Only these carriers
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Carrier::ALL)]
    carriers: Vec<Carrier>,
    /// Number of runs of each, alternately
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<u64>)]
    runs: u64,
    #[command(flatten)]
    recording: Recording,
}

/// Carrier of the replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Carrier {
    /// Hearth's own streams between DataNodes
    Streams,
    /// Protobuf messages over HTTP/2
    Grpc,
    /// One file after the other, unverified: the kernel's limit
    Sendfile,
    /// Two DataNodes on one machine, ordered by a NameNode: new replicas, at most 2 GiB of them. Not with
    /// --slow-receiver
    Memory,
}

impl Carrier {
    const ALL: [Self; 4] = [Self::Streams, Self::Grpc, Self::Sendfile, Self::Memory];

    fn system(self) -> &'static str {
        match self {
            Self::Streams => "Hearth",
            Self::Grpc => "gRPC",
            Self::Sendfile => "raw sendfile",
            Self::Memory => "Hearth, through memory",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Grpc => "grpc",
            Self::Sendfile => "sendfile",
            Self::Memory => "memory",
        }
    }

    /// Returns whether the receiver listens. gRPC's receiver requests the data; otherwise the sender connects.
    fn receiver_listens(self) -> bool {
        self != Self::Grpc
    }
}

/// Number and size of the replicas.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    pub streams: u64,
    /// Bytes of each replica.
    pub bytes: u64,
}

pub fn checksums_name(replica: u64) -> String {
    format!("replica-{replica}.crc")
}

/// Returns the name of the file that the receiver writes.
pub fn into_name(replica: u64) -> String {
    format!("into-{replica}")
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let chunk = u64::from(ChecksumSpec::DEFAULT.bytes_per_chunk);
    let bytes = (arguments.size / arguments.streams.max(1)).next_multiple_of(chunk);
    let payload = Payload { streams: arguments.streams.max(1), bytes };
    let folder = Scratch::within(Path::new(memory::TMPFS), "hearth-bench-stream-")?;
    make(folder.path(), payload)?;
    make_room(folder.path(), payload)?;
    let mut figures = Figures::default();
    let runs = if arguments.slow_receiver.is_some() { 1 } else { arguments.runs };
    let mut carriers = arguments.carriers.clone();
    if arguments.slow_receiver.is_some() {
        // Complete DataNodes cannot be slowed down.
        carriers.retain(|carrier| *carrier != Carrier::Memory);
    }
    for _ in 0..runs {
        for carrier in &carriers {
            match carrier {
                Carrier::Memory => datanodes::measure(payload, &mut figures)?,
                _ => measure(arguments, *carrier, payload, folder.path(), &mut figures)?,
            }
        }
        // The next round begins with another carrier, so that effects of the preceding one are distributed.
        let first = usize::from(!carriers.is_empty());
        carriers.rotate_left(first);
    }
    figures.print();
    let ratios = ratios(&figures);
    for figure in &ratios {
        println!("{} {}: {:.2} times that of {}", figure.work, figure.what, figure.median(), figure.client);
    }
    if arguments.recording.is_wanted() {
        let slow = arguments.slow_receiver.map_or(String::new(), |wait| format!(", slow receiver ({wait:?} a piece),"));
        let workload = format!(
            "stream{slow} {} replicas of {:.0} MiB at once over one connection; {}",
            payload.streams,
            payload.bytes as f64 / MIB,
            memory::place()
        );
        arguments.recording.append(&workload, &[figures.0.as_slice(), &ratios].concat())?;
        // Draws the chart only if all carriers were measured.
        if arguments.slow_receiver.is_none() && Carrier::ALL.iter().all(|carrier| carriers.contains(carrier)) {
            chart::write("stream", &workload, &figures.0)?;
        }
    }
    Ok(())
}

/// Returns the ratios of Hearth's CPU to that of the others.
fn ratios(figures: &Figures) -> Vec<record::Figure> {
    let what = "both ends' CPU";
    let Some(ours) = figures.0.iter().find(|figure| figure.system == Carrier::Streams.system() && figure.what == what)
    else {
        return Vec::new();
    };
    let is_other = |system: &str| [Carrier::Grpc, Carrier::Sendfile].iter().any(|carrier| carrier.system() == system);
    let others = figures.0.iter().filter(|figure| is_other(&figure.system) && figure.what == what);
    let ratio = |other: &record::Figure| record::Figure {
        system: format!("Hearth / {}", other.system),
        client: other.system.clone(),
        unit: "",
        values: vec![ours.median() / other.median()],
        ..ours.clone()
    };
    others.map(ratio).collect()
}

/// Reads everything once. Data that was not used for seconds, for example while complete DataNodes are measured, may
/// have been reclaimed by the machine's host. The next measurement would pay for its return.
fn bring_back(folder: &Path) -> Result<()> {
    let mut piece = vec![0; PIECE];
    for entry in fs::read_dir(folder)? {
        let mut file = fs::File::open(entry?.path())?;
        while file.read(&mut piece)? > 0 {}
    }
    Ok(())
}

/// Creates the replicas and their CRCs.
fn make(folder: &Path, payload: Payload) -> Result<()> {
    let bar = bar("making replicas", payload.streams * payload.bytes);
    for replica in 0..payload.streams {
        let mut data = fs::File::create(folder.join(grpc::file_name(replica)))?;
        let mut checksums = Vec::new();
        let mut at = 0;
        while at < payload.bytes {
            let bytes = Content::new(replica).bytes(at, PIECE.min((payload.bytes - at) as usize));
            data.write_all(&bytes).context("making a replica")?;
            ChecksumSpec::DEFAULT.compute(&bytes, &mut checksums);
            at += bytes.len() as u64;
            bar.inc(bytes.len() as u64);
        }
        fs::write(folder.join(checksums_name(replica)), checksums)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Creates the receiver's files. Every carrier overwrites the same files: the cost of new memory is then the same for
/// all. It varies between measurements by more than the carriers differ.
fn make_room(folder: &Path, payload: Payload) -> Result<()> {
    for replica in 0..payload.streams {
        memory::write_zeros(&folder.join(into_name(replica)), payload.bytes).context("making room for replicas")?;
    }
    Ok(())
}

/// Clears the bytes that are checked at the end.
fn forget(folder: &Path, payload: Payload) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let last = (PIECE as u64).min(payload.bytes);
    for replica in 0..payload.streams {
        let file = open_into(&folder.join(into_name(replica)))?;
        file.write_all_at(&vec![0; last as usize], payload.bytes - last)?;
    }
    Ok(())
}

/// Opens the file that a replica is received into, at its start.
pub fn open_into(path: &Path) -> std::io::Result<fs::File> {
    fs::File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Makes one run of one carrier.
fn measure(
    arguments: &Arguments,
    carrier: Carrier,
    payload: Payload,
    folder: &Path,
    figures: &mut Figures,
) -> Result<()> {
    forget(folder, payload)?;
    bring_back(folder)?;
    let start = |role: &str, peer: Option<&str>| End::start(arguments, carrier, payload, folder, role, peer);
    let (first, second) = if carrier.receiver_listens() { ("receive", "send") } else { ("send", "receive") };
    let mut listening = start(first, None)?;
    let address = listening.word("listening")?;
    let mut connecting = start(second, Some(&address))?;
    connecting.word("ready")?;
    let total = payload.streams * payload.bytes;
    let bar = bar(carrier.system(), total);
    let outcome = (|| {
        std::thread::sleep(Duration::from_millis(200));
        let before = [listening.idle()?, connecting.idle()?];
        let began = Instant::now();
        connecting.go()?;
        let receiver = if carrier.receiver_listens() { &mut listening } else { &mut connecting };
        let until = arguments.slow_receiver.map(|_| began + arguments.slow_for);
        let taken = receiver.wait(&bar, until)?;
        let wall = began.elapsed().as_secs_f64();
        let after = [listening.now()?, connecting.now()?];
        let mut ends = [("receiver", before[0], after[0]), ("sender", before[1], after[1])];
        if !carrier.receiver_listens() {
            (ends[0].0, ends[1].0) = ("sender", "receiver");
        }
        let (system, gigabytes) = (carrier.system(), taken as f64 / GB);
        let mut add = |what: &str, unit, value| figures.add("stream", system, "", what, unit, value);
        if arguments.slow_receiver.is_none() {
            ensure!(taken == total, "{system}: {taken} of {total} bytes arrived");
            add("throughput", "MB/s", taken as f64 / 1e6 / wall);
            let cpu = |(_, before, after): &(&str, At, At)| (after.cpu - before.cpu) / gigabytes;
            add("both ends' CPU", "s/GB", ends.iter().map(cpu).sum());
            for end in &ends {
                add(&format!("{}'s CPU", end.0), "s/GB", cpu(end));
            }
        } else {
            add("stored meanwhile", "MiB", taken as f64 / MIB);
        }
        for (end, before, after) in ends {
            add(&format!("{end}'s memory above idle"), "MiB", after.peak.saturating_sub(before.peak) as f64 / MIB);
        }
        Ok(())
    })();
    bar.finish_and_clear();
    drop((connecting, listening));
    let checked = if arguments.slow_receiver.is_none() { check(folder, payload) } else { Ok(()) };
    outcome.and(checked)
}

/// Checks that the received data is what was sent: the last piece of each replica, which was cleared before.
fn check(folder: &Path, payload: Payload) -> Result<()> {
    use std::os::unix::fs::FileExt;
    for replica in 0..payload.streams {
        let path = folder.join(into_name(replica));
        let file = fs::File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let at = payload.bytes - (PIECE as u64).min(payload.bytes);
        let mut bytes = vec![0; (payload.bytes - at) as usize];
        file.read_exact_at(&mut bytes, at)?;
        ensure!(bytes == Content::new(replica).bytes(at, bytes.len()), "{} has other bytes", path.display());
    }
    Ok(())
}

/// Resource usage of an end.
#[derive(Clone, Copy)]
struct At {
    cpu: f64,
    /// Maximum resident bytes since the last query, without replicas, which a receiver may have mapped.
    peak: u64,
}

/// One of the two processes. Dropping it ends it.
struct End {
    child: Child,
    /// Maximum resident bytes that do not belong to replicas, over all samples.
    seen: u64,
    /// Some sample has found mapped replicas.
    mapped: bool,
    lines: mpsc::Receiver<String>,
}

impl End {
    fn start(
        arguments: &Arguments,
        carrier: Carrier,
        payload: Payload,
        folder: &Path,
        role: &str,
        peer: Option<&str>,
    ) -> Result<Self> {
        let program: PathBuf = std::env::current_exe().context("cannot find the running program")?;
        let mut command = Command::new(program);
        command.args(["stream-end", role, "--carrier", carrier.name(), "--folder"]).arg(folder);
        command.args(["--streams", &payload.streams.to_string(), "--bytes", &payload.bytes.to_string()]);
        if let Some(wait) = arguments.slow_receiver {
            command.args(["--slow-ms", &wait.as_millis().to_string()]);
        }
        if let Some(peer) = peer {
            command.args(["--peer", peer]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start an end")?;
        let stdout = child.stdout.take().context("piped above")?;
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, seen: 0, mapped: false, lines })
    }

    fn line(&mut self, wait: Duration) -> Result<Option<String>> {
        match self.lines.recv_timeout(wait) {
            Ok(line) => Ok(Some(line)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("an end has ended early: {:?}", self.child.wait()?),
        }
    }

    /// Waits for a line that begins with `word`, and ignores others before it. Returns the rest of it.
    fn word(&mut self, word: &str) -> Result<String> {
        loop {
            let line = self.line(QUIET_MAX)?.with_context(|| format!("an end did not report {word}"))?;
            if let Some(rest) = line.strip_prefix(word) {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    fn go(&mut self) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("piped above")?;
        Ok(stdin.write_all(b"go\n")?)
    }

    /// Follows the receiver to its end, or to `until`. Returns the bytes that it has stored.
    fn wait(&mut self, bar: &ProgressBar, until: Option<Instant>) -> Result<u64> {
        let mut heard = Instant::now();
        loop {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(bar.position());
            }
            ensure!(heard.elapsed() < QUIET_MAX, "the receiver has stored nothing for {QUIET_MAX:?}");
            let line = self.line(Duration::from_millis(100))?;
            self.look()?;
            let Some(line) = line else { continue };
            let mut words = line.split(' ');
            let (word, bytes) = (words.next(), words.next().and_then(|bytes| bytes.parse().ok()));
            let bytes: u64 = bytes.with_context(|| format!("{line:?} says nothing"))?;
            if bytes > bar.position() {
                heard = Instant::now();
            }
            bar.set_position(bytes);
            if word == Some("done") {
                return Ok(bytes);
            }
        }
    }

    /// Returns the usage before the work. The memory peak is counted from here.
    fn idle(&mut self) -> Result<At> {
        let path = format!("/proc/{}/clear_refs", self.child.id());
        fs::write(&path, "5").with_context(|| format!("cannot write {path}"))?;
        self.seen = 0;
        self.now()
    }

    fn now(&mut self) -> Result<At> {
        let cpu = usage(self.child.id())?.cpu();
        let peak = self.look()?;
        // The kernel's peak includes mapped replicas. If there were any, the sampled maximum counts.
        Ok(At { cpu, peak: if self.mapped { self.seen } else { peak } })
    }

    /// Samples the memory. Returns the kernel's peak in bytes.
    fn look(&mut self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let bytes = |name: &str| {
            let kb = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
            let kb = kb.and_then(|kb| kb.trim().parse::<u64>().ok());
            kb.map(|kb| kb << 10).with_context(|| format!("{path} has no {name}"))
        };
        let (own, mapped) = (bytes("RssAnon:")? + bytes("RssFile:")?, bytes("RssShmem:")?);
        self.seen = self.seen.max(own);
        self.mapped |= mapped > 0;
        bytes("VmHWM:")
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
