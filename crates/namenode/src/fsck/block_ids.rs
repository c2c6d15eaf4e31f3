use std::fmt::Write;

use hearth_types::{BlockId, DatanodeAdminState};

use super::Fsck;
use crate::namespace::{InodeId, Purpose, SnapshotPaths};

impl Fsck {
    /// Handles `-blockId`: reports the blocks' files and the state of their replicas, except for files that the caller
    /// may not access.
    pub(super) fn report_blocks(&mut self) {
        let now = self.namenode.now();
        for name in &self.request.block_ids {
            if !name.contains("blk_") {
                let _ = writeln!(self.out, "Incorrect blockId format: {name}");
                continue;
            }
            // `blk_1_1001` and `blk_1_1001.meta` refer to the block too.
            let number = name
                .strip_prefix("blk_")
                .and_then(|rest| rest.split(['_', '.']).next().and_then(|number| number.parse::<i64>().ok()));
            let state = self.namenode.read();
            let report = number.and_then(|number| state.blocks.block_report(BlockId(number), now));
            let out = &mut self.out;
            out.push('\n');
            let Some(report) = report else {
                let _ = writeln!(out, "Block {name} does not exist");
                continue;
            };
            let inode = InodeId(report.inode);
            let now = state.namespace.slot(inode).map(|slot| state.namespace.path_of(slot));
            let path = now.or_else(|| SnapshotPaths::new(&state.namespace).of(inode, 1).pop());
            let may_reach = |path: &str| state.namespace.resolve(&self.caller, path, Purpose::Read).is_ok();
            if path.as_deref().is_some_and(|path| !may_reach(path)) {
                self.is_refused = true;
                let user = &self.caller.user;
                let _ = writeln!(out, "Block {name} is of a file that user {user} may not reach");
                continue;
            }
            let _ = writeln!(out, "Block Id: {name}");
            let _ = writeln!(out, "Block belongs to: {}", path.unwrap_or_default());
            let _ = writeln!(out, "No. of Expected Replica: {}", report.replication);
            let _ = writeln!(out, "No. of live Replica: {}", report.live);
            let _ = writeln!(out, "No. of excess Replica: {}", report.excess);
            let _ = writeln!(out, "No. of stale Replica: {}", report.stale);
            let _ = writeln!(out, "No. of decommissioned Replica: {}", report.decommissioned);
            let _ = writeln!(out, "No. of decommissioning Replica: {}", report.decommissioning);
            if self.request.maintenance {
                let entering = report.maintenance - report.in_maintenance;
                let _ = writeln!(out, "No. of entering maintenance Replica: {entering}");
                let _ = writeln!(out, "No. of in maintenance Replica: {}", report.in_maintenance);
            }
            let _ = writeln!(out, "No. of corrupted Replica: {}", report.corrupt);
            for replica in &report.replicas {
                let node = &replica.target.datanode;
                let maintenance = self.request.maintenance;
                let health = match node.admin_state {
                    _ if replica.corrupt => "CORRUPT\t ReasonCode: CORRUPTION_REPORTED",
                    DatanodeAdminState::Decommissioned => "DECOMMISSIONED",
                    DatanodeAdminState::DecommissionInProgress => "DECOMMISSIONING",
                    DatanodeAdminState::EnteringMaintenance if maintenance => "ENTERING MAINTENANCE",
                    DatanodeAdminState::InMaintenance if maintenance => "IN MAINTENANCE",
                    _ if replica.stale_node => "STALE",
                    _ if replica.excess => "EXCESS",
                    _ => "HEALTHY",
                };
                let _ =
                    writeln!(out, "Block replica on datanode/rack: {}{} is {health}", node.id.host_name, node.location);
            }
        }
    }
}
