//! What to move in an iteration: the storage groups (storages of one type on one DataNode) that are used more and less
//! than the average, and pairs of them. Source: Balancer.java of Hadoop 3.4, `init` and `chooseStorageGroups`.

use hearth_client::{DatanodeStorages, StorageType};

use super::arguments::Policy;

/// Types of storages that replicas are moved between.
const MOVABLE: [StorageType; 4] = [StorageType::Disk, StorageType::Ssd, StorageType::Archive, StorageType::Nvdimm];

/// Storages of one type on one DataNode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Index of the DataNode in the report.
    pub datanode: usize,
    pub storage_type: StorageType,
    /// Used more than the average. Otherwise it is a target.
    pub is_source: bool,
    /// Bytes that can still be scheduled.
    pub room: u64,
}

/// Bytes to move from one storage group to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// Index of a group.
    pub source: usize,
    /// Index of a group.
    pub target: usize,
    pub bytes: u64,
}

/// Storage groups by their use. The lists hold indices of `groups`.
#[derive(Debug, Default)]
pub struct Plan {
    pub groups: Vec<Group>,
    over: Vec<usize>,
    above: Vec<usize>,
    below: Vec<usize>,
    under: Vec<usize>,
    /// Bytes by which groups are farther than the threshold from the average.
    pub bytes_left: u64,
}

/// Limits of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub policy: Policy,
    /// Allowed distance from the average, in per cent of a group's capacity.
    pub threshold: f64,
    /// Bytes to move from or to one group.
    pub group_bytes_max: u64,
}

/// Sums over storages of one type.
#[derive(Clone, Copy, Default)]
struct Usage {
    capacity: u64,
    used: u64,
    remaining: u64,
}

impl Usage {
    fn of(report: &DatanodeStorages, storage_type: StorageType, policy: Policy) -> Self {
        let mut sum = Self::default();
        for storage in report.storages.iter().filter(|storage| storage.storage_type == storage_type) {
            sum.add(Self {
                capacity: storage.capacity,
                remaining: storage.remaining,
                used: match policy {
                    Policy::Datanode => storage.dfs_used,
                    Policy::BlockPool => storage.block_pool_used,
                },
            });
        }
        sum
    }

    fn add(&mut self, other: Self) {
        self.capacity = self.capacity.saturating_add(other.capacity);
        self.used = self.used.saturating_add(other.used);
        self.remaining = self.remaining.saturating_add(other.remaining);
    }

    /// Returns the used part in per cent, or `None` without capacity.
    fn utilization(self) -> Option<f64> {
        (self.capacity > 0).then(|| self.used as f64 * 100.0 / self.capacity as f64)
    }
}

fn bytes_of(percentage: f64, capacity: u64) -> u64 {
    (percentage * capacity as f64 / 100.0) as u64
}

impl Plan {
    /// Classifies the storage groups of the DataNodes that take part. `is_source`: whether replicas may be moved away
    /// from the DataNode with this index.
    pub fn new(reports: &[DatanodeStorages], takes_part: &[bool], is_source: &[bool], limits: Limits) -> Self {
        let mut plan = Self::default();
        let taking_part = || reports.iter().enumerate().filter(move |(index, _)| takes_part[*index]);
        let (mut over_bytes, mut under_bytes) = (0_u64, 0_u64);
        for storage_type in MOVABLE {
            let mut all = Usage::default();
            for (_, report) in taking_part() {
                all.add(Usage::of(report, storage_type, limits.policy));
            }
            let Some(average) = all.utilization() else { continue };
            for (datanode, report) in taking_part() {
                let usage = Usage::of(report, storage_type, limits.policy);
                let Some(utilization) = usage.utilization() else { continue };
                if utilization >= average && !is_source[datanode] {
                    continue;
                }
                let difference = utilization - average;
                let beyond = difference.abs() - limits.threshold;
                let mut room = bytes_of(difference.abs(), usage.capacity).min(limits.group_bytes_max);
                if difference < 0.0 {
                    room = room.min(usage.remaining);
                }
                let list = match (difference > 0.0, beyond > 0.0) {
                    (true, true) => &mut plan.over,
                    (true, false) => &mut plan.above,
                    (false, false) => &mut plan.below,
                    (false, true) => &mut plan.under,
                };
                list.push(plan.groups.len());
                if beyond > 0.0 {
                    let sum = if difference > 0.0 { &mut over_bytes } else { &mut under_bytes };
                    *sum = sum.saturating_add(bytes_of(beyond, usage.capacity));
                }
                plan.groups.push(Group { datanode, storage_type, is_source: difference > 0.0, room });
            }
        }
        plan.bytes_left = over_bytes.max(under_bytes);
        plan
    }

