//! Getting the machine's memory ready for a measurement.

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

/// A tmpfs, where both sides keep their data.
pub const TMPFS: &str = "/dev/shm";

/// DataNodes are told what to delete with heartbeats.
const EMPTIED_WITHIN: Duration = Duration::from_secs(60);

/// Set where [`Pages::run_elsewhere`] has run this program again.
const MOUNTED: &str = "HEARTH_BENCH_HUGE_PAGES_MOUNTED";

/// Memory could not be held at some time ([`hold`]), which decides more than either make is: the record says so.
static ONLY_TOUCHED: AtomicBool = AtomicBool::new(false);

/// Makes `bytes` of memory ready for what is measured next. On a virtual machine the first touch of memory that has been idle costs many
/// times the copy itself; without this, whoever writes first pays it for all.
pub fn touch(bytes: u64) -> Result<()> {
    ready(bytes, Pace::Steadily)
}

/// The same, for what is taken all at once, faster than it would be freed piece by piece.
pub fn touch_for_burst(bytes: u64) -> Result<()> {
    ready(bytes, Pace::AtOnce)
}

fn ready(bytes: u64, pace: Pace) -> Result<()> {
    // User Mode Linux gives nothing back while it runs, and each look would cost it much.
    if !in_virtual_machine() {
        match hold::ready(bytes, pace) {
            Ok(()) => return Ok(()),
            Err(error) => {
                if !ONLY_TOUCHED.swap(true, Ordering::Relaxed) {
                    eprintln!("{error:#}: it is only touched");
                }
            }
        }
    }
    // Without a name: when we are ended meanwhile, its memory goes with us.
    let touched = tempfile::tempfile_in(TMPFS).and_then(|file| lengthen(&file, &mut 0, bytes));
    touched.with_context(|| format!("cannot write {bytes} bytes to {TMPFS}"))
}

/// Writes a file of so many zeros.
pub fn write_zeros(path: &Path, bytes: u64) -> std::io::Result<()> {
    lengthen(&File::create(path)?, &mut 0, bytes)
}

/// Makes `file` so many `bytes` long, with zeros behind the first `filled`, which are counted on.
fn lengthen(file: &File, filled: &mut u64, bytes: u64) -> std::io::Result<()> {
    // A tmpfs that has huge pages gives them to what lies within the length: as replicas get them.
    file.set_len(bytes)?;
    let zeros = vec![0; 1 << 20];
    while *filled < bytes {
        let take = (bytes - *filled).min(zeros.len() as u64);
        file.write_all_at(&zeros[..take as usize], *filled)?;
        *filled += take;
    }
    Ok(())
}

/// Bytes in use on the tmpfs.
pub fn tmpfs_used() -> Result<u64> {
    let stat = tmpfs()?;
    Ok((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
}

/// Waits until less than `below` bytes of it are in use: what was deleted has left it.
pub fn emptied(below: u64) -> Result<()> {
    wait_until("deleted blocks to leave memory", EMPTIED_WITHIN, || Ok((tmpfs_used()? < below).then_some(())))
}

/// Bytes that it still has room for.
pub fn tmpfs_free() -> Result<u64> {
    let stat = tmpfs()?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn tmpfs() -> Result<rustix::fs::StatVfs> {
    rustix::fs::statvfs(TMPFS).with_context(|| format!("cannot ask {TMPFS} for its size"))
}

/// On which pages everything that is measured keeps its data.
#[derive(clap::Args)]
pub struct Pages {
    /// All data, Apache's too, in a tmpfs mounted for this run with `huge=within_size`, as production is told to mount it
    #[arg(long, global = true)]
    pub huge_pages: bool,
}

impl Pages {
    /// Where huge pages are wanted and [`TMPFS`] has none: runs this very command again where it has, in a mount namespace of
    /// its own, so that nothing of it is left. True: that has been done, and nothing is left to do.
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

/// A command that runs `program`, whose arguments are still to be added, where [`TMPFS`] has huge pages: in a mount namespace of its own.
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

/// Whether [`TMPFS`] gives files huge pages by itself.
fn has_huge_pages() -> Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    Ok(gives_huge_pages(&mounts, TMPFS))
}

/// Whether the mount at `place`, the last of them, has an option that gives files huge pages unasked.
///
/// `mounts`: lines as of proc_pid_mounts(5): device, place, type, options.
fn gives_huge_pages(mounts: &str, place: &str) -> bool {
    let mut options = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        (words.nth(1) == Some(place)).then(|| words.nth(1)).flatten()
    });
    options
        .next_back()
        .is_some_and(|options| options.split(',').any(|option| matches!(option, "huge=within_size" | "huge=always")))
}

/// What a workload's name says of where the data is: asked when all is measured.
pub fn place() -> String {
    let pages = if has_huge_pages().unwrap_or(false) { "a tmpfs with huge pages at " } else { "" };
    let touched = if ONLY_TOUCHED.load(Ordering::Relaxed) { ", whose memory was not held but touched" } else { "" };
    format!("data in {pages}{TMPFS}{touched}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_on_top_says_whether_there_are_huge_pages() {
        let plain = "sysfs /sys sysfs rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n";
        assert!(!gives_huge_pages(plain, "/dev/shm"));
        let over = format!("{plain}tmpfs /dev/shm tmpfs rw,relatime,huge=within_size 0 0\n");
        assert!(gives_huge_pages(&over, "/dev/shm"));
        assert!(!gives_huge_pages(&over, "/dev"));
        assert!(!gives_huge_pages(&format!("{over}{plain}"), "/dev/shm"));
        assert!(!gives_huge_pages(&over.replace("within_size", "advise"), "/dev/shm"));
    }
}
