//! Operations of DataTransferProtocol, one file each: decode, check, act, answer.

use std::time::Duration;

use hearth_wire::data_transfer::{BlockOpResponse, Status, WriteBlock};

use crate::session::{Session, SessionError};
use crate::slots::SegmentGuard;
use crate::streams::Window;

pub mod block_checksum;
pub mod copy_block;
pub mod describe;
mod error;
pub mod read_block;
pub mod read_many;
pub mod replace_block;
pub mod replica_stream;
pub mod send_replica;
pub mod short_circuit;
pub mod transfer_block;
pub mod write_block;
pub mod write_local;
pub mod write_one_sided;

pub use error::{OpError, text_of};

/// Next use of the connection after an operation that succeeded.
pub enum Continuation {
    KeepAlive,
    Close,
    /// The connection carries many reads from now on.
    ReadMany {
        /// Announced shared memory that the client will lend for answers.
        memory: Option<read_many::PromisedMemory>,
    },
    /// The connection carries replicas from now on.
    ReplicaStream(Window),
    /// Another DataNode on this machine writes a copy of a replica into this DataNode's memory.
    LocalCopy(Box<WriteBlock>),
    /// The connection keeps a shared-memory segment alive; no further message is sent on it.
    WatchSegment(SegmentGuard),
}

/// Answers with the error's status and text; the caller closes the connection afterwards.
pub async fn answer_error(session: &Session, error: &OpError) -> Result<(), SessionError> {
    session.send(&BlockOpResponse::error(error.status(), error.text()).encode()).await
}

/// Runs an operation that takes as long as a copy. Sends progress messages so that the peer does not time out, then the
/// result. `read_timeout`: that of the peer.
pub async fn run_with_progress(
    read_timeout: Duration,
    session: &Session,
    operation: impl Future<Output = Result<(), OpError>>,
) -> Result<Continuation, OpError> {
    let every = read_timeout / 2;
    tokio::pin!(operation);
    let outcome = loop {
        tokio::select! {
            outcome = &mut operation => break outcome,
            () = tokio::time::sleep(every) => session.send(&BlockOpResponse::new(Status::InProgress).encode()).await?,
        }
    };
    answer(session, outcome).await
}

/// Sends the peer the result of an operation that has nothing more to send.
pub async fn answer(session: &Session, outcome: Result<(), OpError>) -> Result<Continuation, OpError> {
    match outcome {
        Ok(()) => {
            session.send(&BlockOpResponse::new(Status::Success).encode()).await?;
            Ok(Continuation::Close)
        }
        Err(error) => {
            answer_error(session, &error).await?;
            Err(error)
        }
    }
}
