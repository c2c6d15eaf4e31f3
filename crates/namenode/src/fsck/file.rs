use hearth_types::ExtendedBlock;

use super::{FILES_PER_DOT, FoundFile, Fsck};
use crate::State;
use crate::blocks::{BlockReport, BlockState, Now, ReplicaReport, Target};
use crate::namespace::{FilePart, Slot};

/// Contribution of one file to the summary.
#[derive(Default)]
struct FileProblems {
    missing: u64,
    missing_bytes: u64,
    corrupt: u64,
    corrupt_bytes: u64,
    under_replicated: u64,
    badly_spread: u64,
}

/// Returns true if the block is being written or recovered.
fn is_open(report: &BlockReport) -> bool {
    matches!(report.state, BlockState::UnderConstruction | BlockState::UnderRecovery)
}

/// Returns true if some part of a file cannot be read: the file then counts as corrupt.
pub(super) fn is_unreadable(state: &State, file: &FilePart, now: Now) -> bool {
    let mut reports = file.blocks().iter().filter_map(|record| state.blocks.block_report(record.id, now));
    reports.any(|report| !is_open(&report) && report.is_missing())
}

impl Fsck {
    /// Checks a current file, or a file in a snapshot. Returns the number of items examined: the file and its blocks.
    pub(super) fn look_at_file(&mut self, state: &State, slot: Slot, found: FoundFile) -> usize {
        let inode = state.namespace.inode(slot);
        let Some(file) = inode.as_file() else { return 1 };
        let (path, open, weight) = (found.path.as_str(), file.is_open(), 1 + file.blocks().len());
        if open && !self.request.open_for_write {
            self.summary.open_files += 1;
            self.summary.open_bytes += file.length();
            self.summary.open_blocks += file.blocks().len() as u64;
            return 1;
        }
        self.summary.files += 1;
        self.summary.bytes += file.length();
        if self.request.files || open {
            self.write(format_args!(
                "{path} {} bytes, replicated: replication={}, {} block(s){}: ",
                file.length(),
                inode.replication(),
                file.blocks().len(),
                if open { ", OPENFORWRITE" } else { "" }
            ));
        } else if self.summary.files.is_multiple_of(FILES_PER_DOT) {
            self.out.push('.');
        }
        let mut of_file = FileProblems::default();
        let mut lines = String::new();
        for (nth, record) in file.blocks().iter().enumerate() {
            let report = state.blocks.block_report(record.id, self.namenode.now());
            let Some(report) = report else { continue };
            let block = ExtendedBlock { pool: state.blocks.pool().clone(), block: record.block() };
            if is_open(&report) {
                self.summary.open_blocks += 1;
                if self.request.blocks {
                    lines.push_str(&self.open_block_line(nth, &block, &report));
                }
                continue;
            }
            self.look_at_block(state, path, &block, &report, &mut of_file);
            if self.request.blocks {
                lines.push_str(&self.block_line(nth, &block, &report));
            }
        }
        let bad = self.end_file(path, &of_file, &lines);
        // The writer of an open file may still complete it.
        if bad && !open && (self.request.delete || self.request.move_to_lost) {
            self.to_repair = Some(found);
        }
        weight
    }

    fn look_at_block(
        &mut self,
        state: &State,
        path: &str,
        block: &ExtendedBlock,
        report: &BlockReport,
        of_file: &mut FileProblems,
    ) {
        let target = report.replication;
        let minimum = state.blocks.settings().min_replication;
        self.summary.blocks += 1;
        self.summary.policies.count(report);
        self.summary.target_replicas += u64::from(target);
        let present = u64::from(report.live + report.decommissioning + report.decommissioned + report.maintenance);
        let in_maintenance = u64::from(report.in_maintenance);
        let entering_maintenance = u64::from(report.maintenance) - in_maintenance;
        self.summary.replicas += present;
        self.summary.decommissioned += u64::from(report.decommissioned);
        self.summary.decommissioning += u64::from(report.decommissioning);
        self.summary.entering_maintenance += entering_maintenance;
        self.summary.in_maintenance += in_maintenance;
        let readable = u64::from(report.excess) + present;
        if present >= u64::from(minimum) {
            self.summary.minimally_replicated += 1;
        } else {
            self.summary.under_minimum += 1;
        }
        if report.live > target {
            self.summary.over_replicated += 1;
        }
        // All replicas are corrupt.
        if readable == 0 && report.corrupt > 0 {
            of_file.corrupt += 1;
            of_file.corrupt_bytes += block.length();
            self.write(format_args!("\n{path}: CORRUPT blockpool {} block {}\n", block.pool, block.id()));
            return;
        }
        if readable == 0 {
            of_file.missing += 1;
            of_file.missing_bytes += block.length();
            return;
        }
        // Replicas on leaving nodes are copied elsewhere before the nodes go, and those in maintenance come back.
        if present < u64::from(target) {
            of_file.under_replicated += 1;
            self.summary.missing_replicas += u64::from(target) - present;
            self.begin_line(path);
            self.write(format_args!(
                " Under replicated {block}. Target Replicas is {target} but found {} live replica(s), {} decommissioned replica(s), {} decommissioning replica(s)",
                report.live, report.decommissioned, report.decommissioning
            ));
            if self.request.maintenance {
                self.write(format_args!(
                    "{entering_maintenance}, entering maintenance replica(s) and {in_maintenance} in maintenance replica(s)"
                ));
            }
            self.write(format_args!(".\n"));
        }
        if report.badly_spread {
            of_file.badly_spread += 1;
            if self.request.replicate {
                self.mis_replicated.push(block.id());
            }
            self.begin_line(path);
            self.write(format_args!(
                " Replica placement policy is violated for {block}. Block should be additionally replicated on 1 more rack(s). Total number of racks in the cluster: {}\n",
                state.blocks.racks()
            ));
        }
    }

