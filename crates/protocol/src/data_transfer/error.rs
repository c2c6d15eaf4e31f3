use hearth_fabric::tcp::{self, PeerAddress};
use hearth_wire::data_transfer::{MessageError, OpError, PacketError};

/// Why a message of DataTransferProtocol was not sent or received. The connection is of no use after it.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Connection(#[from] tcp::Error),
    #[error("request from {peer}")]
    Operation { peer: PeerAddress, source: OpError },
    #[error("answer from {peer}")]
    Message { peer: PeerAddress, source: MessageError },
    #[error("packet from {peer}")]
    Packet { peer: PeerAddress, source: PacketError },
}

impl TransferError {
    /// The peer was silent for too long.
    pub fn is_time_out(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_time_out())
    }

    /// The peer ended the connection.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_closed())
    }

    /// The peer went away or stopped answering, rather than breaking the protocol.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_disconnect())
    }
}
