//! Errors of operations: the texts that clients parse, and the Java class of each on the wire.
//!
//! Texts and classes are those that an Apache NameNode 3.4 was observed to answer.

use hearth_types::{Block, BlockPoolId, StorageType};
use hearth_wire::delegation_token::DelegationTokenFormatError;
use hearth_wire::rpc::exceptions;

/// Reason for which an operation was refused. A refused operation has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    // Paths.
    #[error("Invalid path name {path}")]
    InvalidPath { path: String },
    #[error("Invalid path name Invalid file name: {path}")]
    InvalidFileName { path: String },
    #[error("Invalid path name Cannot rename to or from /.reserved")]
    RenameReserved,
    #[error("Absolute path required, but got '{path}'")]
    RelativePath { path: String },
    #[error("{operation}: Pathname too long.  Limit 8000 characters, 1000 levels.")]
    PathTooLong { operation: &'static str },
    #[error(
        "File name \"{name}\" is reserved and cannot be created. If this is during upgrade change the name of the \
         existing file or directory to another name before upgrading to the new release."
    )]
    ReservedName { name: String },
    #[error("\".snapshot\" is a reserved name.")]
    SnapshotName,
    #[error("Modification on a read-only snapshot is disallowed")]
    SnapshotReadOnly,
    #[error(
        "The maximum path component name limit of {name} in directory {directory} is exceeded: limit={limit} length={length}"
    )]
    ComponentTooLong { name: String, directory: String, limit: usize, length: usize },
    #[error("The directory item limit of {directory} is exceeded: limit={limit} items={items}")]
    DirectoryFull { directory: String, limit: usize, items: usize },
    #[error("{path} (is not a directory)")]
    NotADirectory { path: String },
    /// Like `NotADirectory`, for an operation that creates something.
    #[error("{path} (is not a directory)")]
    ParentNotADirectory { path: String },
    #[error("Parent directory doesn't exist: {path}")]
    ParentMissing { path: String },

    // Missing things: each operation has its own words.
    #[error("File does not exist: {path}")]
    FileMissing { path: String },
    #[error("Path is not a file: {path}")]
    NotAFile { path: String },
    #[error("File for given inode path does not exist: {path}")]
    InodeMissing { path: String },
    #[error("Invalid inode path: {path}")]
    InodePathInvalid { path: String },
    #[error("Concat operation doesn't support .reserved relative path : {path}")]
    ConcatReserved { path: String },
    #[error("Directory/File does not exist {path}")]
    AttributesOfMissing { path: String },
    #[error("File/Directory {path} does not exist.")]
    TimesOfMissing { path: String },
    #[error("File/Directory does not exist: {path}")]
    FileOrDirectoryMissing { path: String },
    #[error("Directory does not exist: {path}")]
    DirectoryMissing { path: String },
    #[error("Path not found: {path}")]
    PathMissing { path: String },
    #[error("Path {path} does not exist")]
    ListedPathMissing { path: String },
    #[error("cannot find {path}")]
    CannotFind { path: String },
    #[error("Path {path} is not a symbolic link")]
    NotASymlink { path: String },
    #[error("Can't find startAfter {name}")]
    StartAfterMissing { name: String },

    // Permissions.
    #[error("Permission denied: user={user}, access={access}, inode=\"{path}\":{inode}")]
    PermissionDenied { user: String, access: &'static str, path: String, inode: String },
    #[error("Permission denied. user={user} is not the owner of inode={path}")]
    NotOwner { user: String, path: String },
    #[error("Permission denied by sticky bit: user={user}, path=\"{path}\":{inode}, parent={parent}")]
    StickyBit { user: String, path: String, inode: String, parent: String },
    #[error("Access denied for user {user}. Superuser or owner of parent folder privilege is required")]
    QuotaDenied { user: String },
    #[error("Access denied for user {user}. Superuser privilege is required for operation {operation}")]
    SuperuserRequired { user: String, operation: &'static str },
    /// Apache's text if no operation is given.
    #[error("Access denied for user {user}. Superuser privilege is required")]
    SuperuserOnly { user: String },
    #[error("User {user} is not a super user (non-super user cannot change owner).")]
    OwnerChangeDenied { user: String },
    #[error("User {user} does not belong to {group}")]
    NotInGroup { user: String, group: String },
    #[error("Cannot delete/rename non-empty protected directory {path}")]
    Protected { path: String },
    #[error("Cannot delete/rename non-empty protected subdirectory {path}")]
    ProtectedDescendant { path: String },
    #[error("Cannot delete/rename subdirectory under protected subdirectory {path}")]
    BelowProtected { path: String },

    // Creating, opening, writing.
    #[error("{path} already exists as a directory")]
    ExistsAsDirectory { path: String },
    #[error("Path is not a directory: {path}")]
    ExistsAsFile { path: String },
    #[error("{path} for client {machine} already exists")]
    FileExists { path: String, machine: String },
    #[error("Can't overwrite non-existent {path}")]
    OverwriteMissing { path: String },
    #[error(
        "Specified block size {size} is less than configured minimum value \
         dfs.namenode.fs-limits.min-block-size={minimum}"
    )]
    BlockSizeTooSmall { size: i64, minimum: u64 },
    #[error(
        "Requested replication factor of {replication} is less than the required minimum of {minimum} for {path}{client}"
    )]
    ReplicationTooSmall { replication: i32, minimum: u32, path: String, client: String },
    #[error("Requested replication factor of {replication} exceeds maximum of {maximum} for {path}{client}")]
    ReplicationTooLarge { replication: u32, maximum: u32, path: String, client: String },
    #[error("Exceeded the configured number of objects {maximum} in the filesystem.")]
    TooManyObjects { maximum: u64 },
    #[error("SHOULD_REPLICATE flag and ecPolicyName are exclusive parameters. Set both is not allowed!")]
    ReplicateAndErasureCode,
    #[error("Failed to {operation} {path} for {client} on {machine} because {reason}")]
    BeingCreated { operation: &'static str, path: String, client: String, machine: String, reason: String },
    #[error(
        "Failed to {operation} {path} for {client} on {machine} because lease recovery is in progress. Try again later."
    )]
    RecoveryInProgress { operation: &'static str, path: String, client: String, machine: String },
    #[error(
        "Failed to {operation} {path} for {client} on {machine} because another recovery is in progress by {holder}"
    )]
    OtherRecoveryInProgress {
        operation: &'static str,
        path: String,
        client: String,
        machine: String,
        /// Client name and machine.
        holder: String,
    },
    #[error(
        "DIR* NameSystem.internalReleaseLease: Failed to release lease for file {path}. Committed blocks are waiting to be minimally replicated."
    )]
    ReleaseWaitsForReplicas { path: String },
    #[error("Failed to append to non-existent file {path} for client {machine}")]
    AppendMissing { path: String, machine: String },
    #[error("Cannot append to directory {path}; already exists as a directory.")]
    AppendDirectory { path: String },
    #[error("append: lastBlock={block} of src={path} is COMMITTED but not yet COMPLETE.")]
    AppendCommitted { block: Block, path: String },
    #[error("append: lastBlock={block} of src={path} is not sufficiently replicated yet.")]
    AppendUnderReplicated { block: Block, path: String },
    #[error("Cannot append to lazy persist file {path}")]
    AppendLazyPersist { path: String },
    #[error("File does not exist: {path} (inode {inode}) {lease}")]
    WrittenFileMissing { path: String, inode: u64, lease: String },
    #[error("INode is not a regular file: {path} (inode {inode}) {lease}")]
    WrittenNotAFile { path: String, inode: u64, lease: String },
    #[error("File is not open for writing: {path} (inode {inode}) {lease}")]
    NotOpen { path: String, inode: u64, lease: String },
    #[error("File is deleted: {path} (inode {inode}) {lease}")]
    Deleted { path: String, inode: u64, lease: String },
    #[error("Client (={client}) is not the lease owner (={owner}: {path} (inode {inode}) {lease}")]
    NotLeaseOwner { client: String, owner: String, path: String, inode: u64, lease: String },
    #[error("Lease mismatch: {pool}:{block} is accessed by a non lease holder {client}")]
    LeaseMismatch { pool: BlockPoolId, block: Block, client: String },
    #[error("Unexpected BlockPoolId {given} - expected {expected}")]
    WrongPool { given: String, expected: BlockPoolId },
    #[error("Not replicated yet: {path}")]
    NotReplicatedYet { path: String },
    #[error(
        "File has reached the limit on maximum number of blocks (dfs.namenode.fs-limits.max-blocks-per-file): {count} >= {limit}"
    )]
    TooManyBlocks { count: usize, limit: usize },
    #[error(
        "Cannot allocate block in {path}: passed 'previous' block {previous} does not match actual last block in file {last}"
    )]
    PreviousMismatch { path: String, previous: String, last: String },
    #[error(
        "File {path} could only be written to {found} of the {minimum} minReplication nodes. There are {running} \
         datanode(s) running and {excluded} node(s) are excluded in this operation."
    )]
    NoTargets { path: String, found: usize, minimum: usize, running: usize, excluded: String },
    #[error("{pool}:{block} does not exist.")]
    BlockMissing { pool: BlockPoolId, block: Block },
    #[error("The file {pool}:{block} belonged to does not exist or it is not under construction.")]
    BlockOfClosedFile { pool: BlockPoolId, block: Block },
    #[error("Unexpected BlockUCState: {pool}:{block} is {state} but not UNDER_CONSTRUCTION")]
    BlockNotUnderConstruction { pool: BlockPoolId, block: Block, state: &'static str },
    #[error(
        "Update {pool}:{old} but the new block {pool}:{new} does not have a larger generation stamp than the last block {pool}:{last}"
    )]
    StampNotLarger { pool: BlockPoolId, old: Block, new: Block, last: Block },
    #[error("Update {pool}:{old} but the generation stamp of the new block {pool}:{new} was never given out")]
    StampNeverGiven { pool: BlockPoolId, old: Block, new: Block },
    #[error("Update {pool}:{old} (size={old_length}) to a smaller size block {pool}:{new} (size={new_length})")]
    PipelineShrinks { pool: BlockPoolId, old: Block, old_length: u64, new: Block, new_length: u64 },
    #[error("Update {pool}:{old} but it is not the last block of its file; {pool}:{last} is")]
    NotLastBlock { pool: BlockPoolId, old: Block, last: Block },
    #[error("Trying to commit inconsistent block: id = {given}, expected id = {expected}")]
    CommitOtherBlock { given: Block, expected: Block },
    #[error("Commit block with mismatching GS. NN has {expected}, client submits {given}")]
    CommitOtherStamp { given: Block, expected: Block },
    #[error("Commit block with {given} bytes, which is more than the {limit} bytes of one block of {path}")]
    CommitTooLong { given: u64, limit: u64, path: String },
    #[error("namespaces([{namespaces}]) should be null or empty")]
    Namespaces { namespaces: String },

    // Block recovery reported by datanodes.
    #[error("Block (={block}) not found")]
    SynchronizedBlockMissing { block: Block },
    #[error("Unexpected block (={block}) since the file (={path}) is not under construction")]
    SynchronizedFileClosed { block: Block, path: String },
    #[error(
        "{block} is not dropped: datanodes that may have bytes of it cannot be asked, and none that can be shows that there are none"
    )]
    MayHaveBytes { block: Block },
    #[error(
        "{block} is not cut to {length} bytes: its writer has told of more, and datanodes that may have them are waited for"
    )]
    MayHaveMore { block: Block, length: u64 },
    #[error("The recovery id {given} does not match current recovery id {expected} for block {block}")]
    RecoveryIdMismatch { given: u64, expected: u64, block: Block },
    #[error("The block {block} is not under recovery")]
    NotUnderRecovery { block: Block },

    // Truncate, concat.
    #[error("Cannot truncate to a negative file size: {length}.")]
    TruncateNegative { length: i64 },
    #[error("Cannot truncate to a larger file size. Current size: {current}, truncate size: {asked}.")]
    TruncateLarger { current: u64, asked: u64 },
    #[error("Cannot truncate lazy persist file {path}")]
    TruncateLazyPersist { path: String },
    #[error("No sources given")]
    ConcatNothing,
    #[error("concat: the src file {path} is the same with the target file {target}")]
    ConcatSelf { path: String, target: String },
    #[error("concat: source file {path} is invalid or empty or underConstruction")]
    ConcatSource { path: String },
    #[error("concat: target file {path} is under construction")]
    ConcatTargetOpen { path: String },
    #[error("Source file {path} is not in the same directory with the target {target}")]
    ConcatElsewhere { path: String, target: String },
    #[error("concat: at least two of the source files are the same")]
    ConcatTwice,
    #[error(
        "concat: source file {path} has preferred block size {size} which is greater than the target file's preferred block size {target_size}"
    )]
    ConcatBlockSize { path: String, size: u64, target_size: u64 },

    // Rename, delete.
    #[error("rename source {path} is not found.")]
    RenameSourceMissing { path: String },
    #[error("rename source cannot be the root")]
    RenameRoot,
    #[error("rename destination cannot be the root")]
    RenameToRoot,
    #[error("The source {source_path} and destination {destination} are the same")]
    RenameSame { source_path: String, destination: String },
    #[error("Rename destination {destination} is a directory or file under source {source_path}")]
    RenameBelowItself { source_path: String, destination: String },
    #[error("Source {source_path} and destination {destination} must both be directories")]
    RenameKinds { source_path: String, destination: String },
    #[error("rename destination {path} already exists")]
    RenameExists { path: String },
    #[error("rename destination directory is not empty: {path}")]
    RenameNotEmpty { path: String },
    #[error("rename destination parent {path} not found.")]
    RenameParentMissing { path: String },
    #[error("`{path} is non empty': Directory is not empty")]
    NotEmpty { path: String },

    // Attributes and all other queries.
    #[error("Cannot find a block policy with the name {name}")]
    NoSuchPolicy { name: String },
    #[error("Policy {policy} cannot be set after file creation.")]
    PolicyOnlyAtCreation { policy: String },
    #[error("Existing policy {policy} cannot be changed after file creation.")]
    PolicyForGood { policy: &'static str },
    #[error("Negative offset is not supported. File: {path}")]
    NegativeOffset { path: String },
    #[error("Negative length is not supported. File: {path}")]
    NegativeLength { path: String },
    #[error("{message}")]
    IllegalArgument { message: String },
    #[error("{what}. Name node is in safe mode.\n{tip} NamenodeHostName:{host}")]
    SafeMode { what: String, tip: String, host: String },
    #[error("Safe mode should be turned ON in order to create namespace image.")]
    SafeModeNeeded,

    // Extended attributes and ACLs.
    #[error(
        "The XAttr is too big. The maximum combined size of the name and value is {limit}, but the total size is {size}"
    )]
    XattrTooBig { limit: usize, size: usize },
    #[error("A flag must be specified.")]
    XattrFlags,
    #[error("XAttr: {name} already exists. The REPLACE flag must be specified.")]
    XattrExists { name: String },
    #[error("XAttr: {name} does not exist. The CREATE flag must be specified.")]
    XattrMissing { name: String },
    #[error("Cannot add additional XAttr to inode, would exceed limit of {limit}")]
    XattrLimit { limit: usize },
    #[error("At least one of the attributes provided was not found.")]
    XattrNotFound,
    #[error("No matching attributes found for remove operation")]
    XattrNothingRemoved,
    #[error("User doesn't have permission for xattr: {name}")]
    XattrDenied { name: String },
    #[error("Attempt to set a value for '{name}'. Values are not allowed for this xattr.")]
    XattrUnreadableValue { name: String },
    #[error("The xattr '{name}' can not be deleted.")]
    XattrUnreadableForever { name: String },
    #[error("Can only set 'security.hdfs.unreadable.by.superuser' on a file.")]
    XattrUnreadableDirectory,
    #[error("Access is denied for {user} since the superuser is not allowed to perform this operation.")]
    UnreadableBySuperuser { user: String },
    #[error("{problem} Path: {path}")]
    Acl { problem: String, path: String },

    // Quotas.
    #[error(
        "The NameSpace quota (directories and files) of directory {path} is exceeded: quota={quota} file count={count}"
    )]
    NameQuota { path: String, quota: u64, count: i64 },
    #[error(
        "The DiskSpace quota of {path} is exceeded: quota = {quota} B = {quota_text} but diskspace consumed = {count} B = {count_text}"
    )]
    SpaceQuota { path: String, quota: u64, quota_text: String, count: u64, count_text: String },
    #[error(
        "Quota by storage type : {medium} on path : {path} is exceeded. quota = {quota_text} but space consumed = {count_text}"
    )]
    TypeQuota { medium: &'static str, path: String, quota_text: String, count_text: String },
    #[error("`{path}': Is not a directory")]
    QuotaOnFile { path: String },
    #[error("Illegal value for nsQuota or ssQuota : {names} and {space}")]
    QuotaIllegal { names: i64, space: i64 },
    #[error(
        "Storage type {medium} has no quota, or quotas by storage type are switched off, or a quota of names was given with it"
    )]
    QuotaType { medium: &'static str },

    // Cache pools and directives.
    #[error("{message}")]
    InvalidRequest { message: String },
    #[error("invalid empty cache pool name")]
    EmptyPoolName,
    #[error("Permission denied while accessing pool {pool}: user {user} does not have {access} permissions.")]
    PoolDenied { pool: String, user: String, access: &'static str },

    // Unsupported features.
    #[error("{what}")]
    Unsupported { what: String },
    #[error("Symlinks not supported")]
    Symlinks,
    #[error("Symlink path exceeds 8000 character limit")]
    SymlinkTooLong,
    #[error("Directory is not a snapshottable directory: {path}")]
    NotSnapshottable { path: String },
    #[error(
        "Nested snapshottable directories not allowed: path={path}, the subdirectory {other} is already a snapshottable directory."
    )]
    NestedBelow { path: String, other: String },
    #[error(
        "Nested snapshottable directories not allowed: path={path}, the ancestor {other} is already a snapshottable directory."
    )]
    NestedAbove { path: String, other: String },
    #[error(
        "Unable to rename because {source_path} has snapshottable descendant directories and {destination} is a descent of a \
         snapshottable directory, and HDFS does not support nested snapshottable directory."
    )]
    NestedByRename { source_path: String, destination: String },
    #[error("The directory {path} has snapshot(s). Please redo the operation after removing all the snapshots.")]
    HasSnapshots { path: String },
    #[error("The directory {path} cannot be deleted since {path} is snapshottable and already has snapshots")]
    HasSnapshotsBelow { path: String },
    #[error("Snapshot name cannot contain \"/\"")]
    SnapshotNameSlash,
    #[error("Invalid snapshot name: {name}")]
    SnapshotInvalidName { name: String },
    #[error("Failed to add snapshot: there are already {count} snapshot(s) and the snapshot quota is {quota}")]
    SnapshotQuota { count: usize, quota: usize },
    #[error("Failed to create snapshot: there are already {count} snapshot(s) and the {of} snapshot limit is {limit}")]
    SnapshotLimit { count: usize, of: &'static str, limit: usize },
    #[error(
        "Failed to create the snapshot. The FileSystem has run out of snapshot IDs and ID rollover is not supported and the max snapshot limit is: {limit}"
    )]
    SnapshotIds { limit: usize },
    #[error("Failed to add snapshot: there is already a snapshot with the same name \"{name}\".")]
    SnapshotNameTaken { name: String },
    #[error("The snapshot {name} already exists for directory {path}")]
    SnapshotExists { name: String, path: String },
    #[error("The snapshot {name} does not exist for directory {path}")]
    SnapshotToRenameMissing { name: String, path: String },
    #[error("Cannot delete snapshot {name} from path {path}: the snapshot does not exist.")]
    SnapshotToDeleteMissing { name: String, path: String },
    #[error("Cannot find the snapshot of directory {path} with name {name}")]
    SnapshotMissing { path: String, name: String },
    #[error("The path {path} is neither snapshottable nor under a snapshot root!")]
    NoSnapshotRoot { path: String },
    #[error("Concat: the source file {path} is in snapshot")]
    ConcatInSnapshot { path: String },
    #[error(
        "The ACL operation has been rejected.  Support for ACLs has been disabled by setting dfs.namenode.acls.enabled to false."
    )]
    AclsOff,
    #[error(
        "The XAttr operation has been rejected.  Support for XAttrs has been disabled by setting dfs.namenode.xattrs.enabled to false."
    )]
    XattrsOff,
    #[error("Can't create an encryption zone for {path} since no key provider is available.")]
    NoKeyProvider { path: String },
    #[error(
        "Policy '{policy}' does not match any enabled erasure coding policies: []. An erasure coding policy can be enabled by enableErasureCodingPolicy API."
    )]
    NoErasureCoding { policy: String },
    #[error("No erasure coding policy explicitly set on {path}")]
    NoErasureCodingSet { path: String },
    #[error(
        "Cannot request to satisfy storage policy when storage policy satisfier feature has been disabled by admin. \
         Seek for an admin help to enable it or use Mover tool."
    )]
    NoPolicySatisfier,
    #[error("{message}")]
    InvalidToken { message: String },
    #[error("{message}")]
    TokenDenied { message: String },
    /// Java gives no further text for it.
    #[error("java.io.EOFException")]
    TokenTruncated,
    #[error(transparent)]
    TokenUnreadable(DelegationTokenFormatError),
    #[error("Rolling upgrades are not supported by this NameNode")]
    RollingUpgrade,
    #[error("metasave writes into the NameNode's log directory: give a file name without a directory, not {name:?}")]
    MetasaveName { name: String },
    #[error("{path} exists and is not a file of an earlier metasave; give another name")]
    MetasaveExists { path: String },
    #[error("cannot write the metasave file {path}: {source}")]
    MetasaveFailed { path: String, source: std::io::Error },

    // Outside the namespace.
    #[error("the request cannot be decoded: {0}")]
    Malformed(String),
    #[error(transparent)]
    HostsFiles(std::io::Error),
    /// The store can no longer make changes durable; the NameNode is stopping.
    #[error("the namespace store has failed, nothing can be changed any more: {reason}")]
    StoreFailed { reason: String },
    /// An error of the block map, which gives its own class.
    #[error("{message}")]
    Blocks { class: &'static str, message: String },
}

