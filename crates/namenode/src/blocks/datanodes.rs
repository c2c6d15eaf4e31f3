use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{
    BlockId, DatanodeAdminState, DatanodeId, DatanodeInfo, DatanodeUuid, StorageId, StorageReport, StorageType,
};
use tokio::sync::oneshot;

use super::advertised::NodeAdvertisements;
use super::cache::DatanodeCache;
use super::connections::{ByConnection, ConnectionId};
use super::invalidations::Invalidations;
use super::table::BlockSet;
use super::{BlockMap, BlockSettings, Now};

/// Index of a datanode in this process's table. Valid until the node is replaced; never kept across a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatanodeIndex(pub(super) u32);

/// Index of a storage in this process's table. Valid until the node is replaced; never kept across a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StorageIndex(pub(super) u32);

/// Limit of datanodes in the table, dead ones included; at the limit no further peer can register.
pub(super) const DATANODES_MAX: usize = 20_000;
/// Limit of storages per datanode; a longer report is cut.
pub(super) const STORAGES_PER_NODE_MAX: usize = 1024;

pub(super) struct Storage {
    pub id: StorageId,
    pub node: DatanodeIndex,
    pub storage_type: StorageType,
    pub failed: bool,
    /// Bytes, from the last heartbeat.
    pub capacity: u64,
    pub dfs_used: u64,
    pub remaining: u64,
    pub block_pool_used: u64,
    pub non_dfs_used: u64,
    /// The blocks with a finalized replica on this storage.
    pub blocks: BlockSet,
    /// Contents uncertain: no full report since a heartbeat. No replica is deleted because of this storage.
    pub stale: bool,
    pub heartbeated: bool,
    /// Number of full reports since the node registered.
    pub reports: u32,
    /// Blocks reported as received since a full report lease was granted: a report made before does not contain them.
    pub received_under_lease: BlockSet,
}

/// A copy that a datanode shall send.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub block: BlockId,
    pub targets: Vec<StorageIndex>,
    pub bytes: u64,
}

pub(super) struct Datanode {
    pub id: DatanodeId,
    pub rack: String,
    pub software_version: String,
    /// The node's offer to Hearth's clients: opaque bytes that only they read.
    pub offer: Option<Bytes>,
    /// Announced memory that clients may be sent.
    pub advertised: NodeAdvertisements,
    pub storages: Vec<StorageIndex>,
    pub alive: bool,
    /// Connection on which it was heard last, while that is open.
    pub connection: Option<ConnectionId>,
    /// That connection has ended, and the node has not been heard since.
    pub disconnected: bool,
    /// Number of times in a row that the node was heard on a new connection after it had closed an idle one.
    pub idle_closes: u8,
    pub admin: DatanodeAdminState,
    /// End of its maintenance, in milliseconds since the epoch.
    pub maintenance_until: u64,
    /// No longer on the include list: rejected at its next heartbeat.
    pub disallowed: bool,
    /// Monotonic time of its last registration.
    pub registered: Duration,
    pub last_heartbeat: Duration,
    pub last_heartbeat_wall_ms: u64,
    pub last_report_wall_ms: u64,
    pub xceivers: u32,
    /// Number of transfers that the node reports as running.
    pub transmits: u32,
    /// Time since which the node has reported that it sends nothing.
    pub idle_since: Option<Duration>,
    pub failed_volumes: u32,
    pub cache_capacity: u64,
    pub cache_used: u64,
    pub cache: DatanodeCache,
    /// No heartbeat has come since it registered.
    pub first_heartbeat: bool,
    /// Answer the next heartbeat with a register command.
    pub must_register: bool,
    pub needs_keys: bool,
    /// Bytes per second, to be announced once.
    pub balancer_bandwidth: Option<u64>,
    pub transfers: VecDeque<Transfer>,
    /// The node has called awaitWork since it registered: it wants to be notified of work.
    pub awaits_work: bool,
    /// Pending awaitWork call, if any.
    pub waiting: Option<oneshot::Sender<()>>,
    pub invalidations: Invalidations,
    /// Blocks of the namespace that it has reported as deleted since its last full report, or since the lease for the
    /// next one: a report made before still contains them.
    pub deleted: BlockSet,
    pub recoveries: VecDeque<BlockId>,
    /// Number of blocks scheduled to the node and not yet reported, in this period and the last (see `roll_scheduled`).
    pub scheduled: [u32; 2],
    pub scheduled_rolled: Duration,
}

