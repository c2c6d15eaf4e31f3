//! Readers: the data must match the seed in the file's own first bytes. A read may fail while the file changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use hearth_client::{FileSystem, Reader};

use crate::files::{Files, HEAD, expected};

/// Random choices from a seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns a number from 0 to `bound - 1`; `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Counters of the readers of one path.
#[derive(Default)]
pub struct Tally {
    pub reads: AtomicU64,
    pub bytes: AtomicU64,
    /// Reads that ended with an error: the file was deleted or changed, or its DataNodes were dead.
    pub refused: AtomicU64,
}

/// Opens one file after the other and reads at random positions in it, until it is stopped.
pub async fn read(client: &FileSystem, files: &Files, seed: u64, tally: &Tally, stop: &AtomicBool) -> Result<()> {
    let mut dice = Dice::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let path = files.any(&mut dice).path.clone();
        let Ok(reader) = client.open(&path).await else {
            tally.refused.fetch_add(1, Ordering::Relaxed);
            // Without this, the loop would ask for a missing file without ever yielding.
            tokio::task::yield_now().await;
            continue;
        };
        let mut head = [0; HEAD as usize];
        if !matches!(reader.read_at(0, &mut head).await, Ok(count) if count == head.len()) {
            tally.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let seed = u64::from_le_bytes(head);
        ensure!(files.knows(seed), "{path} begins with {head:02x?}, which was never written");
        // The same open file for a while: its blocks may change during the reads.
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

/// Reads at a random position. `None` if the read was refused. Wrong bytes are an error.
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
