//! Operations of DataTransferProtocol, one file each: decode, check, act, answer.

use hearth_blockstore::StoreError;
use hearth_fabric::tcp::{self, PeerAddress};
use hearth_protocol::block_token::{AccessMode, BlockTokenError};
use hearth_protocol::one_sided_write::WriterError;
use hearth_protocol::replica_stream::StreamError;
use hearth_types::{BlockPoolId, ChecksumError, ExtendedBlock, Token};
use hearth_wire::data_transfer::{BlockOpResponse, PacketError, Status, WriteBlock};

use crate::datanode::Datanode;
use crate::disk_reads::DiskReadError;
use crate::forward::MirrorError;
use crate::pool::Pool;
use crate::sender::SendError;
use crate::session::{Session, SessionError};
use crate::slots::SegmentGuard;
use crate::streams::Window;

pub mod block_checksum;
pub mod copy_block;
pub mod describe;
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

/// Reason why an operation failed. The connection is closed afterwards.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    #[error("block pool {pool} is not registered with a namenode")]
    PoolNotReady { pool: BlockPoolId },
    #[error("access to {block} denied")]
    Token { block: ExtendedBlock, source: BlockTokenError },
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("cannot send {block}")]
    Send { block: ExtendedBlock, source: SendError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("malformed packet from {peer} for {block}")]
    Packet { block: ExtendedBlock, peer: PeerAddress, source: PacketError },
    #[error("corrupt data from {peer} for {block} at offset {offset}")]
    Checksum { block: ExtendedBlock, peer: PeerAddress, offset: u64, source: ChecksumError },
    #[error("packet {seqno} for {block} has {actual} bytes of checksums for {data_bytes} bytes of data")]
    ChecksumBytes { block: ExtendedBlock, seqno: i64, data_bytes: usize, actual: usize },
    #[error("cannot resolve the address of datanode {name}")]
    Unresolved { name: String },
    #[error("datanode {name} did not answer DESCRIBE")]
    Undescribed { name: String },
    #[error("datanode {name} was unreachable a moment ago")]
    Unreachable { name: String },
    #[error("downstream datanode {peer} cannot take {block}: {message}")]
    Downstream { block: ExtendedBlock, peer: String, message: String },
    #[error("replica stream failed")]
    Stream(#[from] StreamError),
    #[error("cannot start threads for replica streams")]
    Threads(#[source] std::io::Error),
    #[error("one-sided connection to the next datanode failed")]
    OneSided(#[from] WriterError),
    #[error("cannot read {block} to forward it")]
    PassOn { block: ExtendedBlock, source: std::io::Error },
    #[error("downstream datanode acknowledged packet {actual} of {block}, expected packet {expected}")]
    AckOutOfOrder { block: ExtendedBlock, expected: i64, actual: i64 },
    #[error("downstream datanode reported corrupt data that this datanode forwarded for {block}")]
    CorruptForDownstream { block: ExtendedBlock },
    #[error("this datanode is about to restart; try again when it is back")]
    Restarting,
    #[error("{0}")]
    Refused(String),
    #[error("a task of the store was interrupted")]
    Interrupted,
}

impl From<MirrorError> for OpError {
    fn from(error: MirrorError) -> Self {
        match error {
            MirrorError::Session(error) => Self::Session(error),
            MirrorError::OneSided(error) => Self::OneSided(error),
        }
    }
}

impl From<DiskReadError> for OpError {
    fn from(error: DiskReadError) -> Self {
        match error {
            DiskReadError::TooMany { .. } => Self::Refused(error.to_string()),
            DiskReadError::Interrupted => Self::Interrupted,
        }
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
            Self::Session(SessionError::Connection(error)) => error.is_disconnect(),
            Self::Stream(StreamError::Connection(error)) => error.is_disconnect(),
            Self::Send { source, .. } => source.is_disconnect(),
            Self::OneSided(error) => matches!(error, WriterError::Connection(_)),
            Self::Store(error) => matches!(error, StoreError::WriterStopped { .. }),
            _ => false,
        }
    }

    /// Returns the status to send to the peer.
    pub fn status(&self) -> Status {
        match self {
            Self::Token { .. } => Status::ErrorAccessToken,
            Self::Checksum { .. } | Self::ChecksumBytes { .. } => Status::ErrorChecksum,
            Self::Store(StoreError::ReplicaExists { .. }) => Status::ErrorExists,
            Self::Malformed(_) => Status::ErrorInvalid,
            Self::Restarting => Status::OobRestart,
            _ => Status::Error,
        }
    }

    /// Returns the error with its causes, for the peer.
    pub fn text(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        text
    }
}

/// Answers with the error's status and text; the caller closes the connection afterwards.
pub async fn answer_error(session: &Session, error: &OpError) -> Result<(), SessionError> {
    session.send(&BlockOpResponse::error(error.status(), error.text()).encode()).await
}

/// Runs an operation that takes as long as a copy. Sends progress messages so that the peer does not time out, then the
/// result.
pub async fn run_with_progress(
    datanode: &Datanode,
    session: &Session,
    operation: impl Future<Output = Result<(), OpError>>,
) -> Result<Continuation, OpError> {
    let every = datanode.options.transfer.read_timeout / 2;
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

/// Checks a request's token.
pub fn check_token(pool: &Pool, token: &Token, block: &ExtendedBlock, mode: AccessMode) -> Result<(), OpError> {
    pool.tokens.check(token, block, mode).map_err(|source| OpError::Token { block: block.clone(), source })
}
