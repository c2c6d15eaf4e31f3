//! WRITE_BLOCK (80): a replica comes in, from a client's pipeline or from a datanode that copies it; every stage of
//! pipeline set-up and recovery begins here. Source: datatransfer.proto, `OpWriteBlockProto`.

use std::sync::Arc;

use hearth_blockstore::{CreateKind, CreateOptions, Durability, PipelineRecovery, ReplicaSummary, ReplicaWriter};
use hearth_types::{Block, ChecksumSpec, DatanodeInfo, ExtendedBlock, GenerationStamp, StorageId};
use hearth_wire::convert::{storage_type_from_wire, storage_types_from_wire};
use hearth_wire::proto::hdfs::op_write_block_proto::BlockConstructionStage as Stage;
use hearth_wire::proto::hdfs::{BlockOpResponseProto, OpWriteBlockProto, Status};

use crate::acks::flag_bits;
use crate::datanode::Datanode;
use crate::downstream;
use crate::ops::{After, OpError, response};
use crate::pool::Pool;
use crate::receiver::{Acknowledge, Mirror, Received, Receiver};
use crate::reports::ReplicaEvent;
use crate::server::op;
use crate::session::Session;

/// A decoded request.
struct Request {
    /// As asked for: old stamp in appends and recoveries.
    block: ExtendedBlock,
    stage: Stage,
    /// The peer is a client, or a datanode in its name.
    is_client: bool,
    /// TRANSFER_RBW or TRANSFER_FINALIZED: a datanode fills this one in to join a pipeline.
    is_transfer: bool,
    checksum: ChecksumSpec,
    new_stamp: GenerationStamp,
    min_bytes: u64,
    max_bytes: u64,
    /// As received, for the next datanode.
    message: OpWriteBlockProto,
}

impl Request {
    fn decode(message: OpWriteBlockProto) -> Result<Self, OpError> {
        let block = ExtendedBlock::try_from(message.header.base_header.block.clone())?;
        let stage =
            Stage::try_from(message.stage).map_err(|_| OpError::Malformed("unknown stage of block construction"))?;
        if matches!(stage, Stage::DataStreaming | Stage::PipelineClose) {
            return Err(OpError::Malformed("this stage of block construction sets nothing up"));
        }
        let is_client = !message.header.client_name.is_empty();
        let is_transfer = matches!(stage, Stage::TransferRbw | Stage::TransferFinalized);
        if !is_client && stage != Stage::PipelineSetupCreate {
            return Err(OpError::Malformed("a datanode may only create a replica"));
        }
        Ok(Self {
            stage,
            is_client,
            is_transfer,
            checksum: ChecksumSpec::try_from(message.requested_checksum)?,
            new_stamp: GenerationStamp(message.latest_generation_stamp),
            min_bytes: message.min_bytes_rcvd,
            max_bytes: message.max_bytes_rcvd,
            block,
            message,
        })
    }

    fn create_options(&self) -> CreateOptions {
        CreateOptions {
            checksum: self.checksum,
            // Of clients this is the file's block size.
            expected_bytes: self.block.length(),
            storage_type: storage_type_from_wire(self.message.storage_type() as i32),
            storage: self.message.storage_id.as_deref().filter(|id| !id.is_empty()).map(|id| StorageId(id.into())),
        }
    }

    fn with_stamp(&self, stamp: GenerationStamp) -> ExtendedBlock {
        ExtendedBlock { pool: self.block.pool.clone(), block: Block { stamp, ..self.block.block } }
    }
}

/// The local replica after set-up.
enum Opened {
    /// Packets follow.
    Writer(ReplicaWriter),
    /// PIPELINE_CLOSE_RECOVERY: it is finalized already, nothing follows.
    Closed(ReplicaSummary),
}

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    message: OpWriteBlockProto,
) -> Result<After, OpError> {
    let request = Request::decode(message)?;
    let pool = datanode.ready_pool(&request.block.pool).await?;
    let awaits_answer = request.is_client && !request.is_transfer;
    let opened = match check_write_token(&pool, &request) {
        Ok(()) => open(datanode, &request).await,
        Err(error) => Err(error),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            if awaits_answer {
                // Named as the bad link, so that the client leaves out this datanode and no other.
                answer_bad_link(session, &pool, &error).await?;
            }
            return Err(error);
        }
    };
    if let Opened::Writer(writer) = &opened
        && matches!(
            request.stage,
            Stage::PipelineSetupCreate | Stage::PipelineSetupAppend | Stage::PipelineSetupAppendRecovery
        )
        && request.is_client
    {
        let replica = writer.block();
        let told = Block { length: request.block.length(), ..replica.block };
        pool.notify(&writer.storage().0, told, ReplicaEvent::Receiving);
    }

    let mirror = connect_mirror(datanode, &request, session).await?;
    if awaits_answer {
        session
            .send(&BlockOpResponseProto { first_bad_link: Some(String::new()), ..response(Status::Success) })
            .await?;
    }
    match opened {
        Opened::Closed(replica) => {
            pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Received { delete_hint: None });
            Ok(After::Close)
        }
        Opened::Writer(writer) => receive(datanode, session, &pool, &request, writer, mirror).await,
    }
}

