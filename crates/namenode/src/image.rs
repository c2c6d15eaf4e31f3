//! Images of the namespace in Apache's format (`fsimage_*`): the way out to Apache's NameNode, the way in from it, and
//! backups.
//!
//! [`write()`] turns a view of the store's tables into an image. It never takes the NameNode's lock, and needs 16 bytes of
//! memory for each inode, besides the children of one directory and the former states that snapshots have. [`import()`]
//! makes a new store from an image, ours or Apache's. [`Exports`] has images of a running NameNode made,
//! [`image_transfer`] sends one over HTTP, and [`run_backups`] writes one regularly.
//!
//! What the format cannot express is refused and never left out. Only two things are absent by design, as in Apache's
//! own images: remembered answers of at-most-once calls, and access times of directories.
//!
//! Sources: `fsimage.proto`, FSImageFormatProtobuf, FSImageFormatPBINode, FSImageFormatPBSnapshot, NNStorage and
//! ImageServlet of Hadoop 3.4.

mod edits;
mod export;
mod history;
mod import;
mod input;
mod messages;
mod name_directory;
mod output;
mod past;
mod schedule;
mod spans;
mod strings;
#[cfg(test)]
pub(crate) mod tests;
mod transfer;
mod write;

use std::io;
use std::path::{Path, PathBuf};

use hearth_types::suggested_fix;

use crate::store::StoreError;

pub use export::{Exports, ImageFile};
pub use import::{Imported, import};
pub use input::digest;
pub use name_directory::{ImageSource, NewNameDirectory, image_name};
pub use schedule::{BackupSettings, run as run_backups};
pub use transfer::image_transfer;
pub use write::{Written, write};

/// Version of the format that we write: `NVDIMM_SUPPORT` of NameNodeLayoutVersion.
pub const LAYOUT_VERSION: i32 = -67;
/// The oldest version that we read: the first in protobuf (`PROTOBUF_FORMAT` of LayoutVersion).
const OLDEST_LAYOUT_VERSION: i32 = -52;
/// First bytes of every image.
const MAGIC: &[u8; 8] = b"HDFSIMG1";
/// Version of the framing.
const ON_DISK_VERSION: u32 = 1;

/// Extended attribute in which Apache keeps the storage policy of a directory; its value is the policy's number.
/// Source: `BlockStoragePolicySuite.STORAGE_POLICY_XATTR_NAME`.
const POLICY_XATTR: &str = "hsm.block.storage.policy.id";

/// Number of no snapshot: Java's -1. Source: `Snapshot.NO_SNAPSHOT_ID`.
const NO_SNAPSHOT: u32 = u32::MAX;

/// Reasons for which an image cannot be written, read or sent.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{action} {}: {source}: {}", path.display(), suggested_fix(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("the namespace cannot be written as an fsimage: {what}")]
    Inexpressible { what: String },
    #[error("{} is not a usable fsimage: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("{} cannot be imported: {what}", path.display())]
    Unsupported { path: PathBuf, what: String },
    #[error("cannot write an image: {free} bytes are free in {}, and {wanted} are needed; free space or set hearth.namenode.backup.dir", path.display())]
    NoSpace { path: PathBuf, free: u64, wanted: u64 },
    #[error("{} already exists; give a directory that does not exist, or remove it", path.display())]
    Exists { path: PathBuf },
    #[error("the namespace store has failed: {reason}")]
    StoreFailed { reason: String },
}

/// Converts a system error, for `map_err`. `action` is the operation that failed on `path`.
fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Io { action, path, source }
}

/// Formats bytes as lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
