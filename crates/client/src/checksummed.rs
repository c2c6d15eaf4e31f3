//! Copying and verifying bytes that lie beside their CRCs.

use std::hint::black_box;
use std::ops::Range;

use bytes::Bytes;
use hearth_fabric::local::{self, copy_non_temporal, prefetch_cache_lines};
use hearth_types::{ChecksumError, ChecksumSpec};

/// Data of a replica with its CRCs, both in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksummed<'a> {
    /// Starts at a chunk boundary; ends at one or at the replica's end.
    pub data: &'a [u8],
    /// Big-endian, one for each chunk of `data`.
    pub checksums: &'a [u8],
    pub spec: ChecksumSpec,
}

/// Chunks of a replica and their CRCs, not verified.
#[derive(Debug)]
pub(crate) struct FetchedRange {
    /// Offset in the replica at which they start.
    pub start: u64,
    data: Bytes,
    checksums: Bytes,
    spec: ChecksumSpec,
}

impl FetchedRange {
    /// `data`: whole chunks from `start` on; `checksums`: their CRCs.
    pub(crate) fn new(start: u64, data: Bytes, checksums: Bytes, spec: ChecksumSpec) -> Self {
        Self { start, data, checksums, spec }
    }

    pub(crate) fn checked(&self) -> Checksummed<'_> {
        Checksummed { data: &self.data, checksums: &self.checksums, spec: self.spec }
    }

    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }
}

/// Bytes that are copied and then verified: few enough to still be in the first-level cache.
const PIECE_BYTES: usize = 4096;

/// One chunk of the usual size, for short reads of a part of it.
const SHORT_BYTES: usize = 512;

/// Minimum size of copies that bypass the cache, which they would only fill.
const NON_TEMPORAL_BYTES_MIN: usize = 2 << 20;

