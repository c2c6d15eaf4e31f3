//! WRITE_BLOCK (80): receives a replica from a client's pipeline or from a DataNode that copies it. Every stage of
//! pipeline set-up and recovery begins here. Source: datatransfer.proto, `OpWriteBlockProto`.

use std::sync::Arc;

use hearth_blockstore::{CreateKind, CreateOptions, Durability, PipelineRecovery, ReplicaSummary, ReplicaWriter};
use hearth_fabric::stream::PeerAddress;
use hearth_types::{Block, DatanodeInfo, ExtendedBlock, StorageId, StorageType};
use hearth_wire::data_transfer::{
    AckReply, BlockOpResponse, CongestionState, Operation, SlowState, Stage, Status, WriteBlock,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::datanode::Datanode;
use crate::downstream;
use crate::forward::{Mirror, PacketMirror, PendingClose, SetupAnswer};
use crate::grants::Grants;
use crate::lazy_persist;
use crate::metrics::WritePath;
use crate::ops::write_one_sided::Fence;
use crate::ops::{Continuation, OpError, write_local};
use crate::options::TransferOptions;
use crate::outliers;
use crate::pool::Pool;
use crate::receiver::{Acknowledge, ReceiveError, ReceiveFailure, Received, Receiver};
use crate::reports::ReplicaEvent;
use crate::session::Session;
use crate::tokens::AccessDenied;

/// A request, with the properties that follow from its stage and sender.
struct WriteRequest {
    /// The request as received: in appends and recoveries, the block has its old stamp.
    write: WriteBlock,
    /// The peer is a client, or a DataNode on behalf of one.
    is_client: bool,
    /// TRANSFER_RBW or TRANSFER_FINALIZED: a DataNode sends its replica to this one, which joins a pipeline.
    is_transfer: bool,
    data_path: DataPath,
}

/// Path on which the bytes arrive.
enum DataPath {
    Packets,
    /// The sender is on this machine and requests the replica's memory.
    Local,
    /// A task of this process represents a remote client that writes into the replica's memory; the fence can shut that
    /// client out.
    OneSided(Arc<Fence>),
}

impl WriteRequest {
    fn new(write: WriteBlock, data_path: DataPath) -> Result<Self, OpError> {
        if matches!(write.stage, Stage::DataStreaming | Stage::PipelineClose) {
            return Err(OpError::Malformed("this stage of block construction is not valid in a request"));
        }
        let is_client = write.is_from_client();
        if !is_client && write.stage != Stage::PipelineSetupCreate {
            return Err(OpError::Malformed("a datanode may only create a replica"));
        }
        let is_transfer = matches!(write.stage, Stage::TransferRbw | Stage::TransferFinalized);
        if is_transfer && !matches!(data_path, DataPath::Packets) {
            return Err(OpError::Malformed("a replica can only be transferred in packets"));
        }
        Ok(Self { write, is_client, is_transfer, data_path })
    }

    fn fence(&self) -> Option<&Arc<Fence>> {
        match &self.data_path {
            DataPath::OneSided(fence) => Some(fence),
            DataPath::Packets | DataPath::Local => None,
        }
    }

    /// Returns true if the sender expects an answer to the set-up, and acknowledgements: a client does, and so does a
    /// sender that is granted memory with them.
    fn awaits_answers(&self) -> bool {
        self.is_client && !self.is_transfer || self.is_copy_into_memory()
    }

    /// Returns true if another DataNode writes a finalized replica of its own into memory here.
    fn is_copy_into_memory(&self) -> bool {
        !self.is_client && !matches!(self.data_path, DataPath::Packets)
    }

    /// Returns the path under which the write is counted.
    fn counted_path(&self) -> WritePath {
        match &self.data_path {
            _ if !self.is_client || self.is_transfer => WritePath::Copy,
            DataPath::Packets => WritePath::Packets,
            DataPath::Local => WritePath::Local,
            DataPath::OneSided(_) => WritePath::OneSided,
        }
    }

    fn create_options(&self) -> CreateOptions {
        CreateOptions {
            checksum: self.write.checksum,
            // A client sends the file's block size here.
            expected_bytes: self.write.block.length(),
            storage_type: self.write.storage_type,
        }
    }
}

/// The local replica after set-up.
enum LocalReplica {
    /// Packets follow.
    Writer(ReplicaWriter),
    /// PIPELINE_CLOSE_RECOVERY: the replica is already finalized, and no packets follow.
    Closed(ReplicaSummary),
}

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    write: WriteBlock,
) -> Result<Continuation, OpError> {
    serve_request(datanode, session, WriteRequest::new(write, DataPath::Packets)?).await
}

