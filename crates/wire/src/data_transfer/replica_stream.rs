//! REPLICA_STREAM: one connection for many finalized replicas from one DataNode to another.
//!
//! ```text
//! request    [Operation::ReplicaStream], once
//! terms      [StreamTerms], once
//! frame      head of 24 bytes, body; to the receiver [ToReceiver], to the sender [ToSender]
//!
//! head       u8 kind, 3 bytes 0, u32 replica, u64 offset, u32 body bytes, u32 checksum bytes     (big-endian)
//! ```
//! The sender numbers the replicas of a connection in ascending order and never reuses a number. The decoder consumes
//! all of a frame except the body of [`ToReceiver::Data`]: CRCs, then data.
//!
//! [Operation::ReplicaStream]: super::Operation::ReplicaStream

use hearth_types::{ChecksumSpec, ExtendedBlock, StorageId, StorageType, Token};
use prost::Message;

use super::operation::{base_header, from_base_header};
use super::{Decoded, MessageError, Status, decode_into, status};
use crate::convert::{ConvertError, storage_type_from_wire};
use crate::delimited::{self, DelimitedError};
use crate::proto::hearth as proto;

/// Bytes of the head of each frame.
pub const STREAM_HEAD_BYTES: usize = 24;

/// Maximum bytes of a body that is a message.
const MESSAGE_BODY_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of the text of a refusal.
const TEXT_BYTES_MAX: usize = 16 << 10;

const OPEN: u8 = 1;
const DATA: u8 = 2;
const CANCEL: u8 = 3;
const OPENED: u8 = 11;
const STORED: u8 = 12;
const DONE: u8 = 13;
const REFUSED: u8 = 14;
const PING: u8 = 20;

/// Request that turns a connection into a replica stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplicaStream {
    /// For the receiver's log.
    pub source_uuid: String,
}

/// Answer to the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamTerms {
    Accepted(StreamLimits),
    Refused(ReplicaRefusal),
}

/// Limits of the sender on a connection, set by the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamLimits {
    /// Maximum bytes of CRCs and data that were sent and not yet credited.
    pub window_bytes: u32,
    /// Maximum data bytes of one replica that were sent and not yet stored.
    pub replica_window_bytes: u32,
    /// Maximum data bytes of one frame.
    pub frame_bytes_max: u32,
    /// Maximum number of concurrent replicas.
    pub replicas_max: u32,
}

/// Reason why a replica, or the connection, is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{status:?}: {message}")]
pub struct ReplicaRefusal {
    pub status: Status,
    /// Text for users.
    pub message: String,
}

/// Announcement of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenReplica {
    /// Block with its full length.
    pub block: ExtendedBlock,
    pub token: Token,
    pub checksum: ChecksumSpec,
    pub storage_type: StorageType,
    pub storage_id: Option<StorageId>,
}

/// Head before CRCs and data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaPiece {
    pub replica: u32,
    /// Offset of the data in the block, on a chunk boundary.
    pub offset: u64,
    pub checksum_bytes: u32,
    /// Bytes of data: whole chunks, with a shorter last one only at the replica's end.
    pub data_bytes: u32,
}

/// Frame from the sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToReceiver {
    Open {
        replica: u32,
        request: Box<OpenReplica>,
    },
    /// CRCs and data follow.
    Data(ReplicaPiece),
    /// The sender stops sending this replica.
    Cancel {
        replica: u32,
    },
    /// Keep-alive of the sender.
    Ping,
}

/// Frame from the receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToSender {
    /// The replica is wanted from `offset` on. Earlier data is already there from an earlier connection.
    Opened {
        replica: u32,
        offset: u64,
    },
    /// All data before `offset` was verified and stored. `credit` more bytes may be sent on this connection.
    Stored {
        replica: u32,
        offset: u64,
        credit: u32,
    },
    /// The replica is finalized, and will be reported.
    Done {
        replica: u32,
    },
    /// The replica is not wanted. Data in flight is dropped, and its credit is returned.
    Refused {
        replica: u32,
        refusal: ReplicaRefusal,
    },
    Ping,
}

impl ReplicaStream {
    pub(super) fn message(&self) -> proto::ReplicaStreamRequest {
        proto::ReplicaStreamRequest { source_uuid: Some(self.source_uuid.clone()) }
    }