    /// Pairs sources with targets: first those on the same rack, then all. `racks`: of the DataNodes by index.
    pub fn pairs(&mut self, racks: &[&str]) -> Vec<Pair> {
        let mut pairs = Vec::new();
        let (over, above, below, under) =
            (self.over.clone(), self.above.clone(), self.below.clone(), self.under.clone());
        for same_rack in [true, false] {
            for (groups, candidates) in [(&over, &under), (&over, &below), (&under, &above)] {
                for group in groups {
                    for candidate in candidates {
                        pairs.extend(self.pair(*group, *candidate, racks, same_rack));
                    }
                }
            }
        }
        pairs
    }

    /// Schedules as many bytes as both groups have room for.
    fn pair(&mut self, one: usize, other: usize, racks: &[&str], same_rack: bool) -> Option<Pair> {
        let (first, second) = (&self.groups[one], &self.groups[other]);
        let bytes = first.room.min(second.room);
        let on_one_rack = racks[first.datanode] == racks[second.datanode];
        if bytes == 0 || first.storage_type != second.storage_type || (same_rack && !on_one_rack) {
            return None;
        }
        let (source, target) = if first.is_source { (one, other) } else { (other, one) };
        self.groups[one].room -= bytes;
        self.groups[other].room -= bytes;
        Some(Pair { source, target, bytes })
    }
}

/// Returns whether a move keeps the number of racks of a block's replicas. `racks`: of all replicas, the source's among
/// them.
pub fn keeps_racks(racks: &[&str], source: &str, target: &str) -> bool {
    let on = |rack: &str| racks.iter().filter(|other| **other == rack).count();
    source == target || on(source) > 1 || on(target) == 0
}

#[cfg(test)]
mod tests {
    use hearth_client::{StorageId, StorageReport};

    use super::super::arguments::tests::datanode;
    use super::*;

    const LIMITS: Limits = Limits { policy: Policy::Datanode, threshold: 10.0, group_bytes_max: 1 << 40 };

    fn report(storages: &[(StorageType, u64, u64)]) -> DatanodeStorages {
        let storages = storages.iter().map(|(storage_type, capacity, used)| StorageReport {
            storage: StorageId("DS-1".into()),
            storage_type: *storage_type,
            failed: false,
            capacity: *capacity,
            dfs_used: *used,
            remaining: capacity - used,
            block_pool_used: used / 2,
            non_dfs_used: 0,
        });
        DatanodeStorages { datanode: datanode("a"), storages: storages.collect() }
    }

    fn disks(used: &[u64]) -> Vec<DatanodeStorages> {
        used.iter().map(|used| report(&[(StorageType::Disk, 1000, *used)])).collect()
    }

    #[test]
    fn groups_are_classified_by_their_distance_from_the_average() {
        // The average is 40 %.
        let reports = disks(&[900, 450, 350, 300, 0]);
        let plan = Plan::new(&reports, &[true; 5], &[true; 5], LIMITS);
        assert_eq!((&plan.over[..], &plan.above[..]), (&[0][..], &[1][..]));
        assert_eq!((&plan.below[..], &plan.under[..]), (&[2, 3][..], &[4][..]));
        assert_eq!(plan.bytes_left, 400, "900 is 400 above 40 % + 10 %, and 0 is 300 below 40 % - 10 %");
        assert_eq!(plan.groups.iter().map(|group| group.room).collect::<Vec<_>>(), [500, 50, 50, 100, 400]);
    }