/// Serves WRITE_LOCAL: see `write_local`.
pub async fn serve_local(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    write: WriteBlock,
) -> Result<Continuation, OpError> {
    serve_request(datanode, session, WriteRequest::new(write, DataPath::Local)?).await
}

/// Serves `write_one_sided`: a local writer in this process, which is fenced before a length is fixed.
pub async fn serve_one_sided(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    write: WriteBlock,
    fence: Arc<Fence>,
) -> Result<Continuation, OpError> {
    serve_request(datanode, session, WriteRequest::new(write, DataPath::OneSided(fence))?).await
}

async fn serve_request(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    request: WriteRequest,
) -> Result<Continuation, OpError> {
    let pool = datanode.replicas.ready_pool(&request.write.block.pool).await?;
    if datanode.lifecycle.is_restarting() && request.awaits_answers() {
        let error = OpError::Restarting;
        answer_bad_link(session, &pool, &error).await?;
        return Err(error);
    }
    let opened = match check_write_token(&pool, &request) {
        Ok(()) => open_with_permit(datanode, &request, session.connection.peer()).await,
        Err(error) => Err(error.into()),
    };
    let (opened, _place) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            if request.awaits_answers() {
                // Named as the bad link, so that the client excludes this DataNode and no other.
                answer_bad_link(session, &pool, &error).await?;
            }
            return Err(error);
        }
    };
    if let LocalReplica::Writer(writer) = &opened
        && matches!(
            request.write.stage,
            Stage::PipelineSetupCreate | Stage::PipelineSetupAppend | Stage::PipelineSetupAppendRecovery
        )
        && request.is_client
    {
        let replica = writer.block();
        let told = Block { length: request.write.block.length(), ..replica.block };
        pool.notify(&writer.storage().0, told, ReplicaEvent::Receiving);
    }

    let mirror = connect_mirror(datanode, &request, session).await?;
    if request.awaits_answers() {
        session.send(&BlockOpResponse::pipeline(Status::Success, "").encode()).await?;
    }
    match opened {
        LocalReplica::Closed(replica) => {
            pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Received { delete_hint: None });
            datanode.replicas.note_finalized(&replica.block);
            Ok(Continuation::Close)
        }
        LocalReplica::Writer(mut writer) => {
            let grants = match &request.data_path {
                DataPath::Packets => None,
                DataPath::Local => Some(write_local::lend(datanode, session, &mut writer, &request.write).await?),
                // The memory is deregistered before the block ends, so no peer remains to be shut out.
                DataPath::OneSided(_) => {
                    writer.lend_until_shut_out();
                    Some(write_local::lend_to(datanode, session, &mut writer, &request.write, true).await?)
                }
            };
            receive(datanode, session, &pool, &request, writer, mirror, grants).await
        }
    }
}

/// Opens the local replica, with a permit for an incoming copy if it counts as one.
async fn open_with_permit(
    datanode: &Arc<Datanode>,
    request: &WriteRequest,
    peer: PeerAddress,
) -> Result<(LocalReplica, Option<OwnedSemaphorePermit>), OpError> {
    let place = if request.is_copy_into_memory() {
        datanode.streams.acquire_incoming_permit(&datanode.replicas, &request.write.block).await?
    } else {
        None
    };
    Ok((open(datanode, request, peer).await?, place))
}

