//! Either end of a DataTransferProtocol connection: receives whole messages and buffers bytes received ahead of them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::MessageMemory;
use hearth_fabric::tcp::{self, Connection, PeerAddress, ReceiveBuffer};
use hearth_protocol::data_transfer::receive_message;
use hearth_protocol::trace::{self, SpanContext};
use hearth_wire::data_transfer::{
    BlockOpResponse, Decoded, MessageError, OpError as OperationError, Operation, PACKET_BYTES_MAX, PipelineAck,
    RESPONSE_BYTES_MAX,
};

/// Initial size of a connection's buffer: enough for any operation's header in one call.
const BUFFER_BYTES: usize = 4 << 10;

/// Framing bytes that precede the counted part of a packet or message.
const FRAMING_BYTES: usize = 64;

/// Error while receiving a message.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Connection(#[from] tcp::Error),
    #[error("invalid request from {peer}")]
    Operation { peer: PeerAddress, source: OperationError },
    #[error("invalid message from {peer}")]
    Message { peer: PeerAddress, source: MessageError },
}

impl SessionError {
    /// Returns true if the peer disconnected or was silent for too long.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_disconnect())
    }
}

/// A connection together with the bytes that were received but not yet consumed.
pub struct Session {
    pub connection: Arc<Connection>,
    pub buffer: ReceiveBuffer,
    pub write_timeout: Duration,
}

impl Session {
    pub fn new(connection: Arc<Connection>, write_timeout: Duration) -> Self {
        let limit = PACKET_BYTES_MAX.max(RESPONSE_BYTES_MAX) + FRAMING_BYTES;
        Self { connection, buffer: ReceiveBuffer::new(BUFFER_BYTES, limit), write_timeout }
    }

    /// Like `new`, for a peer that connected to this server: its long messages claim their memory from `memory`.
    pub fn sharing(connection: Arc<Connection>, write_timeout: Duration, memory: &Arc<MessageMemory>) -> Self {
        let party = connection.peer().party();
        let session = Self::new(connection, write_timeout);
        Self { buffer: session.buffer.sharing(memory.clone(), party), ..session }
    }

    /// Returns this session, registered with the calling runtime. `None`: the connection is shared with another owner.
    pub fn moved_here(self) -> io::Result<Option<Self>> {
        let Some(connection) = Arc::into_inner(self.connection) else { return Ok(None) };
        Ok(Some(Self { connection: Arc::new(connection.moved_here()?), ..self }))
    }

    /// Receives the next operation, with the sender's span if its trace is sampled. `timeout` applies to its first byte
    /// and again to each further piece.
    pub async fn receive_operation(
        &mut self,
        timeout: Duration,
    ) -> Result<(Operation, Option<SpanContext>), SessionError> {
        let peer = self.connection.peer();
        self.receive(Operation::decode_traced, timeout, |source| SessionError::Operation { peer, source }).await
    }

    pub async fn receive_answer(&mut self, timeout: Duration) -> Result<BlockOpResponse, SessionError> {
        self.receive_message(BlockOpResponse::decode, timeout).await
    }

    /// Receives an answer and not one byte beyond it, because a descriptor may be attached to the next byte.
    pub async fn receive_answer_alone(&mut self, timeout: Duration) -> Result<BlockOpResponse, SessionError> {
        let peer = self.connection.peer();
        let failed = |source| SessionError::Message { peer, source };
        receive_message(&self.connection, &mut self.buffer, BlockOpResponse::decode, timeout, failed).await
    }

    pub async fn receive_ack(&mut self, timeout: Duration) -> Result<PipelineAck, SessionError> {
        self.receive_message(PipelineAck::decode, timeout).await
    }

    /// Returns true if an acknowledgement is already in the buffer.
    pub fn has_ack(&self) -> bool {
        matches!(PipelineAck::decode(self.buffer.available()), Ok(Decoded::Complete(..)))
    }

    /// Receives bytes until `decode` returns a message.
    pub async fn receive_message<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>,
        timeout: Duration,
    ) -> Result<T, SessionError> {
        let peer = self.connection.peer();
        self.receive(decode, timeout, |source| SessionError::Message { peer, source }).await
    }

    async fn receive<T, E>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, E>,
        timeout: Duration,
        failed: impl Fn(E) -> SessionError,
    ) -> Result<T, SessionError> {
        loop {
            match decode(self.buffer.available()).map_err(&failed)? {
                Decoded::Complete(message, bytes) => {
                    self.buffer.consume(bytes);
                    return Ok(message);
                }
                Decoded::Needs(bytes) => {
                    let wanted = self.buffer.available().len() + bytes;
                    self.buffer.fill_to(&self.connection, wanted, timeout).await?;
                }
            }
        }
    }

    /// Sends a request, with the span at hand if its trace is sampled.
    pub async fn send_operation(&self, operation: &Operation) -> Result<(), SessionError> {
        self.send(&operation.encode_traced(trace::current())).await
    }

    pub async fn send(&self, bytes: &[u8]) -> Result<(), SessionError> {
        Ok(self.connection.write_all(bytes, self.write_timeout).await?)
    }
}
