use std::collections::BTreeMap;
use std::fmt::Write;

use hearth_types::StorageType;

use crate::blocks::{BlockReport, POLICIES, StoragePolicy};

/// On which media the blocks lie, against what their files' policies ask for.
///
/// Source: StoragePolicySummary.java.
#[derive(Default)]
pub(super) struct PolicyCounts {
    /// Blocks by their media, in order, and the policy of their file.
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

/// The policy of files that name none.
const HOT: u8 = 7;

/// Whether a block whose replicas lie on `media`, in order, is where `policy` wants it.
fn is_satisfied(policy: &StoragePolicy, media: &[StorageType]) -> bool {
    // As many as the policy names at least, the last one repeated.
    if media.len() < policy.storage_types.len() {
        return false;
    }
    let mut wanted = policy.wanted(media.len());
    wanted.sort_unstable_by_key(rank);
    wanted == media
}

/// Its place in Hadoop's list of media, by which they are shown. Source: StorageType.java.
fn rank(storage_type: &StorageType) -> Option<usize> {
    use StorageType::*;
    [RamDisk, Nvdimm, Ssd, Disk, Archive, Provided].iter().position(|known| known == storage_type)
}

/// `DISK:3(HOT)`; without a name when no policy asks for such a place.
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
    fn rows_say_which_policy_a_place_satisfies_and_which_was_wanted() {
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
