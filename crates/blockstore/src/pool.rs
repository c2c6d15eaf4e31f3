//! Block pools and their sharded map of replicas.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hearth_types::{BlockId, PoolIdentity};
use parking_lot::{Mutex, RwLock};

use crate::replica::Replica;
use crate::volume::Slice;

/// The replicas of one block pool.
pub struct Pool {
    pub identity: PoolIdentity,
    /// One slice per volume, in the order of the volumes.
    pub slices: Vec<Arc<Slice>>,
    pub replicas: ReplicaMap,
    pub creations: Creations,
}

/// Blocks whose replicas are being created and are not in the map yet. Two creations of one block would write the same
/// files.
#[derive(Default)]
pub struct Creations {
    blocks: Mutex<HashSet<BlockId>>,
}

/// The creation of one block's replica, which ends when this is dropped.
pub struct Creation<'a> {
    all: &'a Creations,
    block: BlockId,
}

impl Creations {
    /// `None`: another thread is creating a replica of the block.
    pub fn begin(&self, block: BlockId) -> Option<Creation<'_>> {
        let is_first = self.blocks.lock().insert(block);
        // Not made otherwise: its drop removes the block.
        if is_first { Some(Creation { all: self, block }) } else { None }
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.all.blocks.lock().remove(&self.block);
    }
}

const SHARDS: usize = 64;

/// All replicas of a pool by id. Each lock is held for one lookup or one change.
pub struct ReplicaMap {
    shards: [RwLock<HashMap<BlockId, Arc<Replica>>>; SHARDS],
}

impl ReplicaMap {
    pub fn new() -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::new(HashMap::new())) }
    }

    /// Ids are assigned sequentially, so their low bits spread evenly.
    fn shard(&self, id: BlockId) -> &RwLock<HashMap<BlockId, Arc<Replica>>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    pub fn get(&self, id: BlockId) -> Option<Arc<Replica>> {
        self.shard(id).read().get(&id).cloned()
    }

    /// Inserts a replica. `Err` returns the replica that is already present.
    pub fn insert(&self, replica: Arc<Replica>) -> Result<(), Arc<Replica>> {
        match self.shard(replica.id).write().entry(replica.id) {
            Entry::Occupied(there) => Err(there.get().clone()),
            Entry::Vacant(place) => {
                place.insert(replica);
                Ok(())
            }
        }
    }

    /// Replaces `old` by `new` in one step: a lookup finds one of them. False: `old` is not present.
    pub fn replace(&self, old: &Arc<Replica>, new: Arc<Replica>) -> bool {
        debug_assert_eq!(old.id, new.id);
        match self.shard(old.id).write().get_mut(&old.id) {
            Some(there) if Arc::ptr_eq(there, old) => {
                *there = new;
                true
            }
            _ => false,
        }
    }

    /// Removes this very replica, not another one of the same id.
    pub fn remove(&self, replica: &Arc<Replica>) {
        let mut shard = self.shard(replica.id).write();
        if shard.get(&replica.id).is_some_and(|there| Arc::ptr_eq(there, replica)) {
            shard.remove(&replica.id);
        }
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// Visits all replicas, shard by shard: not a consistent snapshot.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<Replica>)) {
        for shard in &self.shards {
            // Cloned, so that the visitor may take locks and block.
            let replicas: Vec<Arc<Replica>> = shard.read().values().cloned().collect();
            replicas.iter().for_each(&mut visit);
        }
    }
}
