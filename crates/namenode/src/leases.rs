//! Leases, the right to write: one lease per client name covers all the files that it has open.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringTreemap;

use crate::namespace::InodeId;

/// Durations after which a lease that is not renewed expires.
#[derive(Clone, Copy, Debug)]
pub struct LeaseLimits {
    /// After this, another client may take the file over.
    pub soft: Duration,
    /// After this, the NameNode closes the file itself.
    pub hard: Duration,
}

impl Default for LeaseLimits {
    fn default() -> Self {
        Self { soft: Duration::from_secs(60), hard: Duration::from_secs(1200) }
    }
}

#[derive(Debug)]
struct Lease {
    holder: Arc<str>,
    /// Monotonic time of the last renewal.
    renewed: Duration,
    files: Files,
}

/// Set of file ids. Files created in sequence, which may be millions, take one bit or two bytes each.
#[derive(Debug, Default)]
struct Files {
    ids: RoaringTreemap,
    /// Cached because the set itself would count them at each call.
    count: usize,
}

impl Files {
    fn insert(&mut self, file: InodeId) {
        self.count += usize::from(self.ids.insert(file.0));
    }

    fn remove(&mut self, file: InodeId) {
        self.count -= usize::from(self.ids.remove(file.0));
    }

    /// The ids in ascending order.
    fn iter(&self) -> impl Iterator<Item = InodeId> {
        self.ids.iter().map(InodeId)
    }
}

/// All leases. In memory only: rebuilt from the open files, with fresh times, at every start.
pub struct Leases {
    limits: LeaseLimits,
    by_holder: HashMap<Arc<str>, Lease>,
    /// Holders in the order of renewal, oldest first.
    by_age: BTreeSet<(Duration, Arc<str>)>,
}

impl Leases {
    pub fn new(limits: LeaseLimits) -> Self {
        Self { limits, by_holder: HashMap::new(), by_age: BTreeSet::new() }
    }

    /// Adds a file to the lease of `holder`, which counts as renewed.
    pub fn add(&mut self, holder: &str, file: InodeId, now: Duration) {
        if let Some(lease) = self.by_holder.get_mut(holder) {
            lease.files.insert(file);
            return self.renew(holder, now);
        }
        let holder: Arc<str> = holder.into();
        let mut files = Files::default();
        files.insert(file);
        let lease = Lease { holder: holder.clone(), renewed: now, files };
        self.by_holder.insert(holder.clone(), lease);
        self.by_age.insert((now, holder));
    }

    /// Removes a file from a lease; a lease without files is removed. An unknown holder or file is no error.
    pub fn remove(&mut self, holder: &str, file: InodeId) {
        let Some(lease) = self.by_holder.get_mut(holder) else { return };
        lease.files.remove(file);
        if lease.files.count == 0 {
            self.by_age.remove(&(lease.renewed, lease.holder.clone()));
            self.by_holder.remove(holder);
        }
    }

    /// Renews the lease of `holder`. An unknown holder is no error: it has no open files.
    pub fn renew(&mut self, holder: &str, now: Duration) {
        let Some(lease) = self.by_holder.get_mut(holder) else { return };
        let mut key = (lease.renewed, lease.holder.clone());
        self.by_age.remove(&key);
        lease.renewed = now;
        key.0 = now;
        self.by_age.insert(key);
    }

    /// Postpones a silent writer's lease by a soft limit, after an attempt to close its files that changed nothing.
    pub fn renew_soft(&mut self, holder: &str, now: Duration) {
        let since = (now + self.limits.soft).saturating_sub(self.limits.hard);
        if self.by_holder.get(holder).is_some_and(|lease| lease.renewed < since) {
            self.renew(holder, since);
        }
    }

    pub fn has(&self, holder: &str) -> bool {
        self.by_holder.contains_key(holder)
    }

    /// Number of files that `holder` has open; 0 if it is unknown.
    pub fn count(&self, holder: &str) -> usize {
        self.by_holder.get(holder).map_or(0, |lease| lease.files.count)
    }

    /// Returns true if another client may take over the open files of `holder`. An unknown holder has none.
    pub fn soft_limit_passed(&self, holder: &str, now: Duration) -> bool {
        self.by_holder.get(holder).is_none_or(|lease| now.saturating_sub(lease.renewed) > self.limits.soft)
    }

    /// Returns up to `limit` files whose leases have passed the hard limit, oldest first.
    pub fn expired(&self, now: Duration, limit: usize) -> Vec<(String, InodeId)> {
        self.by_age
            .iter()
            .take_while(|(renewed, _)| now.saturating_sub(*renewed) > self.limits.hard)
            .flat_map(|(_, holder)| self.by_holder[holder].files.iter().map(|file| (holder.to_string(), file)))
            .take(limit)
            .collect()
    }

