//! The scan from directives to blocks: walks the files of all directives, and counts.

use super::{CacheStatistics, Caching};
use crate::blocks::{BlockMap, BlockState, Now, WantedCopies};
use crate::namespace::{FilePart, Namespace};

/// Visits the file at `path`, or each file in that directory.
pub(super) fn each_file<'a>(namespace: &'a Namespace, path: &str, mut take: impl FnMut(&'a FilePart)) {
    let Some(slot) = namespace.lookup(path) else { return };
    let inode = namespace.inode(slot);
    if let Some(file) = inode.as_file() {
        take(file);
    } else if let Some(children) = inode.children() {
        for file in children.iter().filter_map(|child| namespace.inode(child).as_file()) {
            take(file);
        }
    }
}

impl Caching {
    /// Determines the wanted blocks, has the block map schedule them, and updates the statistics.
    pub fn scan(&mut self, namespace: &Namespace, blocks: &mut BlockMap, now: Now) {
        self.changed = false;
        self.scanned = Some(now.monotonic);
        if self.directives.is_empty() && !blocks.caches_anything() {
            return;
        }
        let cached = blocks.cached_copies();
        let mut wanted = WantedCopies::new();
        let mut pool_bytes = std::collections::BTreeMap::<&str, u64>::new();
        for directive in self.directives.values_mut() {
            directive.figures = CacheStatistics::default();
            if directive.has_expired(now.wall_ms) {
                continue;
            }
            let (terms, figures) = (&directive.terms, &mut directive.figures);
            let limit = self.pools.get(&terms.pool).map_or(0, |pool| pool.limit);
            let in_pool = pool_bytes.entry(&terms.pool).or_default();
            each_file(namespace, &terms.path, |file| {
                let complete = |block: &_| is_complete(blocks, block);
                // The last block of an open file does not count until it is complete.
                let bytes: u64 = file.blocks().iter().filter(complete).map(|block| block.length).sum();
                let needed = bytes.saturating_mul(terms.replication.into());
                figures.files_needed += 1;
                figures.bytes_needed = figures.bytes_needed.saturating_add(needed);
                *in_pool = in_pool.saturating_add(needed);
                if *in_pool > limit {
                    return;
                }
                let mut there = 0u64;
                for block in file.blocks().iter().filter(complete) {
                    let copies = cached.get(&block.id).copied().unwrap_or(0).min(terms.replication);
                    there = there.saturating_add(block.length.saturating_mul(copies.into()));
                    let copies = wanted.entry(block.id).or_default();
                    *copies = (*copies).max(terms.replication);
                }
                figures.bytes_cached = figures.bytes_cached.saturating_add(there);
                figures.files_cached += u64::from(there == needed);
            });
        }
        blocks.schedule_caching(&wanted, now);
    }
}

fn is_complete(blocks: &BlockMap, block: &crate::namespace::BlockRecord) -> bool {
    blocks.state(block.id) == Some(BlockState::Complete)
}
