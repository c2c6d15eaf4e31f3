use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState};

use super::datanodes::{DatanodeIndex, Datanodes, StorageIndex};
use super::replicas::{FEW, Few, Health, Replica};

/// Where a block stands in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    UnderConstruction,
    UnderRecovery,
    /// Length and stamp are final; too few finalized replicas have been reported.
    Committed,
    Complete,
}

impl fmt::Display for BlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnderConstruction => "UNDER_CONSTRUCTION",
            Self::UnderRecovery => "UNDER_RECOVERY",
            Self::Committed => "COMMITTED",
            Self::Complete => "COMPLETE",
        })
    }
}

/// How far a block has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    /// Keeps the pipeline: readers are sent to it until the replicas have reported.
    Committed,
    Complete,
}

/// What the map knows of one block, but for its id. Kept small: there are as many as there are blocks.
pub(super) struct Entry {
    stamp: GenerationStamp,
    /// Bytes: as far as it is known; final once committed.
    length: u64,
    pub inode: u64,
    rare: Option<Box<Rare>>,
    /// All replicas, unless `rare` has them.
    few: Few,
    pub replication: u16,
    /// Id of the storage policy; 0: none named.
    pub policy: u8,
    marks: Marks,
}

/// What few blocks have.
#[derive(Default)]
struct Rare {
    /// Until the block is COMPLETE.
    construction: Option<Construction>,
    /// All replicas, when there are many or one has another stamp than the block.
    replicas: Vec<Replica>,
}

impl Rare {
    fn is_empty(&self) -> bool {
        self.construction.is_none() && self.replicas.is_empty()
    }
}

/// The under-replicated queue in which the block stands, and whether it is safe.
#[derive(Clone, Copy)]
struct Marks(u8);

impl Marks {
    const SAFE: u8 = 0x80;
    const NO_QUEUE: u8 = 0x7f;
}

/// An entry, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub id: BlockId,
    pub entry: &'a Entry,
}

impl Deref for Known<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.entry
    }
}

impl Known<'_> {
    /// Length: as far as it is known; final once committed.
    pub fn block(&self) -> Block {
        Block { id: self.id, stamp: self.stamp, length: self.length }
    }
}

/// A block while it is written: the pipeline and what its members last said.
#[derive(Default)]
pub(super) struct Construction {
    /// Length and stamp are final: only reports are awaited.
    pub is_committed: bool,
    pub expected: Vec<Expected>,
    pub recovery: Option<Recovery>,
    /// Recovery is to cut the block to this length, bytes.
    pub truncate_to: Option<u64>,
    /// The cut is a copy of this block, which stays as it is: a snapshot has it.
    pub copied_from: Option<BlockId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub storage: StorageIndex,
    pub stamp: GenerationStamp,
    /// Bytes, as last reported; 0 before any report.
    pub length: u64,
    pub state: ReplicaState,
    /// Was asked to lead the recovery in this round.
    pub was_primary: bool,
}

impl Expected {
    pub fn new(storage: StorageIndex, stamp: GenerationStamp) -> Self {
        Self { storage, stamp, length: 0, state: ReplicaState::BeingWritten, was_primary: false }
    }
}

/// A running block recovery.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    /// The stamp that the block will have.
    pub id: GenerationStamp,
    /// Monotonic time of the last attempt.
    pub attempted: Duration,
    /// Who was told to lead it; `None` when nobody was there.
    pub primary: Option<DatanodeIndex>,
}

/// The replicas of a block by what they are good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    /// Good and on nodes that stay.
    pub live: u16,
    /// Good, on nodes that are leaving (decommissioning).
    pub decommissioning: u16,
    /// Good, on nodes that have left but still answer.
    pub decommissioned: u16,
    /// Good, on nodes in or entering maintenance.
    pub maintenance: u16,
    /// Those of `maintenance` that nobody is sent to: their nodes may be switched off at any moment, or are.
    pub out_of_reach: u16,
    pub excess: u16,
    pub corrupt: u16,
    /// Good ones whose storage's contents are not sure since the last start.
    pub stale: u16,
}

impl Counts {
    /// Replicas that a reader can use.
    pub fn readable(&self) -> u16 {
        self.live + self.decommissioning + self.decommissioned + (self.maintenance - self.out_of_reach) + self.excess
    }

