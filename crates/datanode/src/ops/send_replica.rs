//! SEND_REPLICA (0xA5): another datanode of Hearth's, which the balancer has fetch a replica, takes it as it takes what a namenode has
//! copied: over a stream, or into its memory. COPY_BLOCK is the way for all others.

use std::sync::Arc;

use hearth_blockstore::StoreError;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{ExtendedBlock, ReplicaState};
use hearth_wire::data_transfer::TransferBlock;

use crate::datanode::Datanode;
use crate::ops::copy_block::acquire_move_permit;
use crate::ops::{Continuation, OpError, check_token, run_with_progress};
use crate::session::Session;
use crate::streams::{self, RequestedBy};

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &Session,
    request: TransferBlock,
) -> Result<Continuation, OpError> {
    run_with_progress(datanode, session, run(datanode, request)).await
}

async fn run(datanode: &Arc<Datanode>, request: TransferBlock) -> Result<(), OpError> {
    let TransferBlock { block, token, targets, .. } = request;
    let [target] =
        <[_; 1]>::try_from(targets).map_err(|_| OpError::Malformed("one replica for more than one target"))?;
    let pool = datanode.ready_pool(&block.pool).await?;
    check_token(&pool, &token, &block, AccessMode::Copy)?;
    let _place = acquire_move_permit(datanode, &block, "copy")?;
    let replica = datanode.store.replica(&block.pool, block.id());
    let replica = replica.ok_or_else(|| StoreError::ReplicaNotFound { block: block.clone() })?;
    if replica.state != ReplicaState::Finalized || replica.block.stamp != block.stamp() {
        return Err(OpError::Refused(format!("{block} is {:?} here, as {}", replica.state, replica.block)));
    }
    // With its own length, whatever the balancer believes.
    let block = ExtendedBlock { pool: block.pool, block: replica.block };
    match streams::send_replica(datanode, &pool, &block, &target, RequestedBy::Balancer).await? {
        true => Ok(()),
        false => Err(OpError::Refused("the target takes no streams".to_owned())),
    }
}
