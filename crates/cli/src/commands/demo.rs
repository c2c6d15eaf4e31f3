//! `hearth demo [FILE]`: shows a newcomer what Hearth does. It starts a NameNode and three DataNodes in a temporary
//! directory, stores a file three times, and reads it back over every path. During one read it kills a DataNode. At the
//! end it prints what it measured, beside plain copies of the same bytes that it made on the same machine.
//!
//! Only the operations are timed. What was read is compared with what was written afterwards. Memory is used once before
//! it is measured: virtual machines with free page reporting return free memory to their host, and its first use costs
//! many times the copy.

mod cpu;
mod next_steps;
mod plain;
mod sample;
mod style;
mod table;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use hearth_client::{CreateOptions, DataPath, FileSystem};
use hearth_config::{Configuration, parse};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

use crate::configuration;
use crate::local_cluster::{LocalCluster, LocalClusterOptions, Process, ProcessCluster};
use sample::Random;
use style::Style;
use table::{Reference, Row, Yardsticks};

const DATANODES: usize = 3;
/// Copies of the file that are in memory at once: the replicas, the file itself, and what was read.
const COPIES: u64 = DATANODES as u64 + 2;
/// Memory needed besides: for the processes, plus a reserve for the machine.
const SPARE_BYTES: u64 = 512 << 20;
/// Size of the file that the demo makes, if memory allows.
const SIZE_DEFAULT: u64 = 1 << 30;
/// The least size that is chosen without the user.
const SIZE_MIN: u64 = 64 << 20;
/// Several blocks, so that a read goes on at another DataNode.
const BLOCK_BYTES: u64 = 32 << 20;
/// Length of one write, and of one read whose pauses are measured.
const PIECE_BYTES: usize = 1 << 20;
/// Longest positioned read at random, and the number of them.
const RANDOM_BYTES: usize = 4096;
const RANDOM_READS: usize = 50_000;
/// Views of the whole file whose time is measured.
const VIEWS: usize = 10;

#[derive(Args)]
pub struct DemoArguments {
    /// The file to store. Default: the demo makes a file of varied content.
    file: Option<PathBuf>,
    /// Size of the file that the demo makes (suffix k, m or g). Default: 1g, or less if memory is short.
    #[arg(long, value_parser = parse::bytes, conflicts_with = "file")]
    size: Option<u64>,
    /// Keep the file system running afterwards, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// The tmpfs for the replicas.
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
}

pub fn run(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    // The servers end together with the thread that starts them, which is this one. Others serve the client.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(show(arguments))
}

/// Runs the demo in its own directories. They are removed at the end, also after an interruption, because replicas in
/// memory would stay there otherwise.
async fn show(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let interrupted = interruption()?;
    tokio::pin!(interrupted);
    let scratch =
        tempfile::Builder::new().prefix("hearth-demo-").tempdir().context("cannot make a temporary directory")?;
    let copies = tempfile::Builder::new()
        .prefix("hearth-demo-")
        .tempdir_in(&arguments.memory)
        .with_context(|| format!("cannot make a directory in {}", arguments.memory.display()))?;
    // Declared last, so that the processes end before their directories are removed.
    let processes = tokio::select! {
        code = &mut interrupted => {
            eprintln!("hearth: interrupted; removing what the demo made");
            return Ok(code);
        }
        processes = measure(arguments, scratch.path(), copies.path()) => processes?,
    };
    if !arguments.keep {
        println!("Start one of your own, and use it from another terminal in this directory:");
        next_steps::of_a_new_file_system().iter().for_each(|command| println!("  {command}"));
        return Ok(ExitCode::SUCCESS);
    }
    println!("It runs until Ctrl-C, without the killed DataNode. From another terminal:");
    next_steps::of_this_file_system(processes.rpc()?, STORED).iter().for_each(|command| println!("  {command}"));
    // The user has asked for this end, so the signal's exit code is not reported.
    let _ = interrupted.await;
    // Its directories are removed, so nothing needs to be written to disk.
    drop(processes);
    Ok(ExitCode::SUCCESS)
}

