//! Settings of writers.

use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys, parse};
use hearth_types::{ChecksumKind, ChecksumSpec};

use crate::data_path::{DataPath, DataPaths};

/// Settings of writers.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    /// Paths that writers may use, in the order in which they are tried.
    pub paths: Vec<DataPath>,
    pub packets: PacketOptions,
    pub block_write_retries: u32,
    pub locate_following: LocateFollowing,
    pub exclude_expiry: Duration,
    pub restart_grace: Duration,
    pub replace: ReplaceOptions,
}

/// Packets of a writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketOptions {
    pub checksum: ChecksumSpec,
    /// Data bytes per packet; a multiple of the chunk size.
    pub data_bytes: usize,
    /// Data bytes per packet when the data is already in the datanode's memory.
    pub placed_bytes: usize,
    /// Maximum number of packets queued or unacknowledged per writer.
    pub in_flight: usize,
}

/// Retries of a call that the namenode refuses because it waits for reports of earlier blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocateFollowing {
    pub retries: u32,
    pub delay: Duration,
    pub delay_max: Duration,
}

/// Replacement of datanodes that a pipeline has lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplaceOptions {
    pub policy: ReplacePolicy,
    pub best_effort: bool,
    pub min_replication: u16,
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

impl WriteOptions {
    pub(super) fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            paths: DataPaths::read(configuration)?.iter().collect(),
            packets: PacketOptions::read(configuration)?,
            block_write_retries: configuration.get(keys::DFS_CLIENT_BLOCK_WRITE_RETRIES)?,
            locate_following: LocateFollowing {
                retries: configuration.get(keys::DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_RETRIES)?,
                delay: configuration.get(keys::DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_INITIAL_DELAY)?,
                delay_max: configuration.get(keys::DFS_CLIENT_LOCATE_FOLLOWING_BLOCK_MAX_DELAY)?,
            },
            exclude_expiry: configuration.get(keys::DFS_CLIENT_EXCLUDE_NODES_CACHE_EXPIRY)?,
            restart_grace: configuration.get(keys::DFS_CLIENT_DATANODE_RESTART_TIMEOUT)?,
            replace: ReplaceOptions {
                policy: replace_policy(configuration)?,
                best_effort: configuration.get(keys::DFS_CLIENT_REPLACE_DATANODE_BEST_EFFORT)?,
                min_replication: configuration.get(keys::DFS_CLIENT_REPLACE_DATANODE_MIN_REPLICATION)?,
            },
        })
    }
}

impl PacketOptions {
    fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        let kind = checksum_kind(configuration)?;
        let bytes_per_chunk = configuration.get(keys::DFS_BYTES_PER_CHECKSUM)?;
        if bytes_per_chunk == 0 || bytes_per_chunk as usize > PACKET_DATA_BYTES_MAX {
            let wanted = format!("wanted 1 to {PACKET_DATA_BYTES_MAX}");
            let value = bytes_per_chunk.to_string();
            return Err(configuration.value_error(keys::DFS_BYTES_PER_CHECKSUM.name, &value, wanted));
        }
        let checksum = ChecksumSpec { kind, bytes_per_chunk };
        let (data_bytes, placed_bytes) = packet_bytes(configuration, checksum)?;
        let packets = configuration.get(keys::DFS_CLIENT_WRITE_MAX_PACKETS_IN_FLIGHT)? as usize;
        Ok(Self { checksum, data_bytes, placed_bytes, in_flight: packets.min(IN_FLIGHT_BYTES / data_bytes).max(4) })
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
        let read = |key: &str, value: &str| PacketOptions::read(&Configuration::empty().with(key, value)).unwrap();
        assert_eq!(read("dfs.client-write-packet-size", "65536").data_bytes, 126 * 512);
        assert_eq!(read("dfs.client-write-packet-size", "65536").in_flight, 80);
        assert_eq!(read("dfs.client-write-packet-size", "1").data_bytes, 512);
        assert_eq!(read("dfs.client-write-packet-size", "65536").placed_bytes, 126 * 512);
        assert_eq!(read("dfs.bytes-per-checksum", "307200").placed_bytes, 900 << 10);
        assert_eq!(read("hearth.client.packet.bytes", "1g").data_bytes, PACKET_DATA_BYTES_MAX);
        assert_eq!(read("hearth.client.packet.bytes", "1g").in_flight, 4);
        assert!(PacketOptions::read(&Configuration::empty().with("dfs.checksum.type", "MD5")).is_err());
        assert!(PacketOptions::read(&Configuration::empty().with("dfs.bytes-per-checksum", "0")).is_err());
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
