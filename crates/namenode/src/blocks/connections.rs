//! The connections on which datanodes are heard. A datanode whose connection has ended is probably gone. Until it is
//! heard again, it is offered to writers only if no other node is left, and to readers last, and no replica is deleted
//! because of those that it has. A datanode that is merely silent keeps its place until it is stale, and its replicas
//! until it is dead. While it is stale, no replica is deleted as excess because of those that it has.

use std::collections::BTreeSet;
use std::time::Duration;

use hearth_types::DatanodeId;

use super::datanodes::DatanodeIndex;
use super::{BlockMap, Now};

/// Number of a connection to this process, not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// Time without calls after which Hadoop's clients close a connection (`ipc.client.connection.maxidletime`, 10 s), less
/// a margin for the network.
const IDLE_CLOSE: Duration = Duration::from_secs(9);

/// Time without calls after which the end of a connection may be that of an idle one, however short the peer's time-out.
const IDLE_CLOSE_MIN: Duration = Duration::from_millis(500);

/// Number of [`Datanode::idle_closes`](super::datanodes::Datanode::idle_closes) from which on the node is known to close
/// idle connections between its heartbeats.
const IDLE_CLOSES_KNOWN: u8 = 2;

/// The datanodes by the connection on which each was heard last. Several datanodes may share one.
pub(super) type ByConnection = BTreeSet<(ConnectionId, DatanodeIndex)>;

impl BlockMap {
    /// Records that a registered datanode has called on this connection, so that it is there. To be called with each
    /// heartbeat, lifeline and awaitWork, before the call is handled, and while the connection is known to be open.
    ///
    /// Not with registrations: they wait for name services, and their connection may have ended before they are
    /// recorded. A heartbeat follows at once.
    pub fn heard_on(&mut self, datanode: &DatanodeId, connection: ConnectionId) {
        if let Some(index) = self.find_datanode(datanode) {
            let node = self.nodes.node_mut(index);
            match node.connection {
                Some(before) if before == connection => node.idle_closes = 0,
                Some(_) => {}
                None if node.disconnected => node.idle_closes = node.idle_closes.saturating_add(1),
                None => {}
            }
            self.nodes.set_connection(index, Some(connection));
        }
    }

    /// Returns true if a datanode was heard last on this connection.
    pub fn is_datanode_on(&self, connection: ConnectionId) -> bool {
        self.nodes.on_connection(connection).next().is_some()
    }

    /// Records that the peer of a connection has closed it, or that it failed. Returns the datanodes that are regarded as
    /// disconnected from now on. A datanode that has called on another connection since is not.
    pub fn connection_ended(&mut self, connection: ConnectionId, now: Now) -> Vec<DatanodeId> {
        let ended: Vec<DatanodeIndex> = self.nodes.on_connection(connection).collect();
        let mut disconnected = Vec::new();
        for index in ended {
            self.nodes.set_connection(index, None);
            let closes_idle_connections = self.settings.heartbeat_interval >= IDLE_CLOSE;
            let node = self.nodes.node_mut(index);
            let silence = now.monotonic.saturating_sub(node.last_heartbeat);
            if silence < IDLE_CLOSE_MIN {
                node.idle_closes = 0;
            }
            // With so long an interval, or so short a time-out, a Java datanode opens a new connection for each heartbeat.
            if closes_idle_connections && silence >= IDLE_CLOSE || node.idle_closes >= IDLE_CLOSES_KNOWN {
                continue;
            }
            node.disconnected = true;
            disconnected.push(node.id.clone());
        }
        disconnected
    }
}
