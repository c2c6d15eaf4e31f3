use hearth_types::{
    BlockId, DatanodeAdminState, DatanodeInfo, ExtendedBlock, LocatedBlock, StorageId, StorageType, Token,
};

use super::datanodes::StorageIndex;
use super::replicas::Health;
use super::topology::distance;
use super::{BlockMap, DEFAULT_RACK, Now};

/// The reader: locations are sorted by their distance to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReaderLocation<'a> {
    /// Address of the call as text, without a port.
    pub ip: Option<&'a str>,
}

/// One chosen storage with the information that a client needs about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub storage: StorageIndex,
    pub datanode: DatanodeInfo,
    pub storage_id: StorageId,
    pub storage_type: StorageType,
}

/// Limit of client machines whose rack is remembered.
const CLIENT_RACKS_MAX: usize = 100_000;

impl BlockMap {
    pub fn target(&self, storage: StorageIndex) -> Target {
        let known = self.nodes.storage(storage);
        Target {
            storage,
            datanode: self.nodes.info(known.node),
            storage_id: known.id.clone(),
            storage_type: known.storage_type,
        }
    }

    /// Returns the block for a reader: good replicas on live nodes, nearest first, with those on stale and leaving
    /// nodes behind them, and those on disconnected nodes last; the pipeline while the block is being written; the
    /// corrupt replicas, marked as such, if there are no others.
    ///
    /// `offset`: bytes from the start of the file. The token is empty: the operation signs it. `None`: unknown block.
    pub fn locate(&self, block: BlockId, offset: u64, reader: ReaderLocation<'_>, now: Now) -> Option<LocatedBlock> {
        let entry = self.blocks.get(&block)?;
        let extended = ExtendedBlock { pool: self.pool.clone(), block: entry.block() };
        let alive = |storage: &StorageIndex| self.nodes.node_of(*storage).alive;
        let readable = |storage: &StorageIndex| self.nodes.node_of(*storage).is_readable();
        let mut corrupt = false;
        let mut storages: Vec<StorageIndex> = match entry.construction() {
            Some(construction) => construction.expected.iter().map(|expected| expected.storage).filter(alive).collect(),
            None => {
                let of = |health: Health| {
                    let held = entry.replicas().filter(move |replica| replica.health == health);
                    held.map(|replica| replica.storage).filter(readable).collect::<Vec<_>>()
                };
                // Excess replicas may be gone when the reader gets there.
                let live = of(Health::Live);
                if live.is_empty() { of(Health::Excess) } else { live }
            }
        };
        if storages.is_empty() && entry.is_complete() {
            let bad = entry.replicas().filter(|replica| replica.health == Health::Corrupt);
            storages = bad.map(|replica| replica.storage).filter(alive).collect();
            corrupt = !storages.is_empty();
        }
        self.random.shuffle(&mut storages);
        let (machine, rack) = self.place_of(reader.ip);
        storages.sort_by_cached_key(|storage| {
            let node = self.nodes.node_of(*storage);
            let last = node.admin != DatanodeAdminState::Normal
                || (self.settings.avoid_stale_reads && node.is_stale(&self.settings, now));
            // A reader probably fails against a node that is disconnected, and loses time.
            (node.disconnected, last, distance(&machine, &rack, &node.id.ip, &node.rack))
        });
        let mut located = self.located(extended, offset, &storages, corrupt);
        let locked = |storage: &StorageIndex| self.nodes.node_of(*storage).cache.cached.contains(&block);
        if storages.iter().any(locked) {
            located.cached = storages.iter().map(locked).collect();
        }
        Some(located)
    }

    /// Returns the block for its writer (addBlock, append, getAdditionalDatanode): these storages in this order.
    /// `offset`: bytes from the start of the file; `u64::MAX` where Apache says -1.
    pub fn located_for_writer(&self, block: ExtendedBlock, offset: u64, storages: &[StorageIndex]) -> LocatedBlock {
        self.located(block, offset, storages, false)
    }

    fn located(&self, block: ExtendedBlock, offset: u64, storages: &[StorageIndex], corrupt: bool) -> LocatedBlock {
        let targets: Vec<Target> = storages.iter().map(|storage| self.target(*storage)).collect();
        LocatedBlock {
            block,
            offset,
            storage_ids: targets.iter().map(|target| target.storage_id.clone()).collect(),
            storage_types: targets.iter().map(|target| target.storage_type).collect(),
            locations: targets.into_iter().map(|target| target.datanode).collect(),
            advertisements: Vec::new(),
            cached: Vec::new(),
            corrupt,
            token: Token::default(),
        }
    }

    /// Sets the racks, by address, of machines that are not datanodes.
    pub fn set_client_racks(&mut self, racks: std::collections::HashMap<String, String>) {
        self.client_racks = racks;
    }

    /// Sets the rack of one machine that is not a datanode.
    pub fn set_client_rack(&mut self, ip: &str, rack: String) {
        if self.client_racks.len() >= CLIENT_RACKS_MAX {
            self.client_racks.clear();
        }
        self.client_racks.insert(ip.to_owned(), rack);
    }

    /// Returns the machine and rack of a client. A client on no datanode's machine is alone on its machine, in the rack
    /// known for it.
    pub(super) fn place_of(&self, ip: Option<&str>) -> (String, String) {
        let Some(ip) = ip else { return (String::new(), String::new()) };
        match self.nodes.on_machine(ip).first() {
            Some(node) => {
                let node = self.nodes.node(*node);
                (node.id.ip.clone(), node.rack.clone())
            }
            None => (ip.to_owned(), self.client_racks.get(ip).cloned().unwrap_or_else(|| DEFAULT_RACK.to_owned())),
        }
    }
}
