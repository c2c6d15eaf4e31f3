use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags};

/// Tmpfs with huge pages, mounted until it is dropped.
pub struct HugePages(PathBuf);

impl HugePages {
    /// Mounts one, which root may do.
    ///
    /// Not by mount(8): until a started process executes its program, it has copies of all descriptors of this process, and other tests
    /// check which processes have files open.
    pub fn mount(at: &Path) -> Result<Self> {
        let options = c"huge=within_size,mode=700";
        rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), options)
            .context("cannot mount a tmpfs with huge pages, which needs root")?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Lazy unmount, because a process may have files open there.
        let _ = rustix::mount::unmount(self.0.as_path(), UnmountFlags::DETACH);
    }
}
