//! Wall clock and CPU time of one command and of the servers meanwhile.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hearth_testkit::{threads_cpu, usage, wait_until};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Seconds that one command took.
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
    // Read in a thread, so that a talkative client does not wait for us.
    let stderr = child.stderr.take().context("piped above")?;
    let said = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
    // Waited for, but not collected yet: its times can still be read.
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

/// What a living process does: `work` in it, with its CPU time meanwhile.
pub fn in_process(process: u32, work: impl FnOnce() -> Result<()>) -> Result<Timing> {
    let before = usage(process)?.cpu();
    let started = Instant::now();
    work()?;
    let wall = started.elapsed().as_secs_f64();
    Ok(Timing { wall, client_cpu: usage(process)?.cpu() - before })
}

/// CPU seconds of a server since a moment, those of its flusher apart.
pub struct ServerClock {
    process: u32,
    cpu: f64,
    flusher: f64,
}

/// What the names of the threads begin with that copy replicas to disk behind the writes.
const FLUSHER: &str = "flush";

impl ServerClock {
    pub fn start(process: u32) -> Result<Self> {
        Ok(Self { process, cpu: usage(process)?.cpu(), flusher: threads_cpu(process, FLUSHER)? })
    }

    /// `(all but the flusher, the flusher)`.
    pub fn elapsed(&self) -> Result<(f64, f64)> {
        let flusher = threads_cpu(self.process, FLUSHER)? - self.flusher;
        // Both are counted in steps of 10 ms, each by itself.
        Ok(((usage(self.process)?.cpu() - self.cpu - flusher).max(0.0), flusher))
    }

    /// CPU seconds of the flusher when it is done: when it has worked and then rested for longer than its delay of 10 s.
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

/// Which of `sorted` values is not exceeded by so large a `part` of them (the nearest rank).
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
    fn percentiles_are_values_that_are_there() {
        let hundred: Vec<u32> = (1..=100).collect();
        for (part, value) in [(0.0, 1), (0.5, 50), (0.9, 90), (0.99, 99), (0.999, 100), (1.0, 100)] {
            assert_eq!(percentile(&hundred, part), Some(value), "{part}");
        }
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.5), Some(2.0));
        assert_eq!(percentile(&[7], 0.99), Some(7));
        assert_eq!(percentile::<f64>(&[], 0.5), None);
    }
}
