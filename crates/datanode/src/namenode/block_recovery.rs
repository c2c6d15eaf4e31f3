//! Block recovery as the primary datanode: asks every holder of a block that lost its writer how much it has, brings
//! them to one length and stamp, and tells the namenode. Also truncation.
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
use crate::downstream;
use crate::ops::OpError;
use crate::pool::Pool;
use crate::replica_recovery;

/// Why a recovery was given up. The namenode starts another one when this takes too long.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("a newer recovery of {block} is running")]
    Superseded { block: ExtendedBlock },
    #[error("nobody who could be asked has {block}, and {failures} of its {holders} holders could not be asked")]
    NoHolderAnswered { block: ExtendedBlock, failures: usize, holders: usize },
    #[error("no replica of {block} is in a state that could be recovered")]
    NoCandidate { block: ExtendedBlock },
    #[error("finalized replicas of {block} have {first} and {second} bytes")]
    FinalizedDiffer { block: ExtendedBlock, first: u64, second: u64 },
    #[error("no replica of {block} could be brought to {length} bytes")]
    NoHolderUpdated { block: ExtendedBlock, length: u64 },
    #[error("{block} is a group of erasure-coded blocks")]
    Striped { block: ExtendedBlock },
    #[error("the recovery command")]
    Malformed(#[from] hearth_wire::convert::ConvertError),
    #[error("telling the namenode")]
    Commit(#[from] CallError),
}

/// One holder's answer.
struct Holder {
    id: DatanodeId,
    replica: Block,
    state: ReplicaState,
}

/// Asking one holder failed.
#[derive(Debug, thiserror::Error)]
enum InitiateError {
    #[error(transparent)]
    Op(#[from] OpError),
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("the answer says that a replica was found, and nothing of it")]
    Incomplete,
}

impl InitiateError {
    fn is_recovery_in_progress(&self) -> bool {
        match self {
            Self::Op(OpError::Store(StoreError::RecoveryInProgress { .. })) => true,
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
            tracing::warn!(error, "block recovery given up");
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
        // Nobody has a byte of it: the block goes.
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
                tracing::warn!(%block, holder = %holder.id.host_name, error, "a holder could not be updated");
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

/// What the holders say, those whose answers count.
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
                tracing::warn!(%block, holder = %id.host_name, error = shown, "a holder could not be asked");
                answers.push(Err(error));
            }
            answer => answers.push(answer),
        }
    }
    usable_answers(block, answers)
}

/// The answers that count: a replica with bytes, not older than the block.
///
/// None of them, and some who could not be asked: only somebody's empty replica tells then that nothing was acknowledged, since
/// what is acknowledged is with all. One that has no replica at all may have lost it.
fn usable_answers(
    block: &ExtendedBlock,
    answers: Vec<Result<Option<Holder>, InitiateError>>,
) -> Result<Vec<Holder>, RecoveryError> {
    let asked = answers.len();
    let answered: Vec<Option<Holder>> = answers.into_iter().flatten().collect();
    let failures = asked - answered.len();
    let is_current = |holder: &Holder| holder.replica.stamp >= block.stamp();
    let current: Vec<Holder> = answered.into_iter().flatten().filter(is_current).collect();
    // One that its datanode found empty when it started may have been more before the machine went down.
    let tells = |holder: &Holder| holder.replica.length > 0 || holder.state != ReplicaState::WaitingToBeRecovered;
    if !current.iter().any(tells) && (failures > 0 || asked == 0) {
        return Err(RecoveryError::NoHolderAnswered { block: block.clone(), failures, holders: asked });
    }
    Ok(current.into_iter().filter(|holder| holder.replica.length > 0).collect())
}

/// The length to agree on, and who takes part: finalized replicas before those being written, these before those that
/// were being written when their datanode stopped.
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
        // A being-written replica of just that length has everything, too.
        let same = in_state(ReplicaState::BeingWritten).filter(|holder| holder.replica.length == length);
        return Ok((length, finalized.into_iter().chain(same).collect()));
    }
    for state in [ReplicaState::BeingWritten, ReplicaState::WaitingToBeRecovered] {
        let participants: Vec<_> = in_state(state).collect();
        // What all of them have: acknowledged bytes are with every one.
        if let Some(length) = participants.iter().map(|holder| holder.replica.length).min() {
            return Ok((length, participants));
        }
    }
    Err(RecoveryError::NoCandidate { block: block.clone() })
}

/// Who takes part in a truncation to `length` bytes. A primary that died in the middle of an earlier attempt has left some finalized
/// replicas cut and others not: each is good for it. (Apache's primaries refuse such a block for good.) So is a being-written one with
/// as many bytes, beside a finalized one.
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
    id.uuid == *datanode.store.datanode_uuid()
}

async fn target(datanode: &Arc<Datanode>, id: &DatanodeId) -> Result<Target, OpError> {
    Ok(Target {
        address: downstream::resolve(datanode, id, id.ipc_port).await?,
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
        let found = replica_recovery::initiate(datanode, block, GenerationStamp(command.new_gen_stamp)).await?;
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

/// Returns the storage that holds the replica now.
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
        let replica = replica_recovery::update(datanode, pool, &old, recovery_id, length, Some(new_id)).await?;
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
    fn a_truncation_goes_on_where_its_primary_died() {
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
    fn only_an_empty_replica_tells_of_those_who_cannot_be_asked() {
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
        // One that left the pipeline tells nothing.
        let mut old = holder("a", BeingWritten, 0);
        old.replica.stamp = GenerationStamp(4);
        assert_eq!(found(vec![Ok(Some(old)), silent()]), None);
    }

    #[test]
    fn the_best_state_decides_and_the_shortest_of_it() {
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
