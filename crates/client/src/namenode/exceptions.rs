//! Java's exception classes as the namenode names them on the wire, and the error kinds they map to.

use hearth_wire::rpc::exceptions as names;

use crate::ErrorKind;

macro_rules! exceptions {
    ($($(#[$doc:meta])* $variant:ident = $name:ident, $kind:ident;)*) => {
        /// Class of an exception that a namenode answered.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Exception {
            $($(#[$doc])* $variant,)*
            /// Any other class. The error contains its name.
            Other,
        }

        impl Exception {
            /// Maps a fully qualified class name to its variant.
            pub fn from_class(class: &str) -> Self {
                match class {
                    $(names::$name => Self::$variant,)*
                    _ => Self::Other,
                }
            }

            /// Returns the error category of this exception.
            pub fn kind(self) -> ErrorKind {
                match self {
                    $(Self::$variant => ErrorKind::$kind,)*
                    Self::Other => ErrorKind::Other,
                }
            }
        }
    };
}

exceptions! {
    /// `AccessControlException`.
    AccessControl = ACCESS_CONTROL, PermissionDenied;
    /// `FileNotFoundException`.
    FileNotFound = FILE_NOT_FOUND, NotFound;
    /// `FileAlreadyExistsException`.
    FileAlreadyExists = FILE_ALREADY_EXISTS, AlreadyExists;
    /// `ParentNotDirectoryException`.
    ParentNotDirectory = PARENT_NOT_DIRECTORY, NotADirectory;
    /// `PathIsNotDirectoryException`.
    PathIsNotDirectory = PATH_IS_NOT_DIRECTORY, NotADirectory;
    /// `PathIsNotEmptyDirectoryException`.
    PathIsNotEmptyDirectory = PATH_IS_NOT_EMPTY_DIRECTORY, DirectoryNotEmpty;
    /// `InvalidPathException`.
    InvalidPath = INVALID_PATH, InvalidPath;
    /// `AlreadyBeingCreatedException`.
    AlreadyBeingCreated = ALREADY_BEING_CREATED, Busy;
    /// `RecoveryInProgressException`.
    RecoveryInProgress = RECOVERY_IN_PROGRESS, Busy;
    /// `LeaseExpiredException`.
    LeaseExpired = LEASE_EXPIRED, Busy;
    /// `NotReplicatedYetException`.
    NotReplicatedYet = NOT_REPLICATED_YET, Busy;
    /// `SafeModeException`.
    SafeMode = SAFE_MODE, SafeMode;
    /// `NSQuotaExceededException`.
    NamespaceQuota = NAMESPACE_QUOTA_EXCEEDED, QuotaExceeded;
    /// `DSQuotaExceededException`.
    SpaceQuota = SPACE_QUOTA_EXCEEDED, QuotaExceeded;
    /// `QuotaByStorageTypeExceededException`.
    StorageTypeQuota = STORAGE_TYPE_QUOTA_EXCEEDED, QuotaExceeded;
    /// `PathComponentTooLongException`.
    ComponentTooLong = PATH_COMPONENT_TOO_LONG, InvalidInput;
    /// `MaxDirectoryItemsExceededException`.
    DirectoryFull = MAX_DIRECTORY_ITEMS_EXCEEDED, QuotaExceeded;
    /// `UnresolvedPathException`.
    UnresolvedPath = UNRESOLVED_PATH, Unsupported;
    /// `HadoopIllegalArgumentException`.
    HadoopIllegalArgument = HADOOP_ILLEGAL_ARGUMENT, InvalidInput;
    /// `IllegalArgumentException`.
    IllegalArgument = ILLEGAL_ARGUMENT, InvalidInput;
    /// `UnsupportedOperationException`.
    UnsupportedOperation = UNSUPPORTED_OPERATION, Unsupported;
    /// `UnsupportedActionException`.
    UnsupportedAction = UNSUPPORTED_ACTION, Unsupported;
    /// `UnknownCryptoProtocolVersionException`.
    UnknownCryptoProtocolVersion = UNKNOWN_CRYPTO_PROTOCOL_VERSION, Unsupported;
    /// `RpcNoSuchMethodException`.
    NoSuchMethod = RPC_NO_SUCH_METHOD, Unsupported;
    /// `RpcNoSuchProtocolException`.
    NoSuchProtocol = RPC_NO_SUCH_PROTOCOL, Unsupported;
    /// `StandbyException`.
    Standby = STANDBY, Unreachable;
    /// `ObserverRetryOnActiveException`.
    ObserverRetryOnActive = OBSERVER_RETRY_ON_ACTIVE, Unreachable;
    /// `RetriableException`.
    Retriable = RETRIABLE, Busy;
    /// `InvalidToken`.
    InvalidToken = INVALID_TOKEN, PermissionDenied;
    /// `AuthorizationException`.
    Authorization = AUTHORIZATION, PermissionDenied;
    /// `ReplicaNotFoundException`.
    ReplicaNotFound = REPLICA_NOT_FOUND, DataUnavailable;
    /// `IOException`.
    Io = IO, Other;
}

/// Returns the first lines of a Java message, without the stack trace that servers append.
pub(crate) fn without_stack_trace(message: &str) -> &str {
    match message.find("\n\tat ") {
        Some(end) => message[..end].trim_end(),
        None => message.trim_end(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_known_by_their_full_names() {
        let seen = Exception::from_class("org.apache.hadoop.hdfs.server.namenode.SafeModeException");
        assert_eq!((seen, seen.kind()), (Exception::SafeMode, ErrorKind::SafeMode));
        assert_eq!(Exception::from_class("SafeModeException"), Exception::Other);
    }

    #[test]
    fn stack_traces_are_cut() {
        assert_eq!(without_stack_trace("No lease\nfor /a\n\tat x.y(Z.java:1)\n\tat ..."), "No lease\nfor /a");
        assert_eq!(without_stack_trace("plain"), "plain");
    }
}
