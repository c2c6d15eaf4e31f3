use std::sync::atomic::{AtomicU64, Ordering};

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A small random number generator (SplitMix64) that many readers can use at once. Not for secrets.
pub(super) struct Random(AtomicU64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub fn next(&self) -> u64 {
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..bound`. `bound` must not be 0.
    pub fn below(&self, bound: usize) -> usize {
        assert!(bound > 0, "a choice needs at least one candidate");
        (self.next() % bound as u64) as usize
    }

    pub fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
