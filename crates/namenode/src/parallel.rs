//! Parallel work during the start of the NameNode.

use std::panic::resume_unwind;
use std::thread;

use parking_lot::Mutex;

/// Limit of threads: beyond it, memory is the bottleneck.
const THREADS_MAX: usize = 16;

/// Number of threads that [`map`] uses.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// Applies `work` to each item, on as many threads as there are processors. The results are in the order of the items.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    map_with(threads(), items, work)
}

fn map_with<T: Send, R: Send>(threads: usize, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let left = Mutex::new(items.into_iter().enumerate());
    let one = || {
        let mut done = Vec::new();
        loop {
            // The lock is released before the work begins.
            let next = left.lock().next();
            let Some((place, item)) = next else { return done };
            done.push((place, work(item)));
        }
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for threads in [1, 2, 7] {
            let squares = map_with(threads, (0..1000u64).collect(), |number| number * number);
            assert!(squares.into_iter().eq((0..1000).map(|number| number * number)));
            assert!(map_with(threads, Vec::<u64>::new(), |number| number).is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "the fifth")]
    fn panic_of_thread_reaches_the_caller() {
        map_with(3, (0..9).collect(), |number| assert_ne!(number, 5, "the fifth"));
    }
}
