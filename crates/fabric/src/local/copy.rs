//! Copies memory in the same time for every position of source and destination.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};

/// Size of a cache line in bytes.
#[cfg(target_arch = "x86_64")]
pub(super) const LINE: usize = 64;

/// Copies `from` into `into`, which has the same length.
///
/// Use it for bytes in shared memory, which begin on a page. The C library copies 3 KiB and more by one instruction
/// (`rep movsb`). On AMD's processors that is four times slower if the destination lies 1 to 31 bytes behind the source,
/// modulo 4096: the data of a Java array begins 16 bytes behind the start of a page.
///
/// Panics if the lengths differ.
#[cfg(target_arch = "x86_64")]
pub fn copy(from: &[u8], into: &mut [u8]) {
    // SAFETY: the store writes the 16 bytes at its address, which needs no alignment. SSE2 is part of x86-64.
    unsafe { copy_lines(from, into, |target, part| _mm_storeu_si128(target, part)) };
}

/// Copies `from` into `into`, which has the same length, with `store` for 16 bytes at a time. Only whole lines from the start
/// on are copied this way.
///
/// Panics if the lengths differ.
///
/// # Safety
///
/// `store` writes the 16 bytes at its address and nothing else. It may rely on their being writable, and on no other
/// alignment than that of the start of `into`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn copy_lines(from: &[u8], into: &mut [u8], store: impl Fn(*mut __m128i, __m128i)) {
    assert_eq!(from.len(), into.len(), "the lengths of source and destination");
    let whole = from.len() / LINE * LINE;
    let (target, last) = into.split_at_mut(whole);
    for (source, target) in from.chunks_exact(LINE).zip(target.chunks_exact_mut(LINE)) {
        let (source, target) = (source.as_ptr().cast::<__m128i>(), target.as_mut_ptr().cast::<__m128i>());
        // SAFETY: both sides have a line, 64 bytes, four times 16. The loads need no alignment. SSE2 is part of x86-64.
        let (parts, targets) = unsafe {
            (
                [
                    _mm_loadu_si128(source),
                    _mm_loadu_si128(source.add(1)),
                    _mm_loadu_si128(source.add(2)),
                    _mm_loadu_si128(source.add(3)),
                ],
                [target, target.add(1), target.add(2), target.add(3)],
            )
        };
        for (target, part) in targets.into_iter().zip(parts) {
            store(target, part);
        }
    }
    last.copy_from_slice(&from[whole..]);
}

/// Copies `from` into `into`, which has the same length.
///
/// Panics if the lengths differ.
#[cfg(not(target_arch = "x86_64"))]
pub fn copy(from: &[u8], into: &mut [u8]) {
    into.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_destination_is_written() {
        let from: Vec<u8> = (0..9000u32).map(|index| (index * 7 + index / 256) as u8).collect();
        for start in [0, 1, 15, 16, 63, 64, 100] {
            for length in [0, 1, 16, 63, 64, 65, 127, 128, 4096, 8192, 8193] {
                let mut into = vec![0xEE; 9000];
                copy(&from[3..3 + length], &mut into[start..start + length]);
                assert!(into[start..start + length] == from[3..3 + length], "{length} bytes at {start}");
                assert!(into[..start].iter().chain(&into[start + length..]).all(|byte| *byte == 0xEE));
            }
        }
    }

    #[test]
    #[should_panic(expected = "the lengths")]
    fn lengths_must_match() {
        copy(&[1; 100], &mut [0; 99]);
    }
}
