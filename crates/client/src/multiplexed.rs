//! Connections that each carry many reads of many readers (READ_MANY) to Hearth's datanodes, over TCP and over their
//! domain sockets.
//!
//! ```text
//! Multiplexed   one for a file system and its clones: datanodes by address
//!  └ ConnectionPool  one for each endpoint of a datanode: number of connections, and choice among them
//!     └ MultiplexedConnection  one connection: credit, outstanding requests, a task that receives
//!        ├ Window     limit of outstanding bytes, if the round trip is long
//!        └ SharedMemory  memory into which a datanode on this machine puts its answers
//! ```

mod connection;
mod connection_pool;
mod scaling;
mod shared_memory;
#[cfg(test)]
pub(crate) mod tests;
mod window;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys};
use hearth_fabric::tcp::{self, Connection, SocketOptions};
use hearth_fabric::{local, stream};
use hearth_protocol::data_transfer::Timeouts;
use hearth_types::{ByteRange, ExtendedBlock, Token};
use hearth_wire::data_transfer::ReadMany;
use parking_lot::Mutex;

pub(crate) use connection_pool::{ConnectionPool, Outcome};

/// Maximum number of datanodes remembered.
const DATANODES_MAX: usize = 4096;

/// The client's part of the configuration.
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
            lan_round_trip_max: window::LAN_ROUND_TRIP_MAX,
            range_bytes: range.min(most),
            memory_bytes: configuration.get(keys::HEARTH_CLIENT_MULTIPLEX_MEMORY_BYTES)?,
            expiry: configuration.get(keys::DFS_CLIENT_SOCKETCACHE_EXPIRY)?,
            timeouts,
        })
    }
}

/// A requested range of a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedRange<'a> {
    pub block: &'a ExtendedBlock,
    pub token: &'a Token,
    pub range: ByteRange,
}

/// Address at which a datanode listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Socket(PathBuf),
}

impl Endpoint {
    async fn connect(&self, timeout: Duration) -> Result<Connection, stream::Error> {
        match self {
            Self::Tcp(address) => tcp::connect(*address, None, SocketOptions::default(), timeout).await,
            Self::Socket(path) => match tokio::time::timeout(timeout, local::connect(path)).await {
                Ok(connected) => connected,
                Err(_) => {
                    let source = std::io::ErrorKind::TimedOut.into();
                    Err(stream::Error::NoSocket { path: path.clone(), source })
                }
            },
        }
    }
}

/// Shared connections over TCP of a file system and its clones.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    options: MultiplexOptions,
    client_name: String,
    datanodes: Mutex<HashMap<SocketAddr, Arc<ConnectionPool>>>,
}

impl Multiplexed {
    pub(crate) fn new(options: MultiplexOptions, client_name: String) -> Self {
        Self { options, client_name, datanodes: Mutex::default() }
    }

    /// Returns true if a range of this length is read by READ_MANY.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        self.options.connections_max > 0 && bytes <= self.options.range_bytes
    }

    /// Returns the connections to the datanode at `address`, or `None` if it recently failed to use the protocol.
    pub(crate) fn to(&self, address: SocketAddr) -> Option<Arc<ConnectionPool>> {
        let mut datanodes = self.datanodes.lock();
        if datanodes.len() >= DATANODES_MAX && !datanodes.contains_key(&address) {
            datanodes.clear();
        }
        let make =
            || Arc::new(ConnectionPool::new(Endpoint::Tcp(address), self.options.clone(), self.client_name.clone()));
        let connection_pool = datanodes.entry(address).or_insert_with(make);
        connection_pool.is_enabled().then(|| Arc::clone(connection_pool))
    }
}
