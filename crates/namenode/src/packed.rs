//! Numbers in as many bytes or bits as are usual for them. Whoever keeps one has an exact, larger form for those that do not fit.

/// A number in `BYTES` bytes, the lowest first, wherever it stands: eight at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Number<BYTES> {
    pub const MAX: u64 = u64::MAX >> (64 - 8 * BYTES);
    pub const ZERO: Self = Self([0; BYTES]);

    /// `None`: it takes more bytes.
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

/// Some bits of a word that several numbers share.
#[derive(Clone, Copy)]
pub struct Field {
    shift: u32,
    /// Bits.
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

    /// The first bit above these.
    pub const fn end(self) -> u32 {
        self.shift + self.width
    }

    pub const fn max(self) -> u64 {
        (1 << self.width) - 1
    }

    pub const fn get(self, word: u64) -> u64 {
        word >> self.shift & self.max()
    }

    /// False: the value takes more bits, and the word is as it was.
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
        fn a_number_comes_back_or_does_not_fit(number: u64, shift in 0u32..64) {
            let number = number >> shift;
            prop_assert_eq!(Number::<5>::new(number).map(Number::get), (number < 1 << 40).then_some(number));
            prop_assert_eq!(Number::<8>::new(number).map(Number::get), Some(number));
        }

        #[test]
        fn fields_of_a_word_do_not_disturb_each_other(word: u64, value: u64, shift in 0u32..64) {
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
