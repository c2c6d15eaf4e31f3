//! Network for one-sided access: the replicas that are shown there, the memory that is registered for it, and the bound
//! of its connections. `one_sided_server.rs` accepts the connections and answers on them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Listener, Region, Transfer, Transport};
use hearth_fabric::{ConnectionLimit, ConnectionLimitOptions, Memory};
use hearth_types::{Clock, RemoteSlice};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::advertise::{Advertiser, Bounds};
use crate::forward::OneSidedForwarding;
use crate::options::OneSidedOptions;

/// Timeout for steps of a connection that need the peer.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Small replicas that are written to clients concurrently.
const SMALL_WRITES_MAX: usize = 16;

/// Buffer size for a small replica with its CRCs.
const SMALL_BYTES_MAX: u64 = 80 << 10;

/// Linux's default limit of mappings per process (`DEFAULT_MAX_MAP_COUNT`).
const DEFAULT_MAP_COUNT: u64 = 65_530;

/// Network for one-sided access: what is shown there, and what was registered for it.
pub struct OneSidedAccess {
    pub advertiser: Arc<Advertiser>,
    pub forwarding: Arc<OneSidedForwarding>,
    transport: Arc<dyn Transport>,
    address: SocketAddr,
    pub connection_limit: Arc<ConnectionLimit>,
    /// Registered memory from which small replicas are written.
    small_buffers: Mutex<Vec<Arc<dyn Region>>>,
    small_write_permits: Semaphore,
    /// Domains of writers' connections, one each.
    writer_domains: Mutex<Vec<Weak<dyn Domain>>>,
}

impl OneSidedAccess {
    /// Starts to listen. `descriptors`: the process's limit of descriptors. `None` if one-sided access is not
    /// configured or the machine has no such network: the other paths remain.
    pub async fn start(
        options: &OneSidedOptions,
        store: &Arc<hearth_blockstore::Blockstore>,
        incarnation: u64,
        descriptors: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<(Arc<Self>, Box<dyn Listener>)>, Error> {
        let Some(transport) = &options.transport else { return Ok(None) };
        let domain = match transport.domain() {
            Ok(domain) => domain,
            Err(error @ Error::Unavailable { .. }) => {
                tracing::info!(%error, "one-sided reads and writes are disabled");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let listener = match transport.listen(options.address).await {
            Ok(listener) => listener,
            // The port was not chosen explicitly: the other paths remain.
            Err(error) if options.address.port() == 0 => {
                tracing::warn!(%error, "one-sided reads and writes are disabled");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let bounds = Bounds { bytes: options.registered_bytes_max, replicas: replicas_max(descriptors) };
        let this = Self {
            forwarding: OneSidedForwarding::new(transport)?,
            advertiser: Advertiser::new(store, domain, incarnation, options.lease, bounds, clock),
            transport: transport.clone(),
            address: listener.address(),
            connection_limit: ConnectionLimit::new(connection_limits(options.lease, options.connections_max)),
            small_buffers: Mutex::new(Vec::new()),
            small_write_permits: Semaphore::new(SMALL_WRITES_MAX),
            writer_domains: Mutex::new(Vec::new()),
        };
        Ok(Some((Arc::new(this), listener)))
    }

    /// Changes the maximum number of connections. `lease`: that of the options at the start.
    pub fn set_connections_max(&self, lease: Duration, connections_max: usize) {
        self.connection_limit.set_options(connection_limits(lease, connections_max));
    }

    /// Returns the name of the network in which it listens.
    pub fn transport_name(&self) -> &'static str {
        self.transport.name()
    }

    /// Returns the address for clients; an unspecified address means any address of this machine.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bytes that are registered for writers' connections and for forwarding to the next DataNode.
    pub fn writer_registered_bytes(&self) -> u64 {
        let writing = self.writer_domains.lock();
        let others: u64 = writing.iter().filter_map(Weak::upgrade).map(|domain| domain.registered_bytes()).sum();
        others + self.forwarding.registered_bytes()
    }

    /// Creates a domain for the memory that one connection may write to.
    pub fn new_writer_domain(&self) -> Result<Arc<dyn Domain>, Error> {
        let domain = self.transport.domain()?;
        let mut writing = self.writer_domains.lock();
        writing.retain(|domain| domain.strong_count() > 0);
        writing.push(Arc::downgrade(&domain));
        Ok(domain)
    }

    /// Writes a small replica into the client's memory, followed by the message that reports it.
    pub async fn write_small(
        &self,
        connection: &dyn Connection,
        into: RemoteSlice,
        data: &[u8],
        crcs: &[u8],
        message: Bytes,
    ) -> Result<(), Error> {
        let _place = self.small_write_permits.acquire().await.expect("the semaphore is never closed");
        let kept = self.small_buffers.lock().pop();
        let local = match kept {
            Some(local) => local,
            None => {
                let failed = |source| Error::Register { bytes: SMALL_BYTES_MAX, source };
                let memory = Arc::new(Memory::fresh(SMALL_BYTES_MAX).map_err(failed)?);
                self.advertiser.domain().register(&memory, 0..SMALL_BYTES_MAX, Access::Local)?
            }
        };
        assert!(into.length <= SMALL_BYTES_MAX, "replicas above the slab limit have files of their own");
        local.memory().write(0, data);
        local.memory().write(data.len() as u64, crcs);
        let transfer = Transfer { local: local.clone(), offset: 0, remote: into };
        connection.write(vec![transfer], Some(message), PEER_TIMEOUT).await?;
        // Returned only after a complete write: otherwise the memory may still be in flight.
        self.small_buffers.lock().push(local);
        Ok(())
    }
}

fn connection_limits(lease: Duration, connections_max: usize) -> ConnectionLimitOptions {
    // An active reader is silent for at most one lease.
    ConnectionLimitOptions { idle_min: 2 * lease, ..ConnectionLimitOptions::new(connections_max) }
}

/// Returns the maximum number of shown replicas. Each keeps up to four descriptors and two mappings; three quarters of
/// both are left to connections, open replicas, writers and the allocator.
fn replicas_max(descriptors: usize) -> u64 {
    const DESCRIPTORS_EACH: u64 = 4;
    const MAPPINGS_EACH: u64 = 2;
    let setting = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let mappings = setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_MAP_COUNT);
    (descriptors as u64 / DESCRIPTORS_EACH).min(mappings / MAPPINGS_EACH) / 4
}
