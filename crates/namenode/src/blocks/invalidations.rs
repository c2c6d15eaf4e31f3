use std::collections::BTreeMap;
use std::ops::Deref;

use hearth_types::{BlockId, GenerationStamp};

/// A replica that a datanode shall delete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Invalidation {
    pub stamp: GenerationStamp,
    /// Bytes; `None` if the block is gone from the namespace and the deletion need not be reported.
    pub length: Option<u64>,
}

/// Deletions that were not sent to a datanode yet, by block. There may be very many, so those with a
/// length are counted as they come and go.
#[derive(Default)]
pub(super) struct Invalidations {
    pending: BTreeMap<BlockId, Invalidation>,
    /// Number of entries of `pending` with a length.
    excess: usize,
}

impl Deref for Invalidations {
    type Target = BTreeMap<BlockId, Invalidation>;

    fn deref(&self) -> &Self::Target {
        &self.pending
    }
}

impl Invalidations {
    /// Returns the number of deletions that the datanode must report.
    pub fn excess(&self) -> usize {
        self.excess
    }

    /// Adds a deletion, or replaces the earlier one of the same block.
    pub fn insert(&mut self, block: BlockId, invalidation: Invalidation) {
        self.excess += usize::from(invalidation.length.is_some());
        if let Some(previous) = self.pending.insert(block, invalidation) {
            self.excess -= usize::from(previous.length.is_some());
        }
    }

    pub fn remove(&mut self, block: &BlockId) {
        if let Some(removed) = self.pending.remove(block) {
            self.excess -= usize::from(removed.length.is_some());
        }
    }

    pub fn pop_first(&mut self) -> Option<(BlockId, Invalidation)> {
        let (block, first) = self.pending.pop_first()?;
        self.excess -= usize::from(first.length.is_some());
        Some((block, first))
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_equals_a_recount() {
        let mut invalidations = Invalidations::default();
        let of = |length| Invalidation { stamp: GenerationStamp(1001), length };
        let counts = |invalidations: &Invalidations| {
            let excess = invalidations.values().filter(|one| one.length.is_some()).count();
            assert_eq!(invalidations.excess(), excess);
            (invalidations.len(), excess)
        };
        for block in 0..10 {
            invalidations.insert(BlockId(block), of((block % 2 == 0).then_some(7)));
        }
        assert_eq!(counts(&invalidations), (10, 5));
        // Replaced by another kind, and by the same kind.
        invalidations.insert(BlockId(0), of(None));
        invalidations.insert(BlockId(1), of(Some(7)));
        invalidations.insert(BlockId(2), of(Some(8)));
        assert_eq!(counts(&invalidations), (10, 5));
        invalidations.remove(&BlockId(2));
        invalidations.remove(&BlockId(3));
        invalidations.remove(&BlockId(3));
        assert_eq!(counts(&invalidations), (8, 4));
        let first = invalidations.pop_first().map(|(block, first)| (block, first.length));
        assert_eq!(first, Some((BlockId(0), None)));
        assert_eq!(counts(&invalidations), (7, 4));
        assert!(invalidations.pop_first().is_some());
        assert_eq!(counts(&invalidations), (6, 3));
        invalidations.clear();
        assert_eq!(counts(&invalidations), (0, 0));
        assert!(invalidations.pop_first().is_none());
    }
}
