//! Readers on every path while their files are rewritten, appended to, truncated, renamed, deleted and evicted, and
//! DataNodes are killed. There must be no wrong byte and no good replica that is reported as corrupt. At the end no
//! pin, descriptor, mapping or registration may be left.
//!
//! `HEARTH_STRESS_SECONDS=N` makes it longer (`cargo xtask stress` runs 15 minutes), `HEARTH_STRESS_SEED=N` repeats the
//! choices of one run (not their interleaving), `HEARTH_STRESS_PATHS=local,packets` restricts the paths. In the virtual
//! machine of `cargo xtask vm` the one-sided path is RDMA.

#![expect(clippy::disallowed_methods, reason = "it waits for other processes, in real time")]

mod files;
mod leaks;
mod readers;
mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_client::{DataPath, FileSystem, os_user_name};
use hearth_config::{Configuration, Environment};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{ClusterSpec, Implementation, in_virtual_machine, wait_until};

use files::Files;
use leaks::Held;
use readers::Tally;
use report::{Path, Report};

/// Duration of the run in `cargo xtask test`.
const SECONDS: u64 = 20;
/// Small, so that few bytes make many blocks, but larger than a replica in a slab.
const BLOCK: u64 = 512 << 10;
const DATANODES: usize = 2;
/// Memory of each DataNode. All files together need about twice as much.
const MEMORY: u64 = 32 << 20;
const FILES: u64 = 64;
const WRITERS: u64 = 3;
const READERS_OF_A_PATH: u64 = 3;
const KILL_EVERY: Duration = Duration::from_secs(15);
/// The address of the virtual machine's RDMA device.
const RDMA_ADDRESS: &str = "10.8.0.1";
/// Interval between lines of progress.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// Timeout until all released resources have been returned.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);

const CHECKS: &[Check] = &[("no_wrong_bytes_and_no_leaks", stress)];

fn main() -> ExitCode {
    // Short, because socket paths are limited in length.
    let sockets = tempfile::tempdir().expect("a directory for sockets");
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(DATANODES)
        .set("dfs.replication", 2)
        .set("dfs.blocksize", BLOCK)
        .set("dfs.namenode.replication.min", 1)
        .set("dfs.client.block.write.replace-datanode-on-failure.best-effort", true)
        // Replicas that a killed writer has left on a DataNode are found by the next full report.
        .set("dfs.blockreport.intervalMsec", 5000)
        // A peer that stalls for a moment must not be avoided for half a minute.
        .set("hearth.client.one-sided.timeout", 30)
        .set("hearth.memory.limit", MEMORY)
        .set("hearth.memory.flush.delay", 1)
        .set("dfs.domain.socket.path", sockets.path().join("dn_PORT").display())
        // A DataNode that was killed is soon available again.
        .set("dfs.domain.socket.disable.interval.seconds", 1);
    let cluster = match in_virtual_machine() {
        true => cluster.at(RDMA_ADDRESS).labelled("RDMA"),
        // On a machine without an RDMA device the same messages and memory use TCP.
        false => cluster.set("hearth.one-sided.transport", "tcp"),
    };
    run(&[Suite { name: "stress", clusters: vec![cluster], checks: CHECKS }])
}

/// Returns a client that uses packets only for data that `path` cannot reach: a block being written, one on disk, a
/// small one.
fn client(conf: &Configuration, path: &str) -> Result<FileSystem> {
    let order = if path == "packets" { path.to_owned() } else { format!("{path},packets") };
    Ok(FileSystem::connect(&conf.clone().with("hearth.client.paths", order), None, &os_user_name())?)
}

