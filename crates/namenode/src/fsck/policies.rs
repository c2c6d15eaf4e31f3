use std::collections::BTreeMap;
use std::fmt::Write;

use hearth_types::StorageType;

use crate::blocks::{BlockReport, POLICIES, StoragePolicy};

/// On which media the blocks lie, against what their files' policies ask for.
#[derive(Default)]
pub(super) struct Policies {
    /// Media in order with their counts, and the policy.
    satisfied: BTreeMap<(Vec<StorageType>, u8), u64>,
    unsatisfied: BTreeMap<(Vec<StorageType>, u8), u64>,
}

impl Policies {
    pub fn count(&mut self, report: &BlockReport) {
        let mut media: Vec<StorageType> = report
            .replicas
            .iter()
            .filter(|replica| replica.alive && !replica.corrupt && !replica.excess)
            .map(|replica| replica.target.storage_type)
            .collect();
        media.sort_unstable();
        let Some(policy) = StoragePolicy::by_id(if report.policy == 0 { 7 } else { report.policy }) else { return };
        let mut wanted = policy.wanted(media.len());
        wanted.sort_unstable();
        let found = if wanted == media { &mut self.satisfied } else { &mut self.unsatisfied };
        *found.entry((media, policy.id)).or_default() += 1;
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        let total: u64 = self.satisfied.values().chain(self.unsatisfied.values()).sum();
        out.push_str("\nBlocks satisfying the specified storage policy:");
        table(&mut out, &self.satisfied, total, true);
        if self.unsatisfied.is_empty() {
            out.push_str("\nAll blocks satisfy specified storage policy.\n");
        } else {
            out.push_str("\nBlocks NOT satisfying the specified storage policy:");
            table(&mut out, &self.unsatisfied, total, false);
        }
        out
    }
}

fn table(out: &mut String, rows: &BTreeMap<(Vec<StorageType>, u8), u64>, total: u64, satisfied: bool) {
    out.push_str("\nStorage Policy                  # of blocks       % of blocks\n");
    for ((media, policy), count) in rows {
        let mut text = String::new();
        for run in media.chunk_by(|one, other| one == other) {
            let _ = write!(text, "{}{}:{}", if text.is_empty() { "" } else { "," }, run[0].name(), run.len());
        }
        let name = POLICIES.iter().find(|known| known.id == *policy).map_or("", |known| known.name);
        let text = if satisfied { format!("{text}({name})") } else { format!("{text}({name} wanted)") };
        let share = *count as f64 * 100.0 / total.max(1) as f64;
        let _ = writeln!(out, "{text:<26}{count:>10}{share:>21.4}%");
    }
}
