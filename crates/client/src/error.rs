use std::sync::Arc;
use std::{fmt, io};

use hearth_config::ConfigError;
use hearth_fabric::tcp::PeerAddress;
use hearth_types::{ChecksumError, DatanodeId, ExtendedBlock};

use crate::namenode::Exception;

/// Error of an operation of this crate. Cheap to clone.
///
/// [`Error::kind`] gives the category to decide by, and [`Error::is_retryable`] tells whether the same call may succeed
/// later. The text is for people: it names the operation and the object. The causes are chained
/// ([`std::error::Error::source`]).
///
/// It converts to [`std::io::Error`] with a fitting [`std::io::ErrorKind`], so `?` works in functions that return
/// `io::Result`.
#[derive(Clone)]
pub struct Error(Arc<Failure>);

/// Failures of the client. The fields name the objects involved; the cause is chained as the source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
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
    Refused { exception: Exception, class: String, message: String },
    /// No namenode of the file system answered the call.
    #[error("call {method} to the namenode at {address} failed")]
    Namenode { method: &'static str, address: String, source: Arc<hearth_protocol::rpc::RpcError> },
    /// A server did not answer an administrative call.
    #[error("call {method} to {address} failed")]
    Server { method: &'static str, address: String, source: Arc<hearth_protocol::rpc::RpcError> },
    /// An HTTP server is unreachable or violates WebHDFS. `sent`: the server may have carried out the operation.
    #[error("HTTP operation {operation} at {address} failed: {why}")]
    Web { operation: &'static str, address: String, sent: bool, why: String },
    /// The namenode's answer is incomplete or contradictory.
    #[error("invalid answer of the namenode to {method}: {why}")]
    Answer { method: &'static str, why: String },
    /// No replica of the block could be read. The last failure is chained.
    #[error("Could not obtain block: {block} file={path}")]
    BlockMissing { block: Box<ExtendedBlock>, path: String, source: Option<Arc<DatanodeError>> },
    /// None of the paths that the configuration allows reaches a replica of the block. `reasons` lists the failure of
    /// each.
    #[error("no path of hearth.client.paths ({allowed}) reaches a replica of {block} of {path}: {reasons}")]
    NoPath { path: String, block: Box<ExtendedBlock>, allowed: String, reasons: String },
    #[error("cannot obtain the length of open block {block} of {path} from any datanode")]
    BlockLength { block: Box<ExtendedBlock>, path: String, source: Option<Arc<DatanodeError>> },
    /// No datanode of the block is known to be Hearth's, and not all of them answer. The last failure is chained; there
    /// is none if the block has no datanode.
    #[error("cannot tell whether a Hearth datanode has {block}: not all of its datanodes answer")]
    Unidentified { block: Box<ExtendedBlock>, source: Option<Arc<DatanodeError>> },
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
    /// The system refuses the memory for the bytes of a read.
    #[error("cannot allocate {bytes} bytes for a read of {path}: read a shorter range, or into memory of your own")]
    OutOfMemory { path: String, bytes: u64 },
    /// The target datanode of a balancer's move does not answer, or refuses.
    #[error("cannot move {block} to {target}")]
    Move { block: Box<ExtendedBlock>, target: String, source: Arc<DatanodeError> },
    /// Made by a user of this crate.
    #[error("{message}")]
    Custom { kind: ErrorKind, message: String },
}

/// Errors of an operation on one datanode.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatanodeError {
    #[error("cannot resolve the datanode's address {address}: {why}")]
    Address { address: String, why: String },
    /// The datanode did not answer a question in time, now or a short while ago.
    #[error("datanode {datanode} does not answer")]
    Silent { datanode: Box<DatanodeId> },
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
    pub(crate) fn cause(&self) -> &Self {
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
            Self::AcknowledgementTimedOut { .. } | Self::Silent { .. } => true,
            _ => false,
        }
    }
}

/// Category of an [`Error`], for programs that decide by it. Later versions may add categories.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file, directory, attribute or snapshot does not exist.
    NotFound,
    /// Something exists at the path already.
    AlreadyExists,
    /// The user lacks a permission, or the servers do not accept its token.
    PermissionDenied,
    /// A part of the path is not a directory.
    NotADirectory,
    /// The path is a directory, and the operation needs a file.
    IsADirectory,
    /// The directory has entries, and the operation needs an empty one.
    DirectoryNotEmpty,
    /// A quota, or the limit of entries of a directory, would be exceeded.
    QuotaExceeded,
    /// The namenode is in safe mode and refuses changes.
    SafeMode,
    /// The configuration, or the URL of the file system, is invalid.
    InvalidConfiguration,
    /// The path is not valid: it is empty, contains a NUL, or leads above the root.
    InvalidPath,
    /// An argument other than the path is not valid.
    InvalidInput,
    /// The position is beyond the end of the file.
    BeyondEnd,
    /// Another client writes the file, or its lease is being recovered.
    Busy,
    /// The lease of this client could not be renewed. Another client may have taken over the file.
    LeaseLost,
    /// The file changed while it was being read.
    FileChanged,
    /// The system refuses the memory for the result.
    OutOfMemory,
    /// The servers, or this client, lack the operation or a feature that the file uses.
    Unsupported,
    /// No connection could be made, or the connection broke.
    Unreachable,
    /// No replica could be read, or none could be written.
    DataUnavailable,
    /// Any other error.
    Other,
}

