//! Contents of heartbeats and lifelines. Source: DatanodeProtocol.proto, `HeartbeatRequestProto`.

use hearth_wire::proto::hdfs::{
    DatanodeRegistrationProto, HeartbeatRequestProto, StorageReportProto, VolumeFailureSummaryProto,
};

use crate::datanode::Datanode;
use crate::pool::Pool;

/// `wants_lease`: requests a lease for a full block report.
pub fn request(
    datanode: &Datanode,
    pool: &Pool,
    registration: &DatanodeRegistrationProto,
    wants_lease: bool,
) -> HeartbeatRequestProto {
    let metrics = &datanode.replicas.metrics;
    let failed = datanode.services.failed_volumes();
    HeartbeatRequestProto {
        registration: registration.clone(),
        reports: datanode.replicas.store.storage_reports(pool.id()).iter().map(StorageReportProto::from).collect(),
        xmits_in_progress: Some(metrics.transfers() as u32),
        xceiver_count: Some(metrics.xceiver_count() as u32),
        failed_volumes: Some(failed.dirs.len() as u32),
        cache_capacity: Some(datanode.locked_memory.capacity()),
        cache_used: Some(datanode.locked_memory.used()),
        volume_failure_summary: (!failed.dirs.is_empty()).then_some(VolumeFailureSummaryProto {
            failed_storage_locations: failed.dirs,
            last_volume_failure_date: failed.last_ms,
            estimated_capacity_lost_total: failed.capacity_lost,
        }),
        request_full_block_report_lease: Some(wants_lease),
        slow_peers: Vec::new(),
        slow_disks: Vec::new(),
        // Lifelines have none.
        hearth_announcement: None,
    }
}
