//! Start of a DataNode: opens the storage directories and the ports, and starts the tasks. Also its end: the handle that
//! the owner of the process holds.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{Blockstore, FlushProgress};
use hearth_config::{Program, Reconfiguration};
use hearth_fabric::local;
use hearth_fabric::tcp::Listener;
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, RpcServer, RpcServerOptions};
use hearth_types::DatanodeUuid;
use hearth_web::{Protection, Server};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::advertise::Advertiser;
use crate::block_pool_service::BlockPoolServices;
use crate::cache::Cache;
use crate::data_connections::DataConnections;
use crate::datanode::Datanode;
use crate::endpoints::{Addresses, Endpoints};
use crate::error::Error;
use crate::forward::Forwarding;
use crate::ipc::IpcService;
use crate::lifecycle::Lifecycle;
use crate::locked_memory::LockedMemory;
use crate::metrics::Metrics;
use crate::move_permits::MovePermits;
use crate::one_sided::OneSidedAccess;
use crate::options::DatanodeOptions;
use crate::outliers::SlowDisks;
use crate::replica_service::ReplicaService;
use crate::slots::Slots;
use crate::streams::Streams;
use crate::withdraw_hooks::WithdrawHooks;
use crate::writers::Writers;
use crate::{lazy_persist, namenode, one_sided_server, reconfiguration, server, store_events, web};

