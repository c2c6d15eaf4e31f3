//! Receives the packets of a block: checks them, forwards them downstream unchanged, hands them to the store, and
//! acknowledges them.
//!
//! Without a downstream DataNode one loop does everything: it receives a batch of packets, stores it, and acknowledges
//! it in one write. With one, a second loop ([`PacketResponder::respond`]) reads the downstream acknowledgements,
//! prepends this DataNode's reply, and sends them upstream; both loops run in the same task. A batch is sent downstream
//! before it is stored, unless its data is already in place in the replica's memory.
//!
//! Where the replica's memory allows it, data is received straight to its place there ([`in_place`]). Where the store
//! may have to wait for a disk, a blocking thread stores the batch.
//!
//! Packets of a local writer may lack their data, because the writer has put it into the replica's memory. The store
//! checks it there; only then is it sent downstream, straight from that memory.

mod batch_store;
mod error;
mod in_place;
mod upstream;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hearth_blockstore::{Acker, CompletedWrite, Durability, ReplicaWriter};
use hearth_fabric::tcp::{Connection, ReceiveBuffer};
use hearth_types::{ChecksumSpec, ExtendedBlock};
use hearth_wire::data_transfer::{AckReply, Decoded, PacketHead, PacketHeader, PipelineAck, Status, UNKNOWN_SEQNO};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use self::batch_store::{BatchStore, Rejected, Stored};
pub use self::error::ReceiveError;
use self::in_place::InPlaceProgress;
use self::upstream::Upstream;
use crate::forward::{Forwarder, Mirror, PacketData};
use crate::grants::{Grants, IN_PLACE_BYTES_MAX};
use crate::metrics::Metrics;
use crate::session::Session;
use crate::throttle::Throttle;

/// Initial and maximum size of the receive buffer, which doubles while the sender keeps it full. A buffer larger than
/// the processor's cache would have every byte fetched from memory a second time for its CRC.
const BUFFER_BYTES: usize = 128 << 10;
const BUFFER_BYTES_MAX: usize = 512 << 10;

/// Maximum in-place data of a batch under a throttle: a larger batch would delay all other users of the throttle.
const THROTTLED_BYTES: u64 = 512 << 10;

/// Maximum number of packets that wait for an acknowledgement from downstream. A client has at most 80 in flight;
/// beyond this bound the receiving loop waits.
const PENDING_MAX: usize = 1024;

/// Time that the sender of corrupt data gets to read the error before the connection is closed. Hadoop's value.
const LINGER: Duration = Duration::from_secs(3);

/// Acknowledgements that the sender expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledge {
    /// The sender is a client: every packet is acknowledged.
    Packets,
    /// The sender is a DataNode that copies a replica: nothing is acknowledged.
    Nothing,
}

/// Receiver of one block.
pub struct Receiver<'a> {
    pub block: ExtendedBlock,
    pub upstream: &'a mut Session,
    pub writer: ReplicaWriter,
    pub mirror: Option<Mirror>,
    pub acknowledge: Acknowledge,
    /// Checksum type of the sender's CRCs. The replica's own may differ when it is appended to.
    pub checksum: ChecksumSpec,
    /// True in the last DataNode of a pipeline, which verifies the CRCs; the others only forward.
    pub verify: bool,
    /// Maximum silence of the sender.
    pub read_timeout: Duration,
    /// This DataNode's reply in acknowledgements of success.
    pub own_reply: AckReply,
    pub throttle: Option<&'a Throttle>,
    /// Metrics to update with each batch of packets if the sender is a client.
    pub client_metrics: Option<&'a Metrics>,
    /// Memory grants for a local writer.
    pub grants: Option<Grants>,
    /// Becomes true once this DataNode is about to restart; the sender is then notified out of band.
    pub restarting: watch::Receiver<bool>,
}

/// A block that was received completely and is not yet finalized.
pub struct Received {
    pub writer: ReplicaWriter,
    /// `Disk` if the last packet requested it.
    pub durability: Durability,
    pub last_ack: LastAck,
}

