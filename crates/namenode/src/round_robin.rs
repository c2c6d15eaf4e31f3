//! Round-robin iteration over a long set, a part at a time.

use std::collections::BTreeSet;
use std::ops::Bound;

/// Iterates over all of `set` once, beginning after `seen`.
pub(crate) fn iter_after<T: Ord + Copy>(set: &BTreeSet<T>, seen: Option<T>) -> impl Iterator<Item = T> + '_ {
    let after = seen.map_or(Bound::Unbounded, Bound::Excluded);
    let head = seen.into_iter().flat_map(move |seen| set.range(..=seen));
    set.range((after, Bound::Unbounded)).chain(head).copied()
}

/// Returns the next `limit` elements of `set`; updates `seen` to the last of them.
pub(crate) fn next_batch<T: Ord + Copy>(set: &BTreeSet<T>, seen: &mut Option<T>, limit: usize) -> Vec<T> {
    let next: Vec<T> = iter_after(set, *seen).take(limit).collect();
    *seen = next.last().copied().or(*seen);
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_visited() {
        let set: BTreeSet<u32> = [1, 3, 5, 7, 9].into();
        let mut seen = None;
        assert_eq!(next_batch(&set, &mut seen, 2), [1, 3]);
        assert_eq!(next_batch(&set, &mut seen, 2), [5, 7]);
        assert_eq!(next_batch(&set, &mut seen, 2), [9, 1]);
        assert_eq!(next_batch(&set, &mut seen, 9), [3, 5, 7, 9, 1]);
        assert!(next_batch(&BTreeSet::new(), &mut seen, 9).is_empty());
        // The element `seen` may have been removed.
        assert_eq!(iter_after(&set, Some(4)).collect::<Vec<_>>(), [5, 7, 9, 1, 3]);
    }
}
