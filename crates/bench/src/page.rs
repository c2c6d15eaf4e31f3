//! `docs/benchmarks/mission.md`: what the project demands of itself, and what the record says of it.

mod requirements;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::output_paths;
use requirements::{FigureKey, Goal, Requirement, SECTIONS};

/// One line of the record, as [`crate::record`] writes it.
#[derive(Deserialize)]
struct Line {
    when: u64,
    commit: String,
    machine: String,
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
    fn is(&self, of: &FigureKey) -> bool {
        self.workload.starts_with(of.workload)
            && self.work == of.work
            && self.system == of.system
            && self.client == of.client
            && self.figure == of.figure
    }
}

/// Writes the page from the record as it is.
pub fn write() -> Result<()> {
    let record = output_paths::record();
    let text = fs::read_to_string(&record).with_context(|| format!("cannot read {}", record.display()))?;
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(line).with_context(|| format!("{}, line {}", record.display(), index + 1))
        })
        .collect::<Result<Vec<Line>>>()?;
    let path = output_paths::charts()?.join("mission.md");
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
        Made by `hearth-bench page` from `bench/record.jsonl`: the last run of each workload, of the size that the demand names. Both \
        figures of a line are medians of one run, in which the systems took turns on one machine. *base*: what the demand is held \
        against (Apache HDFS unless it says otherwise). These machines are shared and have two cores: ratios say more than figures.\n"
        .to_owned();
    let (mut met, mut missed, mut open) = (0, 0, 0);
    let mut machines: Vec<&str> = Vec::new();
    for section in SECTIONS {
        write!(text, "\n## {}\n\n", section.title).expect("a String takes all");
        if let Some(remark) = section.remark {
            write!(text, "{remark}\n\n").expect("a String takes all");
        }
        text.push_str("| demand | base | Hearth | ratio | goal | | measured by, at |\n|---|---|---|---|---|---|---|\n");
        for demand in section.requirements {
            let held = evaluate(demand, lines);
            let tally = match &held {
                None => &mut open,
                Some(held) if held.met => &mut met,
                Some(_) => &mut missed,
            };
            *tally += 1;
            text.push_str(&row(demand, held.as_ref(), &mut machines));
        }
        for chart in section.charts.iter().filter(|chart| charts.iter().any(|there| there == *chart)) {
            write!(text, "\n![{chart}]({chart})\n").expect("a String takes all");
        }
    }
    write!(text, "\n{met} met, {missed} not met, {open} not measured yet.\n").expect("a String takes all");
    text.push_str("\nThe machines that the lines name by their numbers:\n\n");
    for (index, machine) in machines.iter().enumerate() {
        writeln!(text, "{}. {machine}", index + 1).expect("a String takes all");
    }
    text
}

/// What the record says of a demand.
struct Evaluation<'a> {
    /// The first of ours.
    line: &'a Line,
    value: f64,
    base: Option<f64>,
    /// To the base; what was measured where there is none.
    ratio: f64,
    met: bool,
}

/// By the last run that has both figures, and all that is added up in them.
fn evaluate<'a>(demand: &Requirement, lines: &'a [Line]) -> Option<Evaluation<'a>> {
    let mut runs: Vec<u64> = lines.iter().filter(|line| line.is(&demand.ours[0])).map(|line| line.when).collect();
    runs.sort_unstable();
    let of_run = |when: u64, of: &FigureKey| lines.iter().find(|line| line.when == when && line.is(of));
    let sum = |when: u64, all: &[FigureKey]| -> Option<(f64, &'a Line)> {
        let found = all.iter().map(|of| of_run(when, of)).collect::<Option<Vec<_>>>()?;
        Some((found.iter().map(|line| line.median).sum(), *found.first()?))
    };
    runs.into_iter().rev().find_map(|when| {
        let (value, line) = sum(when, demand.ours)?;
        let base = if demand.base.is_empty() { None } else { Some(sum(when, demand.base)?.0) };
        // Nothing can be held against a nought: any figure would be more than it.
        if base.is_some_and(|base| base <= 0.0) {
            return None;
        }
        let ratio = base.map_or(value, |base| value / base);
        let met = match demand.goal {
            Goal::AtMost(bound) => ratio <= bound,
            Goal::AtLeast(bound) => ratio >= bound,
        };
        Some(Evaluation { line, value, base, ratio, met })
    })
}

