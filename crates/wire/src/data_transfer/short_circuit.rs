use super::{Decoded, MessageError, RESPONSE_BYTES_MAX, Status, decode_into, status};
use crate::delimited;
use crate::proto::hdfs as proto;

/// Id of a shared memory segment between a DataNode and a client on the same machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShmId {
    pub high: i64,
    pub low: i64,
}

/// Slot of a segment, through which the two sides agree whether a replica may be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShmSlot {
    pub segment: ShmId,
    /// Index from 0. It is not validated: check it against the segment.
    pub index: i32,
}

impl From<ShmId> for proto::ShortCircuitShmIdProto {
    fn from(id: ShmId) -> Self {
        Self { hi: id.high, lo: id.low }
    }
}

/// Answer to REQUEST_SHORT_CIRCUIT_SHM. After a success, one byte follows that carries the descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShmResponse {
    pub status: Status,
    pub error: Option<String>,
    pub segment: Option<ShmId>,
}

/// Answer to RELEASE_SHORT_CIRCUIT_FDS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShortCircuitReleaseResponse {
    pub status: Status,
    pub error: Option<String>,
}

impl ShmResponse {
    /// Encodes the answer with a length prefix.
    pub fn encode(&self) -> Vec<u8> {
        delimited::to_vec(&proto::ShortCircuitShmResponseProto {
            status: self.status as i32,
            error: self.error.clone(),
            id: self.segment.map(Into::into),
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::ShortCircuitShmResponseProto, _, _>(bytes, RESPONSE_BYTES_MAX)
    }
}

impl TryFrom<proto::ShortCircuitShmResponseProto> for ShmResponse {
    type Error = MessageError;

    fn try_from(message: proto::ShortCircuitShmResponseProto) -> Result<Self, MessageError> {
        Ok(Self {
            status: status(message.status)?,
            error: message.error,
            segment: message.id.map(|id| ShmId { high: id.hi, low: id.lo }),
        })
    }
}

impl ShortCircuitReleaseResponse {
    /// Encodes the answer with a length prefix.
    pub fn encode(&self) -> Vec<u8> {
        delimited::to_vec(&proto::ReleaseShortCircuitAccessResponseProto {
            status: self.status as i32,
            error: self.error.clone(),
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::ReleaseShortCircuitAccessResponseProto, _, _>(bytes, RESPONSE_BYTES_MAX)
    }
}

impl TryFrom<proto::ReleaseShortCircuitAccessResponseProto> for ShortCircuitReleaseResponse {
    type Error = MessageError;

    fn try_from(message: proto::ReleaseShortCircuitAccessResponseProto) -> Result<Self, MessageError> {
        Ok(Self { status: status(message.status)?, error: message.error })
    }
}