impl Datanode {
    pub fn in_service(&self) -> bool {
        self.alive && self.admin == DatanodeAdminState::Normal
    }

    /// Returns true if the node may be the target of a copy.
    pub fn takes_copies(&self) -> bool {
        self.in_service() && !self.disconnected
    }

    /// Returns true if readers are sent to the node's replicas. A node in maintenance may be switched off at any
    /// moment.
    pub fn is_readable(&self) -> bool {
        self.alive && self.admin != DatanodeAdminState::InMaintenance
    }

    pub fn is_in_maintenance(&self) -> bool {
        matches!(self.admin, DatanodeAdminState::EnteringMaintenance | DatanodeAdminState::InMaintenance)
    }

    pub fn is_stale(&self, settings: &BlockSettings, now: Now) -> bool {
        now.monotonic.saturating_sub(self.last_heartbeat) >= settings.stale_after()
    }

    /// Answers the pending awaitWork call, if any, so that the node sends a heartbeat now.
    pub fn wake(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            // If the call is gone, the node asks again or sends its heartbeat at the usual interval.
            let _ = waiting.send(());
        }
    }

    pub fn scheduled_blocks(&self) -> u32 {
        self.scheduled[0] + self.scheduled[1]
    }

    pub fn note_received(&mut self) {
        if self.scheduled[1] > 0 {
            self.scheduled[1] -= 1;
        } else {
            self.scheduled[0] = self.scheduled[0].saturating_sub(1);
        }
    }
}

/// All datanodes that have registered since the start, with their storages.
#[derive(Default)]
pub(super) struct Datanodes {
    nodes: Vec<Option<Datanode>>,
    storages: Vec<Option<Storage>>,
    free_nodes: Vec<DatanodeIndex>,
    free_storages: Vec<StorageIndex>,
    by_uuid: HashMap<DatanodeUuid, DatanodeIndex>,
    by_address: HashMap<(String, u16), DatanodeIndex>,
    by_connection: ByConnection,
    racks: usize,
}

impl Datanodes {
    pub fn node(&self, index: DatanodeIndex) -> &Datanode {
        self.nodes[index.0 as usize].as_ref().expect("an index is dropped together with its node")
    }

    /// Returns `None` if the node has been dropped since.
    pub fn get(&self, index: DatanodeIndex) -> Option<&Datanode> {
        self.nodes[index.0 as usize].as_ref()
    }

    pub fn node_mut(&mut self, index: DatanodeIndex) -> &mut Datanode {
        self.nodes[index.0 as usize].as_mut().expect("an index is dropped together with its node")
    }

    pub fn storage(&self, index: StorageIndex) -> &Storage {
        self.storages[index.0 as usize].as_ref().expect("an index is dropped together with its storage")
    }

    pub fn storage_mut(&mut self, index: StorageIndex) -> &mut Storage {
        self.storages[index.0 as usize].as_mut().expect("an index is dropped together with its storage")
    }

