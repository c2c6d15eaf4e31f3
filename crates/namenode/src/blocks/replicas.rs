//! The replicas of a block, in twelve bytes as long as there are three at most and all are under the block's own stamp: a
//! namespace has as many of these lists as it has blocks.

use hearth_types::GenerationStamp;

use super::datanodes::StorageIndex;

/// Lists of so many replicas need no allocation.
pub(super) const FEW: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    Live,
    /// Being deleted because there are more than asked for.
    Excess,
    Corrupt,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Replica {
    pub storage: StorageIndex,
    pub health: Health,
    /// As reported; differs from the block's only in corrupt replicas and while the block is open.
    pub stamp: GenerationStamp,
}

/// Storage and health of a replica under the block's stamp; or none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Packed(u32);

/// Of [`Packed`]: the storage. There are fewer (see [`super::datanodes`]).
const STORAGE_MASK: u32 = (1 << 30) - 1;

impl Packed {
    const NONE: Self = Self(u32::MAX);

    fn new(storage: StorageIndex, health: Health) -> Self {
        assert!(storage.0 <= STORAGE_MASK, "storage {} is one of those that can be", storage.0);
        Self(storage.0 | (health as u32) << 30)
    }

    fn storage(self) -> Option<StorageIndex> {
        (self != Self::NONE).then_some(StorageIndex(self.0 & STORAGE_MASK))
    }

    fn replica(self, stamp: GenerationStamp) -> Option<Replica> {
        let health = match self.0 >> 30 {
            0 => Health::Live,
            1 => Health::Excess,
            _ => Health::Corrupt,
        };
        Some(Replica { storage: self.storage()?, health, stamp })
    }
}

/// Replicas under the block's own stamp, at most one a storage, in the order in which they came.
pub(super) struct Few([Packed; FEW]);

impl Default for Few {
    fn default() -> Self {
        Self([Packed::NONE; FEW])
    }
}

impl Few {
    pub fn is_empty(&self) -> bool {
        self.0[0] == Packed::NONE
    }

    /// `stamp`: the block's.
    pub fn iter(&self, stamp: GenerationStamp) -> impl Iterator<Item = Replica> {
        self.0.iter().map_while(move |packed| packed.replica(stamp))
    }

    /// Adds a replica, or has it take the place of what was known of its storage. False: there is no room.
    pub fn put(&mut self, storage: StorageIndex, health: Health) -> bool {
        let place = self.0.iter_mut().find(|packed| packed.storage().is_none_or(|known| known == storage));
        place.map(|place| *place = Packed::new(storage, health)).is_some()
    }

    pub fn remove(&mut self, storage: StorageIndex) {
        if let Some(place) = self.0.iter().position(|packed| packed.storage() == Some(storage)) {
            self.0[place..].rotate_left(1);
            self.0[FEW - 1] = Packed::NONE;
        }
    }
}
