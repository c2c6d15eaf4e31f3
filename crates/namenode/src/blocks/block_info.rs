use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState, StorageId};

use super::datanodes::{DatanodeIndex, Datanodes, StorageIndex};
use super::packed_block::PackedBlock;
use super::replicas::{Health, Replica};

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
pub(super) enum BlockInfo {
    /// Nearly all.
    Packed(PackedBlock),
    /// While a block is written, and where something does not fit into the other form.
    Unpacked(Box<UnpackedBlock>),
}

/// What there is of every block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockAttributes {
    pub stamp: GenerationStamp,
    /// Bytes: as far as it is known; final once committed.
    pub length: u64,
    pub inode: u64,
    pub replication: u16,
    /// Id of the storage policy; 0: none named.
    pub policy: u8,
    /// The under-replicated queue in which the block stands.
    pub queued: Option<u8>,
    /// Complete, and with enough replicas for safe mode.
    pub is_safe: bool,
}

impl BlockAttributes {
    /// Of a block that stands in no queue.
    pub fn new(block: Block, inode: u64, replication: u16, policy: u8) -> Self {
        Self { stamp: block.stamp, length: block.length, inode, replication, policy, queued: None, is_safe: false }
    }
}

pub(super) struct UnpackedBlock {
    attributes: BlockAttributes,
    replicas: Vec<Replica>,
    /// Until the block is COMPLETE.
    construction: Option<Box<Construction>>,
}

/// An entry, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct BlockRef<'a> {
    pub id: BlockId,
    pub entry: &'a BlockInfo,
}

impl Deref for BlockRef<'_> {
    type Target = BlockInfo;

    fn deref(&self) -> &BlockInfo {
        self.entry
    }
}

impl BlockRef<'_> {
    /// Length: as far as it is known; final once committed.
    pub fn block(&self) -> Block {
        Block { id: self.id, stamp: self.stamp(), length: self.length() }
    }
}

/// A block while it is written: the pipeline and what its members last said.
#[derive(Default)]
pub(super) struct Construction {
    /// Length and stamp are final: only reports are awaited.
    pub is_committed: bool,
    /// It was open when the namenode stopped: who has it is not known before the datanodes report.
    pub is_restored: bool,
    pub expected: Vec<ExpectedReplica>,
    /// Who was expected to have it, on storages that the map no longer knows, or not yet.
    pub missing: Vec<MissingReplica>,
    pub recovery: Option<BlockRecovery>,
    /// Recovery is to cut the block to this length, bytes.
    pub truncate_to: Option<u64>,
    /// The cut is a copy of this block, which stays as it is: a snapshot has it.
    pub copied_from: Option<BlockId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedReplica {
    pub storage: StorageIndex,
    pub stamp: GenerationStamp,
    /// Bytes, as last reported; 0 before any report.
    pub length: u64,
    pub state: ReplicaState,
    /// Its node has started anew, or lost the storage, and has not reported it since: it may be gone.
    pub is_unconfirmed: bool,
    /// Was asked to lead the recovery in this round.
    pub was_primary: bool,
}

impl ExpectedReplica {
    pub fn new(storage: StorageIndex, stamp: GenerationStamp) -> Self {
        Self { storage, stamp, length: 0, state: ReplicaState::BeingWritten, is_unconfirmed: false, was_primary: false }
    }

