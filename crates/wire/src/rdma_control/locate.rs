use std::time::Duration;

use bytes::Bytes;
use hearth_types::{ChecksumSpec, ExtendedBlock, RemoteSlice, Token, ValidityRecord};
use prost::Message;

use super::ControlError;
use crate::convert::ConvertError;
use crate::data_transfer::Status;
use crate::proto::hearth as proto;

/// Kind 1, from a client: requests the location of a replica's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locate {
    /// Id chosen by the client, repeated in the answer.
    pub request: u64,
    /// The stamp is the minimum that the client accepts.
    pub block: ExtendedBlock,
    pub token: Token,
    /// Maximum size of a small replica, data and CRCs together, for an answer that contains it.
    pub inline_bytes_max: u32,
    /// Target in the client's memory for a larger small replica: data, followed by its CRCs.
    pub into: Option<RemoteSlice>,
}

/// Kind 2, from a datanode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Located {
    /// The replica can be read one-sidedly.
    Shown {
        request: u64,
        advertisement: Advertisement,
    },
    /// The replica is too small for one-sided reads, and included here.
    Small {
        request: u64,
        replica: SmallReplica,
    },
    Refused {
        request: u64,
        refusal: Refusal,
    },
}

/// Finalized replica that may be read one-sidedly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertisement {
    /// With the replica's own stamp and length.
    pub block: ExtendedBlock,
    pub checksum: ChecksumSpec,
    /// Nonce of this copy.
    pub nonce: u64,
    /// All of the replica's bytes.
    pub data: RemoteSlice,
    /// One big-endian CRC per chunk.
    pub checksums: RemoteSlice,
    /// Location of the [`ValidityRecord`], which identifies the memory's current owner.
    pub shown: RemoteSlice,
    /// Time for which the memory does not change, counted from the sending of the request.
    pub lease: Duration,
    /// Changes at each start of the DataNode.
    pub incarnation: u64,
}

/// Replica below the slab limit.
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
    /// Written to the client's own memory, at the place in its request, before this message was sent: data, followed by
    /// its CRCs.
    Written,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Never `Success`. `ErrorUnsupported`: not available over this path now; other paths may work.
    pub status: Status,
    /// Text for users.
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

/// Maximum bytes of the text of a refusal in a message.
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
    /// Returns the record that must be at `shown` as long as the memory belongs to the replica.
    pub fn record(&self) -> ValidityRecord {
        ValidityRecord { block: self.block.block, nonce: self.nonce }
    }

    /// Encodes the advertisement, for servers that pass it on as opaque bytes.
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

    /// Decodes an advertisement, and checks that its lengths match.
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