    pub(super) fn from_message(message: proto::ReplicaStreamRequest) -> Self {
        Self { source_uuid: message.source_uuid.unwrap_or_default() }
    }
}

impl StreamLimits {
    /// Maximum values that a peer may offer or accept.
    pub const MAX: Self =
        Self { window_bytes: 64 << 20, replica_window_bytes: 64 << 20, frame_bytes_max: 4 << 20, replicas_max: 1024 };

    /// Maximum CRC bytes of one frame: a quarter of its maximum data, because chunks have at least 16 bytes.
    pub const CHECKSUM_BYTES_MAX: u32 = Self::MAX.frame_bytes_max / 4;

    /// Returns how much of a replica may be sent before the receiver has answered whether and from which offset it is
    /// wanted. If all replicas of a connection are in that state, half of the window is still free.
    pub fn unsolicited_bytes(&self) -> u64 {
        u64::from(self.window_bytes / 4 / self.replicas_max.max(1))
    }

    /// Returns whether a sender can make progress with these limits.
    fn is_usable(&self) -> bool {
        let Self { window_bytes, replica_window_bytes, frame_bytes_max, replicas_max } = *self;
        let least = [window_bytes / 2, replica_window_bytes, frame_bytes_max].into_iter().min().unwrap_or_default();
        least >= 1024 && replicas_max > 0
    }

    fn capped(self) -> Self {
        let max = Self::MAX;
        Self {
            window_bytes: self.window_bytes.min(max.window_bytes),
            replica_window_bytes: self.replica_window_bytes.min(max.replica_window_bytes),
            frame_bytes_max: self.frame_bytes_max.min(max.frame_bytes_max),
            replicas_max: self.replicas_max.min(max.replicas_max),
        }
    }
}

impl ReplicaRefusal {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// Returns the text, truncated to the accepted length.
    fn text(&self) -> String {
        let mut end = self.message.len().min(TEXT_BYTES_MAX);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        self.message[..end].to_owned()
    }

    fn from_message(message: proto::ReplicaRefusalProto) -> Result<Self, MessageError> {
        Ok(Self { status: status(message.status)?, message: message.message.unwrap_or_default() })
    }
}

impl StreamTerms {
    /// Encodes the terms with a length prefix.
    pub fn encode(&self) -> Vec<u8> {
        delimited::to_vec(&match self {
            Self::Accepted(limits) => proto::ReplicaStreamResponse {
                status: Status::Success as i32,
                message: None,
                window_bytes: Some(limits.window_bytes),
                replica_window_bytes: Some(limits.replica_window_bytes),
                frame_bytes_max: Some(limits.frame_bytes_max),
                replicas_max: Some(limits.replicas_max),
            },
            Self::Refused(refusal) => proto::ReplicaStreamResponse {
                status: refusal.status as i32,
                message: Some(refusal.text()),
                ..Default::default()
            },
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::ReplicaStreamResponse, _, _>(bytes, MESSAGE_BODY_BYTES_MAX)
    }
}

impl TryFrom<proto::ReplicaStreamResponse> for StreamTerms {
    type Error = MessageError;

    fn try_from(message: proto::ReplicaStreamResponse) -> Result<Self, MessageError> {
        let status = status(message.status)?;
        if status != Status::Success {
            return Ok(Self::Refused(ReplicaRefusal::new(status, message.message.unwrap_or_default())));
        }
        let limits = StreamLimits {
            window_bytes: message.window_bytes.unwrap_or_default(),
            replica_window_bytes: message.replica_window_bytes.unwrap_or_default(),
            frame_bytes_max: message.frame_bytes_max.unwrap_or_default(),
            replicas_max: message.replicas_max.unwrap_or_default(),
        };
        if !limits.is_usable() {
            let value = u64::from(limits.window_bytes);
            return Err(ConvertError::OutOfRange { field: "limits of a replica stream", value }.into());
        }
        Ok(Self::Accepted(limits.capped()))
    }
}

impl From<&OpenReplica> for proto::OpenReplicaProto {
    fn from(request: &OpenReplica) -> Self {
        Self {
            header: base_header(&request.block, &request.token),
            checksum: (&request.checksum).into(),
            storage_type: Some(request.storage_type as i32),
            storage_id: request.storage_id.as_ref().map(ToString::to_string),
        }
    }
}

impl TryFrom<proto::OpenReplicaProto> for OpenReplica {
    type Error = ConvertError;

    fn try_from(message: proto::OpenReplicaProto) -> Result<Self, ConvertError> {
        let storage_type = storage_type_from_wire(message.storage_type() as i32);
        let (block, token) = from_base_header(message.header)?;
        Ok(Self {
            block,
            token,
            checksum: message.checksum.try_into()?,
            storage_type,
            storage_id: message.storage_id.filter(|id| !id.is_empty()).map(|id| StorageId(id.into())),
        })
    }
}

/// Fixed part of every frame.
#[derive(Clone, Copy, Default)]
struct Head {
    kind: u8,
    replica: u32,
    offset: u64,
    body_bytes: u32,
    checksum_bytes: u32,
}

impl Head {
    fn put(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&[self.kind, 0, 0, 0]);
        into.extend_from_slice(&self.replica.to_be_bytes());
        into.extend_from_slice(&self.offset.to_be_bytes());
        into.extend_from_slice(&self.body_bytes.to_be_bytes());
        into.extend_from_slice(&self.checksum_bytes.to_be_bytes());
    }

    /// Decodes the head. `None`: incomplete.
    fn take(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<STREAM_HEAD_BYTES>()?;
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Self {
            kind: head[0],
            replica: number(4),
            offset: u64::from(number(8)) << 32 | u64::from(number(12)),
            body_bytes: number(16),
            checksum_bytes: number(20),
        })
    }

