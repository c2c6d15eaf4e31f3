//! The writer's end of a one-sided write (`rdma_control`, kinds 3 to 7). The writer is a client that writes to the
//! first datanode of a pipeline, or a datanode that writes to the next one.
//!
//! ```text
//! open ──► BlockWriter ──┬─ next_slice, reserve_checksums, send   down: RDMA writes of data and CRCs, then a slice
//!                        └─ next_ack                              up: acknowledgements, which carry further grants
//! ```
//! Both directions run concurrently, one task each. The receiver's memory for CRCs limits the data in flight. It is
//! used as a ring: each piece is reused once its slice is acknowledged.
//!
//! A sender that has used up its grants or CRC memory waits for acknowledgements and sends heartbeats. Without them the
//! receiver, which gets nothing while the datanodes behind it are slow, would take the sender for dead. Heartbeats are
//! acknowledged too, so acknowledgements alone do not prove progress. The wait therefore has a limit of its own
//! ([`WriterTimeouts::write`]).

mod buffers;
mod connections;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hearth_fabric::one_sided::{Connection, Error, Region, Transfer};
use hearth_types::{ChecksumSpec, DatanodeId, RemoteSlice};
use hearth_wire::data_transfer::{
    AckReply, BlockOpResponse, HEARTBEAT_SEQNO, PacketHeader, Status, UNKNOWN_SEQNO, WriteBlock,
};
use hearth_wire::rdma_control::{Grant, Slice, WriteMessage};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

pub use buffers::WriteBuffers;
pub use connections::WriterConnectionPool;

/// Maximum data bytes of one slice, for any receiver: the first grant of a receiver is at least this long.
pub const SLICE_BYTES_MAX: u64 = 1 << 20;

/// Maximum bytes used of a receiver's memory for CRCs.
pub const CHECKSUM_BYTES_MAX: u64 = 256 << 10;

/// Maximum number of posted writes whose local memory is still in use. Beyond it the sender waits for the oldest.
const POSTED_MAX: usize = 16;

/// Maximum number of unacknowledged slices. Beyond it the sender waits.
const IN_FLIGHT_MAX: usize = 1024;

/// Maximum number of grants held at once. Grants arrive one slice ahead.
const GRANTS_MAX: usize = 1024;

