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

/// All replicas of one datanode. Shared by reference between threads; dropped without `close`, nothing more is flushed.
pub struct Blockstore {
    inner: Arc<Store>,
    /// Joined on drop.
    background: Background,
}

impl Blockstore {
    /// Locks the directories and reads who they belong to. Replicas appear with `attach_pool`. As many volumes as are tolerated
    /// (`StoreOptions::failed_volumes_tolerated`) may be out of use; each is an event.
    ///
    /// Errors: `InUse` (another process, ours or Java's, has a directory), `BadDirectory`, `Foreign` (two volumes of
    /// different datanodes or clusters), `BadOptions`, `Io`.
    pub fn open(options: StoreOptions) -> Result<Self> {
        let inner = crate::start::open(options)?;
        let background = Background::start(&inner).map_err(|source| StoreError::Io {
            action: "start the threads of",
            path: "the store".into(),
            source,
        })?;
        Ok(Self { inner, background })
    }

    /// The same for ever; written to the volumes' `VERSION` with the first pool.
    pub fn datanode_uuid(&self) -> &DatanodeUuid {
        &self.inner.uuid
    }

    /// Asks file systems how large they are, which may have to be waited for.
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

    /// What start-up found wanting and went on without: for the log and the operator.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Makes or checks the pool's directories on every volume, and finds its replicas again in memory and on disk.
    /// Attaching a pool twice is fine. A volume whose disk does not answer for it fails, with an event. Waits for the disks.
    ///
    /// Errors: `Foreign` (the directories are another cluster's or namespace's); `Io`, when all volumes have failed, or one is full.
    pub fn attach_pool(&self, pool: &PoolIdentity) -> Result<PoolSummary> {
        self.inner.attach_pool(pool)
    }

    pub fn pools(&self) -> Vec<BlockPoolId> {
        self.inner.pools.read().keys().cloned().collect()
    }

    /// A new replica of `block` (its length is not looked at), empty.
    ///
    /// Errors: `ReplicaExists`; `NoSuchStorageType`, `NoSpace`; `WriterStillRunning`; `PoolNotAttached`.
    pub fn create(&self, block: &ExtendedBlock, kind: CreateKind, options: &CreateOptions) -> Result<ReplicaWriter> {
        self.inner.create(block, kind, options)
    }

    /// PIPELINE_SETUP_APPEND: opens the finalized replica `block` of exactly `length` bytes for more, under `new_stamp`.
    /// Waits for the disk when the replica has a copy there.
    pub fn append(&self, block: &ExtendedBlock, new_stamp: GenerationStamp, length: u64) -> Result<ReplicaWriter> {
        self.inner.append(block, new_stamp, length)
    }

