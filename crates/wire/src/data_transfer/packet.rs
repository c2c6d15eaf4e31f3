use hearth_types::ChecksumSpec;
use prost::Message;

use super::Decoded;
use crate::proto::hdfs::PacketHeaderProto;

/// Payload length and header length, which stand before the header.
pub const PACKET_PREFIX_BYTES: usize = 4 + 2;

/// Longest packet header: the prefix and 27 bytes of protobuf, every field fixed-length so that it never varies with the
/// values. Source: datatransfer.proto, `PacketHeaderProto`. Checked against prost in tests.
pub const PACKET_HEADER_BYTES_MAX: usize = PACKET_PREFIX_BYTES + 27;

/// Bytes of a header message with all the fields that every packet has. Shorter ones lack some, which prost would not say.
const HEADER_MESSAGE_BYTES_MIN: usize = 25;

/// Longest packet taken: header, checksums and data. Source: `dfs.data.transfer.max.packet.size`.
pub const PACKET_BYTES_MAX: usize = 16 << 20;

/// What stands before the checksums and the data of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketHeader {
    /// Where in the block the data starts.
    pub offset: u64,
    /// Counts packets from 0; [`super::HEARTBEAT_SEQNO`] for a sign of life.
    pub seqno: i64,
    /// The block ends; such a packet has no data.
    pub last: bool,
    pub data_bytes: u32,
    /// To disk before it is acknowledged.
    pub sync: bool,
}

/// A packet header with the lengths that it announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketHead {
    pub header: PacketHeader,
    /// Bytes of CRCs that follow the header.
    pub checksum_bytes: usize,
    /// Bytes of data that follow the CRCs. The header's number, as the type for lengths in memory; 0 when the data is in
    /// place already.
    pub data_bytes: usize,
}

/// A packet that cannot be: the connection is out of step.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    #[error("packet payload of {bytes} bytes, less than its own length field")]
    PayloadTooShort { bytes: u32 },
    #[error("packet header of {bytes} bytes lacks fields")]
    HeaderTooShort { bytes: usize },
    #[error("packet of {bytes} bytes is over the limit of {PACKET_BYTES_MAX}")]
    TooLong { bytes: u64 },
    #[error("packet announces {data_bytes} bytes of data in a payload of {payload_bytes}")]
    DataLength { data_bytes: i64, payload_bytes: u64 },
    #[error("packet at negative offset {offset}")]
    Offset { offset: i64 },
    #[error("unreadable packet header: {0}")]
    Unreadable(prost::DecodeError),
}

impl PacketHeader {
    /// Writes prefix and header to the front of `into` and returns their length.
    ///
    /// `checksum_bytes`: bytes of CRCs that will follow.
    pub fn encode(&self, checksum_bytes: usize, into: &mut [u8; PACKET_HEADER_BYTES_MAX]) -> usize {
        self.encode_with(checksum_bytes, self.data_bytes, into)
    }

    /// The same for a packet of a local writer that has put the data into the replica's memory itself: CRCs alone follow.
    pub fn encode_in_place(&self, checksum_bytes: usize, into: &mut [u8; PACKET_HEADER_BYTES_MAX]) -> usize {
        self.encode_with(checksum_bytes, 0, into)
    }

    /// Whether a packet of this header, its data and so many bytes of CRCs is one that is taken. Only such a one may be encoded: who
    /// makes a packet of what a peer has sent asks first.
    pub fn fits(&self, checksum_bytes: usize) -> bool {
        let payload = 4 + checksum_bytes as u64 + u64::from(self.data_bytes);
        payload + u64::from(self.message_bytes()) <= PACKET_BYTES_MAX as u64
    }

    /// Bytes of the header's protobuf.
    fn message_bytes(&self) -> u16 {
        if self.sync { 27 } else { 25 }
    }

    fn encode_with(&self, checksum_bytes: usize, body_bytes: u32, into: &mut [u8; PACKET_HEADER_BYTES_MAX]) -> usize {
        let payload = 4 + checksum_bytes as u64 + u64::from(body_bytes);
        let header_bytes = self.message_bytes();
        assert!(payload + u64::from(header_bytes) <= PACKET_BYTES_MAX as u64, "a packet of {payload} bytes");
        into[0..4].copy_from_slice(&(payload as u32).to_be_bytes());
        into[4..6].copy_from_slice(&header_bytes.to_be_bytes());
        into[6] = 0x09;
        into[7..15].copy_from_slice(&self.offset.to_le_bytes());
        into[15] = 0x11;
        into[16..24].copy_from_slice(&self.seqno.to_le_bytes());
        into[24] = 0x18;
        into[25] = u8::from(self.last);
        into[26] = 0x25;
        into[27..31].copy_from_slice(&self.data_bytes.to_le_bytes());
        into[31] = 0x28;
        into[32] = 1;
        PACKET_PREFIX_BYTES + usize::from(header_bytes)
    }

