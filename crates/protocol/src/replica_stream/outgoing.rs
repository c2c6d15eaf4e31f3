//! The sending end. Replicas take turns, each sending a run of frames, as far as the receiver's credit allows.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use hearth_fabric::tcp::{self, Connection, ReceiveBuffer};
use hearth_types::{ByteRange, ChecksumSpec};
use hearth_wire::data_transfer::{
    Decoded, OpenReplica, ReplicaPiece, ReplicaRefusal, Status, StreamLimits, ToReceiver, ToSender,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, ReplicaSendError, ReplicaSource, SourceData, StreamError, StreamTimeouts,
};

/// A replica's turn ends at multiples of this size, which is that of a huge page. The receiver's kernel clears the
/// whole page at its first byte. Filled at once, the page is still in the cache; with another replica's bytes in
/// between, it would be fetched again.
const QUANTUM_BYTES: u64 = 2 << 20;

/// A replica to send.
pub struct ReplicaJob<S> {
    pub request: OpenReplica,
    pub source: S,
    /// Receives the result. Dropped without a result if the connection ended before the job was started; the job can
    /// then be given to another connection.
    pub done: oneshot::Sender<Result<(), ReplicaSendError>>,
}

/// A replica that is open.
struct Active {
    length: u64,
    sent: u64,
    stored: u64,
    /// True once the receiver has sent the offset to start from.
    opened: bool,
    /// True while a frame is being read and not yet sent.
    being_sent: bool,
    /// Time of the last message from the receiver about this replica, or of the last data sent to it.
    since: Instant,
    done: oneshot::Sender<Result<(), ReplicaSendError>>,
}

impl Active {
    /// Returns true if the receiver has to send the next message about this replica.
    fn awaits_receiver(&self) -> bool {
        !self.being_sent && (!self.opened || self.stored < self.sent || self.sent == self.length)
    }
}

/// State shared by both directions.
struct SharedState {
    active: HashMap<u32, Active>,
    /// Cancelled replicas that the receiver has not been notified of yet.
    cancelled: Vec<u32>,
    /// Bytes that may be sent.
    credit: u64,
    /// Time when credit last came back or a frame was last sent.
    credit_since: Instant,
    /// Time when a replica was last opened on an idle connection.
    busy_since: Instant,
}

struct StreamSender<'a> {
    connection: &'a Connection,
    limits: StreamLimits,
    waits: StreamTimeouts,
    shared: Mutex<SharedState>,
    changed: Notify,
}

/// Sends the replicas from `jobs` over a connection whose receiver has sent its `limits`. Ends when no job has arrived
/// for `waits.idle`, or when `jobs` is closed. Every job that was started gets a result.
///
/// Errors: the error that broke the connection; all replicas in progress were notified of it.
pub async fn send<S: ReplicaSource>(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    limits: StreamLimits,
    waits: StreamTimeouts,
    jobs: &mut mpsc::Receiver<ReplicaJob<S>>,
) -> Result<(), Arc<StreamError>> {
    let credit = u64::from(limits.window_bytes);
    let now = Instant::now();
    let shared =
        SharedState { active: HashMap::new(), cancelled: Vec::new(), credit, credit_since: now, busy_since: now };
    let outgoing = StreamSender { connection, limits, waits, shared: Mutex::new(shared), changed: Notify::new() };
    let outcome = tokio::select! {
        outcome = outgoing.run_send(jobs) => outcome,
        outcome = outgoing.run_receive(buffer) => outcome,
    };
    let outcome = outcome.map_err(Arc::new);
    for (_, active) in outgoing.shared.into_inner().active {
        let source = outcome.as_ref().err().cloned().unwrap_or_else(|| Arc::new(StreamError::Interrupted));
        // The waiting task may have given up.
        let _ = active.done.send(Err(ReplicaSendError::Broken { stored: active.stored, source }));
    }
    outcome
}