    pub fn node_of(&self, storage: StorageIndex) -> &Datanode {
        self.node(self.storage(storage).node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (DatanodeIndex, &Datanode)> {
        self.nodes.iter().enumerate().filter_map(|(index, node)| Some((DatanodeIndex(index as u32), node.as_ref()?)))
    }

    pub fn indices(&self) -> Vec<DatanodeIndex> {
        self.iter().map(|(index, _)| index).collect()
    }

    pub fn len(&self) -> usize {
        self.by_uuid.len()
    }

    pub fn by_uuid(&self, uuid: &DatanodeUuid) -> Option<DatanodeIndex> {
        self.by_uuid.get(uuid).copied()
    }

    pub fn by_address(&self, ip: &str, transfer_port: u16) -> Option<DatanodeIndex> {
        self.by_address.get(&(ip.to_owned(), transfer_port)).copied()
    }

    pub fn storage_of(&self, node: DatanodeIndex, id: &StorageId) -> Option<StorageIndex> {
        self.node(node).storages.iter().copied().find(|storage| &self.storage(*storage).id == id)
    }

    /// Returns the datanodes on the machine with this address or name, live ones first.
    pub fn on_machine(&self, host: &str) -> Vec<DatanodeIndex> {
        let mut found: Vec<_> =
            self.iter().filter(|(_, node)| node.id.ip == host || node.id.host_name == host).collect();
        found.sort_by_key(|(_, node)| !node.alive);
        found.into_iter().map(|(index, _)| index).collect()
    }

    /// Returns the number of racks with a live node.
    pub fn rack_count(&self) -> usize {
        self.racks
    }

    /// Recounts the racks. To be called when a node comes, goes or moves.
    pub fn recount_racks(&mut self) {
        let racks: HashSet<&str> =
            self.iter().filter(|(_, node)| node.alive).map(|(_, node)| node.rack.as_str()).collect();
        self.racks = racks.len();
    }

    /// Returns `None` if the table is full.
    pub fn insert(&mut self, node: Datanode) -> Option<DatanodeIndex> {
        if self.len() >= DATANODES_MAX {
            return None;
        }
        let uuid = node.id.uuid.clone();
        let address = (node.id.ip.clone(), node.id.transfer_port);
        let index = self.free_nodes.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            DatanodeIndex(self.nodes.len() as u32 - 1)
        });
        self.nodes[index.0 as usize] = Some(node);
        self.by_uuid.insert(uuid, index);
        self.by_address.insert(address, index);
        Some(index)
    }

    /// Gives a known node a new identity (address, ports, name); the uuid stays.
    pub fn rename(&mut self, index: DatanodeIndex, id: DatanodeId) {
        let old = self.node(index).id.clone();
        assert_eq!(old.uuid, id.uuid, "a node keeps its uuid");
        if self.by_address(&old.ip, old.transfer_port) == Some(index) {
            self.by_address.remove(&(old.ip, old.transfer_port));
        }
        self.by_address.insert((id.ip.clone(), id.transfer_port), index);
        self.node_mut(index).id = id;
    }

    /// Sets the connection on which the node was heard last. With one, the node is not disconnected (any more).
    pub fn set_connection(&mut self, index: DatanodeIndex, connection: Option<ConnectionId>) {
        let node = self.node_mut(index);
        node.disconnected &= connection.is_none();
        let before = std::mem::replace(&mut node.connection, connection);
        if before != connection {
            if let Some(before) = before {
                self.by_connection.remove(&(before, index));
            }
            if let Some(connection) = connection {
                self.by_connection.insert((connection, index));
            }
        }
    }

    /// Returns the nodes that were heard last on this connection.
    pub fn on_connection(&self, connection: ConnectionId) -> impl Iterator<Item = DatanodeIndex> {
        let all = (connection, DatanodeIndex(0))..=(connection, DatanodeIndex(u32::MAX));
        self.by_connection.range(all).map(|(_, index)| *index)
    }

    /// Removes a node and its storages. The caller has already removed all references to them from the map.
    pub fn remove(&mut self, index: DatanodeIndex) {
        self.set_connection(index, None);
        let node = self.nodes[index.0 as usize].take().expect("an index is dropped together with its node");
        for storage in node.storages {
            self.storages[storage.0 as usize] = None;
            self.free_storages.push(storage);
        }
        self.by_uuid.remove(&node.id.uuid);
        if self.by_address(&node.id.ip, node.id.transfer_port) == Some(index) {
            self.by_address.remove(&(node.id.ip, node.id.transfer_port));
        }
        self.free_nodes.push(index);
    }

