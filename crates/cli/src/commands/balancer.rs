//! `hearth balancer`: the options, output and exit codes of `hdfs balancer`. Source: Balancer.java and
//! NameNodeConnector.java of Hadoop 3.4.
//!
//! Each iteration asks the NameNode for the use of all storages, pairs those that are used too much with others
//! ([`plan`]), and moves blocks between them ([`dispatch`]). A file on HDFS keeps a second balancer from running.

mod arguments;
mod dispatch;
mod plan;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hearth_client::{
    CreateOptions, DatanodeAdminState, DatanodeReportKind, DatanodeStorages, ErrorKind, Exception, FileSystem,
    ReplicaMover, RollingUpgradeAction, Writer,
};
use hearth_config::{keys, parse};
use hearth_types::Calendar;

use self::arguments::Options;
pub use self::arguments::USAGE;
use self::dispatch::{Node, Settings, SourcePlan};
use self::plan::{Group, Limits, Pair, Plan};
use super::fs::time::now_ms;
use super::generic_options::GENERIC_USAGE;
use super::tool::{self, FAILED, IllegalArgument, Tool, ToolArguments, byte_description, java_text};

/// File that exists while a balancer runs.
const ID_FILE: &str = "/system/balancer.id";
/// Longest time for the removal of that file at the end.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(30);
/// Upper limit of the pause between iterations.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Outcome of an iteration or of the whole run. Source: ExitStatus.java.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
enum Outcome {
    Success = 0,
    InProgress = 1,
    NoMoveBlock = -2,
    NoMoveProgress = -3,
    IoException = -4,
    IllegalArguments = -5,
    Interrupted = -6,
    UnfinalizedUpgrade = -7,
}

impl Outcome {
    /// Returns the exit code of a process: the number modulo 256.
    fn code(self) -> u8 {
        (self as i8) as u8
    }

    /// Prints an error as Apache's balancer does.
    fn of(error: &anyhow::Error) -> Self {
        println!("{}.  Exiting ...", java_text(error));
        match error.downcast_ref::<IllegalArgument>() {
            Some(_) => Self::IllegalArguments,
            None => Self::IoException,
        }
    }
}

pub fn run(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("balancer", arguments, async |tool: &Tool, words: Vec<String>| {
        if let [only] = words.as_slice()
            && ["-h", "-help", "--help"].contains(&only.as_str())
        {
            print!("{USAGE}{GENERIC_USAGE}");
            return 0;
        }
        let began = Instant::now();
        let code = match Options::parse(&words) {
            Ok(options) => run_until_stopped(tool, &options).await.code(),
            Err(error) => {
                eprint!("{USAGE}");
                eprintln!("balancer: {error:#}");
                FAILED
            }
        };
        println!("{:<24} Balancing took {}", time_text(), duration_text(began.elapsed()));
        code
    })
}

/// Balances until the end, or until a signal asks to stop. The file that marks a running balancer is then removed.
async fn run_until_stopped(tool: &Tool, options: &Options) -> Outcome {
    let prepared = async {
        let fs = tool.fs()?;
        let mark = RunningMark::take(&fs).await?;
        anyhow::Ok((fs, mark))
    };
    let (fs, mark) = match prepared.await {
        Ok(prepared) => prepared,
        Err(error) => return Outcome::of(&error),
    };
    println!(
        "Time Stamp               Iteration#  Bytes Already Moved  Bytes Left To Move  Bytes Being Moved  NameNode"
    );
    let outcome = tokio::select! {
        outcome = balance(tool, &fs, options) => outcome.unwrap_or_else(|error| Outcome::of(&error)),
        stopped = super::stop_requested() => match stopped {
            Ok(()) => {
                println!("java.lang.InterruptedException.  Exiting ...");
                Outcome::Interrupted
            }
            Err(error) => Outcome::of(&error),
        },
    };
    if tokio::time::timeout(REMOVAL_PATIENCE, mark.remove(&fs)).await.is_err() {
        tracing::warn!("cannot remove {ID_FILE} in time; the next balancer does it after the lease's end");
    }
    outcome
}

/// The open file that marks a running balancer. Another balancer cannot open it while this one renews its lease.
struct RunningMark {
    writer: Writer,
}

