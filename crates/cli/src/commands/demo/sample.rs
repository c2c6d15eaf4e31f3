//! A file of varied content: noise, text, zeros and short patterns in turn. The content is the same in every run.

/// Length of a piece of one kind of content.
const PIECE_BYTES: usize = 1 << 20;

/// Returns `bytes` bytes. `progress` gets the number of bytes added.
pub async fn make(bytes: usize, mut progress: impl FnMut(u64)) -> Vec<u8> {
    let mut content = vec![0; bytes];
    let mut piece = vec![0; PIECE_BYTES];
    for (number, place) in content.chunks_mut(PIECE_BYTES).enumerate() {
        fill(number as u64, &mut piece);
        place.copy_from_slice(&piece[..place.len()]);
        progress(place.len() as u64);
        // No call above waits, so without this the task that handles an interruption would not run.
        tokio::task::yield_now().await;
    }
    content
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

/// Fills `piece` with incompressible bytes.
fn noise(seed: u64, piece: &mut [u8]) {
    let mut random = Random::new(seed);
    for word in piece.chunks_mut(8) {
        let bytes = random.number().to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

/// Pseudo-random numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
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
    async fn sample_is_reproducible() {
        let length = 5 * PIECE_BYTES + 77;
        let mut told = 0;
        let first = make(length, |bytes| told += bytes).await;
        assert_eq!((told, first.len()), (length as u64, length));
        assert!(make(length, |_| {}).await == first);
        let pieces: Vec<_> = first.chunks(PIECE_BYTES).collect();
        assert_ne!(pieces[0], pieces[4], "noise differs from piece to piece");
    }
}
