//! Settings of the paths to replicas.

use std::sync::Arc;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys};
use hearth_fabric::TransportName;
use hearth_fabric::one_sided::Transport;
use hearth_protocol::data_transfer::Timeouts;
use hearth_wire::data_transfer::ReadMany;

/// Settings of one-sided reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct OneSidedOptions {
    pub transport: Option<Arc<dyn Transport>>,
    /// Time-out of a connection attempt, a request, or a batch of reads.
    pub timeout: Duration,
    /// Maximum bytes of idle registered buffers.
    pub idle_buffer_bytes_max: u64,
}

impl OneSidedOptions {
    pub(crate) fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        let key = keys::HEARTH_ONE_SIDED_TRANSPORT;
        let name = configuration.get(key)?;
        let wrong = || configuration.value_error(key.name, &name, format!("wanted {}", TransportName::ALL));
        let busy_poll = Duration::from_micros(configuration.get(keys::HEARTH_RDMA_BUSY_POLL)?.into());
        let transport = TransportName::parse(&name).ok_or_else(wrong)?.open(None, busy_poll).unwrap_or_else(|error| {
            tracing::debug!(%error, "one-sided reads and writes disabled");
            None
        });
        Ok(Self {
            transport,
            timeout: configuration.get(keys::HEARTH_CLIENT_ONE_SIDED_TIMEOUT)?,
            idle_buffer_bytes_max: configuration.get(keys::HEARTH_CLIENT_ONE_SIDED_BUFFER_BYTES)?,
        })
    }
}

/// Settings of short-circuit reads and local writes.
#[derive(Clone, Debug)]
pub(crate) struct ShortCircuitOptions {
    pub sockets: SocketPaths,
    /// Time for which a failed socket is not tried while there is another path.
    pub disable_interval: Duration,
    pub cache_size: usize,
    /// Maximum bytes of the replicas that stay mapped.
    pub mapped_bytes_max: u64,
    pub cache_expiry: Duration,
    pub connection_expiry: Duration,
    pub timeouts: Timeouts,
    pub multiplex: MultiplexOptions,
}

/// Source of the paths of datanodes' domain sockets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SocketPaths {
    /// The configured path; `_PORT` in it stands for a datanode's transfer port.
    Pattern(String),
    /// The path in each datanode's offer.
    Offered,
    /// Domain sockets are disabled.
    Off,
}

impl ShortCircuitOptions {
    pub(crate) fn read(
        configuration: &Configuration,
        timeouts: Timeouts,
        multiplex: MultiplexOptions,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            sockets: match configuration.get(keys::DFS_DOMAIN_SOCKET_PATH)? {
                Some(path) if !path.is_empty() => SocketPaths::Pattern(path),
                _ if configuration.is_set(keys::DFS_DOMAIN_SOCKET_PATH.name) => SocketPaths::Off,
                _ => SocketPaths::Offered,
            },
            disable_interval: configuration.get(keys::DFS_DOMAIN_SOCKET_DISABLE_INTERVAL)?,
            cache_size: configuration.get(keys::DFS_CLIENT_READ_SHORTCIRCUIT_STREAMS_CACHE_SIZE)? as usize,
            mapped_bytes_max: configuration.get(keys::HEARTH_CLIENT_MAPPED_MAX)?,
            cache_expiry: configuration.get(keys::DFS_CLIENT_READ_SHORTCIRCUIT_STREAMS_CACHE_EXPIRY)?,
            connection_expiry: configuration.get(keys::DFS_CLIENT_SOCKETCACHE_EXPIRY)?,
            timeouts,
            multiplex,
        })
    }
}

/// Round trip below which a datanode counts as near. All bytes that may be outstanding there arrive within a few
/// milliseconds, unless they wait for a disk, and a disk benefits from many ranges at once.
const LAN_ROUND_TRIP_MAX: Duration = Duration::from_millis(2);

/// Settings of connections that many reads share.
#[derive(Clone, Debug)]
pub(crate) struct MultiplexOptions {
    /// Maximum number of connections to one datanode; 0 disables READ_MANY over the transfer port.
    pub connections_max: usize,
    /// Maximum number of bytes requested and not yet received, on one connection.
    pub outstanding_bytes: u32,
    /// With a round trip up to this long, all of `outstanding_bytes` may be requested at once. With a longer one, the
    /// window limits them.
    pub lan_round_trip_max: Duration,
    /// Longest range that is read by READ_MANY.
    pub range_bytes: u64,
    /// Memory lent to a datanode on this machine for its answers on one connection.
    pub memory_bytes: u64,
    /// A connection that is idle for this long is closed.
    pub expiry: Duration,
    pub timeouts: Timeouts,
}

impl MultiplexOptions {
    pub(crate) fn read(configuration: &Configuration, timeouts: Timeouts) -> Result<Self, ConfigError> {
        let outstanding = configuration.get(keys::HEARTH_CLIENT_MULTIPLEX_BYTES)?;
        let range = configuration.get(keys::HEARTH_CLIENT_MULTIPLEX_RANGE_BYTES)?;
        // A range that does not begin on a chunk boundary becomes longer by two chunks.
        let most = u64::from(ReadMany::RANGE_BYTES_MAX) - (128 << 10);
        Ok(Self {
            connections_max: configuration.get(keys::HEARTH_CLIENT_MULTIPLEX_CONNECTIONS)? as usize,
            outstanding_bytes: u32::try_from(outstanding).unwrap_or(u32::MAX).clamp(64 << 10, 1 << 30),
            lan_round_trip_max: LAN_ROUND_TRIP_MAX,
            range_bytes: range.min(most),
            memory_bytes: configuration.get(keys::HEARTH_CLIENT_MULTIPLEX_MEMORY_BYTES)?,
            expiry: configuration.get(keys::DFS_CLIENT_SOCKETCACHE_EXPIRY)?,
            timeouts,
        })
    }
}
