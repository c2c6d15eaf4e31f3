use std::time::Duration;

use hearth_config::{ConfigError, Configuration, Program, keys, parse};

use super::StoragePolicy;

/// Default ports of a datanode that has never registered.
#[derive(Clone, Copy, Debug)]
pub struct DatanodePorts {
    /// `dfs.datanode.address`.
    pub transfer: u16,
    /// `dfs.datanode.http.address`.
    pub info: u16,
    /// `dfs.datanode.https.address`.
    pub info_secure: u16,
    /// `dfs.datanode.ipc.address`.
    pub ipc: u16,
}

/// Settings for blocks and datanodes. The defaults are Apache Hadoop 3.4's; the configuration key is given at each
/// field.
#[derive(Clone, Debug)]
pub struct BlockSettings {
    /// `dfs.replication`: the default replication in fsck, and the criterion for an open file when a node is
    /// decommissioned.
    pub default_replication: u16,
    /// `dfs.namenode.replication.min`: finalized replicas that make a committed block complete.
    pub min_replication: u16,
    /// `dfs.replication.max`.
    pub max_replication: u16,
    /// `dfs.namenode.maintenance.replication.min`.
    pub maintenance_min_replication: u16,
    /// `dfs.heartbeat.interval`.
    pub heartbeat_interval: Duration,
    /// `dfs.namenode.heartbeat.recheck-interval`: a node is dead after twice this and ten heartbeats.
    pub heartbeat_recheck: Duration,
    /// `dfs.namenode.stale.datanode.interval`.
    pub stale_after: Duration,
    /// `dfs.namenode.avoid.read.stale.datanode`.
    pub avoid_stale_reads: bool,
    /// `dfs.namenode.avoid.write.stale.datanode`.
    pub avoid_stale_writes: bool,
    /// `dfs.namenode.redundancy.considerLoad`.
    pub consider_load: bool,
    /// `dfs.namenode.redundancy.considerLoad.factor`.
    pub load_factor: f64,
    /// `dfs.namenode.replication.max-streams`: transfers that one node runs at a time as source.
    pub max_streams: u32,
    /// `dfs.namenode.replication.max-streams-hard-limit`: the same for blocks with a single replica left.
    pub max_streams_hard: u32,
    /// `hearth.namenode.replication.window`: bytes that a node that awaits work is asked to send at a time, for any
    /// number of blocks from `max_streams` up.
    pub transfer_window: u64,
    /// `dfs.namenode.reconstruction.pending.timeout-sec`.
    pub pending_timeout: Duration,
    /// Time after which the command to lock replicas is repeated (`dfs.namenode.path.based.cache.retry.interval.ms`).
    pub cache_retry: Duration,
    /// `dfs.block.invalidate.limit`: replicas that the answer to one heartbeat can ask a node to delete.
    pub invalidate_limit: usize,
    /// `dfs.namenode.startup.delay.block.deletion.sec`.
    pub deletion_delay: Duration,
    /// `dfs.namenode.max.full.block.report.leases`.
    pub report_leases: usize,
    /// `dfs.namenode.full.block.report.lease.length.ms`.
    pub report_lease_length: Duration,
    /// `dfs.namenode.safemode.threshold-pct`: fraction of the complete blocks, 0 to 1; above 1 safe mode never ends by
    /// itself.
    pub safe_threshold: f64,
    /// `dfs.namenode.safemode.min.datanodes`.
    pub safe_min_datanodes: usize,
    /// `dfs.namenode.safemode.replication.min`; defaults to `min_replication`.
    pub safe_replication: u16,
    /// `dfs.namenode.safemode.extension`.
    pub safe_extension: Duration,
    /// `dfs.namenode.decommission.interval`.
    pub decommission_interval: Duration,
    /// `dfs.storage.policy.enabled` and `dfs.storage.default.policy`: id of the policy of files without one.
    pub default_policy: u8,
    pub datanode_ports: DatanodePorts,
    /// `dfs.block.access.token.enable`.
    pub block_tokens: bool,
    /// `hearth.namenode.advertisements.max`: limit of the memory announcements that are kept, in bytes; 0 keeps none
    /// and passes none on.
    pub advertisement_bytes_max: usize,
}