/// Backlog of connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Maximum time that the shutdown waits for tasks that are still busy.
const TASKS_END_TIMEOUT: Duration = Duration::from_secs(5);

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
        let slots = Slots::new(options.revocation_timeout, options.clock.clone());
        let withdraw_hooks = Arc::new(WithdrawHooks::default());
        withdraw_hooks.add(slots.clone());
        store.on_withdraw(withdraw_hooks.clone());
        let store = Arc::new(store);
        let incarnation = incarnation()?;
        let one_sided =
            OneSidedAccess::start(&options.one_sided, &store, incarnation, descriptors, options.clock.clone()).await?;
        let (one_sided, one_sided_listener) = one_sided.unzip();
        if let Some(one_sided) = &one_sided {
            let advertiser: Arc<Advertiser> = one_sided.advertiser.clone();
            withdraw_hooks.add(advertiser);
        }
        let locked_memory = LockedMemory::new(options.locked_memory, &store);
        let options = Arc::new(options);
        let metrics = Metrics::new(options.clock.clone());
        metrics.set_measures_peers(options.current().outliers.measures_peers);
        let (metrics, lifecycle) = (Arc::new(metrics), Arc::new(Lifecycle::new()));
        let forwarding = Arc::new(Forwarding::new(one_sided.as_ref().map(|one_sided| one_sided.forwarding.clone())));
        let advertiser = one_sided.as_ref().map(|one_sided| one_sided.advertiser.clone());
        let streams = Streams::new(options.streams, metrics.clone(), forwarding.clone());
        let ipc_options = RpcServerOptions {
            frame_bytes_max: options.rpc.frame_bytes_max,
            ..RpcServerOptions::with_message_bytes(options.rpc.message_bytes_max)
        };
        let protection = Protection::read(&options.configuration, &options.host_name, Server::Datanode)?;
        let datanode = Arc::new(Datanode {
            replicas: Arc::new(ReplicaService::new(options.clone(), store, metrics, lifecycle.clone(), advertiser)),
            lifecycle,
            endpoints: Endpoints::new(incarnation, local.as_ref().map(|listener| listener.path().to_owned())),
            connections: DataConnections::new(&options.transfer),
            writers: Arc::new(Writers::default()),
            cache: Arc::new(Cache::new(locked_memory.clone())),
            locked_memory,
            slots,
            one_sided,
            forwarding,
            streams: Arc::new(streams),
            move_permits: MovePermits::new(options.balance_moves_max),
            rpc,
            services: BlockPoolServices::default(),
            slow_disks: SlowDisks::default(),
            reconfiguration: Reconfiguration::new(
                Program::Datanode,
                (*options.configuration).clone(),
                reconfiguration::KEYS,
            ),
            ipc_memory: ipc_options.message_memory.clone(),
            protection,
            options,
        });
        let ipc = RpcServer::start(
            &datanode.options.ipc_address.to_string(),
            Arc::new(IpcService::new(datanode.clone())),
            ipc_options,
        )
        .await
        .map_err(|error| Error::Listen {
            what: "IPC",
            address: datanode.options.ipc_address,
            source: error.source,
        })?;
        let http = web::bind(&datanode, ipc.metrics()).await?;
        let addresses = Addresses { transfer: transfer.address(), ipc: ipc.address(), http: http.address() };
        datanode.endpoints.set_addresses(addresses);
        let http = http.serve();
        tokio::spawn(server::accept(datanode.clone(), transfer));
        if let Some(local) = local {
            tokio::spawn(server::accept_local(datanode.clone(), local));
        }
        if let (Some(one_sided), Some(listener)) = (datanode.one_sided.clone(), one_sided_listener) {
            tokio::spawn(one_sided_server::accept(datanode.clone(), one_sided, listener));
        }
        tokio::spawn(store_events::watch(datanode.clone()));
        tokio::spawn(lazy_persist::run(datanode.replicas.clone(), datanode.locked_memory.clone()));
        namenode::start_all(&datanode);
        tracing::info!(transfer = %addresses.transfer, ipc = %addresses.ipc, http = %addresses.http, "datanode serves");
        Ok(Handle { datanode, addresses, ipc: Mutex::new(Some(ipc)), http: Mutex::new(Some(http)) })
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
    pub(crate) datanode: Arc<Datanode>,
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
        self.datanode.lifecycle.shutdown_requested().await;
        if self.datanode.lifecycle.have_volumes_failed() {
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
        self.datanode.endpoints.domain_socket()
    }

    /// Returns this DataNode's UUID, which stays the same over restarts.
    pub fn uuid(&self) -> DatanodeUuid {
        self.datanode.replicas.store.datanode_uuid().clone()
    }

    /// Stops serving. With `flush`, writes to disk all data that is only in memory, and frees that memory unless
    /// `hearth.memory.keep` is set. Returns what is left unwritten.
    pub async fn shutdown(&self, flush: bool) -> FlushProgress {
        self.datanode.lifecycle.stop();
        // Connections end at their next await; writers drop their state.
        self.datanode.writers.disconnect_all();
        self.datanode.cache.stop();
        self.http.lock().take();
        self.ipc.lock().take();
        let ended = self.wait_for_tasks().await;
        self.datanode.streams.clear();
        let mut progress = FlushProgress::default();
        if flush {
            let (store, clock) = (self.datanode.replicas.store.clone(), self.datanode.options.clock.clone());
            let keep_memory = self.datanode.options.current().keep_memory;
            let flushed = tokio::task::spawn_blocking(move || {
                let mut told = clock.monotonic();
                let mut done = store.flush_all(&mut |progress| {
                    if clock.monotonic() > told + Duration::from_secs(1) {
                        told = clock.monotonic();
                        tracing::info!(
                            replicas = progress.replicas_left,
                            bytes = progress.bytes_left,
                            "replicas are left unwritten at shutdown"
                        );
                    }
                    true
                });
                if !keep_memory && !ended {
                    tracing::warn!("replicas stay in memory, because a task that may still write there has not ended");
                }
                if !keep_memory && ended {
                    let (replicas, bytes) = store.drop_memory();
                    // Those whose disk is not reliable stay, too.
                    done.failures += replicas.saturating_sub(done.replicas_left);
                    done.replicas_left = done.replicas_left.max(replicas);
                    done.bytes_left = done.bytes_left.max(bytes);
                }
                done
            });
            if let Ok(done) = flushed.await {
                progress = done;
            }
        }
        progress
    }
}

impl Handle {
    /// Waits until this handle holds the only references to the DataNode and its replicas. From then on nothing writes,
    /// and dropping the handle releases the storage directories. Bounded, because a copy to another DataNode may be
    /// waiting for that DataNode.
    ///
    /// Returns whether all have ended.
    async fn wait_for_tasks(&self) -> bool {
        let deadline = Instant::now() + TASKS_END_TIMEOUT;
        let is_shared = || Arc::strong_count(&self.datanode) > 1 || Arc::strong_count(&self.datanode.replicas) > 1;
        while is_shared() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        !is_shared()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.datanode.lifecycle.stop();
    }
}