/// Starts to listen for SIGINT and SIGTERM. The future resolves with the first of them to the exit code that shells
/// use.
fn interruption() -> anyhow::Result<impl Future<Output = ExitCode>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => ExitCode::from(130),
            _ = terminate.recv() => ExitCode::from(143),
        }
    })
}

/// Stores and reads the file, and prints what that cost. The file system still runs afterwards. If dropped early, this
/// leaves no process behind.
async fn measure(arguments: &DemoArguments, scratch: &Path, copies: &Path) -> anyhow::Result<ProcessCluster> {
    let style = Style::of_stdout();
    let bytes = size(arguments)?;
    println!("{}\n", style.bold("Hearth: an HDFS whose blocks live in memory, for every HDFS client as it is."));
    let cluster = LocalCluster::prepare(LocalClusterOptions {
        dir: scratch.join("hearth"),
        memory_root: copies.to_path_buf(),
        datanodes: DATANODES,
        port: 0,
        http_port: 0,
        settings: vec![
            ("dfs.blocksize".to_owned(), BLOCK_BYTES.to_string()),
            // Far from full, because the DataNode would write to disk at once then.
            ("hearth.memory.limit".to_owned(), (bytes * 2 + (256 << 20)).to_string()),
            // Not during the measurements: the disk is no part of them.
            ("hearth.memory.flush.delay".to_owned(), "60".to_owned()),
        ],
    })?;
    let started = Instant::now();
    let mut processes = ProcessCluster::start(&cluster, |what| eprintln!("hearth: {what}")).await?;
    done(style, "a NameNode and 3 DataNodes, each a process of its own", started);

    let source = match &arguments.file {
        Some(file) => {
            let started = Instant::now();
            let read = with_bar("reading the file", bytes, |bar| read_file(file, bytes, bar)).await?;
            done(style, &format!("{} of {}", human(bytes), file_name(file)), started);
            read
        }
        None => {
            let started = Instant::now();
            let length = usize::try_from(bytes).context("the file is too large for this machine")?;
            let make = |bar: ProgressBar| sample::make(length, move |count| bar.inc(count));
            let made = with_bar("making a file", bytes, make).await;
            done(style, &format!("{} of varied content", human(bytes)), started);
            made
        }
    };

    // Written, and not only reserved: otherwise its first use would be measured.
    let mut buffer = vec![1; source.len()];
    let unwritable = || format!("cannot write to {}", copies.display());
    // First, because memory that is free for two seconds may go back to the host.
    let started = Instant::now();
    let memcpy = plain::memory(&source, &mut buffer);
    tokio::task::yield_now().await;
    let socket = plain::socket(&source, &mut buffer).context("cannot measure a plain TCP connection")?;
    tokio::task::yield_now().await;
    let file = plain::file(&source, &mut buffer, copies).await.with_context(unwritable)?;
    done(style, "the same bytes by memcpy, bare TCP and cat, to compare with", started);
    let three = bytes * DATANODES as u64;
    let copy_files = |bar: ProgressBar| {
        let source = &source;
        async move { plain::files(source, DATANODES, copies, move |count| bar.inc(count)).await.with_context(unwritable) }
    };
    let started = Instant::now();
    with_bar("warming memory", three, copy_files).await?;
    done(style, &format!("{} of memory used once: its first use is not measured", human(three)), started);
    let started = Instant::now();
    let files = with_bar("plain copies", three, copy_files).await?;
    done(style, "the same bytes copied to 3 files, to compare with", started);

    let configuration = cluster.client(processes.rpc()?, processes.http()?);
    let memcpys = memcpy * DATANODES as f64;
    let yardsticks = Yardsticks { bytes, files, file, memcpy, memcpys, socket };
    let mut demo = Demo { configuration, bytes, source, buffer, yardsticks };
    let started = Instant::now();
    let write = demo.store("write, three replicas", &processes).await?;
    done(style, "stored three times", started);
    let started = Instant::now();
    let local = demo.read("read, DataNode's memory", DataPath::Local, memcpy, &processes).await?;
    let view = demo.view().await?;
    let random = demo.read_at_random().await?;
    let packets = demo.read("read, over TCP", DataPath::Packets, socket, &processes).await?;
    done(style, "read by every path", started);
    let started = Instant::now();
    let (failover, pause) = demo.read_while_one_dies("read, a DataNode killed", &mut processes).await?;
    let victim = processes.datanodes.first().map_or("", Process::role);
    done(style, &format!("{victim} killed (SIGKILL) during a read, which went on"), started);

    println!();
    let headline = |value: String, what: &str| println!("  {}  {what}", style.green(&format!("{value:>9}")));
    let length = human(bytes.min(RANDOM_BYTES as u64));
    let what = format!("a random read of {length} in the DataNode's memory, CRCs checked");
    headline(format!("{:.1} us", random * 1e6), &what);
    if let Some(view) = view {
        headline(
            format!("{:.1} ms", view * 1e3),
            &format!("a view of all {}, CRCs compared, not one byte copied", human(bytes)),
        );
    }
    headline(format!("{:.1} ms", pause * 1e3), "the longest pause of a read whose DataNode was killed");
    println!();
    for (number, line) in table::render(&[write, local, packets, failover]).iter().enumerate() {
        println!("{}", if number == 0 { style.dim(line) } else { line.clone() });
    }
    println!();
    yardsticks.lines().iter().for_each(|line| println!("{}", style.dim(line)));
    println!("{}", style.dim("Reads: median of 3; all bytes were compared afterwards. CPU: client + DataNodes"));
    println!();
    Ok(processes)
}

