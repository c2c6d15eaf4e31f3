//! Names of the Java exception classes in error answers: the one place where they are written.
//!
//! Clients compare the whole text, so each is the binary name (`$` before nested classes). Java clients rebuild the
//! exception from it if the class has a constructor with one string.

// Java and general
pub const IO: &str = "java.io.IOException";
pub const FILE_NOT_FOUND: &str = "java.io.FileNotFoundException";
pub const CLASS_NOT_FOUND: &str = "java.lang.ClassNotFoundException";
pub const EOF: &str = "java.io.EOFException";
pub const ILLEGAL_ARGUMENT: &str = "java.lang.IllegalArgumentException";
pub const ILLEGAL_STATE: &str = "java.lang.IllegalStateException";
pub const UNSUPPORTED_OPERATION: &str = "java.lang.UnsupportedOperationException";
pub const RUNTIME: &str = "java.lang.RuntimeException";
pub const ASSERTION: &str = "java.lang.AssertionError";
pub const NULL_POINTER: &str = "java.lang.NullPointerException";
pub const HADOOP_ILLEGAL_ARGUMENT: &str = "org.apache.hadoop.HadoopIllegalArgumentException";

// The RPC layer
pub const STANDBY: &str = "org.apache.hadoop.ipc.StandbyException";
pub const OBSERVER_RETRY_ON_ACTIVE: &str = "org.apache.hadoop.ipc.ObserverRetryOnActiveException";
pub const RETRIABLE: &str = "org.apache.hadoop.ipc.RetriableException";
pub const RPC_NO_SUCH_METHOD: &str = "org.apache.hadoop.ipc.RpcNoSuchMethodException";
pub const RPC_NO_SUCH_PROTOCOL: &str = "org.apache.hadoop.ipc.RpcNoSuchProtocolException";
pub const RPC_SERVER: &str = "org.apache.hadoop.ipc.RpcServerException";
pub const RPC_VERSION_MISMATCH: &str = "org.apache.hadoop.ipc.RPC$VersionMismatch";
pub const IPC: &str = "org.apache.hadoop.ipc.IpcException";

// Security
pub const ACCESS_CONTROL: &str = "org.apache.hadoop.security.AccessControlException";
pub const AUTHORIZATION: &str = "org.apache.hadoop.security.authorize.AuthorizationException";
pub const INVALID_TOKEN: &str = "org.apache.hadoop.security.token.SecretManager$InvalidToken";
pub const SASL: &str = "javax.security.sasl.SaslException";

// File system
pub const FILE_ALREADY_EXISTS: &str = "org.apache.hadoop.fs.FileAlreadyExistsException";
pub const PARENT_NOT_DIRECTORY: &str = "org.apache.hadoop.fs.ParentNotDirectoryException";
pub const PATH_IS_NOT_DIRECTORY: &str = "org.apache.hadoop.fs.PathIsNotDirectoryException";
pub const PATH_IS_NOT_EMPTY_DIRECTORY: &str = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException";
pub const INVALID_REQUEST: &str = "org.apache.hadoop.fs.InvalidRequestException";
pub const INVALID_PATH: &str = "org.apache.hadoop.fs.InvalidPathException";
pub const DIRECTORY_LISTING_START_AFTER_NOT_FOUND: &str =
    "org.apache.hadoop.fs.DirectoryListingStartAfterNotFoundException";
pub const CHECKSUM: &str = "org.apache.hadoop.fs.ChecksumException";

// HDFS, to clients
pub const ALREADY_BEING_CREATED: &str = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException";
pub const RECOVERY_IN_PROGRESS: &str = "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException";
pub const LEASE_EXPIRED: &str = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException";
pub const NOT_REPLICATED_YET: &str = "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException";
pub const SAFE_MODE: &str = "org.apache.hadoop.hdfs.server.namenode.SafeModeException";
pub const RETRY_START_FILE: &str = "org.apache.hadoop.hdfs.server.namenode.RetryStartFileException";
pub const UNSUPPORTED_ACTION: &str = "org.apache.hadoop.hdfs.server.namenode.UnsupportedActionException";
pub const QUOTA_EXCEEDED: &str = "org.apache.hadoop.hdfs.protocol.QuotaExceededException";
pub const NAMESPACE_QUOTA_EXCEEDED: &str = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException";
pub const SPACE_QUOTA_EXCEEDED: &str = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException";
pub const STORAGE_TYPE_QUOTA_EXCEEDED: &str = "org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException";
pub const PATH_COMPONENT_TOO_LONG: &str =
    "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException";
pub const MAX_DIRECTORY_ITEMS_EXCEEDED: &str =
    "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException";
pub const UNRESOLVED_PATH: &str = "org.apache.hadoop.hdfs.protocol.UnresolvedPathException";
pub const SNAPSHOT: &str = "org.apache.hadoop.hdfs.protocol.SnapshotException";
pub const SNAPSHOT_ACCESS_CONTROL: &str = "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException";
pub const ACL: &str = "org.apache.hadoop.hdfs.protocol.AclException";
pub const XATTR_NOT_FOUND: &str = "org.apache.hadoop.hdfs.protocol.XAttrNotFoundException";
pub const NO_EC_POLICY_SET: &str = "org.apache.hadoop.hdfs.protocol.NoECPolicySetException";
pub const ROLLING_UPGRADE: &str = "org.apache.hadoop.hdfs.protocol.RollingUpgradeException";
pub const UNKNOWN_CRYPTO_PROTOCOL_VERSION: &str = "org.apache.hadoop.hdfs.UnknownCryptoProtocolVersionException";
pub const SERVICE_FAILED: &str = "org.apache.hadoop.ha.ServiceFailedException";
pub const HEALTH_CHECK_FAILED: &str = "org.apache.hadoop.ha.HealthCheckFailedException";

// HDFS, to and from datanodes
pub const UNREGISTERED_NODE: &str = "org.apache.hadoop.hdfs.protocol.UnregisteredNodeException";
pub const DISALLOWED_DATANODE: &str = "org.apache.hadoop.hdfs.server.protocol.DisallowedDatanodeException";
pub const INVALID_BLOCK_REPORT_LEASE: &str = "org.apache.hadoop.hdfs.server.protocol.InvalidBlockReportLeaseException";
pub const INCORRECT_VERSION: &str = "org.apache.hadoop.hdfs.server.common.IncorrectVersionException";
pub const UNRESOLVED_TOPOLOGY: &str = "org.apache.hadoop.hdfs.server.blockmanagement.UnresolvedTopologyException";
pub const DISK_BALANCER: &str = "org.apache.hadoop.hdfs.server.diskbalancer.DiskBalancerException";
pub const REPLICA_NOT_FOUND: &str = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException";
pub const REPLICA_ALREADY_EXISTS: &str = "org.apache.hadoop.hdfs.server.datanode.ReplicaAlreadyExistsException";
