//! A temporary directory that is removed even if this process is killed.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Directory that is removed when this is dropped, and also when this process is killed first. Files on a tmpfs would
/// otherwise keep their memory for ever.
pub struct Scratch {
    directory: TempDir,
    /// Shell that removes the directory when its input closes, shortly after the daemons that write to it were killed.
    watchdog: Child,
    _watchdog_input: Option<ChildStdin>,
}

impl Scratch {
    /// Makes a directory. `prefix`: start of its name.
    pub fn within(parent: &Path, prefix: &str) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        let mut watchdog = Command::new("sh")
            .args(["-c", "read -r _; sleep 1; rm -rf -- \"$0\" 2>/dev/null"])
            .arg(directory.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let _watchdog_input = watchdog.stdin.take();
        Ok(Self { directory, watchdog, _watchdog_input })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The directory itself is removed with its field.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wait_until;

    #[test]
    fn scratch_directory_is_removed_on_drop_and_kill() {
        let parent = tempfile::tempdir().unwrap();
        let dropped = Scratch::within(parent.path(), "one-").unwrap();
        let path = dropped.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(dropped);
        assert!(!path.exists());

        let mut lost = Scratch::within(parent.path(), "two-").unwrap();
        let path = lost.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        // The same happens if this process is killed.
        drop(lost._watchdog_input.take());
        wait_until("the watchdog", Duration::from_secs(60), || Ok((!path.exists()).then_some(()))).unwrap();
        lost.watchdog.wait().unwrap();
    }
}
