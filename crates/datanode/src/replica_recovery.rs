//! Block recovery on the side of a replica's holder: both steps, whether this DataNode or another one leads.

use hearth_blockstore::{RecoveryInfo, ReplicaSummary};
use hearth_types::{BlockId, ExtendedBlock, GenerationStamp};

use crate::pool::Pool;
use crate::replica_service::{ReplicaError, ReplicaService};
use crate::reports::ReplicaEvent;

/// Performs the first step: stops the writer and blocks all other access. `None`: no such replica.
pub async fn initiate(
    replicas: &ReplicaService,
    block: &ExtendedBlock,
    recovery_id: GenerationStamp,
) -> Result<Option<RecoveryInfo>, ReplicaError> {
    let block = block.clone();
    replicas.run_blocking(move |store| store.initiate_recovery(&block, recovery_id)).await
}

/// Performs the second step: sets the agreed length and the new stamp, and notifies the NameNodes.
pub async fn update(
    replicas: &ReplicaService,
    pool: &Pool,
    old: &ExtendedBlock,
    recovery_id: GenerationStamp,
    new_length: u64,
    new_id: Option<BlockId>,
) -> Result<ReplicaSummary, ReplicaError> {
    let asked = old.clone();
    let replica = replicas
        .run_blocking(move |store| store.update_under_recovery(&asked, recovery_id, new_length, new_id))
        .await?;
    pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Received { delete_hint: None });
    replicas.note_finalized(&replica.block);
    Ok(replica)
}
