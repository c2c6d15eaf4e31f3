//! The DataNode as a whole: shared state, start and shutdown.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hearth_blockstore::{Blockstore, FlushProgress, Reading, ReplicaReader, StoreEvent};
use hearth_fabric::tcp::{Connection, Listener};
use hearth_fabric::{ConnectionLimit, ConnectionLimitOptions, MessageMemory, SlowPeerLimits, local};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, RpcServer, RpcServerOptions};
use hearth_types::{BlockPoolId, DatanodeUuid, ExtendedBlock, StorageReport};
use hearth_wire::data_transfer::OpCode;
use hearth_wire::offer::Offer;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};

use crate::advertise::Advertiser;
use crate::cache::Cache;
use crate::disk_reads::DiskReads;
use crate::error::Error;
use crate::forward::LocalForwarding;
use crate::ipc::IpcService;
use crate::lazy_persist;
use crate::locked_memory::LockedMemory;
use crate::metrics::Metrics;
use crate::namenode;
use crate::one_sided_server::OneSidedServer;
use crate::ops::OpError;
use crate::options::DatanodeOptions;
use crate::peer_offers::PeerOffers;
use crate::pool::{Pool, Pools};
use crate::reports::{Notice, ReplicaEvent};
use crate::slots::Slots;
use crate::streams::Streams;
use crate::throttle::Throttle;
use crate::withdraw_hooks::WithdrawHooks;
use crate::{one_sided_server, server, web};

/// Backlog of connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Limits for slow senders of packets while other senders wait for memory. Generous enough for a lost segment or a busy
/// machine.
const PACKET_PATIENCE: SlowPeerLimits =
    SlowPeerLimits { idle_max: Duration::from_secs(5), lag_max: Duration::from_secs(10), bytes_per_second: 4 << 20 };

/// Interval of polling the store for events (corrupt replicas, failed volumes).
const EVENTS_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which an announced restart checks for remaining writers.
const RESTART_POLL: Duration = Duration::from_millis(20);

/// Maximum time that the shutdown waits for tasks that are still busy.
const TASKS_END_TIMEOUT: Duration = Duration::from_secs(5);

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
    addresses: OnceLock<Addresses>,
    domain_socket: Option<PathBuf>,
    /// `None`: this DataNode has no network for one-sided access.
    pub(crate) one_sided: Option<Arc<OneSidedServer>>,
    pub(crate) peer_offers: PeerOffers,
    pub(crate) disk_reads: DiskReads,
    pub(crate) local_forwarding: LocalForwarding,
    pub(crate) streams: Streams,
    stop: watch::Sender<bool>,
    /// True when this DataNode is about to stop and to be started again soon.
    restarting: watch::Sender<bool>,
    /// True when an administrator requested the end of the process.
    shutdown_requested: watch::Sender<bool>,
    /// True when too many storage directories have failed.
    volumes_failed: AtomicBool,
}

