use std::time::Duration;

use hearth_fabric::tcp::{Connection, ReceiveBuffer};
use hearth_types::ExtendedBlock;
use hearth_wire::data_transfer::{BlockOpResponse, Decoded, Operation, Status};

use crate::DatanodeError;

/// A connection to a datanode and what has been received on it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub connection: Connection,
    pub buffer: ReceiveBuffer,
}

impl Peer {
    pub(crate) async fn send(&self, operation: &Operation, timeout: Duration) -> Result<(), DatanodeError> {
        Ok(self.connection.write_all(&operation.encode(), timeout).await?)
    }

    /// The answer to an operation; anything but success is an error.
    pub(crate) async fn accepted(
        &mut self,
        operation: &'static str,
        block: &ExtendedBlock,
        timeout: Duration,
    ) -> Result<BlockOpResponse, DatanodeError> {
        let response = self.message(BlockOpResponse::decode, timeout).await?;
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

    /// Receives until `decode` has its message.
    pub(crate) async fn message<T, E: std::fmt::Display>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, E>,
        timeout: Duration,
    ) -> Result<T, DatanodeError> {
        receive(&self.connection, &mut self.buffer, decode, timeout).await
    }
}

/// As [`Peer::message`], for a connection that another task writes to.
pub(crate) async fn receive<T, E: std::fmt::Display>(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, E>,
    timeout: Duration,
) -> Result<T, DatanodeError> {
    loop {
        let missing = match decode(buffer.available()) {
            Ok(Decoded::Complete(message, bytes)) => {
                buffer.consume(bytes);
                return Ok(message);
            }
            Ok(Decoded::Needs(missing)) => missing,
            Err(error) => {
                return Err(DatanodeError::Protocol { peer: connection.peer(), what: error.to_string() });
            }
        };
        let wanted = buffer.available().len() + missing;
        buffer.fill_to(connection, wanted, timeout).await?;
    }
}

/// Sends `operation` over a fresh connection that nothing else uses.
pub(crate) async fn request(
    shared: &crate::file_system::Shared,
    datanode: &hearth_types::DatanodeId,
    operation: &Operation,
    timeout: Duration,
) -> Result<Peer, DatanodeError> {
    let address = super::address_of(&shared.options, datanode, datanode.transfer_port).await?;
    let peer = shared.peers.connect(address, shared.options.socket_timeout).await?;
    peer.send(operation, timeout).await?;
    Ok(peer)
}
