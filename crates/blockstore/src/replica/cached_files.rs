//! Open files of a replica that the store caches.

use std::sync::Arc;

use crate::disk::files::{DiskCopy, DiskFiles};
use crate::memory::file::OpenFiles;

/// The open files of a finalized replica, cached for readers.
pub struct CachedFiles {
    pub files: CachedSource,
    /// Read since the clock hand last passed.
    pub recent: bool,
}

pub enum CachedSource {
    Disk(OnDisk),
    /// Descriptors of the copy in memory. They are closed before the kernel is asked which other processes have it
    /// open, and when the copy leaves memory.
    Memory(Arc<OpenFiles>),
}

pub struct OnDisk {
    /// The copy that the files belong to: if the replica has another copy now, they are not used again.
    pub copy: DiskCopy,
    pub files: Arc<DiskFiles>,
    pub partial_crc: u32,
    /// Number of uses; wraps around.
    pub uses: u8,
}

impl CachedFiles {
    /// Returns whether the open files are those of `copy` and can be read.
    pub fn is_of(&self, copy: Option<DiskCopy>) -> bool {
        matches!(&self.files, CachedSource::Disk(kept) if kept.is_of(copy))
    }

    /// Returns the descriptors, if the copy in memory is open.
    pub fn in_memory(&self) -> Option<&Arc<OpenFiles>> {
        match &self.files {
            CachedSource::Memory(open) => Some(open),
            CachedSource::Disk(_) => None,
        }
    }
}

impl OnDisk {
    pub fn is_of(&self, copy: Option<DiskCopy>) -> bool {
        Some(self.copy) == copy && !self.files.is_lost()
    }
}