    fn unknown(self) -> MessageError {
        ConvertError::UnknownNumber { field: "kind of a stream's frame", number: i32::from(self.kind) }.into()
    }

    fn with_message(self, message: &impl Message, into: &mut Vec<u8>) {
        Self { body_bytes: message.encoded_len() as u32, ..self }.put(into);
        message.encode(into).expect("a vector grows");
    }

    /// Decodes the message in the frame's body. The result counts the bytes of the whole frame.
    fn message<M: Message + Default>(self, bytes: &[u8]) -> Result<Decoded<M>, MessageError> {
        let length = self.body_bytes as usize;
        if length > MESSAGE_BODY_BYTES_MAX {
            return Err(DelimitedError::TooLong { length, limit: MESSAGE_BODY_BYTES_MAX }.into());
        }
        let end = STREAM_HEAD_BYTES + length;
        Ok(match bytes.get(STREAM_HEAD_BYTES..end) {
            None => Decoded::Needs(end - bytes.len()),
            Some(body) => Decoded::Complete(M::decode(body).map_err(DelimitedError::from)?, end),
        })
    }

    fn without_body(self) -> Result<Self, MessageError> {
        if self.body_bytes > 0 && self.kind != STORED {
            let value = u64::from(self.body_bytes);
            return Err(ConvertError::OutOfRange { field: "body of a stream's frame", value }.into());
        }
        Ok(self)
    }
}

impl ReplicaPiece {
    /// Returns the bytes of CRCs and data that follow, which is also their credit cost.
    pub fn body_bytes(&self) -> u64 {
        u64::from(self.checksum_bytes) + u64::from(self.data_bytes)
    }

    /// Returns the offset of the data's end.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.data_bytes)
    }

    /// Appends the head.
    pub fn encode_into(&self, into: &mut Vec<u8>) {
        let body_bytes = self.checksum_bytes + self.data_bytes;
        let Self { replica, offset, checksum_bytes, .. } = *self;
        Head { kind: DATA, replica, offset, body_bytes, checksum_bytes }.put(into);
    }

    fn from_head(head: Head) -> Result<Self, MessageError> {
        let out_of_range = |field, value: u32| Err(ConvertError::OutOfRange { field, value: value.into() }.into());
        let Head { replica, offset, body_bytes, checksum_bytes, .. } = head;
        if checksum_bytes > StreamLimits::CHECKSUM_BYTES_MAX {
            return out_of_range("bytes of checksums of a stream's frame", checksum_bytes);
        }
        let data_bytes = body_bytes.checked_sub(checksum_bytes).unwrap_or(u32::MAX);
        if data_bytes == 0 || data_bytes > StreamLimits::MAX.frame_bytes_max {
            return out_of_range("bytes of a stream's frame", data_bytes);
        }
        if offset > i64::MAX as u64 - u64::from(data_bytes) {
            return Err(ConvertError::OutOfRange { field: "offset of a stream's frame", value: offset }.into());
        }
        Ok(Self { replica, offset, checksum_bytes, data_bytes })
    }
}

