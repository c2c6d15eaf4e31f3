//! Domain socket of one datanode: idle connections for the next requests, segments of slots, and the cached description
//! of the datanode.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearth_fabric::local::{self, SharedWords};
use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_protocol::data_transfer::{MESSAGE_BUFFER_BYTES, Timeouts, TransferError, receive_message};
use hearth_protocol::trace;
use hearth_wire::data_transfer::{
    DatanodeDescription, Decoded, Describe, MessageError, Operation, RESPONSE_BYTES_MAX, ShmResponse, ShmSlot,
    ShortCircuitReleaseResponse, Status,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::DatanodeError;
use crate::multiplexed::ConnectionPool;
use crate::single_flight::SingleFlight;

use super::slots::{SLOTS_MAX, Segment, Slot};

/// Maximum number of idle connections per socket: one for requests, one for releases, some for concurrent requests.
const IDLE_MAX: usize = 4;

/// Maximum number of segments per socket. Replicas beyond their slots are opened without a slot.
const SEGMENTS_MAX: usize = 64;

/// Time for which a datanode's description is cached.
const DESCRIPTION_TTL: Duration = Duration::from_secs(60);

/// The same for a datanode without a description: each request for it adds an error to that datanode's log.
const FOREIGN_DESCRIPTION_TTL: Duration = Duration::from_secs(600);

/// Time for which a datanode that refused slots is not asked again. A Java datanode may have none at all; Hearth's has
/// free ones again when other clients release theirs.
const SLOTS_REFUSED_BACKOFF: Duration = Duration::from_secs(60);

/// Domain socket of a datanode.
#[derive(Debug)]
pub(crate) struct DomainSocket {
    path: PathBuf,
    timeouts: Timeouts,
    /// Connections for the bytes of small replicas.
    connection_pool: Arc<ConnectionPool>,
    /// Time for which the socket is disabled after a failure.
    disable_interval: Duration,
    /// Time for which an idle connection is kept: shorter than the datanode waits for another request.
    idle_expiry: Duration,
    idle: Mutex<Vec<(DomainPeer, Instant)>>,
    /// Active after a failure of the socket.
    disabled: Backoff,
    /// Cached answer to DESCRIBE, with its time; `None` inside if the datanode is not Hearth's.
    described: Mutex<Option<(Option<Arc<DatanodeDescription>>, Instant)>>,
    segments: Mutex<Vec<Arc<Segment>>>,
    /// Single-flight for fetching a segment.
    fetching: SingleFlight,
    /// Active after the datanode refused slots.
    slots_refused: Backoff,
    released: Mutex<Vec<Released>>,
    releasing: AtomicBool,
}

/// Back-off that ends at a set time.
#[derive(Debug, Default)]
struct Backoff(Mutex<Option<Instant>>);

impl Backoff {
    fn begin(&self, now: Instant, length: Duration) {
        *self.0.lock() = now.checked_add(length);
    }

    fn end(&self) {
        *self.0.lock() = None;
    }

    fn is_active(&self, now: Instant) -> bool {
        self.0.lock().is_some_and(|until| now < until)
    }
}

/// A slot that this client no longer needs and that the datanode still knows.
#[derive(Debug)]
struct Released {
    segment: Arc<Segment>,
    index: usize,
    name: ShmSlot,
}

/// A connection with the received part of an answer. Never receives more than the message, because descriptors may
/// follow it.
#[derive(Debug)]
pub(crate) struct DomainPeer {
    connection: Arc<Connection>,
    buffer: ReceiveBuffer,
    timeouts: Timeouts,
}

impl DomainPeer {
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    async fn ask<T>(
        &mut self,
        request: &[u8],
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>,
    ) -> Result<T, TransferError> {
        self.send(request).await?;
        self.receive(decode).await
    }

    pub(crate) async fn send(&self, bytes: &[u8]) -> Result<(), TransferError> {
        Ok(self.connection.write_all(bytes, self.timeouts.write).await?)
    }

    /// Receives the next message, and not a byte after it.
    pub(crate) async fn receive<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>,
    ) -> Result<T, TransferError> {
        let peer = self.connection.peer();
        let failed = |source| TransferError::Message { peer, source };
        receive_message(&self.connection, &mut self.buffer, decode, self.timeouts.read, failed).await
    }

    /// Receives one byte and the descriptors attached to it; `None` if their number is not `COUNT`.
    pub(crate) async fn receive_descriptors<const COUNT: usize>(
        &mut self,
    ) -> Result<Option<(u8, [std::os::fd::OwnedFd; COUNT])>, TransferError> {
        let mut byte = [0; 1];
        let (received, descriptors) = self.connection.receive_with_descriptors(&mut byte, self.timeouts.read).await?;
        if received == 0 {
            let closed = hearth_fabric::stream::Error::Closed { peer: self.connection.peer() };
            return Err(closed.into());
        }
        Ok(descriptors.try_into().ok().map(|descriptors| (byte[0], descriptors)))
    }
}

