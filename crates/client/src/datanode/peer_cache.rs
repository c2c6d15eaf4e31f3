use std::net::SocketAddr;
use std::time::Duration;

use hearth_fabric::tcp::SocketOptions;
use hearth_protocol::data_transfer::{MESSAGE_BUFFER_BYTES, Timeouts, connect};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::peer::Peer;
use crate::DatanodeError;
use crate::options::DatanodeOptions;

/// Cache of connections that finished a read and can serve another one. The newest is last; at most `idle_max` are
/// kept.
#[derive(Debug)]
pub(crate) struct PeerCache {
    idle: Mutex<Vec<(Peer, Instant)>>,
    idle_max: usize,
    /// Must be shorter than the time that datanodes wait for another request.
    expiry: Duration,
    /// Bytes that a reader fetches per system call.
    buffer_bytes: usize,
}

impl PeerCache {
    pub(crate) fn new(options: &DatanodeOptions) -> Self {
        Self {
            idle: Mutex::new(Vec::new()),
            idle_max: options.connections_kept,
            expiry: options.connection_expiry,
            buffer_bytes: options.read_buffer_bytes,
        }
    }

    /// Opens a connection on which packets will arrive.
    pub(crate) async fn connect_for_packets(
        &self,
        address: SocketAddr,
        timeouts: Timeouts,
    ) -> Result<Peer, DatanodeError> {
        let (sender, receiver) = connect(address, None, SocketOptions::default(), self.buffer_bytes, timeouts).await?;
        Ok(Peer { sender, receiver })
    }

    /// Opens a connection on which only responses and acknowledgements will arrive.
    pub(crate) async fn connect_for_messages(
        &self,
        address: SocketAddr,
        timeouts: Timeouts,
    ) -> Result<Peer, DatanodeError> {
        let (sender, receiver) =
            connect(address, None, SocketOptions::default(), MESSAGE_BUFFER_BYTES, timeouts).await?;
        Ok(Peer { sender, receiver })
    }

    /// Returns an idle connection to `address` that, as far as can be seen, the datanode has not closed.
    pub(crate) async fn reuse(&self, address: SocketAddr) -> Option<Peer> {
        loop {
            let mut peer = {
                let mut idle = self.idle.lock();
                idle.retain(|(_, since)| since.elapsed() < self.expiry);
                let at = idle.iter().rposition(|(peer, _)| peer.receiver.peer() == address)?;
                idle.remove(at).0
            };
            if !peer.receiver.wait_closed(Duration::ZERO).await {
                return Some(peer);
            }
        }
    }

    /// Returns a connection that is between requests to the cache.
    pub(crate) fn keep(&self, peer: Peer) {
        if self.idle_max == 0 || peer.receiver.has_unread() {
            return;
        }
        let mut idle = self.idle.lock();
        while idle.len() >= self.idle_max {
            idle.remove(0);
        }
        idle.push((peer, Instant::now()));
    }
}
