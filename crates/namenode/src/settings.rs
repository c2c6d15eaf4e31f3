//! The NameNode's settings, read once from the configuration at start.

use std::path::PathBuf;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, IneffectiveSetting, Program, keys};
use hearth_types::{ChecksumKind, ChecksumSpec, ServerDefaults};

use crate::blocks::BlockSettings;
use crate::leases::LeaseLimits;
use crate::namespace::Limits;

/// All settings except those of blocks and leases.
#[derive(Clone, Debug)]
pub struct Settings {
    pub limits: Limits,
    pub leases: LeaseLimits,
    pub blocks: BlockSettings,
    pub defaults: ServerDefaults,
    /// `dfs.ls.limit`.
    pub listing_max: usize,
    /// `dfs.batched.ls.limit`.
    pub batched_paths_max: usize,
    /// `dfs.content-summary.limit`: files and directories that are summed up before the lock is released for a moment.
    pub summed_max: usize,
    /// `dfs.namenode.list.openfiles.num.responses`.
    pub open_files_max: usize,
    /// `dfs.namenode.max-corrupt-file-blocks-returned`.
    pub corrupt_files_max: usize,
    /// `dfs.namenode.retrycache.expirytime.millis`; `None` if the cache is off.
    pub retry_lifetime: Option<Duration>,
    /// `hearth.namenode.journal.bytes`.
    pub journal_bytes: u64,
    /// `dfs.namenode.resource.du.reserved`, bytes.
    pub disk_reserved: u64,
    /// `dfs.namenode.lease-recheck-interval-ms`.
    pub lease_recheck: Duration,
    /// `dfs.namenode.xattrs.enabled`.
    pub xattrs_enabled: bool,
    /// `dfs.namenode.acls.enabled`.
    pub acls_enabled: bool,
    /// `dfs.quota.by.storage.type.enabled`.
    pub type_quotas_enabled: bool,
    pub caching: CachingSettings,
    /// `hadoop.http.staticuser.user`.
    pub http_user: String,
    /// The name of this machine, for messages.
    pub host_name: String,
}

/// Settings of cache directives.
#[derive(Clone, Debug)]
pub struct CachingSettings {
    /// `dfs.namenode.caching.enabled`.
    pub enabled: bool,
    /// `dfs.namenode.path.based.cache.refresh.interval.ms`.
    pub refresh: Duration,
    /// `dfs.namenode.list.cache.directives.num.responses`.
    pub directives_listed_max: usize,
    /// `dfs.namenode.list.cache.pools.num.responses`.
    pub pools_listed_max: usize,
}

