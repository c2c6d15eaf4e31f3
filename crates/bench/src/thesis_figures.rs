//! The measurements of the thesis that Hearth is based on (its figures 5.3 to 5.11): CPU of DataNodes and clients while
//! a large file is stored and fetched, latencies of a small file and their parts, many concurrent clients, and a
//! DataNode with more requests than it can serve. Apache's complete system and Hearth alternate in one run. The
//! loopback takes the place of the thesis's network.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hearth_testkit::{Content, Implementation, Scratch, usage};

use crate::amounts::at_least_one;
use crate::bench_client::{self, BenchClient, System, total};
use crate::chart::curves::{self, Axes, Curve};
use crate::measure::{ServerClock, median, percentile};
use crate::record::{self, Figures, Recording};
use crate::{chart, memory, watch};

#[derive(clap::Args)]
pub struct Arguments {
    /// Size of the large file, in MiB
    #[arg(long, default_value_t = 2048, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of the small file, in MiB
    #[arg(long, default_value_t = 128, value_parser = at_least_one::<u64>)]
    small_mib: u64,
    /// Size of a block in MiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Number of runs for the large file
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Number of runs for the small file
    #[arg(long, default_value_t = 25, value_parser = at_least_one::<usize>)]
    small_runs: usize,
    /// Number of times that each of six clients reads its file, without waiting for the others
    #[arg(long, default_value_t = 8, value_parser = at_least_one::<usize>)]
    saturating_rounds: usize,
    #[command(flatten)]
    recording: Recording,
}

/// Numbers of concurrent clients, each reading its own file.
const CLIENTS: [usize; 4] = [1, 2, 4, CLIENTS_MAX];
const CLIENTS_MAX: usize = 8;

/// Number of clients that saturated the network in the thesis.
const SATURATING: usize = 6;

const GB: f64 = 1e9;

/// Interval between samples of the DataNodes' CPU: the kernel counts in steps of 10 ms.
const SAMPLE: Duration = Duration::from_millis(100);

/// Data of the line charts.
#[derive(Default)]
struct TimeSeries {
    cpu: Vec<Curve>,
    latencies: [Vec<Curve>; 2],
    clients: Vec<Curve>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let scratch = Scratch::within(Path::new(memory::TMPFS), "hearth-bench-")?;
    let (large, small) = (scratch.path().join("large"), scratch.path().join("small"));
    let mut figures = Figures::default();
    let mut courses = TimeSeries::default();
    Content::new(53).write_file(&large, arguments.mib << 20)?;
    Content::new(56).write_file(&small, arguments.small_mib << 20)?;
    for datanodes in [3, 1] {
        let block_bytes = arguments.block_mib << 20;
        let start = |make| System::start(make, datanodes, block_bytes);
        let mut systems = vec![start(Implementation::Apache)?, start(Implementation::Hearth)?];
        // The TCP label must also be true for the connections between DataNodes.
        let over_tcp = if datanodes > 1 {
            systems.push(System::apart(datanodes, block_bytes)?);
            2
        } else {
            1
        };
        let mut parties = vec![
            BenchClient::java(0, &systems[0])?,
            BenchClient::own(over_tcp, &systems[over_tcp], "own, packets", Some("packets"))?,
            BenchClient::own(1, &systems[1], "own, shortest path", None)?,
        ];
        if over_tcp != 1 {
            parties.push(BenchClient::own(1, &systems[1], "own, packets, then memory", Some("packets"))?);
        }
        for run in 0..=arguments.runs {
            eprintln!("DataNodes: {datanodes}, large file: run {run} of {}", arguments.runs);
            for party in &mut parties {
                // The first run only warms up.
                let mut warming = Figures::default();
                let into = if run == 0 { &mut warming } else { &mut figures };
                let course = (datanodes == 1 && run == arguments.runs).then_some(&mut courses.cpu);
                large_file(&systems, party, datanodes, &large, arguments.mib << 20, into, course)?;
            }
        }
        if datanodes == 1 {
            std::fs::remove_file(&large).with_context(|| format!("cannot remove {}", large.display()))?;
            small_files(&systems, &mut parties, &small, arguments, &mut figures, &mut courses)?;
            together(&systems, &mut parties, &small, arguments, &mut figures, &mut courses)?;
        }
    }
    figures.print();
    print_ratios(&figures);
    if arguments.recording.is_wanted() {
        let Arguments { mib, small_mib, block_mib, .. } = arguments;
        let workload = format!(
            "thesis {mib} MiB and {small_mib} MiB, blocks of {block_mib} MiB; {}; Apache's client in a warm JVM",
            memory::place()
        );
        arguments.recording.append(&workload, &figures.0)?;
        draw(&workload, &figures, &courses)?;
    }
    Ok(())
}

