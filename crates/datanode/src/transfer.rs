//! Sends a replica to other DataNodes: re-replication that a NameNode orders, and copies to a DataNode that joins a
//! client's pipeline.

use std::sync::Arc;

use hearth_types::{ByteRange, ExtendedBlock, StorageId, StorageType};
use hearth_wire::data_transfer::{Operation, PipelineTarget, Stage, Status, WriteBlock};
use tokio::task::JoinSet;

use crate::downstream::{self, ConnectError};
use crate::pool::Pool;
use crate::replica_service::{ReplicaError, ReplicaService};
use crate::sender::{PacketSender, SendError};
use crate::session::SessionError;
use crate::streams::{CopyError, CopyOrder, RequestedBy, Streams};

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

/// Reason why a replica was not sent.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("malformed request: a transfer names no target")]
    NoTarget,
    #[error("malformed request: the length to transfer is out of range")]
    OutOfRange,
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("cannot send {block}")]
    Send { block: ExtendedBlock, source: SendError },
    #[error("downstream datanode {target} cannot take {block}: {message}")]
    Rejected { block: ExtendedBlock, target: String, message: String },
}

impl TransferError {
    /// Returns true if a peer disconnected or a later operation took the replica over: this DataNode is not at fault.
    pub fn is_disconnect(&self) -> bool {
        match self {
            Self::Replica(error) => error.is_taken_over(),
            Self::Copy(error) => error.is_disconnect(),
            Self::Connect(error) => error.is_disconnect(),
            Self::Session(error) => error.is_disconnect(),
            Self::Send { source, .. } => source.is_disconnect(),
            Self::NoTarget | Self::OutOfRange | Self::Rejected { .. } => false,
        }
    }
}

/// Sends the replica by streams to all targets that support them, in parallel. Returns the other targets.
///
/// Errors: the error of the last target that failed; the other targets have their replicas.
async fn by_streams(
    replicas: &Arc<ReplicaService>,
    streams: &Arc<Streams>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    targets: Vec<PipelineTarget>,
) -> Result<Vec<PipelineTarget>, CopyError> {
    let mut copies = JoinSet::new();
    for target in targets {
        let (replicas, streams) = (replicas.clone(), streams.clone());
        let requested_by = RequestedBy::Namenode;
        let order = CopyOrder { pool: pool.clone(), block: block.clone(), target, requested_by };
        copies.spawn(async move {
            let carried = streams.send_replica(&replicas, &order).await;
            (order.target, carried)
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
            Err(_) => failed = Some(CopyError::Interrupted),
        }
    }
    match failed {
        Some(error) if others.is_empty() => Err(error),
        _ => Ok(others),
    }
}

/// Runs the transfer to its end. A client's transfer ends with the target's answer, others when the target closes the
/// connection.
pub async fn run(
    replicas: &Arc<ReplicaService>,
    streams: &Arc<Streams>,
    pool: &Arc<Pool>,
    transfer: Transfer,
) -> Result<(), TransferError> {
    let Transfer { block, stage, client_name, mut targets } = transfer;
    if targets.is_empty() {
        return Err(TransferError::NoTarget);
    }
    if client_name.is_empty() && stage == Stage::PipelineSetupCreate {
        targets = by_streams(replicas, streams, pool, &block, targets).await?;
        if targets.is_empty() {
            return Ok(());
        }
    }
    let reader = replicas.reader(&block).await?;
    let checksum = reader.checksum();
    let timeouts = downstream::Timeouts::new(&replicas.options.transfer, targets.len() as u32);
    let types: Vec<StorageType> = targets.iter().map(|target| target.storage_type).collect();
    let ids: Vec<StorageId> = targets.iter().filter_map(|target| target.storage_id.clone()).collect();
    let token = pool.tokens.mint_write(&block, &types, &ids);
    let target = targets.remove(0);
    let mut session = downstream::connect(&replicas.options, &target.datanode.id, timeouts).await?;
    let is_client = !client_name.is_empty();
    let request =
        WriteBlock { client_name, targets, stage, ..downstream::write_request(pool, &block, &target, token, checksum) };
    session.send_operation(&Operation::WriteBlock(Box::new(request))).await?;

    let range = ByteRange::new(0, block.length().min(reader.length()))
        .ok_or(TransferError::OutOfRange)?
        .widened(checksum.bytes_per_chunk, reader.length());
    let options = &replicas.options.transfer;
    let sender = PacketSender {
        reader: &reader,
        disk_reads: &replicas.disk_reads,
        connection: &session.connection,
        checksum,
        transfer_to: options.transfer_to,
        packet_bytes: options.read_packet_bytes,
        write_timeout: timeouts.write,
        // A writer waits for this transfer, so it does not queue behind background copies.
        throttle: (!is_client).then_some(&replicas.transfer_throttle),
        client_metrics: is_client.then_some(&*replicas.metrics),
        bypass_page_cache: true,
    };
    sender.send(Vec::new(), range).await.map_err(|source| TransferError::Send { block: block.clone(), source })?;
    if is_client {
        let answer = session.receive_answer(timeouts.read).await?;
        if answer.status != Status::Success {
            let message = format!("{:?} {}", answer.status, answer.message.unwrap_or_default());
            return Err(TransferError::Rejected { block, target: session.connection.peer().to_string(), message });
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
