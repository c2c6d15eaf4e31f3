//! Block recovery: agreement on the length of a block whose writer is gone. One datanode, the primary, asks the other
//! holders, truncates all replicas to one length under a new stamp, and reports with commitBlockSynchronization.

use hearth_types::{Block, BlockId, ExtendedBlock, GenerationStamp, ReplicaState};

use super::block_info::{BlockRecovery, BlockRef, Construction, ExpectedReplica};
use super::datanodes::{DatanodeIndex, StorageIndex};
use super::locate::Target;
use super::replicas::Health;
use super::{BlockError, BlockMap, BlockState, Now};

/// Task of a primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryTask {
    /// The block as it is now; for a copy of a block in a snapshot, that block.
    pub block: ExtendedBlock,
    pub locations: Vec<Target>,
    /// The stamp that the block will get.
    pub recovery_id: GenerationStamp,
    /// For a truncation: the block as it will be.
    pub truncate: Option<Block>,
}

/// Conclusion from a primary's finding that a block has no bytes, or fewer than were reported before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingBytes {
    /// No bytes beyond those found were ever acknowledged.
    Empty,
    /// All pipeline members have lost bytes; `length` bytes had been reported before.
    Lost { length: u64 },
    /// A replica that was not seen may have some.
    Unknown,
}

/// Returns the number of bytes that the recovery of an open block must keep: those reported by its writer, unless it
/// shall be truncated.
fn length_to_keep(entry: BlockRef<'_>) -> u64 {
    let is_cut = entry.construction().is_some_and(|construction| construction.truncate_to.is_some());
    if is_cut { 0 } else { entry.length() }
}

