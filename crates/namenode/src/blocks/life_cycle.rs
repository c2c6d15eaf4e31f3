use std::collections::HashMap;

use hearth_types::{Block, BlockId, GenerationStamp, StorageId};
use tokio::sync::oneshot;

use super::block_info::{BlockAttributes, BlockInfo, BlockRef, Construction, ExpectedReplica, MissingReplica, Phase};
use super::datanodes::StorageIndex;
use super::replicas::Health;
use super::table::BlockTable;
use super::{BlockError, BlockMap, BlockState, Now};

/// Resolves when the block reaches its minimum of finalized replicas, or is gone; the caller must then check again.
pub type ReplicaWait = oneshot::Receiver<()>;

/// Limit of calls that wait for one block; further ones are told at once to try again.
const WAITERS_PER_BLOCK_MAX: usize = 64;

#[derive(Default)]
pub(super) struct ReplicaWaiters(HashMap<BlockId, Vec<oneshot::Sender<()>>>);

impl ReplicaWaiters {
    pub fn wake(&mut self, block: BlockId) {
        for waiting in self.0.remove(&block).into_iter().flatten() {
            // A caller may have given up; that is harmless.
            let _ = waiting.send(());
        }
    }
}

/// Stored blocks that one of several threads has read, before they are added to the map.
#[derive(Default)]
pub struct RestoredBlocks {
    blocks: BlockTable,
    newest_stamp: GenerationStamp,
}

impl RestoredBlocks {
    /// Like [`BlockMap::restore`] for a complete block.
    pub fn add(&mut self, block: Block, inode: u64, replication: u16, policy: u8) {
        self.newest_stamp = self.newest_stamp.max(block.stamp);
        put_complete(&mut self.blocks, block, BlockAttributes::new(block, inode, replication, policy));
    }
}

fn put_complete(blocks: &mut BlockTable, block: Block, attributes: BlockAttributes) {
    let previous = blocks.insert(block.id, BlockInfo::complete(attributes));
    assert!(previous.is_none(), "{} is in the store only once", block.id);
}

impl BlockMap {
    /// Adds blocks read from the store at start.
    pub fn add_restored(&mut self, restored: RestoredBlocks) {
        self.note_stamp(restored.newest_stamp);
        self.blocks.absorb(restored.blocks);
    }

    /// Adds a new block that `targets` are about to receive. Its id has never been used before.
    ///
    /// `policy`: id of the file's storage policy, 0 for none. `targets`: from [`BlockMap::allocate_targets`].
    pub fn begin(&mut self, block: Block, inode: u64, replication: u16, policy: u8, targets: &[StorageIndex]) {
        self.note_stamp(block.stamp);
        let expected = targets.iter().map(|storage| ExpectedReplica::new(*storage, block.stamp)).collect();
        let previous = self.blocks.insert(
            block.id,
            BlockInfo::open(
                BlockAttributes::new(block, inode, replication, policy),
                Construction { expected, ..Construction::default() },
            ),
        );
        assert!(previous.is_none(), "{} was issued twice", block.id);
        self.open.insert(block.id);
    }

    /// Sets the storages that are about to receive an open block for which no storage is known.
    pub fn expect_at(&mut self, block: BlockId, targets: &[StorageIndex]) {
        let stamp = self.block(block).expect("it is an open block").stamp;
        let expected = targets.iter().map(|storage| ExpectedReplica::new(*storage, stamp)).collect();
        self.entry_mut(block).set_construction(Construction { expected, ..Construction::default() });
    }

    /// Adds a block read from the store at start. No replica is known yet.
    ///
    /// `complete`: false for the last block of an open file.
    pub fn restore(&mut self, block: Block, inode: u64, replication: u16, policy: u8, complete: bool) {
        if !complete {
            self.begin(block, inode, replication, policy, &[]);
            let construction = self.entry_mut(block.id).construction_mut().expect("it was begun as an open block");
            construction.is_restored = true;
            return;
        }
        self.note_stamp(block.stamp);
        put_complete(&mut self.blocks, block, BlockAttributes::new(block, inode, replication, policy));
    }

    pub fn state(&self, block: BlockId) -> Option<BlockState> {
        self.blocks.get(&block).map(|entry| entry.state())
    }

    /// The block's present state: its stamp, and its length known so far.
    pub fn block(&self, block: BlockId) -> Option<Block> {
        self.blocks.get(&block).map(|entry| entry.block())
    }

