//! Forwards to the next DataNode by writing into its memory, as a client writes into this DataNode's: straight from the
//! replica's own memory, which is registered for that one grant at a time.
//!
//! Data that is not in the replica's memory (it is full, and packets bring the data) is copied to a buffer first. A
//! packet is sent as one slice, or as several where the next DataNode has granted less than the packet needs; its
//! acknowledgement is that of the last slice.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearth_blockstore::{DataSource, ReplicaReader};
use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Limits, Region, Transfer, Transport};
use hearth_protocol::one_sided_write::{
    self, BlockWriter, CHECKSUM_BYTES_MAX, OpenOutcome, SLICE_BYTES_MAX, WriteBuffers, WriterConnectionPool,
    WriterError, checksums_of,
};
use hearth_types::ChecksumSpec;
use hearth_wire::data_transfer::{HEARTBEAT_SEQNO, PacketHeader, PipelineAck, Status, UNKNOWN_SEQNO, WriteBlock};
use hearth_wire::offer::Offer;
use hearth_wire::rdma_control::{PURPOSE_WRITING, VERSION, decode_acceptance};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::failures::{COPY_CONNECT_TIMEOUT, RecentFailures};
use super::{ForwardError, MirrorCloser, NextDatanode, PacketData, SetupAnswer, read};
use crate::downstream;
use crate::metrics::Metrics;

/// A window of slices is in flight.
const LIMITS: Limits = Limits { reads_in_flight: 1, operations: 64, messages: 64 };

/// Maximum number of idle buffers of each kind that are kept.
const IDLE_BUFFERS_MAX: usize = 16;

/// Time for which blocks take another path after memory could not be registered. A block whose memory cannot be
/// registered halfway loses this DataNode from its pipeline.
const MEMORY_BACKOFF: Duration = Duration::from_secs(30);

/// State shared by all blocks that are forwarded one-sidedly.
pub struct OneSidedForwarding {
    transport: Arc<dyn Transport>,
    /// Domain without memory that is registered for remote access.
    domain: Arc<dyn Domain>,
    connections: Arc<WriterConnectionPool>,
    failures: RecentFailures,
    /// Runtime of the connections, regardless of the task that opened them.
    runtime: Handle,
    /// Time of the last failure to register memory.
    memory_failed_at: Mutex<Option<Instant>>,
    /// Buffers for CRCs, as large as the next DataNode's memory for them.
    checksums: Arc<WriteBuffers>,
    /// Buffers for data that is not in a replica's memory.
    copy_buffers: Arc<WriteBuffers>,
}

impl OneSidedForwarding {
    pub fn new(transport: &Arc<dyn Transport>) -> Result<Arc<Self>, Error> {
        let domain = transport.domain()?;
        Ok(Arc::new(Self {
            transport: transport.clone(),
            connections: Arc::default(),
            failures: RecentFailures::default(),
            memory_failed_at: Mutex::default(),
            runtime: Handle::current(),
            checksums: WriteBuffers::new(domain.clone(), CHECKSUM_BYTES_MAX, 0, IDLE_BUFFERS_MAX),
            copy_buffers: WriteBuffers::new(domain.clone(), SLICE_BYTES_MAX, 0, IDLE_BUFFERS_MAX),
            domain,
        }))
    }

    /// Returns the number of bytes that are registered for forwarding.
    pub fn registered_bytes(&self) -> u64 {
        self.domain.registered_bytes()
    }

