use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Instant;

use hearth_client::{DatanodeReportKind, Error, FileSystem};
use hearth_types::LocatedBlock;

use super::replicas::Replicas;
use crate::commands::fs::time::{Calendar, now_ms};

/// Counts of a walk over files, and their output.
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
    replicas: Replicas,
    /// Blocks for which the NameNode reports no replica, and their bytes.
    missing: (u64, u64),
    /// Blocks with only corrupt replicas, and their bytes.
    corrupt: (u64, u64),
    /// Block names and paths.
    broken: Vec<(String, String)>,
    broken_files: BTreeSet<String>,
    /// Files and directories that the user may not read.
    skipped: u64,
}

impl Report {
    /// Reports that a path was not checked, and why.
    pub fn skip(&mut self, path: &str, refused: &Error) {
        self.skipped += 1;
        let text = refused.to_string();
        // The namenode's text may go on for several lines.
        let why = if refused.exception().is_some() { text.lines().next().unwrap_or_default() } else { &text };
        println!("{path}: not checked: {why}");
    }

    pub fn start(fs: &FileSystem, path: String, announce: bool) -> Self {
        if announce {
            let when = Calendar::java_date(now_ms());
            println!("FSCK started by {} (auth:SIMPLE) for path {path} at {when}\n", fs.user());
        }
        Self::of(path)
    }

