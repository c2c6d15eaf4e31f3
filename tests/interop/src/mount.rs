use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A separate file system mounted on a directory, until it is dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts a tmpfs, which needs root. `options`: those of `mount -o`.
    pub fn tmpfs(at: &Path, options: &str) -> Result<Self> {
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
        let output = output.context("cannot start mount")?;
        ensure!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazy unmount, because a process may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
