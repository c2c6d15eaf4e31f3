//! Statistics for reports, fsck and metrics.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use hearth_types::{BlockId, DatanodeAdminState, DatanodeId, DatanodeInfo, DatanodeUuid, StorageReport, StorageType};

use super::block_info::Counts;
use super::datanodes::{Datanode, DatanodeIndex, Storage};
use super::locate::Target;
use super::redundancy::{HIGHEST, MISSING};
use super::replicas::Health;
use super::topology::DEFAULT_RACK;
use super::{BlockMap, BlockState, Now};

/// Statistics of the cluster, as at the top of `dfsadmin -report`. Sizes in bytes, over live nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterStatistics {
    pub capacity: u64,
    pub used: u64,
    pub remaining: u64,
    pub block_pool_used: u64,
    pub non_dfs_used: u64,
    /// Blocks with too few replicas, or badly spread, but with at least one.
    pub low_redundancy: u64,
    pub highest_priority_low_redundancy: u64,
    /// Blocks with at least one corrupt replica.
    pub corrupt: u64,
    /// Blocks without a readable replica.
    pub missing: u64,
    /// Blocks of `missing` that have replication 1.
    pub missing_with_replication_one: u64,
    pub bytes_in_future: u64,
    /// Replicas whose deletion is not yet sent to their datanodes.
    pub pending_deletion: u64,
    /// Blocks with pending replicas.
    pub pending_replication: u64,
    pub blocks: u64,
    pub complete_blocks: u64,
    /// Bytes that live nodes can lock in memory; and bytes that they have locked.
    pub cache_capacity: u64,
    pub cache_used: u64,
    /// Live decommissioned nodes.
    pub decommissioned_nodes: usize,
    pub entering_maintenance_nodes: usize,
    pub in_maintenance_nodes: usize,
    pub dead_in_maintenance_nodes: usize,
    /// Connections served by live nodes.
    pub load: u64,
    /// Failed storage directories of live nodes.
    pub failed_volumes: u64,
    pub live_nodes: usize,
    pub dead_nodes: usize,
    /// Dead nodes in service: neither decommissioned nor in maintenance. Without loopback addresses of the hosts files,
    /// which are often a second address of a registered node.
    pub dead_in_service_nodes: usize,
    pub stale_nodes: usize,
    pub decommissioning_nodes: usize,
    /// Live nodes that are neither leaving nor in maintenance.
    pub in_service_nodes: usize,
    pub dead_decommissioned_nodes: usize,
    /// Storages of live nodes that have not sent a full report.
    pub stale_storages: usize,
    /// Replicas that live nodes are about to receive.
    pub scheduled: u64,
    /// Replicas beyond the requested number, of existing blocks, that are yet to be deleted.
    pub excess: u64,
    /// Number of times since the start that a datanode was given up.
    pub expired_heartbeats: u64,
    /// Number of copies given up since the start.
    pub timed_out_copies: u64,
}

impl ClusterStatistics {
    /// Adds the capacity of a live node's storage. Leaving nodes contribute none.
    fn add_storage(&mut self, storage: &Storage, admin: DatanodeAdminState) {
        self.used += storage.dfs_used;
        self.block_pool_used += storage.block_pool_used;
        self.non_dfs_used += storage.non_dfs_used;
        if admin == DatanodeAdminState::Normal {
            self.capacity += storage.capacity;
            self.remaining += storage.remaining;
        } else {
            self.capacity += storage.dfs_used;
        }
    }
}

/// Kind of datanodes to list in a report. Numbers as in `DatanodeReportTypeProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatanodeFilter {
    All = 1,
    Live = 2,
    Dead = 3,
    Decommissioning = 4,
    EnteringMaintenance = 5,
    InMaintenance = 6,
}

impl DatanodeFilter {
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::All,
            2 => Self::Live,
            3 => Self::Dead,
            4 => Self::Decommissioning,
            5 => Self::EnteringMaintenance,
            6 => Self::InMaintenance,
            _ => return None,
        })
    }
}

/// A datanode for web pages, with the values that it reports about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatanodeReport {
    pub info: DatanodeInfo,
    /// As of its registration.
    pub software_version: String,
    /// As of its last heartbeat.
    pub failed_volumes: u32,
    /// Blocks that were scheduled to it and have not been reported.
    pub scheduled: u32,
}

/// A replica in an fsck report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaReport {
    pub target: Target,
    pub alive: bool,
    pub stale_node: bool,
    /// The storage has not sent a full report since the start.
    pub stale_contents: bool,
    pub failed_storage: bool,
    pub corrupt: bool,
    pub excess: bool,
}

