use std::sync::Arc;

use hearth_fabric::stream;
use hearth_fabric::tcp::PeerAddress;
use hearth_protocol::data_transfer::TransferError;
use hearth_wire::data_transfer::RangeRefusal;

use crate::DatanodeError;

/// Reason why a connection has failed, cloned for each of its waiters.
#[derive(Clone, Debug)]
pub(super) enum ConnectionFailure {
    Connection(Arc<TransferError>),
    Misbehaviour { peer: PeerAddress, what: Arc<str> },
}

impl ConnectionFailure {
    pub(super) fn misbehaviour(peer: PeerAddress, what: String) -> Self {
        Self::Misbehaviour { peer, what: what.into() }
    }

    /// The datanode refused READ_MANY.
    pub(super) fn refused(peer: PeerAddress, refusal: &RangeRefusal) -> Self {
        Self::misbehaviour(peer, format!("READ_MANY: {:?}: {}", refusal.status, refusal.message))
    }

    /// Returns true if the datanode closed the connection. A time-out does not count: a retry would take as long again.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_closed())
    }

    /// Returns true if the datanode violated the protocol.
    pub(super) fn is_misbehaviour(&self) -> bool {
        matches!(self, Self::Misbehaviour { .. })
    }
}

impl From<stream::Error> for ConnectionFailure {
    fn from(error: stream::Error) -> Self {
        Self::Connection(Arc::new(error.into()))
    }
}

impl From<ConnectionFailure> for DatanodeError {
    fn from(failure: ConnectionFailure) -> Self {
        match failure {
            ConnectionFailure::Connection(source) => Self::SharedConnection { source },
            ConnectionFailure::Misbehaviour { peer, what } => Self::Protocol { peer, what: what.to_string() },
        }
    }
}