/// Returns the number of bytes to store, and checks that they fit into memory. The error names a size that would.
fn size(arguments: &DemoArguments) -> anyhow::Result<u64> {
    let room = hearth_datanode::available_memory(&arguments.memory);
    let fits = room.saturating_sub(SPARE_BYTES) / COPIES;
    let bytes = match (&arguments.file, arguments.size) {
        (Some(file), _) => std::fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len(),
        (None, Some(size)) => size,
        // The first run must not fail only because the machine is small.
        (None, None) => SIZE_DEFAULT.min(fits >> 20 << 20).max(SIZE_MIN),
    };
    ensure!(bytes > 0, "the demo needs a file that is not empty: give another file");
    if bytes > fits {
        let next_step = match (fits >> 20, &arguments.file) {
            (0, _) => {
                "name a larger tmpfs with --memory, or enlarge this one (in a container: --shm-size=2g)".to_owned()
            }
            (mib, Some(_)) => format!("give a smaller file, or --size {mib}m without a file"),
            (mib, None) => format!("try --size {mib}m"),
        };
        bail!(
            "{} with {DATANODES} replicas needs {} of memory, and {} has {} free: {next_step}",
            human(bytes),
            human(bytes.saturating_mul(COPIES).saturating_add(SPARE_BYTES)),
            arguments.memory.display(),
            human(room)
        );
    }
    Ok(bytes)
}

async fn read_file(file: &Path, bytes: u64, bar: ProgressBar) -> anyhow::Result<Vec<u8>> {
    let unreadable = || format!("cannot read {}", file.display());
    let mut content = tokio::fs::File::open(file).await.with_context(unreadable)?.take(bytes);
    let length = usize::try_from(bytes).context("the file is too large for this machine")?;
    let mut read = Vec::with_capacity(length);
    while read.len() < length {
        let count = content.read_buf(&mut read).await.with_context(unreadable)?;
        if count == 0 {
            break;
        }
        bar.inc(count as u64);
    }
    ensure!(read.len() == length, "{} became shorter while it was read", file.display());
    Ok(read)
}

const STORED: &str = "/demo/file";

struct Demo {
    /// The client's.
    configuration: Configuration,
    bytes: u64,
    source: Vec<u8>,
    /// What was read last; as long as `source`.
    buffer: Vec<u8>,
    yardsticks: Yardsticks,
}

impl Demo {
    /// Returns a client that reads and writes by this path only; `None`: by all.
    fn client(&self, path: Option<DataPath>) -> anyhow::Result<FileSystem> {
        let mut configuration = self.configuration.clone();
        if let Some(path) = path {
            configuration.set("hearth.client.paths", path.name());
        }
        Ok(FileSystem::connect(&configuration, None, &configuration::user())?)
    }