impl Datanode {
    /// Opens the storage directories, listens, and begins to register with the NameNodes.
    ///
    /// Errors: the first reason why it cannot serve. Unreachable NameNodes are not an error: the DataNode retries them
    /// forever.
    pub async fn start(options: DatanodeOptions) -> Result<Handle, Error> {
        let descriptors = hearth_fabric::raise_descriptor_limit();
        let store_options = options.store.clone();
        let store = tokio::task::spawn_blocking(move || Blockstore::open(store_options))
            .await
            .map_err(|_| Error::Interrupted)??;
        let listen = |what, address| move |source| Error::Listen { what, address, source };
        let transfer = Listener::bind(options.transfer_address, options.transfer.socket, BACKLOG)
            .map_err(listen("data transfer", options.transfer_address))?;
        let local = listen_local(&options, transfer.address().port())?;
        let rpc = RpcClient::new(RpcClientOptions {
            connect_timeout: options.rpc.connect_timeout,
            rpc_timeout: options.rpc.call_timeout,
            response_bytes_max: options.rpc.frame_bytes_max,
            // Clients connect to the address from which a NameNode sees this DataNode connect.
            bind: Some(options.transfer_address.ip()).filter(|ip| !ip.is_unspecified() && !ip.is_loopback()),
            ..RpcClientOptions::default()
        });
        let slots = Slots::new(options.revocation_timeout);
        let withdraw_hooks = Arc::new(WithdrawHooks::default());
        withdraw_hooks.add(slots.clone());
        store.on_withdraw(withdraw_hooks.clone());
        let store = Arc::new(store);
        let incarnation = incarnation()?;
        let one_sided = OneSidedServer::start(&options.one_sided, &store, incarnation, descriptors).await?;
        let (one_sided, one_sided_listener) = one_sided.unzip();
        if let Some(one_sided) = &one_sided {
            let advertiser: Arc<Advertiser> = one_sided.advertiser.clone();
            withdraw_hooks.add(advertiser);
        }
        let locked_memory = LockedMemory::new(options.locked_memory, &store);
        let metrics = Arc::new(Metrics::default());
        let datanode = Arc::new(Self {
            store,
            pools: Pools::default(),
            metrics: metrics.clone(),
            connection_limit: ConnectionLimit::new(ConnectionLimitOptions::new(options.transfer.connections_max)),
            message_memory: MessageMemory::new(options.transfer.message_bytes_max, PACKET_PATIENCE),
            writers: Arc::new(Writers::default()),
            cache: Arc::new(Cache::new(locked_memory.clone())),
            locked_memory,
            lazy_writer: Notify::new(),
            slots,
            incarnation,
            rpc,
            balance_throttle: Throttle::new(options.balance_bytes_per_second),
            transfer_throttle: Throttle::new(options.transfer.transfer_bytes_per_second),
            move_permits: Arc::new(Semaphore::new(options.balance_moves_max)),
            started: Instant::now(),
            services: namenode::BlockPoolServices::default(),
            addresses: OnceLock::new(),
            domain_socket: local.as_ref().map(|listener| listener.path().to_owned()),
            one_sided,
            peer_offers: PeerOffers::default(),
            // A request waits at most three times, so its client receives the answer before its own timeout.
            disk_reads: DiskReads::new(options.transfer.read_timeout / 4),
            local_forwarding: LocalForwarding::default(),
            streams: Streams::new(options.streams, metrics),
            stop: watch::Sender::new(false),
            restarting: watch::Sender::new(false),
            shutdown_requested: watch::Sender::new(false),
            volumes_failed: AtomicBool::new(false),
            options,
        });
        let ipc = RpcServer::start(
            &datanode.options.ipc_address.to_string(),
            Arc::new(IpcService::new(datanode.clone())),
            RpcServerOptions {
                frame_bytes_max: datanode.options.rpc.frame_bytes_max,
                ..RpcServerOptions::with_message_bytes(datanode.options.rpc.message_bytes_max)
            },
        )
        .await
        .map_err(|error| Error::Listen {
            what: "IPC",
            address: datanode.options.ipc_address,
            source: error.source,
        })?;
        let http = web::bind(&datanode).await?;
        let addresses = Addresses { transfer: transfer.address(), ipc: ipc.address(), http: http.address() };
        // Set once, here, before any task that reads it runs.
        let _ = datanode.addresses.set(addresses);
        let http = http.serve();
        tokio::spawn(server::accept(datanode.clone(), transfer));
        if let Some(local) = local {
            tokio::spawn(server::accept_local(datanode.clone(), local));
        }
        if let (Some(one_sided), Some(listener)) = (datanode.one_sided.clone(), one_sided_listener) {
            tokio::spawn(one_sided_server::accept(datanode.clone(), one_sided, listener));
        }
        tokio::spawn(watch_store(datanode.clone()));
        tokio::spawn(lazy_persist::run(datanode.clone()));
        namenode::start_all(&datanode);
        tracing::info!(transfer = %addresses.transfer, ipc = %addresses.ipc, http = %addresses.http, "datanode serves");
        Ok(Handle { datanode, addresses, ipc: Mutex::new(Some(ipc)), http: Mutex::new(Some(http)) })
    }

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

/// Listens on the configured domain socket for clients on this machine, if one is configured.
fn listen_local(options: &DatanodeOptions, port: u16) -> Result<Option<local::Listener>, Error> {
    let Some(path) = &options.domain_socket_path else { return Ok(None) };
    // Replaced in the same way as Hadoop's clients do.
    let path = PathBuf::from(path.replace("_PORT", &port.to_string()));
    local::check_path(&path)?;
    // Access is controlled by tokens, as over TCP.
    Ok(Some(local::Listener::bind(&path, 0o666, BACKLOG)?))
}

fn incarnation() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Reason why a DataNode stops on its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// An administrator requested it.
    ShutdownRequested,
    /// No NameNode accepts this DataNode any more, e.g. because its directories belong to another cluster. The log has
    /// the reason.
    NoNamenode,
    /// More storage directories have failed than `dfs.datanode.failed.volumes.tolerated`; the log names them.
    VolumesFailed,
}

