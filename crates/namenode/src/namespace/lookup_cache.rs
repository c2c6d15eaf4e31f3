//! Cache of recent name lookups. Most path walks pass through the same few directories, and searching a directory's
//! names touches memory at every step.
//!
//! The cache is only a hint. Callers verify an entry before they use it, so entries need not be removed when names
//! change.

use std::sync::atomic::{AtomicU64, Ordering};

use super::inode::Slot;

/// Number of entries, a power of two. An entry takes eight bytes.
const ENTRIES: usize = 1 << 16;

/// Entries by hash of directory and name. An entry holds the slot and a part of the hash.
pub struct LookupCache(Box<[AtomicU64]>);

/// Hash of a name in a directory.
#[derive(Clone, Copy)]
pub struct LookupKey(u64);

impl LookupKey {
    pub fn new(directory: Slot, name: &[u8]) -> Self {
        let mut hash = u64::from(directory.0) ^ (name.len() as u64) << 32;
        let mut rest = name;
        while let Some((word, after)) = rest.split_first_chunk() {
            hash = mix(hash, u64::from_le_bytes(*word));
            rest = after;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        Self(mix(hash, u64::from_le_bytes(last)))
    }

    fn place(self) -> usize {
        self.0 as usize % ENTRIES
    }

    fn tag(self) -> u32 {
        // Never 0, which marks an empty entry.
        (self.0 >> 32) as u32 | 1
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0x9E37_79B9_7F4A_7C15;
    (product >> 64) as u64 ^ product as u64
}

impl Default for LookupCache {
    fn default() -> Self {
        Self((0..ENTRIES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl LookupCache {
    /// Returns the slot where the name may be.
    pub fn find(&self, key: LookupKey) -> Option<Slot> {
        let found = self.0[key.place()].load(Ordering::Relaxed);
        ((found >> 32) as u32 == key.tag()).then_some(Slot(found as u32))
    }

    pub fn note(&self, key: LookupKey, slot: Slot) {
        self.0[key.place()].store(u64::from(key.tag()) << 32 | u64::from(slot.0), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_entries_are_found() {
        let recent = LookupCache::default();
        let names: Vec<String> = (0..1000).map(|number| format!("a-rather-long-name-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let key = LookupKey::new(Slot(7), name.as_bytes());
            assert!(recent.find(key).is_none_or(|slot| slot.0 as usize != number));
            recent.note(key, Slot(number as u32));
            assert_eq!(recent.find(key), Some(Slot(number as u32)));
        }
        // Most keys have an entry of their own.
        let left = |(number, name): (usize, &String)| {
            recent.find(LookupKey::new(Slot(7), name.as_bytes())) == Some(Slot(number as u32))
        };
        assert!(names.iter().enumerate().filter(|named| left(*named)).count() > 950);
        assert!(recent.find(LookupKey::new(Slot(8), names[999].as_bytes())).is_none(), "the directory differs");
    }
}