/// A block in an fsck report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockReport {
    pub block: hearth_types::Block,
    pub inode: u64,
    pub state: BlockState,
    pub replication: u16,
    /// Id of the storage policy, 0 if none is set.
    pub policy: u8,
    pub live: u16,
    pub decommissioning: u16,
    pub decommissioned: u16,
    pub maintenance: u16,
    /// Replicas of `maintenance` whose nodes are off, or may be switched off at any moment.
    pub in_maintenance: u16,
    pub excess: u16,
    pub corrupt: u16,
    pub stale: u16,
    pub replicas: Vec<ReplicaReport>,
    /// The pipeline of an open block.
    pub expected: Vec<Target>,
    /// True if its replicas are on too few racks.
    pub badly_spread: bool,
    /// Number of pending replicas.
    pub pending: usize,
}

impl BlockReport {
    /// Returns true if the block has no readable replica.
    pub fn is_missing(&self) -> bool {
        self.live + self.decommissioning + self.decommissioned + self.maintenance + self.excess == 0
    }
}

/// Returns true if an administrator has taken a node in this state out of service, so that it may be off.
fn is_out_of_service(admin: DatanodeAdminState) -> bool {
    matches!(admin, DatanodeAdminState::Decommissioned | DatanodeAdminState::InMaintenance)
}

/// Returns true if a node of the hosts files that has never registered is likely a machine that should be there.
fn is_missed(info: &DatanodeInfo) -> bool {
    let is_loopback = info.id.ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    !is_loopback && !is_out_of_service(info.admin_state)
}

/// Sorts by address.
fn by_name<T>(mut found: Vec<T>, info: impl Fn(&T) -> &DatanodeInfo) -> Vec<T> {
    found.sort_by(|left, right| {
        let (left, right) = (&info(left).id, &info(right).id);
        (&left.ip, left.transfer_port).cmp(&(&right.ip, right.transfer_port))
    });
    found
}

impl BlockMap {
    pub fn cluster_statistics(&self, now: Now) -> ClusterStatistics {
        let queues = &self.redundancy.queues;
        let missing = &queues[usize::from(MISSING)];
        let is_only_one = |block: &&BlockId| self.entry(**block).replication() == 1;
        debug_assert_eq!(
            self.redundancy.missing_with_replication_one,
            missing.iter().filter(is_only_one).count() as u64,
            "the incremental counts equal a recount"
        );
        let mut figures = ClusterStatistics {
            low_redundancy: queues[..usize::from(MISSING)].iter().map(|queue| queue.len() as u64).sum(),
            highest_priority_low_redundancy: queues[usize::from(HIGHEST)].len() as u64,
            corrupt: self.redundancy.corrupt.len() as u64,
            missing: missing.len() as u64,
            missing_with_replication_one: self.redundancy.missing_with_replication_one,
            bytes_in_future: self.safe_mode.bytes_in_future,
            pending_replication: self.redundancy.pending_replications.len() as u64,
            blocks: self.blocks.len() as u64,
            complete_blocks: self.complete_blocks(),
            expired_heartbeats: self.expired_heartbeats,
            timed_out_copies: self.timed_out_copies,
            ..ClusterStatistics::default()
        };
        let never_came = self.never_came();
        figures.dead_nodes = never_came.len();
        figures.dead_in_service_nodes = never_came.iter().filter(|info| is_missed(info)).count();
        for (_, node) in self.nodes.iter() {
            figures.pending_deletion += node.invalidations.len() as u64;
            figures.excess += node.invalidations.excess() as u64;
            if !node.alive {
                figures.dead_nodes += 1;
                figures.dead_in_service_nodes += usize::from(!is_out_of_service(node.admin));
                figures.dead_decommissioned_nodes += usize::from(node.admin == DatanodeAdminState::Decommissioned);
                figures.dead_in_maintenance_nodes += usize::from(node.admin == DatanodeAdminState::InMaintenance);
                continue;
            }
            figures.live_nodes += 1;
            figures.stale_nodes += usize::from(node.is_stale(&self.settings, now));
            match node.admin {
                DatanodeAdminState::Normal => figures.in_service_nodes += 1,
                DatanodeAdminState::DecommissionInProgress => figures.decommissioning_nodes += 1,
                DatanodeAdminState::Decommissioned => figures.decommissioned_nodes += 1,
                DatanodeAdminState::EnteringMaintenance => figures.entering_maintenance_nodes += 1,
                DatanodeAdminState::InMaintenance => figures.in_maintenance_nodes += 1,
            }
            figures.cache_capacity += node.cache_capacity;
            figures.cache_used += node.cache_used;
            figures.load += u64::from(node.xceivers);
            figures.scheduled += u64::from(node.scheduled_blocks());
            figures.stale_storages +=
                node.storages.iter().filter(|storage| self.nodes.storage(**storage).stale).count();
            figures.failed_volumes += u64::from(node.failed_volumes);
            for storage in &node.storages {
                figures.add_storage(self.nodes.storage(*storage), node.admin);
            }
        }
        figures
    }

