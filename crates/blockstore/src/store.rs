use std::convert::Infallible;

use hearth_types::{
    Block, BlockId, BlockPoolId, DatanodeUuid, ExtendedBlock, GenerationStamp, PoolIdentity, StorageReport, StorageType,
};

use crate::{
    CreateKind, CreateOptions, FlushProgress, PipelineRecovery, PoolSummary, RecoveryInfo, ReplicaInfo, ReplicaReader,
    ReplicaSummary, ReplicaWriter, Result, StorageReplicas, StorageSummary, StoreError, StoreEvent, StoreMetrics,
    StoreOptions,
};

/// All replicas of one datanode. Shared by reference between threads; dropped without `close`, nothing more is flushed.
pub struct Blockstore {
    never: Infallible,
}

impl Blockstore {
    /// Locks the directories and reads who they belong to. Replicas appear with `attach_pool`.
    ///
    /// Errors: `InUse` (another process, ours or Java's, has a directory), `BadDirectory`, `Foreign` (two volumes of
    /// different datanodes or clusters), `BadOptions`, `Io`.
    pub fn open(_options: StoreOptions) -> Result<Self> {
        Err(StoreError::BadOptions("this build has no engine".to_owned()))
    }

    /// The same for ever; written to the volumes' `VERSION` with the first pool.
    pub fn datanode_uuid(&self) -> &DatanodeUuid {
        match self.never {}
    }

    pub fn storages(&self) -> Vec<StorageSummary> {
        match self.never {}
    }

    /// What start-up found wanting and went on without: for the log and the operator.
    pub fn warnings(&self) -> &[String] {
        match self.never {}
    }

    /// Makes or checks the pool's directories on every volume, and finds its replicas again in memory and on disk.
    /// Attaching a pool twice is fine. Waits for the disks.
    ///
    /// Errors: `Foreign` (the directories are another cluster's or namespace's).
    pub fn attach_pool(&self, _pool: &PoolIdentity) -> Result<PoolSummary> {
        match self.never {}
    }

    pub fn pools(&self) -> Vec<BlockPoolId> {
        match self.never {}
    }

    /// A new replica of `block` (its length is not looked at), empty.
    ///
    /// Errors: `ReplicaExists`; `NoSuchStorageType`, `NoSpace`; `WriterStillRunning`; `PoolNotAttached`.
    pub fn create(&self, _block: &ExtendedBlock, _kind: CreateKind, _options: &CreateOptions) -> Result<ReplicaWriter> {
        match self.never {}
    }

    /// PIPELINE_SETUP_APPEND: opens the finalized replica `block` of exactly `length` bytes for more, under `new_stamp`.
    /// Waits for the disk when the replica has a copy there.
    pub fn append(&self, _block: &ExtendedBlock, _new_stamp: GenerationStamp, _length: u64) -> Result<ReplicaWriter> {
        match self.never {}
    }

    /// PIPELINE_SETUP_APPEND_RECOVERY: the same for one finalized or being written, whose writer is stopped.
    pub fn recover_append(
        &self,
        _block: &ExtendedBlock,
        _new_stamp: GenerationStamp,
        _length: u64,
    ) -> Result<ReplicaWriter> {
        match self.never {}
    }

    /// PIPELINE_SETUP_STREAMING_RECOVERY: stops the writer of a replica being written, cuts it to the acknowledged bytes
    /// and hands it to a new writer.
    pub fn recover_being_written(&self, _block: &ExtendedBlock, _recovery: PipelineRecovery) -> Result<ReplicaWriter> {
        match self.never {}
    }

    /// PIPELINE_CLOSE_RECOVERY: checks as `recover_append`, then finalizes under `new_stamp`.
    pub fn recover_close(
        &self,
        _block: &ExtendedBlock,
        _new_stamp: GenerationStamp,
        _length: u64,
    ) -> Result<ReplicaSummary> {
        match self.never {}
    }

    /// The replica for reading. Its stamp may be higher than `block`'s, not lower; its length is not compared.
    ///
    /// Errors: `ReplicaNotFound`, `StampMismatch`, `WrongState` (not readable), `Corrupt`.
    pub fn reader(&self, _block: &ExtendedBlock) -> Result<ReplicaReader> {
        match self.never {}
    }

