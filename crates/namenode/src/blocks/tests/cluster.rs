use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hearth_types::{
    Block, BlockId, BlockPoolId, DatanodeId, DatanodeUuid, GenerationStamp, ReplicaState, StorageId, StorageReport,
    StorageType,
};
use hearth_wire::block_report::ReportedReplica;

use crate::blocks::*;

pub const BLOCK_SIZE: u64 = 1 << 20;

/// A replica on a simulated disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnDisk {
    pub stamp: u64,
    pub length: u64,
    pub state: ReplicaState,
    /// Its bytes are wrong, although it is reported as good.
    pub rotten: bool,
}

pub struct Node {
    pub id: DatanodeId,
    pub rack: String,
    pub up: bool,
    pub registered: bool,
    pub reported: bool,
    pub disk: BTreeMap<i64, OnDisk>,
    pub room: u64,
    pub xceivers: u32,
    /// The answers to its heartbeats are lost.
    pub deaf: bool,
    /// The node calls awaitWork.
    pub awaits: bool,
    /// Received commands that it has not been asked to carry out yet.
    pub transfers: Vec<TransferTask>,
    pub recoveries: Vec<RecoveryTask>,
    /// Bytes that it can lock in memory.
    pub lockable: u64,
    pub locked: BTreeSet<BlockId>,
}

impl Node {
    pub fn storage(&self) -> StorageId {
        StorageId(format!("DS-{}", self.id.uuid).into())
    }
}

/// A namenode's block map with simulated datanodes and a clock.
pub struct Cluster {
    pub map: BlockMap,
    pub nodes: Vec<Node>,
    pub now: Now,
    pub next: i64,
    pub stamp: u64,
}

pub fn node_id(nth: usize) -> DatanodeId {
    DatanodeId {
        ip: format!("10.0.0.{}", nth + 1),
        host_name: format!("host{}", nth + 1),
        uuid: DatanodeUuid(format!("uuid-{nth}").into()),
        transfer_port: 9866,
        info_port: 9864,
        ipc_port: 9867,
        info_secure_port: 0,
    }
}

impl Cluster {
    /// Creates one node per given rack, all registered and reported; out of safe mode.
    pub fn new(racks: &[&str]) -> Self {
        Self::with(racks, BlockSettings::default())
    }

    pub fn with(racks: &[&str], settings: BlockSettings) -> Self {
        let mut cluster = Self::empty(settings);
        cluster.map.restored(cluster.now);
        for rack in racks {
            cluster.add(rack);
        }
        cluster
    }

    pub fn empty(settings: BlockSettings) -> Self {
        let now = Now { wall_ms: 1_700_000_000_000, monotonic: Duration::from_secs(1000) };
        let map = BlockMap::new(BlockPoolId::new("BP-1-10.0.0.100-1700000000000"), settings, 7);
        Self { map, nodes: Vec::new(), now, next: 1 << 30, stamp: 1000 }
    }

    pub fn add(&mut self, rack: &str) -> usize {
        let nth = self.nodes.len();
        self.nodes.push(Node {
            id: node_id(nth),
            rack: rack.to_owned(),
            up: true,
            registered: false,
            reported: false,
            disk: BTreeMap::new(),
            room: 100 * BLOCK_SIZE,
            xceivers: 0,
            deaf: false,
            awaits: false,
            transfers: Vec::new(),
            recoveries: Vec::new(),
            lockable: 10 * BLOCK_SIZE,
            locked: BTreeSet::new(),
        });
        self.beat(nth);
        nth
    }

    pub fn pass(&mut self, by: Duration) {
        self.now.wall_ms += by.as_millis() as u64;
        self.now.monotonic += by;
    }

