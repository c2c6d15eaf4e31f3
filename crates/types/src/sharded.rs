//! Values that are split by thread, so that counters which every operation updates do not travel between processors.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Usual number of parts. Threads that run at the same time mostly have different ones on machines with few processors,
/// and share them on larger ones.
const PARTS: usize = 4;

/// One part, in cache lines of its own. x86-64 fetches lines in pairs.
#[derive(Default, Debug)]
#[repr(align(128))]
struct Part<T>(T);

/// A value in several parts, of which each thread uses one. Readers put the parts together.
#[derive(Debug)]
pub struct Sharded<T, const N: usize = PARTS>([Part<T>; N]);

impl<T: Default, const N: usize> Default for Sharded<T, N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Part::default()))
    }
}

impl<T, const N: usize> Sharded<T, N> {
    /// Returns the part of this thread.
    pub fn of_thread(&self) -> &T {
        &self.0[number_of_thread() % N].0
    }

    /// Returns all parts.
    pub fn parts(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|part| &part.0)
    }
}

/// Returns the number of this thread. Threads are numbered in the order in which they ask.
fn number_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn threads_have_different_parts_and_keep_theirs() {
        let sharded = Sharded::<AtomicUsize>::default();
        let part = || std::ptr::from_ref(sharded.of_thread()) as usize;
        let used: HashSet<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * PARTS)
                .map(|_| {
                    scope.spawn(|| {
                        let own = part();
                        assert_eq!(own, part());
                        own
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(used.len() > 1, "{used:?}");
    }

    #[test]
    fn parts_do_not_share_cache_lines() {
        let sharded = Sharded::<AtomicUsize>::default();
        sharded.of_thread().fetch_add(3, Ordering::Relaxed);
        let addresses: Vec<usize> = sharded.parts().map(|part| std::ptr::from_ref(part) as usize).collect();
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{addresses:?}");
        assert_eq!(sharded.parts().map(|part| part.load(Ordering::Relaxed)).sum::<usize>(), 3);
    }
}