impl Default for BlockSettings {
    fn default() -> Self {
        Self {
            default_replication: 3,
            min_replication: 1,
            max_replication: 512,
            maintenance_min_replication: 1,
            heartbeat_interval: Duration::from_secs(3),
            heartbeat_recheck: Duration::from_secs(300),
            stale_after: Duration::from_secs(30),
            avoid_stale_reads: false,
            avoid_stale_writes: false,
            consider_load: true,
            load_factor: 2.0,
            max_streams: 2,
            max_streams_hard: 4,
            transfer_window: 64 << 20,
            pending_timeout: Duration::from_secs(300),
            cache_retry: Duration::from_secs(30),
            invalidate_limit: 1000,
            deletion_delay: Duration::ZERO,
            report_leases: 6,
            report_lease_length: Duration::from_secs(300),
            safe_threshold: 0.999,
            safe_min_datanodes: 0,
            safe_replication: 1,
            safe_extension: Duration::from_secs(30),
            decommission_interval: Duration::from_secs(30),
            default_policy: 7,
            datanode_ports: DatanodePorts { transfer: 9866, info: 9864, info_secure: 9865, ipc: 9867 },
            block_tokens: false,
            advertisement_bytes_max: 64 << 20,
        }
    }
}

impl BlockSettings {
    pub fn from_configuration(configuration: &Configuration) -> Result<Self, ConfigError> {
        let narrow = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        configuration.refuse_contradictions(Program::Namenode)?;
        let min_replication = narrow(configuration.get(keys::DFS_NAMENODE_REPLICATION_MIN)?);
        let policy = configuration.get(keys::DFS_STORAGE_DEFAULT_POLICY)?;
        let default_policy = StoragePolicy::by_name(&policy).ok_or_else(|| {
            configuration.value_error(keys::DFS_STORAGE_DEFAULT_POLICY.name, &policy, "the name of a storage policy")
        })?;
        Ok(Self {
            default_replication: configuration.get(keys::DFS_REPLICATION)?,
            min_replication,
            max_replication: narrow(configuration.get(keys::DFS_REPLICATION_MAX)?),
            maintenance_min_replication: narrow(configuration.get(keys::DFS_NAMENODE_MAINTENANCE_REPLICATION_MIN)?),
            heartbeat_interval: configuration.get(keys::DFS_HEARTBEAT_INTERVAL)?,
            heartbeat_recheck: configuration.get(keys::DFS_NAMENODE_HEARTBEAT_RECHECK_INTERVAL)?,
            stale_after: configuration.get(keys::DFS_NAMENODE_STALE_DATANODE_INTERVAL)?,
            avoid_stale_reads: configuration.get(keys::DFS_NAMENODE_AVOID_READ_STALE_DATANODE)?,
            avoid_stale_writes: configuration.get(keys::DFS_NAMENODE_AVOID_WRITE_STALE_DATANODE)?,
            consider_load: configuration.get(keys::DFS_NAMENODE_REDUNDANCY_CONSIDER_LOAD)?,
            load_factor: configuration.get(keys::DFS_NAMENODE_REDUNDANCY_CONSIDER_LOAD_FACTOR)?,
            max_streams: configuration.get(keys::DFS_NAMENODE_REPLICATION_MAX_STREAMS)?,
            max_streams_hard: configuration.get(keys::DFS_NAMENODE_REPLICATION_MAX_STREAMS_HARD_LIMIT)?,
            transfer_window: configuration.get(keys::HEARTH_NAMENODE_REPLICATION_WINDOW)?,
            pending_timeout: configuration.get(keys::DFS_NAMENODE_RECONSTRUCTION_PENDING_TIMEOUT)?,
            cache_retry: configuration.get(keys::DFS_NAMENODE_PATH_BASED_CACHE_RETRY_INTERVAL)?,
            invalidate_limit: configuration.get(keys::DFS_BLOCK_INVALIDATE_LIMIT)? as usize,
            deletion_delay: configuration.get(keys::DFS_NAMENODE_STARTUP_DELAY_BLOCK_DELETION)?,
            report_leases: configuration.get(keys::DFS_NAMENODE_MAX_FULL_BLOCK_REPORT_LEASES)? as usize,
            report_lease_length: configuration.get(keys::DFS_NAMENODE_FULL_BLOCK_REPORT_LEASE_LENGTH)?,
            safe_threshold: configuration.get(keys::DFS_NAMENODE_SAFEMODE_THRESHOLD_PCT)?,
            safe_min_datanodes: configuration.get(keys::DFS_NAMENODE_SAFEMODE_MIN_DATANODES)? as usize,
            safe_replication: configuration
                .get_as("dfs.namenode.safemode.replication.min", parse::int_u32)?
                .map_or(min_replication, narrow),
            safe_extension: configuration.get(keys::DFS_NAMENODE_SAFEMODE_EXTENSION)?,
            decommission_interval: configuration.get(keys::DFS_NAMENODE_DECOMMISSION_INTERVAL)?,
            default_policy: default_policy.id,
            datanode_ports: DatanodePorts {
                transfer: configuration.get(keys::DFS_DATANODE_ADDRESS)?.port,
                info: configuration.get(keys::DFS_DATANODE_HTTP_ADDRESS)?.port,
                info_secure: configuration.get(keys::DFS_DATANODE_HTTPS_ADDRESS)?.port,
                ipc: configuration.get(keys::DFS_DATANODE_IPC_ADDRESS)?.port,
            },
            block_tokens: configuration.get(keys::DFS_BLOCK_ACCESS_TOKEN_ENABLE)?,
            advertisement_bytes_max: configuration.get(keys::HEARTH_NAMENODE_ADVERTISEMENTS_MAX)? as usize,
        })
    }

