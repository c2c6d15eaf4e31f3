//! Images of a running NameNode, one at a time.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_types::PoolIdentity;
use tokio::sync::Mutex;

use super::name_directory::parent;
use super::{ImageError, NewNameDirectory, Written, io, write};
use crate::start::free_bytes;
use crate::state::Namenode;
use crate::store::ViewSource;

/// Lets one image be written at a time, because each takes memory and disk bandwidth.
#[derive(Default)]
pub struct Exports {
    one: Arc<Mutex<()>>,
}

/// A finished image without a name: the disk space is free again when it is dropped.
pub struct ImageFile {
    pub file: File,
    pub written: Written,
}

impl Exports {
    /// Writes an image into an unnamed file in the directory of the backups, or else of the namespace. It has all changes that were acknowledged before the call, and perhaps
    /// later ones. Operations of the NameNode do not wait.
    pub async fn unnamed(&self, namenode: &Namenode) -> Result<ImageFile, ImageError> {
        let reserved = namenode.settings.disk_reserved;
        let of_backups = namenode.backups.borrow().as_ref().map(|backups| backups.directory.clone());
        let directory = of_backups.unwrap_or_else(|| namenode.store.directory().path().to_owned());
        self.run(namenode, move |views, identity| {
            std::fs::create_dir_all(&directory).map_err(io("creating", &directory))?;
            check_space(&directory, reserved, &views)?;
            let mut file = unnamed_file(&directory)?;
            let written = write(&views, &identity, &file, &directory)?;
            file.seek(SeekFrom::Start(0)).map_err(io("reading", &directory))?;
            Ok(ImageFile { file, written })
        })
        .await
    }

    /// Writes an image into a new directory in the form of Apache's NameNode.
    pub async fn directory(&self, namenode: &Namenode, root: &Path) -> Result<Written, ImageError> {
        let (root, reserved) = (root.to_owned(), namenode.settings.disk_reserved);
        self.run(namenode, move |views, identity| {
            // It may be the disk of the namespace.
            check_space(parent(&root), reserved, &views)?;
            let new = NewNameDirectory::begin(&root)?;
            let filled = new.create_image().and_then(|(file, path)| write(&views, &identity, &file, &path));
            match filled {
                Ok(written) => new.finish(&identity, written.txid, written.md5).map(|_| written),
                Err(error) => {
                    new.abandon();
                    Err(error)
                }
            }
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        namenode: &Namenode,
        work: impl FnOnce(ViewSource, PoolIdentity) -> Result<T, ImageError> + Send + 'static,
    ) -> Result<T, ImageError> {
        let one = self.one.clone().lock_owned().await;
        let flushed = namenode.store.flush_to_tables().await;
        flushed.map_err(|failed| ImageError::StoreFailed { reason: failed.reason })?;
        let (views, identity) = (namenode.store.views(), namenode.identity.clone());
        let working = tokio::task::spawn_blocking(move || {
            // Held until the work ends, even if the caller has given up.
            let _one = one;
            let done = work(views, identity);
            crate::memory::release();
            done
        });
        let panicked = || ImageError::StoreFailed { reason: "writing an image caused a panic; see the log".to_owned() };
        working.await.map_err(|_| panicked())?
    }
}

/// Refuses to fill the disk. An image is smaller than the tables.
fn check_space(directory: &Path, reserved: u64, views: &ViewSource) -> Result<(), ImageError> {
    let free = free_bytes(directory).map_err(io("looking at", directory))?;
    let wanted = reserved.saturating_add(views.bytes()?);
    if free < wanted {
        return Err(ImageError::NoSpace { path: directory.to_owned(), free, wanted });
    }
    Ok(())
}

/// Number of the next unnamed file of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Creates a file and removes its name, so that nothing is left if the process ends.
fn unnamed_file(directory: &Path) -> Result<File, ImageError> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(".image.{}.{number}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(io("creating", &path))?;
    std::fs::remove_file(&path).map_err(io("removing", &path))?;
    Ok(file)
}
