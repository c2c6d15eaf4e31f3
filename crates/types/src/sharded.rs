//! Values that are split by thread, so that counters which every operation updates do not travel between processors.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of parts. Threads that run at the same time mostly have different ones on machines with few processors, and
/// share them on larger ones.
const PARTS: usize = 4;

/// One part, in cache lines of its own. x86-64 fetches lines in pairs.
#[derive(Default, Debug)]
#[repr(align(128))]
struct Part<T>(T);

/// A value in several parts, of which each thread uses one. Readers put the parts together.
#[derive(Default, Debug)]
pub struct Sharded<T>([Part<T>; PARTS]);

impl<T> Sharded<T> {
    /// Returns the part of this thread.
    pub fn of_thread(&self) -> &T {
        &self.0[part_of_thread()].0
    }

    /// Returns all parts.
    pub fn parts(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|part| &part.0)
    }
}

/// Returns the number of this thread's part. Threads take them in turn.
fn part_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PART: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    PART.with(|part| {
        if part.get() == usize::MAX {
            part.set(NEXT.fetch_add(1, Ordering::Relaxed) % PARTS);
        }
        part.get()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn threads_share_parts_evenly_and_keep_theirs() {
        let used: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * PARTS)
                .map(|_| {
                    scope.spawn(|| {
                        let part = part_of_thread();
                        assert_eq!(part, part_of_thread());
                        part
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(used.iter().collect::<HashSet<_>>().len() > 1, "{used:?}");
        assert!(used.iter().all(|part| *part < PARTS));
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