    /// The inode that the block belongs to.
    pub fn inode_of(&self, block: BlockId) -> Option<u64> {
        self.blocks.get(&block).map(|entry| entry.inode())
    }

    /// Sets the open block's length as the writer reports it (fsync). Never shrinks it.
    pub fn set_length(&mut self, block: BlockId, length: u64) -> Result<(), BlockError> {
        let entry = self.blocks.get(&block).ok_or(BlockError::UnknownBlock { block })?;
        if !entry.is_open() {
            return Err(BlockError::NotUnderConstruction { block: entry.block(), state: entry.state() });
        }
        let length = entry.length().max(length);
        self.entry_mut(block).set_length(length);
        Ok(())
    }

    /// Makes `block`'s length and stamp final. The block is COMPLETE at once if enough finalized replicas have been
    /// reported, else COMMITTED until they are. Repeating the call with the same length and stamp changes nothing.
    ///
    /// Errors: `UnknownBlock`; `StampMismatch`; `LengthShrank` if the given length is less than the known one.
    pub fn commit(&mut self, block: Block, now: Now) -> Result<BlockState, BlockError> {
        let entry = self.blocks.get(&block.id).ok_or(BlockError::UnknownBlock { block: block.id })?;
        let stored = entry.block();
        if stored.stamp != block.stamp {
            return Err(BlockError::StampMismatch { stored, offered: block });
        }
        if !entry.is_open() {
            if stored.length != block.length {
                return Err(BlockError::LengthShrank { stored, offered: block, offered_length: block.length });
            }
            return Ok(entry.state());
        }
        if block.length < stored.length {
            return Err(BlockError::LengthShrank { stored, offered: block, offered_length: block.length });
        }
        self.commit_as(block, now);
        Ok(self.entry(block.id).state())
    }

    /// Last step of a commit: the block is open, and `block` is its final identity and length.
    pub(super) fn commit_as(&mut self, block: Block, now: Now) {
        let entry = self.entry_mut(block.id);
        assert!(entry.is_open(), "only an open block is committed");
        entry.set_stamp(block.stamp);
        entry.set_length(block.length);
        let expected = &entry.construction().expect("it is open").expected;
        // Replicas that were reported before the length was final: those that do not match are not copies of this
        // block.
        let unfit: Vec<StorageIndex> = entry
            .replicas()
            .filter(|replica| {
                let said = expected.iter().find(|expected| expected.storage == replica.storage);
                replica.stamp != block.stamp || said.is_some_and(|said| said.length != block.length)
            })
            .map(|replica| replica.storage)
            .collect();
        let construction = entry.construction_mut().expect("it is open");
        construction.recovery = None;
        construction.expected.retain(|expected| expected.stamp == block.stamp && !unfit.contains(&expected.storage));
        construction.is_committed = true;
        for storage in unfit {
            self.set_health(block.id, storage, Health::Corrupt);
        }
        self.complete_if_replicated(block.id, now);
        self.refresh(block.id, now);
    }

    /// Makes a COMMITTED block COMPLETE once `min_replication` finalized replicas are known, and wakes the waiting
    /// calls.
    pub(super) fn complete_if_replicated(&mut self, block: BlockId, now: Now) {
        if !self.is_minimally_replicated(block) {
            return;
        }
        let entry = self.entry_mut(block);
        if entry.phase() != Phase::Committed {
            return;
        }
        let construction = entry.take_construction().expect("just looked");
        let late: Vec<StorageIndex> = construction
            .expected
            .iter()
            .map(|expected| expected.storage)
            .filter(|storage| entry.replica(*storage).is_none())
            .collect();
        self.forget_open(block);
        self.expect_replicas(block, late, now);
        self.refresh(block, now);
        self.replica_waiters.wake(block);
    }

    /// Returns true if at least `dfs.namenode.replication.min` good finalized replicas have been reported.
    pub fn is_minimally_replicated(&self, block: BlockId) -> bool {
        self.blocks.get(&block).is_some_and(|entry| {
            let minimum = self.settings.min_replication.min(entry.replication().max(1));
            entry.counts(&self.nodes).readable() >= minimum
        })
    }

