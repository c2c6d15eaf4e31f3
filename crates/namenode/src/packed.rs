//! Numbers in as many bytes or bits as they usually need. The user of these types has an exact, larger form for numbers
//! that do not fit.

/// A number in `BYTES` bytes (at most eight), the lowest first, without alignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Number<BYTES> {
    pub const MAX: u64 = u64::MAX >> (64 - 8 * BYTES);
    pub const ZERO: Self = Self([0; BYTES]);

    /// Returns `None` if the number needs more bytes.
    pub fn new(number: u64) -> Option<Self> {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&number.to_le_bytes()[..BYTES]);
        (number <= Self::MAX).then_some(Self(bytes))
    }

    pub fn get(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..BYTES].copy_from_slice(&self.0);
        u64::from_le_bytes(bytes)
    }
}

/// A bit field of a word that several numbers share.
#[derive(Clone, Copy)]
pub struct Field {
    shift: u32,
    /// Width in bits.
    width: u32,
}

impl Field {
    /// The lowest `width` bits, fewer than 64.
    pub const fn first(width: u32) -> Self {
        Self { shift: 0, width }
    }

    /// The next `width` bits above these.
    pub const fn then(self, width: u32) -> Self {
        Self { shift: self.shift + self.width, width }
    }

    /// The first bit above this field.
    pub const fn end(self) -> u32 {
        self.shift + self.width
    }

    pub const fn max(self) -> u64 {
        (1 << self.width) - 1
    }

    pub const fn get(self, word: u64) -> u64 {
        word >> self.shift & self.max()
    }

    /// Returns false if the value needs more bits; the word is then unchanged.
    #[must_use]
    pub fn set(self, word: &mut u64, value: u64) -> bool {
        let fits = value <= self.max();
        if fits {
            *word = *word & !(self.max() << self.shift) | value << self.shift;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn number_round_trips_or_does_not_fit(number: u64, shift in 0u32..64) {
            let number = number >> shift;
            prop_assert_eq!(Number::<5>::new(number).map(Number::get), (number < 1 << 40).then_some(number));
            prop_assert_eq!(Number::<8>::new(number).map(Number::get), Some(number));
        }

        #[test]
        fn fields_of_a_word_are_independent(word: u64, value: u64, shift in 0u32..64) {
            const LOW: Field = Field::first(37);
            const MIDDLE: Field = LOW.then(20);
            const HIGH: Field = MIDDLE.then(7);
            const { assert!(HIGH.end() == u64::BITS) };
            let value = value >> shift;
            for (at, field) in [LOW, MIDDLE, HIGH].into_iter().enumerate() {
                let all = |word| [LOW, MIDDLE, HIGH].map(|field| field.get(word));
                let (mut model, mut set) = (all(word), word);
                if field.set(&mut set, value) {
                    model[at] = value;
                }
                prop_assert_eq!(all(set), model);
                prop_assert_eq!(model[at] == value, value <= field.max() || all(word)[at] == value);
            }
        }
    }
}
