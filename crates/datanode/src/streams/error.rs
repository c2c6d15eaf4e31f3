//! Errors of copies to and from other DataNodes.

use std::io;

use hearth_blockstore::StoreError;
use hearth_protocol::replica_stream::{ReplicaSendError, StreamError};
use hearth_types::ExtendedBlock;

use crate::downstream::ConnectError;
use crate::peer_offers::DescribeError;
use crate::replica_service::ReplicaError;

/// Reason why a replica was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Describe(#[from] DescribeError),
    #[error("datanode {name} was unreachable a moment ago")]
    Unreachable { name: String },
    #[error("replica stream failed")]
    Stream(#[from] StreamError),
    #[error("downstream datanode {target} cannot take {block}")]
    Rejected { block: ExtendedBlock, target: String, source: ReplicaSendError },
    #[error("too many incoming replicas")]
    TooManyIncoming,
    #[error("cannot start threads for replica streams")]
    Threads(#[source] io::Error),
    #[error("a task of the store was interrupted")]
    Interrupted,
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Replica(error.into())
    }
}

impl CopyError {
    /// Returns true if a peer disconnected or a later operation took the replica over: this DataNode is not at fault.
    pub fn is_disconnect(&self) -> bool {
        match self {
            Self::Replica(error) => error.is_taken_over(),
            Self::Connect(error) => error.is_disconnect(),
            Self::Describe(error) => error.is_disconnect(),
            Self::Stream(StreamError::Connection(error)) => error.is_disconnect(),
            _ => false,
        }
    }
}