impl Checksummed<'_> {
    /// Copies bytes from `offset` on into `into`, which must end within the data. Each piece is verified right after it
    /// was copied. The copy is verified and not the source, because the writer of a replica may still be able to change
    /// its memory.
    ///
    /// Errors: the first chunk that does not match; its offset is relative to the start of the data. The contents of
    /// `into` are then unspecified.
    pub(crate) fn copy(&self, offset: usize, into: &mut [u8]) -> Result<(), ChecksumError> {
        if self.spec.kind.size() == 0 {
            local::copy(&self.data[offset..offset + into.len()], into);
            return Ok(());
        }
        let piece_bytes = PIECE_BYTES.next_multiple_of(self.spec.bytes_per_chunk as usize);
        let large = into.len() >= NON_TEMPORAL_BYTES_MIN;
        let mut rest = into;
        let mut at = offset;
        while !rest.is_empty() {
            if large && at.is_multiple_of(piece_bytes) && rest.len() >= piece_bytes {
                let (pieces, behind) = rest.split_at_mut(rest.len() / piece_bytes * piece_bytes);
                let source = &self.data[at..at + pieces.len()];
                copy_non_temporal(source, pieces, piece_bytes, |within, piece| self.compare(at + within, piece))?;
                at += pieces.len();
                rest = behind;
                continue;
            }
            let end = (at / piece_bytes + 1) * piece_bytes;
            let whole = self.whole_chunks(at, rest.len().min(end - at));
            let length = if whole > 0 { whole } else { rest.len().min(self.chunk_at(at).end - at) };
            let (piece, behind) = rest.split_at_mut(length);
            let next = at + piece.len();
            if whole > 0 {
                self.copy_chunks(at, piece, &self.data[next..next + behind.len().min(piece_bytes)])?;
            } else {
                self.copy_part(at, piece)?;
            }
            at = next;
            rest = behind;
        }
        Ok(())
    }

    /// Returns how many of `length` bytes from `at` on form whole chunks of the data; 0 if `at` is not a chunk
    /// boundary.
    fn whole_chunks(&self, at: usize, length: usize) -> usize {
        let chunk = self.spec.bytes_per_chunk as usize;
        match at % chunk {
            0 if at + length == self.data.len() => length,
            0 => length / chunk * chunk,
            _ => 0,
        }
    }

    fn chunk_at(&self, at: usize) -> Range<usize> {
        let chunk = self.spec.bytes_per_chunk as usize;
        let start = at / chunk * chunk;
        start..(start + chunk).min(self.data.len())
    }

    /// Copies whole chunks from `at` on into `into`. `ahead`: the bytes to be copied next.
    fn copy_chunks(&self, at: usize, into: &mut [u8], ahead: &[u8]) -> Result<(), ChecksumError> {
        local::copy(&self.data[at..at + into.len()], into);
        prefetch_cache_lines(ahead);
        // `black_box` makes the CRC read the copy. The compiler assumes that the source does not change, so it might
        // read the source again.
        self.compare(at, black_box(into))
    }

    /// Copies a part of one chunk.
    fn copy_part(&self, at: usize, into: &mut [u8]) -> Result<(), ChecksumError> {
        let chunk = self.chunk_at(at);
        let part = at - chunk.start..at - chunk.start + into.len();
        let mut by_way_of = |copy: &mut [u8]| -> Result<(), ChecksumError> {
            self.copy_chunks(chunk.start, copy, &[])?;
            into.copy_from_slice(&copy[part.clone()]);
            Ok(())
        };
        if chunk.len() <= SHORT_BYTES {
            by_way_of(&mut [0; SHORT_BYTES][..chunk.len()])
        } else if chunk.len() <= PIECE_BYTES {
            by_way_of(&mut [0; PIECE_BYTES][..chunk.len()])
        } else {
            by_way_of(&mut vec![0; chunk.len()])
        }
    }

    /// Compares `bytes`, which are at `offset` (a chunk boundary), with their CRCs.
    fn compare(&self, offset: usize, bytes: &[u8]) -> Result<(), ChecksumError> {
        let chunk = self.spec.bytes_per_chunk as usize;
        let size = self.spec.kind.size();
        let checksums = &self.checksums[offset / chunk * size..][..bytes.len().div_ceil(chunk) * size];
        self.spec.verify(bytes, checksums).map_err(|error| match error {
            ChecksumError::Mismatch { chunk: index, offset: within, expected, actual } => {
                let (chunk, offset) = (offset / chunk + index, offset + within);
                ChecksumError::Mismatch { chunk, offset, expected, actual }
            }
            other => other,
        })
    }

    /// Verifies the chunks that `[start, end)` touches, in place.
    ///
    /// Errors: see `copy`.
    pub(crate) fn verify(&self, start: usize, end: usize) -> Result<(), ChecksumError> {
        if self.spec.kind.size() == 0 || start >= end {
            return Ok(());
        }
        let chunk = self.spec.bytes_per_chunk as usize;
        let start = start / chunk * chunk;
        let end = (end.div_ceil(chunk) * chunk).min(self.data.len());
        self.compare(start, &self.data[start..end])
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::ChecksumKind;

    use super::*;

    fn sample(length: usize, spec: ChecksumSpec) -> (Vec<u8>, Vec<u8>) {
        let data: Vec<u8> = (0..length).map(|index| (index * 31 + index / 257) as u8).collect();
        let mut checksums = Vec::new();
        spec.compute(&data, &mut checksums);
        (data, checksums)
    }

    #[test]
    fn copy_returns_exact_bytes_of_any_range() {
        for bytes_per_chunk in [512, 100, 5000] {
            let spec = ChecksumSpec { kind: ChecksumKind::Crc32c, bytes_per_chunk };
            let (data, checksums) = sample(200_123, spec);
            let checked = Checksummed { data: &data, checksums: &checksums, spec };
            for offset in [0usize, 1, 99, 100, 511, 512, 513, 5000, 65_536, 131_071, 200_000, 200_122, 200_123] {
                for length in [0usize, 1, 2, 400, 511, 512, 513, 1024, 4096, 70_000, 200_123] {
                    let length = length.min(data.len() - offset);
                    let mut into = vec![0xEE; length];
                    checked.copy(offset, &mut into).unwrap();
                    assert!(into == data[offset..offset + length], "{length} bytes at {offset}");
                    checked.verify(offset, offset + length).unwrap();
                }
            }
        }
    }

    #[test]
    fn flipped_bit_fails_reads_of_its_chunk() {
        let spec = ChecksumSpec::DEFAULT;
        let (mut data, checksums) = sample(3000, spec);
        data[1100] ^= 4;
        let checked = Checksummed { data: &data, checksums: &checksums, spec };
        for (offset, length) in [(0, 3000), (1024, 512), (1030, 10), (600, 500), (1500, 600), (1535, 1)] {
            let mut into = vec![0; length];
            let error = checked.copy(offset, &mut into).unwrap_err();
            assert!(matches!(error, ChecksumError::Mismatch { chunk: 2, offset: 1024, .. }), "{error}");
            assert!(checked.verify(offset, offset + length).is_err());
        }
        for (offset, length) in [(0, 1024), (1536, 1464), (2999, 1), (1000, 24), (1024, 0)] {
            let mut into = vec![0; length];
            checked.copy(offset, &mut into).unwrap();
            checked.verify(offset, offset + length).unwrap();
        }
    }

    #[test]
    fn non_temporal_copy_matches_source() {
        let spec = ChecksumSpec::DEFAULT;
        let (mut data, checksums) = sample(NON_TEMPORAL_BYTES_MIN + 20_000, spec);
        for (offset, length) in [(0, data.len()), (1000, NON_TEMPORAL_BYTES_MIN), (4096, NON_TEMPORAL_BYTES_MIN + 5000)]
        {
            let mut into = vec![0; length];
            Checksummed { data: &data, checksums: &checksums, spec }.copy(offset, &mut into).unwrap();
            assert!(into == data[offset..offset + length], "{length} bytes at {offset}");
        }
        data[1_500_000] ^= 1;
        let mut into = vec![0; data.len() - 1000];
        let error = Checksummed { data: &data, checksums: &checksums, spec }.copy(1000, &mut into).unwrap_err();
        assert!(matches!(error, ChecksumError::Mismatch { chunk: 2929, .. }), "{error}");
    }

    /// On a machine with one core, no concurrent change occurs.
    #[test]
    fn copied_bytes_are_those_verified() {
        use std::os::unix::fs::FileExt;
        use std::sync::atomic::{AtomicBool, Ordering};

        let spec = ChecksumSpec::DEFAULT;
        let (data, checksums) = sample(NON_TEMPORAL_BYTES_MIN + 20_000, spec);
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all_at(&data, 0).unwrap();
        let map = hearth_fabric::local::FileMapping::new(&file, data.len() as u64).unwrap();
        let checked = Checksummed { data: map.bytes(), checksums: &checksums, spec };
        let changed = 5200_usize;
        // Whole chunks, parts of several, part of one; and a copy that bypasses the cache.
        let parts =
            [(4096, 4096, 3000), (4200, 3000, 3000), (5130, 100, 3000), (0, NON_TEMPORAL_BYTES_MIN + 20_000, 100)];
        for (offset, length, times) in parts {
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        file.write_all_at(&[!data[changed]], changed as u64).unwrap();
                        file.write_all_at(&data[changed..=changed], changed as u64).unwrap();
                    }
                });
                let mut into = vec![0; length];
                let mut is_as_it_was = true;
                for _ in 0..times {
                    if checked.copy(offset, &mut into).is_ok() {
                        is_as_it_was &= into == data[offset..offset + length];
                    }
                }
                over.store(true, Ordering::Relaxed);
                assert!(is_as_it_was, "{length} bytes at {offset}");
            });
            let mut into = vec![0; length];
            checked.copy(offset, &mut into).unwrap();
            assert!(into == data[offset..offset + length]);
        }
    }

    #[test]
    fn null_checksum_copies_without_verification() {
        let spec = ChecksumSpec { kind: ChecksumKind::Null, bytes_per_chunk: 512 };
        let (data, checksums) = sample(1000, spec);
        let checked = Checksummed { data: &data, checksums: &checksums, spec };
        let mut into = [0; 990];
        checked.copy(10, &mut into).unwrap();
        assert!(into == data[10..]);
    }
}