    /// Whether it is known to have less than `length` bytes, which were acknowledged. One that is being written has them all, whatever it
    /// said last.
    pub fn is_short(&self, length: u64) -> bool {
        !self.is_unconfirmed && self.state != ReplicaState::BeingWritten && self.length < length
    }
}

/// What was told of an open block by a storage whose disk has failed since, or whose datanode has given way to another; or by the
/// writer, of one that has not come back since a restart. What was acknowledged may be there yet, in that datanode's memory, and be
/// found when it starts with the disk again.
#[derive(Clone, Debug)]
pub(super) struct MissingReplica {
    pub storage: StorageId,
    pub stamp: GenerationStamp,
    /// Bytes.
    pub length: u64,
}

/// So many are known by name; the last stands for all further ones. No writer's pipeline loses as many.
const MISSING_REPLICAS_MAX: usize = 64;

impl Construction {
    /// The storage leaves the map.
    pub fn remove_storage(&mut self, storage: StorageIndex, id: &StorageId) {
        let lost: Vec<ExpectedReplica> = self.expected.extract_if(.., |expected| expected.storage == storage).collect();
        for ExpectedReplica { stamp, length, .. } in lost {
            self.add_missing(MissingReplica { storage: id.clone(), stamp, length });
        }
    }

    /// A storage that the map does not know is to have the block.
    pub fn add_missing(&mut self, missed: MissingReplica) {
        let is_full = self.missing.len() >= MISSING_REPLICAS_MAX;
        let known = self.missing.iter().position(|gone| gone.storage == missed.storage);
        match known.or(is_full.then_some(MISSING_REPLICAS_MAX - 1)) {
            Some(at) => {
                let gone = &mut self.missing[at];
                gone.stamp = gone.stamp.max(missed.stamp);
                gone.length = gone.length.max(missed.length);
            }
            None => self.missing.push(missed),
        }
    }

    /// A storage of that name has come into the map. It is expected as before, and doubted until it has reported the block.
    pub fn return_storage(&mut self, storage: StorageIndex, id: &StorageId) {
        let Some(at) = self.missing.iter().position(|gone| gone.storage == *id) else { return };
        let MissingReplica { stamp, length, .. } = self.missing.remove(at);
        self.expected.push(ExpectedReplica { length, is_unconfirmed: true, ..ExpectedReplica::new(storage, stamp) });
    }

    /// The most that anybody has told of, bytes.
    pub fn reported_length_max(&self) -> u64 {
        let expected = self.expected.iter().map(|expected| expected.length);
        expected.chain(self.missing.iter().map(|gone| gone.length)).max().unwrap_or(0)
    }
}

/// A running block recovery.
#[derive(Clone, Debug)]
pub(super) struct BlockRecovery {
    /// The stamp that the block will have.
    pub id: GenerationStamp,
    /// Monotonic time of the last attempt.
    pub attempted: Duration,
    /// Who was told to lead it; `None` when nobody was there.
    pub primary: Option<DatanodeIndex>,
    /// Monotonic time of the first attempt that somebody was there to lead.
    pub led_since: Option<Duration>,
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
    pub unreadable_maintenance: u16,
    pub excess: u16,
    pub corrupt: u16,
    /// Good ones whose storage's contents are not sure since the last start.
    pub stale: u16,
}

impl Counts {
    /// Replicas that a reader can use.
    pub fn readable(&self) -> u16 {
        self.live
            + self.decommissioning
            + self.decommissioned
            + (self.maintenance - self.unreadable_maintenance)
            + self.excess
    }

    /// Live replicas that are enough for a block of which `replication` are asked for. Those in maintenance will be back: while
    /// they are away, `least` live ones do.
    pub fn wanted_live(&self, replication: u16, least: u16) -> u16 {
        replication.saturating_sub(self.maintenance).max(least.min(replication))
    }
}

impl BlockInfo {
    /// An open block without a replica.
    pub fn open(attributes: BlockAttributes, construction: Construction) -> Self {
        Self::Unpacked(Box::new(UnpackedBlock {
            attributes,
            replicas: Vec::new(),
            construction: Some(Box::new(construction)),
        }))
    }

    /// A COMPLETE block without a replica.
    pub fn complete(attributes: BlockAttributes) -> Self {
        match PackedBlock::new(&attributes, &[]) {
            Some(packed) => Self::Packed(packed),
            None => Self::Unpacked(Box::new(UnpackedBlock { attributes, replicas: Vec::new(), construction: None })),
        }
    }

    fn full(&self) -> Option<&UnpackedBlock> {
        match self {
            Self::Packed(_) => None,
            Self::Unpacked(full) => Some(full),
        }
    }