    /// One heartbeat of a node that is up, with registration and full report if they are due; obeys invalidations at
    /// once.
    pub fn beat(&mut self, nth: usize) {
        if !self.nodes[nth].up {
            return;
        }
        if !self.nodes[nth].registered {
            let node = &self.nodes[nth];
            let registration = Registration {
                id: node.id.clone(),
                software_version: "3.4.2".into(),
                rack: node.rack.clone(),
                offer: None,
            };
            self.map.register(registration, self.now).unwrap();
            self.nodes[nth].registered = true;
            self.nodes[nth].reported = false;
        }
        let node = &self.nodes[nth];
        let locked: u64 = node.locked.iter().map(|block| node.disk[&block.0].length).sum();
        let used: u64 = node.disk.values().map(|replica| replica.length).sum();
        let heartbeat = Heartbeat {
            storages: vec![StorageReport {
                storage: node.storage(),
                storage_type: StorageType::Disk,
                failed: false,
                capacity: node.room,
                dfs_used: used,
                remaining: node.room.saturating_sub(used),
                block_pool_used: used,
                non_dfs_used: 0,
            }],
            transmits: node.transfers.len() as u32,
            xceivers: node.xceivers,
            failed_volumes: 0,
            cache_capacity: node.lockable,
            cache_used: locked,
            wants_report_lease: !node.reported,
        };
        let answer = self.map.heartbeat(&node.id.clone(), heartbeat, self.now).unwrap();
        let is_heard =
            |command: &DatanodeCommand| !self.nodes[nth].deaf || matches!(command, DatanodeCommand::Register);
        let heard: Vec<_> = answer.commands.into_iter().filter(is_heard).collect();
        for command in heard {
            match command {
                DatanodeCommand::Register => {
                    self.nodes[nth].registered = false;
                    return self.beat(nth);
                }
                DatanodeCommand::Invalidate(blocks) => blocks.into_iter().for_each(|block| self.delete(nth, block)),
                DatanodeCommand::Transfer(tasks) => self.nodes[nth].transfers.extend(tasks),
                DatanodeCommand::Recover(tasks) => self.nodes[nth].recoveries.extend(tasks),
                DatanodeCommand::Cache(blocks) => self.lock(nth, &blocks),
                DatanodeCommand::Uncache(blocks) => {
                    self.nodes[nth].locked.retain(|block| !blocks.contains(block));
                    self.report_locked(nth);
                }
                DatanodeCommand::UpdateKeys | DatanodeCommand::BalancerBandwidth(_) => {}
            }
        }
        if answer.report_lease != 0 {
            self.report(nth, answer.report_lease);
        }
        if self.nodes[nth].awaits {
            // The receiver is dropped: the node sends heartbeats at its own interval all the same.
            let _ = self.map.await_work(&self.nodes[nth].id.clone());
        }
    }

    /// Locks the blocks that it has and has room for.
    fn lock(&mut self, nth: usize, blocks: &[BlockId]) {
        let node = &mut self.nodes[nth];
        for block in blocks {
            let taken: u64 = node.locked.iter().map(|block| node.disk[&block.0].length).sum();
            if node.disk.get(&block.0).is_some_and(|replica| taken + replica.length <= node.lockable) {
                node.locked.insert(*block);
            }
        }
        self.report_locked(nth);
    }

    pub fn report_locked(&mut self, nth: usize) {
        let node = &self.nodes[nth];
        let locked: Vec<BlockId> = node.locked.iter().copied().collect();
        self.map.cache_report(&node.id.clone(), &locked).unwrap();
    }

    pub fn report(&mut self, nth: usize, lease: u64) {
        self.nodes[nth].reported = true;
        let contents = self.contents(nth);
        self.book_report(nth, lease, &contents);
    }

    /// Contents of a node's full report made now.
    pub fn contents(&self, nth: usize) -> Vec<StorageContents> {
        let node = &self.nodes[nth];
        let replicas = node
            .disk
            .iter()
            .map(|(id, on_disk)| ReportedReplica { block: block_of(*id, on_disk), state: on_disk.state })
            .collect();
        vec![StorageContents { storage: node.storage(), storage_type: StorageType::Disk, replicas }]
    }

    /// Delivers a full report.
    pub fn book_report(&mut self, nth: usize, lease: u64, contents: &[StorageContents]) {
        let context = Some(ReportContext { calls: 1, call: 0, lease });
        self.map.full_report(&self.nodes[nth].id, context, contents, self.now).unwrap();
    }

    /// Deletes like a datanode: only the given stamp.
    fn delete(&mut self, nth: usize, block: Block) {
        let node = &mut self.nodes[nth];
        if node.disk.get(&block.id.0).is_some_and(|on_disk| on_disk.stamp == block.stamp.0) {
            node.disk.remove(&block.id.0);
            if block.length != NO_ACKNOWLEDGEMENT {
                self.event(nth, ReplicaEvent::Deleted(block));
            }
        }
    }

