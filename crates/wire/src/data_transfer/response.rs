use hearth_types::{ChecksumKind, ChecksumSpec};

use super::operation::BlockChecksumOptions;
use super::{Decoded, MessageError, RESPONSE_BYTES_MAX, Status, decode_delimited, decode_into, status};
use crate::convert::ConvertError;
use crate::delimited;
use crate::proto::hdfs as proto;

/// A DataNode's answer to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockOpResponse {
    pub status: Status,
    /// For the set-up of a pipeline: `ip:port` of the first DataNode that failed, empty if none did. The client
    /// compares the text.
    pub first_bad_link: Option<String>,
    /// Set for READ_BLOCK and COPY_BLOCK.
    pub read_checksum: Option<ReadChecksum>,
    /// Set for BLOCK_CHECKSUM.
    pub block_checksum: Option<BlockChecksumAnswer>,
    /// Text for users.
    pub message: Option<String>,
    /// Set for REQUEST_SHORT_CIRCUIT_FDS: version of the replica format.
    pub short_circuit_version: Option<u32>,
}

/// Checksum of the packets that follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadChecksum {
    /// Kind `Null`: the packets carry no checksums. The chunk size still applies.
    pub spec: ChecksumSpec,
    /// Offset in the block of the first packet, at or before the requested offset.
    pub chunk_offset: u64,
}

/// Checksum of a block, or of its first bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockChecksumAnswer {
    /// Bytes of data under one CRC.
    pub bytes_per_crc: u32,
    /// Number of CRCs in the meta file.
    pub crcs: u64,
    /// An MD5 of 16 bytes, or composite CRCs of 4.
    pub checksum: Vec<u8>,
    /// Missing in answers of old DataNodes: CRC32.
    pub crc_kind: Option<ChecksumKind>,
    pub options: Option<BlockChecksumOptions>,
}

impl BlockOpResponse {
    pub fn new(status: Status) -> Self {
        Self {
            status,
            first_bad_link: None,
            read_checksum: None,
            block_checksum: None,
            message: None,
            short_circuit_version: None,
        }
    }

    pub fn error(status: Status, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::new(status) }
    }

    /// Returns the answer to the set-up of a pipeline. `first_bad_link`: `ip:port`, empty on success.
    pub fn pipeline(status: Status, first_bad_link: impl Into<String>) -> Self {
        Self { first_bad_link: Some(first_bad_link.into()), ..Self::new(status) }
    }

    /// Returns the answer that is followed by packets.
    pub fn read(spec: ChecksumSpec, chunk_offset: u64) -> Self {
        Self { read_checksum: Some(ReadChecksum { spec, chunk_offset }), ..Self::new(Status::Success) }
    }

    /// Encodes the answer with a length prefix.
    pub fn encode(&self) -> Vec<u8> {
        delimited::to_vec(&proto::BlockOpResponseProto {
            status: self.status as i32,
            first_bad_link: self.first_bad_link.clone(),
            checksum_response: self.block_checksum.as_ref().map(Into::into),
            read_op_checksum_info: self.read_checksum.map(|read| proto::ReadOpChecksumInfoProto {
                checksum: (&read.spec).into(),
                chunk_offset: read.chunk_offset,
            }),
            message: self.message.clone(),
            short_circuit_access_version: self.short_circuit_version,
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::BlockOpResponseProto, _, _>(bytes, RESPONSE_BYTES_MAX)
    }
}

impl TryFrom<proto::BlockOpResponseProto> for BlockOpResponse {
    type Error = MessageError;

    fn try_from(message: proto::BlockOpResponseProto) -> Result<Self, MessageError> {
        let read_checksum = match message.read_op_checksum_info {
            None => None,
            Some(read) => Some(ReadChecksum { spec: read.checksum.try_into()?, chunk_offset: read.chunk_offset }),
        };
        Ok(Self {
            status: status(message.status)?,
            first_bad_link: message.first_bad_link,
            read_checksum,
            block_checksum: message.checksum_response.map(TryInto::try_into).transpose()?,
            message: message.message,
            short_circuit_version: message.short_circuit_access_version,
        })
    }
}

impl From<&BlockChecksumAnswer> for proto::OpBlockChecksumResponseProto {
    fn from(answer: &BlockChecksumAnswer) -> Self {
        Self {
            bytes_per_crc: answer.bytes_per_crc,
            crc_per_block: answer.crcs,
            block_checksum: answer.checksum.clone().into(),
            crc_type: answer.crc_kind.map(|kind| kind as i32),
            block_checksum_options: answer.options.map(Into::into),
        }
    }
}

impl TryFrom<proto::OpBlockChecksumResponseProto> for BlockChecksumAnswer {
    type Error = ConvertError;

    fn try_from(message: proto::OpBlockChecksumResponseProto) -> Result<Self, ConvertError> {
        let crc_kind = match message.crc_type {
            None => None,
            Some(number) => Some(
                u8::try_from(number)
                    .ok()
                    .and_then(ChecksumKind::from_number)
                    .ok_or(ConvertError::UnknownNumber { field: "checksum type", number })?,
            ),
        };
        Ok(Self {
            bytes_per_crc: message.bytes_per_crc,
            crcs: message.crc_per_block,
            checksum: message.block_checksum.to_vec(),
            crc_kind,
            options: message.block_checksum_options.map(TryInto::try_into).transpose()?,
        })
    }
}

/// Encodes the reader's status after the last packet, with a length prefix: `ChecksumOk` if it has verified all data,
/// `Success` if it has not verified it.
pub fn encode_client_read_status(status: Status) -> Vec<u8> {
    delimited::to_vec(&proto::ClientReadStatusProto { status: status as i32 })
}

/// Decodes the result of [`encode_client_read_status`].
pub fn client_read_status(bytes: &[u8]) -> Result<Decoded<Status>, MessageError> {
    Ok(match decode_delimited::<proto::ClientReadStatusProto>(bytes, 1024)? {
        Decoded::Needs(missing) => Decoded::Needs(missing),
        Decoded::Complete(message, consumed) => Decoded::Complete(status(message.status)?, consumed),
    })
}