    /// Requests a write from `next`. `None`: there is no such path to it.
    ///
    /// `may_be_truncated`: another process can truncate the replica's file at any time.
    ///
    /// Errors: the request was sent and failed.
    pub(super) async fn open(
        self: &Arc<Self>,
        next: NextDatanode<'_>,
        request: WriteBlock,
        may_be_truncated: bool,
    ) -> Result<Option<SetupAnswer<OneSidedMirror>>, WriterError> {
        if u64::from(request.checksum.bytes_per_chunk) > SLICE_BYTES_MAX {
            return Ok(None);
        }
        // Taken before the request is sent: without this buffer the other path is still possible.
        let Some(checksums) = self.take_checksum_buffer() else { return Ok(None) };
        let checksum = request.checksum;
        let writer = match self.ask(next, request).await {
            Ok(Some(OpenOutcome::Opened(writer))) => writer,
            other => {
                self.checksums.give_back(checksums);
                return match other? {
                    Some(OpenOutcome::Refused(answer)) => Ok(Some(SetupAnswer::Refused(answer))),
                    _ => Ok(None),
                };
            }
        };
        let shared = OneSidedMirrorState {
            writer,
            forwarding: self.clone(),
            checksum,
            checksums: Some(checksums),
            metrics: next.replicas.metrics.clone(),
            // With RDMA the card reads pinned pages. Other transports read through this process, which would be killed
            // by a page that was truncated away.
            always_copy: AtomicBool::new(may_be_truncated && self.transport.name() != "rdma"),
        };
        Ok(Some(SetupAnswer::Ready(OneSidedMirror { shared: Arc::new(shared), read_timeout: next.timeouts.read })))
    }

    /// `None`: there is no such path to it.
    async fn ask(
        self: &Arc<Self>,
        next: NextDatanode<'_>,
        request: WriteBlock,
    ) -> Result<Option<OpenOutcome>, WriterError> {
        let (id, timeouts) = (&next.info.id, next.timeouts);
        let times = one_sided_write::WriterTimeouts {
            read: timeouts.read,
            write: timeouts.write,
            heartbeat: timeouts.heartbeat,
        };
        let of_client = next.replicas.options.transfer.memory_connect_timeout;
        let timeout = if request.is_from_client() { of_client } else { COPY_CONNECT_TIMEOUT };
        loop {
            let kept = self.connections.take(id);
            let was_kept = kept.is_some();
            let connection = match kept {
                Some(connection) => connection,
                None => match self.connect(next, timeout).await {
                    Some(connection) => connection,
                    None => return Ok(None),
                },
            };
            let request = request.clone();
            match one_sided_write::open(connection, &self.connections, id, request, times).await {
                // The pooled connection had just ended, which does not mean that the DataNode is down: try the next
                // pooled one, or a new one.
                Ok(OpenOutcome::NotSent) | Err(WriterError::Connection(Error::Closed { .. })) if was_kept => {}
                Ok(OpenOutcome::NotSent) => return Ok(None),
                opening => return Ok(Some(opening?)),
            }
        }
    }

    /// `None`: there is no memory for it, or a registration failed a moment ago.
    fn take_checksum_buffer(&self) -> Option<Arc<dyn Region>> {
        if self.memory_failed_at.lock().is_some_and(|since| since.elapsed() < MEMORY_BACKOFF) {
            return None;
        }
        self.note_memory_failure(self.checksums.take()).ok()
    }

    fn note_memory_failure<T>(&self, taken: Result<T, Error>) -> Result<T, Error> {
        taken.inspect_err(|error| {
            tracing::warn!(%error, "cannot register memory for one-sided forwarding; using packets for now");
            *self.memory_failed_at.lock() = Some(Instant::now());
        })
    }

    /// `timeout` applies to the request and to the connection separately.
    async fn connect(&self, next: NextDatanode<'_>, timeout: Duration) -> Option<Arc<dyn Connection>> {
        let NextDatanode { replicas, peer_offers, .. } = next;
        let next = &next.info.id;
        if self.failures.failed_recently(next, Instant::now()) {
            return None;
        }
        let failed = |error: &(dyn std::error::Error + 'static)| {
            tracing::info!(datanode = %next, error, "cannot open a one-sided connection to the next datanode");
            self.failures.note(next, Instant::now());
            peer_offers.forget(next);
        };
        let about = peer_offers.get(replicas, next, timeout).await;
        let about = about.inspect_err(|error| failed(error)).ok()??;
        let own = downstream::resolve(&replicas.options, next, next.transfer_port).await;
        let own = own.inspect_err(|error| failed(error)).ok()?.ip();
        let (address, incarnation) = listener_address(&about.offer, own, self.transport.name())?;
        let (transport, domain) = (self.transport.clone(), self.domain.clone());
        let connecting = async move {
            let private = [PURPOSE_WRITING, VERSION];
            transport.connect(&domain, address, &private, LIMITS, timeout).await
        };
        let connected = self.runtime.spawn(connecting).await.ok()?;
        let connection = connected.inspect_err(|error| failed(error)).ok()?;
        if decode_acceptance(connection.private()) != Some(incarnation) {
            // Another process has its port now, or it was restarted.
            failed(&Error::Closed { peer: address, why: "a different datanode listens at this address".to_owned() });
            connection.close().await;
            return None;
        }
        Some(connection)
    }
}