impl ToReceiver {
    /// Appends the frame; for data only the head.
    pub fn encode_into(&self, into: &mut Vec<u8>) {
        match self {
            Self::Open { replica, request } => Head { kind: OPEN, replica: *replica, ..Head::default() }
                .with_message(&proto::OpenReplicaProto::from(request.as_ref()), into),
            Self::Data(piece) => piece.encode_into(into),
            Self::Cancel { replica } => Head { kind: CANCEL, replica: *replica, ..Head::default() }.put(into),
            Self::Ping => Head { kind: PING, ..Head::default() }.put(into),
        }
    }

    /// Decodes the frame at the start of `bytes`; for data only the head.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        let Some(head) = Head::take(bytes) else { return Ok(Decoded::Needs(STREAM_HEAD_BYTES - bytes.len())) };
        let replica = head.replica;
        let frame = match head.kind {
            OPEN => {
                return Ok(match head.message::<proto::OpenReplicaProto>(bytes)? {
                    Decoded::Needs(missing) => Decoded::Needs(missing),
                    Decoded::Complete(message, end) => {
                        Decoded::Complete(Self::Open { replica, request: Box::new(message.try_into()?) }, end)
                    }
                });
            }
            DATA => Self::Data(ReplicaPiece::from_head(head)?),
            CANCEL => Self::Cancel { replica: head.without_body()?.replica },
            PING => head.without_body().map(|_| Self::Ping)?,
            _ => return Err(head.unknown()),
        };
        Ok(Decoded::Complete(frame, STREAM_HEAD_BYTES))
    }
}

impl ToSender {
    /// Appends the frame.
    pub fn encode_into(&self, into: &mut Vec<u8>) {
        match self {
            Self::Opened { replica, offset } => {
                Head { kind: OPENED, replica: *replica, offset: *offset, ..Head::default() }.put(into);
            }
            Self::Stored { replica, offset, credit } => {
                let head = Head { kind: STORED, replica: *replica, offset: *offset, ..Head::default() };
                Head { body_bytes: *credit, ..head }.put(into);
            }
            Self::Done { replica } => Head { kind: DONE, replica: *replica, ..Head::default() }.put(into),
            Self::Refused { replica, refusal } => {
                let message =
                    proto::ReplicaRefusalProto { status: refusal.status as i32, message: Some(refusal.text()) };
                Head { kind: REFUSED, replica: *replica, ..Head::default() }.with_message(&message, into);
            }
            Self::Ping => Head { kind: PING, ..Head::default() }.put(into),
        }
    }

