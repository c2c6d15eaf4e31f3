//! The DataNode's web pages: /jmx and /metrics with its metrics, /conf with its configuration. WebHDFS requests are
//! passed to the given client.

mod interface;
mod sampler;
mod status;

use std::sync::{Arc, Weak};

pub use hearth_web::WebServer;
use hearth_web::{Bean, BoundSite, ConfEntry, Metric, Page, Protection, Query, Server, Site, size};

use crate::datanode::Datanode;
use crate::error::Error;

/// Binds the configured address. Serving starts when the DataNode knows all of its addresses, which the pages show.
pub async fn bind(datanode: &Arc<Datanode>) -> Result<BoundSite, Error> {
    let address = datanode.options.http_address.to_string();
    let protection = Protection::read(&datanode.options.configuration, Server::Datanode)
        .map_err(|error| Error::Web(error.to_string()))?;
    let configuration = datanode.options.configuration.clone();
    // The pages must not keep the DataNode alive.
    let [for_beans, for_front, for_figures] = [(); 3].map(|()| Arc::downgrade(datanode));
    let site = Site::new(
        move || front_page(&for_front),
        move || beans(&for_beans),
        move || ConfEntry::all(&configuration),
        move || metric_values(&for_figures),
    );
    let site = match &datanode.options.webhdfs {
        Some(service) => site.webhdfs(service.clone()),
        None => site,
    };
    let site = with_interface(site, datanode, &protection).protection(protection);
    site.bind(&address).await.map_err(|error| Error::Web(error.to_string()))
}

/// Adds the user interface and its data, and starts to take samples for it.
fn with_interface(site: Site, datanode: &Arc<Datanode>, protection: &Protection) -> Site {
    let protection = protection.clone();
    let status = interface::StatusPage::new(Arc::downgrade(datanode));
    let replicas = interface::ReplicaPage::new(Arc::downgrade(datanode));
    let history = sampler::history();
    tokio::spawn(sampler::run(Arc::downgrade(datanode), history.clone()));
    site.interface(Server::Datanode)
        .data("/ui/session", move |_, _| {
            let session = interface::session(&protection);
            async move { Ok(session) }
        })
        .data("/ui/log", move |query: Query, _| async move { interface::log(&query) })
        .data("/ui/history", move |_, _| {
            let history = history.clone();
            async move { Ok(history.json()) }
        })
        // The NameNode's pages show these figures.
        .public_data("/ui/status", move |_, _| status.clone().answer())
        .public_data("/ui/replicas", move |query: Query, _| replicas.clone().answer(query))
}

