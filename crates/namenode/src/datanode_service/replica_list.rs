//! The two formats in which a full report lists replicas. Source: BlockListAsLongs.

use bytes::Bytes;
use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState};
use hearth_wire::block_report::{self, ReportedReplica};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error(transparent)]
    Buffers(#[from] block_report::BlockReportError),
    #[error("block report: replica {nth} has unknown state {state}")]
    UnknownState { nth: u64, state: u64 },
    #[error("block report: a list of {longs} numbers does not hold {finalized} finalized and {open} other replicas")]
    WrongLength { longs: usize, finalized: u64, open: u64 },
}

/// Decodes `count` records in `buffers`, which may be split at any byte.
pub(super) fn decode_buffers(count: u64, buffers: &[Bytes]) -> Result<Vec<ReportedReplica>, ListError> {
    block_report::decode(count, buffers).map(|replica| Ok(replica?)).collect()
}

/// Decodes the number of finalized replicas, the number of other replicas, three numbers for each finalized one, three
/// times -1, and four numbers for each of the other ones.
pub(super) fn decode_longs(longs: &[u64]) -> Result<Vec<ReportedReplica>, ListError> {
    let (Some(&finalized), Some(&open)) = (longs.first(), longs.get(1)) else { return Ok(Vec::new()) };
    let wrong = ListError::WrongLength { longs: longs.len(), finalized, open };
    let wanted = finalized
        .checked_mul(3)
        .and_then(|first| first.checked_add(open.checked_mul(4)?))
        .and_then(|both| both.checked_add(5))
        .ok_or(wrong.clone())?;
    // If there are no other replicas the separator may be missing.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Vec<ReportedReplica> {
        let block = |id, length, stamp| Block { id: BlockId(id), stamp: GenerationStamp(stamp), length };
        vec![
            ReportedReplica { block: block(1_073_741_825, 134_217_728, 1001), state: ReplicaState::Finalized },
            ReportedReplica { block: block(-9_223_372_036_854_775_792, 512, 1002), state: ReplicaState::BeingWritten },
        ]
    }

    #[test]
    fn wrong_replica_count_is_an_error() {
        let (count, buffers) = block_report::encode(expected());
        assert_eq!(decode_buffers(count, &buffers).unwrap(), expected());
        assert!(matches!(decode_buffers(u64::MAX, &buffers), Err(ListError::Buffers(_))));
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
