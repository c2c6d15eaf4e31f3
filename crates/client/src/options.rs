//! Settings of the client, read once from the configuration.

mod paths;

use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys, parse};
use hearth_protocol::data_transfer::Timeouts;
use hearth_types::{ChecksumKind, ChecksumSpec, FsPermission};

use crate::data_path::{DataPath, DataPaths};
pub(crate) use paths::{MultiplexOptions, OneSidedOptions, ShortCircuitOptions, SocketPaths};

/// Kind of a file's checksum: `dfs.checksum.combine.mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChecksumCombine {
    #[default]
    Md5Md5Crc,
    CompositeCrc,
}

/// Policy that decides whether a pipeline that lost a datanode needs a replacement.
/// Source: `dfs.client.block.write.replace-datanode-on-failure.policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplacePolicy {
    Never,
    Default,
    Always,
}

impl ReplacePolicy {
    /// Returns true if the pipeline needs another datanode. `replication`: of the file. `live`: datanodes left in the
    /// pipeline. `appended_or_flushed`: a reader may have seen bytes of the block that only these datanodes hold.
    pub(crate) fn wants_replacement(self, replication: u16, live: usize, appended_or_flushed: bool) -> bool {
        match self {
            Self::Never => false,
            Self::Always => live < usize::from(replication),
            Self::Default => {
                let replication = usize::from(replication);
                live < replication && replication >= 3 && (live <= replication / 2 || appended_or_flushed)
            }
        }
    }
}

/// Settings of the client, read once from the configuration.
#[derive(Clone, Debug)]
pub(crate) struct ClientOptions {
    pub replication: u16,
    pub block_size: u64,
    pub umask: u16,
    pub checksum: ChecksumSpec,
    pub checksum_combine: ChecksumCombine,
    /// Data bytes per packet; a multiple of the chunk size.
    pub packet_data_bytes: usize,
    /// Data bytes per packet when the data is already in the datanode's memory.
    pub placed_packet_bytes: usize,
    /// Maximum number of packets queued or unacknowledged per writer.
    pub packets_in_flight: usize,
    pub socket_timeout: Duration,
    pub write_timeout: Duration,
    pub use_datanode_hostname: bool,
    pub home_prefix: String,
    pub prefetch_bytes: u64,
    pub restart_grace: Duration,
    pub block_write_retries: u32,
    pub replace_policy: ReplacePolicy,
    pub replace_best_effort: bool,
    pub replace_min_replication: u16,
    pub locate_following_retries: u32,
    pub locate_following_delay: Duration,
    pub locate_following_delay_max: Duration,
    pub exclude_expiry: Duration,
    pub block_acquire_failures: u32,
    pub retry_window: Duration,
    pub last_block_length_retries: u32,
    pub last_block_length_interval: Duration,
    pub connections_kept: usize,
    pub connection_expiry: Duration,
    pub server_defaults_validity: Duration,
    pub connect_retries: u32,
    pub connect_retry_interval: Duration,
    pub failovers_max: u32,
    pub failover_sleep: Duration,
    pub failover_sleep_max: Duration,
    pub lease_hard_limit: Duration,
    pub trash_interval: Duration,
    pub read_buffer_bytes: usize,
    /// Paths that readers may use.
    pub read_paths: DataPaths,
    /// Paths that writers may use, in the order in which they are tried.
    pub write_paths: Vec<DataPath>,
    pub one_sided: OneSidedOptions,
}

/// Longest packet header. `dfs.client-write-packet-size` counts the header, checksums and data of Apache's packets
/// together.
const PACKET_HEADER_BYTES_MAX: usize = 33;

/// Data bytes of a packet unless configured. Packets may be up to 16 MiB on the wire. Larger packets cost fewer system
/// calls and acknowledgements; smaller ones stay in the processor's cache between the checksum and the send.
const PACKET_DATA_BYTES: usize = 256 * 1024;

/// Data bytes of a packet when the data is already in the datanode's memory and the packet carries only CRCs. Cache
/// size does not matter here. Each packet costs both sides the same few system calls and wake-ups, whatever the number
/// of bytes that it covers.
const PLACED_PACKET_BYTES: usize = 1 << 20;

