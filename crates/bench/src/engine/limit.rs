//! Memory limit of a process, page cache included: a cgroup of version 2 or 1, whichever has the memory controller
//! here.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Cgroup that was made for this run and contains nothing else.
#[derive(Clone, Serialize, Deserialize)]
pub struct MemoryLimit {
    dir: PathBuf,
}

impl MemoryLimit {
    /// Makes the cgroup. Errors: no memory controller, or no permission to make a cgroup.
    pub fn new(bytes: u64) -> Result<Self> {
        let name = format!("hearth-bench-{}", std::process::id());
        let mut failed = None;
        for (root, file) in [
            (PathBuf::from("/sys/fs/cgroup"), "memory.max"),
            (PathBuf::from("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        ] {
            if !root.join("cgroup.procs").exists() {
                continue;
            }
            let limit = Self { dir: root.join(&name) };
            let made = fs::create_dir(&limit.dir)
                .and_then(|()| fs::write(limit.dir.join(file), bytes.to_string()))
                .with_context(|| format!("cannot limit {}", limit.dir.display()));
            match made {
                Ok(()) => return Ok(limit),
                Err(error) => {
                    let _ = fs::remove_dir(&limit.dir);
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => bail!("no cgroups at /sys/fs/cgroup"),
        }
    }

    /// Moves this process into the cgroup.
    pub fn enter(&self) -> Result<()> {
        let path = self.dir.join("cgroup.procs");
        fs::write(&path, std::process::id().to_string()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes the cgroup, after all processes in it have ended.
    pub fn remove(&self) -> Result<()> {
        let dir: &Path = &self.dir;
        fs::remove_dir(dir).with_context(|| format!("cannot remove {}", dir.display()))
    }
}
