//! Replicas that a balancer is moving to this DataNode; the receiving side consults this list.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use hearth_types::{BlockId, BlockPoolId, ExtendedBlock};
use parking_lot::Mutex;

type BlockKey = (BlockPoolId, BlockId);

/// Bounded by the permits for the balancer's copies.
#[derive(Default)]
pub struct Moves {
    /// Expected blocks, each with the UUID of the DataNode that is to delete its replica, if any.
    expected: Mutex<HashMap<BlockKey, Option<String>>>,
}

/// Entry of one expected move, removed when dropped.
pub struct ExpectedMove<'a> {
    moves: &'a Moves,
    key: BlockKey,
}

impl Moves {
    /// `None`: the block is already being moved.
    pub fn expect(&self, block: &ExtendedBlock, delete_hint: Option<&str>) -> Option<ExpectedMove<'_>> {
        let key = (block.pool.clone(), block.id());
        match self.expected.lock().entry(key.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => {
                entry.insert(delete_hint.map(str::to_owned));
                Some(ExpectedMove { moves: self, key })
            }
        }
    }

    /// Returns true if a balancer requested `block`.
    pub fn has(&self, block: &ExtendedBlock) -> bool {
        self.expected.lock().contains_key(&(block.pool.clone(), block.id()))
    }

    /// Returns the DataNode whose replica the NameNode should delete.
    pub fn delete_hint(&self, block: &ExtendedBlock) -> Option<String> {
        self.expected.lock().get(&(block.pool.clone(), block.id())).cloned().flatten()
    }
}

impl Drop for ExpectedMove<'_> {
    fn drop(&mut self) {
        self.moves.expected.lock().remove(&self.key);
    }
}
