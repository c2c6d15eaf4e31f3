use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState, StorageId};

use super::datanodes::{DatanodeIndex, Datanodes, StorageIndex};
use super::packed_block::PackedBlock;
use super::replicas::{Health, Replica};

/// State of a block in its life cycle.
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

/// Phase of a block, with the data that belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    /// Keeps the pipeline: readers are sent to it until the replicas have been reported.
    Committed,
    Complete,
}

/// Entry of one block in the map, without its id. Kept small, because there is one per block.
pub(super) enum BlockInfo {
    /// Nearly all blocks.
    Packed(PackedBlock),
    /// Blocks under construction, and those with a value that does not fit the packed form.
    Unpacked(Box<UnpackedBlock>),
}

/// Attributes common to all blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockAttributes {
    pub stamp: GenerationStamp,
    /// Bytes known so far; final once committed.
    pub length: u64,
    pub inode: u64,
    pub replication: u16,
    /// Id of the storage policy; 0 if none is set.
    pub policy: u8,
    /// The under-replicated queue that contains the block.
    pub queued: Option<u8>,
    /// True if the block is complete and has enough replicas for safe mode.
    pub is_safe: bool,
}

impl BlockAttributes {
    /// Attributes of a block that is in no queue.
    pub fn new(block: Block, inode: u64, replication: u16, policy: u8) -> Self {
        Self { stamp: block.stamp, length: block.length, inode, replication, policy, queued: None, is_safe: false }
    }
}

pub(super) struct UnpackedBlock {
    attributes: BlockAttributes,
    replicas: Vec<Replica>,
    /// Present until the block is COMPLETE.
    construction: Option<Box<Construction>>,
}

/// An entry together with its block id.
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
    /// Returns the block with the length known so far; final once committed.
    pub fn block(&self) -> Block {
        Block { id: self.id, stamp: self.stamp(), length: self.length() }
    }
}

/// State of a block under construction: its pipeline, and the last report of each member.
#[derive(Default)]
pub(super) struct Construction {
    /// Length and stamp are final; only reports are awaited.
    pub is_committed: bool,
    /// The block was open when the namenode stopped: its holders are unknown until the datanodes report.
    pub is_restored: bool,
    pub expected: Vec<ExpectedReplica>,
    /// Replicas expected on storages that the map no longer knows, or does not know yet.
    pub missing: Vec<MissingReplica>,
    pub recovery: Option<BlockRecovery>,
    /// Length to which recovery shall cut the block, in bytes.
    pub truncate_to: Option<u64>,
    /// The truncated block is a copy of this block, which stays unchanged because a snapshot contains it.
    pub copied_from: Option<BlockId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedReplica {
    pub storage: StorageIndex,
    pub stamp: GenerationStamp,
    /// Bytes, as last reported; 0 before the first report.
    pub length: u64,
    pub state: ReplicaState,
    /// Its node has restarted or lost the storage, and has not reported the replica since. It may be gone.
    pub is_unconfirmed: bool,
    /// Was asked to lead the recovery in this round.
    pub was_primary: bool,
}

impl ExpectedReplica {
    pub fn new(storage: StorageIndex, stamp: GenerationStamp) -> Self {
        Self { storage, stamp, length: 0, state: ReplicaState::BeingWritten, is_unconfirmed: false, was_primary: false }
    }

    /// Returns true if the replica is known to have less than `length` bytes, which were acknowledged. A replica being
    /// written has all of them, whatever length it last reported.
    pub fn is_short(&self, length: u64) -> bool {
        !self.is_unconfirmed && self.state != ReplicaState::BeingWritten && self.length < length
    }
}

/// Last known state of a replica of an open block on a lost storage. Either the storage's disk has failed or another
/// datanode has replaced its datanode; or the writer reported the replica, and its storage has not come back since a
/// restart. The acknowledged bytes may still be in that datanode's memory, and may be found when the datanode starts
/// with the disk again.
#[derive(Clone, Debug)]
pub(super) struct MissingReplica {
    pub storage: StorageId,
    pub stamp: GenerationStamp,
    /// Length in bytes.
    pub length: u64,
}

/// Limit of replicas kept by storage id; the last entry stands for all further ones. No writer's pipeline loses this
/// many.
const MISSING_REPLICAS_MAX: usize = 64;

impl Construction {
    /// Moves the replica of a storage that leaves the map to `missing`.
    pub fn remove_storage(&mut self, storage: StorageIndex, id: &StorageId) {
        let lost: Vec<ExpectedReplica> = self.expected.extract_if(.., |expected| expected.storage == storage).collect();
        for ExpectedReplica { stamp, length, .. } in lost {
            self.add_missing(MissingReplica { storage: id.clone(), stamp, length });
        }
    }

    /// Records an expected replica on a storage that the map does not know.
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

    /// Records that a storage with that id has come into the map. Its replica is expected as before, and unconfirmed
    /// until the storage reports it.
    pub fn return_storage(&mut self, storage: StorageIndex, id: &StorageId) {
        let Some(at) = self.missing.iter().position(|gone| gone.storage == *id) else { return };
        let MissingReplica { stamp, length, .. } = self.missing.remove(at);
        self.expected.push(ExpectedReplica { length, is_unconfirmed: true, ..ExpectedReplica::new(storage, stamp) });
    }

