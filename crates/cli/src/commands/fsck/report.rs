use std::collections::BTreeSet;
use std::time::Instant;

use hearth_client::{DatanodeReportKind, FileSystem};
use hearth_types::{FileStatus, LocatedBlock};

use crate::commands::fs::time::{Calendar, now_ms};

/// What a walk over files counts, and how it is printed.
pub struct Report {
    path: String,
    start: Instant,
    pub directories: u64,
    pub symlinks: u64,
    pub open_files: u64,
    files: u64,
    bytes: u64,
    blocks: u64,
    minimally_replicated: u64,
    over_replicated: u64,
    under_replicated: u64,
    missing_replicas: u64,
    wanted_replicas: u64,
    live_replicas: u64,
    missing_blocks: u64,
    corrupt_blocks: u64,
    /// Block name and path.
    broken: Vec<(String, String)>,
    broken_files: BTreeSet<String>,
}

impl Report {
    pub fn start(fs: &FileSystem, path: String, announce: bool) -> Self {
        if announce {
            let when = Calendar::java_date(now_ms());
            println!("FSCK started by {} (auth:SIMPLE) for path {path} at {when}\n", fs.user());
        }
        Self {
            path,
            start: Instant::now(),
            directories: 0,
            symlinks: 0,
            open_files: 0,
            files: 0,
            bytes: 0,
            blocks: 0,
            minimally_replicated: 0,
            over_replicated: 0,
            under_replicated: 0,
            missing_replicas: 0,
            wanted_replicas: 0,
            live_replicas: 0,
            missing_blocks: 0,
            corrupt_blocks: 0,
            broken: Vec::new(),
            broken_files: BTreeSet::new(),
        }
    }

    /// Counts a file. What is wrong with it, one line each.
    pub fn count_file(&mut self, path: &str, status: &FileStatus, blocks: &[&LocatedBlock]) -> Vec<String> {
        let mut findings = Vec::new();
        let (mut missing, mut missing_bytes) = (0, 0);
        self.files += 1;
        self.bytes += status.length;
        for located in blocks {
            let block = &located.block;
            let wanted = u64::from(status.replication);
            let live = if located.corrupt { 0 } else { located.locations.len() as u64 };
            self.blocks += 1;
            self.wanted_replicas += wanted;
            self.live_replicas += live;
            if live > 0 {
                self.minimally_replicated += 1;
            }
            if live > wanted {
                self.over_replicated += 1;
            }
            if located.corrupt {
                self.corrupt_blocks += 1;
                findings.push(format!("{path}: CORRUPT blockpool {} block {}", block.pool, block.id()));
            }
            if live == 0 {
                missing += 1;
                missing_bytes += block.length();
                self.missing_blocks += 1;
                self.broken.push((block.id().to_string(), path.to_owned()));
            } else if live < wanted {
                self.under_replicated += 1;
                self.missing_replicas += wanted - live;
                findings.push(format!(
                    "{path}:  Under replicated {block}. Target Replicas is {wanted} but found {live} live replica(s), \
                     0 decommissioned replica(s), 0 decommissioning replica(s).",
                ));
            }
        }
        if missing > 0 {
            self.broken_files.insert(path.to_owned());
            findings.push(format!("{path}: MISSING {missing} blocks of total size {missing_bytes} B."));
        }
        findings
    }

    /// The lines of `-list-corruptfileblocks`, and the exit code.
    pub fn list_corrupt(&self) -> u8 {
        if self.broken.is_empty() {
            println!("The filesystem under path '{}' has no CORRUPT files", self.path);
            return 0;
        }
        println!("The list of corrupt blocks under path '{}' are:", self.path);
        for (block, path) in &self.broken {
            println!("{block}\t{path}");
        }
        println!("The filesystem under path '{}' has {} CORRUPT files", self.path, self.broken_files.len());
        1
    }

