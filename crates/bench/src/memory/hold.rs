//! Memory kept ready for the next measurement.
//!
//! A virtual machine returns memory that has been free for about a second to its host. The next touch then takes many
//! times as long as a copy: seconds per GiB, counted as CPU time of the process that touches it first. So a separate
//! process keeps as much memory in use as a measurement will need, and frees it as the measurement proceeds. Memory
//! that the measurement gets has then been free for only some milliseconds.
//!
//! Only blocks of 2 MiB and more are returned to the host (Linux: free page reporting). Smaller ones stay, and
//! allocations of small pages use those first. So only the large ones are counted.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use super::{TMPFS, lengthen, on_own_tmpfs};

/// Amount that is freed before a measurement begins. A part of it is freed again ([`Pace`]) whenever half of it is
/// used.
const AHEAD: u64 = 128 << 20;
const STEP: u64 = 32 << 20;

/// How memory is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// At the rate of a consumer that fills the memory it takes.
    Steadily,
    /// All of it when consumption begins, for consumers that take it faster than that.
    AtOnce,
}

impl Pace {
    /// Returns the amount that is freed at a time.
    fn step(self) -> u64 {
        match self {
            Self::Steadily => STEP,
            Self::AtOnce => u64::MAX,
        }
    }
}

/// Interval between checks. The fastest writers take about 10 MB in it.
const LOOK: Duration = Duration::from_millis(2);

/// Smallest blocks that are returned to the host.
const LARGE: u64 = 2 << 20;

/// Line that the process prints when it holds the requested memory.
const READY: &str = "ready";

/// Process that holds memory, as long as this program runs.
static HOLDER: Mutex<Option<Holder>> = Mutex::new(None);