/// Returns the metrics for `/metrics`.
fn metric_values(datanode: &Weak<Datanode>) -> Vec<Metric> {
    let Some(datanode) = datanode.upgrade() else { return Vec::new() };
    let metrics = datanode.replicas.store.metrics();
    let (reads, read_bytes, writes, written_bytes) = datanode.replicas.metrics.totals();
    let local = datanode.slots.metrics();
    let streams = datanode.replicas.metrics.streams();
    let (counter, gauge) = (Metric::counter, Metric::gauge);
    let shown = datanode.one_sided.as_ref().map(|one_sided| &one_sided.advertiser);
    let registered = shown.map(|shown| shown.metrics()).unwrap_or_default();
    vec![
        counter("hearth_advertisements", "Leases given to one-sided readers", shown.map_or(0, |shown| shown.leases())),
        gauge("hearth_registered_bytes", "Memory that one-sided readers can reach", registered.bytes),
        gauge(
            "hearth_registered_for_writing_bytes",
            "Memory registered for one-sided writers or for forwarding",
            datanode.one_sided.as_ref().map_or(0, |one_sided| one_sided.writer_registered_bytes()),
        ),
        gauge("hearth_advertised_replicas", "Replicas advertised to one-sided readers", registered.advertised),
        gauge(
            "hearth_announced_replicas",
            "Advertised replicas that are announced to namenodes",
            shown.map_or(0, |shown| shown.announcement_metrics().replicas()),
        ),
        counter(
            "hearth_announcements",
            "Advertisements sent to namenodes",
            shown.map_or(0, |shown| shown.announcement_metrics().advertisements()),
        ),
        gauge("hearth_leaving_replicas", "Withdrawn replicas that a lease keeps in memory", registered.leaving),
        counter("hearth_datanode_reads", "Reads served", reads),
        counter("hearth_datanode_read_bytes", "Bytes read by clients and datanodes", read_bytes),
        counter("hearth_datanode_writes", "Replicas received", writes),
        counter("hearth_datanode_written_bytes", "Bytes of replicas received", written_bytes),
        counter(
            "hearth_one_sided_written_bytes",
            "Received bytes that senders wrote one-sidedly into memory",
            datanode.replicas.metrics.one_sided_written_bytes(),
        ),
        counter(
            "hearth_one_sided_forwarded_bytes",
            "Bytes of replicas forwarded into the memory of the next datanode",
            datanode.replicas.metrics.one_sided_forwarded_bytes(),
        ),
        counter(
            "hearth_locally_forwarded_bytes",
            "Bytes of replicas put into the memory of the next datanode on this machine",
            datanode.replicas.metrics.locally_forwarded_bytes(),
        ),
        counter("hearth_stream_sent_bytes", "Bytes of replicas sent to Hearth datanodes by streams", streams.out_bytes),
        counter("hearth_stream_received_bytes", "Bytes of replicas received by streams", streams.in_bytes),
        counter("hearth_stream_replicas", "Replicas received by streams", streams.received),
        counter(
            "hearth_stream_resumed_bytes",
            "Bytes not sent again after a broken stream was resumed",
            streams.resumed_bytes,
        ),
        counter("hearth_short_circuit_descriptors", "Descriptors passed to local clients", local.descriptors_passed),
        counter("hearth_memory_evictions", "Replicas evicted from memory", metrics.evictions),
        counter("hearth_memory_read_backs", "Replicas read back from disk", metrics.read_backs),
        counter("hearth_memory_full", "Replicas written to disk at once because memory was full", metrics.memory_full),
        counter("hearth_flushed_replicas", "Replicas written to disk behind the write", metrics.flushed_replicas),
        counter("hearth_flushed_bytes", "Bytes written to disk behind the write", metrics.flushed_bytes),
        counter("hearth_flush_failures", "Writes to disk that failed", metrics.flush_failures),
        counter("hearth_scrubbed_bytes", "Bytes checked in the background", metrics.scrubbed_bytes),
        counter("hearth_corruptions", "Corrupt copies found", metrics.corruptions),
        counter("hearth_granted_bytes", "Memory granted to writers that fill it themselves", metrics.granted_bytes),
        counter(
            "hearth_grant_cpu_microseconds",
            "Processor time that allocating that memory took",
            metrics.grant_time.as_micros() as u64,
        ),
        counter(
            "hearth_committed_bytes",
            "Bytes filled in by such writers, after verification",
            metrics.committed_bytes,
        ),
        counter(
            "hearth_copied_back_bytes",
            "Bytes of untrusted writers that were copied when finalized",
            metrics.copied_back_bytes,
        ),
        counter(
            "hearth_received_in_place_bytes",
            "Bytes received from sockets straight into replica memory",
            metrics.received_in_place_bytes,
        ),
        counter(
            "hearth_copies_rested_microseconds",
            "Total pause time of streams and copies into memory while clients were served",
            datanode.replicas.metrics.copy_pause_time().as_micros() as u64,
        ),
        counter("hearth_descriptions", "DESCRIBE requests from clients", datanode.replicas.metrics.describe_requests()),
        gauge("hearth_datanode_connections", "Data connections open", datanode.replicas.metrics.connections() as u64),
        gauge("hearth_datanode_xceivers", "Operations running", datanode.replicas.metrics.xceivers() as u64),
        gauge(
            "hearth_datanode_lent_bytes",
            "Memory that clients on this machine lend for answers",
            datanode.replicas.metrics.lent_bytes(),
        ),
        gauge(
            "hearth_datanode_transfers",
            "Copies to other datanodes running",
            datanode.replicas.metrics.transfers() as u64,
        ),
        gauge("hearth_memory_limit_bytes", "Memory that replicas may take", metrics.memory_limit),
        gauge("hearth_memory_used_bytes", "Memory that replicas take", metrics.memory_used),
        gauge("hearth_slab_bytes", "Memory of slabs", metrics.slab_bytes),
        gauge("hearth_slab_used_bytes", "Memory of slab slots in use", metrics.slab_bytes_used),
        gauge("hearth_memory_lingering_bytes", "Memory that only other processes still hold", metrics.memory_lingering),
        gauge("hearth_shown_replicas", "Replicas whose memory is shown to readers", metrics.shown),
        gauge("hearth_pinned_replicas", "Replicas in memory that a reader holds", metrics.pinned),
        gauge("hearth_short_circuit_segments", "Shared memory segments of local clients", local.segments),
        gauge("hearth_short_circuit_slots", "Replicas that local clients have open", local.slots),
        gauge(
            "hearth_short_circuit_anchored",
            "Replicas that local clients read without checking CRCs",
            local.anchored,
        ),
        gauge("hearth_replicas", "Replicas", metrics.replicas),
        gauge("hearth_memory_replicas", "Replicas in memory", metrics.replicas_in_memory),
        gauge("hearth_dirty_replicas", "Finalized replicas not yet on disk", metrics.dirty_replicas),
        gauge("hearth_dirty_bytes", "Bytes not yet on disk", metrics.dirty_bytes),
        gauge(
            "hearth_unsynced_replicas",
            "Replicas finalized in files, not yet known to be on disk",
            metrics.unsynced_replicas,
        ),
        gauge("hearth_kept_replicas", "Replicas that stay open between reads", metrics.kept_replicas),
        gauge("hearth_mapped_bytes", "Mapped bytes of replicas that stay open", metrics.mapped_bytes),
        gauge(
            "hearth_oldest_dirty_ms",
            "Age of the oldest dirty or unsynced replica",
            metrics.oldest_dirty_age.as_millis() as u64,
        ),
        gauge("hearth_cached_replicas", "Replicas held for centralised caching", datanode.cache.replicas() as u64),
        gauge(
            "hearth_cached_bytes",
            "Bytes of replicas held for centralised caching, in whole pages",
            datanode.cache.bytes(),
        ),
        gauge(
            "hearth_failed_volumes",
            "Failed storage directories",
            datanode.services.failed_volumes().dirs.len() as u64,
        ),
    ]
}

