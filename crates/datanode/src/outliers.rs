//! Slow DataNodes and slow disks, as this DataNode sees them. Heartbeats report them to NameNodes.
//!
//! *DataNodes*: the time from a client's packet to its acknowledgement by the next DataNode of the pipeline, less the
//! time that this one waited for those behind it. So a slow DataNode at the end is not held against those before it.
//! (Apache's DataNode measures how long it takes to send the packet.)
//!
//! *Disks*: the times of each storage directory that the store counts: writes and reads of 64 KiB, and syncs, which stand
//! for Apache's metadata operations.
//!
//! Bounds: [`PEERS_MAX`] DataNodes with [`WINDOWS_MAX`] pairs of numbers each.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use hearth_blockstore::DiskTimes;
use hearth_config::{ConfigError, Configuration, keys};
use hearth_types::{DatanodeId, HistogramSnapshot, Outlier, SlowDisk, find_outliers};
use parking_lot::Mutex;

/// Length of a window. Source: `dfs.metrics.rolling.averages.window.length` (Hadoop's `RollingAverages`).
const WINDOW: Duration = Duration::from_secs(300);
/// Number of windows whose mean counts: half an hour.
const WINDOWS_MAX: usize = 6;
/// Maximum number of DataNodes that are measured.
const PEERS_MAX: usize = 4096;
/// Length of the longest name that is kept. An IPv6 address and a port have at most 53 bytes.
const PEER_NAME_BYTES_MAX: usize = 64;

/// What is measured, and what counts as slow.
#[derive(Clone, Copy, Debug)]
pub struct OutlierOptions {
    /// `dfs.datanode.peer.stats.enabled`.
    pub measures_peers: bool,
    /// `dfs.datanode.fileio.profiling.sampling.percentage` is above 0. Every operation is measured.
    pub measures_disks: bool,
    /// Interval of reports.
    pub interval: Duration,
    /// Minimum number of DataNodes, and of disks, to compare.
    pub peers_min: usize,
    pub disks_min: usize,
    /// Minimum number of packets to a DataNode.
    pub samples_min: u64,
    /// Latencies up to these count as fast, in milliseconds.
    pub peer_low_ms: f64,
    pub disk_low_ms: f64,
}

impl OutlierOptions {
    pub fn read(conf: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            measures_peers: conf.get(keys::DFS_DATANODE_PEER_STATS_ENABLED)?,
            measures_disks: conf.get(keys::DFS_DATANODE_FILEIO_PROFILING_SAMPLING_PERCENTAGE)? > 0,
            interval: conf.get(keys::DFS_DATANODE_OUTLIERS_REPORT_INTERVAL)?,
            peers_min: conf.get(keys::DFS_DATANODE_MIN_OUTLIER_DETECTION_NODES)? as usize,
            disks_min: conf.get(keys::DFS_DATANODE_MIN_OUTLIER_DETECTION_DISKS)? as usize,
            samples_min: conf.get(keys::DFS_DATANODE_PEER_METRICS_MIN_OUTLIER_DETECTION_SAMPLES)?,
            peer_low_ms: f64::from(conf.get(keys::DFS_DATANODE_SLOWPEER_LOW_THRESHOLD_MS)?),
            disk_low_ms: f64::from(conf.get(keys::DFS_DATANODE_SLOWDISK_LOW_THRESHOLD_MS)?),
        })
    }
}

/// Returns the name by which NameNodes know a slow DataNode: the address of its web port, or of that for HTTPS if it has
/// one. All DataNodes must use the same name. Source: Hadoop's `BlockReceiver.receiveBlock`.
pub fn peer_name(datanode: &DatanodeId) -> String {
    let port = if datanode.info_secure_port == 0 { datanode.info_port } else { datanode.info_secure_port };
    format!("{}:{port}", datanode.ip)
}

/// Latencies of other DataNodes in the last half hour.
#[derive(Default)]
pub struct PeerLatencies {
    peers: Mutex<HashMap<String, Windows>>,
}

#[derive(Default)]
struct Windows {
    /// Number of the window, and the count and the sum of its latencies; oldest first.
    windows: VecDeque<(u64, u64, Duration)>,
}