impl DomainSocket {
    pub(crate) fn new(
        path: PathBuf,
        timeouts: Timeouts,
        disable_interval: Duration,
        idle_expiry: Duration,
        connection_pool: Arc<ConnectionPool>,
    ) -> Self {
        Self {
            connection_pool,
            path,
            timeouts,
            disable_interval,
            idle_expiry,
            idle: Mutex::default(),
            disabled: Backoff::default(),
            described: Mutex::default(),
            segments: Mutex::default(),
            fetching: SingleFlight::default(),
            slots_refused: Backoff::default(),
            released: Mutex::default(),
            releasing: AtomicBool::new(false),
        }
    }

    /// Returns the connections that carry many reads.
    pub(crate) fn connection_pool(&self) -> &Arc<ConnectionPool> {
        &self.connection_pool
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Disables the socket for a while after it failed with `error`.
    pub(crate) fn disable(&self, error: &dyn std::error::Error) {
        tracing::info!(socket = %self.path.display(), %error, "disabling local reads for a while");
        self.disabled.begin(Instant::now(), self.disable_interval);
        // Another datanode may listen there when the socket works again.
        *self.described.lock() = None;
        self.slots_refused.end();
    }

    pub(crate) fn enable(&self) {
        self.disabled.end();
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.disabled.is_active(Instant::now())
    }

    /// Returns the description of Hearth's datanode, or `None` if a foreign datanode listens there.
    pub(crate) async fn describe(&self, client_name: &str) -> Result<Option<Arc<DatanodeDescription>>, TransferError> {
        if let Some((description, since)) = &*self.described.lock()
            && since.elapsed() < if description.is_some() { DESCRIPTION_TTL } else { FOREIGN_DESCRIPTION_TTL }
        {
            return Ok(description.clone());
        }
        let question = Operation::Describe(Describe { client_name: client_name.to_owned() }).encode();
        let mut domain_peer = self.connect().await?;
        let description = match domain_peer.ask(&question, DatanodeDescription::decode).await {
            Ok(description) => {
                self.keep(domain_peer);
                Some(Arc::new(description))
            }
            // A datanode that does not support DESCRIBE closes the connection.
            Err(error) if error.is_closed() => None,
            Err(error) => return Err(error),
        };
        *self.described.lock() = Some((description.clone(), Instant::now()));
        Ok(description)
    }

    /// Returns true if the datanode is known to keep the length of files that it has shown.
    pub(super) fn keeps_what_it_showed(&self) -> bool {
        matches!(&*self.described.lock(), Some((Some(_), _)))
    }

    pub(crate) async fn connect(&self) -> Result<DomainPeer, TransferError> {
        let connect = local::connect(&self.path);
        let connection = match tokio::time::timeout(self.timeouts.connect, connect).await {
            Ok(connected) => connected?,
            Err(_) => {
                let source = std::io::ErrorKind::TimedOut.into();
                return Err(hearth_fabric::stream::Error::NoSocket { path: self.path.clone(), source }.into());
            }
        };
        let buffer = ReceiveBuffer::new(MESSAGE_BUFFER_BYTES, RESPONSE_BYTES_MAX + 16);
        Ok(DomainPeer { connection: Arc::new(connection), buffer, timeouts: self.timeouts })
    }

    /// Returns an idle connection that appears to be still open.
    pub(crate) async fn reuse(&self) -> Option<DomainPeer> {
        loop {
            let domain_peer = {
                let mut idle = self.idle.lock();
                idle.retain(|(_, since)| since.elapsed() < self.idle_expiry);
                idle.pop()?.0
            };
            if !domain_peer.connection.wait_closed(Duration::ZERO).await {
                return Some(domain_peer);
            }
        }
    }

    /// Keeps a connection that has no request outstanding.
    pub(crate) fn keep(&self, domain_peer: DomainPeer) {
        if !domain_peer.buffer.available().is_empty() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push((domain_peer, Instant::now()));
    }

    /// Closes connections that were idle for too long. Returns true if any are left.
    pub(crate) fn expire(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.retain(|(_, since)| since.elapsed() < self.idle_expiry);
        !idle.is_empty()
    }

    /// Sends `operation`, over an idle connection if there is one, and receives the first message of the answer. A
    /// caller that has received the whole answer may `keep` the connection.
    pub(crate) async fn ask<T>(
        &self,
        operation: &Operation,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>,
    ) -> Result<(T, DomainPeer), TransferError> {
        let request = operation.encode_traced(trace::current());
        while let Some(mut domain_peer) = self.reuse().await {
            match domain_peer.ask(&request, &decode).await {
                // The datanode may have closed the idle connection just now, which does not mean that the datanode
                // failed.
                Err(error) if error.is_closed() => {}
                outcome => return outcome.map(|answer| (answer, domain_peer)),
            }
        }
        let mut domain_peer = self.connect().await?;
        let answer = domain_peer.ask(&request, &decode).await?;
        Ok((answer, domain_peer))
    }

    /// Returns a slot for a replica that is about to be opened, or `None` if the datanode provides none.
    pub(super) async fn slot(self: &Arc<Self>, client_name: &str) -> Result<Option<Slot>, DatanodeError> {
        let find = || match self.free_slot() {
            Some(slot) => Some(Some(slot)),
            None if self.slots_refused.is_active(Instant::now()) => Some(None),
            None => None,
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        let make = async { self.fetch_segment(client_name).await.map_err(DatanodeError::Transfer) };
        self.fetching.get_or_try_init(find, make).await
    }

    /// Requests another segment of slots and takes the first slot.
    async fn fetch_segment(self: &Arc<Self>, client_name: &str) -> Result<Option<Slot>, TransferError> {
        if self.segments.lock().len() >= SEGMENTS_MAX {
            return Ok(None);
        }
        // Over a separate connection: no other messages follow on it.
        let mut domain_peer = self.connect().await?;
        domain_peer.send(&Operation::RequestShortCircuitShm { client_name: client_name.to_owned() }.encode()).await?;
        let answer = domain_peer.receive(ShmResponse::decode).await?;
        let (Status::Success, Some(id)) = (answer.status, answer.segment) else {
            tracing::info!(socket = %self.path.display(), status = ?answer.status, error = ?answer.error, "no shared memory slots");
            self.slots_refused.begin(Instant::now(), SLOTS_REFUSED_BACKOFF);
            return Ok(None);
        };
        let Some((_, [descriptor])) = domain_peer.receive_descriptors().await? else { return Ok(None) };
        // A Java datanode's segment is an unlinked file whose size it never changes.
        let words = match SharedWords::attach(descriptor, SLOTS_MAX, true) {
            Ok(words) => words,
            Err(error) => {
                tracing::warn!(socket = %self.path.display(), %error, "cannot map the datanode's shared memory");
                self.slots_refused.begin(Instant::now(), SLOTS_REFUSED_BACKOFF);
                return Ok(None);
            }
        };
        let segment = Segment::new(id, words, Arc::clone(&domain_peer.connection));
        let slot = segment.take(self);
        self.segments.lock().push(segment);
        Ok(slot)
    }

    fn free_slot(self: &Arc<Self>) -> Option<Slot> {
        let mut segments = self.segments.lock();
        segments.retain(|segment| !segment.has_ended());
        segments.iter().find_map(|segment| segment.take(self))
    }

    /// Ends segments without a slot in use.
    pub(super) fn close_unused_segments(&self) {
        self.segments.lock().retain(|segment| {
            let unused = segment.is_unused();
            if unused {
                segment.end();
            }
            !unused
        });
    }

    /// Releases a slot at the datanode, as soon as a task can send the request.
    pub(super) fn release(self: &Arc<Self>, segment: Arc<Segment>, index: usize, name: ShmSlot) {
        self.released.lock().push(Released { segment, index, name });
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // The next sweep or release sends it.
            return;
        };
        if let Some(releasing) = ReleaseTask::begin(self) {
            runtime.spawn(releasing.run());
        }
    }

    /// Sends releases of slots that were dropped outside a runtime.
    pub(super) async fn send_pending_releases(self: &Arc<Self>) {
        if !self.released.lock().is_empty()
            && let Some(releasing) = ReleaseTask::begin(self)
        {
            releasing.run().await;
        }
    }

    async fn send_release(&self, Released { segment, index, name }: Released) {
        // If the runtime ends in the middle, it is unknown what the datanode knows, so the segment is ended.
        let mut release_guard = ReleaseGuard { segment: &segment, done: false };
        if !segment.has_ended() {
            match self.ask(&Operation::ReleaseShortCircuitFds(name), ShortCircuitReleaseResponse::decode).await {
                Ok((answer, domain_peer)) if answer.status == Status::Success => self.keep(domain_peer),
                // The two sides do not agree on the slots in use: the whole segment is ended.
                Ok(_) => segment.end(),
                Err(error) => {
                    tracing::debug!(socket = %self.path.display(), %error, "cannot release a slot");
                    segment.end();
                }
            }
        }
        release_guard.done = true;
        if segment.give_back(index) {
            self.close_unused_segments();
        }
    }
}

/// Ends the segment on drop unless `done`.
struct ReleaseGuard<'a> {
    segment: &'a Segment,
    done: bool,
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.segment.end();
        }
    }
}

