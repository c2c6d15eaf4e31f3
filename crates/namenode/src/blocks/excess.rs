//! Choice of the replicas to delete when a block has too many.

use std::collections::HashMap;

use hearth_types::{Block, BlockId, DatanodeAdminState};

use super::datanodes::{DatanodeIndex, StorageIndex};
use super::policy::StoragePolicy;
use super::replicas::{Health, Replica};
use super::{BlockMap, Now};

/// A node that has been silent for this many heartbeats loses its replica first.
const TOLERATED_HEARTBEATS: u32 = 4;

impl BlockMap {
    /// Marks good replicas beyond the requested replication as excess and schedules their deletion. Does nothing while
    /// any of the good replicas is uncertain, on a stale storage or a disconnected node, or if too few would be left on
    /// nodes that are not stale: the block is checked again later.
    pub(super) fn trim_excess(&mut self, block: BlockId, now: Now) {
        loop {
            let entry = self.entry(block);
            let counts = entry.counts(&self.nodes);
            if !entry.is_complete() || counts.live <= entry.replication().max(self.settings.min_replication) {
                self.redundancy.postponed.remove(&block);
                return;
            }
            if counts.uncertain > 0 {
                self.redundancy.postponed.insert(block);
                return;
            }
            let candidates: Vec<StorageIndex> = entry
                .replicas()
                .filter(|replica| {
                    replica.health == Health::Live
                        && self.nodes.node_of(replica.storage).admin == DatanodeAdminState::Normal
                })
                .map(|replica| replica.storage)
                .collect();
            let Some(chosen) = self.choose_excess(block, &candidates, now) else { return };
            if !self.is_enough_without(block, chosen, now) {
                self.redundancy.postponed.insert(block);
                return;
            }
            let doomed = self.entry(block).block();
            self.set_health(block, chosen, Health::Excess);
            self.invalidate(chosen, doomed, Some(doomed.length));
        }
    }

    /// Takes back excess replicas whose deletion has not yet been sent to their nodes, because other replicas turned
    /// out to be bad or were lost: an excess replica may be the last good one.
    pub(super) fn rescue_excess(&mut self, block: BlockId) {
        loop {
            let entry = self.entry(block);
            let counts = entry.counts(&self.nodes);
            if !entry.is_complete() || counts.excess == 0 || counts.live >= entry.replication() {
                return;
            }
            let untold = entry.replicas().find(|replica| {
                let node = self.nodes.node_of(replica.storage);
                replica.health == Health::Excess && node.invalidations.contains_key(&block)
            });
            let Some(storage) = untold.map(|replica| replica.storage) else { return };
            let node = self.nodes.storage(storage).node;
            self.nodes.node_mut(node).invalidations.remove(&block);
            self.set_health(block, storage, Health::Live);
        }
    }

    /// Handles a replica that a datanode reports although it was asked to delete it. Either the datanode did not
    /// receive the command, could not delete the replica, or is just about to.
    ///
    /// The command is sent again only while the other replicas are enough. Otherwise the replica counts again: it may
    /// be the last good one. While other replicas are uncertain, nothing changes: counting this replica could make
    /// another one be chosen as excess in its place.
    pub(super) fn excess_is_still_there(&mut self, storage: StorageIndex, block: Block, now: Now) {
        let entry = self.entry(block.id);
        let counts = entry.counts(&self.nodes);
        if counts.live < entry.replication().max(self.settings.min_replication) {
            self.set_health(block.id, storage, Health::Live);
            self.refresh(block.id, now);
        } else if counts.uncertain == 0 {
            self.invalidate(storage, block, Some(block.length));
        }
    }

    /// Returns true if a good replica is certain to be there and to stay: neither its storage nor its node is stale,
    /// and its node is not disconnected, not leaving, and not in maintenance.
    pub(super) fn is_certain(&self, replica: &Replica, now: Now) -> bool {
        let storage = self.nodes.storage(replica.storage);
        let node = self.nodes.node(storage.node);
        let is_heard = !node.disconnected && !node.is_stale(&self.settings, now);
        replica.health == Health::Live && !storage.stale && is_heard && node.admin == DatanodeAdminState::Normal
    }

    /// Returns true if enough certain replicas are left without the one on this storage.
    fn is_enough_without(&self, block: BlockId, excess: StorageIndex, now: Now) -> bool {
        let entry = self.entry(block);
        let is_left = |replica: &Replica| replica.storage != excess && self.is_certain(replica, now);
        let left = entry.replicas().filter(is_left).count();
        left >= usize::from(entry.replication().max(self.settings.min_replication))
    }

