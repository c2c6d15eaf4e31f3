//! The block map: the datanodes that hold each block, and the work that follows from it.
//!
//! [`BlockMap`] is a state machine without I/O, without async and without a clock: time comes in as [`Now`], randomness
//! as a seed, and every method returns at once. It lives inside the namenode's one lock. Nothing in it is durable: the
//! namespace keeps the identity of blocks (id, stamp, length), and their locations are learnt again from the datanodes'
//! reports after every start (see `safe_mode.rs`).
//!
//! ```text
//!             begin                    commit                 first reports
//! (placement) ────> UNDER_CONSTRUCTION ────────> COMMITTED ──────────────────> COMPLETE
//!                     ^      │ start_recovery        ^                            │
//!                     │      v                       │ commit_synchronization     │
//!                     │   UNDER_RECOVERY ────────────┘                            │
//!                     └───────────────────── reopen (append, truncate) ───────────┘
//! ```
//!
//! Files: `life_cycle.rs` has these steps, `reports.rs` the datanodes' reports of replicas, `placement.rs` the choice
//! of targets, `redundancy.rs` the repair of lost replicas, `pending_replications.rs` the repairs under way,
//! `datanodes.rs` the table of nodes, `connections.rs` the nodes whose connections have ended, `advertised.rs` the memory
//! that they announced, `cache.rs` the replicas that they keep locked in memory.

mod advertised;
mod block_info;
mod cache;
mod connections;
mod corrupt_replicas;
mod datanodes;
mod error;
mod excess;
mod heartbeat;
mod hosts;
mod invalidations;
mod life_cycle;
mod locate;
mod packed_block;
mod pending_replications;
mod pending_work;
mod placement;
mod policy;
mod random;
mod recovery;
mod redundancy;
mod registration;
mod replicas;
mod report_leases;
mod reports;
mod safe_mode;
mod settings;
mod statistics;
mod storages;
mod table;
#[cfg(test)]
mod tests;
mod topology;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hearth_types::{BlockId, BlockPoolId, Clock, GenerationStamp};

pub use advertised::{ADVERTISEMENTS_PER_ANSWER_MAX, AdvertisementStatistics};
pub use block_info::BlockState;
pub use cache::WantedCopies;
pub use connections::ConnectionId;
pub use datanodes::{DatanodeIndex, StorageIndex};
pub use error::BlockError;
pub use heartbeat::{
    DatanodeCommand, Disallowed, Heartbeat, HeartbeatAnswer, NO_ACKNOWLEDGEMENT, TransferTask, WorkWait,
};
pub use hosts::{HostEntry, HostLists};
pub use life_cycle::{ReplicaWait, RestoredBlocks};
pub use locate::{ReaderLocation, Target};
pub use pending_work::{DatanodeWork, PendingReplicas};
pub use placement::PlacementRequest;
pub use policy::{POLICIES, StoragePolicy};
pub use recovery::{MissingBytes, RecoveryTask};
pub use registration::{Registration, RegistrationError};
pub use reports::{ReplicaEvent, ReportContext, ReportError, StorageContents};
pub use safe_mode::StartupSafeMode;
pub use settings::BlockSettings;
pub use statistics::{BlockReport, ClusterStatistics, DatanodeFilter, DatanodeReport, ReplicaReport};
pub use storages::initial_storages;
pub use topology::{DEFAULT_RACK, normalized_rack};

use datanodes::Datanodes;
use random::Random;
use redundancy::Redundancy;
use report_leases::ReportLeases;
use table::BlockTable;

/// One moment on both clocks: `wall_ms` for files, tokens and reports, `monotonic` for intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub wall_ms: u64,
    /// Time since an arbitrary start; never goes back.
    pub monotonic: Duration,
}

impl Now {
    pub fn of(clock: &dyn Clock) -> Self {
        Self { wall_ms: clock.wall_ms(), monotonic: clock.monotonic() }
    }
}

