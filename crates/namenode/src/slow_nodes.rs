//! DataNodes and disks that DataNodes report as slow.
//!
//! A report counts for three intervals of reports. Bounds: `NODES_MAX` slow DataNodes, `REPORTERS_MAX` reports about
//! each, `DISKS_MAX` slow disks; further ones are dropped until others expire.
//!
//! Source: Hadoop's `SlowPeerTracker` and `SlowDiskTracker`.

use std::collections::BTreeMap;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys};
use hearth_types::{DatanodeId, Outlier, SlowDisk};
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value, json};

const NODES_MAX: usize = 1000;
const REPORTERS_MAX: usize = 100;
const DISKS_MAX: usize = 1000;
/// Length of the longest address that is kept: a host name of 253 bytes, a colon and a port fit.
const ADDRESS_BYTES_MAX: usize = 300;
/// Length of the longest directory that is kept: `PATH_MAX` of Linux.
const DIRECTORY_BYTES_MAX: usize = 4096;
/// A report is valid for this many intervals.
const VALID_INTERVALS: u32 = 3;

/// What is reported, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct SlowNodeOptions {
    /// `dfs.datanode.peer.stats.enabled`.
    pub has_peers: bool,
    /// `dfs.datanode.fileio.profiling.sampling.percentage` is above 0.
    pub has_disks: bool,
    /// Time for which a report is valid.
    pub validity: Duration,
    /// Maximum numbers in `/jmx`: `dfs.datanode.max.nodes.to.report` and `.max.disks.to.report`.
    pub nodes_reported_max: usize,
    pub disks_reported_max: usize,
}

impl SlowNodeOptions {
    pub fn read(conf: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            has_peers: conf.get(keys::DFS_DATANODE_PEER_STATS_ENABLED)?,
            has_disks: conf.get(keys::DFS_DATANODE_FILEIO_PROFILING_SAMPLING_PERCENTAGE)? > 0,
            validity: conf.get(keys::DFS_DATANODE_OUTLIERS_REPORT_INTERVAL)?.saturating_mul(VALID_INTERVALS),
            nodes_reported_max: conf.get(keys::DFS_DATANODE_MAX_NODES_TO_REPORT)? as usize,
            disks_reported_max: conf.get(keys::DFS_DATANODE_MAX_DISKS_TO_REPORT)? as usize,
        })
    }
}

/// Reports that are valid.
pub struct SlowNodes {
    options: RwLock<SlowNodeOptions>,
    reported: Mutex<Reported>,
}

#[derive(Default)]
struct Reported {
    /// By the slow DataNode's web address, then by the address of the DataNode that reports it. The outliers have no
    /// name: it would be kept once for each report.
    peers: BTreeMap<String, BTreeMap<String, (Duration, Outlier)>>,
    /// By the DataNode's address and the directory.
    disks: BTreeMap<String, (Duration, SlowDisk)>,
}

/// Numbers of slow DataNodes and disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowCounts {
    pub datanodes: u64,
    pub disks: u64,
}

impl SlowNodes {
    pub fn new(options: SlowNodeOptions) -> Self {
        Self { options: RwLock::new(options), reported: Mutex::default() }
    }

    pub fn options(&self) -> SlowNodeOptions {
        *self.options.read()
    }

    /// Replaces the options. Reports about what is not measured any more are dropped.
    pub fn set_options(&self, options: SlowNodeOptions) {
        *self.options.write() = options;
        let mut reported = self.reported.lock();
        if !options.has_peers {
            reported.peers.clear();
        }
        if !options.has_disks {
            reported.disks.clear();
        }
    }

