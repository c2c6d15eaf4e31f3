//! Attributes of an inode besides its name, place and content, packed into 28 bytes. A namespace has one of these per
//! inode.
//!
//! The fields are large enough for real clusters: 10^12 inodes, times until the year 10889, 65,536 users and groups, 16
//! million snapshots, 255 replicas, and block sizes of three significant bits followed by zeros. Inodes with other
//! values store the [`Attributes`] separately ([`super::inode`]).

use hearth_types::FsPermission;

use super::inode::InodeId;
use super::principals::PrincipalId;
use crate::packed::{Field, Number};

/// Attributes of an inode besides its name, place and content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    pub id: InodeId,
    pub owner: PrincipalId,
    pub group: PrincipalId,
    pub permission: FsPermission,
    /// Number of the storage policy; 0 if none is set on this inode.
    pub storage_policy: u8,
    /// Replication of a file's blocks; 0 for a directory.
    pub replication: u16,
    /// Block size in bytes, at which a file's writer starts the next block; 0 for a directory.
    pub block_size: u64,
    /// Modification time in milliseconds since the epoch.
    pub modification_time_ms: u64,
    /// Access time in milliseconds since the epoch; 0 for a directory until it is set explicitly.
    pub access_time_ms: u64,
    /// Number of the newest snapshot when this state began. Only later snapshots have this state. See `history.rs`.
    pub since: u32,
}

impl Attributes {
    /// Returns the attributes of a new directory.
    pub fn directory(
        id: InodeId,
        owner: PrincipalId,
        group: PrincipalId,
        permission: FsPermission,
        now_ms: u64,
    ) -> Self {
        Self {
            id,
            owner,
            group,
            permission,
            storage_policy: 0,
            replication: 0,
            block_size: 0,
            modification_time_ms: now_ms,
            access_time_ms: 0,
            since: 0,
        }
    }
}

const PERMISSION: Field = Field::first(12);
const POLICY: Field = PERMISSION.then(4);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedAttributes {
    id: Number<5>,
    modification_time_ms: Number<6>,
    access_time_ms: Number<6>,
    since: Number<3>,
    owner: Number<2>,
    group: Number<2>,
    permission_and_policy: Number<2>,
    replication: Number<1>,
    block_size: BlockSize,
}

impl PackedAttributes {
    /// Placeholder for an inode whose attributes are stored elsewhere.
    pub const NONE: Self = Self {
        id: Number::ZERO,
        modification_time_ms: Number::ZERO,
        access_time_ms: Number::ZERO,
        since: Number::ZERO,
        owner: Number::ZERO,
        group: Number::ZERO,
        permission_and_policy: Number::ZERO,
        replication: Number::ZERO,
        block_size: BlockSize(0),
    };

    /// `None` if an attribute does not fit.
    pub fn new(attributes: &Attributes) -> Option<Self> {
        let mut permission_and_policy = 0;
        let fits = PERMISSION.set(&mut permission_and_policy, u64::from(attributes.permission.0))
            && POLICY.set(&mut permission_and_policy, u64::from(attributes.storage_policy));
        if !fits {
            return None;
        }
        Some(Self {
            id: Number::new(attributes.id.0)?,
            modification_time_ms: Number::new(attributes.modification_time_ms)?,
            access_time_ms: Number::new(attributes.access_time_ms)?,
            since: Number::new(u64::from(attributes.since))?,
            owner: Number::new(u64::from(attributes.owner.0))?,
            group: Number::new(u64::from(attributes.group.0))?,
            permission_and_policy: Number::new(permission_and_policy)?,
            replication: Number::new(u64::from(attributes.replication))?,
            block_size: BlockSize::new(attributes.block_size)?,
        })
    }

    pub fn attributes(self) -> Attributes {
        Attributes {
            id: self.id(),
            owner: self.owner(),
            group: self.group(),
            permission: self.permission(),
            storage_policy: self.storage_policy(),
            replication: self.replication(),
            block_size: self.block_size(),
            modification_time_ms: self.modification_time_ms(),
            access_time_ms: self.access_time_ms(),
            since: self.since(),
        }
    }

    pub fn id(self) -> InodeId {
        InodeId(self.id.get())
    }

    pub fn owner(self) -> PrincipalId {
        PrincipalId(self.owner.get() as u32)
    }

    pub fn group(self) -> PrincipalId {
        PrincipalId(self.group.get() as u32)
    }

    pub fn permission(self) -> FsPermission {
        FsPermission(PERMISSION.get(self.permission_and_policy.get()) as u16)
    }

    pub fn storage_policy(self) -> u8 {
        POLICY.get(self.permission_and_policy.get()) as u8
    }

    pub fn replication(self) -> u16 {
        self.replication.get() as u16
    }

    pub fn block_size(self) -> u64 {
        self.block_size.get()
    }

