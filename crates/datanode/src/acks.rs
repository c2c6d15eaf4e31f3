//! Acknowledgements of packets. Source: datatransfer.proto, `PipelineAckProto`.

use hearth_wire::proto::hdfs::{PipelineAckProto, Status};

/// Bits of a reply's flag that hold the status; ECN and SLOW stand above.
const STATUS_BITS: u32 = 0xf;

/// `ECN.SUPPORTED`: this datanode would say when it is congested.
const ECN_SUPPORTED: u32 = 1 << 5;
/// `SLOW.NORMAL`: this datanode would say when it is slow.
const SLOW_NORMAL: u32 = 1 << 7;

/// What this datanode adds to the status in its flags.
pub fn flag_bits(pipeline_ecn: bool, pipeline_slow: bool) -> u32 {
    (if pipeline_ecn { ECN_SUPPORTED } else { 0 }) | (if pipeline_slow { SLOW_NORMAL } else { 0 })
}

/// One datanode's reply: its status with the bits above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply(pub u32);

impl Reply {
    pub fn new(status: Status, flag_bits: u32) -> Self {
        Self(status as u32 | flag_bits)
    }

    /// The number of the status; unknown ones are left as they are, to be passed on.
    pub fn status(self) -> u32 {
        self.0 & STATUS_BITS
    }

    pub fn is_success(self) -> bool {
        self.status() == Status::Success as u32
    }
}

/// The replies in an acknowledgement from downstream; senders without flags have statuses only.
pub fn replies(ack: &PipelineAckProto) -> Vec<Reply> {
    if ack.flag.is_empty() {
        ack.reply.iter().map(|status| Reply(*status as u32 & STATUS_BITS)).collect()
    } else {
        ack.flag.iter().map(|flag| Reply(*flag)).collect()
    }
}

/// Appends a delimited acknowledgement: `own` first, then those from downstream. Written by hand, for each packet.
pub fn put_ack(seqno: i64, own: Reply, downstream: &[Reply], downstream_nanos: u64, into: &mut Vec<u8>) {
    let replies = || std::iter::once(own).chain(downstream.iter().copied());
    let flags_bytes: usize = replies().map(|reply| varint_bytes(u64::from(reply.0))).sum();
    let zigzag = ((seqno << 1) ^ (seqno >> 63)) as u64;
    let length = 1
        + varint_bytes(zigzag)
        + replies().map(|reply| 1 + varint_bytes(u64::from(reply.status()))).sum::<usize>()
        + 1
        + varint_bytes(downstream_nanos)
        + 1
        + varint_bytes(flags_bytes as u64)
        + flags_bytes;
    put_varint(length as u64, into);
    into.push(0x08);
    put_varint(zigzag, into);
    for reply in replies() {
        into.push(0x10);
        put_varint(u64::from(reply.status()), into);
    }
    into.push(0x18);
    put_varint(downstream_nanos, into);
    into.push(0x22);
    put_varint(flags_bytes as u64, into);
    for reply in replies() {
        put_varint(u64::from(reply.0), into);
    }
}

fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

#[cfg(test)]
mod tests {
    use hearth_wire::delimited;

    use super::*;
    use crate::packets::HEARTBEAT_SEQNO;

    #[test]
    fn acknowledgements_as_hadoop_writes_them() {
        let success = Reply::new(Status::Success, 0);
        let mut bytes = Vec::new();
        put_ack(5, success, &[], 0, &mut bytes);
        assert_eq!(bytes, [0x09, 0x08, 0x0a, 0x10, 0, 0x18, 0, 0x22, 1, 0]);

        bytes.clear();
        put_ack(HEARTBEAT_SEQNO, success, &[success, success], 123_456, &mut bytes);
        let expected = [0x11, 0x08, 1, 0x10, 0, 0x10, 0, 0x10, 0, 0x18, 0xc0, 0xc4, 0x07, 0x22, 3, 0, 0, 0];
        assert_eq!(bytes, expected);

        // SUCCESS + SUPPORTED + NORMAL, and ERROR + CONGESTED + SLOW.
        bytes.clear();
        put_ack(6, Reply::new(Status::Success, flag_bits(true, true)), &[Reply(353)], 0, &mut bytes);
        assert_eq!(bytes, [0x0e, 0x08, 0x0c, 0x10, 0, 0x10, 1, 0x18, 0, 0x22, 4, 0xa0, 1, 0xe1, 2]);

        bytes.clear();
        put_ack(-2, Reply::new(Status::OobRestart, 0), &[], 0, &mut bytes);
        assert_eq!(bytes, [0x09, 0x08, 3, 0x10, 8, 0x18, 0, 0x22, 1, 8]);
    }

    #[test]
    fn what_is_written_is_what_the_schema_reads() {
        let mut bytes = Vec::new();
        put_ack(i64::MAX, Reply(0), &[Reply(1), Reply(0xa2)], u64::MAX, &mut bytes);
        let ack: PipelineAckProto = delimited::take(&mut bytes::Bytes::from(bytes)).unwrap();
        assert_eq!((ack.seqno, ack.downstream_ack_time_nanos()), (i64::MAX, u64::MAX));
        assert_eq!(replies(&ack), [Reply(0), Reply(1), Reply(0xa2)]);
        assert_eq!(ack.reply, [0, 1, 2]);
    }
}
