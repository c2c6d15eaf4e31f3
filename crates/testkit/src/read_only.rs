use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use tempfile::TempDir;

use crate::loop_disk::run;

/// Writes below the directory fail with EROFS, as on a disk that the kernel gave up, until it is dropped.
pub struct ReadOnly {
    mounts: Vec<PathBuf>,
    _aside: TempDir,
}

impl ReadOnly {
    /// A mount of the directory onto itself: files that are open do not keep that from becoming read-only. It becomes so aside, where
    /// nobody can open a file for writing before that is done: then it would be busy. Root may do that.
    pub fn new(at: &Path) -> Result<Self> {
        let mount = |options: &[&str], paths: &[&Path]| run(Command::new("mount").args(options).args(paths));
        let directory = tempfile::tempdir()?;
        let aside = directory.path().to_owned();
        mount(&["--bind"], &[at, &aside])?;
        let mut mounted = Self { mounts: vec![aside.clone()], _aside: directory };
        mount(&["-o", "remount,ro,bind"], &[&aside])?;
        mount(&["--bind"], &[&aside, at])?;
        mounted.mounts.push(at.to_owned());
        Ok(mounted)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        for at in self.mounts.iter().rev() {
            // Lazily: somebody may still run in it.
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
    }
}
