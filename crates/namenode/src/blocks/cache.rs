//! Replicas that datanodes keep locked in memory (Hadoop's centralized cache): the wanted blocks, the nodes' reports,
//! and the commands that make the nodes follow.
//!
//! [`crate::caching`] decides which blocks are wanted. This module assigns nodes to each wanted block, among those that
//! hold a good replica and have room, and releases each cached block that is no longer wanted. Source: Apache's
//! CacheReplicationMonitor.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use hearth_types::{BlockId, DatanodeId};

use super::datanodes::DatanodeIndex;
use super::replicas::Health;
use super::reports::ReportError;
use super::{BlockMap, Now};

/// Blocks that a datanode has locked, and those that it shall lock or release.
#[derive(Default)]
pub(super) struct DatanodeCache {
    /// As last reported.
    pub cached: BTreeSet<BlockId>,
    /// To be locked, and not reported yet.
    pending: BTreeSet<BlockId>,
    /// Reported, and to be released.
    pending_uncached: BTreeSet<BlockId>,
    /// Bytes that the node can lock in addition to `pending`. Valid only while the cache is scheduled.
    room: i128,
    /// Time of the next command for both: at once after a change, again after an interval if the node has not followed.
    command_due: Option<Duration>,
}

/// Number of replicas to lock per block; at least 1.
pub type WantedCopies = HashMap<BlockId, u16>;

/// The nodes of one block.
#[derive(Default)]
struct CacheReplicas {
    cached: Vec<DatanodeIndex>,
    pending: Vec<DatanodeIndex>,
    pending_uncached: Vec<DatanodeIndex>,
}

impl BlockMap {
    /// Takes in the list of blocks that a datanode has locked. The next round releases blocks that are unknown or not
    /// wanted.
    ///
    /// Errors: the node is not registered.
    pub fn cache_report(&mut self, datanode: &DatanodeId, blocks: &[BlockId]) -> Result<(), ReportError> {
        let index = self.find_live(datanode)?;
        let cache = &mut self.nodes.node_mut(index).cache;
        cache.cached = blocks.iter().copied().collect();
        cache.pending.retain(|block| !cache.cached.contains(block));
        cache.pending_uncached.retain(|block| cache.cached.contains(block));
        Ok(())
    }

    /// Returns the number of locked replicas per block; blocks without one are left out.
    pub fn cached_copies(&self) -> HashMap<BlockId, u16> {
        let mut copies = HashMap::new();
        for block in self.nodes.iter().flat_map(|(_, node)| &node.cache.cached) {
            *copies.entry(*block).or_default() += 1;
        }
        copies
    }

    /// Returns true if any node has a block locked or shall lock one.
    pub fn caches_anything(&self) -> bool {
        self.nodes.iter().any(|(_, node)| !node.cache.cached.is_empty() || !node.cache.pending.is_empty())
    }

    /// Chooses nodes for the `wanted` blocks and releases all others.
    pub fn schedule_caching(&mut self, wanted: &WantedCopies, now: Now) {
        self.cancel_pending_over_capacity();
        self.count_room();
        let mut blocks: BTreeMap<BlockId, CacheReplicas> = BTreeMap::new();
        for (index, node) in self.nodes.iter() {
            for block in &node.cache.cached {
                blocks.entry(*block).or_default().cached.push(index);
            }
            for block in &node.cache.pending {
                blocks.entry(*block).or_default().pending.push(index);
            }
            for block in &node.cache.pending_uncached {
                blocks.entry(*block).or_default().pending_uncached.push(index);
            }
        }
        for block in wanted.keys() {
            blocks.entry(*block).or_default();
        }
        for (block, copies) in blocks {
            let complete = self.blocks.get(&block).is_some_and(|entry| entry.is_complete());
            let needed = if complete { wanted.get(&block).map_or(0, |count| usize::from(*count)) } else { 0 };
            self.schedule_block_caching(block, needed, copies, now);
        }
        for index in self.nodes.indices() {
            let cache = &mut self.nodes.node_mut(index).cache;
            if !cache.pending.is_empty() || !cache.pending_uncached.is_empty() {
                cache.command_due = Some(now.monotonic);
            }
        }
    }

