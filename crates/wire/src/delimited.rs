//! Protobuf messages with a length prefix (`writeDelimitedTo`), and the varints of that prefix.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Reason why bytes are not a valid delimited message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DelimitedError {
    #[error("length of a message is not a varint of at most 5 bytes")]
    BadLength,
    #[error("message of {length} bytes is over the limit of {limit}")]
    TooLong { length: usize, limit: usize },
    #[error("message of {length} bytes where only {available} are left")]
    Truncated { length: usize, available: usize },
    #[error("not a protobuf message: {0}")]
    Malformed(#[from] prost::DecodeError),
}

/// Extent of a delimited message in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// The message occupies `bytes[start..end]`.
    Complete { start: usize, end: usize },
    /// At least this many more bytes are needed. Exact once the length prefix has arrived.
    Needs(usize),
}

/// Finds a delimited message at the start of `bytes`. `limit`: longest message accepted, in bytes.
pub fn find(bytes: &[u8], limit: usize) -> Result<Framing, DelimitedError> {
    let mut length: u64 = 0;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        length |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let length = usize::try_from(length).map_err(|_| DelimitedError::BadLength)?;
            if length > limit {
                return Err(DelimitedError::TooLong { length, limit });
            }
            let start = index + 1;
            let end = start + length;
            return Ok(match end.checked_sub(bytes.len()) {
                None | Some(0) => Framing::Complete { start, end },
                Some(missing) => Framing::Needs(missing),
            });
        }
    }
    if bytes.len() >= 5 { Err(DelimitedError::BadLength) } else { Ok(Framing::Needs(1)) }
}

/// Splits the bytes of one delimited message off the front of `frame`, without copying.
pub fn take_bytes(frame: &mut Bytes) -> Result<Bytes, DelimitedError> {
    match find(frame, usize::MAX)? {
        Framing::Complete { start, end } => {
            frame.advance(start);
            Ok(frame.split_to(end - start))
        }
        Framing::Needs(missing) => {
            Err(DelimitedError::Truncated { length: frame.len().saturating_add(missing), available: frame.len() })
        }
    }
}

/// Decodes and removes one delimited message from the front of `frame`.
pub fn take<M: Message + Default>(frame: &mut Bytes) -> Result<M, DelimitedError> {
    Ok(M::decode(take_bytes(frame)?)?)
}

/// Appends `message` with a length prefix.
pub fn put(message: &impl Message, into: &mut BytesMut) {
    let length = message.encoded_len();
    into.reserve(length + prost::length_delimiter_len(length));
    put_length(length, into);
    message.encode_raw(into);
}

/// Appends only the length prefix.
pub fn put_length(length: usize, into: &mut BytesMut) {
    let mut rest = length;
    while rest >= 0x80 {
        into.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.put_u8(rest as u8);
}

/// Like [`put`], to a plain vector.
pub fn append(message: &impl Message, into: &mut Vec<u8>) {
    let length = message.encoded_len();
    into.reserve(length + prost::length_delimiter_len(length));
    prost::encode_length_delimiter(length, into).expect("a vector grows");
    message.encode_raw(into);
}

/// Returns `message` with a length prefix.
pub fn to_vec(message: &impl Message) -> Vec<u8> {
    message.encode_length_delimited_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(find(&[], 10), Ok(Framing::Needs(1)));
        assert_eq!(find(&[3, 1], 10), Ok(Framing::Needs(2)));
        assert_eq!(find(&[0], 10), Ok(Framing::Complete { start: 1, end: 1 }));
        assert_eq!(find(&[11], 10), Err(DelimitedError::TooLong { length: 11, limit: 10 }));
        assert_eq!(find(&[0x80; 4], 10), Ok(Framing::Needs(1)));
        assert_eq!(find(&[0x80; 5], 10), Err(DelimitedError::BadLength));
    }

    proptest! {
        #[test]
        fn written_length_is_decoded(length in 0usize..100_000) {
            let mut bytes = BytesMut::new();
            put_length(length, &mut bytes);
            prop_assert_eq!(bytes.len(), prost::length_delimiter_len(length));
            let start = bytes.len();
            match find(&bytes, usize::MAX).unwrap() {
                Framing::Complete { .. } => prop_assert_eq!(length, 0),
                Framing::Needs(missing) => prop_assert_eq!(missing, length),
            }
            bytes.resize(start + length + 3, 7);
            prop_assert_eq!(find(&bytes, usize::MAX), Ok(Framing::Complete { start, end: start + length }));
        }
    }
}