    /// Returns `None` if the block is already COMPLETE or unknown; otherwise a future to await without the lock. The
    /// future fails at once if too many calls already wait for the block.
    pub fn wait_for_replicas(&mut self, block: BlockId) -> Option<ReplicaWait> {
        let entry = self.blocks.get(&block)?;
        if entry.is_complete() {
            return None;
        }
        let waiting = self.replica_waiters.0.entry(block).or_default();
        waiting.retain(|sender| !sender.is_closed());
        let (sender, receiver) = oneshot::channel();
        if waiting.len() < WAITERS_PER_BLOCK_MAX {
            waiting.push(sender);
        }
        Some(receiver)
    }

    /// Reopens a COMPLETE block for append: its replicas become the pipeline. The stamp stays until
    /// [`BlockMap::update_pipeline`].
    pub fn reopen(&mut self, block: BlockId) -> Result<Vec<StorageIndex>, BlockError> {
        let entry = self.blocks.get(&block).ok_or(BlockError::UnknownBlock { block })?;
        if !entry.is_complete() {
            return Err(BlockError::NotComplete { block: entry.block(), state: entry.state() });
        }
        let expected: Vec<ExpectedReplica> = entry
            .replicas()
            .filter(|replica| replica.health == Health::Live && self.nodes.node_of(replica.storage).alive)
            .map(|replica| ExpectedReplica {
                length: entry.length(),
                state: hearth_types::ReplicaState::Finalized,
                ..ExpectedReplica::new(replica.storage, entry.stamp())
            })
            .collect();
        let storages: Vec<StorageIndex> = expected.iter().map(|expected| expected.storage).collect();
        for replica in entry.replicas().map(|replica| replica.storage).collect::<Vec<_>>() {
            self.forget_advertisement(block, replica);
        }
        self.leave_queues(block);
        let entry = self.entry_mut(block);
        entry.set_construction(Construction { expected, ..Construction::default() });
        self.open.insert(block);
        Ok(storages)
    }

    /// Stores the new stamp, length and members of a pipeline that the writer has rebuilt. Replicas of the old stamp
    /// are forgotten (the members that continue report again). A member's earlier report of the new stamp is kept,
    /// because it is not repeated.
    ///
    /// Errors: `NotUnderConstruction`; `OlderState` if the stamp does not rise or the length falls.
    pub fn update_pipeline(
        &mut self,
        old: Block,
        new_stamp: GenerationStamp,
        new_length: u64,
        targets: &[StorageIndex],
    ) -> Result<(), BlockError> {
        let entry = self.blocks.get(&old.id).ok_or(BlockError::UnknownBlock { block: old.id })?;
        if !entry.is_open() {
            return Err(BlockError::NotUnderConstruction { block: entry.block(), state: entry.state() });
        }
        let stored = entry.block();
        if new_stamp <= stored.stamp || new_length < stored.length {
            return Err(BlockError::OlderState {
                old: stored,
                old_length: stored.length,
                new: Block { id: old.id, stamp: new_stamp, length: new_length },
                new_length,
            });
        }
        self.note_stamp(new_stamp);
        let entry = self.entry(old.id);
        let outdated: Vec<StorageIndex> =
            entry.replicas().filter(|replica| replica.stamp < new_stamp).map(|replica| replica.storage).collect();
        for storage in outdated {
            self.forget_replica(old.id, storage);
        }
        let entry = self.entry_mut(old.id);
        entry.set_stamp(new_stamp);
        entry.set_length(new_length);
        let said = |storage: StorageIndex| {
            let said = entry.construction()?.expected.iter();
            said.copied().find(|said| said.storage == storage && said.stamp == new_stamp)
        };
        let expected =
            targets.iter().map(|storage| said(*storage).unwrap_or(ExpectedReplica::new(*storage, new_stamp))).collect();
        let is_restored = entry.construction().is_some_and(|construction| construction.is_restored);
        entry.set_construction(Construction { expected, is_restored, ..Construction::default() });
        Ok(())
    }

    /// Records pipeline members of an open block on storages that the map does not know, as after a restart. Until
    /// these storages come, and are expected like the others, they may have acknowledged bytes.
    pub fn expect_unknown(&mut self, block: BlockId, storages: Vec<StorageId>) {
        let Some(entry) = self.blocks.get_mut(&block) else { return };
        let (stamp, length) = (entry.stamp(), entry.length());
        let Some(construction) = entry.construction_mut() else { return };
        for storage in storages {
            construction.add_missing(MissingReplica { storage, stamp, length });
            self.with_missing.insert(block);
        }
    }