fn stress(session: &mut Session) -> Result<()> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().context(name.to_owned()));
    let seconds = number("HEARTH_STRESS_SECONDS").transpose()?.unwrap_or(SECONDS);
    let seed = number("HEARTH_STRESS_SEED").transpose()?.unwrap_or(1);
    let paths = std::env::var("HEARTH_STRESS_PATHS").unwrap_or_else(|_| "local,one-sided,packets".into());
    let paths: Vec<String> = paths.split(',').map(str::to_owned).collect();
    println!("HEARTH_STRESS_SEED={seed} HEARTH_STRESS_SECONDS={seconds}");

    let conf = Configuration::load_dir(session.cluster.conf(), Environment::empty())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let before = Held::of(std::process::id())?;
    let started = Instant::now();
    let files = Arc::new(Files::new(FILES));
    let (paths, kills) = runtime.block_on(async {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = tokio::task::JoinSet::new();
        let mut by_path = Vec::new();
        for (place, path) in (0..).zip(&paths) {
            let (readers, writers) = (client(&conf, path)?, client(&conf, path)?);
            for number in (0..WRITERS).filter(|number| number % paths.len() as u64 == place) {
                let (writers, files, stop) = (writers.clone(), files.clone(), stop.clone());
                tasks.spawn(async move { files.change(&writers, seed * 1000 + number, &stop).await });
            }
            let tally = Arc::new(Tally::default());
            for number in 0..READERS_OF_A_PATH {
                let (readers, files, stop, tally) = (readers.clone(), files.clone(), stop.clone(), tally.clone());
                let seed = seed * 1000 + 500 + number;
                tasks.spawn(async move { readers::read(&readers, &files, seed, &tally, &stop).await });
            }
            by_path.push(Path { name: path.clone(), readers, tally, writers });
        }
        let outcome = disturb(session, &mut tasks, &files, Duration::from_secs(seconds)).await;
        stop.store(true, Ordering::Relaxed);
        while let Some(ended) = tasks.join_next().await {
            ended.context("a task ended badly")??;
        }
        // At the end, the content must be exactly what was written, on every path.
        for path in &paths {
            files.check_all(&client(&conf, path)?).await.with_context(|| format!("at the end, over {path}"))?;
        }
        Ok::<_, anyhow::Error>((by_path, outcome?))
    })?;
    let left = session.cluster.datanodes.iter().map(leaks::evictions).sum::<Result<u64>>()?;
    let network = if in_virtual_machine() { "RDMA (SoftiWARP)" } else { "TCP" }.to_owned();
    let (evictions, kills) = (kills.evictions + left, kills.count);
    let report = Report { took: started.elapsed(), seed, network, files: &files, kills, evictions, paths: &paths };
    println!("{report}");
    for Path { name, readers, .. } in &paths {
        let own = DataPath::ALL.into_iter().find(|own| own.name() == name).context("no such path")?;
        ensure!(readers.statistics().read_bytes(own) > 0, "no bytes arrived over {name}");
    }
    drop(paths);
    // The number of corrupt blocks is not checked: a DataNode that was killed restarts with outdated replicas.
    let log = session.cluster.namenode.process().context("it runs")?.log_text();
    ensure!(log.contains("READY"), "the NameNode's log cannot be read");
    let blamed: Vec<&str> = log.lines().filter(|line| line.contains("replica is reported corrupt")).collect();
    ensure!(blamed.is_empty(), "good replicas were called corrupt: {blamed:#?}");
    runtime.block_on(async {
        let client = FileSystem::connect(&conf, None, &os_user_name())?;
        client.delete(files::ROOT, true).await.context("deleting everything")
    })?;
    // All state of the clients ends with the runtime.
    runtime.shutdown_timeout(Duration::from_secs(10));
    settled(session, &before)?;
    println!("  leaks: no replica, pin, slot, descriptor, mapping or registration");
    Ok(())
}

/// Disturbances of the DataNodes so far.
#[derive(Default)]
struct Kills {
    count: u64,
    /// Evictions of the processes that were killed.
    evictions: u64,
}

/// Runs for `duration` and kills a DataNode now and then. The last third has no kills, so that leaks of longer-lived
/// processes show. Ends early if another task fails.
async fn disturb(
    session: &mut Session<'_>,
    tasks: &mut tokio::task::JoinSet<Result<()>>,
    files: &Files,
    duration: Duration,
) -> Result<Kills> {
    let end = Instant::now() + duration;
    let last_kill = end - duration / 3;
    let mut kills = Kills::default();
    let mut next_word = Instant::now() + SAY_EVERY;
    let mut next_kill = Instant::now() + KILL_EVERY.min(duration / 2);
    let mut victim = 0;
    while Instant::now() < end {
        tokio::select! {
            ended = tasks.join_next() => {
                ended.context("there are tasks")?.context("a task ended badly")??;
                anyhow::bail!("a task ended before its time");
            }
            // The pace of the kills and of the reports.
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
        if Instant::now() >= next_word {
            next_word += SAY_EVERY;
            println!("  {} s left: {}, {} kills", (end - Instant::now()).as_secs(), files.changes(), kills.count);
        }
        if (next_kill..last_kill).contains(&Instant::now()) {
            next_kill += KILL_EVERY;
            tokio::task::block_in_place(|| {
                kills.evictions += leaks::evictions(&session.cluster.datanodes[victim])?;
                session.cluster.datanodes[victim].kill();
                session.cluster.start_datanode(victim)?;
                session.cluster.wait_ready()
            })?;
            kills.count += 1;
            victim = (victim + 1) % DATANODES;
        }
    }
    Ok(kills)
}

/// Checks after everything was deleted and every client has ended.
fn settled(session: &Session, before: &Held) -> Result<()> {
    let mut last = String::new();
    wait_until("all resources to be returned", SETTLED_WITHIN, || {
        let mut open = Vec::new();
        for datanode in &session.cluster.datanodes {
            open.extend(leaks::of_datanode(datanode)?);
        }
        open.extend(Held::of(std::process::id())?.beyond(before));
        last = open.join("\n");
        Ok(open.is_empty().then_some(()))
    })
    .with_context(|| format!("leaks:\n{last}"))
}
