//! Which datanodes may be part of the cluster (`dfs.hosts`), and which are to leave it (`dfs.hosts.exclude`).
//!
//! Only the address that a datanode's connection comes from lets it in: the name that it gives itself may be anybody's. As Apache's
//! HostFileManager and DatanodeManager.registerDatanode have it.

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
    /// It comes from there.
    fn is_of(&self, id: &DatanodeId) -> bool {
        self.port.is_none_or(|port| port == id.transfer_port) && self.names.contains(&id.ip)
    }

    /// It comes from there, or says so. For what nobody wins by saying it.
    fn may_be_of(&self, id: &DatanodeId) -> bool {
        let is_called = self.names.iter().any(|name| name.eq_ignore_ascii_case(&id.host_name));
        self.is_of(id) || is_called && self.port.is_none_or(|port| port == id.transfer_port)
    }
}

/// The include and exclude files. An empty include list lets everyone in; one whose names have no address, nobody.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostLists {
    pub include: Vec<HostEntry>,
    pub exclude: Vec<HostEntry>,
    /// Nodes that are expected: one that has never come counts as dead.
    pub expected: Vec<HostEntry>,
    /// Nodes that are to be left alone for a while, each with the end of that: milliseconds since the epoch.
    pub maintenance: Vec<(HostEntry, u64)>,
}

impl HostLists {
    pub fn is_included(&self, id: &DatanodeId) -> bool {
        self.include.is_empty() || self.include.iter().any(|entry| entry.is_of(id))
    }

    pub fn is_excluded(&self, id: &DatanodeId) -> bool {
        self.exclude.iter().any(|entry| entry.may_be_of(id))
    }
}

impl HostEntry {
    /// The first address behind it; `None`: its name has none.
    pub(super) fn address(&self) -> Option<&str> {
        self.names.iter().map(String::as_str).find(|name| name.parse::<std::net::IpAddr>().is_ok())
    }
}

impl HostLists {
    /// Until when the node is in maintenance; `None`: it is not, or not any more.
    pub fn maintenance_until(&self, id: &DatanodeId, now_ms: u64) -> Option<u64> {
        let named = self.maintenance.iter().find(|(entry, _)| entry.may_be_of(id));
        named.map(|(_, until)| *until).filter(|until| *until > now_ms)
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
        let until = self.hosts.maintenance_until(&id, now.wall_ms);
        let node = self.nodes.node_mut(index);
        node.disallowed = disallowed;
        node.maintenance_until = until.unwrap_or(0);
        let leaving =
            matches!(node.admin, DatanodeAdminState::DecommissionInProgress | DatanodeAdminState::Decommissioned);
        let (begin, is_there) = match (until.is_some(), excluded) {
            (true, _) => (DatanodeAdminState::EnteringMaintenance, node.is_in_maintenance()),
            (false, true) => (DatanodeAdminState::DecommissionInProgress, leaving),
            (false, false) => (DatanodeAdminState::Normal, node.admin == DatanodeAdminState::Normal),
        };
        if is_there {
            return;
        }
        self.decommissions.witnesses.remove(&index);
        self.set_admin(index, begin, now);
        // A node known to be empty has nothing to wait for.
        if begin != DatanodeAdminState::Normal {
            self.finish_if_drained(index);
        }
    }

    /// Of a node that is away when its maintenance ends, what it held is lost.
    fn set_admin(&mut self, index: DatanodeIndex, state: DatanodeAdminState, now: Now) {
        let node = self.nodes.node_mut(index);
        let was_away = node.is_in_maintenance() && !node.alive;
        node.admin = state;
        if was_away && !node.is_in_maintenance() {
            tracing::info!(datanode = %node.id, "its maintenance is over and it is not back");
            for storage in node.storages.clone() {
                self.drain_storage(storage, now);
            }
        }
        self.refresh_blocks_of(index, now);
    }

    pub(super) fn refresh_blocks_of(&mut self, index: DatanodeIndex, now: Now) {
        for storage in self.nodes.node(index).storages.clone() {
            let held: Vec<BlockId> = self.nodes.storage(storage).blocks.iter().collect();
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
            if node.is_in_maintenance() && node.maintenance_until <= now.wall_ms {
                self.set_admin(index, DatanodeAdminState::Normal, now);
                continue;
            }
            let waits = [DatanodeAdminState::DecommissionInProgress, DatanodeAdminState::EnteringMaintenance];
            if node.alive && waits.contains(&node.admin) {
                self.finish_if_drained(index);
            }
        }
    }

    /// What a node holds is known once each of its storages has reported, and what the others hold when the safe mode of the
    /// start is over: before that it stays.
    fn finish_if_drained(&mut self, index: DatanodeIndex) {
        let node = self.nodes.node(index);
        // A dead one has nothing that anybody counts on.
        if node.alive && (self.in_startup_safe_mode() || !self.nodes.has_reported(index)) {
            return;
        }
        let comes_back = self.nodes.node(index).is_in_maintenance();
        let holds_back = |block: &BlockId| !self.is_safe_without(*block, comes_back);
        let witness = self.decommissions.witnesses.get(&index).copied().filter(holds_back).or_else(|| {
            let storages = &self.nodes.node(index).storages;
            let mut held = storages.iter().flat_map(|storage| self.nodes.storage(*storage).blocks.iter());
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
                    node.admin = match comes_back {
                        true => DatanodeAdminState::InMaintenance,
                        false => DatanodeAdminState::Decommissioned,
                    };
                    tracing::info!(datanode = %node.id, state = ?node.admin, "it may be switched off");
                }
            }
        }
    }

    /// Whether nodes that stay hold enough replicas: all that were asked for, or for an open file's last block the minimum; with
    /// `comes_back`, as many as do while nodes are in maintenance.
    fn is_safe_without(&self, block: BlockId, comes_back: bool) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return true };
        let counts = entry.counts(&self.nodes);
        let wanted = if comes_back {
            self.settings.maintenance_min_replication.min(entry.replication())
        } else if entry.is_complete() {
            entry.replication().min(self.settings.default_replication.max(1))
        } else {
            self.settings.min_replication
        };
        // A block without any readable replica is not this node's to save.
        counts.live >= wanted || counts.readable() == 0
    }
}
