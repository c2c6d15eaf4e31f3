//! One connection of DataTransferProtocol, at either end: delimited messages, and what is received ahead of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_fabric::tcp::{self, Connection, ReceiveBuffer};
use hearth_wire::delimited::{self, DelimitedError, Progress};
use prost::Message;

/// The longest message that opens or answers an operation. Pipelines, tokens and texts are far below it.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What a connection's buffer begins with: enough for any operation's header in one call.
const BUFFER_BYTES: usize = 4 << 10;

/// Why a message did not come.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Connection(#[from] tcp::Error),
    #[error("{peer} sent no valid message")]
    Message { peer: std::net::SocketAddr, source: DelimitedError },
}

/// A connection with the bytes received and not yet taken.
pub struct Session {
    pub connection: Arc<Connection>,
    pub buffer: ReceiveBuffer,
    pub write_timeout: Duration,
}

impl Session {
    /// `packet_bytes_max`: what the buffer may grow to.
    pub fn new(connection: Arc<Connection>, packet_bytes_max: usize, write_timeout: Duration) -> Self {
        let limit = packet_bytes_max.max(MESSAGE_BYTES_MAX) + 64;
        Self { connection, buffer: ReceiveBuffer::new(BUFFER_BYTES, limit), write_timeout }
    }

    /// Receives one message with its length in front.
    pub async fn receive<M: Message + Default>(&mut self, timeout: Duration) -> Result<M, SessionError> {
        let peer = self.connection.peer();
        let malformed = |source| SessionError::Message { peer, source };
        loop {
            match delimited::find(self.buffer.available(), MESSAGE_BYTES_MAX).map_err(malformed)? {
                Progress::Complete { start, end } => {
                    // The message keeps slices of what it is decoded from: not the buffer, which is used again.
                    let bytes = Bytes::copy_from_slice(&self.buffer.available()[start..end]);
                    self.buffer.consume(end);
                    return M::decode(bytes).map_err(|error| malformed(error.into()));
                }
                Progress::Needs(bytes) => {
                    let wanted = self.buffer.available().len() + bytes;
                    self.buffer.fill_to(&self.connection, wanted, timeout).await?;
                }
            }
        }
    }

    /// Whether a whole message has been received already.
    pub fn has_message(&self) -> bool {
        matches!(delimited::find(self.buffer.available(), MESSAGE_BYTES_MAX), Ok(Progress::Complete { .. }))
    }

    /// Sends one message with its length in front.
    pub async fn send(&self, message: &impl Message) -> Result<(), SessionError> {
        Ok(self.connection.write_all(&delimited::to_vec(message), self.write_timeout).await?)
    }
}