    /// Silence after which a datanode counts as dead: 630 s by default.
    pub fn dead_after(&self) -> Duration {
        self.heartbeat_recheck * 2 + self.heartbeat_interval * 10
    }

    /// Silence after which a datanode counts as stale; never less than three heartbeats.
    pub fn stale_after(&self) -> Duration {
        self.stale_after.max(self.heartbeat_interval * 3)
    }

    /// Shortest time between two attempts to recover one block.
    pub fn recovery_retry(&self) -> Duration {
        self.heartbeat_interval * 30
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictory_replication_limits_are_refused() {
        for (key, value) in [
            ("dfs.namenode.replication.min", "0"),
            ("dfs.namenode.replication.min", "513"),
            ("dfs.replication.max", "32768"),
            ("dfs.namenode.maintenance.replication.min", "4"),
        ] {
            let configuration = Configuration::empty().with(key, value);
            let error = BlockSettings::from_configuration(&configuration).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(value), "{error}");
        }
        let equal = Configuration::empty().with("dfs.namenode.maintenance.replication.min", "3");
        assert_eq!(BlockSettings::from_configuration(&equal).unwrap().maintenance_min_replication, 3);
    }

    #[test]
    fn an_empty_configuration_is_the_default() {
        let settings = BlockSettings::from_configuration(&Configuration::empty()).unwrap();
        assert_eq!(format!("{settings:?}"), format!("{:?}", BlockSettings::default()));
        assert_eq!(settings.dead_after(), Duration::from_secs(630));
        let odd = Configuration::empty().with("dfs.storage.default.policy", "LUKEWARM");
        assert!(BlockSettings::from_configuration(&odd).is_err());
    }
}
