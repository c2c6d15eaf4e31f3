//! Reads of Python programs on the DataNode's machine: the package `hearth`, PyArrow on its drop-in library, hdfs-native, and PyArrow with
//! Apache's libhdfs, which starts a JVM in the process and reads by file descriptor. The reference is a copy of the same bytes by NumPy in the
//! same process. Each client has a process of its own (`python/clients.py`); the clients alternate within each run. The data is in memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use hearth_client::{CreateOptions, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{
    Apache, Cluster, Content, Driver, Implementation, apache_libhdfs, python_with_hdfs_native, python_with_libraries,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::amounts::at_least_one;
use crate::measure::median;
use crate::record::{Figures, Recording};
use crate::{chart, local_cluster, memory};

#[derive(clap::Args)]
pub struct Arguments {
    /// Size of the file that is read sequentially and viewed, in MiB
    #[arg(long, default_value_t = 128, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of the file that is read at random, in MiB
    #[arg(long, default_value_t = 512, value_parser = at_least_one::<u64>)]
    random_mib: u64,
    /// Size of the data of the Parquet file in MiB
    #[arg(long, default_value_t = 96, value_parser = at_least_one::<u64>)]
    parquet_mib: u64,
    /// Size of a block in MiB. A view shows one block, so the files that are viewed must be no larger
    #[arg(long, default_value_t = 128, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Number of random reads in each run; a tenth for the clients of others, which are slower
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one::<usize>)]
    random_reads: usize,
    /// Number of small files
    #[arg(long, default_value_t = 17_836, value_parser = at_least_one::<usize>)]
    files: usize,
    /// Number of threads that read small files
    #[arg(long, default_value_t = 60, value_parser = at_least_one::<usize>)]
    threads: usize,
    /// Number of small files in a call of `read_files`
    #[arg(long, default_value_t = 256, value_parser = at_least_one::<usize>)]
    batch: usize,
    /// Number of runs
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Leave out Apache's servers
    #[arg(long)]
    no_apache: bool,
    /// Only clients with this text in their name, e.g. "PyArrow"
    #[arg(long)]
    only: Option<String>,
    #[command(flatten)]
    recording: Recording,
}

const SCRIPT: &str = include_str!("python/clients.py");

const WHOLE: &str = "/whole";
const RANDOM: &str = "/random";
const TABLE: &str = "/table.parquet";
const SMALL: &str = "/small";

/// Sequential reads, views or scans in one measurement.
const ROUNDS: usize = 10;
const RANDOM_BYTES: usize = 4096;
const SMALL_BYTES: usize = 32 << 10;
/// Small files that a fresh process reads before its memory is measured.
const FIRST_FILES: usize = 1000;
const COLUMNS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Those that are scanned.
const SCANNED: [&str; 2] = ["b", "g"];
/// Number of files that are stored concurrently.
const STORED_AT_ONCE: usize = 32;
/// Time for the DataNode's flusher before anything is measured.
const FLUSHED_AFTER: Duration = Duration::from_secs(13);
/// A slow client reads all small files in a minute or two.
const ANSWERED_WITHIN: Duration = Duration::from_secs(600);

const SEQUENTIAL: &str = "read whole, into a NumPy array";
const VIEW: &str = "open and view whole";
const VIEW_OF_OPEN: &str = "view whole of an open file";
const AT_RANDOM: &str = "read 4 KiB at random";
const SMALL_FILES: &str = "small files";
const SCAN: &str = "scan 2 of 8 columns";
const FIRST: &str = "from import to first byte";
const SOME_FILES: &str = "import, then read 1000 small files";
const IN_BATCHES: &str = "hearth, read_files";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hearth,
    DropIn,
    HdfsNative,
    Jvm,
    WebHdfs,
    /// No client: a file of this machine.
    Local,
}

