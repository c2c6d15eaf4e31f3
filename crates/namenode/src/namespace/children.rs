//! Entries of a directory in listing order, four bytes each.

use std::cmp::Ordering;

use super::inode::Slot;

/// Maximum number of entries in a run before it is split. Insertion moves at most this many slots.
const RUN_MAX: usize = 1024;

/// Slots of the children, ordered by name. The names live in the inodes, so each search takes a comparison function.
#[derive(Debug, Default)]
pub struct Children {
    runs: Vec<Vec<Slot>>,
    count: usize,
}

/// Compares names in Hadoop's order: byte by byte as Java's signed bytes, with a prefix first. Non-ASCII names come
/// before ASCII.
pub fn compare_names(a: &[u8], b: &[u8]) -> Ordering {
    let common = a.len().min(b.len());
    for i in 0..common {
        if a[i] != b[i] {
            return (a[i] as i8).cmp(&(b[i] as i8));
        }
    }
    a.len().cmp(&b.len())
}

impl Children {
    pub fn len(&self) -> usize {
        self.count
    }

    /// Creates a value that has only the number of children, for a frozen state of a directory.
    pub fn counted(count: usize) -> Self {
        Self { runs: Vec::new(), count }
    }

    /// Creates the entries from sorted slots, without spare capacity.
    pub fn from_sorted(mut slots: Vec<Slot>) -> Self {
        let count = slots.len();
        let runs = if count > RUN_MAX {
            slots.chunks(RUN_MAX).map(<[Slot]>::to_vec).collect()
        } else if count > 0 {
            slots.shrink_to_fit();
            vec![slots]
        } else {
            Vec::new()
        };
        Self { runs, count }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the run and the index in it where a child is, or where it would be inserted. `order` compares the given
    /// child's name to the name sought.
    fn search(&self, order: impl Fn(Slot) -> Ordering) -> Result<(usize, usize), (usize, usize)> {
        // The last run whose first name is not after the name sought.
        let run = self.runs.partition_point(|run| order(run[0]) != Ordering::Greater).saturating_sub(1);
        match self.runs.get(run) {
            None => Err((0, 0)),
            Some(slots) => match slots.binary_search_by(|slot| order(*slot)) {
                Ok(at) => Ok((run, at)),
                Err(at) => Err((run, at)),
            },
        }
    }

    /// Returns the child under a name. `order` compares the given child's name to the name sought.
    pub fn find(&self, order: impl Fn(Slot) -> Ordering) -> Option<Slot> {
        self.search(order).ok().map(|(run, at)| self.runs[run][at])
    }

    /// Adds a child whose name is not present yet.
    pub fn insert(&mut self, slot: Slot, order: impl Fn(Slot) -> Ordering) {
        let (run, at) = match self.search(order) {
            Ok(_) => panic!("a directory never has two entries of one name"),
            Err(place) => place,
        };
        if self.runs.is_empty() {
            // No spare capacity for further runs, because most directories need only one.
            self.runs = vec![Vec::new()];
        }
        let is_last = run + 1 == self.runs.len();
        let entries = &mut self.runs[run];
        if entries.len() == entries.capacity() {
            // The default growth of a vector doubles it, which would leave a quarter of all directories' memory unused.
            entries.reserve_exact((entries.len() / 4).max(4));
        }
        entries.insert(at, slot);
        self.count += 1;
        if entries.len() > RUN_MAX {
            // Names often arrive in order: a split at the end leaves full runs behind instead of half-full ones.
            let split = if is_last && at == RUN_MAX { RUN_MAX } else { RUN_MAX / 2 };
            let tail = entries.split_off(split);
            entries.shrink_to_fit();
            self.runs.insert(run + 1, tail);
        }
    }

    /// Removes an existing child.
    pub fn remove(&mut self, order: impl Fn(Slot) -> Ordering) -> Slot {
        let (run, at) = self.search(order).expect("a child stands under its name in its parent");
        let entries = &mut self.runs[run];
        let slot = entries.remove(at);
        if entries.is_empty() {
            self.runs.remove(run);
        } else if entries.len() <= entries.capacity() / 4 {
            entries.shrink_to(entries.len() * 2);
        }
        self.count -= 1;
        slot
    }

    /// Iterates over all children in order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.runs.iter().flatten().copied()
    }

