//! Whole jobs of Java programs on the DataNode's machine: TestDFSIO, TeraSort, a Spark query over Parquet and a scan of
//! HBase. Hadoop's client as it is on Apache's servers and on Hearth's, and Hearth's jar in its two ways, by turns.
//!
//! MapReduce runs in one JVM, with two tasks at a time. A job's wall time includes the start of its JVM, as for users;
//! Spark and HBase are measured when they are warm.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_testkit::{
    Apache, Cluster, Driver, Engine, HBase, HBaseSpec, Implementation, JavaPath, packet_bytes, usage,
};
use serde_json::json;

use super::{FILES, JAR};
use crate::amounts::at_least_one;
use crate::measure::{self, ServerClock, Timing, median};
use crate::record::{Figures, Recording};
use crate::{local_cluster, memory};

#[derive(clap::Args)]
pub struct JobArguments {
    /// Measure whole jobs instead: TestDFSIO, TeraSort, a Spark query over Parquet, a scan of HBase
    #[arg(long)]
    pub jobs: bool,
    /// Only the jobs with this text in their name: TestDFSIO, TeraSort, Spark, HBase
    #[arg(long, value_name = "TEXT", requires = "jobs")]
    only_job: Option<String>,
    /// Number of runs of each job
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<usize>)]
    job_runs: usize,
    /// Size of each of the four files of TestDFSIO, in MiB
    #[arg(long, default_value_t = 256, value_parser = at_least_one::<u64>)]
    dfsio_mib: u64,
    /// Number of rows of TeraSort, of 100 bytes each
    #[arg(long, default_value_t = 5_000_000, value_parser = at_least_one::<u64>)]
    tera_rows: u64,
    /// Size of the Parquet table, in MiB
    #[arg(long, default_value_t = 2100, value_parser = at_least_one::<u64>)]
    parquet_mib: u64,
    /// Number of rows of the HBase table, of 96 bytes each
    #[arg(long, default_value_t = 500_000, value_parser = at_least_one::<u64>)]
    hbase_rows: u64,
}

const DFS_IO: &str = "org.apache.hadoop.fs.TestDFSIO";
const DFS_IO_FILES: u64 = 4;
const EXAMPLES: &str = "org.apache.hadoop.examples.ExampleDriver";

const DFS_IO_WRITE: &str = "TestDFSIO write";
const DFS_IO_READ: &str = "TestDFSIO read";
const TERA_SORT: &str = "TeraSort";
const SPARK: &str = "Spark, all columns of Parquet";
const HBASE: &str = "HBase scan";

const STOCK: &str = "Hadoop's client";

const TERA_INPUT: &str = "/tera-in";
const PARQUET: &str = "/parquet";

/// Scans of one Spark, the first of which warms it up.
const SPARK_SCANS: usize = 3;
/// Scans of one run of HBase.
const HBASE_SCANS: u32 = 3;
const HBASE_WRITERS: u32 = 4;
const HBASE_STARTED_WITHIN: Duration = Duration::from_secs(240);
/// Time for loading, flushing and compacting HBase's table.
const HBASE_ANSWERED_WITHIN: Duration = Duration::from_secs(900);

/// Servers of one implementation.
struct System {
    make: Implementation,
    cluster: Cluster,
    /// Directory of the sockets.
    _sockets: tempfile::TempDir,
}

impl System {
    fn start(make: Implementation) -> Result<Self> {
        let (cluster, sockets) = local_cluster::start(make, |spec| {
            spec.set("dfs.blocksize", 128 << 20)
                // See docs/benchmarks: the default makes writers of many small files sleep.
                .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
                .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
        })?;
        Ok(Self { make, cluster, _sockets: sockets })
    }
}

/// A way to run jobs: servers, and what the clients read by.
struct Side<'a> {
    system: &'a System,
    client: &'static str,
    path: JavaPath,
    conf: PathBuf,
    apache: Apache,
    /// Settings of the clients, which `conf` has too.
    settings: Vec<(&'static str, String)>,
}

/// Costs of a piece of work.
struct Costs {
    timing: Timing,
    datanode_cpu: f64,
    /// Bytes that Hearth's DataNode has sent in packets.
    packets: Option<u64>,
}

