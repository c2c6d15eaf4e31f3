//! What a namenode tells this datanode to do. Source: DatanodeProtocol.proto, `DatanodeCommandProto`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use hearth_blockstore::{Blockstore, StoreError};
use hearth_types::{Block, BlockId, ExtendedBlock, ReplicaState, StorageId, StorageType};
use hearth_wire::convert::{ConvertError, storage_type_from_wire};
use hearth_wire::data_transfer::{PipelineTarget, Stage};
use hearth_wire::proto::hdfs::{
    BlockCommandProto, DatanodeCommandProto, DatanodeInfoProto, block_command_proto, block_id_command_proto,
    datanode_command_proto,
};
use tokio::sync::{Semaphore, mpsc};

use super::block_recovery;
use super::proxy::Proxy;
use crate::datanode::Datanode;
use crate::pool::{NamenodeIndex, Pool};
use crate::reports::{Notice, ReplicaEvent};
use crate::transfer::{self, Transfer};

/// Copies to other datanodes that run at once; a namenode gives out fewer (`dfs.namenode.replication.max-streams`).
const TRANSFERS_MAX: usize = 64;
/// Those that wait for one of these places, and those that have one: a namenode orders further ones again.
const TRANSFERS_WAITING_MAX: usize = 4096;
/// Block recoveries that this datanode leads at once.
const RECOVERIES_MAX: usize = 64;
/// Those that wait for one of these places, and those that have one: a namenode orders further ones again.
const RECOVERIES_WAITING_MAX: usize = 4096;
/// Lists of replicas that wait to be deleted: a namenode gives out a thousand with a heartbeat, and not again.
const DELETIONS_QUEUED_MAX: usize = 1024;

/// A length that says: no DELETED event is wanted. The namenode uses it for the blocks of deleted files.
const NO_ACK: u64 = i64::MAX as u64;

/// Carries out lists of commands one after the other, until the conversation ends: what is still waiting then was said of what the
/// namenode knew before the next registration.
pub async fn execute_all(
    datanode: Arc<Datanode>,
    pool: Arc<Pool>,
    index: NamenodeIndex,
    proxy: Proxy,
    mut queue: mpsc::Receiver<Vec<DatanodeCommandProto>>,
) {
    let (deletions, lists) = mpsc::channel(DELETIONS_QUEUED_MAX);
    let deletions_dropped = Arc::new(AtomicBool::new(false));
    let session = Arc::new(());
    let deleting = DeletionWorker {
        store: datanode.store.clone(),
        pool: pool.clone(),
        index,
        session: Arc::downgrade(&session),
        deletions_dropped: deletions_dropped.clone(),
    };
    tokio::spawn(deleting.run(lists));
    let queues = CommandQueues {
        session,
        deletions,
        deletions_dropped,
        transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
        recoveries: Arc::new(Semaphore::new(RECOVERIES_MAX)),
        recoveries_waiting: Arc::new(Semaphore::new(RECOVERIES_WAITING_MAX)),
    };
    while let Some(commands) = queue.recv().await {
        for command in commands {
            if queue.is_closed() {
                return;
            }
            execute(&datanode, &pool, index, &proxy, command, &queues);
        }
    }
}

/// Where what takes long is done, of one conversation.
struct CommandQueues {
    /// Who waits for a place has a weak one: what was ordered is not done when the conversation has ended.
    session: Arc<()>,
    deletions: mpsc::Sender<BlockCommandProto>,
    /// More was to be deleted than `deletions` takes.
    deletions_dropped: Arc<AtomicBool>,
    transfers: Arc<Semaphore>,
    recoveries: Arc<Semaphore>,
    recoveries_waiting: Arc<Semaphore>,
}

