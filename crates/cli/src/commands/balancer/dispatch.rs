//! Execution of one iteration's plan. A task for each source asks the NameNode for blocks, chooses those that may be
//! moved, and has the target DataNodes copy them. Source: Dispatcher.java of Hadoop 3.4.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hearth_client::{
    BlockId, DatanodeInfo, DatanodeUuid, FileSystem, PlacedBlock, ReplicaMove, ReplicaMover, StorageType,
};
use hearth_config::{ConfigError, Configuration, keys};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::plan::keeps_racks;

/// A source with fewer candidates than this asks for more.
const CANDIDATES_MIN: usize = 5;
/// Time for which a DataNode gets no move after one failed.
const DELAY_AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Time after which a source that found no move looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Limits of an iteration, from the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Moves of which a DataNode is the target or the proxy.
    moves_per_datanode: usize,
    moves_max: usize,
    sources_max: usize,
    /// Bytes of blocks to ask for at once.
    request_bytes: u64,
    block_bytes_min: u64,
    hot_interval: Duration,
    iteration_max: Duration,
    no_move_max: Duration,
    /// Zero: until the end of the iteration.
    move_max: Duration,
}

impl Settings {
    pub fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            moves_per_datanode: configuration.get(keys::DFS_DATANODE_BALANCE_MAX_CONCURRENT_MOVES)? as usize,
            moves_max: configuration.get(keys::DFS_BALANCER_MOVER_THREADS)? as usize,
            sources_max: configuration.get(keys::DFS_BALANCER_DISPATCHER_THREADS)? as usize,
            request_bytes: configuration.get(keys::DFS_BALANCER_GETBLOCKS_SIZE)?,
            block_bytes_min: configuration.get(keys::DFS_BALANCER_GETBLOCKS_MIN_BLOCK_SIZE)?,
            hot_interval: configuration.get(keys::DFS_BALANCER_GETBLOCKS_HOT_TIME_INTERVAL)?,
            iteration_max: configuration.get(keys::DFS_BALANCER_MAX_ITERATION_TIME)?,
            no_move_max: configuration.get(keys::DFS_BALANCER_MAX_NO_MOVE_INTERVAL)?,
            move_max: configuration.get(keys::DFS_BALANCER_BLOCK_MOVE_TIMEOUT)?,
        })
    }
}

/// A DataNode of the cluster.
#[derive(Clone, Debug)]
pub struct Node {
    pub info: DatanodeInfo,
    /// May be the target or the proxy of a move.
    pub takes_part: bool,
}

/// What a source moves.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    /// Index of the source.
    pub node: usize,
    pub storage_type: StorageType,
    /// Targets by index, each with the bytes to move there.
    pub targets: Vec<(usize, u64)>,
}

/// Moves of a DataNode.
#[derive(Clone, Copy, Default, Debug)]
struct Load {
    moves: usize,
    delayed_until: Option<Instant>,
}

/// State that the tasks of all sources share.
struct Shared {
    fs: FileSystem,
    mover: Arc<ReplicaMover>,
    settings: Settings,
    nodes: Vec<Node>,
    by_uuid: HashMap<DatanodeUuid, usize>,
    deadline: Instant,
    loads: Mutex<Vec<Load>>,
    /// Blocks of which a replica was moved in this iteration, or is being moved.
    taken: Mutex<HashSet<BlockId>>,
    moved_bytes: Arc<AtomicU64>,
    moves: Semaphore,
    sources: Semaphore,
}

/// A chosen move. Its target and its proxy have a slot for it.
struct Chosen {
    replica: ReplicaMove,
    target: usize,
    proxy: usize,
    /// Index in the targets of the source.
    task: usize,
}

