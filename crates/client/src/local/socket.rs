//! The domain socket of one datanode: connections kept for the next request, segments of slots, and what was learnt of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hearth_fabric::local::{self, SharedWords};
use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_protocol::data_transfer::{MESSAGE_BUFFER_BYTES, Timeouts, TransferError, receive_alone};
use hearth_wire::data_transfer::{
    DatanodeDescription, Decoded, Describe, MessageError, Operation, RESPONSE_BYTES_MAX, ShmResponse, ShmSlot,
    ShortCircuitReleaseResponse, Status,
};
use parking_lot::Mutex;

use crate::DatanodeError;
use crate::attempt::Attempt;
use crate::multiplexed::Links;

use super::slots::{SLOTS_MAX, Segment, Slot};

/// Connections kept idle per socket: one for requests, one for releases, some for requests that meet.
const IDLE_MAX: usize = 4;

/// Segments per socket: replicas beyond their slots are opened without one.
const SEGMENTS_MAX: usize = 64;

/// How long a datanode's description of itself is believed.
const DESCRIBED: Duration = Duration::from_secs(60);

/// The same of one that has none; each question is a complaint in its log.
const STRANGER: Duration = Duration::from_secs(600);

/// How long a datanode that gives no slots is not asked for them again: Java's may have none at all, Hearth's has when others give theirs back.
const WITHOUT_SLOTS: Duration = Duration::from_secs(60);

/// A datanode's domain socket.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    timeouts: Timeouts,
    /// For the bytes of small replicas.
    links: Arc<Links>,
    /// How long nothing good is expected of it after a failure.
    disable_interval: Duration,
    /// How long an idle connection is kept: shorter than the datanode waits for another request.
    kept: Duration,
    idle: Mutex<Vec<(Conversation, Instant)>>,
    /// Nothing good is expected of it.
    disabled: Pause,
    /// Who listens there: the answer to DESCRIBE and when it came; nothing in it when the datanode is not Hearth's.
    described: Mutex<Option<(Option<Arc<DatanodeDescription>>, Instant)>>,
    segments: Mutex<Vec<Arc<Segment>>>,
    /// Of who fetches a segment.
    fetching: Attempt,
    /// The datanode has no slots to give.
    without_slots: Pause,
    released: Mutex<Vec<Released>>,
    releasing: AtomicBool,
}

/// Something that is left alone until a time.
#[derive(Debug, Default)]
struct Pause(Mutex<Option<Instant>>);

impl Pause {
    fn begin(&self, now: Instant, length: Duration) {
        *self.0.lock() = now.checked_add(length);
    }

    fn end(&self) {
        *self.0.lock() = None;
    }

    fn lasts(&self, now: Instant) -> bool {
        self.0.lock().is_some_and(|until| now < until)
    }
}

/// A slot that this client needs no more and the datanode still knows.
#[derive(Debug)]
struct Released {
    segment: Arc<Segment>,
    index: usize,
    name: ShmSlot,
}

/// A connection and what has been received of an answer. Never more than that: descriptors may come behind it.
#[derive(Debug)]
pub(crate) struct Conversation {
    connection: Arc<Connection>,
    buffer: ReceiveBuffer,
    timeouts: Timeouts,
}

impl Conversation {
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

    /// The next message, and not a byte behind it.
    pub(crate) async fn receive<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>,
    ) -> Result<T, TransferError> {
        let peer = self.connection.peer();
        let failed = |source| TransferError::Message { peer, source };
        receive_alone(&self.connection, &mut self.buffer, decode, self.timeouts.read, failed).await
    }

    /// One byte and the descriptors attached to it; `None` when others than `COUNT` came.
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

impl Socket {
    pub(crate) fn new(
        path: PathBuf,
        timeouts: Timeouts,
        disable_interval: Duration,
        kept: Duration,
        links: Arc<Links>,
    ) -> Self {
        Self {
            links,
            path,
            timeouts,
            disable_interval,
            kept,
            idle: Mutex::default(),
            disabled: Pause::default(),
            described: Mutex::default(),
            segments: Mutex::default(),
            fetching: Attempt::default(),
            without_slots: Pause::default(),
            released: Mutex::default(),
            releasing: AtomicBool::new(false),
        }
    }

    /// Connections that carry many reads.
    pub(crate) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It failed with `error`: nothing good is expected of it for a while.
    pub(crate) fn disable(&self, error: &dyn std::error::Error) {
        tracing::info!(socket = %self.path.display(), %error, "local reads are left alone for a while");
        self.disabled.begin(Instant::now(), self.disable_interval);
        // Another may listen there when it works again.
        *self.described.lock() = None;
        self.without_slots.end();
    }

