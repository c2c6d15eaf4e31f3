//! A file of varied content: noise, text, zeros and short patterns in turn. The content is the same in every run.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Length of a piece of one kind of content.
const PIECE_BYTES: usize = 1 << 20;

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// Writes `bytes` bytes to a new file at `path` and returns their SHA-256. `progress` gets the number of bytes added.
pub async fn make(path: &Path, bytes: u64, mut progress: impl FnMut(u64)) -> io::Result<Hash> {
    let mut file = File::create(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut made = 0;
    for number in 0.. {
        let length = (bytes - made).min(PIECE_BYTES as u64) as usize;
        if length == 0 {
            break;
        }
        fill(number, &mut piece);
        file.write_all(&piece[..length])?;
        hash.update(&piece[..length]);
        made += length as u64;
        progress(length as u64);
        // No call above waits, so without this the task that handles an interruption would not run.
        tokio::task::yield_now().await;
    }
    Ok(hash.finalize().into())
}

/// Returns the SHA-256 of all bytes of `content`.
pub async fn hash_of(mut content: impl AsyncRead + Unpin, mut progress: impl FnMut(u64)) -> io::Result<Hash> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let count = content.read(&mut buffer).await?;
        if count == 0 {
            return Ok(hash.finalize().into());
        }
        hash.update(&buffer[..count]);
        progress(count as u64);
    }
}

fn fill(number: u64, piece: &mut [u8]) {
    match number % 4 {
        0 => noise(number, piece),
        1 => text(number, piece),
        2 => {
            piece.fill(0);
            // Makes each piece of zeros different from the others.
            piece[..8].copy_from_slice(&number.to_be_bytes());
        }
        _ => {
            for (index, byte) in piece.iter_mut().enumerate() {
                *byte = (index as u64 ^ number) as u8;
            }
        }
    }
}

/// Fills `piece` with incompressible bytes (xorshift64*).
fn noise(seed: u64, piece: &mut [u8]) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in piece.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let bytes = state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

fn text(number: u64, piece: &mut [u8]) {
    let mut rest = piece;
    let mut line = 0u64;
    while !rest.is_empty() {
        let words = format!("{number:08} {line:08} the quick brown fox jumps over the lazy dog\n");
        let count = words.len().min(rest.len());
        rest[..count].copy_from_slice(&words.as_bytes()[..count]);
        rest = &mut rest[count..];
        line += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sample_is_reproducible_and_hash_matches() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        let length = 5 * PIECE_BYTES as u64 + 77;
        let mut told = 0;
        let hash = make(&first, length, |bytes| told += bytes).await.unwrap();
        assert_eq!(told, length);
        assert_eq!(first.metadata().unwrap().len(), length);
        assert_eq!(make(&second, length, |_| {}).await.unwrap(), hash);
        assert_eq!(hash_of(tokio::fs::File::open(&first).await.unwrap(), |_| {}).await.unwrap(), hash);
        let bytes = std::fs::read(&first).unwrap();
        let pieces: Vec<_> = bytes.chunks(PIECE_BYTES).collect();
        assert_ne!(pieces[0], pieces[4], "noise differs from piece to piece");
    }
}
