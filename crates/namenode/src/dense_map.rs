//! Map for numbers that are issued in sequence, little larger than its values.
//!
//! Numbers are kept in pages of 64. A page has one bit per number to mark those present, and their values in order
//! without gaps: the number of bits set below a number is the index of its value. So a full page costs its values and
//! about one byte per number, whereas a hash table has a key, a tag and free slots for each number.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// Hasher for numbers that the namenode has issued in sequence: no peer chooses them, so one multiplication spreads
/// them well enough.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// Numbers per page: one for each bit of [`Page::present`].
const PAGE: u64 = u64::BITS as u64;

#[derive(Clone, Debug)]
struct Page<V> {
    /// The numbers that are present, the lowest bit for the first. Never 0.
    present: u64,
    /// One value per bit set.
    values: Vec<V>,
}

impl<V> Page<V> {
    /// Returns the index of the number's value; `None` if the number is absent.
    fn place(&self, number: u64) -> Option<usize> {
        (self.present & bit(number) != 0).then(|| self.place_to_be(number))
    }

    fn place_to_be(&self, number: u64) -> usize {
        (self.present & (bit(number) - 1)).count_ones() as usize
    }

    /// Adds the values of another page of the same numbers; no number is in both.
    fn merge(&mut self, other: Self) {
        let (mine, mut theirs) = (std::mem::take(&mut self.values), other.values.into_iter());
        let is_mine = self.present;
        self.present |= other.present;
        self.values.reserve_exact(mine.len() + theirs.len());
        let mut mine = mine.into_iter();
        for number in bits(self.present) {
            let from = if is_mine & bit(number) != 0 { mine.next() } else { theirs.next() };
            self.values.extend(from);
        }
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % PAGE)
}

/// The bits set, in ascending order.
fn bits(mut present: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let lowest = present.trailing_zeros();
        present &= present.checked_sub(1)?;
        Some(u64::from(lowest))
    })
}

/// Map from numbers that are close together. Any number is allowed, but an isolated one costs a page.
#[derive(Clone, Debug)]
pub struct DenseMap<V> {
    pages: HashMap<u64, Page<V>, BuildHasherDefault<IdHasher>>,
    count: usize,
}

impl<V> Default for DenseMap<V> {
    fn default() -> Self {
        Self { pages: HashMap::default(), count: 0 }
    }
}

impl<V> DenseMap<V> {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn contains(&self, number: u64) -> bool {
        self.pages.get(&(number / PAGE)).is_some_and(|page| page.present & bit(number) != 0)
    }

    pub fn get(&self, number: u64) -> Option<&V> {
        let page = self.pages.get(&(number / PAGE))?;
        page.values.get(page.place(number)?)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        let page = self.pages.get_mut(&(number / PAGE))?;
        let place = page.place(number)?;
        page.values.get_mut(place)
    }

    /// Returns the previous value.
    pub fn insert(&mut self, number: u64, value: V) -> Option<V> {
        let page = self.pages.entry(number / PAGE).or_insert(Page { present: 0, values: Vec::new() });
        let place = page.place_to_be(number);
        if page.present & bit(number) != 0 {
            return Some(std::mem::replace(&mut page.values[place], value));
        }
        page.present |= bit(number);
        page.values.insert(place, value);
        self.count += 1;
        None
    }

    /// Returns the removed value.
    pub fn remove(&mut self, number: u64) -> Option<V> {
        let Entry::Occupied(mut entry) = self.pages.entry(number / PAGE) else { return None };
        let page = entry.get_mut();
        let value = page.values.remove(page.place(number)?);
        page.present &= !bit(number);
        self.count -= 1;
        let (length, room) = (page.values.len(), page.values.capacity());
        if length == 0 {
            entry.remove();
        } else if length <= room / 4 {
            // Half stays free, so that a page whose numbers come and go is not reallocated every time.
            page.values.shrink_to(length * 2);
        }
        Some(value)
    }

    /// Moves all values of another map into this one. Fails with the first number that both have; then only a part was
    /// moved.
    pub fn absorb(&mut self, other: Self) -> Result<(), u64> {
        self.pages.reserve(other.pages.len());
        for (number, page) in other.pages {
            match self.pages.entry(number) {
                Entry::Vacant(entry) => {
                    self.count += page.values.len();
                    entry.insert(page);
                }
                Entry::Occupied(mut entry) => {
                    let known = entry.get_mut();
                    let both = known.present & page.present;
                    if both != 0 {
                        return Err(number * PAGE + u64::from(both.trailing_zeros()));
                    }
                    self.count += page.values.len();
                    known.merge(page);
                }
            }
        }
        Ok(())
    }

