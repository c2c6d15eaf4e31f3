//! The other DataNodes: the features they support, and the connections to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hearth_fabric::tcp::{self, Connection};
use hearth_protocol::replica_stream::{self, ReplicaJob, StreamError, StreamTimeouts};
use hearth_types::DatanodeId;
use hearth_wire::data_transfer::{DatanodeDescription, OpCode, ReplicaStream, StreamLimits};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::error::CopyError;
use super::order::RequestedBy;
use super::source::StreamSource;
use super::threads::CopyThreads;
use crate::downstream::{self, ConnectError, Timeouts};
use crate::forward::Forwarding;
use crate::options::TransferOptions;
use crate::peer_offers::DescribeError;
use crate::replica_service::ReplicaService;

/// Time for which a DataNode is considered not to support streams.
const NO_STREAMS_TTL: Duration = Duration::from_secs(600);

/// Time for which a DataNode that supports streams but has no memory for one more connection is sent replicas in
/// packets.
const REFUSED_BACKOFF: Duration = Duration::from_secs(5);

/// Time for which no further connection is attempted in addition to an existing one, after such an attempt has failed.
const CONNECT_BACKOFF: Duration = Duration::from_secs(30);

/// Maximum number of DataNodes that are remembered.
const PEERS_MAX: usize = 4096;

/// Maximum number of replicas in flight into memory, each over a connection that carries one after the other.
const INTO_MEMORY_MAX: usize = 4;

/// Maximum number of replicas that wait for their turn on a connection, in addition to those in flight.
const JOBS_QUEUED_MAX: usize = 64;

pub struct Peers {
    /// Maximum number of connections to each; 0: streams are disabled.
    connections: AtomicUsize,
    threads: Arc<CopyThreads>,
    /// Knows what other DataNodes offer.
    forwarding: Arc<Forwarding>,
    peers: Mutex<HashMap<PeerKey, Arc<Peer>>>,
}

/// The complete ID with its address, so that an entry made under another DataNode's name affects only itself. A
/// balancer's moves have connections of their own, so that no other transfer waits for their bandwidth.
type PeerKey = (DatanodeId, RequestedBy);

struct Peer {
    /// Held while a connection is being opened.
    connecting: tokio::sync::Mutex<()>,
    state: Mutex<PeerState>,
    /// One permit for each replica in flight into memory.
    memory_permits: Arc<Semaphore>,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            connecting: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            memory_permits: Arc::new(Semaphore::new(INTO_MEMORY_MAX)),
        }
    }
}

#[derive(Default)]
struct PeerState {
    connections: Vec<StreamConnection>,
    /// Time of the last failure to reach it.
    failed: Option<Instant>,
    /// It accepts no streams, or no further ones, until then.
    backoff_until: Option<Instant>,
    /// It has been asked for its features.
    is_described: bool,
    /// Result of asking if it sends replicas on request, and the time until which the answer is used.
    sends: Option<(bool, Instant)>,
}

/// A connection that carries replicas. Each holder counts as its load.
pub struct StreamConnection {
    jobs: mpsc::Sender<ReplicaJob<StreamSource>>,
    load: Arc<AtomicUsize>,
    counted: bool,
}

/// Path to a DataNode.
pub enum StreamRoute {
    Connection(StreamConnection),
    /// No stream is possible.
    None,
}

impl StreamConnection {
    /// Queues a replica. The job, and with it its answer channel, is dropped if the connection has ended.
    pub async fn send(&self, job: ReplicaJob<StreamSource>) {
        let _ = self.jobs.send(job).await;
    }

    fn take(&self) -> Self {
        self.load.fetch_add(1, Ordering::Relaxed);
        Self { jobs: self.jobs.clone(), load: self.load.clone(), counted: true }
    }
}

