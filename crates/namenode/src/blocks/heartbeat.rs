use hearth_types::{Block, BlockId, DatanodeId, ExtendedBlock, StorageReport};
use tokio::sync::oneshot;

use super::datanodes::{DatanodeIndex, StorageIndex};
use super::locate::Target;
use super::recovery::RecoveryTask;
use super::redundancy::HEARTBEAT_ROUND_MAX;
use super::{BlockMap, Now};

/// State that a datanode reports about itself.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub storages: Vec<StorageReport>,
    /// Outgoing transfers that it runs.
    pub transmits: u32,
    /// Connections that it serves.
    pub xceivers: u32,
    pub failed_volumes: u32,
    /// Bytes.
    pub cache_capacity: u64,
    /// Bytes.
    pub cache_used: u64,
    pub wants_report_lease: bool,
}

/// Command for a datanode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DatanodeCommand {
    Register,
    /// Send these replicas to those targets; each target list is a pipeline.
    Transfer(Vec<TransferTask>),
    /// Delete these replicas. A length of half of `u64::MAX` (Java's Long.MAX_VALUE) means that the deletion need not
    /// be reported.
    Invalidate(Vec<Block>),
    /// Lock these replicas in memory.
    Cache(Vec<BlockId>),
    /// Release these replicas from the cache.
    Uncache(Vec<BlockId>),
    /// Lead the recovery of these blocks.
    Recover(Vec<RecoveryTask>),
    /// Install the block keys; the operation adds them.
    UpdateKeys,
    /// Bytes per second for the balancer.
    BalancerBandwidth(u64),
}

