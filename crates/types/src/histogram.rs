//! Latencies: a histogram that many threads update without a lock, and what an RPC port reports of its calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Sharded;

/// Upper bounds of the buckets in nanoseconds, each included in its bucket; a last bucket has no bound.
///
/// From 10 µs, which a call that only reads memory takes, to one minute, which a client may take to write a block. Steps
/// of 1, 2.5 and 5 keep the error of a quantile below a factor of 2.5.
const BOUNDS_NANOS: [u64; 20] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    60_000_000_000,
];

/// The buckets with a bound, and the one without.
const BUCKETS: usize = BOUNDS_NANOS.len() + 1;

/// The lowest bucket of a value, by the number of its significant bits.
const FIRST_BUCKETS: [u8; 65] = {
    let mut first = [0; 65];
    let mut bits = 1;
    while bits <= 64 {
        let mut bucket = first[bits - 1];
        while (bucket as usize) < BOUNDS_NANOS.len() && BOUNDS_NANOS[bucket as usize] < 1 << (bits - 1) {
            bucket += 1;
        }
        first[bits] = bucket;
        bits += 1;
    }
    first
};

/// Returns the bucket of a duration: the first whose bound is not below it. Steps through at most two buckets.
fn bucket_of(nanos: u64) -> usize {
    let mut bucket = usize::from(FIRST_BUCKETS[(u64::BITS - nanos.leading_zeros()) as usize]);
    while BOUNDS_NANOS.get(bucket).is_some_and(|bound| *bound < nanos) {
        bucket += 1;
    }
    bucket
}

/// Counts durations by size. An observation is two additions to atomic counters of the thread's own, without a lock: it
/// may be part of every operation.
#[derive(Default, Debug)]
pub struct Histogram(Sharded<Counts>);

#[derive(Default, Debug)]
struct Counts {
    buckets: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        self.observe_many(took, 1);
    }

    /// Counts `count` operations that took `took` each.
    pub fn observe_many(&self, took: Duration, count: u64) {
        // 64 bits of nanoseconds suffice for 584 years.
        let nanos = took.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(took.subsec_nanos()));
        let counts = self.0.of_thread();
        counts.buckets[bucket_of(nanos)].fetch_add(count, Ordering::Relaxed);
        counts.sum_nanos.fetch_add(nanos.saturating_mul(count), Ordering::Relaxed);
    }

    /// Returns the counts of this moment. Observations at the same time may be in only a part of them.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut snapshot = HistogramSnapshot::default();
        for part in self.0.parts() {
            for (count, bucket) in snapshot.counts.iter_mut().zip(&part.buckets) {
                *count += bucket.load(Ordering::Relaxed);
            }
            snapshot.sum_nanos = snapshot.sum_nanos.wrapping_add(part.sum_nanos.load(Ordering::Relaxed));
        }
        snapshot
    }
}

/// The counts of a [`Histogram`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HistogramSnapshot {
    counts: [u64; BUCKETS],
    sum_nanos: u64,
}

impl HistogramSnapshot {
    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the observed durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos)
    }

    /// Returns the mean duration in milliseconds; 0 without observations.
    pub fn mean_ms(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_nanos as f64 / count as f64 / 1e6,
        }
    }

    /// Returns, for each bucket from the smallest to the largest, its upper bound and the number of observations up to
    /// it. The bound of the last one is `None`: it has all observations.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS_NANOS.iter().map(|nanos| Some(Duration::from_nanos(*nanos))).chain([None]);
        let mut sum = 0;
        bounds.zip(self.counts).map(move |(bound, count)| {
            sum += count;
            (bound, sum)
        })
    }

    /// Returns the counts of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_nanos = self.sum_nanos.wrapping_add(other.sum_nanos);
        self
    }
}

/// Figures of one RPC port since its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RpcFigures {
    pub port: u16,
    /// Every method of the served protocols, and one for all other names.
    pub methods: Vec<RpcMethodFigures>,
    /// Connections open now.
    pub connections: u64,
    /// Calls that have begun and have no response yet.
    pub calls_in_progress: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Connections closed at once, because all others were busy.
    pub refused_connections: u64,
    /// Connections whose user was accepted.
    pub authorizations: u64,
    /// Connections refused because their user may not act for another one.
    pub authorization_failures: u64,
}

/// Figures of one method of an RPC port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RpcMethodFigures {
    pub name: &'static str,
    /// Time from the arrival of a call's last byte to its start.
    pub queue: HistogramSnapshot,
    /// Time from a call's start to its response, including waits for the journal.
    pub processing: HistogramSnapshot,
    /// Calls that were answered with an exception.
    pub errors: u64,
}