    fn schedule_block_caching(&mut self, block: BlockId, needed: usize, mut copies: CacheReplicas, now: Now) {
        let bytes = i128::from(self.bytes_of(block));
        if copies.cached.len() >= needed {
            for node in copies.pending.drain(..) {
                let cache = &mut self.nodes.node_mut(node).cache;
                cache.pending.remove(&block);
                cache.room += bytes;
            }
        }
        if copies.cached.len() < needed {
            for node in copies.pending_uncached.drain(..) {
                let cache = &mut self.nodes.node_mut(node).cache;
                cache.pending_uncached.remove(&block);
                cache.room -= bytes;
            }
        }
        let staying = copies.cached.len() - copies.pending_uncached.len();
        if staying > needed {
            let mut candidates: Vec<_> =
                copies.cached.iter().filter(|node| !copies.pending_uncached.contains(node)).copied().collect();
            self.random.shuffle(&mut candidates);
            for node in candidates.into_iter().take(staying - needed) {
                let cache = &mut self.nodes.node_mut(node).cache;
                cache.pending_uncached.insert(block);
                cache.room += bytes;
            }
        } else {
            let missing = needed.saturating_sub(copies.cached.len() + copies.pending.len());
            for _ in 0..missing {
                let Some(node) = self.choose_cache(block, now) else {
                    tracing::debug!(%block, missing, "no datanode has room to lock the block in memory");
                    break;
                };
                let cache = &mut self.nodes.node_mut(node).cache;
                cache.pending.insert(block);
                cache.room -= bytes;
            }
        }
    }

    /// Chooses one of the in-service nodes that have a good replica and room for it. Nodes that are not stale come
    /// first; emptier nodes are more likely.
    fn choose_cache(&self, block: BlockId, now: Now) -> Option<DatanodeIndex> {
        let entry = self.blocks.get(&block)?;
        let bytes = i128::from(entry.length());
        let live = entry.replicas().filter(|replica| replica.health == Health::Live);
        let mut candidates: Vec<(DatanodeIndex, bool, u64)> = Vec::new();
        for index in live.map(|replica| self.nodes.storage(replica.storage).node) {
            let node = self.nodes.node(index);
            let taken = node.cache.cached.contains(&block) || node.cache.pending.contains(&block);
            if taken || !node.in_service() || node.cache.room < bytes {
                continue;
            }
            let remaining = node.cache_capacity.saturating_sub(node.cache_used);
            // In ten-thousandths.
            let share = (u128::from(remaining) * 10_000 / u128::from(node.cache_capacity.max(1))) as u64;
            candidates.push((index, node.is_stale(&self.settings, now), share.max(1)));
        }
        if candidates.iter().any(|(_, stale, _)| !stale) {
            candidates.retain(|(_, stale, _)| !stale);
        }
        let total: u64 = candidates.iter().map(|(.., weight)| weight).sum();
        let mut ticket = self.random.next() % total.max(1);
        for (index, _, weight) in candidates {
            if ticket < weight {
                return Some(index);
            }
            ticket -= weight;
        }
        None
    }

    /// Counts the room of all nodes in one pass: each block to lock asks several nodes for room, and there may be very
    /// many blocks.
    fn count_room(&mut self) {
        for index in self.nodes.indices() {
            let node = self.nodes.node(index);
            let sum = |blocks: &BTreeSet<BlockId>| -> i128 {
                blocks.iter().map(|block| i128::from(self.bytes_of(*block))).sum()
            };
            let remaining = i128::from(node.cache_capacity.saturating_sub(node.cache_used));
            let room = remaining + sum(&node.cache.pending_uncached) - sum(&node.cache.pending);
            self.nodes.node_mut(index).cache.room = room;
        }
    }

    fn bytes_of(&self, block: BlockId) -> u64 {
        self.blocks.get(&block).map_or(0, |entry| entry.length())
    }

    /// Cancels pending locks of a node that exceed its present capacity.
    fn cancel_pending_over_capacity(&mut self) {
        for index in self.nodes.indices() {
            let node = self.nodes.node(index);
            let mut remaining = node.cache_capacity.saturating_sub(node.cache_used);
            let mut dropped = Vec::new();
            for block in &node.cache.pending {
                let bytes = self.bytes_of(*block);
                match remaining.checked_sub(bytes) {
                    Some(left) => remaining = left,
                    None => dropped.push(*block),
                }
            }
            let cache = &mut self.nodes.node_mut(index).cache;
            for block in dropped {
                cache.pending.remove(&block);
            }
        }
    }

    /// Returns the blocks that a node shall lock and those that it shall release, if a command is due: `(lock,
    /// release)`.
    pub(super) fn cache_work(&mut self, index: DatanodeIndex, now: Now) -> (Vec<BlockId>, Vec<BlockId>) {
        let again = self.settings.cache_retry;
        let cache = &mut self.nodes.node_mut(index).cache;
        if cache.command_due.is_none_or(|at| now.monotonic < at) {
            return Default::default();
        }
        let idle = cache.pending.is_empty() && cache.pending_uncached.is_empty();
        cache.command_due = (!idle).then(|| now.monotonic + again);
        (cache.pending.iter().copied().collect(), cache.pending_uncached.iter().copied().collect())
    }
}
