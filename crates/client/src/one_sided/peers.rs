//! State of each datanode as a one-sided peer: its connection, and whether it failed recently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hearth_types::DatanodeUuid;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::read_connection::ReadConnection;
use crate::single_flight::SingleFlight;

/// Time for which a datanode that could not be reached one-sidedly is not tried while there is another path.
const FAILURE_BACKOFF: Duration = Duration::from_secs(30);

/// Maximum number of datanodes remembered.
const PEERS_MAX: usize = 4096;

/// The datanodes that were used or tried.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<HashMap<DatanodeUuid, Arc<PeerState>>>);

/// State of one datanode.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    pub read_connection: Mutex<Option<Arc<ReadConnection>>>,
    /// Single-flight for opening the connection.
    pub connecting: SingleFlight,
    failed: Mutex<Option<Instant>>,
}

impl Peers {
    /// Returns the state of `datanode`, created if it is missing.
    pub(super) fn get(&self, datanode: &DatanodeUuid) -> Arc<PeerState> {
        let mut peers = self.0.lock();
        if peers.len() >= PEERS_MAX && !peers.contains_key(datanode) {
            // Tasks that use an entry keep their reference to it.
            peers.clear();
        }
        peers.entry(datanode.clone()).or_default().clone()
    }

    pub(super) fn failed_lately(&self, datanode: &DatanodeUuid) -> bool {
        self.0.lock().get(datanode).is_some_and(|peer| peer.failed_lately())
    }
}

impl PeerState {
    /// Returns the connection, if there is one. Drops one that has ended.
    pub(super) fn open_connection(&self) -> Option<Arc<ReadConnection>> {
        let mut read_connection = self.read_connection.lock();
        read_connection.take_if(|read_connection| !read_connection.is_open());
        read_connection.clone()
    }

    /// Drops the connection `ended`. A request may see its end before the connection itself is marked as closed.
    pub(super) fn discard_connection(&self, ended: &Arc<ReadConnection>) {
        self.read_connection.lock().take_if(|read_connection| Arc::ptr_eq(read_connection, ended));
    }

    pub(super) fn failed_lately(&self) -> bool {
        self.failed.lock().is_some_and(|failed| failed.elapsed() < FAILURE_BACKOFF)
    }

    pub(super) fn note_failure(&self) {
        *self.failed.lock() = Some(Instant::now());
    }

    pub(super) fn note_success(&self) {
        *self.failed.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_datanode_is_tried_again_after_a_while() {
        const LITTLE: Duration = Duration::from_millis(1);
        let (peers, uuid) = (Peers::default(), DatanodeUuid("one".into()));
        let peer = peers.get(&uuid);
        assert!(!peers.failed_lately(&uuid));
        peer.note_failure();
        advance(FAILURE_BACKOFF - LITTLE).await;
        assert!(peers.failed_lately(&uuid));
        advance(LITTLE).await;
        assert!(!peers.failed_lately(&uuid));
        peer.note_failure();
        peer.note_success();
        assert!(!peers.failed_lately(&uuid));
    }
}