impl Windows {
    fn record(&mut self, window: u64, took: Duration) {
        match self.windows.back_mut() {
            Some((last, count, sum)) if *last >= window => {
                *count += 1;
                *sum += took;
            }
            _ => {
                self.windows.push_back((window, 1, took));
                if self.windows.len() > WINDOWS_MAX {
                    self.windows.pop_front();
                }
            }
        }
    }

    fn total_since(&self, oldest: u64) -> (u64, Duration) {
        let recent = self.windows.iter().filter(|(window, ..)| *window >= oldest);
        recent.fold((0, Duration::ZERO), |(count, sum), (_, more, took)| (count + more, sum + *took))
    }
}

impl PeerLatencies {
    /// Records one packet. `peer`: address of the web port of the next DataNode, by which NameNodes know it. `now`: time
    /// on the monotonic clock.
    pub fn record(&self, peer: &str, took: Duration, now: Duration) {
        // Clients name the DataNodes of a pipeline.
        if peer.len() > PEER_NAME_BYTES_MAX {
            return;
        }
        let window = window_of(now);
        let mut peers = self.peers.lock();
        if let Some(windows) = peers.get_mut(peer) {
            windows.record(window, took);
            return;
        }
        if peers.len() >= PEERS_MAX {
            let oldest = oldest_window(window);
            peers.retain(|_, windows| windows.total_since(oldest).0 > 0);
        }
        if peers.len() < PEERS_MAX {
            peers.entry(peer.to_owned()).or_default().record(window, took);
        }
    }

    /// Forgets all of them.
    pub fn clear(&self) {
        self.peers.lock().clear();
    }

    /// Returns the mean latencies in milliseconds of the DataNodes with at least `samples_min` packets.
    pub fn means_ms(&self, samples_min: u64, now: Duration) -> BTreeMap<String, f64> {
        let oldest = oldest_window(window_of(now));
        let peers = self.peers.lock();
        let means = peers.iter().filter_map(|(peer, windows)| {
            let (count, sum) = windows.total_since(oldest);
            (count > 0 && count >= samples_min).then(|| (peer.clone(), sum.as_secs_f64() * 1e3 / count as f64))
        });
        means.collect()
    }

    /// Returns the DataNodes that are much slower than the others.
    pub fn slow(&self, options: &OutlierOptions, now: Duration) -> Vec<Outlier> {
        find_outliers(&self.means_ms(options.samples_min, now), options.peers_min, options.peer_low_ms)
    }
}

fn window_of(now: Duration) -> u64 {
    now.as_secs() / WINDOW.as_secs()
}

fn oldest_window(newest: u64) -> u64 {
    (newest + 1).saturating_sub(WINDOWS_MAX as u64)
}

/// Slow disks, found again once in each interval from what has happened since the last time.
#[derive(Default)]
pub struct SlowDisks {
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// Monotonic time of the last search; `None` before the first.
    at: Option<Duration>,
    /// Totals at that time, by directory.
    before: BTreeMap<String, DiskTimes>,
    slow: Vec<SlowDisk>,
}

impl SlowDisks {
    /// Returns the slow disks. `disks`: their directories, and their times since the start.
    pub fn of(&self, disks: Vec<(PathBuf, DiskTimes)>, options: &OutlierOptions, now: Duration) -> Vec<SlowDisk> {
        let mut found = self.found.lock();
        if found.at.is_some_and(|at| now.saturating_sub(at) < options.interval) {
            return found.slow.clone();
        }
        let named = disks.into_iter().map(|(directory, times)| (directory.display().to_string(), times));
        let totals: BTreeMap<String, DiskTimes> = named.collect();
        found.slow = slow_disks(&found.before, &totals, options);
        found.before = totals;
        found.at = Some(now);
        found.slow.clone()
    }
}