/// Acknowledgement of a block's last packet. Sent when the replica is finalized and reported.
pub struct LastAck {
    bytes: Vec<u8>,
    upstream: Arc<Connection>,
    write_timeout: Duration,
}

impl LastAck {
    pub async fn send(self) -> Result<(), ReceiveError> {
        Ok(self.upstream.write_all(&self.bytes, self.write_timeout).await?)
    }
}

/// Failure to receive the whole block. All replies to the sender have already been sent.
pub struct ReceiveFailure {
    pub error: ReceiveError,
    /// Writer of the data received so far, all of which is stored. Dropping it treats the replica as its state
    /// requires. `None` if the state of the data is unknown.
    pub writer: Option<ReplicaWriter>,
}

impl Receiver<'_> {
    /// Receives packets up to the last one.
    pub async fn run(self) -> Result<Received, Box<ReceiveFailure>> {
        let write_timeout = self.upstream.write_timeout;
        let upstream = Upstream::new(self.upstream.connection.clone(), write_timeout);
        self.upstream.buffer.grow_to(BUFFER_BYTES);
        let acker = self.writer.acker();
        let batch_store = BatchStore {
            block: self.block,
            checksum: self.checksum,
            verify: self.verify,
            translate: self.writer.checksum() != self.checksum,
        };
        let mut intake = ReceiveLoop {
            batch_store,
            upstream: self.upstream,
            writer: Some(self.writer),
            store_task: None,
            read_timeout: self.read_timeout,
            throttle: self.throttle,
            client_metrics: self.client_metrics,
            grants: self.grants,
            batch: Vec::new(),
            may_receive_in_place: false,
            in_place: InPlaceProgress::default(),
            disk_write: None,
        };
        let own = self.own_reply;
        let receiving = async {
            match (self.mirror, self.acknowledge) {
                (None, Acknowledge::Packets) => {
                    let mut acks = Acks::Direct { acker, own, bytes: Vec::new(), upstream: &upstream };
                    let last = intake.run(None, &mut acks).await;
                    last.map(|last| (last, ack(last.seqno, own, Vec::new(), 0).encode()))
                }
                (mirror, Acknowledge::Nothing) => {
                    let forward = mirror.as_ref().map(Forwarder::new);
                    intake.run(forward.as_ref(), &mut Acks::None).await.map(|last| (last, Vec::new()))
                }
                (Some(mirror), Acknowledge::Packets) => {
                    let forward = Forwarder::new(&mirror);
                    let pipeline = PacketResponder::new(intake.batch_store.block.clone());
                    let mut acks = Acks::Pipeline(&pipeline);
                    let respond = pipeline.respond(mirror, &forward, &upstream, &acker, own);
                    async { tokio::try_join!(intake.run(Some(&forward), &mut acks), respond) }.await
                }
            }
        };
        let telling = async {
            if self.acknowledge == Acknowledge::Packets {
                upstream.send_restart_oob(self.restarting).await;
            }
            std::future::pending().await
        };
        let received = tokio::select! {
            received = receiving => received,
            never = telling => never,
        };
        // After a broken pipeline a batch may still be on a blocking thread.
        let on_disk = async {
            intake.join_store_task().await?;
            intake.wait_for_disk_write().await
        };
        let on_disk = on_disk.await;
        let writer = intake.writer.take().filter(|_| on_disk.is_ok());
        match (received.and_then(|received| on_disk.map(|()| received)), writer) {
            (Ok((last, bytes)), Some(writer)) => {
                let durability = if last.sync { Durability::Disk } else { Durability::Memory };
                let upstream = upstream.connection().clone();
                Ok(Received { writer, durability, last_ack: LastAck { bytes, upstream, write_timeout } })
            }
            (Ok(_), None) => Err(Box::new(ReceiveFailure { error: ReceiveError::Interrupted, writer: None })),
            (Err(error), writer) => Err(Box::new(ReceiveFailure { error, writer })),
        }
    }
}

/// A packet that is stored here and not yet acknowledged.
#[derive(Clone, Copy, Debug)]
struct Pending {
    seqno: i64,
    /// Length of the block up to and including this packet.
    end: u64,
    last: bool,
    sync: bool,
    received: Instant,
    /// Memory grant to send to a local writer with the acknowledgement.
    granted: Option<u64>,
}