    pub(crate) fn enable(&self) {
        self.disabled.end();
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.disabled.lasts(Instant::now())
    }

    /// What Hearth's datanode says of itself; `None` when another listens there.
    pub(crate) async fn describe(&self, client_name: &str) -> Result<Option<Arc<DatanodeDescription>>, TransferError> {
        if let Some((description, since)) = &*self.described.lock()
            && since.elapsed() < if description.is_some() { DESCRIBED } else { STRANGER }
        {
            return Ok(description.clone());
        }
        let question = Operation::Describe(Describe { client_name: client_name.to_owned() }).encode();
        let mut conversation = self.connect().await?;
        let description = match conversation.ask(&question, DatanodeDescription::decode).await {
            Ok(description) => {
                self.keep(conversation);
                Some(Arc::new(description))
            }
            // Whoever does not know the question closes the connection.
            Err(error) if error.is_closed() => None,
            Err(error) => return Err(error),
        };
        *self.described.lock() = Some((description.clone(), Instant::now()));
        Ok(description)
    }

    /// Whether the datanode, as far as it is known, keeps files that it has shown as long as they were.
    pub(super) fn keeps_what_it_showed(&self) -> bool {
        matches!(&*self.described.lock(), Some((Some(_), _)))
    }

    pub(crate) async fn connect(&self) -> Result<Conversation, TransferError> {
        let connect = local::connect(&self.path);
        let connection = match tokio::time::timeout(self.timeouts.connect, connect).await {
            Ok(connected) => connected?,
            Err(_) => {
                let source = std::io::ErrorKind::TimedOut.into();
                return Err(hearth_fabric::stream::Error::NoSocket { path: self.path.clone(), source }.into());
            }
        };
        let buffer = ReceiveBuffer::new(MESSAGE_BUFFER_BYTES, RESPONSE_BYTES_MAX + 16);
        Ok(Conversation { connection: Arc::new(connection), buffer, timeouts: self.timeouts })
    }

    /// A connection that served a request and is still open, as far as one can see.
    pub(crate) async fn reuse(&self) -> Option<Conversation> {
        loop {
            let conversation = {
                let mut idle = self.idle.lock();
                idle.retain(|(_, since)| since.elapsed() < self.kept);
                idle.pop()?.0
            };
            if !conversation.connection.wait_closed(Duration::ZERO).await {
                return Some(conversation);
            }
        }
    }

    /// Keeps a connection that is between requests.
    pub(crate) fn keep(&self, conversation: Conversation) {
        if !conversation.buffer.available().is_empty() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push((conversation, Instant::now()));
    }

    /// Closes connections that were idle for too long. Whether any is left.
    pub(crate) fn expire(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.retain(|(_, since)| since.elapsed() < self.kept);
        !idle.is_empty()
    }

    /// Sends `operation`, over a kept connection if there is one, and receives the first message of the answer. Who has
    /// received all of it may `keep` the connection.
    pub(crate) async fn ask<T>(
        &self,
        operation: &Operation,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, MessageError>,
    ) -> Result<(T, Conversation), TransferError> {
        let request = operation.encode();
        while let Some(mut conversation) = self.reuse().await {
            match conversation.ask(&request, &decode).await {
                // The datanode may have closed it in this moment: that says nothing of the datanode.
                Err(error) if error.is_closed() => {}
                outcome => return outcome.map(|answer| (answer, conversation)),
            }
        }
        let mut conversation = self.connect().await?;
        let answer = conversation.ask(&request, &decode).await?;
        Ok((answer, conversation))
    }

