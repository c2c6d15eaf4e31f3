use std::time::Duration;

use bytes::Bytes;
use hearth_types::{ChecksumSpec, ExtendedBlock, RemoteSlice, Token, ValidityRecord};
use prost::Message;

use super::ControlError;
use crate::convert::ConvertError;
use crate::data_transfer::Status;
use crate::proto::hearth as proto;

/// Kind 1, from a client: where are the bytes of this replica?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locate {
    /// Chosen by the client; the answer repeats it.
    pub request: u64,
    /// The stamp is the least that will do.
    pub block: ExtendedBlock,
    pub token: Token,
    /// Longest small replica, data and CRCs together, to be answered within the message.
    pub inline_bytes_max: u32,
    /// Where a longer small replica may be written to: data, and its CRCs behind it.
    pub into: Option<RemoteSlice>,
}

/// Kind 2, from a datanode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Located {
    /// It can be read one-sidedly.
    Shown {
        request: u64,
        advertisement: Advertisement,
    },
    /// It is too small for that; here it is.
    Small {
        request: u64,
        replica: SmallReplica,
    },
    Refused {
        request: u64,
        refusal: Refusal,
    },
}

/// A finalized replica that may be read one-sidedly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertisement {
    /// With the replica's own stamp and length.
    pub block: ExtendedBlock,
    pub checksum: ChecksumSpec,
    /// Of this copy.
    pub nonce: u64,
    /// All of the replica's bytes.
    pub data: RemoteSlice,
    /// One big-endian CRC per chunk.
    pub checksums: RemoteSlice,
    /// Where a [`ValidityRecord`] says whose memory this is.
    pub shown: RemoteSlice,
    /// The memory stays as it is for so long, counted from when the question was sent.
    pub lease: Duration,
    /// Another number after each start of the datanode.
    pub incarnation: u64,
}

/// A replica below the slab limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmallReplica {
    pub block: ExtendedBlock,
    pub checksum: ChecksumSpec,
    pub bytes: SmallBytes,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SmallBytes {
    Inline {
        data: Bytes,
        /// One big-endian CRC per chunk.
        checksums: Bytes,
    },
    /// In the client's own memory, where it said, before this message: data, and its CRCs behind it.
    Written,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Not `Success`. `ErrorUnsupported`: not by this path, now; others may do.
    pub status: Status,
    /// For people.
    pub message: String,
}

impl Located {
    pub fn request(&self) -> u64 {
        match self {
            Self::Shown { request, .. } | Self::Small { request, .. } | Self::Refused { request, .. } => *request,
        }
    }
}

impl Locate {
    pub(super) fn message(&self) -> proto::LocateProto {
        proto::LocateProto {
            request: self.request,
            block: (&self.block).into(),
            token: Some((&self.token).into()),
            inline_bytes_max: self.inline_bytes_max,
            into: self.into.as_ref().map(Into::into),
        }
    }

    pub(super) fn from_message(message: proto::LocateProto) -> Result<Self, ConvertError> {
        Ok(Self {
            request: message.request,
            block: message.block.try_into()?,
            token: message.token.map(Token::from).unwrap_or_default(),
            inline_bytes_max: message.inline_bytes_max,
            into: message.into.map(TryInto::try_into).transpose()?,
        })
    }
}

/// Longest text of a refusal in a message, bytes.
const REFUSAL_TEXT_BYTES_MAX: usize = 1000;