impl Settings {
    /// Errors give key, value and file.
    pub fn read(conf: &Configuration, host_name: String) -> Result<Self, ConfigError> {
        conf.refuse_protection()?;
        conf.refuse_contradictions(Program::Namenode)?;
        conf.ineffective_settings(Program::Namenode)?.iter().for_each(IneffectiveSetting::warn);
        let checksum_name = conf.get(keys::DFS_CHECKSUM_TYPE)?;
        let checksum = checksum_kind(&checksum_name).ok_or_else(|| {
            conf.value_error(keys::DFS_CHECKSUM_TYPE.name, &checksum_name, "wanted NULL, CRC32 or CRC32C")
        })?;
        let blocks = BlockSettings::from_configuration(conf)?;
        Ok(Self {
            limits: limits(conf)?,
            leases: LeaseLimits { hard: conf.get(keys::DFS_NAMENODE_LEASE_HARD_LIMIT)?, ..LeaseLimits::default() },
            defaults: ServerDefaults {
                block_size: conf.get(keys::DFS_BLOCKSIZE)?,
                checksum: ChecksumSpec { kind: checksum, bytes_per_chunk: conf.get(keys::DFS_BYTES_PER_CHECKSUM)? },
                write_packet_bytes: narrow(conf.get(keys::DFS_CLIENT_WRITE_PACKET_SIZE)?),
                replication: conf.get(keys::DFS_REPLICATION)?,
                file_buffer_bytes: narrow(conf.get(keys::DFS_STREAM_BUFFER_SIZE)?),
                encrypt_data_transfer: conf.get(keys::DFS_ENCRYPT_DATA_TRANSFER)?,
                trash_interval_minutes: conf.get(keys::FS_TRASH_INTERVAL)?.as_secs() / 60,
                key_provider_uri: Some(String::new()),
                storage_policy: blocks.default_policy,
                snapshot_trash_root: false,
            },
            listing_max: at_least_one(conf.get(keys::DFS_LS_LIMIT)?),
            batched_paths_max: at_least_one(conf.get(keys::DFS_BATCHED_LS_LIMIT)?),
            summed_max: match conf.get(keys::DFS_CONTENT_SUMMARY_LIMIT)? {
                0 => usize::MAX,
                limit => limit as usize,
            },
            open_files_max: at_least_one(conf.get(keys::DFS_NAMENODE_LIST_OPENFILES_NUM_RESPONSES)?),
            corrupt_files_max: at_least_one(conf.get(keys::DFS_NAMENODE_MAX_CORRUPT_FILE_BLOCKS_RETURNED)?),
            caching: CachingSettings {
                enabled: conf.get(keys::DFS_NAMENODE_CACHING_ENABLED)?,
                refresh: conf.get(keys::DFS_NAMENODE_PATH_BASED_CACHE_REFRESH_INTERVAL)?,
                directives_listed_max: at_least_one(conf.get(keys::DFS_NAMENODE_LIST_CACHE_DIRECTIVES_NUM_RESPONSES)?),
                pools_listed_max: at_least_one(conf.get(keys::DFS_NAMENODE_LIST_CACHE_POOLS_NUM_RESPONSES)?),
            },
            journal_bytes: conf.get(keys::HEARTH_NAMENODE_JOURNAL_BYTES)?,
            retry_lifetime: if conf.get(keys::DFS_NAMENODE_ENABLE_RETRYCACHE)? {
                Some(conf.get(keys::DFS_NAMENODE_RETRYCACHE_EXPIRYTIME)?)
            } else {
                None
            },
            disk_reserved: conf.get(keys::DFS_NAMENODE_RESOURCE_DU_RESERVED)?,
            lease_recheck: conf.get(keys::DFS_NAMENODE_LEASE_RECHECK_INTERVAL)?,
            xattrs_enabled: conf.get(keys::DFS_NAMENODE_XATTRS_ENABLED)?,
            acls_enabled: conf.get(keys::DFS_NAMENODE_ACLS_ENABLED)?,
            type_quotas_enabled: conf.get(keys::DFS_QUOTA_BY_STORAGE_TYPE_ENABLED)?,
            http_user: conf.get(keys::HADOOP_HTTP_STATICUSER_USER)?,
            host_name,
            blocks,
        })
    }
}

fn narrow<T: TryFrom<u64> + Bounded>(value: u64) -> T {
    T::try_from(value).unwrap_or(T::MAX)
}

trait Bounded {
    const MAX: Self;
}

impl Bounded for u16 {
    const MAX: Self = u16::MAX;
}

impl Bounded for u32 {
    const MAX: Self = u32::MAX;
}

fn at_least_one(count: u32) -> usize {
    count.max(1) as usize
}