/// Maximum bytes that one writer holds in packets, whatever their number.
const IN_FLIGHT_BYTES: usize = 8 << 20;

/// Upper bound of a packet's data. `dfs.data.transfer.max.packet.size` is 16 MiB and counts the checksums too.
const PACKET_DATA_BYTES_MAX: usize = 8 << 20;

impl ClientOptions {
    pub(crate) fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        let kind = checksum_kind(configuration)?;
        let bytes_per_chunk = configuration.get(keys::DFS_BYTES_PER_CHECKSUM)?;
        if bytes_per_chunk == 0 || bytes_per_chunk as usize > PACKET_DATA_BYTES_MAX {
            let wanted = format!("wanted 1 to {PACKET_DATA_BYTES_MAX}");
            let value = bytes_per_chunk.to_string();
            return Err(configuration.value_error(keys::DFS_BYTES_PER_CHECKSUM.name, &value, wanted));
        }
        let checksum = ChecksumSpec { kind, bytes_per_chunk };
        let (packet_data_bytes, placed_packet_bytes) = packet_bytes(configuration, checksum)?;
        let packets = configuration.get(keys::DFS_CLIENT_WRITE_MAX_PACKETS_IN_FLIGHT)? as usize;
        let block_size = configuration.get(keys::DFS_BLOCKSIZE)?;
        let prefetch = configuration.get(keys::DFS_CLIENT_READ_PREFETCH_SIZE)?;
        Ok(Self {
            replication: configuration.get(keys::DFS_REPLICATION)?,
            block_size,
            umask: configuration.get(keys::FS_PERMISSIONS_UMASK_MODE)?,
            checksum,
            checksum_combine: checksum_combine(configuration)?,
            packet_data_bytes,
            placed_packet_bytes,
            packets_in_flight: packets.min(IN_FLIGHT_BYTES / packet_data_bytes).max(4),
            socket_timeout: configuration.timeout(keys::DFS_CLIENT_SOCKET_TIMEOUT)?,
            write_timeout: configuration.timeout(keys::DFS_DATANODE_SOCKET_WRITE_TIMEOUT)?,
            use_datanode_hostname: configuration.get(keys::DFS_CLIENT_USE_DATANODE_HOSTNAME)?,
            home_prefix: configuration.get(keys::DFS_USER_HOME_DIR_PREFIX)?,
            prefetch_bytes: if prefetch == 0 { block_size.saturating_mul(10) } else { prefetch },
            restart_grace: configuration.get(keys::DFS_CLIENT_DATANODE_RESTART_TIMEOUT)?,
            block_write_retries: configuration.get(keys::DFS_CLIENT_BLOCK_WRITE_RETRIES)?,
            replace_policy: replace_policy(configuration)?,
            replace_best_effort: configuration.get(keys::DFS_CLIENT_REPLACE_DATANODE_BEST_EFFORT)?,
            replace_min_replication: configuration.get(keys::DFS_CLIENT_REPLACE_DATANODE_MIN_REPLICATION)?,
            locate_following_retries: configuration.get(keys::DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_RETRIES)?,
            locate_following_delay: configuration.get(keys::DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_INITIAL_DELAY)?,
            locate_following_delay_max: configuration.get(keys::DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_MAX_DELAY)?,
            exclude_expiry: configuration.get(keys::DFS_CLIENT_EXCLUDE_NODES_CACHE_EXPIRY)?,
            block_acquire_failures: configuration.get(keys::DFS_CLIENT_MAX_BLOCK_ACQUIRE_FAILURES)?,
            retry_window: configuration.get(keys::DFS_CLIENT_RETRY_WINDOW_BASE)?,
            last_block_length_retries: configuration.get(keys::DFS_CLIENT_RETRY_TIMES_GET_LAST_BLOCK_LENGTH)?,
            last_block_length_interval: configuration.get(keys::DFS_CLIENT_RETRY_INTERVAL_GET_LAST_BLOCK_LENGTH)?,
            connections_kept: configuration.get(keys::DFS_CLIENT_SOCKETCACHE_CAPACITY)? as usize,
            connection_expiry: configuration.get(keys::DFS_CLIENT_SOCKETCACHE_EXPIRY)?,
            server_defaults_validity: configuration.get(keys::DFS_CLIENT_SERVER_DEFAULTS_VALIDITY_PERIOD)?,
            connect_retries: configuration.get(keys::IPC_CLIENT_CONNECT_MAX_RETRIES)?,
            connect_retry_interval: configuration.get(keys::IPC_CLIENT_CONNECT_RETRY_INTERVAL)?,
            failovers_max: configuration.get(keys::DFS_CLIENT_FAILOVER_MAX_ATTEMPTS)?,
            failover_sleep: configuration.get(keys::DFS_CLIENT_FAILOVER_SLEEP_BASE)?,
            failover_sleep_max: configuration.get(keys::DFS_CLIENT_FAILOVER_SLEEP_MAX)?,
            lease_hard_limit: configuration.get(keys::DFS_NAMENODE_LEASE_HARD_LIMIT)?,
            trash_interval: configuration.get(keys::FS_TRASH_INTERVAL)?,
            read_buffer_bytes: (configuration.get(keys::HEARTH_CLIENT_READ_BUFFER_BYTES)? as usize)
                .clamp(64 * 1024, 8 << 20),
            read_paths: DataPaths::read(configuration)?.for_reading(configuration)?,
            write_paths: DataPaths::read(configuration)?.iter().collect(),
            one_sided: OneSidedOptions::read(configuration)?,
        })
    }

    /// Returns the permission of a new file after and before the umask. `wanted`: 0666 when `None`.
    pub(crate) fn file_permission(&self, wanted: Option<FsPermission>) -> (FsPermission, FsPermission) {
        let unmasked = wanted.unwrap_or(FsPermission(0o666));
        (unmasked.without(self.umask), unmasked)
    }

    pub(crate) fn directory_permission(&self, wanted: Option<FsPermission>) -> (FsPermission, FsPermission) {
        let unmasked = wanted.unwrap_or(FsPermission(0o777));
        (unmasked.without(self.umask), unmasked)
    }

    /// Time-outs of a reader.
    pub(crate) fn read_timeouts(&self) -> Timeouts {
        Timeouts { connect: self.socket_timeout, read: self.socket_timeout, write: self.write_timeout }
    }

    /// Interval at which an idle writer sends heartbeats: half of its own socket time-out, but at most 30 s, which is
    /// half of the datanodes' default time-out.
    pub(crate) fn heartbeat(&self) -> Duration {
        (self.socket_timeout / 2).min(Duration::from_secs(30))
    }

    /// Time-outs of a writer whose pipeline has this number of `datanodes`.
    pub(crate) fn pipeline_timeouts(&self, datanodes: usize) -> Timeouts {
        self.read_timeouts().with_targets(datanodes)
    }
}

