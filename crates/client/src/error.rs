use std::sync::Arc;

use hearth_config::ConfigError;
use hearth_fabric::tcp::PeerAddress;
use hearth_types::{ChecksumError, DatanodeId, ExtendedBlock};

use crate::namenode::Exception;

/// Errors of the client. The fields name the objects involved; the cause is chained as the source.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("invalid configuration")]
    Configuration(#[source] Arc<ConfigError>),
    #[error("{uri:?} is not the address of an HDFS file system: {why}")]
    InvalidUri { uri: String, why: String },
    #[error("{path:?}: {why}")]
    InvalidPath { path: String, why: &'static str },
    /// The namenode reported, without an exception, that the path does not exist.
    #[error("{path}: No such file or directory")]
    NotFound { path: String },
    #[error("{path}: Is a directory")]
    IsDirectory { path: String },
    /// The namenode refused a call. `message` is the namenode's text without the stack trace.
    #[error("{message}")]
    Refused { method: &'static str, exception: Exception, class: String, message: String },
    /// No namenode of the file system answered the call.
    #[error("call {method} to the namenode at {address} failed")]
    Namenode { method: &'static str, address: String, source: Arc<hearth_protocol::rpc::RpcError> },
    /// An HTTP server is unreachable or violates WebHDFS. `sent`: the server may have carried out the operation.
    #[error("HTTP operation {operation} at {address} failed: {why}")]
    Web { operation: &'static str, address: String, sent: bool, why: String },
    /// The namenode's answer is incomplete or contradictory.
    #[error("invalid answer of the namenode to {method}: {why}")]
    Answer { method: &'static str, why: String },
    #[error("operation on datanode {datanode} failed")]
    Datanode { datanode: String, source: Arc<DatanodeError> },
    /// No replica of the block could be read. The last failure is chained.
    #[error("Could not obtain block: {block} file={path}")]
    BlockMissing { block: Box<ExtendedBlock>, path: String, source: Option<Arc<DatanodeError>> },
    /// None of the paths that the configuration allows reaches a replica of the block. `reasons` lists the failure of
    /// each.
    #[error("no path of hearth.client.paths ({allowed}) reaches a replica of {block} of {path}: {reasons}")]
    NoPath { path: String, block: Box<ExtendedBlock>, allowed: String, reasons: String },
    #[error("cannot obtain the length of open block {block} of {path} from any datanode")]
    BlockLength { block: Box<ExtendedBlock>, path: String, source: Option<Arc<DatanodeError>> },
    #[error("{path} is erasure-coded or encrypted, which this client can neither read nor write")]
    Unsupported { path: String },
    #[error("cannot seek to {position} in {path}: its length is {length}")]
    SeekBeyondEnd { path: String, position: u64, length: u64 },
    /// Every datanode of the pipeline failed, or fewer than the allowed minimum are left.
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
    #[error("cannot write bytes of {path} to the datanode's memory or read them back")]
    GrantedMemory { path: String, source: Arc<std::io::Error> },
    #[error("{path} is closed for writing")]
    WriterClosed { path: String },
    /// The lease could not be renewed for so long that another client may own the file by now.
    #[error("cannot continue writing {path}: the lease of this client could not be renewed; open the file again")]
    LeaseLost { path: String },
    #[error("{path} changed while it was being read: {why}")]
    FileChanged { path: String, why: String },
}

/// Errors of an operation on one datanode.
#[derive(Debug, thiserror::Error)]
pub enum DatanodeError {
    #[error("cannot resolve the datanode's address {address}: {why}")]
    Address { address: String, why: String },
    #[error(transparent)]
    Transfer(#[from] hearth_protocol::data_transfer::TransferError),
    /// Failure of a shared attempt, for example to connect. All callers that waited for it get the same error.
    #[error(transparent)]
    SharedAttempt(Arc<DatanodeError>),
    /// The connection broke that this read shared with other reads.
    #[error("shared connection to the datanode failed")]
    SharedConnection { source: Arc<hearth_protocol::data_transfer::TransferError> },
    #[error("the datanode refused {operation} of {block}: {status} {message}")]
    Refused { operation: &'static str, block: Box<ExtendedBlock>, status: String, message: String },
    /// The block token is invalid or expired.
    #[error("the datanode refused the access token of {block}")]
    AccessToken { block: Box<ExtendedBlock> },
    /// The connection to a later datanode of the pipeline failed. `first_bad_link` is the first one that was
    /// unreachable.
    #[error("{first_bad_link:?} in the pipeline of {block} could not be reached: {status} {message}")]
    BadLink { block: Box<ExtendedBlock>, first_bad_link: String, status: String, message: String },
    #[error("data of {block} at {offset} from the datanode do not match their checksums")]
    Checksum { block: Box<ExtendedBlock>, offset: u64, source: ChecksumError },
    /// The datanode no longer serves the replica as it was opened: it was appended to, truncated, moved or deleted.
    #[error("the datanode withdrew the open replica of {block}")]
    Withdrawn { block: Box<ExtendedBlock> },
    /// The files of a replica received on this machine cannot be read or do not match each other.
    #[error("cannot use the files of the local replica of {block}")]
    Unusable { block: Box<ExtendedBlock>, source: Arc<std::io::Error> },
    #[error("expected datanode {wanted}, but found {listens} listening on {}", socket.display())]
    OtherDatanode {
        socket: std::path::PathBuf,
        listens: hearth_types::DatanodeUuid,
        wanted: hearth_types::DatanodeUuid,
    },
    /// The one-sided path cannot reach the block now. Other paths may.
    #[error("cannot read {block} one-sidedly: {why}")]
    NotAdvertised { block: Box<ExtendedBlock>, why: String },
    /// The local path cannot reach the datanode now. Other paths may.
    #[error("cannot read locally from {datanode}: {why}")]
    NoDomainSocket { datanode: Box<DatanodeId>, why: &'static str },
    /// Another process listens on the datanode's address.
    #[error("the process at {peer} is not the expected datanode, or the datanode was restarted")]
    OtherIncarnation { peer: std::net::SocketAddr },
    #[error("one-sided transport failed")]
    OneSided(#[from] hearth_fabric::one_sided::Error),
    #[error("{peer} violated the protocol: {what}")]
    Protocol { peer: PeerAddress, what: String },
    #[error("{datanode} answered {status} for packet {sequence} of {block}")]
    Acknowledgement { datanode: Box<DatanodeId>, status: String, sequence: i64, block: Box<ExtendedBlock> },
    #[error("no acknowledgement of packet {sequence} of {block} within {after:?}")]
    AcknowledgementTimedOut { sequence: i64, block: Box<ExtendedBlock>, after: std::time::Duration },
    #[error("{peer} violated the protocol: {what}")]
    OneSidedProtocol { peer: std::net::SocketAddr, what: String },
    /// Bytes that the writer had put in a datanode's memory cannot be read back to be sent to another datanode.
    #[error("cannot read the block's bytes from {offset} on back from the memory that they were written to")]
    ReadBack { offset: u64, source: std::io::Error },
    #[error("RPC to the datanode failed")]
    Rpc(#[source] Arc<hearth_protocol::rpc::RpcError>),
}

impl DatanodeError {
    /// Returns the underlying error, also if another caller's attempt failed.
    pub fn cause(&self) -> &Self {
        match self {
            Self::SharedAttempt(error) => error.cause(),
            error => error,
        }
    }

    /// Returns true if the datanode did not answer within the time-out.
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

/// Category of an [`Error`], for programs that handle errors by their kind.
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
    /// No connection could be made, or the connection broke.
    Unreachable,
    /// No replica could be read, or none could be written.
    DataUnavailable,
    Other,
}

impl Error {
    /// Returns the category of this error.
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

    /// Returns the exception in the namenode's answer, if it sent one.
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