    /// Returns the largest reported length, in bytes.
    pub fn reported_length_max(&self) -> u64 {
        let expected = self.expected.iter().map(|expected| expected.length);
        expected.chain(self.missing.iter().map(|gone| gone.length)).max().unwrap_or(0)
    }
}

/// A running block recovery.
#[derive(Clone, Debug)]
pub(super) struct BlockRecovery {
    /// The stamp that the block will get.
    pub id: GenerationStamp,
    /// Monotonic time of the last attempt.
    pub attempted: Duration,
    /// Datanode asked to lead the recovery; `None` if none was available.
    pub primary: Option<DatanodeIndex>,
    /// Monotonic time of the first attempt for which a primary was available.
    pub led_since: Option<Duration>,
}

/// Numbers of a block's replicas by their usability.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    /// Good, on nodes that stay.
    pub live: u16,
    /// Good, on nodes that are leaving (decommissioning).
    pub decommissioning: u16,
    /// Good, on nodes that have left but still answer.
    pub decommissioned: u16,
    /// Good, on nodes in or entering maintenance.
    pub maintenance: u16,
    /// Those of `maintenance` that readers are not sent to: their nodes are off, or may be switched off at any moment.
    pub unreadable_maintenance: u16,
    pub excess: u16,
    pub corrupt: u16,
    /// Good, on storages whose contents are uncertain since the last start.
    pub stale: u16,
    /// Good, but on a stale storage or a disconnected node.
    pub uncertain: u16,
}

impl Counts {
    /// Returns the number of replicas that a reader can use.
    pub fn readable(&self) -> u16 {
        self.live
            + self.decommissioning
            + self.decommissioned
            + (self.maintenance - self.unreadable_maintenance)
            + self.excess
    }

    /// Returns the number of live replicas that suffice for a block with the given `replication`. Replicas in
    /// maintenance will come back; while they are away, `least` live ones suffice.
    pub fn wanted_live(&self, replication: u16, least: u16) -> u16 {
        replication.saturating_sub(self.maintenance).max(least.min(replication))
    }
}

impl BlockInfo {
    /// Creates an open block without replicas.
    pub fn open(attributes: BlockAttributes, construction: Construction) -> Self {
        Self::Unpacked(Box::new(UnpackedBlock {
            attributes,
            replicas: Vec::new(),
            construction: Some(Box::new(construction)),
        }))
    }

    /// Creates a COMPLETE block without replicas.
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

    /// Converts the entry to the form that has room for everything. The caller must call [`BlockInfo::pack`]
    /// afterwards.
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

    /// Converts the entry to the packed form if it fits.
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

    /// Bytes known so far; final once committed.
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

    /// Id of the storage policy; 0 if none is set.
    pub fn policy(&self) -> u8 {
        match self {
            Self::Packed(packed) => packed.policy(),
            Self::Unpacked(full) => full.attributes.policy,
        }
    }

    /// The under-replicated queue that contains the block.
    pub fn queued(&self) -> Option<u8> {
        match self {
            Self::Packed(packed) => packed.queued(),
            Self::Unpacked(full) => full.attributes.queued,
        }
    }

    /// True if the block is complete and has enough replicas for safe mode.
    pub fn is_safe(&self) -> bool {
        match self {
            Self::Packed(packed) => packed.is_safe(),
            Self::Unpacked(full) => full.attributes.is_safe,
        }
    }

    /// Sets the block's stamp. Known replicas keep their own stamps.
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

    /// Construction state; present until the block is COMPLETE.
    pub fn construction(&self) -> Option<&Construction> {
        self.full()?.construction.as_deref()
    }

    pub fn construction_mut(&mut self) -> Option<&mut Construction> {
        match self {
            Self::Packed(_) => None,
            Self::Unpacked(full) => full.construction.as_deref_mut(),
        }
    }

    /// Marks the block as under construction (possibly again), with the given `construction`.
    pub fn set_construction(&mut self, construction: Construction) {
        self.unpack().construction = Some(Box::new(construction));
    }

    /// Marks the block as COMPLETE; returns its former construction state.
    pub fn take_construction(&mut self) -> Option<Construction> {
        let Self::Unpacked(full) = self else { return None };
        let construction = full.construction.take();
        self.pack();
        construction.map(|construction| *construction)
    }

    /// Finalized replicas reported by datanodes, in the order of their reports; at most one per datanode.
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

    /// Adds a replica, or replaces the known one of its storage.
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
            let node = nodes.node(storage.node);
            match replica.health {
                Health::Corrupt => counts.corrupt += 1,
                Health::Excess => counts.excess += 1,
                Health::Live => {
                    match node.admin {
                        Normal => counts.live += 1,
                        DecommissionInProgress => counts.decommissioning += 1,
                        Decommissioned => counts.decommissioned += 1,
                        EnteringMaintenance => counts.maintenance += 1,
                        InMaintenance => {
                            counts.maintenance += 1;
                            counts.unreadable_maintenance += 1;
                        }
                    }
                    counts.stale += u16::from(storage.stale);
                    counts.uncertain += u16::from(storage.stale || node.disconnected);
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

    /// Expected content of an entry, and whether it is packed.
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
        /// A replica; under the block's own stamp unless one is given.
        Put(StorageIndex, Health, Option<u64>),
        Remove(StorageIndex),
    }

    /// Mostly small numbers, so that entries return to the packed form, and numbers near the limits of a field.
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
        fn entry_matches_model(steps in prop::collection::vec(step(), 1..80)) {
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
