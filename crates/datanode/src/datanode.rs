//! The DataNode as a whole: the state that all its tasks share.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hearth_blockstore::{Blockstore, Reading, ReplicaReader};
use hearth_fabric::{ConnectionLimit, MessageMemory};
use hearth_protocol::rpc::RpcClient;
use hearth_types::{BlockPoolId, ExtendedBlock, StorageReport};
use hearth_wire::data_transfer::OpCode;
use hearth_wire::offer::Offer;
use tokio::sync::{Notify, Semaphore, watch};

use crate::cache::Cache;
use crate::disk_reads::DiskReads;
use crate::forward::LocalForwarding;
use crate::locked_memory::LockedMemory;
use crate::metrics::Metrics;
use crate::namenode;
use crate::one_sided_server::OneSidedServer;
use crate::ops::OpError;
use crate::options::DatanodeOptions;
use crate::peer_offers::PeerOffers;
use crate::pool::{Pool, Pools};
use crate::slots::Slots;
use crate::streams::Streams;
use crate::throttle::Throttle;
use crate::writers::Writers;

/// Interval at which an announced restart checks for remaining writers.
const RESTART_POLL: Duration = Duration::from_millis(20);

/// Addresses and ports in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    pub transfer: SocketAddr,
    pub ipc: SocketAddr,
    pub http: SocketAddr,
}

/// State shared by all tasks of a DataNode.
pub struct Datanode {
    pub(crate) options: DatanodeOptions,
    pub(crate) store: Arc<Blockstore>,
    pub(crate) pools: Pools,
    pub(crate) metrics: Arc<Metrics>,
    /// Limit of data connections over TCP and the domain socket.
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    /// Memory for long packets and requests that arrive on those connections.
    pub(crate) message_memory: Arc<MessageMemory>,
    pub(crate) writers: Arc<Writers>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) locked_memory: Arc<LockedMemory>,
    /// Notified when RAM_DISK storage is requested and its memory is full.
    pub(crate) lazy_writer: Notify,
    /// Shared-memory slots of clients on this machine.
    pub(crate) slots: Arc<Slots>,
    /// Number that differs after each start.
    pub(crate) incarnation: u64,
    pub(crate) rpc: RpcClient,
    pub(crate) balance_throttle: Throttle,
    pub(crate) transfer_throttle: Throttle,
    /// One permit for each copy that the balancer may run at once.
    pub(crate) move_permits: Arc<Semaphore>,
    pub(crate) started: Instant,
    pub(crate) services: namenode::BlockPoolServices,
    pub(crate) addresses: OnceLock<Addresses>,
    pub(crate) domain_socket: Option<PathBuf>,
    /// `None`: this DataNode has no network for one-sided access.
    pub(crate) one_sided: Option<Arc<OneSidedServer>>,
    pub(crate) peer_offers: PeerOffers,
    pub(crate) disk_reads: DiskReads,
    pub(crate) local_forwarding: LocalForwarding,
    pub(crate) streams: Streams,
    pub(crate) stop: watch::Sender<bool>,
    /// True when this DataNode is about to stop and to be started again soon.
    pub(crate) restarting: watch::Sender<bool>,
    /// True when an administrator requested the end of the process.
    pub(crate) shutdown_requested: watch::Sender<bool>,
    /// True when too many storage directories have failed.
    pub(crate) volumes_failed: AtomicBool,
}

impl Datanode {
    /// Returns the addresses and ports in use.
    pub fn addresses(&self) -> Addresses {
        *self.addresses.get().expect("set by start, before any task runs")
    }

    /// Returns the path of the domain socket for clients on this machine, if there is one.
    pub(crate) fn domain_socket(&self) -> Option<&Path> {
        self.domain_socket.as_deref()
    }

    /// Returns the offer that this DataNode sends to Hearth's clients, directly or through a NameNode.
    pub(crate) fn offer(&self) -> Offer {
        let one_sided = self.one_sided.as_ref();
        Offer {
            incarnation: self.incarnation,
            domain_socket: self.domain_socket().and_then(Path::to_str).map(str::to_owned),
            one_sided: one_sided.iter().map(|one_sided| one_sided.address()).collect(),
            transport: one_sided.map(|one_sided| one_sided.transport_name().to_owned()),
            operations: vec![OpCode::Describe, OpCode::ReadMany],
        }
    }

    /// Notes that a replica is finalized and can be advertised to one-sided readers.
    pub(crate) fn note_finalized(&self, block: &ExtendedBlock) {
        if let Some(one_sided) = &self.one_sided {
            one_sided.advertiser.on_finalized(block.clone());
        }
    }

    /// Resolves when the DataNode stops.
    pub(crate) async fn stopping(&self) {
        let mut stop = self.stop.subscribe();
        // The sender is a field of `self`, so it outlives this future.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Returns a receiver that becomes true when this DataNode is about to restart.
    pub(crate) fn restarting(&self) -> watch::Receiver<bool> {
        self.restarting.subscribe()
    }

    pub(crate) fn is_restarting(&self) -> bool {
        *self.restarting.borrow()
    }

    /// Notifies writers that this DataNode is about to restart, and accepts no new ones. Returns when all writers have
    /// left, or at `deadline`.
    pub(crate) async fn announce_restart(&self, deadline: tokio::time::Instant) {
        self.restarting.send_replace(true);
        while !self.writers.is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(RESTART_POLL).await;
        }
    }

    /// Records that an administrator requested a shutdown; the owner of the handle carries it out.
    pub(crate) fn request_shutdown(&self) {
        self.shutdown_requested.send_replace(true);
    }

    /// Returns the block pool of a request, once the pool is registered with a NameNode.
    pub(crate) async fn ready_pool(&self, id: &BlockPoolId) -> Result<Arc<Pool>, OpError> {
        self.pools
            .ready(id, self.options.transfer.pool_ready_timeout)
            .await
            .ok_or_else(|| OpError::PoolNotReady { pool: id.clone() })
    }

    /// Returns a replica for reading. If that opens files on disk, a thread that may block does it.
    ///
    /// Errors: those of [`Blockstore::reader`]; `Refused`: too many requests wait for that disk.
    pub(crate) async fn reader(&self, block: &ExtendedBlock) -> Result<ReplicaReader, OpError> {
        match self.store.reader_now(block)? {
            Reading::Now(reader) => Ok(reader),
            Reading::OnDisk(storage) => {
                let (store, block) = (self.store.clone(), block.clone());
                self.disk_reads.run(&storage, move || Ok(store.reader(&block)?)).await
            }
        }
    }

    /// Runs a blocking call of the store on a thread that may block.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Blockstore) -> hearth_blockstore::Result<T> + Send + 'static,
    ) -> Result<T, OpError> {
        self.run_blocking_op(move |store| Ok(call(store)?)).await
    }

    /// Like `run_blocking`, for calls with further kinds of errors.
    pub(crate) async fn run_blocking_op<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Blockstore) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, OpError> {
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || call(&store)).await.map_err(|_| OpError::Interrupted)?
    }

    /// Returns the storage reports for heartbeats and web pages.
    pub(crate) fn storage_reports(&self, pool: &BlockPoolId) -> Vec<StorageReport> {
        self.store.storage_reports(pool)
    }
}
