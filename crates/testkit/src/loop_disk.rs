use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A separate file system on a loop device, which can be made to hang. Mounting it needs root.
pub struct LoopDisk {
    mounted_at: PathBuf,
    _image: TempDir,
}

/// Frozen disk: writers block until this is dropped, as on a disk that does not answer, and cannot be interrupted by
/// signals.
pub struct Frozen(PathBuf);

impl LoopDisk {
    /// Mounts the disk. `at`: an existing directory. `bytes`: size of the disk, whose zeros take no space.
    pub fn mount(at: &Path, bytes: u64) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let image = directory.path().join("image");
        std::fs::File::create(&image)?.set_len(bytes)?;
        run(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).args([&image, at]))?;
        Ok(Self { mounted_at: at.to_owned(), _image: directory })
    }

    pub fn freeze(&self) -> Result<Frozen> {
        run(Command::new("fsfreeze").arg("--freeze").arg(&self.mounted_at))?;
        Ok(Frozen(self.mounted_at.clone()))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0));
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // Lazy unmount, because a process may still use it.
        let _ = run(Command::new("umount").arg("-l").arg(&self.mounted_at));
    }
}

/// Runs a command to its end. An unsuccessful end is an error with its output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