/// Every block of the namespace, every datanode, and the work that follows from both. See the module's documentation.
pub struct BlockMap {
    pool: BlockPoolId,
    settings: BlockSettings,
    random: Random,
    blocks: BlockTable,
    /// Blocks that are under construction, under recovery or committed: few, and searched when a datanode goes.
    open: HashSet<BlockId>,
    /// Open blocks that may have replicas on storages that the map does not know (`Construction::missing`): searched
    /// when a storage comes.
    with_missing: HashSet<BlockId>,
    /// Number of visits of blocks in walks over `open` and `with_missing`.
    #[cfg(test)]
    visited_open_blocks: usize,
    nodes: Datanodes,
    /// Known racks of machines that are not datanodes.
    client_racks: HashMap<String, String>,
    hosts: HostLists,
    decommissions: hosts::Decommissions,
    report_leases: ReportLeases,
    advertisements: advertised::Advertisements,
    safe_mode: safe_mode::SafeModeState,
    redundancy: Redundancy,
    corrupt_replicas: corrupt_replicas::CorruptReplicas,
    /// Set while a received replica is recorded: the node whose copy the balancer wants deleted.
    delete_hints: HashMap<BlockId, DatanodeIndex>,
    /// Monotonic time before which no replica is deleted (`dfs.namenode.startup.delay.block.deletion.sec`).
    deletions_from: Duration,
    /// Monotonic time at which the store had been read: datanodes report from then on.
    restored: Duration,
    storages: storages::KnownStorages,
    /// The newest stamp ever issued.
    newest_stamp: GenerationStamp,
    replica_waiters: life_cycle::ReplicaWaiters,
    /// Number of times since the start that a datanode was given up for lack of heartbeats.
    expired_heartbeats: u64,
    /// Number of copies given up since the start because they were not reported in time.
    timed_out_copies: u64,
}

impl BlockMap {
    /// Creates an empty map. `seed`: the source of every random choice; equal seeds make equal choices.
    pub fn new(pool: BlockPoolId, settings: BlockSettings, seed: u64) -> Self {
        Self {
            pool,
            settings,
            random: Random::new(seed),
            blocks: BlockTable::default(),
            open: HashSet::new(),
            with_missing: HashSet::new(),
            #[cfg(test)]
            visited_open_blocks: 0,
            nodes: Datanodes::default(),
            client_racks: HashMap::new(),
            hosts: HostLists::default(),
            decommissions: hosts::Decommissions::default(),
            report_leases: ReportLeases::default(),
            advertisements: advertised::Advertisements::default(),
            safe_mode: safe_mode::SafeModeState::default(),
            redundancy: Redundancy::default(),
            corrupt_replicas: corrupt_replicas::CorruptReplicas::default(),
            delete_hints: HashMap::new(),
            deletions_from: Duration::ZERO,
            restored: Duration::ZERO,
            storages: storages::KnownStorages::default(),
            newest_stamp: GenerationStamp(0),
            replica_waiters: life_cycle::ReplicaWaiters::default(),
            expired_heartbeats: 0,
            timed_out_copies: 0,
        }
    }

    pub fn pool(&self) -> &BlockPoolId {
        &self.pool
    }

    pub fn settings(&self) -> &BlockSettings {
        &self.settings
    }

    /// Returns the settings for a change at run time. Each use reads the current value.
    pub(crate) fn settings_mut(&mut self) -> &mut BlockSettings {
        &mut self.settings
    }

    /// The newest stamp that was issued.
    pub fn newest_stamp(&self) -> GenerationStamp {
        self.newest_stamp
    }

    /// Records the newest issued stamp of the store: replicas with newer stamps are from another time. Call it before
    /// [`BlockMap::restored`]; later stamps are recorded when they are used.
    pub fn note_stamp(&mut self, stamp: GenerationStamp) {
        self.newest_stamp = self.newest_stamp.max(stamp);
    }
}
