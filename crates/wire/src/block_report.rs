//! The replicas of one storage in a full block report: four varints each (id zig-zag, length, stamp, state), split into
//! buffers of at most 64 KiB at any byte.
//!
//! Source: DatanodeProtocol.proto, `StorageBlockReportProto.blocksBuffers`; used when bit 0 of the namenode's
//! capabilities is set, as on every Hadoop 3.

use bytes::Bytes;
use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState};

/// Maximum bytes of one buffer.
pub const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Bit 0 of a NameNode's capabilities: it accepts reports in this format.
pub const CAPABILITY_BLOCK_REPORT_BUFFERS: u64 = 1;

/// One replica as reported by its DataNode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportedReplica {
    /// Block with the length on disk.
    pub block: Block,
    pub state: ReplicaState,
}

/// Error of an unreadable report.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockReportError {
    #[error("block report ends within replica {index}")]
    Truncated { index: u64 },
    #[error("block report has a number of more than 64 bits in replica {index}")]
    Overlong { index: u64 },
    #[error("block report has replica {index} in unknown state {state}")]
    State { index: u64, state: u64 },
}

/// Encodes the report of one storage. Returns the number of replicas and the buffers.
pub fn encode(replicas: impl IntoIterator<Item = ReportedReplica>) -> (u64, Vec<Bytes>) {
    let mut count = 0;
    let mut pieces = Vec::new();
    let mut piece = Vec::with_capacity(4096);
    for ReportedReplica { block, state } in replicas {
        let id = block.id.0;
        put_varint(((id << 1) ^ (id >> 63)) as u64, &mut piece);
        put_varint(block.length, &mut piece);
        put_varint(block.stamp.0, &mut piece);
        put_varint(state as u64, &mut piece);
        count += 1;
        if piece.len() >= BUFFER_BYTES_MAX {
            let rest = piece.split_off(BUFFER_BYTES_MAX);
            pieces.push(Bytes::from(std::mem::replace(&mut piece, rest)));
        }
    }
    if !piece.is_empty() {
        pieces.push(Bytes::from(piece));
    }
    (count, pieces)
}

/// Decodes the replicas of one storage, and stops after the first error. Bytes after the last replica are ignored.
///
/// `count`: number in the report. It may be any number, because nothing is allocated for it.
pub fn decode(count: u64, pieces: &[Bytes]) -> impl Iterator<Item = Result<ReportedReplica, BlockReportError>> + '_ {
    let mut reader = VarintReader { pieces, at: 0 };
    let mut failed = false;
    (0..count).map_while(move |index| {
        if failed {
            return None;
        }
        let replica = reader.replica(index);
        failed = replica.is_err();
        Some(replica)
    })
}

struct VarintReader<'a> {
    pieces: &'a [Bytes],
    at: usize,
}

impl VarintReader<'_> {
    fn replica(&mut self, index: u64) -> Result<ReportedReplica, BlockReportError> {
        let id = self.varint(index)?;
        let length = self.varint(index)?;
        let stamp = self.varint(index)?;
        let state = self.varint(index)?;
        let id = (id >> 1) as i64 ^ -((id & 1) as i64);
        let state = u8::try_from(state)
            .ok()
            .and_then(ReplicaState::from_number)
            .ok_or(BlockReportError::State { index, state })?;
        Ok(ReportedReplica { block: Block { id: BlockId(id), stamp: GenerationStamp(stamp), length }, state })
    }

    fn varint(&mut self, index: u64) -> Result<u64, BlockReportError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte().ok_or(BlockReportError::Truncated { index })?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BlockReportError::Overlong { index })
    }

    fn byte(&mut self) -> Option<u8> {
        loop {
            let piece = self.pieces.first()?;
            if let Some(byte) = piece.get(self.at) {
                self.at += 1;
                return Some(*byte);
            }
            self.pieces = &self.pieces[1..];
            self.at = 0;
        }
    }
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
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn replica(id: i64, stamp: u64, length: u64, state: ReplicaState) -> ReportedReplica {
        ReportedReplica { block: Block { id: BlockId(id), stamp: GenerationStamp(stamp), length }, state }
    }

    #[test]
    fn golden() {
        let replicas = [
            replica(1073741825, 1001, 134217728, ReplicaState::Finalized),
            replica(-9223372036854775792, 1002, 512, ReplicaState::BeingWritten),
        ];
        let (count, pieces) = encode(replicas);
        assert_eq!(count, 2);
        let golden: &[u8] = &[
            0x82, 0x80, 0x80, 0x80, 0x08, 0x80, 0x80, 0x80, 0x40, 0xe9, 0x07, 0x00, 0xdf, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xff, 0xff, 0xff, 0x01, 0x80, 0x04, 0xea, 0x07, 0x01,
        ];
        assert_eq!(pieces, [golden]);
        assert_eq!(decode(count, &pieces).collect::<Result<Vec<_>, _>>().unwrap(), replicas);
        let mut missing = decode(3, &pieces).skip(2);
        assert_eq!(missing.next(), Some(Err(BlockReportError::Truncated { index: 2 })));
        assert_eq!(missing.next(), None);
        assert_eq!(encode([]), (0, Vec::new()));
    }

    #[test]
    fn long_reports_are_split_and_joined() {
        let replicas: Vec<_> =
            (0..20_000).map(|i| replica(1 << 40 | i, 1000 + i as u64, i as u64 * 7, ReplicaState::Finalized)).collect();
        let (count, pieces) = encode(replicas.iter().copied());
        assert!(pieces.len() > 2);
        assert!(pieces[..pieces.len() - 1].iter().all(|piece| piece.len() == BUFFER_BYTES_MAX));
        assert_eq!(decode(count, &pieces).collect::<Result<Vec<_>, _>>().unwrap(), replicas);
    }

    proptest! {
        #[test]
        fn any_buffers_are_decoded_or_rejected(count: u64, pieces in vec(vec(any::<u8>(), 0..30), 0..5)) {
            let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
            let bytes: usize = pieces.iter().map(Bytes::len).sum();
            prop_assert!(decode(count, &pieces).count() <= bytes / 4 + 1);
        }

        #[test]
        fn splits_may_be_at_any_byte(id: i64, stamp: u64, length: u64, state in 0u8..5, cut in 0usize..31) {
            let replica = replica(id, stamp, length, ReplicaState::from_number(state).unwrap());
            let (_, pieces) = encode([replica]);
            let cut = cut.min(pieces[0].len());
            let pieces = [pieces[0].slice(..cut), Bytes::new(), pieces[0].slice(cut..)];
            prop_assert_eq!(decode(1, &pieces).collect::<Vec<_>>(), vec![Ok(replica)]);
        }
    }
}