/// Carries out the plans of all sources, and waits for the moves. `moved_bytes` counts the moved bytes.
pub async fn dispatch(
    fs: &FileSystem,
    mover: &Arc<ReplicaMover>,
    settings: &Settings,
    nodes: Vec<Node>,
    plans: Vec<SourcePlan>,
    moved_bytes: &Arc<AtomicU64>,
) {
    let by_uuid = nodes.iter().enumerate().map(|(index, node)| (node.info.id.uuid.clone(), index)).collect();
    let shared = Arc::new(Shared {
        fs: fs.clone(),
        mover: Arc::clone(mover),
        settings: settings.clone(),
        by_uuid,
        deadline: Instant::now() + settings.iteration_max,
        loads: Mutex::new(vec![Load::default(); nodes.len()]),
        nodes,
        taken: Mutex::default(),
        moved_bytes: Arc::clone(moved_bytes),
        moves: Semaphore::new(settings.moves_max),
        sources: Semaphore::new(settings.sources_max),
    });
    // Dropped with the future: all tasks end then.
    let mut tasks = JoinSet::new();
    for plan in plans {
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            let Ok(_place) = shared.sources.acquire().await else { return };
            move_from(&shared, plan).await;
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// Moves blocks away from one source until nothing is left to schedule, nothing can be moved, or the time is over.
async fn move_from(shared: &Arc<Shared>, mut plan: SourcePlan) {
    let scheduled: u64 = plan.targets.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
    // Many of the blocks cannot be moved.
    let mut to_receive = scheduled.saturating_mul(2);
    let mut candidates: Vec<PlacedBlock> = Vec::new();
    let mut moves = JoinSet::new();
    let mut last_move = Instant::now();
    while !plan.targets.is_empty() && Instant::now() < shared.deadline && (!candidates.is_empty() || to_receive > 0) {
        while moves.try_join_next().is_some() {}
        if let Some(chosen) = shared.choose(&plan, &mut candidates) {
            let left = &mut plan.targets[chosen.task].1;
            *left = left.saturating_sub(chosen.replica.block.length);
            if *left == 0 {
                plan.targets.remove(chosen.task);
            }
            last_move = Instant::now();
            let shared = Arc::clone(shared);
            moves.spawn(async move { shared.carry_out(chosen).await });
            continue;
        }
        shared.keep_movable(&plan, &mut candidates);
        if candidates.len() < CANDIDATES_MIN && to_receive > 0 {
            match shared.ask(&plan, to_receive).await {
                Ok(blocks) => {
                    let received = blocks.iter().map(|block| block.block.length).fold(0, u64::saturating_add);
                    if received == 0 {
                        break;
                    }
                    to_receive = to_receive.saturating_sub(received);
                    // The NameNode begins anywhere, so it may repeat blocks.
                    candidates = blocks;
                    shared.keep_movable(&plan, &mut candidates);
                }
                Err(error) => {
                    let source = &shared.nodes[plan.node].info.id;
                    tracing::warn!(%source, %error, "cannot get blocks of a source");
                    break;
                }
            }
            continue;
        }
        if moves.is_empty() && last_move.elapsed() > shared.settings.no_move_max {
            tracing::info!(source = %shared.nodes[plan.node].info.id, "no block can be moved from this source now");
            break;
        }
        tokio::select! {
            _ = moves.join_next(), if !moves.is_empty() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
    while moves.join_next().await.is_some() {}
}

/// Locks a value that is consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Asks the NameNode for blocks of the source that are candidates.
    async fn ask(&self, plan: &SourcePlan, bytes: u64) -> Result<Vec<PlacedBlock>, hearth_client::Error> {
        let settings = &self.settings;
        let bytes = bytes.min(settings.request_bytes);
        let source = &self.nodes[plan.node].info.id;
        self.fs.blocks_of(source, bytes, settings.block_bytes_min, settings.hot_interval, plan.storage_type).await
    }

    /// Removes candidates that no target may get, or that are not on the source.
    fn keep_movable(&self, plan: &SourcePlan, candidates: &mut Vec<PlacedBlock>) {
        let source = &self.nodes[plan.node].info.id.uuid;
        let taken = lock(&self.taken);
        candidates.retain(|block| {
            let is_there = block.replicas.iter().any(|(uuid, kind)| uuid == source && *kind == plan.storage_type);
            let has_target = || plan.targets.iter().any(|(target, _)| self.may_move(block, plan.node, *target));
            is_there && !taken.contains(&block.block.id) && has_target()
        });
    }

    /// Chooses a block, its target and its proxy, and takes the block out of `candidates`.
    fn choose(&self, plan: &SourcePlan, candidates: &mut Vec<PlacedBlock>) -> Option<Chosen> {
        let source = &self.nodes[plan.node].info;
        let mut taken = lock(&self.taken);
        let mut loads = lock(&self.loads);
        let now = Instant::now();
        let is_free = |load: &Load| {
            load.moves < self.settings.moves_per_datanode && load.delayed_until.is_none_or(|until| until <= now)
        };
        for (task, (target, _)) in plan.targets.iter().enumerate() {
            if !is_free(&loads[*target]) {
                continue;
            }
            let rack = &self.nodes[*target].info.location;
            let found = candidates.iter().enumerate().find_map(|(at, block)| {
                if taken.contains(&block.block.id) || !self.may_move(block, plan.node, *target) {
                    return None;
                }
                let holders = block.replicas.iter().filter_map(|(uuid, _)| self.by_uuid.get(uuid).copied());
                let proxies = holders.filter(|holder| {
                    (self.nodes[*holder].takes_part || *holder == plan.node) && is_free(&loads[*holder])
                });
                Some((at, proxies.max_by_key(|holder| self.nodes[*holder].info.location == *rack)?))
            });
            let Some((at, proxy)) = found else { continue };
            let block = candidates.swap_remove(at).block;
            taken.insert(block.id);
            loads[*target].moves += 1;
            loads[proxy].moves += 1;
            let replica = ReplicaMove {
                block,
                source: source.id.uuid.clone(),
                proxy: self.nodes[proxy].info.clone(),
                target: self.nodes[*target].info.clone(),
                storage_type: plan.storage_type,
            };
            return Some(Chosen { replica, target: *target, proxy, task });
        }
        None
    }

    /// Returns whether the target has no replica of the block, and the move keeps the number of racks.
    fn may_move(&self, block: &PlacedBlock, source: usize, target: usize) -> bool {
        let holders: Vec<usize> =
            block.replicas.iter().filter_map(|(uuid, _)| self.by_uuid.get(uuid).copied()).collect();
        let rack = |node: usize| self.nodes[node].info.location.as_str();
        let racks: Vec<&str> = holders.iter().map(|holder| rack(*holder)).collect();
        !holders.contains(&target) && keeps_racks(&racks, rack(source), rack(target))
    }

    /// Has the target copy the replica, and releases the slots.
    async fn carry_out(&self, chosen: Chosen) {
        let Ok(_place) = self.moves.acquire().await else { return };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let limit = match self.settings.move_max {
            Duration::ZERO => left,
            limit => limit.min(left),
        };
        let replica = &chosen.replica;
        let outcome = self.mover.move_replica(replica, limit).await;
        let mut loads = lock(&self.loads);
        for node in [chosen.target, chosen.proxy] {
            loads[node].moves = loads[node].moves.saturating_sub(1);
            if outcome.is_err() {
                loads[node].delayed_until = Some(Instant::now() + DELAY_AFTER_FAILURE);
            }
        }
        match outcome {
            Ok(()) => {
                self.moved_bytes.fetch_add(replica.block.length, Ordering::Relaxed);
                tracing::info!(block = %replica.block.id, target = %replica.target.id, "moved a replica");
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(block = %replica.block.id, "failed to move a replica: {error:#}");
            }
        }
    }
}
