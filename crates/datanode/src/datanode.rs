//! The DataNode as a whole: the state that its ports and its NameNodes share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hearth_config::Reconfiguration;
use hearth_fabric::MessageMemory;
use hearth_protocol::rpc::RpcClient;
use hearth_types::{Outlier, SlowDisk};
use hearth_web::Protection;
use hearth_wire::data_transfer::OpCode;
use hearth_wire::offer::Offer;
use tokio::time::Instant;

use crate::block_pool_service::BlockPoolServices;
use crate::cache::Cache;
use crate::data_connections::DataConnections;
use crate::endpoints::{Addresses, Endpoints};
use crate::forward::Forwarding;
use crate::lifecycle::Lifecycle;
use crate::locked_memory::LockedMemory;
use crate::move_permits::MovePermits;
use crate::one_sided::OneSidedAccess;
use crate::options::DatanodeOptions;
use crate::outliers::SlowDisks;
use crate::replica_service::ReplicaService;
use crate::slots::Slots;
use crate::streams::Streams;
use crate::writers::Writers;

/// Interval at which an announced restart checks for remaining writers.
const RESTART_POLL: Duration = Duration::from_millis(20);

/// State shared by all tasks of a DataNode. Below the operations, rooms get only the part of it that they use.
pub struct Datanode {
    pub(crate) options: Arc<DatanodeOptions>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) endpoints: Endpoints,
    pub(crate) replicas: Arc<ReplicaService>,
    pub(crate) connections: DataConnections,
    pub(crate) writers: Arc<Writers>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) locked_memory: Arc<LockedMemory>,
    /// Shared-memory slots of clients on this machine.
    pub(crate) slots: Arc<Slots>,
    /// `None`: this DataNode has no network for one-sided access.
    pub(crate) one_sided: Option<Arc<OneSidedAccess>>,
    /// Paths to the next DataNode of a pipeline.
    pub(crate) forwarding: Arc<Forwarding>,
    pub(crate) streams: Arc<Streams>,
    /// One permit for each copy that the balancer runs.
    pub(crate) move_permits: Arc<MovePermits>,
    pub(crate) rpc: RpcClient,
    pub(crate) services: BlockPoolServices,
    pub(crate) slow_disks: SlowDisks,
    /// Keys that can change at run time; see [`Datanode::reconfigure`].
    pub(crate) reconfiguration: Reconfiguration<Self>,
    /// Memory for long requests on the IPC port.
    pub(crate) ipc_memory: Arc<MessageMemory>,
    /// Rules of the web port.
    pub(crate) protection: Protection,
}

impl Datanode {
    /// Returns the DataNodes that are much slower than others, as far as they are measured.
    pub(crate) fn slow_peers(&self) -> Vec<Outlier> {
        let (peers, options) = (self.replicas.metrics.peers(), self.options.current().outliers);
        peers.map(|peers| peers.slow(&options, self.options.clock.monotonic())).unwrap_or_default()
    }

    /// Returns the disks of this DataNode that are much slower than its others, if they are measured. Does not wait for
    /// any of them.
    pub(crate) fn slow_disks(&self) -> Vec<SlowDisk> {
        let options = self.options.current().outliers;
        if !options.measures_disks {
            return Vec::new();
        }
        self.slow_disks.of(self.replicas.store.disk_times(), &options, self.options.clock.monotonic())
    }

    /// Returns the addresses and ports in use.
    pub fn addresses(&self) -> Addresses {
        self.endpoints.addresses()
    }

    /// Returns the offer that this DataNode sends to Hearth's clients, directly or through a NameNode.
    pub(crate) fn offer(&self) -> Offer {
        let one_sided = self.one_sided.as_ref();
        Offer {
            incarnation: self.endpoints.incarnation,
            domain_socket: self.endpoints.domain_socket().and_then(Path::to_str).map(str::to_owned),
            one_sided: one_sided.iter().map(|one_sided| one_sided.address()).collect(),
            transport: one_sided.map(|one_sided| one_sided.transport_name().to_owned()),
            operations: vec![OpCode::Describe, OpCode::ReadMany],
        }
    }

    /// Notifies writers that this DataNode is about to restart, and accepts no new ones. Returns when all writers have
    /// left, or at `deadline`.
    pub(crate) async fn announce_restart(&self, deadline: Instant) {
        self.lifecycle.note_restarting();
        while !self.writers.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(RESTART_POLL).await;
        }
    }
}
