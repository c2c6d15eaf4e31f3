//! Bounds of the connections that clients and other DataNodes open to the data ports.

use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::{ConnectionLimit, ConnectionLimitOptions, MessageMemory, SlowPeerLimits};

use crate::options::TransferOptions;

/// Limits for slow senders of packets while other senders wait for memory. Generous enough for a lost segment or a busy
/// machine.
const PACKET_PATIENCE: SlowPeerLimits =
    SlowPeerLimits { idle_max: Duration::from_secs(5), lag_max: Duration::from_secs(10), bytes_per_second: 4 << 20 };

/// Shared by all data connections, over TCP and the domain socket.
pub struct DataConnections {
    /// Limit of their number.
    pub limit: Arc<ConnectionLimit>,
    /// Memory for long packets and requests that arrive on them.
    pub message_memory: Arc<MessageMemory>,
}

impl DataConnections {
    pub fn new(options: &TransferOptions) -> Self {
        Self {
            limit: ConnectionLimit::new(ConnectionLimitOptions::new(options.connections_max)),
            message_memory: MessageMemory::new(options.message_bytes_max, PACKET_PATIENCE),
        }
    }

    /// Changes the maximum number of connections.
    pub fn set_connections_max(&self, connections_max: usize) {
        self.limit.set_options(ConnectionLimitOptions::new(connections_max));
    }
}