    /// Live replicas that are enough for a block of which `replication` are asked for. Those in maintenance will be back: while
    /// they are away, `least` live ones do.
    pub fn wanted_live(&self, replication: u16, least: u16) -> u16 {
        replication.saturating_sub(self.maintenance).max(least.min(replication))
    }
}

impl Entry {
    /// An open block without a replica.
    pub fn new(block: Block, inode: u64, replication: u16, policy: u8, construction: Construction) -> Self {
        Self {
            stamp: block.stamp,
            length: block.length,
            inode,
            rare: Some(Box::new(Rare { construction: Some(construction), replicas: Vec::new() })),
            few: Few::default(),
            replication,
            policy,
            marks: Marks(Marks::NO_QUEUE),
        }
    }

    pub fn stamp(&self) -> GenerationStamp {
        self.stamp
    }

    /// Bytes: as far as it is known; final once committed.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn set_length(&mut self, length: u64) {
        self.length = length;
    }

    /// The replicas that are known keep the stamps that they have.
    pub fn set_stamp(&mut self, stamp: GenerationStamp) {
        if self.stamp != stamp && !self.few.is_empty() {
            self.unpack();
        }
        self.stamp = stamp;
        self.pack();
    }

    pub fn phase(&self) -> Phase {
        match self.construction() {
            Some(construction) if construction.is_committed => Phase::Committed,
            Some(_) => Phase::Open,
            None => Phase::Complete,
        }
    }

    pub fn state(&self) -> BlockState {
        match (self.phase(), self.construction()) {
            (Phase::Open, Some(construction)) if construction.recovery.is_some() => BlockState::UnderRecovery,
            (Phase::Open, _) => BlockState::UnderConstruction,
            (Phase::Committed, _) => BlockState::Committed,
            (Phase::Complete, _) => BlockState::Complete,
        }
    }

    pub fn is_open(&self) -> bool {
        self.phase() == Phase::Open
    }

    pub fn is_complete(&self) -> bool {
        self.construction().is_none()
    }

    /// What there is of it until the block is COMPLETE.
    pub fn construction(&self) -> Option<&Construction> {
        self.rare.as_ref()?.construction.as_ref()
    }

    pub fn construction_mut(&mut self) -> Option<&mut Construction> {
        self.rare.as_mut()?.construction.as_mut()
    }

    /// The block is being written, again perhaps, or as `construction` says.
    pub fn set_construction(&mut self, construction: Construction) {
        self.rare.get_or_insert_default().construction = Some(construction);
    }

    /// The block is COMPLETE; answers what there was of its construction.
    pub fn complete(&mut self) -> Option<Construction> {
        let construction = self.rare.as_mut()?.construction.take();
        self.rare.take_if(|rare| rare.is_empty());
        construction
    }

    /// The under-replicated queue in which the block stands.
    pub fn queued(&self) -> Option<u8> {
        Some(self.marks.0 & !Marks::SAFE).filter(|queue| *queue != Marks::NO_QUEUE)
    }

    pub fn set_queued(&mut self, queue: Option<u8>) {
        self.marks.0 = self.marks.0 & Marks::SAFE | queue.unwrap_or(Marks::NO_QUEUE);
    }

    /// Complete, and with enough replicas for safe mode.
    pub fn is_safe(&self) -> bool {
        self.marks.0 & Marks::SAFE != 0
    }

    pub fn set_safe(&mut self, safe: bool) {
        self.marks.0 = self.marks.0 & !Marks::SAFE | if safe { Marks::SAFE } else { 0 };
    }

    /// Finalized replicas that datanodes reported; at most one a datanode, in the order in which they came.
    pub fn replicas(&self) -> impl Iterator<Item = Replica> {
        self.few.iter(self.stamp).chain(self.many().iter().copied())
    }

    pub fn replica(&self, storage: StorageIndex) -> Option<Replica> {
        self.replicas().find(|replica| replica.storage == storage)
    }

    /// Adds a replica, or has it take the place of what was known of its storage.
    pub fn put_replica(&mut self, replica: Replica) {
        if self.many().is_empty() && replica.stamp == self.stamp && self.few.put(replica.storage, replica.health) {
            return;
        }
        let all = self.unpack();
        match all.iter_mut().find(|known| known.storage == replica.storage) {
            Some(known) => *known = replica,
            None => all.push(replica),
        }
        self.pack();
    }

    pub fn remove_replica(&mut self, storage: StorageIndex) {
        self.few.remove(storage);
        if let Some(rare) = &mut self.rare {
            rare.replicas.retain(|replica| replica.storage != storage);
            self.pack();
        }
    }

    fn many(&self) -> &[Replica] {
        self.rare.as_ref().map_or(&[], |rare| &rare.replicas)
    }

    fn unpack(&mut self) -> &mut Vec<Replica> {
        let few = std::mem::take(&mut self.few);
        let replicas = &mut self.rare.get_or_insert_default().replicas;
        replicas.extend(few.iter(self.stamp));
        replicas
    }

    /// Puts replicas back where they take less, when they fit.
    fn pack(&mut self) {
        let Some(rare) = &mut self.rare else { return };
        if rare.replicas.len() <= FEW && rare.replicas.iter().all(|replica| replica.stamp == self.stamp) {
            for replica in std::mem::take(&mut rare.replicas) {
                self.few.put(replica.storage, replica.health);
            }
            self.rare.take_if(|rare| rare.is_empty());
        }
    }

    pub fn counts(&self, nodes: &Datanodes) -> Counts {
        use hearth_types::DatanodeAdminState::*;
        let mut counts = Counts::default();
        for replica in self.replicas() {
            let storage = nodes.storage(replica.storage);
            match replica.health {
                Health::Corrupt => counts.corrupt += 1,
                Health::Excess => counts.excess += 1,
                Health::Live => {
                    match nodes.node(storage.node).admin {
                        Normal => counts.live += 1,
                        DecommissionInProgress => counts.decommissioning += 1,
                        Decommissioned => counts.decommissioned += 1,
                        EnteringMaintenance => counts.maintenance += 1,
                        InMaintenance => {
                            counts.maintenance += 1;
                            counts.out_of_reach += 1;
                        }
                    }
                    if storage.stale {
                        counts.stale += 1;
                    }
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::replicas::Health;
    use super::*;

    #[test]
    fn an_entry_stays_small() {
        assert!(std::mem::size_of::<Entry>() <= 48, "{}", std::mem::size_of::<Entry>());
    }

    #[test]
    fn marks_do_not_disturb_each_other() {
        let block = Block { id: BlockId(1), stamp: GenerationStamp(1), length: 0 };
        let mut entry = Entry::new(block, 1, 3, 0, Construction::default());
        for queue in [None, Some(0), Some(4)] {
            for safe in [true, false] {
                entry.set_safe(safe);
                entry.set_queued(queue);
                assert_eq!((entry.queued(), entry.is_safe()), (queue, safe));
                entry.set_safe(!safe);
                assert_eq!((entry.queued(), entry.is_safe()), (queue, !safe));
            }
        }
    }

    proptest! {
        #[test]
        fn replicas_are_as_in_a_vector(steps in prop::collection::vec((0u8..8, 0u32..6, 0u8..3, 1u64..4), 1..60)) {
            let block = Block { id: BlockId(1), stamp: GenerationStamp(1), length: 0 };
            let mut entry = Entry::new(block, 1, 3, 0, Construction::default());
            entry.complete();
            let mut model = Vec::<Replica>::new();
            for (step, storage, health, stamp) in steps {
                let storage = StorageIndex(storage + 20_000 * 1024);
                let health = [Health::Live, Health::Excess, Health::Corrupt][usize::from(health)];
                match step {
                    0..4 => {
                        // Mostly the block's own.
                        let stamp = if step < 3 { entry.stamp() } else { GenerationStamp(stamp) };
                        let replica = Replica { storage, health, stamp };
                        match model.iter_mut().find(|known| known.storage == storage) {
                            Some(known) => *known = replica,
                            None => model.push(replica),
                        }
                        entry.put_replica(replica);
                    }
                    4..7 => {
                        model.retain(|replica| replica.storage != storage);
                        entry.remove_replica(storage);
                    }
                    _ => entry.set_stamp(GenerationStamp(stamp)),
                }
                prop_assert_eq!(entry.replicas().collect::<Vec<_>>(), model.clone());
                let is_small = model.len() <= FEW && model.iter().all(|replica| replica.stamp == entry.stamp());
                prop_assert_eq!(entry.rare.is_none(), is_small);
            }
        }
    }
}
