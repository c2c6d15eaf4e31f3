//! Java's exception classes, as the namenode names them on the wire, and what they mean here. The only place that
//! knows their names.

use crate::ErrorKind;

macro_rules! exceptions {
    ($($variant:ident = $name:literal, $kind:ident;)*) => {
        /// The class of an exception that a namenode answered.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Exception {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
            /// Any other class; its name stands in the error.
            Other,
        }

        impl Exception {
            /// From the fully qualified name.
            pub fn from_class(class: &str) -> Self {
                match class {
                    $($name => Self::$variant,)*
                    _ => Self::Other,
                }
            }

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
    AccessControl = "org.apache.hadoop.security.AccessControlException", PermissionDenied;
    FileNotFound = "java.io.FileNotFoundException", NotFound;
    FileAlreadyExists = "org.apache.hadoop.fs.FileAlreadyExistsException", AlreadyExists;
    ParentNotDirectory = "org.apache.hadoop.fs.ParentNotDirectoryException", NotADirectory;
    PathIsNotDirectory = "org.apache.hadoop.fs.PathIsNotDirectoryException", NotADirectory;
    PathIsNotEmptyDirectory = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", DirectoryNotEmpty;
    InvalidPath = "org.apache.hadoop.fs.InvalidPathException", InvalidInput;
    AlreadyBeingCreated = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException", Busy;
    RecoveryInProgress = "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException", Busy;
    LeaseExpired = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", Busy;
    NotReplicatedYet = "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException", Busy;
    SafeMode = "org.apache.hadoop.hdfs.server.namenode.SafeModeException", SafeMode;
    NamespaceQuota = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", QuotaExceeded;
    SpaceQuota = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", QuotaExceeded;
    StorageTypeQuota = "org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException", QuotaExceeded;
    ComponentTooLong =
        "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException", InvalidInput;
    DirectoryFull =
        "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException", QuotaExceeded;
    UnresolvedPath = "org.apache.hadoop.hdfs.protocol.UnresolvedPathException", Unsupported;
    HadoopIllegalArgument = "org.apache.hadoop.HadoopIllegalArgumentException", InvalidInput;
    IllegalArgument = "java.lang.IllegalArgumentException", InvalidInput;
    UnsupportedOperation = "java.lang.UnsupportedOperationException", Unsupported;
    UnsupportedAction = "org.apache.hadoop.hdfs.server.namenode.UnsupportedActionException", Unsupported;
    NoSuchMethod = "org.apache.hadoop.ipc.RpcNoSuchMethodException", Unsupported;
    NoSuchProtocol = "org.apache.hadoop.ipc.RpcNoSuchProtocolException", Unsupported;
    Standby = "org.apache.hadoop.ipc.StandbyException", Unreachable;
    ObserverRetryOnActive = "org.apache.hadoop.ipc.ObserverRetryOnActiveException", Unreachable;
    Retriable = "org.apache.hadoop.ipc.RetriableException", Busy;
    InvalidToken = "org.apache.hadoop.security.token.SecretManager$InvalidToken", PermissionDenied;
    Authorization = "org.apache.hadoop.security.authorize.AuthorizationException", PermissionDenied;
    ReplicaNotFound = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException", DataUnavailable;
    Io = "java.io.IOException", Other;
}

/// The first lines of a Java message, without the stack trace that servers append.
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