/// Errors of writing to a datanode.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    #[error(transparent)]
    Connection(#[from] Error),
    #[error("unexpected message from {peer}")]
    Unexpected { peer: SocketAddr },
    /// The datanode answers, but does not grant the memory that the writer waits for.
    #[error("{peer} responds, but {action} took longer than {after:?}")]
    NotGranted { peer: SocketAddr, action: &'static str, after: Duration },
}

/// Timeouts of a writer.
#[derive(Clone, Copy, Debug)]
pub struct WriterTimeouts {
    /// Longest wait for acknowledgements; it includes all datanodes behind this one.
    pub read: Duration,
    /// Longest wait for memory to write to, and for CRC memory of a slice, even if other messages arrive.
    pub write: Duration,
    /// Interval of heartbeats from a waiting sender.
    pub heartbeat: Duration,
}

/// Result of asking a datanode to write a block.
pub enum OpenOutcome {
    /// The request was not sent: the connection had just ended, or the request is too long for a message. This says
    /// nothing about the datanode.
    NotSent,
    /// The datanode refused, with the reason.
    Refused(Box<BlockOpResponse>),
    Opened(Arc<BlockWriter>),
}

/// Asks the datanode at the other end of `connection` to write a block.
///
/// `pool`: receives the connection after the end of the block, as a connection to `datanode`.
pub async fn open(
    connection: Arc<dyn Connection>,
    pool: &Arc<WriterConnectionPool>,
    datanode: &DatanodeId,
    request: WriteBlock,
    waits: WriterTimeouts,
) -> Result<OpenOutcome, WriterError> {
    let Ok(request) = WriteMessage::Open(Box::new(request)).encode() else { return Ok(OpenOutcome::NotSent) };
    match connection.send(request, waits.write).await {
        Err(Error::Closed { .. }) => return Ok(OpenOutcome::NotSent),
        sent => sent?,
    }
    let message = connection.receive(waits.read).await?;
    let unexpected = WriterError::Unexpected { peer: connection.peer() };
    let Ok(WriteMessage::Opened { answer, grant }) = WriteMessage::decode(&message) else { return Err(unexpected) };
    let bad_link = answer.first_bad_link.as_deref().is_some_and(|link| !link.is_empty());
    if answer.status != Status::Success || bad_link {
        return Ok(OpenOutcome::Refused(answer));
    }
    let Some(grant) = grant else { return Err(unexpected) };
    let Some(checksums) = grant.checksums.part(0, grant.checksums.length.min(CHECKSUM_BYTES_MAX)) else {
        return Err(unexpected);
    };
    Ok(OpenOutcome::Opened(Arc::new(BlockWriter {
        connection,
        pool: pool.clone(),
        datanode: datanode.clone(),
        waits,
        first_granted: grant.offset + grant.data.length,
        checksums,
        state: Mutex::new(State { grants: vec![grant], ..State::default() }),
        changed: Notify::new(),
        sent_at: Mutex::new(Instant::now()),
        posted: tokio::sync::Mutex::default(),
        ended: AtomicBool::new(false),
    })))
}

/// A block that is being written.
pub struct BlockWriter {
    connection: Arc<dyn Connection>,
    pool: Arc<WriterConnectionPool>,
    datanode: DatanodeId,
    waits: WriterTimeouts,
    first_granted: u64,
    /// The datanode's memory for CRCs.
    checksums: RemoteSlice,
    state: Mutex<State>,
    /// Notified when an acknowledgement has arrived.
    changed: Notify,
    /// Time when the last slice or heartbeat was posted. The receiver has received nothing since.
    sent_at: Mutex<Instant>,
    posted: tokio::sync::Mutex<VecDeque<BoxFuture<'static, Result<(), Error>>>>,
    /// True once the end of the block is acknowledged; the connection can then be reused.
    ended: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Grants, newest last. Where two overlap, the newer one counts.
    grants: Vec<Grant>,
    /// Offset in the CRC memory for the next CRCs, and number of bytes in use.
    checksums_at: u64,
    checksums_used: u64,
    /// CRC memory taken by a reserved slot that has not been sent yet.
    reserved: u64,
    in_flight: VecDeque<InFlightSlice>,
}

/// A slice that is not acknowledged.
struct InFlightSlice {
    checksum_bytes: u64,
    is_whole: bool,
}

/// CRC memory reserved for one slice.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumSlot {
    /// Destination of the slice's CRCs.
    pub checksums: RemoteSlice,
    /// Offset of `checksums` within the CRC memory: below `CHECKSUM_BYTES_MAX`.
    pub checksums_at: u64,
}

/// A received acknowledgement.
#[derive(Debug)]
pub struct Acknowledged {
    pub seqno: i64,
    pub replies: Vec<AckReply>,
    /// New end of the granted memory, as an offset in the block.
    pub granted: Option<u64>,
    /// Value passed when the slice was sent: see [`BlockWriter::send`]. False for heartbeats sent while waiting; true
    /// for acknowledgements that belong to no slice.
    pub is_whole: bool,
}

impl BlockWriter {
    /// Returns the end of the first grant.
    pub fn first_granted(&self) -> u64 {
        self.first_granted
    }

    pub fn connection(&self) -> &Arc<dyn Connection> {
        &self.connection
    }

    /// Returns the next part of `packet` to send as one slice, starting at byte `at` of the block. The part is the
    /// whole rest, or as many whole chunks as memory is granted for.
    ///
    /// Waits until memory for at least one chunk is granted. Waiting for memory for the whole rest could deadlock: a
    /// datanode whose memory is full grants more only once its earlier grants are used up.
    pub async fn next_slice(
        &self,
        packet: &PacketHeader,
        at: u64,
        checksum: ChecksumSpec,
    ) -> Result<PacketHeader, WriterError> {
        let chunk = u64::from(checksum.bytes_per_chunk);
        let end = packet.end();
        let (least, most) = match packet.offset.is_multiple_of(chunk) {
            true => (end.min(at + chunk), end.min(at + (SLICE_BYTES_MAX / chunk).max(1) * chunk)),
            // A packet that starts within a chunk has one CRC for all its data, so it cannot be divided.
            false => (end, end),
        };
        let room = self.wait_granted(at, least, most).await?;
        let to = if room == end { end } else { room / chunk * chunk };
        if to - at > SLICE_BYTES_MAX {
            return Err(self.unexpected());
        }
        let is_end = to == end;
        Ok(PacketHeader {
            offset: at,
            seqno: packet.seqno,
            last: packet.last && is_end,
            data_bytes: (to - at) as u32,
            sync: packet.sync && is_end,
        })
    }