/// Compares the disks by each kind of operation.
fn slow_disks(
    before: &BTreeMap<String, DiskTimes>,
    totals: &BTreeMap<String, DiskTimes>,
    options: &OutlierOptions,
) -> Vec<SlowDisk> {
    let mut slow = BTreeMap::<String, SlowDisk>::new();
    type TimesOf = fn(&DiskTimes) -> HistogramSnapshot;
    type LatencyOf = fn(&mut SlowDisk) -> &mut Option<f64>;
    let kinds: [(TimesOf, LatencyOf); 3] = [
        (|times| times.syncs, |disk| &mut disk.metadata_ms),
        (|times| times.reads, |disk| &mut disk.read_ms),
        (|times| times.writes, |disk| &mut disk.write_ms),
    ];
    for (times_of, latency_of) in kinds {
        let means = totals.iter().filter_map(|(directory, times)| {
            let (now, then) = (times_of(times), before.get(directory).map(times_of).unwrap_or_default());
            let count = now.count().saturating_sub(then.count());
            let sum = now.sum().saturating_sub(then.sum());
            (count > 0).then(|| (directory.clone(), sum.as_secs_f64() * 1e3 / count as f64))
        });
        for Outlier { name, latency_ms, .. } in find_outliers(&means.collect(), options.disks_min, options.disk_low_ms)
        {
            let disk = slow.entry(name.clone()).or_insert_with(|| SlowDisk {
                directory: name,
                metadata_ms: None,
                read_ms: None,
                write_ms: None,
            });
            *latency_of(disk) = Some(latency_ms);
        }
    }
    slow.into_values().collect()
}

#[cfg(test)]
mod tests {
    use hearth_types::Histogram;

    use super::*;

    fn options() -> OutlierOptions {
        OutlierOptions {
            measures_peers: true,
            measures_disks: true,
            interval: Duration::from_secs(60),
            peers_min: 3,
            disks_min: 2,
            samples_min: 10,
            peer_low_ms: 5.0,
            disk_low_ms: 20.0,
        }
    }

    fn at(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }

    #[test]
    fn datanode_is_named_as_by_apaches() {
        let plain = DatanodeId {
            ip: "10.0.0.1".into(),
            host_name: "dn".into(),
            uuid: hearth_types::DatanodeUuid("u".into()),
            transfer_port: 9866,
            info_port: 9864,
            ipc_port: 9867,
            info_secure_port: 0,
        };
        assert_eq!(peer_name(&plain), "10.0.0.1:9864");
        assert_eq!(peer_name(&DatanodeId { info_secure_port: 9865, ..plain }), "10.0.0.1:9865");
    }

    #[test]
    fn slow_datanode_is_found_and_forgotten() {
        let latencies = PeerLatencies::default();
        for _ in 0..10 {
            for (peer, ms) in [("10.0.0.1:9864", 1), ("10.0.0.2:9864", 2), ("10.0.0.3:9864", 1), ("10.0.0.4:9864", 200)]
            {
                latencies.record(peer, Duration::from_millis(ms), at(1));
            }
        }
        let slow = latencies.slow(&options(), at(2));
        assert_eq!((slow.len(), slow[0].name.as_str(), slow[0].latency_ms), (1, "10.0.0.4:9864", 200.0));
        // Too few packets.
        assert!(latencies.slow(&OutlierOptions { samples_min: 11, ..options() }, at(2)).is_empty());
        // Half an hour later nothing of it counts.
        assert!(latencies.means_ms(1, at(40)).is_empty());
    }

    #[test]
    fn number_of_measured_datanodes_is_bounded() {
        let latencies = PeerLatencies::default();
        for number in 0..2 * PEERS_MAX {
            latencies.record(&number.to_string(), Duration::ZERO, at(0));
        }
        assert_eq!(latencies.peers.lock().len(), PEERS_MAX);
        // Those that are silent make room.
        latencies.record("new", Duration::ZERO, at(60));
        assert_eq!(latencies.peers.lock().len(), 1);
    }

    #[test]
    fn slow_disk_is_found_by_what_has_happened_since() {
        let histogram = |ms| {
            let histogram = Histogram::default();
            histogram.observe_many(Duration::from_millis(ms), 10);
            histogram.snapshot()
        };
        let disk = |name: &str, write_ms| {
            let times = DiskTimes { writes: histogram(write_ms), ..DiskTimes::default() };
            (PathBuf::from(format!("/data/{name}")), times)
        };
        let disks = SlowDisks::default();
        let times = vec![disk("a", 1), disk("b", 2), disk("c", 500)];
        let slow = disks.of(times.clone(), &options(), at(0));
        assert_eq!(slow.len(), 1);
        assert_eq!((slow[0].directory.as_str(), slow[0].write_ms, slow[0].read_ms), ("/data/c", Some(500.0), None));
        // The same until the next search, which finds that nothing was written.
        assert_eq!(disks.of(Vec::new(), &options(), at(0)), slow);
        assert!(disks.of(times, &options(), at(1)).is_empty());
    }
}
