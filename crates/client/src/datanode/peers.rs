use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hearth_fabric::tcp::{ReceiveBuffer, SocketOptions, connect};
use hearth_wire::data_transfer::PACKET_BYTES_MAX;
use parking_lot::Mutex;

use super::Peer;
use crate::DatanodeError;

/// Connections that finished a read and may serve another: the youngest last, at most `kept` of them.
#[derive(Debug)]
pub(crate) struct Peers {
    idle: Mutex<Vec<(Peer, Instant)>>,
    kept: usize,
    expiry: Duration,
    buffer_bytes: usize,
}

/// Room for the longest packet together with its length fields.
const RECEIVE_BYTES_MAX: usize = PACKET_BYTES_MAX + 64;

impl Peers {
    /// `kept`: connections; `expiry`: shorter than the datanodes wait for another request; `buffer_bytes`: what one system
    /// call of a reader fetches.
    pub(crate) fn new(kept: usize, expiry: Duration, buffer_bytes: usize) -> Self {
        Self { idle: Mutex::new(Vec::new()), kept, expiry, buffer_bytes }
    }

    pub(crate) async fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<Peer, DatanodeError> {
        let connection = connect(address, None, SocketOptions::default(), timeout).await?;
        Ok(Peer { connection, buffer: ReceiveBuffer::new(self.buffer_bytes, RECEIVE_BYTES_MAX) })
    }

    /// An idle connection to `address` that the datanode has not closed, as far as one can see.
    pub(crate) async fn reuse(&self, address: SocketAddr) -> Option<Peer> {
        loop {
            let peer = {
                let mut idle = self.idle.lock();
                idle.retain(|(_, since)| since.elapsed() < self.expiry);
                let at = idle.iter().rposition(|(peer, _)| peer.connection.peer() == address)?;
                idle.remove(at).0
            };
            if !peer.connection.wait_closed(Duration::ZERO).await {
                return Some(peer);
            }
        }
    }

    /// Keeps a connection that is between requests.
    pub(crate) fn keep(&self, peer: Peer) {
        if self.kept == 0 || !peer.buffer.available().is_empty() {
            return;
        }
        let mut idle = self.idle.lock();
        while idle.len() >= self.kept {
            idle.remove(0);
        }
        idle.push((peer, Instant::now()));
    }
}