impl RunningMark {
    /// Errors: another balancer runs.
    async fn take(fs: &FileSystem) -> anyhow::Result<Self> {
        let taken = async {
            match fs.status(ID_FILE).await {
                Ok(_) => {
                    // This fails if the balancer that made the file still runs.
                    fs.append(ID_FILE).await?.close().await?;
                    fs.delete(ID_FILE, true).await?;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            let mut writer = fs.create(ID_FILE, CreateOptions::default()).await?;
            writer.write(crate::configuration::host_name().as_bytes()).await?;
            writer.hflush().await?;
            Ok::<_, hearth_client::Error>(Self { writer })
        };
        match taken.await {
            Err(error) if error.exception() == Some(Exception::AlreadyBeingCreated) => {
                anyhow::bail!("Another Balancer is running.")
            }
            other => Ok(other?),
        }
    }

    async fn remove(self, fs: &FileSystem) {
        if let Err(error) = self.writer.close().await {
            tracing::debug!(%error, "cannot close {ID_FILE}");
        }
        if let Err(error) = fs.delete(ID_FILE, true).await {
            tracing::warn!(%error, "cannot delete {ID_FILE}");
        }
    }
}

/// One run of the balancer.
struct Balancer<'a> {
    fs: &'a FileSystem,
    options: &'a Options,
    settings: Settings,
    limits: Limits,
    mover: Arc<ReplicaMover>,
    moved_bytes: Arc<AtomicU64>,
    /// Consecutive iterations without a move.
    idle_iterations: u32,
}

/// Result of an iteration. `None`: unknown.
struct Iteration {
    outcome: Outcome,
    bytes_left: Option<u64>,
    bytes_being_moved: Option<u64>,
}

async fn balance(tool: &Tool, fs: &FileSystem, options: &Options) -> anyhow::Result<Outcome> {
    let configuration = &tool.configuration;
    let redundancy = configuration.get_as("dfs.namenode.redundancy.interval.seconds", parse::duration_s)?;
    // Time for the DataNodes to report, and for the NameNode to have the old replicas deleted.
    let heartbeat = configuration.get(keys::DFS_HEARTBEAT_INTERVAL)?;
    let pause = heartbeat.saturating_mul(2).saturating_add(redundancy.unwrap_or(Duration::from_secs(3)));
    let mut balancer = Balancer {
        fs,
        options,
        settings: Settings::read(configuration)?,
        limits: Limits {
            policy: options.policy,
            threshold: options.threshold,
            group_bytes_max: configuration.get(keys::DFS_BALANCER_MAX_SIZE_TO_MOVE)?,
        },
        mover: Arc::new(fs.replica_mover().await?),
        moved_bytes: Arc::default(),
        idle_iterations: 0,
    };
    let mut number = 0_u64;
    loop {
        let iteration = balancer.iterate().await.unwrap_or_else(|error| Iteration {
            outcome: Outcome::of(&error),
            bytes_left: None,
            bytes_being_moved: None,
        });
        let moved = balancer.moved_bytes.load(Ordering::Relaxed);
        println!("{}", line(number, moved, &iteration, fs.uri()));
        if iteration.outcome != Outcome::InProgress {
            return Ok(iteration.outcome);
        }
        tokio::time::sleep(pause.min(PAUSE_MAX)).await;
        number += 1;
    }
}

impl Balancer<'_> {
    async fn iterate(&mut self) -> anyhow::Result<Iteration> {
        let reports = self.fs.datanode_storages(DatanodeReportKind::Live).await?;
        let takes_part: Vec<bool> = reports.iter().map(|report| self.takes_part(report)).collect();
        let is_source: Vec<bool> = reports.iter().map(|report| self.options.is_source(&report.datanode)).collect();
        let mut plan = Plan::new(&reports, &takes_part, &is_source, self.limits);
        let bytes_left = plan.bytes_left;
        let result =
            |outcome, bytes_being_moved| Iteration { outcome, bytes_left: Some(bytes_left), bytes_being_moved };
        if bytes_left == 0 {
            println!("The cluster is balanced. Exiting...");
            return Ok(result(Outcome::Success, Some(0)));
        }
        tracing::info!("Need to move {} to make the cluster balanced.", byte_description(bytes_left));
        if !self.options.run_during_upgrade && self.is_upgrading().await? {
            eprintln!(
                "Balancer exiting as upgrade is not finalized, please finalize the HDFS upgrade before running the balancer."
            );
            return Ok(result(Outcome::UnfinalizedUpgrade, None));
        }
        let racks: Vec<&str> = reports.iter().map(|report| report.datanode.location.as_str()).collect();
        let pairs = plan.pairs(&racks);
        let being_moved = pairs.iter().map(|pair| pair.bytes).fold(0, u64::saturating_add);
        if being_moved == 0 {
            println!("No block can be moved. Exiting...");
            return Ok(result(Outcome::NoMoveBlock, Some(0)));
        }
        let before = self.moved_bytes.load(Ordering::Relaxed);
        let sources = by_source(&plan.groups, &pairs);
        let nodes =
            reports.into_iter().zip(takes_part).map(|(report, takes_part)| Node { info: report.datanode, takes_part });
        dispatch::dispatch(self.fs, &self.mover, &self.settings, nodes.collect(), sources, &self.moved_bytes).await;
        if self.moved_bytes.load(Ordering::Relaxed) > before {
            self.idle_iterations = 0;
            return Ok(result(Outcome::InProgress, Some(being_moved)));
        }
        self.idle_iterations = self.idle_iterations.saturating_add(1);
        if self.options.idle_iterations.is_some_and(|most| self.idle_iterations >= most) {
            println!("No block has been moved for {} iterations. Exiting...", self.idle_iterations);
            return Ok(result(Outcome::NoMoveProgress, Some(being_moved)));
        }
        Ok(result(Outcome::InProgress, Some(being_moved)))
    }