/// Handle of a running DataNode. Dropping it stops the tasks; `shutdown` stops it in good order.
pub struct Handle {
    datanode: Arc<Datanode>,
    addresses: Addresses,
    ipc: Mutex<Option<RpcServer>>,
    http: Mutex<Option<web::WebServer>>,
}

impl Handle {
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Resolves when, for every configured nameservice, this DataNode is registered with one of its NameNodes.
    pub async fn registered(&self) {
        self.datanode.services.all_registered().await;
    }

    /// Resolves when the process should end.
    pub async fn ended(&self) -> EndReason {
        let mut asked = self.datanode.shutdown_requested.subscribe();
        let _ = asked.wait_for(|asked| *asked).await;
        if self.datanode.volumes_failed.load(Ordering::Relaxed) {
            return EndReason::VolumesFailed;
        }
        if self.datanode.services.any_alive() { EndReason::ShutdownRequested } else { EndReason::NoNamenode }
    }

    /// Returns the address for one-sided readers and writers, if they are supported.
    pub fn one_sided_address(&self) -> Option<SocketAddr> {
        self.datanode.one_sided.as_ref().map(|one_sided| one_sided.address())
    }

    /// Returns the path of the domain socket for clients on this machine, if there is one.
    pub fn domain_socket(&self) -> Option<&Path> {
        self.datanode.domain_socket()
    }

    /// Returns this DataNode's UUID, which stays the same over restarts.
    pub fn uuid(&self) -> DatanodeUuid {
        self.datanode.store.datanode_uuid().clone()
    }

    /// Stops serving. With `flush`, first writes to disk all data that is only in memory. Returns what is left
    /// unwritten.
    pub async fn shutdown(&self, flush: bool) -> FlushProgress {
        self.datanode.stop.send_replace(true);
        // Connections end at their next await; writers drop their state.
        self.datanode.writers.disconnect_all();
        self.datanode.cache.stop();
        self.http.lock().take();
        self.ipc.lock().take();
        self.wait_for_tasks().await;
        self.datanode.streams.clear();
        let mut progress = FlushProgress::default();
        if flush {
            let store = self.datanode.store.clone();
            let flushed = tokio::task::spawn_blocking(move || {
                let mut told = Instant::now();
                store.flush_all(&mut |progress| {
                    if told.elapsed() > Duration::from_secs(1) {
                        told = Instant::now();
                        tracing::info!(
                            replicas = progress.replicas_left,
                            bytes = progress.bytes_left,
                            "replicas are left unwritten at shutdown"
                        );
                    }
                    true
                })
            });
            if let Ok(done) = flushed.await {
                progress = done;
            }
        }
        progress
    }
}

impl Handle {
    /// Waits until this handle holds the only reference to the DataNode. From then on nothing writes, and dropping the
    /// handle releases the storage directories. Bounded, because a copy to another DataNode may be waiting for that
    /// DataNode.
    async fn wait_for_tasks(&self) {
        let deadline = tokio::time::Instant::now() + TASKS_END_TIMEOUT;
        while Arc::strong_count(&self.datanode) > 1 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.datanode.stop.send_replace(true);
    }
}

