//! The public interface of the store. [`Blockstore`] delegates to `Store`, which its writers, readers and threads
//! share, and owns the background threads.

use std::sync::Arc;

use hearth_types::{
    Block, BlockId, BlockPoolId, DatanodeUuid, ExtendedBlock, GenerationStamp, PoolIdentity, StorageReport, StorageType,
};

use crate::background::Background;
use crate::store::Store;

use crate::{
    CreateKind, CreateOptions, FlushProgress, PinnedReplica, PipelineRecovery, PoolSummary, Reading, RecoveryInfo,
    ReplicaInfo, ReplicaReader, ReplicaSummary, ReplicaWriter, Result, StorageReplicas, StorageSummary, StoreError,
    StoreEvent, StoreMetrics, StoreOptions, WithdrawHook,
};

/// All replicas of one DataNode. Threads share it by reference. When it is dropped, nothing more is flushed.
pub struct Blockstore {
    inner: Arc<Store>,
    /// Joined on drop.
    background: Background,
}

impl Blockstore {
    /// Locks the directories and reads which DataNode and cluster they belong to. Replicas appear with `attach_pool`.
    /// Up to `StoreOptions::failed_volumes_tolerated` volumes may be out of use; each is reported as an event.
    ///
    /// Errors: `InUse` (another process, ours or Java's, uses a directory), `BadDirectory`, `Foreign` (two volumes of
    /// different DataNodes or clusters), `BadOptions`, `Io`.
    pub fn open(options: StoreOptions) -> Result<Self> {
        let inner = crate::start::open(options)?;
        let background = Background::start(&inner).map_err(|source| StoreError::Io {
            action: "start the threads of",
            path: "the store".into(),
            source,
        })?;
        Ok(Self { inner, background })
    }

    /// UUID of this DataNode. It never changes, and is written to the volumes' `VERSION` files with the first pool.
    pub fn datanode_uuid(&self) -> &DatanodeUuid {
        &self.inner.uuid
    }

    /// Returns a summary of each storage. Asks the file systems for their sizes, which may block.
    pub fn storages(&self) -> Vec<StorageSummary> {
        let volumes = self.inner.volumes.iter();
        volumes
            .map(|volume| StorageSummary {
                id: volume.id.clone(),
                storage_type: volume.storage_type,
                dir: volume.dir.clone(),
                failed: volume.is_failed(),
                reserved_bytes: volume.kept_free(),
                replicas: self.inner.finalized_on(volume),
            })
            .collect()
    }

    /// Problems that start-up found and tolerated, for the log and the operator.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Creates or checks the pool's directories on every volume, and finds its replicas in memory and on disk.
    /// Attaching a pool twice is allowed. A volume whose disk does not answer is failed, with an event. Waits for the
    /// disks.
    ///
    /// Errors: `Foreign` (the directories belong to another cluster or namespace); `Io`, when all volumes have failed
    /// or one is full.
    pub fn attach_pool(&self, pool: &PoolIdentity) -> Result<PoolSummary> {
        self.inner.attach_pool(pool)
    }

    pub fn pools(&self) -> Vec<BlockPoolId> {
        self.inner.pools.read().keys().cloned().collect()
    }

    /// Creates a new, empty replica of `block`. The length in `block` is ignored.
    ///
    /// Errors: `ReplicaExists`; `NoSuchStorageType`, `NoSpace`; `WriterStillRunning`; `PoolNotAttached`.
    pub fn create(&self, block: &ExtendedBlock, kind: CreateKind, options: &CreateOptions) -> Result<ReplicaWriter> {
        self.inner.create(block, kind, options)
    }

    /// PIPELINE_SETUP_APPEND: opens the finalized replica `block` of exactly `length` bytes for appending, under
    /// `new_stamp`. Waits for the disk if the replica has a copy there.
    pub fn append(&self, block: &ExtendedBlock, new_stamp: GenerationStamp, length: u64) -> Result<ReplicaWriter> {
        self.inner.append(block, new_stamp, length)
    }

