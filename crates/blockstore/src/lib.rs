//! Replicas on one machine: a bounded memory tier on a tmpfs over Apache HDFS's own directory layout.
//!
//! A call blocks: work on memory is short; calls that may wait for a disk say so, and belong on a blocking thread.
//! `docs/design/0001-replica-memory.md` draws the files, and says what keeps a replica safe when processes die.

mod background;
mod cold;
mod disk;
mod error;
mod fault;
mod flush;
mod hands;
mod hold;
mod in_place;
mod inner;
mod kept;
mod lent;
mod look;
mod mapped;
mod memory;
mod offline;
mod ops;
mod options;
mod pool;
mod read_ahead;
mod read_back;
mod reader;
mod replica;
mod show;
mod snapshot;
mod start;
mod store;
mod summary;
mod suspects;
mod sync_behind;
mod sys;
mod verify;
mod volume;
mod withdraw;
mod writer;

pub use cold::DueFetch;
pub use disk::stream::{DuePiece, WrittenPiece};
pub use error::{Reaction, Result, StoreError};
pub use hold::HeldReplica;
pub use in_place::InPlace;
pub use mapped::Mapping;
pub use options::{
    Checksums, CreateKind, CreateOptions, Durability, Engine, KeepOptions, MemoryOptions, PipelineRecovery, Reserved,
    StoreOptions, VolumeOptions,
};
pub use read_ahead::{DueRead, Pieces, ReadPiece};
pub use reader::{DataSource, Reading, ReplicaReader};
pub use show::Shown;
pub use store::Blockstore;
pub use summary::{
    FlushProgress, PoolSummary, RecoveryInfo, ReplicaInfo, ReplicaSummary, StorageReplicas, StorageSummary, StoreEvent,
    StoreMetrics,
};
pub use sys::thread_cpu_time;
pub use withdraw::{WithdrawHook, Withdrawal, Withdrawn};
pub use writer::{Acker, ReplicaWriter};
