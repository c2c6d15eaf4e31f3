//! Pseudo-random numbers for read positions, the same in each run.

/// SplitMix64.
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns a number in `0..end`. `end` must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bounded_and_reproducible() {
        let all = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.below(1001)).collect::<Vec<_>>()
        };
        assert!(all(1).iter().all(|number| *number <= 1000));
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }
}
