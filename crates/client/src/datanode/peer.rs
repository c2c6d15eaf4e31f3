use hearth_protocol::data_transfer::{DataReceiver, DataSender};
use hearth_types::ExtendedBlock;
use hearth_wire::data_transfer::{BlockOpResponse, Status};

use crate::DatanodeError;

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