impl RpcFigures {
    /// Returns the queue times and the processing times of all methods together.
    pub fn totals(&self) -> (HistogramSnapshot, HistogramSnapshot) {
        self.methods.iter().fold(
            Default::default(),
            |(queue, processing): (HistogramSnapshot, HistogramSnapshot), method| {
                (queue.plus(&method.queue), processing.plus(&method.processing))
            },
        )
    }

    /// Returns the number of answered calls of the method `name`.
    pub fn calls(&self, name: &str) -> u64 {
        self.methods.iter().filter(|method| method.name == name).map(|method| method.processing.count()).sum()
    }

    /// Returns the number of those calls that were not answered with an exception.
    pub fn successes(&self, name: &str) -> u64 {
        let errors: u64 = self.methods.iter().filter(|method| method.name == name).map(|method| method.errors).sum();
        self.calls(name).saturating_sub(errors)
    }

    /// Returns the processing times of the method `name`.
    pub fn times(&self, name: &str) -> HistogramSnapshot {
        let methods = self.methods.iter().filter(|method| method.name == name);
        methods.fold(HistogramSnapshot::default(), |all, method| all.plus(&method.processing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_includes_its_upper_bound() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_micros(10));
        histogram.observe(Duration::from_nanos(10_001));
        histogram.observe(Duration::from_secs(61));
        let snapshot = histogram.snapshot();
        let cumulative: Vec<_> = snapshot.cumulative().collect();
        assert_eq!(cumulative.len(), BUCKETS);
        assert_eq!(cumulative[0], (Some(Duration::from_micros(10)), 1));
        assert_eq!(cumulative[1], (Some(Duration::from_micros(25)), 2));
        assert_eq!(cumulative[BUCKETS - 2], (Some(Duration::from_secs(60)), 2));
        assert_eq!(cumulative[BUCKETS - 1], (None, 3));
        assert_eq!((snapshot.count(), snapshot.sum()), (3, Duration::from_nanos(61_000_020_001)));
    }

    #[test]
    fn bucket_is_the_first_with_a_bound_that_suffices() {
        let around = BOUNDS_NANOS.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        let powers = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for nanos in around.chain(powers).chain([u64::MAX]) {
            assert_eq!(bucket_of(nanos), BOUNDS_NANOS.partition_point(|bound| *bound < nanos), "{nanos}");
        }
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS_NANOS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn longest_duration_is_counted() {
        let histogram = Histogram::default();
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.snapshot().count(), 1);
    }

    #[test]
    fn many_operations_count_with_their_sum() {
        let (one, other) = (Histogram::default(), Histogram::default());
        one.observe_many(Duration::from_millis(2), 10);
        other.observe(Duration::from_millis(13));
        let both = one.snapshot().plus(&other.snapshot());
        assert_eq!((both.count(), both.sum()), (11, Duration::from_millis(33)));
        assert!((both.mean_ms() - 3.0).abs() < 1e-9);
        assert!(HistogramSnapshot::default().mean_ms() == 0.0);
    }

    #[test]
    fn concurrent_observations_are_all_counted() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let histogram = &histogram;
                scope.spawn(move || {
                    for nanos in 0..10_000 {
                        histogram.observe(Duration::from_nanos(nanos * (thread + 1)));
                    }
                });
            }
        });
        assert_eq!(histogram.snapshot().count(), 40_000);
        let sum: u64 = (0..10_000u64).sum();
        assert_eq!(histogram.snapshot().sum(), Duration::from_nanos(sum * (1 + 2 + 3 + 4)));
    }

    #[test]
    fn totals_are_those_of_all_methods() {
        let method = |name, calls, errors| {
            let histogram = Histogram::default();
            histogram.observe_many(Duration::from_micros(5), calls);
            let snapshot = histogram.snapshot();
            RpcMethodFigures { name, queue: snapshot, processing: snapshot, errors }
        };
        let figures = RpcFigures {
            port: 8020,
            methods: vec![method("create", 2, 0), method("delete", 3, 1)],
            connections: 0,
            calls_in_progress: 0,
            received_bytes: 0,
            sent_bytes: 0,
            refused_connections: 0,
            authorizations: 0,
            authorization_failures: 0,
        };
        assert_eq!((figures.totals().0.count(), figures.totals().1.count()), (5, 5));
        assert_eq!((figures.calls("delete"), figures.calls("none")), (3, 0));
        assert_eq!((figures.successes("create"), figures.successes("delete")), (2, 2));
        assert_eq!(figures.times("delete").sum(), Duration::from_micros(15));
    }
}
