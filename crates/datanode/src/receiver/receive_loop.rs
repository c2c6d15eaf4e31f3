//! The receiving loop: receives batches of packets, forwards them, hands them to the store, and has them acknowledged.

use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::CompletedWrite;
use hearth_wire::data_transfer::{Decoded, PacketHead, PacketHeader, PipelineAck, Status};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::acks::{Acks, acknowledge};
use super::batch_store::{BatchStore, Rejected, Stored};
use super::error::ReceiveError;
use super::in_place::InPlaceProgress;
use super::packet::{Packet, Pending};
use super::writer_state::{StoreTaskResult, WriterState};
use crate::forward::{Forwarder, PacketData};
use crate::grants::{Grants, IN_PLACE_BYTES_MAX};
use crate::metrics::Metrics;
use crate::session::Session;
use crate::throttle::Throttle;

/// Maximum size of the receive buffer, which doubles while the sender keeps it full. A buffer larger than the
/// processor's cache would have every byte fetched from memory a second time for its CRC.
const BUFFER_BYTES_MAX: usize = 512 << 10;

/// Maximum in-place data of a batch under a throttle: a larger batch would delay all other users of the throttle.
const THROTTLED_BYTES: u64 = 512 << 10;

/// Time that the sender of corrupt data gets to read the error before the connection is closed. Hadoop's value.
const LINGER: Duration = Duration::from_secs(3);

/// State of the receiving loop.
pub struct ReceiveLoop<'a> {
    pub batch_store: BatchStore,
    pub upstream: &'a mut Session,
    pub writer: WriterState,
    pub read_timeout: Duration,
    pub throttle: Option<&'a Throttle>,
    pub client_metrics: Option<&'a Metrics>,
    pub grants: Option<Grants>,
    /// The whole packets at the front of the buffer, with their positions in it.
    pub batch: Vec<Packet>,
    /// Data may be received straight to its place in the replica's memory.
    pub may_receive_in_place: bool,
    pub in_place: InPlaceProgress,
    /// For a copy that goes straight to disk: the piece that is being written while the next one is received.
    pub disk_write: Option<JoinHandle<CompletedWrite>>,
}

impl ReceiveLoop<'_> {
    pub async fn run(&mut self, forward: Option<&Forwarder>, acks: &mut Acks<'_>) -> Result<Pending, ReceiveError> {
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
            if self.disk_write.is_some() && self.writer.here().is_ok_and(|writer| writer.makes_piece_due(bytes)) {
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
        let writer = self.writer.here_mut()?;
        let bytes = self.batch.iter().map(|packet| packet.data.len() as u64).sum();
        if bytes == 0 || !writer.write_may_wait(bytes) {
            return Ok(self.batch_store.store(writer, self.upstream.buffer.available(), &self.batch));
        }
        let (batch_store, batch) = (self.batch_store.clone(), std::mem::take(&mut self.batch));
        let buffer = self.upstream.buffer.take();
        let mut writer = self.writer.take()?;
        self.writer = WriterState::Storing(tokio::task::spawn_blocking(move || {
            let stored = batch_store.store(&mut writer, buffer.available(), &batch);
            StoreTaskResult { writer, buffer, batch, stored }
        }));
        self.join_store_task().await?.ok_or(ReceiveError::Interrupted)
    }

    /// Waits for the blocking thread that stores a batch, if any, and takes back the writer, buffer and batch. `None`:
    /// no batch was being stored.
    pub async fn join_store_task(&mut self) -> Result<Option<Stored>, ReceiveError> {
        let WriterState::Storing(running) = &mut self.writer else { return Ok(None) };
        let came = running.await;
        self.writer = WriterState::Away;
        let StoreTaskResult { writer, buffer, batch, stored } = came.map_err(|_| ReceiveError::Interrupted)?;
        self.writer = WriterState::Here(writer);
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
                    reader = Some(Arc::new(self.writer.here()?.reader()?));
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
            (Some(grants), WriterState::Here(writer)) if writer.granted() > 0 => Ok(grants.extend(writer)?),
            _ => Ok(None),
        }
    }

    /// Starts writing the data that is ready for the disk, on a blocking thread.
    async fn start_disk_write(&mut self) -> Result<(), ReceiveError> {
        let Some(piece) = self.writer.here_mut()?.take_pending_write() else { return Ok(()) };
        self.wait_for_disk_write().await?;
        self.disk_write = Some(tokio::task::spawn_blocking(move || piece.write()));
        Ok(())
    }

    /// Waits until no data of this copy is being written to disk.
    pub async fn wait_for_disk_write(&mut self) -> Result<(), ReceiveError> {
        let Some(running) = &mut self.disk_write else { return Ok(()) };
        let written = running.await;
        self.disk_write = None;
        let written = written.map_err(|_| ReceiveError::Interrupted)?;
        Ok(self.writer.here_mut()?.complete_write(written)?)
    }

    /// Performs hsync: waits for the disk on a blocking thread.
    async fn sync(&mut self) -> Result<(), ReceiveError> {
        self.wait_for_disk_write().await?;
        let mut writer = self.writer.take()?;
        let (writer, synced) = tokio::task::spawn_blocking(move || {
            let synced = writer.sync();
            (writer, synced)
        })
        .await
        .map_err(|_| ReceiveError::Interrupted)?;
        self.writer = WriterState::Here(writer);
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
