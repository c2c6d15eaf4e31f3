//! Settings of the client, read once from the configuration.

mod paths;
mod write;

use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys};
use hearth_protocol::data_transfer::Timeouts;
use hearth_types::FsPermission;

use crate::data_path::DataPaths;
pub(crate) use paths::{MultiplexOptions, OneSidedOptions, ShortCircuitOptions, SocketPaths};
pub(crate) use write::{PacketOptions, WriteOptions};

/// Kind of a file's checksum: `dfs.checksum.combine.mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChecksumCombine {
    #[default]
    /// MD5 of the MD5s of the blocks' CRCs. It depends on block size and bytes per CRC.
    Md5Md5Crc,
    /// One CRC of the file's bytes. It does not depend on how the file is cut into blocks.
    CompositeCrc,
}

/// All settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientOptions {
    pub replication: u16,
    pub block_size: u64,
    pub umask: u16,
    pub checksum_combine: ChecksumCombine,
    pub home_prefix: String,
    pub server_defaults_validity: Duration,
    pub lease_hard_limit: Duration,
    pub trash_interval: Duration,
    pub namenode: NamenodeOptions,
    pub datanode: DatanodeOptions,
    pub read: ReadOptions,
    pub write: WriteOptions,
    pub short_circuit: ShortCircuitOptions,
    pub one_sided: OneSidedOptions,
    pub multiplex: MultiplexOptions,
}

/// Retries of calls to the namenode.
#[derive(Clone, Debug)]
pub(crate) struct NamenodeOptions {
    pub connect_retries: u32,
    pub connect_retry_interval: Duration,
    pub failovers_max: u32,
    pub failover_sleep: Duration,
    pub failover_sleep_max: Duration,
}

/// Settings of connections to datanodes.
#[derive(Clone, Debug)]
pub(crate) struct DatanodeOptions {
    pub use_hostname: bool,
    pub socket_timeout: Duration,
    pub write_timeout: Duration,
    pub connections_kept: usize,
    pub connection_expiry: Duration,
    pub read_buffer_bytes: usize,
}

/// Settings of readers.
#[derive(Clone, Debug)]
pub(crate) struct ReadOptions {
    /// Paths that readers may use.
    pub paths: DataPaths,
    pub prefetch_bytes: u64,
    pub block_acquire_failures: u32,
    pub retry_window: Duration,
    pub last_block_length_retries: u32,
    pub last_block_length_interval: Duration,
}

impl ClientOptions {
    pub(crate) fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        let block_size = configuration.get(keys::DFS_BLOCKSIZE)?;
        let datanode = DatanodeOptions::read(configuration)?;
        let multiplex = MultiplexOptions::read(configuration, datanode.read_timeouts())?;
        Ok(Self {
            replication: configuration.get(keys::DFS_REPLICATION)?,
            block_size,
            umask: configuration.get(keys::FS_PERMISSIONS_UMASK_MODE)?,
            checksum_combine: checksum_combine(configuration)?,
            home_prefix: configuration.get(keys::DFS_USER_HOME_DIR_PREFIX)?,
            server_defaults_validity: configuration.get(keys::DFS_CLIENT_SERVER_DEFAULTS_VALIDITY_PERIOD)?,
            lease_hard_limit: configuration.get(keys::DFS_NAMENODE_LEASE_HARD_LIMIT)?,
            trash_interval: configuration.get(keys::FS_TRASH_INTERVAL)?,
            namenode: NamenodeOptions::read(configuration)?,
            read: ReadOptions::read(configuration, block_size)?,
            write: WriteOptions::read(configuration)?,
            short_circuit: ShortCircuitOptions::read(configuration, datanode.read_timeouts(), multiplex.clone())?,
            one_sided: OneSidedOptions::read(configuration)?,
            multiplex,
            datanode,
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
}

impl NamenodeOptions {
    fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            connect_retries: configuration.get(keys::IPC_CLIENT_CONNECT_MAX_RETRIES)?,
            connect_retry_interval: configuration.get(keys::IPC_CLIENT_CONNECT_RETRY_INTERVAL)?,
            failovers_max: configuration.get(keys::DFS_CLIENT_FAILOVER_MAX_ATTEMPTS)?,
            failover_sleep: configuration.get(keys::DFS_CLIENT_FAILOVER_SLEEP_BASE)?,
            failover_sleep_max: configuration.get(keys::DFS_CLIENT_FAILOVER_SLEEP_MAX)?,
        })
    }
}

impl DatanodeOptions {
    pub(crate) fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            use_hostname: configuration.get(keys::DFS_CLIENT_USE_DATANODE_HOSTNAME)?,
            socket_timeout: configuration.timeout(keys::DFS_CLIENT_SOCKET_TIMEOUT)?,
            write_timeout: configuration.timeout(keys::DFS_DATANODE_SOCKET_WRITE_TIMEOUT)?,
            connections_kept: configuration.get(keys::DFS_CLIENT_SOCKETCACHE_CAPACITY)? as usize,
            connection_expiry: configuration.get(keys::DFS_CLIENT_SOCKETCACHE_EXPIRY)?,
            read_buffer_bytes: (configuration.get(keys::HEARTH_CLIENT_READ_BUFFER_BYTES)? as usize)
                .clamp(64 * 1024, 8 << 20),
        })
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

impl ReadOptions {
    fn read(configuration: &Configuration, block_size: u64) -> Result<Self, ConfigError> {
        let prefetch = configuration.get(keys::DFS_CLIENT_READ_PREFETCH_SIZE)?;
        Ok(Self {
            paths: DataPaths::read(configuration)?.for_reading(configuration)?,
            prefetch_bytes: if prefetch == 0 { block_size.saturating_mul(10) } else { prefetch },
            block_acquire_failures: configuration.get(keys::DFS_CLIENT_MAX_BLOCK_ACQUIRE_FAILURES)?,
            retry_window: configuration.get(keys::DFS_CLIENT_RETRY_WINDOW_BASE)?,
            last_block_length_retries: configuration.get(keys::DFS_CLIENT_RETRY_TIMES_GET_LAST_BLOCK_LENGTH)?,
            last_block_length_interval: configuration.get(keys::DFS_CLIENT_RETRY_INTERVAL_GET_LAST_BLOCK_LENGTH)?,
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_timeout_means_the_longest() {
        let configuration = Configuration::empty()
            .with("dfs.client.socket-timeout", "0")
            .with("dfs.datanode.socket.write.timeout", "0");
        let options = DatanodeOptions::read(&configuration).unwrap();
        let longest = Configuration::TIMEOUT_MAX;
        assert_eq!(options.read_timeouts(), Timeouts { connect: longest, read: longest, write: longest });
        // The datanodes' own time-out still applies, so heartbeats are still sent.
        assert_eq!(options.heartbeat(), Duration::from_secs(30));
        assert_eq!(DatanodeOptions::read(&Configuration::empty()).unwrap().heartbeat(), Duration::from_secs(30));
    }
}
