//! The replicas of one block, in sixteen bytes as long as there are three at most and all are under the block's own stamp: a
//! namespace has as many of these lists as it has blocks.

use hearth_types::GenerationStamp;

use super::datanodes::StorageIndex;

/// Lists of so many replicas need no allocation.
const FEW: usize = 3;

/// Of a packed replica: the storage. There are fewer ([`super::datanodes`] bounds them).
const STORAGE_MASK: u32 = (1 << 30) - 1;

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

/// Storage and health of a replica under the block's stamp.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Packed(u32);

impl Packed {
    fn new(replica: Replica) -> Self {
        let StorageIndex(storage) = replica.storage;
        assert!(storage <= STORAGE_MASK, "storage {storage} is one of those that can be");
        Self(storage | (replica.health as u32) << 30)
    }

    fn storage(self) -> StorageIndex {
        StorageIndex(self.0 & STORAGE_MASK)
    }

    fn replica(self, stamp: GenerationStamp) -> Replica {
        let health = match self.0 >> 30 {
            0 => Health::Live,
            1 => Health::Excess,
            _ => Health::Corrupt,
        };
        Replica { storage: self.storage(), health, stamp }
    }
}

/// At most one replica a storage, in the order in which they came. Every method is told the block's own stamp.
#[derive(Debug)]
pub(super) enum Replicas {
    Few {
        count: u8,
        packed: [Packed; FEW],
    },
    #[expect(clippy::box_collection, reason = "a vector is as large as all the rest, and seldom needed")]
    Many(Box<Vec<Replica>>),
}

impl Default for Replicas {
    fn default() -> Self {
        Self::Few { count: 0, packed: Default::default() }
    }
}

impl Replicas {
    pub fn iter(&self, stamp: GenerationStamp) -> impl Iterator<Item = Replica> {
        let (few, many): (&[Packed], &[Replica]) = match self {
            Self::Few { count, packed } => (&packed[..usize::from(*count)], &[]),
            Self::Many(replicas) => (&[], replicas),
        };
        few.iter().map(move |packed| packed.replica(stamp)).chain(many.iter().copied())
    }

    /// Adds a replica, or has it take the place of what was known of its storage.
    pub fn put(&mut self, replica: Replica, stamp: GenerationStamp) {
        if let Self::Few { count, packed } = self
            && replica.stamp == stamp
        {
            let known = packed[..usize::from(*count)].iter().position(|packed| packed.storage() == replica.storage);
            let place = known.unwrap_or(usize::from(*count));
            if place < FEW {
                packed[place] = Packed::new(replica);
                *count = (*count).max(place as u8 + 1);
                return;
            }
        }
        let many = self.unpacked(stamp);
        match many.iter_mut().find(|known| known.storage == replica.storage) {
            Some(known) => *known = replica,
            None => many.push(replica),
        }
        self.pack(stamp);
    }

    pub fn remove(&mut self, storage: StorageIndex, stamp: GenerationStamp) {
        match self {
            Self::Few { count, packed } => {
                let all = &mut packed[..usize::from(*count)];
                if let Some(place) = all.iter().position(|packed| packed.storage() == storage) {
                    all[place..].rotate_left(1);
                    *count -= 1;
                }
            }
            Self::Many(replicas) => {
                replicas.retain(|replica| replica.storage != storage);
                self.pack(stamp);
            }
        }
    }

    /// The block gets another stamp; the replicas keep theirs.
    pub fn block_restamped(&mut self, old: GenerationStamp, new: GenerationStamp) {
        if old != new && self.iter(old).next().is_some() {
            self.unpacked(old);
            self.pack(new);
        }
    }

    fn unpacked(&mut self, stamp: GenerationStamp) -> &mut Vec<Replica> {
        if let Self::Few { .. } = self {
            *self = Self::Many(Box::new(self.iter(stamp).collect()));
        }
        let Self::Many(replicas) = self else { unreachable!("just made so") };
        replicas
    }

    fn pack(&mut self, stamp: GenerationStamp) {
        let Self::Many(replicas) = self else { return };
        if replicas.len() <= FEW && replicas.iter().all(|replica| replica.stamp == stamp) {
            let (count, mut packed) = (replicas.len() as u8, [Packed::default(); FEW]);
            for (place, replica) in packed.iter_mut().zip(replicas.iter()) {
                *place = Packed::new(*replica);
            }
            *self = Self::Few { count, packed };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_as_a_vector(steps in prop::collection::vec((0u8..8, 0u32..6, 0u8..3, 1u64..4), 1..60)) {
            let (mut replicas, mut model, mut block) = (Replicas::default(), Vec::<Replica>::new(), GenerationStamp(1));
            for (step, storage, health, stamp) in steps {
                let storage = StorageIndex(storage + 20_000 * 1024);
                let health = [Health::Live, Health::Excess, Health::Corrupt][usize::from(health)];
                match step {
                    0..4 => {
                        // Mostly the block's own.
                        let stamp = if step < 3 { block } else { GenerationStamp(stamp) };
                        let replica = Replica { storage, health, stamp };
                        match model.iter_mut().find(|known| known.storage == storage) {
                            Some(known) => *known = replica,
                            None => model.push(replica),
                        }
                        replicas.put(replica, block);
                    }
                    4..7 => {
                        model.retain(|replica| replica.storage != storage);
                        replicas.remove(storage, block);
                    }
                    _ => {
                        replicas.block_restamped(block, GenerationStamp(stamp));
                        block = GenerationStamp(stamp);
                    }
                }
                prop_assert_eq!(replicas.iter(block).collect::<Vec<_>>(), model.clone());
                let is_small = model.len() <= FEW && model.iter().all(|replica| replica.stamp == block);
                prop_assert!(!is_small || matches!(replicas, Replicas::Few { .. }), "{:?}", replicas);
            }
        }
    }
}
