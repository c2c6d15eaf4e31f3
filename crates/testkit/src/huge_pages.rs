use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

/// A tmpfs with huge pages, until it is dropped.
pub struct HugePages(PathBuf);

impl HugePages {
    /// Mounts one, which root may do. `None`: whatever is put there will be in small pages.
    ///
    /// Not by mount(8): until a process that is being started executes its program, it has copies of all our descriptors, and other tests
    /// look at who has files open.
    pub fn mount(at: &Path) -> Option<Self> {
        let options = c"huge=within_size,mode=700";
        if let Err(error) = rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), options) {
            eprintln!("no tmpfs of its own: in small pages: {error}");
            return None;
        }
        Some(Self(at.to_owned()))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Lazily: somebody may have something open there.
        let _ = rustix::mount::unmount(self.0.as_path(), UnmountFlags::DETACH);
    }
}
