//! Getting the machine's memory ready for a measurement.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A tmpfs, where both sides keep their data.
pub const TMPFS: &str = "/dev/shm";

/// Touches `bytes` of memory by writing and removing a file on the tmpfs. On a virtual machine the first touch of memory that has been
/// idle costs several times the copy itself; without this, whoever writes first pays it for all.
pub fn touch(bytes: u64) -> Result<()> {
    let path = Path::new(TMPFS).join(format!("hearth-bench-touch-{}", std::process::id()));
    let outcome =
        write_zeros(&path, bytes).with_context(|| format!("cannot write {bytes} bytes to {}", path.display()));
    let removed = std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()));
    outcome.and(removed)
}

fn write_zeros(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let take = left.min(zeros.len() as u64) as usize;
        file.write_all(&zeros[..take])?;
        left -= take as u64;
    }
    Ok(())
}

/// Bytes in use on the tmpfs.
pub fn tmpfs_used() -> Result<u64> {
    let stat = rustix::fs::statvfs(TMPFS).with_context(|| format!("cannot ask {TMPFS} for its size"))?;
    Ok((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
}

/// On which pages everything that is measured keeps its data.
#[derive(clap::Args)]
pub struct Pages {
    /// All data, Apache's too, in a tmpfs mounted for this run with `huge=within_size`, as production is told to mount it
    #[arg(long)]
    huge_pages: bool,
    /// That tmpfs is there
    #[arg(long, hide = true)]
    huge_pages_mounted: bool,
}

impl Pages {
    /// Where huge pages are wanted and [`TMPFS`] has none: runs this very command again where it has, in a mount namespace of
    /// its own, so that nothing of it is left. True: that has been done, and nothing is left to do.
    pub fn run_elsewhere(&self) -> Result<bool> {
        if !self.huge_pages || self.huge_pages_mounted {
            return Ok(false);
        }
        let program = std::env::current_exe().context("where is this program?")?;
        let mount = format!("mount -t tmpfs -o huge=within_size,mode=1777 tmpfs {TMPFS} && exec \"$0\" \"$@\"");
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--", "sh", "-c", &mount]).arg(program);
        command.args(std::env::args_os().skip(1)).arg("--huge-pages-mounted");
        let status = command.status().context("cannot start unshare")?;
        ensure!(status.success(), "the benchmark on a tmpfs with huge pages ended with {status}");
        Ok(true)
    }

    /// What a workload's name says of where the data is.
    pub fn place(&self) -> String {
        let pages = if self.huge_pages { "a tmpfs with huge pages at " } else { "" };
        format!("data in {pages}{TMPFS}")
    }
}