/// Figures 5.3 to 5.5: stores and fetches the file once. `course`: gets the DataNodes' CPU during the write.
fn large_file(
    systems: &[System],
    party: &mut BenchClient,
    datanodes: usize,
    source: &Path,
    bytes: u64,
    figures: &mut Figures,
    course: Option<&mut Vec<Curve>>,
) -> Result<()> {
    let system = &systems[party.system];
    let used = memory::tmpfs_used()?;
    memory::touch(bytes * datanodes as u64)?;
    let names: &[&str] = &["write", "read"];
    let mut course = course;
    for name in names {
        let work = format!("{name} {} MiB, {datanodes} DataNode{}", bytes >> 20, if datanodes == 1 { "" } else { "s" });
        let clocks = system.datanodes()?.into_iter().map(ServerClock::start).collect::<Result<Vec<_>>>()?;
        let client = party.cpu()?;
        let stages = if *name == "write" {
            let (stages, seen) = watched(system.datanodes()?, || party.write(source, "/large"))?;
            if let Some(course) = course.take() {
                course.push(Curve { name: party.label(systems), points: seen });
            }
            stages
        } else {
            party.read("/large", bytes)?
        };
        let client = party.cpu()? - client;
        let cpu = clocks.iter().map(|clock| Ok(clock.elapsed()?.0)).sum::<Result<f64>>()?;
        for (what, value) in [("DataNode CPU", cpu), ("client CPU", client), ("wall", total(&stages))] {
            figures.add(&work, system.name, party.client, what, "s", value);
        }
    }
    party.delete("/large")?;
    memory::emptied(used + bytes / 2)
}

/// Runs `work` and samples the CPU time of some processes: `(seconds, processors in use)`.
fn watched<R>(processes: Vec<u32>, work: impl FnOnce() -> Result<R>) -> Result<(R, Vec<(f64, f64)>)> {
    let used = || processes.iter().map(|process| Ok(usage(*process)?.cpu())).sum::<Result<f64>>();
    let (started, mut at, mut last) = (Instant::now(), 0.0, used().unwrap_or(0.0));
    let look = |seen: &mut Vec<(f64, f64)>| {
        let (now, cpu) = (started.elapsed().as_secs_f64(), used().unwrap_or(last));
        seen.push((now, (cpu - last) / (now - at)));
        (at, last) = (now, cpu);
    };
    watch::watched(SAMPLE, Vec::new(), look, work)
}

