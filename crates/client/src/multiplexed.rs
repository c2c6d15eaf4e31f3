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
mod failure;
mod scaling;
mod shared_memory;
#[cfg(test)]
pub(crate) mod tests;
mod window;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use hearth_protocol::data_transfer::TransferError;
use hearth_types::DatanodeId;
use hearth_wire::data_transfer::OpCode;
use parking_lot::Mutex;

use crate::DatanodeError;
use crate::datanode::Datanodes;
use crate::options::MultiplexOptions;
pub(crate) use connection::WantedRange;
pub(crate) use connection_pool::{ConnectionPool, Endpoint, Outcome};

/// Maximum number of datanodes remembered.
const DATANODES_MAX: usize = 4096;

/// Shared connections over TCP of a file system and its clones.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    options: MultiplexOptions,
    datanodes: Arc<Datanodes>,
    pools: Mutex<HashMap<SocketAddr, Arc<ConnectionPool>>>,
}

impl Multiplexed {
    pub(crate) fn new(options: MultiplexOptions, datanodes: Arc<Datanodes>) -> Self {
        Self { options, datanodes, pools: Mutex::default() }
    }

    /// Returns true if a range of this length is read by READ_MANY.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        self.options.connections_max > 0 && bytes <= self.options.range_bytes
    }

    /// Returns the shared connections to `datanode`, or `None` if it does not support them or recently violated the
    /// protocol.
    ///
    /// Errors: the datanode cannot be reached for DESCRIBE.
    pub(crate) async fn connection_pool(
        &self,
        datanode: &DatanodeId,
    ) -> Result<Option<Arc<ConnectionPool>>, DatanodeError> {
        let offer = match self.datanodes.offer(datanode).await {
            Ok(offer) => offer,
            // READ_BLOCK would not reach it either, after an equally long wait.
            Err(error @ DatanodeError::Transfer(TransferError::Connection(_))) => return Err(error),
            Err(_) => None,
        };
        if !offer.is_some_and(|offer| offer.serves(OpCode::ReadMany)) {
            return Ok(None);
        }
        let address = self.datanodes.address(datanode, datanode.transfer_port).await?;
        Ok(self.to(address))
    }

    /// Returns the connections to the datanode at `address`, or `None` if it recently failed to use the protocol.
    fn to(&self, address: SocketAddr) -> Option<Arc<ConnectionPool>> {
        let mut pools = self.pools.lock();
        if pools.len() >= DATANODES_MAX && !pools.contains_key(&address) {
            pools.clear();
        }
        let make = || {
            Arc::new(ConnectionPool::new(
                Endpoint::Tcp(address),
                self.options.clone(),
                self.datanodes.client_name.clone(),
            ))
        };
        let connection_pool = pools.entry(address).or_insert_with(make);
        connection_pool.is_enabled().then(|| Arc::clone(connection_pool))
    }
}
