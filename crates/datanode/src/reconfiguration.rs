//! Keys that can change while the DataNode runs: `dfsadmin -reconfig datanode`. They are those keys of Apache's DataNode
//! that Hearth reads, except the storage directories, and keys of Hearth's own.
//! docs/compatibility/configuration.md has all keys, and why the others need a restart.

use hearth_config::{ConfigError, Configuration, ReconfigurableKey, ReconfigurationError, keys, reconfigurable};

use crate::datanode::Datanode;
use crate::options::{self, AnnouncementOptions, StreamOptions, TimingOptions};
use crate::outliers::OutlierOptions;

pub const KEYS: &[ReconfigurableKey<Datanode>] = &[
    // Reports to the NameNodes.
    reconfigurable!(DFS_BLOCKREPORT_INTERVAL, set_timing),
    reconfigurable!(DFS_BLOCKREPORT_INITIAL_DELAY, set_timing),
    reconfigurable!(DFS_BLOCKREPORT_SPLIT_THRESHOLD, set_timing),
    reconfigurable!(DFS_CACHEREPORT_INTERVAL, set_timing),
    reconfigurable!(HEARTH_ANNOUNCE_LEASE, set_announcements),
    reconfigurable!(HEARTH_ANNOUNCE_MAX, set_announcements),
    // Slow DataNodes and disks.
    reconfigurable!(DFS_DATANODE_PEER_STATS_ENABLED, set_outliers),
    reconfigurable!(DFS_DATANODE_FILEIO_PROFILING_SAMPLING_PERCENTAGE, set_outliers),
    reconfigurable!(DFS_DATANODE_OUTLIERS_REPORT_INTERVAL, set_outliers),
    reconfigurable!(DFS_DATANODE_MIN_OUTLIER_DETECTION_NODES, set_outliers),
    reconfigurable!(DFS_DATANODE_MIN_OUTLIER_DETECTION_DISKS, set_outliers),
    reconfigurable!(DFS_DATANODE_PEER_METRICS_MIN_OUTLIER_DETECTION_SAMPLES, set_outliers),
    reconfigurable!(DFS_DATANODE_SLOWPEER_LOW_THRESHOLD_MS, set_outliers),
    reconfigurable!(DFS_DATANODE_SLOWDISK_LOW_THRESHOLD_MS, set_outliers),
    // Connections and the memory for their messages.
    reconfigurable!(DFS_DATANODE_MAX_TRANSFER_THREADS, |datanode, value| {
        datanode.connections.set_connections_max(value as usize);
    }),
    reconfigurable!(HEARTH_ONE_SIDED_CONNECTIONS_MAX, set_one_sided_connections),
    reconfigurable!(HEARTH_DATANODE_PACKET_MEMORY, set_packet_memory),
    reconfigurable!(HEARTH_RPC_MESSAGE_MEMORY, set_rpc_memory),
    reconfigurable!(HEARTH_WEB_READ_ONLY, |datanode, value| datanode.protection.set_read_only(value)),
    // Copies of replicas.
    reconfigurable!(DFS_DATANODE_BALANCE_BANDWIDTH_PER_SEC, |datanode, value| {
        datanode.replicas.balance_throttle.set_rate(value);
    }),
    reconfigurable!(DFS_DATANODE_DATA_TRANSFER_BANDWIDTH_PER_SEC, |datanode, value| {
        datanode.replicas.transfer_throttle.set_rate(value);
    }),
    reconfigurable!(DFS_DATANODE_BALANCE_MAX_CONCURRENT_MOVES, |datanode, value| {
        datanode.move_permits.set_max(value as usize);
    }),
    reconfigurable!(HEARTH_DATANODE_STREAM_CONNECTIONS, set_streams),
    reconfigurable!(HEARTH_DATANODE_STREAM_REPLICAS, set_streams),
    reconfigurable!(HEARTH_DATANODE_STREAM_WINDOW_BYTES, set_streams),
    reconfigurable!(HEARTH_DATANODE_STREAM_MEMORY_BYTES, set_streams),
    reconfigurable!(HEARTH_DATANODE_STREAM_CORES_SHARE, set_streams),
    reconfigurable!(HEARTH_DATANODE_STREAM_RESUME_TIMEOUT, set_streams),
    // Storage and memory.
    reconfigurable!(HEARTH_MEMORY_LIMIT, set_memory_limit),
    reconfigurable!(HEARTH_MEMORY_FLUSH_DELAY, |datanode, value| datanode.replicas.store.set_flush_delay(value)),
    reconfigurable!(HEARTH_MEMORY_KEEP, |datanode, value| datanode.options.changeable.write().keep_memory = value),
    reconfigurable!(HEARTH_STORAGE_OPEN_MAX, |datanode, value| {
        datanode.replicas.store.set_open_replicas_max(value as usize);
    }),
    reconfigurable!(HEARTH_STORAGE_MAPPED_MAX, |datanode, value| {
        datanode.replicas.store.set_mapped_bytes_max(value);
    }),
    reconfigurable!(HEARTH_RDMA_REGISTERED_MAX, set_registered_bytes),
    // Writers that fill memory themselves.
    reconfigurable!(HEARTH_WRITE_SLICE_BYTES, |datanode, value| {
        datanode.options.changeable.write().write_slice_bytes = value;
    }),
    reconfigurable!(HEARTH_LOCAL_WRITE_TRUSTED, |datanode, value| {
        datanode.options.changeable.write().local_write_trusted = value;
    }),
    reconfigurable!(HEARTH_DATANODE_FORWARD_LOCAL, |datanode, value| {
        datanode.options.changeable.write().forward_local = value;
    }),
];

