//! Replicas on one machine: a bounded memory tier on a tmpfs over Apache HDFS's own directory layout.
//!
//! A call blocks: work on memory is short; calls that may wait for a disk say so, and belong on a blocking thread.
//! `docs/design/0001-replica-memory.md` draws the files, and says what keeps a replica safe when processes die.

mod error;
mod options;
mod reader;
mod store;
mod summary;
mod writer;

pub use error::{Reaction, Result, StoreError};
pub use options::{
    Checksums, CreateKind, CreateOptions, Durability, Engine, MemoryOptions, PipelineRecovery, StoreOptions,
    VolumeOptions,
};
pub use reader::{DataSource, ReplicaReader};
pub use store::Blockstore;
pub use summary::{
    FlushProgress, PoolSummary, RecoveryInfo, ReplicaInfo, ReplicaSummary, StorageReplicas, StorageSummary, StoreEvent,
    StoreMetrics,
};
pub use writer::{Acker, ReplicaWriter};
