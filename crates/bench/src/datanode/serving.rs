//! Costs of one DataNode of each implementation: a file stored and fetched, many concurrent readers, small random
//! reads.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hearth_testkit::{Content, Scratch, usage};
use serde_json::json;

use super::sides::{BOTH, Side, Sides};
use super::{Arguments, CLIENT, GB};
use crate::memory;
use crate::record::Figures;
use crate::watch::watched;

/// Bytes of a small read.
const SMALL: u64 = 4096;

/// Interval between samples of a DataNode's memory.
const LOOK: Duration = Duration::from_millis(20);

/// Numbers of threads that make small reads concurrently.
const SMALL_THREADS: [u64; 2] = [1, 8];

/// Size of the file for random reads.
const RANDOM_MIB: u64 = 256;

/// Hearth's flusher starts 10 s after the write (`hearth.memory.flush.delay`). A DataNode that was idle for longer has
/// nothing left to flush.
pub const FLUSHED_AFTER: Duration = Duration::from_secs(12);

/// Bytes that Apache's client reads with one call.
const PIECE: u64 = 128 << 10;

pub fn measure(arguments: &Arguments, disk: &Path, figures: &mut Figures) -> Result<()> {
    let mut sides = Sides::start(arguments, 1, Path::new(memory::TMPFS), disk, None)?;
    let scratch = Scratch::within(Path::new(memory::TMPFS), "hearth-bench-")?;
    let source = scratch.path().join("source");
    Content::new(1).write_file(&source, arguments.mib << 20)?;
    let source = source.to_str().context("a path of text")?.to_owned();
    for side in BOTH {
        sides.start_datanode(side, 0)?;
        memory::touch((arguments.readers * arguments.reader_mib + RANDOM_MIB) << 20)?;
        sides.java.call("store", json!({"path": side.path("random"), "seed": 2, "length": RANDOM_MIB << 20}))?;
        let many = json!({"dir": side.path("readers"), "count": arguments.readers, "threads": 2, "seed": 3,
            "length": arguments.reader_mib << 20});
        sides.java.call("storeMany", many)?;
    }
    sides.rest(Side::Hearth, FLUSHED_AFTER, Duration::from_secs(120))?;
    for run in 0..=arguments.runs {
        eprintln!(
            "serving: {}",
            if run == 0 { "warming".to_owned() } else { format!("run {run} of {}", arguments.runs) }
        );
        // The first run only warms up: client and servers compile their hot code.
        let mut warming = Figures::default();
        let figures = if run == 0 { &mut warming } else { &mut *figures };
        // The order alternates between runs.
        let order = if run % 2 == 0 { BOTH } else { [BOTH[1], BOTH[0]] };
        for side in order {
            file(&mut sides, side, arguments, &source, run == arguments.runs, figures)?;
        }
        for side in order {
            readers(&mut sides, side, arguments, figures)?;
        }
        for threads in SMALL_THREADS {
            for side in order {
                small(&mut sides, side, threads, run, arguments, figures)?;
            }
        }
    }
    Ok(())
}

/// Stores and fetches one file. `to_the_disk`: waits for Hearth's flusher and measures its CPU. Otherwise the file is
/// deleted before it would be flushed.
fn file(
    sides: &mut Sides,
    side: Side,
    arguments: &Arguments,
    source: &str,
    to_the_disk: bool,
    figures: &mut Figures,
) -> Result<()> {
    let bytes = arguments.mib << 20;
    let path = side.path("file");
    memory::touch(bytes)?;
    let since_put = sides.clock(side)?;
    for (work, operation, request) in
        [("put", "put", json!({"path": path, "local": source})), ("get", "cat", json!({"path": path, "piece": PIECE}))]
    {
        let clock = sides.clock(side)?;
        let started = Instant::now();
        sides.java.call(operation, request)?;
        let wall = started.elapsed().as_secs_f64();
        let (cpu, _) = clock.elapsed()?;
        figures.add(work, side.name(), CLIENT, "throughput", "MB/s", bytes as f64 / 1e6 / wall);
        figures.add(work, side.name(), CLIENT, "DataNode CPU", "s/GB", cpu / (bytes as f64 / GB));
    }
    if to_the_disk && side == Side::Hearth {
        sides.rest(side, FLUSHED_AFTER, Duration::from_secs(120))?;
        figures.add("put", side.name(), CLIENT, "flusher CPU", "s/GB", since_put.elapsed()?.1 / (bytes as f64 / GB));
    }
    sides.delete(side, &path)
}

fn readers(sides: &mut Sides, side: Side, arguments: &Arguments, figures: &mut Figures) -> Result<()> {
    let bytes = (arguments.readers * arguments.reader_mib) << 20;
    let request = json!({"dir": side.path("readers"), "count": arguments.readers, "threads": arguments.readers,
        "piece": PIECE});
    let [process] = sides.processes(side)[..] else { anyhow::bail!("one DataNode of each make runs") };
    let clock = sides.clock(side)?;
    let (answer, peak) =
        watched(LOOK, Peak::default(), |peak| peak.look(process), || Ok(sides.java.call("catMany", request)?))?;
    let (cpu, _) = clock.elapsed()?;
    let seconds = answer["seconds"].as_f64().context("a number")?;
    let work = format!("{} readers", arguments.readers);
    for (what, unit, value) in [
        ("throughput", "MB/s", bytes as f64 / 1e6 / seconds),
        ("DataNode CPU", "s/GB", cpu / (bytes as f64 / GB)),
        ("threads at the peak", "", peak.threads as f64),
        ("memory without replicas, at the peak", "MiB", peak.private as f64 / f64::from(1 << 20)),
    ] {
        figures.add(&work, side.name(), CLIENT, what, unit, value);
    }
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Peak {
    threads: u64,
    /// Resident bytes that do not belong to a tmpfs.
    private: u64,
}

impl Peak {
    fn look(&mut self, process: u32) {
        if let Ok(now) = usage(process) {
            self.threads = self.threads.max(now.threads);
            self.private = self.private.max(now.resident - now.shared_memory.min(now.resident));
        }
    }
}

fn small(
    sides: &mut Sides,
    side: Side,
    threads: u64,
    run: u64,
    arguments: &Arguments,
    figures: &mut Figures,
) -> Result<()> {
    let each = (arguments.random_reads / threads).max(1);
    let request = json!({"path": side.path("random"), "length": SMALL, "count": each, "threads": threads,
        "seed": run * 100});
    let clock = sides.clock(side)?;
    let answer = sides.java.call("timedPreads", request)?;
    let (cpu, _) = clock.elapsed()?;
    let work = format!("4 KiB, {threads} {}", if threads == 1 { "thread" } else { "threads" });
    for what in ["p50", "p99"] {
        figures.add(&work, side.name(), CLIENT, what, "us", answer[what].as_f64().context("a number")?);
    }
    let micros = cpu * 1e6 / (each * threads) as f64;
    figures.add(&work, side.name(), CLIENT, "DataNode CPU of a read", "us", micros);
    Ok(())
}
