//! Counters of this DataNode's current and past activity, for heartbeats, limits and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hearth_types::{Clock, Histogram, HistogramSnapshot};

use crate::outliers::PeerLatencies;

/// Counters shared by all connections.
pub struct Metrics {
    clock: Arc<dyn Clock>,
    connections: AtomicUsize,
    operations: AtomicUsize,
    responders: AtomicUsize,
    recoveries: AtomicUsize,
    transfers: AtomicUsize,
    /// In the order of [`ReadPath::ALL`].
    reads: [PathCounters; ReadPath::ALL.len()],
    /// In the order of [`WritePath::ALL`].
    writes: [PathCounters; WritePath::ALL.len()],
    acknowledgements: Histogram,
    one_sided_written_bytes: AtomicU64,
    one_sided_forwarded_bytes: AtomicU64,
    locally_forwarded_bytes: AtomicU64,
    describe_requests: AtomicU64,
    lent_bytes: AtomicU64,
    last_client_activity: AtomicU64,
    copy_pause_nanos: AtomicU64,
    streams: StreamTotals,
    /// Other DataNodes are measured.
    measures_peers: AtomicBool,
    peers: PeerLatencies,
}

/// How bytes leave this DataNode. Readers that map a replica's memory, or read it by RDMA, need no DataNode for that and
/// are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadPath {
    /// READ_BLOCK: the packets of HDFS.
    Packets,
    /// READ_MANY: ranges of many replicas over one connection.
    Multiplexed,
    /// Small replicas that a one-sided reader gets with the answer to its request.
    OneSided,
    /// COPY_BLOCK: replicas that move to another DataNode.
    Copy,
}

impl ReadPath {
    pub const ALL: [Self; 4] = [Self::Packets, Self::Multiplexed, Self::OneSided, Self::Copy];

    /// Returns the value of the label `path`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Multiplexed => "multiplexed",
            Self::OneSided => "one-sided",
            Self::Copy => "copy",
        }
    }
}

/// How the bytes of a replica come to this DataNode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritePath {
    /// WRITE_BLOCK of a client.
    Packets,
    /// A client on this machine puts them into the replica's memory.
    Local,
    /// A client writes them into the replica's memory by RDMA.
    OneSided,
    /// A replica stream of another DataNode.
    Stream,
    /// Another DataNode's copy, in packets or into memory.
    Copy,
}

impl WritePath {
    pub const ALL: [Self; 5] = [Self::Packets, Self::Local, Self::OneSided, Self::Stream, Self::Copy];

    /// Returns the value of the label `path`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Local => "local",
            Self::OneSided => "one-sided",
            Self::Stream => "stream",
            Self::Copy => "copy",
        }
    }
}

/// Counters of one path.
#[derive(Default)]
struct PathCounters {
    bytes: AtomicU64,
    time: Histogram,
}

impl PathCounters {
    fn record(&self, bytes: u64, took: Duration) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.time.observe(took);
    }
}

/// Totals of one path since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathFigures {
    /// Value of the label `path`.
    pub path: &'static str,
    pub bytes: u64,
    /// Durations of the operations, of which there are as many as reads or writes.
    pub time: HistogramSnapshot,
}

/// Reads, and received replicas, of all paths.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    pub reads: u64,
    pub read_bytes: u64,
    /// Sum of the times of these reads.
    pub read_time: Duration,
    pub writes: u64,
    pub written_bytes: u64,
    /// Sum of the times of these replicas, from set-up to end.
    pub write_time: Duration,
}

impl PathFigures {
    fn new(path: &'static str, counters: &PathCounters) -> Self {
        Self { path, bytes: counters.bytes.load(Ordering::Relaxed), time: counters.time.snapshot() }
    }
}

/// Totals of replica streams since the start.
#[derive(Default)]
struct StreamTotals {
    out_bytes: AtomicU64,
    in_bytes: AtomicU64,
    received: AtomicU64,
    resumed_bytes: AtomicU64,
}

/// Snapshot of the totals of replica streams.
#[derive(Clone, Copy, Default, Debug)]
pub struct StreamMetrics {
    /// Data sent; data that was sent twice counts twice.
    pub out_bytes: u64,
    /// Data stored.
    pub in_bytes: u64,
    /// Replicas finalized.
    pub received: u64,
    /// Bytes that did not have to be sent again after a broken connection.
    pub resumed_bytes: u64,
}

