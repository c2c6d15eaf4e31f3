//! Block recovery as the primary DataNode: asks every holder of a block that lost its writer for its replica's length
//! and state, brings the replicas to one length and generation stamp, and reports to the NameNode. Also truncation.
//! Source: InterDatanodeProtocol.proto; DatanodeProtocol.proto, `commitBlockSynchronization`.

use std::sync::Arc;

use hearth_blockstore::StoreError;
use hearth_protocol::rpc::{RpcError, Target};
use hearth_types::{Block, BlockId, DatanodeId, ExtendedBlock, GenerationStamp, ReplicaState};
use hearth_wire::proto::hdfs::{
    CommitBlockSynchronizationRequestProto, DatanodeIdProto, InitReplicaRecoveryRequestProto,
    InitReplicaRecoveryResponseProto, RecoveringBlockProto, UpdateReplicaUnderRecoveryRequestProto,
    UpdateReplicaUnderRecoveryResponseProto,
};
use hearth_wire::rpc::{exceptions, protocols};

use super::proxy::{CallError, Proxy};
use crate::datanode::Datanode;
use crate::downstream::{self, ConnectError};
use crate::pool::Pool;
use crate::replica_recovery;
use crate::replica_service::ReplicaError;

/// Reason why a recovery was given up. The NameNode starts another one after a timeout.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("a newer recovery of {block} is running")]
    Superseded { block: ExtendedBlock },
    #[error("no reachable holder has {block}, and {failures} of its {holders} holders are unreachable")]
    NoHolderAnswered { block: ExtendedBlock, failures: usize, holders: usize },
    #[error("no replica of {block} is in a recoverable state")]
    NoCandidate { block: ExtendedBlock },
    #[error("finalized replicas of {block} have {first} and {second} bytes")]
    FinalizedDiffer { block: ExtendedBlock, first: u64, second: u64 },
    #[error("no replica of {block} could be set to {length} bytes")]
    NoHolderUpdated { block: ExtendedBlock, length: u64 },
    #[error("{block} is a group of erasure-coded blocks")]
    Striped { block: ExtendedBlock },
    #[error("malformed recovery command")]
    Malformed(#[from] hearth_wire::convert::ConvertError),
    #[error("cannot report the recovery to the namenode")]
    Commit(#[from] CallError),
}

/// One holder's answer.
struct Holder {
    id: DatanodeId,
    replica: Block,
    state: ReplicaState,
}

/// Failure to ask one holder.
#[derive(Debug, thiserror::Error)]
enum InitiateError {
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("the answer contains no replica although it reports one")]
    Incomplete,
}

impl InitiateError {
    fn is_recovery_in_progress(&self) -> bool {
        match self {
            Self::Replica(ReplicaError::Store(StoreError::RecoveryInProgress { .. })) => true,
            Self::Rpc(error) => error.remote_class() == Some(exceptions::RECOVERY_IN_PROGRESS),
            _ => false,
        }
    }
}

/// Leads one recovery to its end.
pub async fn lead(datanode: &Arc<Datanode>, pool: &Arc<Pool>, proxy: &Proxy, command: RecoveringBlockProto) {
    match run(datanode, pool, proxy, command).await {
        Ok(()) => {}
        Err(RecoveryError::Superseded { block }) => tracing::info!(%block, "a newer block recovery is running"),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "block recovery failed");
        }
    }
}