struct Holder {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Keeps `bytes` of memory ready, which are freed at `pace`.
///
/// Errors: they do not fit; the process that holds them cannot be started, for example without permission to mount, or
/// has ended.
pub fn ready(bytes: u64, pace: Pace) -> Result<()> {
    let mut holder = HOLDER.lock();
    let holder = match &mut *holder {
        Some(holder) => holder,
        none => none.insert(Holder::start()?),
    };
    holder.ask(bytes, pace).with_context(|| format!("cannot have {bytes} bytes of memory ready"))
}

impl Holder {
    fn start() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the running program")?;
        // On its own tmpfs the held memory takes no space of the measured one, and uses huge pages as in production.
        let mut process = on_own_tmpfs(&program)
            .args(["hold-memory"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process that holds memory")?;
        let requests = process.stdin.take().context("its standard input is a pipe")?;
        let answers = BufReader::new(process.stdout.take().context("its standard output is a pipe")?);
        Ok(Self { process, requests, answers })
    }

    fn ask(&mut self, bytes: u64, pace: Pace) -> Result<()> {
        writeln!(self.requests, "{bytes} {}", pace.step()).context("the process that holds memory has ended")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        match answer.trim_end() {
            READY => Ok(()),
            "" => bail!("the process that holds memory ended with {}", self.process.wait()?),
            problem => bail!("{problem}"),
        }
    }
}

/// Main function of the process. Each input line gives the number of bytes to keep ready from then on, and the number
/// to free at a time. Ends at the end of the input.
pub fn run() -> Result<()> {
    let (asked, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if asked.send(line).is_err() {
                return;
            }
        }
    });
    let mut held = Reservation { file: tempfile::tempfile_in(TMPFS)?, bytes: 0, free_at_least: 0, step: STEP };
    loop {
        let request = match held.bytes {
            0 => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            _ => requests.recv_timeout(LOOK),
        };
        match request {
            Ok(request) => match held.asked(&request) {
                Ok(()) => println!("{READY}"),
                Err(error) => println!("{error:#}"),
            },
            Err(RecvTimeoutError::Timeout) => held.look()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Memory in use: the pages of an unnamed file.
struct Reservation {
    file: File,
    bytes: u64,
    /// If the machine has less free memory than this, some more is released.
    free_at_least: u64,
    /// Amount that is released at a time.
    step: u64,
}

impl Reservation {
    /// Handles a request line.
    fn asked(&mut self, request: &str) -> Result<()> {
        let (bytes, step) = request.split_once(' ').context("two numbers of bytes")?;
        self.step = step.parse().context("a number of bytes")?;
        self.take(bytes.parse().context("a number of bytes")?)
    }

    /// Holds `bytes`, and releases the first part of them.
    fn take(&mut self, bytes: u64) -> Result<()> {
        lengthen(&self.file, &mut self.bytes, bytes)?;
        self.bytes = bytes;
        self.free_at_least = free()? + AHEAD / 2;
        self.give(AHEAD)
    }

    fn look(&mut self) -> Result<()> {
        if free()? < self.free_at_least { self.give(self.step) } else { Ok(()) }
    }

    fn give(&mut self, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_sub(bytes);
        Ok(self.file.set_len(self.bytes)?)
    }
}

/// Returns the bytes of the machine's memory that are free in large blocks.
fn free() -> Result<u64> {
    const PATH: &str = "/proc/buddyinfo";
    let text = std::fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
    Ok(large_blocks(&text, rustix::param::page_size() as u64))
}

/// Sums up `buddyinfo`, lines in the format of proc(5): node, zone, and the numbers of free blocks of 1, 2, 4 .. pages.
fn large_blocks(buddyinfo: &str, page: u64) -> u64 {
    let zones = buddyinfo.lines().filter_map(|line| line.split_once("zone"));
    let blocks = zones.flat_map(|(_, zone)| zone.split_whitespace().skip(1).zip(0u32..));
    let bytes = blocks.filter_map(|(count, order)| Some((count.parse::<u64>().ok()?, page << order)));
    bytes.filter(|(_, bytes)| *bytes >= LARGE).map(|(count, bytes)| count * bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_blocks_are_counted() {
        let text = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      2\n\
                    Node 0, zone   Normal   4162   3000   2000   1000    900    800    700    600    500     40     30\n";
        assert_eq!(large_blocks(text, 4096), 41 * LARGE + 32 * 2 * LARGE);
        assert_eq!(large_blocks(text, 65536), 10_288 * LARGE, "from the sixth column on");
        // This machine's memory may be fragmented, so blocks of any size count here.
        assert!(large_blocks(&std::fs::read_to_string("/proc/buddyinfo").unwrap(), LARGE) > 0);
        free().unwrap();
    }

    #[test]
    fn held_memory_is_released_as_memory_is_used() {
        let mut held =
            Reservation { file: tempfile::tempfile_in(TMPFS).unwrap(), bytes: 0, free_at_least: 0, step: STEP };
        let length = |held: &Reservation| held.file.metadata().unwrap().len();
        held.take(AHEAD + 3 * STEP).unwrap();
        assert_eq!((held.bytes, length(&held)), (3 * STEP, 3 * STEP));
        held.free_at_least = 0;
        held.look().unwrap();
        assert_eq!(length(&held), 3 * STEP, "there is enough");
        held.free_at_least = u64::MAX;
        for left in [2, 1, 0, 0] {
            held.look().unwrap();
            assert_eq!(length(&held), left * STEP);
        }
        held.take(AHEAD + STEP).unwrap();
        assert_eq!(length(&held), STEP);
        held.take(1).unwrap();
        assert_eq!(length(&held), 0);
        held.asked(&format!("{} {}", AHEAD + 3 * STEP, Pace::AtOnce.step())).unwrap();
        assert_eq!(length(&held), 3 * STEP);
        held.free_at_least = u64::MAX;
        held.look().unwrap();
        assert_eq!(length(&held), 0, "all at once");
        for malformed in ["", "1", "1 x", "x 1"] {
            assert!(held.asked(malformed).is_err(), "{malformed}");
        }
    }
}
