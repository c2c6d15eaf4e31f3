//! READ_MANY: one connection that carries ranges of many replicas, each answered as soon as it is ready, in any order.
//!
//! ```text
//! request    [Operation::ReadMany], once; ranges may follow at once
//! terms      [ReadManyTerms], once
//! range      [RangeRequest], as many as the client lets be outstanding
//! answer     [RangeHead], then CRCs and data as it says; one for each range
//! ```
//!
//! On a domain socket the client may lend memory: after the terms it sends a byte with the memory's descriptor, each range may name a
//! [AnswerSlot] in it, and the head of what was put there has nothing behind it.
//!
//! [Operation::ReadMany]: super::Operation::ReadMany

use hearth_types::{ByteRange, ChecksumSpec, ExtendedBlock, GenerationStamp, Token};

use super::operation::{base_header, from_base_header};
use super::{Decoded, MessageError, Status, decode_into, status};
use crate::convert::ConvertError;
use crate::delimited;
use crate::proto::hearth as proto;

/// The request that makes a connection one of many reads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadMany {
    /// For the DataNode's log.
    pub client_name: String,
    /// The client lends so much memory, if the DataNode takes it; 0: none.
    pub memory_bytes: u64,
}

/// The answer to the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadManyTerms {
    /// Longest range, widened to whole chunks, in bytes.
    Accepted {
        range_bytes_max: u32,
        /// The descriptor of the client's memory is to be sent.
        takes_memory: bool,
    },
    Refused(RangeRefusal),
}

/// A part of the client's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerSlot {
    pub offset: u64,
    /// Room for CRCs and data.
    pub bytes: u32,
}

/// A piece of one replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeRequest {
    /// Chosen by the client, never twice on a connection.
    pub request: u64,
    /// The length is what the client believes and means nothing here.
    pub block: ExtendedBlock,
    pub token: Token,
    /// At most [`ReadMany::RANGE_BYTES_MAX`] when it has been widened to whole chunks.
    pub range: ByteRange,
    /// Where the answer may be put.
    pub place: Option<AnswerSlot>,
}

/// What stands before the bytes of a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeHead {
    pub request: u64,
    pub piece: Result<RangePiece, RangeRefusal>,
}

/// What follows, or was put into the client's memory: CRCs, then data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangePiece {
    pub stamp: GenerationStamp,
    /// Bytes of the replica that can be read.
    pub replica_length: u64,
    pub checksum: ChecksumSpec,
    /// Where in the block the data begins.
    pub offset: u64,
    /// Whole chunks, and a shorter last one only at the replica's end.
    pub data_bytes: u32,
    /// They are where the range said, and nothing follows.
    pub placed: bool,
}

/// Why a range was not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeRefusal {
    pub status: Status,
    /// For people.
    pub message: String,
}

impl ReadMany {
    /// Data of one range, widened to whole chunks.
    pub const RANGE_BYTES_MAX: u32 = 1 << 20;

    /// Longest encoded range; most of it may be a token.
    pub const RANGE_FRAME_BYTES_MAX: usize = 16 << 10;

    /// Longest encoded head; most of it may be the text of a refusal.
    pub const HEAD_BYTES_MAX: usize = 64 << 10;

    /// Longest text of a refusal.
    pub const MESSAGE_BYTES_MAX: usize = 16 << 10;

    /// Memory that one client lends on one connection.
    pub const MEMORY_BYTES_MAX: u64 = 64 << 20;

    /// CRCs of one range: with chunks of 16 bytes and more they are no longer than this.
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
    /// With its length in front.
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
    /// Appends it with its length in front.
    pub fn encode_into(&self, into: &mut Vec<u8>) {
        let message = proto::ManyRangeProto {
            request: self.request,
            header: base_header(&self.block, &self.token),
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
        let (block, token) = from_base_header(message.header)?;
        let range = ByteRange::with_length(message.offset, message.length)
            .ok_or(ConvertError::OutOfRange { field: "end of a range", value: message.offset })?;
        let place = message.place.map(|offset| AnswerSlot { offset, bytes: message.place_bytes.unwrap_or_default() });
        Ok(Self { request: message.request, block, token, range, place })
    }
}

impl RangePiece {
    /// Bytes of CRCs that follow the head.
    pub fn checksum_bytes(&self) -> usize {
        self.checksum.checksum_bytes(u64::from(self.data_bytes)) as usize
    }

    /// Bytes of CRCs and data, wherever they are.
    pub fn body_bytes(&self) -> usize {
        self.checksum_bytes() + self.data_bytes as usize
    }
}

impl RangeHead {
    /// Appends it with its length in front.
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

    /// The head at the start of `bytes`; what it consumes does not count the CRCs and data that follow.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::ManyHeadProto, _, _>(bytes, ReadMany::HEAD_BYTES_MAX)
    }

    /// Bytes of CRCs and data that follow.
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
