//! `-report`, `-printTopology`

use std::collections::BTreeMap;

use hearth_client::{BlockStatistics, DatanodeReportKind, FileSystem, SafeModeAction};
use hearth_types::{DatanodeAdminState, DatanodeInfo};

use crate::commands::fs::time::Calendar;
use crate::commands::host_name::host_name_of;
use crate::commands::tool::{byte_description, pop_option};

/// Groups of DataNodes that a report can show, in the report's order. `None`: the slow ones.
const SECTIONS: [(&str, &str, Option<DatanodeReportKind>); 6] = [
    ("-live", "Live", Some(DatanodeReportKind::Live)),
    ("-dead", "Dead", Some(DatanodeReportKind::Dead)),
    ("-decommissioning", "Decommissioning", Some(DatanodeReportKind::Decommissioning)),
    ("-enteringmaintenance", "Entering maintenance", Some(DatanodeReportKind::EnteringMaintenance)),
    ("-inmaintenance", "In maintenance", Some(DatanodeReportKind::InMaintenance)),
    ("-slownodes", "Slow", None),
];

pub async fn report(fs: &FileSystem, mut words: Vec<String>) -> anyhow::Result<u8> {
    let usage = fs.usage().await?;
    if fs.safe_mode(SafeModeAction::Get).await? {
        println!("Safe mode is ON");
        let future = usage.bytes_in_future_blocks;
        if future > 0 {
            println!("\nWARNING: ");
            println!("Name node has detected blocks with generation stamps in future.");
            println!("Forcing exit from safemode will cause {future} byte(s) to be deleted.");
            println!(
                "If you are sure that the NameNode was started with the correct metadata files then you may proceed with \
                 '-safemode forceExit'\n"
            );
        }
    }
    let present = usage.used + usage.remaining;
    println!("Configured Capacity: {}", bytes(usage.capacity));
    println!("Present Capacity: {}", bytes(present));
    println!("DFS Remaining: {}", bytes(usage.remaining));
    println!("DFS Used: {}", bytes(usage.used));
    println!("DFS Used%: {}", if present == 0 { "0.00%".to_owned() } else { percent(usage.used, present) });
    println!("Replicated Blocks:");
    replicated(&fs.block_statistics().await?);
    println!("Erasure Coded Block Groups: ");
    erasure_coded(&fs.erasure_coded_block_statistics().await?);
    println!();
    println!("-------------------------------------------------");
    // Other words are ignored, as by Apache's tool.
    let asked = SECTIONS.map(|(option, ..)| pop_option(option, &mut words));
    let all = !asked.contains(&true);
    for ((_, title, kind), asked) in SECTIONS.into_iter().zip(asked) {
        if !all && !asked {
            continue;
        }
        let datanodes = match kind {
            Some(kind) => fs.datanodes(kind).await?,
            None => fs.slow_datanodes().await?,
        };
        if !datanodes.is_empty() || asked {
            println!("{title} datanodes ({}):\n", datanodes.len());
        }
        for datanode in &datanodes {
            println!("{}\n", described(datanode));
        }
    }
    Ok(0)
}

pub async fn topology(fs: &FileSystem) -> anyhow::Result<u8> {
    let mut racks: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for datanode in fs.datanodes(DatanodeReportKind::All).await? {
        let name = datanode.id.transfer_address();
        racks.entry(datanode.location).or_default().insert(name, datanode.admin_state.to_string());
    }
    for (rack, datanodes) in racks {
        println!("Rack: {rack}");
        for (name, state) in datanodes {
            println!("   {name} ({}) {state}", host_name_of(&name));
        }
        println!();
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
    let name = id.transfer_address();
    lines.push(format!("Name: {name} ({})", host_name_of(&name)));
    lines.push(format!("Hostname: {}", id.host_name));
    if datanode.location != "/default-rack" {
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
    lines.push(format!("DFS Used%: {}", used_percent(datanode.dfs_used, datanode.capacity)));
    lines.push(format!("DFS Remaining%: {}", left_percent(datanode.remaining, datanode.capacity)));
    let cache_left = datanode.cache_capacity.saturating_sub(datanode.cache_used);
    lines.push(format!("Configured Cache Capacity: {}", bytes(datanode.cache_capacity)));
    lines.push(format!("Cache Used: {}", bytes(datanode.cache_used)));
    lines.push(format!("Cache Remaining: {}", bytes(cache_left)));
    lines.push(format!("Cache Used%: {}", used_percent(datanode.cache_used, datanode.cache_capacity)));
    lines.push(format!("Cache Remaining%: {}", left_percent(cache_left, datanode.cache_capacity)));
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
fn bytes(bytes: u64) -> String {
    format!("{bytes} ({})", byte_description(bytes))
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", part as f64 * 100.0 / whole as f64)
}

/// Returns the used share: all, if the capacity is 0. Source: DFSUtilClient.java, `getPercentUsed`.
fn used_percent(part: u64, whole: u64) -> String {
    if whole == 0 { "100.00%".to_owned() } else { single_percent(part, whole) }
}

/// Returns the free share: none, if the capacity is 0. Source: DFSUtilClient.java, `getPercentRemaining`.
fn left_percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0.00%".to_owned() } else { single_percent(part, whole) }
}

/// In single precision, as Java computes it.
fn single_percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", part as f32 * 100.0 / whole as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_nothing_are_javas() {
        assert_eq!(percent(1, 3), "33.33%");
        assert_eq!((used_percent(0, 0), left_percent(0, 0)), ("100.00%".to_owned(), "0.00%".to_owned()));
        assert_eq!((used_percent(1, 4), left_percent(3, 4)), ("25.00%".to_owned(), "75.00%".to_owned()));
    }
}