/// Figures 5.6 to 5.9: latencies and their parts.
fn small_files(
    systems: &[System],
    parties: &mut [BenchClient],
    source: &Path,
    arguments: &Arguments,
    figures: &mut Figures,
    courses: &mut TimeSeries,
) -> Result<()> {
    let bytes = arguments.small_mib << 20;
    let mut latencies = vec![[const { Vec::new() }; 2]; parties.len()];
    for run in 0..=arguments.small_runs {
        eprintln!("latencies: run {run} of {}", arguments.small_runs);
        for (party, latencies) in parties.iter_mut().zip(&mut latencies) {
            let system = systems[party.system].name;
            let used = memory::tmpfs_used()?;
            memory::touch(bytes)?;
            let both = [("write", party.write(source, "/small")?), ("read", party.read("/small", bytes)?)];
            party.delete("/small")?;
            memory::emptied(used + bytes / 2)?;
            if run == 0 {
                continue;
            }
            for ((name, stages), latencies) in both.iter().zip(latencies) {
                let work = format!("{name} {} MiB", arguments.small_mib);
                for (stage, seconds) in stages {
                    figures.add(&work, system, party.client, &format!("part: {stage}"), "ms", seconds * 1e3);
                }
                figures.add(&work, system, party.client, "latency", "ms", total(stages) * 1e3);
                latencies.push(total(stages) * 1e3);
            }
        }
    }
    for (party, both) in parties.iter().zip(latencies) {
        let name = party.label(systems);
        for ((mut latencies, work), into) in both.into_iter().zip(["write", "read"]).zip(&mut courses.latencies) {
            latencies.sort_by(f64::total_cmp);
            let count = latencies.len() as f64;
            let work = format!("{work} {} MiB", arguments.small_mib);
            let p90 = percentile(&latencies, 0.9).context("nothing was measured")?;
            figures.add(&work, systems[party.system].name, party.client, "latency, p90", "ms", p90);
            let points =
                latencies.iter().enumerate().map(|(index, latency)| (*latency, (index + 1) as f64 / count * 100.0));
            into.push(Curve { name: name.clone(), points: points.collect() });
        }
    }
    Ok(())
}

/// Figures 5.10 and 5.11: several concurrent clients, and six without a pause.
fn together(
    systems: &[System],
    parties: &mut [BenchClient],
    source: &Path,
    arguments: &Arguments,
    figures: &mut Figures,
    courses: &mut TimeSeries,
) -> Result<()> {
    const DIRECTORY: &str = "/clients";
    let bytes = arguments.small_mib << 20;
    for (index, system) in systems.iter().enumerate() {
        let writer = parties.iter_mut().find(|party| party.system == index).context("each system has a client")?;
        eprintln!("files for {} clients: {}", CLIENTS_MAX, system.name);
        memory::touch(bytes * CLIENTS_MAX as u64)?;
        for file in 0..CLIENTS_MAX {
            writer.write(source, &format!("{DIRECTORY}/{}", bench_client::file_name(file)))?;
        }
    }
    let mut seconds = vec![vec![Vec::new(); CLIENTS.len()]; parties.len()];
    for run in 0..=arguments.runs {
        eprintln!("many clients: run {run} of {}", arguments.runs);
        for (party, seconds) in parties.iter_mut().zip(&mut seconds) {
            for (clients, seconds) in CLIENTS.into_iter().zip(seconds) {
                let took = party.read_together(DIRECTORY, clients, clients, 1)?;
                if run > 0 {
                    seconds.push(took);
                    let work = format!("{clients} clients read {} MiB each", arguments.small_mib);
                    figures.add(&work, systems[party.system].name, party.client, "wall", "ms", took * 1e3);
                }
            }
        }
    }
    for (party, seconds) in parties.iter().zip(&seconds) {
        let points = CLIENTS.iter().zip(seconds).map(|(clients, seconds)| (*clients as f64, median(seconds) * 1e3));
        let name = party.label(systems);
        courses.clients.push(Curve { name, points: points.collect() });
    }
    // All clients are warm by now.
    for run in 1..=arguments.runs {
        eprintln!("{SATURATING} clients without a pause: run {run} of {}", arguments.runs);
        for party in parties.iter_mut() {
            without_a_pause(systems, party, (DIRECTORY, bytes), arguments.saturating_rounds, figures)?;
        }
    }
    Ok(())
}

/// Figure 5.11: CPU of the DataNode at its maximum throughput, on files of a `directory` with `bytes` bytes each.
fn without_a_pause(
    systems: &[System],
    party: &mut BenchClient,
    (directory, bytes): (&str, u64),
    rounds: usize,
    figures: &mut Figures,
) -> Result<()> {
    let system = &systems[party.system];
    let [process] = system.datanodes()?[..] else { anyhow::bail!("one DataNode of each make runs") };
    let clock = ServerClock::start(process)?;
    let wall = party.read_together(directory, SATURATING, SATURATING, rounds)?;
    let (cpu, _) = clock.elapsed()?;
    let moved = (rounds * SATURATING) as f64 * bytes as f64;
    let work = format!("{SATURATING} clients without a pause");
    for (what, unit, value) in [
        ("throughput", "MB/s", moved / 1e6 / wall),
        ("DataNode CPU", "s/GB", cpu / (moved / GB)),
        ("DataNode's processors in use", "", cpu / wall),
    ] {
        figures.add(&work, system.name, party.client, what, unit, value);
    }
    Ok(())
}

