//! `hearth admin -report | -safemode ... | -printTopology`, with the output of `hdfs dfsadmin`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use hearth_client::{BlockStatistics, DatanodeReportKind, FileSystem, SafeModeAction};
use hearth_types::{DatanodeAdminState, DatanodeInfo};

use super::fs::time::Calendar;
use super::generic_options::with_generic_options;

/// Exit code of a wrong command line: Java's -1.
const USAGE_ERROR: u8 = 255;

const USAGE: &str = "Usage: hearth admin [generic options]
\t[-report [-live] [-dead] [-decommissioning] [-enteringmaintenance] [-inmaintenance]]
\t[-safemode <enter | leave | get | wait | forceExit>]
\t[-printTopology]
";

#[derive(clap::Args)]
pub struct AdminArguments {
    /// Generic options (-fs URI, -D key=value, -conf FILE), then -report, -safemode or -printTopology
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

pub fn run(arguments: AdminArguments) -> anyhow::Result<ExitCode> {
    crate::logging::start("error");
    super::end_with_closed_output();
    let (configuration, words) = with_generic_options(arguments.arguments)?;
    let fs = crate::configuration::connect(&configuration, None);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = runtime.block_on(async {
        match words.as_slice() {
            ["-report", sections @ ..] => report(&fs?, sections).await,
            ["-safemode", action] => safe_mode(&fs?, action).await,
            ["-printTopology"] => topology(&fs?).await,
            ["-safemode", ..] => {
                eprintln!("Usage: hearth admin [-safemode enter | leave | get | wait | forceExit]");
                Ok(USAGE_ERROR)
            }
            _ => {
                eprint!("{USAGE}");
                Ok(USAGE_ERROR)
            }
        }
    });
    runtime.shutdown_background();
    match outcome {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(error) => {
            let name = words.first().map_or("admin", |word| word.trim_start_matches('-'));
            let error = format!("{error:#}");
            eprintln!("{name}: {}", error.lines().next().unwrap_or_default());
            Ok(ExitCode::from(USAGE_ERROR))
        }
    }
}

async fn safe_mode(fs: &FileSystem, action: &str) -> anyhow::Result<u8> {
    let on = match action {
        "enter" => fs.safe_mode(SafeModeAction::Enter).await?,
        "leave" => fs.safe_mode(SafeModeAction::Leave).await?,
        "forceExit" => fs.safe_mode(SafeModeAction::ForceExit).await?,
        "get" => fs.safe_mode(SafeModeAction::Get).await?,
        "wait" => {
            while fs.safe_mode(SafeModeAction::Get).await? {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            false
        }
        _ => {
            eprintln!("Usage: hearth admin [-safemode enter | leave | get | wait | forceExit]");
            return Ok(USAGE_ERROR);
        }
    };
    println!("Safe mode is {}", if on { "ON" } else { "OFF" });
    Ok(0)
}

async fn topology(fs: &FileSystem) -> anyhow::Result<u8> {
    let mut racks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for datanode in fs.datanodes(DatanodeReportKind::All).await? {
        let line = format!("   {} ({}) {}", datanode.id, datanode.id.host_name, datanode.admin_state);
        racks.entry(datanode.location).or_default().push(line);
    }
    if racks.is_empty() {
        println!("No DataNodes");
    }
    for (rack, mut lines) in racks {
        println!("Rack: {rack}");
        lines.sort();
        lines.iter().for_each(|line| println!("{line}"));
        println!();
    }
    Ok(0)
}

/// Groups of DataNodes that a report can show, in the report's order.
const SECTIONS: [(&str, &str, DatanodeReportKind); 5] = [
    ("-live", "Live datanodes", DatanodeReportKind::Live),
    ("-dead", "Dead datanodes", DatanodeReportKind::Dead),
    ("-decommissioning", "Decommissioning datanodes", DatanodeReportKind::Decommissioning),
    ("-enteringmaintenance", "Entering maintenance datanodes", DatanodeReportKind::EnteringMaintenance),
    ("-inmaintenance", "In maintenance datanodes", DatanodeReportKind::InMaintenance),
];

async fn report(fs: &FileSystem, wanted: &[&str]) -> anyhow::Result<u8> {
    if wanted.iter().any(|word| SECTIONS.iter().all(|(option, ..)| option != word)) {
        eprint!("{USAGE}");
        return Ok(USAGE_ERROR);
    }
    if fs.safe_mode(SafeModeAction::Get).await? {
        println!("Safe mode is ON");
    }
    let usage = fs.usage().await?;
    let present = usage.used + usage.remaining;
    println!("Configured Capacity: {}", bytes(usage.capacity));
    println!("Present Capacity: {}", bytes(present));
    println!("DFS Remaining: {}", bytes(usage.remaining));
    println!("DFS Used: {}", bytes(usage.used));
    println!("DFS Used%: {}", percent(usage.used, present));
    println!("Replicated Blocks:");
    replicated(&fs.block_statistics().await?);
    println!("Erasure Coded Block Groups: ");
    erasure_coded(&fs.erasure_coded_block_statistics().await?);
    println!();
    println!("-------------------------------------------------");
    for (option, title, kind) in SECTIONS {
        let asked = wanted.contains(&option);
        if !wanted.is_empty() && !asked {
            continue;
        }
        let mut datanodes = fs.datanodes(kind).await?;
        if datanodes.is_empty() && !asked {
            continue;
        }
        datanodes.sort_by(|one, other| one.id.host_name.cmp(&other.id.host_name));
        println!("{title} ({}):\n", datanodes.len());
        for datanode in &datanodes {
            println!("{}\n", described(datanode));
        }
    }
    Ok(0)
}

fn replicated(statistics: &BlockStatistics) {
    println!("\tUnder replicated blocks: {}", statistics.low_redundancy);
    println!("\tBlocks with corrupt replicas: {}", statistics.corrupt);
    println!("\tMissing blocks: {}", statistics.missing);
    println!("\tMissing blocks (with replication factor 1): {}", statistics.missing_of_replication_one);
    urgent(statistics);
}

fn erasure_coded(statistics: &BlockStatistics) {
    println!("\tLow redundancy block groups: {}", statistics.low_redundancy);
    println!("\tBlock groups with corrupt internal blocks: {}", statistics.corrupt);
    println!("\tMissing block groups: {}", statistics.missing);
    urgent(statistics);
}

fn urgent(statistics: &BlockStatistics) {
    println!(
        "\tLow redundancy blocks with highest priority to recover: {}",
        statistics.highest_priority_low_redundancy
    );
    println!("\tPending deletion blocks: {}", statistics.pending_deletion);
}

fn described(datanode: &DatanodeInfo) -> String {
    let id = &datanode.id;
    let mut lines = Vec::new();
    lines.push(format!("Name: {} ({})", id.transfer_address(), id.host_name));
    lines.push(format!("Hostname: {}", id.host_name));
    if datanode.location != "/default-rack" && !datanode.location.is_empty() {
        lines.push(format!("Rack: {}", datanode.location));
    }
    let decommission = match datanode.admin_state {
        DatanodeAdminState::Normal => "Normal",
        DatanodeAdminState::DecommissionInProgress => "Decommission in progress",
        DatanodeAdminState::Decommissioned => "Decommissioned",
        DatanodeAdminState::EnteringMaintenance => "Entering maintenance",
        DatanodeAdminState::InMaintenance => "In maintenance",
    };
    lines.push(format!("Decommission Status : {decommission}"));
    lines.push(format!("Configured Capacity: {}", bytes(datanode.capacity)));
    lines.push(format!("DFS Used: {}", bytes(datanode.dfs_used)));
    lines.push(format!("Non DFS Used: {}", bytes(datanode.non_dfs_used)));
    lines.push(format!("DFS Remaining: {}", bytes(datanode.remaining)));
    lines.push(format!("DFS Used%: {}", percent(datanode.dfs_used, datanode.capacity)));
    lines.push(format!("DFS Remaining%: {}", percent(datanode.remaining, datanode.capacity)));
    let cache_left = datanode.cache_capacity.saturating_sub(datanode.cache_used);
    lines.push(format!("Configured Cache Capacity: {}", bytes(datanode.cache_capacity)));
    lines.push(format!("Cache Used: {}", bytes(datanode.cache_used)));
    lines.push(format!("Cache Remaining: {}", bytes(cache_left)));
    // With a capacity of 0, Hadoop reports 100 % used.
    let nothing = datanode.cache_capacity == 0;
    let used = if nothing { "100.00%".to_owned() } else { percent(datanode.cache_used, datanode.cache_capacity) };
    let left = if nothing { "0.00%".to_owned() } else { percent(cache_left, datanode.cache_capacity) };
    lines.push(format!("Cache Used%: {used}"));
    lines.push(format!("Cache Remaining%: {left}"));
    lines.push(format!("Xceivers: {}", datanode.xceiver_count));
    lines.push(format!("Last contact: {}", Calendar::java_date(datanode.last_update_ms)));
    let report = match datanode.last_block_report_ms {
        0 => "Never".to_owned(),
        ms => Calendar::java_date(ms),
    };
    lines.push(format!("Last Block Report: {report}"));
    lines.push(format!("Num of Blocks: {}", datanode.block_count));
    lines.push(String::new());
    lines.join("\n")
}

/// `24576 (24 KB)`
pub fn bytes(bytes: u64) -> String {
    format!("{bytes} ({})", byte_description(bytes))
}

/// `503.93 GB`, `24 KB`, `6 B`.
pub fn byte_description(bytes: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {}", units[unit])
}

fn percent(part: u64, whole: u64) -> String {
    let value = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    format!("{value:.2}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_match_dfsadmin() {
        assert_eq!(bytes(0), "0 (0 B)");
        assert_eq!(bytes(4113), "4113 (4.02 KB)");
        assert_eq!(bytes(24576), "24576 (24 KB)");
        assert_eq!(bytes(25_276_514_304), "25276514304 (23.54 GB)");
        assert_eq!(percent(1, 3), "33.33%");
        assert_eq!(percent(1, 0), "0.00%");
    }
}
