//! Packed form of an ordinary block: 23 bytes, or 24 with the byte that marks the form. A namespace has one per block.
//!
//! The block is complete and has at most three replicas, all of them live and under its own stamp. The fields are wide
//! enough for existing clusters: 137 billion stamps and inodes, blocks of 64 GiB, a million storages.
//! [`super::block_info`] has a larger form for all other blocks.
//!
//! ```text
//! first   stamp 37, storage 20, queue 3, policy 4 bits
//! second  inode 37, storage 20, replication 6, safe 1
//! third   length 36, storage 20
//! ```

use hearth_types::GenerationStamp;

use super::block_info::BlockAttributes;
use super::datanodes::StorageIndex;
use super::replicas::{Health, Replica};
use crate::packed::{Field, Number};

const STAMP: Field = Field::first(37);
const STORAGE_1: Field = STAMP.then(20);
const QUEUE: Field = STORAGE_1.then(3);
const POLICY: Field = QUEUE.then(4);

const INODE: Field = Field::first(37);
const STORAGE_2: Field = INODE.then(20);
const REPLICATION: Field = STORAGE_2.then(6);
const SAFE: Field = REPLICATION.then(1);

const LENGTH: Field = Field::first(36);
const STORAGE_3: Field = LENGTH.then(20);

const _: () = assert!(POLICY.end() == 64 && SAFE.end() == 64 && STORAGE_3.end() == 56);

/// Number of replicas that fit.
pub(super) const REPLICAS_MAX: usize = 3;
/// Value of the queue field for a block that is in no queue.
const NO_QUEUE: u64 = QUEUE.max();
/// Value of a storage field without a replica; the fields behind it have none either.
const NO_STORAGE: u64 = STORAGE_1.max();

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedBlock {
    first: Number<8>,
    second: Number<8>,
    third: Number<7>,
}

impl PackedBlock {
    /// Returns `None` if a value does not fit.
    pub fn new(attributes: &BlockAttributes, replicas: &[Replica]) -> Option<Self> {
        let mut words = [0; 3];
        let [first, second, third] = &mut words;
        let queue = attributes.queued.map_or(NO_QUEUE, u64::from);
        let fits = STAMP.set(first, attributes.stamp.0)
            && QUEUE.set(first, queue)
            && (queue < NO_QUEUE || attributes.queued.is_none())
            && POLICY.set(first, u64::from(attributes.policy))
            && INODE.set(second, attributes.inode)
            && REPLICATION.set(second, u64::from(attributes.replication))
            && SAFE.set(second, u64::from(attributes.is_safe))
            && LENGTH.set(third, attributes.length)
            && replicas.len() <= REPLICAS_MAX;
        if !fits {
            return None;
        }
        let mut storages = [NO_STORAGE; REPLICAS_MAX];
        for (storage, replica) in storages.iter_mut().zip(replicas) {
            *storage = storage_of(*replica, attributes.stamp)?;
        }
        set_storages(&mut words, storages);
        Some(Self::of(words))
    }

    fn of([first, second, third]: [u64; 3]) -> Self {
        let whole = "seven bytes are enough for its fields";
        Self {
            first: Number::new(first).expect("a word fits"),
            second: Number::new(second).expect("a word fits"),
            third: Number::new(third).expect(whole),
        }
    }

    fn words(self) -> [u64; 3] {
        [self.first.get(), self.second.get(), self.third.get()]
    }

    fn storages(self) -> [u64; REPLICAS_MAX] {
        let [first, second, third] = self.words();
        [STORAGE_1.get(first), STORAGE_2.get(second), STORAGE_3.get(third)]
    }

    fn with_storages(self, storages: [u64; REPLICAS_MAX]) -> Self {
        let mut words = self.words();
        set_storages(&mut words, storages);
        Self::of(words)
    }

    /// Returns the block with other attributes and the same replicas. `None`: a value does not fit.
    pub fn with_attributes(self, attributes: &BlockAttributes) -> Option<Self> {
        let storages = self.storages();
        let keeps = attributes.stamp == self.stamp() || storages[0] == NO_STORAGE;
        keeps.then_some(Self::new(attributes, &[])?.with_storages(storages))
    }

    pub fn attributes(self) -> BlockAttributes {
        BlockAttributes {
            stamp: self.stamp(),
            length: self.length(),
            inode: self.inode(),
            replication: self.replication(),
            policy: self.policy(),
            queued: self.queued(),
            is_safe: self.is_safe(),
        }
    }

    pub fn stamp(self) -> GenerationStamp {
        GenerationStamp(STAMP.get(self.first.get()))
    }

    pub fn length(self) -> u64 {
        LENGTH.get(self.third.get())
    }

    pub fn inode(self) -> u64 {
        INODE.get(self.second.get())
    }

    pub fn replication(self) -> u16 {
        REPLICATION.get(self.second.get()) as u16
    }

    pub fn policy(self) -> u8 {
        POLICY.get(self.first.get()) as u8
    }

    pub fn queued(self) -> Option<u8> {
        Some(QUEUE.get(self.first.get())).filter(|queue| *queue != NO_QUEUE).map(|queue| queue as u8)
    }

    pub fn is_safe(self) -> bool {
        SAFE.get(self.second.get()) != 0
    }

    /// The replicas in the order of their reports.
    pub fn replicas(self) -> impl Iterator<Item = Replica> {
        let stamp = self.stamp();
        let storages = self.storages().into_iter().take_while(|storage| *storage != NO_STORAGE);
        storages.map(move |storage| Replica { storage: StorageIndex(storage as u32), health: Health::Live, stamp })
    }

    /// Returns the block with one more replica, unless it is known already. `None`: it does not fit.
    pub fn with_replica(self, replica: Replica) -> Option<Self> {
        let new = storage_of(replica, self.stamp())?;
        let mut storages = self.storages();
        let place = storages.iter().position(|known| *known == NO_STORAGE || *known == new)?;
        storages[place] = new;
        Some(self.with_storages(storages))
    }

    pub fn without_replica(self, storage: StorageIndex) -> Self {
        let mut storages = self.storages();
        let known = |known: &u64| *known == u64::from(storage.0) && *known != NO_STORAGE;
        let Some(place) = storages.iter().position(known) else { return self };
        storages[place..].rotate_left(1);
        storages[REPLICAS_MAX - 1] = NO_STORAGE;
        self.with_storages(storages)
    }
}

/// Returns `None` if the replica cannot be in the packed form.
fn storage_of(replica: Replica, stamp: GenerationStamp) -> Option<u64> {
    let storage = u64::from(replica.storage.0);
    (replica.health == Health::Live && replica.stamp == stamp && storage < NO_STORAGE).then_some(storage)
}

fn set_storages(words: &mut [u64; 3], storages: [u64; REPLICAS_MAX]) {
    for ((word, field), storage) in words.iter_mut().zip([STORAGE_1, STORAGE_2, STORAGE_3]).zip(storages) {
        assert!(field.set(word, storage), "the storage fits, or is none");
    }
}
