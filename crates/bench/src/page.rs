//! `docs/benchmarks/mission.md`: what the project demands of itself, and what the record says of it.

mod demands;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::places;
use demands::{Demand, Goal, Of, SECTIONS};

/// One line of the record, as [`crate::record`] writes it.
#[derive(Deserialize)]
struct Line {
    when: u64,
    commit: String,
    workload: String,
    work: String,
    system: String,
    client: String,
    figure: String,
    unit: String,
    median: f64,
    note: Option<String>,
}

impl Line {
    fn is(&self, of: &Of) -> bool {
        self.workload.starts_with(of.workload)
            && self.work == of.work
            && self.system == of.system
            && self.client == of.client
            && self.figure == of.figure
    }
}

/// Writes the page from the record as it is.
pub fn write() -> Result<()> {
    let record = places::record();
    let text = fs::read_to_string(&record).with_context(|| format!("cannot read {}", record.display()))?;
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(line).with_context(|| format!("{}, line {}", record.display(), index + 1))
        })
        .collect::<Result<Vec<Line>>>()?;
    let path = places::charts()?.join("mission.md");
    fs::write(&path, page(&lines, &charts(path.parent().context("it has a folder")?)))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// The names of the charts that lie in `folder`.
fn charts(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.ends_with(".svg")).collect()
}

fn page(lines: &[Line], charts: &[String]) -> String {
    let mut text = "# What Hearth demands of itself, and what was measured\n\n\
        Made by `hearth bench page` from `bench/record.jsonl`: the last run of each workload that has the line. Both figures of a \
        line are medians of one run, in which the systems took turns on one machine. *base*: what the demand is held against \
        (Apache HDFS unless it says otherwise). These machines are shared and have two cores: ratios say more than figures.\n"
        .to_owned();
    let mut tally = [0; 3];
    for section in SECTIONS {
        write!(text, "\n## {}\n\n", section.title).expect("a String takes all");
        if let Some(remark) = section.remark {
            write!(text, "{remark}\n\n").expect("a String takes all");
        }
        text.push_str("| demand | base | Hearth | ratio | goal | | measured by, at |\n|---|---|---|---|---|---|---|\n");
        for demand in section.demands {
            let row = row(demand, lines);
            tally[row.outcome as usize] += 1;
            text.push_str(&row.text);
        }
        for chart in section.charts.iter().filter(|chart| charts.iter().any(|there| there == *chart)) {
            write!(text, "\n![{chart}]({chart})\n").expect("a String takes all");
        }
    }
    let [met, missed, open] = tally;
    write!(text, "\n{met} met, {missed} not met, {open} not measured yet.\n").expect("a String takes all");
    text
}

#[derive(Clone, Copy)]
enum Outcome {
    Met,
    Missed,
    Open,
}

struct Row {
    text: String,
    outcome: Outcome,
}

fn row(demand: &Demand, lines: &[Line]) -> Row {
    let goal = match demand.goal {
        Goal::AtMost(bound) => format!("≤ {bound}"),
        Goal::AtLeast(bound) => format!("≥ {bound}"),
    };
    // Of one run: both figures, and all that is added up.
    let runs = {
        let mut runs: Vec<u64> = lines.iter().filter(|line| line.is(&demand.ours[0])).map(|line| line.when).collect();
        runs.sort_unstable();
        runs
    };
    let of_run = |when: u64, of: &Of| lines.iter().find(|line| line.when == when && line.is(of));
    let sum = |when: u64, all: &[Of]| -> Option<(f64, &Line)> {
        let found = all.iter().map(|of| of_run(when, of)).collect::<Option<Vec<_>>>()?;
        Some((found.iter().map(|line| line.median).sum(), *found.first()?))
    };
    let measured = runs.into_iter().rev().find_map(|when| {
        let ours = sum(when, demand.ours)?;
        let base = if demand.base.is_empty() { None } else { Some(sum(when, demand.base)?) };
        Some((ours, base))
    });
    let Some(((value, line), base)) = measured else {
        let text = format!("| {} | | | | {goal} | not measured yet | |\n", demand.what);
        return Row { text, outcome: Outcome::Open };
    };
    let ratio = base.as_ref().map_or(value, |(base, _)| value / base);
    let met = match demand.goal {
        Goal::AtMost(bound) => ratio <= bound,
        Goal::AtLeast(bound) => ratio >= bound,
    };
    let figure = |value: f64| format!("{} {}", spelled(value), line.unit).trim_end().to_owned();
    let beside = base.as_ref().map_or(String::new(), |(base, _)| figure(*base));
    let shown = if base.is_some() { spelled(ratio) } else { String::new() };
    let workload = line.workload.split([' ', ',']).next().unwrap_or_default();
    let note = line.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
    let text = format!(
        "| {} | {beside} | {} | {shown} | {goal} | {} | {workload}, {}{note} |\n",
        demand.what,
        figure(value),
        if met { "met" } else { "**not met**" },
        line.commit
    );
    Row { text, outcome: if met { Outcome::Met } else { Outcome::Missed } }
}

/// Three digits that matter.
fn spelled(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(when: u64, system: &str, median: f64) -> Line {
        let workload = "w 1".to_owned();
        let (work, client, figure, unit) = ("get".into(), String::new(), "wall".into(), "s".into());
        Line {
            when,
            commit: "c".into(),
            workload,
            work,
            system: system.into(),
            client,
            figure,
            unit,
            median,
            note: None,
        }
    }

    const fn of(system: &'static str) -> Of {
        Of { workload: "w", work: "get", system, client: "", figure: "wall" }
    }

    #[test]
    fn a_demand_is_held_against_the_last_run_that_has_both_sides() {
        const DEMAND: Demand =
            Demand { what: "fast", ours: &[of("Hearth")], base: &[of("Apache")], goal: Goal::AtMost(0.5) };
        assert!(matches!(row(&DEMAND, &[]).outcome, Outcome::Open));
        let mut lines = vec![line(1, "Hearth", 1.0), line(1, "Apache", 4.0), line(2, "Hearth", 9.0)];
        let met = row(&DEMAND, &lines);
        assert!(matches!(met.outcome, Outcome::Met) && met.text.contains("| 0.250 |"), "{}", met.text);
        lines.push(line(2, "Apache", 10.0));
        let missed = row(&DEMAND, &lines);
        assert!(matches!(missed.outcome, Outcome::Missed) && missed.text.contains("0.900"), "{}", missed.text);
    }

    #[test]
    fn what_a_line_leaves_out_is_said_above_it() {
        let text = page(&[], &[]);
        let (above, _) = text.split_once("| write 2 GiB, 3 DataNodes: CPU").unwrap();
        assert!(above.contains("is without their flusher's"), "{above}");
    }

    #[test]
    fn every_line_of_the_projects_record_can_be_read() {
        let text = fs::read_to_string(hearth_testkit::workspace_root().join("bench/record.jsonl")).unwrap();
        for line in text.lines() {
            serde_json::from_str::<Line>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
    }
}
