//! Lists of pending work, for `dfsadmin -metasave`.

use hearth_types::{Block, BlockId, DatanodeInfo, DatanodeUuid};

use super::{BlockMap, Now};

/// Pending replicas of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingReplicas {
    pub block: Block,
    /// Time at which they were scheduled, in milliseconds since the epoch.
    pub since_ms: u64,
    pub replicas: usize,
}

/// A datanode with the amount of work that it has not been sent yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatanodeWork {
    pub info: DatanodeInfo,
    /// Copies to send.
    pub transfers: usize,
    /// Recoveries of blocks to lead.
    pub recoveries: usize,
}

impl BlockMap {
    /// Returns blocks with too many replicas whose deletion waits for full reports, in order.
    pub fn postponed_blocks(&self) -> Vec<BlockId> {
        self.redundancy.postponed.iter().copied().collect()
    }

    /// Returns the blocks with pending replicas, in order.
    pub fn pending_replicas(&self, now: Now) -> Vec<PendingReplicas> {
        let pending = self.redundancy.pending_replications.iter().filter_map(|(block, pending)| {
            let age = now.monotonic.saturating_sub(pending.since);
            Some(PendingReplicas {
                block: self.blocks.get(&block)?.block(),
                since_ms: now.wall_ms.saturating_sub(age.as_millis() as u64),
                replicas: pending.targets.len(),
            })
        });
        let mut pending: Vec<PendingReplicas> = pending.collect();
        pending.sort_unstable_by_key(|pending| pending.block.id);
        pending
    }

    /// Returns all registered datanodes, dead ones included, in order.
    pub fn datanode_uuids(&self) -> Vec<DatanodeUuid> {
        let mut uuids: Vec<DatanodeUuid> = self.nodes.iter().map(|(_, node)| node.id.uuid.clone()).collect();
        uuids.sort_unstable();
        uuids
    }

    /// Returns the number of replicas that a datanode has yet to be told to delete; 0 for an unknown datanode.
    pub fn deletion_count(&self, uuid: &DatanodeUuid) -> usize {
        self.nodes.by_uuid(uuid).map_or(0, |index| self.nodes.node(index).invalidations.len())
    }

    /// Returns the replicas that a datanode has yet to be told to delete, in order, after `from`.
    pub fn deletions(&self, uuid: &DatanodeUuid, from: Option<BlockId>, limit: usize) -> Vec<Block> {
        use std::ops::Bound::{Excluded, Unbounded};
        let Some(index) = self.nodes.by_uuid(uuid) else { return Vec::new() };
        let from = from.map_or(Unbounded, Excluded);
        let pending = self.nodes.node(index).invalidations.range((from, Unbounded)).take(limit);
        pending
            .map(|(id, deletion)| Block { id: *id, stamp: deletion.stamp, length: deletion.length.unwrap_or_default() })
            .collect()
    }

    /// Returns a datanode and its work; `None` if it is unknown.
    pub fn datanode_work(&self, uuid: &DatanodeUuid) -> Option<DatanodeWork> {
        let index = self.nodes.by_uuid(uuid)?;
        let node = self.nodes.node(index);
        Some(DatanodeWork {
            info: self.nodes.info(index),
            transfers: node.transfers.len(),
            recoveries: node.recoveries.len(),
        })
    }
}
