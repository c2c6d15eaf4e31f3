use std::collections::VecDeque;

use bytes::Bytes;
use hearth_types::{BlockId, DatanodeAdminState, DatanodeId, StorageId, StorageType};

use super::block_info::Construction;
use super::datanodes::{Datanode, DatanodeIndex, StorageIndex};
use super::replicas::Health;
use super::table::BlockSet;
use super::{BlockMap, Now};

/// Registration of a datanode.
#[derive(Clone, Debug)]
pub struct Registration {
    /// `ip` is already the address of the connection.
    pub id: DatanodeId,
    pub software_version: String,
    /// Rack, resolved beforehand.
    pub rack: String,
    /// A Hearth datanode's offer to Hearth's clients: passed on unchanged with its name.
    pub offer: Option<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegistrationError {
    /// Apache's DisallowedDatanodeException.
    #[error("Datanode denied communication with namenode because {reason}: {datanode}")]
    Disallowed { datanode: String, reason: &'static str },
    #[error("too many datanodes: {datanode} would exceed the limit of {}", super::datanodes::DATANODES_MAX)]
    TableFull { datanode: String },
}

impl BlockMap {
    /// Registers a datanode, new or known. Nodes are identified by their uuid and by their address. A known uuid at a
    /// new address is the old node, moved. A new uuid at a known address means that the old node there is gone for
    /// good.
    ///
    /// The node's earlier replicas stay recorded until its first full report, but deletions do not rely on them.
    pub fn register(&mut self, registration: Registration, now: Now) -> Result<DatanodeIndex, RegistrationError> {
        let id = registration.id;
        let disallowed = |reason| RegistrationError::Disallowed { datanode: id.to_string(), reason };
        // Apache 3.4 accepts an empty uuid and crashes on it later.
        if id.uuid.0.is_empty() {
            return Err(disallowed("it has no datanode UUID"));
        }
        if !self.hosts.is_included(&id) {
            return Err(disallowed("the host is not in the include-list"));
        }
        let known = self.nodes.by_uuid(&id.uuid);
        if let Some(there) = self.nodes.by_address(&id.ip, id.transfer_port)
            && Some(there) != known
        {
            self.wipe_node(there, now);
        }
        let index = match known {
            Some(index) => {
                self.nodes.rename(index, id);
                index
            }
            None => {
                let name = id.to_string();
                let node = new_node(id, now);
                self.nodes.insert(node).ok_or(RegistrationError::TableFull { datanode: name })?
            }
        };
        let admin_before = self.nodes.node(index).admin;
        let node = self.nodes.node_mut(index);
        // It may have been decommissioned while it was dead; its replicas are unknown until it reports.
        if !node.alive {
            node.admin = match node.admin {
                DatanodeAdminState::Decommissioned => DatanodeAdminState::DecommissionInProgress,
                DatanodeAdminState::InMaintenance => DatanodeAdminState::EnteringMaintenance,
                other => other,
            };
        }
        node.rack = registration.rack;
        node.software_version = registration.software_version;
        node.offer = registration.offer;
        node.alive = true;
        node.must_register = false;
        node.needs_keys = true;
        node.first_heartbeat = true;
        node.registered = now.monotonic;
        node.last_heartbeat = now.monotonic;
        node.last_heartbeat_wall_ms = now.wall_ms;
        node.deleted.clear();
        node.xceivers = 0;
        node.transmits = 0;
        node.awaits_work = false;
        node.waiting = None;
        let storages = node.storages.clone();
        self.mark_unconfirmed(&storages);
        self.keep_untold_excess(index, now);
        self.report_leases.drop_lease(index);
        self.forget_advertisements(index);
        // A restarted node has forgotten the transfers assigned to it.
        self.cancel_transfers(index, now);
        self.recount_racks(now);
        self.apply_hosts(index, now);
        if self.nodes.node(index).admin != admin_before {
            self.refresh_blocks_of(index, now);
        }
        self.check_safe_mode(now);
        Ok(index)
    }

    /// Marks the replicas of storages whose node restarts, is gone, or has lost them: until they report, their contents
    /// are unknown, including the replicas that were being written there. Visits all open blocks.
    fn mark_unconfirmed(&mut self, storages: &[StorageIndex]) {
        if storages.is_empty() {
            return;
        }
        for storage in storages {
            let known = self.nodes.storage_mut(*storage);
            known.stale = true;
            known.heartbeated = false;
            known.reports = 0;
            known.received_under_lease.clear();
        }
        #[cfg(test)]
        self.count_visited(self.open.len());
        for block in &self.open {
            let construction = self.blocks.get_mut(block).and_then(|entry| entry.construction_mut());
            for expected in construction.into_iter().flat_map(|construction| &mut construction.expected) {
                expected.is_unconfirmed |= storages.contains(&expected.storage);
            }
        }
    }

    #[cfg(test)]
    fn count_visited(&mut self, open_blocks: usize) {
        self.visited_open_blocks += open_blocks;
    }

    /// Handles the death of a node that was silent for too long or reports that it cannot continue: its replicas no
    /// longer count.
    pub(super) fn node_died(&mut self, index: DatanodeIndex, now: Now) {
        self.nodes.node_mut(index).alive = false;
        self.recount_racks(now);
        self.cancel_transfers(index, now);
        self.report_leases.drop_lease(index);
        self.forget_advertisements(index);
        let node = self.nodes.node_mut(index);
        node.invalidations.clear();
        node.deleted.clear();
        node.recoveries.clear();
        node.cache = Default::default();
        node.scheduled = [0; 2];
        let storages = node.storages.clone();
        let is_in_maintenance = node.is_in_maintenance();
        if is_in_maintenance {
            // Its replicas come back with it.
            node.admin = DatanodeAdminState::InMaintenance;
        }
        self.mark_unconfirmed(&storages);
        for storage in storages {
            match is_in_maintenance {
                true => self.set_storage_aside(storage, now),
                false => self.drain_unconfirmed(storage, now),
            }
        }
    }

    /// Sets a storage aside whose node is away for maintenance, after [`Self::mark_unconfirmed`]. Its pending deletions
    /// are dropped: the node reports those replicas when it is back.
    fn set_storage_aside(&mut self, storage: StorageIndex, now: Now) {
        let held: Vec<BlockId> = self.nodes.storage(storage).blocks.iter().collect();
        for block in held {
            let health = self.entry(block).replica(storage).map(|replica| replica.health);
            if health != Some(Health::Live) {
                self.forget_replica(block, storage);
            }
            self.refresh(block, now);
        }
        self.cancel_pending_target(storage, now);
    }

    /// Removes every replica of this storage.
    pub(super) fn drain_storage(&mut self, storage: StorageIndex, now: Now) {
        self.mark_unconfirmed(&[storage]);
        self.drain_unconfirmed(storage, now);
    }

    /// Like [`Self::drain_storage`], after [`Self::mark_unconfirmed`].
    fn drain_unconfirmed(&mut self, storage: StorageIndex, now: Now) {
        let held: BlockSet = std::mem::take(&mut self.nodes.storage_mut(storage).blocks);
        for block in held.iter() {
            self.forget_replica(block, storage);
            self.refresh(block, now);
        }
        self.cancel_pending_target(storage, now);
    }

    /// Removes a storage, and every reference to its index, from the map. Open blocks remember its id, because it may
    /// have their acknowledged bytes.
    pub(super) fn wipe_storage(&mut self, storage: StorageIndex, now: Now) {
        self.drain_storage(storage, now);
        self.remove_drained(&[storage]);
    }

    /// Removes storages without replicas from the map. Visits all open blocks.
    fn remove_drained(&mut self, storages: &[StorageIndex]) {
        if storages.is_empty() {
            return;
        }
        #[cfg(test)]
        self.count_visited(self.open.len());
        for block in &self.open {
            let construction = self.blocks.get_mut(block).and_then(|entry| entry.construction_mut());
            let is_expected = |construction: &&mut Construction| {
                construction.expected.iter().any(|expected| storages.contains(&expected.storage))
            };
            let Some(construction) = construction.filter(is_expected) else { continue };
            for storage in storages {
                construction.remove_storage(*storage, &self.nodes.storage(*storage).id);
            }
            self.with_missing.insert(*block);
        }
        for storage in storages {
            self.nodes.remove_storage(*storage);
        }
    }

    /// Returns the storage with that id, creating it if it is new; `None` if the node has too many. A storage that was
    /// removed from the map is expected to have its replicas again.
    pub(super) fn storage_or_insert(
        &mut self,
        node: DatanodeIndex,
        id: &StorageId,
        storage_type: StorageType,
    ) -> Option<StorageIndex> {
        let is_new = self.nodes.storage_of(node, id).is_none();
        let storage = self.nodes.storage_or_insert(node, id, storage_type)?;
        if is_new {
            self.storages.note(id);
            #[cfg(test)]
            self.count_visited(self.with_missing.len());
            let (nodes, blocks) = (&self.nodes, &mut self.blocks);
            self.with_missing.retain(|block| {
                let construction = blocks.get_mut(block).and_then(|entry| entry.construction_mut());
                let Some(construction) = construction else { return false };
                // A node counts once, with the storage it last reported.
                let mut holders = construction.expected.iter().map(|expected| nodes.storage(expected.storage).node);
                if !construction.is_committed && !holders.any(|holder| holder == node) {
                    construction.return_storage(storage, id);
                }
                !construction.missing.is_empty()
            });
        }
        Some(storage)
    }

    fn wipe_node(&mut self, index: DatanodeIndex, now: Now) {
        self.node_died(index, now);
        let storages = self.nodes.node(index).storages.clone();
        for storage in &storages {
            // In maintenance it has kept its replicas.
            self.drain_unconfirmed(*storage, now);
        }
        self.remove_drained(&storages);
        self.nodes.remove(index);
        self.recount_racks(now);
    }
}

fn new_node(id: DatanodeId, now: Now) -> Datanode {
    Datanode {
        id,
        rack: String::new(),
        software_version: String::new(),
        offer: None,
        advertised: Default::default(),
        storages: Vec::new(),
        alive: true,
        connection: None,
        disconnected: false,
        idle_closes: 0,
        admin: DatanodeAdminState::Normal,
        maintenance_until: 0,
        disallowed: false,
        registered: now.monotonic,
        last_heartbeat: now.monotonic,
        last_heartbeat_wall_ms: now.wall_ms,
        last_report_wall_ms: 0,
        xceivers: 0,
        transmits: 0,
        idle_since: None,
        failed_volumes: 0,
        cache_capacity: 0,
        cache_used: 0,
        cache: Default::default(),
        first_heartbeat: true,
        must_register: false,
        needs_keys: true,
        balancer_bandwidth: None,
        transfers: VecDeque::new(),
        awaits_work: false,
        waiting: None,
        invalidations: Default::default(),
        deleted: BlockSet::default(),
        recoveries: VecDeque::new(),
        scheduled: [0; 2],
        scheduled_rolled: now.monotonic,
    }
}