    /// The form that has room for everything. [`BlockInfo::pack`] is to follow.
    fn unpack(&mut self) -> &mut UnpackedBlock {
        if let Self::Packed(packed) = self {
            let replicas = packed.replicas().collect();
            *self = Self::Unpacked(Box::new(UnpackedBlock {
                attributes: packed.attributes(),
                replicas,
                construction: None,
            }));
        }
        match self {
            Self::Unpacked(full) => full,
            Self::Packed(_) => unreachable!("just unpacked"),
        }
    }

    /// Takes the form that is small, if it does.
    fn pack(&mut self) {
        if let Self::Unpacked(full) = self
            && full.construction.is_none()
            && let Some(packed) = PackedBlock::new(&full.attributes, &full.replicas)
        {
            *self = Self::Packed(packed);
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut BlockAttributes)) {
        if let Self::Packed(packed) = self {
            let mut attributes = packed.attributes();
            change(&mut attributes);
            if let Some(changed) = packed.with_attributes(&attributes) {
                *packed = changed;
                return;
            }
            self.unpack().attributes = attributes;
        } else {
            change(&mut self.unpack().attributes);
            self.pack();
        }
    }

    pub fn stamp(&self) -> GenerationStamp {
        match self {
            Self::Packed(packed) => packed.stamp(),
            Self::Unpacked(full) => full.attributes.stamp,
        }
    }

    /// Bytes: as far as it is known; final once committed.
    pub fn length(&self) -> u64 {
        match self {
            Self::Packed(packed) => packed.length(),
            Self::Unpacked(full) => full.attributes.length,
        }
    }

    pub fn inode(&self) -> u64 {
        match self {
            Self::Packed(packed) => packed.inode(),
            Self::Unpacked(full) => full.attributes.inode,
        }
    }

    pub fn replication(&self) -> u16 {
        match self {
            Self::Packed(packed) => packed.replication(),
            Self::Unpacked(full) => full.attributes.replication,
        }
    }

    /// Id of the storage policy; 0: none named.
    pub fn policy(&self) -> u8 {
        match self {
            Self::Packed(packed) => packed.policy(),
            Self::Unpacked(full) => full.attributes.policy,
        }
    }

    /// The under-replicated queue in which the block stands.
    pub fn queued(&self) -> Option<u8> {
        match self {
            Self::Packed(packed) => packed.queued(),
            Self::Unpacked(full) => full.attributes.queued,
        }
    }

    /// Complete, and with enough replicas for safe mode.
    pub fn is_safe(&self) -> bool {
        match self {
            Self::Packed(packed) => packed.is_safe(),
            Self::Unpacked(full) => full.attributes.is_safe,
        }
    }

    /// The replicas that are known keep the stamps that they have.
    pub fn set_stamp(&mut self, stamp: GenerationStamp) {
        self.change(|attributes| attributes.stamp = stamp);
    }

    pub fn set_length(&mut self, length: u64) {
        self.change(|attributes| attributes.length = length);
    }

    pub fn set_inode(&mut self, inode: u64) {
        self.change(|attributes| attributes.inode = inode);
    }

    pub fn set_replication(&mut self, replication: u16) {
        self.change(|attributes| attributes.replication = replication);
    }

    pub fn set_policy(&mut self, policy: u8) {
        self.change(|attributes| attributes.policy = policy);
    }

    pub fn set_queued(&mut self, queue: Option<u8>) {
        self.change(|attributes| attributes.queued = queue);
    }

    pub fn set_safe(&mut self, safe: bool) {
        self.change(|attributes| attributes.is_safe = safe);
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
        self.full()?.construction.as_deref()
    }

    pub fn construction_mut(&mut self) -> Option<&mut Construction> {
        match self {
            Self::Packed(_) => None,
            Self::Unpacked(full) => full.construction.as_deref_mut(),
        }
    }

