//! Replicas in memory, in the order in which eviction visits them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};

use crate::replica::Replica;

/// Number of entries below which stale entries are not looked for.
const SWEPT_MIN: usize = 4096;

/// Replicas in memory, in the order in which the clock hand visits them. Entries may be stale.
#[derive(Default)]
pub struct Resident {
    entries: VecDeque<Weak<Replica>>,
    /// Above this number of entries, those of deleted replicas are dropped.
    entries_max: usize,
}

impl Resident {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes the entry that the clock hand visits next.
    pub fn next(&mut self) -> Option<Weak<Replica>> {
        self.entries.pop_front()
    }

    /// Returns an entry that [`Self::next`] removed, since its replica stays in memory.
    pub fn keep(&mut self, entry: Weak<Replica>) {
        self.entries.push_back(entry);
    }

    pub fn add(&mut self, replica: &Arc<Replica>) {
        self.entries.push_back(Arc::downgrade(replica));
        if self.entries.len() > self.entries_max {
            // Each stale entry keeps the memory of a deleted replica, and a replica that was reopened has two entries.
            let mut seen = HashSet::new();
            self.entries.retain(|entry| entry.strong_count() > 0 && seen.insert(entry.as_ptr()));
            self.entries_max = (self.entries.len() * 2).max(SWEPT_MIN);
        }
    }
}
