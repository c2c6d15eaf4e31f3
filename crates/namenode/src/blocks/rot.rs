//! Replicas whose bytes somebody found wrong. Their datanodes go on reporting them as sound, and a node that was dead for a
//! while comes back with them: they are remembered until they are deleted. (Apache's namenode forgets them with the node,
//! and may then delete the sound copies as too many.)

use std::collections::BTreeMap;

use hearth_types::{Block, BlockId, DatanodeUuid, GenerationStamp};

use super::BlockMap;
use super::datanodes::{DatanodeIndex, StorageIndex};
use super::table::BlockSet;

/// More are not remembered; their marks last as long as their nodes live.
const ROT_MAX: usize = 100_000;

/// By node and block: the stamp under which the bytes were wrong, and the storage.
#[derive(Default)]
pub(super) struct KnownRot(BTreeMap<(DatanodeUuid, BlockId), (GenerationStamp, StorageIndex)>);

impl BlockMap {
    pub(super) fn note_rot(&mut self, node: DatanodeIndex, storage: StorageIndex, block: Block) {
        if self.rot.0.len() < ROT_MAX {
            let uuid = self.nodes.node(node).id.uuid.clone();
            self.rot.0.insert((uuid, block.id), (block.stamp, storage));
        }
    }

    pub(super) fn is_rotten(&self, node: DatanodeIndex, block: Block) -> bool {
        if self.rot.0.is_empty() {
            return false;
        }
        let key = (self.nodes.node(node).id.uuid.clone(), block.id);
        self.rot.0.get(&key).is_some_and(|(stamp, _)| *stamp == block.stamp)
    }

    /// The replica is gone, or another has taken its place.
    pub(super) fn forget_rot(&mut self, node: DatanodeIndex, block: BlockId) {
        if !self.rot.0.is_empty() {
            let uuid = self.nodes.node(node).id.uuid.clone();
            self.rot.0.remove(&(uuid, block));
        }
    }

    /// A storage has said all that it holds.
    pub(super) fn forget_rot_unless(&mut self, node: DatanodeIndex, storage: StorageIndex, held: &BlockSet) {
        if !self.rot.0.is_empty() {
            let uuid = self.nodes.node(node).id.uuid.clone();
            self.rot.0.retain(|(on, block), (_, place)| *on != uuid || *place != storage || held.contains(*block));
        }
    }
}