    /// Waits until memory is granted without a gap for the bytes of the block from `from` to `least`. Returns the end
    /// of the granted range, at most `most`.
    async fn wait_granted(&self, from: u64, least: u64, most: u64) -> Result<u64, WriterError> {
        self.wait_for("waiting for memory to write to", |state| {
            let end = state.granted_from(from, most);
            (end >= least).then_some(end)
        })
        .await
    }

    /// Waits for CRC memory for a slice with `checksum_bytes` bytes of CRCs. Only one slot can be reserved at a time;
    /// `send` ends the reservation.
    pub async fn reserve_checksums(&self, checksum_bytes: u64) -> Result<ChecksumSlot, WriterError> {
        let memory = self.checksums;
        if checksum_bytes > memory.length {
            return Err(self.unexpected());
        }
        let at = self
            .wait_for("waiting for CRC memory of a slice", |state| state.take_checksums(checksum_bytes, memory.length))
            .await?;
        let Some(checksums) = memory.part(at, checksum_bytes) else { return Err(self.unexpected()) };
        Ok(ChecksumSlot { checksums, checksums_at: at })
    }

    /// Returns the transfers that move the bytes of `region` from `at` on to bytes `from..end` of the block, across one
    /// or several grants. Returns `None` if part of the range is not granted.
    pub fn transfers(&self, region: &Arc<dyn Region>, at: u64, from: u64, end: u64) -> Option<Vec<Transfer>> {
        let state = self.state.lock();
        let (mut transfers, mut next) = (Vec::new(), from);
        while next < end {
            let grant = state.grant_at(next)?;
            let within = next - grant.offset;
            let length = (grant.data.length - within).min(end - next);
            let remote = grant.data.part(within, length)?;
            transfers.push(Transfer { local: region.clone(), offset: at + (next - from), remote });
            next += length;
        }
        Some(transfers)
    }

    /// Posts the writes and then the slice message, in the order of the calls.
    ///
    /// `is_whole`: the slice's acknowledgement is that of a packet; false for all parts of a packet but the last.
    /// `is_to_end`: returns only when the local memory is free again.
    pub async fn send(
        &self,
        transfers: Vec<Transfer>,
        header: PacketHeader,
        turn: ChecksumSlot,
        is_whole: bool,
        is_to_end: bool,
    ) -> Result<(), WriterError> {
        let slice = Slice { header, checksums_at: turn.checksums_at, checksum_bytes: turn.checksums.length as u32 };
        let message = WriteMessage::Slice(slice).encode().map_err(|_| self.unexpected())?;
        let mut posted = self.posted.lock().await;
        while posted.len() >= POSTED_MAX {
            if let Some(oldest) = posted.pop_front() {
                oldest.await?;
            }
        }
        {
            let mut state = self.state.lock();
            let checksum_bytes = std::mem::take(&mut state.reserved);
            state.in_flight.push_back(InFlightSlice { checksum_bytes, is_whole });
        }
        let mut writing = self.connection.write(transfers, Some(message), self.waits.read);
        *self.sent_at.lock() = Instant::now();
        if is_to_end {
            return Ok(writing.await?);
        }
        // Polls once, so that the slice is posted before the next one. The rest is awaited when the queue of posted
        // writes is full.
        match std::future::poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await {
            Poll::Ready(done) => Ok(done?),
            Poll::Pending => {
                posted.push_back(writing);
                Ok(())
            }
        }
    }

