use std::io;
use std::path::PathBuf;

use hearth_types::{
    ByteRange, ChecksumError, ExtendedBlock, GenerationStamp, ReplicaState, StorageId, StorageType, suggested_fix,
};

use crate::fault::{self, FaultScope};

/// What the store refuses or fails at. Each names the block or the path that it is about.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("replica not found: {block}")]
    ReplicaNotFound { block: ExtendedBlock },
    #[error("block {block} already exists in state {state:?} and thus cannot be created")]
    ReplicaExists { block: ExtendedBlock, state: ReplicaState, stamp: GenerationStamp },
    #[error("replica {block} is {state:?}, which does not allow to {action}")]
    WrongState { block: ExtendedBlock, state: ReplicaState, action: &'static str },
    #[error("replica {block} has generation stamp {stored}; to {action}, it must be {wanted}")]
    StampMismatch { block: ExtendedBlock, stored: GenerationStamp, wanted: String, action: &'static str },
    #[error("replica {block} has {actual} bytes {what}; {wanted} expected")]
    LengthMismatch { block: ExtendedBlock, what: &'static str, actual: u64, wanted: String },
    #[error("replica {block} is not in {}: its files are gone", dir.display())]
    FilesMissing { block: ExtendedBlock, dir: PathBuf },
    #[error("range {}..{} lies outside replica {block} of {length} bytes", range.start(), range.end())]
    OutOfRange { block: ExtendedBlock, range: ByteRange, length: u64 },
    #[error("data for {block} at offset {offset} does not join the {received} bytes received")]
    Gap { block: ExtendedBlock, offset: u64, received: u64 },
    #[error("data for {block}: {reason}")]
    BadWrite { block: ExtendedBlock, reason: String },
    #[error("what was committed of {block} from byte {start}")]
    BadCommit { block: ExtendedBlock, start: u64, source: ChecksumError },
    #[error("{block}: the writer was stopped by a later operation on the replica")]
    WriterStopped { block: ExtendedBlock },
    #[error("{block}: the former writer did not stop in time")]
    WriterStillRunning { block: ExtendedBlock },
    #[error("{block}: recovery {running} is in progress, which is not older than {asked}")]
    RecoveryInProgress { block: ExtendedBlock, running: GenerationStamp, asked: GenerationStamp },
    #[error("replica {block} is corrupt: {reason}")]
    Corrupt { block: ExtendedBlock, reason: String },
    #[error("replica {block} has changed, or is about to, since it was opened to be shown")]
    Withdrawn { block: ExtendedBlock },
    #[error("replica {block} lies in a file of {file_bytes} bytes, which nobody else can read as it is")]
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
    #[error("the configuration of the store: {0}")]
    BadOptions(String),
}

/// What a caller does about a `StoreError`; nobody reads its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// Ask again a little later, here.
    RetryHere,
    /// This replica will not do: another datanode may have a good one.
    OtherReplica,
    /// The request does not fit the replica's state: the sender learns of it and decides.
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

    /// Why a storage cannot be used, if that is what it says, as of a broken disk or one that is not mounted: not of a full one, nor of
    /// somebody else's.
    pub(crate) fn volume_failure(&self) -> Option<String> {
        match self {
            Self::Io { source, .. } => match fault::of(source) {
                FaultScope::Volume | FaultScope::Unclear => Some(format!("{self}: {source}")),
                FaultScope::NoSpace | FaultScope::Process => None,
            },
            _ => None,
        }
    }

    /// For `map_err`: an I/O error with what was being done to which path.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io { action, path, source }
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;
