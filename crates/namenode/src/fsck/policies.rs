use std::collections::BTreeMap;
use std::fmt::Write;

use hearth_types::StorageType;

use crate::blocks::{BlockReport, POLICIES, StoragePolicy};

/// Media of the blocks, compared with the policies of their files.
///
/// Source: StoragePolicySummary.java.
#[derive(Default)]
pub(super) struct PolicyCounts {
    /// Number of blocks by their media, in order, and the policy of their file.
    counts: BTreeMap<(Vec<StorageType>, u8), u64>,
}

impl PolicyCounts {
    pub fn count(&mut self, report: &BlockReport) {
        let mut media: Vec<StorageType> = report
            .replicas
            .iter()
            .filter(|replica| replica.alive && !replica.corrupt && !replica.excess)
            .map(|replica| replica.target.storage_type)
            .collect();
        media.sort_unstable_by_key(rank);
        let policy = if report.policy == 0 { HOT } else { report.policy };
        *self.counts.entry((media, policy)).or_default() += 1;
    }

    pub fn text(&self) -> String {
        let total: u64 = self.counts.values().sum();
        let mut rows: Vec<_> = self.counts.iter().collect();
        // The most frequent first.
        rows.sort_by(|(_, one), (_, other)| other.cmp(one));
        let mut satisfied = String::from(
            "\nBlocks satisfying the specified storage policy:\nStorage Policy                  # of blocks       % of blocks\n",
        );
        let mut unsatisfied = String::new();
        for ((media, policy), count) in rows {
            let wanted = StoragePolicy::by_id(*policy);
            let found = POLICIES.iter().find(|policy| is_satisfied(policy, media));
            let place = place(media, found);
            let share = format!("{:.4}%", *count as f64 * 100.0 / total.max(1) as f64);
            if found.is_some_and(|found| found.id == *policy) {
                let _ = writeln!(satisfied, "{place:<25} {count:>10}  {share:>20}");
                continue;
            }
            if unsatisfied.is_empty() {
                unsatisfied.push_str(
                    "\nBlocks NOT satisfying the specified storage policy:\nStorage Policy                  \
                     Specified Storage Policy      # of blocks       % of blocks\n",
                );
            }
            let wanted = wanted.map_or("", |policy| policy.name);
            let _ = writeln!(unsatisfied, "{place:<35} {wanted:<20} {count:>10}  {share:>20}");
        }
        if unsatisfied.is_empty() {
            unsatisfied.push_str("\nAll blocks satisfy specified storage policy.\n");
        }
        satisfied + &unsatisfied
    }
}

/// The policy of files without one.
const HOT: u8 = 7;

/// Returns true if a block whose replicas are on `media`, in order, satisfies `policy`.
fn is_satisfied(policy: &StoragePolicy, media: &[StorageType]) -> bool {
    // At least as many media as the policy lists; the last one is repeated.
    if media.len() < policy.storage_types.len() {
        return false;
    }
    let mut wanted = policy.wanted(media.len());
    wanted.sort_unstable_by_key(rank);
    wanted == media
}

/// Position in Hadoop's list of media, which determines their order in the report. Source: StorageType.java.
fn rank(storage_type: &StorageType) -> Option<usize> {
    use StorageType::*;
    [RamDisk, Nvdimm, Ssd, Disk, Archive, Provided].iter().position(|known| known == storage_type)
}

/// Text like `DISK:3(HOT)`; without a name if no policy asks for such media.
fn place(media: &[StorageType], policy: Option<&StoragePolicy>) -> String {
    let runs = media.chunk_by(|one, other| one == other);
    let media: Vec<String> = runs.map(|run| format!("{}:{}", run[0].name(), run.len())).collect();
    let policy = policy.map_or_else(String::new, |policy| format!("({})", policy.name));
    format!("{}{policy}", media.join(","))
}

#[cfg(test)]
mod tests {
    use hearth_types::StorageType::*;

    use super::*;

    #[test]
    fn rows_show_satisfied_and_specified_policies() {
        let counts =
            [((vec![Disk, Disk], HOT), 3), ((vec![Ssd, Disk], 10), 1), ((vec![Disk], 2), 4), ((vec![], HOT), 2)];
        let counts = counts.into_iter().map(|((mut media, policy), count)| {
            media.sort_unstable_by_key(rank);
            ((media, policy), count)
        });
        let text = PolicyCounts { counts: counts.collect() }.text();
        assert_eq!(
            text,
            "\nBlocks satisfying the specified storage policy:\nStorage Policy                  # of blocks       % of blocks\n\
             DISK:2(HOT)                        3              30.0000%\n\
             SSD:1,DISK:1(ONE_SSD)              1              10.0000%\n\
             \nBlocks NOT satisfying the specified storage policy:\n\
             Storage Policy                  Specified Storage Policy      # of blocks       % of blocks\n\
             DISK:1(HOT)                         COLD                          4              40.0000%\n\
             \u{20}                                   HOT                           2              20.0000%\n"
        );
    }
}