    /// Takes the reports of a registered DataNode's heartbeat. `now`: time on the monotonic clock.
    pub fn report(&self, reporter: &DatanodeId, peers: Vec<Outlier>, disks: Vec<SlowDisk>, now: Duration) {
        let options = self.options();
        let peers = if options.has_peers { peers } else { Vec::new() };
        let disks = if options.has_disks { disks } else { Vec::new() };
        if peers.is_empty() && disks.is_empty() {
            return;
        }
        let reporter = address(reporter, reporter.ipc_port);
        if reporter.len() > ADDRESS_BYTES_MAX {
            return;
        }
        let mut reported = self.reported.lock();
        reported.expire(now, options.validity);
        for mut peer in peers.into_iter().filter(|peer| peer.name.len() <= ADDRESS_BYTES_MAX) {
            let name = std::mem::take(&mut peer.name);
            if !reported.peers.contains_key(&name) && reported.peers.len() >= NODES_MAX {
                continue;
            }
            let reports = reported.peers.entry(name).or_default();
            if reports.contains_key(&reporter) || reports.len() < REPORTERS_MAX {
                reports.insert(reporter.clone(), (now, peer));
            }
        }
        for disk in disks.into_iter().filter(|disk| disk.directory.len() <= DIRECTORY_BYTES_MAX) {
            let id = format!("{reporter}:{}", disk.directory);
            if reported.disks.contains_key(&id) || reported.disks.len() < DISKS_MAX {
                reported.disks.insert(id, (now, disk));
            }
        }
    }

    /// Returns true if others report this DataNode as slow. Each heartbeat asks, so only its own reports are looked at.
    pub fn is_slow(&self, datanode: &DatanodeId, now: Duration) -> bool {
        let options = self.options();
        if !options.has_peers {
            return false;
        }
        let reported = self.reported.lock();
        // Apache's DataNodes name one with HTTPS by that port.
        [datanode.info_port, datanode.info_secure_port].into_iter().filter(|port| *port != 0).any(|port| {
            let reports = reported.peers.get(&address(datanode, port));
            reports.is_some_and(|reports| reports.values().any(|(at, _)| is_valid(*at, now, options.validity)))
        })
    }

    pub fn counts(&self, now: Duration) -> SlowCounts {
        let mut reported = self.reported.lock();
        reported.expire(now, self.options().validity);
        SlowCounts { datanodes: reported.peers.len() as u64, disks: reported.disks.len() as u64 }
    }

    /// Returns `SlowPeersReport` of `/jmx`: JSON as text, the DataNodes with the most reports first. `None` if DataNodes
    /// are not measured.
    pub fn peers_json(&self, now: Duration) -> Option<String> {
        let options = self.options();
        options.has_peers.then(|| Value::from(self.peers(now, options.nodes_reported_max)).to_string())
    }

    /// Returns `SlowDisksReport` of `/jmx`, the slowest disks first. `None` if disks are not measured.
    pub fn disks_json(&self, now: Duration) -> Option<String> {
        let options = self.options();
        options.has_disks.then(|| Value::from(self.disks(now, options.disks_reported_max)).to_string())
    }

    /// Returns at most `max` slow DataNodes and disks for the user interface; null where they are not measured.
    pub fn shown(&self, max: usize, now: Duration) -> Value {
        let options = self.options();
        json!({
            "datanodes": options.has_peers.then(|| self.peers(now, max)),
            "disks": options.has_disks.then(|| self.disks(now, max)),
        })
    }

    fn peers(&self, now: Duration, max: usize) -> Vec<Value> {
        let mut reported = self.reported.lock();
        reported.expire(now, self.options().validity);
        let mut peers: Vec<_> = reported.peers.iter().collect();
        peers.sort_by_key(|(_, reports)| std::cmp::Reverse(reports.len()));
        let shown = peers.into_iter().take(max).map(|(name, reports)| {
            let reports: Vec<Value> = reports
                .iter()
                .map(|(reporter, (_, outlier))| {
                    json!({
                        "ReportingNode": reporter,
                        "ReportedLatency": outlier.latency_ms,
                        "MedianLatency": outlier.median_ms,
                        "MadLatency": outlier.deviation_ms,
                        "UpperLimitLatency": outlier.limit_ms,
                    })
                })
                .collect();
            json!({ "SlowNode": name, "SlowPeerLatencyWithReportingNodes": reports })
        });
        shown.collect()
    }