/// Destination of acknowledgements.
enum Acks<'a> {
    None,
    Direct {
        acker: Acker,
        own: AckReply,
        bytes: Vec<u8>,
        upstream: &'a Upstream,
    },
    /// Acknowledge only after the downstream DataNode has.
    Pipeline(&'a PacketResponder),
}

/// State of the receiving loop.
struct ReceiveLoop<'a> {
    batch_store: BatchStore,
    upstream: &'a mut Session,
    /// `None` only while a blocking thread syncs or stores.
    writer: Option<ReplicaWriter>,
    /// The batch that a blocking thread stores, with the writer and the receive buffer.
    store_task: Option<JoinHandle<StoreTaskResult>>,
    read_timeout: Duration,
    throttle: Option<&'a Throttle>,
    client_metrics: Option<&'a Metrics>,
    grants: Option<Grants>,
    /// The whole packets at the front of the buffer, with their positions in it.
    batch: Vec<Packet>,
    /// Data may be received straight to its place in the replica's memory.
    may_receive_in_place: bool,
    in_place: InPlaceProgress,
    /// For a copy that goes straight to disk: the piece that is being written while the next one is received.
    disk_write: Option<JoinHandle<CompletedWrite>>,
}

/// Result of a blocking thread that has stored a batch.
struct StoreTaskResult {
    writer: ReplicaWriter,
    buffer: ReceiveBuffer,
    batch: Vec<Packet>,
    stored: Stored,
}

/// A whole packet in the receive buffer.
struct Packet {
    header: PacketHeader,
    /// Positions of its CRCs and its data in the buffer.
    checksums: Range<usize>,
    data: Range<usize>,
    /// Its sender has put the data into the replica's memory.
    in_place: bool,
    /// This DataNode has received the data straight into the replica's memory.
    received_in_place: bool,
}

impl Packet {
    /// Returns the packet's entry in the queue of unacknowledged packets.
    fn pending(&self, received: Instant) -> Pending {
        let PacketHeader { seqno, last, sync, .. } = self.header;
        Pending { seqno, end: self.header.end(), last, sync, received, granted: None }
    }
}

