//! Namespace operations by many concurrent clients, on Hearth's NameNode and on Apache's alternately: operations per
//! second, CPU of the NameNode's process, and latencies. In both, every change is on disk before it is acknowledged.
//! The load comes from this program's own generator. It uses the same raw connections for both, and needs far fewer
//! resources than Java clients.

mod calls;
mod load;

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hearth_testkit::{Cluster, ClusterSpec, Implementation, usage};

use crate::amounts::at_least_one;
use crate::chart;
use crate::measure::percentile;
use crate::namenodes::Namenodes;
use crate::record::{Figure, Figures, Recording};
use load::Load;

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of times that each operation is made in a run, over all connections
    #[arg(long, default_value_t = 64_000, value_parser = at_least_one::<usize>)]
    operations: usize,
    /// Number of connections
    #[arg(long, default_value_t = 64, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Concurrent calls of each connection: more than one is like Hadoop's clients, whose threads share a connection
    #[arg(long, default_value_t = 1, value_parser = at_least_one::<usize>)]
    open_calls: usize,
    /// Number of threads of the load generator
    #[arg(long, default_value_t = 2, value_parser = at_least_one::<usize>)]
    threads: usize,
    /// Number of runs, after one run to warm up
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<usize>)]
    runs: usize,
    #[command(flatten)]
    namenodes: Namenodes,
    #[command(flatten)]
    recording: Recording,
}

struct System {
    name: &'static str,
    cluster: Cluster,
}

const RATE: &str = "operations";
const CPU: &str = "NameNode CPU";
/// Row of the figures of the disk alone.
const DISK: &str = "disk";

impl System {
    fn start((name, make): (&'static str, Implementation), disk: &Path) -> Result<Self> {
        let spec = ClusterSpec::new(make, make).only_namenode().within(disk).for_measuring();
        Ok(Self { name, cluster: spec.start().with_context(|| format!("starting {name}'s NameNode"))? })
    }

    /// Makes one round. `figures`: `None` to warm up.
    fn round(&self, arguments: &Arguments, round: usize, figures: Option<&mut Figures>) -> Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.cluster.namenode_rpc_port()));
        let process = self.cluster.namenode.id()?;
        let directory = format!("/metadata-{round}");
        let user = hearth_client::os_user_name();
        let (threads, connections) = (arguments.threads.max(1), arguments.connections.max(1));
        let shape = (connections, arguments.open_calls.max(1));
        let mut load = Load::connect(address, &user, &directory, threads, shape, arguments.operations)?;
        let (mut before, mut used) = (usage(process)?, Vec::new());
        let took = load.run(|_, over| {
            let now = usage(process)?;
            if over {
                used.push((now.user - before.user, now.system - before.system));
            }
            before = now;
            Ok(())
        })?;
        let Some(figures) = figures else { return Ok(()) };
        for (mut took, (user, system)) in took.into_iter().zip(used) {
            let count = took.latencies.len() as f64;
            let mut add = |what: &str, unit, value| {
                figures.add(took.operation.name(), self.name, "", what, unit, value);
            };
            add(RATE, "/s", count / took.wall.as_secs_f64());
            add(CPU, "us each", (user + system) / count * 1e6);
            add("of it in the kernel", "us each", system / count * 1e6);
            took.latencies.sort_unstable();
            let part =
                |part: f64| percentile(&took.latencies, part).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3);
            add("p50", "ms", part(0.5));
            add("p99", "ms", part(0.99));
        }
        Ok(())
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let disk = arguments.namenodes.disk()?;
    let systems = arguments.namenodes.makes().map(|make| System::start(make, &disk)).collect::<Result<Vec<_>>>()?;
    let mut figures = Figures::default();
    for round in 0..=arguments.runs {
        for system in &systems {
            eprintln!("{}: {}", system.name, if round == 0 { "warming up".into() } else { format!("run {round}") });
            system.round(arguments, round, (round > 0).then_some(&mut figures))?;
        }
        if round > 0 {
            figures.add(DISK, "", "", "4 KiB written and synced", "/s", syncs_per_second(&disk)?);
        }
    }
    let ratios = figures.ratios_to_apache(is_shown);
    figures.print();
    Figures(ratios.clone()).print();
    let (name, open) = match arguments.open_calls {
        ..=1 => ("metadata", "one call".to_owned()),
        calls => ("metadata-shared", format!("{calls} calls")),
    };
    let workload = format!(
        "{name}: {} operations of each kind by {} connections, {open} open at a time each",
        arguments.operations, arguments.connections
    );
    if arguments.recording.is_wanted() {
        arguments.recording.append(&workload, &[figures.0.as_slice(), &ratios].concat())?;
        if arguments.namenodes.are_both() {
            let shown: Vec<Figure> = figures.0.iter().filter(|figure| is_shown(figure)).cloned().collect();
            chart::write(name, &workload, &shown)?;
        }
    }
    Ok(())
}

/// Returns whether a figure is drawn, and compared with Apache's.
fn is_shown(figure: &Figure) -> bool {
    figure.what == RATE || figure.what == CPU
}

/// Returns the limit of a NameNode that syncs for every operation: the rate of 4 KiB syncs of the disk alone.
fn syncs_per_second(disk: &Path) -> Result<f64> {
    let mut file: File = tempfile::tempfile_in(disk).context("cannot make a file on the disk")?;
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(1) {
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}
