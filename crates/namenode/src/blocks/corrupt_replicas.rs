//! Replicas whose bytes somebody found wrong. Their datanodes go on reporting them as sound, and a node that was dead for a
//! while comes back with them: they are remembered until they are deleted. (Apache's namenode forgets them with the node,
//! and may then delete the sound copies as too many.)

use std::collections::BTreeMap;

use hearth_types::{Block, BlockId, DatanodeUuid, GenerationStamp};

use super::BlockMap;
use super::datanodes::{DatanodeIndex, StorageIndex};
use super::table::BlockSet;

/// More are not remembered; their marks last as long as their nodes live.
const CORRUPT_REPLICAS_MAX: usize = 100_000;

/// By node and block: the stamp under which the bytes were wrong, and the storage.
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

    /// The replica is gone, or another has taken its place.
    pub(super) fn forget_corrupt_replica(&mut self, node: DatanodeIndex, block: BlockId) {
        if !self.corrupt_replicas.0.is_empty() {
            let uuid = self.nodes.node(node).id.uuid.clone();
            self.corrupt_replicas.0.remove(&(uuid, block));
        }
    }

    /// A storage has said all that it holds.
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
