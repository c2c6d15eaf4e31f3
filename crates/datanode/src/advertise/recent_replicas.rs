//! Replicas that were recently finalized or requested. They are announced to NameNodes, so that the next reader needs
//! no request.

use std::collections::HashMap;

use hearth_types::{BlockId, BlockPoolId};
use hearth_wire::announcement::ANNOUNCED_MAX;
use parking_lot::Mutex;

use super::BlockKey;

/// Maximum number of remembered replicas. Beyond it, the older half is forgotten.
const REMEMBERED_MAX: usize = 4 * ANNOUNCED_MAX;

/// Times are in ms of one monotonic clock.
#[derive(Default)]
pub struct RecentReplicas {
    uses: Mutex<HashMap<BlockKey, LastUse>>,
}

#[derive(Clone, Copy)]
struct LastUse {
    at_ms: u64,
    /// Registered bytes of the replica.
    bytes: u64,
}

impl RecentReplicas {
    pub fn record(&self, key: BlockKey, bytes: u64, now_ms: u64) {
        let mut uses = self.uses.lock();
        if uses.len() >= REMEMBERED_MAX && !uses.contains_key(&key) {
            let mut times: Vec<u64> = uses.values().map(|used| used.at_ms).collect();
            let (_, median, _) = times.select_nth_unstable(REMEMBERED_MAX / 2);
            let median = *median;
            uses.retain(|_, used| used.at_ms > median);
        }
        uses.insert(key, LastUse { at_ms: now_ms, bytes });
    }

    pub fn forget(&self, key: &BlockKey) {
        self.uses.lock().remove(key);
    }

    /// Returns the replicas of a pool that were used at `since_ms` or later, the most recent first: with at most
    /// `bytes_max` bytes in total, and at most [`ANNOUNCED_MAX`] of them.
    pub fn used_since(&self, pool: &BlockPoolId, since_ms: u64, bytes_max: u64) -> Vec<BlockId> {
        let mut found: Vec<(LastUse, BlockId)> = {
            let uses = self.uses.lock();
            let of_pool = uses.iter().filter(|((of, _), used)| of == pool && used.at_ms >= since_ms);
            of_pool.map(|((_, block), used)| (*used, *block)).collect()
        };
        // Replicas of the same time are always in the same order, so that none is announced and withdrawn alternately.
        found.sort_unstable_by_key(|(used, block)| (std::cmp::Reverse(used.at_ms), *block));
        let mut left = bytes_max;
        let fits = found.into_iter().filter(|(used, _)| match left.checked_sub(used.bytes) {
            Some(less) => {
                left = less;
                true
            }
            None => false,
        });
        fits.map(|(_, block)| block).take(ANNOUNCED_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pool: &str, id: i64) -> BlockKey {
        (BlockPoolId::new(pool), BlockId(id))
    }

    fn ids(recent: &RecentReplicas, pool: &str, since_ms: u64, bytes_max: u64) -> Vec<i64> {
        recent.used_since(&BlockPoolId::new(pool), since_ms, bytes_max).into_iter().map(|block| block.0).collect()
    }

    #[test]
    fn most_recently_used_replicas_come_first() {
        let recent = RecentReplicas::default();
        for (id, bytes) in [(1, 10), (2, 50), (3, 10), (4, 10)] {
            recent.record(key("BP-1", id), bytes, id as u64 * 100);
        }
        recent.record(key("BP-2", 9), 1, 350);
        recent.record(key("BP-1", 1), 10, 500);
        assert_eq!(ids(&recent, "BP-1", 0, 1000), [1, 4, 3, 2]);
        assert_eq!(ids(&recent, "BP-1", 300, 1000), [1, 4, 3]);
        assert_eq!(ids(&recent, "BP-1", 0, 25), [1, 4]);
        assert_eq!(ids(&recent, "BP-1", 0, 79), [1, 4, 3], "a large replica that does not fit does not exclude others");
        recent.forget(&key("BP-1", 4));
        assert_eq!(ids(&recent, "BP-1", 0, 1000), [1, 3, 2]);
        assert_eq!(ids(&recent, "BP-2", 0, 1000), [9]);
    }

    #[test]
    fn older_half_is_forgotten_at_limit() {
        let recent = RecentReplicas::default();
        for id in 0..=REMEMBERED_MAX as i64 {
            recent.record(key("BP-1", id), 1, id as u64);
        }
        assert!(recent.uses.lock().len() <= REMEMBERED_MAX / 2 + 1);
        let first = ids(&recent, "BP-1", 0, u64::MAX);
        assert_eq!(first.len(), ANNOUNCED_MAX);
        assert_eq!(first[0], REMEMBERED_MAX as i64);
    }
}
