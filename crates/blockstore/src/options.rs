use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hearth_types::{ChecksumSpec, Clock, DatanodeUuid, GenerationStamp, StorageType, SystemClock};

/// Where and how a datanode keeps its replicas. Everything the store knows of its surroundings comes from here.
#[derive(Clone)]
pub struct StoreOptions {
    /// At least one. The order is that of the configuration and of the reports.
    pub volumes: Vec<VolumeOptions>,
    /// So many volumes may be out of use, if another is not (`dfs.datanode.failed.volumes.tolerated`). With more from the start
    /// `Blockstore::open` fails; those that fail later are for the caller to count. 0 by default.
    pub failed_volumes_tolerated: usize,
    pub memory: MemoryOptions,
    /// What stays open between reads.
    pub open_file_cache: OpenFileCacheOptions,
    /// Oldest age of a finalized replica that is not yet on disk, whatever its engine. 10 s by default.
    pub flush_delay: Duration,
    /// Every finalize is on disk before it is answered (`dfs.datanode.synconclose`).
    pub sync_on_finalize: bool,
    /// Bytes per second that the background check of CRCs reads; 0 switches it off.
    pub scrub_bytes_per_second: u64,
    /// Rest between two walks of that check. 60 s by default: a walk over few replicas must not begin again at once.
    pub scrub_pause: Duration,
    /// Bytes counted for a replica being written whose writer says no length (`dfs.blocksize`).
    pub default_block_bytes: u64,
    /// Longest wait for a former writer to stop (`dfs.datanode.xceiver.stop.timeout.millis`, 60 s).
    pub writer_stop_timeout: Duration,
    /// Used when no volume carries a UUID yet; `None` makes a new one.
    pub datanode_uuid: Option<DatanodeUuid>,
    /// Flusher, read-back and scrubber run in threads of the store. Off only in tests, which then call `flush_due`.
    pub background: bool,
    pub clock: Arc<dyn Clock>,
}

impl StoreOptions {
    /// The defaults over `volumes` with the memory tier in `memory`.
    pub fn new(volumes: Vec<VolumeOptions>, memory: MemoryOptions) -> Self {
        Self {
            volumes,
            failed_volumes_tolerated: 0,
            memory,
            open_file_cache: OpenFileCacheOptions::default(),
            flush_delay: Duration::from_secs(10),
            sync_on_finalize: false,
            scrub_bytes_per_second: 1 << 20,
            scrub_pause: Duration::from_secs(60),
            default_block_bytes: 128 << 20,
            writer_stop_timeout: Duration::from_secs(60),
            datanode_uuid: None,
            background: true,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

/// One storage directory: `dfs.datanode.data.dir` names them, with the type in brackets.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    pub dir: PathBuf,
    pub storage_type: StorageType,
    pub engine: Engine,
    pub reserved: Reserved,
}

/// What of a file system is not for HDFS (`dfs.datanode.du.reserved` and its kin).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserved {
    Bytes(u64),
    /// Of the file system's size; at most 100.
    Percent(u64),
    Larger {
        bytes: u64,
        percent: u64,
    },
    Smaller {
        bytes: u64,
        percent: u64,
    },
}

impl Reserved {
    /// Bytes of a file system of `size` bytes.
    pub fn of(self, size: u64) -> u64 {
        let part = |percent: u64| (u128::from(size) * u128::from(percent) / 100) as u64;
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => part(percent),
            Self::Larger { bytes, percent } => bytes.max(part(percent)),
            Self::Smaller { bytes, percent } => bytes.min(part(percent)),
        }
    }
}

impl VolumeOptions {
    /// A `DISK` with the memory tier before it.
    pub fn memory(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), storage_type: StorageType::Disk, engine: Engine::Memory, reserved: Reserved::Bytes(0) }
    }
}

/// Where new replicas of a volume are written first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// On the tmpfs, and behind the write on disk.
    #[default]
    Memory,
    /// In files of the storage directory, which are mapped for short reads.
    Mmap,
    /// In files of the storage directory.
    File,
}

