//! The namespace on disk.
//!
//! One directory: a journal, which one thread writes, and behind it a redb file, which another one writes. Operations leave their
//! [`Changes`] here while they hold the NameNode's lock, so that the order here is the order there; the first thread appends all
//! that has gathered to the journal, syncs it, and then everybody's answer may go out. What the journal holds goes into the tables of the
//! redb file thousands of operations at a time, where each inode is written once however often it has changed; after a
//! crash the journal's rest is put there before anything is read. A write that fails is the end: memory is ahead of
//! the disk then, nothing more is accepted, and the NameNode stops.

mod committer;
mod directory;
mod encoding;
mod group;
mod journal;
mod tables;

pub use committer::{Durable, Store, StoreFailed};
pub use directory::{Directory, Version, format};
pub use tables::Loaded;

use std::path::PathBuf;

use crate::namespace::RecordError;

/// Why the stored namespace cannot be opened or formatted.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} is not formatted: format it with `hearth namenode -format`", path.display())]
    NotFormatted { path: PathBuf },
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
    #[error("{}: {problem}", path.display())]
    BadVersion { path: PathBuf, problem: String },
    #[error("{} is in use by another NameNode (process {holder})", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error("{} is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("{} is damaged: {source}", path.display())]
    Record { path: PathBuf, source: RecordError },
}
