use hearth_fabric::tcp::{self, PeerAddress};
use hearth_wire::data_transfer::{MessageError, OpError, PacketError};

/// Errors of sending or receiving a DataTransferProtocol message. The connection is unusable after one.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Connection(#[from] tcp::Error),
    #[error("invalid request from {peer}")]
    Operation { peer: PeerAddress, source: OpError },
    #[error("invalid response from {peer}")]
    Message { peer: PeerAddress, source: MessageError },
    #[error("invalid packet from {peer}")]
    Packet { peer: PeerAddress, source: PacketError },
}

impl TransferError {
    /// Returns true if the peer was silent for too long.
    pub fn is_time_out(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_time_out())
    }

    /// Returns true if the peer closed the connection.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_closed())
    }

    /// Returns true if the peer disconnected or stopped answering, as opposed to violating the protocol.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_disconnect())
    }
}