impl ReceiveLoop<'_> {
    async fn run(&mut self, forward: Option<&Forwarder>, acks: &mut Acks<'_>) -> Result<Pending, ReceiveError> {
        // Data for one-sided writes into the next DataNode's memory is copied, while it is in the cache.
        let may_land = forward.is_none_or(Forwarder::accepts_in_place);
        self.may_receive_in_place =
            may_land && self.grants.is_none() && self.throttle.is_none() && !self.batch_store.translate;
        loop {
            let bytes = self.next_batch().await?;
            let received = Instant::now();
            if let Some(metrics) = self.client_metrics {
                metrics.note_client_activity();
            }
            if let Some(throttle) = self.throttle {
                let in_place = self.batch.iter().filter(|packet| packet.in_place);
                let in_place: u64 = in_place.map(|packet| u64::from(packet.header.data_bytes)).sum();
                throttle.pass(bytes as u64 + in_place).await;
            }
            // Data that is or will be in place here is forwarded one packet at a time.
            let landed = self.batch.iter().any(|packet| packet.received_in_place);
            let singly = forward.filter(|forward| landed || self.grants.is_some() || !forward.accepts_batches());
            if let (Some(forward), None) = (forward, singly) {
                forward.send(&self.upstream.buffer.available()[..bytes]).await;
            }
            if self.disk_write.is_some() && self.writer.as_ref().is_some_and(|writer| writer.makes_piece_due(bytes)) {
                self.wait_for_disk_write().await?;
            }
            let Stored { packets: stored, rejected } = self.store().await?;
            self.start_disk_write().await?;
            if let Some(forward) = singly {
                self.pass_on(forward, stored, received, acks).await?;
            }
            let granted = self.extend_grant()?;
            let final_packet = self.batch[..stored].last().map(|packet| packet.header);
            if let Some(header) = final_packet
                && header.sync
                && !header.last
            {
                self.sync().await?;
            }
            // All but the last packet were queued while they were forwarded.
            let queued = if singly.is_some() { stored.saturating_sub(1) } else { 0 };
            let pending = self.batch[..stored].iter().enumerate().skip(queued).map(|(index, packet)| {
                let granted = granted.filter(|_| index + 1 == stored);
                Pending { granted, ..packet.pending(received) }
            });
            acknowledge(acks, pending).await?;
            match rejected {
                None => {}
                Some(Rejected::Failed(error)) => return Err(error),
                Some(Rejected::Corrupt { seqno, offset, source }) => {
                    self.send_checksum_error(acks, seqno).await;
                    let peer = self.upstream.connection.peer();
                    return Err(ReceiveError::Checksum { block: self.batch_store.block.clone(), peer, offset, source });
                }
            }
            self.upstream.buffer.consume(bytes);
            if let Some(header) = final_packet
                && header.last
            {
                let (seqno, end, sync) = (header.seqno, header.end(), header.sync);
                return Ok(Pending { seqno, end, last: true, sync, received, granted: None });
            }
        }
    }

    /// Receives until at least one whole packet is at the front of the buffer, and lists all whole packets there. A
    /// batch ends after a packet that requests a sync to disk, and after the last packet; under a throttle it is short.
    /// Returns its bytes.
    async fn next_batch(&mut self) -> Result<usize, ReceiveError> {
        loop {
            self.batch.clear();
            let buffer = &mut self.upstream.buffer;
            let (mut at, mut in_place) = (0, 0);
            let available = buffer.available();
            let missing = loop {
                let rest = &available[at..];
                let head = match self.grants {
                    None => PacketHead::decode(rest),
                    Some(_) => PacketHead::decode_local(rest, self.batch_store.checksum),
                };
                let head = head.map_err(|source| ReceiveError::Packet {
                    block: self.batch_store.block.clone(),
                    peer: self.upstream.connection.peer(),
                    source,
                })?;
                let (head, head_bytes) = match head {
                    Decoded::Needs(missing) => break missing,
                    Decoded::Complete(head, bytes) => (head, bytes),
                };
                let (lead, total) = (head_bytes + head.checksum_bytes, head_bytes + head.body_bytes());
                if self.may_receive_in_place && rest.len() < lead {
                    // The data may be received in place.
                    break lead - rest.len();
                }
                if rest.len() < total {
                    break total - rest.len();
                }
                let data = at + head_bytes + head.checksum_bytes;
                self.batch.push(Packet {
                    header: head.header,
                    checksums: at + head_bytes..data,
                    data: data..data + head.data_bytes,
                    in_place: head.is_in_place(),
                    received_in_place: false,
                });
                at += total;
                in_place += if head.is_in_place() { u64::from(head.header.data_bytes) } else { 0 };
                let is_enough = self.throttle.is_some() && in_place >= THROTTLED_BYTES;
                if head.header.last || head.header.sync || is_enough {
                    return Ok(at);
                }
            };
            if at > 0 {
                if buffer.is_full() {
                    // The buffer filled up between two reads: receive more per call.
                    buffer.grow_to((buffer.capacity() * 2).min(BUFFER_BYTES_MAX));
                }
                return Ok(at);
            }
            if self.may_receive_in_place
                && let Some(bytes) = self.receive_in_place().await?
            {
                return Ok(bytes);
            }
            self.fill(missing).await?;
        }
    }

    /// Checks the batch and hands it to the store, on a blocking thread if that may wait for a disk.
    ///
    /// Never waits on a runtime thread, even while disks are fast: a stalled runtime thread may have been the only one
    /// that polled the sockets, and no other thread would take over.
    async fn store(&mut self) -> Result<Stored, ReceiveError> {
        let Some(writer) = self.writer.as_mut() else { return Err(ReceiveError::Interrupted) };
        let bytes = self.batch.iter().map(|packet| packet.data.len() as u64).sum();
        if bytes == 0 || !writer.write_may_wait(bytes) {
            return Ok(self.batch_store.store(writer, self.upstream.buffer.available(), &self.batch));
        }
        let (batch_store, batch) = (self.batch_store.clone(), std::mem::take(&mut self.batch));
        let buffer = self.upstream.buffer.take();
        let mut writer = self.writer.take().ok_or(ReceiveError::Interrupted)?;
        self.store_task = Some(tokio::task::spawn_blocking(move || {
            let stored = batch_store.store(&mut writer, buffer.available(), &batch);
            StoreTaskResult { writer, buffer, batch, stored }
        }));
        self.join_store_task().await?.ok_or(ReceiveError::Interrupted)
    }

    /// Waits for the blocking thread that stores a batch, if any, and takes back the writer, buffer and batch. `None`:
    /// no batch was being stored.
    async fn join_store_task(&mut self) -> Result<Option<Stored>, ReceiveError> {
        let Some(running) = &mut self.store_task else { return Ok(None) };
        let came = running.await;
        self.store_task = None;
        let StoreTaskResult { writer, buffer, batch, stored } = came.map_err(|_| ReceiveError::Interrupted)?;
        self.writer = Some(writer);
        self.upstream.buffer = buffer;
        self.batch = batch;
        Ok(Some(stored))
    }

    /// Sends the first `stored` packets of the batch downstream; in-place data is sent from the replica. Each packet
    /// but the last is queued for its acknowledgement right after it is sent, because the next DataNode may have memory
    /// for the following packet only when this one is processed.
    async fn pass_on(
        &self,
        forward: &Forwarder,
        stored: usize,
        received: Instant,
        acks: &Acks<'_>,
    ) -> Result<(), ReceiveError> {
        let available = self.upstream.buffer.available();
        let (mut reader, mut computed) = (None, Vec::new());
        for (index, packet) in self.batch[..stored].iter().enumerate() {
            let (header, mut crcs) = (&packet.header, &available[packet.checksums.clone()]);
            if crcs.is_empty() && self.may_get_crcs(header) {
                if !header.fits(self.batch_store.checksum.checksum_bytes(u64::from(header.data_bytes)) as usize) {
                    return Err(ReceiveError::TooLongToForward);
                }
                // Where data may already be in place, a packet without CRCs is ambiguous: its data could be taken for
                // CRCs.
                computed.clear();
                self.batch_store.checksum.compute(&available[packet.data.clone()], &mut computed);
                crcs = &computed;
            }
            let data = if packet.in_place || packet.received_in_place {
                if reader.is_none() {
                    let writer = self.writer.as_ref().ok_or(ReceiveError::Interrupted)?;
                    reader = Some(Arc::new(writer.reader()?));
                }
                let Some(reader) = &reader else { return Err(ReceiveError::Interrupted) };
                PacketData::Replica(reader)
            } else {
                PacketData::Bytes(&available[packet.data.clone()])
            };
            let sent = forward.send_packet(header, crcs, data).await;
            sent.map_err(|source| ReceiveError::PassOn { block: self.batch_store.block.clone(), source })?;
            if index + 1 < stored
                && let Acks::Pipeline(pipeline) = acks
            {
                pipeline.push(packet.pending(received)).await;
            }
        }
        Ok(())
    }

    /// Returns true if CRCs of the packet's data alone suffice (it begins with a chunk, or lies within one) and fit.
    fn may_get_crcs(&self, header: &PacketHeader) -> bool {
        let chunk = u64::from(self.batch_store.checksum.bytes_per_chunk.max(1));
        (header.offset.is_multiple_of(chunk) || header.end() <= header.offset.next_multiple_of(chunk))
            && header.data_bytes as usize <= IN_PLACE_BYTES_MAX
    }

    /// Returns the new memory grant to send to the local writer, if there is one.
    fn extend_grant(&mut self) -> Result<Option<u64>, ReceiveError> {
        match (&mut self.grants, &mut self.writer) {
            (Some(grants), Some(writer)) if writer.granted() > 0 => Ok(grants.extend(writer)?),
            _ => Ok(None),
        }
    }

    /// Starts writing the data that is ready for the disk, on a blocking thread.
    async fn start_disk_write(&mut self) -> Result<(), ReceiveError> {
        let Some(piece) = self.writer.as_mut().and_then(ReplicaWriter::take_pending_write) else { return Ok(()) };
        self.wait_for_disk_write().await?;
        self.disk_write = Some(tokio::task::spawn_blocking(move || piece.write()));
        Ok(())
    }

    /// Waits until no data of this copy is being written to disk.
    async fn wait_for_disk_write(&mut self) -> Result<(), ReceiveError> {
        let Some(running) = &mut self.disk_write else { return Ok(()) };
        let written = running.await;
        self.disk_write = None;
        let written = written.map_err(|_| ReceiveError::Interrupted)?;
        let writer = self.writer.as_mut().ok_or(ReceiveError::Interrupted)?;
        Ok(writer.complete_write(written)?)
    }

    /// Performs hsync: waits for the disk on a blocking thread.
    async fn sync(&mut self) -> Result<(), ReceiveError> {
        self.wait_for_disk_write().await?;
        let mut writer = self.writer.take().ok_or(ReceiveError::Interrupted)?;
        let (writer, synced) = tokio::task::spawn_blocking(move || {
            let synced = writer.sync();
            (writer, synced)
        })
        .await
        .map_err(|_| ReceiveError::Interrupted)?;
        self.writer = Some(writer);
        Ok(synced?)
    }

    /// Reports a corrupt packet and gives the sender time to read the report: closing with unread bytes would reset the
    /// connection and could destroy the answer.
    async fn send_checksum_error(&mut self, acks: &Acks<'_>, seqno: i64) {
        if !matches!(acks, Acks::Direct { .. }) {
            return;
        }
        let connection = self.upstream.connection.clone();
        let answer = PipelineAck::last(seqno, Status::ErrorChecksum);
        if connection.write_all(&answer.encode(), self.upstream.write_timeout).await.is_err() {
            return;
        }
        let drain = async {
            let mut sink = vec![0; 64 << 10];
            while matches!(connection.read(&mut sink, LINGER).await, Ok(1..)) {}
        };
        // The connection is closed now, whether the sender closed it or the time is up.
        let _ = tokio::time::timeout(LINGER, drain).await;
    }
}

