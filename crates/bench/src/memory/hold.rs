//! Memory that is ready for what is measured next.
//!
//! A virtual machine gives memory that has been free for about a second back to its host, and takes many times as long for its next touch
//! as a copy takes: seconds a GiB, counted as CPU time of whoever touches it first. So as much as a measurement will take is kept in use by
//! a process of its own, which frees it as the measurement goes on: what is taken has been free for some milliseconds only.
//!
//! What is given back are blocks of 2 MiB and more (Linux: free page reporting). Smaller ones stay, and whoever takes small pages takes
//! those first: so only the large ones are counted.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use super::{TMPFS, lengthen, on_own_tmpfs};

/// So much is freed before a measurement begins, and a part of it again ([`Pace`]) whenever half of it is gone.
const AHEAD: u64 = 128 << 20;
const STEP: u64 = 32 << 20;

/// How it is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// As much as somebody takes who fills what he takes.
    Steadily,
    /// All, as soon as somebody begins to take: for those who take it faster than that.
    AtOnce,
}

impl Pace {
    /// What is freed at a time.
    fn step(self) -> u64 {
        match self {
            Self::Steadily => STEP,
            Self::AtOnce => u64::MAX,
        }
    }
}

/// How often it is looked at. The fastest writers take some 10 MB in it.
const LOOK: Duration = Duration::from_millis(2);

/// The smallest blocks that are given back to the host.
const LARGE: u64 = 2 << 20;

/// What the process says when it has what it was asked for.
const READY: &str = "ready";

/// The process that holds memory, as long as this program runs.
static HOLDER: Mutex<Option<Holder>> = Mutex::new(None);

struct Holder {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Has `bytes` of memory ready, which are freed at `pace`.
///
/// Errors: they do not fit; the process that holds them cannot be started, e.g. because nobody may mount anything here, or has ended.
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
        let program = std::env::current_exe().context("where is this program?")?;
        // What is held takes nothing of the room that others are measured in, and is huge pages as production's.
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

/// The process: each line that comes is how many bytes are to be ready from then on, and how many of them are freed at a time. Ends when
/// there are no more lines.
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

/// Memory in use: the pages of a file without a name.
struct Reservation {
    file: File,
    bytes: u64,
    /// With less than this free in the machine, some more is given away.
    free_at_least: u64,
    /// So much.
    step: u64,
}

impl Reservation {
    /// Takes what a line asks for.
    fn asked(&mut self, request: &str) -> Result<()> {
        let (bytes, step) = request.split_once(' ').context("two numbers of bytes")?;
        self.step = step.parse().context("a number of bytes")?;
        self.take(bytes.parse().context("a number of bytes")?)
    }

    /// Holds `bytes`, and gives the first of them away.
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

/// Bytes of the machine's memory that are free in large blocks.
fn free() -> Result<u64> {
    const PATH: &str = "/proc/buddyinfo";
    let text = std::fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
    Ok(large_blocks(&text, rustix::param::page_size() as u64))
}

/// Of `buddyinfo`, lines as of proc(5): node, zone, and how many free blocks there are of 1, 2, 4 .. pages.
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
        // Of this machine, whose memory may be in pieces: blocks of any size.
        assert!(large_blocks(&std::fs::read_to_string("/proc/buddyinfo").unwrap(), LARGE) > 0);
        free().unwrap();
    }

    #[test]
    fn what_is_held_goes_as_others_take_memory() {
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
