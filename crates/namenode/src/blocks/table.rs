//! Map of blocks by id, and the sets of block ids that each storage has. Both are compact: a namespace has millions of
//! blocks, and each block is in as many sets as it has replicas.

use hearth_types::BlockId;
use roaring::RoaringTreemap;

use super::block_info::{BlockInfo, BlockRef};
use crate::dense_map::DenseMap;

/// Map by block id. Ids are issued in sequence, so existing ids are close together.
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

    /// Returns the previous entry of the block.
    pub fn insert(&mut self, block: BlockId, entry: BlockInfo) -> Option<BlockInfo> {
        self.0.insert(number(block), entry)
    }

    /// Moves all entries of another table into this one.
    pub fn absorb(&mut self, other: Self) {
        if let Err(block) = self.0.absorb(other.0) {
            panic!("{} is in the store only once", id(block));
        }
    }

    pub fn remove(&mut self, block: &BlockId) -> Option<BlockInfo> {
        self.0.remove(number(*block))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Parts of the table, for a walk during which blocks come and go.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        self.0.pages()
    }

    /// Ids of the blocks in a part, at most 64.
    pub fn in_page(&self, page: u64) -> impl Iterator<Item = BlockId> {
        self.0.in_page(page).map(id)
    }
}

/// Set of block ids: one bit each where ids are close together, two bytes otherwise.
#[derive(Default)]
pub(super) struct BlockSet {
    ids: RoaringTreemap,
    /// Cached because the set itself would recount it at each call.
    count: usize,
}

impl BlockSet {
    /// Returns false if it was present already.
    pub fn insert(&mut self, block: BlockId) -> bool {
        let is_new = self.ids.insert(number(block));
        self.count += usize::from(is_new);
        is_new
    }

    /// Returns false if it was not present.
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

    /// Ids in ascending order, with the negative ones last.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> {
        self.ids.iter().map(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_set_counts_its_ids() {
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
