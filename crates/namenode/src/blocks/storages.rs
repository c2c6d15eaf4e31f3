//! The names of DataNodes' storages, kept over restarts.
//!
//! After a restart the NameNode does not know which DataNodes hold an open block. It knows the names of all storages from before, and so
//! knows when all of them have reported. A block that none reported is lost, and its file can be closed. Without the names the NameNode
//! waits until a silent DataNode counts as dead.

use std::collections::HashSet;

use hearth_types::StorageId;

use super::{BlockMap, Now};

/// Stands for "all names are here": an earlier version kept none, so a set that it left is not whole.
const ALL: &str = "";

/// Names at most. With more the set is not whole, and restarts wait.
const STORAGES_MAX: usize = 200_000;

#[derive(Default)]
pub(super) struct KnownStorages {
    /// As the store has them, and [`ALL`].
    stored: HashSet<String>,
    /// Those of before the restart that have not reported since; `None`: not known.
    awaited: Option<HashSet<String>>,
    /// What the store has to learn: a name, and whether it is there.
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

    /// A storage has come into the map.
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

    /// A storage has said all that it holds.
    pub fn reported(&mut self, id: &StorageId) {
        if let Some(awaited) = &mut self.awaited {
            awaited.remove(&*id.0);
        }
    }

    /// Whether all storages of before the restart have reported since.
    pub fn have_all_reported(&self) -> bool {
        self.awaited.as_ref().is_some_and(HashSet::is_empty)
    }
}

/// What a new namespace begins with: there is no storage yet, and each will be kept.
pub fn initial_storages() -> Vec<(String, bool)> {
    vec![(ALL.to_owned(), true)]
}

impl BlockMap {
    /// What the store had. `None`: an earlier version wrote it. Call it before [`BlockMap::restored`].
    pub fn restore_storages(&mut self, stored: Option<Vec<String>>) {
        let stored: HashSet<String> = stored.unwrap_or_default().into_iter().collect();
        let names = stored.iter().filter(|name| *name != ALL).cloned();
        self.storages.awaited = stored.contains(ALL).then(|| names.collect());
        self.storages.stored = stored;
    }

    /// What the store is to learn. It goes there with the next change, so before any block that may lie on such a storage.
    pub fn take_storage_changes(&mut self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.storages.changes)
    }

    /// Those that have not come back in the time that a DataNode may be silent are not waited for at the next restart.
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