/// Returns the address at which a DataNode with this offer listens, and its incarnation. `own`: an address by which the
/// DataNode can be reached. `None`: it is not in the network `transport`.
fn listener_address(offer: &Offer, own: IpAddr, transport: &str) -> Option<(SocketAddr, u64)> {
    if offer.transport.as_ref().is_some_and(|name| name != transport) {
        return None;
    }
    Some((offer.listener(own)?, offer.incarnation))
}

/// State shared by both directions.
struct OneSidedMirrorState {
    writer: Arc<BlockWriter>,
    forwarding: Arc<OneSidedForwarding>,
    checksum: ChecksumSpec,
    /// `Some` until it is dropped.
    checksums: Option<Arc<dyn Region>>,
    metrics: Arc<Metrics>,
    /// The replica's memory cannot be registered, or must not be mapped.
    always_copy: AtomicBool,
}

impl Drop for OneSidedMirrorState {
    fn drop(&mut self) {
        if let Some(checksums) = self.checksums.take()
            && self.writer.has_ended()
        {
            self.forwarding.checksums.give_back(checksums);
        }
    }
}

/// Receives acknowledgements from the next DataNode.
pub struct OneSidedMirror {
    shared: Arc<OneSidedMirrorState>,
    pub read_timeout: Duration,
}

impl OneSidedMirror {
    pub fn sender(&self) -> OneSidedSender {
        OneSidedSender { shared: self.shared.clone(), registered: Mutex::new(Vec::new()), guard: Mutex::new(None) }
    }

    /// Returns the acknowledgement of a whole packet, or of a part of one that failed.
    pub async fn next_ack(&mut self) -> Result<PipelineAck, WriterError> {
        loop {
            let ack = self.shared.writer.next_ack().await?;
            let failed = ack.replies.iter().any(|reply| reply.status() != Status::Success);
            if ack.is_whole || failed {
                // No task awaits the acknowledgement of this DataNode's own heartbeat: its replies from further
                // downstream belong to no packet.
                let is_own = !ack.is_whole && ack.seqno == HEARTBEAT_SEQNO;
                let seqno = if is_own { UNKNOWN_SEQNO } else { ack.seqno };
                return Ok(PipelineAck { seqno, replies: ack.replies, downstream_nanos: 0, granted: None });
            }
        }
    }

    pub fn ended(&self) {
        self.shared.writer.mark_ended();
    }

    pub fn closer(&self) -> MirrorCloser {
        MirrorCloser::OneSided(self.shared.writer.connection().clone(), tokio::runtime::Handle::current())
    }
}

/// Range of the block, and its registered memory.
type RegisteredRange = (Range<u64>, Arc<dyn Region>);

/// Sends data to the next DataNode.
pub struct OneSidedSender {
    shared: Arc<OneSidedMirrorState>,
    /// Registered parts of the replica's memory, with their ranges.
    registered: Mutex<Vec<RegisteredRange>>,
    /// Keeps that memory unchanged.
    guard: Mutex<Option<Arc<ReplicaReader>>>,
}

impl OneSidedSender {
    pub fn peer(&self) -> String {
        self.shared.writer.connection().peer().to_string()
    }

