//! Statistics of the whole file system and of its datanodes.

use bytes::Bytes;
use hearth_types::{BlockId, DatanodeId, StorageId};
use hearth_wire::proto::hdfs::{
    CorruptFileBlocksProto, DatanodeStorageReportProto, GetDatanodeReportRequestProto, GetDatanodeReportResponseProto,
    GetDatanodeStorageReportRequestProto, GetDatanodeStorageReportResponseProto, GetFsEcBlockGroupStatsRequestProto,
    GetFsEcBlockGroupStatsResponseProto, GetFsReplicatedBlockStatsRequestProto, GetFsReplicatedBlockStatsResponseProto,
    GetFsStatsResponseProto, GetFsStatusRequestProto, GetSlowDatanodeReportRequestProto,
    GetSlowDatanodeReportResponseProto, ListCorruptFileBlocksRequestProto, ListCorruptFileBlocksResponseProto,
    ReportBadBlocksRequestProto, ReportBadBlocksResponseProto, SetBalancerBandwidthRequestProto,
    SetBalancerBandwidthResponseProto,
};

use super::audited::Audited;
use crate::blocks::DatanodeFilter;
use crate::error::Error;
use crate::namespace::{InodeId, is_below};
use crate::state::{CallContext, Namenode, State, encode};

/// Limit of missing blocks examined under one lock.
const BLOCKS_LOOKED_AT: usize = 1_000;

pub async fn get_fs_stats(namenode: &Namenode, _: &CallContext, _: GetFsStatusRequestProto) -> Result<Bytes, Error> {
    let figures = namenode.read().blocks.cluster_statistics(namenode.now());
    Ok(encode(&GetFsStatsResponseProto {
        capacity: figures.capacity,
        used: figures.used,
        remaining: figures.remaining,
        under_replicated: figures.low_redundancy,
        corrupt_blocks: figures.corrupt,
        missing_blocks: figures.missing,
        missing_repl_one_blocks: Some(figures.missing_with_replication_one),
        blocks_in_future: Some(figures.bytes_in_future),
        pending_deletion_blocks: Some(figures.pending_deletion),
    }))
}

pub async fn get_fs_replicated_block_stats(
    namenode: &Namenode,
    _: &CallContext,
    _: GetFsReplicatedBlockStatsRequestProto,
) -> Result<Bytes, Error> {
    let figures = namenode.read().blocks.cluster_statistics(namenode.now());
    Ok(encode(&GetFsReplicatedBlockStatsResponseProto {
        low_redundancy: figures.low_redundancy,
        corrupt_blocks: figures.corrupt,
        missing_blocks: figures.missing,
        missing_repl_one_blocks: figures.missing_with_replication_one,
        blocks_in_future: figures.bytes_in_future,
        pending_deletion_blocks: figures.pending_deletion,
        highest_prio_low_redundancy_blocks: Some(figures.highest_priority_low_redundancy),
    }))
}

/// There are no erasure-coded files.
pub async fn get_fs_ec_block_group_stats(
    _: &Namenode,
    _: &CallContext,
    _: GetFsEcBlockGroupStatsRequestProto,
) -> Result<Bytes, Error> {
    Ok(encode(&GetFsEcBlockGroupStatsResponseProto {
        highest_prio_low_redundancy_blocks: Some(0),
        ..Default::default()
    }))
}

fn filter(number: i32) -> Result<DatanodeFilter, Error> {
    DatanodeFilter::from_number(number)
        .ok_or_else(|| Error::IllegalArgument { message: format!("Unexpected datanode report type {number}") })
}