impl Kind {
    /// Returns the client's name in the record.
    fn name(self) -> &'static str {
        match self {
            Self::Hearth => "hearth",
            Self::DropIn => "PyArrow, drop-in",
            Self::HdfsNative => "hdfs-native",
            Self::Jvm => "PyArrow, JVM",
            Self::WebHdfs => "fsspec, webhdfs",
            Self::Local => "PyArrow",
        }
    }

    /// Returns its name in `clients.py`.
    fn word(self) -> &'static str {
        match self {
            Self::Hearth => "hearth",
            Self::DropIn => "drop-in",
            Self::HdfsNative => "hdfs-native",
            Self::Jvm => "jvm",
            Self::WebHdfs => "webhdfs",
            Self::Local => "local",
        }
    }

    /// Returns whether it reads from the DataNode's memory.
    fn is_ours(self) -> bool {
        matches!(self, Self::Hearth | Self::DropIn)
    }
}

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
                // Sixty readers with a connection each are the point of this benchmark.
                .set("dfs.datanode.max.transfer.threads", 4096)
        })?;
        Ok(Self { name: local_cluster::name(make), cluster, _sockets: sockets })
    }

    /// Stores the files. `table`: a Parquet file on this machine.
    fn store(&self, runtime: &Runtime, arguments: &Arguments, table: &Path) -> Result<()> {
        let mut configuration = Configuration::load_dir(self.cluster.conf(), Environment::empty())?;
        configuration.set("hearth.client.paths", "packets".to_owned());
        let fs = FileSystem::connect(&configuration, None, &hearth_client::os_user_name())?;
        for (seed, (path, mib)) in [(WHOLE, arguments.mib), (RANDOM, arguments.random_mib)].into_iter().enumerate() {
            memory::touch(mib << 20)?;
            runtime.block_on(async {
                let mut writer = fs.create(path, CreateOptions::default()).await?;
                for piece in 0..mib {
                    writer.write(&Content::new(seed as u64).bytes(piece << 20, 1 << 20)).await?;
                }
                writer.close().await?;
                anyhow::Ok(())
            })?;
        }
        let bytes = std::fs::read(table).with_context(|| format!("cannot read {}", table.display()))?;
        memory::touch((bytes.len() + arguments.files * SMALL_BYTES) as u64)?;
        let next = AtomicUsize::new(0);
        let store_small = || async {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= arguments.files {
                    return anyhow::Ok(());
                }
                // The path's form is that of `clients.py`.
                let mut writer = fs.create(&format!("{SMALL}/file-{index}"), CreateOptions::default()).await?;
                writer.write(&Content::new(index as u64).bytes(0, SMALL_BYTES)).await?;
                writer.close().await?;
            }
        };
        runtime.block_on(async {
            let mut writer = fs.create(TABLE, CreateOptions::default()).await?;
            writer.write(&bytes).await?;
            writer.close().await?;
            try_join_all((0..STORED_AT_ONCE).map(|_| store_small())).await?;
            anyhow::Ok(())
        })?;
        eprintln!("{}: stored", self.name);
        Ok(())
    }
}

/// The Python that all clients run in, and what they find there.
struct Python {
    program: PathBuf,
    /// Has the script, and the wheel, which is installed in `site`.
    directory: tempfile::TempDir,
    /// Directory that hdfs-native is installed in.
    hdfs_native: Option<PathBuf>,
    /// Set if Apache's libhdfs is there.
    apache: Option<Apache>,
}