    /// Returns the same statistics per medium of live nodes' storages: sizes, nodes in service and their load.
    pub fn statistics_by_storage_type(&self) -> BTreeMap<StorageType, ClusterStatistics> {
        let mut by_medium = BTreeMap::<StorageType, ClusterStatistics>::new();
        for (_, node) in self.nodes.iter().filter(|(_, node)| node.alive) {
            let mut media = BTreeSet::new();
            for storage in node.storages.iter().map(|storage| self.nodes.storage(*storage)) {
                let figures = by_medium.entry(storage.storage_type).or_default();
                figures.add_storage(storage, node.admin);
                if node.in_service() && media.insert(storage.storage_type) {
                    figures.in_service_nodes += 1;
                    figures.load += u64::from(node.xceivers);
                }
            }
        }
        by_medium
    }

    pub fn live_datanodes(&self) -> usize {
        self.nodes.iter().filter(|(_, node)| node.alive).count()
    }

    pub fn complete_blocks(&self) -> u64 {
        (self.blocks.len() - self.open.len()) as u64
    }

    pub fn racks(&self) -> usize {
        self.nodes.rack_count()
    }

    /// Returns the datanodes of one kind, by name, each with its storages.
    pub fn datanodes(&self, filter: DatanodeFilter) -> Vec<(DatanodeInfo, Vec<StorageReport>)> {
        let found = self.chosen(filter).map(|(index, _)| (self.nodes.info(index), self.nodes.reports(index)));
        let missing = self.missing(filter).into_iter().map(|info| (info, Vec::new()));
        by_name(found.chain(missing).collect(), |(info, _)| info)
    }

    /// Returns the same datanodes with the values that they report about themselves.
    pub fn datanode_reports(&self, filter: DatanodeFilter) -> Vec<DatanodeReport> {
        let found = self.chosen(filter).map(|(index, node)| DatanodeReport {
            info: self.nodes.info(index),
            software_version: node.software_version.clone(),
            failed_volumes: node.failed_volumes,
            scheduled: node.scheduled_blocks(),
        });
        let missing = self.missing(filter).into_iter();
        let missing = missing.map(|info| DatanodeReport {
            info,
            software_version: String::new(),
            failed_volumes: 0,
            scheduled: 0,
        });
        by_name(found.chain(missing).collect(), |report| &report.info)
    }

    /// Returns expected nodes that have never registered, if the filter includes dead ones.
    fn missing(&self, filter: DatanodeFilter) -> Vec<DatanodeInfo> {
        match filter {
            DatanodeFilter::All | DatanodeFilter::Dead => self.never_came(),
            _ => Vec::new(),
        }
    }

    /// Returns the nodes of the hosts files that have never registered: they count as dead.
    ///
    /// Source: `DatanodeManager.getDatanodeListForReport`.
    fn never_came(&self) -> Vec<DatanodeInfo> {
        if self.hosts.expected.is_empty() {
            return Vec::new();
        }
        let machines: HashSet<&str> = self.nodes.iter().map(|(_, node)| node.id.ip.as_str()).collect();
        let ports = self.settings.datanode_ports;
        let (mut found, mut named) = (Vec::new(), HashSet::new());
        for entry in &self.hosts.expected {
            let Some(ip) = entry.address() else { continue };
            let has_come = entry.names.iter().any(|name| match entry.port {
                Some(port) => self.nodes.by_address(name, port).is_some(),
                None => machines.contains(name.as_str()),
            });
            let transfer_port = entry.port.unwrap_or(ports.transfer);
            if has_come || !named.insert((ip, transfer_port)) {
                continue;
            }
            let id = DatanodeId {
                ip: ip.to_owned(),
                host_name: entry.names[0].clone(),
                uuid: DatanodeUuid("".into()),
                transfer_port,
                info_port: ports.info,
                ipc_port: ports.ipc,
                info_secure_port: ports.info_secure,
            };
            let admin_state = match self.hosts.is_excluded(&id) {
                true => DatanodeAdminState::Decommissioned,
                false => DatanodeAdminState::Normal,
            };
            found.push(DatanodeInfo { location: DEFAULT_RACK.into(), admin_state, ..DatanodeInfo::of(id) });
        }
        found
    }

