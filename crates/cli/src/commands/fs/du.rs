//! `-du` and `-df`

use super::count::summary;
use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::size::size;
use super::store::Store;
use super::table::{Align, Table};

pub async fn du(shell: &mut Shell, arguments: Arguments, sum: bool) -> Result<(), Failure> {
    let sum = sum || arguments.has("s");
    let (human, without_snapshots) = (arguments.has("h"), arguments.has("x"));
    let paths = if arguments.rest.is_empty() { vec![".".to_owned()] } else { arguments.rest.clone() };
    let mut table = Table::new(vec![Align::Left, Align::Left, Align::Left]);
    if arguments.has("v") {
        let head = ["SIZE", "DISK_SPACE_CONSUMED_WITH_ALL_REPLICAS", "FULL_PATH_NAME"];
        table.row(head.map(str::to_owned).to_vec());
    }
    for item in shell.existing(&paths).await? {
        let rows = if item.is_directory() && !sum { item.children().await } else { Ok(vec![item]) };
        match rows {
            Ok(rows) => {
                for row in &rows {
                    match spaces(row, without_snapshots).await {
                        Ok((length, consumed)) => {
                            table.row(vec![size(length, human), size(consumed, human), row.shown.clone()]);
                        }
                        Err(failure) => shell.report(&failure),
                    }
                }
            }
            Err(failure) => shell.report(&failure),
        }
    }
    for line in table.lines() {
        shell.line(line);
    }
    Ok(())
}

/// Returns the length in bytes, and the bytes of all replicas. `without_snapshots`: less the bytes that only snapshots
/// have.
async fn spaces(item: &Item, without_snapshots: bool) -> Result<(u64, u64), Failure> {
    let summary = summary(item).await?;
    let share = if without_snapshots { summary.in_snapshots } else { Default::default() };
    Ok((summary.length.saturating_sub(share.length), summary.space_consumed.saturating_sub(share.space_consumed)))
}

pub async fn df(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let human = arguments.has("h");
    let paths = if arguments.rest.is_empty() { vec!["/".to_owned()] } else { arguments.rest.clone() };
    let mut table = Table::new(vec![Align::Left, Align::Right, Align::Right, Align::Right, Align::Right]);
    table.row(["Filesystem", "Size", "Used", "Available", "Use%"].map(str::to_owned).to_vec());
    for item in shell.existing(&paths).await? {
        let (name, capacity, used, remaining) = match &item.store {
            Store::Hdfs(fs) => {
                let usage = fs.usage().await?;
                (fs.uri().to_owned(), usage.capacity, usage.used, usage.remaining)
            }
            Store::Archive(_) | Store::View(_) => {
                shell.report(&Failure::path(&item.shown, "its file system has no size"));
                continue;
            }
            Store::Local => {
                let statistics = rustix::fs::statvfs(item.path.as_str())
                    .map_err(|error| Failure::local(&item.shown, error.into()))?;
                let capacity = statistics.f_blocks * statistics.f_frsize;
                let remaining = statistics.f_bavail * statistics.f_frsize;
                ("file:///".to_owned(), capacity, capacity - statistics.f_bfree * statistics.f_frsize, remaining)
            }
        };
        let percent = if capacity == 0 { 0.0 } else { used as f64 * 100.0 / capacity as f64 };
        table.row(vec![
            name,
            size(capacity, human),
            size(used, human),
            size(remaining, human),
            format!("{percent:.0}%"),
        ]);
    }
    for line in table.lines() {
        shell.line(line);
    }
    Ok(())
}
