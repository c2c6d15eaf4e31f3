//! TRANSFER_BLOCK (86): a client makes this DataNode copy a replica to a DataNode that joins its pipeline.
//! Source: datatransfer.proto, `OpTransferBlockProto`.

use std::sync::Arc;

use hearth_blockstore::StoreError;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{Block, ExtendedBlock, ReplicaState};
use hearth_wire::data_transfer::{Stage, TransferBlock};

use crate::datanode::Datanode;
use crate::ops::{Continuation, OpError, answer};
use crate::session::Session;
use crate::transfer::{self, Transfer};

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    request: TransferBlock,
) -> Result<Continuation, OpError> {
    answer(session, run(datanode, request).await).await
}

async fn run(datanode: &Arc<Datanode>, request: TransferBlock) -> Result<(), OpError> {
    let TransferBlock { block, token, client_name, targets } = request;
    let pool = datanode.replicas.ready_pool(&block.pool).await?;
    pool.tokens.check(&token, &block, AccessMode::Copy)?;
    let replica = datanode
        .replicas
        .store
        .replica(&block.pool, block.id())
        .ok_or_else(|| StoreError::ReplicaNotFound { block: block.clone() })?;
    if replica.block.stamp < block.stamp() {
        return Err(OpError::from(StoreError::StampMismatch {
            stored: replica.block.stamp,
            wanted: format!("at least {}", block.stamp()),
            action: "transfer it",
            block,
        }));
    }
    let stage = match replica.state {
        ReplicaState::BeingWritten => Stage::TransferRbw,
        ReplicaState::Finalized => Stage::TransferFinalized,
        state => {
            let action = "transfer it";
            return Err(OpError::from(StoreError::WrongState { block, state, action }));
        }
    };
    let length = replica.visible_length.unwrap_or(0);
    let sent = ExtendedBlock { pool: block.pool, block: Block { length, ..replica.block } };
    let transfer = Transfer { block: sent, stage, client_name, targets };
    Ok(transfer::run(&datanode.replicas, &datanode.streams, &pool, transfer).await?)
}
