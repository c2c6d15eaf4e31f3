//! Kinds 3 to 7: a replica is written into the DataNode's memory one-sidedly.
//!
//! ```text
//! writer                                     DataNode
//!   Open ───────────────────────────────────►   creates the replica, connects what is behind it
//!   ◄─────────────────────────────── Opened     with the first grant
//!   WRITE data, WRITE CRCs, Slice ──────────►   checks in place, passes on
//!   ◄───────────────────────── Acknowledged     by all of the pipeline; further grants
//!   Slice (last) ───────────────────────────►   finalizes; after its acknowledgement another Open may come
//! ```

use bytes::Bytes;
use hearth_types::RemoteSlice;

use super::{ControlError, MESSAGE_BYTES_MAX, with_kind};
use crate::convert::ConvertError;
use crate::data_transfer::{AckReply, BlockOpResponse, Decoded, Operation, PacketHeader, WriteBlock};
use crate::proto::hearth::{
    GrantProto, SliceProto, WriteAcknowledgedProto, WriteClosedProto, WriteOpenProto, WriteOpenedProto,
};

/// Control message of a writing connection.
#[derive(Clone, PartialEq, Debug)]
pub enum WriteMessage {
    /// From the writer: the request of a WRITE_BLOCK.
    Open(Box<WriteBlock>),
    /// The DataNode's answer, as to WRITE_BLOCK. After a success it has the first grant, or `None` if no memory is
    /// available: the writer then closes this connection and uses another path.
    Opened {
        answer: Box<BlockOpResponse>,
        grant: Option<Grant>,
    },
    Slice(Slice),
    Acknowledged {
        seqno: i64,
        replies: Vec<AckReply>,
        grant: Option<Grant>,
    },
    /// The writing of this block ends.
    Closed,
}

/// Memory that the peer may write to as long as the replica is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Offset in the block of the first byte of `data`.
    pub offset: u64,
    /// Memory for bytes of the block.
    pub data: RemoteSlice,
    /// Memory for their CRCs. It may be reused once the CRCs in it are acknowledged.
    pub checksums: RemoteSlice,
}

/// Bytes written to granted memory, with their CRCs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Like the header of a packet: `data_bytes` are in place.
    pub header: PacketHeader,
    /// Offset of their CRCs in the memory for CRCs.
    pub checksums_at: u64,
    /// Bytes of these CRCs.
    pub checksum_bytes: u32,
}

impl WriteMessage {
    /// Encodes a message. Errors: `TooLong` if it does not fit into one message.
    pub fn encode(&self) -> Result<Bytes, ControlError> {
        match self {
            Self::Open(request) => {
                let request = Operation::WriteBlock(request.clone()).encode().into();
                with_kind(3, &WriteOpenProto { request })
            }
            Self::Opened { answer, grant } => {
                let message =
                    WriteOpenedProto { answer: answer.encode().into(), grant: grant.as_ref().map(Into::into) };
                with_kind(4, &message)
            }
            Self::Slice(slice) => with_kind(5, &slice.message()),
            Self::Acknowledged { seqno, replies, grant } => {
                let message = WriteAcknowledgedProto {
                    seqno: *seqno,
                    replies: replies.iter().map(|reply| reply.0).collect(),
                    grant: grant.as_ref().map(Into::into),
                };
                with_kind(6, &message)
            }
            Self::Closed => with_kind(7, &WriteClosedProto {}),
        }
    }

    pub fn decode(bytes: &Bytes) -> Result<Self, ControlError> {
        use prost::Message;
        let kind = *bytes.first().ok_or(ControlError::Empty)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(ControlError::TooLong { bytes: bytes.len() });
        }
        let body = bytes.slice(1..);
        Ok(match kind {
            3 => {
                let message = WriteOpenProto::decode(body)?;
                match Operation::decode(&message.request) {
                    Ok(Decoded::Complete(Operation::WriteBlock(request), bytes)) if bytes == message.request.len() => {
                        Self::Open(request)
                    }
                    _ => return Err(ConvertError::Empty { field: "request" }.into()),
                }
            }
            4 => {
                let message = WriteOpenedProto::decode(body)?;
                let answer = match BlockOpResponse::decode(&message.answer) {
                    Ok(Decoded::Complete(answer, bytes)) if bytes == message.answer.len() => Box::new(answer),
                    _ => return Err(ConvertError::Empty { field: "answer" }.into()),
                };
                Self::Opened { answer, grant: message.grant.map(Grant::try_from).transpose()? }
            }
            5 => Self::Slice(Slice::from_message(&SliceProto::decode(body)?)),
            6 => {
                let message = WriteAcknowledgedProto::decode(body)?;
                Self::Acknowledged {
                    seqno: message.seqno,
                    replies: message.replies.into_iter().map(AckReply).collect(),
                    grant: message.grant.map(Grant::try_from).transpose()?,
                }
            }
            7 => {
                WriteClosedProto::decode(body)?;
                Self::Closed
            }
            kind => return Err(ControlError::UnknownKind(kind)),
        })
    }
}

impl Slice {
    fn message(&self) -> SliceProto {
        let PacketHeader { offset, seqno, last, data_bytes, sync } = self.header;
        SliceProto {
            seqno,
            offset,
            data_bytes,
            last,
            sync,
            checksums_at: self.checksums_at,
            checksum_bytes: self.checksum_bytes,
        }
    }

    fn from_message(message: &SliceProto) -> Self {
        Self {
            header: PacketHeader {
                offset: message.offset,
                seqno: message.seqno,
                last: message.last,
                data_bytes: message.data_bytes,
                sync: message.sync,
            },
            checksums_at: message.checksums_at,
            checksum_bytes: message.checksum_bytes,
        }
    }
}

impl From<&Grant> for GrantProto {
    fn from(grant: &Grant) -> Self {
        Self { offset: grant.offset, data: (&grant.data).into(), checksums: (&grant.checksums).into() }
    }
}

impl TryFrom<GrantProto> for Grant {
    type Error = ConvertError;

    /// Rejects a grant that reaches beyond the longest block.
    fn try_from(message: GrantProto) -> Result<Self, ConvertError> {
        let grant =
            Self { offset: message.offset, data: message.data.try_into()?, checksums: message.checksums.try_into()? };
        match grant.offset.checked_add(grant.data.length) {
            Some(end) if end <= i64::MAX as u64 => Ok(grant),
            _ => Err(ConvertError::OutOfRange { field: "grant", value: grant.offset }),
        }
    }
}
