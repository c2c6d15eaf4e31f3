//! `bench/record.jsonl`: one line for each figure of the latest runs. A run replaces an earlier run of its workload if
//! it measured all figures of that run. Git keeps the replaced ones.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use hearth_testkit::Apache;
use serde_json::json;

use crate::{machine, measure, output_paths, profile};

/// One measured quantity: its values in the runs of one benchmark.
#[derive(Clone, Debug)]
pub struct Figure {
    /// "put", "get", "idle"
    pub work: String,
    /// "Apache", "Hearth", "minimal C"
    pub system: String,
    /// "hdfs dfs", "hdfs-native"; empty if no client takes part.
    pub client: String,
    /// "datanode CPU", "wall", ...
    pub what: String,
    /// "s", "MiB"
    pub unit: &'static str,
    pub values: Vec<f64>,
}

impl Figure {
    pub fn median(&self) -> f64 {
        measure::median(&self.values)
    }
}

/// Options of all workloads: whether figures are recorded, and with which note.
#[derive(clap::Args)]
pub struct Recording {
    /// Print only: change neither the record nor a chart
    #[arg(long)]
    no_record: bool,
    /// Note added to each recorded figure, e.g. that the machine was busy
    #[arg(long)]
    note: Option<String>,
}

impl Recording {
    /// Returns whether to record. Figures that are measured while sampling are slower, and never recorded.
    pub fn is_wanted(&self) -> bool {
        !self.no_record && !profile::is_sampled()
    }

    /// Appends `figures` of `workload` (its parameters in words) to the record.
    pub fn append(&self, workload: &str, figures: &[Figure]) -> Result<()> {
        append(workload, self.note.as_deref(), figures)
    }
}

fn append(workload: &str, note: Option<&str>, figures: &[Figure]) -> Result<()> {
    let path = output_paths::record();
    let kept = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let text = with_run(&kept, &lines(workload, note, figures));
    // Replaces the record in one step, so that a killed run leaves no partial line.
    let new = path.with_extension("jsonl.new");
    fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, &path).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the record with `run` appended, and without earlier runs of the same workload whose figures are all in