/// Returns the data bytes per packet: `hearth.client.packet.bytes` if that is set, else `dfs.client-write-packet-size`
/// if that is set, else our own choice. The second value is for packets whose data is already in the datanode's memory.
fn packet_bytes(configuration: &Configuration, checksum: ChecksumSpec) -> Result<(usize, usize), ConfigError> {
    let chunk = checksum.bytes_per_chunk as usize;
    let own = configuration.get(keys::HEARTH_CLIENT_PACKET_BYTES)? as usize;
    let (bytes, placed) = if own > 0 {
        (own, own)
    } else if configuration.is_set(keys::DFS_CLIENT_WRITE_PACKET_SIZE.name) {
        let whole = configuration.get(keys::DFS_CLIENT_WRITE_PACKET_SIZE)? as usize;
        let data = whole.saturating_sub(PACKET_HEADER_BYTES_MAX) / (chunk + checksum.kind.size()) * chunk;
        (data, data)
    } else {
        (PACKET_DATA_BYTES, PLACED_PACKET_BYTES)
    };
    let whole_chunks = |bytes: usize| (bytes.min(PACKET_DATA_BYTES_MAX) / chunk).max(1) * chunk;
    Ok((whole_chunks(bytes), whole_chunks(placed)))
}

fn checksum_combine(configuration: &Configuration) -> Result<ChecksumCombine, ConfigError> {
    let name = configuration.get(keys::DFS_CHECKSUM_COMBINE_MODE)?;
    match name.as_str() {
        "MD5MD5CRC" => Ok(ChecksumCombine::Md5Md5Crc),
        "COMPOSITE_CRC" => Ok(ChecksumCombine::CompositeCrc),
        _ => {
            let wanted = "wanted MD5MD5CRC or COMPOSITE_CRC";
            Err(configuration.value_error(keys::DFS_CHECKSUM_COMBINE_MODE.name, &name, wanted))
        }
    }
}

