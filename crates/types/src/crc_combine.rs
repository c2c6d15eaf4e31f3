//! Combines the CRCs of two pieces into the CRC of both. Composite file checksums are computed this way without reading
//! data.
//!
//! On the reflected values that CRC32 and CRC32C use, appending n zero bytes multiplies by x^(8n) modulo the
//! polynomial, so `crc(AB) = crc(A) * x^(8*|B|) + crc(B)` (initial and final inversions cancel out).

use crate::ChecksumKind;

impl ChecksumKind {
    /// Returns the polynomial, reflected; `None` for `Null`, which has no CRC.
    fn polynomial(self) -> Option<u32> {
        match self {
            Self::Null => None,
            Self::Crc32 => Some(0xEDB8_8320),
            Self::Crc32c => Some(0x82F6_3B78),
        }
    }
}

/// Combines CRCs of pieces whose second part always has the same length.
#[derive(Clone, Copy, Debug)]
pub struct CrcCombiner {
    polynomial: u32,
    /// x^(8 * length), reflected.
    shift: u32,
}

impl CrcCombiner {
    /// Prepares to join second parts of `length` bytes. `None` for `ChecksumKind::Null`.
    pub fn new(kind: ChecksumKind, length: u64) -> Option<Self> {
        let polynomial = kind.polynomial()?;
        // Square and multiply. x^0 is the top bit in reflected order.
        let mut shift = 0x8000_0000;
        let mut square = 0x8000_0000u32 >> 8;
        let mut rest = length;
        while rest > 0 {
            if rest & 1 == 1 {
                shift = multiply(shift, square, polynomial);
            }
            square = multiply(square, square, polynomial);
            rest >>= 1;
        }
        Some(Self { polynomial, shift })
    }

    /// Returns the CRC of both pieces.
    pub fn join(self, first: u32, second: u32) -> u32 {
        multiply(first, self.shift, self.polynomial) ^ second
    }
}

/// a * b modulo the polynomial, all bit-reflected.
fn multiply(a: u32, b: u32, polynomial: u32) -> u32 {
    let mut product = 0;
    let mut b = b;
    let mut mask = 0x8000_0000u32;
    while mask != 0 {
        if a & mask != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ (if b & 1 == 1 { polynomial } else { 0 });
        mask >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_crcs_match_the_whole() {
        let data: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        for (kind, expected) in [(ChecksumKind::Crc32c, 0x1a31_8e30u32), (ChecksumKind::Crc32, 0x74e3_fb41)] {
            let (first, second) = data.split_at(512);
            let joiner = CrcCombiner::new(kind, second.len() as u64).unwrap();
            assert_eq!(joiner.join(kind.of(first), kind.of(second)), expected);
            assert_eq!(kind.of(&data), expected);
            assert_eq!(CrcCombiner::new(kind, 0).unwrap().join(7, 0), 7);
        }
        assert!(CrcCombiner::new(ChecksumKind::Null, 1).is_none());
    }
}
