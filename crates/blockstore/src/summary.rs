use std::path::PathBuf;
use std::time::Duration;

use hearth_types::{Block, ExtendedBlock, ReplicaState, StorageId, StorageType};

/// One storage of this datanode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageSummary {
    pub id: StorageId,
    pub storage_type: StorageType,
    pub dir: PathBuf,
    pub failed: bool,
    /// Of its file system, not for HDFS.
    pub reserved_bytes: u64,
    /// Finalized ones, of all pools.
    pub replicas: u64,
}

/// A replica after an operation, and where it is: what a RECEIVING or RECEIVED event carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaSummary {
    pub block: ExtendedBlock,
    pub storage: StorageId,
    pub storage_type: StorageType,
}

/// What is known of one replica at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaInfo {
    /// Length: bytes received (the length that reports carry).
    pub block: Block,
    /// UNDER_RECOVERY replicas say so; reports list `reported_state`.
    pub state: ReplicaState,
    /// The state before recovery began; else `state`.
    pub reported_state: ReplicaState,
    /// Bytes that readers may rely on: acknowledged ones of a replica being written. `None`: not readable.
    pub visible_length: Option<u64>,
    pub storage: StorageId,
    pub storage_type: StorageType,
    pub in_memory: bool,
    /// Whole and current on disk.
    pub on_disk: bool,
}

/// The replicas of one storage, as a full block report lists them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageReplicas {
    pub storage: StorageId,
    pub storage_type: StorageType,
    /// Not the TEMPORARY ones.
    pub replicas: Vec<(Block, ReplicaState)>,
}

/// Answer to the first step of block recovery. Source: InterDatanodeProtocol.proto, `InitReplicaRecoveryResponseProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryInfo {
    /// Id, stamp, bytes received.
    pub block: Block,
    /// State before the recovery.
    pub original_state: ReplicaState,
}

/// What `attach_pool` found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolSummary {
    pub replicas: u64,
    pub bytes: u64,
    /// Replicas found in memory.
    pub in_memory: u64,
    /// Replicas whose newest bytes were in memory only.
    pub dirty: u64,
    /// Set when a memory tier did not belong to its disk and was put aside.
    pub quarantined: bool,
}

/// Things that happen behind the caller's back; fetched by `Blockstore::take_events`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// No good copy is left here; it is not served any more. To be reported to the namenode.
    Corrupt { block: ExtendedBlock, storage: StorageId, storage_type: StorageType },
    /// Its files are gone from the disk, and it from the store. To be reported to the namenode.
    Missing(ReplicaSummary),
    /// A storage is out of use; its replicas are no longer listed.
    /// `storage` is `None` when it could not even be read which one it is.
    VolumeFailed { storage: Option<StorageId>, dir: PathBuf, reason: String, capacity_lost: u64 },
    /// A finalized replica has left a failed storage for this one. To be reported to the namenode.
    Moved(ReplicaSummary),
}

/// How far `flush_all` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushProgress {
    pub replicas_done: u64,
    pub replicas_left: u64,
    pub bytes_done: u64,
    pub bytes_left: u64,
    /// Could not be written, or came while the others were; they stay in memory.
    pub failures: u64,
}

/// Figures of the store at one moment; sizes in bytes, the rest counts since `open` unless it says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreMetrics {
    pub memory_limit: u64,
    /// Taken from the tmpfs, with memory that was unlinked and is still held by readers, those in other processes included.
    pub memory_used: u64,
    /// The part of `memory_used` whose replicas are gone from it, and which other processes still hold.
    pub memory_lingering: u64,
    /// The part of `memory_used` that slabs hold.
    pub slab_bytes: u64,
    /// Bytes of slab slots in use.
    pub slab_bytes_used: u64,
    pub slabs: u64,
    /// Replicas, now.
    pub replicas: u64,
    /// Replicas in memory, now.
    pub replicas_in_memory: u64,
    /// Finalized replicas not yet on disk, now.
    pub dirty_replicas: u64,
    pub dirty_bytes: u64,
    /// Finalized in files, and not yet known to be on disk, now. (Some may have been deleted since.)
    pub unsynced_replicas: u64,
    /// Replicas that are kept open between reads, now (some entries may be stale).
    pub kept_replicas: u64,
    /// Bytes of them that are mapped, now.
    pub mapped_bytes: u64,
    /// Time since the oldest dirty or unsynced replica was finalized.
    pub oldest_dirty_age: Duration,
    /// Replicas in memory that a reader holds, now.
    pub pinned: u64,
    /// Replicas whose memory was shown to other processes and is open, now.
    pub shown: u64,
    pub evictions: u64,
    pub read_backs: u64,
    /// Replicas that were written to disk at once because memory was full.
    pub memory_full: u64,
    pub flushed_replicas: u64,
    pub flushed_bytes: u64,
    pub flush_failures: u64,
    pub scrubbed_bytes: u64,
    pub corruptions: u64,
    pub failed_volumes: u64,
    /// Memory that others were to fill.
    pub granted_bytes: u64,
    /// Processor time that taking that memory cost the store.
    pub grant_time: Duration,
    /// Bytes that others filled in and that were found to fit their CRCs.
    pub committed_bytes: u64,
    /// Of them, those that finalize copied to memory out of their writers' reach.
    pub copied_back_bytes: u64,
    /// Bytes that were received in place.
    pub received_in_place_bytes: u64,
}