    /// Returns the pipeline's members in order: for LocatedBlocks of the writer, and for getAdditionalDatanode's
    /// retries.
    pub fn expected_storages(&self, block: BlockId) -> Vec<StorageIndex> {
        self.blocks
            .get(&block)
            .and_then(|known| known.entry.construction())
            .map(|construction| construction.expected.iter().map(|expected| expected.storage).collect())
            .unwrap_or_default()
    }

    /// Returns true if, as far as is known, an open block was never written: no datanode has reported a byte, and none
    /// holds it, expects it, or expected it on a storage that has been lost.
    pub fn is_lost_and_empty(&self, block: BlockId, now: Now) -> bool {
        self.blocks.get(&block).is_none_or(|entry| entry.length() == 0) && self.has_no_holder(block, now)
    }

    /// Returns true if no datanode holds an open block, expects it, or expected it on a storage that has been lost. Its
    /// bytes are then lost. A block to be truncated waits for a holder, because its bytes belonged to a closed file.
    pub fn has_no_holder(&self, block: BlockId, now: Now) -> bool {
        let Some(entry) = self.blocks.get(&block) else { return true };
        let Some(construction) = entry.construction() else { return false };
        construction.expected.is_empty()
            && construction.missing.is_empty()
            && construction.truncate_to.is_none()
            && entry.replicas().next().is_none()
            && self.all_have_reported(construction, now)
    }

    /// Returns true if all holders of an open block are known. After a restart that is so once all earlier storages
    /// have reported, or once the time has passed after which a silent datanode counts as dead.
    pub(super) fn all_have_reported(&self, construction: &Construction, now: Now) -> bool {
        let is_late = now.monotonic.saturating_sub(self.restored) > self.settings.dead_after();
        (!construction.is_restored || is_late || self.storages.have_all_reported()) && !self.in_safe_mode()
    }

    /// Applies a changed replication of the file: schedules copies or deletions.
    pub fn set_replication(&mut self, block: BlockId, replication: u16, now: Now) {
        self.leave_queue(block);
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.set_replication(replication);
            self.refresh(block, now);
        }
    }

    /// The storage policy by which a block's copies are placed; 0 if none is set.
    pub fn policy(&self, block: BlockId) -> Option<u8> {
        Some(self.blocks.get(&block)?.policy())
    }

    /// Applies a changed storage policy of the file, for copies made from now on.
    pub fn set_policy(&mut self, block: BlockId, policy: u8) {
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.set_policy(policy);
        }
    }

    /// Moves the block to another inode (concat).
    pub fn set_inode(&mut self, block: BlockId, inode: u64) {
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.set_inode(inode);
        }
    }

    /// Removes a block that is no longer part of any file (delete, overwrite, abandon): every datanode that has it or
    /// was to receive it is asked to delete it. An unknown block is no error.
    pub fn remove(&mut self, block: BlockId) {
        self.leave_queues(block);
        let Some(entry) = self.blocks.remove(&block) else { return };
        self.forget_open(block);
        self.forget_safe(&entry);
        let mut holders: Vec<(StorageIndex, GenerationStamp)> =
            entry.replicas().map(|replica| (replica.storage, replica.stamp)).collect();
        for expected in entry.construction().map(|construction| construction.expected.as_slice()).unwrap_or_default() {
            if !holders.iter().any(|(storage, _)| *storage == expected.storage) {
                holders.push((expected.storage, entry.stamp()));
            }
        }
        for (storage, stamp) in holders {
            self.nodes.storage_mut(storage).blocks.remove(block);
            self.forget_advertisement(block, storage);
            self.invalidate(storage, Block { id: block, stamp, length: entry.length() }, None);
        }
        self.replica_waiters.wake(block);
    }

    /// Abandons the writer's last block, because the writer gives it up or a target failed. Same as
    /// [`BlockMap::remove`].
    pub fn abandon(&mut self, block: BlockId) {
        self.remove(block);
    }

    /// Records that a block is not open any more.
    pub(super) fn forget_open(&mut self, block: BlockId) {
        self.open.remove(&block);
        self.with_missing.remove(&block);
    }

    pub(super) fn entry(&self, block: BlockId) -> BlockRef<'_> {
        self.blocks.get(&block).expect("the caller has just seen the block")
    }

    pub(super) fn entry_mut(&mut self, block: BlockId) -> &mut BlockInfo {
        self.blocks.get_mut(&block).expect("the caller has just seen the block")
    }
}
