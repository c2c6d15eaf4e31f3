//! The DataNode's web pages: /jmx and /metrics with its metrics, /conf with its configuration. WebHDFS requests are
//! passed to the given client.

mod activity;
mod interface;
mod metrics;
mod sampler;
mod status;

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use hearth_config::Program;
use hearth_protocol::rpc::RpcMetrics;
pub use hearth_web::WebServer;
use hearth_web::log_level::INTERFACE_PATH as LOG_LEVEL;
use hearth_web::{
    Bean, BoundSite, ConfEntry, Page, Protection, Query, Server, Site, configuration_findings, process_beans,
    rpc_beans, size,
};

use crate::datanode::Datanode;
use crate::error::Error;

/// Binds the configured address. Serving starts when the DataNode knows all of its addresses, which the pages show.
/// `rpc`: the counters of the IPC port.
pub async fn bind(datanode: &Arc<Datanode>, rpc: &Arc<RpcMetrics>) -> Result<BoundSite, Error> {
    let address = datanode.options.http_address.to_string();
    let protection = datanode.protection.clone();
    // The pages must not keep the DataNode alive.
    let for_bean_rpc = rpc.clone();
    let [for_beans, for_front, for_figures, for_configuration] = [(); 4].map(|()| Arc::downgrade(datanode));
    let site = Site::new(
        move || front_page(&for_front),
        move || beans(&for_beans, &for_bean_rpc),
        move || for_configuration.upgrade().map(|datanode| configuration(&datanode)).unwrap_or_default(),
        {
            let rpc = rpc.clone();
            move || metrics::metrics(&for_figures, &rpc)
        },
    );
    let site = match &datanode.options.webhdfs {
        Some(service) => site.webhdfs(service.clone()),
        None => site,
    };
    let site = with_interface(site, datanode, &protection).protection(protection);
    site.bind(&address).await.map_err(|error| Error::Web(error.to_string()))
}

/// Returns the values in force.
fn configuration(datanode: &Datanode) -> Vec<ConfEntry> {
    ConfEntry::all(&datanode.reconfiguration.configuration())
}

/// Adds the user interface and its data, and starts to take samples for it.
fn with_interface(site: Site, datanode: &Arc<Datanode>, protection: &Protection) -> Site {
    let protection = protection.clone();
    let status = interface::StatusPage::new(Arc::downgrade(datanode));
    let replicas = interface::ReplicaPage::new(Arc::downgrade(datanode));
    let history = sampler::history();
    let findings = configuration_findings(&datanode.options.configuration, Program::Datanode);
    tokio::spawn(sampler::run(Arc::downgrade(datanode), history.clone()));
    site.interface(Server::Datanode)
        .data("/ui/session", move |query: Query, peer: IpAddr| {
            let session = interface::session(&protection, &query, peer);
            async move { Ok(session) }
        })
        .data("/ui/log", move |query: Query, peer: IpAddr| async move { interface::log(&query, peer) })
        .data(LOG_LEVEL, |query: Query, peer: IpAddr| async move { interface::log_levels(&query, peer) })
        .put(LOG_LEVEL, interface::set_log_level)
        .delete(LOG_LEVEL, interface::reset_log_level)
        .data("/ui/history", move |_, _| {
            let history = history.clone();
            async move { Ok(history.json()) }
        })
        .data("/ui/findings", move |_, _| {
            let findings = findings.clone();
            async move { Ok(findings) }
        })
        // The NameNode's pages show these figures.
        .public_data("/ui/status", move |_, _| status.clone().answer())
        .public_data("/ui/replicas", move |query: Query, _| replicas.clone().answer(query))
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

fn beans(datanode: &Weak<Datanode>, rpc: &RpcMetrics) -> Vec<Bean> {
    let Some(datanode) = datanode.upgrade() else { return Vec::new() };
    let metrics = datanode.replicas.store.metrics();
    let local = datanode.slots.metrics();
    let one_sided = datanode.one_sided.as_ref();
    let shown = one_sided.map(|one_sided| &one_sided.advertiser);
    let registered = shown.map(|shown| shown.metrics()).unwrap_or_default();
    let mut beans = status::beans(&datanode);
    let host_name = &datanode.options.host_name;
    beans.push(activity::bean(&datanode, &metrics));
    beans.extend(rpc_beans("DataNode", host_name, &rpc.figures(datanode.addresses().ipc.port())));
    beans.extend(process_beans("DataNode", host_name));
    beans.extend([
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