fn limits(conf: &Configuration) -> Result<Limits, ConfigError> {
    let snapshots_max = conf.get(keys::DFS_NAMENODE_SNAPSHOT_MAX_LIMIT)? as usize;
    let snapshots_total_max = conf.get(keys::DFS_NAMENODE_SNAPSHOT_FILESYSTEM_LIMIT)? as usize;
    Ok(Limits {
        permissions_enabled: conf.get(keys::DFS_PERMISSIONS_ENABLED)?,
        component_length_max: conf.get(keys::DFS_NAMENODE_FS_LIMITS_MAX_COMPONENT_LENGTH)? as usize,
        directory_items_max: conf.get(keys::DFS_NAMENODE_FS_LIMITS_MAX_DIRECTORY_ITEMS)? as usize,
        block_size_min: conf.get(keys::DFS_NAMENODE_FS_LIMITS_MIN_BLOCK_SIZE)?,
        blocks_per_file_max: conf.get(keys::DFS_NAMENODE_FS_LIMITS_MAX_BLOCKS_PER_FILE)? as usize,
        replication_min: narrow(u64::from(conf.get(keys::DFS_NAMENODE_REPLICATION_MIN)?)),
        replication_max: narrow(u64::from(conf.get(keys::DFS_REPLICATION_MAX)?)),
        access_time_precision_ms: conf.get(keys::DFS_NAMENODE_ACCESSTIME_PRECISION)?.as_millis() as u64,
        xattrs_max: conf.get(keys::DFS_NAMENODE_FS_LIMITS_MAX_XATTRS_PER_INODE)? as usize,
        xattr_bytes_max: conf.get(keys::DFS_NAMENODE_FS_LIMITS_MAX_XATTR_SIZE)? as usize,
        posix_acl_inheritance: conf.get(keys::DFS_NAMENODE_POSIX_ACL_INHERITANCE_ENABLED)?,
        snapshots_max,
        snapshots_total_max,
        owner_sets_quota: conf.get(keys::DFS_PERMISSIONS_ALLOW_OWNER_SET_QUOTA)?,
        snapshots_capture_open_files: conf.get(keys::DFS_NAMENODE_SNAPSHOT_CAPTURE_OPENFILES)?,
        protected: protected_directories(conf.get(keys::FS_PROTECTED_DIRECTORIES)?),
        protects_subdirectories: conf.get(keys::DFS_PROTECTED_SUBDIRECTORIES_ENABLE)?,
        objects_max: conf.get(keys::DFS_NAMENODE_MAX_OBJECTS)?,
        superuser_sets_storage_policy: conf.get(keys::DFS_STORAGE_POLICY_PERMISSIONS_SUPERUSER_ONLY)?,
    })
}

/// Returns the directories of `fs.protected.directories` in the form of a [`Limits`].
pub fn protected_directories(listed: Option<Vec<String>>) -> Vec<String> {
    let without_slash = |path: String| if path.len() > 1 { path.trim_end_matches('/').to_owned() } else { path };
    listed.unwrap_or_default().into_iter().map(without_slash).collect()
}

/// Returns the memory for long RPC requests in bytes: at least one longest request fits.
pub fn message_bytes(conf: &Configuration) -> Result<u64, ConfigError> {
    Ok(conf.get(keys::HEARTH_RPC_MESSAGE_MEMORY)?.max(conf.get(keys::IPC_MAXIMUM_DATA_LENGTH)?))
}

/// Returns the directory of the store: the first of `dfs.namenode.name.dir`.
pub fn store_directory(conf: &Configuration) -> Result<PathBuf, ConfigError> {
    let mut directories = conf.get(keys::DFS_NAMENODE_NAME_DIR)?;
    if directories.len() > 1 {
        tracing::warn!(
            used = %directories[0].display(),
            "dfs.namenode.name.dir lists several directories: the namespace is kept only in the first one"
        );
    }
    if directories.is_empty() {
        return Err(conf.value_error(keys::DFS_NAMENODE_NAME_DIR.name, "", "wanted a directory"));
    }
    Ok(directories.swap_remove(0))
}

/// Parses `dfs.checksum.type`.
fn checksum_kind(name: &str) -> Option<ChecksumKind> {
    Some(match name {
        "NULL" => ChecksumKind::Null,
        "CRC32" => ChecksumKind::Crc32,
        "CRC32C" => ChecksumKind::Crc32c,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_settings_are_refused() {
        let read = |settings: &[(&str, &str)]| {
            let with = |conf: Configuration, (key, value): &(&str, &str)| conf.with(key, *value);
            let conf = settings.iter().fold(Configuration::empty().with("fs.defaultFS", "hdfs://here:8020"), with);
            Settings::read(&conf, "here".into()).map(drop).map_err(|error| error.to_string())
        };
        read(&[]).unwrap();
        let said = read(&[("hadoop.security.authentication", "kerberos")]).unwrap_err();
        assert!(said.contains("hadoop.security.authentication"), "{said}");
        let alone =
            [("dfs.nameservices", "ns"), ("dfs.ha.namenodes.ns", "a"), ("dfs.namenode.rpc-address.ns.a", "here:1")];
        read(&alone).unwrap();
        let pair =
            [("dfs.ha.namenodes.ns", "a,b"), ("dfs.namenode.rpc-address.ns.b", "there:1"), ("dfs.ha.namenode.id", "a")];
        let said = read(&[&alone[..], &pair].concat()).unwrap_err();
        assert!(said.contains("dfs.ha.namenodes.ns") && said.contains("a,b"), "{said}");
    }
}