/// List of the clients' active writers, so that an administrator can disconnect them.
#[derive(Default)]
pub(crate) struct Writers {
    next: AtomicU64,
    active: Mutex<HashMap<u64, (ExtendedBlock, Arc<Connection>)>>,
}

/// Removes a writer from the list when dropped.
pub(crate) struct WriterGuard {
    writers: Arc<Writers>,
    key: u64,
}

impl Writers {
    pub fn add(self: &Arc<Self>, block: ExtendedBlock, connection: Arc<Connection>) -> WriterGuard {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.active.lock().insert(key, (block, connection));
        WriterGuard { writers: self.clone(), key }
    }

    pub fn is_empty(&self) -> bool {
        self.active.lock().is_empty()
    }

    /// Closes the connections of all writers. Returns their number.
    pub fn disconnect_all(&self) -> usize {
        let active = self.active.lock();
        for (block, connection) in active.values() {
            tracing::info!(%block, writer = %connection.peer(), "disconnecting a writer");
            connection.shutdown();
        }
        active.len()
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.writers.active.lock().remove(&self.key);
    }
}

/// Reports to the NameNodes what the store detects by itself.
async fn watch_store(datanode: Arc<Datanode>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVENTS_INTERVAL) => {}
            () = datanode.stopping() => return,
        }
        datanode.streams.expire();
        for event in datanode.store.take_events() {
            match event {
                StoreEvent::Corrupt { block, storage, storage_type } => {
                    if let Some(pool) = datanode.pools.get(&block.pool) {
                        pool.report_own_bad_replica(&block, &storage, storage_type);
                    }
                }
                StoreEvent::Missing(replica) => {
                    if let Some(pool) = datanode.pools.get(&replica.block.pool) {
                        pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Deleted);
                    }
                }
                StoreEvent::VolumeFailed { storage, dir, reason, capacity_lost } => {
                    let storage = storage.map(|id| id.to_string()).unwrap_or_default();
                    tracing::error!(storage, dir = %dir.display(), reason, capacity_lost, "a storage directory has failed");
                    let message = format!("storage directory {} has failed: {reason}", dir.display());
                    for pool in datanode.pools.all() {
                        pool.add_notice(&Notice::DiskError { message: message.clone() });
                    }
                    datanode.services.note_failed_volume(&dir, capacity_lost, datanode.options.clock.wall_ms());
                    end_when_too_many_failed(&datanode);
                }
                StoreEvent::Moved(replica) => {
                    // The replica may have been deleted in the meantime, which was reported to the NameNode separately.
                    let there = datanode.store.replica(&replica.block.pool, replica.block.id());
                    let is_there = there.is_some_and(|there| {
                        there.storage == replica.storage && there.block.stamp == replica.block.stamp()
                    });
                    if is_there && let Some(pool) = datanode.pools.get(&replica.block.pool) {
                        // No DELETED event: the NameNode sees that the storage differs.
                        let received = ReplicaEvent::Received { delete_hint: None };
                        pool.notify(&replica.storage, replica.block.block, received);
                    }
                }
            }
        }
    }
}

/// Stops the DataNode when too many storage directories have failed to continue.
fn end_when_too_many_failed(datanode: &Arc<Datanode>) {
    let failed = datanode.services.failed_volumes().dirs.len();
    let store = &datanode.options.store;
    let volumes = store.volumes.len();
    let tolerated = store.failed_volumes_tolerated.min(volumes - 1);
    if failed <= tolerated || datanode.volumes_failed.swap(true, Ordering::Relaxed) {
        return;
    }
    tracing::error!(
        failed,
        tolerated,
        "too many storage directories have failed (dfs.datanode.failed.volumes.tolerated)"
    );
    let message = format!("{failed} of {volumes} storage directories have failed");
    for pool in datanode.pools.all() {
        pool.add_notice(&Notice::FatalDiskError { message: message.clone() });
    }
    let datanode = datanode.clone();
    tokio::spawn(async move {
        // Leaves time to report the failure to the NameNodes first.
        tokio::time::sleep(EVENTS_INTERVAL).await;
        datanode.request_shutdown();
    });
}