/// Makes or finds the local replica. On a thread that may wait: former writers are stopped and disks asked here.
async fn open(datanode: &Arc<Datanode>, request: &Request) -> Result<Opened, OpError> {
    let options = request.create_options();
    let (block, new_stamp) = (request.block.clone(), request.new_stamp);
    let (min_acked, max_received) = (request.min_bytes, request.max_bytes);
    match request.stage {
        Stage::PipelineSetupCreate if request.is_client => {
            if new_stamp.0 == 0 {
                // The common case touches memory only: no change of thread.
                let kind = CreateKind::BeingWritten { replace: false };
                return Ok(Opened::Writer(datanode.store.create(&block, kind, &options)?));
            }
            let block = request.with_stamp(new_stamp);
            let kind = CreateKind::BeingWritten { replace: true };
            datanode.blocking(move |store| store.create(&block, kind, &options)).await.map(Opened::Writer)
        }
        Stage::PipelineSetupCreate => datanode
            .blocking(move |store| store.create(&block, CreateKind::Temporary, &options))
            .await
            .map(Opened::Writer),
        Stage::TransferRbw | Stage::TransferFinalized => datanode
            .blocking(move |store| store.create(&block, CreateKind::Transfer, &options))
            .await
            .map(Opened::Writer),
        Stage::PipelineSetupAppend => {
            datanode.blocking(move |store| store.append(&block, new_stamp, min_acked)).await.map(Opened::Writer)
        }
        Stage::PipelineSetupAppendRecovery => {
            datanode.blocking(move |store| store.recover_append(&block, new_stamp, min_acked)).await.map(Opened::Writer)
        }
        Stage::PipelineSetupStreamingRecovery => {
            let recovery = PipelineRecovery { new_stamp, min_acked, max_received };
            datanode.blocking(move |store| store.recover_being_written(&block, recovery)).await.map(Opened::Writer)
        }
        Stage::PipelineCloseRecovery => {
            datanode.blocking(move |store| store.recover_close(&block, new_stamp, min_acked)).await.map(Opened::Closed)
        }
        Stage::DataStreaming | Stage::PipelineClose => {
            Err(OpError::Malformed("this stage of block construction sets nothing up"))
        }
    }
}

/// The token must allow every storage of the pipeline from here on.
fn check_write_token(pool: &Pool, request: &Request) -> Result<(), OpError> {
    let message = &request.message;
    let mut types = vec![storage_type_from_wire(message.storage_type() as i32)];
    types.extend(storage_types_from_wire(&message.target_storage_types));
    let ids: Vec<StorageId> = message
        .storage_id
        .iter()
        .chain(&message.target_storage_ids)
        .filter(|id| !id.is_empty())
        .map(|id| StorageId(id.as_str().into()))
        .collect();
    let token = message.header.base_header.token.clone().map(Into::into).unwrap_or_default();
    pool.tokens
        .check_write(&token, &request.block, &types, &ids)
        .map_err(|source| OpError::Token { block: request.block.clone(), source })
}

async fn answer_bad_link(session: &Session, pool: &Pool, error: &OpError) -> Result<(), OpError> {
    let bad_link = pool.own_transfer_address();
    let answer = BlockOpResponseProto {
        first_bad_link: Some(bad_link),
        message: Some(error.to_string()),
        ..response(error.status())
    };
    Ok(session.send(&answer).await?)
}

/// Sets up the rest of the pipeline. `None` when there is none, or when it failed and the sender does not care
/// (a datanode that copies: the namenode will notice). For a client a failure is told and ends the operation.
async fn connect_mirror(
    datanode: &Arc<Datanode>,
    request: &Request,
    upstream: &Session,
) -> Result<Option<Mirror>, OpError> {
    let Some(target) = request.message.targets.first() else { return Ok(None) };
    let name = format!("{}:{}", target.id.ip_addr, target.id.xfer_port);
    let awaits_answer = request.is_client && !request.is_transfer;
    let failed = match open_mirror(datanode, request).await {
        Ok((mirror, None)) => return Ok(Some(mirror)),
        // The downstream datanode says who is bad.
        Ok((_, Some(answer))) => {
            let message = format!("{:?}, first bad link {}", answer.status(), answer.first_bad_link());
            if awaits_answer {
                let passed_on = BlockOpResponseProto {
                    first_bad_link: Some(answer.first_bad_link().to_owned()),
                    message: answer.message.clone(),
                    ..response(answer.status())
                };
                upstream.send(&passed_on).await?;
            }
            return Err(OpError::Downstream { block: request.block.clone(), peer: name, message });
        }
        Err(error) => error,
    };
    if !request.is_client {
        tracing::warn!(block = %request.block, downstream = %name, error = %failed, "storing a copy without the rest of its pipeline");
        return Ok(None);
    }
    if awaits_answer {
        let answer = BlockOpResponseProto {
            first_bad_link: Some(name.clone()),
            message: Some(failed.to_string()),
            ..response(Status::Error)
        };
        upstream.send(&answer).await?;
    }
    Err(OpError::Downstream { block: request.block.clone(), peer: name, message: failed.to_string() })
}

