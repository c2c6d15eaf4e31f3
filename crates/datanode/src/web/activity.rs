//! The bean `DataNodeActivity-HOST-PORT`: what the DataNode has done since its start.

use hearth_blockstore::StoreMetrics;
use hearth_types::HistogramSnapshot;
use hearth_web::Bean;

use crate::datanode::Datanode;
use crate::metrics::{PathFigures, ReadPath, WritePath};

/// Returns the bean, with Apache's names. Times are in milliseconds, and means are those since the start.
/// Source: Hadoop's `DataNodeMetrics`.
pub fn bean(datanode: &Datanode, store: &StoreMetrics) -> Bean {
    let metrics = &datanode.replicas.metrics;
    let (reads, writes) = (metrics.reads(), metrics.writes());
    let bytes = |paths: &[PathFigures]| paths.iter().map(|path| path.bytes).sum::<u64>();
    let times =
        |paths: &[PathFigures]| paths.iter().fold(HistogramSnapshot::default(), |all, path| all.plus(&path.time));
    let read = |path: ReadPath| reads[path as usize].time;
    let written = |path: WritePath| writes[path as usize].time;
    let (all_reads, all_writes) = (times(&reads), times(&writes));
    let by_clients = written(WritePath::Packets).plus(&written(WritePath::Local)).plus(&written(WritePath::OneSided));
    let of_clients = read(ReadPath::Packets).plus(&read(ReadPath::Multiplexed)).plus(&read(ReadPath::OneSided));
    let copied = written(WritePath::Copy).plus(&written(WritePath::Stream));
    let acknowledgements = metrics.acknowledgements();
    let host_name = &datanode.options.host_name;
    let port = datanode.addresses().transfer.port();
    let operation = |bean: Bean, name: &str, times: HistogramSnapshot| {
        bean.with(&format!("{name}NumOps"), times.count()).with(&format!("{name}AvgTime"), times.mean_ms())
    };
    let bean = Bean::new(format!("Hadoop:service=DataNode,name=DataNodeActivity-{host_name}-{port}"))
        .with("tag.Context", "dfs")
        .with("tag.SessionId", serde_json::Value::Null)
        .with("tag.Hostname", host_name.clone())
        .with("BytesRead", bytes(&reads))
        .with("BlocksRead", all_reads.count())
        .with("TotalReadTime", all_reads.sum().as_millis() as u64)
        .with("BytesWritten", bytes(&writes))
        .with("BlocksWritten", all_writes.count())
        .with("TotalWriteTime", all_writes.sum().as_millis() as u64)
        .with("BlocksReplicated", metrics.streams().received)
        .with("BlockVerificationFailures", store.corruptions)
        .with("BlocksCached", datanode.cache.replicas() as u64)
        .with("VolumeFailures", datanode.services.failed_volumes().dirs.len() as u64)
        .with("DataNodeActiveXceiversCount", metrics.xceivers() as u64);
    let bean = operation(bean, "ReadBlockOp", of_clients);
    let bean = operation(bean, "CopyBlockOp", read(ReadPath::Copy));
    let bean = operation(bean, "WriteBlockOp", by_clients);
    let bean = operation(bean, "ReplaceBlockOp", copied);
    bean.with("PacketAckRoundTripTimeNanosNumOps", acknowledgements.count())
        .with("PacketAckRoundTripTimeNanosAvgTime", acknowledgements.mean_ms() * 1e6)
}
