//! Preparing the machine's memory for a measurement.

pub mod hold;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_testkit::{in_virtual_machine, wait_until};

use self::hold::Pace;

/// Tmpfs on which both sides store their data.
pub const TMPFS: &str = "/dev/shm";

/// DataNodes receive deletions with the answers to heartbeats.
const EMPTIED_WITHIN: Duration = Duration::from_secs(60);

/// Set if [`Pages::run_elsewhere`] has re-executed this program.
const MOUNTED: &str = "HEARTH_BENCH_HUGE_PAGES_MOUNTED";

/// Set once memory could not be held ([`hold`]). That affects results more than the choice of implementation, so the
/// record notes it.
static ONLY_TOUCHED: AtomicBool = AtomicBool::new(false);

/// Prepares `bytes` of memory for the next measurement. On a virtual machine the first touch of memory that has been
/// idle costs many times the copy itself. Without this call, the first system to write would pay that cost.
pub fn touch(bytes: u64) -> Result<()> {
    ready(bytes, Pace::Steadily)
}

/// Like `touch`, for memory that is used all at once, faster than it would be freed step by step.
pub fn touch_for_burst(bytes: u64) -> Result<()> {
    ready(bytes, Pace::AtOnce)
}

fn ready(bytes: u64, pace: Pace) -> Result<()> {
    // User Mode Linux returns no memory while it runs, and each check would be expensive there.
    if !in_virtual_machine() {
        match hold::ready(bytes, pace) {
            Ok(()) => return Ok(()),
            Err(error) => {
                if !ONLY_TOUCHED.swap(true, Ordering::Relaxed) {
                    eprintln!("{error:#}: memory is touched instead of held");
                }
            }
        }
    }
    // An unnamed file: if this process is killed, its memory is freed.
    let touched = tempfile::tempfile_in(TMPFS).and_then(|file| lengthen(&file, &mut 0, bytes));
    touched.with_context(|| format!("cannot write {bytes} bytes to {TMPFS}"))
}

/// Writes a file of `bytes` zeros.
pub fn write_zeros(path: &Path, bytes: u64) -> std::io::Result<()> {
    lengthen(&File::create(path)?, &mut 0, bytes)
}

/// Extends `file` to `bytes`, with zeros after the first `filled` bytes, and updates `filled`.
fn lengthen(file: &File, filled: &mut u64, bytes: u64) -> std::io::Result<()> {
    // A tmpfs with huge pages uses them for data within the file's length, as for replicas.
    file.set_len(bytes)?;
    let zeros = vec![0; 1 << 20];
    while *filled < bytes {
        let take = (bytes - *filled).min(zeros.len() as u64);
        file.write_all_at(&zeros[..take as usize], *filled)?;
        *filled += take;
    }
    Ok(())
}

/// Returns the bytes in use on the tmpfs.
pub fn tmpfs_used() -> Result<u64> {
    let stat = tmpfs()?;
    Ok((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
}

/// Waits until less than `below` bytes of it are in use, that is, until deleted data is gone.
pub fn emptied(below: u64) -> Result<()> {
    wait_until("deleted blocks to leave memory", EMPTIED_WITHIN, || Ok((tmpfs_used()? < below).then_some(())))
}

/// Returns the bytes that are still available on it.
pub fn tmpfs_free() -> Result<u64> {
    let stat = tmpfs()?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn tmpfs() -> Result<rustix::fs::StatVfs> {
    rustix::fs::statvfs(TMPFS).with_context(|| format!("cannot ask {TMPFS} for its size"))
}

/// Page size of all data that is measured.
#[derive(clap::Args)]
pub struct Pages {
    /// Put all data, Apache's too, on a tmpfs mounted for this run with `huge=within_size`, as recommended for
    /// production
    #[arg(long, global = true)]
    pub huge_pages: bool,
}

impl Pages {
    /// If huge pages are requested and [`TMPFS`] has none, runs this command again in its own mount namespace where it
    /// has. Nothing of that remains afterwards. Returns true if the command was run there, so that nothing is left to
    /// do.
    pub fn run_elsewhere(&self) -> Result<bool> {
        if !self.huge_pages || has_huge_pages()? {
            return Ok(false);
        }
        ensure!(
            std::env::var_os(MOUNTED).is_none(),
            "{TMPFS} has no huge pages although a tmpfs with some was mounted there"
        );
        let program = std::env::current_exe().context("where is this program?")?;
        let mut command = on_own_tmpfs(&program);
        command.env(MOUNTED, "").args(std::env::args_os().skip(1));
        let status = command.status().context("cannot start unshare")?;
        ensure!(status.success(), "the benchmark on a tmpfs with huge pages ended with {status}");
        Ok(true)
    }
}

/// Returns a command that runs `program` in its own mount namespace, where [`TMPFS`] has huge pages. The program's
/// arguments must still be added.
fn on_own_tmpfs(program: &Path) -> Command {
    let mount = format!("mount -t tmpfs -o huge=within_size,mode=1777 tmpfs {TMPFS} && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--", "sh", "-c", &mount]).arg(program);
    command
}

/// Returns whether [`TMPFS`] gives files huge pages by default.
fn has_huge_pages() -> Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    Ok(gives_huge_pages(&mounts, TMPFS))
}

/// Returns whether the last mount at `place` has an option that gives files huge pages by default.
///
/// `mounts`: lines in the format of proc_pid_mounts(5): device, place, type, options.
fn gives_huge_pages(mounts: &str, place: &str) -> bool {
    let mut options = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        (words.nth(1) == Some(place)).then(|| words.nth(1)).flatten()
    });
    options
        .next_back()
        .is_some_and(|options| options.split(',').any(|option| matches!(option, "huge=within_size" | "huge=always")))
}

/// Returns the part of a workload's name that describes the location of the data. Called after the measurements.
pub fn place() -> String {
    let pages = if has_huge_pages().unwrap_or(false) { "a tmpfs with huge pages at " } else { "" };
    let touched = if ONLY_TOUCHED.load(Ordering::Relaxed) { ", whose memory was not held but touched" } else { "" };
    format!("data in {pages}{TMPFS}{touched}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topmost_mount_determines_huge_pages() {
        let plain = "sysfs /sys sysfs rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n";
        assert!(!gives_huge_pages(plain, "/dev/shm"));
        let over = format!("{plain}tmpfs /dev/shm tmpfs rw,relatime,huge=within_size 0 0\n");
        assert!(gives_huge_pages(&over, "/dev/shm"));
        assert!(!gives_huge_pages(&over, "/dev"));
        assert!(!gives_huge_pages(&format!("{over}{plain}"), "/dev/shm"));
        assert!(!gives_huge_pages(&over.replace("within_size", "advise"), "/dev/shm"));
    }
}
