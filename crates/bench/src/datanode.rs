//! Apache's DataNode and Hearth's side by side: both under one Apache NameNode, used by one Apache client (a warm JVM,
//! over TCP), alternately in one run. First measures one DataNode of each implementation, with its replicas in memory.
//! Then it decommissions that DataNode and measures the copying to a second one of the same implementation.

mod rereplication;
mod serving;
mod sides;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::amounts::at_least_one;
use crate::record::{Figure, Figures, Recording};
use crate::{chart, memory};
use sides::Side;

#[derive(clap::Args)]
pub struct Arguments {
    /// Size of the file that is stored and fetched, in MiB
    #[arg(long, default_value_t = 1024, value_parser = at_least_one::<u64>)]
    mib: u64,
    /// Size of a block in MiB
    #[arg(long, default_value_t = 32, value_parser = at_least_one::<u64>)]
    block_mib: u64,
    /// Number of concurrent readers, each of its own file
    #[arg(long, default_value_t = 60, value_parser = at_least_one::<u64>)]
    readers: u64,
    /// Size of each of their files, in MiB
    #[arg(long, default_value_t = 16, value_parser = at_least_one::<u64>)]
    reader_mib: u64,
    /// Number of small random reads, over all threads
    #[arg(long, default_value_t = 24_000, value_parser = at_least_one::<u64>)]
    random_reads: u64,
    /// Number of runs of everything except re-replication
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<u64>)]
    runs: u64,
    /// Amount of data to re-replicate once, in MiB; 0: skip
    #[arg(long, default_value_t = 10 << 10)]
    rereplicated_mib: u64,
    /// Memory limit of each Hearth DataNode during re-replication, in MiB [default: all of the data, at most a quarter
    /// of the machine's memory]
    #[arg(long)]
    memory_limit_mib: Option<u64>,
    /// Disable sendfile on both sides (`dfs.datanode.transferTo.allowed=false`)
    #[arg(long)]
    no_transfer_to: bool,
    /// Directory for the data of re-replication and the disk of Hearth's DataNode [default: target/]
    #[arg(long)]
    disk: Option<PathBuf>,
    #[command(flatten)]
    recording: Recording,
}

/// Bytes in the GB of "seconds per GB".
const GB: f64 = 1e9;

const CLIENT: &str = "warm JVM";

pub fn run(arguments: &Arguments) -> Result<()> {
    let disk = match &arguments.disk {
        Some(disk) => disk.clone(),
        None => hearth_testkit::workspace_root().join("target"),
    };
    std::fs::create_dir_all(&disk).with_context(|| format!("cannot make {}", disk.display()))?;
    let mut figures = Figures::default();
    serving::measure(arguments, &disk, &mut figures)?;
    let mut workload = format!(
        "datanode{} {} MiB, blocks of {} MiB, {} readers of {} MiB, {} small reads; {}",
        if arguments.no_transfer_to { ", transferTo off," } else { "" },
        arguments.mib,
        arguments.block_mib,
        arguments.readers,
        arguments.reader_mib,
        arguments.random_reads,
        memory::place()
    );
    if arguments.rereplicated_mib > 0 {
        let limit = rereplication::memory_limit(arguments)?;
        rereplication::measure(arguments, &disk, limit, &mut figures)?;
        workload += &format!(
            "; {} MiB re-replicated on a disk, of which each of Hearth's DataNodes has memory for {} MiB",
            arguments.rereplicated_mib,
            limit >> 20
        );
    }
    let ratios = figures.ratios_to_apache(|_| true);
    print(&figures, &ratios);
    if arguments.recording.is_wanted() {
        arguments.recording.append(&workload, &[figures.0.as_slice(), &ratios].concat())?;
        let name = if arguments.no_transfer_to { "datanode-no-transfer-to" } else { "datanode" };
        chart::write(name, &workload, &figures.0)?;
    }
    Ok(())
}

fn print(figures: &Figures, ratios: &[Figure]) {
    println!("{:<24} {:<32} {:>10} {:>10}  {:<6} {:>6}", "work", "figure", "Apache", "Hearth", "unit", "ratio");
    for figure in figures.0.iter().filter(|figure| figure.system == Side::Hearth.name()) {
        let is_of = |other: &&Figure| other.work == figure.work && other.what == figure.what;
        let theirs = figures.median(&figure.work, Side::Apache.name(), &figure.client, &figure.what);
        let ratio = ratios.iter().find(is_of).map(Figure::median);
        let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        println!(
            "{:<24} {:<32} {:>10} {:>10.2}  {:<6} {:>6}",
            figure.work,
            figure.what,
            text(theirs),
            figure.median(),
            figure.unit,
            text(ratio)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_need_figures_of_both_systems() {
        let mut figures = Figures::default();
        for (side, value) in [(Side::Apache, 4.0), (Side::Hearth, 1.0)] {
            figures.add("get", side.name(), CLIENT, "DataNode CPU", "s/GB", value);
        }
        figures.add("get", Side::Hearth.name(), CLIENT, "flusher CPU", "s/GB", 1.0);
        let ratios = figures.ratios_to_apache(|_| true);
        assert_eq!(ratios.len(), 1);
        assert_eq!((ratios[0].what.as_str(), ratios[0].median()), ("DataNode CPU", 0.25));
    }
}
