use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hearth_fabric::tcp::SocketOptions;
use hearth_protocol::data_transfer::{MESSAGE_BUFFER_BYTES, Timeouts, connect};
use parking_lot::Mutex;

use super::Peer;
use crate::DatanodeError;

/// Connections that finished a read and may serve another: the youngest last, at most `idle_max` of them.
#[derive(Debug)]
pub(crate) struct PeerCache {
    idle: Mutex<Vec<(Peer, Instant)>>,
    idle_max: usize,
    expiry: Duration,
    buffer_bytes: usize,
}

impl PeerCache {
    /// `idle_max`: connections; `expiry`: shorter than the datanodes wait for another request; `buffer_bytes`: what one system
    /// call of a reader fetches.
    pub(crate) fn new(idle_max: usize, expiry: Duration, buffer_bytes: usize) -> Self {
        Self { idle: Mutex::new(Vec::new()), idle_max, expiry, buffer_bytes }
    }

    /// A connection that packets will come on.
    pub(crate) async fn connect_for_packets(
        &self,
        address: SocketAddr,
        timeouts: Timeouts,
    ) -> Result<Peer, DatanodeError> {
        let (sender, receiver) = connect(address, None, SocketOptions::default(), self.buffer_bytes, timeouts).await?;
        Ok(Peer { sender, receiver })
    }

    /// A connection that only answers and acknowledgements will come on.
    pub(crate) async fn connect_for_messages(
        &self,
        address: SocketAddr,
        timeouts: Timeouts,
    ) -> Result<Peer, DatanodeError> {
        let (sender, receiver) =
            connect(address, None, SocketOptions::default(), MESSAGE_BUFFER_BYTES, timeouts).await?;
        Ok(Peer { sender, receiver })
    }

    /// An idle connection to `address` that the datanode has not closed, as far as one can see.
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

    /// Keeps a connection that is between requests.
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