fn cut(text: &str) -> String {
    let mut end = text.len().min(REFUSAL_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

impl Located {
    pub(super) fn message(&self) -> proto::LocatedProto {
        let mut message =
            proto::LocatedProto { request: self.request(), status: Status::Success as i32, ..Default::default() };
        match self {
            Self::Shown { advertisement, .. } => message.advertisement = Some(advertisement.message()),
            Self::Small { replica, .. } => message.small = Some(replica.message()),
            Self::Refused { refusal, .. } => {
                message.status = refusal.status as i32;
                message.message = Some(cut(&refusal.message));
            }
        }
        message
    }

    pub(super) fn from_message(message: proto::LocatedProto) -> Result<Self, ConvertError> {
        let request = message.request;
        let status = Status::try_from(message.status).unwrap_or(Status::Error);
        if status != Status::Success {
            let refusal = Refusal { status, message: message.message.unwrap_or_default() };
            return Ok(Self::Refused { request, refusal });
        }
        match (message.advertisement, message.small) {
            (Some(advertisement), None) => {
                Ok(Self::Shown { request, advertisement: Advertisement::from_message(advertisement)? })
            }
            (None, Some(small)) => Ok(Self::Small { request, replica: SmallReplica::from_message(small)? }),
            _ => Err(ConvertError::Empty { field: "answer" }),
        }
    }
}

impl Advertisement {
    /// The record that must stand at `shown` for as long as the memory is the replica's.
    pub fn record(&self) -> ValidityRecord {
        ValidityRecord { block: self.block.block, nonce: self.nonce }
    }

    /// For whoever carries it without knowing what it means.
    pub fn encode(&self) -> Bytes {
        self.message().encode_to_vec().into()
    }

    pub fn decode(bytes: &Bytes) -> Result<Self, ControlError> {
        Ok(Self::from_message(Message::decode(bytes.clone())?)?)
    }

    fn message(&self) -> proto::AdvertisementProto {
        proto::AdvertisementProto {
            block: (&self.block).into(),
            checksum: (&self.checksum).into(),
            nonce: self.nonce,
            data: (&self.data).into(),
            checksums: (&self.checksums).into(),
            shown: (&self.shown).into(),
            lease_ms: u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX),
            incarnation: self.incarnation,
        }
    }

    /// What it says of lengths belongs together.
    fn from_message(message: proto::AdvertisementProto) -> Result<Self, ConvertError> {
        let this = Self {
            block: message.block.try_into()?,
            checksum: message.checksum.try_into()?,
            nonce: message.nonce,
            data: message.data.try_into()?,
            checksums: message.checksums.try_into()?,
            shown: message.shown.try_into()?,
            lease: Duration::from_millis(message.lease_ms.into()),
            incarnation: message.incarnation,
        };
        let lengths = [
            ("data", this.data.length, this.block.length()),
            ("checksums", this.checksums.length, this.checksum.checksum_bytes(this.block.length())),
            ("shown", this.shown.length, ValidityRecord::BYTES as u64),
        ];
        for (field, length, expected) in lengths {
            if length != expected {
                return Err(ConvertError::OutOfRange { field, value: length });
            }
        }
        Ok(this)
    }
}

impl SmallReplica {
    fn message(&self) -> proto::SmallReplicaProto {
        let (data, checksums) = match &self.bytes {
            SmallBytes::Inline { data, checksums } => (Some(data.clone()), Some(checksums.clone())),
            SmallBytes::Written => (None, None),
        };
        proto::SmallReplicaProto { block: (&self.block).into(), checksum: (&self.checksum).into(), data, checksums }
    }

    fn from_message(message: proto::SmallReplicaProto) -> Result<Self, ConvertError> {
        let block: ExtendedBlock = message.block.try_into()?;
        let checksum: ChecksumSpec = message.checksum.try_into()?;
        let bytes = match (message.data, message.checksums) {
            (None, None) => SmallBytes::Written,
            (Some(data), Some(checksums)) => {
                if data.len() as u64 != block.length() {
                    return Err(ConvertError::OutOfRange { field: "data", value: data.len() as u64 });
                }
                if checksums.len() as u64 != checksum.checksum_bytes(block.length()) {
                    return Err(ConvertError::OutOfRange { field: "checksums", value: checksums.len() as u64 });
                }
                SmallBytes::Inline { data, checksums }
            }
            _ => return Err(ConvertError::Empty { field: "data or checksums" }),
        };
        Ok(Self { block, checksum, bytes })
    }
}