/// Creates or finds the local replica. Runs on a blocking thread if it has to stop former writers or access disks.
async fn open(datanode: &Arc<Datanode>, request: &WriteRequest, peer: PeerAddress) -> Result<LocalReplica, OpError> {
    let options = request.create_options();
    let write = &request.write;
    let (block, new_stamp) = (write.block.clone(), write.latest_stamp);
    let (min_acked, max_received) = (write.bytes_received_min, write.bytes_received_max);
    if request.is_copy_into_memory() && datanode.streams.has_resumable(&block) {
        return Err(OpError::Resumable { block });
    }
    // The replica now arrives on another path.
    datanode.streams.forget(&block);
    let replicas = &datanode.replicas;
    let writer = match write.stage {
        Stage::PipelineSetupCreate if request.is_client => {
            let in_packets = matches!(request.data_path, DataPath::Packets);
            let locked = if in_packets {
                lazy_persist::reserve_memory(replicas, &datanode.locked_memory, write, peer)
            } else {
                None
            };
            let replace = new_stamp.0 != 0;
            let kind = CreateKind::BeingWritten { replace };
            if !replace && locked.is_none() && !replicas.store.create_may_wait(&options) {
                // The common case uses memory only and needs no other thread.
                return Ok(LocalReplica::Writer(replicas.store.create(&block, kind, &options)?));
            }
            let stamp = if replace { new_stamp } else { block.block.stamp };
            let block = ExtendedBlock { block: Block { stamp, ..block.block }, ..block };
            let shared = datanode.clone();
            let create = move |_: &_| {
                lazy_persist::create(&shared.replicas, &shared.locked_memory, &block, kind, &options, locked)
            };
            replicas.run_blocking(create).await?
        }
        Stage::PipelineSetupCreate => {
            replicas.run_blocking(move |store| store.create(&block, CreateKind::Temporary, &options)).await?
        }
        Stage::TransferRbw | Stage::TransferFinalized => {
            replicas.run_blocking(move |store| store.create(&block, CreateKind::Transfer, &options)).await?
        }
        Stage::PipelineSetupAppend => {
            replicas.run_blocking(move |store| store.append(&block, new_stamp, min_acked)).await?
        }
        Stage::PipelineSetupAppendRecovery => {
            replicas.run_blocking(move |store| store.recover_append(&block, new_stamp, min_acked)).await?
        }
        Stage::PipelineSetupStreamingRecovery => {
            let recovery = PipelineRecovery { new_stamp, min_acked, max_received };
            replicas.run_blocking(move |store| store.recover_being_written(&block, recovery)).await?
        }
        Stage::PipelineCloseRecovery => {
            let closed = replicas.run_blocking(move |store| store.recover_close(&block, new_stamp, min_acked)).await?;
            return Ok(LocalReplica::Closed(closed));
        }
        Stage::DataStreaming | Stage::PipelineClose => {
            return Err(OpError::Malformed("this stage of block construction is not valid in a request"));
        }
    };
    Ok(LocalReplica::Writer(writer))
}

/// Checks the token, which must allow every storage of the pipeline from here on.
fn check_write_token(pool: &Pool, request: &WriteRequest) -> Result<(), AccessDenied> {
    let write = &request.write;
    let types: Vec<StorageType> =
        std::iter::once(write.storage_type).chain(write.targets.iter().map(|target| target.storage_type)).collect();
    let targets = write.targets.iter().filter_map(|target| target.storage_id.clone());
    let ids: Vec<StorageId> = write.storage_id.clone().into_iter().chain(targets).collect();
    pool.tokens.check_write(&write.token, &write.block, &types, &ids)
}

async fn answer_bad_link(session: &Session, pool: &Pool, error: &OpError) -> Result<(), OpError> {
    let answer = BlockOpResponse {
        message: Some(error.text()),
        ..BlockOpResponse::pipeline(error.status(), pool.own_transfer_address())
    };
    Ok(session.send(&answer.encode()).await?)
}

/// Sets up the rest of the pipeline. `None` if no DataNode follows, or if it failed and the sender does not depend on
/// it (a DataNode that copies: the NameNode will notice). For a client, a failure is reported and ends the operation.
async fn connect_mirror(
    datanode: &Arc<Datanode>,
    request: &WriteRequest,
    upstream: &Session,
) -> Result<Option<Mirror>, OpError> {
    let Some((next, downstream_request)) = request.write.downstream() else { return Ok(None) };
    let name = next.id.transfer_address();
    let answer = match open_mirror(datanode, request, next, downstream_request).await {
        Ok(Ok(mirror)) => return Ok(Some(mirror)),
        // The downstream DataNode has named the bad one.
        Ok(Err(refusal)) => refusal,
        Err(error) => {
            if !request.is_client {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(block = %request.write.block, downstream = %name, error, "cannot connect the rest of the pipeline; storing the copy here only");
                return Ok(None);
            }
            BlockOpResponse { message: Some(error.text()), ..BlockOpResponse::pipeline(Status::Error, name.as_str()) }
        }
    };
    if request.awaits_answers() {
        upstream.send(&answer.encode()).await?;
    }
    let message = format!(
        "{:?}, first bad link {}, {}",
        answer.status,
        answer.first_bad_link.as_deref().unwrap_or_default(),
        answer.message.as_deref().unwrap_or_default()
    );
    Err(OpError::Downstream { block: request.write.block.clone(), peer: name, message })
}

