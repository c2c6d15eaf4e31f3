//! Replica streams to and from other Hearth DataNodes: many replicas over few connections, for copies that a NameNode
//! orders. `hearth_protocol::replica_stream` implements the protocol; this module connects it to the stored replicas
//! and manages the connections.
//!
//! Large replicas are written straight into the other DataNode's memory if there is a path to it, on this machine or
//! one-sidedly (`into_memory`), as in a pipeline; if that breaks, a stream resumes the transfer.
//!
//! ```text
//! out   namenode/commands → transfer → Streams::send_replica ─┬→ peers (connections) → source → blockstore
//!                                                             └→ into_memory → forward/{local,one_sided}
//! in    server → ops/replica_stream → its sink → blockstore, reports; partial replicas of a broken connection →
//!       resumable
//!       one_sided_server.rs → ops/write_one_sided → write_block, which also leaves partial replicas to resumable
//!       server → ops/write_local → write_block
//! ```

mod cpu_budget;
mod error;
mod into_memory;
mod moves;
mod order;
mod peers;
mod resumable;
mod source;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearth_blockstore::ReplicaWriter;
use hearth_protocol::replica_stream::{ReplicaJob, ReplicaSendError, StreamError};
use hearth_types::{ChecksumSpec, DatanodeId, ExtendedBlock};
use hearth_wire::data_transfer::{OpenReplica, ReplicaRefusal, Status, StreamLimits};
use parking_lot::RwLock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::forward::Forwarding;
use crate::metrics::Metrics;
use crate::options::StreamOptions;
use crate::replica_service::ReplicaService;
use cpu_budget::CpuBudget;
pub use error::CopyError;
use into_memory::MemoryCopyOutcome;
use moves::Moves;
pub use order::{CopyOrder, RequestedBy};
pub use peers::stream_timeouts;
use peers::{Peers, StreamRoute};
use resumable::ResumableReplicas;
pub use resumable::ResumeKey;
use source::{FRAME_BYTES, StreamSource};
use threads::CopyThreads;

/// Minimum window; a connection is refused if less memory is available.
const WINDOW_BYTES_MIN: u64 = 1 << 20;

/// Maximum number of incoming replicas over all connections. Each has its own memory, or its own pieces in flight to
/// disk.
const INCOMING_MAX: usize = 64;

/// Maximum number of attempts for a replica without any further byte acknowledged, and the pause between them.
const ATTEMPTS: u32 = 4;
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// An attempt to connect that took longer than this before it failed is not repeated.
const CONNECT_RETRY_WITHIN: Duration = Duration::from_secs(5);

/// State shared by all streams of a DataNode.
pub struct Streams {
    options: RwLock<StreamOptions>,
    pub threads: Arc<CopyThreads>,
    forwarding: Arc<Forwarding>,
    peers: Peers,
    pub resumable: ResumableReplicas,
    pub moves: Moves,
    /// One permit for each incoming replica.
    incoming_permits: Arc<Semaphore>,
    /// Bytes of all windows that were given to senders.
    windows: Arc<AtomicU64>,
}

/// A window's share of the common memory; released when dropped.
pub struct Window {
    windows: Arc<AtomicU64>,
    bytes: u64,
    pub limits: StreamLimits,
}

impl Drop for Window {
    fn drop(&mut self) {
        self.windows.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Streams {
    pub fn new(options: StreamOptions, metrics: Arc<Metrics>, forwarding: Arc<Forwarding>) -> Self {
        let threads = Arc::new(CopyThreads::new(options.nice, CpuBudget::new(metrics, options.cores_share)));
        Self {
            peers: Peers::new(options.connections as usize, threads.clone(), forwarding.clone()),
            threads,
            forwarding,
            resumable: ResumableReplicas::default(),
            moves: Moves::default(),
            incoming_permits: Arc::new(Semaphore::new(INCOMING_MAX)),
            windows: Arc::default(),
            options: RwLock::new(options),
        }
    }

    pub fn options(&self) -> StreamOptions {
        *self.options.read()
    }

    /// Changes the options for new connections and replicas. The niceness stays: running threads have it.
    pub fn set_options(&self, options: StreamOptions) {
        let mut current = self.options.write();
        *current = StreamOptions { nice: current.nice, ..options };
        self.peers.set_connections(options.connections as usize);
        self.threads.set_cores_share(options.cores_share);
    }

    /// Returns true if this DataNode receives and sends streams.
    pub fn is_enabled(&self) -> bool {
        self.options().connections > 0
    }

    /// Reserves memory for one more incoming connection: a quarter of the remaining memory, at most the configured
    /// window.
    pub fn window(&self) -> Option<Window> {
        let options = self.options();
        let (all, most) = (options.memory_bytes, options.window_bytes);
        let mut taken = 0;
        let share = |used: u64| {
            let left = all.saturating_sub(used);
            let bytes = (left / 4).max(WINDOW_BYTES_MIN).min(most.max(WINDOW_BYTES_MIN));
            (bytes <= left).then_some(bytes)
        };
        self.windows
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                taken = share(used)?;
                Some(used + taken)
            })
            .ok()?;
        let bytes = u32::try_from(taken).unwrap_or(u32::MAX).min(StreamLimits::MAX.window_bytes);
        let frame_bytes_max = FRAME_BYTES.min(bytes / 4);
        let limits = StreamLimits {
            window_bytes: bytes,
            replica_window_bytes: (bytes / 4).max(2 * frame_bytes_max),
            frame_bytes_max,
            replicas_max: options.replicas,
        };
        Some(Window { windows: self.windows.clone(), bytes: taken, limits })
    }