impl<'a> Side<'a> {
    /// `local`: a directory in memory for what jobs store on their own machine.
    fn new(system: &'a System, path: JavaPath, local: &Path) -> Result<Self> {
        let mut settings: Vec<(&str, String)> = vec![
            ("hadoop.tmp.dir", local.display().to_string()),
            ("mapreduce.local.map.tasks.maximum", "2".to_owned()),
            // Over TCP without the jar, as by default.
            ("dfs.client.read.shortcircuit", (path == JavaPath::Files).to_string()),
        ];
        let mut apache = Apache::for_measuring()?.with_native()?;
        if path != JavaPath::Stock {
            apache = apache.with_hearth_jar()?;
            settings.push(("hearth.java.required", "true".to_owned()));
            settings.extend(path.settings().iter().map(|(key, value)| (*key, (*value).to_owned())));
        }
        let client = match path {
            JavaPath::Stock => STOCK,
            JavaPath::Blocks => JAR,
            JavaPath::Files => FILES,
        };
        let changes: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let conf = system.cluster.conf_with(&format!("jobs-{}-conf", path.name()), &changes)?;
        Ok(Self { system, client, path, conf, apache, settings })
    }

    fn system_name(&self) -> &'static str {
        local_cluster::name(self.system.make)
    }

    /// Returns the command of a MapReduce job.
    fn job(&self, local: &Path, main: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = self.apache.job_command(&self.conf, main)?;
        // It makes links in its directory.
        command.args(arguments).current_dir(local);
        Ok(command)
    }

    /// Does `work`, which returns its own times, and measures the servers.
    fn measured(&self, work: impl FnOnce() -> Result<Timing>) -> Result<Costs> {
        let cluster = &self.system.cluster;
        let sent = || (self.system.make == Implementation::Hearth).then(|| packet_bytes(cluster)).transpose();
        let before = sent()?;
        let clock = ServerClock::start(cluster.datanodes[0].id()?)?;
        let timing = work()?;
        let (datanode_cpu, _) = clock.elapsed()?;
        let packets = sent()?.zip(before).map(|(after, before)| after - before);
        Ok(Costs { timing, datanode_cpu, packets })
    }

    /// Adds the costs of `times` repetitions of a work, each.
    fn add(&self, figures: &mut Figures, work: &str, costs: &Costs, times: f64) {
        let mut add = |what: &str, unit, value: f64| {
            figures.add(work, self.system_name(), self.client, what, unit, value);
        };
        add("wall", "s", costs.timing.wall);
        add("client CPU", "s", costs.timing.client_cpu);
        add("DataNode CPU", "s", costs.datanode_cpu / times);
        if let Some(packets) = costs.packets {
            add("sent in packets", "MB", packets as f64 / 1e6 / times);
        }
    }
}

