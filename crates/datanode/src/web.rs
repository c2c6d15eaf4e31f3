//! The datanode's pages: /jmx and /metrics with its figures, /conf with its configuration.

use std::sync::{Arc, Weak};

use hearth_config::Configuration;
pub use hearth_web::WebServer;
use hearth_web::{Bean, ConfEntry, Site};
use prometheus_client::registry::Registry;

use crate::datanode::Datanode;
use crate::error::Error;

/// Listens on the configured address.
pub async fn start(datanode: &Arc<Datanode>) -> Result<WebServer, Error> {
    let address = datanode.options.http_address.to_string();
    let configuration = datanode.options.configuration.clone();
    // The pages must not keep the datanode alive.
    let (for_beans, for_front) = (Arc::downgrade(datanode), Arc::downgrade(datanode));
    Site::new(move || front(&for_front), move || beans(&for_beans), move || conf(&configuration), Registry::default())
        .serve(&address)
        .await
        .map_err(|error| Error::Web(error.to_string()))
}

fn front(datanode: &Weak<Datanode>) -> String {
    let uuid = datanode.upgrade().map(|datanode| datanode.store.datanode_uuid().to_string()).unwrap_or_default();
    format!("<h1>Hearth DataNode</h1><p>{uuid}</p><p><a href=\"jmx\">jmx</a> <a href=\"conf\">conf</a></p>")
}

fn conf(configuration: &Configuration) -> Vec<ConfEntry> {
    configuration
        .entries()
        .into_iter()
        .map(|entry| ConfEntry {
            key: entry.name.to_owned(),
            value: if Configuration::is_sensitive(entry.name) {
                "<redacted>".to_owned()
            } else {
                entry.value.to_owned()
            },
            is_final: entry.is_final,
            source: entry.source.to_string(),
        })
        .collect()
}

fn beans(datanode: &Weak<Datanode>) -> Vec<Bean> {
    let Some(datanode) = datanode.upgrade() else { return Vec::new() };
    let metrics = datanode.store.metrics();
    let (reads, read_bytes, writes, written_bytes) = datanode.load.totals();
    vec![
        Bean::new("Hadoop:service=DataNode,name=DataNodeInfo")
            .with("SoftwareVersion", crate::namenode::SOFTWARE_VERSION)
            .with("XceiverCount", datanode.load.xceivers() as u64)
            .with("XmitsInProgress", datanode.load.transfers() as u64),
        Bean::new("Hadoop:service=DataNode,name=DataNodeActivity")
            .with("BlocksRead", reads)
            .with("BytesRead", read_bytes)
            .with("BlocksWritten", writes)
            .with("BytesWritten", written_bytes)
            .with("DataNodeActiveXceiversCount", datanode.load.xceivers() as u64),
        Bean::new("Hearth:service=DataNode,name=Memory")
            .with("LimitBytes", metrics.memory_limit)
            .with("UsedBytes", metrics.memory_used)
            .with("SlabBytes", metrics.slab_bytes)
            .with("SlabBytesUsed", metrics.slab_bytes_used)
            .with("Replicas", metrics.replicas)
            .with("ReplicasInMemory", metrics.replicas_in_memory)
            .with("DirtyReplicas", metrics.dirty_replicas)
            .with("DirtyBytes", metrics.dirty_bytes)
            .with("OldestDirtyMs", metrics.oldest_dirty_age.as_millis() as u64)
            .with("Evictions", metrics.evictions)
            .with("ReadBacks", metrics.read_backs)
            .with("MemoryFull", metrics.memory_full)
            .with("FlushedReplicas", metrics.flushed_replicas)
            .with("FlushedBytes", metrics.flushed_bytes)
            .with("FlushFailures", metrics.flush_failures)
            .with("ScrubbedBytes", metrics.scrubbed_bytes)
            .with("Corruptions", metrics.corruptions),
    ]
}