    fn of(path: String) -> Self {
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
            replicas: Replicas::default(),
            missing: (0, 0),
            corrupt: (0, 0),
            broken: Vec::new(),
            broken_files: BTreeSet::new(),
            skipped: 0,
        }
    }

    /// Counts a file of `length` bytes. Returns a line for each problem.
    pub fn count_file(&mut self, path: &str, length: u64, replication: u16, blocks: &[&LocatedBlock]) -> Vec<String> {
        let mut findings = Vec::new();
        let wanted = u64::from(replication);
        let (mut missing, mut corrupt) = ((0, 0), (0, 0));
        self.files += 1;
        self.bytes += length;
        for located in blocks {
            let block = &located.block;
            let replicas = Replicas::of(located);
            let total = replicas.total();
            self.blocks += 1;
            self.wanted_replicas += wanted;
            self.replicas.add(&replicas);
            self.minimally_replicated += u64::from(total > 0);
            self.over_replicated += u64::from(replicas.live > wanted);
            if total == 0 {
                self.broken.push((block.id().to_string(), path.to_owned()));
                // The bytes of a corrupt block may still be good, because a client may have reported it wrongly. So it
                // does not count as missing.
                let (count, bytes) = if located.corrupt { &mut corrupt } else { &mut missing };
                *count += 1;
                *bytes += block.length();
                if located.corrupt {
                    findings.push(format!("{path}: CORRUPT blockpool {} block {}", block.pool, block.id()));
                }
            } else if total < wanted {
                // Replicas on decommissioning DataNodes are copied elsewhere before these leave, and those in
                // maintenance come back.
                self.under_replicated += 1;
                self.missing_replicas += wanted - total;
                let Replicas { live, decommissioned, decommissioning, .. } = replicas;
                findings.push(format!(
                    "{path}:  Under replicated {block}. Target Replicas is {wanted} but found {live} live replica(s), \
                     {decommissioned} decommissioned replica(s), {decommissioning} decommissioning replica(s).",
                ));
            }
        }
        for ((count, bytes), all, name) in
            [(missing, &mut self.missing, "MISSING"), (corrupt, &mut self.corrupt, "CORRUPT")]
        {
            *all = (all.0 + count, all.1 + bytes);
            if count > 0 {
                self.broken_files.insert(path.to_owned());
                findings.push(format!("{path}: {name} {count} blocks of total size {bytes} B."));
            }
        }
        findings
    }

    /// Prints the lines of `-list-corruptfileblocks`. Returns the exit code.
    pub fn list_corrupt(&self) -> u8 {
        if self.skipped > 0 {
            eprintln!("fsck: {} paths were not checked: permission denied", self.skipped);
        }
        if self.broken.is_empty() {
            println!("The filesystem under path '{}' has no CORRUPT files", self.path);
            return 0;
        }
        println!("The list of corrupt blocks under path '{}' are:", self.path);
        for (block, path) in &self.broken {
            println!("{block}\t{path}");
        }
        println!("The filesystem under path '{}' has {} CORRUPT files", self.path, self.broken_files.len());
        // Java's -1: for this list `hdfs fsck` returns it, not 1.
        255
    }

    /// Prints the report. Returns the exit code.
    pub async fn print(&self, fs: &FileSystem) -> anyhow::Result<u8> {
        let healthy = self.missing.0 + self.corrupt.0 == 0;
        // Only superusers may list DataNodes. Other users get the rest of the report.
        let datanodes = fs.datanodes(DatanodeReportKind::Live).await.unwrap_or_default();
        let racks: BTreeSet<&str> = datanodes.iter().map(|datanode| datanode.location.as_str()).collect();
        let default_replication = fs.server_defaults().await?.replication;
        println!();
        let status = match (healthy, self.skipped) {
            (false, _) => "CORRUPT",
            (true, 0) => "HEALTHY",
            (true, _) => "INCOMPLETE",
        };
        println!("Status: {status}");
        println!(" Number of data-nodes:\t{}", datanodes.len());
        println!(" Number of racks:\t\t{}", racks.len());
        println!(" Total dirs:\t\t\t{}", self.directories);
        println!(" Total symlinks:\t\t{}", self.symlinks);
        println!();
        println!("{}", self.replicated_blocks(default_replication));
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
        if self.skipped > 0 {
            println!("{} paths were not checked: user {} may not read them.", self.skipped, fs.user());
        }
        if healthy && self.skipped > 0 {
            println!("Fsck on path '{}' FAILED", self.path);
            return Ok(255);
        }
        let verdict = if healthy { "HEALTHY" } else { "CORRUPT" };
        println!("The filesystem under path '{}' is {verdict}", self.path);
        Ok(u8::from(!healthy))
    }

    /// Returns the section of that name.
    fn replicated_blocks(&self, default_replication: u16) -> String {
        let mut out = String::new();
        let of_blocks = |count: u64| share(count, self.blocks);
        let open = match self.open_files {
            0 => String::new(),
            count => format!(" (Files currently being written: {count})"),
        };
        let average = self.bytes.checked_div(self.blocks);
        let average = average.map_or_else(String::new, |bytes| format!(" (avg. block size {bytes} B)"));
        let _ = write!(
            out,
            "Replicated Blocks:\n Total size:\t{} B\n Total files:\t{}{open}\n Total blocks (validated):\t{}{average}\n",
            self.bytes, self.files, self.blocks
        );
        let stars = "  ********************************\n";
        // The NameNode's minimum replication is not known here. With a minimum of 1, these are the blocks without any
        // replica.
        let none = self.missing.0 + self.corrupt.0;
        if none > 0 {
            let _ = write!(
                out,
                "{stars}  UNDER MIN REPL'D BLOCKS:\t{none}{}\n  MINIMAL BLOCK REPLICATION:\t1\n  CORRUPT FILES:\t{}\n",
                of_blocks(none),
                self.broken_files.len()
            );
            if let (count @ 1.., bytes) = self.missing {
                let _ = write!(out, "  MISSING BLOCKS:\t{count}\n  MISSING SIZE:\t\t{bytes} B\n");
            }
            if let (count @ 1.., bytes) = self.corrupt {
                let _ = write!(out, "  CORRUPT BLOCKS: \t{count}\n  CORRUPT SIZE:\t\t{bytes} B\n");
            }
            out.push_str(stars);
        }
        for (name, count) in [
            ("Minimally replicated blocks:\t", self.minimally_replicated),
            ("Over-replicated blocks:\t", self.over_replicated),
            ("Under-replicated blocks:\t", self.under_replicated),
            ("Mis-replicated blocks:\t\t", 0),
        ] {
            let _ = writeln!(out, " {name}{count}{}", of_blocks(count));
        }
        let replicas = &self.replicas;
        let _ = write!(
            out,
            " Default replication factor:\t{default_replication}\n Average block replication:\t{}\n Missing blocks:\t\t{}\n \
             Corrupt blocks:\t\t{}\n Missing replicas:\t\t{}{}\n",
            java_double(replicas.total() as f64 / self.blocks.max(1) as f64),
            self.missing.0,
            self.corrupt.0,
            self.missing_replicas,
            // As Apache's: without a replica, no share.
            share(self.missing_replicas, if replicas.total() == 0 { 0 } else { self.wanted_replicas })
        );
        for (name, count) in [
            ("DecommissionedReplicas", replicas.decommissioned),
            ("DecommissioningReplicas", replicas.decommissioning),
            ("EnteringMaintenanceReplicas", replicas.entering_maintenance),
            ("InMaintenanceReplicas", replicas.in_maintenance),
        ] {
            if count > 0 {
                let _ = writeln!(out, " {name}:\t{count}");
            }
        }
        out.push_str(" Blocks queued for replication:\t0\n");
        out
    }
}