    /// Pages in arbitrary order, for a walk in parts during which entries come and go.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().copied()
    }

    /// Numbers present in a page, in ascending order; none if the page is gone. A page has at most 64.
    pub fn in_page(&self, page: u64) -> impl Iterator<Item = u64> {
        let present = self.pages.get(&page).map_or(0, |page| page.present);
        bits(present).map(move |bit| page * PAGE + bit)
    }

    /// Entries in arbitrary order, except that numbers of one page follow each other.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.pages
            .iter()
            .flat_map(|(number, page)| bits(page.present).map(move |bit| number * PAGE + bit).zip(&page.values))
    }

    /// Numbers, in the order of [`iter`](Self::iter).
    #[cfg(test)]
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.iter().map(|(number, _)| number)
    }

    /// Values, in arbitrary order, except that those of one page follow each other.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.pages.values_mut().flat_map(|page| &mut page.values)
    }

    /// Values, in arbitrary order, except that those of one page follow each other.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.pages.values().flat_map(|page| &page.values)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Insert(u64, u32),
        Remove(u64),
        Change(u64, u32),
    }

    /// Few pages, so that they fill and empty, and numbers at both ends of the range.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0u64..200, 1 => 1_073_741_800u64..1_073_741_900, 1 => u64::MAX - 70..=u64::MAX]
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            3 => (number(), any::<u32>()).prop_map(|(number, value)| Operation::Insert(number, value)),
            3 => number().prop_map(Operation::Remove),
            1 => (number(), any::<u32>()).prop_map(|(number, value)| Operation::Change(number, value)),
        ]
    }

    proptest! {
        #[test]
        fn dense_map_matches_hash_map(operations in prop::collection::vec(operation(), 0..2000), probe in number()) {
            let mut map = DenseMap::default();
            let mut model = HashMap::new();
            for operation in operations {
                match operation {
                    Operation::Insert(number, value) => prop_assert_eq!(map.insert(number, value), model.insert(number, value)),
                    Operation::Remove(number) => prop_assert_eq!(map.remove(number), model.remove(&number)),
                    Operation::Change(number, value) => {
                        let (found, expected) = (map.get_mut(number), model.get_mut(&number));
                        prop_assert_eq!(&found, &expected);
                        if let (Some(found), Some(expected)) = (found, expected) {
                            (*found, *expected) = (value, value);
                        }
                    }
                }
                prop_assert_eq!(map.len(), model.len());
            }
            prop_assert_eq!(map.get(probe), model.get(&probe));
            prop_assert_eq!(map.contains(probe), model.contains_key(&probe));
            let all: HashMap<u64, u32> = map.iter().map(|(number, value)| (number, *value)).collect();
            prop_assert_eq!(&all, &model);
            prop_assert!(map.keys().eq(map.iter().map(|(number, _)| number)));
            prop_assert!(map.values().eq(map.iter().map(|(_, value)| value)));
            prop_assert!(map.pages().flat_map(|page| map.in_page(page)).eq(map.keys()));
            prop_assert_eq!(map.in_page(1 << 40).count(), 0);
            let mut pages: Vec<u64> = model.keys().map(|number| number / PAGE).collect();
            pages.sort_unstable();
            pages.dedup();
            prop_assert_eq!(map.pages.len(), pages.len(), "no empty page remains");
        }
    }

    proptest! {
        #[test]
        fn absorbed_map_equals_union(numbers in prop::collection::vec((number(), any::<bool>()), 0..300), probe in number()) {
            let (mut maps, mut model) = ([DenseMap::default(), DenseMap::default()], HashMap::new());
            for (at, (number, which)) in numbers.into_iter().enumerate() {
                if let std::collections::hash_map::Entry::Vacant(entry) = model.entry(number) {
                    entry.insert(at);
                    maps[usize::from(which)].insert(number, at);
                }
            }
            let [mut map, other] = maps;
            let shared = other.keys().next();
            let again = other.clone();
            prop_assert_eq!(map.absorb(other), Ok(()));
            prop_assert_eq!(map.len(), model.len());
            prop_assert_eq!(map.get(probe), model.get(&probe));
            let all: HashMap<u64, usize> = map.iter().map(|(number, value)| (number, *value)).collect();
            prop_assert_eq!(&all, &model);
            prop_assert_eq!(map.absorb(again).is_err(), shared.is_some());
        }
    }

    #[test]
    fn page_capacity_follows_its_length() {
        let mut map = DenseMap::default();
        for number in 0..1000u64 {
            map.insert(number, number as u32);
        }
        assert_eq!(map.pages[&3].values.capacity(), 64);
        for number in (0..1000).filter(|number| number % 16 != 0) {
            map.remove(number);
        }
        assert!(map.pages[&3].values.capacity() <= 16);
        for number in 0..1000 {
            assert_eq!(map.remove(number).is_some(), number % 16 == 0);
        }
        assert!(map.pages.is_empty());
    }
}
