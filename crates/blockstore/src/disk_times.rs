//! Times of the background's work on a volume's disk, from which a slow disk is found. Replicas in memory are read and
//! written without the disk and do not count.

use std::time::Duration;

use hearth_types::{Histogram, HistogramSnapshot};

/// Bytes of one operation: longer reads and writes are counted as several of this size, shorter ones as one.
const UNIT_BYTES: u64 = 64 << 10;

/// Times of a volume since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskTimes {
    /// Time for each 64 KiB written, or for a shorter replica. The page cache may take them first.
    pub writes: HistogramSnapshot,
    /// Time for each 64 KiB read back into memory, or for a shorter replica.
    pub reads: HistogramSnapshot,
    /// Time to sync the files of a replica.
    pub syncs: HistogramSnapshot,
}

/// Counters of a volume.
#[derive(Default)]
pub struct DiskTimers {
    writes: Histogram,
    reads: Histogram,
    syncs: Histogram,
}

impl DiskTimers {
    /// Records that replicas of these lengths were written, one after the other. Each counts: many short ones take the
    /// time to make their files, and not that of their bytes.
    pub fn note_writes(&self, took: Duration, lengths: impl Iterator<Item = u64>) {
        note(&self.writes, took, lengths.map(operations).sum());
    }

    pub fn note_read(&self, took: Duration, bytes: u64) {
        note(&self.reads, took, operations(bytes));
    }

    /// Records that the files of `replicas` replicas were synced, one after the other.
    pub fn note_syncs(&self, took: Duration, replicas: u64) {
        note(&self.syncs, took, replicas);
    }

    pub fn times(&self) -> DiskTimes {
        DiskTimes { writes: self.writes.snapshot(), reads: self.reads.snapshot(), syncs: self.syncs.snapshot() }
    }
}

/// Returns the number of operations that a replica of `bytes` counts for.
fn operations(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES).max(1)
}

/// Records `operations` that took `took` together.
fn note(times: &Histogram, took: Duration, operations: u64) {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    if let Some(each) = nanos.checked_div(operations) {
        times.observe_many(Duration::from_nanos(each), operations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_operations_count_as_several() {
        let timers = DiskTimers::default();
        timers.note_writes(Duration::from_millis(40), [4 * UNIT_BYTES].into_iter());
        timers.note_writes(Duration::from_millis(10), [1].into_iter());
        timers.note_writes(Duration::from_millis(10), std::iter::empty());
        timers.note_syncs(Duration::from_millis(9), 3);
        let times = timers.times();
        assert_eq!((times.writes.count(), times.writes.mean_ms()), (5, 10.0));
        assert_eq!((times.syncs.count(), times.syncs.mean_ms(), times.reads.count()), (3, 3.0, 0));
    }

    #[test]
    fn short_replicas_do_not_make_a_disk_slow() {
        let timers = DiskTimers::default();
        // A batch of files that have together the bytes of a single operation.
        timers.note_writes(Duration::from_millis(64), std::iter::repeat_n(1024, 64));
        timers.note_read(Duration::from_millis(1), 0);
        let times = timers.times();
        assert_eq!((times.writes.count(), times.writes.mean_ms(), times.reads.count()), (64, 1.0, 1));
    }
}