    /// Returns the storage with that id, creating it if it is new; `None` if the node has too many.
    pub fn storage_or_insert(
        &mut self,
        node: DatanodeIndex,
        id: &StorageId,
        storage_type: StorageType,
    ) -> Option<StorageIndex> {
        if let Some(known) = self.storage_of(node, id) {
            self.storage_mut(known).storage_type = storage_type;
            return Some(known);
        }
        if self.node(node).storages.len() >= STORAGES_PER_NODE_MAX {
            return None;
        }
        let storage = Storage {
            id: id.clone(),
            node,
            storage_type,
            failed: false,
            capacity: 0,
            dfs_used: 0,
            remaining: 0,
            block_pool_used: 0,
            non_dfs_used: 0,
            blocks: BlockSet::default(),
            stale: true,
            heartbeated: false,
            reports: 0,
            received_under_lease: BlockSet::default(),
        };
        let index = self.free_storages.pop().unwrap_or_else(|| {
            self.storages.push(None);
            StorageIndex(self.storages.len() as u32 - 1)
        });
        self.storages[index.0 as usize] = Some(storage);
        self.node_mut(node).storages.push(index);
        Some(index)
    }

    /// Removes one storage. The caller has already removed all references to it from the map.
    pub fn remove_storage(&mut self, index: StorageIndex) {
        let storage = self.storages[index.0 as usize].take().expect("an index is dropped together with its storage");
        self.node_mut(storage.node).storages.retain(|known| *known != index);
        self.free_storages.push(index);
    }

    pub fn info(&self, index: DatanodeIndex) -> DatanodeInfo {
        let node = self.node(index);
        let mut info = DatanodeInfo {
            id: node.id.clone(),
            capacity: 0,
            dfs_used: 0,
            remaining: 0,
            block_pool_used: 0,
            non_dfs_used: 0,
            last_update_ms: node.last_heartbeat_wall_ms,
            last_update_monotonic_ms: node.last_heartbeat.as_millis() as u64,
            xceiver_count: node.xceivers,
            location: node.rack.clone(),
            admin_state: node.admin,
            cache_capacity: node.cache_capacity,
            cache_used: node.cache_used,
            block_count: 0,
            last_block_report_ms: node.last_report_wall_ms,
            offer: node.offer.clone(),
        };
        for storage in &node.storages {
            let storage = self.storage(*storage);
            info.capacity += storage.capacity;
            info.dfs_used += storage.dfs_used;
            info.remaining += storage.remaining;
            info.block_pool_used += storage.block_pool_used;
            info.non_dfs_used += storage.non_dfs_used;
            info.block_count = info.block_count.saturating_add(storage.blocks.len() as u32);
        }
        info
    }

    /// Returns true if every working storage of the node has sent a full report since the node registered.
    pub fn has_reported(&self, index: DatanodeIndex) -> bool {
        let storages = &self.node(index).storages;
        let is_known = |storage: &StorageIndex| self.storage(*storage).failed || self.storage(*storage).reports > 0;
        !storages.is_empty() && storages.iter().all(is_known)
    }

    pub fn reports(&self, index: DatanodeIndex) -> Vec<StorageReport> {
        let node = self.node(index);
        node.storages
            .iter()
            .map(|storage| {
                let storage = self.storage(*storage);
                StorageReport {
                    storage: storage.id.clone(),
                    storage_type: storage.storage_type,
                    failed: storage.failed,
                    capacity: storage.capacity,
                    dfs_used: storage.dfs_used,
                    remaining: storage.remaining,
                    block_pool_used: storage.block_pool_used,
                    non_dfs_used: storage.non_dfs_used,
                }
            })
            .collect()
    }
}

impl BlockMap {
    /// Returns the storage that a client identifies by datanode and storage id, as in updatePipeline; `None` if either
    /// is unknown.
    pub fn find_storage(&self, datanode: &DatanodeId, storage: &StorageId) -> Option<StorageIndex> {
        let node = self.find_datanode(datanode)?;
        self.nodes.storage_of(node, storage)
    }

    /// Returns the registered datanode with this uuid at this address.
    pub fn find_datanode(&self, id: &DatanodeId) -> Option<DatanodeIndex> {
        let node = self.nodes.by_uuid(&id.uuid)?;
        let known = &self.nodes.node(node).id;
        (known.ip == id.ip && known.transfer_port == id.transfer_port).then_some(node)
    }

    /// Returns the information about this datanode for a located block.
    pub fn datanode_info(&self, node: DatanodeIndex) -> DatanodeInfo {
        self.nodes.info(node)
    }
}
