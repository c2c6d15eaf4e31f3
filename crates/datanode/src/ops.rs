//! One file per operation of DataTransferProtocol: decode, check, act, answer.

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

/// What becomes of the connection after an operation that succeeded.
pub enum Continuation {
    KeepAlive,
    Close,
    /// It carries many reads from here on.
    ReadMany {
        /// The client is about to lend memory for answers.
        memory: Option<read_many::PromisedMemory>,
    },
    /// It carries replicas from here on.
    ReplicaStream(Window),
    /// Another datanode of this machine writes a copy of a replica into memory here.
    LocalCopy(Box<WriteBlock>),
    /// It stands for a segment of shared memory, and nothing more is said on it.
    WatchSegment(SegmentGuard),
}

/// Why an operation failed. The connection is closed after it.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    #[error("the request: {0}")]
    Malformed(&'static str),
    #[error("block pool {pool} is not registered with a namenode")]
    PoolNotReady { pool: BlockPoolId },
    #[error("access to {block}")]
    Token { block: ExtendedBlock, source: BlockTokenError },
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("sending {block}")]
    Send { block: ExtendedBlock, source: SendError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("packet from {peer} for {block}")]
    Packet { block: ExtendedBlock, peer: PeerAddress, source: PacketError },
    #[error("data from {peer} for {block} at offset {offset}")]
    Checksum { block: ExtendedBlock, peer: PeerAddress, offset: u64, source: ChecksumError },
    #[error("packet {seqno} for {block} has {actual} bytes of checksums for {data_bytes} bytes of data")]
    ChecksumBytes { block: ExtendedBlock, seqno: i64, data_bytes: usize, actual: usize },
    #[error("no address for datanode {name}")]
    Unresolved { name: String },
    #[error("datanode {name} does not say what it offers")]
    Undescribed { name: String },
    #[error("datanode {name} could not be reached a moment ago")]
    Unreachable { name: String },
    #[error("downstream datanode {peer} cannot take {block}: {message}")]
    Downstream { block: ExtendedBlock, peer: String, message: String },
    #[error("a connection of replicas")]
    Stream(#[from] StreamError),
    #[error("threads for connections of replicas")]
    Threads(#[source] std::io::Error),
    #[error("the one-sided way to the next datanode")]
    OneSided(#[from] WriterError),
    #[error("reading {block} to pass it on")]
    PassOn { block: ExtendedBlock, source: std::io::Error },
    #[error("downstream datanode acknowledged packet {actual} of {block} where {expected} was due")]
    AckOutOfOrder { block: ExtendedBlock, expected: i64, actual: i64 },
    #[error("downstream datanode found what this one sent for {block} corrupt")]
    CorruptForDownstream { block: ExtendedBlock },
    #[error("this datanode is about to restart; try again when it is back")]
    Restarting,
    #[error("{0}")]
    Refused(String),
    #[error("a task of the store ended early")]
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
    /// The peer went away, or a later operation took the replica over: nothing is wrong with this datanode.
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

    /// The status that the peer reads.
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

    /// The error with its causes, for the peer.
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

/// Answers with the error's status and text; the connection is closed after that by the caller.
pub async fn answer_error(session: &Session, error: &OpError) -> Result<(), SessionError> {
    session.send(&BlockOpResponse::error(error.status(), error.text()).encode()).await
}

/// Runs an operation that takes as long as a copy does: the peer is kept patient meanwhile, and told at last what came of it.
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

/// Tells the peer what came of an operation that has no more to say.
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