    /// Decodes the frame at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        let Some(head) = Head::take(bytes) else { return Ok(Decoded::Needs(STREAM_HEAD_BYTES - bytes.len())) };
        let Head { replica, offset, body_bytes, .. } = head;
        let frame = match head.kind {
            REFUSED => {
                return Ok(match head.message::<proto::ReplicaRefusalProto>(bytes)? {
                    Decoded::Needs(missing) => Decoded::Needs(missing),
                    Decoded::Complete(message, end) => {
                        let refusal = ReplicaRefusal::from_message(message)?;
                        Decoded::Complete(Self::Refused { replica, refusal }, end)
                    }
                });
            }
            STORED => Self::Stored { replica, offset, credit: body_bytes },
            OPENED => head.without_body().map(|_| Self::Opened { replica, offset })?,
            DONE => head.without_body().map(|_| Self::Done { replica })?,
            PING => head.without_body().map(|_| Self::Ping)?,
            _ => return Err(head.unknown()),
        };
        Ok(Decoded::Complete(frame, STREAM_HEAD_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::{Block, BlockId, BlockPoolId, GenerationStamp};
    use proptest::prelude::*;

    use super::*;

    fn open() -> ToReceiver {
        let block = Block { id: BlockId(-7), stamp: GenerationStamp(1001), length: 1 << 40 };
        let request = OpenReplica {
            block: ExtendedBlock { pool: BlockPoolId::new("BP-1-127.0.0.1-1"), block },
            token: Token { identifier: vec![1; 90], ..Token::default() },
            checksum: ChecksumSpec::DEFAULT,
            storage_type: StorageType::Ssd,
            storage_id: Some(StorageId("DS-1".into())),
        };
        ToReceiver::Open { replica: 9, request: Box::new(request) }
    }

    #[test]
    fn frames_round_trip_and_report_missing_bytes() {
        let piece = ReplicaPiece { replica: 3, offset: 1 << 33, checksum_bytes: 8 << 10, data_bytes: 1 << 20 };
        for frame in [open(), ToReceiver::Data(piece), ToReceiver::Cancel { replica: 1 }, ToReceiver::Ping] {
            let mut bytes = Vec::new();
            frame.encode_into(&mut bytes);
            assert_eq!(ToReceiver::decode(&bytes), Ok(Decoded::Complete(frame, bytes.len())));
            for cut in 0..bytes.len() {
                let Ok(Decoded::Needs(missing)) = ToReceiver::decode(&bytes[..cut]) else { panic!("{cut}") };
                assert!(missing > 0 && cut + missing <= bytes.len());
            }
        }
        let refusal = ReplicaRefusal::new(Status::ErrorExists, "there");
        for frame in [
            ToSender::Opened { replica: 1, offset: 5 << 30 },
            ToSender::Stored { replica: 1, offset: 1, credit: u32::MAX },
            ToSender::Done { replica: u32::MAX },
            ToSender::Refused { replica: 2, refusal },
            ToSender::Ping,
        ] {
            let mut bytes = Vec::new();
            frame.encode_into(&mut bytes);
            assert_eq!(ToSender::decode(&bytes), Ok(Decoded::Complete(frame, bytes.len())));
        }
    }

    #[test]
    fn unusable_terms_and_excessive_lengths_are_rejected() {
        let limits = StreamLimits {
            window_bytes: 1 << 30,
            replica_window_bytes: 4 << 20,
            frame_bytes_max: 1 << 20,
            replicas_max: 9,
        };
        let bytes = StreamTerms::Accepted(limits).encode();
        let Ok(Decoded::Complete(StreamTerms::Accepted(taken), _)) = StreamTerms::decode(&bytes) else { panic!() };
        assert_eq!(taken, StreamLimits { window_bytes: 64 << 20, ..limits });
        assert!(
            StreamTerms::decode(&StreamTerms::Accepted(StreamLimits { replicas_max: 0, ..limits }).encode()).is_err()
        );
        assert!(
            StreamTerms::decode(&StreamTerms::Accepted(StreamLimits { window_bytes: 9, ..limits }).encode()).is_err()
        );

        let head = |kind, offset, body_bytes, checksum_bytes| {
            let mut bytes = Vec::new();
            Head { kind, replica: 1, offset, body_bytes, checksum_bytes }.put(&mut bytes);
            ToReceiver::decode(&bytes)
        };
        assert!(head(DATA, 0, 512, 0).is_ok());
        assert!(head(DATA, 0, (4 << 20) + 1, 0).is_err(), "too long");
        assert!(head(DATA, 0, 4, 4).is_err(), "no data");
        assert!(head(DATA, 0, 4, 5).is_err(), "more checksums than body");
        assert!(head(DATA, 0, 4 << 20, 2 << 20).is_err(), "too many checksums");
        assert!(head(DATA, u64::MAX - 3, 512, 0).is_err(), "beyond any block");
        assert!(head(OPEN, 0, u32::MAX, 0).is_err());
        assert!(head(PING, 0, 1, 0).is_err());
        assert!(head(99, 0, 0, 0).is_err());
    }

    proptest! {
        #[test]
        fn damaged_frames_are_decoded_or_refused(bytes: Vec<u8>, at in 0usize..120, value: u8) {
            let _ = (ToReceiver::decode(&bytes), ToSender::decode(&bytes), StreamTerms::decode(&bytes));
            let mut frame = Vec::new();
            open().encode_into(&mut frame);
            let at = at.min(frame.len() - 1);
            frame[at] = value;
            let _ = ToReceiver::decode(&frame);
        }
    }
}