    /// PIPELINE_SETUP_APPEND_RECOVERY: the same for one finalized or being written, whose writer is stopped.
    pub fn recover_append(
        &self,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<ReplicaWriter> {
        self.inner.recover_append(block, new_stamp, length)
    }

    /// PIPELINE_SETUP_STREAMING_RECOVERY: stops the writer of a replica being written, cuts it to the acknowledged bytes
    /// and hands it to a new writer.
    pub fn recover_being_written(&self, block: &ExtendedBlock, recovery: PipelineRecovery) -> Result<ReplicaWriter> {
        self.inner.recover_being_written(block, recovery)
    }

    /// PIPELINE_CLOSE_RECOVERY: checks as `recover_append`, then finalizes under `new_stamp`.
    pub fn recover_close(
        &self,
        block: &ExtendedBlock,
        new_stamp: GenerationStamp,
        length: u64,
    ) -> Result<ReplicaSummary> {
        self.inner.recover_close(block, new_stamp, length)
    }

    /// The replica for reading. Its stamp may be higher than `block`'s, not lower; its length is not compared.
    ///
    /// Errors: `ReplicaNotFound`, `StampMismatch`, `WrongState` (not readable), `Corrupt`.
    pub fn reader(&self, block: &ExtendedBlock) -> Result<ReplicaReader> {
        self.inner.reader(block)
    }

    /// The same for somebody who must not wait for a disk.
    ///
    /// Errors: as [`Blockstore::reader`]'s.
    pub fn reader_now(&self, block: &ExtendedBlock) -> Result<Reading> {
        self.inner.reader_now(block)
    }

    /// Brings a finalized replica into memory if it is not there, checks it, and keeps it there while the answer lives.
    /// `None`: memory is full, or its volume keeps replicas in files. Waits for the disk.
    ///
    /// Errors: `ReplicaNotFound`, `WrongState`, `Corrupt`, `Io`.
    pub fn pin(&self, block: &ExtendedBlock) -> Result<Option<PinnedReplica>> {
        self.inner.pin(block)
    }

    /// `None` when there is no such replica.
    pub fn replica(&self, pool: &BlockPoolId, id: BlockId) -> Option<ReplicaInfo> {
        self.inner.replica_info(pool, id)
    }

    /// The full block report of a pool: one entry per healthy storage, empty ones too.
    pub fn report(&self, pool: &BlockPoolId) -> Vec<StorageReplicas> {
        self.inner.report(pool)
    }

    /// Has every corrupt replica of a pool among the events once more: who hears a full report, which lists it, may not know.
    pub fn say_corrupt_again(&self, pool: &BlockPoolId) {
        self.inner.say_corrupt_again(pool);
    }

    /// For heartbeats: one entry per healthy storage.
    pub fn storage_reports(&self, pool: &BlockPoolId) -> Vec<StorageReport> {
        self.inner.storage_reports(pool)
    }

    /// Bytes of replicas on storages of this type, of all pools, and those that being-written ones there may come to need.
    pub fn bytes_on(&self, storage_type: StorageType) -> u64 {
        self.inner.bytes_on(storage_type)
    }

    /// Deletes replicas of exactly the stamp asked for; a writer is stopped. One result per block, in order: where
    /// the replica was. Waits for the disk.
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
    /// Errors: `StampMismatch`, `RecoveryInProgress`, `WriterStillRunning`; `VolumeFailed`: it may be found elsewhere later.
    pub fn initiate_recovery(
        &self,
        block: &ExtendedBlock,
        recovery_id: GenerationStamp,
    ) -> Result<Option<RecoveryInfo>> {
        self.inner.initiate_recovery(block, recovery_id)
    }

    /// Second step: `old` (as the first step answered) gets `new_length` bytes and the stamp `recovery_id`, and is
    /// finalized. With a `new_id` other than its own, that becomes a copy and the old replica stays (truncate).
    /// Waits for the disk.
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

    /// Moves a finalized replica to a storage of another type of this datanode (REPLACE_BLOCK to itself).
    pub fn move_to_storage_type(&self, block: &ExtendedBlock, to: StorageType) -> Result<ReplicaSummary> {
        self.inner.move_to_storage_type(block, to)
    }

    /// Checks every byte of every copy of the replica against its CRCs. Bad copies are dropped while a good one is left;
    /// with none left the replica is marked corrupt, with an event. Waits for the disk.
    ///
    /// Errors: `Corrupt`; `ReplicaNotFound`; `Io`, when a copy cannot be opened and no other is good: nothing is known of it.
    pub fn verify(&self, block: &ExtendedBlock) -> Result<()> {
        self.inner.verify(block)
    }

    /// Writes whatever is in memory only to disk, replicas being written too, and tells `progress` after each batch;
    /// it goes on while that answers true. Before the process ends (SIGTERM).
    pub fn flush_all(&self, progress: &mut dyn FnMut(FlushProgress) -> bool) -> FlushProgress {
        self.inner.flush_all(progress)
    }

    /// Writes what is due by `flush_delay`, once. The store's own threads do this; tests without threads call it.
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

    /// Empties the memory tier that a killed datanode left: everything to disk, verified, then out of memory. After this
    /// the directories can be given to Apache's datanode. `hearth datanode --flush`.
    pub fn flush_offline(
        options: StoreOptions,
        progress: &mut dyn FnMut(FlushProgress) -> bool,
    ) -> Result<FlushProgress> {
        let store = Self::open(StoreOptions { background: false, failed_volumes_tolerated: 0, ..options })?;
        store.inner.flush_offline(progress)
    }

    /// Has `hook` told of everything that ends what was shown of a replica, from here on. Once, before the first pool.
    pub fn on_withdraw(&self, hook: Arc<dyn WithdrawHook>) {
        self.inner.set_withdraw_hook(hook);
    }

    /// Gives back the memory of replicas that are gone and that other processes have let go of since, and settles the accounts of
    /// memory that was lent. The store's own threads do this; tests without threads call it.
    pub fn sweep(&self) {
        self.inner.budget.sweep();
        self.inner.sweep_lent();
    }

    /// Looks at replicas that could not be read, and at the volumes. The store's own threads do this; tests without threads call it.
    pub fn look_at_suspects(&self) {
        for volume in &self.inner.volumes {
            self.inner.look_at_suspects(volume, usize::MAX);
            self.inner.probe_volume(volume);
        }
    }

    /// Events since the last call, oldest first. At most 10,000 are kept.
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