    /// Returns whether a DataNode is in service, and not left out by the command line.
    fn takes_part(&self, report: &DatanodeStorages) -> bool {
        report.datanode.admin_state == DatanodeAdminState::Normal && self.options.takes_part(&report.datanode)
    }

    async fn is_upgrading(&self) -> anyhow::Result<bool> {
        if !self.fs.is_upgrade_finalized().await? {
            return Ok(true);
        }
        let rolling = self.fs.rolling_upgrade(RollingUpgradeAction::Query).await?;
        Ok(rolling.is_some_and(|upgrade| upgrade.finalize_ms == 0))
    }
}

/// Groups pairs by their source.
fn by_source(groups: &[Group], pairs: &[Pair]) -> Vec<SourcePlan> {
    let mut sources: Vec<(usize, SourcePlan)> = Vec::new();
    for pair in pairs {
        let target = (groups[pair.target].datanode, pair.bytes);
        match sources.iter_mut().find(|(group, _)| *group == pair.source) {
            Some((_, source)) => source.targets.push(target),
            None => {
                let group = &groups[pair.source];
                let (node, storage_type) = (group.datanode, group.storage_type);
                sources.push((pair.source, SourcePlan { node, storage_type, targets: vec![target] }));
            }
        }
    }
    sources.into_iter().map(|(_, source)| source).collect()
}

/// Returns the row of an iteration.
fn line(number: u64, moved: u64, iteration: &Iteration, namenode: &str) -> String {
    let text = |bytes: Option<u64>| bytes.map_or_else(|| "-1 B".to_owned(), byte_description);
    format!(
        "{:<24} {number:>10}  {:>19}  {:>18}  {:>17}  {namenode}",
        time_text(),
        byte_description(moved),
        text(iteration.bytes_left),
        text(iteration.bytes_being_moved),
    )
}

/// Returns the local time as Java's default format of date and time: `Nov 29, 2026, 1:37:22 PM`.
fn time_text() -> String {
    Calendar::local(now_ms()).java_default()
}

/// Returns a duration as Apache's balancer prints it: `5.25 seconds`.
fn duration_text(passed: Duration) -> String {
    let ms = passed.as_millis() as f64;
    match ms {
        ms if ms < 1000.0 => format!("{ms:?} milliseconds"),
        ms if ms < 60_000.0 => format!("{:?} seconds", ms / 1000.0),
        ms if ms < 3_600_000.0 => format!("{:?} minutes", ms / 60_000.0),
        ms => format!("{:?} hours", ms / 3_600_000.0),
    }
}

#[cfg(test)]
mod tests {
    use hearth_client::StorageType;

    use super::*;

    #[test]
    fn exit_codes_are_those_of_hadoop() {
        let codes =
            [Outcome::Success, Outcome::InProgress, Outcome::NoMoveBlock, Outcome::IoException].map(Outcome::code);
        assert_eq!(codes, [0, 1, 254, 252]);
        assert_eq!(Outcome::Interrupted.code(), 250);
    }

    #[test]
    fn times_are_written_as_java_does() {
        let noon = Calendar { year: 2026, month: 11, day: 9, hour: 12, minute: 5, second: 7 };
        assert_eq!(noon.java_default(), "Nov 9, 2026, 12:05:07 PM");
        assert_eq!(Calendar { hour: 0, ..noon }.java_default(), "Nov 9, 2026, 12:05:07 AM");
        assert_eq!(Calendar { hour: 13, ..noon }.java_default(), "Nov 9, 2026, 1:05:07 PM");
        assert_eq!(duration_text(Duration::from_millis(12)), "12.0 milliseconds");
        assert_eq!(duration_text(Duration::from_millis(5250)), "5.25 seconds");
        assert_eq!(duration_text(Duration::from_secs(90)), "1.5 minutes");
    }

    #[test]
    fn rows_have_hadoops_columns() {
        let iteration = Iteration { outcome: Outcome::InProgress, bytes_left: Some(3 << 20), bytes_being_moved: None };
        let row = line(2, 1536, &iteration, "hdfs://h:8020");
        let columns = "         2              1.50 KB                3 MB               -1 B  hdfs://h:8020";
        assert!(row.ends_with(columns), "{row:?}");
    }

    #[test]
    fn pairs_of_one_source_are_one_plan() {
        let pairs = [(0, 1, 5), (2, 3, 7), (0, 3, 1)].map(|(source, target, bytes)| Pair { source, target, bytes });
        let groups =
            [0, 1, 2, 3].map(|datanode| Group { datanode, storage_type: StorageType::Disk, is_source: true, room: 0 });
        let sources = by_source(&groups, &pairs);
        let found: Vec<_> = sources.iter().map(|source| (source.node, source.targets.clone())).collect();
        assert_eq!(found, [(0, vec![(1, 5), (3, 1)]), (2, vec![(3, 7)])]);
    }
}
