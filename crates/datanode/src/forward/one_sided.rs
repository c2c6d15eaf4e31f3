//! To the next datanode by writing into its memory, as a client writes into ours: straight from the replica's own memory, which
//! is registered for that a grant at a time.
//!
//! What is not there (the memory is full, and packets bring the data) goes through a buffer. A packet goes as one slice, or as
//! several where the next datanode has granted less than it takes; its acknowledgement is that of the last.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hearth_blockstore::{DataSource, ReplicaReader};
use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Limits, Region, Transfer, Transport};
use hearth_protocol::one_sided_write::{
    self, BlockWriter, CHECKSUM_BYTES_MAX, OpenOutcome, SLICE_BYTES_MAX, WriteBuffers, WriterConnectionPool,
    WriterError, checksums_of,
};
use hearth_types::{ChecksumSpec, DatanodeId, DatanodeInfo};
use hearth_wire::data_transfer::{HEARTBEAT_SEQNO, PacketHeader, PipelineAck, Status, UNKNOWN_SEQNO, WriteBlock};
use hearth_wire::offer::Offer;
use hearth_wire::rdma_control::{PURPOSE_WRITING, VERSION, decode_acceptance};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::failures::{COPY_CONNECT_TIMEOUT, RecentFailures};
use super::{ForwardError, MirrorCloser, PacketData, SetupAnswer, read};
use crate::datanode::Datanode;
use crate::downstream::{self, Timeouts};
use crate::metrics::Metrics;
use crate::ops::OpError;

/// A window of slices is under way.
const LIMITS: Limits = Limits { reads_in_flight: 1, operations: 64, messages: 64 };

/// Idle buffers of each kind that are kept.
const IDLE_BUFFERS_MAX: usize = 16;

/// How long blocks go another way when memory could not be registered: one that lacks it in its middle is lost to this datanode.
const MEMORY_BACKOFF: Duration = Duration::from_secs(30);

/// What blocks that are passed on one-sidedly have in common.
pub struct OneSidedForwarding {
    transport: Arc<dyn Transport>,
    /// Nothing in it is registered for others.
    domain: Arc<dyn Domain>,
    connections: Arc<WriterConnectionPool>,
    failures: RecentFailures,
    /// Connections live there, whoever asked for the first block on them.
    runtime: Handle,
    /// When memory could not be registered last.
    memory_failed_at: Mutex<Option<Instant>>,
    /// For CRCs, as large as what the next datanode has for them.
    checksums: Arc<WriteBuffers>,
    /// For data that are not in a replica's memory.
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

    /// Bytes that are registered for passing on.
    pub fn registered_bytes(&self) -> u64 {
        self.domain.registered_bytes()
    }

    /// Asks `next` to write, too. `None`: there is no such way to it.
    ///
    /// `may_be_truncated`: somebody else can shorten the replica's file at any time.
    ///
    /// Errors: it was asked, and fails.
    pub async fn open(
        self: &Arc<Self>,
        datanode: &Arc<Datanode>,
        next: &DatanodeInfo,
        request: WriteBlock,
        timeouts: Timeouts,
        may_be_truncated: bool,
    ) -> Result<Option<SetupAnswer<OneSidedMirror>>, OpError> {
        if u64::from(request.checksum.bytes_per_chunk) > SLICE_BYTES_MAX {
            return Ok(None);
        }
        // Before the next datanode is asked: without it there is still the other way.
        let Some(checksums) = self.take_checksum_buffer() else { return Ok(None) };
        let checksum = request.checksum;
        let writer = match self.ask(datanode, next, request, timeouts).await {
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
            metrics: datanode.metrics.clone(),
            // A card reads pages that are pinned. This process would be killed by one that is not there any more.
            always_copy: AtomicBool::new(may_be_truncated && self.transport.name() != "rdma"),
        };
        Ok(Some(SetupAnswer::Ready(OneSidedMirror { shared: Arc::new(shared), read_timeout: timeouts.read })))
    }

