//! The receiving end. A single loop takes the frames, verifies them, and stores what can be stored without blocking.
//! Blocking work runs in a task that owns the replica's sink for that time. The replica's further frames are queued
//! until the sink is back, while frames of other replicas overtake them. If a replica's memory allows it, data is
//! received directly into it ([`in_place`]).

mod in_place;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hearth_fabric::tcp::{self, Connection, ReceiveBuffer};
use hearth_types::{ChecksumKind, ChecksumSpec};
use hearth_wire::data_transfer::{
    Decoded, OpenReplica, ReplicaPiece, ReplicaRefusal, Status, StreamLimits, ToReceiver, ToSender,
};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use self::in_place::InPlaceRead;
use super::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, RECEIVE_BYTES, ReplicaSink, ReplicaStore, StreamError, StreamTimeouts, corrupt,
};

/// Receives replicas from a connection whose sender was sent `limits`, until none has been in progress for `waits.idle`
/// or the sender closes.
///
/// Errors: the error that broke the connection. Sinks of replicas in progress are asked to keep their data.
pub async fn receive<S: ReplicaStore>(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    store: Arc<S>,
    limits: StreamLimits,
    waits: StreamTimeouts,
) -> Result<(), StreamError> {
    buffer.grow_to(RECEIVE_BYTES);
    let mut intake = StreamReceiver {
        connection,
        buffer,
        store,
        limits,
        waits,
        replicas: HashMap::new(),
        last: 0,
        frame: None,
        lead_bytes: 0,
        unacknowledged: 0,
        credit: Credit::default(),
        progress_at: Instant::now(),
        tasks: JoinSet::new(),
        out: Vec::new(),
    };
    let outcome = intake.run().await;
    let is_idle = intake.replicas.is_empty();
    intake.end().await;
    match outcome {
        // A sender that has all its answers closes without reading the remaining credit; its kernel then sends a reset.
        Err(StreamError::Connection(error)) if is_idle && error.is_disconnect() => Ok(()),
        outcome => outcome,
    }
}

/// Fraction of the window (1 / `CREDIT_SHARE`) after which credit is sent. If few replicas are in progress, half of
/// their combined per-replica window is enough. Credit is also sent after `CREDIT_PIECES` pieces, or when no more data
/// is available. Each credit message wakes the sender, which still has enough credit to continue.
const CREDIT_SHARE: u32 = 4;
const CREDIT_PIECES: usize = 64;

struct StreamReceiver<'a, S: ReplicaStore> {
    connection: &'a Connection,
    buffer: &'a mut ReceiveBuffer,
    store: Arc<S>,
    limits: StreamLimits,
    waits: StreamTimeouts,
    replicas: HashMap<u32, Replica<S::Sink>>,
    /// Number of the last replica opened; the numbers increase.
    last: u32,
    /// The frame whose bytes are arriving.
    frame: Option<Frame>,
    /// While frames are received in place: length of the header and CRCs before the last frame's data, as far as
    /// parsed. The next frame's header is received in one call with the data before it.
    lead_bytes: usize,
    /// Bytes announced by frames that the sender has not got back as credit.
    unacknowledged: u64,
    credit: Credit,
    /// Last time when replica data arrived, or when the receiver itself caused the wait.
    progress_at: Instant,
    tasks: JoinSet<Outcome<S::Sink>>,
    /// Frames to the sender.
    out: Vec<u8>,
}

/// A replica in progress.
struct Replica<K> {
    length: u64,
    checksum: ChecksumSpec,
    /// `None` while a task has it.
    sink: Option<K>,
    /// Frames that wait for the sink.
    held: VecDeque<QueuedFrame>,
    /// True if all of it has arrived and a task is finishing it.
    ends: bool,
}

/// A frame whose data has not completely arrived.
struct Frame {
    piece: ReplicaPiece,
    checksums: Vec<u8>,
    /// Length of its header and CRCs.
    lead_bytes: usize,
    /// Data bytes that were stored, held or dropped.
    done: u32,
    /// Data bytes received in place after `done` that are not verified yet: less than a chunk.
    unverified: u32,
    /// True if some of it was received in place.
    in_place: bool,
    /// Held data bytes: either all of the `done` bytes or none.
    held: Vec<u8>,
}