/// Number of bytes as Java prints it for display: `1 MB`, `1.50 MB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut power = bytes.ilog2() / 10;
    let unit = 1u64 << (10 * power);
    if bytes.is_multiple_of(unit) {
        return format!("{} {}B", bytes / unit, UNITS[power as usize - 1]);
    }
    let mut text = format!("{:.2}", bytes as f64 / unit as f64);
    if text.starts_with("1024") && power < 6 {
        power += 1;
        text = "1.00".into();
    }
    format!("{text} {}B", UNITS[power as usize - 1])
}

impl Error {
    pub fn space_quota(path: String, quota: u64, count: u64) -> Self {
        let (quota_text, count_text) = (bytes_text(quota), bytes_text(count));
        Self::SpaceQuota { path, quota, quota_text, count, count_text }
    }

    pub fn type_quota(medium: StorageType, path: String, quota: u64, count: u64) -> Self {
        let (quota_text, count_text) = (bytes_text(quota), bytes_text(count));
        Self::TypeQuota { medium: medium.name(), path, quota_text, count_text }
    }

    /// The Java class that is sent to clients.
    pub fn class(&self) -> &'static str {
        use Error::*;
        match self {
            InvalidPath { .. } | SnapshotInvalidName { .. } | InvalidFileName { .. } | RenameReserved => {
                exceptions::INVALID_PATH
            }
            RelativePath { .. } => exceptions::ASSERTION,
            ReservedName { .. }
            | SnapshotName
            | SnapshotNameSlash
            | TruncateNegative { .. }
            | TruncateLarger { .. }
            | ConcatSelf { .. }
            | ConcatSource { .. }
            | ConcatTargetOpen { .. }
            | ConcatElsewhere { .. }
            | ConcatTwice
            | ConcatBlockSize { .. }
            | NoSuchPolicy { .. }
            | PolicyOnlyAtCreation { .. }
            | PolicyForGood { .. }
            | ReplicateAndErasureCode
            | XattrTooBig { .. }
            | XattrFlags
            | NoErasureCoding { .. } => exceptions::HADOOP_ILLEGAL_ARGUMENT,
            SnapshotReadOnly => exceptions::SNAPSHOT_ACCESS_CONTROL,
            ComponentTooLong { .. } => exceptions::PATH_COMPONENT_TOO_LONG,
            DirectoryFull { .. } => exceptions::MAX_DIRECTORY_ITEMS_EXCEEDED,
            NotADirectory { .. }
            | PermissionDenied { .. }
            | NotOwner { .. }
            | StickyBit { .. }
            | SuperuserRequired { .. }
            | QuotaDenied { .. }
            | XattrDenied { .. }
            | XattrUnreadableValue { .. }
            | XattrUnreadableForever { .. }
            | UnreadableBySuperuser { .. }
            | SuperuserOnly { .. }
            | OwnerChangeDenied { .. }
            | NotInGroup { .. }
            | Protected { .. }
            | ProtectedDescendant { .. }
            | BelowProtected { .. }
            | PoolDenied { .. } => exceptions::ACCESS_CONTROL,
            ParentNotADirectory { .. } => exceptions::PARENT_NOT_DIRECTORY,
            ParentMissing { .. }
            | FileMissing { .. }
            | NotAFile { .. }
            | InodeMissing { .. }
            | InodePathInvalid { .. }
            | AttributesOfMissing { .. }
            | TimesOfMissing { .. }
            | FileOrDirectoryMissing { .. }
            | DirectoryMissing { .. }
            | PathMissing { .. }
            | ListedPathMissing { .. }
            | CannotFind { .. }
            | OverwriteMissing { .. }
            | AppendMissing { .. }
            | WrittenFileMissing { .. }
            | Deleted { .. }
            | RenameSourceMissing { .. }
            | RenameParentMissing { .. } => exceptions::FILE_NOT_FOUND,
            StartAfterMissing { .. } => exceptions::DIRECTORY_LISTING_START_AFTER_NOT_FOUND,
            ExistsAsDirectory { .. }
            | ExistsAsFile { .. }
            | FileExists { .. }
            | AppendDirectory { .. }
            | RenameSame { .. }
            | RenameExists { .. } => exceptions::FILE_ALREADY_EXISTS,
            BeingCreated { .. } | ReleaseWaitsForReplicas { .. } => exceptions::ALREADY_BEING_CREATED,
            RecoveryInProgress { .. } | OtherRecoveryInProgress { .. } => exceptions::RECOVERY_IN_PROGRESS,
            AppendCommitted { .. } => exceptions::RETRIABLE,
            WrittenNotAFile { .. } | NotOpen { .. } | NotLeaseOwner { .. } | LeaseMismatch { .. } => {
                exceptions::LEASE_EXPIRED
            }
            NotReplicatedYet { .. } => exceptions::NOT_REPLICATED_YET,
            NotEmpty { .. } => exceptions::PATH_IS_NOT_EMPTY_DIRECTORY,
            XattrNotFound => exceptions::XATTR_NOT_FOUND,
            NameQuota { .. } => exceptions::NAMESPACE_QUOTA_EXCEEDED,
            SpaceQuota { .. } => exceptions::SPACE_QUOTA_EXCEEDED,
            TypeQuota { .. } => exceptions::STORAGE_TYPE_QUOTA_EXCEEDED,
            QuotaOnFile { .. } => exceptions::PATH_IS_NOT_DIRECTORY,
            QuotaIllegal { .. } => exceptions::ILLEGAL_ARGUMENT,
            ConcatNothing | NegativeOffset { .. } | NegativeLength { .. } | IllegalArgument { .. } => {
                exceptions::ILLEGAL_ARGUMENT
            }
            AppendLazyPersist { .. } | TruncateLazyPersist { .. } | Unsupported { .. } | Symlinks => {
                exceptions::UNSUPPORTED_OPERATION
            }
            SafeMode { .. } => exceptions::SAFE_MODE,
            NotSnapshottable { .. }
            | NestedBelow { .. }
            | NestedAbove { .. }
            | NestedByRename { .. }
            | HasSnapshots { .. }
            | HasSnapshotsBelow { .. }
            | SnapshotQuota { .. }
            | SnapshotLimit { .. }
            | SnapshotIds { .. }
            | SnapshotNameTaken { .. }
            | SnapshotExists { .. }
            | SnapshotToRenameMissing { .. }
            | SnapshotToDeleteMissing { .. }
            | SnapshotMissing { .. }
            | NoSnapshotRoot { .. }
            | ConcatInSnapshot { .. } => exceptions::SNAPSHOT,
            AclsOff | Acl { .. } => exceptions::ACL,
            NoErasureCodingSet { .. } => exceptions::NO_EC_POLICY_SET,
            NoPolicySatisfier | QuotaType { .. } => exceptions::UNSUPPORTED_ACTION,
            InvalidToken { .. } => exceptions::INVALID_TOKEN,
            TokenDenied { .. } => exceptions::ACCESS_CONTROL,
            TokenTruncated => exceptions::EOF,
            Blocks { class, .. } => class,
            PathTooLong { .. }
            | SymlinkTooLong
            | ConcatReserved { .. }
            | NotASymlink { .. }
            | BlockSizeTooSmall { .. }
            | ReplicationTooSmall { .. }
            | ReplicationTooLarge { .. }
            | AppendUnderReplicated { .. }
            | WrongPool { .. }
            | TooManyBlocks { .. }
            | PreviousMismatch { .. }
            | NoTargets { .. }
            | BlockMissing { .. }
            | BlockOfClosedFile { .. }
            | BlockNotUnderConstruction { .. }
            | StampNotLarger { .. }
            | StampNeverGiven { .. }
            | PipelineShrinks { .. }
            | NotLastBlock { .. }
            | CommitOtherBlock { .. }
            | CommitOtherStamp { .. }
            | CommitTooLong { .. }
            | Namespaces { .. }
            | SynchronizedBlockMissing { .. }
            | SynchronizedFileClosed { .. }
            | MayHaveBytes { .. }
            | MayHaveMore { .. }
            | RecoveryIdMismatch { .. }
            | NotUnderRecovery { .. }
            | RenameRoot
            | RenameToRoot
            | RenameBelowItself { .. }
            | RenameKinds { .. }
            | RenameNotEmpty { .. }
            | SafeModeNeeded
            | XattrsOff
            | XattrExists { .. }
            | XattrMissing { .. }
            | XattrLimit { .. }
            | XattrNothingRemoved
            | XattrUnreadableDirectory
            | NoKeyProvider { .. }
            | RollingUpgrade
            | MetasaveName { .. }
            | MetasaveExists { .. }
            | MetasaveFailed { .. }
            | TokenUnreadable(_)
            | Malformed(_)
            | HostsFiles(_)
            | EmptyPoolName
            | TooManyObjects { .. }
            | StoreFailed { .. } => exceptions::IO,
            InvalidRequest { .. } => exceptions::INVALID_REQUEST,
        }
    }
}