    fn chosen(&self, filter: DatanodeFilter) -> impl Iterator<Item = (DatanodeIndex, &Datanode)> {
        self.nodes.iter().filter(move |(_, node)| match filter {
            DatanodeFilter::All => true,
            DatanodeFilter::Live => node.alive,
            DatanodeFilter::Dead => !node.alive,
            DatanodeFilter::Decommissioning => node.alive && node.admin == DatanodeAdminState::DecommissionInProgress,
            DatanodeFilter::EnteringMaintenance => node.admin == DatanodeAdminState::EnteringMaintenance,
            DatanodeFilter::InMaintenance => node.admin == DatanodeAdminState::InMaintenance,
        })
    }

    /// Returns all information that fsck prints about one block.
    pub fn block_report(&self, block: BlockId, now: Now) -> Option<BlockReport> {
        let entry = self.blocks.get(&block)?;
        let Counts {
            live,
            decommissioning,
            decommissioned,
            maintenance,
            unreadable_maintenance,
            excess,
            corrupt,
            stale,
            ..
        } = entry.counts(&self.nodes);
        let replicas = entry
            .replicas()
            .map(|replica| {
                let node = self.nodes.node_of(replica.storage);
                ReplicaReport {
                    target: self.target(replica.storage),
                    alive: node.alive,
                    stale_node: node.is_stale(&self.settings, now),
                    stale_contents: self.nodes.storage(replica.storage).stale,
                    failed_storage: self.nodes.storage(replica.storage).failed,
                    corrupt: replica.health == Health::Corrupt,
                    excess: replica.health == Health::Excess,
                }
            })
            .collect();
        let expected = entry.construction().into_iter().flat_map(|construction| &construction.expected);
        Some(BlockReport {
            block: entry.block(),
            inode: entry.inode(),
            state: entry.state(),
            replication: entry.replication(),
            policy: entry.policy(),
            live,
            decommissioning,
            decommissioned,
            maintenance,
            in_maintenance: unreadable_maintenance,
            excess,
            corrupt,
            stale,
            replicas,
            expected: expected.map(|expected| self.target(expected.storage)).collect(),
            badly_spread: entry.replication() > 1 && live > 1 && self.is_badly_spread(block),
            pending: self.redundancy.pending_replications.of(block).len(),
        })
    }

    fn is_badly_spread(&self, block: BlockId) -> bool {
        let entry = self.entry(block);
        let mut racks: Vec<&str> =
            entry.replicas().map(|replica| self.nodes.node_of(replica.storage).rack.as_str()).collect();
        racks.sort_unstable();
        racks.dedup();
        self.nodes.rack_count() > 1 && racks.len() < 2
    }

    /// Returns blocks without a good replica, in order, after `from`.
    pub fn missing_blocks(&self, from: Option<BlockId>, limit: usize) -> Vec<BlockId> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = from.map_or(Unbounded, Excluded);
        self.redundancy.queues[usize::from(MISSING)].range((from, Unbounded)).take(limit).copied().collect()
    }

    /// Returns blocks with too few replicas, or badly spread, the most urgent first.
    pub fn low_redundancy_blocks(&self, limit: usize) -> Vec<BlockId> {
        self.redundancy.queues[..usize::from(MISSING)].iter().flatten().take(limit).copied().collect()
    }

    /// Returns blocks with corrupt replicas, in order.
    pub fn corrupt_blocks(&self, limit: usize) -> Vec<BlockId> {
        self.redundancy.corrupt.iter().take(limit).copied().collect()
    }

    /// Returns blocks of one datanode (only on storages of one medium if `medium` is given), in circular order from a
    /// random start: for the balancer.
    pub fn some_blocks_on(
        &self,
        node: super::DatanodeIndex,
        medium: Option<hearth_types::StorageType>,
    ) -> impl Iterator<Item = BlockId> {
        let storages = self.nodes.node(node).storages.iter().map(|storage| self.nodes.storage(*storage));
        let held = move || {
            storages
                .clone()
                .filter(move |storage| medium.is_none_or(|medium| medium == storage.storage_type))
                .flat_map(|storage| storage.blocks.iter())
        };
        let count = held().count();
        let skip = if count == 0 { 0 } else { self.random.below(count) };
        held().skip(skip).chain(held().take(skip))
    }
}