fn front_page(datanode: &Weak<Datanode>) -> String {
    let page = Page::new("Hearth DataNode");
    let Some(datanode) = datanode.upgrade() else { return page.html(&[]) };
    let metrics = datanode.replicas.store.metrics();
    let addresses = datanode.addresses();
    // Includes directories that had failed before the start, which the store does not know.
    let failed = datanode.services.failed_volumes().dirs;
    let failed = match failed.len() {
        0 => "0".to_owned(),
        count => format!("{count}: {}", failed.join(", ")),
    };
    let volumes: Vec<Vec<String>> = datanode
        .replicas
        .pools
        .all()
        .iter()
        .flat_map(|pool| {
            datanode.replicas.store.storage_reports(&pool.identity.pool).into_iter().map(|report| {
                vec![
                    pool.identity.pool.to_string(),
                    report.storage.to_string(),
                    report.storage_type.name().to_owned(),
                    size(report.block_pool_used),
                    size(report.remaining),
                ]
            })
        })
        .collect();
    page.facts(&[
        ("DataNode", datanode.replicas.store.datanode_uuid().to_string()),
        ("Data transfer", addresses.transfer.to_string()),
        ("IPC", addresses.ipc.to_string()),
        ("Up for", format!("{} s", datanode.lifecycle.uptime().as_secs())),
        ("Replicas", format!("{}, {} of them in memory", metrics.replicas, metrics.replicas_in_memory)),
        ("Memory", format!("{} of {}", size(metrics.memory_used), size(metrics.memory_limit))),
        ("Not yet on disk", format!("{} in {} replicas", size(metrics.dirty_bytes), metrics.dirty_replicas)),
        ("Centralised cache", format!("{} in {} replicas", size(datanode.cache.bytes()), datanode.cache.replicas())),
        ("Failed storage directories", failed),
    ])
    .table("NameNodes", status::NAMENODE_COLUMNS, &status::namenodes(&datanode))
    .table("Storage", &["block pool", "storage", "type", "used", "free"], &volumes)
    .html(&[])
}

