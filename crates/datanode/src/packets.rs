//! Packets of DataTransferProtocol in the buffers of this room. Source: datatransfer.proto, `PacketHeaderProto`.
//!
//! `u32` payload length (itself, checksums, data), `u16` header length, header, checksums, data.

use std::ops::Range;

use hearth_wire::proto::hdfs::PacketHeaderProto;
use prost::Message;

/// Payload length and header length stand before the header.
const PREFIX_BYTES: usize = 6;
/// Longest header that is accepted: ours has 25 or 27 bytes, and fields added later must fit.
const HEADER_BYTES_MAX: usize = 1024;

/// The sequence number of packets that only say "still there".
pub const HEARTBEAT_SEQNO: i64 = -1;
/// The sequence number of acknowledgements that belong to no packet.
pub const UNKNOWN_SEQNO: i64 = -2;

/// What a packet says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketHeader {
    /// Bytes from the start of the block.
    pub offset: u64,
    pub seqno: i64,
    /// The block ends here; such a packet has no data.
    pub last: bool,
    pub data_bytes: usize,
    /// Everything so far is to be on disk before it is acknowledged.
    pub sync: bool,
}

impl PacketHeader {
    /// Bytes of the block up to and with this packet.
    pub fn end(&self) -> u64 {
        self.offset + self.data_bytes as u64
    }
}

/// What a peer may not send.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    #[error("payload length {payload} and header length {header}; {limit} bytes are the limit")]
    Lengths { payload: usize, header: usize, limit: usize },
    #[error("packet header: {0}")]
    Header(#[from] prost::DecodeError),
    #[error("offset {offset}, sequence number {seqno} and {data_bytes} bytes of data in {payload} bytes of payload")]
    Fields { offset: i64, seqno: i64, data_bytes: i64, payload: usize },
}

/// A packet at the start of some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedPacket {
    pub header: PacketHeader,
    pub checksums: Range<usize>,
    pub data: Range<usize>,
}

impl ParsedPacket {
    /// Bytes of the whole packet.
    pub fn bytes(&self) -> usize {
        self.data.end
    }
}

/// How much of a packet is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PacketProgress {
    Complete(ParsedPacket),
    /// So many bytes must be there in all before it makes sense to look again.
    Needs(usize),
}

/// Looks for a packet at the start of `bytes`. `limit`: bytes of the longest packet accepted.
pub fn parse_packet(bytes: &[u8], limit: usize) -> Result<PacketProgress, PacketError> {
    let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() else {
        return Ok(PacketProgress::Needs(PREFIX_BYTES));
    };
    let payload = u32::from_be_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
    let header = usize::from(u16::from_be_bytes([prefix[4], prefix[5]]));
    if payload < 4 || header > HEADER_BYTES_MAX || payload + header > limit {
        return Err(PacketError::Lengths { payload, header, limit });
    }
    // The payload length counts its own four bytes.
    let body = payload - 4;
    let total = PREFIX_BYTES + header + body;
    let header_end = PREFIX_BYTES + header;
    if bytes.len() < total {
        return Ok(PacketProgress::Needs(total));
    }
    let fields = PacketHeaderProto::decode(&bytes[PREFIX_BYTES..header_end])?;
    let data_bytes = usize::try_from(fields.data_len).ok().filter(|data| *data <= body);
    let offset = u64::try_from(fields.offset_in_block).ok().filter(|offset| *offset <= i64::MAX as u64 - (1 << 32));
    let (Some(data_bytes), Some(offset)) = (data_bytes, offset) else {
        return Err(PacketError::Fields {
            offset: fields.offset_in_block,
            seqno: fields.seqno,
            data_bytes: i64::from(fields.data_len),
            payload,
        });
    };
    let data_start = total - data_bytes;
    Ok(PacketProgress::Complete(ParsedPacket {
        header: PacketHeader {
            offset,
            seqno: fields.seqno,
            last: fields.last_packet_in_block,
            data_bytes,
            sync: fields.sync_block(),
        },
        checksums: header_end..data_start,
        data: data_start..total,
    }))
}

/// Appends lengths and header of a packet; its checksums and data follow. `checksum_bytes`: how many of the former.
pub fn put_packet_header(header: &PacketHeader, checksum_bytes: usize, into: &mut Vec<u8>) {
    let payload = 4 + checksum_bytes + header.data_bytes;
    into.extend_from_slice(&(payload as u32).to_be_bytes());
    // Written by hand, for each packet sent: fields in order of number, fixed-width ones little-endian.
    let length: u16 = if header.sync { 27 } else { 25 };
    into.extend_from_slice(&length.to_be_bytes());
    into.push(0x09);
    into.extend_from_slice(&header.offset.to_le_bytes());
    into.push(0x11);
    into.extend_from_slice(&header.seqno.to_le_bytes());
    into.extend_from_slice(&[0x18, u8::from(header.last), 0x25]);
    into.extend_from_slice(&(header.data_bytes as u32).to_le_bytes());
    if header.sync {
        into.extend_from_slice(&[0x28, 1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(offset: u64, seqno: i64, last: bool, data_bytes: usize, sync: bool) -> PacketHeader {
        PacketHeader { offset, seqno, last, data_bytes, sync }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn headers_as_hadoop_writes_them() {
        for (fields, checksum_bytes, expected) in [
            (
                header(0, 0, false, 512, false),
                4,
                "00000208 0019 09 0000000000000000 11 0000000000000000 1800 25 00020000",
            ),
            (
                header(1024, 7, false, 512, true),
                4,
                "00000208 001b 09 0004000000000000 11 0700000000000000 1800 25 00020000 2801",
            ),
            (
                header(1536, 8, true, 0, false),
                0,
                "00000004 0019 09 0006000000000000 11 0800000000000000 1801 25 00000000",
            ),
            (
                header(0, HEARTBEAT_SEQNO, false, 0, false),
                0,
                "00000004 0019 09 0000000000000000 11 ffffffffffffffff 1800 25 00000000",
            ),
        ] {
            let mut written = Vec::new();
            put_packet_header(&fields, checksum_bytes, &mut written);
            assert_eq!(written, hex(expected));
            let start = written.len();
            assert_eq!(parse_packet(&written[..3], 1 << 20), Ok(PacketProgress::Needs(6)));
            written.resize(start + checksum_bytes + fields.data_bytes + 5, 0);
            let PacketProgress::Complete(packet) = parse_packet(&written, 1 << 20).unwrap() else { panic!() };
            assert_eq!(packet.header, fields);
            assert_eq!(packet.checksums, start..start + checksum_bytes);
            assert_eq!(packet.bytes(), written.len() - 5);
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        for bad in [
            "00000003 0019",
            "00000004 ffff",
            "7fffffff 0019",
            // more data than payload
            "00000008 0019 09 0000000000000000 11 0000000000000000 1800 25 05000000 00000000",
            // negative data length, negative offset
            "00000008 0019 09 0000000000000000 11 0000000000000000 1800 25 ffffffff 00000000",
            "00000004 0019 09 ffffffffffffffff 11 0000000000000000 1800 25 00000000",
        ] {
            assert!(parse_packet(&hex(bad), 1 << 20).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = parse_packet(&bytes, 1 << 16);
        }
    }
}
