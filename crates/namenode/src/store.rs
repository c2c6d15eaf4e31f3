//! Persistent storage of the namespace.
//!
//! The store is one directory with a journal and a redb database, each written by its own thread. Operations queue
//! their `Changes` while they hold the NameNode's lock, so both have the same order. The journal thread appends all
//! queued changes to the journal and syncs it; then the operations may answer. The other thread merges the journal's
//! changes into the tables of the redb database, thousands of operations at a time, so that each inode is written once
//! however often it has changed. After a crash, the changes that are only in the journal are applied to the tables
//! before anything is read.
//!
//! A failed write is fatal. Memory is then ahead of the disk, so no more changes are accepted and the NameNode stops.
//!
//! Each start gives the journal a new mark. All files of a directory carry it, so a file that is missing, truncated,
//! outdated or from another copy is detected before anything is served.

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

pub use committer::{Durable, JournalFigures, Store, StoreFailed};
pub use directory::{Directory, Version, fill, format};
pub use recover::{RecoveryReport, recover};
pub use tables::{InodeRows, Loaded, SmallTables, StoreView, Tables, ViewSource};

use std::io;
use std::path::{Path, PathBuf};

use hearth_types::suggested_fix;

use crate::namespace::RecordError;

/// Reason why the stored namespace cannot be opened or formatted.
///
/// `Io` is an error of the system and says nothing about the data. `Missing` and `Damaged` are about the data and tell
/// the operator how to continue.
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
        "{} has no `current`, but holds {found}, so it is not formatted automatically. Put `current` back, or make a new namespace with \
         `hearth namenode -format`",
        path.display()
    )]
    NotEmpty { path: PathBuf, found: String },
    #[error("{} is already formatted for cluster {cluster}", path.display())]
    AlreadyFormatted { path: PathBuf, cluster: String },
    #[error(
        "{} holds the namespace of an Apache NameNode (layout {layout}); Hearth cannot use it: \
         give it a directory of its own",
        path.display()
    )]
    Apache { path: PathBuf, layout: String },
    #[error("{}: layout {layout} is newer than this version of Hearth, which supports up to {known}", path.display())]
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

/// Advice to the operator when the data is missing or damaged.
const GO_ON: &str = "Do not format. Put back a good copy of all files in `current`, made while the NameNode was stopped; or run \
                     `hearth namenode -recover`, which reports what is recoverable and changes nothing without -force";

/// Converts a system error, for `map_err`. `action` is the operation that failed on `path`.
fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}