    /// Receives the next acknowledgement. Only one task may call it at a time.
    ///
    /// Errors: `Connection(NoMessage)` after the read timeout.
    pub async fn next_ack(&self) -> Result<Acknowledged, WriterError> {
        let message = self.connection.receive(self.waits.read).await?;
        let Ok(WriteMessage::Acknowledged { seqno, replies, grant }) = WriteMessage::decode(&message) else {
            return Err(self.unexpected());
        };
        let is_whole = {
            let mut state = self.state.lock();
            if let Some(grant) = grant
                && !state.add(grant)
            {
                return Err(self.unexpected());
            }
            // Some acknowledgements belong to no slice: a datanode further down has failed.
            match if seqno == UNKNOWN_SEQNO { None } else { state.in_flight.pop_front() } {
                Some(over) => {
                    state.checksums_used -= over.checksum_bytes;
                    over.is_whole
                }
                None => true,
            }
        };
        self.changed.notify_waiters();
        let granted = grant.map(|grant| grant.offset + grant.data.length);
        Ok(Acknowledged { seqno, replies, granted, is_whole })
    }

    /// Records that the acknowledgement of the block's end has arrived.
    pub fn mark_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Returns true if no data of the block is in flight any more.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub fn unexpected(&self) -> WriterError {
        WriterError::Unexpected { peer: self.connection.peer() }
    }

    /// Waits for acknowledgements until `ready` returns a value. No slot may be reserved during the wait.
    async fn wait_for<T>(
        &self,
        action: &'static str,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, WriterError> {
        let (waits, peer) = (self.waits, self.connection.peer());
        let (all, silence) = (sleep(waits.write), sleep(waits.read));
        // Counts from the last message sent, even if that was before this wait, because the receiver counts the same
        // way.
        let due = || *self.sent_at.lock() + waits.heartbeat;
        let heartbeat = sleep_until(due());
        tokio::pin!(all, silence, heartbeat);
        loop {
            let changed = self.changed.notified();
            if let Some(found) = ready(&mut self.state.lock()) {
                return Ok(found);
            }
            tokio::select! {
                () = changed => silence.set(sleep(waits.read)),
                () = &mut heartbeat => {
                    self.send_heartbeat().await?;
                    heartbeat.set(sleep_until(due()));
                }
                () = self.connection.closed() => {
                    return Err(Error::Closed { peer, why: format!("while {action}") }.into());
                }
                () = &mut silence => return Err(Error::TimedOut { peer, action, after: waits.read }.into()),
                () = &mut all => return Err(WriterError::NotGranted { peer, action, after: waits.write }),
            }
        }
    }

    /// Sends a heartbeat. It needs no CRC memory, and may exceed the limit of slices in flight because heartbeats are
    /// rare. It is not a whole packet, so only [`Self::next_ack`] handles its acknowledgement.
    async fn send_heartbeat(&self) -> Result<(), WriterError> {
        let header = PacketHeader { offset: 0, seqno: HEARTBEAT_SEQNO, last: false, data_bytes: 0, sync: false };
        let turn = ChecksumSlot { checksums: RemoteSlice { length: 0, ..self.checksums }, checksums_at: 0 };
        self.send(Vec::new(), header, turn, false, false).await
    }
}

/// Returns the byte range of the CRCs of `part` within the CRCs of `packet`, which contains it. A packet that begins
/// within a chunk has a single part.
pub fn checksums_of(part: &PacketHeader, packet: &PacketHeader, checksum: ChecksumSpec) -> Range<u64> {
    let from = checksum.checksum_bytes(part.offset - packet.offset);
    from..from + checksum.checksum_bytes(u64::from(part.data_bytes))
}

impl State {
    fn grant_at(&self, byte: u64) -> Option<&Grant> {
        let holds = |grant: &&Grant| (grant.offset..grant.offset + grant.data.length).contains(&byte);
        self.grants.iter().rev().find(holds)
    }

    /// Returns the end of the memory that is granted without a gap from `from` on, at most `most`. Drops grants that
    /// end before `from`.
    fn granted_from(&mut self, from: u64, most: u64) -> u64 {
        self.grants.retain(|grant| grant.offset + grant.data.length > from);
        let mut end = from;
        while end < most
            && let Some(grant) = self.grant_at(end)
        {
            end = grant.offset + grant.data.length;
        }
        end.min(most)
    }