/// Formats a share: ` (12.5 %)`. Empty if the whole is 0.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!(" ({} %)", java_double(part as f64 * 100.0 / whole as f64)) }
}

/// Formats a float as Java prints it: with at least one decimal.
fn java_double(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.1}") } else { format!("{}", value as f32) }
}

#[cfg(test)]
pub(super) mod tests {
    use hearth_types::{
        Block, BlockId, BlockPoolId, DatanodeAdminState, DatanodeId, DatanodeInfo, DatanodeUuid, ExtendedBlock,
        GenerationStamp,
    };

    use super::*;

    pub fn block(id: i64) -> ExtendedBlock {
        let block = Block { id: BlockId(id), stamp: GenerationStamp(1001), length: 100 };
        ExtendedBlock { pool: BlockPoolId::new("BP-1-127.0.0.1-1"), block }
    }

    /// A block with replicas on DataNodes in these states.
    pub fn located(id: i64, states: &[DatanodeAdminState], corrupt: bool) -> LocatedBlock {
        let datanode = |state: &DatanodeAdminState| {
            let id = DatanodeId {
                ip: "127.0.0.1".to_owned(),
                host_name: "localhost".to_owned(),
                uuid: DatanodeUuid("uuid".into()),
                transfer_port: 9866,
                info_port: 0,
                ipc_port: 0,
                info_secure_port: 0,
            };
            DatanodeInfo { admin_state: *state, ..DatanodeInfo::of(id) }
        };
        let locations = states.iter().map(datanode).collect();
        LocatedBlock { locations, corrupt, ..LocatedBlock::nowhere(block(id)) }
    }

    #[test]
    fn leaving_replicas_and_corrupt_blocks_are_counted_apart() {
        use DatanodeAdminState::*;
        let mut report = Report::of("/".to_owned());
        let blocks = [
            // Decommissioned replicas with enough live ones are not a problem.
            located(1, &[Normal, Decommissioned, DecommissionInProgress], false),
            located(2, &[Normal, Decommissioned], false),
            located(3, &[DecommissionInProgress, EnteringMaintenance, EnteringMaintenance], false),
            located(4, &[Normal; 4], false),
            located(5, &[Normal, Normal], true),
            located(6, &[], false),
        ];
        assert_eq!(report.list_corrupt(), 0);
        let found = report.count_file("/f", 600, 3, &blocks.iter().collect::<Vec<_>>());
        let pool = block(1).pool;
        assert_eq!(
            found,
            [
                format!(
                    "/f:  Under replicated {pool}:blk_2_1001. Target Replicas is 3 but found 1 live replica(s), \
                     1 decommissioned replica(s), 0 decommissioning replica(s)."
                ),
                format!("/f: CORRUPT blockpool {pool} block blk_5"),
                "/f: MISSING 1 blocks of total size 100 B.".to_owned(),
                "/f: CORRUPT 1 blocks of total size 100 B.".to_owned(),
            ]
        );
        // Missing and corrupt blocks are both unreadable.
        assert_eq!(report.broken.len(), 2);
        assert_eq!(report.list_corrupt(), 255);
        assert_eq!(
            report.replicated_blocks(3),
            "Replicated Blocks:\n Total size:\t600 B\n Total files:\t1\n Total blocks (validated):\t6 (avg. block size 100 B)\n  \
             ********************************\n  UNDER MIN REPL'D BLOCKS:\t2 (33.333332 %)\n  MINIMAL BLOCK REPLICATION:\t1\n  \
             CORRUPT FILES:\t1\n  MISSING BLOCKS:\t1\n  MISSING SIZE:\t\t100 B\n  CORRUPT BLOCKS: \t1\n  CORRUPT SIZE:\t\t100 B\n  \
             ********************************\n Minimally replicated blocks:\t4 (66.666664 %)\n \
             Over-replicated blocks:\t1 (16.666666 %)\n Under-replicated blocks:\t1 (16.666666 %)\n \
             Mis-replicated blocks:\t\t0 (0.0 %)\n Default replication factor:\t3\n Average block replication:\t2.0\n \
             Missing blocks:\t\t1\n Corrupt blocks:\t\t1\n Missing replicas:\t\t1 (5.5555553 %)\n DecommissionedReplicas:\t2\n \
             DecommissioningReplicas:\t2\n EnteringMaintenanceReplicas:\t2\n Blocks queued for replication:\t0\n"
        );
    }

    #[test]
    fn shares_are_printed_like_java() {
        assert_eq!(share(1, 1), " (100.0 %)");
        assert_eq!(share(1, 3), " (33.333332 %)");
        assert_eq!(share(0, 0), "");
    }
}
