use hearth_protocol::data_transfer::{DataReceiver, DataSender, Timeouts};
use hearth_types::{DatanodeId, ExtendedBlock};
use hearth_wire::data_transfer::{BlockOpResponse, Operation, Status};

use crate::DatanodeError;
use crate::session::Session;

/// A connection to a datanode: its sending and receiving halves.
#[derive(Debug)]
pub(crate) struct Peer {
    pub sender: DataSender,
    pub receiver: DataReceiver,
}

impl Peer {
    /// Receives the response to an operation. Any status other than success is an error.
    pub(crate) async fn accepted(
        &mut self,
        operation: &'static str,
        block: &ExtendedBlock,
    ) -> Result<BlockOpResponse, DatanodeError> {
        let response = self.receiver.receive_response().await?;
        match response.status {
            Status::Success => Ok(response),
            Status::ErrorAccessToken => Err(DatanodeError::AccessToken { block: Box::new(block.clone()) }),
            status => Err(DatanodeError::Refused {
                operation,
                block: Box::new(block.clone()),
                status: format!("{status:?}"),
                message: response.message.unwrap_or_default(),
            }),
        }
    }
}

/// Sends `operation` over a new connection that nothing else uses.
pub(crate) async fn request(
    session: &Session,
    datanode: &DatanodeId,
    operation: &Operation,
    timeouts: Timeouts,
) -> Result<Peer, DatanodeError> {
    let address = super::address_of(&session.options.datanode, datanode, datanode.transfer_port).await?;
    let peer = session.peer_cache.connect_for_messages(address, timeouts).await?;
    peer.sender.send_operation(operation).await?;
    Ok(peer)
}
