//! An increasing number of clients read from one DataNode at once, one file after the other. Shows whether their total
//! throughput drops, and the DataNode's CPU per GB. Any number of clients reads the same files, so that cache hits of
//! the processor and the placement in memory are the same.

use anyhow::Result;

use super::task::{Kind, Task};
use super::{GB, Target, Testbed};
use crate::amounts::{at_least_one, size, spelled};
use crate::chart::curves::{self, Axes, Curve};
use crate::record::{Figure, Figures};

#[derive(clap::Args)]
pub struct Saturate {
    #[command(flatten)]
    target: Target,
    /// Numbers of concurrent clients
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32], value_parser = at_least_one::<usize>)]
    clients: Vec<usize>,
    /// Bytes of a file; the number of files is the largest number of clients
    #[arg(long, default_value = "64m", value_parser = size)]
    size: u64,
    /// Minimum number of bytes that all clients read in one measurement
    #[arg(long, default_value = "16g", value_parser = size)]
    bytes: u64,
}

const COLUMNS: &[&str] = &["throughput", "DataNode CPU", "client CPU", KEPT];

/// Lowest ratio of the throughput of any number of clients to the highest one of fewer clients.
const KEPT: &str = "kept as clients are added";

fn work(clients: usize) -> String {
    format!("{clients} client{}", if clients == 1 { "" } else { "s" })
}

impl Saturate {
    pub fn run(&self) -> Result<()> {
        let mut clients = self.clients.clone();
        clients.sort_unstable();
        clients.dedup();
        let most = clients.last().copied().unwrap_or(1);
        let mut field = self.target.enter()?;
        let files = Task {
            kind: Kind::Read,
            directory: field.path.clone(),
            files: most,
            size: self.size,
            piece: 1 << 20,
            reads: 0,
            clients: 1,
            threads: 2,
            replication: self.target.replication,
            block_size: self.target.block_size,
        };
        let figures = self.measure(&mut field, &files, &clients);
        let place = field.place();
        let left = field.leave(most);
        let mut figures = figures?;
        for figure in kept(&figures, &clients) {
            figures.0.push(figure);
        }
        let workload = format!(
            "saturate {} clients, {most} files of {}{}",
            clients.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            spelled(self.size),
            place
        );
        self.target.tell("saturate", &workload, &figures, COLUMNS)?;
        if !self.target.is_given() && self.target.recording.is_wanted() && self.target.is_whole() {
            draw(&workload, &figures, &clients)?;
        }
        left
    }

    fn measure(&self, field: &mut Testbed, files: &Task, clients: &[usize]) -> Result<Figures> {
        field.store(files, ", read by all clients")?;
        let mut figures = Figures::default();
        for run in usize::from(self.target.is_given())..=self.target.runs() {
            for count in clients {
                eprintln!("run {run} of {}: {}", self.target.runs(), work(*count));
                for party in 0..field.parties.len() {
                    let mut warming = Figures::default();
                    let into = if run == 0 { &mut warming } else { &mut figures };
                    self.one(field, party, files.files, *count, into)?;
                }
            }
        }
        Ok(figures)
    }

    fn one(
        &self,
        field: &mut Testbed,
        party: usize,
        files: usize,
        clients: usize,
        figures: &mut Figures,
    ) -> Result<()> {
        let rounds = self.bytes.div_ceil(self.size * clients as u64).max(1);
        let clocks = field.datanodes(party)?;
        let cpu = field.parties[party].cpu()?;
        let seconds = field.parties[party].read_together(&field.path, files, clients, rounds as usize)?;
        let cpu = field.parties[party].cpu()? - cpu;
        let datanodes = clocks.iter().map(|clock| Ok(clock.elapsed()?.0)).sum::<Result<f64>>()?;
        let bytes = (rounds * clients as u64 * self.size) as f64;
        let (system, client) = (field.system(party), field.parties[party].client);
        let mut add = |what, unit, value| figures.add(&work(clients), &system, client, what, unit, value);
        add("throughput", "MB/s", bytes / 1e6 / seconds);
        add("client CPU", "s/GB", cpu / (bytes / GB));
        if !field.systems.is_empty() {
            add("DataNode CPU", "s/GB", datanodes / (bytes / GB));
        }
        Ok(())
    }
}

/// Returns [`KEPT`] of each system and client.
fn kept(figures: &Figures, clients: &[usize]) -> Vec<Figure> {
    let Some(first) = clients.first().map(|count| work(*count)) else { return Vec::new() };
    let of_first = figures.0.iter().filter(|figure| figure.work == first && figure.what == "throughput");
    let least = |figure: &Figure| {
        let (mut most, mut least) = (figure.median(), f64::INFINITY);
        for count in &clients[1..] {
            let value = figures.median(&work(*count), &figure.system, &figure.client, "throughput")?;
            least = least.min(value / most);
            most = most.max(value);
        }
        least.is_finite().then(|| Figure {
            work: "all".into(),
            what: KEPT.into(),
            unit: "",
            values: vec![least],
            ..figure.clone()
        })
    };
    of_first.filter_map(least).collect()
}

fn draw(workload: &str, figures: &Figures, clients: &[usize]) -> Result<()> {
    let first = clients.first().map_or(String::new(), |count| work(*count));
    for (name, what, y) in [
        ("saturate-throughput", "throughput", "MB/s of all clients together"),
        ("saturate-cpu", "DataNode CPU", "CPU seconds of the DataNode a GB"),
    ] {
        let of_first = figures.0.iter().filter(|figure| figure.work == first && figure.what == what);
        let curves: Vec<Curve> = of_first
            .map(|figure| Curve {
                name: format!("{}: {}", figure.system, figure.client),
                points: clients
                    .iter()
                    .filter_map(|count| {
                        let value = figures.median(&work(*count), &figure.system, &figure.client, what)?;
                        Some((*count as f64, value))
                    })
                    .collect(),
            })
            .collect();
        curves::write(name, workload, &Axes { x: "clients at the same time", y }, &curves)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_is_lowest_ratio_to_earlier_peak() {
        let mut figures = Figures::default();
        for (count, value) in [(1, 100.0), (2, 200.0), (4, 150.0), (8, 190.0)] {
            figures.add(&work(count), "Hearth", "own", "throughput", "MB/s", value);
        }
        let kept = kept(&figures, &[1, 2, 4, 8]);
        assert_eq!((kept.len(), kept[0].median(), kept[0].work.as_str()), (1, 0.75, "all"));
    }
}
