use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use tempfile::TempDir;

use crate::loop_disk::run;

/// Makes writes below the directory fail with EROFS until this is dropped, as on a disk that the kernel has remounted
/// read-only.
pub struct ReadOnly {
    mounts: Vec<PathBuf>,
    _aside: TempDir,
}

impl ReadOnly {
    /// Bind-mounts the directory onto itself read-only; files that are open do not prevent that. The mount becomes
    /// read-only before it is moved into place, so that no file can be opened for writing in between, which would make
    /// it busy. Needs root.
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
            // Lazy unmount, because a process may still use it.
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
    }
}
