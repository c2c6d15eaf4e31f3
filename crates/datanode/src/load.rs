//! What this datanode is doing right now, and has done: for heartbeats, limits and metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Counters shared by all connections.
#[derive(Default)]
pub struct Load {
    connections: AtomicUsize,
    operations: AtomicUsize,
    responders: AtomicUsize,
    recoveries: AtomicUsize,
    transfers: AtomicUsize,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    one_sided_written_bytes: AtomicU64,
    one_sided_forwarded_bytes: AtomicU64,
    locally_forwarded_bytes: AtomicU64,
    descriptions: AtomicU64,
    lent_bytes: AtomicU64,
    client_served: AtomicU64,
    copies_rested_nanos: AtomicU64,
    streams: StreamTotals,
}

/// Replicas over connections of many, since the start.
#[derive(Default)]
struct StreamTotals {
    out_bytes: AtomicU64,
    in_bytes: AtomicU64,
    received: AtomicU64,
    resumed_bytes: AtomicU64,
}

/// The same, looked at.
#[derive(Clone, Copy, Default, Debug)]
pub struct StreamFigures {
    /// Data sent, what went twice counted twice.
    pub out_bytes: u64,
    /// Data stored.
    pub in_bytes: u64,
    /// Replicas finalized.
    pub received: u64,
    /// Bytes that did not have to come again after a broken connection.
    pub resumed_bytes: u64,
}

/// Counts something for as long as it lives.
pub struct Counted {
    load: Arc<Load>,
    what: What,
}

/// Clients' memory that is mapped at a time. Its pages may be counted as this process's, who touches them first.
pub const LENT_BYTES_MAX: u64 = 512 << 20;

/// Counts a client's memory for as long as it lives.
pub struct LentBytes {
    load: Arc<Load>,
    bytes: u64,
}

#[derive(Clone, Copy)]
enum What {
    Connection,
    Operation,
    Responder,
    Recovery,
    Transfer,
}

impl Load {
    fn gauge(&self, what: What) -> &AtomicUsize {
        match what {
            What::Connection => &self.connections,
            What::Operation => &self.operations,
            What::Responder => &self.responders,
            What::Recovery => &self.recoveries,
            What::Transfer => &self.transfers,
        }
    }

    fn count(self: &Arc<Self>, what: What) -> Counted {
        self.gauge(what).fetch_add(1, Ordering::Relaxed);
        Counted { load: self.clone(), what }
    }

    /// A connection that is taken on.
    pub fn connection(self: &Arc<Self>) -> Counted {
        self.count(What::Connection)
    }

    /// An operation of DataTransferProtocol that is being served.
    pub fn operation(self: &Arc<Self>) -> Counted {
        self.count(What::Operation)
    }

    /// A client's write, which Java serves by a second thread for the acknowledgements.
    pub fn responder(self: &Arc<Self>) -> Counted {
        self.count(What::Responder)
    }

    /// A block recovery that this datanode leads.
    pub fn recovery(self: &Arc<Self>) -> Counted {
        self.count(What::Recovery)
    }

    /// A replica that is being sent to another datanode on a namenode's word.
    pub fn transfer(self: &Arc<Self>) -> Counted {
        self.count(What::Transfer)
    }

    /// `bytes` of a client's memory that this datanode maps to put answers there; `None` when that were more than
    /// [`LENT_BYTES_MAX`] of all clients.
    pub fn lend(self: &Arc<Self>, bytes: u64) -> Option<LentBytes> {
        // Counted first, as connections are.
        self.lent_bytes.fetch_add(bytes, Ordering::Relaxed);
        let lent = LentBytes { load: self.clone(), bytes };
        (self.lent_bytes() <= LENT_BYTES_MAX).then_some(lent)
    }

    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// What heartbeats call xceivers, counted as Java counts its threads, the one that accepts connections among them:
    /// namenodes leave out a datanode with twice the average, and an idle Java one would stand out among ours at 0.
    /// Source: hdfs `DataNode.getXceiverCount`.
    pub fn java_threads(&self) -> usize {
        1 + self.xceivers() + self.responders.load(Ordering::Relaxed)
    }

    /// Operations, not idle connections, and recoveries.
    pub fn xceivers(&self) -> usize {
        self.operations.load(Ordering::Relaxed) + self.recoveries.load(Ordering::Relaxed)
    }

    pub fn transfers(&self) -> usize {
        self.transfers.load(Ordering::Relaxed)
    }