impl Frame {
    fn has_checksums(&self) -> bool {
        self.checksums.len() == self.piece.checksum_bytes as usize
    }
}

/// A complete frame that waits for the sink.
struct QueuedFrame {
    piece: ReplicaPiece,
    /// The data starts at `piece.offset + stored`.
    stored: u32,
    checksums: Vec<u8>,
    data: Vec<u8>,
}

/// Credit of processed frames that was not sent yet. It accumulates while more data arrives, since each message wakes
/// the sender.
#[derive(Default)]
struct Credit {
    /// One entry per run of consecutive frames of a replica: its number, the offset up to which it is stored, and the
    /// sum of their bytes.
    pieces: Vec<(u32, u64, u64)>,
    bytes: u64,
}

impl Credit {
    fn give(&mut self, piece: ReplicaPiece, offset: u64) {
        let bytes = piece.body_bytes();
        self.bytes += bytes;
        match self.pieces.last_mut() {
            Some((replica, stored, sum)) if *replica == piece.replica => {
                (*stored, *sum) = (offset.max(*stored), *sum + bytes);
            }
            _ => self.pieces.push((piece.replica, offset, bytes)),
        }
    }

    /// Returns true if credit should be sent. `replicas`: number of replicas in progress.
    fn is_due(&self, limits: StreamLimits, replicas: usize) -> bool {
        let under_way = u64::from(limits.replica_window_bytes) * replicas as u64;
        let enough = u64::from(limits.window_bytes / CREDIT_SHARE).min(under_way / 2);
        self.bytes > 0 && self.bytes >= enough || self.pieces.len() >= CREDIT_PIECES
    }

    fn take_into(&mut self, out: &mut Vec<u8>) {
        for (replica, offset, bytes) in self.pieces.drain(..) {
            // The sum is at most a window, which fits in a u32.
            ToSender::Stored { replica, offset, credit: bytes as u32 }.encode_into(out);
        }
        self.bytes = 0;
    }
}

/// Result of a task.
enum Outcome<K> {
    Opened { replica: u32, sink: Result<K, ReplicaRefusal> },
    Stored { piece: ReplicaPiece, sink: Result<K, ReplicaRefusal> },
    Finished { replica: u32, outcome: Result<(), ReplicaRefusal> },
}

/// Result of parsing one step from the buffer.
enum Step {
    Progressed,
    /// The sender sent a ping, or a message that changes nothing.
    Ping,
    /// The next step needs this many bytes in the buffer.
    Needs(usize),
}