impl ErrorKind {
    fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Configuration(_) | Failure::InvalidUri { .. } => Self::InvalidConfiguration,
            Failure::InvalidPath { .. } => Self::InvalidPath,
            Failure::SeekBeyondEnd { .. } => Self::BeyondEnd,
            Failure::NotFound { .. } => Self::NotFound,
            Failure::IsDirectory { .. } => Self::IsADirectory,
            Failure::Refused { exception, .. } => exception.kind(),
            Failure::Namenode { .. } | Failure::Server { .. } | Failure::Web { .. } | Failure::Unidentified { .. } => {
                Self::Unreachable
            }
            Failure::BlockMissing { .. }
            | Failure::NoPath { .. }
            | Failure::BlockLength { .. }
            | Failure::PipelineLost { .. }
            | Failure::PipelineSetup { .. }
            | Failure::NoReplacement { .. }
            | Failure::GrantedMemory { .. }
            | Failure::NotComplete { .. }
            | Failure::Move { .. } => Self::DataUnavailable,
            Failure::Unsupported { .. } => Self::Unsupported,
            Failure::LeaseLost { .. } => Self::LeaseLost,
            Failure::FileChanged { .. } => Self::FileChanged,
            Failure::OutOfMemory { .. } => Self::OutOfMemory,
            Failure::Answer { .. } | Failure::WriterClosed { .. } => Self::Other,
            Failure::Custom { kind, .. } => *kind,
        }
    }

    fn io(self) -> io::ErrorKind {
        match self {
            Self::NotFound => io::ErrorKind::NotFound,
            Self::AlreadyExists => io::ErrorKind::AlreadyExists,
            Self::PermissionDenied => io::ErrorKind::PermissionDenied,
            Self::NotADirectory => io::ErrorKind::NotADirectory,
            Self::IsADirectory => io::ErrorKind::IsADirectory,
            Self::DirectoryNotEmpty => io::ErrorKind::DirectoryNotEmpty,
            Self::QuotaExceeded => io::ErrorKind::QuotaExceeded,
            Self::SafeMode => io::ErrorKind::ReadOnlyFilesystem,
            Self::InvalidConfiguration | Self::InvalidPath | Self::InvalidInput | Self::BeyondEnd => {
                io::ErrorKind::InvalidInput
            }
            Self::Busy => io::ErrorKind::ResourceBusy,
            Self::LeaseLost | Self::FileChanged => io::ErrorKind::StaleNetworkFileHandle,
            Self::OutOfMemory => io::ErrorKind::OutOfMemory,
            Self::Unsupported => io::ErrorKind::Unsupported,
            Self::Unreachable => io::ErrorKind::HostUnreachable,
            Self::DataUnavailable | Self::Other => io::ErrorKind::Other,
        }
    }
}