    pub async fn send_packet(
        &self,
        header: &PacketHeader,
        crcs: &[u8],
        data: PacketData<'_>,
    ) -> Result<(), ForwardError> {
        let writer = &self.shared.writer;
        if header.data_bytes == 0 {
            let turn = writer.reserve_checksums(0).await?;
            return Ok(writer.send(Vec::new(), *header, turn, true, false).await?);
        }
        let checksum = self.shared.checksum;
        let (start, end) = (header.offset, header.end());
        let mut at = start;
        while at < end {
            let part = writer.next_slice(header, at, checksum).await?;
            let to = part.end();
            let within = checksums_of(&part, header, checksum);
            let crcs = crcs.get(within.start as usize..crcs.len().min(within.end as usize)).unwrap_or_default();
            let turn = writer.reserve_checksums(crcs.len() as u64).await?;
            let (mut transfers, copy) = self.transfers(at, to, start, data).await?;
            if let Some(checksums) = self.shared.checksums.as_ref().filter(|_| !crcs.is_empty()) {
                checksums.memory().write(turn.checksums_at, crcs);
                let (local, offset) = (checksums.clone(), turn.checksums_at);
                transfers.push(Transfer { local, offset, remote: turn.checksums });
            }
            writer.send(transfers, part, turn, to == end, copy.is_some()).await?;
            if let Some(copy) = copy {
                self.shared.forwarding.copy_buffers.give_back(copy);
            }
            self.shared.metrics.record_one_sided_forward(to - at);
            at = to;
        }
        Ok(())
    }

    /// Prepares bytes `at..to` of the block for transfer, which belong to a packet that begins at `start`. Also returns
    /// the buffer that they were copied to, if they were.
    async fn transfers(
        &self,
        at: u64,
        to: u64,
        start: u64,
        data: PacketData<'_>,
    ) -> Result<(Vec<Transfer>, Option<Arc<dyn Region>>), ForwardError> {
        let writer = &self.shared.writer;
        if let PacketData::Replica(reader) = data
            && let Some(transfers) = self.in_place(at, to, reader).await?
        {
            return Ok((transfers, None));
        }
        let forwarding = &self.shared.forwarding;
        let copy = forwarding.note_memory_failure(forwarding.copy_buffers.take()).map_err(ForwardError::Memory)?;
        match data {
            PacketData::Bytes(bytes) => copy.memory().write(0, &bytes[(at - start) as usize..(to - start) as usize]),
            PacketData::Replica(reader) => {
                let mut bytes = vec![0; (to - at) as usize];
                read(reader, at, &mut bytes).map_err(ForwardError::Read)?;
                copy.memory().write(0, &bytes);
            }
        }
        let transfers = writer.transfers(&copy, 0, at, to).ok_or_else(|| writer.unexpected())?;
        Ok((transfers, Some(copy)))
    }

    /// Prepares a transfer from the replica's memory. `None`: this is not possible.
    async fn in_place(
        &self,
        at: u64,
        to: u64,
        reader: &Arc<ReplicaReader>,
    ) -> Result<Option<Vec<Transfer>>, ForwardError> {
        if self.shared.always_copy.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let DataSource::File { file, offset: 0 } = reader.data() else { return Ok(None) };
        let writer = &self.shared.writer;
        let (mut transfers, mut next) = (Vec::new(), at);
        while next < to {
            let found = self.registered.lock().iter().find(|(bytes, _)| bytes.contains(&next)).cloned();
            let (bytes, region) = match found {
                Some(found) => found,
                None => match self.register(next, file).await {
                    Ok(found) => {
                        *self.guard.lock() = Some(reader.clone());
                        self.registered.lock().push(found.clone());
                        found
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot register a replica's memory for forwarding; copying its data");
                        self.shared.always_copy.store(true, Ordering::Relaxed);
                        return Ok(None);
                    }
                },
            };
            let end = to.min(bytes.end);
            let more = writer.transfers(&region, next - bytes.start, next, end);
            transfers.extend(more.ok_or_else(|| writer.unexpected())?);
            next = end;
        }
        Ok(Some(transfers))
    }

    /// Registers all existing memory of the replica from byte `from` of the block on.
    async fn register(&self, from: u64, file: BorrowedFd<'_>) -> io::Result<RegisteredRange> {
        let file = File::from(file.as_fd().try_clone_to_owned()?);
        let domain = self.shared.forwarding.domain.clone();
        let registering = move || {
            const PAGE: u64 = 4096;
            let (start, end) = (from / PAGE * PAGE, file.metadata()?.len());
            let memory = Arc::new(Memory::map(OwnedFd::from(file), start, end.saturating_sub(start), false)?);
            let region =
                domain.register(&memory, from - start..end - start, Access::Local).map_err(io::Error::other)?;
            Ok((from..end, region))
        };
        tokio::task::spawn_blocking(registering).await.map_err(io::Error::other)?
    }
}
