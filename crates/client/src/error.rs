use std::sync::Arc;

use hearth_config::ConfigError;
use hearth_fabric::tcp::PeerAddress;
use hearth_types::{ChecksumError, DatanodeId, ExtendedBlock};

use crate::namenode::Exception;

/// What can go wrong for a caller of this room. Fields name what to look at; the cause is chained.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("configuration")]
    Configuration(#[source] Arc<ConfigError>),
    #[error("{uri:?} is not the address of an HDFS file system: {why}")]
    InvalidUri { uri: String, why: String },
    #[error("{path:?}: {why}")]
    InvalidPath { path: String, why: &'static str },
    /// The namenode says that nothing is there, without an exception.
    #[error("{path}: No such file or directory")]
    NotFound { path: String },
    #[error("{path}: Is a directory")]
    IsDirectory { path: String },
    /// The namenode refused a call. `message` is its own text, without stack trace.
    #[error("{message}")]
    Refused { method: &'static str, exception: Exception, class: String, message: String },
    /// No namenode of the file system answered the call.
    #[error("{method} at namenode {address}")]
    Namenode { method: &'static str, address: String, source: Arc<hearth_protocol::rpc::RpcError> },
    /// A server asked over HTTP cannot be reached, or does not keep to WebHDFS. `sent`: whether it may have carried the operation out.
    #[error("{operation} at {address} over HTTP: {why}")]
    Web { operation: &'static str, address: String, sent: bool, why: String },
    /// The namenode's answer lacks something or contradicts itself.
    #[error("namenode's answer to {method}: {why}")]
    Answer { method: &'static str, why: String },
    #[error("datanode {datanode}")]
    Datanode { datanode: String, source: Arc<DatanodeError> },
    /// No replica of the block could be read; the last failure is chained.
    #[error("Could not obtain block: {block} file={path}")]
    BlockMissing { block: Box<ExtendedBlock>, path: String, source: Option<Arc<DatanodeError>> },
    /// The paths that the configuration allows do not lead to any replica of the block; `reasons` says it of each.
    #[error("no path of hearth.client.paths ({allowed}) leads to a replica of {block} of {path}: {reasons}")]
    NoPath { path: String, block: Box<ExtendedBlock>, allowed: String, reasons: String },
    #[error("cannot obtain the length of open block {block} of {path} from any datanode")]
    BlockLength { block: Box<ExtendedBlock>, path: String, source: Option<Arc<DatanodeError>> },
    #[error("{path} is erasure-coded or encrypted, which this client can neither read nor write")]
    Unsupported { path: String },
    #[error("cannot seek to {position} in {path}: its length is {length}")]
    SeekBeyondEnd { path: String, position: u64, length: u64 },
    /// Every datanode of the pipeline failed, or fewer than allowed are left.
    #[error("All datanodes [{datanodes}] are bad. Aborting... (block {block} of {path})")]
    PipelineLost { path: String, block: Box<ExtendedBlock>, datanodes: String, source: Option<Arc<DatanodeError>> },
    #[error("cannot set up a pipeline for {path} after {attempts} attempts")]
    PipelineSetup { path: String, attempts: u32, source: Option<Arc<DatanodeError>> },
    #[error(
        "Failed to replace a bad datanode on the existing pipeline of {path} due to no more good datanodes being available to try"
    )]
    NoReplacement { path: String },
    #[error("Unable to close file because the last block {block} does not have enough number of replicas ({path})")]
    NotComplete { path: String, block: String },
    #[error("bytes for {path} can neither be put in the datanode's memory nor had back from it")]
    GrantedMemory { path: String, source: Arc<std::io::Error> },
    #[error("{path} is closed for writing")]
    WriterClosed { path: String },
    /// The lease could not be renewed for so long that the file may belong to somebody else by now.
    #[error("the lease of this client could not be renewed; {path} was given up")]
    LeaseLost { path: String },
    #[error("{path} changed while it was being read: {why}")]
    FileChanged { path: String, why: String },
}

/// What can go wrong with one datanode.
#[derive(Debug, thiserror::Error)]
pub enum DatanodeError {
    #[error("address {address} of the datanode cannot be resolved: {why}")]
    Address { address: String, why: String },
    #[error(transparent)]
    Transfer(#[from] hearth_protocol::data_transfer::TransferError),
    /// Of an attempt, as to connect, that all who wanted the same waited for.
    #[error(transparent)]
    SharedAttempt(Arc<DatanodeError>),
    /// The connection that the read shared with others broke.
    #[error("a connection that many reads shared")]
    SharedConnection { source: Arc<hearth_protocol::data_transfer::TransferError> },
    #[error("the datanode refused {operation} of {block}: {status} {message}")]
    Refused { operation: &'static str, block: Box<ExtendedBlock>, status: String, message: String },
    /// The block token is not, or no longer, good.
    #[error("the datanode refused the access token of {block}")]
    AccessToken { block: Box<ExtendedBlock> },
    /// The pipeline's first link that did not work is further down.
    #[error("{first_bad_link:?} in the pipeline of {block} could not be reached: {status} {message}")]
    BadLink { block: Box<ExtendedBlock>, first_bad_link: String, status: String, message: String },
    #[error("the datanode's data of {block} at {offset} do not fit their checksums")]
    Checksum { block: Box<ExtendedBlock>, offset: u64, source: ChecksumError },
    /// The datanode no longer serves the replica as it was opened: appended to, cut, moved or deleted.
    #[error("the datanode withdrew the replica of {block} that was open")]
    Withdrawn { block: Box<ExtendedBlock> },
    /// A replica handed over on this machine whose files cannot be read or do not fit each other.
    #[error("the files of the replica of {block} cannot be used")]
    Unusable { block: Box<ExtendedBlock>, source: Arc<std::io::Error> },
    #[error("datanode {listens} instead of {wanted} listens on {}", socket.display())]
    OtherDatanode {
        socket: std::path::PathBuf,
        listens: hearth_types::DatanodeUuid,
        wanted: hearth_types::DatanodeUuid,
    },
    /// Not by the one-sided path, now; others may lead there.
    #[error("{block} cannot be read one-sidedly: {why}")]
    NotAdvertised { block: Box<ExtendedBlock>, why: String },
    /// Not by the local path, now; others may lead there.
    #[error("{datanode} has no way in on this machine: {why}")]
    NoDomainSocket { datanode: Box<DatanodeId>, why: &'static str },
    /// Another process listens where the datanode did.
    #[error("{peer} is not the datanode, or it was started again")]
    OtherIncarnation { peer: std::net::SocketAddr },
    #[error("the one-sided network")]
    OneSided(#[from] hearth_fabric::one_sided::Error),
    #[error("{peer} does not keep to the protocol: {what}")]
    Protocol { peer: PeerAddress, what: String },
    #[error("{datanode} answered {status} for packet {sequence} of {block}")]
    Acknowledgement { datanode: Box<DatanodeId>, status: String, sequence: i64, block: Box<ExtendedBlock> },
    #[error("no acknowledgement of packet {sequence} of {block} for {after:?}")]
    AcknowledgementTimedOut { sequence: i64, block: Box<ExtendedBlock>, after: std::time::Duration },
    #[error("{peer} does not keep to the protocol: {what}")]
    OneSidedProtocol { peer: std::net::SocketAddr, what: String },
    /// Bytes that the writer had put in a datanode's memory, to be sent to another, cannot be had back.
    #[error("bytes from {offset} of the block cannot be read from the memory that they were put in")]
    ReadBack { offset: u64, source: std::io::Error },
    #[error("call to the datanode")]
    Rpc(#[source] Arc<hearth_protocol::rpc::RpcError>),
}

impl DatanodeError {
    /// What went wrong, whoever's attempt it was.
    pub fn cause(&self) -> &Self {
        match self {
            Self::SharedAttempt(error) => error.cause(),
            error => error,
        }
    }

    /// It was silent for as long as is borne.
    pub(crate) fn is_time_out(&self) -> bool {
        match self.cause() {
            Self::Transfer(error) => error.is_time_out(),
            Self::SharedConnection { source } => source.is_time_out(),
            Self::OneSided(error) => {
                use hearth_fabric::one_sided::Error;
                matches!(error, Error::TimedOut { .. } | Error::NoMessage { .. })
            }
            Self::AcknowledgementTimedOut { .. } => true,
            _ => false,
        }
    }
}

/// What a program usually wants to know of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    NotFound,
    AlreadyExists,
    PermissionDenied,
    NotADirectory,
    IsADirectory,
    DirectoryNotEmpty,
    QuotaExceeded,
    SafeMode,
    InvalidInput,
    /// Another client writes the file, or its lease is being recovered.
    Busy,
    Unsupported,
    /// No connection, or a broken one.
    Unreachable,
    /// No replica could be read, or none be written.
    DataUnavailable,
    Other,
}

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Configuration(_)
            | Self::InvalidUri { .. }
            | Self::InvalidPath { .. }
            | Self::SeekBeyondEnd { .. } => ErrorKind::InvalidInput,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::IsDirectory { .. } => ErrorKind::IsADirectory,
            Self::Refused { exception, .. } => exception.kind(),
            Self::Namenode { .. } | Self::Web { .. } => ErrorKind::Unreachable,
            Self::Datanode { .. }
            | Self::BlockMissing { .. }
            | Self::NoPath { .. }
            | Self::BlockLength { .. }
            | Self::PipelineLost { .. }
            | Self::PipelineSetup { .. }
            | Self::NoReplacement { .. }
            | Self::GrantedMemory { .. }
            | Self::NotComplete { .. } => ErrorKind::DataUnavailable,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Answer { .. } | Self::WriterClosed { .. } | Self::LeaseLost { .. } | Self::FileChanged { .. } => {
                ErrorKind::Other
            }
        }
    }

    /// The exception that the namenode answered, if it did.
    pub fn exception(&self) -> Option<Exception> {
        match self {
            Self::Refused { exception, .. } => Some(*exception),
            _ => None,
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Configuration(Arc::new(error))
    }
}