    async fn store(&self, name: &'static str, processes: &ProcessCluster) -> anyhow::Result<Row> {
        let files = self.client(None)?;
        // Connections and code are used for the first time by this one.
        let first = &self.source[..self.source.len().min(SIZE_MIN as usize)];
        write(&files, "/demo/first", first, &ProgressBar::hidden()).await?;
        let clocks = Clocks::start(processes);
        let bar = bar("storing", self.bytes);
        let written = write(&files, STORED, &self.source, &bar).await;
        bar.finish_and_clear();
        written?;
        let seconds = clocks.started.elapsed().as_secs_f64();
        let reference = Reference { plain: self.yardsticks.files, limit: self.yardsticks.memcpys };
        Ok(clocks.row(name, self.bytes, 1, seconds, reference, processes))
    }

    /// Reads the file into one buffer, several times. `limit`: seconds of the same bytes at the limit of this machine.
    async fn read(
        &mut self,
        name: &'static str,
        path: DataPath,
        limit: f64,
        processes: &ProcessCluster,
    ) -> anyhow::Result<Row> {
        let files = self.client(Some(path))?;
        // The first round makes connections and mappings.
        self.read_once(&files).await?;
        let before = files.statistics().read_bytes(path);
        let clocks = Clocks::start(processes);
        let mut rounds = Vec::new();
        for _ in 0..plain::ROUNDS {
            rounds.push(self.read_once(&files).await?);
        }
        let reference = Reference { plain: self.yardsticks.file, limit };
        let row = clocks.row(name, self.bytes, plain::ROUNDS, median(rounds), reference, processes);
        let carried = files.statistics().read_bytes(path) - before;
        ensure!(carried == self.bytes * plain::ROUNDS as u64, "{name}: {carried} bytes came by {path}");
        // Once more, into a buffer that has nothing of the earlier rounds.
        self.buffer.fill(0xa5);
        self.read_once(&files).await?;
        self.check(name)?;
        Ok(row)
    }

    /// Returns the seconds.
    async fn read_once(&mut self, files: &FileSystem) -> anyhow::Result<f64> {
        let started = Instant::now();
        let filled = files.open(STORED).await?.read(&mut self.buffer).await?;
        let seconds = started.elapsed().as_secs_f64();
        ensure!(filled == self.buffer.len(), "{STORED} has {filled} bytes instead of {}", self.buffer.len());
        tokio::task::yield_now().await;
        Ok(seconds)
    }

    /// Opens views of the whole file. Returns the seconds of the median; `None`: the file cannot be shown in place.
    async fn view(&self) -> anyhow::Result<Option<f64>> {
        let files = self.client(Some(DataPath::Local))?;
        let mut seconds = Vec::with_capacity(VIEWS + 1);
        for _ in 0..=VIEWS {
            let started = Instant::now();
            let reader = files.open(STORED).await?;
            let (mut views, mut at) = (Vec::new(), 0);
            while at < self.bytes {
                let Some(view) = reader.view_in_place(at, (self.bytes - at) as usize).await? else { return Ok(None) };
                at += view.len() as u64;
                views.push(view);
            }
            seconds.push(started.elapsed().as_secs_f64());
            if seconds.len() > VIEWS {
                let mut rest = self.source.as_slice();
                for view in &views {
                    let (expected, after) = rest.split_at(view.len());
                    if view[..] != *expected {
                        bail!("a view of {STORED} shows other bytes than were written");
                    }
                    rest = after;
                    tokio::task::yield_now().await;
                }
            }
        }
        // The first one makes the mappings.
        Ok(Some(median(seconds.split_off(1))))
    }