    /// Adds a grant. Returns false if the datanode sends too many unsolicited grants.
    fn add(&mut self, grant: Grant) -> bool {
        self.grants.push(grant);
        self.grants.len() <= GRANTS_MAX
    }

    fn take_checksums(&mut self, bytes: u64, memory_bytes: u64) -> Option<u64> {
        let from_start = self.checksums_at + bytes > memory_bytes;
        // The remnant at the end of the ring is skipped.
        let wanted = if from_start { memory_bytes - self.checksums_at + bytes } else { bytes };
        if self.in_flight.len() >= IN_FLIGHT_MAX || self.checksums_used + wanted > memory_bytes {
            if !self.in_flight.is_empty() {
                return None;
            }
            // Nothing is in use: start over at offset 0, where anything that fits at all has room.
            (self.checksums_at, self.checksums_used) = (0, 0);
            return self.take_checksums(bytes, memory_bytes);
        }
        let at = if from_start { 0 } else { self.checksums_at };
        self.checksums_at = at + bytes;
        self.checksums_used += wanted;
        self.reserved += wanted;
        Some(at)
    }
}

impl Drop for BlockWriter {
    fn drop(&mut self) {
        if self.has_ended() {
            self.pool.keep(self.datanode.clone(), self.connection.clone());
            return;
        }
        // Writes in flight still read our memory. Dropping the connection ends it; it keeps the memory alive until
        // then.
        let connection = self.connection.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { connection.close().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_fabric::sim::Sim;

    use super::connections::tests::{datanode, pair};
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Returns a packet, a writer with memory granted up to the packet's start, and the datanode's end of the
    /// connection.
    async fn waiting(write: Duration) -> (PacketHeader, BlockWriter, Arc<dyn Connection>) {
        let (connection, far) = pair(&Sim::new()).await;
        let first = grant(0, 1024);
        let writer = BlockWriter {
            connection,
            pool: Arc::default(),
            datanode: datanode(),
            waits: WriterTimeouts { read: LONG, write, heartbeat: Duration::from_millis(20) },
            first_granted: 1024,
            checksums: first.checksums,
            state: Mutex::new(State { grants: vec![first], ..State::default() }),
            changed: Notify::new(),
            sent_at: Mutex::new(Instant::now()),
            posted: tokio::sync::Mutex::default(),
            ended: AtomicBool::new(false),
        };
        (PacketHeader { offset: 1024, seqno: 7, last: false, data_bytes: 1024, sync: false }, writer, far)
    }

    /// Plays the datanode: expects exactly `heartbeats` heartbeats, acknowledges them, and grants `more` with the last
    /// acknowledgement.
    async fn acknowledge(far: &dyn Connection, heartbeats: usize, more: Option<Grant>) {
        for left in (0..heartbeats).rev() {
            let message = far.receive(LONG).await.unwrap();
            let Ok(WriteMessage::Slice(slice)) = WriteMessage::decode(&message) else { panic!("another message") };
            assert_eq!((slice.header.seqno, slice.header.data_bytes), (HEARTBEAT_SEQNO, 0));
            let (seqno, replies, grant) = (HEARTBEAT_SEQNO, vec![AckReply::SUCCESS], more.filter(|_| left == 0));
            let acknowledged = WriteMessage::Acknowledged { seqno, replies, grant };
            far.send(acknowledged.encode().unwrap(), LONG).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_writer_sends_heartbeats() {
        let (packet, writer, far) = waiting(LONG).await;
        let acknowledged = async {
            for _ in 0..3 {
                let ack = writer.next_ack().await.unwrap();
                assert!(!ack.is_whole && ack.seqno == HEARTBEAT_SEQNO);
            }
        };
        let part = writer.next_slice(&packet, 1024, ChecksumSpec::DEFAULT);
        let (part, (), ()) = tokio::join!(part, acknowledged, acknowledge(&*far, 3, Some(grant(1024, 1024))));
        assert_eq!(part.unwrap(), packet);
    }

    #[tokio::test(start_paused = true)]
    async fn acknowledgements_do_not_extend_wait_for_memory() {
        let (packet, writer, far) = waiting(Duration::from_millis(200)).await;
        let answers = async {
            let acknowledged = async { while writer.next_ack().await.is_ok() {} };
            tokio::join!(acknowledged, acknowledge(&*far, usize::MAX, None))
        };
        let waited = tokio::select! {
            part = writer.next_slice(&packet, 1024, ChecksumSpec::DEFAULT) => part,
            _ = answers => panic!("the answering end stopped early"),
        };
        assert!(matches!(waited, Err(WriterError::NotGranted { .. })), "{waited:?}");
    }

    fn grant(offset: u64, length: u64) -> Grant {
        let slice = |length| RemoteSlice { address: 1 << 20, length, key: 7 };
        Grant { offset, data: slice(length), checksums: slice(100) }
    }

    #[test]
    fn newest_of_overlapping_grants_counts() {
        let mut state = State::default();
        assert_eq!(state.granted_from(0, 10), 0);
        assert!(state.add(grant(0, 1000)) && state.add(grant(1000, 500)));
        assert_eq!(state.granted_from(10, 5000), 1500);
        assert_eq!(state.granted_from(10, 900), 900);
        // Adjacent grants: the next one begins within the last.
        assert!(state.add(grant(1490, 500)));
        assert_eq!(state.granted_from(1490, 5000), 1990);
        assert_eq!(state.grant_at(1495).map(|grant| grant.offset), Some(1490));
        assert_eq!(state.grants.len(), 2, "grants before the offset are dropped");
        assert_eq!(state.granted_from(3000, 5000), 3000);
    }

    #[test]
    fn part_gets_crcs_of_its_chunks() {
        let header = |offset, data_bytes| PacketHeader { offset, seqno: 1, last: false, data_bytes, sync: false };
        let of = |part, packet: PacketHeader| checksums_of(&part, &packet, ChecksumSpec::DEFAULT);
        let packet = header(1024, 1300);
        assert_eq!([of(packet, packet), of(header(1024, 512), packet)], [0..12, 0..4]);
        assert_eq!(of(header(1536, 788), packet), 4..12);
        // A packet that begins within a chunk has one CRC.
        assert_eq!(of(header(100, 412), header(100, 412)), 0..4);
    }

    #[test]
    fn crc_memory_is_used_as_a_ring() {
        let mut state = State::default();
        let turn = |state: &mut State, bytes| {
            let at = state.take_checksums(bytes, 100)?;
            let checksum_bytes = std::mem::take(&mut state.reserved);
            state.in_flight.push_back(InFlightSlice { checksum_bytes, is_whole: true });
            Some(at)
        };
        let acknowledged = |state: &mut State| {
            let over = state.in_flight.pop_front().unwrap();
            state.checksums_used -= over.checksum_bytes;
        };
        assert_eq!([turn(&mut state, 40), turn(&mut state, 0), turn(&mut state, 40)], [Some(0), Some(40), Some(40)]);
        assert_eq!(turn(&mut state, 30), None, "20 bytes are free at the end, none at the start");
        assert_eq!(turn(&mut state, 20), Some(80));
        assert_eq!(turn(&mut state, 1), None);
        acknowledged(&mut state);
        assert_eq!(turn(&mut state, 30), Some(0));
        assert_eq!(turn(&mut state, 11), None, "must not overlap the slice in flight");
        for _ in 0..3 {
            acknowledged(&mut state);
        }
        assert_eq!(turn(&mut state, 60), Some(30));
        // 10 bytes remain at the end; they are skipped.
        assert_eq!(turn(&mut state, 50), None);
        acknowledged(&mut state);
        assert_eq!(turn(&mut state, 25), Some(0));
        acknowledged(&mut state);
        acknowledged(&mut state);
        assert_eq!((state.in_flight.len(), state.checksums_used), (0, 0));
        assert_eq!(turn(&mut state, 100), Some(0), "all memory is available when nothing is in use");
        while turn(&mut state, 0).is_some() {}
        assert_eq!(state.in_flight.len(), IN_FLIGHT_MAX);
    }
}
