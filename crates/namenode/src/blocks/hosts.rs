//! The datanodes that may join the cluster (`dfs.hosts`), and those that shall leave it (`dfs.hosts.exclude`).
//!
//! Only the address of a datanode's connection admits it; the name that a datanode reports can be any machine's. This
//! follows Apache's HostFileManager and DatanodeManager.registerDatanode.

use std::time::Duration;

use hearth_types::{BlockId, DatanodeAdminState, DatanodeId};

use super::datanodes::DatanodeIndex;
use super::{BlockMap, Now};

/// A line of a hosts file, with its name already resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostEntry {
    /// The name as written, and its addresses.
    pub names: Vec<String>,
    /// `None`: every datanode on that machine.
    pub port: Option<u16>,
}

impl HostEntry {
    /// Returns true if the datanode's connection comes from this host.
    fn is_of(&self, id: &DatanodeId) -> bool {
        self.port.is_none_or(|port| port == id.transfer_port) && self.names.contains(&id.ip)
    }

    /// Returns true if the datanode comes from this host or claims to. Only for uses in which a false claim gains
    /// nothing.
    fn may_be_of(&self, id: &DatanodeId) -> bool {
        let is_called = self.names.iter().any(|name| name.eq_ignore_ascii_case(&id.host_name));
        self.is_of(id) || is_called && self.port.is_none_or(|port| port == id.transfer_port)
    }
}

/// The include and exclude files. An empty include list admits every datanode; a list whose names have no address
/// admits none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostLists {
    pub include: Vec<HostEntry>,
    pub exclude: Vec<HostEntry>,
    /// Expected nodes: one that has never registered counts as dead.
    pub expected: Vec<HostEntry>,
    /// Nodes in maintenance, each with the end of its maintenance in milliseconds since the epoch.
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
    /// Returns the first address of the name; `None` if it has none.
    pub(super) fn address(&self) -> Option<&str> {
        self.names.iter().map(String::as_str).find(|name| name.parse::<std::net::IpAddr>().is_ok())
    }
}

impl HostLists {
    /// Returns the end of the node's maintenance; `None` if it is not in maintenance, or no longer.
    pub fn maintenance_until(&self, id: &DatanodeId, now_ms: u64) -> Option<u64> {
        let named = self.maintenance.iter().find(|(entry, _)| entry.may_be_of(id));
        named.map(|(_, until)| *until).filter(|until| *until > now_ms)
    }
}

/// Progress of leaving nodes.
#[derive(Default)]
pub(super) struct Decommissions {
    checked: Duration,
    /// For each leaving node, a block that prevented its leaving at the last check: checked first.
    witnesses: std::collections::HashMap<DatanodeIndex, BlockId>,
}

impl BlockMap {
    /// Installs new lists (refreshNodes): nodes that are no longer included are rejected at their next heartbeat,
    /// excluded nodes begin to leave, others come back.
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
            self.finish_if_drained(index, now);
        }
    }

    /// If a node is away when its maintenance ends, its replicas count as lost.
    fn set_admin(&mut self, index: DatanodeIndex, state: DatanodeAdminState, now: Now) {
        let node = self.nodes.node_mut(index);
        let was_away = node.is_in_maintenance() && !node.alive;
        node.admin = state;
        if was_away && !node.is_in_maintenance() {
            tracing::info!(datanode = %node.id, "maintenance of the datanode has ended, but it has not come back");
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

    /// Checks at every `dfs.namenode.decommission.interval` whether leaving nodes may go.
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
                self.finish_if_drained(index, now);
            }
        }
    }

    /// Lets a leaving node go if its replicas are no longer needed. The node stays until each of its storages has
    /// reported, because only then are its replicas known, and until startup safe mode is over, because only then are
    /// the other nodes' replicas known.
    fn finish_if_drained(&mut self, index: DatanodeIndex, now: Now) {
        let node = self.nodes.node(index);
        // A dead node has no replicas that count.
        if node.alive && (self.in_startup_safe_mode() || !self.nodes.has_reported(index)) {
            return;
        }
        let comes_back = self.nodes.node(index).is_in_maintenance();
        let holds_back = |block: &BlockId| !self.is_safe_without(*block, comes_back, now);
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
                    tracing::info!(datanode = %node.id, state = ?node.admin, "the datanode may be switched off now");
                }
            }
        }
    }

    /// Returns true if the nodes that stay are certain to hold enough replicas: the requested number, or the minimum
    /// for an open file's last block. With `comes_back`, the number that suffices while nodes are in maintenance.
    /// Replicas on stale storages, and on disconnected or stale nodes, do not count: they may be gone.
    fn is_safe_without(&self, block: BlockId, comes_back: bool, now: Now) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return true };
        let wanted = if comes_back {
            self.settings.maintenance_min_replication.min(entry.replication())
        } else if entry.is_complete() {
            entry.replication().min(self.settings.default_replication.max(1))
        } else {
            self.settings.min_replication
        };
        let certain = entry.replicas().filter(|replica| self.is_certain(replica, now)).count();
        // A block without any readable replica cannot be saved by this node.
        certain >= usize::from(wanted) || entry.counts(&self.nodes).readable() == 0
    }
}
