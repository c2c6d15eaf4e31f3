//! READ_MANY: one connection for ranges of many replicas. Each is answered as soon as it is ready, in any order.
//!
//! ```text
//! request    [Operation::ReadMany], once; ranges may follow at once
//! terms      [ReadManyTerms], once
//! range      [RangeRequest], as many as the client lets be outstanding
//! answer     [RangeHead], then CRCs and data as it says; one for each range
//! ```
//!
//! On a domain socket the client may share memory: after the terms it sends a byte with the memory's file descriptor.
//! Each range may then name an [AnswerSlot] in that memory. If its data was placed there, nothing follows the head.
//!
//! [Operation::ReadMany]: super::Operation::ReadMany

use hearth_types::{ByteRange, ChecksumSpec, ExtendedBlock, GenerationStamp, Token};

use super::operation::{base_header, from_base_header};
use super::{Decoded, MessageError, Status, decode_into, status};
use crate::convert::ConvertError;
use crate::delimited;
use crate::proto::hdfs::BaseHeaderProto;
use crate::proto::hearth as proto;
use crate::trace::{self, SpanContext};

/// Request that turns a connection into one of many reads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadMany {
    /// For the DataNode's log.
    pub client_name: String,
    /// Size of the memory that the client shares if the DataNode accepts it; 0: none.
    pub memory_bytes: u64,
}

/// Answer to the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadManyTerms {
    /// Longest range, widened to whole chunks, in bytes.
    Accepted {
        range_bytes_max: u32,
        /// The client must send the descriptor of its memory.
        takes_memory: bool,
    },
    Refused(RangeRefusal),
}

/// Slot in the client's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerSlot {
    pub offset: u64,
    /// Space for CRCs and data.
    pub bytes: u32,
}

/// Request of a range of one replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeRequest {
    /// Id chosen by the client, unique on the connection.
    pub request: u64,
    /// The length is the one known to the client, and has no meaning here.
    pub block: ExtendedBlock,
    pub token: Token,
    /// At most [`ReadMany::RANGE_BYTES_MAX`], after widening to whole chunks.
    pub range: ByteRange,
    /// Slot for the answer.
    pub place: Option<AnswerSlot>,
    /// Span of the reader, if its trace is sampled.
    pub trace: Option<SpanContext>,
}

/// Head before the bytes of a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeHead {
    pub request: u64,
    pub piece: Result<RangePiece, RangeRefusal>,
}

/// Description of the CRCs and data, which follow or are in the client's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangePiece {
    pub stamp: GenerationStamp,
    /// Readable bytes of the replica.
    pub replica_length: u64,
    pub checksum: ChecksumSpec,
    /// Offset of the data in the block.
    pub offset: u64,
    /// Bytes of data: whole chunks, with a shorter last one only at the replica's end.
    pub data_bytes: u32,
    /// CRCs and data are in the slot of the request, and nothing follows.
    pub placed: bool,
}

/// Reason why a range was not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeRefusal {
    pub status: Status,
    /// Text for users.
    pub message: String,
}

impl ReadMany {
    /// Maximum data of one range, widened to whole chunks.
    pub const RANGE_BYTES_MAX: u32 = 1 << 20;

    /// Maximum bytes of an encoded range request. Most of it may be a token.
    pub const RANGE_FRAME_BYTES_MAX: usize = 16 << 10;

    /// Maximum bytes of an encoded head. Most of it may be the text of a refusal.
    pub const HEAD_BYTES_MAX: usize = 64 << 10;

    /// Maximum bytes of the text of a refusal.
    pub const MESSAGE_BYTES_MAX: usize = 16 << 10;

    /// Maximum memory that a client shares on one connection.
    pub const MEMORY_BYTES_MAX: u64 = 64 << 20;

    /// Maximum CRC bytes of one range. Chunks of 16 bytes and more stay within it.
    pub const CHECKSUM_BYTES_MAX: usize = (Self::RANGE_BYTES_MAX / 4) as usize;

    pub(super) fn message(&self) -> proto::ReadManyRequest {
        let memory_bytes = (self.memory_bytes > 0).then_some(self.memory_bytes);
        proto::ReadManyRequest { client_name: Some(self.client_name.clone()), memory_bytes }
    }

    pub(super) fn from_message(message: proto::ReadManyRequest) -> Self {
        Self {
            client_name: message.client_name.unwrap_or_default(),
            memory_bytes: message.memory_bytes.unwrap_or_default(),
        }
    }
}

