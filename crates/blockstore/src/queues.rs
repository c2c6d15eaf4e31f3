//! Lists of replicas that wait for the work of a background thread. Entries may be stale: each list holds weak
//! references, and the thread checks the replica.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::disk::files::DiskCopy;
use crate::replica::Replica;

/// Finalized replicas not yet on disk, oldest first, with the tickets of their dirty marks.
pub type DirtyQueue = VecDeque<(NonZeroU64, Weak<Replica>)>;

/// A finalized replica that may not be on disk yet.
pub struct Unsynced {
    /// When it was finalized, in ms of the monotonic clock.
    pub since_ms: u64,
    pub replica: Weak<Replica>,
    /// The copy at that time. If the replica has another copy now, its durability is handled elsewhere.
    pub copy: DiskCopy,
    /// Writeback has been started.
    pub begun: bool,
}

/// Number of entries below which stale entries are not looked for.
const RESIDENT_SWEPT_MIN: usize = 4096;

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
            self.entries_max = (self.entries.len() * 2).max(RESIDENT_SWEPT_MIN);
        }
    }
}

/// Replicas that were lent and not returned yet. A replica is listed while another process can write to its file, so
/// the number of descriptors of other processes bounds the list.
#[derive(Default)]
pub struct LentReplicas {
    entries: Mutex<Vec<Weak<Replica>>>,
}

impl LentReplicas {
    pub fn add(&self, replica: &Arc<Replica>) {
        self.entries.lock().push(Arc::downgrade(replica));
    }

    /// Takes all entries, to be checked and, if they are still lent, returned with [`Self::put_back`].
    pub fn take(&self) -> Vec<Weak<Replica>> {
        std::mem::take(&mut *self.entries.lock())
    }

    pub fn put_back(&self, mut entries: Vec<Weak<Replica>>) {
        self.entries.lock().append(&mut entries);
    }
}

/// Maximum number of replicas of a volume that wait for a check. The next failing read adds those that found no place.
const SUSPECTS_MAX: usize = 1024;

/// The suspects of one volume.
#[derive(Default)]
pub struct Suspects {
    waiting: Mutex<VecDeque<Weak<Replica>>>,
}

impl Suspects {
    /// Adds a replica. Does not wait for a disk.
    pub fn add(&self, replica: &Arc<Replica>) {
        let entry = Arc::downgrade(replica);
        let mut waiting = self.waiting.lock();
        if waiting.len() < SUSPECTS_MAX && !waiting.iter().any(|other| other.ptr_eq(&entry)) {
            waiting.push_back(entry);
        }
    }

    pub fn take(&self) -> Option<Weak<Replica>> {
        self.waiting.lock().pop_front()
    }

    pub fn clear(&self) {
        self.waiting.lock().clear();
    }
}