/// Waits for nothing: what a disk or another datanode holds up holds up no other command.
fn execute(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    index: NamenodeIndex,
    proxy: &Proxy,
    command: DatanodeCommandProto,
    queues: &CommandQueues,
) {
    use datanode_command_proto::Type;
    let kind = command.cmd_type();
    if !pool.is_active(index) {
        tracing::info!(?kind, "ignoring a command of a namenode that is not active");
        return;
    }
    match kind {
        Type::Block => {
            if let Some(blocks) = command.blk_cmd {
                match blocks.action() {
                    block_command_proto::Action::Transfer => transfer_blocks(datanode, pool, blocks, &queues.transfers),
                    block_command_proto::Action::Invalidate => invalidate(datanode, pool, blocks, queues),
                    // Never sent.
                    block_command_proto::Action::Shutdown => {}
                }
            }
        }
        Type::BlockRecovery => {
            for block in command.recovery_cmd.map(|command| command.blocks).unwrap_or_default() {
                let Ok(waiting) = queues.recoveries_waiting.clone().try_acquire_owned() else {
                    tracing::warn!(pool = %pool.id(), "a block recovery is not begun: too many wait already");
                    return;
                };
                let (datanode, pool, proxy) = (datanode.clone(), pool.clone(), proxy.clone());
                let (recoveries, session) = (queues.recoveries.clone(), Arc::downgrade(&queues.session));
                tokio::spawn(async move {
                    let Ok(place) = recoveries.acquire_owned().await else { return };
                    if session.strong_count() == 0 || !pool.is_active(index) {
                        return;
                    }
                    let _counted = datanode.metrics.count_recovery();
                    block_recovery::lead(&datanode, &pool, &proxy, block).await;
                    drop((place, waiting));
                });
            }
        }
        Type::BalancerBandwidth => {
            if let Some(bandwidth) = command.balancer_cmd.map(|command| command.bandwidth).filter(|rate| *rate > 0) {
                tracing::info!(bytes_per_second = bandwidth, "new bandwidth for the balancer");
                datanode.balance_throttle.set_rate(bandwidth);
            }
        }
        Type::BlockId => {
            if let Some(command) = command.blk_id_cmd {
                let blocks: Vec<BlockId> = command.block_ids.iter().map(|id| BlockId(*id as i64)).collect();
                match command.action() {
                    block_id_command_proto::Action::Cache => {
                        datanode.cache.cache_blocks(&datanode.store, pool.id(), &blocks)
                    }
                    block_id_command_proto::Action::Uncache => datanode.cache.uncache(pool.id(), &blocks),
                }
            }
        }
        // Nothing of a former layout is kept that could be finalized.
        Type::Finalize => {}
        Type::BlockEcReconstruction => {
            tracing::debug!("erasure-coded blocks are not rebuilt here; the namenode asks another datanode");
        }
        // The conversation itself takes keys and registers anew.
        Type::KeyUpdate | Type::Register | Type::UnusedUpgrade | Type::NullDatanode => {}
    }
}

/// Has replicas deleted. Events follow for those whose deletion the namenode waits for.
fn invalidate(datanode: &Datanode, pool: &Pool, command: BlockCommandProto, queues: &CommandQueues) {
    let blocks: Vec<BlockId> = command.blocks.iter().map(|block| BlockId(block.block_id as i64)).collect();
    datanode.cache.uncache(pool.id(), &blocks);
    if queues.deletions.try_send(command).is_err() {
        queues.deletions_dropped.store(true, Ordering::Release);
        let pool = pool.id();
        tracing::warn!(%pool, replicas = blocks.len(), "not deleted, since so many before are not: does a disk hang?");
    }
}

/// What a namenode has ordered to be deleted, one list after the other, in threads that may wait for a disk.
struct DeletionWorker {
    store: Arc<Blockstore>,
    pool: Arc<Pool>,
    index: NamenodeIndex,
    session: Weak<()>,
    deletions_dropped: Arc<AtomicBool>,
}

impl DeletionWorker {
    async fn run(self, mut lists: mpsc::Receiver<BlockCommandProto>) {
        let this = Arc::new(self);
        while let Some(command) = lists.recv().await {
            let deleting = this.clone();
            let delete_all = move || command.blocks.into_iter().all(|block| deleting.delete(Block::from(block)));
            // It panicked, or the datanode ends: a full report tells what is there.
            if let Ok(false) = tokio::task::spawn_blocking(delete_all).await {
                return;
            }
            if lists.is_empty() && this.deletions_dropped.swap(false, Ordering::AcqRel) {
                this.pool.reports(this.index).request_full_report();
            }
        }
    }

    /// False: nothing is to be deleted any more. Another namenode that is active now counts on what is here, and who has ended the conversation
    /// hears what there is.
    fn delete(&self, block: Block) -> bool {
        let is_ordered = self.session.strong_count() > 0 && self.pool.is_active(self.index);
        if is_ordered {
            delete(&self.store, &self.pool, block);
        }
        is_ordered
    }
}