    /// A sign of life of an idle writer: acknowledged, not stored.
    pub fn is_heartbeat(&self) -> bool {
        self.seqno == super::HEARTBEAT_SEQNO
    }

    /// Where in the block the data ends.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.data_bytes)
    }
}

impl PacketHead {
    /// Decodes the header of the packet at the start of `bytes`. What is consumed is prefix and header; checksums and
    /// data follow.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, PacketError> {
        Self::decode_where(bytes, |_, _| false)
    }

    /// The same on the connection of a local writer, whose packets may lack the data: it is in place then
    /// ([`PacketHead::is_in_place`]). `checksum`: what stands over the data of such packets.
    pub fn decode_local(bytes: &[u8], checksum: ChecksumSpec) -> Result<Decoded<Self>, PacketError> {
        Self::decode_where(bytes, |data_bytes, payload_bytes| {
            data_bytes > 0 && checksum.checksum_bytes(u64::from(data_bytes)) == payload_bytes
        })
    }

    /// `in_place`, told the bytes of data and of all that follows the header: the data does not follow.
    fn decode_where(bytes: &[u8], in_place: impl Fn(u32, u64) -> bool) -> Result<Decoded<Self>, PacketError> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<PACKET_PREFIX_BYTES>() else {
            return Ok(Decoded::Needs(PACKET_PREFIX_BYTES - bytes.len()));
        };
        let payload = u32::from_be_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
        let header_bytes = usize::from(u16::from_be_bytes([prefix[4], prefix[5]]));
        if payload < 4 {
            return Err(PacketError::PayloadTooShort { bytes: payload });
        }
        let total = u64::from(payload) + header_bytes as u64;
        // Java reads the header's length as a signed number: one of 2^15 and more is negative there.
        if total > PACKET_BYTES_MAX as u64 || header_bytes > i16::MAX as usize {
            return Err(PacketError::TooLong { bytes: total });
        }
        if header_bytes < HEADER_MESSAGE_BYTES_MIN {
            return Err(PacketError::HeaderTooShort { bytes: header_bytes });
        }
        let Some(header) = rest.get(..header_bytes) else {
            return Ok(Decoded::Needs(header_bytes - rest.len()));
        };
        let header = PacketHeaderProto::decode(header).map_err(PacketError::Unreadable)?;
        if header.sync_block.is_some() && header_bytes < HEADER_MESSAGE_BYTES_MIN + 2 {
            // It lacks a field that every header has. Passed on with that, the packet could be longer than any may be.
            return Err(PacketError::HeaderTooShort { bytes: header_bytes });
        }
        let payload_bytes = u64::from(payload) - 4;
        let mut follows = true;
        let data_bytes = match u32::try_from(header.data_len) {
            Ok(bytes) if in_place(bytes, payload_bytes) => {
                follows = false;
                bytes
            }
            Ok(bytes) if u64::from(bytes) <= payload_bytes => bytes,
            _ => return Err(PacketError::DataLength { data_bytes: i64::from(header.data_len), payload_bytes }),
        };
        let offset = u64::try_from(header.offset_in_block)
            .map_err(|_| PacketError::Offset { offset: header.offset_in_block })?;
        let head = Self {
            header: PacketHeader {
                offset,
                seqno: header.seqno,
                last: header.last_packet_in_block,
                data_bytes,
                sync: header.sync_block(),
            },
            checksum_bytes: (payload_bytes - if follows { u64::from(data_bytes) } else { 0 }) as usize,
            data_bytes: if follows { data_bytes as usize } else { 0 },
        };
        Ok(Decoded::Complete(head, PACKET_PREFIX_BYTES + header_bytes))
    }

    /// The data does not follow: a local writer has put it where it belongs.
    pub fn is_in_place(&self) -> bool {
        self.header.data_bytes as usize > self.data_bytes
    }

    /// Bytes of checksums and data, which follow the header.
    pub fn body_bytes(&self) -> usize {
        self.checksum_bytes + self.data_bytes
    }
}
