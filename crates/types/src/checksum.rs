use std::ops::ControlFlow;

use lanes::{FourLaneCrc, LANES};

mod lanes;

/// Kind of the CRC that covers each chunk. Numbers as in block meta files and `ChecksumProto`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ChecksumKind {
    /// No checksum bytes at all.
    Null = 0,
    /// CRC-32 with the polynomial of zip, 0x04C11DB7.
    Crc32 = 1,
    /// CRC-32C (Castagnoli), polynomial 0x1EDC6F41: HDFS's default.
    Crc32c = 2,
}

impl ChecksumKind {
    /// Returns `None` for unknown numbers and for kinds that never cover block data (`DEFAULT`, `MIXED`).
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Crc32,
            2 => Self::Crc32c,
            _ => return None,
        })
    }

    /// Size of one checksum value in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Crc32 | Self::Crc32c => 4,
        }
    }

    /// Computes the checksum of `data`; 0 for `Null`.
    pub fn of(self, data: &[u8]) -> u32 {
        match self {
            Self::Null => 0,
            Self::Crc32 => crc32fast::hash(data),
            Self::Crc32c => crc32c(data),
        }
    }
}

/// Computes the CRC32C (Castagnoli) of `data`, as RFC 3720 defines it.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// Checksum kind and chunk size. Accompanies every replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChecksumSpec {
    pub kind: ChecksumKind,
    /// Bytes covered by one CRC, 512 by default. Never 0.
    pub bytes_per_chunk: u32,
}

/// Errors of verifying chunks against their CRCs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChecksumError {
    #[error(
        "checksum mismatch in chunk {chunk} (bytes from {offset}): stored {expected:#010x}, computed {actual:#010x}"
    )]
    Mismatch {
        /// Index of the first bad chunk, counted from the start of the data given.
        chunk: usize,
        /// Bytes from the start of the data given.
        offset: usize,
        expected: u32,
        actual: u32,
    },
    #[error("{data_bytes} bytes of data need {expected_bytes} bytes of checksums, not {actual_bytes}")]
    WrongLength { data_bytes: usize, expected_bytes: usize, actual_bytes: usize },
}

impl ChecksumSpec {
    /// HDFS's default: CRC32C over 512 bytes.
    pub const DEFAULT: Self = Self { kind: ChecksumKind::Crc32c, bytes_per_chunk: 512 };

    /// Maximum number of bytes covered by one CRC. A chunk, its CRC and a header must fit in one packet, and packets
    /// have at most 16 MiB, as in Java.
    pub const BYTES_PER_CHUNK_MAX: u32 = (16 << 20) - 1024;

    /// Size of the header of a block's meta file in bytes: version 1 (u16), kind (u8), bytes per chunk (u32),
    /// big-endian. CRCs follow.
    pub const META_HEADER_BYTES: usize = 7;

    pub fn to_meta_header(self) -> [u8; Self::META_HEADER_BYTES] {
        let [a, b, c, d] = self.bytes_per_chunk.to_be_bytes();
        [0, 1, self.kind as u8, a, b, c, d]
    }

    /// Returns `None` for another version, an unknown kind, or a chunk size outside the valid range.
    pub fn from_meta_header(header: [u8; Self::META_HEADER_BYTES]) -> Option<Self> {
        let [0, 1, kind, a, b, c, d] = header else { return None };
        let bytes_per_chunk = u32::from_be_bytes([a, b, c, d]);
        let usable = (1..=Self::BYTES_PER_CHUNK_MAX).contains(&bytes_per_chunk);
        usable.then_some(Self { kind: ChecksumKind::from_number(kind)?, bytes_per_chunk })
    }

    /// Returns the number of chunks in `length` bytes; the last one may be short.
    pub fn chunks(self, length: u64) -> u64 {
        length.div_ceil(u64::from(self.bytes_per_chunk))
    }

    /// Returns the size of the checksums for `length` bytes of data, in bytes.
    pub fn checksum_bytes(self, length: u64) -> u64 {
        self.chunks(length).saturating_mul(self.kind.size() as u64)
    }

    /// Appends the big-endian CRC of each chunk of `data` to `into`. `data` starts on a chunk boundary.
    pub fn compute(self, data: &[u8], into: &mut Vec<u8>) {
        if self.kind == ChecksumKind::Null {
            return;
        }
        into.reserve(self.checksum_bytes(data.len() as u64) as usize);
        let _: ControlFlow<()> = self.each_crc(data, |crc| {
            into.extend_from_slice(&crc.to_be_bytes());
            ControlFlow::Continue(())
        });
    }

