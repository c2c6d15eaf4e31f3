use std::collections::HashMap;
use std::time::Duration;

use super::datanodes::DatanodeIndex;
use super::random::Random;
use super::{BlockSettings, Now};

/// Limits the datanodes that may send their full report at the same time. Source:
/// `dfs.namenode.max.full.block.report.leases`.
#[derive(Default)]
pub(super) struct ReportLeases(HashMap<DatanodeIndex, ReportLease>);

struct ReportLease {
    id: u64,
    ends: Duration,
}

impl ReportLeases {
    /// Returns a new lease, never 0; `None` while too many are in use.
    pub fn grant(&mut self, node: DatanodeIndex, settings: &BlockSettings, random: &Random, now: Now) -> Option<u64> {
        self.0.retain(|holder, lease| *holder != node && lease.ends > now.monotonic);
        if self.0.len() >= settings.report_leases.max(1) {
            return None;
        }
        let id = random.next() | 1;
        self.0.insert(node, ReportLease { id, ends: now.monotonic + settings.report_lease_length });
        Some(id)
    }

    pub fn is_valid(&self, node: DatanodeIndex, id: u64, now: Now) -> bool {
        self.0.get(&node).is_some_and(|lease| lease.id == id && lease.ends > now.monotonic)
    }

    pub fn drop_lease(&mut self, node: DatanodeIndex) {
        self.0.remove(&node);
    }

    pub fn is_held(&self, node: DatanodeIndex) -> bool {
        self.0.contains_key(&node)
    }
}