/// Connects to the next DataNode and requests a write from it. Returns its answer if it refuses.
///
/// Bytes that arrive in packets are forwarded in packets, unless the next DataNode is on this machine. All other bytes
/// are written into its memory if there is a path to it.
async fn open_mirror(
    datanode: &Arc<Datanode>,
    request: &WriteRequest,
    next: &DatanodeInfo,
    downstream_request: WriteBlock,
) -> Result<Result<Mirror, BlockOpResponse>, OpError> {
    let targets = request.write.targets.len() as u32;
    let mut timeouts = downstream::Timeouts::new(&datanode.options.transfer, targets);
    if request.write.stage == Stage::PipelineCloseRecovery {
        // Each of these DataNodes may write the whole block to its disk before it answers.
        timeouts.read *= targets + 1;
    }
    // No data follows that stage; and a sender that expects no answer gets none forwarded.
    if request.write.stage != Stage::PipelineCloseRecovery && request.awaits_answers() {
        let downstream = downstream_request.clone();
        let asked = match request.data_path {
            DataPath::Packets => {
                datanode.forwarding.open_memory_here(&datanode.replicas, next, downstream, timeouts).await?
            }
            DataPath::Local => {
                datanode.forwarding.open_memory(&datanode.replicas, next, downstream, timeouts, true).await?
            }
            DataPath::OneSided(_) => {
                datanode.forwarding.open_memory(&datanode.replicas, next, downstream, timeouts, false).await?
            }
        };
        match asked {
            Some(SetupAnswer::Ready(mirror)) => return Ok(Ok(mirror)),
            Some(SetupAnswer::Refused(answer)) => return Ok(Err(*answer)),
            None => {}
        }
    }
    let mut session = downstream::connect(&datanode.options, &next.id, timeouts).await?;
    session.send_operation(&Operation::WriteBlock(Box::new(downstream_request))).await?;
    if request.awaits_answers() {
        let answer = session.receive_answer(timeouts.read).await?;
        if answer.status != Status::Success {
            return Ok(Err(answer));
        }
    }
    Ok(Ok(Mirror::Packets(PacketMirror { session, read_timeout: timeouts.read })))
}

/// Receives the packets and completes the write of the replica.
async fn receive(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    pool: &Arc<Pool>,
    request: &WriteRequest,
    mut writer: ReplicaWriter,
    mirror: Option<Mirror>,
    grants: Option<Grants>,
) -> Result<Continuation, OpError> {
    let began = Instant::now();
    let options = &datanode.options.transfer;
    let upstream = session.connection.clone();
    let mut downstream = mirror.as_ref().map(Mirror::closer);
    let mut ending = None;
    // A new owner of the replica wakes this writer's tasks by closing their connections. The writer's own calls fail
    // from then on, so nothing more is written.
    let fence = request.fence().cloned();
    writer.on_stop(Box::new(move || {
        upstream.shutdown();
        if let Some(downstream) = downstream.take() {
            ending = Some(downstream.close());
        }
        let is_fenced = fence.as_ref().is_none_or(|fence| fence.close());
        ending.as_ref().is_none_or(PendingClose::wait) && is_fenced
    }));
    let _responder = request.awaits_answers().then(|| datanode.replicas.metrics.count_responder());
    let _writing = datanode.writers.add(writer.block(), session.connection.clone());
    let own_checksum = writer.checksum();
    if own_checksum.bytes_per_chunk != request.write.checksum.bytes_per_chunk {
        return Err(OpError::Malformed("bytesPerChecksum differs from the replica's"));
    }
    // The last DataNode of a pipeline verifies; the others only forward. Data for the next DataNode's memory may
    // overwrite bytes that it has acknowledged, when a recovery sends them again, so such data is verified first.
    let verify = mirror.is_none() || !request.is_client || matches!(mirror, Some(Mirror::OneSided(_)));
    writer.set_checked(verify);
    let is_move = request.is_copy_into_memory() && datanode.streams.moves.has(&request.write.block);
    let receiver = Receiver {
        block: writer.block(),
        verify,
        acknowledge: if request.awaits_answers() { Acknowledge::Packets } else { Acknowledge::Nothing },
        writer,
        mirror,
        checksum: request.write.checksum,
        read_timeout: options.read_timeout,
        own_reply: own_reply(options),
        client_metrics: request.is_client.then_some(&*datanode.replicas.metrics),
        next: datanode
            .replicas
            .metrics
            .peers()
            .and(request.write.targets.first())
            .map(|next| outliers::peer_name(&next.datanode.id)),
        throttle: is_move.then_some(&datanode.replicas.balance_throttle),
        grants,
        restarting: datanode.lifecycle.restarting(),
        upstream: session,
    };
    let received = match receiver.run().await {
        Ok(received) => received,
        Err(failed) => {
            let ReceiveFailure { error, writer } = *failed;
            match request.fence() {
                Some(fence) if !request.is_client => {
                    if let Some(writer) =
                        writer.filter(|_| error.leaves_sound_data() && request.write.targets.is_empty())
                    {
                        keep_for_resume(datanode, request, writer, fence).await;
                    }
                }
                Some(_) => abandon(writer).await,
                // A sender that writes into memory is notified, and checks its own replica.
                None if matches!(error, ReceiveError::Checksum { .. })
                    && !request.is_client
                    && !request.is_copy_into_memory() =>
                {
                    report_bad_source(pool, request)
                }
                _ => {}
            }
            return Err(error.into());
        }
    };
    if let Some(fence) = request.fence() {
        fence.withdraw();
    }
    finish(datanode, session, pool, request, received, began).await
}

