//! The namespace on disk.
//!
//! One directory: a journal, which one thread writes, and behind it a redb file, which another one writes. Operations leave their
//! [`Changes`] here while they hold the NameNode's lock, so that the order here is the order there; the first thread appends all
//! that has gathered to the journal, syncs it, and then everybody's answer may go out. What the journal holds goes into the tables of the
//! redb file thousands of operations at a time, where each inode is written once however often it has changed; after a
//! crash the journal's rest is put there before anything is read. A write that fails is the end: memory is ahead of
//! the disk then, nothing more is accepted, and the NameNode stops.
//!
//! Each start gives the journal a new mark. The files of a directory know each other by it, so that a file that is missing, cut,
//! older or from another copy is found before anything is served.

mod committer;
mod directory;
mod encoding;
mod group;
mod journal;
mod journal_progress;
mod recover;
mod tables;
#[cfg(test)]
mod tests;

pub use committer::{Durable, Store, StoreFailed};
pub use directory::{Directory, Version, format};
pub use recover::{RecoveryReport, recover};
pub use tables::Loaded;

use std::io;
use std::path::{Path, PathBuf};

use hearth_types::suggested_fix;

use crate::namespace::RecordError;

/// Why the stored namespace cannot be opened or formatted.
///
/// `Io` is the system's word, and says nothing of the data. `Missing` and `Damaged` are about the data, and say how to go on.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{action} {}: {source}. The namespace is not known to be damaged: {}", path.display(), suggested_fix(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} is not formatted. If it held a namespace, mount its file system or put its files back; for a new namespace format it \
         with `hearth namenode -format`",
        path.display()
    )]
    NotFormatted { path: PathBuf },
    #[error(
        "{} has no `current`, but holds {found}: it is not formatted by itself. Put `current` back, or make a new namespace with \
         `hearth namenode -format`",
        path.display()
    )]
    NotEmpty { path: PathBuf, found: String },
    #[error("{} is formatted already, with cluster {cluster}", path.display())]
    AlreadyFormatted { path: PathBuf, cluster: String },
    #[error(
        "{} holds the namespace of an Apache NameNode (layout {layout}); Hearth does not take it over: \
         give it a directory of its own",
        path.display()
    )]
    Apache { path: PathBuf, layout: String },
    #[error("{}: layout {layout} is newer than this version of Hearth, which knows {known}", path.display())]
    Newer { path: PathBuf, layout: u32, known: u32 },
    #[error("{}: {problem}. {GO_ON}", path.display())]
    BadVersion { path: PathBuf, problem: String },
    #[error("{} is in use by another NameNode (process {holder})", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error("{} is missing: {lost}. {GO_ON}", path.display())]
    Missing { path: PathBuf, lost: &'static str },
    #[error("{} is damaged: {problem}. {GO_ON}", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("{} is damaged: {source}. {GO_ON}", path.display())]
    Record { path: PathBuf, source: RecordError },
}

/// The next step when the data is at fault.
const GO_ON: &str = "Do not format. Put back a good copy of all files in `current`, made while the NameNode was stopped; or run \
                     `hearth namenode -recover`, which tells what is left and changes nothing without -force";

/// For `map_err`: an error of the system with what was being done to which path.
fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}
