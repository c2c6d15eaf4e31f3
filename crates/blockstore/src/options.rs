//! Options of the store and of its operations. The defaults are those of a single memory-tier volume.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hearth_types::{ChecksumSpec, Clock, DatanodeUuid, GenerationStamp, StorageType, SystemClock};

/// Configuration of a DataNode's replica store. The store takes everything it knows of its environment from here.
#[derive(Clone)]
pub struct StoreOptions {
    /// Storage directories, at least one, in the order of the configuration and of the reports.
    pub volumes: Vec<VolumeOptions>,
    /// Number of volumes that may be out of use while at least one works (`dfs.datanode.failed.volumes.tolerated`). If
    /// more are unusable at the start, `Blockstore::open` fails. The caller counts volumes that fail later. 0 by
    /// default.
    pub failed_volumes_tolerated: usize,
    pub memory: MemoryOptions,
    /// Cache of files that stay open between reads.
    pub open_file_cache: OpenFileCacheOptions,
    /// Maximum age of a finalized replica that is not yet on disk, for every engine. 10 s by default.
    pub flush_delay: Duration,
    /// Every finalize returns only once the replica is on disk (`dfs.datanode.synconclose`).
    pub sync_on_finalize: bool,
    /// Bytes per second that the background check of CRCs reads; 0 switches it off.
    pub scrub_bytes_per_second: u64,
    /// Pause between two scrubs of all replicas. 60 s by default: a scrub of few replicas must not restart at once.
    pub scrub_pause: Duration,
    /// Bytes reserved for a replica being written whose writer states no length (`dfs.blocksize`).
    pub default_block_bytes: u64,
    /// Longest wait for a previous writer to stop (`dfs.datanode.xceiver.stop.timeout.millis`, 60 s).
    pub writer_stop_timeout: Duration,
    /// Used when no volume has a UUID yet; `None` generates one.
    pub datanode_uuid: Option<DatanodeUuid>,
    /// Runs flusher, read-back and scrubber in threads of the store. Off only in tests, which then call `flush_due`.
    pub background: bool,
    pub clock: Arc<dyn Clock>,
}

impl StoreOptions {
    /// Default options for `volumes`, with the memory tier in `memory`.
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

/// A storage directory. `dfs.datanode.data.dir` lists them, with the type in brackets.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    pub dir: PathBuf,
    pub storage_type: StorageType,
    pub engine: Engine,
    pub reserved: Reserved,
}

/// Part of a file system that HDFS must not use (`dfs.datanode.du.reserved` and related keys).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserved {
    Bytes(u64),
    /// Percentage of the file system's size; at most 100.
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
    /// Returns the reserved bytes of a file system of `size` bytes.
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
    /// A `DISK` volume with the memory tier in front of it.
    pub fn memory(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), storage_type: StorageType::Disk, engine: Engine::Memory, reserved: Reserved::Bytes(0) }
    }
}

/// Storage engine of a volume: where new replicas are written first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// On the tmpfs; written to disk in the background.
    #[default]
    Memory,
    /// In files of the storage directory, which are mapped for short reads.
    Mmap,
    /// In files of the storage directory.
    File,
}

/// Cache of open files of finalized replicas that have their own files, on disk or in memory.
#[derive(Clone, Debug)]
pub struct OpenFileCacheOptions {
    /// Maximum number of replicas, with two descriptors each. Capped at an eighth of the process's descriptor limit. 0:
    /// no cache.
    pub replicas_max: usize,
    /// Bytes of address space that mappings may take. Page tables take 1/512 of the part that is touched.
    pub mapped_bytes_max: u64,
    /// Number of the use at which a replica is mapped. Mapping a small file that is read once is not worth it.
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
    /// A directory on a tmpfs, best a mount of its own. Created (mode 0700) if it is missing.
    pub dir: PathBuf,
    /// Bytes of tmpfs that replicas may take. Lowered, with a warning, to what the tmpfs and the cgroup can hold.
    pub limit: u64,
    /// Replicas up to this many bytes share slabs. 64 KiB by default, which is also the maximum; 0 gives each its own
    /// file.
    pub slab_replica_bytes_max: u32,
    /// Bytes by which the memory of a replica with its own file grows, 4 MiB by default.
    pub slice_bytes: u32,
}

impl MemoryOptions {
    pub const SLAB_REPLICA_BYTES_MAX: u32 = 64 << 10;

    pub fn new(dir: impl Into<PathBuf>, limit: u64) -> Self {
        Self { dir: dir.into(), limit, slab_replica_bytes_max: Self::SLAB_REPLICA_BYTES_MAX, slice_bytes: 4 << 20 }
    }
}

/// Purpose of a new replica, which determines what may be in its place. Source: `BlockConstructionStage` of
/// datatransfer.proto.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateKind {
    /// PIPELINE_SETUP_CREATE by a client: an RBW replica.
    ///
    /// With `replace`, an existing replica of that id is stopped and removed first (the client gave a
    /// latestGenerationStamp). Otherwise there must be no such replica.
    BeingWritten { replace: bool },
    /// PIPELINE_SETUP_CREATE by a DataNode: a TEMPORARY replica. Replaces only an older TEMPORARY or RBW one.
    Temporary,
    /// TRANSFER_RBW and TRANSFER_FINALIZED: a TEMPORARY replica. Replaces any replica with a lower stamp.
    Transfer,
}

/// Storage options of a new replica.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub checksum: ChecksumSpec,
    /// Maximum length of the replica: the file's block size in most requests. Reserved on disk; 0 uses the default.
    pub expected_bytes: u64,
    /// Required storage type of the volume.
    pub storage_type: StorageType,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { checksum: ChecksumSpec::DEFAULT, expected_bytes: 0, storage_type: StorageType::Disk }
    }
}

/// Guarantee that holds when a finalize returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// In memory; on disk within `StoreOptions::flush_delay`.
    #[default]
    Memory,
    /// On disk: data, CRCs, and the directory entries.
    Disk,
}

/// CRCs that come with data.
#[derive(Clone, Copy, Debug)]
pub enum Checksums<'a> {
    /// One big-endian CRC per chunk, with chunks counted from the first byte of the data. The caller has checked them
    /// already unless `ReplicaWriter::set_checked` says otherwise.
    Given(&'a [u8]),
    /// Computed by the store: the writer sent none, or its checksum type differs from the replica's.
    Compute,
}

/// Pipeline recovery of a replica being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipelineRecovery {
    pub new_stamp: GenerationStamp,
    /// Bytes that the writer knows to be acknowledged (minBytesRcvd).
    pub min_acked: u64,
    /// Bytes that the writer has sent at most (maxBytesRcvd).
    pub max_received: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_percentage_follows_the_size() {
        let of = |reserved: Reserved| reserved.of(1000);
        assert_eq!(of(Reserved::Bytes(7)), 7);
        assert_eq!(of(Reserved::Percent(25)), 250);
        assert_eq!(of(Reserved::Larger { bytes: 7, percent: 25 }), 250);
        assert_eq!(of(Reserved::Smaller { bytes: 7, percent: 25 }), 7);
        assert_eq!(Reserved::Percent(100).of(u64::MAX), u64::MAX);
    }
}
