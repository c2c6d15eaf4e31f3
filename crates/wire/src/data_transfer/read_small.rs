//! READ_SMALL: many short ranges of many replicas in one round trip, over the domain socket. For what is too small to be
//! worth a descriptor, and for replicas in slabs, whose descriptor nobody gets.

use bytes::Bytes;
use hearth_types::{ByteRange, ChecksumSpec, ExtendedBlock, GenerationStamp, Token};

use super::operation::{base_header, from_base_header};
use super::{Decoded, MessageError, RESPONSE_BYTES_MAX, Status, decode_into, status};
use crate::convert::ConvertError;
use crate::delimited;
use crate::proto::hearth as proto;

/// The request. Answered by a [`SmallAnswer`], which may stop short of the last ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadSmall {
    /// 1 to [`ReadSmall::RANGES_MAX`].
    pub ranges: Vec<SmallRange>,
    pub client_name: String,
}

/// A piece of one replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmallRange {
    /// The length is what the client believes and means nothing here.
    pub block: ExtendedBlock,
    pub token: Token,
    /// At most [`ReadSmall::BYTES_MAX`] when it has been widened to whole chunks.
    pub range: ByteRange,
}

/// Pieces for the first ranges of a request, in order: one at least, all when their bytes fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmallAnswer {
    pub pieces: Vec<SmallPiece>,
}

pub type SmallPiece = Result<SmallData, SmallRefusal>;

/// The bytes of a range, widened to whole chunks, with their CRCs, which are the reader's to check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmallData {
    pub stamp: GenerationStamp,
    /// Bytes of the replica that can be read.
    pub replica_length: u64,
    pub checksum: ChecksumSpec,
    /// Where in the block `data` begins.
    pub offset: u64,
    pub data: Bytes,
    /// Big-endian.
    pub checksums: Bytes,
}

/// Why a range was not read; the others may have been.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmallRefusal {
    pub status: Status,
    /// For people.
    pub message: String,
}

impl ReadSmall {
    pub const RANGES_MAX: usize = 1024;

    /// Data and CRCs of one answer.
    pub const BYTES_MAX: usize = 1 << 20;

    pub(super) fn message(&self) -> proto::ReadSmallRequest {
        let range = |range: &SmallRange| proto::SmallRangeProto {
            header: base_header(&range.block, &range.token),
            offset: range.range.start(),
            length: range.range.length(),
        };
        proto::ReadSmallRequest {
            ranges: self.ranges.iter().map(range).collect(),
            client_name: Some(self.client_name.clone()),
        }
    }

    pub(super) fn from_message(message: proto::ReadSmallRequest) -> Result<Self, ConvertError> {
        let count = message.ranges.len();
        if count == 0 || count > Self::RANGES_MAX {
            return Err(ConvertError::OutOfRange { field: "number of ranges", value: count as u64 });
        }
        let range = |range: proto::SmallRangeProto| {
            let (block, token) = from_base_header(range.header)?;
            let asked = ByteRange::with_length(range.offset, range.length)
                .ok_or(ConvertError::OutOfRange { field: "end of a range", value: range.offset })?;
            Ok(SmallRange { block, token, range: asked })
        };
        Ok(Self {
            ranges: message.ranges.into_iter().map(range).collect::<Result<_, _>>()?,
            client_name: message.client_name.unwrap_or_default(),
        })
    }
}

impl SmallAnswer {
    /// With its length in front.
    pub fn encode(&self) -> Vec<u8> {
        delimited::to_vec(&proto::ReadSmallResponse { pieces: self.pieces.iter().map(piece_message).collect() })
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::ReadSmallResponse, _, _>(bytes, RESPONSE_BYTES_MAX)
    }
}

impl TryFrom<proto::ReadSmallResponse> for SmallAnswer {
    type Error = MessageError;

    fn try_from(message: proto::ReadSmallResponse) -> Result<Self, MessageError> {
        if message.pieces.is_empty() {
            return Err(ConvertError::Empty { field: "answer to a read of small ranges" }.into());
        }
        Ok(Self { pieces: message.pieces.into_iter().map(piece).collect::<Result<_, _>>()? })
    }
}

fn piece_message(piece: &SmallPiece) -> proto::SmallPieceProto {
    match piece {
        Ok(read) => proto::SmallPieceProto {
            status: Status::Success as i32,
            message: None,
            generation_stamp: Some(read.stamp.0),
            replica_length: Some(read.replica_length),
            checksum: Some((&read.checksum).into()),
            data_offset: Some(read.offset),
            data: Some(read.data.clone()),
            checksums: Some(read.checksums.clone()),
        },
        Err(refusal) => proto::SmallPieceProto {
            status: refusal.status as i32,
            message: Some(refusal.message.clone()),
            ..Default::default()
        },
    }
}

fn piece(message: proto::SmallPieceProto) -> Result<SmallPiece, MessageError> {
    let status = status(message.status)?;
    if status != Status::Success {
        return Ok(Err(SmallRefusal { status, message: message.message.unwrap_or_default() }));
    }
    let checksum: ChecksumSpec =
        message.checksum.ok_or(ConvertError::Empty { field: "checksum of a piece" })?.try_into()?;
    let (data, checksums) = (message.data.unwrap_or_default(), message.checksums.unwrap_or_default());
    let expected = checksum.checksum_bytes(data.len() as u64) as usize;
    if checksums.len() != expected {
        let actual = checksums.len();
        return Err(ConvertError::Count { field: "bytes of checksums of a piece", expected, actual }.into());
    }
    Ok(Ok(SmallData {
        stamp: GenerationStamp(message.generation_stamp.unwrap_or_default()),
        replica_length: message.replica_length.unwrap_or_default(),
        checksum,
        offset: message.data_offset.unwrap_or_default(),
        data,
        checksums,
    }))
}
