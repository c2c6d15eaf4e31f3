//! Getting the machine's memory ready for a measurement.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

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