    /// Keeps a node's excess replica whose deletion is about to be sent, unless enough other replicas are certain. The
    /// other nodes may have restarted or gone since the replica was chosen, and the deletion cannot be taken back once
    /// it is sent. Returns true if the replica is kept: it counts again, and the block is checked again later.
    pub(super) fn keep_excess_if_needed(&mut self, node: DatanodeIndex, block: BlockId, now: Now) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return false };
        let is_excess =
            |replica: &Replica| replica.health == Health::Excess && self.nodes.storage(replica.storage).node == node;
        let Some(excess) = entry.replicas().find(is_excess) else { return false };
        if self.is_enough_without(block, excess.storage, now) {
            return false;
        }
        self.set_health(block, excess.storage, Health::Live);
        self.refresh(block, now);
        true
    }

    /// Counts the excess replicas of a restarting node again if their deletion was not yet sent, until it is known what
    /// the other nodes still have.
    pub(super) fn keep_untold_excess(&mut self, node: DatanodeIndex, now: Now) {
        let pending: Vec<BlockId> = self.nodes.node(node).invalidations.keys().copied().collect();
        for block in pending {
            let held = self.blocks.get(&block).and_then(|entry| {
                let is_excess = |replica: &Replica| {
                    replica.health == Health::Excess && self.nodes.storage(replica.storage).node == node
                };
                entry.replicas().find(is_excess)
            });
            if let Some(replica) = held {
                self.nodes.node_mut(node).invalidations.remove(&block);
                self.set_health(block, replica.storage, Health::Live);
                self.refresh(block, now);
            }
        }
    }

    /// Chooses the least needed of the `candidates`. `None`: all of them are needed for their media.
    fn choose_excess(&self, block: BlockId, candidates: &[StorageIndex], now: Now) -> Option<StorageIndex> {
        let entry = self.entry(block);
        let policy = StoragePolicy::by_id(entry.policy())
            .or_else(|| StoragePolicy::by_id(self.settings.default_policy))
            .unwrap_or_else(|| StoragePolicy::by_id(7).expect("HOT is built in"));
        // Replicas on media that the policy asks for stay; the remaining ones may go.
        let mut wanted = policy.wanted(usize::from(entry.replication()));
        let mut spare: Vec<StorageIndex> = Vec::new();
        for storage in candidates {
            let medium = self.nodes.storage(*storage).storage_type;
            match wanted.iter().position(|want| *want == medium) {
                Some(met) => {
                    wanted.remove(met);
                }
                None => spare.push(*storage),
            }
        }
        let media: Vec<_> = spare.iter().map(|storage| self.nodes.storage(*storage).storage_type).collect();
        let fitting: Vec<StorageIndex> = candidates
            .iter()
            .copied()
            .filter(|storage| media.contains(&self.nodes.storage(*storage).storage_type))
            .collect();
        let fitting = if fitting.is_empty() { candidates.to_vec() } else { fitting };
        let mut per_rack: HashMap<&str, usize> = HashMap::new();
        for storage in candidates {
            *per_rack.entry(self.nodes.node_of(*storage).rack.as_str()).or_default() += 1;
        }
        let crowded = |storage: &StorageIndex| per_rack[self.nodes.node_of(*storage).rack.as_str()] > 1;
        if let Some(hint) = self.delete_hints.get(&block)
            && let Some(hinted) = fitting.iter().find(|storage| self.nodes.storage(**storage).node == *hint)
            && (crowded(hinted) || per_rack.len() > 2 || !fitting.iter().any(crowded))
        {
            return Some(*hinted);
        }
        let pool: Vec<StorageIndex> = fitting.iter().copied().filter(crowded).collect();
        let pool = if pool.is_empty() { fitting } else { pool };
        let silence = self.settings.heartbeat_interval * TOLERATED_HEARTBEATS;
        let oldest = pool.iter().copied().min_by_key(|storage| self.nodes.node_of(*storage).last_heartbeat)?;
        if now.monotonic.saturating_sub(self.nodes.node_of(oldest).last_heartbeat) > silence {
            return Some(oldest);
        }
        pool.into_iter().min_by_key(|storage| self.nodes.info(self.nodes.storage(*storage).node).remaining)
    }

    /// Deletes corrupt replicas that are no longer needed: either enough good ones exist, or good and corrupt ones
    /// together exceed the replication. Never deletes the last good replica; without a good replica the corrupt ones
    /// stay. Replicas of lost changes stay, too.
    pub(super) fn trim_corrupt(&mut self, block: BlockId) {
        loop {
            let entry = self.entry(block);
            let counts = entry.counts(&self.nodes);
            if !entry.is_complete() || counts.corrupt == 0 || counts.live == 0 {
                return;
            }
            if counts.uncertain > 0 {
                self.redundancy.postponed.insert(block);
                return;
            }
            let minimally = counts.live >= self.settings.min_replication;
            let enough = counts.live >= entry.replication();
            let too_many = minimally && counts.live + counts.corrupt > entry.replication();
            let outdated = |stamp| minimally && stamp < entry.stamp();
            let doomed = entry
                .replicas()
                .filter(|replica| replica.health == Health::Corrupt && !self.is_of_lost_change(entry, replica.stamp))
                .find(|replica| enough || too_many || outdated(replica.stamp));
            let Some(doomed) = doomed else { return };
            let as_reported = Block { stamp: doomed.stamp, ..entry.block() };
            self.forget_replica(block, doomed.storage);
            self.invalidate(doomed.storage, as_reported, Some(as_reported.length));
        }
    }
}
