use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::DataPath;

/// Bytes that a [`crate::FileSystem`] and its clones have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Shown to readers, verified, by path.
    read: [u64; DataPath::ALL.len()],
}

impl Statistics {
    /// Bytes that readers got by `path`.
    pub fn read_bytes(&self, path: DataPath) -> u64 {
        self.read[path as usize]
    }
}

/// Counts on many threads at once without a cache line that all of them write.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
}

const SHARDS: usize = 16;

/// Of some threads. Two cache lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    read: [AtomicU64; DataPath::ALL.len()],
}

thread_local! {
    static SHARD: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS)
    };
}

impl Counters {
    pub(crate) fn count_read(&self, path: DataPath, bytes: usize) {
        let shard = SHARD.try_with(Cell::get).unwrap_or(0);
        self.shards[shard].read[path as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for shard in &self.shards {
            for (total, counter) in sum.read.iter_mut().zip(&shard.read) {
                *total += counter.load(Ordering::Relaxed);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_threads_count_is_added_up() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..100).for_each(|_| counters.count_read(DataPath::Packets, 3)));
            }
        });
        counters.count_read(DataPath::Local, 7);
        let statistics = counters.statistics();
        let read = DataPath::ALL.map(|path| statistics.read_bytes(path));
        assert_eq!(read, [7, 0, 6000]);
    }
}
