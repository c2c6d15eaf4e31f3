//! Short-circuit reads of replicas of datanodes on this machine, in the datanode's own memory or files. The datanode's
//! domain socket passes the descriptors of a replica's data and CRCs, which are mapped. It also provides a slot, in
//! which the datanode signals that the replica is no longer what was opened.
//!
//! The path of the socket comes from the configuration (`dfs.domain.socket.path`), or else from the datanode's offer.
//!
//! The protocol is Apache Hadoop's for short-circuit reads, and works with its datanodes as well as Hearth's. Only
//! Hearth's datanodes are known to never shorten a file that they have shown, so the files of others are read and not
//! mapped. Only Hearth's datanodes return the bytes of small replicas in the answer.
//!
//! ```text
//! ShortCircuit  one for a file system and its clones: which datanodes are here, recent failures
//!  ├ DomainSocket  one for each datanode: connections, segments of slots
//!  └ Cache     open replicas, by block, stamp and datanode
//!     └ LocalReplica   mappings or descriptors, and a slot
//! ```

mod cache;
mod local_replica;
mod slots;
mod small;
mod socket;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hearth_fabric::local::LocalAddresses;
use hearth_fabric::stream::Connection;
use hearth_types::{DatanodeId, DatanodeUuid, ExtendedBlock, LocatedBlock};
use hearth_wire::data_transfer::{
    BlockOpResponse, DatanodeDescription, OpCode, Operation, RequestShortCircuitFds, Status,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::DatanodeError;
use crate::data_path::SMALL_BYTES;
use crate::datanode::Datanodes;
use crate::multiplexed::{ConnectionPool, Endpoint};
use crate::options::{ShortCircuitOptions, SocketPaths};
use crate::single_flight::SingleFlight;

use cache::{Cache, Key};
pub(crate) use local_replica::LocalReplica;
use slots::Slot;
pub(crate) use small::SmallReplica;
use socket::{DomainPeer, DomainSocket};

/// The highest supported version of a replica's files: a meta file with a header and CRCs.
const FORMAT_VERSION: u32 = 1;

/// Time for which a datanode's refusal of one replica is remembered.
const REFUSAL_BACKOFF: Duration = Duration::from_secs(60);

/// Maximum number of refusals remembered; further ones are dropped.
const REFUSALS_MAX: usize = 4096;

/// Maximum number of known sockets. At the limit all are dropped; a machine has few datanodes.
const SOCKETS_MAX: usize = 256;

/// Minimum and maximum interval between two sweeps for expired replicas and connections.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(50);
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// State of the local path of a file system and its clones: sockets, open replicas, and failures.
#[derive(Debug)]
pub(crate) struct ShortCircuit {
    options: ShortCircuitOptions,
    datanodes: Arc<Datanodes>,
    here: LocalAddresses,
    sockets: Mutex<HashMap<PathBuf, Arc<DomainSocket>>>,
    cache: Cache,
    /// Replicas that are being opened: concurrent readers wait for the first.
    opening: Mutex<HashMap<Key, Arc<SingleFlight>>>,
    /// Replicas that a datanode refused, with the time.
    refused: Mutex<HashMap<Key, Instant>>,
    sweeping: AtomicBool,
}

impl ShortCircuit {
    pub(crate) fn new(options: ShortCircuitOptions, datanodes: Arc<Datanodes>) -> Self {
        Self {
            cache: Cache::new(options.cache_size, options.mapped_bytes_max, options.cache_expiry),
            options,
            datanodes,
            here: LocalAddresses::default(),
            sockets: Mutex::default(),
            opening: Mutex::default(),
            refused: Mutex::default(),
            sweeping: AtomicBool::new(false),
        }
    }

    /// Checks if the replica of `block` on `datanode` can be tried. Returns true if it recently failed.
    ///
    /// Errors: the reason why it cannot be tried, as text.
    pub(crate) fn failed_lately(&self, block: &LocatedBlock, datanode: &DatanodeId) -> Result<bool, &'static str> {
        if self.options.sockets == SocketPaths::Off {
            return Err("dfs.domain.socket.path is set to nothing");
        }
        if !self.here.contains(&datanode.ip) {
            return Err("the datanode is on another machine");
        }
        let socket = self.socket(datanode);
        if socket.is_none() && self.datanodes.offers.known(&datanode.uuid).is_some() {
            return Err(NO_SOCKET);
        }
        if socket.is_some_and(|socket| socket.is_disabled()) {
            return Ok(true);
        }
        let key = Key::new(&block.block, &datanode.uuid);
        Ok(self.refused.lock().get(&key).is_some_and(|at| at.elapsed() < REFUSAL_BACKOFF))
    }

    /// Asks `datanode` for the path of its socket, if it is on this machine and the path is not known. Call it before
    /// `open`, `open_small` and `connect_for`.
    ///
    /// Errors: the datanode does not respond, or has no socket.
    pub(crate) async fn learn_socket(&self, datanode: &DatanodeId) -> Result<(), DatanodeError> {
        if self.options.sockets != SocketPaths::Offered || !self.here.contains(&datanode.ip) {
            return Ok(());
        }
        let socket = self.datanodes.offer(datanode).await?.and_then(|offer| offer.domain_socket.clone());
        socket.map(drop).ok_or_else(|| no_socket(datanode))
    }

    /// Opens the replica of `block` on `datanode` for reading.
    ///
    /// Errors: the failure of the datanode or its socket, which is remembered for a while.
    pub(crate) async fn open(
        self: &Arc<Self>,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<OpenLocalReplica, DatanodeError> {
        if let Some(replica) = self.cached_replica(&block.block, &datanode.uuid) {
            return Ok(OpenLocalReplica::Replica(replica));
        }
        if block.block.length() <= SMALL_BYTES
            && let Some(small) = self.open_small(block, datanode).await?
        {
            return Ok(OpenLocalReplica::Small(small));
        }
        Ok(OpenLocalReplica::Replica(self.open_replica(block, datanode).await?))
    }

    /// Like `open`, but requests descriptors of a small replica too.
    pub(crate) async fn open_replica(
        self: &Arc<Self>,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<Arc<LocalReplica>, DatanodeError> {
        let key = Key::new(&block.block, &datanode.uuid);
        let opening = OpenGuard::begin(self, &key);
        let find = || self.cached(&key, &block.block);
        opening.flight.get_or_try_init(find, self.open_uncached(&key, block, datanode)).await
    }

    /// Returns the open replica of `block` on `datanode`, if it is valid and at least as long as `block`.
    pub(crate) fn cached_replica(&self, block: &ExtendedBlock, datanode: &DatanodeUuid) -> Option<Arc<LocalReplica>> {
        self.cached(&Key::new(block, datanode), block)
    }

    /// Opens the replica of `block` (of at most [`SMALL_BYTES`]) on `datanode`, if the datanode serves READ_MANY.
    ///
    /// Errors: see `open`.
    pub(crate) async fn open_small(
        &self,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<Option<SmallReplica>, DatanodeError> {
        let Some(socket) = self.socket(datanode) else { return Ok(None) };
        let description = self
            .describe(&socket, datanode)
            .await
            .map_err(|failure| self.note_failure(failure, &socket, block, datanode))?;
        let serves = description.is_some_and(|description| description.serves(OpCode::ReadMany));
        Ok(serves.then(|| SmallReplica::new(socket, block)))
    }

    /// Returns true if domain sockets are enabled.
    pub(crate) fn is_possible(&self) -> bool {
        self.options.sockets != SocketPaths::Off
    }

    /// Returns true if `datanode` is on this machine.
    pub(crate) fn is_here(&self, datanode: &DatanodeId) -> bool {
        self.here.contains(&datanode.ip)
    }

    /// Opens a new connection to `datanode`, if it is on this machine, serves `operation`, and has not recently failed.
    pub(crate) async fn connect_for(&self, datanode: &DatanodeId, operation: OpCode) -> Option<Arc<Connection>> {
        let socket =
            self.socket(datanode).filter(|socket| !socket.is_disabled() && self.here.contains(&datanode.ip))?;
        let described = match self.describe(&socket, datanode).await {
            Ok(description) => description,
            Err(OpenFailure::Socket(error)) => {
                tracing::warn!(%datanode, %error, "cannot write locally, trying another path");
                socket.disable(&error);
                return None;
            }
            Err(_) => return None,
        };
        if !described.is_some_and(|description| description.serves(operation)) {
            return None;
        }
        match socket.connect().await {
            Ok(domain_peer) => Some(Arc::clone(domain_peer.connection())),
            Err(error) => {
                tracing::warn!(%datanode, %error, "cannot write locally, trying another path");
                socket.disable(&error);
                None
            }
        }
    }

    /// Returns the description of the Hearth datanode that listens on `socket`, or `None` for a foreign datanode.
    async fn describe(
        &self,
        socket: &DomainSocket,
        datanode: &DatanodeId,
    ) -> Result<Option<Arc<DatanodeDescription>>, OpenFailure> {
        let description = socket.describe(&self.datanodes.client_name).await;
        let description = description.map_err(|error| OpenFailure::Socket(DatanodeError::Transfer(error)))?;
        match description {
            // A path without _PORT leads to only one of several datanodes on this machine.
            Some(other) if other.datanode != datanode.uuid => Err(OpenFailure::Replica(DatanodeError::OtherDatanode {
                socket: socket.path().to_owned(),
                listens: other.datanode.clone(),
                wanted: datanode.uuid.clone(),
            })),
            description => Ok(description),
        }
    }

    fn cached(&self, key: &Key, block: &ExtendedBlock) -> Option<Arc<LocalReplica>> {
        // The block may have been appended to under the same stamp; then the longer replica must be opened.
        self.cache.get(key).filter(|replica| replica.length() >= block.length())
    }

    async fn open_uncached(
        self: &Arc<Self>,
        key: &Key,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<Arc<LocalReplica>, DatanodeError> {
        let Some(socket) = self.socket(datanode) else { return Err(no_socket(datanode)) };
        match self.request(&socket, block, datanode).await {
            Ok(replica) => {
                socket.enable();
                let replica = Arc::new(replica);
                self.cache.insert(key.clone(), Arc::clone(&replica));
                self.start_sweep();
                Ok(replica)
            }
            Err(failure) => Err(self.note_failure(failure, &socket, block, datanode)),
        }
    }

    /// Records a failure, for this reader and others.
    fn note_failure(
        &self,
        failure: OpenFailure,
        socket: &DomainSocket,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> DatanodeError {
        match failure {
            OpenFailure::Socket(error) => {
                socket.disable(&error);
                error
            }
            // The reader only needs a new token.
            OpenFailure::Replica(error @ DatanodeError::AccessToken { .. }) => error,
            OpenFailure::Replica(error) => {
                self.note_refusal(Key::new(&block.block, &datanode.uuid));
                error
            }
        }
    }

    /// Requests a replica's descriptors. Source: `BlockReaderFactory.requestFileDescriptors` of Hadoop's client.
    async fn request(
        &self,
        socket: &Arc<DomainSocket>,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<LocalReplica, OpenFailure> {
        self.describe(socket, datanode).await?;
        let socket_failed = |error| OpenFailure::Socket(DatanodeError::Transfer(error));
        let mut slot = socket.slot(&self.datanodes.client_name).await.map_err(OpenFailure::Socket)?;
        let operation = Operation::RequestShortCircuitFds(RequestShortCircuitFds {
            block: block.block.clone(),
            token: block.token.clone(),
            version_max: FORMAT_VERSION,
            slot: slot.as_ref().map(Slot::name),
            supports_receipt_verification: true,
        });
        let (answer, mut domain_peer) = socket.ask(&operation, BlockOpResponse::decode).await.map_err(socket_failed)?;
        if answer.status != Status::Success {
            return Err(refusal(block, answer));
        }
        let (data, meta) = descriptors(&mut domain_peer, slot.as_mut()).await?;
        socket.keep(domain_peer);
        let replica = LocalReplica::new(data, meta, socket.keeps_what_it_showed(), block.block.length(), slot);
        replica.map_err(|source| {
            let block = Box::new(block.block.clone());
            OpenFailure::Replica(DatanodeError::Unusable { block, source: Arc::new(source) })
        })
    }

    /// Removes a replica with bad bytes from the cache.
    pub(crate) fn forget(&self, block: &ExtendedBlock, datanode: &DatanodeId, replica: &Arc<LocalReplica>) {
        self.cache.remove(&Key::new(block, &datanode.uuid), replica);
    }

    /// Makes `failed_lately` return true for `block` on `datanode` for a while.
    pub(crate) fn refuse(&self, block: &ExtendedBlock, datanode: &DatanodeId) {
        self.note_refusal(Key::new(block, &datanode.uuid));
    }

    fn note_refusal(&self, key: Key) {
        let mut refused = self.refused.lock();
        if refused.len() >= REFUSALS_MAX {
            refused.retain(|_, at| at.elapsed() < REFUSAL_BACKOFF);
        }
        if refused.len() < REFUSALS_MAX {
            refused.insert(key, Instant::now());
        }
    }

    fn socket(&self, datanode: &DatanodeId) -> Option<Arc<DomainSocket>> {
        let path = match &self.options.sockets {
            SocketPaths::Pattern(pattern) => {
                PathBuf::from(pattern.replace("_PORT", &datanode.transfer_port.to_string()))
            }
            SocketPaths::Offered => {
                PathBuf::from(self.datanodes.offers.known(&datanode.uuid)??.domain_socket.as_ref()?)
            }
            SocketPaths::Off => return None,
        };
        Some(self.socket_at(path))
    }

    /// Asks the process that listens on the socket at `path`, which contains its transfer port, whether it is one of
    /// Hearth's datanodes. If so, the socket is enabled if it had failed.
    pub(crate) async fn probe(&self, path: PathBuf, timeout: Duration) -> Probed {
        let socket = self.socket_at(path);
        let described = tokio::time::timeout(timeout, socket.describe(&self.datanodes.client_name)).await;
        match described {
            Ok(Ok(Some(description))) => {
                socket.enable();
                Probed::Hearth(description.datanode.clone())
            }
            Ok(Ok(None)) => Probed::Other,
            Ok(Err(error)) => {
                tracing::debug!(socket = %socket.path().display(), %error, "no datanode answers");
                Probed::Other
            }
            Err(_) => {
                tracing::debug!(socket = %socket.path().display(), ?timeout, "the datanode does not answer in time");
                Probed::Silent
            }
        }
    }

    fn socket_at(&self, path: PathBuf) -> Arc<DomainSocket> {
        let mut sockets = self.sockets.lock();
        if sockets.len() >= SOCKETS_MAX && !sockets.contains_key(&path) {
            sockets.clear();
        }
        let ShortCircuitOptions { timeouts, disable_interval, connection_expiry, .. } = self.options;
        let make = || {
            let multiplex = self.options.multiplex.clone();
            let connection_pool =
                ConnectionPool::new(Endpoint::Socket(path.clone()), multiplex, self.datanodes.client_name.clone());
            Arc::new(DomainSocket::new(
                path.clone(),
                timeouts,
                disable_interval,
                connection_expiry,
                Arc::new(connection_pool),
            ))
        };
        Arc::clone(sockets.entry(path.clone()).or_insert_with(make))
    }

    /// Starts the task that closes expired replicas and connections, unless it is running. It ends when none are left.
    fn start_sweep(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let pause = (self.options.cache_expiry.min(self.options.connection_expiry) / 4)
            .clamp(SWEEP_INTERVAL_MIN, SWEEP_INTERVAL_MAX);
        let short_circuit = Arc::downgrade(self);
        tokio::spawn(async move {
            let _guard = SweepGuard(short_circuit.clone());
            loop {
                tokio::time::sleep(pause).await;
                let Some(short_circuit) = short_circuit.upgrade() else { break };
                let replicas = short_circuit.cache.expire();
                let sockets: Vec<_> = short_circuit.sockets.lock().values().cloned().collect();
                for socket in &sockets {
                    socket.send_pending_releases().await;
                }
                let connections = sockets.iter().filter(|socket| socket.expire()).count();
                if !replicas && connections == 0 {
                    break;
                }
            }
        });
    }
}

/// Clears `sweeping` on drop, also when the runtime ended the task.
struct SweepGuard(Weak<ShortCircuit>);

impl Drop for SweepGuard {
    fn drop(&mut self) {
        if let Some(short_circuit) = self.0.upgrade() {
            short_circuit.sweeping.store(false, Ordering::Release);
        }
    }
}

/// Reason why a datanode on this machine is not read locally, as text for messages.
const NO_SOCKET: &str =
    "the datanode has no domain socket, or is not Hearth's and needs dfs.domain.socket.path to be set";

fn no_socket(datanode: &DatanodeId) -> DatanodeError {
    DatanodeError::NoDomainSocket { datanode: Box::new(datanode.clone()), why: NO_SOCKET }
}

/// Answer of the process that listens on a domain socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Probed {
    /// One of Hearth's datanodes.
    Hearth(DatanodeUuid),
    /// A datanode of another make, or no process at all.
    Other,
    /// It did not answer in time.
    Silent,
}

/// A replica on this machine, ready to be read.
#[derive(Clone, Debug)]
pub(crate) enum OpenLocalReplica {
    Replica(Arc<LocalReplica>),
    Small(SmallReplica),
}

/// One of the readers that concurrently open the same replica, of which only one sends the request. The last one to
/// drop removes the entry from the map.
struct OpenGuard<'a> {
    short_circuit: &'a ShortCircuit,
    key: &'a Key,
    flight: Arc<SingleFlight>,
}

impl<'a> OpenGuard<'a> {
    fn begin(short_circuit: &'a ShortCircuit, key: &'a Key) -> Self {
        let flight = Arc::clone(short_circuit.opening.lock().entry(key.clone()).or_default());
        Self { short_circuit, key, flight }
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.short_circuit.opening.lock();
        // This reference and the map's.
        if Arc::strong_count(&self.flight) <= 2 {
            all.remove(self.key);
        }
        // Released under the lock, before the next reader counts.
        self.flight = Arc::default();
        drop(all);
    }
}

/// Party to which a failure is attributed.
enum OpenFailure {
    /// The datanode's domain socket: other replicas would fail too.
    Socket(DatanodeError),
    Replica(DatanodeError),
}

/// Converts a refusal into a failure. Source: `BlockReaderFactory.requestFileDescriptors`.
fn refusal(block: &LocatedBlock, answer: BlockOpResponse) -> OpenFailure {
    let block = Box::new(block.block.clone());
    let status = answer.status;
    if status == Status::ErrorAccessToken {
        return OpenFailure::Replica(DatanodeError::AccessToken { block });
    }
    let refused = DatanodeError::Refused {
        operation: "REQUEST_SHORT_CIRCUIT_FDS",
        block,
        status: format!("{status:?}"),
        message: answer.message.unwrap_or_default(),
    };
    // With a version, this replica's format is too new; without one, the datanode does not support the operation.
    if status == Status::ErrorUnsupported && answer.short_circuit_version.is_none() {
        OpenFailure::Socket(refused)
    } else {
        OpenFailure::Replica(refused)
    }
}

/// Receives the data and meta descriptors after a successful answer, and acknowledges them.
async fn descriptors(domain_peer: &mut DomainPeer, slot: Option<&mut Slot>) -> Result<(OwnedFd, OwnedFd), OpenFailure> {
    /// From Hadoop's `ShortCircuitFdResponse`: the datanode waits for a byte.
    const USE_RECEIPT_VERIFICATION: u8 = 1;
    let socket_failed = |error| OpenFailure::Socket(DatanodeError::Transfer(error));
    let received = domain_peer.receive_descriptors().await.map_err(socket_failed)?;
    let Some((byte, [data, meta])) = received else {
        let (peer, what) = (domain_peer.connection().peer(), "expected the two descriptors of a replica".to_owned());
        return Err(OpenFailure::Socket(DatanodeError::Protocol { peer, what }));
    };
    if let Some(slot) = slot {
        slot.registered();
    }
    if byte == USE_RECEIPT_VERIFICATION {
        domain_peer.send(&[0]).await.map_err(socket_failed)?;
    }
    Ok((data, meta))
}

#[cfg(test)]
pub(crate) mod tests;
