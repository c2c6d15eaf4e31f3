//! Control messages of one-sided connections: bytes ⇄ types.
//!
//! A message is a kind byte followed by a protobuf message. Kinds 1 and 2 request and return the location of a
//! replica's memory. Kinds 3 to 7 are those of writers ([`WriteMessage`]). docs/design/0002 has the table of all kinds.
//! If a peer sends anything else, it violates the protocol, and the connection ends.

mod locate;
mod slices;
mod write;

pub use locate::{Advertisement, Locate, Located, Refusal, SmallBytes, SmallReplica};
pub use write::{Grant, Slice, WriteMessage};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use crate::convert::ConvertError;

/// Maximum bytes of a message: the message size of a one-sided transport.
pub const MESSAGE_BYTES_MAX: usize = 8192;

/// First private byte of a connection for reading, which states the purpose.
pub const PURPOSE_READING: u8 = 1;

/// The same for a connection that writes replicas, one after the other.
pub const PURPOSE_WRITING: u8 = 2;

/// Second private byte: version of these messages.
pub const VERSION: u8 = 1;

/// Returns the private bytes with which a DataNode accepts a connection: purpose, version, and its incarnation.
pub fn encode_acceptance(purpose: u8, incarnation: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    (bytes[0], bytes[1]) = (purpose, VERSION);
    bytes[2..].copy_from_slice(&incarnation.to_be_bytes());
    bytes
}

/// Returns the incarnation in the private bytes of an acceptance. `None`: they do not contain it.
pub fn decode_acceptance(private: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(private.get(2..10)?.try_into().ok()?))
}

/// Control message of a reading connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlMessage {
    Locate(Locate),
    Located(Located),
}

/// Reason why bytes are not a control message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlError {
    #[error("an empty control message")]
    Empty,
    #[error("a control message of {bytes} bytes")]
    TooLong { bytes: usize },
    #[error("control messages have no kind {0}")]
    UnknownKind(u8),
    #[error("not a protobuf message: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error(transparent)]
    Content(#[from] ConvertError),
}

impl ControlMessage {
    /// Encodes a message. Errors: `TooLong` if it does not fit into one message.
    pub fn encode(&self) -> Result<Bytes, ControlError> {
        match self {
            Self::Locate(locate) => with_kind(1, &locate.message()),
            Self::Located(located) => with_kind(2, &located.message()),
        }
    }

    pub fn decode(bytes: &Bytes) -> Result<Self, ControlError> {
        let kind = *bytes.first().ok_or(ControlError::Empty)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(ControlError::TooLong { bytes: bytes.len() });
        }
        let body = bytes.slice(1..);
        Ok(match kind {
            1 => Self::Locate(Locate::from_message(Message::decode(body)?)?),
            2 => Self::Located(Located::from_message(Message::decode(body)?)?),
            kind => return Err(ControlError::UnknownKind(kind)),
        })
    }
}

fn with_kind(kind: u8, message: &impl Message) -> Result<Bytes, ControlError> {
    let mut bytes = BytesMut::with_capacity(1 + message.encoded_len());
    bytes.put_u8(kind);
    message.encode(&mut bytes).expect("it grows");
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(ControlError::TooLong { bytes: bytes.len() });
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests;
