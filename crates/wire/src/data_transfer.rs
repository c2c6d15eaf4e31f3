//! DataTransferProtocol as pure bytes: messages of clients and DataNodes to a DataNode about block data.
//!
//! ```text
//! request    u16 version, u8 operation, delimited message                     [Operation]
//! answer     delimited BlockOpResponseProto                                   [BlockOpResponse]
//! packet     u32 payload length, u16 header length, header, CRCs, data        [PacketHeader]
//! ack        delimited PipelineAckProto, upstream, one per packet             [PipelineAck]
//! ```
//! Decoders get the bytes that have arrived so far. They either consume a complete message or return how many more
//! bytes they need ([`Decoded`]). Sockets are handled elsewhere. Each decoder limits the sizes that a peer may
//! announce.
//!
//! Source: datatransfer.proto of Hadoop 3; `PacketHeader`, `PacketReceiver` and `PipelineAck` of its client.

mod ack;
mod describe;
mod operation;
mod packet;
mod read_many;
mod replica_stream;
mod response;
mod short_circuit;
mod write_local;

pub use crate::proto::hdfs::Status;
pub use ack::{AckReply, CongestionState, HEARTBEAT_SEQNO, PipelineAck, SlowState, UNKNOWN_SEQNO};
pub use describe::{DatanodeDescription, Describe};
pub use operation::{
    BlockChecksum, BlockChecksumKind, BlockChecksumOptions, CachingStrategy, CopyBlock, OpCode, OpError, Operation,
    PipelineTarget, ReadBlock, ReplaceBlock, RequestShortCircuitFds, Stage, TransferBlock, WriteBlock,
};
pub use packet::{
    PACKET_BYTES_MAX, PACKET_HEADER_BYTES_MAX, PACKET_PREFIX_BYTES, PacketError, PacketHead, PacketHeader,
};
pub use read_many::{AnswerSlot, RangeHead, RangePiece, RangeRefusal, RangeRequest, ReadMany, ReadManyTerms};
pub use replica_stream::{
    OpenReplica, ReplicaPiece, ReplicaRefusal, ReplicaStream, STREAM_HEAD_BYTES, StreamLimits, StreamTerms, ToReceiver,
    ToSender,
};
pub use response::{BlockChecksumAnswer, BlockOpResponse, ReadChecksum, client_read_status, encode_client_read_status};
pub use short_circuit::{ShmId, ShmResponse, ShmSlot, ShortCircuitReleaseResponse};
pub use write_local::LocalGrant;

use crate::convert::ConvertError;
use crate::delimited::{self, DelimitedError, Framing};

/// The version of DataTransferProtocol that Hadoop 2 and 3 speak.
pub const VERSION: u16 = 28;

/// Longest operation message accepted, in bytes. A pipeline of 500 DataNodes takes 100 KiB.
pub const OPERATION_BYTES_MAX: usize = 512 << 10;

/// Longest answer or acknowledgement accepted, in bytes. A composite checksum has 4 bytes for each stripe of a block.
pub const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// Result of decoding the bytes that have arrived so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decoded<T> {
    /// At least this many more bytes are needed.
    Needs(usize),
    /// The message, and the number of its bytes.
    Complete(T, usize),
}

/// Error of an invalid DataTransferProtocol message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    #[error("unreadable data transfer message: {0}")]
    Unreadable(#[from] DelimitedError),
    #[error("bad data transfer message: {0}")]
    Content(#[from] ConvertError),
    #[error("unknown data transfer status {number}")]
    Status { number: i32 },
}

fn decode_delimited<M: prost::Message + Default>(bytes: &[u8], limit: usize) -> Result<Decoded<M>, DelimitedError> {
    Ok(match delimited::find(bytes, limit)? {
        Framing::Needs(missing) => Decoded::Needs(missing),
        Framing::Complete { start, end } => Decoded::Complete(M::decode(&bytes[start..end])?, end),
    })
}

/// Like [`decode_delimited`], then converts the message to a type of this module.
fn decode_into<M, T, E>(bytes: &[u8], limit: usize) -> Result<Decoded<T>, MessageError>
where
    M: prost::Message + Default,
    T: TryFrom<M, Error = E>,
    MessageError: From<E>,
{
    Ok(match decode_delimited::<M>(bytes, limit)? {
        Decoded::Needs(missing) => Decoded::Needs(missing),
        Decoded::Complete(message, consumed) => Decoded::Complete(message.try_into()?, consumed),
    })
}

fn status(number: i32) -> Result<Status, MessageError> {
    Status::try_from(number).map_err(|_| MessageError::Status { number })
}

#[cfg(test)]
mod tests;