impl BlockMap {
    /// Returns true if a (further) recovery attempt may start. It may if there has been none. Otherwise a live holder
    /// must exist, and the last attempt must be older than 30 heartbeats, or have no primary, or its primary must have
    /// died or restarted. To be checked before a new stamp is issued for the attempt.
    pub fn may_recover(&self, block: BlockId, now: Now) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return false };
        let Some(construction) = entry.construction() else { return false };
        let Some(recovery) = &construction.recovery else { return entry.is_open() };
        let is_late = now.monotonic.saturating_sub(recovery.attempted) >= self.settings.recovery_retry();
        // A restarted primary does not resume its recovery.
        let primary = recovery.primary.and_then(|primary| self.nodes.get(primary));
        let is_led = primary.is_some_and(|node| node.alive && node.registered <= recovery.attempted);
        (is_late || !is_led) && self.has_live_holder(entry)
    }

    /// Returns true if a live node holds an open block, or the block that it is to be copied from.
    fn has_live_holder(&self, entry: BlockRef<'_>) -> bool {
        let is_alive = |storage: StorageIndex| self.nodes.node_of(storage).alive;
        let Some(construction) = entry.construction() else { return false };
        match construction.copied_from.and_then(|source| self.blocks.get(&source)) {
            Some(source) => {
                source.replicas().any(|replica| replica.health == Health::Live && is_alive(replica.storage))
            }
            None => construction.expected.iter().any(|expected| is_alive(expected.storage)),
        }
    }

    /// Begins the recovery of an open block. The primary gets its command with its next heartbeat.
    ///
    /// `recovery_id`: a fresh stamp. Returns the index of the primary; `None` if no live datanode is known to have a
    /// replica: the recovery remains pending and is retried later.
    pub fn start_recovery(
        &mut self,
        block: BlockId,
        recovery_id: GenerationStamp,
        now: Now,
    ) -> Result<Option<DatanodeIndex>, BlockError> {
        let entry = self.blocks.get(&block).ok_or(BlockError::UnknownBlock { block })?;
        if !entry.is_open() {
            return Err(BlockError::NotUnderConstruction { block: entry.block(), state: entry.state() });
        }
        Ok(self.begin_recovery(block, recovery_id, now))
    }

    /// Reopens a COMPLETE block, to be cut to `length` bytes under the stamp `recovery_id` (truncate in place).
    pub fn start_truncation(
        &mut self,
        block: BlockId,
        recovery_id: GenerationStamp,
        length: u64,
        now: Now,
    ) -> Result<Option<DatanodeIndex>, BlockError> {
        self.reopen(block)?;
        self.restore_truncation(block, length, None);
        Ok(self.begin_recovery(block, recovery_id, now))
    }

    /// Adds the new block `cut`, which shall become a copy of the first bytes of the COMPLETE block `source` (truncate
    /// of a block in a snapshot). Its stamp is that of the first attempt.
    pub fn start_copying(
        &mut self,
        source: BlockId,
        cut: Block,
        now: Now,
    ) -> Result<Option<DatanodeIndex>, BlockError> {
        let entry = self.blocks.get(&source).ok_or(BlockError::UnknownBlock { block: source })?;
        if !entry.is_complete() {
            return Err(BlockError::NotComplete { block: entry.block(), state: entry.state() });
        }
        let (inode, replication, policy) = (entry.inode(), entry.replication(), entry.policy());
        self.begin(cut, inode, replication, policy, &[]);
        self.restore_truncation(cut.id, cut.length, Some(source));
        Ok(self.begin_recovery(cut.id, cut.stamp, now))
    }

    /// Restores an interrupted truncation of an open block after a restart: its recovery shall cut it to `length`
    /// bytes, or copy that many bytes from another block.
    pub fn restore_truncation(&mut self, block: BlockId, length: u64, copied_from: Option<BlockId>) {
        if let Some(construction) = self.blocks.get_mut(&block).and_then(|entry| entry.construction_mut()) {
            construction.truncate_to = Some(length);
            construction.copied_from = copied_from;
        }
    }

    /// The block that an open block shall be copied from.
    pub fn copied_from(&self, block: BlockId) -> Option<BlockId> {
        self.blocks.get(&block)?.construction()?.copied_from
    }

    /// Makes the present holders of the source block the expected holders, because only they can make the copy.
    fn expect_holders_of_source(&mut self, block: BlockId) {
        let Some(source) = self.copied_from(block).and_then(|source| self.blocks.get(&source)) else { return };
        let holders: Vec<StorageIndex> = source
            .replicas()
            .filter(|replica| replica.health == Health::Live && self.nodes.node_of(replica.storage).alive)
            .map(|replica| replica.storage)
            .collect();
        let entry = self.entry_mut(block);
        let stamp = entry.stamp();
        let Some(construction) = entry.construction_mut() else { return };
        let before = std::mem::take(&mut construction.expected);
        let was_primary = |storage| before.iter().any(|other| other.storage == storage && other.was_primary);
        let expect =
            |storage| ExpectedReplica { was_primary: was_primary(storage), ..ExpectedReplica::new(storage, stamp) };
        construction.expected = holders.into_iter().map(expect).collect();
    }

    /// Begins a recovery. The block is open. Returns the primary.
    fn begin_recovery(&mut self, block: BlockId, id: GenerationStamp, now: Now) -> Option<DatanodeIndex> {
        self.note_stamp(id);
        self.expect_holders_of_source(block);
        let nodes = &self.nodes;
        let entry = self.blocks.get_mut(&block).expect("the caller has just seen the block");
        let construction = entry.construction_mut().expect("the caller opened the block");
        let candidates = |expected: &ExpectedReplica| nodes.node_of(expected.storage).alive;
        if construction.expected.iter().filter(|expected| candidates(expected)).all(|expected| expected.was_primary) {
            construction.expected.iter_mut().for_each(|expected| expected.was_primary = false);
        }
        let primary = construction
            .expected
            .iter_mut()
            .filter(|expected| !expected.was_primary && nodes.node_of(expected.storage).alive)
            .max_by_key(|expected| {
                let node = nodes.node_of(expected.storage);
                (!node.disconnected, node.last_heartbeat)
            });
        let primary = primary.map(|expected| {
            expected.was_primary = true;
            nodes.storage(expected.storage).node
        });
        let led_since = construction.recovery.as_ref().and_then(|recovery| recovery.led_since);
        let led_since = led_since.or(primary.map(|_| now.monotonic));
        construction.recovery = Some(BlockRecovery { id, attempted: now.monotonic, primary, led_since });
        let index = primary?;
        let node = self.nodes.node_mut(index);
        if !node.recoveries.contains(&block) {
            node.recoveries.push_back(block);
            node.wake();
        }
        Some(index)
    }

    /// Returns the recoveries that this node shall lead now.
    pub(super) fn take_recoveries(&mut self, index: DatanodeIndex, now: Now) -> Vec<RecoveryTask> {
        let queued: Vec<BlockId> = self.nodes.node_mut(index).recoveries.drain(..).collect();
        queued.into_iter().filter_map(|block| self.recovery_task(block, now)).collect()
    }

    fn recovery_task(&self, block: BlockId, now: Now) -> Option<RecoveryTask> {
        let entry = self.blocks.get(&block)?;
        let construction = entry.construction().filter(|construction| !construction.is_committed)?;
        let recovery = construction.recovery.as_ref()?;
        let asked = self.recovery_participants(construction, length_to_keep(entry), now);
        let source = match construction.copied_from {
            Some(source) => self.blocks.get(&source)?.block(),
            None => entry.block(),
        };
        Some(RecoveryTask {
            block: ExtendedBlock { pool: self.pool.clone(), block: source },
            locations: asked.into_iter().map(|storage| self.target(storage)).collect(),
            recovery_id: recovery.id,
            truncate: construction.truncate_to.map(|length| Block { id: block, stamp: recovery.id, length }),
        })
    }

    /// Returns the storages that a primary shall ask about an open block of which the recovery must keep `length`
    /// bytes.
    fn recovery_participants(&self, construction: &Construction, length: u64, now: Now) -> Vec<StorageIndex> {
        let is_fresh = |expected: &ExpectedReplica| {
            let node = self.nodes.node_of(expected.storage);
            node.alive && !node.is_stale(&self.settings, now)
        };
        let is_whole =
            |expected: &ExpectedReplica| is_fresh(expected) && !expected.is_unconfirmed && !expected.is_short(length);
        let has_run =
            |expected: &ExpectedReplica| is_whole(expected) && expected.state != ReplicaState::WaitingToBeRecovered;
        let mut asked: Vec<&ExpectedReplica> = construction.expected.iter().collect();
        // Replicas that are known to be shorter would make the primary cut the longer ones: a rejected attempt has
        // finalized the shorter ones, and a finalized replica takes precedence over one being written. While longer
        // replicas are waited for, a confirmed long replica on any live node excludes the short ones; after that, only
        // one on the primary itself.
        let waits = self.waits_for_more(construction, now);
        let primary = construction.recovery.as_ref().and_then(|recovery| recovery.primary);
        let leads = |expected: &ExpectedReplica| primary == Some(self.nodes.storage(expected.storage).node);
        if asked.iter().any(|expected| is_whole(expected) && (waits || leads(expected))) {
            asked.retain(|expected| !expected.is_short(length));
        }
        // Silent nodes only delay the primary. They are left out unless fewer than two other nodes remain, or all other
        // nodes have restarted since: then only the silent nodes still have the bytes that the others had not written
        // to disk.
        let fresh = asked.iter().filter(|expected| is_fresh(expected)).count();
        if fresh > 1 && asked.iter().any(|expected| has_run(expected)) {
            asked.retain(|expected| is_fresh(expected));
        }
        asked.into_iter().map(|expected| expected.storage).collect()
    }

    /// Returns true while nodes that may have more of an open block than a primary found still have time to come back.
    /// They have as much time as after a restart, from the first attempt on: the recovery must end even if they never
    /// come back.
    fn waits_for_more(&self, construction: &Construction, now: Now) -> bool {
        let led_since = construction.recovery.as_ref().and_then(|recovery| recovery.led_since);
        led_since.is_none_or(|since| now.monotonic.saturating_sub(since) <= self.settings.dead_after())
    }

    /// Checks that a primary's result belongs to the current attempt.
    ///
    /// Errors: `UnknownBlock`; `NotUnderRecovery` if the block is not open; `RecoveryMismatch` if a newer attempt is
    /// running.
    pub fn check_recovery(&self, block: BlockId, recovery_id: GenerationStamp) -> Result<(), BlockError> {
        let entry = self.blocks.get(&block).ok_or(BlockError::UnknownBlock { block })?;
        let construction = entry.construction().filter(|construction| !construction.is_committed);
        let Some(recovery) = construction.and_then(|construction| construction.recovery.as_ref()) else {
            return Err(BlockError::NotUnderRecovery { block: entry.block() });
        };
        if recovery.id != recovery_id {
            return Err(BlockError::RecoveryMismatch {
                block: entry.block(),
                current: recovery.id,
                offered: recovery_id,
            });
        }
        Ok(())
    }

    /// Classifies a primary's finding that an open block has no bytes. (Apache's namenode accepts the finding as it
    /// is.) Acknowledged bytes are on all pipeline members. So the block was empty if the primary, which is certainly
    /// among the asked, has run since the block began and has no replica. If all members have restarted since, and
    /// reported without the replica, they have lost its bytes. Any other node that may have bytes, and perhaps could
    /// not be asked, will lead another attempt; so will a storage whose disk has failed, once it is back.
    pub fn classify_missing_bytes(&self, block: BlockId, now: Now) -> MissingBytes {
        let Some(entry) = self.blocks.get(&block) else { return MissingBytes::Empty };
        let Some(construction) = entry.construction() else { return MissingBytes::Unknown };
        let Some(recovery) = &construction.recovery else { return MissingBytes::Unknown };
        let expected = &construction.expected;
        let leads = |expected: &ExpectedReplica| {
            let storage = self.nodes.storage(expected.storage);
            let node = self.nodes.node(storage.node);
            recovery.primary == Some(storage.node) && node.alive && node.registered <= recovery.attempted
        };
        let told = entry.length().max(construction.reported_length_max());
        if told == 0 && expected.iter().any(|expected| leads(expected) && !expected.is_unconfirmed) {
            return MissingBytes::Empty;
        }
        let have_lost = self.all_have_reported_and(construction, now, |expected| expected.is_unconfirmed);
        if expected.is_empty() || !have_lost || construction.truncate_to.is_some() {
            return MissingBytes::Unknown;
        }
        match told {
            0 => MissingBytes::Empty,
            length => MissingBytes::Lost { length },
        }
    }

    /// Classifies a primary's result of `length` bytes on `holders` if the writer has reported more bytes. (Apache's
    /// namenode accepts the result as the block's length.) All pipeline members had the reported bytes; machines that
    /// crashed kept only what was on their disks. Other nodes that may have the bytes are waited for, but not forever.
    pub fn classify_missing_tail(
        &self,
        block: BlockId,
        length: u64,
        holders: &[StorageIndex],
        now: Now,
    ) -> MissingBytes {
        let Some(entry) = self.blocks.get(&block) else { return MissingBytes::Empty };
        let Some(construction) = entry.construction() else { return MissingBytes::Empty };
        let told = length_to_keep(entry);
        if length >= told {
            return MissingBytes::Empty;
        }
        let has_less = |expected: &ExpectedReplica| {
            expected.is_unconfirmed || expected.is_short(told) || holders.contains(&expected.storage)
        };
        if !self.all_have_reported_and(construction, now, has_less) && self.waits_for_more(construction, now) {
            return MissingBytes::Unknown;
        }
        MissingBytes::Lost { length: told }
    }

    /// Returns true if all expected holders of an open block are known and alive, have reported since they started, and
    /// satisfy `what`.
    fn all_have_reported_and(
        &self,
        construction: &Construction,
        now: Now,
        what: impl Fn(&ExpectedReplica) -> bool,
    ) -> bool {
        let has_said = |expected: &ExpectedReplica| {
            let node = self.nodes.storage(expected.storage).node;
            self.nodes.node(node).alive && self.nodes.has_reported(node) && what(expected)
        };
        construction.missing.is_empty()
            && self.all_have_reported(construction, now)
            && construction.expected.iter().all(has_said)
    }

    /// Returns true if all expected holders of a COMMITTED block have reported since they started, and none has it.
    pub fn is_committed_and_lost(&self, block: BlockId, now: Now) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return false };
        let Some(construction) = entry.construction().filter(|construction| construction.is_committed) else {
            return false;
        };
        entry.replicas().next().is_none()
            && self.all_have_reported_and(construction, now, |expected| expected.is_unconfirmed)
    }

    /// Gives up an open or COMMITTED block that no node has any more: it becomes COMPLETE with `length` bytes, and
    /// missing.
    pub fn give_up(&mut self, block: BlockId, length: u64, now: Now) {
        let Some(entry) = self.blocks.get_mut(&block).filter(|entry| entry.construction().is_some()) else { return };
        entry.set_length(length);
        drop(entry.take_construction());
        self.forget_open(block);
        self.refresh(block, now);
        self.replica_waiters.wake(block);
    }

    /// Applies the recovery's result: `length` bytes under the stamp `recovery_id`, on `holders`. The block is then
    /// COMMITTED, or COMPLETE with enough holders.
    ///
    /// Errors: as [`BlockMap::check_recovery`].
    pub fn finish_recovery(
        &mut self,
        block: BlockId,
        recovery_id: GenerationStamp,
        length: u64,
        holders: &[StorageIndex],
        now: Now,
    ) -> Result<BlockState, BlockError> {
        self.check_recovery(block, recovery_id)?;
        let result = Block { id: block, stamp: recovery_id, length };
        let outdated: Vec<StorageIndex> = self
            .entry(block)
            .replicas()
            .filter(|replica| replica.stamp != recovery_id || !holders.contains(&replica.storage))
            .map(|replica| replica.storage)
            .collect();
        for storage in outdated {
            self.forget_replica(block, storage);
        }
        let construction =
            self.entry_mut(block).construction_mut().expect("check_recovery has checked that the block is open");
        construction.recovery = None;
        construction.copied_from = None;
        construction.expected = holders
            .iter()
            .map(|storage| ExpectedReplica {
                length,
                state: ReplicaState::Finalized,
                ..ExpectedReplica::new(*storage, recovery_id)
            })
            .collect();
        for storage in holders {
            if self.nodes.node_of(*storage).alive {
                self.book_replica(block, *storage, recovery_id, Health::Live);
            }
        }
        self.commit_as(result, now);
        Ok(self.entry(block).state())
    }
}