    /// Returns the seconds of the median read.
    async fn read_at_random(&self) -> anyhow::Result<f64> {
        let files = self.client(Some(DataPath::Local))?;
        let reader = files.open(STORED).await?.positioned();
        let mut into = vec![0; RANDOM_BYTES.min(self.source.len())];
        let places = self.bytes - into.len() as u64 + 1;
        // The first ones make the mappings.
        let warming = RANDOM_READS / 10;
        let mut random = Random::new(1);
        let mut seconds = Vec::with_capacity(RANDOM_READS + warming);
        for number in 0..RANDOM_READS + warming {
            let at = random.number() % places;
            let started = Instant::now();
            let filled = reader.read_at(at, &mut into).await?;
            seconds.push(started.elapsed().as_secs_f64());
            ensure!(filled == into.len(), "a random read of {} bytes returned {filled}", into.len());
            if number % 1000 == 0 {
                tokio::task::yield_now().await;
            }
        }
        // The same reads again. Comparing them between the measured ones would take the processor's caches from those.
        let mut random = Random::new(1);
        for number in 0..RANDOM_READS + warming {
            let at = random.number() % places;
            let filled = reader.read_at(at, &mut into).await?;
            let expected = &self.source[at as usize..][..into.len()];
            ensure!(
                filled == into.len() && into == expected,
                "a random read at byte {at} of {STORED} returned other bytes than were written"
            );
            if number % 1000 == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(median(seconds.split_off(warming)))
    }

    /// Reads half of the file, kills a DataNode, and continues. Returns also the longest pause after that, in seconds.
    async fn read_while_one_dies(
        &mut self,
        name: &'static str,
        processes: &mut ProcessCluster,
    ) -> anyhow::Result<(Row, f64)> {
        let files = self.client(None)?;
        self.buffer.fill(0xa5);
        let half = self.source.len() / 2;
        let started = Instant::now();
        let (mut killed, mut pause) = (false, 0.0_f64);
        let mut reader = files.open(STORED).await?;
        let mut filled = 0;
        while filled < self.buffer.len() {
            if !killed && filled >= half {
                let victim = processes.datanodes.first_mut().context("no DataNode runs")?;
                victim.kill();
                killed = true;
            }
            let piece_started = Instant::now();
            let end = self.buffer.len().min(filled + PIECE_BYTES);
            let count = reader.read(&mut self.buffer[filled..end]).await?;
            ensure!(count > 0, "{STORED} ended at byte {filled} of {}", self.buffer.len());
            filled += count;
            if killed {
                pause = pause.max(piece_started.elapsed().as_secs_f64());
            }
            // Memory is ready at once, so without this the task that handles an interruption would not run.
            tokio::task::yield_now().await;
        }
        let seconds = started.elapsed().as_secs_f64();
        ensure!(killed, "no DataNode was killed");
        self.check(name)?;
        let reference = Reference { plain: self.yardsticks.file, limit: self.yardsticks.memcpy };
        let row = Row { path: name, bytes: self.bytes, seconds, reference, client_cpu: None, datanode_cpu: None };
        Ok((row, pause))
    }

    /// Compares what was read with what was written.
    fn check(&self, name: &str) -> anyhow::Result<()> {
        if self.buffer != self.source {
            let at = self.buffer.iter().zip(&self.source).position(|(read, written)| read != written);
            bail!("{name}: the bytes read differ from those written, from byte {} on", at.unwrap_or_default());
        }
        Ok(())
    }
}

/// Stores `content` as the new file `path`.
async fn write(files: &FileSystem, path: &str, content: &[u8], bar: &ProgressBar) -> anyhow::Result<()> {
    let mut writer = files.create(path, CreateOptions::default()).await?;
    for piece in content.chunks(PIECE_BYTES) {
        writer.write(piece).await?;
        bar.inc(piece.len() as u64);
        // Memory is ready at once, so without this the task that handles an interruption would not run.
        tokio::task::yield_now().await;
    }
    Ok(writer.close().await?)
}

/// Times at the beginning of an operation.
struct Clocks {
    started: Instant,
    client: Option<f64>,
    datanodes: Option<f64>,
}

impl Clocks {
    fn start(processes: &ProcessCluster) -> Self {
        let (client, datanodes) = cpu_seconds(processes);
        Self { started: Instant::now(), client, datanodes }
    }