/// Acknowledges packets that are stored here, or queues them until they are acknowledged downstream too. The caller
/// acknowledges the last packet of a block.
async fn acknowledge(acks: &mut Acks<'_>, packets: impl Iterator<Item = Pending>) -> Result<(), ReceiveError> {
    match acks {
        Acks::None => Ok(()),
        Acks::Pipeline(pipeline) => {
            // Collected first, so that nothing is borrowed while this waits for space.
            let packets: Vec<Pending> = packets.collect();
            for pending in packets {
                pipeline.push(pending).await;
            }
            Ok(())
        }
        Acks::Direct { acker, own, bytes, upstream } => {
            bytes.clear();
            let mut end = 0;
            for pending in packets.filter(|pending| !pending.last) {
                end = end.max(pending.end);
                let ack = PipelineAck { granted: pending.granted, ..ack(pending.seqno, *own, Vec::new(), 0) };
                bytes.extend_from_slice(&ack.encode());
            }
            if bytes.is_empty() {
                return Ok(());
            }
            if end > 0 {
                acker.set(end)?;
            }
            upstream.send(bytes).await
        }
    }
}

/// Queue of packets that are stored here and await their acknowledgement from downstream.
struct PacketResponder {
    block: ExtendedBlock,
    pending: Mutex<VecDeque<Pending>>,
    added: Notify,
    taken: Notify,
}