    pub fn modification_time_ms(self) -> u64 {
        self.modification_time_ms.get()
    }

    pub fn access_time_ms(self) -> u64 {
        self.access_time_ms.get()
    }

    pub fn since(self) -> u32 {
        self.since.get() as u32
    }
}

/// Block size in one byte: a power of two or one of the seven steps to the next, from 512 bytes to 1,792 GiB, or 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BlockSize(u8);

impl BlockSize {
    /// Bits of the step; eight steps double a size.
    const STEP_BITS: u32 = 3;
    /// Exponent of the smallest size.
    const EXPONENT_MIN: u32 = 9;

    /// `None` if the size has no such form.
    fn new(bytes: u64) -> Option<Self> {
        let Some(exponent) = bytes.checked_ilog2() else { return Some(Self(0)) };
        let doubled = exponent.checked_sub(Self::EXPONENT_MIN)?;
        let step = (bytes >> (exponent - Self::STEP_BITS)) as u32 & ((1 << Self::STEP_BITS) - 1);
        let size = Self(u8::try_from((doubled << Self::STEP_BITS | step) + 1).ok()?);
        (size.get() == bytes).then_some(size)
    }

    fn get(self) -> u64 {
        let Some(number) = self.0.checked_sub(1) else { return 0 };
        let (doubled, step) = (number >> Self::STEP_BITS, number & ((1 << Self::STEP_BITS) - 1));
        u64::from(1 << Self::STEP_BITS | step) << (u32::from(doubled) + Self::EXPONENT_MIN - Self::STEP_BITS)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_stay_small() {
        assert_eq!(size_of::<PackedAttributes>(), 28);
    }

    #[test]
    fn usual_block_sizes_fit() {
        for size in [0, 512, 4096, 1 << 20, 64 << 20, 96 << 20, 128 << 20, 256 << 20, 1536 << 20, 1 << 40, 1792 << 30] {
            assert_eq!(BlockSize::new(size).map(BlockSize::get), Some(size));
        }
        for size in [1, 511, 513, 100_000_000, (1 << 20) + 1, 1920 << 30, 1 << 41, u64::MAX] {
            assert!(BlockSize::new(size).is_none(), "{size}");
        }
        let all: std::collections::BTreeSet<u64> = (0..=u8::MAX).map(|code| BlockSize(code).get()).collect();
        assert_eq!(all.len(), 256);
    }

    /// Usual numbers, and numbers around the limit of a field.
    fn number(usual: std::ops::Range<u64>, bits: u32) -> impl Strategy<Value = u64> {
        let limit = 1u64 << bits;
        prop_oneof![12 => usual, 1 => limit - 2..limit + 2, 1 => any::<u64>(), 1 => Just(u64::MAX)]
    }

    pub(in crate::namespace) fn attributes() -> impl Strategy<Value = Attributes> {
        let block_size = prop_oneof![
            12 => (10u32..40, 8u64..16).prop_map(|(shift, steps)| steps << shift),
            1 => Just(0),
            1 => any::<u64>(),
        ];
        let times = (number(0..2_000_000_000_000, 48), number(0..2_000_000_000_000, 48));
        let names = (number(0..9, 16), number(0..9, 16));
        (
            number(0..99_999, 40),
            names,
            number(0..4096, 12),
            number(0..16, 4),
            number(0..9, 8),
            block_size,
            times,
            number(0..9, 24),
        )
            .prop_map(|(id, names, permission, policy, replication, block_size, times, since)| Attributes {
                id: InodeId(id),
                owner: PrincipalId(names.0 as u32),
                group: PrincipalId(names.1 as u32),
                permission: FsPermission(permission as u16),
                storage_policy: policy as u8,
                replication: replication as u16,
                block_size,
                modification_time_ms: times.0,
                access_time_ms: times.1,
                since: since as u32,
            })
    }

    proptest! {
        #[test]
        fn attributes_round_trip_or_are_refused(attributes in attributes()) {
            let fits = attributes.id.0 < 1 << 40
                && attributes.modification_time_ms.max(attributes.access_time_ms) < 1 << 48
                && attributes.since < 1 << 24
                && attributes.owner.0.max(attributes.group.0) < 1 << 16
                && attributes.permission.0 < 1 << 12
                && attributes.storage_policy < 1 << 4
                && attributes.replication < 1 << 8
                && BlockSize::new(attributes.block_size).is_some();
            prop_assert_eq!(PackedAttributes::new(&attributes).map(PackedAttributes::attributes), fits.then_some(attributes));
        }

        #[test]
        fn block_size_round_trips_or_is_refused(bytes: u64, shift in 0u32..64) {
            let bytes = bytes >> shift << shift;
            prop_assert!(BlockSize::new(bytes).is_none_or(|size| size.get() == bytes));
        }
    }
}