pub fn run(arguments: &JobArguments, no_apache: bool, recording: &Recording) -> Result<()> {
    let mut systems = vec![System::start(Implementation::Hearth)?];
    if !no_apache {
        systems.push(System::start(Implementation::Apache)?);
    }
    let local = tempfile::Builder::new().prefix("hearth-bench-jobs-").tempdir_in(memory::TMPFS);
    let local = local.with_context(|| format!("cannot make a directory in {}", memory::TMPFS))?;
    let mut sides = Vec::new();
    for system in &systems {
        let paths: &[JavaPath] = match system.make {
            Implementation::Apache => &[JavaPath::Stock],
            Implementation::Hearth => &[JavaPath::Stock, JavaPath::Blocks, JavaPath::Files],
        };
        for path in paths {
            sides.push(Side::new(system, *path, local.path())?);
        }
    }
    let mut figures = Figures::default();
    type Job = fn(&JobArguments, &[Side<'_>], &Path, &mut Figures) -> Result<()>;
    let jobs: [(&str, Job); 4] = [("TestDFSIO", dfs_io), (TERA_SORT, tera_sort), (SPARK, spark), (HBASE, hbase)];
    for (name, job) in jobs {
        if arguments.only_job.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            eprintln!("{name}");
            job(arguments, &sides, local.path(), &mut figures).with_context(|| name.to_owned())?;
        }
    }
    ensure!(!figures.0.is_empty(), "no job has {:?} in its name", arguments.only_job);
    figures.print();
    goals(&figures);
    if recording.is_wanted() {
        let JobArguments { dfsio_mib, tera_rows, parquet_mib, hbase_rows, .. } = arguments;
        let workload = format!(
            "java jobs: TestDFSIO {DFS_IO_FILES} files of {dfsio_mib} MiB, TeraSort {tera_rows} rows, Parquet {parquet_mib} MiB, HBase {hbase_rows} rows; {}",
            memory::place()
        );
        recording.append(&workload, &figures.0)?;
    }
    Ok(())
}

fn dfs_io(arguments: &JobArguments, sides: &[Side<'_>], local: &Path, figures: &mut Figures) -> Result<()> {
    let size = format!("{}MB", arguments.dfsio_mib);
    let files = DFS_IO_FILES.to_string();
    for run in 0..arguments.job_runs {
        for side in sides {
            memory::touch((DFS_IO_FILES * arguments.dfsio_mib) << 20)?;
            for (work, operation) in [(DFS_IO_WRITE, "-write"), (DFS_IO_READ, "-read")] {
                let results = local.join(format!("results-{run}"));
                let results_text = results.to_str().context("a directory with a name in UTF-8")?;
                let words = [operation, "-nrFiles", &files, "-size", &size, "-resFile", results_text];
                let mut command = side.job(local, DFS_IO, &words)?;
                let costs = side.measured(|| measure::command(&mut command))?;
                side.add(figures, work, &costs, 1.0);
                let rate = throughput(&results)?;
                figures.add(work, side.system_name(), side.client, "throughput", "MB/s", rate);
                std::fs::remove_file(&results).with_context(|| format!("cannot remove {}", results.display()))?;
            }
            measure::command(&mut side.job(local, DFS_IO, &["-clean"])?)?;
        }
    }
    Ok(())
}

/// Returns the throughput that TestDFSIO has written to its file of results: megabytes by the sum of all tasks' times.
fn throughput(results: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(results).with_context(|| format!("cannot read {}", results.display()))?;
    rate(&text).with_context(|| format!("no throughput in {text}"))
}

fn rate(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.contains("Throughput mb/sec"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

fn tera_sort(arguments: &JobArguments, sides: &[Side<'_>], local: &Path, figures: &mut Figures) -> Result<()> {
    let rows = arguments.tera_rows.to_string();
    // One input for all clients of the same servers.
    for side in sides.iter().filter(|side| side.path == JavaPath::Stock) {
        memory::touch(arguments.tera_rows * 100)?;
        measure::command(&mut side.job(local, EXAMPLES, &["teragen", &rows, TERA_INPUT])?)?;
    }
    for _ in 0..arguments.job_runs {
        for side in sides {
            memory::touch(arguments.tera_rows * 100)?;
            let output = format!("/tera-out-{}", side.path.name());
            let mut command = side.job(local, EXAMPLES, &["terasort", TERA_INPUT, &output])?;
            let costs = side.measured(|| measure::command(&mut command))?;
            side.add(figures, TERA_SORT, &costs, 1.0);
            let removed = side.apache.fs(&side.conf, ["-rm", "-r", "-skipTrash", &output])?;
            removed.success().context("cannot remove the output of TeraSort")?;
        }
    }
    for side in sides.iter().filter(|side| side.path == JavaPath::Stock) {
        side.apache.fs(&side.conf, ["-rm", "-r", "-skipTrash", TERA_INPUT])?.success()?;
    }
    Ok(())
}

/// Returns the command of `Scan`, a program for Spark.
fn scan(side: &Side<'_>, local: &Path, arguments: &[&str]) -> Result<Command> {
    let mut engine = Engine::spark()?.for_measuring();
    if side.path != JavaPath::Stock {
        engine = engine.with_hearth_jar()?;
    }
    Engine::configure_spark_log(&side.conf)?;
    let mut command = engine.our_java(&side.conf, 3072, "Scan")?;
    command.args(arguments).env("SPARK_LOCAL_DIRS", local).current_dir(local).stderr(Stdio::inherit());
    Ok(command)
}

/// Runs `Scan` to its end. Returns the values of its lines, by their name.
fn said(mut command: Command) -> Result<Vec<(String, String)>> {
    let output = command.output().context("cannot start java")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "Spark ended with {}\n{text}", output.status);
    let lines = text.lines().filter_map(|line| line.strip_prefix("= ")?.split_once(": "));
    Ok(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn spark(arguments: &JobArguments, sides: &[Side<'_>], local: &Path, figures: &mut Figures) -> Result<()> {
    let directory = |side: &Side<'_>| format!("{}{PARQUET}", side.system.cluster.uri());
    let (size, scans) = (arguments.parquet_mib.to_string(), SPARK_SCANS.to_string());
    for side in sides.iter().filter(|side| side.path == JavaPath::Stock) {
        memory::touch(arguments.parquet_mib << 20)?;
        let written = said(scan(side, local, &["write", &directory(side), &size])?)?;
        let bytes = written.iter().find(|(name, _)| name == "bytes").context("the size of the table")?;
        let bytes: u64 = bytes.1.parse().context("the size of the table")?;
        ensure!(bytes >= arguments.parquet_mib << 20, "the table has only {bytes} bytes");
    }
    let mut result: Option<String> = None;
    for _ in 0..arguments.job_runs {
        for side in sides {
            let mut told = Vec::new();
            let costs = side.measured(|| {
                told = said(scan(side, local, &["scan", &directory(side), &scans])?)?;
                let all = |name: &str| -> Result<Vec<f64>> {
                    let values: Vec<f64> = told
                        .iter()
                        .filter(|(found, _)| found == name)
                        .map(|(_, value)| value.parse::<f64>())
                        .collect::<Result<_, _>>()?;
                    ensure!(values.len() == SPARK_SCANS, "{} values of {name}", values.len());
                    Ok(values)
                };
                let warm = |name: &str| all(name).map(|values| median(&values[1..]));
                let least = (arguments.parquet_mib << 20) as f64;
                for read in all("read")? {
                    ensure!(read >= least, "a scan of {least} bytes has read {read}");
                }
                Ok(Timing { wall: warm("wall")?, client_cpu: warm("cpu")? })
            })?;
            side.add(figures, SPARK, &costs, SPARK_SCANS as f64);
            for (_, found) in told.iter().filter(|(name, _)| name == "result") {
                let expected = result.get_or_insert_with(|| found.clone());
                ensure!(found == expected, "{} by {} gives another result", side.system_name(), side.client);
            }
        }
    }
    for side in sides.iter().filter(|side| side.path == JavaPath::Stock) {
        side.apache.fs(&side.conf, ["-rm", "-r", "-skipTrash", PARQUET])?.success()?;
    }
    Ok(())
}

fn hbase(arguments: &JobArguments, sides: &[Side<'_>], _local: &Path, figures: &mut Figures) -> Result<()> {
    let rows = arguments.hbase_rows;
    let mut running = Vec::new();
    for side in sides {
        let mut engine = Engine::hbase()?.for_measuring();
        if side.path != JavaPath::Stock {
            engine = engine.with_hearth_jar()?;
        }
        let changes: Vec<(&str, &str)> = side.settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let name = format!("hbase-{}", side.path.name());
        let spec = HBaseSpec {
            name: &name,
            engine,
            servers: 1,
            server_heap_mib: 768,
            wal_provider: "asyncfs",
            changes: &changes,
            within: HBASE_STARTED_WITHIN,
        };
        let mut hbase = HBase::start(&side.system.cluster, &spec)?;
        hbase.client.set_answer_timeout(HBASE_ANSWERED_WITHIN);
        let mut load = |operation: &str, arguments| {
            let done = hbase.client.call(operation, arguments);
            done.with_context(|| format!("{operation} of {} by {}", side.system_name(), side.client))
        };
        load("create", json!({"regions": 4}))?;
        load("put", json!({"from": 0, "to": rows, "threads": HBASE_WRITERS}))?;
        load("flush", json!({}))?;
        load("compact", json!({}))?;
        running.push((side, hbase));
    }
    // The first run warms up.
    for run in 0..=arguments.job_runs {
        for (side, hbase) in &mut running {
            // The region server is the client of HDFS.
            let processes = [hbase.servers[0].id(), hbase.client.id()];
            let client = &mut hbase.client;
            let costs = side.measured(|| scans(client, processes, rows))?;
            if run > 0 {
                side.add(figures, HBASE, &costs, f64::from(HBASE_SCANS));
            }
        }
    }
    Ok(())
}

/// Scans the table several times. Returns the times of one scan.
fn scans(client: &mut Driver, processes: [u32; 2], rows: u64) -> Result<Timing> {
    let cpu = || -> Result<f64> { Ok(usage(processes[0])?.cpu() + usage(processes[1])?.cpu()) };
    let (before, started) = (cpu()?, Instant::now());
    for _ in 0..HBASE_SCANS {
        let found = client.call("scan", json!({}))?;
        ensure!(found["rows"] == rows, "a scan of {rows} rows found {found}");
    }
    let wall = started.elapsed().as_secs_f64() / f64::from(HBASE_SCANS);
    Ok(Timing { wall, client_cpu: (cpu()? - before) / f64::from(HBASE_SCANS) })
}

fn goals(figures: &Figures) {
    let apache = |work: &str, what: &str| figures.median(work, "Apache", STOCK, what);
    println!();
    let compared = [
        (DFS_IO_WRITE, "throughput"),
        (DFS_IO_READ, "throughput"),
        (TERA_SORT, "wall"),
        (TERA_SORT, "client CPU"),
        (SPARK, "wall"),
        (SPARK, "client CPU"),
        (HBASE, "wall"),
        (HBASE, "client CPU"),
    ];
    for (work, what) in compared {
        for client in [STOCK, JAR, FILES] {
            if let (Some(ours), Some(theirs)) = (figures.median(work, "Hearth", client, what), apache(work, what)) {
                println!(
                    "{:<75} {ours:>10.2} / {theirs:>10.2} = {:.2}",
                    format!("{work}, {what}, {client}"),
                    ours / theirs
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn throughput_is_read_from_the_last_result() {
        let text = "----- TestDFSIO ----- : write\n        Throughput mb/sec:     12.5\n\
                    ----- TestDFSIO ----- : read\n        Throughput mb/sec:     250.75\n      Average IO rate mb/sec: 3\n";
        assert_eq!(rate(text), Some(250.75));
        assert_eq!(rate("nothing"), None);
    }
}
