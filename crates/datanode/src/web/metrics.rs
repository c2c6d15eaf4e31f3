//! The metrics of `/metrics`.

use std::sync::Weak;
use std::time::Duration;

use hearth_blockstore::{DiskTimes, StoreMetrics};
use hearth_protocol::rpc::RpcMetrics;
use hearth_types::StorageReport;
use hearth_web::{Metric, rpc_metrics};

use super::status;
use crate::datanode::Datanode;
use crate::metrics::PathFigures;

/// Returns the metrics for `/metrics`. `rpc`: the counters of the IPC port.
pub fn metrics(datanode: &Weak<Datanode>, rpc: &RpcMetrics) -> Vec<Metric> {
    let Some(datanode) = datanode.upgrade() else { return Vec::new() };
    let mut metrics = of_paths(&datanode);
    metrics.extend(of_operations(&datanode));
    metrics.extend(of_memory(&datanode));
    metrics.extend(of_storages(&datanode));
    metrics.extend(of_namenodes(&datanode));
    metrics.extend(rpc_metrics(&[rpc.figures(datanode.addresses().ipc.port())]));
    metrics
}

/// Reads and writes by the path that their bytes take.
fn of_paths(datanode: &Datanode) -> Vec<Metric> {
    let metrics = &datanode.replicas.metrics;
    let (reads, writes) = (metrics.reads(), metrics.writes());
    let mut all = Vec::new();
    let mut each = |paths: &[PathFigures], metric: fn(&PathFigures) -> Metric| {
        all.extend(paths.iter().map(|figures| metric(figures).label("path", figures.path)));
    };
    each(&reads, |path| {
        Metric::histogram(
            "hearth_datanode_read_time_seconds",
            "Time from the request of a read to the last byte handed to the socket, by path; local readers of shown \
             memory and RDMA READs do not pass here",
            path.time,
        )
    });
    each(&reads, |path| Metric::counter("hearth_datanode_read_bytes", "Bytes sent to readers, by path", path.bytes));
    each(&writes, |path| {
        Metric::histogram(
            "hearth_datanode_write_time_seconds",
            "Time from the set-up of a replica to its finalization, by path, with the time that its sender takes: \
             packets, local and one-sided come from clients, stream and copy from other DataNodes",
            path.time,
        )
    });
    each(&writes, |path| {
        Metric::counter("hearth_datanode_written_bytes", "Bytes of finalized replicas, by path", path.bytes)
    });
    all.push(Metric::histogram(
        "hearth_datanode_pipeline_ack_time_seconds",
        "Time from the receipt of a client's packet to its acknowledgement by all DataNodes behind this one",
        metrics.acknowledgements(),
    ));
    all
}