/// Task that sends releases to the datanode; only one runs at a time. Clears `releasing` on drop, also when a runtime
/// ends it.
struct ReleaseTask(Arc<DomainSocket>);

impl ReleaseTask {
    /// Returns `None` if another task is running.
    fn begin(socket: &Arc<DomainSocket>) -> Option<Self> {
        let other = socket.releasing.swap(true, Ordering::AcqRel);
        (!other).then(|| Self(Arc::clone(socket)))
    }

    async fn run(self) {
        let socket = Arc::clone(&self.0);
        let mut releasing = Some(self);
        while let Some(this) = releasing {
            loop {
                let next = socket.released.lock().pop();
                let Some(released) = next else { break };
                socket.send_release(released).await;
            }
            drop(this);
            // A release that was added after the last check found `releasing` still set.
            let left = !socket.released.lock().is_empty();
            releasing = if left { Self::begin(&socket) } else { None };
        }
    }
}

impl Drop for ReleaseTask {
    fn drop(&mut self) {
        self.0.releasing.store(false, Ordering::Release);
    }
}

impl Drop for DomainSocket {
    fn drop(&mut self) {
        // All their slots are gone, because each holds a reference to the socket. Ending the segments releases any
        // slots that the datanode still knows.
        for segment in self.segments.get_mut() {
            segment.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_expires_or_is_ended() {
        let (pause, start) = (Backoff::default(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(!pause.is_active(start));
        pause.begin(start, SLOTS_REFUSED_BACKOFF);
        assert!(pause.is_active(later(59)) && !pause.is_active(later(60)));
        pause.begin(later(60), SLOTS_REFUSED_BACKOFF);
        assert!(pause.is_active(later(61)));
        pause.end();
        assert!(!pause.is_active(later(61)));
    }
}
