//! Times of the background's work on a volume's disk, from which a slow disk is found. Replicas in memory are read and
//! written without the disk and do not count.

use std::time::Duration;

use hearth_types::{Histogram, HistogramSnapshot};

/// Bytes of one operation: reads and writes of any length are counted as several of this size.
const UNIT_BYTES: u64 = 64 << 10;

/// Times of a volume since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskTimes {
    /// Time for each 64 KiB written. The page cache may take them first.
    pub writes: HistogramSnapshot,
    /// Time for each 64 KiB read back into memory.
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
    pub fn note_write(&self, took: Duration, bytes: u64) {
        note(&self.writes, took, bytes.div_ceil(UNIT_BYTES));
    }

    pub fn note_read(&self, took: Duration, bytes: u64) {
        note(&self.reads, took, bytes.div_ceil(UNIT_BYTES));
    }

    /// Records that the files of `replicas` replicas were synced, one after the other.
    pub fn note_syncs(&self, took: Duration, replicas: u64) {
        note(&self.syncs, took, replicas);
    }

    pub fn times(&self) -> DiskTimes {
        DiskTimes { writes: self.writes.snapshot(), reads: self.reads.snapshot(), syncs: self.syncs.snapshot() }
    }
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
        timers.note_write(Duration::from_millis(40), 4 * UNIT_BYTES);
        timers.note_write(Duration::from_millis(10), 1);
        timers.note_write(Duration::from_millis(10), 0);
        timers.note_syncs(Duration::from_millis(9), 3);
        let times = timers.times();
        assert_eq!((times.writes.count(), times.writes.mean_ms()), (5, 10.0));
        assert_eq!((times.syncs.count(), times.syncs.mean_ms(), times.reads.count()), (3, 3.0, 0));
    }
}