impl PacketResponder {
    fn new(block: ExtendedBlock) -> Self {
        Self { block, pending: Mutex::new(VecDeque::new()), added: Notify::new(), taken: Notify::new() }
    }

    async fn push(&self, packet: Pending) {
        loop {
            {
                let mut pending = self.pending.lock();
                if pending.len() < PENDING_MAX {
                    pending.push_back(packet);
                    break;
                }
            }
            self.taken.notified().await;
        }
        self.added.notify_one();
    }

    async fn next(&self) -> Pending {
        loop {
            let next = self.pending.lock().pop_front();
            if let Some(packet) = next {
                self.taken.notify_one();
                return packet;
            }
            self.added.notified().await;
        }
    }

    fn has_pending(&self) -> bool {
        !self.pending.lock().is_empty()
    }

    /// Sends acknowledgements upstream in packet order. Returns the last packet's acknowledgement without sending it.
    async fn respond(
        &self,
        mut mirror: Mirror,
        forward: &Forwarder,
        upstream: &Upstream,
        acker: &Acker,
        own: AckReply,
    ) -> Result<Vec<u8>, ReceiveError> {
        let mut out = Vec::new();
        loop {
            let Some(ack) = self.downstream_ack(&mut mirror, forward).await? else {
                return self.respond_without_mirror(upstream, own).await;
            };
            if ack.seqno == UNKNOWN_SEQNO {
                // Out of band: a DataNode further downstream restarts, or has lost its own mirror.
                let nanos = ack.downstream_nanos;
                upstream.send(&ack.forwarded(own, nanos).encode()).await?;
                continue;
            }
            let packet = self.next().await;
            if packet.seqno != ack.seqno {
                return Err(ReceiveError::AckOutOfOrder {
                    block: self.block.clone(),
                    expected: packet.seqno,
                    actual: ack.seqno,
                });
            }
            if ack.replies.first().is_some_and(|reply| reply.status() == Status::ErrorChecksum) {
                // The forwarded data was corrupt on arrival, so this DataNode is at fault: close without a reply.
                return Err(ReceiveError::CorruptForDownstream { block: self.block.clone() });
            }
            if packet.end > 0 && ack.is_success() {
                acker.set(packet.end)?;
            }
            let nanos = packet.received.elapsed().as_nanos() as u64;
            let ack = PipelineAck { granted: packet.granted, ..ack.forwarded(own, nanos) };
            out.extend_from_slice(&ack.encode());
            if packet.last {
                if ack.is_success() {
                    mirror.ended();
                }
                return Ok(out);
            }
            // Acknowledgements that were received together are sent together.
            if !(self.has_pending() && mirror.has_ack()) {
                upstream.send(&out).await?;
                out.clear();
            }
        }
    }