impl Error {
    /// Creates an error of this category whose text is `message`. For programs that add operations of their own, and
    /// for tests.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Failure::Custom { kind, message: message.into() }.into()
    }

    /// Creates the error of a namenode that answered with a Java exception. `class`: its full name, such as
    /// `java.io.IOException`. `message`: its text. For programs that relay errors, and for tests.
    pub fn from_exception(class: impl Into<String>, message: impl Into<String>) -> Self {
        let (class, message) = (class.into(), message.into());
        Failure::Refused { exception: Exception::from_class(&class), class, message }.into()
    }

    /// Returns the category of this error.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of(&self.0)
    }

    /// Returns true if the same call may succeed later without a change of its arguments: a server was unreachable, in
    /// safe mode or busy, or no replica could be reached.
    ///
    /// A call that changes the file system may have been carried out although its answer was lost. A retry can then
    /// find its own change.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Busy | ErrorKind::SafeMode | ErrorKind::Unreachable | ErrorKind::DataUnavailable
        )
    }

    /// Returns the path of the file or directory that the operation failed on, if it is known. `None` for an exception
    /// of the namenode, whose text names the path.
    pub fn path(&self) -> Option<&str> {
        match &*self.0 {
            Failure::InvalidPath { path, .. }
            | Failure::NotFound { path }
            | Failure::IsDirectory { path }
            | Failure::BlockMissing { path, .. }
            | Failure::NoPath { path, .. }
            | Failure::BlockLength { path, .. }
            | Failure::Unsupported { path }
            | Failure::SeekBeyondEnd { path, .. }
            | Failure::PipelineLost { path, .. }
            | Failure::PipelineSetup { path, .. }
            | Failure::NoReplacement { path }
            | Failure::NotComplete { path, .. }
            | Failure::GrantedMemory { path, .. }
            | Failure::WriterClosed { path }
            | Failure::LeaseLost { path }
            | Failure::FileChanged { path, .. }
            | Failure::OutOfMemory { path, .. } => Some(path),
            Failure::Configuration(_)
            | Failure::InvalidUri { .. }
            | Failure::Refused { .. }
            | Failure::Namenode { .. }
            | Failure::Server { .. }
            | Failure::Web { .. }
            | Failure::Answer { .. }
            | Failure::Unidentified { .. }
            | Failure::Move { .. }
            | Failure::Custom { .. } => None,
        }
    }

    /// Returns the exception in the namenode's answer, if it sent one. The text of this error is then the exception's,
    /// without the stack trace.
    pub fn exception(&self) -> Option<Exception> {
        match &*self.0 {
            Failure::Refused { exception, .. } => Some(*exception),
            _ => None,
        }
    }

    /// Returns the full name of that exception's Java class, such as `java.io.FileNotFoundException`.
    pub fn exception_class(&self) -> Option<&str> {
        match &*self.0 {
            Failure::Refused { class, .. } => Some(class),
            _ => None,
        }
    }

    /// Returns the failure, for decisions within this crate.
    pub(crate) fn failure(&self) -> &Failure {
        &self.0
    }

    /// Returns true if a server did not answer in time.
    fn is_time_out(&self) -> bool {
        match &*self.0 {
            Failure::BlockMissing { source, .. }
            | Failure::BlockLength { source, .. }
            | Failure::Unidentified { source, .. }
            | Failure::PipelineLost { source, .. }
            | Failure::PipelineSetup { source, .. } => source.as_ref().is_some_and(|source| source.is_time_out()),
            Failure::Move { source, .. } => source.is_time_out(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self(Arc::new(failure))
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Failure::Configuration(Arc::new(error)).into()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = if error.is_time_out() { io::ErrorKind::TimedOut } else { error.kind().io() };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_keep_class_kind_and_text() {
        let class = "org.apache.hadoop.hdfs.server.namenode.SafeModeException";
        let error = Error::from_exception(class, "Name node is in safe mode.");
        assert_eq!(error.exception(), Some(Exception::SafeMode));
        assert_eq!(error.exception_class(), Some(class));
        assert_eq!(error.kind(), ErrorKind::SafeMode);
        assert!(error.is_retryable());
        assert_eq!(error.path(), None);
        assert_eq!(error.to_string(), "Name node is in safe mode.");
    }

    #[test]
    fn io_errors_keep_kind_text_and_cause() {
        let error = io::Error::from(Error::from(Failure::NotFound { path: "/a".to_owned() }));
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(error.to_string(), "/a: No such file or directory");
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).unwrap();
        assert_eq!((inner.kind(), inner.path()), (ErrorKind::NotFound, Some("/a")));
        let peer = "127.0.0.1:1".parse().unwrap();
        let action = "reading a replica";
        let slow = hearth_fabric::one_sided::Error::TimedOut { peer, action, after: std::time::Duration::from_secs(1) };
        let source = Arc::new(DatanodeError::OneSided(slow));
        let error = Error::from(Failure::PipelineSetup { path: "/a".to_owned(), attempts: 3, source: Some(source) });
        assert!(std::error::Error::source(&error).is_some());
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn own_errors_have_the_given_kind() {
        let error = Error::new(ErrorKind::Unsupported, "no links here");
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unsupported, "no links here"));
        assert!(!error.is_retryable() && error.exception().is_none());
    }
}