async fn run(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    proxy: &Proxy,
    command: RecoveringBlockProto,
) -> Result<(), RecoveryError> {
    let block = ExtendedBlock::try_from(command.block.b.clone())?;
    let recovery_id = GenerationStamp(command.new_gen_stamp);
    if command.ec_policy.is_some() {
        return Err(RecoveryError::Striped { block });
    }
    let truncate = command.truncate_block.map(Block::from);
    let locations = command
        .block
        .locs
        .iter()
        .map(|location| DatanodeId::try_from(location.id.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    tracing::info!(%block, %recovery_id, holders = locations.len(), "leading a block recovery");

    let holders = ask_all(datanode, pool, &block, &command, &locations).await?;
    if holders.is_empty() {
        // No holder has any byte of the block: it is deleted.
        return commit(proxy, &block, recovery_id, 0, true, &[]).await;
    }
    let (length, new_id, participants) = match truncate {
        Some(truncated) => {
            (truncated.length, truncated.id, truncation_participants(&block, &holders, truncated.length)?)
        }
        None => {
            let (length, participants) = choose_length(&block, &holders)?;
            (length, block.id(), participants)
        }
    };
    let mut updated = Vec::new();
    for holder in participants {
        match update(datanode, pool, &block, holder, recovery_id, new_id, length).await {
            Ok(storage) => updated.push((holder.id.clone(), storage)),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(%block, holder = %holder.id.host_name, error, "cannot update a holder's replica");
            }
        }
    }
    if updated.is_empty() {
        return Err(RecoveryError::NoHolderUpdated { block, length });
    }
    commit(proxy, &block, recovery_id, length, false, &updated).await?;
    tracing::info!(%block, %recovery_id, length, holders = updated.len(), "block recovered");
    Ok(())
}

/// Asks all holders. Returns the usable answers.
async fn ask_all(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    command: &RecoveringBlockProto,
    locations: &[DatanodeId],
) -> Result<Vec<Holder>, RecoveryError> {
    let mut answers = Vec::with_capacity(locations.len());
    for id in locations {
        match initiate(datanode, pool, block, command, id).await {
            Err(error) if error.is_recovery_in_progress() => {
                return Err(RecoveryError::Superseded { block: block.clone() });
            }
            Err(error) => {
                let shown: &dyn std::error::Error = &error;
                tracing::warn!(%block, holder = %id.host_name, error = shown, "cannot ask a holder for its replica");
                answers.push(Err(error));
            }
            answer => answers.push(answer),
        }
    }
    usable_answers(block, answers)
}

/// Returns the usable answers: replicas with bytes that are not older than the block.
///
/// If there are none, and some holders could not be asked, only an existing empty replica proves that nothing was
/// acknowledged, since acknowledged bytes are at every holder. A holder without any replica may have lost it.
fn usable_answers(
    block: &ExtendedBlock,
    answers: Vec<Result<Option<Holder>, InitiateError>>,
) -> Result<Vec<Holder>, RecoveryError> {
    let asked = answers.len();
    let answered: Vec<Option<Holder>> = answers.into_iter().flatten().collect();
    let failures = asked - answered.len();
    let is_current = |holder: &Holder| holder.replica.stamp >= block.stamp();
    let current: Vec<Holder> = answered.into_iter().flatten().filter(is_current).collect();
    // A replica that was found empty at its DataNode's start may have been longer before the machine crashed.
    let tells = |holder: &Holder| holder.replica.length > 0 || holder.state != ReplicaState::WaitingToBeRecovered;
    if !current.iter().any(tells) && (failures > 0 || asked == 0) {
        return Err(RecoveryError::NoHolderAnswered { block: block.clone(), failures, holders: asked });
    }
    Ok(current.into_iter().filter(|holder| holder.replica.length > 0).collect())
}

/// Returns the length to agree on, and the participants: finalized replicas take precedence over those being written,
/// and these over those that were being written when their DataNode stopped.
fn choose_length<'a>(block: &ExtendedBlock, holders: &'a [Holder]) -> Result<(u64, Vec<&'a Holder>), RecoveryError> {
    let in_state = |state| holders.iter().filter(move |holder: &&Holder| holder.state == state);
    let finalized: Vec<_> = in_state(ReplicaState::Finalized).collect();
    if let Some(first) = finalized.first() {
        let length = first.replica.length;
        if let Some(other) = finalized.iter().find(|holder| holder.replica.length != length) {
            return Err(RecoveryError::FinalizedDiffer {
                block: block.clone(),
                first: length,
                second: other.replica.length,
            });
        }
        // A replica being written with exactly that length is complete, too.
        let same = in_state(ReplicaState::BeingWritten).filter(|holder| holder.replica.length == length);
        return Ok((length, finalized.into_iter().chain(same).collect()));
    }
    for state in [ReplicaState::BeingWritten, ReplicaState::WaitingToBeRecovered] {
        let participants: Vec<_> = in_state(state).collect();
        // The length that all of them have, because acknowledged bytes are at every holder.
        if let Some(length) = participants.iter().map(|holder| holder.replica.length).min() {
            return Ok((length, participants));
        }
    }
    Err(RecoveryError::NoCandidate { block: block.clone() })
}