impl StreamSender<'_> {
    async fn run_send<S: ReplicaSource>(&self, jobs: &mut mpsc::Receiver<ReplicaJob<S>>) -> Result<(), StreamError> {
        let mut queue: VecDeque<(u32, QueuedReplica<S>)> = VecDeque::new();
        let mut head = Vec::new();
        let mut next = 1u32;
        // The job channel is closed; replicas in progress continue.
        let mut closed = false;
        let mut sent = Instant::now();
        loop {
            let cancelled = std::mem::take(&mut self.shared.lock().cancelled);
            cancelled.into_iter().for_each(|replica| ToReceiver::Cancel { replica }.encode_into(&mut head));
            while self.has_capacity()
                && let Ok(job) = jobs.try_recv()
            {
                self.open(&mut next, job, &mut queue, &mut head);
            }
            if self.send_one(&mut queue, &mut head).await? {
                sent = Instant::now();
                // Lets other tasks on this thread run.
                tokio::task::yield_now().await;
                continue;
            }
            if !head.is_empty() {
                self.connection.write_all(&head, self.waits.write).await?;
                head.clear();
                sent = Instant::now();
            }
            let is_idle = self.shared.lock().active.is_empty();
            // Independent of the receiver's messages: the receiver must notice that this end is alive.
            let until = if is_idle { Instant::now() + self.waits.idle } else { sent + self.waits.ping_interval() };
            if is_idle && closed {
                return Ok(());
            }
            tokio::select! {
                job = jobs.recv(), if !closed && self.has_capacity() => match job {
                    Some(job) => self.open(&mut next, job, &mut queue, &mut head),
                    None => closed = true,
                },
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(until) => {
                    if is_idle {
                        return Ok(());
                    }
                    ToReceiver::Ping.encode_into(&mut head);
                }
            }
        }
    }

    fn has_capacity(&self) -> bool {
        self.shared.lock().active.len() < self.limits.replicas_max as usize
    }

    fn open<S: ReplicaSource>(
        &self,
        next: &mut u32,
        job: ReplicaJob<S>,
        queue: &mut VecDeque<(u32, QueuedReplica<S>)>,
        head: &mut Vec<u8>,
    ) {
        let ReplicaJob { request, source, done } = job;
        if done.is_closed() {
            // The job's owner has given up.
            return;
        }
        let (length, checksum, replica) = (request.block.length(), request.checksum, *next);
        if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&checksum.bytes_per_chunk)
            || self.frame_data_bytes_max(checksum) + checksum.checksum_bytes(self.frame_data_bytes_max(checksum))
                > self.limits.window_bytes.into()
        {
            let refusal = ReplicaRefusal::new(Status::ErrorUnsupported, "chunk size is out of range");
            // The waiting task may have given up.
            let _ = done.send(Err(ReplicaSendError::Refused(refusal)));
            return;
        }
        *next += 1;
        ToReceiver::Open { replica, request: Box::new(request) }.encode_into(head);
        let (mut shared, now) = (self.shared.lock(), Instant::now());
        if shared.active.is_empty() {
            shared.busy_since = now;
            shared.credit_since = now;
        }
        let active = Active { length, sent: 0, stored: 0, opened: false, being_sent: false, since: now, done };
        shared.active.insert(replica, active);
        queue.push_back((replica, QueuedReplica { source, checksum }));
    }

    /// Maximum data bytes of a frame.
    fn frame_data_bytes_max(&self, checksum: ChecksumSpec) -> u64 {
        let chunk = u64::from(checksum.bytes_per_chunk);
        let most = self.limits.frame_bytes_max.min(self.limits.window_bytes / 2);
        (u64::from(most) / chunk).max(1) * chunk
    }

    /// Sends a frame of the first replica in the queue that can send. That replica stays first until its run ends.
    /// Returns false if none can send.
    async fn send_one<S: ReplicaSource>(
        &self,
        queue: &mut VecDeque<(u32, QueuedReplica<S>)>,
        head: &mut Vec<u8>,
    ) -> Result<bool, StreamError> {
        for _ in 0..queue.len() {
            let Some((replica, mut turn)) = queue.pop_front() else { break };
            self.drop_unwanted(replica, head);
            match self.next_piece(replica, &turn) {
                NextPiece::Finished => {}
                NextPiece::Blocked => queue.push_back((replica, turn)),
                NextPiece::Piece(piece, is_last) => {
                    self.send_piece(piece, &mut turn.source, head).await?;
                    self.note_sent(replica);
                    if is_last {
                        // That was its last turn.
                    } else if piece.end().is_multiple_of(QUANTUM_BYTES) {
                        queue.push_back((replica, turn));
                    } else {
                        queue.push_front((replica, turn));
                    }
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the next piece of a replica, and counts it as sent.
    fn next_piece<S>(&self, replica: u32, turn: &QueuedReplica<S>) -> NextPiece {
        let mut shared = self.shared.lock();
        let credit = shared.credit;
        let Some(active) = shared.active.get_mut(&replica) else { return NextPiece::Finished };
        if active.sent == active.length {
            // The receiver already had all of it, or it is empty.
            return if active.opened || active.length == 0 { NextPiece::Finished } else { NextPiece::Blocked };
        }
        let longest = self.frame_data_bytes_max(turn.checksum);
        let data_bytes = longest.min(active.length - active.sent);
        let end = active.sent + data_bytes;
        let checksum_bytes = turn.checksum.checksum_bytes(data_bytes);
        let may = if active.opened {
            end - active.stored <= u64::from(self.limits.replica_window_bytes).max(longest)
        } else {
            end + checksum_bytes <= self.limits.unsolicited_bytes() && end == active.length
        };
        if !may || data_bytes + checksum_bytes > credit {
            return NextPiece::Blocked;
        }
        let piece = ReplicaPiece {
            replica,
            offset: active.sent,
            checksum_bytes: checksum_bytes as u32,
            data_bytes: data_bytes as u32,
        };
        active.sent = end;
        active.being_sent = true;
        let is_last = end == active.length && active.opened;
        shared.credit -= piece.body_bytes();
        NextPiece::Piece(piece, is_last)
    }

    async fn send_piece<S: ReplicaSource>(
        &self,
        piece: ReplicaPiece,
        source: &mut S,
        head: &mut Vec<u8>,
    ) -> Result<(), StreamError> {
        let range = ByteRange::new(piece.offset, piece.end()).expect("the piece lies within the replica");
        let (mut before, timeout) = (head.len(), self.waits.write);
        piece.encode_into(head);
        let read = match source.checksums(range, head) {
            Ok(()) => {
                let mut reading = pin!(source.data(range));
                loop {
                    tokio::select! {
                        biased;
                        read = &mut reading => break read,
                        () = tokio::time::sleep(self.waits.ping_interval()) => {
                            // The frame has not begun, so a ping can precede it, after the messages already in `head`.
                            let mut early: Vec<u8> = head.drain(..before).collect();
                            before = 0;
                            ToReceiver::Ping.encode_into(&mut early);
                            self.connection.write_all(&early, timeout).await?;
                        }
                    }
                }
            }
            Err(error) => Err(error),
        };
        let data = match read {
            Ok(data) => data,
            Err(error) => {
                head.truncate(before);
                self.give_up(piece, ReplicaSendError::Source(error.into()), head);
                return Ok(());
            }
        };
        let sent = match data {
            SourceData::Bytes(bytes) => self.connection.write_vectored(&[head, bytes], false, timeout).await,
            SourceData::File { file, offset } => {
                self.connection.write_vectored(&[head], true, timeout).await?;
                self.connection.send_file_range(file, offset, range.length(), timeout).await
            }
        };
        head.clear();
        match sent {
            Err(error @ tcp::Error::File { .. }) => {
                // The receiver waits for bytes that will not come, so nothing else can follow on this connection.
                self.give_up(piece, ReplicaSendError::Source(Box::new(error)), head);
                Err(StreamError::Interrupted)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Restarts the timers after a frame was sent: before that, the receiver could not acknowledge it.
    fn note_sent(&self, replica: u32) {
        let (mut shared, now) = (self.shared.lock(), Instant::now());
        shared.credit_since = now;
        if let Some(active) = shared.active.get_mut(&replica) {
            (active.being_sent, active.since) = (false, now);
        }
    }

    /// Limits how long the receiver may send only pings, because a replica in progress occupies one of the stream's
    /// places while other jobs wait. A replica without progress is cancelled and the others continue: its disk may be
    /// the only one that hangs.
    ///
    /// Errors: `NoProgress` if it applies to all replicas.
    fn check_progress(&self) -> Result<(), StreamError> {
        let peer = self.connection.peer();
        let mut shared = self.shared.lock();
        // If no credit is out, nothing was sent and the receiver owes nothing. All credit that is out must belong to
        // sent frames.
        let lacks_credit = shared.credit < u64::from(self.limits.window_bytes)
            && !shared.active.is_empty()
            && shared.active.values().all(|active| !active.being_sent);
        let after = shared.credit_since.elapsed();
        if lacks_credit && after >= self.waits.write {
            return Err(StreamError::NoProgress { peer, after });
        }
        let is_stuck = |active: &Active| active.awaits_receiver() && active.since.elapsed() >= self.waits.write;
        let stuck: Vec<_> = shared.active.extract_if(|_, active| is_stuck(active)).collect();
        for (replica, Active { stored, since, done, .. }) in stuck {
            shared.cancelled.push(replica);
            let source = Arc::new(StreamError::NoProgress { peer, after: since.elapsed() });
            // The waiting task may have given up.
            let _ = done.send(Err(ReplicaSendError::Broken { stored, source }));
        }
        if !shared.cancelled.is_empty() {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Gives up a replica whose `piece` was counted as sent but was not sent.
    fn give_up(&self, piece: ReplicaPiece, error: ReplicaSendError, head: &mut Vec<u8>) {
        let mut shared = self.shared.lock();
        shared.credit += piece.body_bytes();
        if let Some(active) = shared.active.remove(&piece.replica) {
            // The waiting task may have given up.
            let _ = active.done.send(Err(error));
        }
        ToReceiver::Cancel { replica: piece.replica }.encode_into(head);
    }

    /// Cancels the replica if its job's owner no longer waits.
    fn drop_unwanted(&self, replica: u32, head: &mut Vec<u8>) {
        let mut shared = self.shared.lock();
        if shared.active.get(&replica).is_some_and(|active| active.done.is_closed()) {
            shared.active.remove(&replica);
            ToReceiver::Cancel { replica }.encode_into(head);
        }
    }

    /// Processes the receiver's messages.
    async fn run_receive(&self, buffer: &mut ReceiveBuffer) -> Result<(), StreamError> {
        let peer = self.connection.peer();
        let mut heard = Instant::now();
        let mut checked = heard;
        loop {
            let mut wanted = buffer.available().len();
            let mut news = false;
            loop {
                let decoded = ToSender::decode(buffer.available());
                match decoded.map_err(|source| StreamError::Frame { peer, source })? {
                    Decoded::Complete(frame, bytes) => {
                        buffer.consume(bytes);
                        self.take(frame)?;
                        news = true;
                    }
                    Decoded::Needs(missing) => {
                        wanted = wanted.max(buffer.available().len() + missing);
                        break;
                    }
                }
            }
            if news {
                heard = Instant::now();
                self.changed.notify_one();
            }
            // Checked only after all received messages were processed: this process may have been suspended.
            if checked.elapsed() >= self.waits.ping_interval() {
                self.check_progress()?;
                checked = Instant::now();
            }
            match self.connection.readable(self.waits.ping_interval()).await {
                Ok(()) => match buffer.try_fill(self.connection, wanted)? {
                    Some(0) if self.shared.lock().active.is_empty() => return Ok(()),
                    Some(0) => return Err(tcp::Error::Closed { peer }.into()),
                    _ => {}
                },
                Err(tcp::Error::ReadTimedOut { .. }) => {
                    let shared = self.shared.lock();
                    let silent = heard.max(shared.busy_since).elapsed();
                    if !shared.active.is_empty() && silent >= self.waits.silence {
                        return Err(StreamError::Silent { peer, after: silent });
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(&self, frame: ToSender) -> Result<(), StreamError> {
        let rules = |what| Err(StreamError::Protocol { peer: self.connection.peer(), what });
        let mut shared = self.shared.lock();
        match frame {
            ToSender::Opened { replica, offset } => {
                let Some(active) = shared.active.get_mut(&replica) else { return Ok(()) };
                if active.opened || offset > active.length {
                    return rules("replica opened twice, or with an offset beyond its end");
                }
                (active.opened, active.since) = (true, Instant::now());
                active.stored = active.stored.max(offset);
                active.sent = active.sent.max(offset);
            }
            ToSender::Stored { replica, offset, credit } => {
                shared.credit += u64::from(credit);
                if credit > 0 {
                    shared.credit_since = Instant::now();
                }
                if shared.credit > u64::from(self.limits.window_bytes) {
                    return rules("credit for bytes that were not sent");
                }
                if let Some(active) = shared.active.get_mut(&replica) {
                    if offset > active.sent {
                        return rules("acknowledgement of bytes that were not sent");
                    }
                    if offset > active.stored {
                        (active.stored, active.since) = (offset, Instant::now());
                    }
                }
            }
            ToSender::Done { replica } => {
                if shared.active.get(&replica).is_some_and(|active| active.sent < active.length) {
                    return rules("completion of a replica that was not completely sent");
                }
                if let Some(active) = shared.active.remove(&replica) {
                    // The waiting task may have given up.
                    let _ = active.done.send(Ok(()));
                }
            }
            ToSender::Refused { replica, refusal } => {
                if let Some(active) = shared.active.remove(&replica) {
                    let _ = active.done.send(Err(ReplicaSendError::Refused(refusal)));
                }
            }
            ToSender::Ping => {}
        }
        Ok(())
    }
}

/// A replica that waits for its next turn.
struct QueuedReplica<S> {
    source: S,
    checksum: ChecksumSpec,
}

enum NextPiece {
    /// The replica needs no more turns.
    Finished,
    Blocked,
    Piece(ReplicaPiece, bool),
}