impl Python {
    fn prepare() -> Result<Self> {
        let program = python_with_libraries()?;
        let directory = tempfile::tempdir().context("cannot make a directory for Python")?;
        let script = directory.path().join("clients.py");
        std::fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
        let mut install = Command::new(&program);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]);
        install.arg("--target").arg(directory.path().join("site")).arg(wheel()?);
        let status = install.status().context("cannot start pip")?;
        ensure!(status.success(), "installing the wheel of hearth-hdfs ended with {status}");
        let hdfs_native = hdfs_native().inspect_err(|error| eprintln!("skipped: hdfs-native: {error:#}")).ok();
        let apache = apache_libhdfs().and_then(|_| Apache::for_measuring()?.with_native());
        let apache = apache.inspect_err(|error| {
            eprintln!("skipped: PyArrow with a JVM: {error:#}. In its place: fsspec's webhdfs");
        });
        Ok(Self { program, directory, hdfs_native, apache: apache.ok() })
    }

    /// Returns the clients of others that can run here.
    fn others(&self) -> Vec<Kind> {
        let java = if self.apache.is_some() { Kind::Jvm } else { Kind::WebHdfs };
        self.hdfs_native.iter().map(|_| Kind::HdfsNative).chain([java]).collect()
    }

    /// Starts a process of a client. It imports the client when it is first asked to read.
    fn start(&self, kind: Kind, system: &System) -> Result<Driver> {
        let cluster = &system.cluster;
        let mut command = Command::new(&self.program);
        command.arg(self.directory.path().join("clients.py")).arg(kind.word());
        for name in ["JAVA_HOME", "CLASSPATH", "HADOOP_HOME", "ARROW_LIBHDFS_DIR", "LD_LIBRARY_PATH", "PYTHONPATH"] {
            command.env_remove(name);
        }
        command.env("HADOOP_CONF_DIR", cluster.conf());
        match kind {
            Kind::Hearth | Kind::DropIn => {
                command.env("PYTHONPATH", self.directory.path().join("site"));
            }
            Kind::HdfsNative => {
                command.env("HDFS_NATIVE", self.hdfs_native.as_ref().context("hdfs-native is not installed")?);
                command.env("NAMENODE", format!("127.0.0.1:{}", cluster.namenode_rpc_port()));
            }
            Kind::Jvm => {
                let conf = cluster.conf_with(
                    "jvm-conf",
                    &[
                        ("dfs.client.read.shortcircuit", "true"),
                        ("dfs.client.socketcache.capacity", "64"),
                        // Sixty readers want more slots than it has. It logs a warning for each, and continues to read.
                        ("log4j.logger.org.apache.hadoop.hdfs.shortcircuit", "ERROR"),
                    ],
                )?;
                self.apache.as_ref().context("Apache's libhdfs was not built")?.embedded(&mut command, &conf)?;
            }
            Kind::WebHdfs => {
                command.env("NAMENODE_HTTP", format!("127.0.0.1:{}", cluster.namenode_http_port()));
            }
            Kind::Local => {}
        }
        command.env("HADOOP_USER_NAME", hearth_client::os_user_name());
        let mut driver = Driver::start(&mut command)?;
        driver.set_answer_timeout(ANSWERED_WITHIN);
        Ok(driver)
    }
}

/// Returns the release's wheel, which `cargo xtask bench python` builds.
fn wheel() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the running program")?;
    let directory = program.ancestors().nth(2).context("the program lies in a target directory")?.join("wheel/release");
    let files = std::fs::read_dir(&directory).into_iter().flatten();
    let mut wheels = files.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.with_context(|| format!("no wheel in {}; run `cargo xtask bench python`", directory.display()))
}

