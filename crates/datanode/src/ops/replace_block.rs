//! REPLACE_BLOCK (83): the balancer makes this DataNode fetch a replica from another one, or move it to a storage of
//! another type. Source: datatransfer.proto, `OpReplaceBlockProto`.

use std::sync::Arc;

use hearth_blockstore::{Blockstore, CreateKind, CreateOptions, Durability, ReplicaSummary};
use hearth_fabric::tcp;
use hearth_protocol::block_token::AccessMode;
use hearth_wire::data_transfer::{AckReply, CopyBlock, Operation, PipelineTarget, ReplaceBlock, Status, TransferBlock};

use crate::datanode::Datanode;
use crate::downstream;
use crate::metrics::WritePath;
use crate::ops::copy_block::{END_MARK, acquire_move_permit};
use crate::ops::{Continuation, OpError, run_with_progress};
use crate::pool::Pool;
use crate::receiver::{Acknowledge, Received, Receiver};
use crate::reports::ReplicaEvent;
use crate::session::{Session, SessionError};

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &Session,
    request: ReplaceBlock,
) -> Result<Continuation, OpError> {
    run_with_progress(datanode.options.transfer.read_timeout, session, run(datanode, request)).await
}

async fn run(datanode: &Arc<Datanode>, request: ReplaceBlock) -> Result<(), OpError> {
    let block = &request.block;
    let pool = datanode.replicas.ready_pool(&block.pool).await?;
    pool.tokens.check(&request.token, block, AccessMode::Replace)?;
    let _place = acquire_move_permit(datanode, block, "receive")?;
    let delete_hint = (!request.delete_hint.is_empty()).then(|| request.delete_hint.clone());
    if request.source.id.uuid == *datanode.replicas.store.datanode_uuid() {
        let (block, storage_type, storing) = (block.clone(), request.storage_type, datanode.clone());
        let moving = move |store: &Blockstore| {
            let replica = store.move_to_storage_type(&block, storage_type)?;
            report_received(&storing, &pool, &replica, delete_hint);
            Ok(())
        };
        return Ok(datanode.replicas.run_blocking(moving).await?);
    }
    if request_send(datanode, &pool, &request, delete_hint.as_deref()).await? {
        return Ok(());
    }
    fetch(datanode, &pool, &request, delete_hint).await
}

/// Reports that the replica is here. Called where a caller that gives up waiting cannot prevent the report.
fn report_received(datanode: &Datanode, pool: &Pool, replica: &ReplicaSummary, delete_hint: Option<String>) {
    pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Received { delete_hint });
    datanode.replicas.note_finalized(&replica.block);
}

/// Requests the source DataNode that the balancer named to send the replica by a stream or into memory here. The
/// replica is reported as it is received. False: that DataNode does not support this, or cannot reach this one.
async fn request_send(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    request: &ReplaceBlock,
    delete_hint: Option<&str>,
) -> Result<bool, OpError> {
    let (block, source) = (&request.block, &request.source.id);
    if !datanode.streams.can_send(&datanode.replicas, source).await {
        return Ok(false);
    }
    let Some(_expected) = datanode.streams.moves.expect(block, delete_hint) else {
        return Err(OpError::AlreadyMoving { block: block.id() });
    };
    let Some(datanode_info) = pool.own_datanode_info() else { return Ok(false) };
    let target = PipelineTarget {
        datanode: datanode_info,
        storage_type: request.storage_type,
        storage_id: request.storage_id.clone(),
        pinned: false,
    };
    let timeouts = downstream::Timeouts::new(&datanode.options.transfer, 1);
    let mut session = downstream::connect(&datanode.options, source, timeouts).await?;
    let (block, token) = (block.clone(), request.token.clone());
    let send = TransferBlock { block, token, client_name: String::new(), targets: vec![target] };
    session.send_operation(&Operation::SendReplica(send)).await?;
    let mut answer = match session.receive_answer(timeouts.read).await {
        Ok(answer) => answer,
        // A DataNode that does not know the operation closes the connection: it was replaced since it described itself.
        Err(SessionError::Connection(tcp::Error::Closed { .. } | tcp::Error::Socket { .. })) => {
            datanode.streams.note_cannot_send(source);
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    while answer.status == Status::InProgress {
        answer = session.receive_answer(timeouts.read).await?;
    }
    if answer.status != Status::Success {
        let (status, message) = (answer.status, answer.message.unwrap_or_default());
        tracing::info!(block = %request.block, %source, ?status, message, "the source does not send the replica; fetching it in packets");
    }
    Ok(answer.status == Status::Success)
}

/// Copies the replica from the DataNode that the balancer named.
async fn fetch(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    request: &ReplaceBlock,
    delete_hint: Option<String>,
) -> Result<(), OpError> {
    let began = tokio::time::Instant::now();
    let block = &request.block;
    let timeouts = downstream::Timeouts::new(&datanode.options.transfer, 1);
    let mut session = downstream::connect(&datanode.options, &request.source.id, timeouts).await?;
    let copy = CopyBlock { block: block.clone(), token: request.token.clone() };
    session.send_operation(&Operation::CopyBlock(copy)).await?;
    let answer = session.receive_answer(timeouts.read).await?;
    let (Status::Success, Some(info)) = (answer.status, answer.read_checksum) else {
        let message = format!("{:?} {}", answer.status, answer.message.unwrap_or_default());
        return Err(OpError::Downstream { block: block.clone(), peer: request.source.id.transfer_address(), message });
    };
    let create =
        CreateOptions { checksum: info.spec, expected_bytes: block.length(), storage_type: request.storage_type };
    let created = block.clone();
    datanode.streams.forget(block);
    let writer =
        datanode.replicas.run_blocking(move |store| store.create(&created, CreateKind::Temporary, &create)).await?;
    let receiver = Receiver {
        block: block.clone(),
        upstream: &mut session,
        writer,
        mirror: None,
        acknowledge: Acknowledge::Nothing,
        checksum: info.spec,
        verify: true,
        read_timeout: timeouts.read,
        own_reply: AckReply::SUCCESS,
        restarting: datanode.lifecycle.restarting(),
        grants: None,
        client_metrics: None,
        next: None,
        throttle: Some(&datanode.replicas.balance_throttle),
    };
    let Received { writer, .. } = receiver.run().await.map_err(|failed| failed.error)?;
    // The source's end mark is ignored: the replica is already complete.
    let _ = session.buffer.fill_to(&session.connection, END_MARK.len(), timeouts.read).await;
    let (storing, pool) = (datanode.clone(), pool.clone());
    let finalizing = move |_: &Blockstore| {
        let replica = writer.finalize(Durability::Memory)?;
        storing.replicas.metrics.record_write(WritePath::Copy, replica.block.length(), began.elapsed());
        report_received(&storing, &pool, &replica, delete_hint);
        Ok(())
    };
    Ok(datanode.replicas.run_blocking(finalizing).await?)
}