/// `run`.
fn with_run(record: &str, run: &str) -> String {
    /// Returns the key of a line, which is the workload and the four words that name a figure, and the run's time.
    fn key(line: &str) -> Option<([String; 5], u64)> {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let words =
            ["workload", "work", "system", "client", "figure"].map(|name| line[name].as_str().map(str::to_owned));
        let [Some(workload), Some(work), Some(system), Some(client), Some(figure)] = words else { return None };
        Some(([workload, work, system, client, figure], line["when"].as_u64()?))
    }
    let new: HashSet<[String; 5]> = run.lines().filter_map(key).map(|(figure, _)| figure).collect();
    let workloads: HashSet<&str> = new.iter().map(|figure| figure[0].as_str()).collect();
    let keyed: Vec<_> = record.lines().map(|line| (line, key(line))).collect();
    let is_of = |figure: &[String; 5]| workloads.contains(figure[0].as_str());
    // A run that measured other figures too is kept as a whole, because ratios are computed within one run.
    let stay: HashSet<(&str, u64)> = keyed
        .iter()
        .filter_map(|(_, key)| key.as_ref())
        .filter(|(figure, _)| is_of(figure) && !new.contains(figure))
        .map(|(figure, when)| (figure[0].as_str(), *when))
        .collect();
    let mut text = String::new();
    for (line, key) in &keyed {
        if key.as_ref().is_none_or(|(figure, when)| !is_of(figure) || stay.contains(&(figure[0].as_str(), *when))) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text + run
}

/// Returns a line for each figure. A value that is not a number, such as a rate of an empty transfer, is omitted: JSON
/// cannot represent it, and the page could not read the line.
fn lines(workload: &str, note: Option<&str>, figures: &[Figure]) -> String {
    let (commit, machine) = (machine::commit(), machine::description());
    let when = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Older lines lack this field: figures without short-circuit reads were measured without the library.
    let libhadoop = Apache::for_measuring().is_ok_and(|apache| apache.has_native());
    let mut text = String::new();
    for figure in figures {
        if figure.values.is_empty() || !figure.values.iter().all(|value| value.is_finite()) {
            eprintln!("not recorded: {} of {}, {}: {:?}", figure.what, figure.system, figure.work, figure.values);
            continue;
        }
        let mut line = json!({
            "when": when,
            "commit": commit,
            "machine": machine,
            "workload": workload,
            "work": figure.work,
            "system": figure.system,
            "client": figure.client,
            "figure": figure.what,
            "unit": figure.unit,
            "median": round(figure.median()),
            "runs": figure.values.iter().map(|value| round(*value)).collect::<Vec<_>>(),
        });
        if libhadoop {
            line["libhadoop"] = true.into();
        }
        if let Some(note) = note {
            line["note"] = note.into();
        }
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

/// Formats a value with a sensible number of digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Rounds a value. Values below one keep three significant digits, down to a millionth, because ratios are computed
/// from them.
fn round(value: f64) -> f64 {
    let steps = if value.abs() < 1.0 { 1e6 } else { 1e3 };
    (value * steps).round() / steps
}

/// Figures by their key, in the order in which they were first measured.
#[derive(Default)]
pub struct Figures(pub Vec<Figure>);

impl Figures {
    pub fn add(&mut self, work: &str, system: &str, client: &str, what: &str, unit: &'static str, value: f64) {
        let known = self.0.iter_mut().find(|figure| {
            figure.work == work && figure.system == system && figure.client == client && figure.what == what
        });
        match known {
            Some(figure) => figure.values.push(value),
            None => self.0.push(Figure {
                work: work.to_owned(),
                system: system.to_owned(),
                client: client.to_owned(),
                what: what.to_owned(),
                unit,
                values: vec![value],
            }),
        }
    }

    pub fn median(&self, work: &str, system: &str, client: &str, what: &str) -> Option<f64> {
        let of = |figure: &&Figure| {
            figure.work == work && figure.system == system && figure.client == client && figure.what == what
        };
        self.0.iter().find(of).map(Figure::median)
    }

    /// Returns the ratios of Hearth to Apache for each of Hearth's figures that is `wanted` and that Apache's system
    /// has as well, unless Apache's is 0.
    pub fn ratios_to_apache(&self, wanted: impl Fn(&Figure) -> bool) -> Vec<Figure> {
        let ours = self.0.iter().filter(|figure| figure.system == "Hearth" && wanted(figure));
        let ratio = |figure: &Figure| {
            let theirs = self.median(&figure.work, "Apache", &figure.client, &figure.what)?;
            if theirs <= 0.0 {
                return None;
            }
            Some(Figure {
                system: "Hearth / Apache".to_owned(),
                unit: "",
                values: vec![figure.median() / theirs],
                ..figure.clone()
            })
        };
        ours.filter_map(ratio).collect()
    }

    /// Returns the figures as one line of JSON, for other programs.
    pub fn json(&self, workload: &str) -> serde_json::Value {
        let figures: Vec<_> = self
            .0
            .iter()
            .map(|figure| {
                json!({"work": figure.work, "system": figure.system, "client": figure.client, "figure": figure.what,
                    "unit": figure.unit, "median": round(figure.median()),
                    "runs": figure.values.iter().map(|value| round(*value)).collect::<Vec<_>>()})
            })
            .collect();
        json!({"workload": workload, "commit": machine::commit(), "machine": machine::description(), "figures": figures})
    }

    /// Prints a table with a line for each work, system and client, and those of `columns` that have values.
    pub fn print_wide(&self, columns: &[&str]) {
        let unit = |column: &str| self.0.iter().find(|figure| figure.what == column).map(|figure| figure.unit);
        let columns: Vec<_> = columns.iter().filter_map(|column| Some((*column, unit(column)?))).collect();
        let mut lines: Vec<Vec<String>> = vec![["work", "system", "client"].map(str::to_owned).to_vec()];
        lines[0].extend(columns.iter().map(|(name, unit)| format!("{name} {unit}").trim_end().to_owned()));
        let mut known: Vec<(&str, &str, &str)> = Vec::new();
        for figure in &self.0 {
            let key = (figure.work.as_str(), figure.system.as_str(), figure.client.as_str());
            if !known.contains(&key) {
                known.push(key);
            }
        }
        for (work, system, client) in known {
            let cell = |what: &str| self.median(work, system, client, what).map_or("-".to_owned(), short);
            let mut line = [work, system, client].map(str::to_owned).to_vec();
            line.extend(columns.iter().map(|(name, _)| cell(name)));
            lines.push(line);
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..lines[0].len()).map(width).collect();
        for line in &lines {
            let cells = line.iter().zip(&widths).enumerate();
            let text: Vec<_> = cells
                .map(
                    |(index, (cell, width))| {
                        if index < 3 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
                    },
                )
                .collect();
            println!("{}", text.join("  ").trim_end());
        }
    }

    /// Prints a table with columns as wide as their content.
    pub fn print(&self) {
        let width = |title: &str, of: fn(&Figure) -> &str| {
            self.0.iter().map(|figure| of(figure).chars().count()).chain([title.len()]).max().unwrap_or(0)
        };
        let work = width("work", |figure| &figure.work);
        let system = width("system", |figure| &figure.system);
        let client = width("client", |figure| &figure.client);
        let what = width("figure", |figure| &figure.what);
        let unit = width("", |figure| figure.unit);
        let row = |cells: [&str; 7]| {
            let [of_work, of_system, of_client, of_what, median, of_unit, runs] = cells;
            println!(
                "{of_work:work$}  {of_system:system$}  {of_client:client$}  {of_what:what$}  {median:>10} {of_unit:unit$}  {runs}"
            );
        };
        row(["work", "system", "client", "figure", "median", "", "runs"]);
        for figure in &self.0 {
            let runs: Vec<String> = figure.values.iter().map(|value| format!("{value:.2}")).collect();
            let (median, runs) = (format!("{:.2}", figure.median()), runs.join(" "));
            row([&figure.work, &figure.system, &figure.client, &figure.what, &median, figure.unit, &runs]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_lines_and_non_numbers_are_omitted() {
        let mut figures = Figures::default();
        figures.add("get", "Hearth", "", "wall", "s", 1.0);
        figures.add("get", "Hearth", "", "wall", "s", 2.0);
        figures.add("get", "Hearth", "", "DataNode CPU", "s/GB", f64::NAN);
        figures.add("get", "Hearth", "", "rate", "/s", f64::INFINITY);
        let text = lines("w", Some("busy"), &figures.0);
        assert!(text.ends_with('\n'), "{text}");
        let [line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((line["median"].as_f64(), line["note"].as_str()), (Some(1.5), Some("busy")), "{line}");
    }

    #[test]
    fn run_replaces_runs_it_covers() {
        let line = |workload: &str, figure: &str, when: u64| {
            format!(
                "{{\"workload\":\"{workload}\",\"work\":\"w\",\"system\":\"s\",\"client\":\"\",\"figure\":\"{figure}\",\"when\":{when}}}\n"
            )
        };
        let (first, other) = (line("a", "wall", 1), line("b", "wall", 1));
        let wider = line("a", "wall", 2) + &line("a", "CPU", 2);
        let text = with_run(&with_run(&(first + &other), &wider), "");
        assert_eq!(text, other.clone() + &wider);
        let partial = line("a", "wall", 3);
        assert_eq!(with_run(&text, &partial), other.clone() + &wider + &partial);
        let again = line("a", "CPU", 4) + &line("a", "wall", 4);
        assert_eq!(with_run(&(text + &partial), &again), other + &again);
    }

    #[test]
    fn small_values_are_not_rounded_away() {
        assert_eq!([1234.5678, 0.0123456, -0.0123456, 0.0].map(round), [1234.568, 0.012346, -0.012346, 0.0]);
    }

    #[test]
    fn ratios_to_zero_are_omitted() {
        let mut figures = Figures::default();
        for (system, value) in [("Apache", 0.0), ("Hearth", 0.0)] {
            figures.add("get", system, "", "wall", "s", value);
        }
        assert!(figures.ratios_to_apache(|_| true).is_empty());
    }
}