/// Returns the participants of a truncation to `length` bytes. A primary that died during an earlier attempt leaves
/// some finalized replicas truncated and others not; both kinds can participate. (Apache's primaries refuse such a
/// block permanently.) So can a replica being written with the same length as a finalized one.
fn truncation_participants<'a>(
    block: &ExtendedBlock,
    holders: &'a [Holder],
    length: u64,
) -> Result<Vec<&'a Holder>, RecoveryError> {
    let is_good = |holder: &&Holder| {
        matches!(holder.state, ReplicaState::Finalized | ReplicaState::BeingWritten) && holder.replica.length >= length
    };
    let participants: Vec<_> = holders.iter().filter(is_good).collect();
    if !participants.iter().any(|holder| holder.state == ReplicaState::Finalized) {
        return Err(RecoveryError::NoCandidate { block: block.clone() });
    }
    Ok(participants)
}

fn is_this_datanode(datanode: &Datanode, id: &DatanodeId) -> bool {
    id.uuid == *datanode.replicas.store.datanode_uuid()
}

async fn target(datanode: &Arc<Datanode>, id: &DatanodeId) -> Result<Target, ConnectError> {
    Ok(Target {
        address: downstream::resolve(&datanode.options, id, id.ipc_port).await?,
        protocol: protocols::INTER_DATANODE,
        user: datanode.options.user.as_str().into(),
    })
}

async fn initiate(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    command: &RecoveringBlockProto,
    id: &DatanodeId,
) -> Result<Option<Holder>, InitiateError> {
    if is_this_datanode(datanode, id) {
        let found =
            replica_recovery::initiate(&datanode.replicas, block, GenerationStamp(command.new_gen_stamp)).await?;
        let id = pool.registered_id().unwrap_or_else(|| id.clone());
        return Ok(found.map(|found| Holder { id, replica: found.block, state: found.original_state }));
    }
    let target = target(datanode, id).await?;
    let request = InitReplicaRecoveryRequestProto { block: command.clone() };
    let answer: InitReplicaRecoveryResponseProto = datanode.rpc.call(&target, "initReplicaRecovery", &request).await?;
    if !answer.replica_found {
        return Ok(None);
    }
    let state = answer.state.and_then(|state| u8::try_from(state).ok()).and_then(ReplicaState::from_number);
    let (Some(state), Some(replica)) = (state, answer.block) else { return Err(InitiateError::Incomplete) };
    Ok(Some(Holder { id: id.clone(), replica: Block::from(replica), state }))
}

/// Returns the storage that now holds the replica.
async fn update(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    holder: &Holder,
    recovery_id: GenerationStamp,
    new_id: BlockId,
    length: u64,
) -> Result<String, InitiateError> {
    let old = ExtendedBlock { pool: block.pool.clone(), block: holder.replica };
    if is_this_datanode(datanode, &holder.id) {
        let replica =
            replica_recovery::update(&datanode.replicas, pool, &old, recovery_id, length, Some(new_id)).await?;
        return Ok(replica.storage.0.as_ref().to_owned());
    }
    let target = target(datanode, &holder.id).await?;
    let request = UpdateReplicaUnderRecoveryRequestProto {
        block: (&old).into(),
        recovery_id: recovery_id.0,
        new_length: length,
        new_block_id: Some(new_id.0 as u64),
    };
    let answer: UpdateReplicaUnderRecoveryResponseProto =
        datanode.rpc.call(&target, "updateReplicaUnderRecovery", &request).await?;
    Ok(answer.storage_uuid.unwrap_or_default())
}

async fn commit(
    proxy: &Proxy,
    block: &ExtendedBlock,
    recovery_id: GenerationStamp,
    length: u64,
    delete: bool,
    updated: &[(DatanodeId, String)],
) -> Result<(), RecoveryError> {
    let request = CommitBlockSynchronizationRequestProto {
        block: block.into(),
        new_gen_stamp: recovery_id.0,
        new_length: length,
        close_file: true,
        delete_block: delete,
        new_targets: updated.iter().map(|(id, _)| DatanodeIdProto::from(id)).collect(),
        new_target_storages: updated.iter().map(|(_, storage)| storage.clone()).collect(),
    };
    Ok(proxy.commit_block_synchronization(&request).await?)
}

#[cfg(test)]
mod tests {
    use hearth_types::BlockPoolId;