    /// `None` when there is no such replica.
    pub fn replica(&self, _pool: &BlockPoolId, _id: BlockId) -> Option<ReplicaInfo> {
        match self.never {}
    }

    /// The full block report of a pool: one entry per healthy storage, empty ones too.
    pub fn report(&self, _pool: &BlockPoolId) -> Vec<StorageReplicas> {
        match self.never {}
    }

    /// For heartbeats: one entry per healthy storage.
    pub fn storage_reports(&self, _pool: &BlockPoolId) -> Vec<StorageReport> {
        match self.never {}
    }

    /// Deletes replicas whose stamp is not higher than asked; a writer is stopped. One result per block, in order: where
    /// the replica was. Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `StampMismatch`.
    pub fn invalidate(&self, _pool: &BlockPoolId, _blocks: &[Block]) -> Vec<Result<ReplicaSummary>> {
        match self.never {}
    }

    /// Stops the writer of a replica, if it has one.
    ///
    /// Errors: `WriterStillRunning`.
    pub fn stop_writer(&self, _block: &ExtendedBlock) -> Result<()> {
        match self.never {}
    }

    /// First step of block recovery: stops the writer and makes the replica UNDER_RECOVERY. `None`: no such replica.
    ///
    /// Errors: `StampMismatch`, `RecoveryInProgress`, `WriterStillRunning`.
    pub fn initiate_recovery(
        &self,
        _block: &ExtendedBlock,
        _recovery_id: GenerationStamp,
    ) -> Result<Option<RecoveryInfo>> {
        match self.never {}
    }

    /// Second step: `old` (as the first step answered) gets `new_length` bytes and the stamp `recovery_id`, and is
    /// finalized. With a `new_id` other than its own, that becomes a copy and the old replica stays (truncate).
    /// Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `WrongState`, `StampMismatch`, `LengthMismatch`, `ReplicaExists`.
    pub fn update_under_recovery(
        &self,
        _old: &ExtendedBlock,
        _recovery_id: GenerationStamp,
        _new_length: u64,
        _new_id: Option<BlockId>,
    ) -> Result<ReplicaSummary> {
        match self.never {}
    }

    /// Moves a finalized replica to a storage of another type of this datanode (REPLACE_BLOCK to itself).
    pub fn move_to_storage_type(&self, _block: &ExtendedBlock, _to: StorageType) -> Result<ReplicaSummary> {
        match self.never {}
    }

    /// Checks every byte of every copy of the replica against its CRCs. Bad copies are dropped while a good one is left;
    /// with none left the replica is marked corrupt, with an event. Waits for the disk.
    ///
    /// Errors: `Corrupt`, `ReplicaNotFound`.
    pub fn verify(&self, _block: &ExtendedBlock) -> Result<()> {
        match self.never {}
    }

    /// Writes whatever is in memory only to disk, replicas being written too, and tells `progress` after each batch;
    /// it goes on while that answers true. Before the process ends (SIGTERM).
    pub fn flush_all(&self, _progress: &mut dyn FnMut(FlushProgress) -> bool) -> FlushProgress {
        match self.never {}
    }

    /// Writes what is due by `flush_delay`, once. The store's own threads do this; tests without threads call it.
    pub fn flush_due(&self) -> FlushProgress {
        match self.never {}
    }

    /// Empties the memory tier that a killed datanode left: everything to disk, verified, then out of memory. After this
    /// the directories can be given to Apache's datanode. `hearth datanode --flush`.
    pub fn flush_offline(
        _options: StoreOptions,
        _progress: &mut dyn FnMut(FlushProgress) -> bool,
    ) -> Result<FlushProgress> {
        Err(StoreError::BadOptions("this build has no engine".to_owned()))
    }

    /// Events since the last call, oldest first. At most 10,000 are kept.
    pub fn take_events(&self) -> Vec<StoreEvent> {
        match self.never {}
    }

    pub fn metrics(&self) -> StoreMetrics {
        match self.never {}
    }

    /// Stops the background threads and unlocks the directories; does not flush (see `flush_all`).
    pub fn close(self) {
        match self.never {}
    }
}