/// `machines`: those of the rows before, which are called by their numbers.
fn row<'a>(demand: &Requirement, held: Option<&Evaluation<'a>>, machines: &mut Vec<&'a str>) -> String {
    let goal = match demand.goal {
        Goal::AtMost(bound) => format!("≤ {bound}"),
        Goal::AtLeast(bound) => format!("≥ {bound}"),
    };
    let Some(&Evaluation { line, value, base, ratio, met }) = held else {
        return format!("| {} | | | | {goal} | not measured yet | |\n", demand.what);
    };
    let figure = |value: f64| format!("{} {}", spelled(value), line.unit).trim_end().to_owned();
    let beside = base.map_or(String::new(), figure);
    let shown = if base.is_some() { spelled(ratio) } else { String::new() };
    let workload = line.workload.strip_prefix("network ").unwrap_or(&line.workload);
    let workload = workload.split([' ', ',', ':']).next().unwrap_or_default();
    let pages = if line.workload.contains("huge pages") { ", huge pages" } else { "" };
    let note = line.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
    let machine = match machines.iter().position(|machine| *machine == line.machine) {
        Some(known) => known,
        None => {
            machines.push(&line.machine);
            machines.len() - 1
        }
    };
    format!(
        "| {} | {beside} | {} | {shown} | {goal} | {} | {workload}{pages}, {} [{}]{note} |\n",
        demand.what,
        figure(value),
        if met { "met" } else { "**not met**" },
        line.commit,
        machine + 1
    )
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

    fn line(when: u64, workload: &str, system: &str, median: f64) -> Line {
        let (work, client, figure, unit) = ("get".into(), String::new(), "wall".into(), "s".into());
        let (commit, machine, workload, system) = ("c".into(), "m".into(), workload.into(), system.into());
        Line { when, commit, machine, workload, work, system, client, figure, unit, median, note: None }
    }

    const fn of(system: &'static str) -> FigureKey {
        FigureKey { workload: "w 64 MiB", work: "get", system, client: "", figure: "wall" }
    }

    const REQUIREMENT: Requirement =
        Requirement { what: "fast", ours: &[of("Hearth")], base: &[of("Apache")], goal: Goal::AtMost(0.5) };

    #[test]
    fn a_demand_is_held_against_the_last_run_that_has_both_sides() {
        assert!(evaluate(&REQUIREMENT, &[]).is_none());
        assert!(row(&REQUIREMENT, None, &mut Vec::new()).contains("not measured yet"));
        let of = |when, system, median| line(when, "w 64 MiB, huge pages", system, median);
        let mut lines = vec![of(1, "Hearth", 1.0), of(1, "Apache", 4.0), of(2, "Hearth", 9.0)];
        let found = evaluate(&REQUIREMENT, &lines).unwrap();
        let text = row(&REQUIREMENT, Some(&found), &mut vec!["another machine"]);
        assert!(found.met && text.contains("| 0.250 |") && text.contains("w, huge pages, c [2]"), "{text}");
        lines.push(of(2, "Apache", 10.0));
        let found = evaluate(&REQUIREMENT, &lines).unwrap();
        let text = row(&REQUIREMENT, Some(&found), &mut Vec::new());
        assert!(!found.met && text.contains("0.900") && text.contains("**not met**"), "{text}");
    }

    #[test]
    fn a_smaller_run_and_one_that_has_nothing_to_be_held_against_do_not_count() {
        let lines = [
            line(1, "w 64 MiB", "Hearth", 2.0),
            line(1, "w 64 MiB", "Apache", 2.0),
            line(2, "w 1 MiB", "Hearth", 1.0),
            line(2, "w 1 MiB", "Apache", 9.0),
            line(3, "w 64 MiB", "Hearth", 0.0),
            line(3, "w 64 MiB", "Apache", 0.0),
        ];
        let found = evaluate(&REQUIREMENT, &lines).unwrap();
        assert_eq!((found.line.when, found.ratio, found.met), (1, 1.0, false));
    }

    #[test]
    fn all_that_is_demanded_has_been_measured_as_it_is_named() {
        let lines = record();
        for demand in SECTIONS.iter().flat_map(|section| section.requirements) {
            for of in demand.ours.iter().chain(demand.base) {
                assert!(lines.iter().any(|line| line.is(of)), "{}: no line of {}", demand.what, of.workload);
            }
        }
    }

    #[test]
    fn what_a_line_leaves_out_is_said_above_it() {
        let text = page(&[], &[]);
        let (above, _) = text.split_once("| write 2 GiB, 3 DataNodes: CPU").unwrap();
        assert!(above.contains("is without their flusher's"), "{above}");
    }

    #[test]
    fn every_line_of_the_projects_record_can_be_read() {
        assert!(!record().is_empty());
    }

    fn record() -> Vec<Line> {
        let text = fs::read_to_string(hearth_testkit::workspace_root().join("bench/record.jsonl")).unwrap();
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        text.lines().map(read).collect()
    }
}
