//! Agreement on the length of a block whose writer is gone. One datanode, the primary, asks the others, cuts all replicas to
//! one length under a new stamp, and reports with commitBlockSynchronization.

use hearth_types::{Block, BlockId, ExtendedBlock, GenerationStamp, ReplicaState};

use super::datanodes::{DatanodeIndex, StorageIndex};
use super::entry::{Expected, Known, Recovery};
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

/// What it means that a primary found no byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// None was ever acknowledged.
    Empty,
    /// All of the pipeline was asked, and some had told of bytes before, `length` of them: they are gone.
    Lost { length: u64 },
    /// Somebody who could not be asked may have some.
    Unknown,
}

impl BlockMap {
    /// Whether a (further) attempt may be made: there is none running, or it is older than 30 heartbeats, or its primary has died or
    /// started anew, or nobody was there to lead it and now somebody is. Ask before taking a new stamp for it.
    pub fn may_recover(&self, block: BlockId, now: Now) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return false };
        let Some(construction) = entry.construction() else { return false };
        let Some(recovery) = &construction.recovery else { return entry.is_open() };
        let is_late = now.monotonic.saturating_sub(recovery.attempted) >= self.settings.recovery_retry();
        // What it was doing when it stopped, a primary does not take up again.
        let primary = recovery.primary.and_then(|primary| self.nodes.get(primary));
        let is_led = primary.is_some_and(|node| node.alive && node.registered <= recovery.attempted);
        is_late || (!is_led && self.has_live_holder(entry))
    }

    /// Whether somebody alive has an open block, or what it is to be copied from.
    fn has_live_holder(&self, entry: Known<'_>) -> bool {
        let is_alive = |storage: StorageIndex| self.nodes.node_of(storage).alive;
        let Some(construction) = entry.construction() else { return false };
        match construction.copied_from.and_then(|source| self.blocks.get(&source)) {
            Some(source) => source.replicas().any(|replica| is_alive(replica.storage)),
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
        let expect = |storage| Expected { was_primary: was_primary(storage), ..Expected::new(storage, stamp) };
        construction.expected = holders.into_iter().map(expect).collect();
    }

    /// The block is open. Answers the primary.
    fn begin_recovery(&mut self, block: BlockId, id: GenerationStamp, now: Now) -> Option<DatanodeIndex> {
        self.note_stamp(id);
        self.expect_holders_of_source(block);
        let nodes = &self.nodes;
        let entry = self.blocks.get_mut(&block).expect("the caller has just seen the block");
        let construction = entry.construction_mut().expect("the caller opened the block");
        let candidates = |expected: &Expected| nodes.node_of(expected.storage).alive;
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
        construction.recovery = Some(Recovery { id, attempted: now.monotonic, primary, asked: Vec::new() });
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
        let mut tasks = Vec::with_capacity(queued.len());
        for block in queued {
            let Some((task, asked)) = self.recovery_task(block, now) else { continue };
            let construction = self.entry_mut(block).construction_mut();
            if let Some(recovery) = construction.and_then(|construction| construction.recovery.as_mut()) {
                recovery.asked = asked;
            }
            tasks.push(task);
        }
        tasks
    }

    /// The task, and which of the places in it have been heard of lately.
    fn recovery_task(&self, block: BlockId, now: Now) -> Option<(RecoveryTask, Vec<StorageIndex>)> {
        let entry = self.blocks.get(&block)?;
        let construction = entry.construction().filter(|construction| !construction.is_committed)?;
        let recovery = construction.recovery.as_ref()?;
        let holders = || construction.expected.iter().map(|expected| expected.storage);
        // Nodes that have been silent only hold the primary up, unless there is hardly anyone else.
        let fresh: Vec<StorageIndex> = holders()
            .filter(|storage| {
                let node = self.nodes.node_of(*storage);
                node.alive && !node.is_stale(&self.settings, now)
            })
            .collect();
        let storages: Vec<StorageIndex> = if fresh.len() > 1 { fresh.clone() } else { holders().collect() };
        let source = match construction.copied_from {
            Some(source) => self.blocks.get(&source)?.block(),
            None => entry.block(),
        };
        let task = RecoveryTask {
            block: ExtendedBlock { pool: self.pool.clone(), block: source },
            locations: storages.into_iter().map(|storage| self.target(storage)).collect(),
            recovery_id: recovery.id,
            truncate: construction.truncate_to.map(|length| Block { id: block, stamp: recovery.id, length }),
        };
        Some((task, fresh))
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

    /// What it means that a primary has found no byte of an open block. A node that was not asked may have some, and others may
    /// have lost them: only an empty replica shows then that no byte was ever acknowledged, since an acknowledged one is on all of
    /// the pipeline. (Apache's takes the primary's word.)
    pub fn judge_absence(&self, block: BlockId) -> Absence {
        let Some(entry) = self.blocks.get(&block) else { return Absence::Empty };
        let Some(construction) = entry.construction() else { return Absence::Unknown };
        let Some(recovery) = &construction.recovery else { return Absence::Unknown };
        let expected = &construction.expected;
        let was_asked = |expected: &Expected| {
            let node = self.nodes.node_of(expected.storage);
            recovery.asked.contains(&expected.storage) && node.alive && node.registered <= recovery.attempted
        };
        // One that its datanode found empty when it started may have been more before the machine went down.
        let shows = |expected: &Expected| {
            expected.is_reported
                && expected.length == 0
                && expected.state == ReplicaState::BeingWritten
                && was_asked(expected)
        };
        if entry.length() == 0 && expected.iter().any(shows) {
            return Absence::Empty;
        }
        if expected.is_empty() || !expected.iter().all(was_asked) || construction.truncate_to.is_some() {
            return Absence::Unknown;
        }
        let told = expected.iter().map(|expected| expected.length).fold(entry.length(), u64::max);
        match told {
            0 => Absence::Empty,
            length => Absence::Lost { length },
        }
    }

    /// Nobody has the open block any more: it is COMPLETE with `length` bytes, and missing.
    pub fn give_up(&mut self, block: BlockId, length: u64, now: Now) {
        let Some(entry) = self.blocks.get_mut(&block).filter(|entry| entry.is_open()) else { return };
        entry.set_length(length);
        drop(entry.take_construction());
        self.open.remove(&block);
        self.refresh(block, now);
        self.waits.wake(block);
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
            .map(|storage| Expected { length, state: ReplicaState::Finalized, ..Expected::new(*storage, recovery_id) })
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
