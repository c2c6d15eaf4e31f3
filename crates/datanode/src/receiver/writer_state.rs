//! Where the writer of the replica is: in the receiving loop, or on a blocking thread.

use hearth_blockstore::ReplicaWriter;
use hearth_fabric::tcp::ReceiveBuffer;
use tokio::task::JoinHandle;

use super::batch_store::Stored;
use super::error::ReceiveError;
use super::packet::Packet;

/// Place of the replica's writer.
pub enum WriterState {
    /// The receiving loop has it.
    Here(ReplicaWriter),
    /// A blocking thread stores a batch with it, and has the receive buffer and the batch, too.
    Storing(JoinHandle<StoreTaskResult>),
    /// A blocking thread has taken it for a sync. It is lost if nothing waits for that thread, or if a thread panics.
    Away,
}

/// Result of a blocking thread that has stored a batch.
pub struct StoreTaskResult {
    pub writer: ReplicaWriter,
    pub buffer: ReceiveBuffer,
    pub batch: Vec<Packet>,
    pub stored: Stored,
}

impl WriterState {
    /// Returns the writer.
    ///
    /// Errors: it is not here.
    pub fn here(&self) -> Result<&ReplicaWriter, ReceiveError> {
        match self {
            Self::Here(writer) => Ok(writer),
            Self::Storing(_) | Self::Away => Err(ReceiveError::Interrupted),
        }
    }

    /// Like `here`, for changes.
    pub fn here_mut(&mut self) -> Result<&mut ReplicaWriter, ReceiveError> {
        match self {
            Self::Here(writer) => Ok(writer),
            Self::Storing(_) | Self::Away => Err(ReceiveError::Interrupted),
        }
    }

    /// Takes the writer away, for a blocking thread.
    ///
    /// Errors: it is not here.
    pub fn take(&mut self) -> Result<ReplicaWriter, ReceiveError> {
        match std::mem::replace(self, Self::Away) {
            Self::Here(writer) => Ok(writer),
            elsewhere => {
                *self = elsewhere;
                Err(ReceiveError::Interrupted)
            }
        }
    }
}