    use super::*;

    fn holder(name: &str, state: ReplicaState, length: u64) -> Holder {
        Holder {
            id: DatanodeId::try_from(DatanodeIdProto { datanode_uuid: name.to_owned(), ..Default::default() }).unwrap(),
            replica: Block { id: BlockId(1), stamp: GenerationStamp(5), length },
            state,
        }
    }

    fn agreed(holders: &[Holder]) -> Option<(u64, Vec<&str>)> {
        let pool = BlockPoolId::new("BP-1");
        let block = ExtendedBlock { pool, block: Block { id: BlockId(1), stamp: GenerationStamp(5), length: 0 } };
        let (length, participants) = choose_length(&block, holders).ok()?;
        Some((length, participants.iter().map(|holder| &*holder.id.uuid.0).collect()))
    }

    #[test]
    fn truncation_continues_after_primary_died() {
        use ReplicaState::{BeingWritten, Finalized};
        let pool = BlockPoolId::new("BP-1");
        let block = ExtendedBlock { pool, block: Block { id: BlockId(1), stamp: GenerationStamp(5), length: 0 } };
        let holders = [holder("a", Finalized, 9), holder("b", Finalized, 6), holder("c", Finalized, 5)];
        let named = |holders: Vec<&Holder>| -> Vec<String> {
            holders.iter().map(|holder| holder.id.uuid.0.to_string()).collect()
        };
        assert_eq!(named(truncation_participants(&block, &holders, 6).unwrap()), ["a", "b"]);
        let holders = [holder("a", BeingWritten, 9), holder("b", Finalized, 9), holder("c", BeingWritten, 5)];
        assert_eq!(named(truncation_participants(&block, &holders, 6).unwrap()), ["a", "b"]);
        assert!(
            truncation_participants(&block, &[holder("a", BeingWritten, 9), holder("c", Finalized, 5)], 6).is_err()
        );
    }

    #[test]
    fn only_empty_replica_proves_empty_block() {
        use ReplicaState::BeingWritten;
        let pool = BlockPoolId::new("BP-1");
        let block = ExtendedBlock { pool, block: Block { id: BlockId(1), stamp: GenerationStamp(5), length: 0 } };
        let found = |answers| usable_answers(&block, answers).map(|holders| holders.len()).ok();
        let silent = || Err(InitiateError::Incomplete);
        let replica = |length| Ok(Some(holder("a", BeingWritten, length)));
        assert_eq!(found(vec![replica(7), silent(), Ok(None)]), Some(1));
        assert_eq!(found(vec![replica(0), silent()]), Some(0));
        assert_eq!(found(vec![Ok(None), replica(0)]), Some(0));
        assert_eq!(found(vec![Ok(None), Ok(None)]), Some(0));
        assert_eq!(found(vec![Ok(None), silent()]), None);
        assert_eq!(found(vec![silent(), silent()]), None);
        assert_eq!(found(vec![]), None);
        let after_a_restart = Ok(Some(holder("a", ReplicaState::WaitingToBeRecovered, 0)));
        assert_eq!(found(vec![after_a_restart, silent()]), None);
        // A replica that left the pipeline proves nothing.
        let mut old = holder("a", BeingWritten, 0);
        old.replica.stamp = GenerationStamp(4);
        assert_eq!(found(vec![Ok(Some(old)), silent()]), None);
    }

    #[test]
    fn shortest_replica_of_best_state_decides() {
        use ReplicaState::{BeingWritten, Finalized, Temporary, WaitingToBeRecovered};
        assert_eq!(
            agreed(&[holder("a", BeingWritten, 7), holder("b", Finalized, 9), holder("c", BeingWritten, 9)]),
            Some((9, vec!["b", "c"]))
        );
        assert_eq!(agreed(&[holder("a", Finalized, 9), holder("b", Finalized, 8)]), None);
        assert_eq!(
            agreed(&[holder("a", BeingWritten, 7), holder("b", BeingWritten, 9), holder("c", WaitingToBeRecovered, 3)]),
            Some((7, vec!["a", "b"]))
        );
        assert_eq!(agreed(&[holder("c", WaitingToBeRecovered, 3)]), Some((3, vec!["c"])));
        assert_eq!(agreed(&[holder("c", Temporary, 3)]), None);
    }
}
