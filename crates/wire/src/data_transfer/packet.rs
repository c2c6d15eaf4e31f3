use hearth_types::ChecksumSpec;
use prost::Message;

use super::Decoded;
use crate::proto::hdfs::PacketHeaderProto;

/// Bytes of the payload length and the header length, which precede the header.
pub const PACKET_PREFIX_BYTES: usize = 4 + 2;

/// Maximum bytes of a packet header: the prefix and 27 bytes of protobuf. Every field has a fixed length, so that the
/// header's length does not vary with the values. Source: datatransfer.proto, `PacketHeaderProto`. Checked against
/// prost in tests.
pub const PACKET_HEADER_BYTES_MAX: usize = PACKET_PREFIX_BYTES + 27;

/// Bytes of a header message with all mandatory fields. Shorter ones lack some of them, which prost does not report.
const HEADER_MESSAGE_BYTES_MIN: usize = 25;

/// Longest accepted packet: header, checksums and data. Source: `dfs.data.transfer.max.packet.size`.
pub const PACKET_BYTES_MAX: usize = 16 << 20;

/// Header before the checksums and the data of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketHeader {
    /// Offset of the data in the block.
    pub offset: u64,
    /// Sequence number from 0, or [`super::HEARTBEAT_SEQNO`] for a heartbeat.
    pub seqno: i64,
    /// End of the block. Such a packet has no data.
    pub last: bool,
    pub data_bytes: u32,
    /// Sync to disk before the packet is acknowledged.
    pub sync: bool,
}

/// Packet header with the lengths of the parts that follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketHead {
    pub header: PacketHeader,
    /// Bytes of CRCs after the header.
    pub checksum_bytes: usize,
    /// Bytes of data after the CRCs. The header's number, in the type for lengths in memory. 0 if the data is already
    /// in place.
    pub data_bytes: usize,
}

/// Error of an invalid packet: the connection is out of sync.
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
    /// Writes prefix and header to the front of `into`, and returns their length.
    ///
    /// `checksum_bytes`: bytes of CRCs that will follow.
    pub fn encode(&self, checksum_bytes: usize, into: &mut [u8; PACKET_HEADER_BYTES_MAX]) -> usize {
        self.encode_with(checksum_bytes, self.data_bytes, into)
    }

    /// Encodes the header of a packet of a local writer that has already written the data to the replica's memory: only
    /// CRCs follow.
    pub fn encode_in_place(&self, checksum_bytes: usize, into: &mut [u8; PACKET_HEADER_BYTES_MAX]) -> usize {
        self.encode_with(checksum_bytes, 0, into)
    }

    /// Returns whether a packet with this header, its data and `checksum_bytes` of CRCs is within the accepted size.
    /// Only such a packet may be encoded, so call this before building a packet from a peer's data.
    pub fn fits(&self, checksum_bytes: usize) -> bool {
        let payload = 4 + checksum_bytes as u64 + u64::from(self.data_bytes);
        payload + u64::from(self.message_bytes()) <= PACKET_BYTES_MAX as u64
    }

    /// Returns the bytes of the header's protobuf message.
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

    /// Returns whether this is a heartbeat of an idle writer, which is acknowledged but not stored.
    pub fn is_heartbeat(&self) -> bool {
        self.seqno == super::HEARTBEAT_SEQNO
    }

    /// Returns the offset in the block of the data's end.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.data_bytes)
    }
}

impl PacketHead {
    /// Decodes the header of the packet at the start of `bytes`. Only prefix and header are consumed; checksums and
    /// data follow.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, PacketError> {
        Self::decode_where(bytes, |_, _| false)
    }

    /// Decodes a header on the connection of a local writer. Its packets may omit the data, which is then already in
    /// place ([`PacketHead::is_in_place`]). `checksum`: the checksum of such packets' data.
    pub fn decode_local(bytes: &[u8], checksum: ChecksumSpec) -> Result<Decoded<Self>, PacketError> {
        Self::decode_where(bytes, |data_bytes, payload_bytes| {
            data_bytes > 0 && checksum.checksum_bytes(u64::from(data_bytes)) == payload_bytes
        })
    }

    /// Decodes a header. `in_place` gets the bytes of data and of everything after the header, and returns whether the
    /// data is omitted.
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
        // Java reads the header's length as a signed number, so 2^15 and more is negative there.
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
            // A mandatory field is missing. If it was added for forwarding, the packet could exceed the maximum size.
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

    /// Returns whether the data is omitted, because a local writer has already written it to its place.
    pub fn is_in_place(&self) -> bool {
        self.header.data_bytes as usize > self.data_bytes
    }

    /// Returns the bytes of checksums and data that follow the header.
    pub fn body_bytes(&self) -> usize {
        self.checksum_bytes + self.data_bytes
    }
}