    /// PIPELINE_SETUP_APPEND_RECOVERY: like `append`, for a finalized replica or one being written, whose writer is
    /// stopped.
    pub fn recover_append(
        &self,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<ReplicaWriter> {
        self.inner.recover_append(block, new_stamp, length)
    }

    /// PIPELINE_SETUP_STREAMING_RECOVERY: stops the writer of a replica being written, truncates the replica to the
    /// acknowledged bytes and hands it to a new writer.
    pub fn recover_being_written(&self, block: &ExtendedBlock, recovery: PipelineRecovery) -> Result<ReplicaWriter> {
        self.inner.recover_being_written(block, recovery)
    }

    /// PIPELINE_CLOSE_RECOVERY: makes the checks of `recover_append`, then finalizes under `new_stamp`.
    pub fn recover_close(
        &self,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<ReplicaSummary> {
        self.inner.recover_close(block, new_stamp, length)
    }

    /// Opens the replica for reading. Its stamp may be higher than `block`'s but not lower; its length is not compared.
    ///
    /// Errors: `ReplicaNotFound`, `StampMismatch`, `WrongState` (not readable), `Corrupt`.
    pub fn reader(&self, block: &ExtendedBlock) -> Result<ReplicaReader> {
        self.inner.reader(block)
    }

    /// Like [`Blockstore::reader`], for callers that must not wait for a disk.
    ///
    /// Errors: those of [`Blockstore::reader`].
    pub fn reader_now(&self, block: &ExtendedBlock) -> Result<Reading> {
        self.inner.reader_now(block)
    }

    /// Loads a finalized replica into memory if needed, verifies it, and keeps it in memory while the returned pin
    /// lives. `None`: memory is full, or the volume keeps its replicas in files. Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `WrongState`, `Corrupt`, `Io`.
    pub fn pin(&self, block: &ExtendedBlock) -> Result<Option<PinnedReplica>> {
        self.inner.pin(block)
    }

    /// Returns the state of a replica, or `None` if there is no such replica.
    pub fn replica(&self, pool: &BlockPoolId, id: BlockId) -> Option<ReplicaInfo> {
        self.inner.replica_info(pool, id)
    }

    /// Returns the full block report of a pool: one entry per healthy storage, empty ones too.
    pub fn report(&self, pool: &BlockPoolId) -> Vec<StorageReplicas> {
        self.inner.report(pool)
    }

    /// Reports every corrupt replica of a pool as an event again. A NameNode that receives a full block report, which
    /// lists corrupt replicas too, may not know that they are corrupt.
    pub fn say_corrupt_again(&self, pool: &BlockPoolId) {
        self.inner.say_corrupt_again(pool);
    }

    /// Returns one entry per healthy storage, for heartbeats.
    pub fn storage_reports(&self, pool: &BlockPoolId) -> Vec<StorageReport> {
        self.inner.storage_reports(pool)
    }

    /// Bytes of the replicas of all pools on storages of this type, plus the bytes that replicas being written there
    /// may need.
    pub fn bytes_on(&self, storage_type: StorageType) -> u64 {
        self.inner.bytes_on(storage_type)
    }

    /// Deletes replicas whose stamp is exactly the requested one, and stops their writers. Returns one result per
    /// block, in order: the storage that held the replica. Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `StampMismatch`.
    pub fn invalidate(&self, pool: &BlockPoolId, blocks: &[Block]) -> Vec<Result<ReplicaSummary>> {
        blocks.iter().map(|block| self.inner.invalidate(pool, *block)).collect()
    }

    /// Stops the writer of a replica, if it has one.
    ///
    /// Errors: `WriterStillRunning`.
    pub fn stop_writer(&self, block: &ExtendedBlock) -> Result<()> {
        self.inner.stop_writer(block)
    }

    /// First step of block recovery: stops the writer and makes the replica UNDER_RECOVERY. `None`: no such replica.
    ///
    /// Errors: `StampMismatch`, `RecoveryInProgress`, `WriterStillRunning`; `VolumeFailed`: the replica may turn up on
    /// another storage later.
    pub fn initiate_recovery(
        &self,
        block: &ExtendedBlock,
        recovery_id: GenerationStamp,
    ) -> Result<Option<RecoveryInfo>> {
        self.inner.initiate_recovery(block, recovery_id)
    }

    /// Second step of block recovery: `old` (as the first step returned it) gets `new_length` bytes and the stamp
    /// `recovery_id`, and is finalized. If `new_id` differs from its own id, the result is a copy and the old replica
    /// stays (truncate). Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `WrongState`, `StampMismatch`, `LengthMismatch`, `ReplicaExists`, `VolumeFailed`.
    pub fn update_under_recovery(
        &self,
        old: &ExtendedBlock,
        recovery_id: GenerationStamp,
        new_length: u64,
        new_id: Option<BlockId>,
    ) -> Result<ReplicaSummary> {
        self.inner.update_under_recovery(old, recovery_id, new_length, new_id)
    }

    /// Moves a finalized replica to a storage of another type on this DataNode (REPLACE_BLOCK to itself).
    pub fn move_to_storage_type(&self, block: &ExtendedBlock, to: StorageType) -> Result<ReplicaSummary> {
        self.inner.move_to_storage_type(block, to)
    }

    /// Checks every byte of every copy of the replica against its CRCs. Bad copies are dropped while a good one is
    /// left. If none is left, the replica is marked corrupt, with an event. Waits for the disk.
    ///
    /// Errors: `Corrupt`; `ReplicaNotFound`; `Io`, when a copy cannot be opened and no other copy is good. The state of
    /// the replica is unknown then.
    pub fn verify(&self, block: &ExtendedBlock) -> Result<()> {
        self.inner.verify(block)
    }

    /// Writes everything that is only in memory to disk, replicas being written included. Calls `progress` after each
    /// batch and continues while it returns true. Used before the process ends (SIGTERM).
    pub fn flush_all(&self, progress: &mut dyn FnMut(FlushProgress) -> bool) -> FlushProgress {
        self.inner.flush_all(progress)
    }

    /// Writes everything that is due by `flush_delay`, once. The store's own threads do this; tests without threads
    /// call it.
    pub fn flush_due(&self) -> FlushProgress {
        let mut total = FlushProgress::default();
        for volume in &self.inner.volumes {
            let done = self.inner.flush_due(volume);
            total.replicas_done += done.replicas_done;
            total.bytes_done += done.bytes_done;
            total.failures += done.failures;
        }
        total
    }

    /// Empties the memory tier that a killed DataNode left: writes everything to disk, verified, then removes it from
    /// memory. Afterwards Apache's DataNode can use the directories. `hearth datanode --flush`.
    pub fn flush_offline(
        options: StoreOptions,
        progress: &mut dyn FnMut(FlushProgress) -> bool,
    ) -> Result<FlushProgress> {
        let store = Self::open(StoreOptions { background: false, failed_volumes_tolerated: 0, ..options })?;
        store.inner.flush_offline(progress)
    }

    /// Registers `hook`, which is called from now on before shown bytes of a replica become invalid. Call it once,
    /// before the first pool is attached.
    pub fn on_withdraw(&self, hook: Arc<dyn WithdrawHook>) {
        self.inner.set_withdraw_hook(hook);
    }

    /// Frees the memory of deleted replicas that other processes have released since, and settles the accounts of lent
    /// memory. The store's own threads do this; tests without threads call it.
    pub fn sweep(&self) {
        self.inner.budget.sweep();
        self.inner.sweep_lent();
    }

    /// Checks replicas that could not be read, and the volumes. The store's own threads do this; tests without threads
    /// call it.
    pub fn look_at_suspects(&self) {
        for volume in &self.inner.volumes {
            self.inner.look_at_suspects(volume, usize::MAX);
            self.inner.probe_volume(volume);
        }
    }

    /// Returns the events since the last call, oldest first. At most 10,000 are kept.
    pub fn take_events(&self) -> Vec<StoreEvent> {
        self.inner.events.lock().drain(..).collect()
    }

    pub fn metrics(&self) -> StoreMetrics {
        self.inner.metrics()
    }

    /// Stops the background threads and unlocks the directories; does not flush (see `flush_all`).
    pub fn close(self) {
        drop(self)
    }
}

impl Drop for Blockstore {
    fn drop(&mut self) {
        self.background.stop();
        self.inner.close();
    }
}
