//! The metrics of `/metrics`: the namespace, the blocks, the DataNodes, the journal, and the RPC ports.

use std::sync::Arc;

use hearth_protocol::rpc::{OTHER_METHODS, RpcMetrics};
use hearth_types::{HistogramSnapshot, RpcFigures};
use hearth_web::{Metric, rpc_metrics};

use crate::blocks::ClusterStatistics;
use crate::state::Namenode;

/// Counters of the calls that this NameNode gets.
#[derive(Clone)]
pub struct CallMetrics {
    /// RPC ports, the one for clients first.
    pub ports: Vec<(u16, Arc<RpcMetrics>)>,
    /// Calls that WebHDFS requests make.
    pub webhdfs: Arc<RpcMetrics>,
}

impl CallMetrics {
    pub fn of_ports(&self) -> Vec<RpcFigures> {
        self.ports.iter().map(|(port, metrics)| metrics.figures(*port)).collect()
    }

    /// Returns the queue times and the processing times of the calls of Hadoop's protocols, over all RPC ports. Calls of
    /// other methods, such as those in which DataNodes wait for work, are left out.
    pub fn times(&self) -> (HistogramSnapshot, HistogramSnapshot) {
        let ports = self.of_ports();
        let known = ports.iter().flat_map(|port| &port.methods).filter(|method| method.name != OTHER_METHODS);
        known.fold(Default::default(), |(queue, processing): (HistogramSnapshot, HistogramSnapshot), method| {
            (queue.plus(&method.queue), processing.plus(&method.processing))
        })
    }

    /// Returns the figures of WebHDFS, which have no RPC port.
    pub fn of_webhdfs(&self) -> RpcFigures {
        self.webhdfs.figures(0)
    }
}

/// Returns the metrics for `/metrics`.
pub fn metrics(namenode: &Namenode, calls: &CallMetrics) -> Vec<Metric> {
    let mut metrics = of_state(namenode);
    let journal = namenode.store.journal_figures();
    let slow = namenode.slow_nodes.counts(namenode.clock.monotonic());
    metrics.extend([
        Metric::gauge(
            "hearth_namenode_slow_datanodes",
            "DataNodes that others report as much slower than the rest; 0 if dfs.datanode.peer.stats.enabled is false",
            slow.datanodes,
        ),
        Metric::gauge(
            "hearth_namenode_slow_disks",
            "Storage directories that DataNodes report as much slower than their others; 0 if they are not measured",
            slow.disks,
        ),
        Metric::seconds(
            "hearth_namenode_load_time_seconds",
            "Time that the last start took to read the namespace from the disk",
            namenode.load_time,
        ),
        Metric::histogram(
            "hearth_namenode_journal_sync_time_seconds",
            "Time to write a group of changes to the journal and to sync it to the disk",
            journal.syncs,
        ),
        Metric::counter(
            "hearth_namenode_journal_operations",
            "Operations that waited for a sync of the journal; one sync serves many",
            journal.operations,
        ),
    ]);
    let over_http = calls.of_webhdfs();
    let called = over_http.methods.iter().filter(|method| method.processing.count() > 0);
    metrics.extend(called.map(|method| {
        let help = "Time of the calls that WebHDFS requests make, by the method of ClientProtocol";
        Metric::histogram("hearth_namenode_webhdfs_call_time_seconds", help, method.processing)
            .label("method", method.name)
    }));
    metrics.extend(rpc_metrics(&calls.of_ports()));
    metrics
}