    /// Returns the number of children up to and including the name sought. `order` as in `find`.
    pub fn rank_after(&self, order: impl Fn(Slot) -> Ordering) -> usize {
        let (run, at) = match self.search(order) {
            Ok((run, at)) => (run, at + 1),
            Err(place) => place,
        };
        self.runs[..run.min(self.runs.len())].iter().map(Vec::len).sum::<usize>() + at
    }

    /// Iterates over the children after the name sought, in order. `order` as in `find`.
    pub fn after(&self, order: impl Fn(Slot) -> Ordering) -> impl Iterator<Item = Slot> + '_ {
        let (run, at) = match self.search(order) {
            Ok((run, at)) => (run, at + 1),
            Err(place) => place,
        };
        let first = self.runs.get(run).map_or(&[][..], |slots| &slots[at..]);
        let rest = self.runs.get(run + 1..).unwrap_or(&[]);
        first.iter().chain(rest.iter().flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn children_keep_the_order_of_a_set(operations in prop::collection::vec((any::<bool>(), 0u32..3000), 1..4000), probe in 0u32..3000) {
            // Here the name of a slot is its number.
            let mut children = Children::default();
            let mut model = BTreeSet::new();
            for (add, number) in operations {
                if add && model.insert(number) {
                    children.insert(Slot(number), |slot| slot.0.cmp(&number));
                } else if !add && model.remove(&number) {
                    prop_assert_eq!(children.remove(|slot| slot.0.cmp(&number)), Slot(number));
                }
            }
            prop_assert_eq!(children.len(), model.len());
            prop_assert!(children.iter().map(|slot| slot.0).eq(model.iter().copied()));
            prop_assert_eq!(children.find(|slot| slot.0.cmp(&probe)).is_some(), model.contains(&probe));
            let after: Vec<u32> = children.after(|slot| slot.0.cmp(&probe)).map(|slot| slot.0).collect();
            prop_assert!(after.iter().copied().eq(model.range(probe + 1..).copied()));
            prop_assert_eq!(children.rank_after(|slot| slot.0.cmp(&probe)), model.range(..=probe).count());
        }
    }

    proptest! {
        #[test]
        fn children_from_sorted_list_accept_insertions(count in 0u32..5000, further in prop::collection::vec(0u32..10_000, 0..50)) {
            // Even numbers, so that further slots fit between them.
            let mut children = Children::from_sorted((0..count).map(|number| Slot(2 * number)).collect());
            let mut model: BTreeSet<u32> = (0..count).map(|number| 2 * number).collect();
            for number in further {
                if model.insert(number) {
                    children.insert(Slot(number), |slot| slot.0.cmp(&number));
                } else {
                    model.remove(&number);
                    prop_assert_eq!(children.remove(|slot| slot.0.cmp(&number)), Slot(number));
                }
            }
            prop_assert_eq!(children.len(), model.len());
            prop_assert!(children.iter().map(|slot| slot.0).eq(model.iter().copied()));
        }
    }

    #[test]
    fn sorted_arrival_splits_into_full_runs() {
        let mut children = Children::default();
        for number in 0..10_000 {
            children.insert(Slot(number), |slot| slot.0.cmp(&number));
        }
        assert_eq!(children.runs.len(), 10_000usize.div_ceil(RUN_MAX));
        assert!(children.iter().map(|slot| slot.0).eq(0..10_000));
    }

    #[test]
    fn names_are_ordered_as_signed_bytes() {
        let mut names = ["b", "a", "~", "é", "_x", "Z", "中", "0", "", "aa"];
        names.sort_by(|a, b| compare_names(a.as_bytes(), b.as_bytes()));
        assert_eq!(names, ["", "é", "中", "0", "Z", "_x", "a", "aa", "b", "~"]);
    }
}
