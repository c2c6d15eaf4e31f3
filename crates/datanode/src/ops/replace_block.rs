//! REPLACE_BLOCK (83): the balancer has this datanode fetch a replica from another one, or move it to a storage of
//! another type. Source: datatransfer.proto, `OpReplaceBlockProto`.

use std::sync::Arc;

use hearth_blockstore::{CreateKind, CreateOptions, Durability, ReplicaSummary};
use hearth_protocol::block_token::AccessMode;
use hearth_types::{ChecksumSpec, ExtendedBlock, StorageId, StorageType};
use hearth_wire::convert::storage_type_from_wire;
use hearth_wire::proto::hdfs::{
    BaseHeaderProto, BlockOpResponseProto, DatanodeIdProto, OpCopyBlockProto, OpReplaceBlockProto, Status,
};

use crate::datanode::Datanode;
use crate::downstream;
use crate::ops::copy_block::DONE;
use crate::ops::{After, OpError, answer_error, check_token, response};
use crate::receiver::{Acknowledge, Received, Receiver};
use crate::reports::ReplicaEvent;
use crate::server::op;
use crate::session::Session;

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    request: OpReplaceBlockProto,
) -> Result<After, OpError> {
    // The balancer is kept patient while the copy runs.
    let every = datanode.options.transfer.read_timeout / 2;
    let outcome = {
        let replace = run(datanode, request);
        tokio::pin!(replace);
        loop {
            tokio::select! {
                outcome = &mut replace => break outcome,
                () = tokio::time::sleep(every) => session.send(&response(Status::InProgress)).await?,
            }
        }
    };
    match outcome {
        Ok(()) => {
            session.send(&response(Status::Success)).await?;
            Ok(After::Close)
        }
        Err(error) => {
            answer_error(session, &error).await?;
            Err(error)
        }
    }
}

async fn run(datanode: &Arc<Datanode>, request: OpReplaceBlockProto) -> Result<(), OpError> {
    let storage_type = storage_type_from_wire(request.storage_type() as i32);
    let header = request.header;
    let block = ExtendedBlock::try_from(header.block.clone())?;
    let pool = datanode.ready_pool(&block.pool).await?;
    check_token(&pool, header.token.as_ref(), &block, AccessMode::Replace)?;
    let _place = datanode.move_places.clone().try_acquire_owned().map_err(|_| {
        OpError::Refused(format!("Not able to receive block {} because threads quota is exceeded.", block.id()))
    })?;
    let replica = if request.source.id.datanode_uuid == *datanode.store.datanode_uuid().0 {
        let block = block.clone();
        datanode.blocking(move |store| store.move_to_storage_type(&block, storage_type)).await?
    } else {
        let storage = request.storage_id.filter(|id| !id.is_empty()).map(|id| StorageId(id.into()));
        fetch(datanode, &block, header, &request.source.id, storage_type, storage).await?
    };
    let delete_hint = (!request.del_hint.is_empty()).then_some(request.del_hint);
    pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Received { delete_hint });
    Ok(())
}

/// Copies the replica from `source`.
async fn fetch(
    datanode: &Arc<Datanode>,
    block: &ExtendedBlock,
    header: BaseHeaderProto,
    source: &DatanodeIdProto,
    storage_type: StorageType,
    storage: Option<StorageId>,
) -> Result<ReplicaSummary, OpError> {
    let options = &datanode.options.transfer;
    let waits = downstream::Waits::new(options, 1);
    let mut session = downstream::connect(datanode, source, waits).await?;
    downstream::send_operation(&session, op::COPY_BLOCK, &OpCopyBlockProto { header }).await?;
    let answer = session.receive::<BlockOpResponseProto>(waits.read).await?;
    let (Status::Success, Some(info)) = (answer.status(), &answer.read_op_checksum_info) else {
        let message = format!("{:?} {}", answer.status(), answer.message());
        return Err(OpError::Downstream { block: block.clone(), peer: name_of(source), message });
    };
    let checksum = ChecksumSpec::try_from(info.checksum)?;
    let create = CreateOptions { checksum, expected_bytes: block.length(), storage_type, storage };
    let created = block.clone();
    let writer = datanode.blocking(move |store| store.create(&created, CreateKind::Temporary, &create)).await?;
    let receiver = Receiver {
        block: block.clone(),
        upstream: &mut session,
        writer,
        mirror: None,
        acknowledge: Acknowledge::Nothing,
        checksum,
        verify: true,
        read_timeout: waits.read,
        packet_bytes_max: options.packet_bytes_max,
        flag_bits: 0,
        throttle: Some(&datanode.balance_throttle),
    };
    let Received { writer, .. } = receiver.run().await?;
    // The source says that it is done; its word decides nothing any more.
    let _ = session.buffer.fill_to(&session.connection, DONE.len(), waits.read).await;
    let replica = datanode.blocking(move |_| writer.finalize(Durability::Memory)).await?;
    datanode.load.written_bytes(replica.block.length());
    Ok(replica)
}

fn name_of(id: &DatanodeIdProto) -> String {
    format!("{}:{}", id.ip_addr, id.xfer_port)
}