    /// A slot for a replica that is about to be opened; `None` when the datanode gives none.
    pub(super) async fn slot(self: &Arc<Self>, client_name: &str) -> Result<Option<Slot>, DatanodeError> {
        let find = || match self.free_slot() {
            Some(slot) => Some(Some(slot)),
            None if self.without_slots.lasts(Instant::now()) => Some(None),
            None => None,
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        let make = async { self.fetch_segment(client_name).await.map_err(DatanodeError::Transfer) };
        self.fetching.or_make(find, make).await
    }

    /// Asks for another segment of slots, and takes the first.
    async fn fetch_segment(self: &Arc<Self>, client_name: &str) -> Result<Option<Slot>, TransferError> {
        if self.segments.lock().len() >= SEGMENTS_MAX {
            return Ok(None);
        }
        // Over a connection of its own: nothing else is said on it afterwards.
        let mut conversation = self.connect().await?;
        conversation.send(&Operation::RequestShortCircuitShm { client_name: client_name.to_owned() }.encode()).await?;
        let answer = conversation.receive(ShmResponse::decode).await?;
        let (Status::Success, Some(id)) = (answer.status, answer.segment) else {
            tracing::info!(socket = %self.path.display(), status = ?answer.status, error = ?answer.error, "no shared memory slots");
            self.without_slots.begin(Instant::now(), WITHOUT_SLOTS);
            return Ok(None);
        };
        let Some((_, [descriptor])) = conversation.receive_descriptors().await? else { return Ok(None) };
        // A Java datanode's segment is an unlinked file whose size it never changes.
        let words = match SharedWords::attach(descriptor, SLOTS_MAX, true) {
            Ok(words) => words,
            Err(error) => {
                tracing::warn!(socket = %self.path.display(), %error, "the datanode's shared memory is of no use");
                self.without_slots.begin(Instant::now(), WITHOUT_SLOTS);
                return Ok(None);
            }
        };
        let segment = Segment::new(id, words, Arc::clone(&conversation.connection));
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

    /// Has the datanode forget a slot, as soon as a task can tell it.
    pub(super) fn release(self: &Arc<Self>, segment: Arc<Segment>, index: usize, name: ShmSlot) {
        self.released.lock().push(Released { segment, index, name });
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // The next sweep tells it, or the next release.
            return;
        };
        if let Some(releasing) = Releasing::begin(self) {
            runtime.spawn(releasing.tell());
        }
    }

    /// Tells the datanode of slots that were dropped where no task could be started.
    pub(super) async fn tell_left_over(self: &Arc<Self>) {
        if !self.released.lock().is_empty()
            && let Some(releasing) = Releasing::begin(self)
        {
            releasing.tell().await;
        }
    }

    async fn tell(&self, Released { segment, index, name }: Released) {
        // A runtime that ends in the middle leaves open what the datanode knows: the segment is given up.
        let mut telling = Telling { segment: &segment, done: false };
        if !segment.has_ended() {
            match self.ask(&Operation::ReleaseShortCircuitFds(name), ShortCircuitReleaseResponse::decode).await {
                Ok((answer, conversation)) if answer.status == Status::Success => self.keep(conversation),
                // The two sides do not agree on what is taken: all of it is given up.
                Ok(_) => segment.end(),
                Err(error) => {
                    tracing::debug!(socket = %self.path.display(), %error, "a slot could not be released");
                    segment.end();
                }
            }
        }
        telling.done = true;
        if segment.give_back(index) {
            self.close_unused_segments();
        }
    }
}

/// Ends the segment unless it is done.
struct Telling<'a> {
    segment: &'a Segment,
    done: bool,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.segment.end();
        }
    }
}

/// Who tells the datanode of released slots: one at a time. With it the sign of that goes, also when a runtime ends it.
struct Releasing(Arc<Socket>);

impl Releasing {
    /// `None`: another does.
    fn begin(socket: &Arc<Socket>) -> Option<Self> {
        let other = socket.releasing.swap(true, Ordering::AcqRel);
        (!other).then(|| Self(Arc::clone(socket)))
    }

    async fn tell(self) {
        let socket = Arc::clone(&self.0);
        let mut releasing = Some(self);
        while let Some(this) = releasing {
            loop {
                let next = socket.released.lock().pop();
                let Some(released) = next else { break };
                socket.tell(released).await;
            }
            drop(this);
            // One that came between the last look and this found somebody who was about to end.
            let left = !socket.released.lock().is_empty();
            releasing = if left { Self::begin(&socket) } else { None };
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.0.releasing.store(false, Ordering::Release);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Every slot of theirs is gone, or it would hold the socket: whatever the datanode was not told, this tells it.
        for segment in self.segments.get_mut() {
            segment.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_over_when_its_time_is_or_when_it_is_ended() {
        let (pause, start) = (Pause::default(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(!pause.lasts(start));
        pause.begin(start, WITHOUT_SLOTS);
        assert!(pause.lasts(later(59)) && !pause.lasts(later(60)));
        pause.begin(later(60), WITHOUT_SLOTS);
        assert!(pause.lasts(later(61)));
        pause.end();
        assert!(!pause.lasts(later(61)));
    }
}