    /// The block is being written, again perhaps, or as `construction` says.
    pub fn set_construction(&mut self, construction: Construction) {
        self.unpack().construction = Some(Box::new(construction));
    }

    /// The block is COMPLETE; answers what there was of its construction.
    pub fn take_construction(&mut self) -> Option<Construction> {
        let Self::Unpacked(full) = self else { return None };
        let construction = full.construction.take();
        self.pack();
        construction.map(|construction| *construction)
    }

    /// Finalized replicas that datanodes reported; at most one a datanode, in the order in which they came.
    pub fn replicas(&self) -> impl Iterator<Item = Replica> {
        let (packed, full) = match self {
            Self::Packed(packed) => (Some(packed.replicas()), &[][..]),
            Self::Unpacked(full) => (None, &full.replicas[..]),
        };
        packed.into_iter().flatten().chain(full.iter().copied())
    }

    pub fn replica(&self, storage: StorageIndex) -> Option<Replica> {
        self.replicas().find(|replica| replica.storage == storage)
    }

    /// Adds a replica, or has it take the place of what was known of its storage.
    pub fn put_replica(&mut self, replica: Replica) {
        if let Self::Packed(packed) = self
            && let Some(changed) = packed.with_replica(replica)
        {
            *packed = changed;
            return;
        }
        let all = &mut self.unpack().replicas;
        match all.iter_mut().find(|known| known.storage == replica.storage) {
            Some(known) => *known = replica,
            None => all.push(replica),
        }
        self.pack();
    }

    pub fn remove_replica(&mut self, storage: StorageIndex) {
        match self {
            Self::Packed(packed) => *packed = packed.without_replica(storage),
            Self::Unpacked(full) => {
                full.replicas.retain(|replica| replica.storage != storage);
                self.pack();
            }
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
                            counts.unreadable_maintenance += 1;
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

    use super::*;

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<BlockInfo>(), 24);
        assert_eq!(size_of::<UnpackedBlock>(), 64);
    }

    /// What an entry is to hold, and whether it is packed then.
    #[derive(Clone, Debug)]
    struct Model {
        attributes: BlockAttributes,
        replicas: Vec<Replica>,
        is_open: bool,
    }

    impl Model {
        fn fits_packed(&self) -> bool {
            let BlockAttributes { stamp, length, inode, replication, policy, queued, is_safe: _ } = self.attributes;
            let usual = stamp.0 < 1 << 37 && length < 1 << 36 && inode < 1 << 37 && replication < 64 && policy < 16;
            let fits = |replica: &Replica| {
                replica.health == Health::Live && replica.stamp == stamp && replica.storage.0 < (1 << 20) - 1
            };
            usual
                && queued.is_none_or(|queue| queue < 7)
                && !self.is_open
                && self.replicas.len() <= 3
                && self.replicas.iter().all(fits)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Stamp(u64),
        Length(u64),
        Inode(u64),
        Replication(u16),
        Policy(u8),
        Queued(Option<u8>),
        Safe(bool),
        Open(bool),
        /// A replica; under the block's own stamp unless one is told.
        Put(StorageIndex, Health, Option<u64>),
        Remove(StorageIndex),
    }

    /// Mostly small numbers, so that the packed form is come back to; and those around what a field can hold.
    fn number(bits: u32) -> impl Strategy<Value = u64> {
        let limit = 1u64 << bits;
        prop_oneof![4 => 1u64..4, 1 => limit - 2..limit + 2, 1 => any::<u64>(), 1 => Just(u64::MAX)]
    }

    fn storage() -> impl Strategy<Value = StorageIndex> {
        let odd = prop_oneof![(1u32 << 20) - 3..(1 << 20) + 2, Just(u32::MAX), Just(20_000 * 1024)];
        prop_oneof![8 => 0u32..6, 1 => odd].prop_map(StorageIndex)
    }