/// Connects to the next datanode and asks it to write, too. With an answer when it refuses.
async fn open_mirror(
    datanode: &Arc<Datanode>,
    request: &Request,
) -> Result<(Mirror, Option<BlockOpResponseProto>), OpError> {
    let mut message = request.message.clone();
    let targets = message.targets.len() as u32;
    let target = message.targets.remove(0);
    let waits = downstream::Waits::new(&datanode.options.transfer, targets);
    let mut session = downstream::connect(datanode, &target.id, waits).await?;
    message.storage_type =
        if message.target_storage_types.is_empty() { None } else { Some(message.target_storage_types.remove(0)) };
    message.storage_id =
        if message.target_storage_ids.is_empty() { None } else { Some(message.target_storage_ids.remove(0)) };
    message.pinning = if message.target_pinnings.is_empty() { None } else { Some(message.target_pinnings.remove(0)) };
    downstream::send_operation(&session, op::WRITE_BLOCK, &message).await?;
    let mut refusal = None;
    if request.is_client && !request.is_transfer {
        let answer = session.receive::<BlockOpResponseProto>(waits.read).await?;
        if answer.status() != Status::Success || !answer.first_bad_link().is_empty() {
            refusal = Some(answer);
        }
    }
    Ok((Mirror { session, read_timeout: waits.read }, refusal))
}

/// The packets, and the end of the replica's being written.
async fn receive(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    pool: &Arc<Pool>,
    request: &Request,
    mut writer: ReplicaWriter,
    mirror: Option<Mirror>,
) -> Result<After, OpError> {
    let options = &datanode.options.transfer;
    let upstream = session.connection.clone();
    let downstream = mirror.as_ref().map(|mirror| mirror.session.connection.clone());
    // Whoever takes the replica from this writer wakes its tasks by the end of their connections. The writer's own
    // calls fail from then on, so nothing more is written.
    writer.on_stop(Box::new(move || {
        upstream.shutdown();
        if let Some(downstream) = downstream {
            downstream.shutdown();
        }
        true
    }));
    let _writing = datanode.writers.add(writer.block(), session.connection.clone());
    let own_checksum = writer.checksum();
    if own_checksum.bytes_per_chunk != request.checksum.bytes_per_chunk {
        return Err(OpError::Malformed("bytesPerChecksum differs from the replica's"));
    }
    let receiver = Receiver {
        block: writer.block(),
        verify: mirror.is_none() || !request.is_client,
        acknowledge: if request.is_client && !request.is_transfer {
            Acknowledge::Packets
        } else {
            Acknowledge::Nothing
        },
        writer,
        mirror,
        checksum: request.checksum,
        read_timeout: options.read_timeout,
        packet_bytes_max: options.packet_bytes_max,
        flag_bits: flag_bits(options.pipeline_ecn, options.pipeline_slow),
        throttle: None,
        upstream: session,
    };
    let received = match receiver.run().await {
        Ok(received) => received,
        Err(error) => {
            if matches!(error, OpError::Checksum { .. }) && !request.is_client {
                report_bad_source(pool, request);
            }
            return Err(error);
        }
    };
    finish(datanode, session, pool, request, received).await
}

/// Finalizes, reports, and only then acknowledges the last packet.
async fn finish(
    datanode: &Arc<Datanode>,
    session: &Session,
    pool: &Arc<Pool>,
    request: &Request,
    received: Received,
) -> Result<After, OpError> {
    let Received { writer, durability, last_ack } = received;
    if request.stage == Stage::TransferRbw {
        let replica = datanode.blocking(move |_| writer.leave_being_written()).await?;
        datanode.load.written_bytes(replica.block.length());
        session.send(&response(Status::Success)).await?;
        return Ok(After::Close);
    }
    let replica = match durability {
        Durability::Memory => writer.finalize(durability)?,
        Durability::Disk => datanode.blocking(move |_| writer.finalize(durability)).await?,
    };
    datanode.load.written_bytes(replica.block.length());
    if request.stage == Stage::TransferFinalized {
        // The pipeline that follows reports it.
        session.send(&response(Status::Success)).await?;
        return Ok(After::Close);
    }
    pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Received { delete_hint: None });
    last_ack.send().await?;
    Ok(After::Close)
}

/// A datanode sent a replica that does not fit its CRCs: its copy is bad, and the namenode must know.
fn report_bad_source(pool: &Arc<Pool>, request: &Request) {
    let Some(source) = request.message.source.clone() else { return };
    tracing::warn!(block = %request.block, source = %source.id.host_name, "received a corrupt replica from a datanode");
    if let Ok(source) = DatanodeInfo::try_from(source) {
        pool.report_bad(&request.block, source, None);
    }
}