fn checksum_kind(configuration: &Configuration) -> Result<ChecksumKind, ConfigError> {
    let name = configuration.get(keys::DFS_CHECKSUM_TYPE)?;
    match name.as_str() {
        "CRC32C" => Ok(ChecksumKind::Crc32c),
        "CRC32" => Ok(ChecksumKind::Crc32),
        "NULL" => Ok(ChecksumKind::Null),
        _ => Err(configuration.value_error(keys::DFS_CHECKSUM_TYPE.name, &name, "wanted CRC32C, CRC32 or NULL")),
    }
}

fn replace_policy(configuration: &Configuration) -> Result<ReplacePolicy, ConfigError> {
    if !configuration.get(keys::DFS_CLIENT_REPLACE_DATANODE_ENABLE)? {
        return Ok(ReplacePolicy::Never);
    }
    let key = keys::DFS_CLIENT_REPLACE_DATANODE_POLICY;
    let name = configuration.get_as(key.name, parse::text)?.unwrap_or_else(|| key.default.to_owned());
    match name.to_ascii_uppercase().as_str() {
        "NEVER" => Ok(ReplacePolicy::Never),
        "DEFAULT" => Ok(ReplacePolicy::Default),
        "ALWAYS" => Ok(ReplacePolicy::Always),
        _ => Err(configuration.value_error(key.name, &name, "wanted DEFAULT, NEVER or ALWAYS")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_whole_chunks_within_bounds() {
        let read = |key: &str, value: &str| ClientOptions::read(&Configuration::empty().with(key, value)).unwrap();
        assert_eq!(read("dfs.client-write-packet-size", "65536").packet_data_bytes, 126 * 512);
        assert_eq!(read("dfs.client-write-packet-size", "65536").packets_in_flight, 80);
        assert_eq!(read("dfs.client-write-packet-size", "1").packet_data_bytes, 512);
        assert_eq!(read("dfs.client-write-packet-size", "65536").placed_packet_bytes, 126 * 512);
        assert_eq!(read("dfs.bytes-per-checksum", "307200").placed_packet_bytes, 900 << 10);
        assert_eq!(read("hearth.client.packet.bytes", "1g").packet_data_bytes, PACKET_DATA_BYTES_MAX);
        assert_eq!(read("hearth.client.packet.bytes", "1g").packets_in_flight, 4);
        assert!(ClientOptions::read(&Configuration::empty().with("dfs.checksum.type", "MD5")).is_err());
        assert!(ClientOptions::read(&Configuration::empty().with("dfs.bytes-per-checksum", "0")).is_err());
    }

    #[test]
    fn zero_timeout_means_the_longest() {
        let configuration = Configuration::empty()
            .with("dfs.client.socket-timeout", "0")
            .with("dfs.datanode.socket.write.timeout", "0");
        let options = ClientOptions::read(&configuration).unwrap();
        let longest = Configuration::TIMEOUT_MAX;
        assert_eq!(options.read_timeouts(), Timeouts { connect: longest, read: longest, write: longest });
        // The datanodes' own time-out still applies, so heartbeats are still sent.
        assert_eq!(options.heartbeat(), Duration::from_secs(30));
        assert_eq!(ClientOptions::read(&Configuration::empty()).unwrap().heartbeat(), Duration::from_secs(30));
    }

    #[test]
    fn default_policy_decides_about_replacement() {
        let policy = ReplacePolicy::Default;
        assert!(!policy.wants_replacement(3, 2, false));
        assert!(policy.wants_replacement(3, 2, true));
        assert!(policy.wants_replacement(3, 1, false));
        assert!(!policy.wants_replacement(2, 1, true));
        assert!(!policy.wants_replacement(3, 3, true));
        assert!(!ReplacePolicy::Never.wants_replacement(3, 1, true));
        assert!(ReplacePolicy::Always.wants_replacement(2, 1, false));
    }
}
