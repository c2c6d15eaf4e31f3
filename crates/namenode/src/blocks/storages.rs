//! The ids of DataNodes' storages, kept across restarts.
//!
//! After a restart the NameNode does not know which DataNodes hold an open block. It knows the ids of all storages from
//! before, and so knows when all of them have reported. A block that none of them reported is lost, and its file can be
//! closed. Without the ids the NameNode waits until a silent DataNode counts as dead.

use std::collections::HashSet;

use hearth_types::StorageId;

use super::{BlockMap, Now};

/// Entry that marks the set as complete. An earlier version kept no ids, so a set that it left is incomplete.
const ALL: &str = "";

/// Limit of ids. Beyond it the set is incomplete, and restarts must wait.
const STORAGES_MAX: usize = 200_000;

#[derive(Default)]
pub(super) struct KnownStorages {
    /// The ids in the store, and [`ALL`].
    stored: HashSet<String>,
    /// Ids from before the restart whose storages have not reported since; `None` if unknown.
    awaited: Option<HashSet<String>>,
    /// Changes to store: an id, and whether it is in the set.
    changes: Vec<(String, bool)>,
}

impl KnownStorages {
    fn put(&mut self, name: &str) {
        if self.stored.insert(name.to_owned()) {
            self.changes.push((name.to_owned(), true));
        }
    }

    fn remove(&mut self, name: &str) {
        if self.stored.remove(name) {
            self.changes.push((name.to_owned(), false));
        }
    }

    /// Records that a storage has come into the map.
    pub fn note(&mut self, id: &StorageId) {
        if self.stored.contains(&*id.0) {
            return;
        }
        if self.stored.len() < STORAGES_MAX {
            self.put(&id.0);
        } else {
            self.remove(ALL);
        }
    }

    /// Records a storage's full report.
    pub fn reported(&mut self, id: &StorageId) {
        if let Some(awaited) = &mut self.awaited {
            awaited.remove(&*id.0);
        }
    }

    /// Returns true if all storages from before the restart have reported since.
    pub fn have_all_reported(&self) -> bool {
        self.awaited.as_ref().is_some_and(HashSet::is_empty)
    }
}

/// Returns the initial set of a new namespace: no storage yet, and complete from then on.
pub fn initial_storages() -> Vec<(String, bool)> {
    vec![(ALL.to_owned(), true)]
}

impl BlockMap {
    /// Restores the set from the store. `None`: an earlier version wrote the store. Call it before
    /// [`BlockMap::restored`].
    pub fn restore_storages(&mut self, stored: Option<Vec<String>>) {
        let stored: HashSet<String> = stored.unwrap_or_default().into_iter().collect();
        let names = stored.iter().filter(|name| *name != ALL).cloned();
        self.storages.awaited = stored.contains(ALL).then(|| names.collect());
        self.storages.stored = stored;
    }

    /// Returns the changes to store. They are stored with the next change, so before any block that may be on such a
    /// storage.
    pub fn take_storage_changes(&mut self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.storages.changes)
    }

    /// Forgets storages that have not come back in the time that a DataNode may be silent, so that the next restart
    /// does not wait for them.
    pub fn forget_silent_storages(&mut self, now: Now) {
        let is_late = now.monotonic.saturating_sub(self.restored) > self.settings.dead_after();
        if !is_late || self.storages.have_all_reported() {
            return;
        }
        for name in self.storages.awaited.replace(HashSet::new()).unwrap_or_default() {
            self.storages.remove(&name);
        }
        if self.storages.stored.len() < STORAGES_MAX {
            self.storages.put(ALL);
        }
    }
}
