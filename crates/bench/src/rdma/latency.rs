//! Latency of single READs of 4 KiB at random offsets, one after the other.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hearth_fabric::one_sided::Transfer;
use hearth_fabric::rdma::Rdma;
use hearth_types::{RemoteSlice, ValidityRecord};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::Runtime;

use crate::measure::percentile;
use crate::random::Random;

use super::{Arguments, LONG, LocalEnd, Scratch, probe};

const BYTES: u64 = 4096;

/// Kind of read.
#[derive(Clone, Copy)]
struct Single {
    work: &'static str,
    /// Check the data against CRCs that are already known.
    checked: bool,
    /// Bytes of a second READ that is posted with the first. They are as many as the record that a client reads after
    /// the data.
    behind: usize,
}

const SINGLES: [Single; 3] = [
    Single { work: "4 KiB read", checked: false, behind: 0 },
    Single { work: "4 KiB read, checked", checked: true, behind: 0 },
    Single { work: "4 KiB read and record, checked", checked: true, behind: ValidityRecord::BYTES },
];

/// Latencies of all reads in microseconds, and the remote side's CPU seconds.
#[derive(Clone, Copy)]
struct Latency {
    p50: f64,
    p99: f64,
    far_cpu: f64,
}

/// Number of connections on each processor.
const CONNECTIONS: usize = 4;

/// Measures on each processor in turn, and reports the best connection. The processor of SoftiWARP's sending thread
/// differs between connections, and any reader on the same processor needs only half the time.
pub(super) fn measure(
    runtime: &Runtime,
    program: &Path,
    rdma: &Rdma,
    arguments: &Arguments,
    note: &mut impl FnMut(&str, &str, &str, &'static str, f64),
) -> Result<()> {
    for single in SINGLES.into_iter().filter(|single| single.work.contains(&arguments.only)) {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        on_each_processor(|| {
            for _ in 0..CONNECTIONS {
                theirs.push(probe_latency(program, rdma, arguments, single)?);
                ours.push(runtime.block_on(own_latency(rdma, arguments, single))?);
            }
            Ok(())
        })?;
        for (system, measured) in [("probe in C", &theirs), ("Hearth", &ours)] {
            let best = measured.iter().min_by(|one, other| one.p50.total_cmp(&other.p50));
            let best = best.context("there is a processor")?;
            note(single.work, system, "p50", "us", best.p50);
            note(single.work, system, "p99", "us", best.p99);
        }
        note(single.work, "Hearth", "far end's CPU", "s", ours.iter().map(|latency| latency.far_cpu).sum());
    }
    Ok(())
}

/// Runs `measure` once for each processor that this thread may use. The thread and all that it starts are pinned to it.
fn on_each_processor(mut measure: impl FnMut() -> Result<()>) -> Result<()> {
    let all = sched_getaffinity(None).context("the processors of this thread")?;
    for processor in (0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor)) {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).with_context(|| format!("going to processor {processor}"))?;
        let measured = measure();
        sched_setaffinity(None, &all).context("going back to all processors")?;
        measured?;
    }
    Ok(())
}

fn probe_latency(program: &Path, rdma: &Rdma, arguments: &Arguments, single: Single) -> Result<Latency> {
    let numbers = [BYTES, arguments.reads as u64, single.checked.into(), single.behind as u64];
    let figures = probe(program, rdma, arguments, "latency", &numbers.map(|number| number.to_string()))?;
    let [p50, p99] = figures[..] else { bail!("the probe printed {figures:?}") };
    Ok(Latency { p50, p99, far_cpu: 0.0 })
}

async fn own_latency(rdma: &Rdma, arguments: &Arguments, single: Single) -> Result<Latency> {
    let near = LocalEnd::connect(rdma, arguments, 0).await?;
    let record = near.source.part(0, single.behind as u64).context("a range of the source")?;
    let places = (arguments.mib << 20) / BYTES;
    let mut took = Vec::with_capacity(arguments.reads);
    let mut scratch = Scratch::default();
    let mut random = Random::new(1);
    let cpu = near.far_cpu()?;
    for _ in 0..arguments.reads {
        let at = random.below(places) * BYTES;
        let started = Instant::now();
        let mut transfers = vec![near.read(at, BYTES)?];
        transfers.extend((single.behind > 0).then(|| behind(&near, record)));
        near.connection.read(transfers, LONG).await?;
        if single.checked {
            scratch.check(near.data.memory(), at, BYTES, near.crcs.memory())?;
        }
        took.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let far_cpu = near.far_cpu()? - cpu;
    took.sort_by(f64::total_cmp);
    let of = |part: f64| percentile(&took, part).context("nothing was read");
    Ok(Latency { p50: of(0.5)?, p99: of(0.99)?, far_cpu })
}

/// Target of the second READ, which is not checked: the data's first bytes serve as its source.
fn behind(near: &LocalEnd, record: RemoteSlice) -> Transfer {
    Transfer { local: near.data.clone(), offset: 0, remote: record }
}