    /// One read served, of `bytes`.
    pub fn read_bytes(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `ranges` read on a connection of many, of `bytes` in all.
    pub fn many_read(&self, ranges: u64, bytes: u64) {
        self.reads.fetch_add(ranges, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A client has got something, a packet say, or something of his has been taken.
    pub fn client_served(&self) {
        self.client_served.store(nanos(), Ordering::Relaxed);
    }

    /// How long ago that was.
    pub fn client_served_ago(&self) -> Duration {
        match self.client_served.load(Ordering::Relaxed) {
            0 => Duration::MAX,
            at => Duration::from_nanos(nanos().saturating_sub(at)),
        }
    }

    /// A copy rests for so long because clients are served.
    pub fn copies_rest(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.copies_rested_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// All such rests.
    pub fn copies_rested(&self) -> Duration {
        Duration::from_nanos(self.copies_rested_nanos.load(Ordering::Relaxed))
    }

    /// One replica received, of `bytes`.
    pub fn written_bytes(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `bytes` of a replica that their sender wrote into this datanode's memory.
    pub fn one_sided_written(&self, bytes: u64) {
        self.one_sided_written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn one_sided_written_bytes(&self) -> u64 {
        self.one_sided_written_bytes.load(Ordering::Relaxed)
    }

    /// A client has asked what is offered here.
    pub fn described(&self) {
        self.descriptions.fetch_add(1, Ordering::Relaxed);
    }

    pub fn descriptions(&self) -> u64 {
        self.descriptions.load(Ordering::Relaxed)
    }

    /// `bytes` of a replica written into the next datanode's memory.
    pub fn one_sided_forwarded(&self, bytes: u64) {
        self.one_sided_forwarded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn one_sided_forwarded_bytes(&self) -> u64 {
        self.one_sided_forwarded_bytes.load(Ordering::Relaxed)
    }

    /// `bytes` of a replica put into the memory of the next datanode on this machine.
    pub fn locally_forwarded(&self, bytes: u64) {
        self.locally_forwarded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn locally_forwarded_bytes(&self) -> u64 {
        self.locally_forwarded_bytes.load(Ordering::Relaxed)
    }

    /// `bytes` of a replica sent over a connection of many.
    pub fn streamed_out(&self, bytes: u64) {
        self.streams.out_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `bytes` of a replica stored that came so.
    pub fn streamed_in(&self, bytes: u64) {
        self.streams.in_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A replica that came so is finalized.
    pub fn stream_received(&self) {
        self.streams.received.fetch_add(1, Ordering::Relaxed);
    }

    /// A replica was gone on with, of which `bytes` were there.
    pub fn stream_resumed(&self, bytes: u64) {
        self.streams.resumed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn streams(&self) -> StreamFigures {
        StreamFigures {
            out_bytes: self.streams.out_bytes.load(Ordering::Relaxed),
            in_bytes: self.streams.in_bytes.load(Ordering::Relaxed),
            received: self.streams.received.load(Ordering::Relaxed),
            resumed_bytes: self.streams.resumed_bytes.load(Ordering::Relaxed),
        }
    }

    /// Reads, bytes read, writes, bytes written since the start.
    pub fn totals(&self) -> (u64, u64, u64, u64) {
        (
            self.reads.load(Ordering::Relaxed),
            self.read_bytes.load(Ordering::Relaxed),
            self.writes.load(Ordering::Relaxed),
            self.written_bytes.load(Ordering::Relaxed),
        )
    }
}

/// Since somebody first asked, and never 0.
fn nanos() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(FIRST.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        self.load.lent_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.load.gauge(self.what).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_lend_up_to_the_limit_and_get_their_share_back() {
        let load = Arc::new(Load::default());
        let first = load.lend(LENT_BYTES_MAX - 10).unwrap();
        assert!(load.lend(11).is_none());
        let second = load.lend(10).unwrap();
        assert_eq!(load.lent_bytes(), LENT_BYTES_MAX);
        drop(first);
        assert_eq!(load.lent_bytes(), 10);
        drop(second);
        assert!(load.lend(LENT_BYTES_MAX).is_some() && load.lent_bytes() == 0);
    }

    #[test]
    fn connections_are_counted_back() {
        let load = Arc::new(Load::default());
        let two = (load.connection(), load.connection());
        assert_eq!(load.connections(), 2);
        drop(two);
        assert_eq!(load.connections(), 0);
    }
}
