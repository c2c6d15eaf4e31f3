use std::sync::atomic::{AtomicU64, Ordering};

use hearth_types::Sharded;

use crate::DataPath;

/// Numbers of bytes that a [`crate::FileSystem`] and its clones have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Verified bytes returned to readers, by path.
    read: [u64; DataPath::ALL.len()],
    /// Bytes acknowledged by every datanode of their pipeline, by path to its first datanode.
    written: [u64; DataPath::ALL.len()],
    replicas: AdvertisementCounts,
}

/// Counts of how the memory addresses of replicas on other machines were obtained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AdvertisementCounts {
    pub asked: u64,
    pub piggybacked: u64,
    pub refused: u64,
}

impl Statistics {
    /// Returns the number of bytes that readers got by `path`.
    pub fn read_bytes(&self, path: DataPath) -> u64 {
        self.read[path as usize]
    }

    /// Returns the number of bytes that were sent to the first datanode of their pipeline by `path` and acknowledged by
    /// the whole pipeline.
    pub fn written_bytes(&self, path: DataPath) -> u64 {
        self.written[path as usize]
    }

    pub(crate) fn with(self, replicas: AdvertisementCounts) -> Self {
        Self { replicas, ..self }
    }

    /// Returns how often a datanode was asked for the memory address of a replica.
    pub fn replicas_asked_for(&self) -> u64 {
        self.replicas.asked
    }

    /// Returns how often the namenode supplied that address with the block's locations.
    pub fn replicas_piggybacked(&self) -> u64 {
        self.replicas.piggybacked
    }

    /// Returns how often an address from the namenode was unusable: out of date, from an earlier incarnation of the
    /// datanode, or unreadable.
    pub fn replicas_refused(&self) -> u64 {
        self.replicas.refused
    }
}

/// Numbers of bytes that one open file has returned: a [`crate::Reader`] and its positioned handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadStatistics {
    read: [u64; DataPath::ALL.len()],
    shown: u64,
}

impl ReadStatistics {
    /// Returns the number of bytes that came by `path`.
    pub fn read_bytes(&self, path: DataPath) -> u64 {
        self.read[path as usize]
    }

    /// Returns the number of bytes that came by any path.
    pub fn total_bytes(&self) -> u64 {
        self.read.iter().sum()
    }

    /// Returns the number of bytes that views showed in the memory of the datanode, without a copy. They are included
    /// in those of [`DataPath::Local`].
    pub fn shown_bytes(&self) -> u64 {
        self.shown
    }
}

/// Counters of one open file.
#[derive(Debug, Default)]
pub(crate) struct FileCounters {
    read: [AtomicU64; DataPath::ALL.len()],
    shown: AtomicU64,
}

impl FileCounters {
    pub(crate) fn count_read(&self, path: DataPath, bytes: usize) {
        self.read[path as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_shown(&self, bytes: usize) {
        self.count_read(DataPath::Local, bytes);
        self.shown.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn statistics(&self) -> ReadStatistics {
        ReadStatistics {
            read: DataPath::ALL.map(|path| self.read[path as usize].load(Ordering::Relaxed)),
            shown: self.shown.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn clear(&self) {
        self.read.iter().chain([&self.shown]).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

/// Counters that many threads update at once.
#[derive(Debug, Default)]
pub(crate) struct Counters(Sharded<Shard, SHARDS>);

const SHARDS: usize = 16;

/// Counters of some of the threads.
#[derive(Debug, Default)]
struct Shard {
    read: [AtomicU64; DataPath::ALL.len()],
    written: [AtomicU64; DataPath::ALL.len()],
}

impl Counters {
    pub(crate) fn count_read(&self, path: DataPath, bytes: usize) {
        self.0.of_thread().read[path as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_written(&self, path: DataPath, bytes: u64) {
        self.0.of_thread().written[path as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for shard in self.0.parts() {
            let totals = sum.read.iter_mut().chain(&mut sum.written);
            for (total, counter) in totals.zip(shard.read.iter().chain(&shard.written)) {
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
    fn shown_bytes_are_local_bytes() {
        let counters = FileCounters::default();
        counters.count_read(DataPath::Packets, 3);
        counters.count_read(DataPath::Local, 4);
        counters.count_shown(5);
        let statistics = counters.statistics();
        assert_eq!((statistics.total_bytes(), statistics.shown_bytes()), (12, 5));
        assert_eq!(DataPath::ALL.map(|path| statistics.read_bytes(path)), [9, 0, 3]);
        counters.clear();
        assert_eq!(counters.statistics(), ReadStatistics::default());
    }

    #[test]
    fn counts_of_all_threads_are_summed() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..100).for_each(|_| counters.count_read(DataPath::Packets, 3)));
            }
        });
        counters.count_read(DataPath::Local, 7);
        counters.count_written(DataPath::OneSided, 5);
        let statistics = counters.statistics();
        let read = DataPath::ALL.map(|path| statistics.read_bytes(path));
        assert_eq!(read, [7, 0, 6000]);
        let written = DataPath::ALL.map(|path| statistics.written_bytes(path));
        assert_eq!(written, [0, 5, 0]);
    }
}
