//! Small replicas: the datanode sends all bytes at once, in its answer or into memory that was lent for it.

use std::sync::Arc;

use hearth_fabric::one_sided::Region;
use hearth_types::{ChecksumError, ChecksumSpec, LocatedBlock};
use hearth_wire::rdma_control::{SmallBytes, SmallReplica};

use super::advertised_replica::OTHER_REPLICA;
use super::rdma_context::RdmaContext;

/// Bytes of a small replica, not verified.
#[derive(Debug)]
pub(crate) struct SmallCopy {
    pub(crate) data: Vec<u8>,
    checksums: Vec<u8>,
    checksum: ChecksumSpec,
}

impl SmallCopy {
    pub(crate) fn verify(&self) -> Result<(), ChecksumError> {
        self.checksum.verify(&self.data, &self.checksums)
    }
}

/// Takes a small replica out of the answer, or out of the memory that it was written to.
///
/// Errors: the reason why it is not the requested replica, as text.
pub(super) fn small_copy(
    rdma: &RdmaContext,
    block: &LocatedBlock,
    replica: SmallReplica,
    into: Option<Arc<dyn Region>>,
) -> Result<SmallCopy, &'static str> {
    let SmallReplica { block: found, checksum, bytes } = replica;
    if found.id() != block.block.id() || found.length() < block.block.length() {
        return Err(OTHER_REPLICA);
    }
    let copy = match bytes {
        SmallBytes::Inline { data, checksums } => {
            SmallCopy { data: data.to_vec(), checksums: checksums.to_vec(), checksum }
        }
        SmallBytes::Written => {
            const TOO_LONG: &str = "the replica is longer than the memory lent for it";
            let length = found.length();
            // Checked first: for an invalid length the number of CRC bytes cannot be computed.
            let written = into.as_ref().filter(|into| length <= into.memory().length()).ok_or(TOO_LONG)?;
            let crc_bytes = checksum.checksum_bytes(length);
            if length + crc_bytes > written.memory().length() {
                return Err(TOO_LONG);
            }
            let (mut data, mut checksums) = (vec![0; length as usize], vec![0; crc_bytes as usize]);
            written.memory().read(0, &mut data);
            written.memory().read(length, &mut checksums);
            SmallCopy { data, checksums, checksum }
        }
    };
    // The answer has arrived, so the datanode writes there no more.
    if let Some(into) = into {
        rdma.keep_small_memory(into);
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use hearth_fabric::sim::Sim;
    use hearth_types::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp};

    use super::super::rdma_context::SMALL_BYTES_MAX;
    use super::*;
    use crate::options::OneSidedOptions;

    fn rdma() -> RdmaContext {
        let (transport, timeout) = (Arc::new(Sim::new()), Duration::from_secs(60));
        let options = OneSidedOptions { transport: Some(transport), timeout, idle_buffer_bytes_max: 0 };
        RdmaContext::new(&options).unwrap()
    }

    fn extended(length: u64) -> ExtendedBlock {
        let block = Block { id: BlockId(1), stamp: GenerationStamp(1), length };
        ExtendedBlock { pool: BlockPoolId::new("BP-1"), block }
    }

    #[test]
    fn small_replica_must_fit_lent_memory() {
        let rdma = rdma();
        let copy = |length, bytes, into| {
            let replica = SmallReplica { block: extended(length), checksum: ChecksumSpec::DEFAULT, bytes };
            small_copy(&rdma, &LocatedBlock::nowhere(extended(1000)), replica, into)
        };
        let written = |length| copy(length, SmallBytes::Written, Some(rdma.small_memory().unwrap()));
        let (data, mut checksums) = (vec![7; 1000], Vec::new());
        ChecksumSpec::DEFAULT.compute(&data, &mut checksums);
        let into = rdma.small_memory().unwrap();
        into.memory().write(0, &data);
        into.memory().write(1000, &checksums);
        let taken = copy(1000, SmallBytes::Written, Some(into)).unwrap();
        assert!(taken.data == data && taken.verify().is_ok());
        // The greatest length with room for its CRCs, and invalid lengths.
        let most = SMALL_BYTES_MAX / 516 * 512;
        assert_eq!(written(most).unwrap().data.len() as u64, most);
        for length in [most + 512, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 1 << 62, u64::MAX - 1, u64::MAX] {
            written(length).unwrap_err();
        }
        copy(1000, SmallBytes::Written, None).unwrap_err();
        assert_eq!(copy(999, SmallBytes::Written, None).unwrap_err(), OTHER_REPLICA);
        let (data, checksums) = (Bytes::from(data), Bytes::from(checksums));
        assert!(copy(1000, SmallBytes::Inline { data, checksums }, None).unwrap().verify().is_ok());
    }
}