/// Metrics of the state, taken under one lock.
fn of_state(namenode: &Namenode) -> Vec<Metric> {
    let state = namenode.read();
    let figures = state.blocks.cluster_statistics(namenode.now());
    let by_storage = state.blocks.statistics_by_storage_type();
    let advertised = state.blocks.advertisement_statistics();
    let (snapshots, snapshottable) = state.namespace.snapshot_counts();
    let (gauge, counter) = (Metric::gauge, Metric::counter);
    let mut metrics = vec![
        gauge("hearth_namenode_files", "Files in the namespace", state.namespace.file_count()),
        gauge("hearth_namenode_inodes", "Files and directories in the namespace", state.namespace.inode_count()),
        gauge("hearth_namenode_blocks", "Blocks of all files", figures.blocks),
        gauge("hearth_namenode_files_being_written", "Files open for writing", state.leases.file_count() as u64),
        gauge("hearth_namenode_writers", "Clients with files open for writing", state.leases.holder_count() as u64),
        gauge("hearth_namenode_capacity_bytes", "Capacity of the live DataNodes that are in service", figures.capacity),
        gauge("hearth_namenode_used_bytes", "Bytes that replicas take on live DataNodes", figures.used),
        gauge("hearth_namenode_remaining_bytes", "Bytes that live DataNodes have left for replicas", figures.remaining),
        gauge(
            "hearth_namenode_low_redundancy_blocks",
            "Blocks that have at least one replica, and too few or badly spread ones",
            figures.low_redundancy,
        ),
        gauge("hearth_namenode_corrupt_blocks", "Blocks with at least one corrupt replica", figures.corrupt),
        gauge("hearth_namenode_missing_blocks", "Blocks without a readable replica", figures.missing),
        gauge(
            "hearth_namenode_pending_copies",
            "Blocks of which a DataNode was told to make a replica that it has not reported yet",
            figures.pending_replication,
        ),
        gauge(
            "hearth_namenode_pending_deletions",
            "Replicas that DataNodes have yet to be told to delete",
            figures.pending_deletion,
        ),
        counter(
            "hearth_namenode_timed_out_copies",
            "Copies of replicas that no DataNode reported in time, and that were ordered again",
            figures.timed_out_copies,
        ),
        counter(
            "hearth_namenode_expired_heartbeats",
            "Times that a DataNode was declared dead because it sent no heartbeat",
            figures.expired_heartbeats,
        ),
        gauge(
            "hearth_namenode_stale_storages",
            "Storages of live DataNodes that have not sent a full block report",
            figures.stale_storages as u64,
        ),
        gauge(
            "hearth_namenode_cache_capacity_bytes",
            "Memory that live DataNodes may lock for cache directives",
            figures.cache_capacity,
        ),
        gauge(
            "hearth_namenode_cache_used_bytes",
            "Memory that live DataNodes have locked for cache directives",
            figures.cache_used,
        ),
        gauge("hearth_namenode_failed_volumes", "Failed storage directories of live DataNodes", figures.failed_volumes),
        gauge("hearth_namenode_load", "Operations that live DataNodes are running", figures.load),
        gauge("hearth_namenode_advertisements", "Replicas whose memory is advertised to readers", advertised.kept),
        gauge("hearth_namenode_advertisement_bytes", "Memory that advertisements take here", advertised.bytes),
        counter(
            "hearth_namenode_advertisements_refused",
            "Advertisements of DataNodes refused for lack of room",
            advertised.refused,
        ),
        counter(
            "hearth_namenode_advertisements_handed_on",
            "Advertisements sent to readers with the locations of blocks",
            advertised.served,
        ),
        gauge("hearth_namenode_snapshots", "Snapshots of all directories", snapshots as u64),
        gauge("hearth_namenode_snapshottable_directories", "Directories that may have snapshots", snapshottable as u64),
        gauge(
            "hearth_namenode_safe_mode",
            "1 if the namespace is read-only because of safe mode, else 0",
            u64::from(state.blocks.in_safe_mode()),
        ),
    ];
    metrics.extend(datanodes(&figures));
    type Size = fn(&ClusterStatistics) -> u64;
    let sizes: [(&'static str, &'static str, Size); 3] = [
        ("hearth_namenode_storage_capacity_bytes", "Capacity of live DataNodes by type of storage", |figures| {
            figures.capacity
        }),
        (
            "hearth_namenode_storage_used_bytes",
            "Bytes that replicas take on live DataNodes by type of storage",
            |figures| figures.used,
        ),
        (
            "hearth_namenode_storage_remaining_bytes",
            "Bytes that live DataNodes have left for replicas by type of storage",
            |figures| figures.remaining,
        ),
    ];
    for (name, help, size) in sizes {
        metrics.extend(
            by_storage
                .iter()
                .map(|(storage, figures)| gauge(name, help, size(figures)).label("storage", storage.name())),
        );
    }
    metrics
}

/// Returns the number of DataNodes by state. `live` and `dead` are all of them; the other states are parts of these.
fn datanodes(figures: &ClusterStatistics) -> impl Iterator<Item = Metric> {
    let states = [
        ("live", figures.live_nodes),
        ("dead", figures.dead_nodes),
        ("dead_in_service", figures.dead_in_service_nodes),
        ("stale", figures.stale_nodes),
        ("in_service", figures.in_service_nodes),
        ("decommissioning", figures.decommissioning_nodes),
        ("decommissioned", figures.decommissioned_nodes + figures.dead_decommissioned_nodes),
        ("entering_maintenance", figures.entering_maintenance_nodes),
        ("in_maintenance", figures.in_maintenance_nodes + figures.dead_in_maintenance_nodes),
    ];
    states.into_iter().map(|(state, count)| {
        Metric::gauge(
            "hearth_namenode_datanodes",
            "DataNodes by state: every one is live or dead; live ones without a recent heartbeat are also stale; dead ones \
             that are neither decommissioned nor in maintenance are also dead_in_service",
            count as u64,
        )
        .label("state", state)
    })
}
