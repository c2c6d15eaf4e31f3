//! Sends a replica to other datanodes: re-replication that a namenode asks for, and the filling of a datanode that joins
//! a client's pipeline.

use std::sync::Arc;

use hearth_types::{ByteRange, ExtendedBlock, StorageId};
use hearth_wire::convert::storage_types_from_wire;
use hearth_wire::proto::common::TokenProto;
use hearth_wire::proto::hdfs::op_write_block_proto::BlockConstructionStage as Stage;
use hearth_wire::proto::hdfs::{
    BaseHeaderProto, BlockOpResponseProto, CachingStrategyProto, ClientOperationHeaderProto, DatanodeInfoProto,
    OpWriteBlockProto, Status,
};

use crate::datanode::Datanode;
use crate::downstream;
use crate::ops::OpError;
use crate::pool::Pool;
use crate::sender::PacketSender;
use crate::server::op;

/// A replica and where it is to go.
pub struct Transfer {
    /// With the length that is to be sent.
    pub block: ExtendedBlock,
    pub stage: Stage,
    /// Empty when a namenode asked for it.
    pub client_name: String,
    /// In the order of the pipeline; at least one.
    pub targets: Vec<DatanodeInfoProto>,
    /// As many as targets, or none.
    pub target_storage_types: Vec<i32>,
    pub target_storage_ids: Vec<String>,
}

/// Sends it to its end. In a client's name the target's answer is awaited, else the connection just ends.
pub async fn run(datanode: &Arc<Datanode>, pool: &Arc<Pool>, transfer: Transfer) -> Result<(), OpError> {
    let Transfer { block, stage, client_name, mut targets, mut target_storage_types, mut target_storage_ids } =
        transfer;
    if targets.is_empty() {
        return Err(OpError::Malformed("a transfer names no target"));
    }
    let reader = datanode.store.reader(&block)?;
    let waits = downstream::Waits::new(&datanode.options.transfer, targets.len() as u32);
    let types = storage_types_from_wire(&target_storage_types);
    let ids: Vec<StorageId> = target_storage_ids.iter().map(|id| StorageId(id.as_str().into())).collect();
    let token = TokenProto::from(&pool.tokens.mint_write(&block, &types, &ids));
    let target = targets.remove(0);
    let mut session = downstream::connect(datanode, &target.id, waits).await?;
    let take_first = |list: &mut Vec<i32>| (!list.is_empty()).then(|| list.remove(0));
    let checksum = reader.checksum();
    let is_client = !client_name.is_empty();
    let message = OpWriteBlockProto {
        header: ClientOperationHeaderProto {
            base_header: BaseHeaderProto { block: (&block).into(), token: Some(token) },
            client_name,
        },
        source: pool.own_datanode_info().as_ref().map(DatanodeInfoProto::from),
        stage: stage as i32,
        requested_checksum: (&checksum).into(),
        caching_strategy: Some(CachingStrategyProto { drop_behind: Some(true), readahead: None }),
        storage_type: take_first(&mut target_storage_types),
        storage_id: (!target_storage_ids.is_empty()).then(|| target_storage_ids.remove(0)),
        targets,
        target_storage_types,
        target_storage_ids,
        ..Default::default()
    };
    downstream::send_operation(&session, op::WRITE_BLOCK, &message).await?;

    let range = ByteRange::new(0, block.length().min(reader.length()))
        .ok_or(OpError::Malformed("the length to transfer"))?
        .widened(checksum.bytes_per_chunk, reader.length());
    let options = &datanode.options.transfer;
    let sender = PacketSender {
        reader: &reader,
        connection: &session.connection,
        checksum,
        transfer_to: options.transfer_to,
        packet_bytes: options.read_packet_bytes,
        write_timeout: waits.write,
        throttle: Some(&datanode.transfer_throttle),
    };
    sender.send(Vec::new(), range).await.map_err(|source| OpError::Send { block: block.clone(), source })?;
    if is_client {
        let answer = session.receive::<BlockOpResponseProto>(waits.read).await?;
        if answer.status() != Status::Success {
            let message = format!("{:?} {}", answer.status(), answer.message());
            return Err(OpError::Downstream { block, peer: session.connection.peer().to_string(), message });
        }
    } else {
        // The target finalizes on its own; its end of the stream says that it has read all. Closing before that could
        // reset the connection under data that is still on its way.
        session.connection.shutdown_write();
        let mut byte = [0; 1];
        let _ = session.connection.read(&mut byte, waits.read).await;
    }
    Ok(())
}
