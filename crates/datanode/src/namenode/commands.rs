//! Execution of the commands that a NameNode sends. Source: DatanodeProtocol.proto, `DatanodeCommandProto`.

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

/// Maximum number of concurrent copies to other DataNodes; a NameNode orders fewer
/// (`dfs.namenode.replication.max-streams`).
const TRANSFERS_MAX: usize = 64;
/// Maximum number of copies that are running or waiting to run: a NameNode orders further ones again.
const TRANSFERS_WAITING_MAX: usize = 4096;
/// Maximum number of concurrent block recoveries that this DataNode leads.
const RECOVERIES_MAX: usize = 64;
/// Maximum number of recoveries that are running or waiting to run: a NameNode orders further ones again.
const RECOVERIES_WAITING_MAX: usize = 4096;
/// Maximum number of replica lists that wait for deletion. A NameNode orders a thousand deletions with a heartbeat, and
/// does not repeat them.
const DELETIONS_QUEUED_MAX: usize = 1024;

/// Length that means that no DELETED event is wanted. The NameNode uses it for the blocks of deleted files.
const NO_ACK: u64 = i64::MAX as u64;

/// Executes lists of commands one after the other until the session ends. Lists that are still waiting then are
/// dropped, because they are based on the NameNode's knowledge before the next registration.
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
        store: datanode.replicas.store.clone(),
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

/// Queues of one session for commands that take long.
struct CommandQueues {
    /// Waiting tasks hold a weak reference: a command that is still waiting when the session ends is not executed.
    session: Arc<()>,
    deletions: mpsc::Sender<BlockCommandProto>,
    /// More deletions were ordered than `deletions` takes.
    deletions_dropped: Arc<AtomicBool>,
    transfers: Arc<Semaphore>,
    recoveries: Arc<Semaphore>,
    recoveries_waiting: Arc<Semaphore>,
}

/// Executes one command without waiting: a slow disk or another slow DataNode delays no other command.
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
                    tracing::warn!(pool = %pool.id(), "dropping a block recovery: too many are waiting; the namenode will order it again");
                    return;
                };
                let (datanode, pool, proxy) = (datanode.clone(), pool.clone(), proxy.clone());
                let (recoveries, session) = (queues.recoveries.clone(), Arc::downgrade(&queues.session));
                tokio::spawn(async move {
                    let Ok(place) = recoveries.acquire_owned().await else { return };
                    if session.strong_count() == 0 || !pool.is_active(index) {
                        return;
                    }
                    let _counted = datanode.replicas.metrics.count_recovery();
                    block_recovery::lead(&datanode, &pool, &proxy, block).await;
                    drop((place, waiting));
                });
            }
        }
        Type::BalancerBandwidth => {
            if let Some(bandwidth) = command.balancer_cmd.map(|command| command.bandwidth).filter(|rate| *rate > 0) {
                tracing::info!(bytes_per_second = bandwidth, "new bandwidth for the balancer");
                datanode.replicas.balance_throttle.set_rate(bandwidth);
            }
        }
        Type::BlockId => {
            if let Some(command) = command.blk_id_cmd {
                let blocks: Vec<BlockId> = command.block_ids.iter().map(|id| BlockId(*id as i64)).collect();
                match command.action() {
                    block_id_command_proto::Action::Cache => {
                        datanode.cache.cache_blocks(&datanode.replicas.store, pool.id(), &blocks)
                    }
                    block_id_command_proto::Action::Uncache => datanode.cache.uncache(pool.id(), &blocks),
                }
            }
        }
        // No former layout is kept that could be finalized.
        Type::Finalize => {}
        Type::BlockEcReconstruction => {
            tracing::debug!("erasure-coded blocks are not reconstructed here; the namenode asks another datanode");
        }
        // The session itself handles keys and registration.
        Type::KeyUpdate | Type::Register | Type::UnusedUpgrade | Type::NullDatanode => {}
    }
}

/// Queues the deletion of replicas. Sends events for the deletions that the NameNode waits for.
fn invalidate(datanode: &Datanode, pool: &Pool, command: BlockCommandProto, queues: &CommandQueues) {
    let blocks: Vec<BlockId> = command.blocks.iter().map(|block| BlockId(block.block_id as i64)).collect();
    datanode.cache.uncache(pool.id(), &blocks);
    if queues.deletions.try_send(command).is_err() {
        queues.deletions_dropped.store(true, Ordering::Release);
        let pool = pool.id();
        tracing::warn!(%pool, replicas = blocks.len(), "dropping deletions: too many are waiting; check for a hanging disk");
    }
}

/// Deletes the replicas that a NameNode ordered, one list after the other, on threads that may block.
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
            // After a panic or at shutdown, a full report corrects the NameNode's view.
            if let Ok(false) = tokio::task::spawn_blocking(delete_all).await {
                return;
            }
            if lists.is_empty() && this.deletions_dropped.swap(false, Ordering::AcqRel) {
                this.pool.reports(this.index).request_full_report();
            }
        }
    }

    /// Deletes one replica. False: stop deleting. If another NameNode is active now, it relies on the replicas here; if
    /// the session has ended, its NameNode receives a full report.
    fn delete(&self, block: Block) -> bool {
        let is_ordered = self.session.strong_count() > 0 && self.pool.is_active(self.index);
        if is_ordered {
            delete(&self.store, &self.pool, block);
        }
        is_ordered
    }
}

/// Deletes one replica and reports it at once: a replica that is received again must not be reported as deleted after
/// it was reported as received.
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
        Err(error) => tracing::warn!(%block, %error, "cannot delete a replica"),
    }
}

/// Starts the copies that a NameNode orders.
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
                tracing::warn!(%block, %error, "ignoring a copy: the namenode sent an invalid target");
                continue;
            }
        };
        let Some(block) = transferable(datanode, pool, &block) else { continue };
        if datanode.replicas.metrics.transfers() >= TRANSFERS_WAITING_MAX {
            tracing::warn!(%block, "dropping a copy: too many are waiting; the namenode will order it again");
            continue;
        }
        let transfer = Transfer { block, stage: Stage::PipelineSetupCreate, client_name: String::new(), targets };
        // Counted from now on, so that the next heartbeat does not request more than can be done.
        let counted = datanode.replicas.metrics.count_transfer();
        let (datanode, pool, transfers) = (datanode.clone(), pool.clone(), transfers.clone());
        tokio::spawn(async move {
            // Waits here, not earlier: later deletions and recoveries do not wait for an unresponsive target.
            let place = tokio::select! {
                place = transfers.acquire_owned() => place,
                () = datanode.lifecycle.stopping() => return,
            };
            let block = transfer.block.clone();
            let target = transfer.targets[0].datanode.id.clone();
            match transfer::run(&datanode.replicas, &datanode.streams, &pool, transfer).await {
                Ok(()) => tracing::info!(%block, %target, "replica sent"),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(%block, %target, error, "cannot send a replica");
                }
            }
            drop((counted, place));
        });
    }
}

/// Returns the targets with their storages, which older NameNodes do not name.
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

/// Returns the replica with its own length and stamp if it may be sent; otherwise reports the reason to the NameNodes.
fn transferable(datanode: &Datanode, pool: &Pool, block: &ExtendedBlock) -> Option<ExtendedBlock> {
    let replica = datanode.replicas.store.replica(&block.pool, block.id());
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