/// Prints the ratios of Hearth to Apache, beside those of the thesis.
fn print_ratios(figures: &Figures) {
    // Work, figure, the thesis's own ratio.
    let lines = [
        ("write 2048 MiB, 3 DataNodes", "DataNode CPU", Some(11789.0 / 31299.0)),
        ("write 2048 MiB, 3 DataNodes", "client CPU", Some(4926.0 / 21014.0)),
        ("read 2048 MiB, 3 DataNodes", "DataNode CPU", Some(10078.0 / 12944.0)),
        ("read 2048 MiB, 3 DataNodes", "client CPU", Some(39504.0 / 41371.0)),
        ("write 128 MiB", "latency", Some(0.70)),
        ("read 128 MiB", "latency", Some(0.88)),
        ("8 clients read 128 MiB each", "wall", None),
        ("6 clients without a pause", "DataNode CPU", Some(2.0 / 6.0)),
    ];
    println!();
    println!("{:<30} {:<14} {:>10} {:>10} {:>10}", "ours to Apache's", "", "thesis", "packets", "shortest");
    for (work, what, thesis) in lines {
        let Some(theirs) = figures.median(work, "Apache", "warm JVM", what) else { continue };
        let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let ours = |client| text(figures.median(work, "Hearth", client, what).map(|ours| ours / theirs));
        let (packets, shortest) = (ours("own, packets"), ours("own, shortest path"));
        println!("{work:<30} {what:<14} {:>10} {packets:>10} {shortest:>10}", text(thesis));
    }
}

fn draw(workload: &str, figures: &Figures, courses: &TimeSeries) -> Result<()> {
    let of = |wanted: &dyn Fn(&record::Figure) -> bool| -> Vec<record::Figure> {
        figures.0.iter().filter(|figure| wanted(figure)).cloned().collect()
    };
    let bars = |name: &str, title: &str, wanted: &dyn Fn(&record::Figure) -> bool| {
        chart::write(name, &format!("{title}. {workload}"), &of(wanted))
    };
    bars("thesis-5.3", "CPU of a large file, 3 DataNodes", &|figure| figure.work.ends_with(", 3 DataNodes"))?;
    bars("thesis-5.4", "CPU of a large file, 1 DataNode", &|figure| figure.work.ends_with(", 1 DataNode"))?;
    bars("thesis-5.7", "Where the time of a write goes", &|figure| {
        figure.work.starts_with("write ") && figure.what.starts_with("part: ")
    })?;
    bars("thesis-5.9", "Where the time of a read goes", &|figure| {
        figure.work.starts_with("read ") && figure.what.starts_with("part: ")
    })?;
    bars("thesis-5.11", "A DataNode asked for all it can send", &|figure| figure.work.ends_with("without a pause"))?;
    let seconds = Axes { x: "seconds", y: "processors in use" };
    curves::write("thesis-5.5", "The DataNode's CPU while a large file is written", &seconds, &courses.cpu)?;
    let latency = Axes { x: "milliseconds", y: "% of all that were as fast" };
    for (name, title, curves) in [
        ("thesis-5.6", "Latency of writing a small file", &courses.latencies[0]),
        ("thesis-5.8", "Latency of reading a small file", &courses.latencies[1]),
    ] {
        curves::write(name, title, &latency, curves)?;
    }
    let clients = Axes { x: "clients at the same time", y: "milliseconds until the last has its file" };
    curves::write("thesis-5.10", "Many clients of one DataNode", &clients, &courses.clients)
}
