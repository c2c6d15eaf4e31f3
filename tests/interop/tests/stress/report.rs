//! Human-readable report of a run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearth_client::{DataPath, FileSystem, Statistics};

use crate::files::Files;
use crate::readers::Tally;

/// One path: its readers' and writers' counters.
pub struct Path {
    pub name: String,
    pub readers: FileSystem,
    pub tally: Arc<Tally>,
    pub writers: FileSystem,
}

pub struct Report<'a> {
    pub took: Duration,
    pub seed: u64,
    /// Network of the one-sided path.
    pub network: String,
    pub files: &'a Files,
    pub kills: u64,
    pub evictions: u64,
    pub paths: &'a [Path],
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { took, seed, network, files, kills, evictions, paths } = self;
        let minutes = took.as_secs_f64() / 60.0;
        writeln!(f, "{minutes:.1} minutes, seed {seed}, one-sided over {network}")?;
        writeln!(f, "  files      {}", files.changes())?;
        writeln!(f, "  DataNodes  killed {kills} times, {evictions} replicas evicted")?;
        writeln!(
            f,
            "  {:<10} {:>9} {:>12} {:>6} {:>8}   {:<36} written",
            "path", "reads", "bytes right", "wrong", "refused", "carried"
        )?;
        for Path { name, readers, tally, writers } in *paths {
            let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            let (reads, bytes, refused) = (count(&tally.reads), size(count(&tally.bytes)), count(&tally.refused));
            let carried = by_path(&readers.statistics(), Statistics::read_bytes);
            let written = by_path(&writers.statistics(), Statistics::written_bytes);
            // A wrong byte ends the run, so this line is printed only if there was none.
            writeln!(f, "  {name:<10} {reads:>9} {bytes:>12} {:>6} {refused:>8}   {carried:<36} {written}", 0)?;
        }
        Ok(())
    }
}

fn by_path(statistics: &Statistics, bytes: impl Fn(&Statistics, DataPath) -> u64) -> String {
    let carried = DataPath::ALL.into_iter().map(|path| (path, bytes(statistics, path))).filter(|(_, bytes)| *bytes > 0);
    carried.map(|(path, bytes)| format!("{path} {}", size(bytes))).collect::<Vec<_>>().join(", ")
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
