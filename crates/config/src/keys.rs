//! The keys that Hearth uses, with types and defaults. Source of Hadoop's: `core-default.xml` and `hdfs-default.xml` of
//! Hadoop 3.4. The documentation of each constant is what the key is for; durations whose text is a bare number count
//! the unit that Hadoop gives the key.

use std::path::PathBuf;
use std::time::Duration;

use crate::parse::{Engine, HostPort, StorageDirectory};
use crate::{ConfigError, Configuration, Key, KeyInfo, OptionalKey, parse};

/// Declares the constants, [`ALL`] and [`check_all`] from one table, so that none can be missing from another.
macro_rules! keys {
    ($(
        $(#[doc = $about:literal])+
        $constant:ident: $kind:ident<$type:ty> = $name:literal, $parser:ident $(, $default:literal)?;
    )*) => {
        $(
            #[doc = concat!("`", $name, "`" $(, ", default `", $default, "`")?, ".")]
            #[doc = ""]
            $(#[doc = $about])+
            pub const $constant: $kind<$type> = $kind { name: $name, $(default: $default,)? parse: parse::$parser };
        )*

        /// Every key of this file.
        pub const ALL: &[KeyInfo] = &[
            $(KeyInfo { name: $name, default: default!($($default)?), about: concat!($($about),+) },)*
        ];

        /// Reads every key: the first wrong value is the error. For start-up, so that a bad value is found before it is
        /// needed.
        pub fn check_all(configuration: &Configuration) -> Result<(), ConfigError> {
            $(configuration.get($constant)?;)*
            Ok(())
        }
    };
}

macro_rules! default {
    () => {
        None
    };
    ($default:literal) => {
        Some($default)
    };
}

keys! {

    // File system, users, network (core-site.xml).

    /// The file system that paths without a scheme are in.
    FS_DEFAULT_FS: Key<String> = "fs.defaultFS", text, "file:///";
    /// Base of other default directories.
    HADOOP_TMP_DIR: Key<String> = "hadoop.tmp.dir", text, "/tmp/hadoop-${user.name}";
    /// Permission bits taken away from new files and directories.
    FS_PERMISSIONS_UMASK_MODE: Key<u16> = "fs.permissions.umask-mode", umask, "022";
    /// Age at which trash is removed; 0 switches trash off. Bare numbers are minutes.
    FS_TRASH_INTERVAL: Key<Duration> = "fs.trash.interval", duration_minutes, "0";
    /// Time between trash checkpoints; 0 = fs.trash.interval. Bare numbers are minutes.
    FS_TRASH_CHECKPOINT_INTERVAL: Key<Duration> = "fs.trash.checkpoint.interval", duration_minutes, "0";
    /// Directories that are not deleted while they are not empty.
    FS_PROTECTED_DIRECTORIES: OptionalKey<Vec<String>> = "fs.protected.directories", list;
    /// Directories below those of fs.protected.directories are protected as well.
    DFS_PROTECTED_SUBDIRECTORIES_ENABLE: Key<bool> = "dfs.protected.subdirectories.enable", boolean, "false";
    /// Buffer of streams, bytes.
    IO_FILE_BUFFER_SIZE: Key<u64> = "io.file.buffer.size", bytes, "4096";
    /// simple or kerberos.
    HADOOP_SECURITY_AUTHENTICATION: Key<String> = "hadoop.security.authentication", text, "simple";
    /// How many files `hearth fs -rm -safely` removes without a question; 0: any number.
    HADOOP_SHELL_SAFELY_DELETE_LIMIT_NUM_FILES: Key<i64> = "hadoop.shell.safely.delete.limit.num.files", int_i64, "100";
    /// Service-level authorization.
    HADOOP_SECURITY_AUTHORIZATION: Key<bool> = "hadoop.security.authorization", boolean, "false";
    /// authentication, integrity or privacy.
    HADOOP_RPC_PROTECTION: Key<String> = "hadoop.rpc.protection", text, "authentication";
    /// How long a user's groups are remembered.
    HADOOP_SECURITY_GROUPS_CACHE_SECS: Key<Duration> = "hadoop.security.groups.cache.secs", duration_s, "300";
    /// user=group1,group2;user2=... : groups said here instead of asked of the system.
    HADOOP_USER_GROUP_STATIC_MAPPING_OVERRIDES: OptionalKey<String> = "hadoop.user.group.static.mapping.overrides", text;
    /// For whom a page acts when the request names nobody.
    HADOOP_HTTP_STATICUSER_USER: Key<String> = "hadoop.http.staticuser.user", text, "dr.who";
    /// Whether what clients say of themselves with each call stands in the audit log.
    HADOOP_CALLER_CONTEXT_ENABLED: Key<bool> = "hadoop.caller.context.enabled", boolean, "false";
    /// Characters of it that are kept.
    HADOOP_CALLER_CONTEXT_MAX_SIZE: Key<u32> = "hadoop.caller.context.max.size", int_u32, "128";
    /// Bytes of the longest signature that is kept.
    HADOOP_CALLER_CONTEXT_SIGNATURE_MAX_SIZE: Key<u32> = "hadoop.caller.context.signature.max.size", int_u32, "40";
    /// Program that prints the rack of each address it is given.
    NET_TOPOLOGY_SCRIPT_FILE_NAME: OptionalKey<String> = "net.topology.script.file.name", text;
    /// File of address and rack, two columns.
    NET_TOPOLOGY_TABLE_FILE_NAME: OptionalKey<String> = "net.topology.table.file.name", text;
    /// Longest RPC request taken, bytes.
    IPC_MAXIMUM_DATA_LENGTH: Key<u64> = "ipc.maximum.data.length", bytes, "134217728";
    /// Connections to one RPC port of the namenode at a time; 0 = as many as three quarters of the process's descriptors allow.
    IPC_SERVER_MAX_CONNECTIONS: Key<u32> = "ipc.server.max.connections", int_u32, "0";
    /// Longest RPC response taken, bytes.
    IPC_MAXIMUM_RESPONSE_LENGTH: Key<u64> = "ipc.maximum.response.length", bytes, "134217728";
    /// RPC connection set-up.
    IPC_CLIENT_CONNECT_TIMEOUT: Key<Duration> = "ipc.client.connect.timeout", duration_ms, "20000";
    /// RPC connection attempts after a refusal.
    IPC_CLIENT_CONNECT_MAX_RETRIES: Key<u32> = "ipc.client.connect.max.retries", int_u32, "10";
    /// Pause between RPC connection attempts.
    IPC_CLIENT_CONNECT_RETRY_INTERVAL: Key<Duration> = "ipc.client.connect.retry.interval", duration_ms, "1000";
    /// Longest wait for an RPC answer; 0 = for ever, pinging.
    IPC_CLIENT_RPC_TIMEOUT: Key<Duration> = "ipc.client.rpc-timeout.ms", duration_ms, "120000";
    /// Idle RPC connections are closed by the client after this.
    IPC_CLIENT_CONNECTION_MAXIDLETIME: Key<Duration> = "ipc.client.connection.maxidletime", duration_ms, "10000";
    /// Pings on a waiting RPC connection.
    IPC_PING_INTERVAL: Key<Duration> = "ipc.ping.interval", duration_ms, "60000";

    // Which namenodes there are.

    /// Names of the nameservices.
    DFS_NAMESERVICES: OptionalKey<Vec<String>> = "dfs.nameservices", list;
    /// Those of dfs.nameservices that this cluster's datanodes serve.
    DFS_INTERNAL_NAMESERVICES: OptionalKey<Vec<String>> = "dfs.internal.nameservices", list;
    /// The nameservice of this namenode.
    DFS_NAMESERVICE_ID: OptionalKey<String> = "dfs.nameservice.id", text;
    /// Which of its nameservice's namenodes this one is.
    DFS_HA_NAMENODE_ID: OptionalKey<String> = "dfs.ha.namenode.id", text;
    /// Namenode RPC; may have suffix .NS or .NS.NN.
    DFS_NAMENODE_RPC_ADDRESS: OptionalKey<HostPort> = "dfs.namenode.rpc-address", rpc_address;
    /// Address to listen on instead of that of rpc-address.
    DFS_NAMENODE_RPC_BIND_HOST: OptionalKey<String> = "dfs.namenode.rpc-bind-host", text;
    /// The same of servicerpc-address.
    DFS_NAMENODE_SERVICERPC_BIND_HOST: OptionalKey<String> = "dfs.namenode.servicerpc-bind-host", text;
    /// The same of http-address.
    DFS_NAMENODE_HTTP_BIND_HOST: OptionalKey<String> = "dfs.namenode.http-bind-host", text;
    /// Namenode RPC for datanodes.
    DFS_NAMENODE_SERVICERPC_ADDRESS: OptionalKey<HostPort> = "dfs.namenode.servicerpc-address", rpc_address;
    /// Namenode RPC for lifelines.
    DFS_NAMENODE_LIFELINE_RPC_ADDRESS: OptionalKey<HostPort> = "dfs.namenode.lifeline.rpc-address", rpc_address;

    // Namenode.

    /// Where the namenode keeps its store.
    DFS_NAMENODE_NAME_DIR: Key<Vec<PathBuf>> = "dfs.namenode.name.dir", directories, "file://${hadoop.tmp.dir}/dfs/name";
    /// Namenode web.
    DFS_NAMENODE_HTTP_ADDRESS: Key<HostPort> = "dfs.namenode.http-address", address, "0.0.0.0:9870";
    /// HTTP_ONLY, HTTPS_ONLY or HTTP_AND_HTTPS.
    DFS_HTTP_POLICY: Key<String> = "dfs.http.policy", text, "HTTP_ONLY";
    /// Highest replication a file may have.
    DFS_REPLICATION_MAX: Key<u32> = "dfs.replication.max", int_u32, "512";
    /// Replicas that make a block complete.
    DFS_NAMENODE_REPLICATION_MIN: Key<u32> = "dfs.namenode.replication.min", int_u32, "1";
    /// Smallest block size a file may have, bytes.
    DFS_NAMENODE_FS_LIMITS_MIN_BLOCK_SIZE: Key<u64> = "dfs.namenode.fs-limits.min-block-size", bytes, "1048576";
    /// Most blocks a file may have.
    DFS_NAMENODE_FS_LIMITS_MAX_BLOCKS_PER_FILE: Key<u64> = "dfs.namenode.fs-limits.max-blocks-per-file", int_u64, "10000";
    /// Longest name, bytes; 0 = no limit.
    DFS_NAMENODE_FS_LIMITS_MAX_COMPONENT_LENGTH: Key<u32> = "dfs.namenode.fs-limits.max-component-length", int_u32, "255";
    /// Most entries in a directory.
    DFS_NAMENODE_FS_LIMITS_MAX_DIRECTORY_ITEMS: Key<u32> = "dfs.namenode.fs-limits.max-directory-items", int_u32, "1048576";
    /// Most extended attributes.
    DFS_NAMENODE_FS_LIMITS_MAX_XATTRS_PER_INODE: Key<u32> = "dfs.namenode.fs-limits.max-xattrs-per-inode", int_u32, "32";
    /// Longest name and value of an extended attribute, bytes.
    DFS_NAMENODE_FS_LIMITS_MAX_XATTR_SIZE: Key<u32> = "dfs.namenode.fs-limits.max-xattr-size", int_u32, "16384";
    /// Most files, directories and blocks together; 0 = no limit.
    DFS_NAMENODE_MAX_OBJECTS: Key<u64> = "dfs.namenode.max.objects", int_u64, "0";
    /// A namespace that holds anything is never formatted, whatever -force says.
    DFS_REFORMAT_DISABLED: Key<bool> = "dfs.reformat.disabled", boolean, "false";
    /// Whether `-format` may be used at all.
    DFS_NAMENODE_SUPPORT_ALLOW_FORMAT: Key<bool> = "dfs.namenode.support.allow.format", boolean, "true";
    /// Only superusers set and unset storage policies.
    DFS_STORAGE_POLICY_PERMISSIONS_SUPERUSER_ONLY: Key<bool> = "dfs.storage.policy.permissions.superuser-only", boolean, "false";
    /// Check permissions.
    DFS_PERMISSIONS_ENABLED: Key<bool> = "dfs.permissions.enabled", boolean, "true";
    /// Members may do anything.
    DFS_PERMISSIONS_SUPERUSERGROUP: Key<String> = "dfs.permissions.superusergroup", text, "supergroup";
    /// ACLs.
    DFS_NAMENODE_ACLS_ENABLED: Key<bool> = "dfs.namenode.acls.enabled", boolean, "true";
    /// Where a directory has default ACL entries, they take the place of the client's umask.
    DFS_NAMENODE_POSIX_ACL_INHERITANCE_ENABLED: Key<bool> = "dfs.namenode.posix.acl.inheritance.enabled", boolean, "true";
    /// Whoever owns the directory above may set quotas, not only a superuser.
    DFS_PERMISSIONS_ALLOW_OWNER_SET_QUOTA: Key<bool> = "dfs.permissions.allow.owner.set.quota", boolean, "false";
    /// Snapshots of one directory at most.
    DFS_NAMENODE_SNAPSHOT_MAX_LIMIT: Key<u32> = "dfs.namenode.snapshot.max.limit", int_u32, "65536";
    /// Snapshots keep open files as they were when the snapshot was made.
    DFS_NAMENODE_SNAPSHOT_CAPTURE_OPENFILES: Key<bool> = "dfs.namenode.snapshot.capture.openfiles", boolean, "false";
    /// Snapshots of the whole file system at most; not less than those of one directory.
    DFS_NAMENODE_SNAPSHOT_FILESYSTEM_LIMIT: Key<u32> = "dfs.namenode.snapshot.filesystem.limit", int_u32, "65536";
    /// Extended attributes.
    DFS_NAMENODE_XATTRS_ENABLED: Key<bool> = "dfs.namenode.xattrs.enabled", boolean, "true";
    /// A datanode is dead after twice this and ten heartbeats.
    DFS_NAMENODE_HEARTBEAT_RECHECK_INTERVAL: Key<Duration> = "dfs.namenode.heartbeat.recheck-interval", duration_ms, "300000";
    /// A datanode not heard of for this long is stale.
    DFS_NAMENODE_STALE_DATANODE_INTERVAL: Key<Duration> = "dfs.namenode.stale.datanode.interval", duration_ms, "30000";
    /// List stale datanodes last for reads.
    DFS_NAMENODE_AVOID_READ_STALE_DATANODE: Key<bool> = "dfs.namenode.avoid.read.stale.datanode", boolean, "false";
    /// Do not write to stale datanodes.
    DFS_NAMENODE_AVOID_WRITE_STALE_DATANODE: Key<bool> = "dfs.namenode.avoid.write.stale.datanode", boolean, "false";
    /// Full block reports at once.
    DFS_NAMENODE_MAX_FULL_BLOCK_REPORT_LEASES: Key<u32> = "dfs.namenode.max.full.block.report.leases", int_u32, "6";
    /// How long a datanode may take for one.
    DFS_NAMENODE_FULL_BLOCK_REPORT_LEASE_LENGTH: Key<Duration> = "dfs.namenode.full.block.report.lease.length.ms", duration_ms, "300000";
    /// Part of the blocks that must be reported to leave safe mode.
    DFS_NAMENODE_SAFEMODE_THRESHOLD_PCT: Key<f64> = "dfs.namenode.safemode.threshold-pct", float, "0.999f";
    /// Live datanodes needed to leave safe mode.
    DFS_NAMENODE_SAFEMODE_MIN_DATANODES: Key<u32> = "dfs.namenode.safemode.min.datanodes", int_u32, "0";
    /// Wait after the threshold was reached.
    DFS_NAMENODE_SAFEMODE_EXTENSION: Key<Duration> = "dfs.namenode.safemode.extension", duration_ms, "30000";
    /// Free bytes the store's disk must have, else safe mode.
    DFS_NAMENODE_RESOURCE_DU_RESERVED: Key<u64> = "dfs.namenode.resource.du.reserved", bytes, "104857600";
    /// No block is deleted this long after start.
    DFS_NAMENODE_STARTUP_DELAY_BLOCK_DELETION: Key<Duration> = "dfs.namenode.startup.delay.block.deletion.sec", duration_s, "0";
    /// A copy not reported after this is asked for again.
    DFS_NAMENODE_RECONSTRUCTION_PENDING_TIMEOUT: Key<Duration> = "dfs.namenode.reconstruction.pending.timeout-sec", duration_s, "300";
    /// Copies from one datanode at once.
    DFS_NAMENODE_REPLICATION_MAX_STREAMS: Key<u32> = "dfs.namenode.replication.max-streams", int_u32, "2";
    /// The same for the most urgent blocks.
    DFS_NAMENODE_REPLICATION_MAX_STREAMS_HARD_LIMIT: Key<u32> = "dfs.namenode.replication.max-streams-hard-limit", int_u32, "4";
    /// Blocks to delete per datanode and heartbeat.
    DFS_BLOCK_INVALIDATE_LIMIT: Key<u32> = "dfs.block.invalidate.limit", int_u32, "1000";
    /// Placement avoids busy datanodes.
    DFS_NAMENODE_REDUNDANCY_CONSIDER_LOAD: Key<bool> = "dfs.namenode.redundancy.considerLoad", boolean, "true";
    /// Busy = this many times the average load.
    DFS_NAMENODE_REDUNDANCY_CONSIDER_LOAD_FACTOR: Key<f64> = "dfs.namenode.redundancy.considerLoad.factor", float, "2.0";
    /// How often decommissioning datanodes are looked at.
    DFS_NAMENODE_DECOMMISSION_INTERVAL: Key<Duration> = "dfs.namenode.decommission.interval", duration_s, "30";
    /// Live replicas while others are in maintenance.
    DFS_NAMENODE_MAINTENANCE_REPLICATION_MIN: Key<u32> = "dfs.namenode.maintenance.replication.min", int_u32, "1";
    /// File of the datanodes that may register.
    DFS_HOSTS: OptionalKey<String> = "dfs.hosts", text;
    /// File of the datanodes to decommission or refuse.
    DFS_HOSTS_EXCLUDE: OptionalKey<String> = "dfs.hosts.exclude", text;
    /// How datanodes are named that may join, are to leave, or are in maintenance: two lists, or one file of JSON.
    DFS_NAMENODE_HOSTS_PROVIDER_CLASSNAME: Key<String> = "dfs.namenode.hosts.provider.classname", text, "org.apache.hadoop.hdfs.server.blockmanagement.HostFileManager";
    /// Refuse datanodes whose address has no name.
    DFS_NAMENODE_DATANODE_REGISTRATION_IP_HOSTNAME_CHECK: Key<bool> = "dfs.namenode.datanode.registration.ip-hostname-check", boolean, "true";
    /// Refuse datanodes whose rack is not known.
    DFS_NAMENODE_REJECT_UNRESOLVED_DN_TOPOLOGY_MAPPING: Key<bool> = "dfs.namenode.reject-unresolved-dn-topology-mapping", boolean, "false";
    /// A lease not renewed for this long is recovered.
    DFS_NAMENODE_LEASE_HARD_LIMIT: Key<Duration> = "dfs.namenode.lease-hard-limit-sec", duration_s, "1200";
    /// How often leases are looked at.
    DFS_NAMENODE_LEASE_RECHECK_INTERVAL: Key<Duration> = "dfs.namenode.lease-recheck-interval-ms", duration_ms, "2000";
    /// Access times are kept this exact; 0 = not at all.
    DFS_NAMENODE_ACCESSTIME_PRECISION: Key<Duration> = "dfs.namenode.accesstime.precision", duration_ms, "3600000";
    /// Entries of a listing per call.
    DFS_LS_LIMIT: Key<u32> = "dfs.ls.limit", int_u32, "1000";
    /// Directories of a batched listing.
    DFS_BATCHED_LS_LIMIT: Key<u32> = "dfs.batched.ls.limit", int_u32, "100";
    /// Entries counted before the lock is given up. 0: all of them at once.
    DFS_CONTENT_SUMMARY_LIMIT: Key<u32> = "dfs.content-summary.limit", int_u32, "5000";
    /// Operations that the audit log leaves out, by their names in it: getfileinfo, open and so on.
    DFS_NAMENODE_AUDIT_LOG_DEBUG_CMDLIST: OptionalKey<Vec<String>> = "dfs.namenode.audit.log.debug.cmdlist", list;
    /// Open files listed per call.
    DFS_NAMENODE_LIST_OPENFILES_NUM_RESPONSES: Key<u32> = "dfs.namenode.list.openfiles.num.responses", int_u32, "1000";
    /// Corrupt files listed per call.
    DFS_NAMENODE_MAX_CORRUPT_FILE_BLOCKS_RETURNED: Key<u32> = "dfs.namenode.max-corrupt-file-blocks-returned", int_u32, "100";
    /// Blocks of cache directives are locked in the datanodes' memory. Off: directives are kept, nothing is done about them.
    DFS_NAMENODE_CACHING_ENABLED: Key<bool> = "dfs.namenode.caching.enabled", boolean, "true";
    /// Cache directives are looked through this often.
    DFS_NAMENODE_PATH_BASED_CACHE_REFRESH_INTERVAL: Key<Duration> = "dfs.namenode.path.based.cache.refresh.interval.ms", duration_ms, "30000";
    /// A datanode that has not locked what it was told to is told again after this long.
    DFS_NAMENODE_PATH_BASED_CACHE_RETRY_INTERVAL: Key<Duration> = "dfs.namenode.path.based.cache.retry.interval.ms", duration_ms, "30000";
    /// Cache directives listed per call.
    DFS_NAMENODE_LIST_CACHE_DIRECTIVES_NUM_RESPONSES: Key<u32> = "dfs.namenode.list.cache.directives.num.responses", int_u32, "100";
    /// Cache pools listed per call.
    DFS_NAMENODE_LIST_CACHE_POOLS_NUM_RESPONSES: Key<u32> = "dfs.namenode.list.cache.pools.num.responses", int_u32, "100";
    /// Answers of calls that change something are remembered for retries.
    DFS_NAMENODE_ENABLE_RETRYCACHE: Key<bool> = "dfs.namenode.enable.retrycache", boolean, "true";
    /// How long.
    DFS_NAMENODE_RETRYCACHE_EXPIRYTIME: Key<Duration> = "dfs.namenode.retrycache.expirytime.millis", duration_ms, "600000";
    /// Storage policy of files that have none.
    DFS_STORAGE_DEFAULT_POLICY: Key<String> = "dfs.storage.default.policy", text, "HOT";
    /// Quotas by storage type.
    DFS_QUOTA_BY_STORAGE_TYPE_ENABLED: Key<bool> = "dfs.quota.by.storage.type.enabled", boolean, "true";

    // Block tokens and encryption, namenode and datanode alike.

    /// Datanodes ask for tokens.
    DFS_BLOCK_ACCESS_TOKEN_ENABLE: Key<bool> = "dfs.block.access.token.enable", boolean, "false";
    /// Life of a token; bare numbers are minutes.
    DFS_BLOCK_ACCESS_TOKEN_LIFETIME: Key<Duration> = "dfs.block.access.token.lifetime", duration_minutes, "600";
    /// New keys; bare numbers are minutes.
    DFS_BLOCK_ACCESS_KEY_UPDATE_INTERVAL: Key<Duration> = "dfs.block.access.key.update.interval", duration_minutes, "600";
    /// Tokens as protobuf.
    DFS_BLOCK_ACCESS_TOKEN_PROTOBUF_ENABLE: Key<bool> = "dfs.block.access.token.protobuf.enable", boolean, "false";
    /// Encrypt block data on the wire.
    DFS_ENCRYPT_DATA_TRANSFER: Key<bool> = "dfs.encrypt.data.transfer", boolean, "false";
    /// authentication, integrity or privacy.
    DFS_DATA_TRANSFER_PROTECTION: OptionalKey<String> = "dfs.data.transfer.protection", text;

    // Datanode: identity and addresses.

    /// Data transfer.
    DFS_DATANODE_ADDRESS: Key<HostPort> = "dfs.datanode.address", address, "0.0.0.0:9866";
    /// Datanode RPC.
    DFS_DATANODE_IPC_ADDRESS: Key<HostPort> = "dfs.datanode.ipc.address", address, "0.0.0.0:9867";
    /// Datanode web.
    DFS_DATANODE_HTTP_ADDRESS: Key<HostPort> = "dfs.datanode.http.address", address, "0.0.0.0:9864";
    /// Datanode web over TLS; only its port is used, for nodes that have not registered.
    DFS_DATANODE_HTTPS_ADDRESS: Key<HostPort> = "dfs.datanode.https.address", address, "0.0.0.0:9865";
    /// Host name to register with.
    DFS_DATANODE_HOSTNAME: OptionalKey<String> = "dfs.datanode.hostname", text;
    /// Connect to other datanodes by name.
    DFS_DATANODE_USE_DATANODE_HOSTNAME: Key<bool> = "dfs.datanode.use.datanode.hostname", boolean, "false";
    /// Unix domain socket for local clients; _PORT is replaced.
    DFS_DOMAIN_SOCKET_PATH: OptionalKey<String> = "dfs.domain.socket.path", text;
    /// Datanode RPC calls worked on at once.
    DFS_DATANODE_HANDLER_COUNT: Key<u32> = "dfs.datanode.handler.count", int_u32, "10";
    /// Older namenodes are refused.
    DFS_DATANODE_MIN_SUPPORTED_NAMENODE_VERSION: Key<String> = "dfs.datanode.min.supported.namenode.version", text, "2.1.0-beta";
    /// Older datanodes are refused.
    DFS_NAMENODE_MIN_SUPPORTED_DATANODE_VERSION: Key<String> = "dfs.namenode.min.supported.datanode.version", text, "2.1.0-beta";

    // Datanode: storage.

    /// Storage directories, with types: [SSD]file:///data.
    DFS_DATANODE_DATA_DIR: Key<Vec<StorageDirectory>> = "dfs.datanode.data.dir", storage_directories, "file://${hadoop.tmp.dir}/dfs/data";
    /// Bytes of each disk left to others. With `.DIRECTORY`, `.TYPE` (ssd, ram_disk, ...) or `.DIRECTORY.TYPE` behind it: of those only.
    DFS_DATANODE_DU_RESERVED: Key<u64> = "dfs.datanode.du.reserved", bytes, "0";
    /// The same in percent of each disk, if `dfs.datanode.du.reserved.calculator` asks for it.
    DFS_DATANODE_DU_RESERVED_PCT: Key<u64> = "dfs.datanode.du.reserved.pct", percent, "0";
    /// Which of the two counts: Absolute, Percentage, Conservative (the larger) or Aggressive (the smaller).
    DFS_DATANODE_DU_RESERVED_CALCULATOR: Key<String> = "dfs.datanode.du.reserved.calculator", text, "org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.ReservedSpaceCalculator$ReservedSpaceCalculatorAbsolute";
    /// Storage directories that may fail; -1 = all but one.
    DFS_DATANODE_FAILED_VOLUMES_TOLERATED: Key<i32> = "dfs.datanode.failed.volumes.tolerated", int_i32, "0";
    /// Bytes for cached and lazily persisted blocks.
    DFS_DATANODE_MAX_LOCKED_MEMORY: Key<u64> = "dfs.datanode.max.locked.memory", bytes, "0";
    /// Replicas on RAM_DISK move to DISK in rounds with this between them.
    DFS_DATANODE_LAZYWRITER_INTERVAL: Key<Duration> = "dfs.datanode.lazywriter.interval.sec", duration_s, "60";
    /// Clients elsewhere get their LAZY_PERSIST blocks onto RAM_DISK, too.
    DFS_DATANODE_NON_LOCAL_LAZY_PERSIST: Key<bool> = "dfs.datanode.non.local.lazy.persist", boolean, "false";
    /// Sync every finalized block.
    DFS_DATANODE_SYNCONCLOSE: Key<bool> = "dfs.datanode.synconclose", boolean, "false";
    /// Every replica is verified once in this many hours; 0 = 504, negative = never.
    DFS_DATANODE_SCAN_PERIOD_HOURS: Key<i64> = "dfs.datanode.scan.period.hours", signed_hours, "504";
    /// Bytes verified per second and storage; 0 = off.
    DFS_BLOCK_SCANNER_VOLUME_BYTES_PER_SECOND: Key<u64> = "dfs.block.scanner.volume.bytes.per.second", bytes, "1048576";

    // Datanode: timing and reports.

    /// Heartbeats.
    DFS_HEARTBEAT_INTERVAL: Key<Duration> = "dfs.heartbeat.interval", duration_s, "3";
    /// Full block reports.
    DFS_BLOCKREPORT_INTERVAL: Key<Duration> = "dfs.blockreport.intervalMsec", duration_ms, "21600000";
    /// The first one comes within this.
    DFS_BLOCKREPORT_INITIAL_DELAY: Key<Duration> = "dfs.blockreport.initialDelay", duration_s, "0";
    /// More blocks than this are reported storage by storage.
    DFS_BLOCKREPORT_SPLIT_THRESHOLD: Key<u64> = "dfs.blockreport.split.threshold", int_u64, "1000000";
    /// Incremental reports are held back this long.
    DFS_BLOCKREPORT_INCREMENTAL_INTERVAL: Key<Duration> = "dfs.blockreport.incremental.intervalMsec", duration_ms, "0";
    /// Cache reports.
    DFS_CACHEREPORT_INTERVAL: Key<Duration> = "dfs.cachereport.intervalMsec", duration_ms, "10000";
    /// A namenode that answers no heartbeat for this long hears a lifeline; unset: three heartbeats.
    DFS_DATANODE_LIFELINE_INTERVAL: OptionalKey<Duration> = "dfs.datanode.lifeline.interval.seconds", duration_s;
    /// Requests wait this long for a pool that is starting.
    DFS_DATANODE_BP_READY_TIMEOUT: Key<Duration> = "dfs.datanode.bp-ready.timeout", duration_s, "20";

    // Datanode: data transfer.

    /// Transfers at once.
    DFS_DATANODE_MAX_TRANSFER_THREADS: Key<u32> = "dfs.datanode.max.transfer.threads", int_u32, "4096";
    /// A full socket is waited for this long.
    DFS_DATANODE_SOCKET_WRITE_TIMEOUT: Key<Duration> = "dfs.datanode.socket.write.timeout", duration_ms, "480000";
    /// An idle client connection is kept this long; 0 = closed at once.
    DFS_DATANODE_SOCKET_REUSE_KEEPALIVE: Key<Duration> = "dfs.datanode.socket.reuse.keepalive", duration_ms, "4000";
    /// Use sendfile.
    DFS_DATANODE_TRANSFER_TO_ALLOWED: Key<bool> = "dfs.datanode.transferTo.allowed", boolean, "true";
    /// Bytes; 0 = the system's.
    DFS_DATANODE_TRANSFER_SOCKET_SEND_BUFFER_SIZE: Key<u64> = "dfs.datanode.transfer.socket.send.buffer.size", bytes, "0";
    /// Bytes; 0 = the system's.
    DFS_DATANODE_TRANSFER_SOCKET_RECV_BUFFER_SIZE: Key<u64> = "dfs.datanode.transfer.socket.recv.buffer.size", bytes, "0";
    /// TCP_NODELAY at the datanode.
    DFS_DATA_TRANSFER_SERVER_TCPNODELAY: Key<bool> = "dfs.data.transfer.server.tcpnodelay", boolean, "true";
    /// Balancer traffic, bytes per second.
    DFS_DATANODE_BALANCE_BANDWIDTH_PER_SEC: Key<u64> = "dfs.datanode.balance.bandwidthPerSec", bytes, "100m";
    /// Balancer moves at once.
    DFS_DATANODE_BALANCE_MAX_CONCURRENT_MOVES: Key<u32> = "dfs.datanode.balance.max.concurrent.moves", int_u32, "100";
    /// Replication traffic, bytes per second; 0 = not limited.
    DFS_DATANODE_DATA_TRANSFER_BANDWIDTH_PER_SEC: Key<u64> = "dfs.datanode.data.transfer.bandwidthPerSec", bytes, "0";
    /// How long a writer that is pushed out may take to end.
    DFS_DATANODE_XCEIVER_STOP_TIMEOUT: Key<Duration> = "dfs.datanode.xceiver.stop.timeout.millis", duration_ms, "60000";
    /// Tell writers of congestion.
    DFS_PIPELINE_ECN: Key<bool> = "dfs.pipeline.ecn", boolean, "false";
    /// Acknowledgements say whether a datanode is slow.
    DFS_PIPELINE_SLOWNODE: Key<bool> = "dfs.pipeline.slownode", boolean, "false";

    // Client.

    /// Replication of new files.
    DFS_REPLICATION: Key<u16> = "dfs.replication", int_u16, "3";
    /// Block size of new files, bytes.
    DFS_BLOCKSIZE: Key<u64> = "dfs.blocksize", bytes, "134217728";
    /// Bytes under one CRC.
    DFS_BYTES_PER_CHECKSUM: Key<u32> = "dfs.bytes-per-checksum", int_u32, "512";
    /// CRC32C, CRC32 or NULL.
    DFS_CHECKSUM_TYPE: Key<String> = "dfs.checksum.type", text, "CRC32C";
    /// MD5MD5CRC or COMPOSITE_CRC.
    DFS_CHECKSUM_COMBINE_MODE: Key<String> = "dfs.checksum.combine.mode", text, "MD5MD5CRC";
    /// Packet of a writer, header included, bytes.
    DFS_CLIENT_WRITE_PACKET_SIZE: Key<u64> = "dfs.client-write-packet-size", bytes, "65536";
    /// Buffer of streams, bytes.
    DFS_STREAM_BUFFER_SIZE: Key<u64> = "dfs.stream-buffer-size", bytes, "4096";
    /// Packets of one writer not yet acknowledged.
    DFS_CLIENT_WRITE_MAX_PACKETS_IN_FLIGHT: Key<u32> = "dfs.client.write.max-packets-in-flight", int_u32, "80";
    /// Silence of a datanode, writer, or other datanode.
    DFS_CLIENT_SOCKET_TIMEOUT: Key<Duration> = "dfs.client.socket-timeout", duration_ms, "60000";
    /// Bytes whose locations are asked for at once; 0 = ten blocks.
    DFS_CLIENT_READ_PREFETCH_SIZE: Key<u64> = "dfs.client.read.prefetch.size", int_u64, "0";
    /// Connect to datanodes by name.
    DFS_CLIENT_USE_DATANODE_HOSTNAME: Key<bool> = "dfs.client.use.datanode.hostname", boolean, "false";
    /// Local replicas by descriptor. Hearth's client takes that path unless this is set to false.
    DFS_CLIENT_READ_SHORTCIRCUIT: Key<bool> = "dfs.client.read.shortcircuit", boolean, "false";
    /// Local replicas kept open.
    DFS_CLIENT_READ_SHORTCIRCUIT_STREAMS_CACHE_SIZE: Key<u32> = "dfs.client.read.shortcircuit.streams.cache.size", int_u32, "256";
    /// How long after their last use.
    DFS_CLIENT_READ_SHORTCIRCUIT_STREAMS_CACHE_EXPIRY: Key<Duration> = "dfs.client.read.shortcircuit.streams.cache.expiry.ms", duration_ms, "300000";
    /// A domain socket that failed is not tried for this long while there is another way.
    DFS_DOMAIN_SOCKET_DISABLE_INTERVAL: Key<Duration> = "dfs.domain.socket.disable.interval.seconds", duration_s, "600";
    /// Grace for a datanode that said it restarts.
    DFS_CLIENT_DATANODE_RESTART_TIMEOUT: Key<Duration> = "dfs.client.datanode-restart.timeout", duration_s, "30";
    /// How long server defaults are believed.
    DFS_CLIENT_SERVER_DEFAULTS_VALIDITY_PERIOD: Key<Duration> = "dfs.client.server-defaults.validity.period.ms", duration_ms, "3600000";
    /// Attempts to set up a pipeline.
    DFS_CLIENT_BLOCK_WRITE_RETRIES: Key<u32> = "dfs.client.block.write.retries", int_u32, "3";
    /// DEFAULT, NEVER or ALWAYS: replace a datanode that fails in a pipeline.
    DFS_CLIENT_REPLACE_DATANODE_POLICY: Key<String> = "dfs.client.block.write.replace-datanode-on-failure.policy", text, "DEFAULT";
    /// false = NEVER.
    DFS_CLIENT_REPLACE_DATANODE_ENABLE: Key<bool> = "dfs.client.block.write.replace-datanode-on-failure.enable", boolean, "true";
    /// Go on with fewer when no replacement works.
    DFS_CLIENT_REPLACE_DATANODE_BEST_EFFORT: Key<bool> = "dfs.client.block.write.replace-datanode-on-failure.best-effort", boolean, "false";
    /// Go on without replacement while at least this many are left; 0 = off.
    DFS_CLIENT_REPLACE_DATANODE_MIN_REPLICATION: Key<u16> = "dfs.client.block.write.replace-datanode-on-failure.min-replication", int_u16, "0";
    /// Attempts of addBlock and complete while earlier blocks are not reported.
    DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_RETRIES: Key<u32> = "dfs.client.block.write.locateFollowingBlock.retries", int_u32, "5";
    /// First pause between them; doubles.
    DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_INITIAL_DELAY: Key<Duration> = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms", duration_ms, "400";
    /// Longest pause between them.
    DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_MAX_DELAY: Key<Duration> = "dfs.client.block.write.locateFollowingBlock.max.delay.ms", duration_ms, "60000";
    /// A datanode that failed a writer is avoided this long.
    DFS_CLIENT_EXCLUDE_NODES_CACHE_EXPIRY: Key<Duration> = "dfs.client.write.exclude.nodes.cache.expiry.interval.millis", duration_ms, "600000";
    /// Rounds over all replicas before a read fails.
    DFS_CLIENT_MAX_BLOCK_ACQUIRE_FAILURES: Key<u32> = "dfs.client.max.block.acquire.failures", int_u32, "3";
    /// Pause between these rounds, base.
    DFS_CLIENT_RETRY_WINDOW_BASE: Key<Duration> = "dfs.client.retry.window.base", duration_ms, "3000";
    /// Attempts to learn an open file's length.
    DFS_CLIENT_RETRY_TIMES_GET_LAST_BLOCK_LENGTH: Key<u32> = "dfs.client.retry.times.get-last-block-length", int_u32, "3";
    /// Pause between them.
    DFS_CLIENT_RETRY_INTERVAL_GET_LAST_BLOCK_LENGTH: Key<Duration> = "dfs.client.retry.interval-ms.get-last-block-length", duration_ms, "4000";
    /// Idle datanode connections kept.
    DFS_CLIENT_SOCKETCACHE_CAPACITY: Key<u32> = "dfs.client.socketcache.capacity", int_u32, "16";
    /// How long.
    DFS_CLIENT_SOCKETCACHE_EXPIRY: Key<Duration> = "dfs.client.socketcache.expiryMsec", duration_ms, "3000";
    /// Failovers per call.
    DFS_CLIENT_FAILOVER_MAX_ATTEMPTS: Key<u32> = "dfs.client.failover.max.attempts", int_u32, "15";
    /// Pause before a failover, base.
    DFS_CLIENT_FAILOVER_SLEEP_BASE: Key<Duration> = "dfs.client.failover.sleep.base.millis", duration_ms, "500";
    /// Pause before a failover, longest.
    DFS_CLIENT_FAILOVER_SLEEP_MAX: Key<Duration> = "dfs.client.failover.sleep.max.millis", duration_ms, "15000";
    /// An evicted replica that a local reader has anchored leaves memory after this at the latest.
    DFS_DATANODE_CACHE_REVOCATION_TIMEOUT: Key<Duration> = "dfs.datanode.cache.revocation.timeout.ms", duration_ms, "900000";
    /// Home directories are below this.
    DFS_USER_HOME_DIR_PREFIX: Key<String> = "dfs.user.home.dir.prefix", text, "/user";

    // Hearth's own.

    /// Engine of storage directories that do not say: memory, mmap or file.
    HEARTH_STORAGE_ENGINE: Key<Engine> = "hearth.storage.engine", engine, "memory";
    /// Replicas in files of their own that stay open between reads, two descriptors each; at most an eighth of the process's descriptors.
    HEARTH_STORAGE_OPEN_MAX: Key<u32> = "hearth.storage.open.max", int_u32, "4096";
    /// Bytes of address space that mappings of the engine mmap may take.
    HEARTH_STORAGE_MAPPED_MAX: Key<u64> = "hearth.storage.mapped.max", bytes, "64g";
    /// Directory on a tmpfs for the memory engine; unset: one of the datanode's own under /dev/shm.
    HEARTH_MEMORY_DIR: OptionalKey<String> = "hearth.memory.dir", text;
    /// Bytes of replicas in memory; 0 = from the size of the tmpfs and the memory that is free.
    HEARTH_MEMORY_LIMIT: Key<u64> = "hearth.memory.limit", bytes, "0";
    /// A finalized replica is on disk within this, whatever its engine.
    HEARTH_MEMORY_FLUSH_DELAY: Key<Duration> = "hearth.memory.flush.delay", duration_s, "10";
    /// One-sided reads and writes between machines go over this: rdma (verbs, where the machine has them), tcp (served by a task
    /// of each process, for machines without verbs) or none.
    HEARTH_ONE_SIDED_TRANSPORT: Key<String> = "hearth.one-sided.transport", text, "rdma";
    /// Where a datanode listens for one-sided connections. With port 0 it takes any free one: clients ask which.
    HEARTH_ONE_SIDED_ADDRESS: Key<HostPort> = "hearth.one-sided.address", address, "0.0.0.0:0";
    /// One-sided connections that a datanode serves at once.
    HEARTH_ONE_SIDED_CONNECTIONS_MAX: Key<u32> = "hearth.one-sided.connections.max", int_u32, "1024";
    /// How long a one-sided reader may rely on what it was told of a replica's memory.
    HEARTH_ADVERTISE_LEASE: Key<Duration> = "hearth.advertise.lease", duration_s, "10";
    /// How long a replica's memory stays after a namenode of Hearth's was told of it, which hands this on with the block's locations; 0 =
    /// no namenode is told.
    HEARTH_ANNOUNCE_LEASE: Key<Duration> = "hearth.announce.lease", duration_s, "15";
    /// Bytes of replicas whose memory namenodes are told of at most; 0 = a quarter of what may be registered.
    HEARTH_ANNOUNCE_MAX: Key<u64> = "hearth.announce.max", bytes, "0";
    /// File of the audit log, one line an operation; unset: none is written.
    HEARTH_NAMENODE_AUDIT_LOG: OptionalKey<PathBuf> = "hearth.namenode.audit.log", path;
    /// Bytes of long RPC requests, those above 32 KiB, that have not arrived whole or are being answered: of all callers of a server
    /// together. At least the longest request, `ipc.maximum.data.length`.
    HEARTH_RPC_MESSAGE_MEMORY: Key<u64> = "hearth.rpc.message.memory", bytes, "201326592";
    /// Bytes of long packets and requests, those above 288 KiB, on all connections of the datanode's transfer port and domain socket. At
    /// least 32 MiB.
    HEARTH_DATANODE_PACKET_MEMORY: Key<u64> = "hearth.datanode.packet.memory", bytes, "134217728";
    /// NameNodes, as `host:port` or nameservice, to which the datanode's WebHDFS talks beside those that the datanode serves, such as
    /// routers. `*`: all that requests name.
    HEARTH_DATANODE_WEBHDFS_NAMENODES: Key<Vec<String>> = "hearth.datanode.webhdfs.namenodes", list, "";
    /// Bytes of changes in one of the namenode's two journal files; what they hold is in memory, too, until the tables have it.
    HEARTH_NAMENODE_JOURNAL_BYTES: Key<u64> = "hearth.namenode.journal.bytes", bytes, "67108864";
    /// What a namenode keeps of all that datanodes tell it of memory, bytes; 0 = nothing, and nothing is handed on.
    HEARTH_NAMENODE_ADVERTISEMENTS_MAX: Key<u64> = "hearth.namenode.advertisements.max", bytes, "67108864";
    /// Bytes that the namenode tells one of Hearth's datanodes to copy to others at a time, and half of those that it has on their
    /// way to one target; never fewer blocks than dfs.namenode.replication.max-streams says.
    HEARTH_NAMENODE_REPLICATION_WINDOW: Key<u64> = "hearth.namenode.replication.window", bytes, "67108864";
    /// How long one who waits for an RDMA operation polls for it before he sleeps, in microseconds.
    HEARTH_RDMA_BUSY_POLL: Key<u32> = "hearth.rdma.busy-poll.us", int_u32, "300";
    /// Bytes of replicas that are registered for one-sided readers at most; 0 = as many as are in memory.
    HEARTH_RDMA_REGISTERED_MAX: Key<u64> = "hearth.rdma.registered.max", bytes, "0";
    /// The memory that a local writer of the datanode's own user has filled is kept as it is; else its bytes are copied when
    /// the replica is finalized, out of the writer's reach.
    HEARTH_LOCAL_WRITE_TRUSTED: Key<bool> = "hearth.local.write.trusted", boolean, "false";
    /// What goes on to a datanode of the same machine is put into its memory, instead of through a socket.
    HEARTH_DATANODE_FORWARD_LOCAL: Key<bool> = "hearth.datanode.forward.local", boolean, "true";
    /// Memory granted to a writer that fills it itself, at once at most.
    HEARTH_WRITE_SLICE_BYTES: Key<u64> = "hearth.write.slice.bytes", bytes, "8388608";
    /// Packet of Hearth's own writer; 0 = chosen by what the pipeline takes.
    HEARTH_CLIENT_PACKET_BYTES: Key<u64> = "hearth.client.packet.bytes", bytes, "0";
    /// By which the client reaches replicas, in this order: local, one-sided, packets. One left out is never used.
    HEARTH_CLIENT_PATHS: Key<Vec<String>> = "hearth.client.paths", list, "local,one-sided,packets";
    /// How long a one-sided client waits for a connection, an answer or a batch of reads; a third of a lease at most.
    HEARTH_CLIENT_ONE_SIDED_TIMEOUT: Key<Duration> = "hearth.client.one-sided.timeout", duration_s, "3";
    /// Registered buffers that a one-sided client keeps while it does not use them.
    HEARTH_CLIENT_ONE_SIDED_BUFFER_BYTES: Key<u64> = "hearth.client.one-sided.buffer.bytes", bytes, "33554432";
    /// Connections of a datanode to another one of Hearth's over which replicas go that a namenode has it copy, at most. 0: each replica
    /// has a connection of its own, as to an Apache DataNode.
    HEARTH_DATANODE_STREAM_CONNECTIONS: Key<u32> = "hearth.datanode.stream.connections", int_u32, "2";
    /// Replicas that are on their way on one such connection at once.
    HEARTH_DATANODE_STREAM_REPLICAS: Key<u32> = "hearth.datanode.stream.replicas", int_u32, "16";
    /// Bytes that a sender may have on its way on one such connection and that the receiver has not stored.
    HEARTH_DATANODE_STREAM_WINDOW_BYTES: Key<u64> = "hearth.datanode.stream.window.bytes", bytes, "8388608";
    /// The same of all such connections to a datanode together.
    HEARTH_DATANODE_STREAM_MEMORY_BYTES: Key<u64> = "hearth.datanode.stream.memory.bytes", bytes, "33554432";
    /// Niceness of the threads that replicas are copied by, 0 to 19, above the process's own: beside readers the copies get so much less of the
    /// cores. 0: as much as they.
    HEARTH_DATANODE_STREAM_NICE: Key<u32> = "hearth.datanode.stream.nice", int_u32, "10";
    /// Share of the cores, 0.05 to 1, that those threads take at most while clients are served. 1: no limit.
    HEARTH_DATANODE_STREAM_CORES_SHARE: Key<f64> = "hearth.datanode.stream.cores.share", float, "0.2";
    /// How long the receiver keeps what it has of a replica whose connection broke. 0: not at all.
    HEARTH_DATANODE_STREAM_RESUME_TIMEOUT: Key<Duration> = "hearth.datanode.stream.resume.timeout", duration_s, "60";
    /// Connections to one datanode that carry many short reads each, at most; one to begin with. 0: each read has its own.
    HEARTH_CLIENT_MULTIPLEX_CONNECTIONS: Key<u32> = "hearth.client.multiplex.connections", int_u32, "16";
    /// Bytes that a client has asked for and not received, on one such connection, at most; over a long way what comes soon.
    HEARTH_CLIENT_MULTIPLEX_BYTES: Key<u64> = "hearth.client.multiplex.bytes", bytes, "4194304";
    /// Longest range that is read on one; longer ones have a connection of their own.
    HEARTH_CLIENT_MULTIPLEX_RANGE_BYTES: Key<u64> = "hearth.client.multiplex.range.bytes", bytes, "262144";
    /// Memory that a client lends a datanode on its own machine, on one such connection, for answers to be put into. 0: none, and they
    /// come over the socket.
    HEARTH_CLIENT_MULTIPLEX_MEMORY_BYTES: Key<u64> = "hearth.client.multiplex.memory.bytes", bytes, "8388608";
    /// What one system call of a reader fetches at most; also all that it holds ahead of its caller.
    HEARTH_CLIENT_READ_BUFFER_BYTES: Key<u64> = "hearth.client.read.buffer.bytes", bytes, "524288";
}