    fn disks(&self, now: Duration, max: usize) -> Vec<Value> {
        let mut reported = self.reported.lock();
        reported.expire(now, self.options().validity);
        let worst = |disk: &SlowDisk| {
            let all = [disk.metadata_ms, disk.read_ms, disk.write_ms];
            all.into_iter().flatten().fold(0.0, f64::max)
        };
        let mut disks: Vec<_> = reported.disks.iter().collect();
        disks.sort_by(|(_, (_, one)), (_, (_, other))| worst(other).total_cmp(&worst(one)));
        let shown = disks.into_iter().take(max).map(|(id, (_, disk))| {
            let latencies = [("METADATA", disk.metadata_ms), ("READ", disk.read_ms), ("WRITE", disk.write_ms)];
            let latencies: Map<String, Value> = latencies
                .into_iter()
                .filter_map(|(name, latency_ms)| Some((name.to_owned(), latency_ms?.into())))
                .collect();
            json!({ "SlowDiskID": id, "Latencies": latencies })
        });
        shown.collect()
    }
}

impl Reported {
    fn expire(&mut self, now: Duration, validity: Duration) {
        self.peers.retain(|_, reports| {
            reports.retain(|_, (at, _)| is_valid(*at, now, validity));
            !reports.is_empty()
        });
        self.disks.retain(|_, (at, _)| is_valid(*at, now, validity));
    }
}

fn is_valid(reported_at: Duration, now: Duration, validity: Duration) -> bool {
    now.saturating_sub(reported_at) < validity
}