    /// Returns true if `source` sends replicas by streams on request.
    pub async fn can_send(&self, replicas: &ReplicaService, source: &DatanodeId) -> bool {
        self.is_enabled() && self.peers.can_send(replicas, source).await
    }

    /// Records that it did not do so, contrary to its description.
    pub fn note_cannot_send(&self, source: &DatanodeId) {
        self.peers.note_cannot_send(source);
    }

    /// Acquires a permit for an incoming replica. A balancer's move already holds a permit of its own and takes none of
    /// these.
    ///
    /// Errors: no permit became free in time.
    pub async fn acquire_incoming_permit(
        &self,
        replicas: &ReplicaService,
        block: &ExtendedBlock,
    ) -> Result<Option<OwnedSemaphorePermit>, CopyError> {
        if self.moves.has(block) {
            return Ok(None);
        }
        let patience = replicas.options.transfer.read_timeout / 2;
        match tokio::time::timeout(patience, self.incoming_permits.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(Some(place)),
            _ => Err(CopyError::TooManyIncoming),
        }
    }

    /// Keeps the received part of `block` for a sender that reconnects; `block` has the final length. A replica that
    /// ends within a chunk is discarded, because a stream could not resume there.
    pub fn keep(&self, block: ExtendedBlock, checksum: ChecksumSpec, writer: ReplicaWriter) {
        let received = writer.received();
        if writer.is_stopped() {
            return;
        }
        if received.is_multiple_of(checksum.bytes_per_chunk.max(1).into()) || received == block.length() {
            self.put_resumable(ResumeKey { block, checksum }, writer);
        }
    }

    /// Keeps a partial replica, which a stream can resume.
    pub fn put_resumable(&self, resume_key: ResumeKey, writer: ReplicaWriter) {
        self.resumable.put(resume_key, writer, Instant::now(), self.options().resume_timeout);
    }

    /// Returns true if a broken connection left a part of `block`.
    pub fn has_resumable(&self, block: &ExtendedBlock) -> bool {
        self.resumable.has(block)
    }

    /// Discards the part of `block` that a broken connection left, because the block now arrives on another path.
    pub fn forget(&self, block: &ExtendedBlock) {
        self.resumable.forget(block);
    }

    /// Discards partial replicas whose sender did not reconnect in time. Called periodically.
    pub fn expire(&self) {
        self.resumable.expire(Instant::now());
    }

    /// Discards all partial replicas when the DataNode stops.
    pub fn clear(&self) {
        self.resumable.clear();
    }

    /// Sends a finalized replica as ordered. False: the target does not support streams, and needs the standard
    /// protocol.
    ///
    /// An interrupted transfer is retried from the point that the target has reached.
    pub async fn send_replica(&self, replicas: &Arc<ReplicaService>, order: &CopyOrder) -> Result<bool, CopyError> {
        let CopyOrder { pool, block, target, requested_by } = order;
        let rejected =
            |source| CopyError::Rejected { block: block.clone(), target: order.target_id().transfer_address(), source };
        // A transfer that began may have completed or not, without an acknowledgement.
        let mut began = match self.send_into_memory(replicas, order).await? {
            MemoryCopyOutcome::Complete => return Ok(true),
            MemoryCopyOutcome::Incomplete => true,
            MemoryCopyOutcome::NotSupported => false,
        };
        let mut attempt = 0;
        let mut acknowledged = 0;
        loop {
            let asked = Instant::now();
            let link = match self.peers.connection(replicas, order.target_id(), *requested_by).await {
                Ok(StreamRoute::Connection(link)) => link,
                Ok(StreamRoute::None) => return Ok(false),
                // A target that took so long to fail is not retried: the NameNode may name another one.
                Err(error) if attempt + 1 >= ATTEMPTS || asked.elapsed() >= CONNECT_RETRY_WITHIN => return Err(error),
                Err(_) if replicas.lifecycle.is_stopping() => return Err(CopyError::Interrupted),
                Err(_) => {
                    pause(&mut attempt).await;
                    continue;
                }
            };
            let reader = Arc::new(replicas.store.reader(block)?);
            let request = OpenReplica {
                block: block.clone(),
                token: pool.token_for(block, target),
                checksum: reader.checksum(),
                storage_type: target.storage_type,
                storage_id: target.storage_id.clone(),
            };
            let (done, answer) = oneshot::channel();
            let job = ReplicaJob { request, source: StreamSource::new(replicas, reader, *requested_by), done };
            // A connection that ended since it was looked up drops the job, and with it the answer.
            link.send(job).await;
            let outcome = answer.await;
            drop(link);
            began |= matches!(outcome, Ok(Err(ReplicaSendError::Broken { .. })));
            let error = match outcome {
                Ok(Ok(())) => return Ok(true),
                Ok(Err(error)) => error,
                // The connection ended before the replica's turn.
                Err(_) => ReplicaSendError::Broken { stored: 0, source: Arc::new(StreamError::Interrupted) },
            };
            match &error {
                ReplicaSendError::Broken { stored, source } => {
                    tracing::info!(%block, stored, error = &**source as &dyn std::error::Error, "a replica stream broke");
                    if *stored > acknowledged {
                        (acknowledged, attempt) = (*stored, 0);
                    }
                }
                ReplicaSendError::Refused(refusal) => {
                    if !may_retry(replicas, block, refusal, began).await? {
                        return Err(rejected(error));
                    }
                    if refusal.status == Status::ErrorExists {
                        // The replica had arrived completely, and only the acknowledgement was lost.
                        return Ok(true);
                    }
                    if refusal.status == Status::ErrorUnsupported {
                        return Ok(false);
                    }
                }
                ReplicaSendError::Source(_) => return Err(rejected(error)),
            }
            pause(&mut attempt).await;
            if replicas.lifecycle.is_stopping() {
                return Err(CopyError::Interrupted);
            }
            if attempt >= ATTEMPTS {
                return Err(rejected(error));
            }
        }
    }