    /// Returns the costs of one of `rounds` rounds. `seconds`: of one of them.
    fn row(
        self,
        path: &'static str,
        bytes: u64,
        rounds: usize,
        seconds: f64,
        reference: Reference,
        processes: &ProcessCluster,
    ) -> Row {
        let (client, datanodes) = cpu_seconds(processes);
        let used = |before: Option<f64>, after: Option<f64>| Some((after? - before?) / rounds as f64);
        Row {
            path,
            bytes,
            seconds,
            reference,
            client_cpu: used(self.client, client),
            datanode_cpu: used(self.datanodes, datanodes),
        }
    }
}

/// Returns the CPU seconds of this process, which is the client, and of all DataNodes together.
fn cpu_seconds(processes: &ProcessCluster) -> (Option<f64>, Option<f64>) {
    let datanodes = processes.datanodes.iter().map(|process| cpu::of_process(process.pid())).sum::<Option<f64>>();
    (cpu::of_process(std::process::id()), datanodes)
}

/// Returns the middle value; there is at least one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn bar(what: &str, bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "  {msg:16} [{bar:40}] {percent:>3} %";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style).with_message(what.to_string())
}

async fn with_bar<F: Future>(what: &str, bytes: u64, work: impl FnOnce(ProgressBar) -> F) -> F::Output {
    let bar = bar(what, bytes);
    let outcome = work(bar.clone()).await;
    bar.finish_and_clear();
    outcome
}

/// Prints a finished step. Steps up to a tenth of a second have no time.
fn done(style: Style, what: &str, started: Instant) {
    let took = started.elapsed();
    let time =
        if took < Duration::from_millis(100) { String::new() } else { format!(" ({:.1} s)", took.as_secs_f64()) };
    println!("  {} {what}{}", style.green("✓"), style.dim(&time));
}

/// Returns a file's name without its directories, cut so that a line has room for it.
fn file_name(file: &Path) -> String {
    const CHARACTERS_MAX: usize = 40;
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    match name.char_indices().nth(CHARACTERS_MAX) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.into_owned(),
    }
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit < UNITS.len() - 1 {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    use hearth_testkit::{Process, Scratch, hearth_program, wait_until};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns whether any process of a process group runs. A process that has ended but is not yet reaped by init does
    /// not count.
    fn runs(group: u32) -> bool {
        let group = group.to_string();
        let is_of_it = |stat: &str| {
            // After the name: state, parent, group. Source: proc(5).
            let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
            fields.next() != Some("Z") && fields.nth(1) == Some(group.as_str())
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok()).any(|stat| is_of_it(&stat))
    }

    fn is_empty(directory: &Path) -> bool {
        fs::read_dir(directory).unwrap().next().is_none()
    }

    #[test]
    fn an_interrupted_demo_leaves_nothing_behind() {
        // Repeated, because a demo that finished while this process was not scheduled was not interrupted.
        assert!((0..5).any(|_| is_interrupted_and_leaves_nothing_behind()));
    }

    /// Returns false if the demo had ended before the signal.
    fn is_interrupted_and_leaves_nothing_behind() -> bool {
        let memory = Scratch::within(Path::new("/dev/shm"), "hearth-test-").unwrap();
        let place = tempfile::tempdir().unwrap();
        let disk = place.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let mut command = Command::new(hearth_program().unwrap());
        command.args(["demo", "--size", "256m", "--memory"]).arg(memory.path()).env("TMPDIR", &disk);
        let mut demo = Process::start("demo", &mut command, &place.path().join("log")).unwrap();
        let group = demo.id();
        wait_until("the file to be made, which is stored soon", PATIENCE, || {
            if demo.log_text().contains("of varied content") {
                return Ok(Some(()));
            }
            demo.check_alive()?;
            Ok(None)
        })
        .unwrap();
        let is_there = runs(group) && !is_empty(memory.path()) && !is_empty(&disk);

        // The signal goes to the demo only, not to its children.
        let status = demo.terminate(PATIENCE).unwrap();
        if status.success() {
            return false;
        }
        assert!(is_there);
        assert_eq!(status.code(), Some(143), "{}", demo.log_tail());
        wait_until("its processes to end", PATIENCE, || Ok((!runs(group)).then_some(()))).unwrap();
        assert!(is_empty(memory.path()) && is_empty(&disk), "{}", demo.log_tail());
        true
    }
}