fn set_timing(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    let timing = TimingOptions::read(configuration)?;
    datanode.options.changeable.write().timing = timing;
    Ok(())
}

fn set_announcements(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    let announcements = AnnouncementOptions::read(configuration)?;
    datanode.options.changeable.write().announcements = announcements;
    Ok(())
}

fn set_outliers(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    let outliers = OutlierOptions::read(configuration)?;
    datanode.options.changeable.write().outliers = outliers;
    datanode.replicas.metrics.set_measures_peers(outliers.measures_peers);
    Ok(())
}

fn set_streams(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    datanode.streams.set_options(StreamOptions::read(configuration)?);
    Ok(())
}

fn set_one_sided_connections(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    let connections_max = options::one_sided_connections_max(configuration)?;
    if let Some(one_sided) = &datanode.one_sided {
        one_sided.set_connections_max(datanode.options.one_sided.lease, connections_max);
    }
    Ok(())
}

fn set_registered_bytes(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    let bytes = options::registered_bytes_max(configuration)?;
    if let Some(one_sided) = &datanode.one_sided {
        one_sided.advertiser.set_registered_bytes_max(bytes);
    }
    Ok(())
}

fn set_packet_memory(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    datanode.connections.message_memory.set_limit(options::packet_bytes(configuration)?);
    Ok(())
}

fn set_rpc_memory(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    datanode.ipc_memory.set_limit(options::rpc_message_bytes(configuration)?);
    Ok(())
}

/// Errors: no storage directory has replicas in memory, or the tmpfs cannot be examined.
fn set_memory_limit(datanode: &Datanode, configuration: &Configuration) -> Result<(), ConfigError> {
    let bytes = options::memory_limit(configuration, &datanode.options.store.memory.dir)?;
    datanode.replicas.store.set_memory_limit(bytes).map_err(|error| {
        configuration.value_error(keys::HEARTH_MEMORY_LIMIT.name, &bytes.to_string(), error.to_string())
    })
}

