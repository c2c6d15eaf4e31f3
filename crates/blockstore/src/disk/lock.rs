//! Lock of a storage directory, compatible with Apache's DataNode.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use crate::error::{Result, StoreError};
use crate::sys;

/// Apache's name of the lock file; its DataNode takes the same lock.
pub const LOCK_FILE: &str = "in_use.lock";

/// Lock of a directory, held while this lives. It is released however the process ends.
pub struct DirLock {
    file: File,
}

impl DirLock {
    /// Takes the lock.
    ///
    /// Errors: `InUse`, with the text that the holder wrote into the file (Java: `pid@host`).
    pub fn take(dir: &Path) -> Result<Self> {
        let path = dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        if !sys::try_lock(&file).map_err(StoreError::io("lock", &path))? {
            let mut holder = String::new();
            let _ = (&file).take(200).read_to_string(&mut holder);
            let holder = holder.trim();
            let holder = if holder.is_empty() { "unknown" } else { holder };
            return Err(StoreError::InUse { path, holder: holder.to_owned() });
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let holder = format!("{}@{host}", std::process::id());
        // Overwritten, and never shorter than needed: on a full disk, a block that was freed may not be available
        // again.
        file.write_all(holder.as_bytes())
            .and_then(|()| file.set_len(holder.len() as u64))
            .map_err(StoreError::io("write", &path))?;
        Ok(Self { file })
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        sys::unlock(&self.file);
    }
}
