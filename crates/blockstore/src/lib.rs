//! Replica storage of one DataNode: a bounded memory tier on a tmpfs over Apache HDFS's own directory layout.
//!
//! All calls block. Calls that only touch memory are short. Calls that may wait for a disk say so in their
//! documentation and belong on a blocking thread. `docs/design/0001-replica-memory.md` draws the files and explains why
//! replicas survive the death of a process.

#![deny(unsafe_code)]

mod background;
mod blockstore;
mod counters;
mod disk;
mod disk_times;
mod error;
mod events;
mod eviction;
mod fault;
mod flush;
mod in_place;
mod lent_replicas;
mod limits;
mod lookup;
mod memory;
mod metrics;
#[allow(unsafe_code, reason = "maps memory")]
mod mmap;
mod offline;
mod open_files;
mod ops;
mod options;
mod pin;
mod pool;
mod prefetch;
mod queues;
mod read_ahead;
mod read_back;
mod reader;
mod replica;
mod reports;
mod show;
mod snapshot;
mod space;
mod start;
mod summary;
mod suspects;
mod sync_behind;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
mod thread_signals;
mod verify;
mod volume;
mod volume_check;
mod withdraw;
mod write_target;
mod writer;

pub use blockstore::Blockstore;
pub use disk::stream::{CompletedWrite, PendingWrite};
pub use disk_times::DiskTimes;
pub use error::{Reaction, Result, StoreError};
pub use in_place::InPlace;
pub use mmap::mapping::Mapping;
pub use options::{
    Checksums, CreateKind, CreateOptions, Durability, Engine, MemoryOptions, OpenFileCacheOptions, PipelineRecovery,
    Reserved, StoreOptions, VolumeOptions,
};
pub use pin::PinnedReplica;
pub use prefetch::PageCacheFill;
pub use read_ahead::{CompletedRead, PendingRead, Pieces};
pub use reader::{DataSource, Reading, ReplicaReader};
pub use show::Shown;
pub use start::cgroup_limit;
pub use summary::{
    FlushProgress, PoolSummary, RecoveryInfo, ReplicaInfo, ReplicaSummary, StorageReplicas, StorageState,
    StorageSummary, StoreEvent, StoreMetrics,
};
pub use sys::thread_cpu_time;
pub use withdraw::{WithdrawHook, WithdrawReason, WithdrawReply};
pub use writer::{Acker, ReplicaWriter};