    /// Returns the next acknowledgement from downstream; `None` when that DataNode is lost.
    async fn downstream_ack(
        &self,
        mirror: &mut Mirror,
        forward: &Forwarder,
    ) -> Result<Option<PipelineAck>, ReceiveError> {
        if forward.is_broken() {
            return Ok(None);
        }
        tokio::select! {
            biased;
            ack = mirror.next_ack() => match ack {
                Ok(ack) => Ok(Some(ack)),
                Err(error) => {
                    if forward.idle() > mirror.read_timeout() {
                        // The next DataNode may have timed out because this one sent nothing: the fault lies upstream.
                        return Err(error.into());
                    }
                    forward.note_broken(&error);
                    Ok(None)
                }
            },
            () = forward.broke.notified() => Ok(None),
        }
    }

    /// Handles the loss of the downstream DataNode: reports it at once, and again for each packet that still arrives.
    async fn respond_without_mirror(&self, upstream: &Upstream, own: AckReply) -> Result<Vec<u8>, ReceiveError> {
        let lost = |seqno| ack(seqno, own, vec![AckReply(Status::Error as u32)], 0).encode();
        let mut out = lost(UNKNOWN_SEQNO);
        loop {
            upstream.send(&out).await?;
            let packet = self.next().await;
            out = lost(packet.seqno);
            if packet.last {
                return Ok(out);
            }
        }
    }
}

/// Builds an acknowledgement with this DataNode's reply in front of the downstream replies.
fn ack(seqno: i64, own: AckReply, downstream: Vec<AckReply>, downstream_nanos: u64) -> PipelineAck {
    let mut replies = downstream;
    replies.insert(0, own);
    PipelineAck { seqno, replies, downstream_nanos, granted: None }
}
