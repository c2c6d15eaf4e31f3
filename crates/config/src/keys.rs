//! The keys that Hearth uses, with their types and defaults. Hadoop's keys and defaults are those of `core-default.xml`
//! and `hdfs-default.xml` of Hadoop 3.4. The documentation of each constant describes the key. A duration given as a
//! bare number has the unit that Hadoop defines for the key.

use std::path::PathBuf;
use std::time::Duration;

use crate::allowed::in_range;
use crate::parse::{CollectorUrl, Engine, HostPort, StorageDirectory};
use crate::{Allowed, Key, KeyInfo, NameForm, OptionalKey, Program, parse};

/// Declares the constants and [`ALL`] from one table, so that no key can be missing from either. A row is
///
/// ```text
/// /// Description.
/// CONSTANT: Key<Type> = "name", parser, "default" for [Namenode, Datanode] in ("least"..="most");
/// ```
///
/// - `for`: programs that read the key. Without it: the program that the name's second part stands for
///   (`dfs.namenode.`, `hearth.client.`), else all.
/// - `in`: allowed values, if the parser accepts more. `("least"..="most")`, `("least"..)`, `["exact", "names"]`,
///   `(any case "NAMES")`, `(class "SimpleNames")` or `(list "names")`; see [`Allowed`].
macro_rules! keys {
    ($(
        $(#[doc = $about:literal])+
        $constant:ident: $kind:ident<$type:ty> = $name:literal, $parser:ident $(, $default:literal)?
            $(for [$($program:ident),+])? $(in $allowed:tt)?;
    )*) => {
        $(
            #[doc = concat!("`", $name, "`" $(, ", default `", $default, "`")?, ".")]
            #[doc = ""]
            $(#[doc = $about])+
            pub const $constant: $kind<$type> = $kind { name: $name, $(default: $default,)? parse: parse::$parser };
        )*

        /// All keys of this file.
        pub const ALL: &[KeyInfo] = &[
            $(KeyInfo {
                name: $name,
                default: default!($($default)?),
                about: concat!($($about),+),
                parser: stringify!($parser),
                allowed: allowed!($($allowed)?),
                programs: programs!($($($program),+)?),
                parsed: parsed!($parser $(, $allowed)?),
            },)*
        ];
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

macro_rules! programs {
    () => {
        None
    };
    ($($program:ident),+) => {
        Some(&[$(Program::$program),+])
    };
}

macro_rules! allowed {
    () => {
        Allowed::Any
    };
    (($least:literal ..= $most:literal)) => {
        Allowed::Range { least: $least, most: Some($most) }
    };
    (($least:literal ..)) => {
        Allowed::Range { least: $least, most: None }
    };
    ([$($name:literal),+]) => {
        Allowed::Names { names: &[$($name),+], form: NameForm::Exact }
    };
    ((any case $($name:literal)+)) => {
        Allowed::Names { names: &[$($name),+], form: NameForm::AnyCase }
    };
    ((class $($name:literal)+)) => {
        Allowed::Names { names: &[$($name),+], form: NameForm::Class }
    };
    ((list $($name:literal)+)) => {
        Allowed::Names { names: &[$($name),+], form: NameForm::List }
    };
}

/// A function that parses a value and compares it with the bounds, if there are any.
macro_rules! parsed {
    ($parser:ident, ($least:literal ..= $most:literal)) => {
        |value| in_range(value, parse::$parser, $least, Some($most))
    };
    ($parser:ident, ($least:literal ..)) => {
        |value| in_range(value, parse::$parser, $least, None)
    };
    ($parser:ident $(, $names:tt)?) => {
        |value| parse::$parser(value).map(drop)
    };
}

/// Keys of the Java binding (`bindings/java`), which reads them from the same files.
pub(crate) const JAVA_KEYS: [&str; 4] =
    ["hearth.java.native.dir", "hearth.java.required", "hearth.java.split.batch.bytes", "hearth.java.split.files"];

keys! {

    // File system, users, network (core-site.xml).

    /// File system of paths without a scheme.
    FS_DEFAULT_FS: Key<String> = "fs.defaultFS", text, "file:///";
    /// Base directory of other default directories.
    HADOOP_TMP_DIR: Key<String> = "hadoop.tmp.dir", text, "/tmp/hadoop-${user.name}" for [Namenode, Datanode];
    /// Permission bits removed from new files and directories.
    FS_PERMISSIONS_UMASK_MODE: Key<u16> = "fs.permissions.umask-mode", umask, "022" for [Client];
    /// Age at which trash is deleted; 0 disables trash. Bare numbers are minutes.
    FS_TRASH_INTERVAL: Key<Duration> = "fs.trash.interval", duration_minutes, "0" for [Namenode, Client];
    /// Interval of trash checkpoints; 0 = fs.trash.interval. Bare numbers are minutes.
    FS_TRASH_CHECKPOINT_INTERVAL: Key<Duration> = "fs.trash.checkpoint.interval", duration_minutes, "0" for [Namenode];
    /// Directories that cannot be deleted while they are not empty.
    FS_PROTECTED_DIRECTORIES: OptionalKey<Vec<String>> = "fs.protected.directories", list for [Namenode];
    /// Also protect the directories below those of fs.protected.directories.
    DFS_PROTECTED_SUBDIRECTORIES_ENABLE: Key<bool> = "dfs.protected.subdirectories.enable", boolean, "false" for [Namenode];
    /// Buffer size of streams in bytes.
    IO_FILE_BUFFER_SIZE: Key<u64> = "io.file.buffer.size", bytes, "4096" for [Datanode];
    /// Authentication of callers: simple or kerberos.
    HADOOP_SECURITY_AUTHENTICATION: Key<String> = "hadoop.security.authentication", text, "simple";
    /// Number of files above which `hearth fs -rm -safely` asks for confirmation; 0: never ask.
    HADOOP_SHELL_SAFELY_DELETE_LIMIT_NUM_FILES: Key<i64> = "hadoop.shell.safely.delete.limit.num.files", int_i64, "100" for [Client];
    /// Enable service-level authorization.
    HADOOP_SECURITY_AUTHORIZATION: Key<bool> = "hadoop.security.authorization", boolean, "false" for [Namenode, Datanode];
    /// Protection of RPC: authentication, integrity or privacy.
    HADOOP_RPC_PROTECTION: Key<String> = "hadoop.rpc.protection", text, "authentication" for [Namenode, Datanode];
    /// Time for which the groups of a user are cached.
    HADOOP_SECURITY_GROUPS_CACHE_SECS: Key<Duration> = "hadoop.security.groups.cache.secs", duration_s, "300" for [Namenode];
    /// Static groups of users, used instead of those of the operating system: user=group1,group2;user2=...
    HADOOP_USER_GROUP_STATIC_MAPPING_OVERRIDES: OptionalKey<String> = "hadoop.user.group.static.mapping.overrides", text for [Namenode];
    /// User of web requests that name none.
    HADOOP_HTTP_STATICUSER_USER: Key<String> = "hadoop.http.staticuser.user", text, "dr.who" for [Namenode, Datanode];
    /// Write the context that clients send with each call to the audit log.
    HADOOP_CALLER_CONTEXT_ENABLED: Key<bool> = "hadoop.caller.context.enabled", boolean, "false" for [Namenode];
    /// Maximum length of the caller context in characters; longer ones are cut.
    HADOOP_CALLER_CONTEXT_MAX_SIZE: Key<u32> = "hadoop.caller.context.max.size", int_u32, "128" for [Namenode];
    /// Longest signature of a caller context that is kept, in bytes.
    HADOOP_CALLER_CONTEXT_SIGNATURE_MAX_SIZE: Key<u32> = "hadoop.caller.context.signature.max.size", int_u32, "40" for [Namenode];
    /// Program that prints the rack of each address given to it.
    NET_TOPOLOGY_SCRIPT_FILE_NAME: OptionalKey<String> = "net.topology.script.file.name", text for [Namenode];
    /// File with two columns: address and rack.
    NET_TOPOLOGY_TABLE_FILE_NAME: OptionalKey<String> = "net.topology.table.file.name", text for [Namenode];
    /// Longest RPC request that is accepted, in bytes.
    IPC_MAXIMUM_DATA_LENGTH: Key<u64> = "ipc.maximum.data.length", bytes, "134217728" for [Namenode, Datanode] in ("1k"..="2147483647");
    /// Maximum number of connections to one RPC port of the namenode; 0 = three quarters of the process's file
    /// descriptors.
    IPC_SERVER_MAX_CONNECTIONS: Key<u32> = "ipc.server.max.connections", int_u32, "0" for [Namenode];
    /// Longest RPC response that is accepted, in bytes.
    IPC_MAXIMUM_RESPONSE_LENGTH: Key<u64> = "ipc.maximum.response.length", bytes, "134217728" for [Client] in ("1k"..="2147483647");
    /// Time-out for opening an RPC connection.
    IPC_CLIENT_CONNECT_TIMEOUT: Key<Duration> = "ipc.client.connect.timeout", duration_ms, "20000" for [Datanode, Client];
    /// Maximum number of attempts to open an RPC connection that is refused.
    IPC_CLIENT_CONNECT_MAX_RETRIES: Key<u32> = "ipc.client.connect.max.retries", int_u32, "10" for [Client];
    /// Pause between attempts to open an RPC connection.
    IPC_CLIENT_CONNECT_RETRY_INTERVAL: Key<Duration> = "ipc.client.connect.retry.interval", duration_ms, "1000" for [Client];
    /// Time-out for an RPC response; 0 = none, with pings.
    IPC_CLIENT_RPC_TIMEOUT: Key<Duration> = "ipc.client.rpc-timeout.ms", duration_ms, "120000" for [Datanode, Client];
    /// Time after which the client closes an idle RPC connection.
    IPC_CLIENT_CONNECTION_MAXIDLETIME: Key<Duration> = "ipc.client.connection.maxidletime", duration_ms, "10000" for [Client];
    /// Interval of pings on an RPC connection that waits for a response.
    IPC_PING_INTERVAL: Key<Duration> = "ipc.ping.interval", duration_ms, "60000" for [Client];

    // Nameservices and namenodes.

    /// Names of the nameservices.
    DFS_NAMESERVICES: OptionalKey<Vec<String>> = "dfs.nameservices", list;
    /// Names in dfs.nameservices that this cluster's datanodes serve.
    DFS_INTERNAL_NAMESERVICES: OptionalKey<Vec<String>> = "dfs.internal.nameservices", list for [Namenode, Datanode];
    /// The nameservice of this namenode.
    DFS_NAMESERVICE_ID: OptionalKey<String> = "dfs.nameservice.id", text for [Namenode];
    /// Name of this namenode within its nameservice.
    DFS_HA_NAMENODE_ID: OptionalKey<String> = "dfs.ha.namenode.id", text for [Namenode];
    /// RPC address of the namenode; the key may have the suffix .NS or .NS.NN.
    DFS_NAMENODE_RPC_ADDRESS: OptionalKey<HostPort> = "dfs.namenode.rpc-address", rpc_address for [Namenode, Datanode, Client];
    /// Address to listen on instead of the host of rpc-address.
    DFS_NAMENODE_RPC_BIND_HOST: OptionalKey<String> = "dfs.namenode.rpc-bind-host", text;
    /// Address to listen on instead of the host of servicerpc-address.
    DFS_NAMENODE_SERVICERPC_BIND_HOST: OptionalKey<String> = "dfs.namenode.servicerpc-bind-host", text;
    /// Address to listen on instead of the host of http-address.
    DFS_NAMENODE_HTTP_BIND_HOST: OptionalKey<String> = "dfs.namenode.http-bind-host", text;
    /// RPC address of the namenode for datanodes.
    DFS_NAMENODE_SERVICERPC_ADDRESS: OptionalKey<HostPort> = "dfs.namenode.servicerpc-address", rpc_address for [Namenode, Datanode];
    /// RPC address of the namenode for lifelines.
    DFS_NAMENODE_LIFELINE_RPC_ADDRESS: OptionalKey<HostPort> = "dfs.namenode.lifeline.rpc-address", rpc_address for [Datanode];

    // Namenode.

    /// Directories of the namenode's store.
    DFS_NAMENODE_NAME_DIR: Key<Vec<PathBuf>> = "dfs.namenode.name.dir", directories, "file://${hadoop.tmp.dir}/dfs/name";
    /// Web address of the namenode.
    DFS_NAMENODE_HTTP_ADDRESS: Key<HostPort> = "dfs.namenode.http-address", address, "0.0.0.0:9870" for [Namenode, Client];
    /// Policy of web servers: HTTP_ONLY, HTTPS_ONLY or HTTP_AND_HTTPS.
    DFS_HTTP_POLICY: Key<String> = "dfs.http.policy", text, "HTTP_ONLY";
    /// Send the header X-Frame-Options with web pages, so that no page of another site can show them in a frame.
    DFS_XFRAME_ENABLED: Key<bool> = "dfs.xframe.enabled", boolean, "true";
    /// Value of X-Frame-Options: DENY, SAMEORIGIN or ALLOW-FROM.
    DFS_XFRAME_VALUE: Key<String> = "dfs.xframe.value", text, "SAMEORIGIN";
    /// Require a header of browsers that change something over WebHDFS.
    DFS_WEBHDFS_REST_CSRF_ENABLED: Key<bool> = "dfs.webhdfs.rest-csrf.enabled", boolean, "false";
    /// Name of that header. Any value is accepted.
    DFS_WEBHDFS_REST_CSRF_CUSTOM_HEADER: Key<String> = "dfs.webhdfs.rest-csrf.custom-header", text, "X-XSRF-HEADER";
    /// HTTP methods that do not need the header.
    DFS_WEBHDFS_REST_CSRF_METHODS_TO_IGNORE: Key<Vec<String>> = "dfs.webhdfs.rest-csrf.methods-to-ignore", list, "GET,OPTIONS,HEAD,TRACE";
    /// Patterns of the User-Agent header of browsers: text in which a dot is any character, and .* any text.
    DFS_WEBHDFS_REST_CSRF_BROWSER_USERAGENTS_REGEX: Key<Vec<String>> = "dfs.webhdfs.rest-csrf.browser-useragents-regex", list, "^Mozilla.*,^Opera.*";
    /// Refuse all changes over HTTP: WebHDFS, and deletions by fsck. RPC is not affected.
    HEARTH_WEB_READ_ONLY: Key<bool> = "hearth.web.read-only", boolean, "false";
    /// Further names by which browsers may address the web port for changes, such as that of a proxy.
    HEARTH_WEB_HOSTS: Key<Vec<String>> = "hearth.web.hosts", list, "";
    /// Highest replication of a file.
    DFS_REPLICATION_MAX: Key<u32> = "dfs.replication.max", int_u32, "512" for [Namenode] in ("1"..="32767");
    /// Number of replicas that a block needs to be complete.
    DFS_NAMENODE_REPLICATION_MIN: Key<u32> = "dfs.namenode.replication.min", int_u32, "1" in ("1"..="32767");
    /// Smallest block size of a file in bytes.
    DFS_NAMENODE_FS_LIMITS_MIN_BLOCK_SIZE: Key<u64> = "dfs.namenode.fs-limits.min-block-size", bytes, "1048576";
    /// Maximum number of blocks per file.
    DFS_NAMENODE_FS_LIMITS_MAX_BLOCKS_PER_FILE: Key<u64> = "dfs.namenode.fs-limits.max-blocks-per-file", int_u64, "10000" in ("1"..);
    /// Maximum length of a name in bytes; 0 = no limit.
    DFS_NAMENODE_FS_LIMITS_MAX_COMPONENT_LENGTH: Key<u32> = "dfs.namenode.fs-limits.max-component-length", int_u32, "255";
    /// Maximum number of entries in a directory.
    DFS_NAMENODE_FS_LIMITS_MAX_DIRECTORY_ITEMS: Key<u32> = "dfs.namenode.fs-limits.max-directory-items", int_u32, "1048576" in ("1"..="6400000");
    /// Maximum number of extended attributes per file or directory.
    DFS_NAMENODE_FS_LIMITS_MAX_XATTRS_PER_INODE: Key<u32> = "dfs.namenode.fs-limits.max-xattrs-per-inode", int_u32, "32";
    /// Maximum size of an extended attribute in bytes, name and value together.
    DFS_NAMENODE_FS_LIMITS_MAX_XATTR_SIZE: Key<u32> = "dfs.namenode.fs-limits.max-xattr-size", int_u32, "16384" in ("1"..="32768");
    /// Maximum number of files, directories and blocks together; 0 = no limit.
    DFS_NAMENODE_MAX_OBJECTS: Key<u64> = "dfs.namenode.max.objects", int_u64, "0";
    /// Never format a namespace that is not empty, even with -force.
    DFS_REFORMAT_DISABLED: Key<bool> = "dfs.reformat.disabled", boolean, "false" for [Namenode];
    /// Allow `-format`.
    DFS_NAMENODE_SUPPORT_ALLOW_FORMAT: Key<bool> = "dfs.namenode.support.allow.format", boolean, "true";
    /// Only superusers may set and unset storage policies.
    DFS_STORAGE_POLICY_PERMISSIONS_SUPERUSER_ONLY: Key<bool> = "dfs.storage.policy.permissions.superuser-only", boolean, "false" for [Namenode];
    /// Check permissions.
    DFS_PERMISSIONS_ENABLED: Key<bool> = "dfs.permissions.enabled", boolean, "true" for [Namenode];
    /// Group whose members are superusers.
    DFS_PERMISSIONS_SUPERUSERGROUP: Key<String> = "dfs.permissions.superusergroup", text, "supergroup" for [Namenode, Datanode];
    /// Enable ACLs.
    DFS_NAMENODE_ACLS_ENABLED: Key<bool> = "dfs.namenode.acls.enabled", boolean, "true";
    /// Default ACL entries of a directory replace the client's umask.
    DFS_NAMENODE_POSIX_ACL_INHERITANCE_ENABLED: Key<bool> = "dfs.namenode.posix.acl.inheritance.enabled", boolean, "true";
    /// The owner of the parent directory may set quotas, not only superusers.
    DFS_PERMISSIONS_ALLOW_OWNER_SET_QUOTA: Key<bool> = "dfs.permissions.allow.owner.set.quota", boolean, "false" for [Namenode];
    /// Maximum number of snapshots of one directory.
    DFS_NAMENODE_SNAPSHOT_MAX_LIMIT: Key<u32> = "dfs.namenode.snapshot.max.limit", int_u32, "65536";
    /// Snapshots record the length of open files at the time of the snapshot.
    DFS_NAMENODE_SNAPSHOT_CAPTURE_OPENFILES: Key<bool> = "dfs.namenode.snapshot.capture.openfiles", boolean, "false";
    /// Maximum number of snapshots in the whole file system; at least that of one directory.
    DFS_NAMENODE_SNAPSHOT_FILESYSTEM_LIMIT: Key<u32> = "dfs.namenode.snapshot.filesystem.limit", int_u32, "65536";
    /// Enable extended attributes.
    DFS_NAMENODE_XATTRS_ENABLED: Key<bool> = "dfs.namenode.xattrs.enabled", boolean, "true";
    /// A datanode counts as dead after twice this interval plus ten heartbeats.
    DFS_NAMENODE_HEARTBEAT_RECHECK_INTERVAL: Key<Duration> = "dfs.namenode.heartbeat.recheck-interval", duration_ms, "300000";
    /// Time without a heartbeat after which a datanode counts as stale.
    DFS_NAMENODE_STALE_DATANODE_INTERVAL: Key<Duration> = "dfs.namenode.stale.datanode.interval", duration_ms, "30000" in ("1ms"..);
    /// List stale datanodes last for reads.
    DFS_NAMENODE_AVOID_READ_STALE_DATANODE: Key<bool> = "dfs.namenode.avoid.read.stale.datanode", boolean, "false";
    /// Do not write to stale datanodes.
    DFS_NAMENODE_AVOID_WRITE_STALE_DATANODE: Key<bool> = "dfs.namenode.avoid.write.stale.datanode", boolean, "false";
    /// Maximum number of concurrent full block reports.
    DFS_NAMENODE_MAX_FULL_BLOCK_REPORT_LEASES: Key<u32> = "dfs.namenode.max.full.block.report.leases", int_u32, "6" in ("1"..);
    /// Time that a datanode may take for a full block report.
    DFS_NAMENODE_FULL_BLOCK_REPORT_LEASE_LENGTH: Key<Duration> = "dfs.namenode.full.block.report.lease.length.ms", duration_ms, "300000" in ("1ms"..);
    /// Fraction of the blocks that must be reported to leave safe mode.
    DFS_NAMENODE_SAFEMODE_THRESHOLD_PCT: Key<f64> = "dfs.namenode.safemode.threshold-pct", float, "0.999f";
    /// Number of live datanodes needed to leave safe mode.
    DFS_NAMENODE_SAFEMODE_MIN_DATANODES: Key<u32> = "dfs.namenode.safemode.min.datanodes", int_u32, "0";
    /// Time to stay in safe mode after the threshold was reached.
    DFS_NAMENODE_SAFEMODE_EXTENSION: Key<Duration> = "dfs.namenode.safemode.extension", duration_ms, "30000";
    /// Free bytes required on the store's disk; below it the namenode enters safe mode.
    DFS_NAMENODE_RESOURCE_DU_RESERVED: Key<u64> = "dfs.namenode.resource.du.reserved", bytes, "104857600";
    /// Time after start during which no block is deleted.
    DFS_NAMENODE_STARTUP_DELAY_BLOCK_DELETION: Key<Duration> = "dfs.namenode.startup.delay.block.deletion.sec", duration_s, "0";
    /// Time after which a copy that was not reported is scheduled again.
    DFS_NAMENODE_RECONSTRUCTION_PENDING_TIMEOUT: Key<Duration> = "dfs.namenode.reconstruction.pending.timeout-sec", duration_s, "300";
    /// Maximum number of concurrent copies from one datanode.
    DFS_NAMENODE_REPLICATION_MAX_STREAMS: Key<u32> = "dfs.namenode.replication.max-streams", int_u32, "2";
    /// Maximum number of concurrent copies from one datanode, including the most urgent blocks.
    DFS_NAMENODE_REPLICATION_MAX_STREAMS_HARD_LIMIT: Key<u32> = "dfs.namenode.replication.max-streams-hard-limit", int_u32, "4";
    /// Maximum number of blocks to delete per datanode and heartbeat.
    DFS_BLOCK_INVALIDATE_LIMIT: Key<u32> = "dfs.block.invalidate.limit", int_u32, "1000" for [Namenode];
    /// Placement avoids busy datanodes.
    DFS_NAMENODE_REDUNDANCY_CONSIDER_LOAD: Key<bool> = "dfs.namenode.redundancy.considerLoad", boolean, "true";
    /// A datanode is busy at this multiple of the average load.
    DFS_NAMENODE_REDUNDANCY_CONSIDER_LOAD_FACTOR: Key<f64> = "dfs.namenode.redundancy.considerLoad.factor", float, "2.0";
    /// Interval at which decommissioning datanodes are checked.
    DFS_NAMENODE_DECOMMISSION_INTERVAL: Key<Duration> = "dfs.namenode.decommission.interval", duration_s, "30";
    /// Number of live replicas to keep while others are in maintenance.
    DFS_NAMENODE_MAINTENANCE_REPLICATION_MIN: Key<u32> = "dfs.namenode.maintenance.replication.min", int_u32, "1";
    /// Count the recent calls of each user.
    DFS_NAMENODE_TOP_ENABLED: Key<bool> = "dfs.namenode.top.enabled", boolean, "true";
    /// File that lists the datanodes that may register.
    DFS_HOSTS: OptionalKey<String> = "dfs.hosts", text for [Namenode];
    /// File that lists the datanodes to decommission or refuse.
    DFS_HOSTS_EXCLUDE: OptionalKey<String> = "dfs.hosts.exclude", text for [Namenode];
    /// Format of the lists of admitted, leaving and maintained datanodes: two plain lists, or one JSON file.
    DFS_NAMENODE_HOSTS_PROVIDER_CLASSNAME: Key<String> = "dfs.namenode.hosts.provider.classname", text, "org.apache.hadoop.hdfs.server.blockmanagement.HostFileManager"
        in (class "HostFileManager" "CombinedHostFileManager");
    /// Refuse datanodes whose address has no host name.
    DFS_NAMENODE_DATANODE_REGISTRATION_IP_HOSTNAME_CHECK: Key<bool> = "dfs.namenode.datanode.registration.ip-hostname-check", boolean, "true";
    /// Refuse datanodes whose rack is unknown.
    DFS_NAMENODE_REJECT_UNRESOLVED_DN_TOPOLOGY_MAPPING: Key<bool> = "dfs.namenode.reject-unresolved-dn-topology-mapping", boolean, "false";
    /// Time after which a lease that was not renewed is recovered.
    DFS_NAMENODE_LEASE_HARD_LIMIT: Key<Duration> = "dfs.namenode.lease-hard-limit-sec", duration_s, "1200" for [Namenode, Client] in ("1s"..);
    /// Interval at which leases are checked.
    DFS_NAMENODE_LEASE_RECHECK_INTERVAL: Key<Duration> = "dfs.namenode.lease-recheck-interval-ms", duration_ms, "2000" in ("1ms"..);
    /// Precision of access times; 0 = not recorded.
    DFS_NAMENODE_ACCESSTIME_PRECISION: Key<Duration> = "dfs.namenode.accesstime.precision", duration_ms, "3600000";
    /// Maximum number of entries of a listing per call.
    DFS_LS_LIMIT: Key<u32> = "dfs.ls.limit", int_u32, "1000" for [Namenode];
    /// Maximum number of directories in a batched listing.
    DFS_BATCHED_LS_LIMIT: Key<u32> = "dfs.batched.ls.limit", int_u32, "100" for [Namenode] in ("1"..);
    /// Number of entries counted before the lock is released; 0: no release.
    DFS_CONTENT_SUMMARY_LIMIT: Key<u32> = "dfs.content-summary.limit", int_u32, "5000" for [Namenode];
    /// Operations omitted from the audit log, by their names in it: getfileinfo, open and so on.
    DFS_NAMENODE_AUDIT_LOG_DEBUG_CMDLIST: OptionalKey<Vec<String>> = "dfs.namenode.audit.log.debug.cmdlist", list;
    /// Maximum number of open files listed per call.
    DFS_NAMENODE_LIST_OPENFILES_NUM_RESPONSES: Key<u32> = "dfs.namenode.list.openfiles.num.responses", int_u32, "1000" in ("1"..);
    /// Maximum number of corrupt files listed per call.
    DFS_NAMENODE_MAX_CORRUPT_FILE_BLOCKS_RETURNED: Key<u32> = "dfs.namenode.max-corrupt-file-blocks-returned", int_u32, "100";
    /// Lock the blocks of cache directives in the datanodes' memory; if false, directives are stored but have no
    /// effect.
    DFS_NAMENODE_CACHING_ENABLED: Key<bool> = "dfs.namenode.caching.enabled", boolean, "true";
    /// Interval at which cache directives are evaluated.
    DFS_NAMENODE_PATH_BASED_CACHE_REFRESH_INTERVAL: Key<Duration> = "dfs.namenode.path.based.cache.refresh.interval.ms", duration_ms, "30000";
    /// Time after which a datanode that has not locked a block as requested is asked again.
    DFS_NAMENODE_PATH_BASED_CACHE_RETRY_INTERVAL: Key<Duration> = "dfs.namenode.path.based.cache.retry.interval.ms", duration_ms, "30000";
    /// Maximum number of cache directives listed per call.
    DFS_NAMENODE_LIST_CACHE_DIRECTIVES_NUM_RESPONSES: Key<u32> = "dfs.namenode.list.cache.directives.num.responses", int_u32, "100";
    /// Maximum number of cache pools listed per call.
    DFS_NAMENODE_LIST_CACHE_POOLS_NUM_RESPONSES: Key<u32> = "dfs.namenode.list.cache.pools.num.responses", int_u32, "100";
    /// Remember the answers of calls that change the namespace, for retries.
    DFS_NAMENODE_ENABLE_RETRYCACHE: Key<bool> = "dfs.namenode.enable.retrycache", boolean, "true";
    /// Time for which an answer is remembered.
    DFS_NAMENODE_RETRYCACHE_EXPIRYTIME: Key<Duration> = "dfs.namenode.retrycache.expirytime.millis", duration_ms, "600000";
    /// Storage policy of files that have none.
    DFS_STORAGE_DEFAULT_POLICY: Key<String> = "dfs.storage.default.policy", text, "HOT" for [Namenode]
        in (any case "HOT" "WARM" "COLD" "ONE_SSD" "ALL_SSD" "ALL_NVDIMM" "LAZY_PERSIST" "PROVIDED");
    /// Enable quotas by storage type.
    DFS_QUOTA_BY_STORAGE_TYPE_ENABLED: Key<bool> = "dfs.quota.by.storage.type.enabled", boolean, "true" for [Namenode];

    // Block tokens and encryption, for namenode and datanode.

    /// Datanodes require block tokens.
    DFS_BLOCK_ACCESS_TOKEN_ENABLE: Key<bool> = "dfs.block.access.token.enable", boolean, "false" for [Namenode];
    /// Lifetime of a token; bare numbers are minutes.
    DFS_BLOCK_ACCESS_TOKEN_LIFETIME: Key<Duration> = "dfs.block.access.token.lifetime", duration_minutes, "600" for [Namenode] in ("1s"..);
    /// Interval at which new keys are created; bare numbers are minutes.
    DFS_BLOCK_ACCESS_KEY_UPDATE_INTERVAL: Key<Duration> = "dfs.block.access.key.update.interval", duration_minutes, "600" for [Namenode] in ("1s"..);
    /// Encode tokens as protobuf.
    DFS_BLOCK_ACCESS_TOKEN_PROTOBUF_ENABLE: Key<bool> = "dfs.block.access.token.protobuf.enable", boolean, "false" for [Namenode];
    /// Encrypt block data on the wire.
    DFS_ENCRYPT_DATA_TRANSFER: Key<bool> = "dfs.encrypt.data.transfer", boolean, "false" for [Namenode, Datanode];
    /// Protection of block data: authentication, integrity or privacy.
    DFS_DATA_TRANSFER_PROTECTION: OptionalKey<String> = "dfs.data.transfer.protection", text for [Namenode, Datanode];

    // Datanode: identity and addresses.

    /// Data transfer address of the datanode.
    DFS_DATANODE_ADDRESS: Key<HostPort> = "dfs.datanode.address", address, "0.0.0.0:9866" for [Namenode, Datanode];
    /// RPC address of the datanode.
    DFS_DATANODE_IPC_ADDRESS: Key<HostPort> = "dfs.datanode.ipc.address", address, "0.0.0.0:9867" for [Namenode, Datanode];
    /// Web address of the datanode.
    DFS_DATANODE_HTTP_ADDRESS: Key<HostPort> = "dfs.datanode.http.address", address, "0.0.0.0:9864" for [Namenode, Datanode];
    /// HTTPS address of the datanode; only its port is used, for datanodes that have not registered.
    DFS_DATANODE_HTTPS_ADDRESS: Key<HostPort> = "dfs.datanode.https.address", address, "0.0.0.0:9865" for [Namenode];
    /// Host name to register with.
    DFS_DATANODE_HOSTNAME: OptionalKey<String> = "dfs.datanode.hostname", text;
    /// Connect to other datanodes by host name.
    DFS_DATANODE_USE_DATANODE_HOSTNAME: Key<bool> = "dfs.datanode.use.datanode.hostname", boolean, "false";
    /// Unix domain socket for local clients; _PORT is replaced by the transfer port.
    DFS_DOMAIN_SOCKET_PATH: OptionalKey<String> = "dfs.domain.socket.path", text for [Datanode, Client];
    /// Maximum number of concurrent RPC calls of the datanode.
    DFS_DATANODE_HANDLER_COUNT: Key<u32> = "dfs.datanode.handler.count", int_u32, "10" in ("1"..);
    /// Oldest version of namenodes that datanodes accept.
    DFS_DATANODE_MIN_SUPPORTED_NAMENODE_VERSION: Key<String> = "dfs.datanode.min.supported.namenode.version", text, "2.1.0-beta";
    /// Oldest version of datanodes that namenodes accept.
    DFS_NAMENODE_MIN_SUPPORTED_DATANODE_VERSION: Key<String> = "dfs.namenode.min.supported.datanode.version", text, "2.1.0-beta";

    // Datanode: storage.

    /// Storage directories, optionally with types: `[SSD]file:///data`.
    DFS_DATANODE_DATA_DIR: Key<Vec<StorageDirectory>> = "dfs.datanode.data.dir", storage_directories, "file://${hadoop.tmp.dir}/dfs/data" for [Datanode];
    /// Bytes of each disk reserved for other uses. A suffix `.DIRECTORY`, `.TYPE` (ssd, ram_disk, ...) or
    /// `.DIRECTORY.TYPE` restricts the value to matching storages.
    DFS_DATANODE_DU_RESERVED: Key<u64> = "dfs.datanode.du.reserved", bytes, "0";
    /// Reserved space in percent of each disk, if `dfs.datanode.du.reserved.calculator` uses it.
    DFS_DATANODE_DU_RESERVED_PCT: Key<u64> = "dfs.datanode.du.reserved.pct", percent, "0";
    /// Calculation of the reserved space: Absolute, Percentage, Conservative (the larger) or Aggressive (the smaller).
    DFS_DATANODE_DU_RESERVED_CALCULATOR: Key<String> = "dfs.datanode.du.reserved.calculator", text, "org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.ReservedSpaceCalculator$ReservedSpaceCalculatorAbsolute"
        in (class "ReservedSpaceCalculatorAbsolute" "ReservedSpaceCalculatorPercentage"
            "ReservedSpaceCalculatorConservative" "ReservedSpaceCalculatorAggressive");
    /// Number of storage directories that may fail; -1 = all but one.
    DFS_DATANODE_FAILED_VOLUMES_TOLERATED: Key<i32> = "dfs.datanode.failed.volumes.tolerated", int_i32, "0" in ("-1"..);
    /// Maximum bytes of cached and lazily persisted blocks in memory.
    DFS_DATANODE_MAX_LOCKED_MEMORY: Key<u64> = "dfs.datanode.max.locked.memory", bytes, "0";
    /// Interval of the rounds that move replicas from RAM_DISK to DISK.
    DFS_DATANODE_LAZYWRITER_INTERVAL: Key<Duration> = "dfs.datanode.lazywriter.interval.sec", duration_s, "60";
    /// Also store LAZY_PERSIST blocks of remote clients on RAM_DISK.
    DFS_DATANODE_NON_LOCAL_LAZY_PERSIST: Key<bool> = "dfs.datanode.non.local.lazy.persist", boolean, "false";
    /// Sync every finalized block.
    DFS_DATANODE_SYNCONCLOSE: Key<bool> = "dfs.datanode.synconclose", boolean, "false";
    /// Period in hours in which every replica is verified once; 0 = 504, negative = never.
    DFS_DATANODE_SCAN_PERIOD_HOURS: Key<i64> = "dfs.datanode.scan.period.hours", signed_hours, "504";
    /// Bytes verified per second and storage; 0 disables verification.
    DFS_BLOCK_SCANNER_VOLUME_BYTES_PER_SECOND: Key<u64> = "dfs.block.scanner.volume.bytes.per.second", bytes, "1048576" for [Datanode];

    // Datanode: timing and reports.

    /// Interval of heartbeats.
    DFS_HEARTBEAT_INTERVAL: Key<Duration> = "dfs.heartbeat.interval", duration_s, "3" for [Namenode, Datanode] in ("1ms"..="1d");
    /// Interval of full block reports.
    DFS_BLOCKREPORT_INTERVAL: Key<Duration> = "dfs.blockreport.intervalMsec", duration_ms, "21600000" for [Datanode];
    /// Maximum delay of the first block report.
    DFS_BLOCKREPORT_INITIAL_DELAY: Key<Duration> = "dfs.blockreport.initialDelay", duration_s, "0" for [Datanode];
    /// Number of blocks above which each storage is reported by a call of its own.
    DFS_BLOCKREPORT_SPLIT_THRESHOLD: Key<u64> = "dfs.blockreport.split.threshold", int_u64, "1000000" for [Datanode];
    /// Delay of incremental block reports.
    DFS_BLOCKREPORT_INCREMENTAL_INTERVAL: Key<Duration> = "dfs.blockreport.incremental.intervalMsec", duration_ms, "0" for [Datanode];
    /// Interval of cache reports.
    DFS_CACHEREPORT_INTERVAL: Key<Duration> = "dfs.cachereport.intervalMsec", duration_ms, "10000" for [Datanode];
    /// Time without an answer to heartbeats after which the datanode sends a lifeline; unset: three heartbeats.
    DFS_DATANODE_LIFELINE_INTERVAL: OptionalKey<Duration> = "dfs.datanode.lifeline.interval.seconds", duration_s;
    /// Time that requests wait for a block pool that is starting.
    DFS_DATANODE_BP_READY_TIMEOUT: Key<Duration> = "dfs.datanode.bp-ready.timeout", duration_s, "20";

    // Datanode: data transfer.

    /// Measure how long other datanodes take to acknowledge packets, and report those that are much slower than others.
    DFS_DATANODE_PEER_STATS_ENABLED: Key<bool> = "dfs.datanode.peer.stats.enabled", boolean, "false" for [Namenode, Datanode];
    /// Above 0: compare the disks of a datanode, and report those that are much slower than others.
    DFS_DATANODE_FILEIO_PROFILING_SAMPLING_PERCENTAGE: Key<u64> = "dfs.datanode.fileio.profiling.sampling.percentage", percent, "0" for [Namenode, Datanode];
    /// Interval of reports about slow datanodes and disks. A report is valid for three of them.
    DFS_DATANODE_OUTLIERS_REPORT_INTERVAL: Key<Duration> = "dfs.datanode.outliers.report.interval", duration_ms, "30m" for [Namenode, Datanode] in ("1ms"..);
    /// Minimum number of datanodes to compare.
    DFS_DATANODE_MIN_OUTLIER_DETECTION_NODES: Key<u32> = "dfs.datanode.min.outlier.detection.nodes", int_u32, "10";
    /// Minimum number of disks to compare.
    DFS_DATANODE_MIN_OUTLIER_DETECTION_DISKS: Key<u32> = "dfs.datanode.min.outlier.detection.disks", int_u32, "5";
    /// Minimum number of packets to a datanode before it is compared.
    DFS_DATANODE_PEER_METRICS_MIN_OUTLIER_DETECTION_SAMPLES: Key<u64> = "dfs.datanode.peer.metrics.min.outlier.detection.samples", int_u64, "1000";
    /// Latency of a datanode in milliseconds up to which it is not slow.
    DFS_DATANODE_SLOWPEER_LOW_THRESHOLD_MS: Key<u32> = "dfs.datanode.slowpeer.low.threshold.ms", int_u32, "5";
    /// Latency of a disk in milliseconds up to which it is not slow.
    DFS_DATANODE_SLOWDISK_LOW_THRESHOLD_MS: Key<u32> = "dfs.datanode.slowdisk.low.threshold.ms", int_u32, "20";
    /// Maximum number of slow datanodes in /jmx.
    DFS_DATANODE_MAX_NODES_TO_REPORT: Key<u32> = "dfs.datanode.max.nodes.to.report", int_u32, "5" for [Namenode];
    /// Maximum number of slow disks in /jmx.
    DFS_DATANODE_MAX_DISKS_TO_REPORT: Key<u32> = "dfs.datanode.max.disks.to.report", int_u32, "5" for [Namenode];
    /// Maximum number of concurrent transfers.
    DFS_DATANODE_MAX_TRANSFER_THREADS: Key<u32> = "dfs.datanode.max.transfer.threads", int_u32, "4096" in ("1"..);
    /// Time-out for writing to a full socket.
    DFS_DATANODE_SOCKET_WRITE_TIMEOUT: Key<Duration> = "dfs.datanode.socket.write.timeout", duration_ms, "480000" for [Datanode, Client];
    /// Time after which an idle client connection is closed; 0 = at once.
    DFS_DATANODE_SOCKET_REUSE_KEEPALIVE: Key<Duration> = "dfs.datanode.socket.reuse.keepalive", duration_ms, "4000";
    /// Use sendfile.
    DFS_DATANODE_TRANSFER_TO_ALLOWED: Key<bool> = "dfs.datanode.transferTo.allowed", boolean, "true";
    /// Size of the send buffer in bytes; 0 = the system's default.
    DFS_DATANODE_TRANSFER_SOCKET_SEND_BUFFER_SIZE: Key<u64> = "dfs.datanode.transfer.socket.send.buffer.size", bytes, "0";
    /// Size of the receive buffer in bytes; 0 = the system's default.
    DFS_DATANODE_TRANSFER_SOCKET_RECV_BUFFER_SIZE: Key<u64> = "dfs.datanode.transfer.socket.recv.buffer.size", bytes, "0";
    /// Set TCP_NODELAY at the datanode.
    DFS_DATA_TRANSFER_SERVER_TCPNODELAY: Key<bool> = "dfs.data.transfer.server.tcpnodelay", boolean, "true" for [Datanode];
    /// Limit of balancer traffic in bytes per second.
    DFS_DATANODE_BALANCE_BANDWIDTH_PER_SEC: Key<u64> = "dfs.datanode.balance.bandwidthPerSec", bytes, "100m";
    /// Maximum number of concurrent balancer moves.
    DFS_DATANODE_BALANCE_MAX_CONCURRENT_MOVES: Key<u32> = "dfs.datanode.balance.max.concurrent.moves", int_u32, "100" in ("1"..);
    /// Bytes of blocks that the balancer asks the namenode for at once.
    DFS_BALANCER_GETBLOCKS_SIZE: Key<u64> = "dfs.balancer.getBlocks.size", bytes, "2147483648" for [Client] in ("1"..="1t");
    /// Smallest block that the balancer moves, in bytes.
    DFS_BALANCER_GETBLOCKS_MIN_BLOCK_SIZE: Key<u64> = "dfs.balancer.getBlocks.min-block-size", bytes, "10485760" for [Client] in ("1"..="1t");
    /// The balancer takes blocks of files that were read within this time last; 0 = all alike.
    DFS_BALANCER_GETBLOCKS_HOT_TIME_INTERVAL: Key<Duration> = "dfs.balancer.getBlocks.hot-time-interval", duration_ms, "0" for [Client];
    /// Bytes that the balancer moves to or from one storage group in an iteration.
    DFS_BALANCER_MAX_SIZE_TO_MOVE: Key<u64> = "dfs.balancer.max-size-to-move", bytes, "10737418240" for [Client] in ("1"..="1p");
    /// Longest time of one iteration of the balancer.
    DFS_BALANCER_MAX_ITERATION_TIME: Key<Duration> = "dfs.balancer.max-iteration-time", duration_ms, "1200000" for [Client] in ("1s"..="365d");
    /// Time without a move after which the balancer gives a source up.
    DFS_BALANCER_MAX_NO_MOVE_INTERVAL: Key<Duration> = "dfs.balancer.max-no-move-interval", duration_ms, "60000" for [Client];
    /// Longest time that the balancer waits for a move; 0 = until the end of the iteration.
    DFS_BALANCER_BLOCK_MOVE_TIMEOUT: Key<Duration> = "dfs.balancer.block-move.timeout", duration_ms, "0" for [Client];
    /// Maximum number of moves that the balancer has in flight.
    DFS_BALANCER_MOVER_THREADS: Key<u32> = "dfs.balancer.moverThreads", int_u32, "1000" for [Client] in ("1"..="100000");
    /// Maximum number of sources that the balancer works on at the same time.
    DFS_BALANCER_DISPATCHER_THREADS: Key<u32> = "dfs.balancer.dispatcherThreads", int_u32, "200" for [Client] in ("1"..="10000");
    /// Limit of replication traffic in bytes per second; 0 = no limit.
    DFS_DATANODE_DATA_TRANSFER_BANDWIDTH_PER_SEC: Key<u64> = "dfs.datanode.data.transfer.bandwidthPerSec", bytes, "0";
    /// Time that an interrupted writer may take to end.
    DFS_DATANODE_XCEIVER_STOP_TIMEOUT: Key<Duration> = "dfs.datanode.xceiver.stop.timeout.millis", duration_ms, "60000";
    /// Report congestion to writers.
    DFS_PIPELINE_ECN: Key<bool> = "dfs.pipeline.ecn", boolean, "false" for [Datanode];
    /// Acknowledgements report slow datanodes.
    DFS_PIPELINE_SLOWNODE: Key<bool> = "dfs.pipeline.slownode", boolean, "false" for [Datanode];

    // Client.

    /// Replication of new files.
    DFS_REPLICATION: Key<u16> = "dfs.replication", int_u16, "3" for [Namenode, Client] in ("1"..="32767");
    /// Block size of new files, bytes.
    DFS_BLOCKSIZE: Key<u64> = "dfs.blocksize", bytes, "134217728" in ("1"..);
    /// Bytes per CRC.
    DFS_BYTES_PER_CHECKSUM: Key<u32> = "dfs.bytes-per-checksum", int_u32, "512" for [Namenode, Client] in ("1"..="8388608");
    /// Type of checksums: CRC32C, CRC32 or NULL.
    DFS_CHECKSUM_TYPE: Key<String> = "dfs.checksum.type", text, "CRC32C" for [Namenode, Client] in ["CRC32C", "CRC32", "NULL"];
    /// Kind of file checksums: MD5MD5CRC or COMPOSITE_CRC.
    DFS_CHECKSUM_COMBINE_MODE: Key<String> = "dfs.checksum.combine.mode", text, "MD5MD5CRC" for [Client] in ["MD5MD5CRC", "COMPOSITE_CRC"];
    /// Packet size of a writer in bytes, including the header.
    DFS_CLIENT_WRITE_PACKET_SIZE: Key<u64> = "dfs.client-write-packet-size", bytes, "65536" for [Namenode, Client] in ("1"..);
    /// Buffer size of streams in bytes.
    DFS_STREAM_BUFFER_SIZE: Key<u64> = "dfs.stream-buffer-size", bytes, "4096" for [Namenode];
    /// Maximum number of unacknowledged packets per writer.
    DFS_CLIENT_WRITE_MAX_PACKETS_IN_FLIGHT: Key<u32> = "dfs.client.write.max-packets-in-flight", int_u32, "80";
    /// Time-out for data from a datanode or writer.
    DFS_CLIENT_SOCKET_TIMEOUT: Key<Duration> = "dfs.client.socket-timeout", duration_ms, "60000" for [Datanode, Client];
    /// Number of bytes located per call; 0 = ten blocks.
    DFS_CLIENT_READ_PREFETCH_SIZE: Key<u64> = "dfs.client.read.prefetch.size", int_u64, "0";
    /// Connect to datanodes by host name.
    DFS_CLIENT_USE_DATANODE_HOSTNAME: Key<bool> = "dfs.client.use.datanode.hostname", boolean, "false";
    /// Read local replicas through file descriptors. Hearth's client does so unless this is set to false.
    DFS_CLIENT_READ_SHORTCIRCUIT: Key<bool> = "dfs.client.read.shortcircuit", boolean, "false";
    /// Maximum number of local replicas kept open.
    DFS_CLIENT_READ_SHORTCIRCUIT_STREAMS_CACHE_SIZE: Key<u32> = "dfs.client.read.shortcircuit.streams.cache.size", int_u32, "256";
    /// Time that a local replica stays open after its last use.
    DFS_CLIENT_READ_SHORTCIRCUIT_STREAMS_CACHE_EXPIRY: Key<Duration> = "dfs.client.read.shortcircuit.streams.cache.expiry.ms", duration_ms, "300000";
    /// Time for which a domain socket that failed is not used, if there is another path.
    DFS_DOMAIN_SOCKET_DISABLE_INTERVAL: Key<Duration> = "dfs.domain.socket.disable.interval.seconds", duration_s, "600" for [Client];
    /// Time to wait for a datanode that announced a restart.
    DFS_CLIENT_DATANODE_RESTART_TIMEOUT: Key<Duration> = "dfs.client.datanode-restart.timeout", duration_s, "30";
    /// Time for which server defaults are cached.
    DFS_CLIENT_SERVER_DEFAULTS_VALIDITY_PERIOD: Key<Duration> = "dfs.client.server-defaults.validity.period.ms", duration_ms, "3600000";
    /// Maximum number of attempts to set up a pipeline.
    DFS_CLIENT_BLOCK_WRITE_RETRIES: Key<u32> = "dfs.client.block.write.retries", int_u32, "3";
    /// Replacement of a failed datanode in a pipeline: DEFAULT, NEVER or ALWAYS.
    DFS_CLIENT_REPLACE_DATANODE_POLICY: Key<String> = "dfs.client.block.write.replace-datanode-on-failure.policy", text, "DEFAULT" in (any case "DEFAULT" "NEVER" "ALWAYS");
    /// Enable replacement of failed datanodes; false = NEVER.
    DFS_CLIENT_REPLACE_DATANODE_ENABLE: Key<bool> = "dfs.client.block.write.replace-datanode-on-failure.enable", boolean, "true";
    /// Continue with fewer datanodes if no replacement works.
    DFS_CLIENT_REPLACE_DATANODE_BEST_EFFORT: Key<bool> = "dfs.client.block.write.replace-datanode-on-failure.best-effort", boolean, "false";
    /// Continue without replacement while at least this number of datanodes is left; 0 = off.
    DFS_CLIENT_REPLACE_DATANODE_MIN_REPLICATION: Key<u16> = "dfs.client.block.write.replace-datanode-on-failure.min-replication", int_u16, "0";
    /// Maximum number of attempts of addBlock and complete while earlier blocks are not reported.
    DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_RETRIES: Key<u32> = "dfs.client.block.write.locateFollowingBlock.retries", int_u32, "5";
    /// First pause between these attempts; it doubles each time.
    DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_INITIAL_DELAY: Key<Duration> = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms", duration_ms, "400";
    /// Longest pause between these attempts.
    DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_MAX_DELAY: Key<Duration> = "dfs.client.block.write.locateFollowingBlock.max.delay.ms", duration_ms, "60000";
    /// Time for which a datanode that failed a writer is avoided.
    DFS_CLIENT_EXCLUDE_NODES_CACHE_EXPIRY: Key<Duration> = "dfs.client.write.exclude.nodes.cache.expiry.interval.millis", duration_ms, "600000";
    /// Maximum number of rounds over all replicas before a read fails.
    DFS_CLIENT_MAX_BLOCK_ACQUIRE_FAILURES: Key<u32> = "dfs.client.max.block.acquire.failures", int_u32, "3";
    /// Base of the pause between these rounds.
    DFS_CLIENT_RETRY_WINDOW_BASE: Key<Duration> = "dfs.client.retry.window.base", duration_ms, "3000";
    /// Maximum number of attempts to determine the length of an open file.
    DFS_CLIENT_RETRY_TIMES_GET_LAST_BLOCK_LENGTH: Key<u32> = "dfs.client.retry.times.get-last-block-length", int_u32, "3";
    /// Pause between these attempts.
    DFS_CLIENT_RETRY_INTERVAL_GET_LAST_BLOCK_LENGTH: Key<Duration> = "dfs.client.retry.interval-ms.get-last-block-length", duration_ms, "4000";
    /// Maximum number of idle datanode connections that are kept.
    DFS_CLIENT_SOCKETCACHE_CAPACITY: Key<u32> = "dfs.client.socketcache.capacity", int_u32, "16";
    /// Time for which an idle datanode connection is kept.
    DFS_CLIENT_SOCKETCACHE_EXPIRY: Key<Duration> = "dfs.client.socketcache.expiryMsec", duration_ms, "3000";
    /// Maximum number of failovers per call.
    DFS_CLIENT_FAILOVER_MAX_ATTEMPTS: Key<u32> = "dfs.client.failover.max.attempts", int_u32, "15";
    /// Base of the pause before a failover.
    DFS_CLIENT_FAILOVER_SLEEP_BASE: Key<Duration> = "dfs.client.failover.sleep.base.millis", duration_ms, "500";
    /// Longest pause before a failover.
    DFS_CLIENT_FAILOVER_SLEEP_MAX: Key<Duration> = "dfs.client.failover.sleep.max.millis", duration_ms, "15000";
    /// Time after which an evicted replica leaves memory even if a local reader has anchored it.
    DFS_DATANODE_CACHE_REVOCATION_TIMEOUT: Key<Duration> = "dfs.datanode.cache.revocation.timeout.ms", duration_ms, "900000";
    /// Parent directory of home directories.
    DFS_USER_HOME_DIR_PREFIX: Key<String> = "dfs.user.home.dir.prefix", text, "/user" for [Namenode, Client];

    // Hearth's own keys.

    /// Engine of storage directories that name none: memory, mmap or file.
    HEARTH_STORAGE_ENGINE: Key<Engine> = "hearth.storage.engine", engine, "memory" for [Datanode];
    /// Maximum number of replica files kept open between reads, with two descriptors each; at most an eighth of the
    /// process's descriptors.
    HEARTH_STORAGE_OPEN_MAX: Key<u32> = "hearth.storage.open.max", int_u32, "4096" for [Datanode];
    /// Maximum bytes of address space for mappings of the engine mmap.
    HEARTH_STORAGE_MAPPED_MAX: Key<u64> = "hearth.storage.mapped.max", bytes, "64g" for [Datanode];
    /// Directory on a tmpfs for the memory engine; unset: a directory of the datanode under /dev/shm.
    HEARTH_MEMORY_DIR: OptionalKey<String> = "hearth.memory.dir", text for [Datanode];
    /// Maximum bytes of replicas in memory; 0 = derived from the size of the tmpfs and the free memory.
    HEARTH_MEMORY_LIMIT: Key<u64> = "hearth.memory.limit", bytes, "0" for [Datanode];
    /// Keep replicas in memory when the datanode ends, so that it finds them there when it starts again; false: what is
    /// on disk leaves memory then. `hearth up` sets false.
    HEARTH_MEMORY_KEEP: Key<bool> = "hearth.memory.keep", boolean, "true" for [Datanode];
    /// Time within which a finalized replica is on disk, with every engine.
    HEARTH_MEMORY_FLUSH_DELAY: Key<Duration> = "hearth.memory.flush.delay", duration_s, "10" for [Datanode];
    /// Transport of one-sided reads and writes between machines: rdma (verbs, if the machine has them), tcp (served by
    /// a task of each process, for machines without verbs) or none.
    HEARTH_ONE_SIDED_TRANSPORT: Key<String> = "hearth.one-sided.transport", text, "rdma" for [Datanode, Client] in ["rdma", "tcp", "none"];
    /// Address on which a datanode listens for one-sided connections. Port 0 means any free port; clients ask for it.
    HEARTH_ONE_SIDED_ADDRESS: Key<HostPort> = "hearth.one-sided.address", address, "0.0.0.0:0" for [Datanode];
    /// Maximum number of one-sided connections that a datanode serves.
    HEARTH_ONE_SIDED_CONNECTIONS_MAX: Key<u32> = "hearth.one-sided.connections.max", int_u32, "1024" for [Datanode] in ("1"..="65536");
    /// Time for which a one-sided reader may rely on an advertised address of a replica's memory.
    HEARTH_ADVERTISE_LEASE: Key<Duration> = "hearth.advertise.lease", duration_s, "10" for [Datanode] in ("1ms"..="1h");
    /// Time for which a replica's memory stays valid after it was announced to a Hearth namenode, which sends the
    /// address with the block's locations; at most 600 s; 0 = no announcements.
    HEARTH_ANNOUNCE_LEASE: Key<Duration> = "hearth.announce.lease", duration_s, "15" for [Datanode];
    /// Maximum bytes of replicas whose memory is announced to namenodes; 0 = a quarter of what may be registered.
    HEARTH_ANNOUNCE_MAX: Key<u64> = "hearth.announce.max", bytes, "0" for [Datanode];
    /// Form of the servers' log lines: text, or JSON objects.
    HEARTH_LOG_FORMAT: Key<String> = "hearth.log.format", text, "text" for [Namenode, Datanode] in ["text", "json"];
    /// Collector of traces that takes OTLP over HTTP (`http://host:4318`); unset: no traces. Needs a build with the
    /// feature `opentelemetry`.
    HEARTH_TRACE_OTLP_ENDPOINT: OptionalKey<CollectorUrl> = "hearth.trace.otlp.endpoint", collector_url;
    /// Share of a client's reads and writes that begin a trace. Servers continue the traces of their clients.
    HEARTH_TRACE_SAMPLE_RATIO: Key<f64> = "hearth.trace.sample.ratio", float, "0.01" in ("0"..="1");
    /// File of the audit log, one line per operation; unset: no audit log.
    HEARTH_NAMENODE_AUDIT_LOG: OptionalKey<PathBuf> = "hearth.namenode.audit.log", path;
    /// Memory for RPC requests above 32 KiB that are incomplete or in progress, in bytes, shared by all callers of a
    /// server. At least the longest request, `ipc.maximum.data.length`.
    HEARTH_RPC_MESSAGE_MEMORY: Key<u64> = "hearth.rpc.message.memory", bytes, "201326592" for [Namenode, Datanode];
    /// Memory for packets and requests above 288 KiB, in bytes, shared by all connections of the datanode's transfer
    /// port and domain socket. At least 32 MiB.
    HEARTH_DATANODE_PACKET_MEMORY: Key<u64> = "hearth.datanode.packet.memory", bytes, "134217728" in ("32m"..);
    /// NameNodes, as `host:port` or nameservice, that the datanode's WebHDFS may contact besides those that the
    /// datanode serves, such as routers. `*`: all that requests name.
    HEARTH_DATANODE_WEBHDFS_NAMENODES: Key<Vec<String>> = "hearth.datanode.webhdfs.namenodes", list, "";
    /// Maximum bytes of changes in one of the namenode's two journal files. The changes are also held in memory until
    /// they are in the tables.
    HEARTH_NAMENODE_JOURNAL_BYTES: Key<u64> = "hearth.namenode.journal.bytes", bytes, "67108864" in ("4k"..);
    /// Directory for regular backups of the namenode's namespace, best on another disk; unset: none are made.
    HEARTH_NAMENODE_BACKUP_DIR: OptionalKey<PathBuf> = "hearth.namenode.backup.dir", path;
    /// Time between two of them. Bare numbers are seconds.
    HEARTH_NAMENODE_BACKUP_INTERVAL: Key<Duration> = "hearth.namenode.backup.interval", duration_s, "3600";
    /// Number of backups to keep, at least 1. The oldest are removed.
    HEARTH_NAMENODE_BACKUP_KEEP: Key<u32> = "hearth.namenode.backup.keep", int_u32, "24";
    /// Maximum bytes of memory addresses announced by datanodes that a namenode keeps; 0 = it keeps none and sends none
    /// to clients.
    HEARTH_NAMENODE_ADVERTISEMENTS_MAX: Key<u64> = "hearth.namenode.advertisements.max", bytes, "67108864";
    /// Bytes that the namenode schedules one Hearth datanode to copy at a time; half of that may be in flight to one
    /// target. Never fewer blocks than dfs.namenode.replication.max-streams.
    HEARTH_NAMENODE_REPLICATION_WINDOW: Key<u64> = "hearth.namenode.replication.window", bytes, "67108864";
    /// Time to poll for the completion of an RDMA operation before sleeping, in microseconds.
    HEARTH_RDMA_BUSY_POLL: Key<u32> = "hearth.rdma.busy-poll.us", int_u32, "300" for [Datanode, Client] in ("0"..="1000000");
    /// Maximum bytes of replicas that are registered for one-sided readers; 0 = all that are in memory.
    HEARTH_RDMA_REGISTERED_MAX: Key<u64> = "hearth.rdma.registered.max", bytes, "0" for [Datanode];
    /// Keep memory that a local writer of the datanode's own user has filled; if false, the bytes are copied out of the
    /// writer's reach when the replica is finalized.
    HEARTH_LOCAL_WRITE_TRUSTED: Key<bool> = "hearth.local.write.trusted", boolean, "false" for [Datanode];
    /// Forward blocks to a datanode on the same machine through its memory instead of a socket.
    HEARTH_DATANODE_FORWARD_LOCAL: Key<bool> = "hearth.datanode.forward.local", boolean, "true";
    /// Maximum memory granted at a time to a writer that fills it itself, in bytes.
    HEARTH_WRITE_SLICE_BYTES: Key<u64> = "hearth.write.slice.bytes", bytes, "8388608" for [Datanode];
    /// Packet size of Hearth's own writer in bytes; 0 = chosen to suit the pipeline.
    HEARTH_CLIENT_PACKET_BYTES: Key<u64> = "hearth.client.packet.bytes", bytes, "0" in ("0"..="8m");
    /// Paths by which the client reaches replicas, in order of preference: local, one-sided, packets. A path that is
    /// not listed is never used.
    HEARTH_CLIENT_PATHS: Key<Vec<String>> = "hearth.client.paths", list, "local,one-sided,packets" in (list "local" "one-sided" "packets");
    /// Time-out of a one-sided client for a connection, an answer or a batch of reads; at most a third of a lease.
    HEARTH_CLIENT_ONE_SIDED_TIMEOUT: Key<Duration> = "hearth.client.one-sided.timeout", duration_s, "3";
    /// Maximum bytes of unused registered buffers that a one-sided client keeps.
    HEARTH_CLIENT_ONE_SIDED_BUFFER_BYTES: Key<u64> = "hearth.client.one-sided.buffer.bytes", bytes, "33554432";
    /// Maximum number of connections from a datanode to another Hearth datanode that carry replicas copied by order of
    /// the namenode. 0: each replica has a connection of its own, as to an Apache DataNode.
    HEARTH_DATANODE_STREAM_CONNECTIONS: Key<u32> = "hearth.datanode.stream.connections", int_u32, "2";
    /// Maximum number of replicas in transit on one such connection.
    HEARTH_DATANODE_STREAM_REPLICAS: Key<u32> = "hearth.datanode.stream.replicas", int_u32, "16" in ("1"..="1024");
    /// Maximum bytes in transit on one such connection that the receiver has not stored.
    HEARTH_DATANODE_STREAM_WINDOW_BYTES: Key<u64> = "hearth.datanode.stream.window.bytes", bytes, "8388608";
    /// Maximum bytes in transit to a datanode that it has not stored, on all such connections together.
    HEARTH_DATANODE_STREAM_MEMORY_BYTES: Key<u64> = "hearth.datanode.stream.memory.bytes", bytes, "33554432";
    /// Niceness of the threads that copy replicas, 0 to 19, relative to that of the process. With a higher value,
    /// copies get a smaller share of the cores beside readers. 0: an equal share.
    HEARTH_DATANODE_STREAM_NICE: Key<u32> = "hearth.datanode.stream.nice", int_u32, "10" in ("0"..="19");
    /// Maximum share of the cores, 0.05 to 1, for those threads while clients are served. 1: no limit.
    HEARTH_DATANODE_STREAM_CORES_SHARE: Key<f64> = "hearth.datanode.stream.cores.share", float, "0.2" in ("0.05"..="1");
    /// Time for which the receiver keeps a partial replica after its connection broke. 0: not at all.
    HEARTH_DATANODE_STREAM_RESUME_TIMEOUT: Key<Duration> = "hearth.datanode.stream.resume.timeout", duration_s, "60";
    /// Maximum number of connections to one datanode that carry many short reads each; the client starts with one. 0:
    /// each read has its own.
    HEARTH_CLIENT_MULTIPLEX_CONNECTIONS: Key<u32> = "hearth.client.multiplex.connections", int_u32, "16";
    /// Maximum bytes requested and not received on one such connection. If a round trip takes 2 ms or more, also at most
    /// what the connection delivers in a quarter of a second.
    HEARTH_CLIENT_MULTIPLEX_BYTES: Key<u64> = "hearth.client.multiplex.bytes", bytes, "4194304" in ("64k"..="1g");
    /// Longest range that is read over a shared connection, in bytes; longer ones have a connection of their own.
    HEARTH_CLIENT_MULTIPLEX_RANGE_BYTES: Key<u64> = "hearth.client.multiplex.range.bytes", bytes, "262144";
    /// Memory that a client lends to a datanode on its own machine for answers, in bytes per shared connection. 0:
    /// none; answers arrive over the socket.
    HEARTH_CLIENT_MULTIPLEX_MEMORY_BYTES: Key<u64> = "hearth.client.multiplex.memory.bytes", bytes, "8388608" in ("0"..="64m");
    /// Maximum bytes that one system call of a reader fetches; also the limit of what it holds ahead of its caller.
    HEARTH_CLIENT_READ_BUFFER_BYTES: Key<u64> = "hearth.client.read.buffer.bytes", bytes, "524288" in ("64k"..="8m");
    /// Maximum bytes of local replicas that stay mapped after their last reader. The last one stays, whatever its length.
    HEARTH_CLIENT_MAPPED_MAX: Key<u64> = "hearth.client.mapped.max", bytes, "34359738368" in ("1m"..);
}
