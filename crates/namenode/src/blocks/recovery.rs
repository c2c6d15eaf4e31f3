//! Agreement on the length of a block whose writer is gone. One datanode, the primary, asks the others, cuts all replicas to
//! one length under a new stamp, and reports with commitBlockSynchronization.

use hearth_types::{Block, BlockId, ExtendedBlock, GenerationStamp, ReplicaState};

use super::block_info::{BlockRecovery, BlockRef, Construction, ExpectedReplica};
use super::datanodes::{DatanodeIndex, StorageIndex};
use super::locate::Target;
use super::replicas::Health;
use super::{BlockError, BlockMap, BlockState, Now};

/// What a primary needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryTask {
    /// The block as it is now; for a copy of a block that a snapshot has, that one.
    pub block: ExtendedBlock,
    pub locations: Vec<Target>,
    /// The stamp that the block will have.
    pub recovery_id: GenerationStamp,
    /// For a truncation: the block as it will be.
    pub truncate: Option<Block>,
}

/// What it means that a primary found no byte, or fewer than there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingBytes {
    /// No other was ever acknowledged.
    Empty,
    /// All of the pipeline have lost others, and `length` bytes had been told of before.
    Lost { length: u64 },
    /// Somebody may have some.
    Unknown,
}

/// Bytes that an open block's recovery has to keep: those that its writer has told of, unless it is to be cut.
fn length_to_keep(entry: BlockRef<'_>) -> u64 {
    let is_cut = entry.construction().is_some_and(|construction| construction.truncate_to.is_some());
    if is_cut { 0 } else { entry.length() }
}

impl BlockMap {
    /// Whether a (further) attempt may be made: there has been none, or somebody is there to lead it, and the last is older than 30
    /// heartbeats, or its primary has died or started anew, or nobody led it. Ask before taking a new stamp for it.
    pub fn may_recover(&self, block: BlockId, now: Now) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return false };
        let Some(construction) = entry.construction() else { return false };
        let Some(recovery) = &construction.recovery else { return entry.is_open() };
        let is_late = now.monotonic.saturating_sub(recovery.attempted) >= self.settings.recovery_retry();
        // What it was doing when it stopped, a primary does not take up again.
        let primary = recovery.primary.and_then(|primary| self.nodes.get(primary));
        let is_led = primary.is_some_and(|node| node.alive && node.registered <= recovery.attempted);
        (is_late || !is_led) && self.has_live_holder(entry)
    }

    /// Whether somebody alive has an open block, or what it is to be copied from.
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
    /// `recovery_id`: a fresh stamp. Answers the primary's place in the table; `None` when no live datanode is known to have a
    /// replica: the recovery stands, and is tried again later.
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

    /// Opens a COMPLETE block and has it cut to `length` bytes under the stamp `recovery_id` (truncate in place).
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

    /// Takes up the new block `cut`, which is to become a copy of the first bytes of the COMPLETE block `source` (truncate of a
    /// block that a snapshot has). Its stamp is that of the first attempt.
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

    /// A restart found the open block in the middle of a truncation: its recovery is to cut it to `length` bytes, or to copy so
    /// many from another block.
    pub fn restore_truncation(&mut self, block: BlockId, length: u64, copied_from: Option<BlockId>) {
        if let Some(construction) = self.blocks.get_mut(&block).and_then(|entry| entry.construction_mut()) {
            construction.truncate_to = Some(length);
            construction.copied_from = copied_from;
        }
    }

    /// The block of which an open block is to become a copy.
    pub fn copied_from(&self, block: BlockId) -> Option<BlockId> {
        self.blocks.get(&block)?.construction()?.copied_from
    }

    /// Who can make the copy is who has the other block now.
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

    /// The block is open. Answers the primary.
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
            .max_by_key(|expected| nodes.node_of(expected.storage).last_heartbeat);
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

    /// The recoveries that this node is to lead now.
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

    /// Who has an open block, of which the recovery is to keep `length` bytes, as far as a primary is to ask them.
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
        // Those that are known to have less would have the others cut: an attempt that was refused has closed them, and what is closed goes
        // before what is being written. When nobody is waited for any more, they are left out only by who may have more, and knows.
        let waits = self.waits_for_more(construction, now);
        let primary = construction.recovery.as_ref().and_then(|recovery| recovery.primary);
        let leads = |expected: &ExpectedReplica| primary == Some(self.nodes.storage(expected.storage).node);
        if asked.iter().any(|expected| is_whole(expected) && (waits || leads(expected))) {
            asked.retain(|expected| !expected.is_short(length));
        }
        // Nodes that have been silent only hold the primary up, unless there is hardly anyone else, or all others have started anew since:
        // what these had not on disk is with the silent ones alone.
        let fresh = asked.iter().filter(|expected| is_fresh(expected)).count();
        if fresh > 1 && asked.iter().any(|expected| has_run(expected)) {
            asked.retain(|expected| is_fresh(expected));
        }
        asked.into_iter().map(|expected| expected.storage).collect()
    }

    /// Whether who may have more of an open block than a primary found has time yet to come back. It has as much as after a restart, from
    /// the first attempt on: the recovery is to end also where it never comes.
    fn waits_for_more(&self, construction: &Construction, now: Now) -> bool {
        let led_since = construction.recovery.as_ref().and_then(|recovery| recovery.led_since);
        led_since.is_none_or(|since| now.monotonic.saturating_sub(since) <= self.settings.dead_after())
    }

    /// Whether a primary's result is the one that is waited for.
    ///
    /// Errors: `UnknownBlock`; `NotUnderRecovery` when the block is not open; `RecoveryMismatch` when a newer attempt is running.
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

    /// What it means that a primary has found no byte of an open block. (Apache's takes its word that there is none.) What is
    /// acknowledged is on all of the pipeline. So it shows that there was nothing when the primary itself, which has surely been
    /// asked, has run since the block began, and has none; and when all have started anew since, and reported without it, they
    /// have lost what there was. Whoever else may have some, and could not be asked perhaps, will lead another attempt: also a
    /// storage whose disk has failed, when it is back.
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

    /// What it means that a primary has brought an open block to `length` bytes on `holders`, and its writer has told of more. (Apache's
    /// takes that for its length.) All of the pipeline had those; machines that went down have left what was on their disks. Whoever
    /// else may have them is waited for, but not for ever.
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

    /// Whether `what` holds of all who were to have an open block: they are known, there, and have reported since they started.
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

    /// Whether all who were to have a COMMITTED block have reported since they started, and none has it.
    pub fn is_committed_and_lost(&self, block: BlockId, now: Now) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return false };
        let Some(construction) = entry.construction().filter(|construction| construction.is_committed) else {
            return false;
        };
        entry.replicas().next().is_none()
            && self.all_have_reported_and(construction, now, |expected| expected.is_unconfirmed)
    }

    /// Nobody has the open or COMMITTED block any more: it is COMPLETE with `length` bytes, and missing.
    pub fn give_up(&mut self, block: BlockId, length: u64, now: Now) {
        let Some(entry) = self.blocks.get_mut(&block).filter(|entry| entry.construction().is_some()) else { return };
        entry.set_length(length);
        drop(entry.take_construction());
        self.open.remove(&block);
        self.refresh(block, now);
        self.replica_waiters.wake(block);
    }

    /// The recovery's result: `length` bytes under the stamp `recovery_id`, on `holders`. The block is then COMMITTED, or
    /// COMPLETE with enough holders.
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
        let construction = self.entry_mut(block).construction_mut().expect("check_recovery saw that it is open");
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
