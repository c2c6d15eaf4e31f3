//! Errors of operations, and the statuses and texts that peers get for them. Every other room has an error of its own;
//! only this file maps them to the wire. (`ipc.rs` maps them to Java's exceptions.)

use hearth_blockstore::StoreError;
use hearth_fabric::tcp;
use hearth_types::{Block, BlockId, ExtendedBlock, ReplicaState};
use hearth_wire::data_transfer::Status;

use crate::advertise::AdvertiseError;
use crate::disk_reads::DiskReadError;
use crate::downstream::ConnectError;
use crate::forward::MirrorError;
use crate::pool::PoolNotReady;
use crate::receiver::ReceiveError;
use crate::replica_service::ReplicaError;
use crate::sender::SendError;
use crate::session::SessionError;
use crate::streams::CopyError;
use crate::tokens::AccessDenied;
use crate::transfer::TransferError;

/// Reason why an operation failed. The connection is closed afterwards.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    #[error("this datanode is about to restart; try again when it is back")]
    Restarting,
    #[error(transparent)]
    PoolNotReady(#[from] PoolNotReady),
    #[error(transparent)]
    AccessDenied(#[from] AccessDenied),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// Has no source, because its causes are not for the peer.
    #[error("{0}")]
    Advertise(AdvertiseError),
    #[error("cannot send {block}")]
    Send { block: ExtendedBlock, source: SendError },
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error("downstream datanode {peer} cannot take {block}: {message}")]
    Downstream { block: ExtendedBlock, peer: String, message: String },
    /// The text is that of Java's DataNode.
    #[error("Not able to {action} block {block} because threads quota is exceeded.")]
    TooManyMoves { action: &'static str, block: BlockId },
    #[error("block {block} is already being moved to this datanode")]
    AlreadyMoving { block: BlockId },
    #[error("{block} is {state:?} here, as {found}")]
    NotFinalized { block: ExtendedBlock, state: ReplicaState, found: Block },
    #[error("the target does not accept replica streams")]
    NoStreams,
    #[error("a part of {block} was received by a stream, which can resume")]
    Resumable { block: ExtendedBlock },
    #[error("the replica has no checksums to combine")]
    NoChecksums,
    #[error("another range with long chunks is waiting")]
    TooManyLongChunks,
    #[error("a task of the store was interrupted")]
    Interrupted,
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> Self {
        Self::Replica(error.into())
    }
}

impl From<DiskReadError> for OpError {
    fn from(error: DiskReadError) -> Self {
        Self::Replica(error.into())
    }
}

impl From<tcp::Error> for OpError {
    fn from(error: tcp::Error) -> Self {
        Self::Session(SessionError::Connection(error))
    }
}

impl OpError {
    /// Returns true if the peer disconnected or a later operation took the replica over: this DataNode is not at fault.
    pub fn is_disconnect(&self) -> bool {
        match self {
            Self::Session(error) => error.is_disconnect(),
            Self::Replica(error) => error.is_taken_over(),
            Self::Send { source, .. } => source.is_disconnect(),
            Self::Receive(error) => error.is_disconnect(),
            Self::Connect(error) => error.is_disconnect(),
            Self::Mirror(error) => error.is_disconnect(),
            Self::Copy(error) => error.is_disconnect(),
            Self::Transfer(error) => error.is_disconnect(),
            _ => false,
        }
    }

    /// Returns the store's error, in whatever room it occurred.
    pub fn store(&self) -> Option<&StoreError> {
        let error = match self {
            Self::Receive(ReceiveError::Store(error)) => return Some(error),
            Self::Replica(error)
            | Self::Copy(CopyError::Replica(error))
            | Self::Transfer(TransferError::Replica(error) | TransferError::Copy(CopyError::Replica(error))) => error,
            _ => return None,
        };
        match error {
            ReplicaError::Store(error) => Some(error),
            ReplicaError::DiskBusy(_) | ReplicaError::Interrupted => None,
        }
    }

    /// Returns the status to send to the peer.
    pub fn status(&self) -> Status {
        match self {
            Self::AccessDenied(_) => Status::ErrorAccessToken,
            Self::Malformed(_) => Status::ErrorInvalid,
            Self::Transfer(TransferError::NoTarget | TransferError::OutOfRange) => Status::ErrorInvalid,
            Self::Receive(error) if error.is_malformed() => Status::ErrorInvalid,
            Self::Receive(ReceiveError::Checksum { .. } | ReceiveError::ChecksumBytes { .. }) => Status::ErrorChecksum,
            Self::Restarting => Status::OobRestart,
            _ if matches!(self.store(), Some(StoreError::ReplicaExists { .. })) => Status::ErrorExists,
            _ => Status::Error,
        }
    }

    /// Returns the error with its causes, for the peer.
    pub fn text(&self) -> String {
        text_of(self)
    }
}

/// Returns an error with its causes.
pub fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hearth_protocol::replica_stream::{ReplicaSendError, StreamError};
    use hearth_types::{BlockPoolId, GenerationStamp};

    use super::*;

    fn block() -> ExtendedBlock {
        let block = Block { id: BlockId(1), stamp: GenerationStamp(2), length: 3 };
        ExtendedBlock { pool: BlockPoolId::new("BP-1"), block }
    }

    fn exists() -> StoreError {
        StoreError::ReplicaExists { block: block(), state: ReplicaState::Finalized, stamp: GenerationStamp(2) }
    }

    #[test]
    fn store_error_has_same_status_and_text_from_every_room() {
        for error in [
            OpError::from(exists()),
            OpError::from(ReceiveError::from(exists())),
            OpError::from(CopyError::from(exists())),
            OpError::from(TransferError::from(ReplicaError::from(exists()))),
            OpError::from(TransferError::from(CopyError::from(exists()))),
        ] {
            assert_eq!(error.status(), Status::ErrorExists, "{error:?}");
            assert_eq!(error.text(), exists().to_string());
        }
        let stopped = || StoreError::WriterStopped { block: block() };
        for error in [OpError::from(stopped()), ReceiveError::from(stopped()).into(), CopyError::from(stopped()).into()]
        {
            assert!(error.is_disconnect() && error.status() == Status::Error, "{error:?}");
        }
    }

    #[test]
    fn malformed_input_is_invalid_in_every_room() {
        for error in [
            OpError::Malformed("no target"),
            TransferError::NoTarget.into(),
            ReceiveError::HeartbeatInPlace.into(),
            ReceiveError::TooLongToForward.into(),
        ] {
            assert_eq!(error.status(), Status::ErrorInvalid, "{error:?}");
            assert!(error.text().starts_with("malformed request: "), "{}", error.text());
        }
    }

    #[test]
    fn text_lists_all_causes() {
        let broken = ReplicaSendError::Broken { stored: 5, source: Arc::new(StreamError::Interrupted) };
        let error = OpError::from(CopyError::Rejected { block: block(), target: "a:1".to_owned(), source: broken });
        let expected = format!(
            "downstream datanode a:1 cannot take {}: the stream broke after 5 bytes of the replica were acknowledged: {}",
            block(),
            StreamError::Interrupted
        );
        assert_eq!(error.text(), expected);
        assert_eq!(error.status(), Status::Error);
    }
}
