//! Varied file content in which each byte is computed from a seed and its position, by Rust and Java alike
//! (`tests/interop/java/Content.java`). It has no compressible runs and no two equal blocks, and tests need to store
//! nothing for comparison.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Endless content, different for each seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub seed: u64,
}

/// Bytes that are computed and written at once.
const PIECE: usize = 256 << 10;

impl Content {
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns eight bytes, little-endian, at `8 * index`: SplitMix64's output for state `seed + index * gamma`.
    fn word(self, index: u64) -> u64 {
        let mut z = self.seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Fills `into` with the content at `position` (bytes from the start).
    pub fn fill(self, position: u64, into: &mut [u8]) {
        let mut index = position / 8;
        let skip = (position % 8) as usize;
        let mut rest = into;
        if skip != 0 {
            let word = self.word(index).to_le_bytes();
            let take = rest.len().min(8 - skip);
            let (head, tail) = rest.split_at_mut(take);
            head.copy_from_slice(&word[skip..skip + take]);
            rest = tail;
            index += 1;
        }
        let mut chunks = rest.chunks_exact_mut(8);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.word(index).to_le_bytes());
            index += 1;
        }
        let tail = chunks.into_remainder();
        let bytes = self.word(index).to_le_bytes();
        tail.copy_from_slice(&bytes[..tail.len()]);
    }

    pub fn bytes(self, position: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(position, &mut bytes);
        bytes
    }

    pub fn write_to(self, position: u64, length: u64, out: &mut impl Write) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut done = 0;
        while done < length {
            let take = (length - done).min(PIECE as u64) as usize;
            self.fill(position + done, &mut piece[..take]);
            out.write_all(&piece[..take])?;
            done += take as u64;
        }
        Ok(())
    }

    /// Makes the local file `path` with the first `length` bytes.
    pub fn write_file(self, path: &Path, length: u64) -> Result<()> {
        let make = || -> io::Result<()> { self.write_to(0, length, &mut std::fs::File::create(path)?) };
        make().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the SHA-256, in hexadecimal, of `length` bytes from `position`.
    pub fn sha256(self, position: u64, length: u64) -> String {
        let mut hasher = Sha256::new();
        self.write_to(position, length, &mut hasher).expect("hashing does not fail");
        hex(&hasher.finalize())
    }
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_matches_the_whole_content() {
        let content = Content::new(7);
        let whole = content.bytes(0, 100);
        for start in 0..40 {
            for length in 0..40 {
                assert_eq!(content.bytes(start as u64, length), whole[start..start + length]);
            }
        }
        assert_ne!(whole, Content::new(8).bytes(0, 100));
        assert_eq!(content.sha256(3, 50), sha256_hex(&whole[3..53]));
    }

    /// The Java implementation checks itself against the same bytes.
    #[test]
    fn first_word_matches_splitmix64() {
        assert_eq!(Content::new(0).bytes(0, 8), 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
    }
}
