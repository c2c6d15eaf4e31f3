use hearth_protocol::rpc::{RemoteError, application_error};
use hearth_types::{BlockId, DatanodeUuid};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use hearth_wire::proto::hdfs::{
    BlockReceivedAndDeletedRequestProto, BlockReceivedAndDeletedResponseProto, BlockReportRequestProto,
    BlockReportResponseProto, CacheReportRequestProto, CacheReportResponseProto, ReceivedDeletedBlockInfoProto,
    StorageBlockReportProto,
};
use hearth_wire::rpc::exceptions;

use super::replica_list::{decode_buffers, decode_longs};
use super::{DatanodeService, storage_of};
use crate::blocks::{Now, ReplicaEvent, ReportContext, ReportError, StorageContents};

impl DatanodeService {
    /// Handles a full report of a datanode's storages.
    pub(super) async fn block_report(
        &self,
        request: BlockReportRequestProto,
    ) -> Result<BlockReportResponseProto, RemoteError> {
        let datanode = self.check_registration(request.registration)?;
        let context = request.context.map(|context| ReportContext {
            calls: u32::try_from(context.total_rpcs).unwrap_or(1),
            call: u32::try_from(context.cur_rpc).unwrap_or(0),
            lease: context.lease_id(),
        });
        let unregistered = || Ok(BlockReportResponseProto { cmd: Some(Self::register_command()) });
        let invalid_lease =
            |error: ReportError| Err(application_error(exceptions::INVALID_BLOCK_REPORT_LEASE, error.to_string()));
        let allowed =
            self.namenode.state.read().blocks.check_report(&datanode, context, Now::of(&*self.namenode.clock));
        match allowed {
            Ok(()) => {}
            Err(ReportError::Unregistered) => return unregistered(),
            Err(error) => return invalid_lease(error),
        }
        // A million replicas take a while, so they are not decoded on the thread that answers other calls.
        let reports = request.reports;
        let decoded = tokio::task::spawn_blocking(move || {
            reports.into_iter().map(storage_contents).collect::<Result<Vec<_>, _>>()
        });
        let storages = decoded.await.map_err(|error| application_error(exceptions::IO, error.to_string()))??;
        let sure = {
            let mut state = self.namenode.state.write();
            let now = Now::of(&*self.namenode.clock);
            state.blocks.full_report(&datanode, context, &storages, now)
        };
        match sure {
            Ok(sure) => {
                let replicas: usize = storages.iter().map(|storage| storage.replicas.len()).sum();
                tracing::info!(datanode = %datanode, storages = storages.len(), replicas, "full block report");
                Ok(BlockReportResponseProto { cmd: sure.then(|| self.finalize_command()) })
            }
            Err(ReportError::Unregistered) => unregistered(),
            Err(error) => invalid_lease(error),
        }
    }

    /// Handles an incremental report of a datanode.
    pub(super) fn block_received_and_deleted(
        &self,
        request: BlockReceivedAndDeletedRequestProto,
    ) -> Result<BlockReceivedAndDeletedResponseProto, RemoteError> {
        let datanode = self.check_registration(request.registration)?;
        let mut reports = Vec::with_capacity(request.blocks.len());
        for report in request.blocks {
            let (storage, storage_type) = storage_of(report.storage, report.storage_uuid)?;
            let events: Vec<ReplicaEvent> = report.blocks.into_iter().map(event).collect();
            reports.push((storage, storage_type, events));
        }
        let mut state = self.namenode.state.write();
        let now = Now::of(&*self.namenode.clock);
        for (storage, storage_type, events) in reports {
            let booked = state.blocks.replica_events(&datanode, &storage, storage_type, &events, now);
            if let Err(error) = booked {
                // Its next heartbeat makes it register, and then it reports everything.
                tracing::debug!(datanode = %datanode, %error, "incremental report ignored");
                break;
            }
        }
        Ok(BlockReceivedAndDeletedResponseProto {})
    }

    /// Handles a report of the replicas that the datanode has locked in memory.
    pub(super) fn cache_report(
        &self,
        request: CacheReportRequestProto,
    ) -> Result<CacheReportResponseProto, RemoteError> {
        let datanode = self.check_registration(request.registration)?;
        let blocks: Vec<BlockId> = request.blocks.iter().map(|block| BlockId(*block as i64)).collect();
        let booked = self.namenode.state.write().blocks.cache_report(&datanode, &blocks);
        if let Err(error) = booked {
            // Its next heartbeat makes it register, and then it reports everything.
            tracing::debug!(datanode = %datanode, %error, "cache report ignored");
        }
        Ok(CacheReportResponseProto { cmd: None })
    }
}

fn event(info: ReceivedDeletedBlockInfoProto) -> ReplicaEvent {
    let status = info.status();
    let block = info.block.into();
    match status {
        BlockStatus::Receiving => ReplicaEvent::Receiving(block),
        BlockStatus::Received => {
            let hint = info.delete_hint.filter(|hint| !hint.is_empty());
            ReplicaEvent::Received { block, delete_hint: hint.map(|hint| DatanodeUuid(hint.into())) }
        }
        BlockStatus::Deleted => ReplicaEvent::Deleted(block),
    }
}

fn storage_contents(report: StorageBlockReportProto) -> Result<StorageContents, RemoteError> {
    let (storage, storage_type) = storage_of(Some(report.storage), String::new())?;
    let replicas = match report.number_of_blocks {
        Some(count) => decode_buffers(count, &report.blocks_buffers),
        None => decode_longs(&report.blocks),
    };
    let replicas = replicas.map_err(|error| application_error(exceptions::IO, error.to_string()))?;
    Ok(StorageContents { storage, storage_type, replicas })
}
