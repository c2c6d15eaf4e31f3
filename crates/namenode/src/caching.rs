//! Cache pools and the directives in them (`hdfs cacheadmin`): the files to keep locked in the datanodes' memory.
//!
//! A pool has an owner, permissions and a limit in bytes. A directive names a file, or a directory whose direct files
//! are meant, with a number of copies and an expiry. Pools and directives are durable. The blocks that follow from them
//! (`scan`) are computed repeatedly from the namespace, and [`crate::blocks`] sends them to the datanodes. Source:
//! Apache's CacheManager.

mod directive;
mod pool;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub use directive::{Directive, DirectiveChange, Expiry, Filter, Terms};
pub use pool::{Pool, PoolChange};

use crate::blocks::Now;
use crate::changes::Changes;
use crate::error::Error;
use crate::namespace::Namespace;

/// Longest expiry: Java's `Long.MAX_VALUE / 4`, in milliseconds. It means "forever".
pub const EXPIRY_MAX_MS: u64 = i64::MAX as u64 / 4;

/// Limit of a pool without a limit: Java's `Long.MAX_VALUE`.
pub const UNLIMITED: u64 = i64::MAX as u64;

/// Requested and cached amounts, as the last scan found them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStatistics {
    /// Bytes of all copies.
    pub bytes_needed: u64,
    pub bytes_cached: u64,
    pub files_needed: u64,
    pub files_cached: u64,
}

impl CacheStatistics {
    fn add(&mut self, other: &Self) {
        self.bytes_needed = self.bytes_needed.saturating_add(other.bytes_needed);
        self.bytes_cached = self.bytes_cached.saturating_add(other.bytes_cached);
        self.files_needed += other.files_needed;
        self.files_cached += other.files_cached;
    }
}

/// All pools and all directives.
#[derive(Default)]
pub struct Caching {
    pools: BTreeMap<String, Pool>,
    directives: BTreeMap<u64, Directive>,
    /// The number of the newest directive; never issued again.
    last_directive: u64,
    /// True if something has changed since the last scan.
    changed: bool,
    scanned: Option<Duration>,
    unsaved: Unsaved,
}

/// Changes that are not yet handed to the store.
#[derive(Default)]
struct Unsaved {
    pools: Vec<String>,
    directives: Vec<u64>,
}

/// Contents read from the store.
#[derive(Default)]
pub struct StoredCaching {
    pub pools: Vec<(String, Pool)>,
    pub directives: Vec<(u64, Terms)>,
    pub last_directive: u64,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::InvalidRequest { message: message.into() }
}

impl Caching {
    /// Restores pools and directives. Directives without their pool are left out, because no user could see them.
    pub fn restore(stored: StoredCaching) -> Self {
        let pools: BTreeMap<String, Pool> = stored.pools.into_iter().collect();
        let known = stored.directives.into_iter().filter(|(_, terms)| pools.contains_key(&terms.pool));
        let directives: BTreeMap<u64, Directive> = known.map(|(id, terms)| (id, Directive::new(terms))).collect();
        let last_directive = stored.last_directive.max(directives.keys().next_back().copied().unwrap_or(0));
        Self { pools, directives, last_directive, changed: true, ..Self::default() }
    }

    /// Returns the pools after the one called `after`, in the order of names, each with its statistics.
    pub fn pools_after<'a>(&'a self, after: &str) -> impl Iterator<Item = (&'a str, &'a Pool, CacheStatistics)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let range = self.pools.range::<str, _>((Excluded(after), Unbounded));
        range.map(|(name, pool)| (name.as_str(), pool, self.pool_statistics(name)))
    }

    fn pool_statistics(&self, pool: &str) -> CacheStatistics {
        let mut sum = CacheStatistics::default();
        for directive in self.directives.values().filter(|directive| directive.terms.pool == pool) {
            sum.add(&directive.figures);
        }
        sum
    }

    pub fn pool_named(&self, name: &str) -> Option<&Pool> {
        self.pools.get(name)
    }

    /// Returns the terms of the directive with this number.
    pub fn terms(&self, id: u64) -> Option<&Terms> {
        self.directives.get(&id).map(|directive| &directive.terms)
    }

    fn pool(&self, name: &str) -> Result<&Pool, Error> {
        self.pools.get(name).ok_or_else(|| invalid(format!("Unknown pool {name}")))
    }

    fn note_pool(&mut self, name: &str) {
        self.unsaved.pools.push(name.to_owned());
        self.changed = true;
    }

    fn note_directive(&mut self, id: u64) {
        self.unsaved.directives.push(id);
        self.changed = true;
    }

    /// Adds all unsaved changes to those to store.
    pub fn take_changes(&mut self, changes: &mut Changes) {
        for name in self.unsaved.pools.drain(..) {
            let pool = self.pools.get(&name).cloned();
            changes.cache_pools.push((name, pool));
        }
        for id in self.unsaved.directives.drain(..) {
            changes.cache_directives.push((id, self.directives.get(&id).map(|directive| directive.terms.clone())));
            changes.last_directive = Some(self.last_directive);
        }
    }

    /// Returns true if changes made here would alter the result of a scan.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Returns true if a scan of the files of all directives is due: files change without notice to this module.
    pub fn is_due(&self, interval: Duration, now: Now) -> bool {
        self.changed || self.scanned.is_none_or(|last| now.monotonic.saturating_sub(last) >= interval)
    }

    /// Returns the bytes of the file at `path`, or of the files in that directory, for one copy; 0 if nothing is there.
    fn bytes_at(namespace: &Namespace, path: &str) -> u64 {
        let mut sum = 0u64;
        scan::each_file(namespace, path, |file| sum = sum.saturating_add(file.length()));
        sum
    }
}