    /// Number of files open for writing.
    pub fn file_count(&self) -> usize {
        self.by_holder.values().map(|lease| lease.files.count).sum()
    }

    /// Number of clients with open files.
    pub fn holder_count(&self) -> usize {
        self.by_holder.len()
    }

    pub fn limits(&self) -> LeaseLimits {
        self.limits
    }

    /// Returns the time since the last renewal. `None` for an unknown holder.
    pub fn idle(&self, holder: &str, now: Duration) -> Option<Duration> {
        self.by_holder.get(holder).map(|lease| now.saturating_sub(lease.renewed))
    }

    /// Returns up to `limit` open files with ids above `after`, in the order of ids.
    pub fn open_files_after(&self, after: InodeId, limit: usize) -> Vec<(InodeId, Arc<str>)> {
        let Some(from) = after.0.checked_add(1) else { return Vec::new() };
        let mut files: Vec<(InodeId, Arc<str>)> = Vec::new();
        for lease in self.by_holder.values() {
            let mut ids = lease.files.ids.iter();
            ids.advance_to(from);
            files.extend(ids.take(limit).map(|id| (InodeId(id), lease.holder.clone())));
        }
        files.sort();
        files.truncate(limit);
        files
    }

    /// Text `[Lease. Holder: X, pending creates: N]`, or that there is no lease: the end of Apache's messages.
    pub fn describe(&self, holder: &str) -> String {
        match self.count(holder) {
            0 => format!("Holder {holder} does not have any open files."),
            count => format!("[Lease. Holder: {holder}, pending creates: {count}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_renewal_covers_all_files_of_a_client() {
        let mut leases = Leases::new(LeaseLimits::default());
        leases.add("a", InodeId(1), SECOND);
        leases.add("b", InodeId(3), SECOND * 2);
        leases.add("a", InodeId(2), SECOND * 3);
        assert_eq!(leases.describe("a"), "[Lease. Holder: a, pending creates: 2]");
        assert_eq!(leases.describe("c"), "Holder c does not have any open files.");
        assert!(!leases.soft_limit_passed("a", SECOND * 63));
        assert!(leases.soft_limit_passed("a", SECOND * 64));
        assert!(leases.soft_limit_passed("nobody", SECOND));
        leases.renew("a", SECOND * 64);
        assert_eq!(leases.idle("a", SECOND * 65), Some(SECOND));
        assert_eq!(leases.idle("nobody", SECOND * 65), None);
        assert!(!leases.soft_limit_passed("a", SECOND * 65));
        assert_eq!(leases.expired(SECOND * 1202, 10), []);
        assert_eq!(leases.expired(SECOND * 1203, 10), [("b".to_owned(), InodeId(3))]);
        assert_eq!(leases.expired(SECOND * 2000, 2), [("b".to_owned(), InodeId(3)), ("a".to_owned(), InodeId(1))]);
    }

    #[test]
    fn open_files_are_listed_by_id() {
        let mut leases = Leases::new(LeaseLimits::default());
        for id in (1..300_000).rev() {
            leases.add(["a", "b", "c"][id as usize % 3], InodeId(id), SECOND);
        }
        let listed: Vec<u64> = leases.open_files_after(InodeId(7), 5).iter().map(|(id, _)| id.0).collect();
        assert_eq!(listed, [8, 9, 10, 11, 12]);
        assert_eq!(
            leases.open_files_after(InodeId(299_997), 5),
            [(InodeId(299_998), "b".into()), (InodeId(299_999), "c".into())]
        );
        assert!(leases.open_files_after(InodeId(u64::MAX), 5).is_empty());
        assert_eq!((leases.file_count(), leases.count("a")), (299_999, 99_999));
    }

    #[test]
    fn a_lease_ends_with_its_last_file() {
        let mut leases = Leases::new(LeaseLimits::default());
        leases.add("a", InodeId(1), SECOND);
        leases.add("a", InodeId(2), SECOND * 2);
        leases.remove("a", InodeId(1));
        assert!(leases.has("a"));
        leases.remove("a", InodeId(2));
        leases.remove("a", InodeId(2));
        assert!(!leases.has("a"));
        assert_eq!((leases.holder_count(), leases.file_count(), leases.by_age.len()), (0, 0, 0));
        leases.renew("a", SECOND * 3);
        assert!(!leases.has("a"));
    }
}
