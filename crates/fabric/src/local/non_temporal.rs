//! Copies memory with non-temporal stores, which bypass the cache.

#[cfg(target_arch = "x86_64")]
use super::copy::{LINE, copy_lines};

/// Copies `from` into `into` (of the same length) in pieces of `piece` bytes, and has `check` verify each piece on the
/// way. `check` sees a copy of the piece in the L1 cache. So each byte is fetched from memory once, and the verified
/// bytes are the ones that arrive, even if another process writes to `from`. The destination is neither fetched into
/// the processor's cache nor left there.
///
/// Use it for a destination larger than the cache: an ordinary copy of a piece first reads the memory that it is about
/// to overwrite, and takes twice as long. (A single large copy avoids that by itself, but then the pieces cannot be
/// verified on the way.)
///
/// `check` gets the piece and its offset in `from`; its first error ends the copy.
pub fn copy_non_temporal<E>(
    from: &[u8],
    into: &mut [u8],
    piece: usize,
    mut check: impl FnMut(usize, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    assert!(from.len() == into.len() && piece > 0, "lengths must match, and pieces are not empty");
    // On every exit, stores that publish the bytes to another thread must come after the copied bytes.
    let _fence = Fence;
    let mut copy = vec![0; piece.min(from.len())];
    for (index, (part, target)) in from.chunks(piece).zip(into.chunks_mut(piece)).enumerate() {
        let (at, copy) = (index * piece, &mut copy[..part.len()]);
        super::copy(part, copy);
        let next = &from[at + part.len()..];
        prefetch_cache_lines(&next[..next.len().min(piece)]);
        // The compiler may assume that the bytes in `part` do not change, and might read them again.
        let copy = std::hint::black_box(copy);
        check(at, copy)?;
        store_non_temporal(copy, target);
    }
    Ok(())
}

/// Prefetches bytes that will be copied soon into the processor's cache.
#[cfg(target_arch = "x86_64")]
pub fn prefetch_cache_lines(bytes: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in bytes.chunks(LINE) {
        // SAFETY: a prefetch hint reads nothing for the program and faults on no address.
        #[allow(unused_unsafe, reason = "later versions of Rust do not require the unsafe block")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast())
        };
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn prefetch_cache_lines(_: &[u8]) {}

/// Orders the stores of [`store_non_temporal`] before all later ones when it is dropped.
struct Fence;

impl Drop for Fence {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the fence only orders stores. SSE2 is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn store_non_temporal(from: &[u8], into: &mut [u8]) {
    use std::arch::x86_64::_mm_stream_si128;
    let head = into.as_ptr().align_offset(LINE).min(into.len());
    let (first, rest) = into.split_at_mut(head);
    first.copy_from_slice(&from[..head]);
    // SAFETY: the store writes the 16 bytes at its address. `rest` begins on a multiple of 64, unless it is empty, and so
    // does each line. SSE2 is part of x86-64.
    unsafe { copy_lines(&from[head..], rest, |target, part| _mm_stream_si128(target, part)) };
}

#[cfg(not(target_arch = "x86_64"))]
fn store_non_temporal(from: &[u8], into: &mut [u8]) {
    into.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_writes_exactly_the_destination() {
        let from: Vec<u8> = (0..5000u32).map(|index| (index * 7 + index / 256) as u8).collect();
        for start in [0, 1, 15, 63, 64, 100] {
            for length in [0, 1, 16, 63, 64, 65, 127, 128, 200, 4096] {
                let mut into = vec![0xEE; 5000];
                let mut seen = 0;
                let check = |at, piece: &[u8]| {
                    assert!(at == seen && piece == &from[3 + at..3 + at + piece.len()]);
                    seen += piece.len();
                    Ok::<(), ()>(())
                };
                copy_non_temporal(&from[3..3 + length], &mut into[start..start + length], 150, check).unwrap();
                assert_eq!(seen, length);
                assert!(into[start..start + length] == from[3..3 + length], "{length} bytes at {start}");
                assert!(into[..start].iter().chain(&into[start + length..]).all(|byte| *byte == 0xEE));
            }
        }
    }

    #[test]
    fn copied_bytes_are_the_checked_bytes() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
        let map = crate::local::FileMapping::new(&file, 5000).unwrap();
        let mut into = vec![0; 5000];
        let check = |at: usize, piece: &[u8]| {
            assert!(piece.iter().all(|byte| *byte == 7));
            // Simulates a writer that changes the source during the copy.
            file.write_all_at(&vec![9; piece.len()], at as u64)
        };
        copy_non_temporal(map.bytes(), &mut into, 1000, check).unwrap();
        assert!(into.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn failed_check_ends_the_copy() {
        let mut into = [0; 100];
        let check = |at, _: &[u8]| if at == 60 { Err(at) } else { Ok(()) };
        assert_eq!(copy_non_temporal(&[7; 100], &mut into, 30, check), Err(60));
        assert!(into[..60].iter().all(|byte| *byte == 7) && into[60..].iter().all(|byte| *byte == 0));
    }
}