impl<S: ReplicaStore> StreamReceiver<'_, S> {
    async fn run(&mut self) -> Result<(), StreamError> {
        let tick = self.waits.ping_interval();
        let mut heard = Instant::now();
        let mut sent = heard;
        // True if the sender has sent a ping since all available input was processed.
        let mut is_there = false;
        loop {
            let mut went_on = false;
            let wanted = loop {
                match self.step()? {
                    Step::Progressed => went_on = true,
                    Step::Ping => is_there = true,
                    Step::Needs(wanted) => break wanted,
                }
            };
            while let Some(outcome) = self.tasks.try_join_next() {
                self.take(outcome)?;
            }
            if went_on || self.replicas.is_empty() || !self.tasks.is_empty() {
                self.progress_at = Instant::now();
            }
            // Independent of the sender's messages: the sender must notice that this end is alive.
            if !self.replicas.is_empty() && sent.elapsed() >= tick {
                ToSender::Ping.encode_into(&mut self.out);
            }
            if !self.out.is_empty() || self.credit.is_due(self.limits, self.replicas.len()) {
                self.flush().await?;
                sent = Instant::now();
            }
            match self.fill(wanted)? {
                Some(0) if self.replicas.is_empty() => return Ok(()),
                Some(0) => return Err(tcp::Error::Closed { peer: self.connection.peer() }.into()),
                Some(_) => {
                    heard = Instant::now();
                    // A sender that sends pings without a pause must not continue forever either.
                    if is_there && self.progress_at.elapsed() >= 2 * self.waits.no_data_timeout() {
                        return Err(StreamError::OnlyPings {
                            peer: self.connection.peer(),
                            after: self.progress_at.elapsed(),
                        });
                    }
                    // A sender that always has more must not starve other connections on this thread.
                    tokio::task::consume_budget().await;
                    continue;
                }
                None => {}
            }
            // Only check here, when no input is left: this process may itself have been suspended, and must first
            // process what has arrived.
            if std::mem::take(&mut is_there) && self.progress_at.elapsed() >= self.waits.no_data_timeout() {
                return Err(StreamError::OnlyPings { peer: self.connection.peer(), after: self.progress_at.elapsed() });
            }
            if !self.out.is_empty() || self.credit.bytes > 0 {
                self.flush().await?;
                sent = Instant::now();
            }
            let wait = if self.replicas.is_empty() { tick } else { tick.saturating_sub(sent.elapsed()) };
            tokio::select! {
                biased;
                Some(outcome) = self.tasks.join_next(), if !self.tasks.is_empty() => self.take(outcome)?,
                readable = self.connection.readable(wait) => match readable {
                    Ok(()) => {}
                    Err(tcp::Error::ReadTimedOut { .. }) => {
                        let quiet = heard.elapsed();
                        if self.replicas.is_empty() {
                            if quiet >= self.waits.idle {
                                return Ok(());
                            }
                        } else if quiet >= self.waits.silence {
                            return Err(StreamError::Silent { peer: self.connection.peer(), after: quiet });
                        }
                    }
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }

    /// Sends the pending messages, credit first.
    async fn flush(&mut self) -> Result<(), StreamError> {
        let mut frames = Vec::new();
        self.credit.take_into(&mut frames);
        frames.append(&mut self.out);
        Ok(self.connection.write_all(&frames, self.waits.write).await?)
    }

    /// Receives what is available without waiting; `None` if nothing is. `wanted`: minimum number of bytes that the
    /// buffer needs for the next step.
    fn fill(&mut self, wanted: usize) -> Result<Option<usize>, StreamError> {
        if let InPlaceRead::Received(received) = self.fill_in_place()? {
            return Ok(received);
        }
        let is_at_data = self.buffer.available().is_empty() && self.frame.as_ref().is_some_and(Frame::has_checksums);
        // If the next data belongs to a frame that is not received in place, receive it together with everything behind
        // it.
        if !is_at_data && (self.lead_bytes > 0 || self.can_receive_in_place_next()) {
            return self.fill_up_to_data(wanted);
        }
        // Makes room for a large piece, so that a remnant at the buffer's end does not cause short reads.
        let room = self.buffer.available().len() + RECEIVE_BYTES / 2;
        Ok(self.buffer.try_fill(self.connection, wanted.max(room))?)
    }

    /// Keeps what can be kept for a sender that comes back.
    async fn end(&mut self) {
        for (_, mut replica) in self.replicas.drain() {
            if let Some(sink) = replica.sink.take() {
                sink.keep();
            }
        }
        while let Some(outcome) = self.tasks.join_next().await {
            if let Ok(Outcome::Opened { sink: Ok(sink), .. } | Outcome::Stored { sink: Ok(sink), .. }) = outcome {
                sink.keep();
            }
        }
    }

    fn violation<T>(&self, what: &'static str) -> Result<T, StreamError> {
        Err(StreamError::Protocol { peer: self.connection.peer(), what })
    }

    /// Parses a message, or some of a frame's bytes, from the buffer.
    fn step(&mut self) -> Result<Step, StreamError> {
        if let Some(frame) = self.frame.take() {
            return self.continue_frame(frame);
        }
        let peer = self.connection.peer();
        let decoded = ToReceiver::decode(self.buffer.available());
        match decoded.map_err(|source| StreamError::Frame { peer, source })? {
            Decoded::Needs(missing) => return Ok(Step::Needs(self.buffer.available().len() + missing)),
            Decoded::Complete(message, bytes) => {
                self.buffer.consume(bytes);
                match message {
                    ToReceiver::Open { replica, request } => self.open(replica, *request)?,
                    ToReceiver::Data(piece) => self.begin(piece, bytes)?,
                    ToReceiver::Cancel { replica } => return Ok(self.cancel(replica)),
                    ToReceiver::Ping => return Ok(Step::Ping),
                }
            }
        }
        Ok(Step::Progressed)
    }

    fn open(&mut self, replica: u32, request: OpenReplica) -> Result<(), StreamError> {
        if replica <= self.last {
            return self.violation("replica numbers do not increase");
        }
        if self.replicas.len() >= self.limits.replicas_max as usize {
            return self.violation("more concurrent replicas than allowed");
        }
        self.last = replica;
        let (length, checksum) = (request.block.length(), request.checksum);
        if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&checksum.bytes_per_chunk) {
            let refusal = ReplicaRefusal::new(Status::ErrorUnsupported, "chunk size is out of range");
            ToSender::Refused { replica, refusal }.encode_into(&mut self.out);
            return Ok(());
        }
        // Cancelled replicas are not counted in `replicas`, but their tasks continue.
        if self.tasks.len() >= 2 * self.limits.replicas_max as usize {
            let refusal = ReplicaRefusal::new(Status::Error, "too many cancelled replicas are still being cleaned up");
            ToSender::Refused { replica, refusal }.encode_into(&mut self.out);
            return Ok(());
        }
        self.replicas.insert(replica, Replica { length, checksum, sink: None, held: VecDeque::new(), ends: false });
        let store = self.store.clone();
        self.tasks.spawn(async move { Outcome::Opened { replica, sink: store.open(request).await } });
        Ok(())
    }

    /// Starts a frame whose header has `bytes` bytes.
    fn begin(&mut self, piece: ReplicaPiece, bytes: usize) -> Result<(), StreamError> {
        if self.unacknowledged + piece.body_bytes() > u64::from(self.limits.window_bytes) {
            return self.violation("more bytes than the credit allows");
        }
        if piece.replica > self.last {
            return self.violation("data of an unopened replica");
        }
        if piece.data_bytes > self.limits.frame_bytes_max.max(CHUNK_BYTES_MAX) {
            return self.violation("frame exceeds the allowed length");
        }
        // Bytes of an unknown replica are dropped.
        if let Some(Replica { length, checksum, .. }) = self.replicas.get(&piece.replica) {
            let chunk = u64::from(checksum.bytes_per_chunk);
            let is_whole = piece.end().is_multiple_of(chunk) || piece.end() == *length;
            if !piece.offset.is_multiple_of(chunk) || !is_whole || piece.end() > *length {
                return self.violation("frame is not aligned to chunks of its replica");
            }
            if checksum.checksum_bytes(piece.data_bytes.into()) != u64::from(piece.checksum_bytes) {
                return self.violation("number of checksums does not match the frame's data");
            }
        }
        self.unacknowledged += piece.body_bytes();
        // The sender had credit for all of it.
        self.connection.expect(piece.body_bytes().saturating_sub(self.buffer.available().len() as u64));
        let lead_bytes = bytes + piece.checksum_bytes as usize;
        let (checksums, held) = (Vec::new(), Vec::new());
        self.frame = Some(Frame { piece, checksums, lead_bytes, done: 0, unverified: 0, in_place: false, held });
        Ok(())
    }

    /// Processes the received bytes of a frame.
    fn continue_frame(&mut self, mut frame: Frame) -> Result<Step, StreamError> {
        let piece = frame.piece;
        let missing = piece.checksum_bytes as usize - frame.checksums.len();
        if missing > 0 {
            let available = self.buffer.available();
            let take = missing.min(available.len());
            frame.checksums.extend_from_slice(&available[..take]);
            self.buffer.consume(take);
            self.frame = Some(frame);
            return Ok(if take < missing {
                Step::Needs((missing - take).min(RECEIVE_BYTES / 2))
            } else {
                Step::Progressed
            });
        }
        let available = self.buffer.available();
        let left = (piece.data_bytes - frame.done) as usize;
        let mut take = left.min(available.len());

        if take == 0 {
            self.frame = Some(frame);
            return Ok(Step::Needs(1));
        }
        let Some(replica) = self.replicas.get_mut(&piece.replica).filter(|replica| !replica.ends) else {
            self.buffer.consume(take);
            frame.done += take as u32;
            self.end_frame(frame, left == take)?;
            return Ok(Step::Progressed);
        };
        let quick = replica.sink.as_mut().filter(|sink| frame.held.is_empty() && sink.can_store_now(take));
        if let Some(sink) = quick.filter(|_| replica.held.is_empty()) {
            let chunk = replica.checksum.bytes_per_chunk as usize;
            if take < left {
                take -= take % chunk;
            }
            if take == 0 {
                self.frame = Some(frame);
                return Ok(Step::Needs(chunk.min(left)));
            }
            let data = &available[..take];
            let checksums = checksums_of(replica.checksum, &frame.checksums, frame.done, take);
            let offset = piece.offset + u64::from(frame.done);
            let refusal = match replica.checksum.verify(data, checksums) {
                Ok(()) => sink.store_now(offset, data, checksums).err(),
                Err(error) => {
                    // The data before it was verified.
                    if let Some(sink) = replica.sink.take() {
                        sink.keep();
                    }
                    Some(corrupt(offset, &error))
                }
            };
            if let Some(refusal) = refusal {
                self.refuse(piece.replica, refusal);
            }
        } else {
            if frame.held.is_empty() {
                // Bounded, because the frame's credit was checked.
                frame.held.reserve_exact(left);
            }
            frame.held.extend_from_slice(&available[..take]);
        }
        self.buffer.consume(take);
        frame.done += take as u32;
        self.end_frame(frame, left == take)?;
        Ok(Step::Progressed)
    }

    /// Called after a part of a frame was processed; `whole`: all of its data has arrived.
    fn end_frame(&mut self, frame: Frame, whole: bool) -> Result<(), StreamError> {
        if !whole {
            self.frame = Some(frame);
            return Ok(());
        }
        self.lead_bytes = if frame.in_place { frame.lead_bytes } else { 0 };
        let Frame { piece, checksums, held, .. } = frame;
        match self.replicas.get_mut(&piece.replica).filter(|replica| !replica.ends) {
            Some(replica) if !held.is_empty() => {
                let stored = piece.data_bytes - held.len() as u32;
                replica.held.push_back(QueuedFrame { piece, stored, checksums, data: held });
            }
            Some(Replica { sink: Some(sink), .. }) => {
                let offset = sink.received();
                self.give_back(piece, offset);
            }
            // Refused in the meantime, or already complete.
            _ => self.give_back(piece, 0),
        }
        self.advance(piece.replica);
        Ok(())
    }

    fn give_back(&mut self, piece: ReplicaPiece, offset: u64) {
        self.unacknowledged -= piece.body_bytes();
        self.credit.give(piece, offset);
    }

    /// Makes progress on a replica after its sink came back.
    fn advance(&mut self, number: u32) {
        let Some(replica) = self.replicas.get_mut(&number) else { return };
        let Some(sink) = replica.sink.take() else { return };
        if let Some(held) = replica.held.pop_front() {
            let spec = replica.checksum;
            self.tasks.spawn(async move {
                let QueuedFrame { piece, stored, checksums, data } = held;
                let checksums = checksums_of(spec, &checksums, stored, data.len());
                let offset = piece.offset + u64::from(stored);
                let sink = match spec.verify(&data, checksums) {
                    Ok(()) => sink.store(offset, &data, checksums).await,
                    Err(error) => {
                        sink.keep();
                        Err(corrupt(offset, &error))
                    }
                };
                Outcome::Stored { piece, sink }
            });
        } else if sink.received() == replica.length {
            replica.ends = true;
            self.tasks.spawn(async move { Outcome::Finished { replica: number, outcome: sink.finish().await } });
        } else {
            replica.sink = Some(sink);
        }
    }

    fn take(&mut self, outcome: Result<Outcome<S::Sink>, JoinError>) -> Result<(), StreamError> {
        match outcome {
            Ok(Outcome::Opened { replica, sink: Ok(sink) }) => {
                if let Some(open) = self.replicas.get_mut(&replica) {
                    let offset = sink.received();
                    open.sink = Some(sink);
                    ToSender::Opened { replica, offset }.encode_into(&mut self.out);
                    self.advance(replica);
                }
            }
            Ok(Outcome::Stored { piece, sink: Ok(sink) }) => {
                self.give_back(piece, sink.received());
                // Otherwise the sender has cancelled it, and the sink is dropped.
                if let Some(open) = self.replicas.get_mut(&piece.replica) {
                    open.sink = Some(sink);
                    self.advance(piece.replica);
                }
            }
            Ok(Outcome::Stored { piece, sink: Err(refusal) }) => {
                self.give_back(piece, 0);
                self.refuse(piece.replica, refusal);
            }
            Ok(Outcome::Opened { replica, sink: Err(refusal) }) => self.refuse(replica, refusal),
            Ok(Outcome::Finished { replica, outcome: Ok(()) }) => {
                self.replicas.remove(&replica);
                ToSender::Done { replica }.encode_into(&mut self.out);
            }
            Ok(Outcome::Finished { replica, outcome: Err(refusal) }) => self.refuse(replica, refusal),
            // These tasks are never cancelled.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return Err(StreamError::Interrupted),
        }
        Ok(())
    }

    /// Refuses a replica. Its received data and all further data are dropped.
    fn refuse(&mut self, number: u32, refusal: ReplicaRefusal) {
        let Some(replica) = self.replicas.remove(&number) else { return };
        for held in replica.held {
            self.give_back(held.piece, 0);
        }
        ToSender::Refused { replica: number, refusal }.encode_into(&mut self.out);
    }

    fn cancel(&mut self, number: u32) -> Step {
        let Some(replica) = self.replicas.remove(&number) else { return Step::Ping };
        for held in replica.held {
            self.give_back(held.piece, 0);
        }
        Step::Progressed
    }
}

/// Returns the CRCs of the `bytes` bytes starting at `done`, which is a chunk boundary.
fn checksums_of(spec: ChecksumSpec, checksums: &[u8], done: u32, bytes: usize) -> &[u8] {
    if spec.kind == ChecksumKind::Null {
        return &[];
    }
    let first = spec.checksum_bytes(u64::from(done)) as usize;
    &checksums[first..first + spec.checksum_bytes(bytes as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_due_earlier_with_few_replicas() {
        let limits = StreamLimits {
            window_bytes: 8 << 20,
            replica_window_bytes: 2 << 20,
            frame_bytes_max: 512 << 10,
            replicas_max: 64,
        };
        let piece = |replica| ReplicaPiece { replica, offset: 0, checksum_bytes: 0, data_bytes: 512 << 10 };
        let until_due = |replicas: usize| {
            let mut credit = Credit::default();
            let mut pieces = 0u32;
            while !credit.is_due(limits, replicas) {
                pieces += 1;
                credit.give(piece(1 + pieces % replicas.max(1) as u32), 512 << 10);
            }
            pieces
        };
        // A single replica has at most four frames in flight: the sender gets credit for the first two while it sends
        // the other two.
        assert_eq!([0, 1, 2, 3, 64].map(until_due), [1, 2, 4, 4, 4]);
        assert!(!Credit::default().is_due(limits, 0), "no credit to send");
        let mut credit = Credit::default();
        (0..CREDIT_PIECES as u32).for_each(|replica| credit.give(ReplicaPiece { data_bytes: 1, ..piece(replica) }, 1));
        assert!(credit.is_due(limits, 64), "also for many small pieces");
    }
}
