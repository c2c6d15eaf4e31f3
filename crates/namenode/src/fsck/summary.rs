use std::fmt::Write;

use super::policies::PolicyCounts;
use crate::State;
use crate::blocks::Now;

/// Counts of an fsck report.
#[derive(Default)]
pub(super) struct FsckSummary {
    pub directories: u64,
    pub files: u64,
    pub bytes: u64,
    pub open_files: u64,
    pub open_bytes: u64,
    pub open_blocks: u64,
    pub blocks: u64,
    pub minimally_replicated: u64,
    pub under_minimum: u64,
    pub over_replicated: u64,
    pub under_replicated: u64,
    pub badly_spread: u64,
    pub target_replicas: u64,
    pub replicas: u64,
    pub missing_replicas: u64,
    pub decommissioned: u64,
    pub decommissioning: u64,
    pub entering_maintenance: u64,
    pub in_maintenance: u64,
    pub missing: u64,
    pub missing_bytes: u64,
    pub corrupt: u64,
    pub corrupt_bytes: u64,
    pub corrupt_files: u64,
    /// Blocks that `-replicate` scheduled for re-replication.
    pub queued: u64,
    /// Files and directories that the caller may not read.
    pub skipped: u64,
    pub policies: PolicyCounts,
}

impl FsckSummary {
    pub fn is_healthy(&self) -> bool {
        self.missing + self.corrupt == 0
    }

    pub fn text(&self, state: &State, now: Now) -> String {
        let figures = state.blocks.cluster_statistics(now);
        let mut out = String::new();
        let share = |count: u64| percent(count, self.blocks);
        let _ = write!(
            out,
            "\nStatus: {}\n Number of data-nodes:\t{}\n Number of racks:\t\t{}\n Total dirs:\t\t\t{}\n Total symlinks:\t\t0\n\nReplicated Blocks:\n Total size:\t{} B",
            match (self.is_healthy(), self.skipped) {
                (false, _) => "CORRUPT",
                (true, 0) => "HEALTHY",
                (true, _) => "INCOMPLETE",
            },
            figures.live_nodes,
            state.blocks.racks(),
            self.directories,
            self.bytes
        );
        if self.open_bytes > 0 {
            let _ = write!(out, " (Total open files size: {} B)", self.open_bytes);
        }
        let _ = write!(out, "\n Total files:\t{}", self.files);
        if self.open_files > 0 {
            let _ = write!(out, " (Files currently being written: {})", self.open_files);
        }
        let _ = write!(out, "\n Total blocks (validated):\t{}", self.blocks);
        if let Some(average) = self.bytes.checked_div(self.blocks) {
            let _ = write!(out, " (avg. block size {average} B)");
        }
        if self.open_blocks > 0 {
            let _ = write!(out, " (Total open file blocks (not validated): {})", self.open_blocks);
        }
        if self.corrupt_files > 0 || self.under_minimum > 0 {
            self.write_bad(&mut out, state.blocks.settings().min_replication);
        }
        let _ = write!(
            out,
            "\n Minimally replicated blocks:\t{}{}\n Over-replicated blocks:\t{}{}\n Under-replicated blocks:\t{}{}\n Mis-replicated blocks:\t\t{}{}",
            self.minimally_replicated,
            share(self.minimally_replicated),
            self.over_replicated,
            share(self.over_replicated),
            self.under_replicated,
            share(self.under_replicated),
            self.badly_spread,
            share(self.badly_spread)
        );
        let average = if self.blocks == 0 { 0.0 } else { self.replicas as f32 / self.blocks as f32 };
        let _ = write!(
            out,
            "\n Default replication factor:\t{}\n Average block replication:\t{average:?}\n Missing blocks:\t\t{}\n Corrupt blocks:\t\t{}\n Missing replicas:\t\t{}{}",
            state.blocks.settings().default_replication,
            self.missing,
            self.corrupt,
            self.missing_replicas,
            // As Apache's: without a live replica, no share.
            percent(self.missing_replicas, if self.replicas == 0 { 0 } else { self.target_replicas })
        );
        for (name, count) in [
            ("DecommissionedReplicas", self.decommissioned),
            ("DecommissioningReplicas", self.decommissioning),
            ("EnteringMaintenanceReplicas", self.entering_maintenance),
            ("InMaintenanceReplicas", self.in_maintenance),
        ] {
            if count > 0 {
                let _ = write!(out, "\n {name}:\t{count}");
            }
        }
        let _ = write!(out, "\n Blocks queued for replication:\t{}\n", self.queued);
        out.push_str(ERASURE_CODED);
        out
    }

    fn write_bad(&self, out: &mut String, minimum: u16) {
        const STARS: &str = "\n  ********************************";
        out.push_str(STARS);
        if self.under_minimum > 0 {
            let _ = write!(
                out,
                "\n  UNDER MIN REPL'D BLOCKS:\t{}{}\n  MINIMAL BLOCK REPLICATION:\t{minimum}",
                self.under_minimum,
                percent(self.under_minimum, self.blocks)
            );
        }
        if self.corrupt_files > 0 {
            let _ = write!(out, "\n  CORRUPT FILES:\t{}", self.corrupt_files);
        }
        if self.missing > 0 {
            let _ = write!(out, "\n  MISSING BLOCKS:\t{}\n  MISSING SIZE:\t\t{} B", self.missing, self.missing_bytes);
        }
        if self.corrupt > 0 {
            let _ = write!(out, "\n  CORRUPT BLOCKS: \t{}\n  CORRUPT SIZE:\t\t{} B", self.corrupt, self.corrupt_bytes);
        }
        out.push_str(STARS);
    }
}

/// This namenode keeps no erasure-coded files, but readers of the report expect the section.
const ERASURE_CODED: &str = "
Erasure Coded Block Groups:
 Total size:\t0 B
 Total files:\t0
 Total block groups (validated):\t0
 Minimally erasure-coded block groups:\t0
 Over-erasure-coded block groups:\t0
 Under-erasure-coded block groups:\t0
 Unsatisfactory placement block groups:\t0
 Average block group size:\t0.0
 Missing block groups:\t\t0
 Corrupt block groups:\t\t0
 Missing internal blocks:\t0
 Blocks queued for replication:\t0
";

/// Percentage like ` (33.333332 %)`, as Java prints a float; empty if `whole` is 0.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!(" ({:?} %)", (part * 100) as f32 / whole as f32) }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percentages_as_java_prints_them() {
        assert_eq!(percent(1, 3), " (33.333332 %)");
        assert_eq!(percent(2, 3), " (66.666664 %)");
        assert_eq!(percent(3, 3), " (100.0 %)");
        assert_eq!(percent(0, 3), " (0.0 %)");
        assert_eq!(percent(0, 0), "");
    }
}
