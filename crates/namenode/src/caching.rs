//! What is to be kept locked in the datanodes' memory: cache pools and the directives in them (`hdfs cacheadmin`).
//!
//! A pool has an owner, rights and a limit of bytes; a directive names a file, or a directory whose files (not those below it) are
//! meant, with a number of copies and an end. Pools and directives are durable; what follows from them ([`scan`]) is worked out again and
//! again from the namespace, and [`crate::blocks`] brings it to the datanodes. Source: Apache's CacheManager.

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

/// The longest time that anything may be kept for: Java's `Long.MAX_VALUE / 4`, milliseconds. It means "for ever".
pub const EXPIRY_MAX_MS: u64 = i64::MAX as u64 / 4;

/// A pool without a limit: Java's `Long.MAX_VALUE`.
pub const UNLIMITED: u64 = i64::MAX as u64;

/// What was asked for and what there is of it, as the last scan found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStatistics {
    /// All copies.
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

/// Every pool and every directive.
#[derive(Default)]
pub struct Caching {
    pools: BTreeMap<String, Pool>,
    directives: BTreeMap<u64, Directive>,
    /// The number of the newest directive; never given out again.
    last_directive: u64,
    /// Something has changed since the last scan.
    changed: bool,
    scanned: Option<Duration>,
    unsaved: Unsaved,
}

/// What changed and is not yet handed to the store.
#[derive(Default)]
struct Unsaved {
    pools: Vec<String>,
    directives: Vec<u64>,
}

/// What the store had.
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
    /// Directives without their pool are left out: nobody could see them.
    pub fn restore(stored: StoredCaching) -> Self {
        let pools: BTreeMap<String, Pool> = stored.pools.into_iter().collect();
        let known = stored.directives.into_iter().filter(|(_, terms)| pools.contains_key(&terms.pool));
        let directives: BTreeMap<u64, Directive> = known.map(|(id, terms)| (id, Directive::new(terms))).collect();
        let last_directive = stored.last_directive.max(directives.keys().next_back().copied().unwrap_or(0));
        Self { pools, directives, last_directive, changed: true, ..Self::default() }
    }

    /// The pools behind the one called `after` in the order of names, each with its figures.
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

    /// What the directive of this number asks for.
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

    /// Adds what has changed to what is to be stored.
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

    /// Whether a scan would find other things than the last one because of what was changed here.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether it is time to look at the files of all directives again: they change without being told of here.
    pub fn is_due(&self, interval: Duration, now: Now) -> bool {
        self.changed || self.scanned.is_none_or(|last| now.monotonic.saturating_sub(last) >= interval)
    }

    /// Bytes of the file at `path`, or of the files in that directory, once; 0 where nothing is.
    fn bytes_at(namespace: &Namespace, path: &str) -> u64 {
        let mut sum = 0u64;
        scan::each_file(namespace, path, |file| sum = sum.saturating_add(file.length()));
        sum
    }
}