impl Datanode {
    /// Reads the configuration files again and applies what can change. Blocks.
    ///
    /// Errors: a file cannot be read, or another call is at work. Nothing has changed then.
    pub(crate) fn reconfigure(&self) -> Result<(), ReconfigurationError> {
        self.reconfiguration.run(self, || self.options.clock.wall_ms())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use hearth_config::to_xml;
    use hearth_testkit::{Effect, Reconfigured};
    use hearth_types::SystemClock;

    use super::*;
    use crate::options::DatanodeOptions;

    const EFFECTS: [Effect<Datanode>; 37] = [
        (
            "dfs.blockreport.initialDelay",
            "3",
            |d| format!("{:?}", d.options.current().timing.block_report_initial_delay),
            "3s",
        ),
        ("dfs.blockreport.intervalMsec", "4s", |d| format!("{:?}", d.options.current().timing.block_report), "4s"),
        ("dfs.blockreport.split.threshold", "5", |d| d.options.current().timing.block_report_split.to_string(), "5"),
        ("dfs.cachereport.intervalMsec", "6s", |d| format!("{:?}", d.options.current().timing.cache_report), "6s"),
        ("dfs.datanode.balance.bandwidthPerSec", "7m", |d| d.replicas.balance_throttle.rate().to_string(), "7340032"),
        ("dfs.datanode.balance.max.concurrent.moves", "8", |d| d.move_permits.max().to_string(), "8"),
        (
            "dfs.datanode.data.transfer.bandwidthPerSec",
            "9m",
            |d| d.replicas.transfer_throttle.rate().to_string(),
            "9437184",
        ),
        (
            "dfs.datanode.fileio.profiling.sampling.percentage",
            "10",
            |d| d.options.current().outliers.measures_disks.to_string(),
            "true",
        ),
        ("dfs.datanode.max.transfer.threads", "11", |d| d.connections.limit.connections_max().to_string(), "11"),
        (
            "dfs.datanode.min.outlier.detection.disks",
            "12",
            |d| d.options.current().outliers.disks_min.to_string(),
            "12",
        ),
        (
            "dfs.datanode.min.outlier.detection.nodes",
            "13",
            |d| d.options.current().outliers.peers_min.to_string(),
            "13",
        ),
        (
            "dfs.datanode.outliers.report.interval",
            "14s",
            |d| format!("{:?}", d.options.current().outliers.interval),
            "14s",
        ),
        (
            "dfs.datanode.peer.metrics.min.outlier.detection.samples",
            "15",
            |d| d.options.current().outliers.samples_min.to_string(),
            "15",
        ),
        ("dfs.datanode.peer.stats.enabled", "true", |d| d.replicas.metrics.peers().is_some().to_string(), "true"),
        (
            "dfs.datanode.slowdisk.low.threshold.ms",
            "16",
            |d| d.options.current().outliers.disk_low_ms.to_string(),
            "16",
        ),
        (
            "dfs.datanode.slowpeer.low.threshold.ms",
            "17",
            |d| d.options.current().outliers.peer_low_ms.to_string(),
            "17",
        ),
        ("hearth.announce.lease", "18", |d| format!("{:?}", d.options.current().announcements.lease), "18s"),
        ("hearth.announce.max", "19m", |d| d.options.current().announcements.bytes_max.to_string(), "19922944"),
        ("hearth.datanode.forward.local", "false", |d| d.options.current().forward_local.to_string(), "false"),
        ("hearth.datanode.packet.memory", "256m", |d| d.connections.message_memory.limit().to_string(), "268435456"),
        ("hearth.datanode.stream.connections", "0", |d| d.streams.is_enabled().to_string(), "false"),
        ("hearth.datanode.stream.cores.share", "0.5", |d| d.streams.options().cores_share.to_string(), "0.5"),
        ("hearth.datanode.stream.memory.bytes", "20m", |d| d.streams.options().memory_bytes.to_string(), "20971520"),
        ("hearth.datanode.stream.replicas", "21", |d| d.streams.options().replicas.to_string(), "21"),
        ("hearth.datanode.stream.resume.timeout", "22", |d| format!("{:?}", d.streams.options().resume_timeout), "22s"),
        ("hearth.datanode.stream.window.bytes", "2m", |d| d.streams.options().window_bytes.to_string(), "2097152"),
        ("hearth.local.write.trusted", "true", |d| d.options.current().local_write_trusted.to_string(), "true"),
        ("hearth.memory.flush.delay", "24", |d| format!("{:?}", d.replicas.store.flush_delay()), "24s"),
        ("hearth.memory.keep", "false", |d| d.options.current().keep_memory.to_string(), "false"),
        ("hearth.memory.limit", "25m", |d| d.replicas.store.memory_limit().to_string(), "26214400"),
        (
            "hearth.one-sided.connections.max",
            "26",
            |d| one_sided(d).connection_limit.connections_max().to_string(),
            "26",
        ),
        (
            "hearth.rdma.registered.max",
            "27m",
            |d| one_sided(d).advertiser.registered_bytes_max().to_string(),
            "28311552",
        ),
        ("hearth.rpc.message.memory", "300m", |d| d.ipc_memory.limit().to_string(), "314572800"),
        ("hearth.storage.mapped.max", "1g", |d| d.replicas.store.mapped_bytes_max().to_string(), "1073741824"),
        ("hearth.storage.open.max", "28", |d| d.replicas.store.open_replicas_max().to_string(), "28"),
        ("hearth.web.read-only", "true", |d| d.protection.is_read_only().to_string(), "true"),
        ("hearth.write.slice.bytes", "1m", |d| d.options.current().write_slice_bytes.to_string(), "1048576"),
    ];

    fn one_sided(datanode: &Datanode) -> &crate::one_sided::OneSidedAccess {
        datanode.one_sided.as_ref().expect("the transport is tcp")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_key_that_can_change_takes_effect() {
        // On a tmpfs, because of the replicas in memory.
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let at = |name: &str| root.path().join(name).display().to_string();
        let file = root.path().join("hdfs-site.xml");
        // Without a value the limit of the memory depends on what the machine has free.
        let usual = [("hearth.memory.limit", "16m")];
        let write = |file: &Path, changed: &[(&str, &str)]| {
            let unchanged = usual.iter().filter(|(key, _)| !changed.iter().any(|(other, _)| other == key));
            std::fs::write(file, to_xml(changed.iter().chain(unchanged).copied())).unwrap();
        };
        write(&file, &[]);
        let mut configuration = Configuration::empty()
            // Nothing listens there: the DataNode tries again and again.
            .with("fs.defaultFS", "hdfs://127.0.0.1:1")
            .with("dfs.datanode.data.dir", at("disk"))
            .with("hearth.memory.dir", at("memory"))
            .with("hearth.one-sided.transport", "tcp")
            .with("dfs.datanode.address", "127.0.0.1:0")
            .with("dfs.datanode.ipc.address", "127.0.0.1:0")
            .with("dfs.datanode.http.address", "127.0.0.1:0");
        configuration.add_file(&file).unwrap();
        let (configuration, clock) = (Arc::new(configuration), Arc::new(SystemClock::new()));
        let options = DatanodeOptions::from_configuration(configuration, "tester", "localhost", clock).unwrap();
        let handle = Datanode::start(options).await.unwrap();
        let datanode = &*handle.datanode;
        assert_eq!(datanode.reconfiguration.keys().collect::<Vec<_>>(), EFFECTS.map(|(key, ..)| key));
        let write = |changed: &[(&str, &str)]| write(&file, changed);
        let reconfigure = || {
            datanode.reconfigure().unwrap();
            let changes = datanode.reconfiguration.last().unwrap().changes;
            changes.into_iter().map(|change| (change.key, change.error)).collect::<Vec<_>>()
        };
        let reconfigured = Reconfigured::new(datanode, &EFFECTS, &write, &reconfigure);
        reconfigured.change_all();
        reconfigured.refuse(&[
            ("dfs.datanode.max.transfer.threads", "0"),
            ("hearth.datanode.packet.memory", "1m"),
            ("hearth.datanode.stream.cores.share", "2"),
            ("hearth.memory.limit", "much"),
            ("hearth.rpc.message.memory", "1m"),
        ]);
        reconfigured.remove_all();
    }
}