/// Keeps the received part of a one-sided copy for its sender. The sender can resume by a stream, and checks its own
/// replica before that is reported as corrupt.
async fn keep_for_resume(datanode: &Arc<Datanode>, request: &WriteRequest, writer: ReplicaWriter, fence: &Arc<Fence>) {
    let (fence, block, checksum) = (fence.clone(), request.write.block.clone(), request.write.checksum);
    let fenced = tokio::task::spawn_blocking(move || fence.close());
    // Otherwise the sender might still write there.
    if matches!(fenced.await, Ok(true)) {
        datanode.streams.keep(block, checksum, writer);
    }
}

/// Keeps the received part of a one-sided client's block for a pipeline recovery, which may arrive at once. The
/// client's keys are still valid, even while this DataNode waits for it to take its acknowledgements: they end before
/// the writer does.
async fn abandon(writer: Option<ReplicaWriter>) {
    let Some(writer) = writer else { return };
    if let Err(error) = tokio::task::spawn_blocking(move || writer.abandon()).await {
        tracing::warn!(%error, "waiting for the end of a writer failed");
    }
}

/// Finalizes and reports the replica, and only then acknowledges the last packet. `began`: when its packets were first
/// awaited.
async fn finish(
    datanode: &Arc<Datanode>,
    session: &Session,
    pool: &Arc<Pool>,
    request: &WriteRequest,
    received: Received,
    began: Instant,
) -> Result<Continuation, OpError> {
    let Received { writer, durability, last_ack } = received;
    if request.write.stage == Stage::TransferRbw {
        let replica = datanode.replicas.run_blocking(move |_| writer.convert_temporary_to_being_written()).await?;
        datanode.replicas.metrics.record_write(request.counted_path(), replica.block.length(), began.elapsed());
        session.send(&BlockOpResponse::new(Status::Success).encode()).await?;
        return Ok(Continuation::Close);
    }
    let replica = match durability {
        Durability::Memory if !writer.waits_at_end() => writer.finalize(durability)?,
        Durability::Memory | Durability::Disk => {
            datanode.replicas.run_blocking(move |_| writer.finalize(durability)).await?
        }
    };
    datanode.replicas.metrics.record_write(request.counted_path(), replica.block.length(), began.elapsed());
    if request.is_copy_into_memory() {
        datanode.replicas.metrics.record_stream_received();
    }
    if request.write.stage == Stage::TransferFinalized {
        // The pipeline that follows reports it.
        session.send(&BlockOpResponse::new(Status::Success).encode()).await?;
        return Ok(Continuation::Close);
    }
    let delete_hint = if request.is_client { None } else { datanode.streams.moves.delete_hint(&replica.block) };
    pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Received { delete_hint });
    datanode.replicas.note_finalized(&replica.block);
    last_ack.send().await?;
    Ok(Continuation::Close)
}

/// Reports a DataNode that sent a replica with wrong CRCs: its copy is bad, and the NameNode must know.
fn report_bad_source(pool: &Arc<Pool>, request: &WriteRequest) {
    let Some(source) = &request.write.source else { return };
    tracing::warn!(block = %request.write.block, source = %source.id.host_name, "received a corrupt replica from a datanode");
    pool.report_bad_replica(&request.write.block, source.clone(), None);
}

/// Returns this DataNode's reply for acknowledgements.
fn own_reply(options: &TransferOptions) -> AckReply {
    let congestion = if options.pipeline_ecn { CongestionState::Supported } else { CongestionState::Disabled };
    let slow = if options.pipeline_slow { SlowState::Normal } else { SlowState::Disabled };
    AckReply::new(Status::Success, congestion, slow)
}
