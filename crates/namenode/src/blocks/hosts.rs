//! Which datanodes may be part of the cluster (`dfs.hosts`), and which are to leave it (`dfs.hosts.exclude`).

use std::time::Duration;

use hearth_types::{BlockId, DatanodeAdminState, DatanodeId};

use super::datanodes::DatanodeIndex;
use super::{BlockMap, Now};

/// A line of a hosts file, its name already looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostEntry {
    /// As written, and the addresses behind it.
    pub names: Vec<String>,
    /// `None`: every datanode on that machine.
    pub port: Option<u16>,
}

impl HostEntry {
    fn matches(&self, id: &DatanodeId) -> bool {
        self.port.is_none_or(|port| port == id.transfer_port)
            && self.names.iter().any(|name| *name == id.ip || name.eq_ignore_ascii_case(&id.host_name))
    }
}

/// The include and exclude files. An empty include list lets everyone in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostLists {
    pub include: Vec<HostEntry>,
    pub exclude: Vec<HostEntry>,
}

impl HostLists {
    pub fn is_included(&self, id: &DatanodeId) -> bool {
        self.include.is_empty() || self.include.iter().any(|entry| entry.matches(id))
    }

    pub fn is_excluded(&self, id: &DatanodeId) -> bool {
        self.exclude.iter().any(|entry| entry.matches(id))
    }
}

/// Progress of leaving nodes.
#[derive(Default)]
pub(super) struct Decommissions {
    checked: Duration,
    /// For each leaving node, a block that kept it the last time: looked at first.
    witnesses: std::collections::HashMap<DatanodeIndex, BlockId>,
}

impl BlockMap {
    /// New lists (refreshNodes): nodes that are no longer included are turned away at their next heartbeat, excluded ones begin
    /// to leave, others come back.
    pub fn set_hosts(&mut self, hosts: HostLists, now: Now) {
        self.hosts = hosts;
        for node in self.nodes.indices() {
            self.apply_hosts(node, now);
        }
    }

    pub(super) fn apply_hosts(&mut self, index: DatanodeIndex, now: Now) {
        let id = self.nodes.node(index).id.clone();
        let disallowed = !self.hosts.is_included(&id);
        let excluded = self.hosts.is_excluded(&id);
        let node = self.nodes.node_mut(index);
        node.disallowed = disallowed;
        let leaving =
            matches!(node.admin, DatanodeAdminState::DecommissionInProgress | DatanodeAdminState::Decommissioned);
        if excluded && !leaving {
            node.admin = DatanodeAdminState::DecommissionInProgress;
        } else if !excluded && leaving {
            node.admin = DatanodeAdminState::Normal;
            self.decommissions.witnesses.remove(&index);
        } else {
            return;
        }
        self.refresh_blocks_of(index, now);
        // An empty node has nothing to wait for.
        if excluded {
            self.finish_if_drained(index);
        }
    }

    pub(super) fn refresh_blocks_of(&mut self, index: DatanodeIndex, now: Now) {
        for storage in self.nodes.node(index).storages.clone() {
            let held: Vec<BlockId> = self.nodes.storage(storage).blocks.iter().copied().collect();
            for block in held {
                self.refresh(block, now);
            }
        }
    }

    /// Looks at every `dfs.namenode.decommission.interval` whether leaving nodes may go.
    pub(super) fn check_decommissions(&mut self, now: Now) {
        if now.monotonic.saturating_sub(self.decommissions.checked) < self.settings.decommission_interval {
            return;
        }
        self.decommissions.checked = now.monotonic;
        for index in self.nodes.indices() {
            let node = self.nodes.node(index);
            if node.alive && node.admin == DatanodeAdminState::DecommissionInProgress {
                self.finish_if_drained(index);
            }
        }
    }

    fn finish_if_drained(&mut self, index: DatanodeIndex) {
        let holds_back = |block: &BlockId| !self.is_safe_without(*block);
        let witness = self.decommissions.witnesses.get(&index).copied().filter(holds_back).or_else(|| {
            let storages = &self.nodes.node(index).storages;
            let mut held = storages.iter().flat_map(|storage| &self.nodes.storage(*storage).blocks).copied();
            held.find(holds_back)
        });
        match witness {
            Some(block) => {
                self.decommissions.witnesses.insert(index, block);
            }
            None => {
                self.decommissions.witnesses.remove(&index);
                let writing = self.open.iter().any(|block| {
                    let entry = self.entry(*block);
                    entry.counts(&self.nodes).live < self.settings.min_replication
                        && entry.construction().is_some_and(|construction| {
                            construction
                                .expected
                                .iter()
                                .any(|expected| self.nodes.storage(expected.storage).node == index)
                        })
                });
                if !writing {
                    let node = self.nodes.node_mut(index);
                    node.admin = DatanodeAdminState::Decommissioned;
                    tracing::info!(datanode = %node.id, "decommissioned");
                }
            }
        }
    }

    /// Whether nodes that stay hold enough replicas: all that were asked for, or for an open file's last block the minimum.
    fn is_safe_without(&self, block: BlockId) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return true };
        let counts = entry.counts(&self.nodes);
        let wanted = if entry.is_complete() {
            entry.replication.min(self.settings.default_replication.max(1))
        } else {
            self.settings.min_replication
        };
        // A block without any readable replica is not this node's to save.
        counts.live >= wanted || counts.readable() == 0
    }
}