/// Counts one item in a gauge until it is dropped.
pub struct GaugeGuard {
    metrics: Arc<Metrics>,
    what: Gauge,
}

/// Maximum bytes of clients' memory that are mapped at a time. The kernel may charge its pages to this process if it
/// touches them first.
pub const LENT_BYTES_MAX: u64 = 512 << 20;

/// Counts a client's memory until it is dropped.
pub struct LentBytes {
    metrics: Arc<Metrics>,
    bytes: u64,
}

#[derive(Clone, Copy)]
enum Gauge {
    Connection,
    Operation,
    Responder,
    Recovery,
    Transfer,
}

impl Metrics {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            connections: AtomicUsize::default(),
            operations: AtomicUsize::default(),
            responders: AtomicUsize::default(),
            recoveries: AtomicUsize::default(),
            transfers: AtomicUsize::default(),
            reads: Default::default(),
            writes: Default::default(),
            acknowledgements: Histogram::default(),
            one_sided_written_bytes: AtomicU64::default(),
            one_sided_forwarded_bytes: AtomicU64::default(),
            locally_forwarded_bytes: AtomicU64::default(),
            describe_requests: AtomicU64::default(),
            lent_bytes: AtomicU64::default(),
            last_client_activity: AtomicU64::default(),
            copy_pause_nanos: AtomicU64::default(),
            streams: StreamTotals::default(),
            measures_peers: AtomicBool::default(),
            peers: PeerLatencies::default(),
        }
    }

    /// Begins to measure other DataNodes, or stops it and forgets them.
    pub fn set_measures_peers(&self, measures_peers: bool) {
        self.measures_peers.store(measures_peers, Ordering::Relaxed);
        if !measures_peers {
            self.peers.clear();
        }
    }

    fn gauge(&self, what: Gauge) -> &AtomicUsize {
        match what {
            Gauge::Connection => &self.connections,
            Gauge::Operation => &self.operations,
            Gauge::Responder => &self.responders,
            Gauge::Recovery => &self.recoveries,
            Gauge::Transfer => &self.transfers,
        }
    }

    fn count(self: &Arc<Self>, what: Gauge) -> GaugeGuard {
        self.gauge(what).fetch_add(1, Ordering::Relaxed);
        GaugeGuard { metrics: self.clone(), what }
    }

    /// Counts an accepted connection.
    pub fn count_connection(self: &Arc<Self>) -> GaugeGuard {
        self.count(Gauge::Connection)
    }

    /// Counts an operation of DataTransferProtocol in progress.
    pub fn count_operation(self: &Arc<Self>) -> GaugeGuard {
        self.count(Gauge::Operation)
    }

    /// Counts a client's write, for which Java uses a second thread for the acknowledgements.
    pub fn count_responder(self: &Arc<Self>) -> GaugeGuard {
        self.count(Gauge::Responder)
    }

    /// Counts a block recovery that this DataNode leads.
    pub fn count_recovery(self: &Arc<Self>) -> GaugeGuard {
        self.count(Gauge::Recovery)
    }

    /// Counts a replica that is being sent to another DataNode by order of a NameNode.
    pub fn count_transfer(self: &Arc<Self>) -> GaugeGuard {
        self.count(Gauge::Transfer)
    }

    /// Reserves `bytes` of a client's memory, which this DataNode maps to write answers there. `None` if the total over
    /// all clients would exceed [`LENT_BYTES_MAX`].
    pub fn reserve_lent_bytes(self: &Arc<Self>, bytes: u64) -> Option<LentBytes> {
        // Added before the check, as for connections.
        self.lent_bytes.fetch_add(bytes, Ordering::Relaxed);
        let lent = LentBytes { metrics: self.clone(), bytes };
        (self.lent_bytes() <= LENT_BYTES_MAX).then_some(lent)
    }

    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the xceiver count for heartbeats, counted like Java's threads, including the one that accepts
    /// connections. NameNodes avoid a DataNode with twice the average, and an idle Java DataNode would exceed that
    /// among Hearth DataNodes that report 0.
    /// Source: hdfs `DataNode.getXceiverCount`.
    pub fn xceiver_count(&self) -> usize {
        1 + self.xceivers() + self.responders.load(Ordering::Relaxed)
    }

    /// Returns the number of operations and recoveries; idle connections do not count.
    pub fn xceivers(&self) -> usize {
        self.operations.load(Ordering::Relaxed) + self.recoveries.load(Ordering::Relaxed)
    }

    pub fn transfers(&self) -> usize {
        self.transfers.load(Ordering::Relaxed)
    }

    /// Records one read of `bytes`, from the receipt of its request to the last byte handed to the socket.
    pub fn record_read(&self, path: ReadPath, bytes: u64, took: Duration) {
        self.reads[path as usize].record(bytes, took);
    }

    /// Records that ranges of `bytes` in total were sent together on a READ_MANY connection.
    pub fn record_ranges_read(&self, bytes: u64) {
        self.reads[ReadPath::Multiplexed as usize].bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records the time of `ranges` such ranges.
    pub fn observe_ranges(&self, ranges: u64, took: Duration) {
        self.reads[ReadPath::Multiplexed as usize].time.observe_many(took, ranges);
    }

    /// Records activity of a client, for example that a packet was sent to it or received from it.
    pub fn note_client_activity(&self) {
        self.last_client_activity.store(self.monotonic_nanos(), Ordering::Relaxed);
    }

    /// Returns the time since the last activity of a client.
    pub fn since_client_activity(&self) -> Duration {
        match self.last_client_activity.load(Ordering::Relaxed) {
            0 => Duration::MAX,
            at => Duration::from_nanos(self.monotonic_nanos().saturating_sub(at)),
        }
    }

    /// Returns the time on the monotonic clock, never 0.
    fn monotonic_nanos(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Records that a copy pauses for `time` because clients are served.
    pub fn record_copy_pause(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.copy_pause_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the total time of those pauses.
    pub fn copy_pause_time(&self) -> Duration {
        Duration::from_nanos(self.copy_pause_nanos.load(Ordering::Relaxed))
    }

    /// Records one received replica of `bytes`, from its set-up to its end.
    pub fn record_write(&self, path: WritePath, bytes: u64, took: Duration) {
        self.writes[path as usize].record(bytes, took);
    }

    /// Records the acknowledgement of a client's packet by the DataNodes behind this one, `took` after its receipt.
    pub fn record_acknowledgement(&self, took: Duration) {
        self.acknowledgements.observe(took);
    }

    /// Records the part of that time that the next DataNode needed. `peer`: address of its web port.
    pub fn record_peer(&self, peer: &str, took: Duration) {
        if let Some(peers) = self.peers() {
            peers.record(peer, took, self.clock.monotonic());
        }
    }

    /// Returns the latencies of other DataNodes, if they are measured.
    pub fn peers(&self) -> Option<&PeerLatencies> {
        self.measures_peers.load(Ordering::Relaxed).then_some(&self.peers)
    }

    /// Returns the times of those acknowledgements.
    pub fn acknowledgements(&self) -> HistogramSnapshot {
        self.acknowledgements.snapshot()
    }

    /// Records `bytes` of a replica that the sender wrote into this DataNode's memory.
    pub fn record_one_sided_write(&self, bytes: u64) {
        self.one_sided_written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn one_sided_written_bytes(&self) -> u64 {
        self.one_sided_written_bytes.load(Ordering::Relaxed)
    }

    /// Records a DESCRIBE request.
    pub fn record_describe(&self) {
        self.describe_requests.fetch_add(1, Ordering::Relaxed);
    }

    pub fn describe_requests(&self) -> u64 {
        self.describe_requests.load(Ordering::Relaxed)
    }

    /// Records `bytes` of a replica written into the next DataNode's memory.
    pub fn record_one_sided_forward(&self, bytes: u64) {
        self.one_sided_forwarded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn one_sided_forwarded_bytes(&self) -> u64 {
        self.one_sided_forwarded_bytes.load(Ordering::Relaxed)
    }

    /// Records `bytes` of a replica put into the memory of the next DataNode on this machine.
    pub fn record_local_forward(&self, bytes: u64) {
        self.locally_forwarded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn locally_forwarded_bytes(&self) -> u64 {
        self.locally_forwarded_bytes.load(Ordering::Relaxed)
    }

    /// Records `bytes` of a replica sent over a replica stream.
    pub fn record_stream_sent(&self, bytes: u64) {
        self.streams.out_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records `bytes` of a replica that was received over a stream and stored.
    pub fn record_stream_stored(&self, bytes: u64) {
        self.streams.in_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records that a replica received over a stream was finalized.
    pub fn record_stream_received(&self) {
        self.streams.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the transfer of a replica was resumed with `bytes` already present.
    pub fn record_stream_resumed(&self, bytes: u64) {
        self.streams.resumed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn streams(&self) -> StreamMetrics {
        StreamMetrics {
            out_bytes: self.streams.out_bytes.load(Ordering::Relaxed),
            in_bytes: self.streams.in_bytes.load(Ordering::Relaxed),
            received: self.streams.received.load(Ordering::Relaxed),
            resumed_bytes: self.streams.resumed_bytes.load(Ordering::Relaxed),
        }
    }

    /// Returns the reads since the start, by path.
    pub fn reads(&self) -> [PathFigures; ReadPath::ALL.len()] {
        ReadPath::ALL.map(|path| PathFigures::new(path.name(), &self.reads[path as usize]))
    }

    /// Returns the numbers and bytes of all reads, and of all received replicas, since the start.
    pub fn totals(&self) -> Totals {
        let sum = |paths: &[PathFigures]| {
            let number: u64 = paths.iter().map(|path| path.time.count()).sum();
            let bytes: u64 = paths.iter().map(|path| path.bytes).sum();
            (number, bytes, paths.iter().map(|path| path.time.sum()).sum::<Duration>())
        };
        let (reads, read_bytes, read_time) = sum(&self.reads());
        let (writes, written_bytes, write_time) = sum(&self.writes());
        Totals { reads, read_bytes, read_time, writes, written_bytes, write_time }
    }

    /// Returns the received replicas since the start, by path.
    pub fn writes(&self) -> [PathFigures; WritePath::ALL.len()] {
        WritePath::ALL.map(|path| PathFigures::new(path.name(), &self.writes[path as usize]))
    }
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        self.metrics.lent_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.metrics.gauge(self.what).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::ManualClock;

    use super::*;

    fn metrics() -> (Arc<Metrics>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        (Arc::new(Metrics::new(clock.clone())), clock)
    }

    #[test]
    fn client_activity_ages() {
        let (metrics, clock) = metrics();
        assert_eq!(metrics.since_client_activity(), Duration::MAX);
        clock.advance(Duration::from_secs(1));
        metrics.note_client_activity();
        assert_eq!(metrics.since_client_activity(), Duration::ZERO);
        clock.advance(Duration::from_secs(1));
        assert_eq!(metrics.since_client_activity(), Duration::from_secs(1));
    }

    #[test]
    fn lent_memory_is_limited_and_returned() {
        let (metrics, _) = metrics();
        let first = metrics.reserve_lent_bytes(LENT_BYTES_MAX - 10).unwrap();
        assert!(metrics.reserve_lent_bytes(11).is_none());
        let second = metrics.reserve_lent_bytes(10).unwrap();
        assert_eq!(metrics.lent_bytes(), LENT_BYTES_MAX);
        drop(first);
        assert_eq!(metrics.lent_bytes(), 10);
        drop(second);
        assert!(metrics.reserve_lent_bytes(LENT_BYTES_MAX).is_some() && metrics.lent_bytes() == 0);
    }

    #[test]
    fn connection_count_falls_on_drop() {
        let (metrics, _) = metrics();
        let two = (metrics.count_connection(), metrics.count_connection());
        assert_eq!(metrics.connections(), 2);
        drop(two);
        assert_eq!(metrics.connections(), 0);
    }

    #[test]
    fn operations_count_under_their_path() {
        let (metrics, _) = metrics();
        assert!(ReadPath::ALL.iter().enumerate().all(|(index, path)| *path as usize == index));
        assert!(WritePath::ALL.iter().enumerate().all(|(index, path)| *path as usize == index));
        metrics.record_read(ReadPath::Copy, 5, Duration::from_millis(2));
        metrics.record_ranges_read(7);
        metrics.observe_ranges(3, Duration::from_micros(4));
        metrics.record_write(WritePath::Local, 11, Duration::from_secs(1));
        let of = |figures: &[PathFigures]| {
            let used = figures.iter().filter(|path| path.bytes > 0);
            used.map(|path| (path.path, path.bytes, path.time.count())).collect::<Vec<_>>()
        };
        assert_eq!(of(&metrics.reads()), [("multiplexed", 7, 3), ("copy", 5, 1)]);
        assert_eq!(of(&metrics.writes()), [("local", 11, 1)]);
    }
}
