//! Replicas that a balancer has moved here, while they are on their way: whoever takes one in asks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use hearth_types::{BlockId, BlockPoolId, ExtendedBlock};
use parking_lot::Mutex;

type BlockKey = (BlockPoolId, BlockId);

/// Bounded by the places for the balancer's copies.
#[derive(Default)]
pub struct Moves {
    /// With the UUID of the datanode that is to lose its replica, if one is.
    expected: Mutex<HashMap<BlockKey, Option<String>>>,
}

/// One of them; dropped, it is not expected any more.
pub struct ExpectedMove<'a> {
    moves: &'a Moves,
    key: BlockKey,
}

impl Moves {
    /// `None`: it is on its way already.
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

    /// Whether `block` comes because a balancer wants it.
    pub fn has(&self, block: &ExtendedBlock) -> bool {
        self.expected.lock().contains_key(&(block.pool.clone(), block.id()))
    }

    /// Whose replica of it the namenode had better delete.
    pub fn delete_hint(&self, block: &ExtendedBlock) -> Option<String> {
        self.expected.lock().get(&(block.pool.clone(), block.id())).cloned().flatten()
    }
}

impl Drop for ExpectedMove<'_> {
    fn drop(&mut self) {
        self.moves.expected.lock().remove(&self.key);
    }
}
