//! Frames between two ends of a connection: a header of 24 bytes, little-endian, and its payload.
//!
//! ```text
//!   0 kind u32   4 key u32   8 address u64   16 length u64   24 `length` bytes (write, data, message)
//! ```

use hearth_types::RemoteSlice;

/// Size of a header in bytes.
pub(super) const HEADER_BYTES: usize = 24;

/// Maximum payload of one write or data frame, so that large transfers of both kinds are interleaved.
pub(super) const PART_BYTES_MAX: u64 = 256 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SoftFrame {
    /// Requests bytes of the receiver's memory.
    Read(RemoteSlice),
    /// Requested bytes: the next ones of the oldest read that is not complete.
    Data {
        length: u64,
    },
    /// Bytes for the receiver's memory.
    Write(RemoteSlice),
    Message {
        length: u64,
    },
    /// Number of messages taken; the same number of further messages may be sent.
    Credit {
        messages: u64,
    },
}

impl SoftFrame {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let none = RemoteSlice { address: 0, length: 0, key: 0 };
        let (kind, slice): (u32, RemoteSlice) = match *self {
            Self::Read(slice) => (1, slice),
            Self::Data { length } => (2, RemoteSlice { length, ..none }),
            Self::Write(slice) => (3, slice),
            Self::Message { length } => (4, RemoteSlice { length, ..none }),
            Self::Credit { messages } => (5, RemoteSlice { length: messages, ..none }),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&slice.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&slice.address.to_le_bytes());
        bytes[16..24].copy_from_slice(&slice.length.to_le_bytes());
        bytes
    }

    /// Returns `None` for an unknown kind.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let slice = RemoteSlice { key: word(4), address: long(8), length: long(16) };
        Some(match word(0) {
            1 => Self::Read(slice),
            2 => Self::Data { length: slice.length },
            3 => Self::Write(slice),
            4 => Self::Message { length: slice.length },
            5 => Self::Credit { messages: slice.length },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let slice = RemoteSlice { address: 0x0102_0304_0506_0708, length: u64::MAX, key: 0xA0B0_C0D0 };
        let frames = [
            SoftFrame::Read(slice),
            SoftFrame::Data { length: 1 << 40 },
            SoftFrame::Write(slice),
            SoftFrame::Message { length: 7 },
            SoftFrame::Credit { messages: 32 },
        ];
        for frame in frames {
            assert_eq!(SoftFrame::decode(&frame.encode()), Some(frame));
        }
        for kind in [0, 6, 255] {
            let mut bytes = frames[0].encode();
            bytes[0] = kind;
            assert_eq!(SoftFrame::decode(&bytes), None);
        }
    }
}