    /// Checks each chunk of `data` against the big-endian CRCs in `checksums`. `data` starts on a chunk boundary.
    ///
    /// Errors: `Mismatch` names the first bad chunk; `WrongLength` when the two do not belong together.
    pub fn verify(self, data: &[u8], checksums: &[u8]) -> Result<(), ChecksumError> {
        let expected_bytes = self.checksum_bytes(data.len() as u64) as usize;
        if checksums.len() != expected_bytes {
            return Err(ChecksumError::WrongLength {
                data_bytes: data.len(),
                expected_bytes,
                actual_bytes: checksums.len(),
            });
        }
        if self.kind == ChecksumKind::Null {
            return Ok(());
        }
        let chunk_bytes = self.bytes_per_chunk as usize;
        let mut stored = checksums.as_chunks::<4>().0.iter().map(|crc| u32::from_be_bytes(*crc)).enumerate();
        let compared = self.each_crc(data, |actual| match stored.next() {
            Some((chunk, expected)) if expected != actual => {
                ControlFlow::Break(ChecksumError::Mismatch { chunk, offset: chunk * chunk_bytes, expected, actual })
            }
            _ => ControlFlow::Continue(()),
        });
        compared.break_value().map_or(Ok(()), Err)
    }

    /// Passes the CRC of each chunk of `data` to `each`, in order, until `each` breaks. Not for `Null`.
    fn each_crc<B>(self, data: &[u8], mut each: impl FnMut(u32) -> ControlFlow<B>) -> ControlFlow<B> {
        let chunk_bytes = self.bytes_per_chunk as usize;
        let mut rest = data;
        if self.kind == ChecksumKind::Crc32c
            && let Some(four) = FourLaneCrc::of(chunk_bytes)
        {
            while let Some((group, after)) = rest.split_at_checked(LANES * chunk_bytes) {
                four.crcs(group).into_iter().try_for_each(&mut each)?;
                rest = after;
            }
        }
        rest.chunks(chunk_bytes).map(|chunk| self.kind.of(chunk)).try_for_each(each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crcs_match_catalogue_check_values() {
        // Check values of the CRC catalogue for "123456789".
        assert_eq!(ChecksumKind::Crc32c.of(b"123456789"), 0xE306_9283);
        assert_eq!(ChecksumKind::Crc32.of(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn meta_headers_match_hadoop() {
        assert_eq!(ChecksumSpec::DEFAULT.to_meta_header(), [0, 1, 2, 0, 0, 2, 0]);
        assert_eq!(ChecksumSpec::from_meta_header([0, 1, 2, 0, 0, 2, 0]), Some(ChecksumSpec::DEFAULT));
        for bad in [[0, 2, 2, 0, 0, 2, 0], [0, 1, 9, 0, 0, 2, 0], [0, 1, 2, 0, 0, 0, 0], [0, 1, 2, 0x80, 0, 0, 0]] {
            assert_eq!(ChecksumSpec::from_meta_header(bad), None);
        }
    }

    #[test]
    fn chunk_crcs_match_individual_crcs() {
        let data: Vec<u8> = (0..11 * 512 + 100u32).map(|i| (i ^ i >> 7) as u8).collect();
        for length in [0, 1, 512, 4 * 512 - 1, 4 * 512, 4 * 512 + 1, 8 * 512, data.len()] {
            for kind in [ChecksumKind::Crc32c, ChecksumKind::Crc32] {
                let spec = ChecksumSpec { kind, bytes_per_chunk: 512 };
                let (data, mut checksums) = (&data[..length], Vec::new());
                spec.compute(data, &mut checksums);
                let alone: Vec<u8> = data.chunks(512).flat_map(|chunk| kind.of(chunk).to_be_bytes()).collect();
                assert_eq!(checksums, alone);
                spec.verify(data, &checksums).unwrap();
                for chunk in 0..checksums.len() / 4 {
                    let mut wrong = checksums.clone();
                    wrong[chunk * 4..].iter_mut().for_each(|byte| *byte ^= 1);
                    let error = spec.verify(data, &wrong).unwrap_err();
                    let ChecksumError::Mismatch { chunk: found, offset, expected, actual } = error else {
                        panic!("{error}");
                    };
                    assert_eq!((found, offset, expected), (chunk, chunk * 512, actual ^ 0x0101_0101));
                }
            }
        }
    }

    #[test]
    fn flipped_bit_is_reported_with_its_chunk() {
        let mut data: Vec<u8> = (0..1300u32).map(|i| i as u8).collect();
        let mut checksums = Vec::new();
        ChecksumSpec::DEFAULT.compute(&data, &mut checksums);
        assert_eq!(checksums.len(), 12);
        ChecksumSpec::DEFAULT.verify(&data, &checksums).unwrap();
        data[1299] ^= 1;
        let error = ChecksumSpec::DEFAULT.verify(&data, &checksums).unwrap_err();
        assert!(matches!(error, ChecksumError::Mismatch { chunk: 2, offset: 1024, .. }));
        assert!(matches!(
            ChecksumSpec::DEFAULT.verify(&data, &checksums[..8]),
            Err(ChecksumError::WrongLength { expected_bytes: 12, .. })
        ));
    }
}