pub async fn get_datanode_report(
    namenode: &Namenode,
    context: &CallContext,
    request: GetDatanodeReportRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    state.namespace.require_superuser(&context.caller, "datanodeReport")?;
    let di = state.blocks.datanodes(filter(request.r#type)?).iter().map(|(info, _)| info.into()).collect();
    Ok(encode(&GetDatanodeReportResponseProto { di }))
}

pub fn audit_get_datanode_report(_: &GetDatanodeReportRequestProto) -> Audited {
    Audited::new("datanodeReport")
}

pub async fn get_datanode_storage_report(
    namenode: &Namenode,
    context: &CallContext,
    request: GetDatanodeStorageReportRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    state.namespace.require_superuser(&context.caller, "datanodeStorageReport")?;
    let datanodes = state.blocks.datanodes(filter(request.r#type)?);
    let datanode_storage_reports = datanodes
        .iter()
        .map(|(info, storages)| DatanodeStorageReportProto {
            datanode_info: info.into(),
            storage_reports: storages.iter().map(Into::into).collect(),
        })
        .collect();
    Ok(encode(&GetDatanodeStorageReportResponseProto { datanode_storage_reports }))
}

pub fn audit_get_datanode_storage_report(_: &GetDatanodeStorageReportRequestProto) -> Audited {
    Audited::new("getDatanodeStorageReport")
}

/// Returns the DataNodes that others report as slow. As on Apache's NameNode, every user may ask.
pub async fn get_slow_datanode_report(
    namenode: &Namenode,
    _: &CallContext,
    _: GetSlowDatanodeReportRequestProto,
) -> Result<Bytes, Error> {
    let now = namenode.clock.monotonic();
    let state = namenode.read();
    let datanodes = state.blocks.datanodes(DatanodeFilter::Live);
    let slow = datanodes.iter().filter(|(info, _)| namenode.slow_nodes.is_slow(&info.id, now));
    let datanode_info_proto = slow.map(|(info, _)| info.into()).collect();
    Ok(encode(&GetSlowDatanodeReportResponseProto { datanode_info_proto }))
}

pub fn audit_get_slow_datanode_report(_: &GetSlowDatanodeReportRequestProto) -> Audited {
    Audited::new("slowDataNodesReport")
}

/// Handles a reader's report of corrupt replicas.
pub async fn report_bad_blocks(
    namenode: &Namenode,
    _: &CallContext,
    request: ReportBadBlocksRequestProto,
) -> Result<Bytes, Error> {
    let mut state = namenode.state.write();
    let now = namenode.now();
    for located in request.blocks {
        let Ok(block) = namenode.own_block(located.b) else { continue };
        for (i, node) in located.locs.iter().enumerate() {
            let Ok(node) = DatanodeId::try_from(node.id.clone()) else { continue };
            let storage = located.storage_ids.get(i).map(|id| StorageId(id.as_str().into()));
            state.blocks.report_bad_replica(block, &node, storage.as_ref(), now);
        }
    }
    Ok(encode(&ReportBadBlocksResponseProto {}))
}

/// Lists files with blocks that have no good replica left, a page at a time. The cookie is the last block's number. An
/// empty page marks the end.
pub async fn list_corrupt_file_blocks(
    namenode: &Namenode,
    context: &CallContext,
    request: ListCorruptFileBlocksRequestProto,
) -> Result<Bytes, Error> {
    namenode.read().namespace.require_superuser(&context.caller, "listCorruptFileBlocks")?;
    let mut from = request.cookie().parse::<i64>().ok().filter(|id| *id != 0).map(BlockId);
    let (mut files, limit) = (Vec::new(), namenode.settings.corrupt_files_max);
    loop {
        let is_whole = add_corrupt_files(&namenode.read(), &request.path, limit, &mut from, &mut files);
        if is_whole {
            break;
        }
        // Lets callers that change something take the lock.
        tokio::task::yield_now().await;
    }
    let cookie = from.map_or("0".into(), |block| block.0.to_string());
    Ok(encode(&ListCorruptFileBlocksResponseProto { corrupt: CorruptFileBlocksProto { files, cookie } }))
}

/// Adds the files below `top` among the next blocks, as many as the lock may be held for. Returns true if the page is
/// full, or no more blocks exist.
fn add_corrupt_files(
    state: &State,
    top: &str,
    limit: usize,
    from: &mut Option<BlockId>,
    files: &mut Vec<String>,
) -> bool {
    let top = top.trim_end_matches('/');
    let below = |path: &str| top.is_empty() || path == top || is_below(path, top);
    let blocks = state.blocks.missing_blocks(*from, BLOCKS_LOOKED_AT);
    let is_end = blocks.len() < BLOCKS_LOOKED_AT;
    for block in blocks {
        if files.len() >= limit {
            return true;
        }
        *from = Some(block);
        let slot = state.blocks.inode_of(block).and_then(|id| state.namespace.slot(InodeId(id)));
        files.extend(slot.map(|slot| state.namespace.path_of(slot)).filter(|path| below(path)));
    }
    is_end
}

pub async fn set_balancer_bandwidth(
    namenode: &Namenode,
    context: &CallContext,
    request: SetBalancerBandwidthRequestProto,
) -> Result<Bytes, Error> {
    let mut state = namenode.state.write();
    state.namespace.require_superuser(&context.caller, "setBalancerBandwidth")?;
    let bandwidth = u64::try_from(request.bandwidth).map_err(|_| Error::IllegalArgument {
        message: format!("Bandwidth should not be negative, but {} was given", request.bandwidth),
    })?;
    state.blocks.set_balancer_bandwidth(bandwidth);
    Ok(encode(&SetBalancerBandwidthResponseProto {}))
}

pub fn audit_set_balancer_bandwidth(_: &SetBalancerBandwidthRequestProto) -> Audited {
    Audited::new("setBalancerBandwidth")
}