/// What the DataNode does now, and streams and one-sided transfers.
fn of_operations(datanode: &Datanode) -> Vec<Metric> {
    let metrics = &datanode.replicas.metrics;
    let (local, streams) = (datanode.slots.metrics(), metrics.streams());
    let one_sided = datanode.one_sided.as_ref();
    let shown = one_sided.map(|one_sided| &one_sided.advertiser);
    let registered = shown.map(|shown| shown.metrics()).unwrap_or_default();
    let (counter, gauge) = (Metric::counter, Metric::gauge);
    vec![
        gauge("hearth_datanode_connections", "Data connections that are open", metrics.connections() as u64),
        gauge("hearth_datanode_xceivers", "Operations on replicas that are running", metrics.xceivers() as u64),
        gauge(
            "hearth_datanode_transfers",
            "Replicas that are being sent to other DataNodes by order of a NameNode",
            metrics.transfers() as u64,
        ),
        gauge(
            "hearth_datanode_lent_bytes",
            "Memory that clients on this machine lend for answers",
            metrics.lent_bytes(),
        ),
        counter(
            "hearth_descriptions",
            "Requests of clients for the properties of this DataNode",
            metrics.describe_requests(),
        ),
        counter(
            "hearth_one_sided_written_bytes",
            "Received bytes that their senders wrote into memory of this DataNode by RDMA",
            metrics.one_sided_written_bytes(),
        ),
        counter(
            "hearth_one_sided_forwarded_bytes",
            "Bytes that this DataNode wrote into memory of the next one of a pipeline by RDMA",
            metrics.one_sided_forwarded_bytes(),
        ),
        counter(
            "hearth_locally_forwarded_bytes",
            "Bytes put into the memory of the next DataNode of a pipeline on this machine",
            metrics.locally_forwarded_bytes(),
        ),
        counter("hearth_stream_sent_bytes", "Bytes of replicas sent over replica streams", streams.out_bytes),
        counter("hearth_stream_received_bytes", "Bytes of replicas received over replica streams", streams.in_bytes),
        counter(
            "hearth_stream_replicas",
            "Replicas received from other DataNodes over streams or into memory",
            streams.received,
        ),
        counter(
            "hearth_stream_resumed_bytes",
            "Bytes not sent again when a broken replica stream was resumed",
            streams.resumed_bytes,
        ),
        Metric::seconds_counter(
            "hearth_copy_pauses_seconds",
            "Time for which copies of replicas paused because clients were served",
            metrics.copy_pause_time(),
        ),
        counter(
            "hearth_short_circuit_descriptors",
            "Descriptors of replicas passed to clients on this machine",
            local.descriptors_passed,
        ),
        gauge("hearth_short_circuit_segments", "Segments of memory shared with local clients", local.segments),
        gauge("hearth_short_circuit_slots", "Replicas that local clients have open", local.slots),
        gauge(
            "hearth_short_circuit_anchored",
            "Replicas that local clients read without checking CRCs",
            local.anchored,
        ),
        counter(
            "hearth_advertisements",
            "Leases on memory given to one-sided readers",
            shown.map_or(0, |shown| shown.leases()),
        ),
        gauge("hearth_advertised_replicas", "Replicas whose memory one-sided readers can reach", registered.advertised),
        gauge("hearth_registered_bytes", "Memory that one-sided readers can reach", registered.bytes),
        gauge(
            "hearth_registered_for_writing_bytes",
            "Memory registered for one-sided writers or for forwarding",
            one_sided.map_or(0, |one_sided| one_sided.writer_registered_bytes()),
        ),
        gauge(
            "hearth_announced_replicas",
            "Advertised replicas that NameNodes pass on to readers",
            shown.map_or(0, |shown| shown.announcement_metrics().replicas()),
        ),
        counter(
            "hearth_announcements",
            "Advertisements sent to NameNodes",
            shown.map_or(0, |shown| shown.announcement_metrics().advertisements()),
        ),
        gauge("hearth_leaving_replicas", "Withdrawn replicas that a lease keeps in memory", registered.leaving),
    ]
}

/// The memory tier, and what goes between it and the disks.
fn of_memory(datanode: &Datanode) -> Vec<Metric> {
    let store = datanode.replicas.store.metrics();
    let mut all = of_store(&store);
    all.extend([
        Metric::gauge(
            "hearth_cached_replicas",
            "Replicas that cache directives hold in memory",
            datanode.cache.replicas() as u64,
        ),
        Metric::gauge(
            "hearth_cached_bytes",
            "Bytes of replicas that cache directives hold in memory, in whole pages",
            datanode.cache.bytes(),
        ),
        Metric::gauge(
            "hearth_failed_volumes",
            "Storage directories that are out of service because of an error",
            datanode.services.failed_volumes().dirs.len() as u64,
        ),
    ]);
    all
}