    /// Sends the replica straight into the target's memory, if there is a path to it.
    async fn send_into_memory(
        &self,
        replicas: &Arc<ReplicaService>,
        order: &CopyOrder,
    ) -> Result<MemoryCopyOutcome, CopyError> {
        // Most targets of a cluster are on other machines: these take neither a permit nor an open replica.
        if !self.forwarding.may_reach(replicas, order.target_id())
            || !self.is_enabled()
            || order.block.length() < into_memory::REPLICA_BYTES_MIN
        {
            return Ok(MemoryCopyOutcome::NotSupported);
        }
        let turn = self.peers.acquire_memory_permit(order.target_id(), order.requested_by).await;
        into_memory::send_replica(replicas, &self.forwarding, &self.threads, turn, order).await
    }
}

async fn pause(attempt: &mut u32) {
    tokio::time::sleep(RETRY_PAUSE * (1 << (2 * *attempt).min(8))).await;
    *attempt += 1;
}

/// Returns true if a refused replica may be retried.
///
/// Errors: this DataNode's own replica is corrupt, which is now recorded.
async fn may_retry(
    replicas: &ReplicaService,
    block: &ExtendedBlock,
    refusal: &ReplicaRefusal,
    began: bool,
) -> Result<bool, CopyError> {
    match refusal.status {
        Status::ErrorChecksum => {
            // Corrupt here or in transit? Only the former means a corrupt replica.
            let own = block.clone();
            replicas.run_blocking(move |store| store.verify(&own)).await?;
            tracing::warn!(%block, %refusal, "bytes of a replica were corrupted in transit");
            Ok(true)
        }
        Status::ErrorExists => Ok(began),
        // The received part may still be held by a connection whose end the target has not noticed yet.
        Status::Error => Ok(began),
        Status::ErrorUnsupported => Ok(true),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::SystemClock;

    use super::*;

    #[test]
    fn windows_share_and_return_memory() {
        let options = StreamOptions {
            connections: 2,
            replicas: 16,
            window_bytes: 8 << 20,
            memory_bytes: 32 << 20,
            nice: 3,
            cores_share: 0.5,
            resume_timeout: Duration::from_secs(1),
        };
        let metrics = Arc::new(Metrics::new(Arc::new(SystemClock::new())));
        let streams = Streams::new(options, metrics, Arc::new(Forwarding::new(None)));
        let mut windows: Vec<Window> = std::iter::from_fn(|| streams.window()).collect();
        let total: u64 = windows.iter().map(|window| u64::from(window.limits.window_bytes)).sum();
        assert!(total <= 32 << 20 && windows.len() > 8, "{total} in {}", windows.len());
        assert_eq!(windows[0].limits.window_bytes, 8 << 20);
        for Window { limits, .. } in &windows {
            assert!(limits.frame_bytes_max >= 256 << 10 && limits.replica_window_bytes >= limits.frame_bytes_max);
            assert!(limits.window_bytes >= 2 * limits.frame_bytes_max);
        }
        assert!(streams.window().is_none());
        windows.pop();
        assert!(streams.window().is_some());
        // More memory and smaller windows apply to the next connections.
        streams.set_options(StreamOptions { memory_bytes: 64 << 20, window_bytes: 2 << 20, replicas: 5, ..options });
        let next = streams.window().unwrap();
        assert_eq!((next.limits.window_bytes, next.limits.replicas_max), (2 << 20, 5));
        streams.set_options(StreamOptions { connections: 0, ..options });
        assert!(!streams.is_enabled());
    }
}
