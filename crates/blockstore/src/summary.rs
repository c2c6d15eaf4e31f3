//! Plain data that the store returns: states of replicas and storages, events, progress and metrics.

use std::path::PathBuf;
use std::time::Duration;

use hearth_types::{Block, ExtendedBlock, HistogramSnapshot, ReplicaState, StorageId, StorageType};

use crate::disk_times::DiskTimes;

/// Summary of a storage of this DataNode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageSummary {
    pub id: StorageId,
    pub storage_type: StorageType,
    pub dir: PathBuf,
    pub failed: bool,
    /// Bytes of the storage's file system that HDFS must not use.
    pub reserved_bytes: u64,
    /// Number of finalized replicas of all pools.
    pub replicas: u64,
    pub times: DiskTimes,
}

/// A storage, without what its file system has to be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageState {
    pub id: StorageId,
    pub storage_type: StorageType,
    pub failed: bool,
}

/// A replica after an operation, and its storage: the content of a RECEIVING or RECEIVED event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaSummary {
    pub block: ExtendedBlock,
    pub storage: StorageId,
    pub storage_type: StorageType,
}

/// State of one replica at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaInfo {
    /// Length: bytes received (the length that reports carry).
    pub block: Block,
    /// Includes UNDER_RECOVERY; block reports list `reported_state`.
    pub state: ReplicaState,
    /// The state before recovery began, if one is in progress; otherwise `state`.
    pub reported_state: ReplicaState,
    /// Bytes that readers may rely on: the acknowledged ones of a replica being written. `None`: not readable.
    pub visible_length: Option<u64>,
    pub storage: StorageId,
    pub storage_type: StorageType,
    pub in_memory: bool,
    /// The whole replica is on disk in its current state.
    pub on_disk: bool,
}

/// The replicas of one storage, as a full block report lists them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageReplicas {
    pub storage: StorageId,
    pub storage_type: StorageType,
    /// All replicas except TEMPORARY ones.
    pub replicas: Vec<(Block, ReplicaState)>,
}

/// Response to the first step of block recovery. Source: InterDatanodeProtocol.proto,
/// `InitReplicaRecoveryResponseProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryInfo {
    /// Id, stamp, bytes received.
    pub block: Block,
    /// State before the recovery.
    pub original_state: ReplicaState,
}

/// Result of `attach_pool`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolSummary {
    pub replicas: u64,
    pub bytes: u64,
    /// Replicas found in memory.
    pub in_memory: u64,
    /// Replicas whose newest bytes were only in memory.
    pub dirty: u64,
    /// Set when a memory tier did not belong to its disk and was moved aside.
    pub quarantined: bool,
}

/// Events that the caller did not cause; fetched with `Blockstore::take_events`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// No good copy is left here, and the replica is no longer served. To be reported to the NameNode.
    Corrupt { block: ExtendedBlock, storage: StorageId, storage_type: StorageType },
    /// The files are gone from the disk, and the replica was removed from the store. To be reported to the NameNode.
    Missing(ReplicaSummary),
    /// A storage is out of use; its replicas are no longer listed. `storage` is `None` when not even its id could be
    /// read.
    VolumeFailed { storage: Option<StorageId>, dir: PathBuf, reason: String, capacity_lost: u64 },
    /// A finalized replica was moved from a failed storage to this one. To be reported to the NameNode.
    Moved(ReplicaSummary),
}

/// Progress of `flush_all`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushProgress {
    pub replicas_done: u64,
    pub replicas_left: u64,
    pub bytes_done: u64,
    pub bytes_left: u64,
    /// Replicas that could not be written, or that arrived during the flush; they stay in memory.
    pub failures: u64,
}

/// Metrics of the store at one moment. Sizes are in bytes; other values count since `open` unless stated otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreMetrics {
    pub memory_limit: u64,
    /// Bytes taken from the tmpfs, including unlinked memory that readers in this or other processes still hold.
    pub memory_used: u64,
    /// The part of `memory_used` whose replicas have left it and that other processes still hold.
    pub memory_lingering: u64,
    /// The part of `memory_used` that slabs hold.
    pub slab_bytes: u64,
    /// Bytes of slab slots in use.
    pub slab_bytes_used: u64,
    pub slabs: u64,
    /// Replicas at present.
    pub replicas: u64,
    /// Replicas in memory at present.
    pub replicas_in_memory: u64,
    /// Finalized replicas not yet on disk at present.
    pub dirty_replicas: u64,
    pub dirty_bytes: u64,
    /// Replicas finalized in files and not yet known to be on disk, at present. Some may have been deleted since.
    pub unsynced_replicas: u64,
    /// Replicas whose files are kept open between reads, at present. Some entries may be stale.
    pub kept_replicas: u64,
    /// Bytes of these files that are mapped at present.
    pub mapped_bytes: u64,
    /// Time since the oldest dirty or unsynced replica was finalized.
    pub oldest_dirty_age: Duration,
    /// Replicas in memory that a reader holds at present.
    pub pinned: u64,
    /// Bytes of these replicas.
    pub pinned_bytes: u64,
    /// Bytes of finalized replicas in memory that are on disk and that no reader holds, at present: they can be evicted.
    pub evictable_bytes: u64,
    /// Replicas whose memory was shown to other processes and is open at present.
    pub shown: u64,
    pub evictions: u64,
    pub read_backs: u64,
    /// Replicas that were written to disk at once because memory was full.
    pub memory_full: u64,
    pub flushed_replicas: u64,
    pub flushed_bytes: u64,
    pub flush_failures: u64,
    /// Times that batches of replicas took from memory to disk, syncs included.
    pub flushes: HistogramSnapshot,
    pub scrubbed_bytes: u64,
    pub corruptions: u64,
    pub failed_volumes: u64,
    /// Memory granted to writers outside the store.
    pub granted_bytes: u64,
    /// CPU time that allocating that memory took.
    pub grant_time: Duration,
    /// Bytes that outside writers filled in and that matched their CRCs.
    pub committed_bytes: u64,
    /// The part of `committed_bytes` that finalize copied to memory out of the writers' reach.
    pub copied_back_bytes: u64,
    /// Bytes that were received in place.
    pub received_in_place_bytes: u64,
}