fn of_store(store: &StoreMetrics) -> Vec<Metric> {
    let (counter, gauge) = (Metric::counter, Metric::gauge);
    vec![
        gauge("hearth_memory_limit_bytes", "Memory that replicas may take", store.memory_limit),
        gauge(
            "hearth_memory_used_bytes",
            "Memory that replicas take, with memory that other processes still hold",
            store.memory_used,
        ),
        gauge(
            "hearth_memory_lingering_bytes",
            "Memory of deleted or evicted replicas that other processes still hold",
            store.memory_lingering,
        ),
        gauge("hearth_slab_bytes", "Memory of slabs, which hold small replicas", store.slab_bytes),
        gauge("hearth_slab_used_bytes", "Memory of slab slots in use", store.slab_bytes_used),
        gauge("hearth_replicas", "Replicas in all states", store.replicas),
        gauge("hearth_memory_replicas", "Replicas whose bytes are in memory", store.replicas_in_memory),
        gauge("hearth_shown_replicas", "Replicas whose memory other processes have open", store.shown),
        gauge("hearth_pinned_replicas", "Replicas in memory that a reader holds", store.pinned),
        gauge("hearth_pinned_bytes", "Bytes of replicas in memory that a reader holds", store.pinned_bytes),
        gauge(
            "hearth_evictable_bytes",
            "Bytes of replicas in memory that can be evicted at once: they are on disk, and no reader holds them",
            store.evictable_bytes,
        ),
        gauge("hearth_kept_replicas", "Replicas whose files stay open between reads", store.kept_replicas),
        gauge("hearth_mapped_bytes", "Mapped bytes of replicas whose files stay open", store.mapped_bytes),
        gauge("hearth_dirty_replicas", "Finalized replicas that are not on disk yet", store.dirty_replicas),
        gauge("hearth_dirty_bytes", "Bytes of finalized replicas that are not on disk yet", store.dirty_bytes),
        gauge(
            "hearth_unsynced_replicas",
            "Replicas finalized in files that are not known to be on disk yet",
            store.unsynced_replicas,
        ),
        Metric::seconds(
            "hearth_oldest_dirty_age_seconds",
            "Time since the oldest replica that is not on disk yet was finalized; 0 without one",
            store.oldest_dirty_age,
        ),
        counter("hearth_memory_evictions", "Replicas evicted from memory to make room", store.evictions),
        counter("hearth_memory_read_backs", "Replicas read back from disk into memory", store.read_backs),
        counter("hearth_memory_full", "Replicas written to disk at once because memory was full", store.memory_full),
        Metric::histogram(
            "hearth_flush_time_seconds",
            "Time to write a batch of replicas, up to 256 or 32 MiB, from memory to disk and to sync it",
            store.flushes,
        ),
        counter("hearth_flushed_replicas", "Replicas written from memory to disk", store.flushed_replicas),
        counter("hearth_flushed_bytes", "Bytes written from memory to disk", store.flushed_bytes),
        counter("hearth_flush_failures", "Writes of replicas from memory to disk that failed", store.flush_failures),
        counter(
            "hearth_scrubbed_bytes",
            "Bytes of replicas whose CRCs were checked in the background",
            store.scrubbed_bytes,
        ),
        counter("hearth_corruptions", "Corrupt copies of replicas that were found", store.corruptions),
        counter("hearth_granted_bytes", "Memory granted to writers that fill it themselves", store.granted_bytes),
        Metric::seconds_counter(
            "hearth_grant_cpu_seconds",
            "Processor time that allocating memory for such writers took",
            store.grant_time,
        ),
        counter(
            "hearth_committed_bytes",
            "Bytes filled in by such writers that matched their CRCs",
            store.committed_bytes,
        ),
        counter(
            "hearth_copied_back_bytes",
            "Bytes of such writers that were copied out of their reach at the end",
            store.copied_back_bytes,
        ),
        counter(
            "hearth_received_in_place_bytes",
            "Bytes received from sockets straight into the memory of replicas",
            store.received_in_place_bytes,
        ),
    ]
}

fn of_storages(datanode: &Datanode) -> Vec<Metric> {
    let storages = status::storages(datanode);
    type Size = fn(&StorageReport) -> u64;
    let sizes: [(&'static str, &'static str, Size); 3] = [
        ("hearth_datanode_storage_capacity_bytes", "Capacity of a storage directory", |report| report.capacity),
        ("hearth_datanode_storage_used_bytes", "Bytes that replicas take in a storage directory", |report| {
            report.dfs_used
        }),
        ("hearth_datanode_storage_remaining_bytes", "Bytes that a storage directory has left for replicas", |report| {
            report.remaining
        }),
    ];
    let labelled = |metric: Metric, storage: &status::Storage| {
        metric.label("directory", storage.dir.clone()).label("storage", storage.report.storage_type.name())
    };
    let mut all = Vec::new();
    for (name, help, size) in sizes {
        all.extend(storages.iter().map(|storage| labelled(Metric::gauge(name, help, size(&storage.report)), storage)));
    }
    all.extend(storages.iter().map(|storage| {
        let help = "Finalized replicas of a storage directory";
        labelled(Metric::gauge("hearth_datanode_storage_replicas", help, storage.replicas), storage)
    }));
    for storage in &storages {
        let DiskTimes { writes, reads, syncs } = storage.times;
        for (operation, times) in [("write", writes), ("read", reads), ("sync", syncs)] {
            let help = "Time that the disk of a storage directory takes in the background: to write or read back 64 KiB, or to sync a replica";
            let metric = Metric::histogram("hearth_datanode_storage_operation_time_seconds", help, times);
            all.push(labelled(metric, storage).label("operation", operation));
        }
    }
    all
}

/// The connection to each NameNode.
fn of_namenodes(datanode: &Datanode) -> Vec<Metric> {
    let now = Duration::from_millis(datanode.options.clock.wall_ms());
    let services = datanode.services.all();
    let mut all = Vec::new();
    for service in &services {
        for namenode in &service.namenodes {
            let since = namenode.last_contact.since_heartbeat();
            let at = since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
            let metric = Metric::seconds(
                "hearth_datanode_namenode_last_heartbeat_timestamp_seconds",
                "Time of the last heartbeat that a NameNode answered, in seconds since 1970; 0 before the first",
                at,
            );
            all.push(metric.label("namenode", namenode.address.to_string()).label("nameservice", service.name.clone()));
        }
    }
    all
}