    pub fn event(&mut self, nth: usize, event: ReplicaEvent) {
        let node = &self.nodes[nth];
        let (id, storage) = (node.id.clone(), node.storage());
        // An unregistered node's events are lost; it reports everything when it registers.
        let _ = self.map.replica_events(&id, &storage, StorageType::Disk, &[event], self.now);
    }

    /// Puts a finalized replica on a node's disk and reports it.
    pub fn receive(&mut self, nth: usize, block: Block) {
        let on_disk =
            OnDisk { stamp: block.stamp.0, length: block.length, state: ReplicaState::Finalized, rotten: false };
        self.nodes[nth].disk.insert(block.id.0, on_disk);
        self.event(nth, ReplicaEvent::Received { block, delete_hint: None });
    }

    /// Carries out the transfers that were assigned to a node.
    pub fn transfer(&mut self, nth: usize) {
        for task in std::mem::take(&mut self.nodes[nth].transfers) {
            let block = task.block.block;
            let Some(source) = self.nodes[nth].disk.get(&block.id.0).copied() else { continue };
            if source.stamp != block.stamp.0 || source.rotten {
                continue;
            }
            for target in task.targets {
                let to = self.nth(&target.datanode.id);
                if self.nodes[to].up && self.nodes[to].registered {
                    self.receive(to, block);
                }
            }
        }
    }

    pub fn nth(&self, id: &DatanodeId) -> usize {
        self.nodes.iter().position(|node| node.id == *id).unwrap()
    }

    pub fn nth_of(&self, storage: StorageIndex) -> usize {
        self.nth(&self.map.target(storage).datanode.id)
    }

    /// Creates a complete block of `length` bytes on the nodes that placement chooses.
    pub fn write(&mut self, replication: u16, length: u64) -> (Block, Vec<usize>) {
        let targets = self.open(replication);
        let block = Block { length, ..targets.0 };
        for nth in &targets.1 {
            self.receive(*nth, block);
        }
        self.map.commit(block, self.now).unwrap();
        (block, targets.1)
    }

    /// Creates a block under construction with its pipeline.
    pub fn open(&mut self, replication: u16) -> (Block, Vec<usize>) {
        let request = PlacementRequest {
            additional: usize::from(replication),
            block_size: BLOCK_SIZE,
            ..PlacementRequest::default()
        };
        let targets = self.map.allocate_targets(&request, self.now).unwrap();
        let block = self.new_block();
        self.map.begin(block, 16386, replication, 0, &targets);
        let nodes: Vec<usize> = targets.iter().map(|target| self.nth_of(*target)).collect();
        for nth in &nodes {
            self.writing(*nth, block);
        }
        (block, nodes)
    }

    pub fn writing(&mut self, nth: usize, block: Block) {
        let on_disk =
            OnDisk { stamp: block.stamp.0, length: block.length, state: ReplicaState::BeingWritten, rotten: false };
        self.nodes[nth].disk.insert(block.id.0, on_disk);
        self.event(nth, ReplicaEvent::Receiving(block));
    }

    pub fn new_block(&mut self) -> Block {
        self.next += 1;
        self.stamp += 1;
        Block { id: BlockId(self.next), stamp: GenerationStamp(self.stamp), length: 0 }
    }

    pub fn new_stamp(&mut self) -> GenerationStamp {
        self.stamp += 1;
        GenerationStamp(self.stamp)
    }

    /// Lets time pass with all nodes sending heartbeats, all transfers done, and ticks.
    pub fn run(&mut self, seconds: u64) {
        for second in 0..seconds {
            self.pass(Duration::from_secs(1));
            self.map.tick(self.now);
            for nth in 0..self.nodes.len() {
                if self.nodes[nth].up {
                    self.transfer(nth);
                    if second % 3 == 0 {
                        self.beat(nth);
                    }
                }
            }
        }
    }

    /// Nodes with a good replica of the block on their disks, up or not.
    pub fn good(&self, block: Block) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|nth| {
                self.nodes[*nth].disk.get(&block.id.0).is_some_and(|on_disk| {
                    on_disk.stamp == block.stamp.0
                        && on_disk.length == block.length
                        && !on_disk.rotten
                        && on_disk.state == ReplicaState::Finalized
                })
            })
            .collect()
    }
}

pub fn block_of(id: i64, on_disk: &OnDisk) -> Block {
    Block { id: BlockId(id), stamp: GenerationStamp(on_disk.stamp), length: on_disk.length }
}
