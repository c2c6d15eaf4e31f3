use hearth_types::StorageType;

use StorageType::{Archive, Disk, Nvdimm, Provided, RamDisk, Ssd};

/// Storage policy: the media on which the replicas of a file shall be placed. Apache Hadoop's built-in policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoragePolicy {
    pub id: u8,
    pub name: &'static str,
    /// Medium of the n-th replica; the last one applies to all that follow.
    pub storage_types: &'static [StorageType],
    /// Media for a new block if the wanted one has no room.
    pub creation_fallbacks: &'static [StorageType],
    /// Media for a re-replicated block if the wanted one has no room.
    pub replication_fallbacks: &'static [StorageType],
}

/// All policies, in the order in which getStoragePolicies lists them.
pub const POLICIES: &[StoragePolicy] = &[
    policy(1, "PROVIDED", &[Provided, Disk], &[Provided, Disk], &[Provided, Disk]),
    policy(2, "COLD", &[Archive], &[], &[]),
    policy(5, "WARM", &[Disk, Archive], &[Disk, Archive], &[Disk, Archive]),
    policy(7, "HOT", &[Disk], &[], &[Archive]),
    policy(10, "ONE_SSD", &[Ssd, Disk], &[Ssd, Disk], &[Ssd, Disk]),
    policy(12, "ALL_SSD", &[Ssd], &[Disk], &[Disk]),
    policy(14, "ALL_NVDIMM", &[Nvdimm], &[Disk], &[Disk]),
    policy(15, "LAZY_PERSIST", &[RamDisk, Disk], &[Disk], &[Disk]),
];

const fn policy(
    id: u8,
    name: &'static str,
    storage_types: &'static [StorageType],
    creation_fallbacks: &'static [StorageType],
    replication_fallbacks: &'static [StorageType],
) -> StoragePolicy {
    StoragePolicy { id, name, storage_types, creation_fallbacks, replication_fallbacks }
}

impl StoragePolicy {
    /// Returns `None` if the id is not that of a built-in policy; 0 (unspecified) is not.
    pub fn by_id(id: u8) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.id == id)
    }

    /// Looks a policy up by the name that administrators write; case does not matter.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name.eq_ignore_ascii_case(name))
    }

    /// The media of `replication` replicas, first to last.
    pub fn wanted(&self, replication: usize) -> Vec<StorageType> {
        (0..replication).map(|nth| self.storage_types[nth.min(self.storage_types.len() - 1)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_medium_repeats() {
        assert_eq!(StoragePolicy::by_id(10).unwrap().wanted(3), [Ssd, Disk, Disk]);
        assert_eq!(StoragePolicy::by_name("hot").unwrap().wanted(2), [Disk, Disk]);
        assert_eq!(StoragePolicy::by_id(0), None);
    }
}
