//! Replicas reported as corrupt. Their datanodes continue to report them as good, and a node that was dead for a while
//! comes back with them, so they are remembered until they are deleted. (Apache's namenode forgets them with the node,
//! and may then delete the good copies as excess.)

use std::collections::BTreeMap;

use hearth_types::{Block, BlockId, DatanodeUuid, GenerationStamp};

use super::BlockMap;
use super::datanodes::{DatanodeIndex, StorageIndex};
use super::table::BlockSet;

/// Limit of remembered replicas. Marks beyond it last only as long as their nodes live.
const CORRUPT_REPLICAS_MAX: usize = 100_000;

/// Keyed by node and block; the value is the stamp of the corrupt replica, and its storage.
#[derive(Default)]
pub(super) struct CorruptReplicas(BTreeMap<(DatanodeUuid, BlockId), (GenerationStamp, StorageIndex)>);

impl BlockMap {
    pub(super) fn note_corrupt_replica(&mut self, node: DatanodeIndex, storage: StorageIndex, block: Block) {
        if self.corrupt_replicas.0.len() < CORRUPT_REPLICAS_MAX {
            let uuid = self.nodes.node(node).id.uuid.clone();
            self.corrupt_replicas.0.insert((uuid, block.id), (block.stamp, storage));
        }
    }

    pub(super) fn is_known_corrupt(&self, node: DatanodeIndex, block: Block) -> bool {
        if self.corrupt_replicas.0.is_empty() {
            return false;
        }
        let key = (self.nodes.node(node).id.uuid.clone(), block.id);
        self.corrupt_replicas.0.get(&key).is_some_and(|(stamp, _)| *stamp == block.stamp)
    }

    /// Forgets the mark of a replica that is gone or has been replaced.
    pub(super) fn forget_corrupt_replica(&mut self, node: DatanodeIndex, block: BlockId) {
        if !self.corrupt_replicas.0.is_empty() {
            let uuid = self.nodes.node(node).id.uuid.clone();
            self.corrupt_replicas.0.remove(&(uuid, block));
        }
    }

    /// Forgets the marks of a storage that its full report does not confirm.
    pub(super) fn forget_corrupt_replicas_unless(
        &mut self,
        node: DatanodeIndex,
        storage: StorageIndex,
        held: &BlockSet,
    ) {
        if !self.corrupt_replicas.0.is_empty() {
            let uuid = self.nodes.node(node).id.uuid.clone();
            self.corrupt_replicas
                .0
                .retain(|(on, block), (_, place)| *on != uuid || *place != storage || held.contains(*block));
        }
    }
}