/// Finalized replicas in files of their own, on disk or in memory, that stay open between reads.
#[derive(Clone, Debug)]
pub struct OpenFileCacheOptions {
    /// Replicas at most; two descriptors each. Never more than an eighth of the descriptors that the process may have. 0: none.
    pub replicas_max: usize,
    /// Bytes of address space that mappings may take; page tables are a 512th part of what of it is touched.
    pub mapped_bytes_max: u64,
    /// A replica is mapped when it is opened for this time. A small file that is read once is not worth it.
    pub map_at: u8,
}

impl Default for OpenFileCacheOptions {
    fn default() -> Self {
        Self { replicas_max: 4096, mapped_bytes_max: 64 << 30, map_at: 2 }
    }
}

/// The memory tier, shared by all volumes whose engine is `Memory`.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// A directory on a tmpfs, best a mount of its own. Made (mode 0700) when it is missing.
    pub dir: PathBuf,
    /// Bytes of tmpfs that replicas may take. Lowered, with a warning, to what the tmpfs and the cgroup can hold.
    pub limit: u64,
    /// Replicas up to this many bytes share slabs; 64 KiB by default, at most that, 0 gives each its own file.
    pub slab_replica_bytes_max: u32,
    /// Memory of a replica with a file of its own is taken in slices of this many bytes, 4 MiB by default.
    pub slice_bytes: u32,
}

impl MemoryOptions {
    pub const SLAB_REPLICA_BYTES_MAX: u32 = 64 << 10;

    pub fn new(dir: impl Into<PathBuf>, limit: u64) -> Self {
        Self { dir: dir.into(), limit, slab_replica_bytes_max: Self::SLAB_REPLICA_BYTES_MAX, slice_bytes: 4 << 20 }
    }
}

/// What a new replica is for; says what may stand in its way. Source: `BlockConstructionStage` of datatransfer.proto.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateKind {
    /// PIPELINE_SETUP_CREATE by a client: an RBW replica.
    ///
    /// With `replace`, any replica of that id is stopped and removed first (the client gave a latestGenerationStamp);
    /// else there must be none.
    BeingWritten { replace: bool },
    /// PIPELINE_SETUP_CREATE by a datanode: a TEMPORARY replica. Takes the place of an older TEMPORARY or RBW one only.
    Temporary,
    /// TRANSFER_RBW and TRANSFER_FINALIZED: a TEMPORARY replica, in place of any with a lower stamp.
    Transfer,
}

/// How a new replica is to be kept.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub checksum: ChecksumSpec,
    /// Bytes that it will have at most: the file's block size in most requests. Reserved on disk; 0 takes the default.
    pub expected_bytes: u64,
    /// Only a volume of this type will do.
    pub storage_type: StorageType,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { checksum: ChecksumSpec::DEFAULT, expected_bytes: 0, storage_type: StorageType::Disk }
    }
}

/// What is true when a finalize returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// In memory; on disk within `StoreOptions::flush_delay`.
    #[default]
    Memory,
    /// On disk: data, CRCs, and the directory entries.
    Disk,
}

/// The CRCs handed in with data.
#[derive(Clone, Copy, Debug)]
pub enum Checksums<'a> {
    /// One big-endian CRC per chunk, chunks counted from the first byte of the data, checked already by the caller unless
    /// `ReplicaWriter::set_checked` says otherwise.
    Given(&'a [u8]),
    /// The writer sent none, or of another kind than the replica keeps: computed here.
    Compute,
}

/// Pipeline recovery of a replica being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipelineRecovery {
    pub new_stamp: GenerationStamp,
    /// The writer knows that these were acknowledged (minBytesRcvd).
    pub min_acked: u64,
    /// The writer has not sent more (maxBytesRcvd).
    pub max_received: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_follows_the_size_where_it_is_a_part_of_it() {
        let of = |reserved: Reserved| reserved.of(1000);
        assert_eq!(of(Reserved::Bytes(7)), 7);
        assert_eq!(of(Reserved::Percent(25)), 250);
        assert_eq!(of(Reserved::Larger { bytes: 7, percent: 25 }), 250);
        assert_eq!(of(Reserved::Smaller { bytes: 7, percent: 25 }), 7);
        assert_eq!(Reserved::Percent(100).of(u64::MAX), u64::MAX);
    }
}
