use hearth_testkit::Content;

/// Pseudo-random numbers from a seed.
pub struct Random {
    numbers: Content,
    next: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { numbers: Content::new(seed), next: 0 }
    }

    /// Returns a number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.numbers.fill(8 * self.next, &mut bytes);
        self.next += 1;
        u64::from_le_bytes(bytes) % bound
    }
}