/// Returns the directory that hdfs-native is installed in.
fn hdfs_native() -> Result<PathBuf> {
    let lines = "import hdfs_native, pathlib; print(pathlib.Path(hdfs_native.__file__).parents[1])";
    let output =
        Command::new(python_with_hdfs_native()?).args(["-c", lines]).output().context("cannot start Python")?;
    ensure!(output.status.success(), "it cannot be imported: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}

/// A warm process of a client.
struct Client<'a> {
    kind: Kind,
    python: &'a Python,
    system: &'a System,
    driver: Driver,
    /// Sum of all values of the scanned columns.
    sum: &'a Value,
}

impl<'a> Client<'a> {
    fn start(kind: Kind, python: &'a Python, system: &'a System, sum: &'a Value) -> Result<Self> {
        Ok(Self { kind, python, system, driver: python.start(kind, system)?, sum })
    }

    /// `run`: 0 for the run that only warms up, and checks all bytes.
    fn measure(&mut self, figures: &mut Figures, run: usize, arguments: &Arguments) -> Result<()> {
        let (system, client, check) = (self.system.name, self.kind.name(), run == 0);
        let mut add = |work: &str, what: &str, unit: &'static str, value: f64| {
            figures.add(work, system, client, what, unit, value);
        };

        let mut fresh = self.python.start(self.kind, self.system)?;
        let answer = fresh.call("first", json!({"path": WHOLE}))?;
        add(FIRST, "wall", "ms", number(&answer["seconds"])? * 1e3);
        add(FIRST, "memory", "MiB", mib(&answer["memory"])?);
        let count = arguments.files.min(FIRST_FILES);
        let small =
            json!({"dir": SMALL, "count": count, "threads": arguments.threads, "length": SMALL_BYTES, "check": false});
        add(SOME_FILES, "memory", "MiB", mib(&fresh.call("small", small)?["memory"])?);
        drop(fresh);

        let whole = json!({"path": WHOLE, "length": arguments.mib << 20, "rounds": ROUNDS, "seed": 0, "check": check});
        let whole = self.driver.call("whole", whole)?;
        add(SEQUENTIAL, "wall", "ms", middle(&whole["reads"])? * 1e3);

        let count = if self.kind.is_ours() { arguments.random_reads } else { arguments.random_reads.div_ceil(10) };
        let random = json!({"path": RANDOM, "size": arguments.random_mib << 20, "length": RANDOM_BYTES, "count": count,
            "run": run, "seed": 1, "check": check});
        let answer = self.driver.call("random", random)?;
        for what in ["p50", "p99"] {
            add(AT_RANDOM, what, "us", number(&answer[what])?);
        }

        let small = json!({"dir": SMALL, "count": arguments.files, "threads": arguments.threads,
            "length": SMALL_BYTES, "check": check});
        let seconds = number(&self.driver.call("small", small)?["seconds"])?;
        add(SMALL_FILES, "rate", "files/s", arguments.files as f64 / seconds);

        let scan = json!({"path": TABLE, "columns": SCANNED, "rounds": ROUNDS});
        let answer = self.driver.call("scan", scan)?;
        ensure!(answer["sum"] == *self.sum, "{client} sums up to {}, not {}", answer["sum"], self.sum);
        add(SCAN, "wall", "ms", middle(&answer["seconds"])? * 1e3);

        if self.kind == Kind::Hearth {
            let view = json!({"path": WHOLE, "length": arguments.mib << 20, "rounds": ROUNDS});
            let answer = self.driver.call("view", view)?;
            add(VIEW, "wall", "ms", middle(&answer["path"])? * 1e3);
            add(VIEW_OF_OPEN, "wall", "ms", middle(&answer["file"])? * 1e3);
            add(VIEW, "memory grown", "MiB", mib(&answer["shown"])?);
            add(VIEW, "memory copied", "MiB", mib(&answer["copied"])?);
            let batches = json!({"dir": SMALL, "count": arguments.files, "batch": arguments.batch,
                "length": SMALL_BYTES, "check": check});
            let seconds = number(&self.driver.call("batches", batches)?["seconds"])?;
            figures.add(SMALL_FILES, system, IN_BATCHES, "rate", "files/s", arguments.files as f64 / seconds);
            figures.add(SEQUENTIAL, "memcpy", client, "wall", "ms", middle(&whole["copies"])? * 1e3);
        }
        Ok(())
    }
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number"))
}

/// Returns the median of an array of numbers.
fn middle(values: &Value) -> Result<f64> {
    let values = values.as_array().with_context(|| format!("{values} is no array"))?;
    Ok(median(&values.iter().map(number).collect::<Result<Vec<f64>>>()?))
}