/// Returns the address of a DataNode's port. Other DataNodes report it by that of its web port.
fn address(datanode: &DatanodeId, port: u16) -> String {
    format!("{}:{port}", datanode.ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_nodes(interval: &str) -> SlowNodes {
        let conf = Configuration::empty()
            .with("dfs.datanode.peer.stats.enabled", "true")
            .with("dfs.datanode.fileio.profiling.sampling.percentage", "100")
            .with("dfs.datanode.outliers.report.interval", interval);
        SlowNodes::new(SlowNodeOptions::read(&conf).unwrap())
    }

    fn outlier(name: &str) -> Outlier {
        let name = name.to_owned();
        Outlier { name, latency_ms: 90.0, median_ms: 1.0, deviation_ms: 0.5, limit_ms: 5.0 }
    }

    fn reporter(port: u16) -> DatanodeId {
        DatanodeId {
            ip: "10.0.0.1".into(),
            host_name: "dn".into(),
            uuid: hearth_types::DatanodeUuid("u".into()),
            transfer_port: 9866,
            info_port: 9864,
            ipc_port: port,
            info_secure_port: 0,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn reports_have_apaches_form_and_expire() {
        let slow = slow_nodes("10s");
        let disk = SlowDisk { directory: "/data/1".into(), metadata_ms: None, read_ms: None, write_ms: Some(70.0) };
        slow.report(&reporter(1), vec![outlier("10.0.0.1:9864")], vec![disk], at(0));
        slow.report(&reporter(2), vec![outlier("10.0.0.1:9864"), outlier("10.0.0.9:9864")], Vec::new(), at(20));
        let peers: Value = serde_json::from_str(&slow.peers_json(at(21)).unwrap()).unwrap();
        assert_eq!(peers[0]["SlowNode"], "10.0.0.1:9864");
        assert_eq!(peers[0]["SlowPeerLatencyWithReportingNodes"].as_array().unwrap().len(), 2);
        assert_eq!(peers[0]["SlowPeerLatencyWithReportingNodes"][0]["ReportingNode"], "10.0.0.1:1");
        let disks: Value = serde_json::from_str(&slow.disks_json(at(21)).unwrap()).unwrap();
        assert_eq!(disks, json!([{ "SlowDiskID": "10.0.0.1:1:/data/1", "Latencies": { "WRITE": 70.0 } }]));
        assert!(slow.is_slow(&reporter(3), at(21)));
        assert_eq!(slow.counts(at(31)), SlowCounts { datanodes: 2, disks: 0 });
        assert_eq!(slow.counts(at(50)), SlowCounts { datanodes: 0, disks: 0 });
        assert!(!slow.is_slow(&reporter(3), at(50)));
        // A stored report does not count after its time.
        slow.report(&reporter(2), vec![outlier("10.0.0.1:9865")], Vec::new(), at(60));
        let secure = DatanodeId { info_secure_port: 9865, ..reporter(3) };
        assert!(slow.is_slow(&secure, at(61)) && !slow.is_slow(&secure, at(90)) && !slow.is_slow(&reporter(3), at(61)));
    }

    #[test]
    fn reports_are_bounded() {
        let slow = slow_nodes("1h");
        for number in 0..2 * REPORTERS_MAX as u16 {
            slow.report(&reporter(number), vec![outlier("one")], Vec::new(), at(0));
        }
        let many = (0..2 * NODES_MAX).map(|number| outlier(&number.to_string())).collect();
        slow.report(&reporter(1), many, Vec::new(), at(0));
        assert_eq!(slow.counts(at(0)).datanodes, NODES_MAX as u64);
        assert_eq!(slow.reported.lock().peers["one"].len(), REPORTERS_MAX);

        // Peers choose their names.
        let slow = slow_nodes("1h");
        let long = DatanodeId { ip: "1".repeat(ADDRESS_BYTES_MAX), ..reporter(1) };
        slow.report(&long, vec![outlier("one")], Vec::new(), at(0));
        slow.report(&reporter(1), vec![outlier(&"x".repeat(ADDRESS_BYTES_MAX + 1))], Vec::new(), at(0));
        assert_eq!(slow.counts(at(0)), SlowCounts { datanodes: 0, disks: 0 });
        slow.report(&reporter(1), vec![outlier(&"x".repeat(ADDRESS_BYTES_MAX))], Vec::new(), at(0));
        assert_eq!(slow.counts(at(0)).datanodes, 1);
    }

    #[test]
    fn changed_options_apply_to_reports() {
        let slow = slow_nodes("1h");
        let disk = SlowDisk { directory: "/data/1".into(), metadata_ms: None, read_ms: None, write_ms: Some(70.0) };
        slow.report(&reporter(1), vec![outlier("one"), outlier("two")], vec![disk], at(0));
        let shown = |slow: &SlowNodes| {
            let peers: Value = serde_json::from_str(&slow.peers_json(at(1)).unwrap()).unwrap();
            peers.as_array().unwrap().len()
        };
        assert_eq!(shown(&slow), 2);
        let options = slow.options();
        slow.set_options(SlowNodeOptions { nodes_reported_max: 1, ..options });
        assert_eq!(shown(&slow), 1);
        slow.set_options(SlowNodeOptions { has_peers: false, ..options });
        assert_eq!((slow.peers_json(at(1)), slow.counts(at(1))), (None, SlowCounts { datanodes: 0, disks: 1 }));
        slow.set_options(SlowNodeOptions { validity: at(1), ..options });
        assert_eq!(slow.counts(at(1)), SlowCounts { datanodes: 0, disks: 0 });
    }

    #[test]
    fn nothing_is_reported_by_default() {
        let slow = SlowNodes::new(SlowNodeOptions::read(&Configuration::empty()).unwrap());
        slow.report(&reporter(1), vec![outlier("one")], Vec::new(), at(0));
        assert_eq!((slow.peers_json(at(0)), slow.disks_json(at(0))), (None, None));
        assert_eq!(slow.shown(10, at(0)), json!({ "datanodes": null, "disks": null }));
    }
}
