use crate::{Block, BlockId, GenerationStamp, crc32c};

/// Record behind a shown replica's CRCs that identifies the replica in this memory. All zero once the memory is
/// withdrawn.
///
/// A one-sided reader reads the record together with the data. It trusts the data only if the record names the block,
/// stamp, length and copy that were advertised.
///
/// ```text
///   0 block id   8 generation stamp   16 length   24 nonce   32 CRC32C of 0..32   36 zero          little-endian
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidityRecord {
    pub block: Block,
    /// Identifies the copy: each copy of a block that a datanode has had gets a different nonce.
    pub nonce: u64,
}

impl ValidityRecord {
    pub const BYTES: usize = 40;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.block.id.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.block.stamp.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.block.length.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.nonce.to_le_bytes());
        let check = crc32c(&bytes[..32]);
        bytes[32..36].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Returns `None` if nothing is shown there, or if the record is torn.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let long = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        // The CRC of a zeroed record is not 0, so an all-zero record is invalid.
        let fits = long(32) == u64::from(crc32c(&bytes[..32]));
        fits.then(|| Self {
            block: Block { id: BlockId(long(0) as i64), stamp: GenerationStamp(long(8)), length: long(16) },
            nonce: long(24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_or_zeroed_records_are_rejected() {
        let block = Block { id: BlockId(-7), stamp: GenerationStamp(1001), length: 1 << 40 };
        let record = ValidityRecord { block, nonce: u64::MAX };
        let bytes = record.encode();
        assert_eq!(ValidityRecord::decode(&bytes), Some(record));
        assert_eq!(ValidityRecord::decode(&[0; ValidityRecord::BYTES]), None);
        for at in 0..ValidityRecord::BYTES {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(ValidityRecord::decode(&torn), None, "byte {at}");
            let mut zeroed = bytes;
            zeroed[at..].fill(0);
            if zeroed != bytes {
                assert_eq!(ValidityRecord::decode(&zeroed), None, "zeroed from {at}");
            }
        }
    }
}
