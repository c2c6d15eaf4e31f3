//! Errors of the store, and the reaction that each asks of the caller.

use std::io;
use std::path::PathBuf;

use hearth_types::{
    ByteRange, ChecksumError, ExtendedBlock, GenerationStamp, ReplicaState, StorageId, StorageType, suggested_fix,
};

use crate::fault::{self, FaultScope};

/// Errors of the store. Each names the block or the path that it is about.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("replica not found: {block}")]
    ReplicaNotFound { block: ExtendedBlock },
    #[error("block {block} already exists in state {state:?} and thus cannot be created")]
    ReplicaExists { block: ExtendedBlock, state: ReplicaState, stamp: GenerationStamp },
    #[error("replica {block} is {state:?}: cannot {action}")]
    WrongState { block: ExtendedBlock, state: ReplicaState, action: &'static str },
    #[error("replica {block} has generation stamp {stored}; to {action}, it must be {wanted}")]
    StampMismatch { block: ExtendedBlock, stored: GenerationStamp, wanted: String, action: &'static str },
    #[error("replica {block} has {actual} bytes {what}; {wanted} expected")]
    LengthMismatch { block: ExtendedBlock, what: &'static str, actual: u64, wanted: String },
    #[error("replica {block} is not in {}: its files are gone", dir.display())]
    FilesMissing { block: ExtendedBlock, dir: PathBuf },
    #[error("range {}..{} lies outside replica {block} of {length} bytes", range.start(), range.end())]
    OutOfRange { block: ExtendedBlock, range: ByteRange, length: u64 },
    #[error("data for {block} at offset {offset} leaves a gap after the {received} bytes received")]
    Gap { block: ExtendedBlock, offset: u64, received: u64 },
    #[error("data for {block}: {reason}")]
    BadWrite { block: ExtendedBlock, reason: String },
    #[error("bytes committed to {block} from offset {start} do not match their checksums")]
    BadCommit { block: ExtendedBlock, start: u64, source: ChecksumError },
    #[error("{block}: the writer was stopped by a later operation on the replica")]
    WriterStopped { block: ExtendedBlock },
    #[error("{block}: the previous writer did not stop in time; retry later")]
    WriterStillRunning { block: ExtendedBlock },
    #[error("{block}: recovery {running} is in progress, which is not older than {asked}")]
    RecoveryInProgress { block: ExtendedBlock, running: GenerationStamp, asked: GenerationStamp },
    #[error("replica {block} is corrupt: {reason}")]
    Corrupt { block: ExtendedBlock, reason: String },
    #[error("replica {block} changed or is changing since it was opened; open it again")]
    Withdrawn { block: ExtendedBlock },
    #[error("replica {block} is in a file of {file_bytes} bytes, which other processes cannot read directly")]
    NotShowable { block: ExtendedBlock, file_bytes: u64 },
    #[error("out of space: no {storage_type:?} storage with {wanted} free bytes")]
    NoSpace { storage_type: StorageType, wanted: u64 },
    #[error("no storage of type {0:?}")]
    NoSuchStorageType(StorageType),
    #[error("no storage {0}")]
    NoSuchStorage(StorageId),
    #[error("the block pool of {block} is not attached")]
    PoolNotAttached { block: ExtendedBlock },
    #[error("storage {storage} at {} has failed: {reason}", dir.display())]
    VolumeFailed { storage: StorageId, dir: PathBuf, reason: String },
    #[error("{} is in use by another process ({holder})", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error("{}: {reason}", path.display())]
    BadDirectory { path: PathBuf, reason: String },
    #[error("{} belongs to another {what}: {found}, not {wanted}", path.display())]
    Foreign { path: PathBuf, what: &'static str, found: String, wanted: String },
    #[error("cannot {action} {} ({})", path.display(), suggested_fix(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("invalid configuration of the block store: {0}")]
    BadOptions(String),
}

/// A caller's reaction to a `StoreError`. Callers never inspect the error's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// Retry here a little later.
    RetryHere,
    /// This replica is unusable: another DataNode may have a good one.
    OtherReplica,
    /// The request does not fit the replica's state: the sender is notified and decides.
    Refuse,
    /// The storage or the machine is at fault.
    Machine,
}

impl StoreError {
    pub fn reaction(&self) -> Reaction {
        match self {
            Self::PoolNotAttached { .. } | Self::WriterStillRunning { .. } | Self::Withdrawn { .. } => {
                Reaction::RetryHere
            }
            Self::ReplicaNotFound { .. }
            | Self::FilesMissing { .. }
            | Self::Corrupt { .. }
            | Self::OutOfRange { .. } => Reaction::OtherReplica,
            Self::ReplicaExists { .. }
            | Self::WrongState { .. }
            | Self::StampMismatch { .. }
            | Self::LengthMismatch { .. }
            | Self::Gap { .. }
            | Self::BadWrite { .. }
            | Self::BadCommit { .. }
            | Self::NotShowable { .. }
            | Self::WriterStopped { .. }
            | Self::RecoveryInProgress { .. }
            | Self::NoSuchStorageType(_)
            | Self::NoSuchStorage(_) => Reaction::Refuse,
            Self::NoSpace { .. }
            | Self::VolumeFailed { .. }
            | Self::InUse { .. }
            | Self::BadDirectory { .. }
            | Self::Foreign { .. }
            | Self::Io { .. }
            | Self::BadOptions(_) => Reaction::Machine,
        }
    }

    /// Reason why the storage is unusable, if this error means that, for example a broken disk or one that is not
    /// mounted. `None` for a full disk, or for one that belongs to another DataNode.
    pub(crate) fn volume_failure(&self) -> Option<String> {
        match self {
            Self::Io { source, .. } => match fault::of(source) {
                FaultScope::Volume | FaultScope::Unclear => Some(format!("{self}: {source}")),
                FaultScope::NoSpace | FaultScope::Process => None,
            },
            _ => None,
        }
    }

    /// For `map_err`: an I/O error with the action and the path.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io { action, path, source }
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;
