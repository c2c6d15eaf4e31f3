use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs with huge pages, until it is dropped.
pub struct HugePages(PathBuf);

impl HugePages {
    /// Mounts one, which root may do. `None`: whatever is put there will be in small pages.
    pub fn mount(at: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "huge=within_size,mode=700", "tmpfs"]).arg(at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("no tmpfs of its own: in small pages");
        }
        mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