impl ReadManyTerms {
    /// Encodes the terms with a length prefix.
    pub fn encode(&self) -> Vec<u8> {
        delimited::to_vec(&match self {
            Self::Accepted { range_bytes_max, takes_memory } => proto::ReadManyResponse {
                status: Status::Success as i32,
                message: None,
                range_bytes_max: Some(*range_bytes_max),
                takes_memory: takes_memory.then_some(true),
            },
            Self::Refused(refusal) => proto::ReadManyResponse {
                status: refusal.status as i32,
                message: Some(refusal.message.clone()),
                range_bytes_max: None,
                takes_memory: None,
            },
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::ReadManyResponse, _, _>(bytes, ReadMany::HEAD_BYTES_MAX)
    }
}

impl TryFrom<proto::ReadManyResponse> for ReadManyTerms {
    type Error = MessageError;

    fn try_from(message: proto::ReadManyResponse) -> Result<Self, MessageError> {
        Ok(match status(message.status)? {
            Status::Success => {
                let range_bytes_max = message.range_bytes_max.unwrap_or(ReadMany::RANGE_BYTES_MAX);
                Self::Accepted {
                    range_bytes_max: range_bytes_max.min(ReadMany::RANGE_BYTES_MAX),
                    takes_memory: message.takes_memory.unwrap_or_default(),
                }
            }
            status => Self::Refused(RangeRefusal { status, message: message.message.unwrap_or_default() }),
        })
    }
}

impl RangeRequest {
    /// Appends the request with a length prefix.
    pub fn encode_into(&self, into: &mut Vec<u8>) {
        let message = proto::ManyRangeProto {
            request: self.request,
            header: BaseHeaderProto { trace_info: self.trace.map(Into::into), ..base_header(&self.block, &self.token) },
            offset: self.range.start(),
            length: self.range.length(),
            place: self.place.map(|place| place.offset),
            place_bytes: self.place.map(|place| place.bytes),
        };
        delimited::append(&message, into);
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::ManyRangeProto, _, _>(bytes, ReadMany::RANGE_FRAME_BYTES_MAX)
    }
}

impl TryFrom<proto::ManyRangeProto> for RangeRequest {
    type Error = MessageError;

    fn try_from(message: proto::ManyRangeProto) -> Result<Self, MessageError> {
        let trace = trace::of_data_transfer(message.header.trace_info.as_ref());
        let (block, token) = from_base_header(message.header)?;
        let range = ByteRange::with_length(message.offset, message.length)
            .ok_or(ConvertError::OutOfRange { field: "end of a range", value: message.offset })?;
        let place = message.place.map(|offset| AnswerSlot { offset, bytes: message.place_bytes.unwrap_or_default() });
        Ok(Self { request: message.request, block, token, range, place, trace })
    }
}

impl RangePiece {
    /// Returns the bytes of CRCs.
    pub fn checksum_bytes(&self) -> usize {
        self.checksum.checksum_bytes(u64::from(self.data_bytes)) as usize
    }

    /// Returns the bytes of CRCs and data, wherever they are.
    pub fn body_bytes(&self) -> usize {
        self.checksum_bytes() + self.data_bytes as usize
    }
}

impl RangeHead {
    /// Appends the head with a length prefix.
    pub fn encode_into(&self, into: &mut Vec<u8>) {
        let message = match &self.piece {
            Ok(piece) => proto::ManyHeadProto {
                request: self.request,
                status: Status::Success as i32,
                message: None,
                generation_stamp: Some(piece.stamp.0),
                replica_length: Some(piece.replica_length),
                checksum: Some((&piece.checksum).into()),
                data_offset: Some(piece.offset),
                data_bytes: Some(piece.data_bytes),
                checksum_bytes: Some(piece.checksum_bytes() as u32),
                placed: piece.placed.then_some(true),
            },
            Err(refusal) => {
                let mut end = refusal.message.len().min(ReadMany::MESSAGE_BYTES_MAX);
                while !refusal.message.is_char_boundary(end) {
                    end -= 1;
                }
                proto::ManyHeadProto {
                    request: self.request,
                    status: refusal.status as i32,
                    message: Some(refusal.message[..end].to_owned()),
                    ..Default::default()
                }
            }
        };
        delimited::append(&message, into);
    }

    /// Decodes the head at the start of `bytes`. The CRCs and data that follow are not consumed.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::ManyHeadProto, _, _>(bytes, ReadMany::HEAD_BYTES_MAX)
    }

    /// Returns the bytes of CRCs and data that follow.
    pub fn following_bytes(&self) -> usize {
        self.piece.as_ref().map_or(0, |piece| if piece.placed { 0 } else { piece.body_bytes() })
    }
}

impl TryFrom<proto::ManyHeadProto> for RangeHead {
    type Error = MessageError;

    fn try_from(message: proto::ManyHeadProto) -> Result<Self, MessageError> {
        let request = message.request;
        let status = status(message.status)?;
        if status != Status::Success {
            let message = message.message.unwrap_or_default();
            return Ok(Self { request, piece: Err(RangeRefusal { status, message }) });
        }
        let checksum: ChecksumSpec =
            message.checksum.ok_or(ConvertError::Empty { field: "checksum of a range" })?.try_into()?;
        let piece = RangePiece {
            stamp: GenerationStamp(message.generation_stamp.unwrap_or_default()),
            replica_length: message.replica_length.unwrap_or_default(),
            checksum,
            offset: message.data_offset.unwrap_or_default(),
            data_bytes: message.data_bytes.unwrap_or_default(),
            placed: message.placed.unwrap_or_default(),
        };
        let out_of_range = |field, value: u64| MessageError::from(ConvertError::OutOfRange { field, value });
        if piece.data_bytes > ReadMany::RANGE_BYTES_MAX {
            return Err(out_of_range("bytes of a range", u64::from(piece.data_bytes)));
        }
        if piece.checksum_bytes() > ReadMany::CHECKSUM_BYTES_MAX {
            return Err(out_of_range("bytes of checksums of a range", piece.checksum_bytes() as u64));
        }
        let (expected, actual) = (piece.checksum_bytes(), message.checksum_bytes.unwrap_or_default() as usize);
        if expected != actual {
            return Err(ConvertError::Count { field: "bytes of checksums of a range", expected, actual }.into());
        }
        Ok(Self { request, piece: Ok(piece) })
    }
}
