//! The two forms in which a full report lists replicas. Source: BlockListAsLongs.

use bytes::Bytes;
use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState};

use crate::blocks::ReportedReplica;

/// Bytes of length and of state that Hadoop's decoder keeps.
const LENGTH_MASK: u64 = (1 << 48) - 1;
const STATE_MASK: u64 = 0xF;
/// The shortest possible record: four varints.
const RECORD_BYTES_MIN: u64 = 4;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("block report: {count} replicas cannot be in {bytes} bytes")]
    TooFew { count: u64, bytes: u64 },
    #[error("block report: replica {nth} of {count} is cut short or malformed")]
    Malformed { nth: u64, count: u64 },
    #[error("block report: replica {nth} has unknown state {state}")]
    UnknownState { nth: u64, state: u64 },
    #[error("block report: a list of {longs} numbers does not hold {finalized} finalized and {open} other replicas")]
    WrongLength { longs: usize, finalized: u64, open: u64 },
}

/// Four varints a replica: zig-zag id, length, stamp, state; cut into `buffers` anywhere.
pub(super) fn decode_buffers(count: u64, buffers: &[Bytes]) -> Result<Vec<ReportedReplica>, ListError> {
    let bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
    if count > bytes / RECORD_BYTES_MIN {
        return Err(ListError::TooFew { count, bytes });
    }
    let mut rest = Varints { buffers, nth: 0, at: 0 };
    let mut replicas = Vec::with_capacity(count as usize);
    for nth in 0..count {
        let mut number = || rest.next().ok_or(ListError::Malformed { nth, count });
        let (id, length, stamp, state) = (number()?, number()?, number()?, number()?);
        let id = ((id >> 1) as i64) ^ -((id & 1) as i64);
        replicas.push(replica(nth, id, length & LENGTH_MASK, stamp, state & STATE_MASK)?);
    }
    Ok(replicas)
}

/// Number of finalized replicas, number of others, three numbers for each of the first, three times -1, four for each of the
/// others.
pub(super) fn decode_longs(longs: &[u64]) -> Result<Vec<ReportedReplica>, ListError> {
    let (Some(&finalized), Some(&open)) = (longs.first(), longs.get(1)) else { return Ok(Vec::new()) };
    let wrong = ListError::WrongLength { longs: longs.len(), finalized, open };
    let wanted = finalized
        .checked_mul(3)
        .and_then(|first| first.checked_add(open.checked_mul(4)?))
        .and_then(|both| both.checked_add(5))
        .ok_or(wrong.clone())?;
    // Without other replicas the separator may be missing.
    if wanted != longs.len() as u64 && !(open == 0 && wanted - 3 == longs.len() as u64) {
        return Err(wrong);
    }
    let first = &longs[2..2 + 3 * finalized as usize];
    let second = longs.get(2 + first.len() + 3..).unwrap_or_default();
    let mut replicas = Vec::with_capacity((finalized + open) as usize);
    for (nth, record) in first.chunks_exact(3).enumerate() {
        replicas.push(replica(nth as u64, record[0] as i64, record[1], record[2], 0)?);
    }
    for (nth, record) in second.chunks_exact(4).enumerate() {
        replicas.push(replica(finalized + nth as u64, record[0] as i64, record[1], record[2], record[3])?);
    }
    Ok(replicas)
}

fn replica(nth: u64, id: i64, length: u64, stamp: u64, state: u64) -> Result<ReportedReplica, ListError> {
    let state =
        u8::try_from(state).ok().and_then(ReplicaState::from_number).ok_or(ListError::UnknownState { nth, state })?;
    Ok(ReportedReplica { block: Block { id: BlockId(id), stamp: GenerationStamp(stamp), length }, state })
}

struct Varints<'a> {
    buffers: &'a [Bytes],
    nth: usize,
    at: usize,
}

impl Varints<'_> {
    fn byte(&mut self) -> Option<u8> {
        loop {
            let buffer = self.buffers.get(self.nth)?;
            if let Some(byte) = buffer.get(self.at) {
                self.at += 1;
                return Some(*byte);
            }
            self.nth += 1;
            self.at = 0;
        }
    }

    /// `None`: the input ends within a number, or the number has more than 64 bits.
    fn next(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Vec<u8> {
        // (1073741825, 134217728, 1001, finalized), (-9223372036854775792, 512, 1002, being written); from a real DataNode's encoder.
        let hex = "828080800880808040e90700dfffffffffffffffff018004ea0701";
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn expected() -> Vec<ReportedReplica> {
        let block = |id, length, stamp| Block { id: BlockId(id), stamp: GenerationStamp(stamp), length };
        vec![
            ReportedReplica { block: block(1_073_741_825, 134_217_728, 1001), state: ReplicaState::Finalized },
            ReportedReplica { block: block(-9_223_372_036_854_775_792, 512, 1002), state: ReplicaState::BeingWritten },
        ]
    }

    #[test]
    fn buffers_cut_anywhere() {
        let golden = golden();
        for cut in 0..=golden.len() {
            let buffers = [Bytes::copy_from_slice(&golden[..cut]), Bytes::copy_from_slice(&golden[cut..])];
            assert_eq!(decode_buffers(2, &buffers).unwrap(), expected(), "cut at {cut}");
        }
        assert_eq!(decode_buffers(0, &[Bytes::new()]).unwrap(), []);
    }

    #[test]
    fn wrong_counts_and_broken_records_are_errors() {
        let buffer = [Bytes::from(golden())];
        assert!(decode_buffers(3, &buffer).is_err());
        assert!(matches!(decode_buffers(u64::MAX, &buffer), Err(ListError::TooFew { .. })));
        assert!(decode_buffers(1, &[Bytes::from_static(&[0xFF; 40])]).is_err());
        assert!(matches!(
            decode_buffers(1, &[Bytes::from_static(&[2, 1, 1, 9])]),
            Err(ListError::UnknownState { state: 9, .. })
        ));
    }

    #[test]
    fn the_old_list() {
        let minus = u64::MAX;
        let longs = [1, 1, 1_073_741_825, 134_217_728, 1001, minus, minus, minus, 0x8000_0000_0000_0010, 512, 1002, 1];
        assert_eq!(decode_longs(&longs).unwrap(), expected());
        assert_eq!(decode_longs(&[]).unwrap(), []);
        assert_eq!(decode_longs(&[0, 0]).unwrap(), []);
        assert_eq!(decode_longs(&[0, 0, minus, minus, minus]).unwrap(), []);
        assert!(decode_longs(&[u64::MAX, u64::MAX]).is_err());
        assert!(decode_longs(&longs[..11]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(count in 0u64..100, bytes: Vec<u8>, longs: Vec<u64>) {
            let _ = decode_buffers(count, &[Bytes::from(bytes)]);
            let _ = decode_longs(&longs);
        }
    }
}