    #[test]
    fn a_balanced_cluster_has_nothing_left_to_move() {
        for used in [&[500, 450, 400][..], &[0, 0], &[]] {
            let reports = disks(used);
            let all = vec![true; used.len()];
            assert_eq!(Plan::new(&reports, &all, &all, LIMITS).bytes_left, 0);
        }
    }

    #[test]
    fn types_of_storage_are_balanced_separately() {
        let reports = [
            report(&[(StorageType::Disk, 1000, 800), (StorageType::Ssd, 100, 0), (StorageType::RamDisk, 10, 10)]),
            report(&[(StorageType::Disk, 1000, 0), (StorageType::Ssd, 100, 80), (StorageType::RamDisk, 10, 0)]),
        ];
        let mut plan = Plan::new(&reports, &[true; 2], &[true; 2], LIMITS);
        let pairs = plan.pairs(&["/r", "/r"]);
        let moved: Vec<_> = pairs
            .iter()
            .map(|pair| (plan.groups[pair.source].datanode, plan.groups[pair.source].storage_type, pair.bytes))
            .collect();
        assert_eq!(moved, [(0, StorageType::Disk, 400), (1, StorageType::Ssd, 40)]);
    }

    #[test]
    fn datanodes_that_take_no_part_do_not_count() {
        let reports = disks(&[900, 100, 800]);
        let plan = Plan::new(&reports, &[true, true, false], &[true; 3], LIMITS);
        assert_eq!(plan.groups.len(), 2);
        // Only the second may be a source, and it is below the average.
        let mut plan = Plan::new(&reports, &[true; 3], &[false, true, false], LIMITS);
        assert_eq!((plan.groups.len(), &plan.under[..]), (1, &[0][..]));
        assert!(plan.pairs(&["/r"; 3]).is_empty());
    }

    #[test]
    fn block_pools_and_limits_are_respected() {
        let reports = disks(&[800, 0]);
        let pool = Limits { policy: Policy::BlockPool, ..LIMITS };
        assert_eq!(Plan::new(&reports, &[true; 2], &[true; 2], pool).bytes_left, 100, "20 % +- 10 % of 400 and 0");
        let small = Limits { group_bytes_max: 7, ..LIMITS };
        let mut plan = Plan::new(&reports, &[true; 2], &[true; 2], small);
        assert_eq!(plan.pairs(&["/r"; 2]), [Pair { source: 0, target: 1, bytes: 7 }]);
    }

    #[test]
    fn groups_of_one_rack_are_paired_first() {
        // The average is 45 %: 450 to give, 300 and 150 to take.
        let reports = disks(&[900, 450, 150, 300]);
        let mut plan = Plan::new(&reports, &[true; 4], &[true; 4], LIMITS);
        let pairs = plan.pairs(&["/a", "/a", "/b", "/a"]);
        assert_eq!(pairs, [Pair { source: 0, target: 3, bytes: 150 }, Pair { source: 0, target: 2, bytes: 300 }]);
    }

    #[test]
    fn underused_groups_also_take_from_those_a_little_above() {
        // The average is 50 %. Nothing is over 60 %.
        let reports = disks(&[560, 560, 560, 320]);
        let mut plan = Plan::new(&reports, &[true; 4], &[true; 4], LIMITS);
        assert_eq!(plan.bytes_left, 80);
        let pairs = plan.pairs(&["/r"; 4]);
        assert_eq!(pairs.iter().map(|pair| (pair.source, pair.target)).collect::<Vec<_>>(), [(0, 3), (1, 3), (2, 3)]);
    }

    #[test]
    fn moves_keep_the_number_of_racks() {
        assert!(keeps_racks(&["/a", "/b"], "/a", "/a"));
        assert!(keeps_racks(&["/a", "/b"], "/a", "/c"));
        assert!(!keeps_racks(&["/a", "/b"], "/a", "/b"));
        assert!(keeps_racks(&["/a", "/a", "/b"], "/a", "/b"));
    }
}
