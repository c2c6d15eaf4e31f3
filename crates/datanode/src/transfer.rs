//! Sends a replica to other DataNodes: re-replication that a NameNode orders, and copies to a DataNode that joins a
//! client's pipeline.

use std::sync::Arc;

use hearth_types::{ByteRange, ChecksumSpec, ExtendedBlock, GenerationStamp, StorageId, StorageType, Token};
use hearth_wire::data_transfer::{CachingStrategy, Operation, PipelineTarget, Stage, Status, WriteBlock};
use tokio::task::JoinSet;

use crate::datanode::Datanode;
use crate::downstream;
use crate::ops::OpError;
use crate::pool::Pool;
use crate::sender::PacketSender;
use crate::streams::{self, RequestedBy};

/// A replica and its targets.
pub struct Transfer {
    /// The block, with the length to send.
    pub block: ExtendedBlock,
    pub stage: Stage,
    /// Empty when a NameNode ordered the transfer.
    pub client_name: String,
    /// In the order of the pipeline.
    pub targets: Vec<PipelineTarget>,
}

/// Sends the replica by streams to all targets that support them, in parallel. Returns the other targets.
///
/// Errors: the error of the last target that failed; the other targets have their replicas.
async fn by_streams(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    targets: Vec<PipelineTarget>,
) -> Result<Vec<PipelineTarget>, OpError> {
    let mut copies = JoinSet::new();
    for target in targets {
        let (datanode, pool, block) = (datanode.clone(), pool.clone(), block.clone());
        copies.spawn(async move {
            let carried = streams::send_replica(&datanode, &pool, &block, &target, RequestedBy::Namenode).await;
            (target, carried)
        });
    }
    let (mut others, mut failed) = (Vec::new(), None);
    while let Some(copy) = copies.join_next().await {
        match copy {
            Ok((_, Ok(true))) => {}
            Ok((target, Ok(false))) => others.push(target),
            Ok((target, Err(error))) => {
                let target = &target.datanode.id;
                tracing::warn!(%block, %target, error = &error as &dyn std::error::Error, "cannot send a replica by a stream");
                failed = Some(error);
            }
            Err(_) => failed = Some(OpError::Interrupted),
        }
    }
    match failed {
        Some(error) if others.is_empty() => Err(error),
        _ => Ok(others),
    }
}

/// Builds the request to write a copy of a finalized replica to `target` alone, as ordered by a NameNode.
pub fn write_request(
    pool: &Pool,
    block: &ExtendedBlock,
    target: &PipelineTarget,
    token: Token,
    checksum: ChecksumSpec,
) -> WriteBlock {
    WriteBlock {
        block: block.clone(),
        token,
        client_name: String::new(),
        targets: Vec::new(),
        source: pool.own_datanode_info(),
        stage: Stage::PipelineSetupCreate,
        pipeline_size: 0,
        bytes_received_min: 0,
        bytes_received_max: 0,
        latest_stamp: GenerationStamp(0),
        checksum,
        caching: CachingStrategy { drop_behind: Some(true), readahead: None },
        storage_type: target.storage_type,
        storage_id: target.storage_id.clone(),
        allow_lazy_persist: false,
        pinned: target.pinned,
    }
}

/// Runs the transfer to its end. A client's transfer ends with the target's answer, others when the target closes the
/// connection.
pub async fn run(datanode: &Arc<Datanode>, pool: &Arc<Pool>, transfer: Transfer) -> Result<(), OpError> {
    let Transfer { block, stage, client_name, mut targets } = transfer;
    if targets.is_empty() {
        return Err(OpError::Malformed("a transfer names no target"));
    }
    if client_name.is_empty() && stage == Stage::PipelineSetupCreate {
        targets = by_streams(datanode, pool, &block, targets).await?;
        if targets.is_empty() {
            return Ok(());
        }
    }
    let reader = datanode.reader(&block).await?;
    let checksum = reader.checksum();
    let timeouts = downstream::Timeouts::new(&datanode.options.transfer, targets.len() as u32);
    let types: Vec<StorageType> = targets.iter().map(|target| target.storage_type).collect();
    let ids: Vec<StorageId> = targets.iter().filter_map(|target| target.storage_id.clone()).collect();
    let token = pool.tokens.mint_write(&block, &types, &ids);
    let target = targets.remove(0);
    let mut session = downstream::connect(datanode, &target.datanode.id, timeouts).await?;
    let is_client = !client_name.is_empty();
    let request = WriteBlock { client_name, targets, stage, ..write_request(pool, &block, &target, token, checksum) };
    session.send(&Operation::WriteBlock(Box::new(request)).encode()).await?;

    let range = ByteRange::new(0, block.length().min(reader.length()))
        .ok_or(OpError::Malformed("the length to transfer is out of range"))?
        .widened(checksum.bytes_per_chunk, reader.length());
    let options = &datanode.options.transfer;
    let sender = PacketSender {
        reader: &reader,
        disk_reads: &datanode.disk_reads,
        connection: &session.connection,
        checksum,
        transfer_to: options.transfer_to,
        packet_bytes: options.read_packet_bytes,
        write_timeout: timeouts.write,
        // A writer waits for this transfer, so it does not queue behind background copies.
        throttle: (!is_client).then_some(&datanode.transfer_throttle),
        client_metrics: is_client.then_some(&*datanode.metrics),
        bypass_page_cache: true,
    };
    sender.send(Vec::new(), range).await.map_err(|source| OpError::Send { block: block.clone(), source })?;
    if is_client {
        let answer = session.receive_answer(timeouts.read).await?;
        if answer.status != Status::Success {
            let message = format!("{:?} {}", answer.status, answer.message.unwrap_or_default());
            return Err(OpError::Downstream { block, peer: session.connection.peer().to_string(), message });
        }
    } else {
        // The target finalizes on its own, and closes its end of the stream when it has read everything. Closing
        // earlier could reset the connection while data is in flight.
        session.connection.shutdown_write();
        let mut byte = [0; 1];
        let _ = session.connection.read(&mut byte, timeouts.read).await;
    }
    Ok(())
}
