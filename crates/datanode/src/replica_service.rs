//! The stored replicas with everything that each use of them needs: pools and their tokens, limits, counters. This is
//! the ground of pipelines, streams and transfers; it names none of them.

use std::sync::Arc;

use hearth_blockstore::{Blockstore, Reading, ReplicaReader, StoreError};
use hearth_types::{BlockPoolId, ExtendedBlock};

use crate::advertise::Advertiser;
use crate::disk_reads::{DiskReadError, DiskReads};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::options::DatanodeOptions;
use crate::pool::{Pool, PoolNotReady, Pools};
use crate::throttle::Throttle;

/// Reason why the store could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many requests wait for the replica's disk.
    #[error(transparent)]
    DiskBusy(DiskReadError),
    #[error("a task of the store was interrupted")]
    Interrupted,
}

impl From<DiskReadError> for ReplicaError {
    fn from(error: DiskReadError) -> Self {
        match error {
            DiskReadError::TooMany { .. } => Self::DiskBusy(error),
            DiskReadError::Interrupted => Self::Interrupted,
        }
    }
}

impl ReplicaError {
    /// Returns true if a later operation took the replica over from its writer.
    pub fn is_taken_over(&self) -> bool {
        matches!(self, Self::Store(StoreError::WriterStopped { .. }))
    }
}

/// Replicas of this DataNode, as operations and copies use them.
pub struct ReplicaService {
    pub options: Arc<DatanodeOptions>,
    pub store: Arc<Blockstore>,
    pub pools: Pools,
    pub metrics: Arc<Metrics>,
    pub disk_reads: DiskReads,
    /// Bandwidth of copies that a balancer requests.
    pub balance_throttle: Throttle,
    /// Bandwidth of copies that a NameNode orders.
    pub transfer_throttle: Throttle,
    pub lifecycle: Arc<Lifecycle>,
    /// Shows replicas to one-sided readers. `None`: this DataNode has no network for one-sided access.
    advertiser: Option<Arc<Advertiser>>,
}

impl ReplicaService {
    pub fn new(
        options: Arc<DatanodeOptions>,
        store: Arc<Blockstore>,
        metrics: Arc<Metrics>,
        lifecycle: Arc<Lifecycle>,
        advertiser: Option<Arc<Advertiser>>,
    ) -> Self {
        Self {
            store,
            pools: Pools::default(),
            metrics,
            // A request waits at most three times, so its client receives the answer before its own timeout.
            disk_reads: DiskReads::new(options.transfer.read_timeout / 4),
            balance_throttle: Throttle::new(options.balance_bytes_per_second),
            transfer_throttle: Throttle::new(options.transfer.transfer_bytes_per_second),
            lifecycle,
            advertiser,
            options,
        }
    }

    /// Returns the block pool of a request, once the pool is registered with a NameNode.
    pub async fn ready_pool(&self, id: &BlockPoolId) -> Result<Arc<Pool>, PoolNotReady> {
        self.pools.ready(id, self.options.transfer.pool_ready_timeout).await
    }

    /// Returns a replica for reading. If that opens files on disk, a thread that may block does it.
    ///
    /// Errors: those of [`Blockstore::reader`]; `DiskBusy`: too many requests wait for that disk.
    pub async fn reader(&self, block: &ExtendedBlock) -> Result<ReplicaReader, ReplicaError> {
        match self.store.reader_now(block)? {
            Reading::Now(reader) => Ok(reader),
            Reading::OnDisk(storage) => {
                let (store, block) = (self.store.clone(), block.clone());
                self.disk_reads.run(&storage, move || Ok(store.reader(&block)?)).await
            }
        }
    }

    /// Runs a blocking call of the store on a thread that may block.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Blockstore) -> hearth_blockstore::Result<T> + Send + 'static,
    ) -> Result<T, ReplicaError> {
        self.run_blocking_op(move |store| Ok(call(store)?)).await
    }

    /// Like `run_blocking`, for calls with further kinds of errors.
    pub async fn run_blocking_op<T, E>(
        &self,
        call: impl FnOnce(&Blockstore) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<ReplicaError> + Send + 'static,
    {
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || call(&store)).await.map_err(|_| ReplicaError::Interrupted)?
    }

    /// Notes that a replica is finalized and can be advertised to one-sided readers.
    pub fn note_finalized(&self, block: &ExtendedBlock) {
        if let Some(advertiser) = &self.advertiser {
            advertiser.on_finalized(block.clone());
        }
    }
}
