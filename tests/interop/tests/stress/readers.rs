//! Readers: whatever comes must be what the file's own head says; that nothing comes is allowed while it changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use hearth_client::{FileSystem, Reader};

use crate::files::{Files, HEAD, expected};

/// Choices from a seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// From 0 to `bound - 1`; `bound` is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// What the readers of one path have seen.
#[derive(Default)]
pub struct Tally {
    pub reads: AtomicU64,
    pub bytes: AtomicU64,
    /// Reads that ended with an error: the file was gone or changed, or its DataNodes were dead.
    pub refused: AtomicU64,
}

/// Opens one file after the other and reads here and there in it until told to stop.
pub async fn read(client: &FileSystem, files: &Files, seed: u64, tally: &Tally, stop: &AtomicBool) -> Result<()> {
    let mut dice = Dice::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let path = files.any(&mut dice).path.clone();
        let Ok(reader) = client.open(&path).await else {
            tally.refused.fetch_add(1, Ordering::Relaxed);
            // Without this a missing file would be asked for without end.
            tokio::task::yield_now().await;
            continue;
        };
        let mut head = [0; HEAD as usize];
        if !matches!(reader.read_at(0, &mut head).await, Ok(count) if count == head.len()) {
            tally.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let seed = u64::from_le_bytes(head);
        ensure!(files.knows(seed), "{path} begins with {head:02x?}, which nobody wrote");
        // The same open file for a while: its blocks may change under it.
        for _ in 0..1 + dice.below(20) {
            match piece(&reader, seed, &mut dice).await.with_context(|| path.clone())? {
                Some(bytes) => {
                    tally.reads.fetch_add(1, Ordering::Relaxed);
                    tally.bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                None => {
                    tally.refused.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Reads somewhere; `None` when that was refused. An error is wrong bytes.
async fn piece(reader: &Reader, seed: u64, dice: &mut Dice) -> Result<Option<u64>> {
    let position = dice.below(reader.length());
    let most = if dice.below(4) == 0 { reader.length() } else { 4096 };
    let mut bytes = vec![0; 1 + dice.below(most) as usize];
    let Ok(count) = reader.read_at(position, &mut bytes).await else { return Ok(None) };
    let wanted = expected(seed, position, count);
    if let Some(at) = (0..count).find(|at| bytes[*at] != wanted[*at]) {
        anyhow::bail!(
            "byte {} of a file with seed {seed} is {:#04x}, not {:#04x}; {} of {count} bytes from {position} are wrong",
            position + at as u64,
            bytes[at],
            wanted[at],
            (0..count).filter(|at| bytes[*at] != wanted[*at]).count(),
        );
    }
    Ok(Some(count as u64))
}