    /// `None`: there is no such way to it.
    async fn ask(
        self: &Arc<Self>,
        datanode: &Arc<Datanode>,
        next: &DatanodeInfo,
        request: WriteBlock,
        timeouts: Timeouts,
    ) -> Result<Option<OpenOutcome>, OpError> {
        let times = one_sided_write::WriterTimeouts {
            read: timeouts.read,
            write: timeouts.write,
            heartbeat: timeouts.heartbeat,
        };
        let of_client = datanode.options.transfer.memory_connect_timeout;
        let timeout = if request.is_from_client() { of_client } else { COPY_CONNECT_TIMEOUT };
        loop {
            let kept = self.connections.take(&next.id);
            let was_kept = kept.is_some();
            let connection = match kept {
                Some(connection) => connection,
                None => match self.connect(datanode, &next.id, timeout).await {
                    Some(connection) => connection,
                    None => return Ok(None),
                },
            };
            let request = request.clone();
            match one_sided_write::open(connection, &self.connections, &next.id, request, times).await {
                // It has just ended, which says nothing of the datanode: the next one that was kept, or a new one.
                Ok(OpenOutcome::NotSent) | Err(WriterError::Connection(Error::Closed { .. })) if was_kept => {}
                Ok(OpenOutcome::NotSent) => return Ok(None),
                opening => return Ok(Some(opening?)),
            }
        }
    }

    /// `None`: there is no memory for it, or there was none for something else a moment ago.
    fn take_checksum_buffer(&self) -> Option<Arc<dyn Region>> {
        if self.memory_failed_at.lock().is_some_and(|since| since.elapsed() < MEMORY_BACKOFF) {
            return None;
        }
        self.note_memory_failure(self.checksums.take()).ok()
    }

    fn note_memory_failure<T>(&self, taken: Result<T, Error>) -> Result<T, Error> {
        taken.inspect_err(|error| {
            tracing::warn!(%error, "no memory to pass blocks on one-sidedly: they go in packets for a while");
            *self.memory_failed_at.lock() = Some(Instant::now());
        })
    }

    /// `timeout`: for each of the question and the connection.
    async fn connect(
        &self,
        datanode: &Arc<Datanode>,
        next: &DatanodeId,
        timeout: Duration,
    ) -> Option<Arc<dyn Connection>> {
        if self.failures.failed_recently(next) {
            return None;
        }
        let failed = |error: &(dyn std::error::Error + 'static)| {
            tracing::info!(datanode = %next, error, "no one-sided way to the next datanode");
            self.failures.note(next);
            datanode.peer_offers.forget(next);
        };
        let about = datanode.peer_offers.get(datanode, next, timeout).await;
        let about = about.inspect_err(|error| failed(error)).ok()??;
        let own = downstream::resolve(datanode, next, next.transfer_port).await;
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
            // Somebody else has its port now, or it has been started again.
            failed(&Error::Closed { peer: address, why: "another datanode than the one that was asked".to_owned() });
            connection.close().await;
            return None;
        }
        Some(connection)
    }
}

/// Where a datanode with this offer listens, and in which of its lives; `own`: an address by which it is reached. `None`: not in the
/// network `transport`.
fn listener_address(offer: &Offer, own: IpAddr, transport: &str) -> Option<(SocketAddr, u64)> {
    if offer.transport.as_ref().is_some_and(|name| name != transport) {
        return None;
    }
    Some((offer.listener(own)?, offer.incarnation))
}

/// Both directions'.
struct OneSidedMirrorState {
    writer: Arc<BlockWriter>,
    forwarding: Arc<OneSidedForwarding>,
    checksum: ChecksumSpec,
    /// Always there until it is dropped.
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

/// Up from the next datanode.
pub struct OneSidedMirror {
    shared: Arc<OneSidedMirrorState>,
    pub read_timeout: Duration,
}

impl OneSidedMirror {
    pub fn sender(&self) -> OneSidedSender {
        OneSidedSender { shared: self.shared.clone(), registered: Mutex::new(Vec::new()), guard: Mutex::new(None) }
    }

    /// The acknowledgement of a whole packet, or of part of one that failed.
    pub async fn next_ack(&mut self) -> Result<PipelineAck, WriterError> {
        loop {
            let ack = self.shared.writer.next_ack().await?;
            let failed = ack.replies.iter().any(|reply| reply.status() != Status::Success);
            if ack.is_whole || failed {
                // Nobody awaits that of a heartbeat of our own: what it says of those further down belongs to no packet.
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

/// Bytes of the block, and their memory.
type RegisteredRange = (Range<u64>, Arc<dyn Region>);

/// Down to it.
pub struct OneSidedSender {
    shared: Arc<OneSidedMirrorState>,
    /// Memory of the replica that is registered: which of its bytes.
    registered: Mutex<Vec<RegisteredRange>>,
    /// Keeps that memory as it is.
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

    /// Bytes `at..to` of the block, of a packet that begins at `start`; and the memory that they were copied to, if they were.
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

    /// From the replica's memory. `None`: not from there.
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
                        tracing::warn!(%error, "a replica's memory cannot be registered: it is passed on in copies");
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

    /// All of the replica's memory that there is from byte `from` of the block on.
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
