use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

/// Tmpfs with huge pages, mounted until it is dropped.
pub struct HugePages(PathBuf);

impl HugePages {
    /// Mounts a tmpfs, which needs root. `None`: data below `at` will be in small pages.
    ///
    /// Does not use mount(8): until a started process executes its program, it has copies of all descriptors of this
    /// process, and other tests check which processes have files open.
    pub fn mount(at: &Path) -> Option<Self> {
        let options = c"huge=within_size,mode=700";
        if let Err(error) = rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), options) {
            eprintln!("cannot mount a tmpfs with huge pages, using small ones: {error}");
            return None;
        }
        Some(Self(at.to_owned()))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Lazy unmount, because a process may have files open there.
        let _ = rustix::mount::unmount(self.0.as_path(), UnmountFlags::DETACH);
    }
}
