//! The datanode's pages: /jmx and /metrics with its figures, /conf with its configuration.

use std::fmt;
use std::sync::{Arc, Weak};

use hearth_config::Configuration;
pub use hearth_web::WebServer;
use hearth_web::{Bean, ConfEntry, Site};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::datanode::Datanode;
use crate::error::Error;

/// Listens on the configured address.
pub async fn start(datanode: &Arc<Datanode>) -> Result<WebServer, Error> {
    let address = datanode.options.http_address.to_string();
    let configuration = datanode.options.configuration.clone();
    // The pages must not keep the datanode alive.
    let (for_beans, for_front) = (Arc::downgrade(datanode), Arc::downgrade(datanode));
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures(Arc::downgrade(datanode))));
    Site::new(move || front(&for_front), move || beans(&for_beans), move || conf(&configuration), Registry::default())
        .serve(&address)
        .await
        .map_err(|error| Error::Web(error.to_string()))
}

/// What `/metrics` shows, read when it is asked for.
struct Figures(Weak<Datanode>);

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(datanode) = self.0.upgrade() else { return Ok(()) };
        let metrics = datanode.store.metrics();
        let (reads, read_bytes, writes, written_bytes) = datanode.load.totals();
        for (name, help, value) in [
            ("hearth_datanode_reads", "Reads served", reads),
            ("hearth_datanode_read_bytes", "Bytes read by clients and datanodes", read_bytes),
            ("hearth_datanode_writes", "Replicas received", writes),
            ("hearth_datanode_written_bytes", "Bytes of replicas received", written_bytes),
            ("hearth_memory_evictions", "Replicas that left memory", metrics.evictions),
            ("hearth_memory_read_backs", "Replicas read back from disk", metrics.read_backs),
            ("hearth_memory_full", "Replicas written to disk at once because memory was full", metrics.memory_full),
            ("hearth_flushed_replicas", "Replicas written to disk behind the write", metrics.flushed_replicas),
            ("hearth_flushed_bytes", "Bytes written to disk behind the write", metrics.flushed_bytes),
            ("hearth_flush_failures", "Writes to disk that failed", metrics.flush_failures),
            ("hearth_scrubbed_bytes", "Bytes checked in the background", metrics.scrubbed_bytes),
            ("hearth_corruptions", "Corrupt copies found", metrics.corruptions),
        ] {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        for (name, help, value) in [
            ("hearth_datanode_connections", "Data connections open", datanode.load.connections() as u64),
            ("hearth_datanode_xceivers", "Operations running", datanode.load.xceivers() as u64),
            ("hearth_datanode_transfers", "Copies to other datanodes running", datanode.load.transfers() as u64),
            ("hearth_memory_limit_bytes", "Memory that replicas may take", metrics.memory_limit),
            ("hearth_memory_used_bytes", "Memory that replicas take", metrics.memory_used),
            ("hearth_slab_bytes", "Memory of slabs", metrics.slab_bytes),
            ("hearth_slab_used_bytes", "Memory of slab slots in use", metrics.slab_bytes_used),
            ("hearth_replicas", "Replicas", metrics.replicas),
            ("hearth_memory_replicas", "Replicas in memory", metrics.replicas_in_memory),
            ("hearth_dirty_replicas", "Finalized replicas not yet on disk", metrics.dirty_replicas),
            ("hearth_dirty_bytes", "Bytes not yet on disk", metrics.dirty_bytes),
            ("hearth_oldest_dirty_ms", "Age of the oldest of them", metrics.oldest_dirty_age.as_millis() as u64),
            ("hearth_failed_volumes", "Storage directories out of use", metrics.failed_volumes),
        ] {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
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