impl Drop for StreamConnection {
    fn drop(&mut self) {
        if self.counted {
            self.load.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl PeerState {
    /// Returns the least loaded connection, unless a new one should be opened. `None` inside: no stream to it is
    /// possible.
    fn pick(&mut self, connections: usize, now: Instant) -> Option<StreamRoute> {
        self.connections.retain(|link| !link.jobs.is_closed());
        let has_failed = self.failed.is_some_and(|failed| now.saturating_duration_since(failed) < CONNECT_BACKOFF);
        let may_add = self.connections.len() < connections && !has_failed && !self.is_backing_off(now);
        match self.least_loaded() {
            Some(link) if !may_add || link.load.load(Ordering::Relaxed) == 0 => {
                Some(StreamRoute::Connection(link.take()))
            }
            None if self.is_backing_off(now) => Some(StreamRoute::None),
            _ => None,
        }
    }

    fn least_loaded(&self) -> Option<&StreamConnection> {
        let open = self.connections.iter().filter(|link| !link.jobs.is_closed());
        open.min_by_key(|link| link.load.load(Ordering::Relaxed))
    }

    /// Records that a connection could not be opened: the existing ones have to suffice.
    fn note_failure(&mut self, connections: usize, now: Instant) -> Option<StreamRoute> {
        self.failed = Some(now);
        self.pick(connections, now).filter(|way| matches!(way, StreamRoute::Connection(_)))
    }

    fn is_backing_off(&self, now: Instant) -> bool {
        self.backoff_until.is_some_and(|time| now < time)
    }
}

impl Peers {
    pub fn new(connections: usize, threads: Arc<CopyThreads>, forwarding: Arc<Forwarding>) -> Self {
        Self { connections: AtomicUsize::new(connections), threads, forwarding, peers: Mutex::default() }
    }

    /// Changes the maximum number of connections to each DataNode. Open ones stay until they end.
    pub fn set_connections(&self, connections: usize) {
        self.connections.store(connections, Ordering::Relaxed);
    }

    /// Returns a connection to `target`, opened now if necessary. Callers do not wait for an additional connection that
    /// another task is opening.
    ///
    /// Errors: there is no connection, and the target cannot be reached.
    pub async fn connection(
        &self,
        replicas: &Arc<ReplicaService>,
        target: &DatanodeId,
        requested_by: RequestedBy,
    ) -> Result<StreamRoute, CopyError> {
        let connections = self.connections.load(Ordering::Relaxed);
        if connections == 0 {
            return Ok(StreamRoute::None);
        }
        let peer = self.peer(target, requested_by);
        let began = Instant::now();
        if let Some(way) = peer.state.lock().pick(connections, began) {
            return Ok(way);
        }
        let _connecting = match peer.connecting.try_lock() {
            Ok(connecting) => connecting,
            Err(_) => {
                if let Some(link) = peer.state.lock().least_loaded() {
                    return Ok(StreamRoute::Connection(link.take()));
                }
                peer.connecting.lock().await
            }
        };
        {
            // Another task may have opened it in the meantime, or failed to: the waiting tasks do not each retry in
            // turn.
            let mut state = peer.state.lock();
            if let Some(way) = state.pick(connections, Instant::now()) {
                return Ok(way);
            }
            if state.failed.is_some_and(|failed| failed >= began) {
                return Err(CopyError::Unreachable { name: target.transfer_address() });
            }
        }
        match self.open_connection(replicas, target, &peer).await {
            Ok(way) => Ok(way),
            Err(error) => {
                let link = peer.state.lock().note_failure(connections, Instant::now()).ok_or(error);
                link.inspect(|_| tracing::info!(datanode = %target, "cannot open another replica stream; using the existing one"))
            }
        }
    }

    /// Returns true if `source` sends replicas by streams on request.
    pub async fn can_send(&self, replicas: &ReplicaService, source: &DatanodeId) -> bool {
        let peer = self.peer(source, RequestedBy::Balancer);
        let known = peer.state.lock().sends.filter(|(_, until)| Instant::now() < *until);
        if let Some((sends, _)) = known {
            return sends;
        }
        // If the request failed, it is repeated the next time.
        let Ok(description) = self.description_of(replicas, source).await else { return false };
        let sends = description.is_some_and(|description| description.serves(OpCode::SendReplica));
        peer.state.lock().sends = Some((sends, Instant::now() + NO_STREAMS_TTL));
        sends
    }

    /// Records that it closed the connection on the request. It may have been replaced or overloaded, so it is soon
    /// asked for its features again.
    pub fn note_cannot_send(&self, source: &DatanodeId) {
        self.peer(source, RequestedBy::Balancer).state.lock().sends = Some((false, Instant::now() + REFUSED_BACKOFF));
    }

    /// Waits until one more replica may be sent into the memory of `target`.
    pub async fn acquire_memory_permit(&self, target: &DatanodeId, requested_by: RequestedBy) -> OwnedSemaphorePermit {
        self.peer(target, requested_by)
            .memory_permits
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }

    fn peer(&self, datanode: &DatanodeId, requested_by: RequestedBy) -> Arc<Peer> {
        let key = (datanode.clone(), requested_by);
        let mut peers = self.peers.lock();
        if peers.len() >= PEERS_MAX && !peers.contains_key(&key) {
            // Their connections continue until their replicas are sent.
            peers.clear();
        }
        peers.entry(key).or_default().clone()
    }

    /// Opens a connection. Must be called with `connecting` held.
    async fn open_connection(
        &self,
        replicas: &Arc<ReplicaService>,
        target: &DatanodeId,
        peer: &Peer,
    ) -> Result<StreamRoute, CopyError> {
        let is_described = peer.state.lock().is_described;
        if !is_described {
            let description = self.description_of(replicas, target).await?;
            if !description.is_some_and(|description| description.serves(OpCode::ReplicaStream)) {
                peer.state.lock().backoff_until = Some(Instant::now() + NO_STREAMS_TTL);
                return Ok(StreamRoute::None);
            }
            peer.state.lock().is_described = true;
        }
        match self.connect(replicas, target).await {
            Ok(link) => {
                let taken = link.take();
                peer.state.lock().connections.push(link);
                Ok(StreamRoute::Connection(taken))
            }
            Err(error) => {
                let (mut state, now) = (peer.state.lock(), Instant::now());
                if matches!(error, CopyError::Stream(StreamError::Refused { .. })) {
                    state.backoff_until = Some(now + REFUSED_BACKOFF);
                    return Ok(state.pick(self.connections.load(Ordering::Relaxed), now).unwrap_or(StreamRoute::None));
                }
                // The DataNode may have been replaced.
                state.is_described = false;
                self.forwarding.peer_offers.forget(target);
                Err(error)
            }
        }
    }

    async fn description_of(
        &self,
        replicas: &ReplicaService,
        target: &DatanodeId,
    ) -> Result<Option<Arc<DatanodeDescription>>, DescribeError> {
        self.forwarding.peer_offers.get(replicas, target, Timeouts::new(&replicas.options.transfer, 1).read).await
    }

    async fn connect(
        &self,
        replicas: &Arc<ReplicaService>,
        target: &DatanodeId,
    ) -> Result<StreamConnection, CopyError> {
        let options = &replicas.options.transfer;
        let address = downstream::resolve(&replicas.options, target, target.transfer_port).await?;
        let connecting = tcp::connect(address, None, options.socket, Timeouts::new(options, 1).connect);
        let connection = connecting.await.map_err(ConnectError::Connection)?;
        let mut buffer = replica_stream::receive_buffer();
        let request = ReplicaStream { source_uuid: replicas.store.datanode_uuid().to_string() };
        let limits = replica_stream::negotiate(&connection, &mut buffer, request, &stream_timeouts(options)).await?;
        let (jobs, queue) = mpsc::channel(JOBS_QUEUED_MAX);
        self.threads.start_connection(run(replicas.clone(), connection, buffer, limits, queue))?;
        Ok(StreamConnection { jobs, load: Arc::default(), counted: false })
    }
}

/// Returns the timeouts for both ends of a stream.
pub fn stream_timeouts(options: &TransferOptions) -> StreamTimeouts {
    StreamTimeouts { silence: options.read_timeout, write: options.write_timeout, idle: options.read_timeout }
}

async fn run(
    replicas: Arc<ReplicaService>,
    connection: Connection,
    mut buffer: hearth_fabric::tcp::ReceiveBuffer,
    limits: StreamLimits,
    mut queue: mpsc::Receiver<ReplicaJob<StreamSource>>,
) {
    let timeouts = stream_timeouts(&replicas.options.transfer);
    let peer = connection.peer();
    let connection = match connection.moved_here() {
        Ok(connection) => connection,
        Err(error) => {
            tracing::warn!(%peer, %error, "cannot register a replica stream with its event loop");
            return;
        }
    };
    let outcome = tokio::select! {
        outcome = replica_stream::send(&connection, &mut buffer, limits, timeouts, &mut queue) => outcome,
        () = replicas.lifecycle.stopping() => Ok(()),
    };
    if let Err(error) = outcome {
        tracing::info!(%peer, error = &*error as &dyn std::error::Error, "a replica stream ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_connection_is_used_after_failed_attempt() {
        let (mut state, start) = (PeerState::default(), Instant::now());
        // Without any connection, the next caller retries.
        assert!(state.note_failure(2, start).is_none() && state.pick(2, start).is_none());
        state.failed = None;
        let (jobs, queue) = mpsc::channel(1);
        state.connections.push(StreamConnection { jobs, load: Arc::default(), counted: false });
        let Some(StreamRoute::Connection(_first)) = state.pick(2, start) else { panic!("the connection is idle") };
        assert!(state.pick(2, start).is_none(), "a new connection should be opened");
        let Some(StreamRoute::Connection(second)) = state.note_failure(2, start) else { panic!("a connection exists") };
        assert_eq!(second.load.load(Ordering::Relaxed), 2);
        let almost = start + CONNECT_BACKOFF - Duration::from_millis(1);
        assert!(matches!(state.pick(2, almost), Some(StreamRoute::Connection(_))), "it is not retried at once");
        assert!(state.pick(2, start + CONNECT_BACKOFF).is_none(), "it is retried after a while");
        drop(queue);
        assert!(state.pick(2, almost).is_none() && state.least_loaded().is_none(), "the connection has ended");
    }

    #[test]
    fn refusing_peer_gets_packets_until_backoff_ends() {
        let (mut state, start) = (PeerState::default(), Instant::now());
        state.backoff_until = Some(start + REFUSED_BACKOFF);
        assert!(matches!(state.pick(2, start), Some(StreamRoute::None)));
        assert!(state.pick(2, start + REFUSED_BACKOFF).is_none(), "a connection should be opened");
    }
}
