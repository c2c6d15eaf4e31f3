//! Wall clock and CPU time of one command, and of servers while it runs.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hearth_testkit::{threads_cpu, usage, wait_until};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Costs of one command in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub wall: f64,
    pub client_cpu: f64,
}

/// Runs a command to its successful end.
pub fn command(command: &mut Command) -> Result<Timing> {
    let name = || command_name(command);
    let name = name();
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    // Read in a thread, so that a client with much output does not block.
    let stderr = child.stderr.take().context("piped above")?;
    let said = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
    // Waits for the process without reaping it, so that its times can still be read.
    waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        .with_context(|| format!("waiting for {name}"))?;
    let wall = started.elapsed().as_secs_f64();
    let client_cpu = usage(child.id())?.cpu();
    let status = child.wait().with_context(|| format!("waiting for {name}"))?;
    let said = said.join().unwrap_or_default();
    if !status.success() {
        bail!("{name} ended with {status}\n{said}");
    }
    Ok(Timing { wall, client_cpu })
}

fn command_name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let text = words.map(|word| word.to_string_lossy()).filter(|word| word.len() < 200).collect::<Vec<_>>();
    text.join(" ")
}

/// Runs `work` in a living process and measures that process's CPU time during it.
pub fn in_process(process: u32, work: impl FnOnce() -> Result<()>) -> Result<Timing> {
    let before = usage(process)?.cpu();
    let started = Instant::now();
    work()?;
    let wall = started.elapsed().as_secs_f64();
    Ok(Timing { wall, client_cpu: usage(process)?.cpu() - before })
}

/// CPU seconds of a server since a moment, with its flusher separate.
pub struct ServerClock {
    process: u32,
    cpu: f64,
    flusher: f64,
}

/// Prefix of the names of the threads that copy replicas to disk after writes.
const FLUSHER: &str = "flush";

impl ServerClock {
    pub fn start(process: u32) -> Result<Self> {
        Ok(Self { process, cpu: usage(process)?.cpu(), flusher: threads_cpu(process, FLUSHER)? })
    }

    /// Returns `(all but the flusher, the flusher)`.
    pub fn elapsed(&self) -> Result<(f64, f64)> {
        let flusher = threads_cpu(self.process, FLUSHER)? - self.flusher;
        // Each of the two is counted in steps of 10 ms.
        Ok(((usage(self.process)?.cpu() - self.cpu - flusher).max(0.0), flusher))
    }

    /// Waits until the flusher is done, and returns its CPU seconds: it has worked and then rested for longer than its
    /// delay of 10 s.
    pub fn flushed(&self) -> Result<f64> {
        let (mut last, mut since) = (0.0, Instant::now());
        wait_until("the flusher to be done", Duration::from_secs(120), || {
            let (_, flusher) = self.elapsed()?;
            if flusher > last {
                (last, since) = (flusher, Instant::now());
            }
            Ok((since.elapsed() > Duration::from_secs(15)).then_some(()))
        })?;
        Ok(last)
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// Returns the value that a fraction `part` of the `sorted` values does not exceed (nearest rank).
pub fn percentile<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).or(sorted.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_timed() {
        let took =
            command(Command::new("sh").args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])).unwrap();
        assert!(took.client_cpu > 0.0 && took.wall > 0.0, "{took:?}");
        let error = command(Command::new("sh").args(["-c", "echo no >&2; exit 4"])).unwrap_err();
        assert!(error.to_string().contains("no"), "{error}");
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn percentiles_are_measured_values() {
        let hundred: Vec<u32> = (1..=100).collect();
        for (part, value) in [(0.0, 1), (0.5, 50), (0.9, 90), (0.99, 99), (0.999, 100), (1.0, 100)] {
            assert_eq!(percentile(&hundred, part), Some(value), "{part}");
        }
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.5), Some(2.0));
        assert_eq!(percentile(&[7], 0.99), Some(7));
        assert_eq!(percentile::<f64>(&[], 0.5), None);
    }
}