fn beans(datanode: &Weak<Datanode>) -> Vec<Bean> {
    let Some(datanode) = datanode.upgrade() else { return Vec::new() };
    let metrics = datanode.replicas.store.metrics();
    let (reads, read_bytes, writes, written_bytes) = datanode.replicas.metrics.totals();
    let local = datanode.slots.metrics();
    let one_sided = datanode.one_sided.as_ref();
    let shown = one_sided.map(|one_sided| &one_sided.advertiser);
    let registered = shown.map(|shown| shown.metrics()).unwrap_or_default();
    let mut beans = status::beans(&datanode);
    beans.extend([
        Bean::new("Hadoop:service=DataNode,name=DataNodeActivity")
            .with("BlocksRead", reads)
            .with("BytesRead", read_bytes)
            .with("BlocksWritten", writes)
            .with("BytesWritten", written_bytes)
            .with("DataNodeActiveXceiversCount", datanode.replicas.metrics.xceivers() as u64),
        Bean::new("Hearth:service=DataNode,name=Local")
            .with("Segments", local.segments)
            .with("Slots", local.slots)
            .with("Anchored", local.anchored)
            .with("DescriptorsPassed", local.descriptors_passed),
        Bean::new("Hearth:service=DataNode,name=OneSided")
            .with("Advertisements", shown.map_or(0, |shown| shown.leases()))
            .with("AdvertisedReplicas", registered.advertised)
            .with("AnnouncedReplicas", shown.map_or(0, |shown| shown.announcement_metrics().replicas()))
            .with("LeavingReplicas", registered.leaving)
            .with("RegisteredBytes", registered.bytes)
            .with("RegisteredForWritingBytes", one_sided.map_or(0, |one_sided| one_sided.writer_registered_bytes()))
            .with("BytesWritten", datanode.replicas.metrics.one_sided_written_bytes())
            .with("Descriptions", datanode.replicas.metrics.describe_requests()),
        Bean::new("Hearth:service=DataNode,name=Memory")
            .with("LimitBytes", metrics.memory_limit)
            .with("UsedBytes", metrics.memory_used)
            .with("SlabBytes", metrics.slab_bytes)
            .with("SlabBytesUsed", metrics.slab_bytes_used)
            .with("Replicas", metrics.replicas)
            .with("ReplicasInMemory", metrics.replicas_in_memory)
            .with("DirtyReplicas", metrics.dirty_replicas)
            .with("DirtyBytes", metrics.dirty_bytes)
            .with("UnsyncedReplicas", metrics.unsynced_replicas)
            .with("KeptReplicas", metrics.kept_replicas)
            .with("MappedBytes", metrics.mapped_bytes)
            .with("OldestDirtyMs", metrics.oldest_dirty_age.as_millis() as u64)
            .with("Evictions", metrics.evictions)
            .with("ReadBacks", metrics.read_backs)
            .with("ShownReplicas", metrics.shown)
            .with("PinnedReplicas", metrics.pinned)
            .with("LingeringBytes", metrics.memory_lingering)
            .with("MemoryFull", metrics.memory_full)
            .with("FlushedReplicas", metrics.flushed_replicas)
            .with("FlushedBytes", metrics.flushed_bytes)
            .with("FlushFailures", metrics.flush_failures)
            .with("ScrubbedBytes", metrics.scrubbed_bytes)
            .with("Corruptions", metrics.corruptions)
            .with("GrantedBytes", metrics.granted_bytes)
            .with("GrantCpuMicros", metrics.grant_time.as_micros() as u64)
            .with("CommittedBytes", metrics.committed_bytes)
            .with("CopiedBackBytes", metrics.copied_back_bytes)
            .with("ReceivedInPlaceBytes", metrics.received_in_place_bytes),
    ]);
    beans
}
