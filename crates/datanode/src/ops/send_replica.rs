//! SEND_REPLICA (0xA5): another Hearth DataNode, which the balancer makes fetch a replica, receives it as in a copy
//! that a NameNode orders: over a stream, or into its memory. All other DataNodes use COPY_BLOCK.

use std::sync::Arc;

use hearth_blockstore::StoreError;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{ExtendedBlock, ReplicaState};
use hearth_wire::data_transfer::TransferBlock;

use crate::datanode::Datanode;
use crate::ops::copy_block::acquire_move_permit;
use crate::ops::{Continuation, OpError, run_with_progress};
use crate::session::Session;
use crate::streams::{CopyOrder, RequestedBy};

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &Session,
    request: TransferBlock,
) -> Result<Continuation, OpError> {
    run_with_progress(datanode.options.transfer.read_timeout, session, run(datanode, request)).await
}

async fn run(datanode: &Arc<Datanode>, request: TransferBlock) -> Result<(), OpError> {
    let TransferBlock { block, token, targets, .. } = request;
    let [target] =
        <[_; 1]>::try_from(targets).map_err(|_| OpError::Malformed("a replica must have exactly one target"))?;
    let pool = datanode.replicas.ready_pool(&block.pool).await?;
    pool.tokens.check(&token, &block, AccessMode::Copy)?;
    let _place = acquire_move_permit(datanode, &block, "copy")?;
    let replica = datanode.replicas.store.replica(&block.pool, block.id());
    let replica = replica.ok_or_else(|| StoreError::ReplicaNotFound { block: block.clone() })?;
    if replica.state != ReplicaState::Finalized || replica.block.stamp != block.stamp() {
        return Err(OpError::NotFinalized { block, state: replica.state, found: replica.block });
    }
    // With the replica's own length, regardless of the balancer's value.
    let block = ExtendedBlock { pool: block.pool, block: replica.block };
    let order = CopyOrder { pool, block, target, requested_by: RequestedBy::Balancer };
    match datanode.streams.send_replica(&datanode.replicas, &order).await? {
        true => Ok(()),
        false => Err(OpError::NoStreams),
    }
}