/// Length in a deletion of a replica whose block is gone: the datanode need not report the deletion.
pub const NO_ACKNOWLEDGEMENT: u64 = i64::MAX as u64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferTask {
    pub block: ExtendedBlock,
    pub targets: Vec<Target>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeartbeatAnswer {
    pub commands: Vec<DatanodeCommand>,
    /// Id of a full report lease; 0 for none.
    pub report_lease: u64,
}

/// Error for a datanode that is no longer on the include list. Apache's DisallowedDatanodeException.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Datanode denied communication with namenode because the host is not in the include-list: {0}")]
pub struct Disallowed(pub String);

/// Resolves when there is work for the datanode that asked; fails if it has asked again or left in the meantime.
pub type WorkWait = oneshot::Receiver<()>;

impl BlockMap {
    /// Handles a heartbeat: marks the datanode as alive, and returns all work that it can take now.
    pub fn heartbeat(
        &mut self,
        datanode: &DatanodeId,
        heartbeat: Heartbeat,
        now: Now,
    ) -> Result<HeartbeatAnswer, Disallowed> {
        let register = HeartbeatAnswer { commands: vec![DatanodeCommand::Register], report_lease: 0 };
        let Some(index) = self.find_datanode(datanode) else { return Ok(register) };
        if self.nodes.node(index).disallowed {
            if self.nodes.node(index).alive {
                self.node_died(index, now);
            }
            return Err(Disallowed(datanode.to_string()));
        }
        if !self.nodes.node(index).alive || self.nodes.node(index).must_register {
            return Ok(register);
        }
        let wants_lease = heartbeat.wants_report_lease;
        self.note_heartbeat(index, heartbeat, now);
        self.check_safe_mode(now);
        let report_lease = if wants_lease { self.grant_report_lease(index, now) } else { 0 };
        Ok(HeartbeatAnswer { commands: self.work_for(index, now), report_lease })
    }

    /// Handles a datanode's request for notification of work. `Some`: resolves as soon as there is work, unless the
    /// datanode asks again first. `None`: the datanode shall send a heartbeat now, to get work or to learn that it is
    /// unknown.
    pub fn await_work(&mut self, datanode: &DatanodeId) -> Option<WorkWait> {
        let index = self.find_datanode(datanode)?;
        let hands_out = !self.in_safe_mode();
        let node = self.nodes.node_mut(index);
        let work = hands_out && !(node.transfers.is_empty() && node.recoveries.is_empty());
        if !node.alive || node.must_register || work {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        node.awaits_work = true;
        node.waiting = Some(sender);
        Some(receiver)
    }

    /// Only keeps the node alive (lifeline protocol).
    pub fn lifeline(&mut self, datanode: &DatanodeId, heartbeat: Heartbeat, now: Now) {
        if let Some(index) = self.find_datanode(datanode)
            && self.nodes.node(index).alive
        {
            self.note_heartbeat(index, heartbeat, now);
        }
    }

    /// Handles a datanode's report that it cannot continue (errorReport FATAL_DISK_ERROR): it must register again.
    pub fn datanode_failed(&mut self, datanode: &DatanodeId, now: Now) {
        if let Some(index) = self.find_datanode(datanode) {
            self.node_died(index, now);
            self.check_safe_mode(now);
        }
    }

    /// Announces the balancer's bandwidth, in bytes per second, to every datanode.
    pub fn set_balancer_bandwidth(&mut self, bytes_per_second: u64) {
        for index in self.nodes.indices() {
            self.nodes.node_mut(index).balancer_bandwidth = Some(bytes_per_second);
        }
    }

    /// Sends changed block keys to every datanode with its next heartbeat.
    pub fn announce_keys(&mut self) {
        for index in self.nodes.indices() {
            self.nodes.node_mut(index).needs_keys = true;
        }
    }

    fn note_heartbeat(&mut self, index: DatanodeIndex, heartbeat: Heartbeat, now: Now) {
        let named: Vec<StorageIndex> = heartbeat
            .storages
            .iter()
            .filter_map(|report| {
                let storage = self.storage_or_insert(index, &report.storage, report.storage_type)?;
                let known = self.nodes.storage_mut(storage);
                known.failed = report.failed;
                known.capacity = report.capacity;
                known.dfs_used = report.dfs_used;
                known.remaining = report.remaining;
                known.block_pool_used = report.block_pool_used;
                known.non_dfs_used = report.non_dfs_used;
                known.heartbeated = true;
                Some(storage)
            })
            .collect();
        let roll = self.settings.pending_timeout * 2;
        let node = self.nodes.node_mut(index);
        let volumes_lost = heartbeat.failed_volumes > node.failed_volumes || node.first_heartbeat;
        node.first_heartbeat = false;
        node.last_heartbeat = now.monotonic;
        node.last_heartbeat_wall_ms = now.wall_ms;
        node.xceivers = heartbeat.xceivers;
        node.transmits = heartbeat.transmits;
        node.failed_volumes = heartbeat.failed_volumes;
        node.cache_capacity = heartbeat.cache_capacity;
        node.cache_used = heartbeat.cache_used;
        if node.transmits > 0 {
            node.idle_since = None;
        } else if node.idle_since.is_none() {
            node.idle_since = Some(now.monotonic);
        }
        // Scheduled blocks that never arrived must not take room forever.
        if now.monotonic.saturating_sub(node.scheduled_rolled) >= roll {
            node.scheduled = [0, node.scheduled[0]];
            node.scheduled_rolled = now.monotonic;
        }
        // Removes storages that the heartbeat no longer lists: at once if volumes failed or the node restarted,
        // otherwise when they are empty.
        if !named.is_empty() {
            let unnamed: Vec<StorageIndex> =
                self.nodes.node(index).storages.iter().copied().filter(|storage| !named.contains(storage)).collect();
            for storage in unnamed {
                let known = self.nodes.storage(storage);
                if volumes_lost || known.blocks.is_empty() {
                    tracing::info!(storage = %known.id.0, datanode = %self.nodes.node(index).id, "storage removed: no longer reported");
                    self.wipe_storage(storage, now);
                }
            }
        }
    }

    fn grant_report_lease(&mut self, index: DatanodeIndex, now: Now) -> u64 {
        let lease = self.report_leases.grant(index, &self.settings, &self.random, now);
        if lease.is_some() {
            self.nodes.node_mut(index).deleted.clear();
            for storage in self.nodes.node(index).storages.clone() {
                self.nodes.storage_mut(storage).received_under_lease.clear();
            }
        }
        lease.unwrap_or(0)
    }

    /// Returns all work that the node can do now. A due recovery is sent alone, as Apache's datanodes expect.
    fn work_for(&mut self, index: DatanodeIndex, now: Now) -> Vec<DatanodeCommand> {
        let mut commands = Vec::new();
        if self.in_safe_mode() {
            return commands;
        }
        let recoveries = self.take_recoveries(index, now);
        if !recoveries.is_empty() {
            return vec![DatanodeCommand::Recover(recoveries)];
        }
        self.schedule_transfers(HEARTBEAT_ROUND_MAX, now);
        let transfers = self.take_transfers(index);
        if !transfers.is_empty() {
            commands.push(DatanodeCommand::Transfer(transfers));
        }
        if now.monotonic >= self.deletions_from {
            let doomed = self.take_invalidations(index, now);
            if !doomed.is_empty() {
                commands.push(DatanodeCommand::Invalidate(doomed));
            }
        }
        let (lock, let_go) = self.cache_work(index, now);
        if !lock.is_empty() {
            commands.push(DatanodeCommand::Cache(lock));
        }
        if !let_go.is_empty() {
            commands.push(DatanodeCommand::Uncache(let_go));
        }
        let node = self.nodes.node_mut(index);
        if std::mem::take(&mut node.needs_keys) && self.settings.block_tokens {
            commands.push(DatanodeCommand::UpdateKeys);
        }
        if let Some(bandwidth) = node.balancer_bandwidth.take() {
            commands.push(DatanodeCommand::BalancerBandwidth(bandwidth));
        }
        commands
    }

    fn take_transfers(&mut self, index: DatanodeIndex) -> Vec<TransferTask> {
        let queued: Vec<_> = self.nodes.node_mut(index).transfers.drain(..).collect();
        let tasks: Vec<TransferTask> = queued
            .into_iter()
            .filter_map(|transfer| {
                let entry = self.blocks.get(&transfer.block).filter(|entry| entry.is_complete())?;
                let block = ExtendedBlock { pool: self.pool.clone(), block: entry.block() };
                let targets = transfer.targets.iter().map(|storage| self.target(*storage)).collect();
                Some(TransferTask { block, targets })
            })
            .collect();
        if !tasks.is_empty() {
            let node = self.nodes.node_mut(index);
            // An estimate until its next heartbeat.
            node.transmits = node.transmits.saturating_add(tasks.len() as u32);
            node.idle_since = None;
        }
        tasks
    }

    /// Returns the deletions to send. At most `dfs.block.invalidate.limit` of the queue are examined: an excess replica
    /// is kept unless the replicas that its deletion relies on are certain.
    fn take_invalidations(&mut self, index: DatanodeIndex, now: Now) -> Vec<Block> {
        let limit = self.settings.invalidate_limit;
        let mut taken = Vec::with_capacity(limit.min(self.nodes.node(index).invalidations.len()));
        for _ in 0..limit {
            let Some((id, invalidation)) = self.nodes.node_mut(index).invalidations.pop_first() else { break };
            if invalidation.length.is_some() && self.keep_excess_if_needed(index, id, now) {
                continue;
            }
            let length = invalidation.length.unwrap_or(NO_ACKNOWLEDGEMENT);
            taken.push(Block { id, stamp: invalidation.stamp, length });
        }
        taken
    }
}
