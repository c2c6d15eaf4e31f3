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

use hearth_fabric::tcp::{self, Connection, SocketOptions};
use hearth_fabric::{local, stream};
use hearth_types::{ByteRange, ExtendedBlock, Token};
use parking_lot::Mutex;

use crate::options::MultiplexOptions;
pub(crate) use connection_pool::{ConnectionPool, Outcome};

/// Maximum number of datanodes remembered.
const DATANODES_MAX: usize = 4096;

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
