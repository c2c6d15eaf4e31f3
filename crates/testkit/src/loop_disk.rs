use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A file system of its own on a disk that is a file: one that can be made to hang. Root may mount one.
pub struct LoopDisk {
    mounted_at: PathBuf,
    _image: TempDir,
}

/// Whoever writes to the disk waits until this is dropped, as for one that does not answer, and no signal ends that.
pub struct Frozen(PathBuf);

impl LoopDisk {
    /// `at`: a directory that is there. `bytes`: its size, as zeros that take no space.
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
        // Lazily: somebody may still run in it.
        let _ = run(Command::new("umount").arg("-l").arg(&self.mounted_at));
    }
}

/// To its end; an error with what it said, if that is not success.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
