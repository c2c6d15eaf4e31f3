//! Blocks by their ids, with what is known of each; and sets of ids, as each storage has one. Both small: a namespace has millions of
//! blocks, and each is in as many sets as it has replicas.

use hearth_types::BlockId;
use roaring::RoaringTreemap;

use super::block_info::{BlockInfo, BlockRef};
use crate::dense_map::DenseMap;

/// Ids are handed out in sequence: those that are there stand close together.
#[derive(Default)]
pub(super) struct BlockTable(DenseMap<BlockInfo>);

fn number(id: BlockId) -> u64 {
    id.0 as u64
}

fn id(number: u64) -> BlockId {
    BlockId(number as i64)
}

impl BlockTable {
    pub fn get(&self, block: &BlockId) -> Option<BlockRef<'_>> {
        Some(BlockRef { id: *block, entry: self.0.get(number(*block))? })
    }

    pub fn get_mut(&mut self, block: &BlockId) -> Option<&mut BlockInfo> {
        self.0.get_mut(number(*block))
    }

    /// Returns what was known of the block before.
    pub fn insert(&mut self, block: BlockId, entry: BlockInfo) -> Option<BlockInfo> {
        self.0.insert(number(block), entry)
    }

    /// Takes in what is known of other blocks.
    pub fn absorb(&mut self, other: Self) {
        if let Err(block) = self.0.absorb(other.0) {
            panic!("{} stands in the store once", id(block));
        }
    }

    pub fn remove(&mut self, block: &BlockId) -> Option<BlockInfo> {
        self.0.remove(number(*block))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In no order.
    pub fn keys(&self) -> impl Iterator<Item = BlockId> {
        self.0.keys().map(id)
    }
}

/// Ids of blocks: a bit each where they stand close together, two bytes where they do not.
#[derive(Default)]
pub(super) struct BlockSet {
    ids: RoaringTreemap,
    /// The set itself would count them anew each time.
    count: usize,
}

impl BlockSet {
    /// False: it was there.
    pub fn insert(&mut self, block: BlockId) -> bool {
        let is_new = self.ids.insert(number(block));
        self.count += usize::from(is_new);
        is_new
    }

    /// False: it was not there.
    pub fn remove(&mut self, block: BlockId) -> bool {
        let was_there = self.ids.remove(number(block));
        self.count -= usize::from(was_there);
        was_there
    }

    pub fn contains(&self, block: BlockId) -> bool {
        self.ids.contains(number(block))
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// In the order of the ids, the negative ones last.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> {
        self.ids.iter().map(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_counts_what_it_holds() {
        let mut set = BlockSet::default();
        let ids = [7, 1 << 40, -3, i64::MIN, 0].map(BlockId);
        assert!(ids.iter().all(|id| set.insert(*id)));
        assert!(!set.insert(BlockId(7)) && !set.remove(BlockId(8)));
        assert_eq!(set.len(), 5);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 7, 1 << 40, i64::MIN, -3].map(BlockId));
        assert!(set.remove(BlockId(-3)) && !set.contains(BlockId(-3)) && set.contains(BlockId(i64::MIN)));
        assert_eq!(set.len(), 4);
        set.clear();
        assert!(set.is_empty() && !set.contains(BlockId(7)));
    }
}