/// Returns a number of bytes in MiB.
fn mib(bytes: &Value) -> Result<f64> {
    Ok(number(bytes)? / f64::from(1 << 20))
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let largest = arguments.mib.max(arguments.parquet_mib + 1);
    ensure!(largest <= arguments.block_mib, "a view shows one block: --block-mib must be at least {largest}");
    let (python, runtime) = (Python::prepare()?, Runtime::new()?);
    let mut systems = vec![System::start(Implementation::Hearth, arguments)?];
    if !arguments.no_apache {
        systems.push(System::start(Implementation::Apache, arguments)?);
    }
    let table = systems[0].cluster.directory().join("table.parquet");
    let mut local = python.start(Kind::Local, &systems[0])?;
    let generate = json!({"local": table, "columns": COLUMNS, "scanned": SCANNED, "size": arguments.parquet_mib << 20});
    let mut generated = local.call("generate", generate)?;
    let sum = generated["sum"].take();
    for system in &systems {
        system.store(&runtime, arguments, &table)?;
    }
    std::thread::sleep(FLUSHED_AFTER);

    let mut clients = Vec::new();
    for system in &systems {
        let ours: &[Kind] = if system.name == "Hearth" { &[Kind::Hearth, Kind::DropIn] } else { &[] };
        for kind in ours.iter().copied().chain(python.others()) {
            if arguments.only.as_ref().is_none_or(|only| kind.name().contains(only.as_str())) {
                clients.push(Client::start(kind, &python, system, &sum)?);
            }
        }
    }
    let (mut figures, mut warming) = (Figures::default(), Figures::default());
    for run in 0..=arguments.runs {
        eprintln!("{}", if run == 0 { "warming up".to_owned() } else { format!("run {run} of {}", arguments.runs) });
        let figures = if run == 0 { &mut warming } else { &mut figures };
        for client in &mut clients {
            let name = client.kind.name();
            client.measure(figures, run, arguments).with_context(|| format!("{name} on {}", client.system.name))?;
        }
        let answer = local.call("scan", json!({"path": table, "columns": SCANNED, "rounds": ROUNDS}))?;
        figures.add(SCAN, "local file", Kind::Local.name(), "wall", "ms", middle(&answer["seconds"])? * 1e3);
    }
    figures.print();
    goals(&figures);
    if arguments.recording.is_wanted() {
        let Arguments { mib, random_mib, block_mib, files, threads, .. } = arguments;
        let workload = format!(
            "python {mib} MiB, blocks of {block_mib} MiB, at random in {random_mib} MiB, {files} small files by {threads} threads; {}",
            memory::place()
        );
        arguments.recording.append(&workload, &figures.0)?;
        // Draws the chart only if all systems were measured.
        if !arguments.no_apache && arguments.only.is_none() && python.others() == [Kind::HdfsNative, Kind::Jvm] {
            chart::write("python", &workload, &figures.0)?;
        }
    }
    Ok(())
}

/// Prints the figures that have goals. The bases are clients on the same cluster.
fn goals(figures: &Figures) {
    let of = |work: &str, client: Kind, what: &str| figures.median(work, "Hearth", client.name(), what);
    let ours = |work: &str, what: &str| of(work, Kind::Hearth, what);
    let batches = figures.median(SMALL_FILES, "Hearth", IN_BATCHES, "rate");
    let copied = figures.median(SEQUENTIAL, "memcpy", Kind::Hearth.name(), "wall");
    let (native, jvm) = (Kind::HdfsNative, Kind::Jvm);
    let lines = [
        ("whole file, to NumPy's copy", ours(SEQUENTIAL, "wall"), copied, "at most 1.5"),
        ("view, to 0.3 ms", ours(VIEW, "wall"), Some(0.3), "at most 1"),
        ("4 KiB at random, p50, to 5 us", ours(AT_RANDOM, "p50"), Some(5.0), "at most 1"),
        (
            "small files by threads, to hdfs-native",
            ours(SMALL_FILES, "rate"),
            of(SMALL_FILES, native, "rate"),
            "at least 8",
        ),
        ("small files by threads, to a JVM", ours(SMALL_FILES, "rate"), of(SMALL_FILES, jvm, "rate"), "at least 10"),
        ("small files by read_files, to hdfs-native", batches, of(SMALL_FILES, native, "rate"), "at least 8"),
        ("small files by read_files, to a JVM", batches, of(SMALL_FILES, jvm, "rate"), "at least 10"),
        ("memory after the first byte, to a JVM", ours(FIRST, "memory"), of(FIRST, jvm, "memory"), "at most 0.2"),
    ];
    println!();
    for (what, value, to, goal) in lines {
        if let (Some(value), Some(to)) = (value, to) {
            println!("{what:<44} {value:>10.2} / {to:>10.2} = {:.2} (goal {goal})", value / to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_every_client() {
        for kind in [Kind::Hearth, Kind::DropIn, Kind::HdfsNative, Kind::Jvm, Kind::WebHdfs, Kind::Local] {
            assert!(SCRIPT.contains(&format!("\n    \"{}\": ", kind.word())), "{}", kind.word());
        }
        for operation in ["first", "whole", "view", "random", "small", "batches", "scan", "generate"] {
            assert!(SCRIPT.contains(&format!("\n    def {operation}(self, r):\n")), "{operation}");
        }
    }

    #[test]
    fn answers_are_numbers() {
        assert_eq!(middle(&json!([3.0, 1, 2])).unwrap(), 2.0);
        assert_eq!(mib(&json!(3 << 20)).unwrap(), 3.0);
        assert!(middle(&json!({})).is_err() && number(&json!("1")).is_err() && number(&Value::Null).is_err());
    }
}
