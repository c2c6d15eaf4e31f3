use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use hearth_types::{BlockId, PoolIdentity};
use parking_lot::RwLock;

use crate::replica::Replica;
use crate::volume::Slice;

/// One namespace's replicas.
pub struct Pool {
    pub identity: PoolIdentity,
    /// One per volume, in the volumes' order.
    pub slices: Vec<Arc<Slice>>,
    pub replicas: ReplicaMap,
}

const SHARDS: usize = 64;

/// All replicas of a pool by id. Locks are held for one look or one change.
pub struct ReplicaMap {
    shards: [RwLock<HashMap<BlockId, Arc<Replica>>>; SHARDS],
}

impl ReplicaMap {
    pub fn new() -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::new(HashMap::new())) }
    }

    /// Ids are counted up, so their low bits spread evenly.
    fn shard(&self, id: BlockId) -> &RwLock<HashMap<BlockId, Arc<Replica>>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    pub fn get(&self, id: BlockId) -> Option<Arc<Replica>> {
        self.shard(id).read().get(&id).cloned()
    }

    /// `Err` gives the replica that is there already.
    pub fn insert(&self, replica: Arc<Replica>) -> Result<(), Arc<Replica>> {
        match self.shard(replica.id).write().entry(replica.id) {
            Entry::Occupied(there) => Err(there.get().clone()),
            Entry::Vacant(place) => {
                place.insert(replica);
                Ok(())
            }
        }
    }

    /// `new` takes the place of `old`, in one step: who looks finds one of them. False: `old` is not there.
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

    /// Only if it is this very one.
    pub fn remove(&self, replica: &Arc<Replica>) {
        let mut shard = self.shard(replica.id).write();
        if shard.get(&replica.id).is_some_and(|there| Arc::ptr_eq(there, replica)) {
            shard.remove(&replica.id);
        }
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// All replicas, shard by shard: each as it is at its moment.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<Replica>)) {
        for shard in &self.shards {
            // Cloned, so that the visitor may take locks and time.
            let replicas: Vec<Arc<Replica>> = shard.read().values().cloned().collect();
            replicas.iter().for_each(&mut visit);
        }
    }
}
