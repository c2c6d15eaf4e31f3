//! Errors of receiving a block.

use std::io;

use hearth_blockstore::StoreError;
use hearth_fabric::tcp::{self, PeerAddress};
use hearth_types::{ChecksumError, ExtendedBlock};
use hearth_wire::data_transfer::PacketError;

use crate::forward::MirrorError;
use crate::session::SessionError;

/// Reason why a block was not received completely.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("malformed packet from {peer} for {block}")]
    Packet { block: ExtendedBlock, peer: PeerAddress, source: PacketError },
    #[error("corrupt data from {peer} for {block} at offset {offset}")]
    Checksum { block: ExtendedBlock, peer: PeerAddress, offset: u64, source: ChecksumError },
    #[error("packet {seqno} for {block} has {actual} bytes of checksums for {data_bytes} bytes of data")]
    ChecksumBytes { block: ExtendedBlock, seqno: i64, data_bytes: usize, actual: usize },
    #[error("malformed request: a heartbeat claims to have data in place")]
    HeartbeatInPlace,
    #[error("malformed request: a packet of a local writer is too long")]
    LocalPacketTooLong,
    #[error("malformed request: a packet is too long to be forwarded with the CRCs of its short chunks")]
    TooLongToForward,
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error("cannot read {block} to forward it")]
    PassOn { block: ExtendedBlock, source: io::Error },
    #[error("downstream datanode acknowledged packet {actual} of {block}, expected packet {expected}")]
    AckOutOfOrder { block: ExtendedBlock, expected: i64, actual: i64 },
    #[error("downstream datanode reported corrupt data that this datanode forwarded for {block}")]
    CorruptForDownstream { block: ExtendedBlock },
    #[error("a task of the store was interrupted")]
    Interrupted,
}

impl From<tcp::Error> for ReceiveError {
    fn from(error: tcp::Error) -> Self {
        Self::Session(SessionError::Connection(error))
    }
}

impl ReceiveError {
    /// Returns true if a peer disconnected or a later operation took the replica over: this DataNode is not at fault.
    pub fn is_disconnect(&self) -> bool {
        match self {
            Self::Session(error) => error.is_disconnect(),
            Self::Mirror(error) => error.is_disconnect(),
            Self::Store(error) => matches!(error, StoreError::WriterStopped { .. }),
            _ => false,
        }
    }

    /// Returns true if the sender sent a packet that can never be valid.
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::HeartbeatInPlace | Self::LocalPacketTooLong | Self::TooLongToForward)
    }

    /// Returns true if the data stored before the error is sound: data that failed its CRCs is not stored, and a lost
    /// connection affects nothing that arrived before. After other errors the state of the replica is unknown.
    pub fn leaves_sound_data(&self) -> bool {
        matches!(self, Self::Session(_) | Self::Mirror(MirrorError::Session(_)) | Self::Checksum { .. })
    }
}