    fn step() -> impl Strategy<Value = Step> {
        let health = prop_oneof![4 => Just(Health::Live), 1 => Just(Health::Excess), 1 => Just(Health::Corrupt)];
        let stamp = prop_oneof![6 => Just(None), 1 => (1u64..4).prop_map(Some)];
        prop_oneof![
            1 => number(37).prop_map(Step::Stamp),
            1 => number(36).prop_map(Step::Length),
            1 => number(37).prop_map(Step::Inode),
            1 => prop_oneof![0u16..66, Just(32_767), Just(u16::MAX)].prop_map(Step::Replication),
            1 => prop_oneof![0u8..18, Just(u8::MAX)].prop_map(Step::Policy),
            1 => prop::option::of(prop_oneof![0u8..9, Just(u8::MAX)]).prop_map(Step::Queued),
            1 => any::<bool>().prop_map(Step::Safe),
            1 => any::<bool>().prop_map(Step::Open),
            6 => (storage(), health, stamp).prop_map(|(storage, health, stamp)| Step::Put(storage, health, stamp)),
            4 => storage().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn an_entry_holds_what_it_is_given(steps in prop::collection::vec(step(), 1..80)) {
            let block = Block { id: BlockId(1), stamp: GenerationStamp(1), length: 0 };
            let attributes = BlockAttributes::new(block, 1, 3, 0);
            let mut model = Model { attributes, replicas: Vec::new(), is_open: true };
            let mut entry = BlockInfo::open(attributes, Construction::default());
            for step in steps {
                match step {
                    Step::Stamp(stamp) => {
                        model.attributes.stamp = GenerationStamp(stamp);
                        entry.set_stamp(model.attributes.stamp);
                    }
                    Step::Length(length) => {
                        model.attributes.length = length;
                        entry.set_length(length);
                    }
                    Step::Inode(inode) => {
                        model.attributes.inode = inode;
                        entry.set_inode(inode);
                    }
                    Step::Replication(replication) => {
                        model.attributes.replication = replication;
                        entry.set_replication(replication);
                    }
                    Step::Policy(policy) => {
                        model.attributes.policy = policy;
                        entry.set_policy(policy);
                    }
                    Step::Queued(queue) => {
                        model.attributes.queued = queue;
                        entry.set_queued(queue);
                    }
                    Step::Safe(is_safe) => {
                        model.attributes.is_safe = is_safe;
                        entry.set_safe(is_safe);
                    }
                    Step::Open(true) => {
                        model.is_open = true;
                        entry.set_construction(Construction::default());
                    }
                    Step::Open(false) => {
                        prop_assert_eq!(entry.take_construction().is_some(), model.is_open);
                        model.is_open = false;
                    }
                    Step::Put(storage, health, stamp) => {
                        let stamp = stamp.map_or(entry.stamp(), GenerationStamp);
                        let replica = Replica { storage, health, stamp };
                        match model.replicas.iter_mut().find(|known| known.storage == storage) {
                            Some(known) => *known = replica,
                            None => model.replicas.push(replica),
                        }
                        entry.put_replica(replica);
                    }
                    Step::Remove(storage) => {
                        model.replicas.retain(|replica| replica.storage != storage);
                        entry.remove_replica(storage);
                    }
                }
                let held = BlockAttributes {
                    stamp: entry.stamp(),
                    length: entry.length(),
                    inode: entry.inode(),
                    replication: entry.replication(),
                    policy: entry.policy(),
                    queued: entry.queued(),
                    is_safe: entry.is_safe(),
                };
                prop_assert_eq!(held, model.attributes);
                prop_assert_eq!(entry.replicas().collect::<Vec<_>>(), model.replicas.clone());
                prop_assert_eq!(entry.is_complete(), !model.is_open);
                prop_assert_eq!(matches!(entry, BlockInfo::Packed(_)), model.fits_packed(), "{:?}", model);
                if !model.is_open && model.replicas.is_empty() {
                    prop_assert_eq!(matches!(BlockInfo::complete(model.attributes), BlockInfo::Packed(_)), model.fits_packed());
                }
            }
        }
    }
}