/// Told at once: one that has come again meanwhile must not be called deleted after it was called received.
fn delete(store: &Blockstore, pool: &Pool, block: Block) {
    let Some(result) = store.invalidate(pool.id(), &[block]).pop() else { return };
    match result {
        Ok(replica) => {
            let there = store.replica(pool.id(), block.id);
            let is_there = there.is_some_and(|replica| replica.state != ReplicaState::Temporary);
            if block.length != NO_ACK && !is_there {
                pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Deleted);
            }
        }
        Err(StoreError::ReplicaNotFound { .. }) => {}
        Err(error) => tracing::warn!(%block, %error, "not deleting a replica"),
    }
}

/// Starts the copies that a namenode asks for.
fn transfer_blocks(datanode: &Arc<Datanode>, pool: &Arc<Pool>, command: BlockCommandProto, transfers: &Arc<Semaphore>) {
    let BlockCommandProto { blocks, targets, target_storage_uuids, target_storage_types, .. } = command;
    for (index, block) in blocks.into_iter().map(Block::from).enumerate() {
        let block = ExtendedBlock { pool: pool.id().clone(), block };
        let datanodes = targets.get(index).map(|list| list.datanodes.as_slice()).unwrap_or_default();
        let ids = target_storage_uuids.get(index).map(|list| list.storage_uuids.as_slice()).unwrap_or_default();
        let types = target_storage_types.get(index).map(|list| list.storage_types.as_slice()).unwrap_or_default();
        let targets = match pipeline(datanodes, types, ids) {
            Ok(targets) if !targets.is_empty() => targets,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(%block, %error, "a namenode named a target that makes no sense");
                continue;
            }
        };
        let Some(block) = transferable(datanode, pool, &block) else { continue };
        if datanode.metrics.transfers() >= TRANSFERS_WAITING_MAX {
            tracing::warn!(%block, "a copy is not begun: too many wait already");
            continue;
        }
        let transfer = Transfer { block, stage: Stage::PipelineSetupCreate, client_name: String::new(), targets };
        // Counted from now on, so that the next heartbeat does not ask for more than can be done.
        let counted = datanode.metrics.count_transfer();
        let (datanode, pool, transfers) = (datanode.clone(), pool.clone(), transfers.clone());
        tokio::spawn(async move {
            // Here, not before: deletions and recoveries behind it do not wait for a target that does not answer.
            let place = tokio::select! {
                place = transfers.acquire_owned() => place,
                () = datanode.stopping() => return,
            };
            let block = transfer.block.clone();
            let target = transfer.targets[0].datanode.id.clone();
            match transfer::run(&datanode, &pool, transfer).await {
                Ok(()) => tracing::info!(%block, %target, "replica sent"),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(%block, %target, error, "sending a replica");
                }
            }
            drop((counted, place));
        });
    }
}

/// Targets with their storages, which older namenodes do not name.
fn pipeline(
    datanodes: &[DatanodeInfoProto],
    types: &[i32],
    ids: &[String],
) -> Result<Vec<PipelineTarget>, ConvertError> {
    datanodes
        .iter()
        .enumerate()
        .map(|(index, datanode)| {
            Ok(PipelineTarget {
                datanode: datanode.clone().try_into()?,
                storage_type: types.get(index).map_or(StorageType::Disk, |number| storage_type_from_wire(*number)),
                storage_id: ids.get(index).filter(|id| !id.is_empty()).map(|id| StorageId(id.as_str().into())),
                pinned: false,
            })
        })
        .collect()
}

/// The replica with its own length and stamp, if it may be sent; else the namenodes are told why not.
fn transferable(datanode: &Datanode, pool: &Pool, block: &ExtendedBlock) -> Option<ExtendedBlock> {
    let replica = datanode.store.replica(&block.pool, block.id());
    match replica {
        Some(replica) if replica.state == ReplicaState::Finalized && replica.block.stamp >= block.stamp() => {
            if replica.block.length < block.length() {
                tracing::warn!(%block, length = replica.block.length, "a replica is shorter than its block");
                pool.report_own_bad_replica(block, &replica.storage, replica.storage_type);
                return None;
            }
            Some(ExtendedBlock { pool: block.pool.clone(), block: replica.block })
        }
        _ => {
            let message = format!("Can't send invalid block {block}");
            tracing::warn!("{message}");
            pool.add_notice(&Notice::InvalidBlock { message });
            None
        }
    }
}