    /// Without -files no earlier line has named the file.
    fn begin_line(&mut self, path: &str) {
        if !self.request.files {
            self.write(format_args!("\n{path}: "));
        }
    }

    /// Ends the report of a file. Returns true if some part of it cannot be read.
    fn end_file(&mut self, path: &str, of_file: &FileProblems, lines: &str) -> bool {
        let summary = &mut self.summary;
        summary.missing += of_file.missing;
        summary.missing_bytes += of_file.missing_bytes;
        summary.corrupt += of_file.corrupt;
        summary.corrupt_bytes += of_file.corrupt_bytes;
        summary.under_replicated += of_file.under_replicated;
        summary.badly_spread += of_file.badly_spread;
        let bad = of_file.missing > 0 || of_file.corrupt > 0;
        summary.corrupt_files += u64::from(bad);
        let (files, end) = (self.request.files, if self.request.files { "\n" } else { "." });
        for (count, bytes, name) in
            [(of_file.missing, of_file.missing_bytes, "MISSING"), (of_file.corrupt, of_file.corrupt_bytes, "CORRUPT")]
        {
            if count > 0 {
                if !files {
                    self.write(format_args!("\n{path}:"));
                }
                self.write(format_args!(" {name} {count} blocks of total size {bytes} B{end}"));
            }
        }
        if files && !bad && of_file.under_replicated == 0 && of_file.badly_spread == 0 {
            self.write(format_args!(" OK\n"));
        }
        if files && self.request.blocks {
            self.write(format_args!("{lines}\n"));
        }
        bad
    }

    fn block_line(&self, nth: usize, block: &ExtendedBlock, report: &BlockReport) -> String {
        let mut line = format!("{nth}. {block} len={}", block.length());
        if report.is_missing() && report.corrupt == 0 {
            line.push_str(" MISSING!");
        } else {
            line.push_str(&format!(" Live_repl={}", report.live));
            let shown: Vec<&ReplicaReport> =
                report.replicas.iter().filter(|replica| !replica.corrupt || report.is_missing()).collect();
            if self.request.replica_details {
                line.push_str(&in_brackets(report.replicas.iter().map(|replica| self.replica(replica))));
            } else if self.request.wants_replicas() {
                line.push_str(&in_brackets(shown.into_iter().map(|replica| self.replica(replica))));
            }
        }
        line.push('\n');
        line
    }

    fn open_block_line(&self, nth: usize, block: &ExtendedBlock, report: &BlockReport) -> String {
        let expected = &report.expected;
        let mut line = format!(
            "\nUnder Construction Block:\n{nth}. {block} len={} Expected_repl={}",
            block.length(),
            expected.len()
        );
        if self.request.wants_replicas() {
            line.push_str(&in_brackets(expected.iter().map(|target| self.place(target))));
        }
        line.push('\n');
        line
    }

    fn place(&self, target: &Target) -> String {
        let address = target.datanode.id.transfer_address();
        if self.request.racks {
            format!("{}/{address}", target.datanode.location)
        } else {
            format!("DatanodeInfoWithStorage[{address},{},{}]", target.storage_id.0, target.storage_type.name())
        }
    }

    fn replica(&self, replica: &ReplicaReport) -> String {
        use hearth_types::DatanodeAdminState::*;
        let mut text = self.place(&replica.target);
        if self.request.replica_details {
            text.push_str(match replica.target.datanode.admin_state {
                Decommissioned => "(DECOMMISSIONED)",
                DecommissionInProgress => "(DECOMMISSIONING)",
                EnteringMaintenance if self.request.maintenance => "(ENTERING MAINTENANCE)",
                InMaintenance if self.request.maintenance => "(IN MAINTENANCE)",
                _ if replica.corrupt => "(CORRUPT)",
                _ if replica.excess => "(EXCESS)",
                _ if replica.stale_node => "(STALE_NODE)",
                _ if replica.stale_contents => "(STALE_BLOCK_CONTENT)",
                _ => "(LIVE)",
            });
        }
        if self.request.upgrade_domains {
            text.push_str("(ud=undefined)");
        }
        text
    }
}

fn in_brackets(items: impl Iterator<Item = String>) -> String {
    format!("  [{}]", items.collect::<Vec<_>>().join(", "))
}