    /// The report and the exit code.
    pub async fn print(&self, fs: &FileSystem) -> anyhow::Result<u8> {
        let healthy = self.missing_blocks == 0 && self.corrupt_blocks == 0;
        // Superusers only; others get the rest of the report.
        let datanodes = fs.datanodes(DatanodeReportKind::Live).await.unwrap_or_default();
        let racks: BTreeSet<&str> = datanodes.iter().map(|datanode| datanode.location.as_str()).collect();
        let default_replication = fs.server_defaults().await?.replication;
        println!();
        println!("Status: {}", if healthy { "HEALTHY" } else { "CORRUPT" });
        println!(" Number of data-nodes:\t{}", datanodes.len());
        println!(" Number of racks:\t\t{}", racks.len());
        println!(" Total dirs:\t\t\t{}", self.directories);
        println!(" Total symlinks:\t\t{}", self.symlinks);
        println!();
        println!("Replicated Blocks:");
        println!(" Total size:\t{} B", self.bytes);
        let open =
            |count: u64| if count > 0 { format!(" (Files currently being written: {count})") } else { String::new() };
        println!(" Total files:\t{}{}", self.files, open(self.open_files));
        let average = self
            .bytes
            .checked_div(self.blocks)
            .map_or_else(String::new, |bytes| format!(" (avg. block size {bytes} B)"));
        println!(" Total blocks (validated):\t{}{average}", self.blocks);
        if !healthy {
            println!("  ********************************");
            println!("  UNDER MIN REPL'D BLOCKS:\t{}{}", self.missing_blocks, self.of_blocks(self.missing_blocks));
            println!("  dfs.namenode.replication.min:\t1");
            println!("  CORRUPT FILES:\t{}", self.broken_files.len());
            println!("  MISSING BLOCKS:\t{}", self.missing_blocks);
            println!("  ********************************");
        }
        println!(
            " Minimally replicated blocks:\t{}{}",
            self.minimally_replicated,
            self.of_blocks(self.minimally_replicated)
        );
        println!(" Over-replicated blocks:\t{}{}", self.over_replicated, self.of_blocks(self.over_replicated));
        println!(" Under-replicated blocks:\t{}{}", self.under_replicated, self.of_blocks(self.under_replicated));
        println!(" Mis-replicated blocks:\t\t0{}", self.of_blocks(0));
        println!(" Default replication factor:\t{default_replication}");
        println!(" Average block replication:\t{}", java_double(self.live_replicas as f64 / self.blocks.max(1) as f64));
        println!(" Missing blocks:\t\t{}", self.missing_blocks);
        println!(" Corrupt blocks:\t\t{}", self.corrupt_blocks);
        let missing_part = share(self.missing_replicas, self.wanted_replicas);
        println!(" Missing replicas:\t\t{}{missing_part}", self.missing_replicas);
        println!(" Blocks queued for replication:\t0");
        println!();
        println!("Erasure Coded Block Groups:");
        for (name, value) in [
            ("Total size:\t", "0 B"),
            ("Total files:\t", "0"),
            ("Total block groups (validated):\t", "0"),
            ("Minimally erasure-coded block groups:\t", "0"),
            ("Over-erasure-coded block groups:\t", "0"),
            ("Under-erasure-coded block groups:\t", "0"),
            ("Unsatisfactory placement block groups:\t", "0"),
            ("Average block group size:\t", "0.0"),
            ("Missing block groups:\t\t", "0"),
            ("Corrupt block groups:\t\t", "0"),
            ("Missing internal blocks:\t", "0"),
            ("Blocks queued for replication:\t", "0"),
        ] {
            println!(" {name}{value}");
        }
        let when = Calendar::java_date(now_ms());
        println!("FSCK ended at {when} in {} milliseconds\n\n", self.start.elapsed().as_millis());
        let verdict = if healthy { "HEALTHY" } else { "CORRUPT" };
        println!("The filesystem under path '{}' is {verdict}", self.path);
        Ok(u8::from(!healthy))
    }

    fn of_blocks(&self, count: u64) -> String {
        share(count, self.blocks)
    }
}

/// ` (12.5 %)`; nothing of nothing.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!(" ({} %)", java_double(part as f64 * 100.0 / whole as f64)) }
}

/// A float as Java prints it: at least one decimal.
fn java_double(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.1}") } else { format!("{}", value as f32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_printed_as_java_does() {
        assert_eq!(share(1, 1), " (100.0 %)");
        assert_eq!(share(1, 3), " (33.333332 %)");
        assert_eq!(share(0, 0), "");
    }
}
