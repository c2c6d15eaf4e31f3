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
    self, BlockWriter, CHECKSUM_BYTES_MAX, Opening, SLICE_BYTES_MAX, WriteBuffers, WriterConnections, WriterError,
    checksums_of,
};
use hearth_types::{ChecksumSpec, DatanodeId, DatanodeInfo};
use hearth_wire::data_transfer::{HEARTBEAT_SEQNO, PacketHeader, PipelineAck, Status, UNKNOWN_SEQNO, WriteBlock};
use hearth_wire::offer::Offer;
use hearth_wire::rdma_control::{PURPOSE_WRITING, VERSION, accepted_by};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::failures::{COPY_CONNECT_TIMEOUT, Failures};
use super::{Data, Ender, Opened, SendError, read};
use crate::datanode::Datanode;
use crate::downstream::{self, Waits};
use crate::load::Load;
use crate::ops::OpError;

/// A window of slices is under way.
const LIMITS: Limits = Limits { reads_in_flight: 1, operations: 64, messages: 64 };

/// Idle buffers of each kind that are kept.
const BUFFERS_KEPT: usize = 16;

/// How long blocks go another way when memory could not be registered: one that lacks it in its middle is lost to this datanode.
const SHORT_OF_MEMORY: Duration = Duration::from_secs(30);

/// What blocks that are passed on one-sidedly have in common.
pub struct Forwarding {
    transport: Arc<dyn Transport>,
    /// Nothing in it is registered for others.
    domain: Arc<dyn Domain>,
    connections: Arc<WriterConnections>,
    failures: Failures,
    /// Connections live there, whoever asked for the first block on them.
    runtime: Handle,
    /// When memory could not be registered last.
    short_of_memory: Mutex<Option<Instant>>,
    /// For CRCs, as large as what the next datanode has for them.
    checksums: Arc<WriteBuffers>,
    /// For data that are not in a replica's memory.
    copies: Arc<WriteBuffers>,
}

impl Forwarding {
    pub fn new(transport: &Arc<dyn Transport>) -> Result<Arc<Self>, Error> {
        let domain = transport.domain()?;
        Ok(Arc::new(Self {
            transport: transport.clone(),
            connections: Arc::default(),
            failures: Failures::default(),
            short_of_memory: Mutex::default(),
            runtime: Handle::current(),
            checksums: WriteBuffers::new(domain.clone(), CHECKSUM_BYTES_MAX, 0, BUFFERS_KEPT),
            copies: WriteBuffers::new(domain.clone(), SLICE_BYTES_MAX, 0, BUFFERS_KEPT),
            domain,
        }))
    }

    /// Bytes that are registered for passing on.
    pub fn registered_bytes(&self) -> u64 {
        self.domain.registered_bytes()
    }

    /// Asks `next` to write, too. `None`: there is no such way to it.
    ///
    /// `others_cut`: somebody else can shorten the replica's file at any time.
    ///
    /// Errors: it was asked, and fails.
    pub async fn open(
        self: &Arc<Self>,
        datanode: &Arc<Datanode>,
        next: &DatanodeInfo,
        request: WriteBlock,
        waits: Waits,
        others_cut: bool,
    ) -> Result<Option<Opened<OneSidedMirror>>, OpError> {
        if u64::from(request.checksum.bytes_per_chunk) > SLICE_BYTES_MAX {
            return Ok(None);
        }
        // Before the next datanode is asked: without it there is still the other way.
        let Some(checksums) = self.take_for_checksums() else { return Ok(None) };
        let checksum = request.checksum;
        let writer = match self.ask(datanode, next, request, waits).await {
            Ok(Some(Opening::Opened(writer))) => writer,
            other => {
                self.checksums.give_back(checksums);
                return match other? {
                    Some(Opening::Refused(answer)) => Ok(Some(Opened::Refused(answer))),
                    _ => Ok(None),
                };
            }
        };
        let shared = Shared {
            writer,
            forwarding: self.clone(),
            checksum,
            checksums: Some(checksums),
            load: datanode.load.clone(),
            // A card reads pages that are pinned. This process would be killed by one that is not there any more.
            only_copies: AtomicBool::new(others_cut && self.transport.name() != "rdma"),
        };
        Ok(Some(Opened::Ready(OneSidedMirror { shared: Arc::new(shared), read_timeout: waits.read })))
    }

    /// `None`: there is no such way to it.
    async fn ask(
        self: &Arc<Self>,
        datanode: &Arc<Datanode>,
        next: &DatanodeInfo,
        request: WriteBlock,
        waits: Waits,
    ) -> Result<Option<Opening>, OpError> {
        let times = one_sided_write::Waits { read: waits.read, write: waits.write, heartbeat: waits.heartbeat };
        let of_client = datanode.options.transfer.memory_connect_timeout;
        let patience = if request.is_from_client() { of_client } else { COPY_CONNECT_TIMEOUT };
        loop {
            let kept = self.connections.take(&next.id);
            let was_kept = kept.is_some();
            let connection = match kept {
                Some(connection) => connection,
                None => match self.connect(datanode, &next.id, patience).await {
                    Some(connection) => connection,
                    None => return Ok(None),
                },
            };
            let request = request.clone();
            match one_sided_write::open(connection, &self.connections, &next.id, request, times).await {
                // It has just ended, which says nothing of the datanode: the next one that was kept, or a new one.
                Ok(Opening::NotAsked) | Err(WriterError::Connection(Error::Closed { .. })) if was_kept => {}
                Ok(Opening::NotAsked) => return Ok(None),
                opening => return Ok(Some(opening?)),
            }
        }
    }

    /// `None`: there is no memory for it, or there was none for something else a moment ago.
    fn take_for_checksums(&self) -> Option<Arc<dyn Region>> {
        if self.short_of_memory.lock().is_some_and(|since| since.elapsed() < SHORT_OF_MEMORY) {
            return None;
        }
        self.noting_shortage(self.checksums.take()).ok()
    }

    fn noting_shortage<T>(&self, taken: Result<T, Error>) -> Result<T, Error> {
        taken.inspect_err(|error| {
            tracing::warn!(%error, "no memory to pass blocks on one-sidedly: they go in packets for a while");
            *self.short_of_memory.lock() = Some(Instant::now());
        })
    }

    /// `patience`: for each of the question and the connection.
    async fn connect(
        &self,
        datanode: &Arc<Datanode>,
        next: &DatanodeId,
        patience: Duration,
    ) -> Option<Arc<dyn Connection>> {
        if self.failures.failed_lately(next) {
            return None;
        }
        let failed = |error: &(dyn std::error::Error + 'static)| {
            tracing::info!(datanode = %next, error, "no one-sided way to the next datanode");
            self.failures.note(next);
            datanode.descriptions.forget(next);
        };
        let about = datanode.descriptions.of(datanode, next, patience).await;
        let about = about.inspect_err(|error| failed(error)).ok()??;
        let own = downstream::resolve(datanode, next, next.transfer_port).await;
        let own = own.inspect_err(|error| failed(error)).ok()?.ip();
        let (address, incarnation) = listening(&about.offer, own, self.transport.name())?;
        let (transport, domain) = (self.transport.clone(), self.domain.clone());
        let connecting = async move {
            let private = [PURPOSE_WRITING, VERSION];
            transport.connect(&domain, address, &private, LIMITS, patience).await
        };
        let connected = self.runtime.spawn(connecting).await.ok()?;
        let connection = connected.inspect_err(|error| failed(error)).ok()?;
        if accepted_by(connection.private()) != Some(incarnation) {
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
fn listening(offer: &Offer, own: IpAddr, transport: &str) -> Option<(SocketAddr, u64)> {
    if offer.transport.as_ref().is_some_and(|name| name != transport) {
        return None;
    }
    Some((offer.listener(own)?, offer.incarnation))
}

/// Both directions'.
struct Shared {
    writer: Arc<BlockWriter>,
    forwarding: Arc<Forwarding>,
    checksum: ChecksumSpec,
    /// Always there until it is dropped.
    checksums: Option<Arc<dyn Region>>,
    load: Arc<Load>,
    /// The replica's memory cannot be registered, or must not be mapped.
    only_copies: AtomicBool,
}

impl Drop for Shared {
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
    shared: Arc<Shared>,
    pub read_timeout: Duration,
}

impl OneSidedMirror {
    pub fn sender(&self) -> Sender {
        Sender { shared: self.shared.clone(), lent: Mutex::new(Vec::new()), guard: Mutex::new(None) }
    }

    /// The acknowledgement of a whole packet, or of part of one that failed.
    pub async fn next_ack(&mut self) -> Result<PipelineAck, WriterError> {
        loop {
            let ack = self.shared.writer.next().await?;
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
        self.shared.writer.ended();
    }

    pub fn ender(&self) -> Ender {
        Ender::OneSided(self.shared.writer.connection().clone(), tokio::runtime::Handle::current())
    }
}

/// Bytes of the block, and their memory.
type Lent = (Range<u64>, Arc<dyn Region>);

/// Down to it.
pub struct Sender {
    shared: Arc<Shared>,
    /// Memory of the replica that is registered: which of its bytes.
    lent: Mutex<Vec<Lent>>,
    /// Keeps that memory as it is.
    guard: Mutex<Option<Arc<ReplicaReader>>>,
}

impl Sender {
    pub fn peer(&self) -> String {
        self.shared.writer.connection().peer().to_string()
    }

    pub async fn send_packet(&self, header: &PacketHeader, crcs: &[u8], data: Data<'_>) -> Result<(), SendError> {
        let writer = &self.shared.writer;
        if header.data_bytes == 0 {
            let turn = writer.turn(0).await?;
            return Ok(writer.send(Vec::new(), *header, turn, true, false).await?);
        }
        let checksum = self.shared.checksum;
        let (start, end) = (header.offset, header.end());
        let mut at = start;
        while at < end {
            let part = writer.next_part(header, at, checksum).await?;
            let to = part.end();
            let within = checksums_of(&part, header, checksum);
            let crcs = crcs.get(within.start as usize..crcs.len().min(within.end as usize)).unwrap_or_default();
            let turn = writer.turn(crcs.len() as u64).await?;
            let (mut transfers, copy) = self.transfers(at, to, start, data).await?;
            if let Some(checksums) = self.shared.checksums.as_ref().filter(|_| !crcs.is_empty()) {
                checksums.memory().write(turn.checksums_at, crcs);
                let (local, offset) = (checksums.clone(), turn.checksums_at);
                transfers.push(Transfer { local, offset, remote: turn.checksums });
            }
            writer.send(transfers, part, turn, to == end, copy.is_some()).await?;
            if let Some(copy) = copy {
                self.shared.forwarding.copies.give_back(copy);
            }
            self.shared.load.one_sided_forwarded(to - at);
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
        data: Data<'_>,
    ) -> Result<(Vec<Transfer>, Option<Arc<dyn Region>>), SendError> {
        let writer = &self.shared.writer;
        if let Data::Replica(reader) = data
            && let Some(transfers) = self.in_place(at, to, reader).await?
        {
            return Ok((transfers, None));
        }
        let forwarding = &self.shared.forwarding;
        let copy = forwarding.noting_shortage(forwarding.copies.take()).map_err(SendError::Memory)?;
        match data {
            Data::Bytes(bytes) => copy.memory().write(0, &bytes[(at - start) as usize..(to - start) as usize]),
            Data::Replica(reader) => {
                let mut bytes = vec![0; (to - at) as usize];
                read(reader, at, &mut bytes).map_err(SendError::Read)?;
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
    ) -> Result<Option<Vec<Transfer>>, SendError> {
        if self.shared.only_copies.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let DataSource::File { file, offset: 0 } = reader.data() else { return Ok(None) };
        let writer = &self.shared.writer;
        let (mut transfers, mut next) = (Vec::new(), at);
        while next < to {
            let found = self.lent.lock().iter().find(|(bytes, _)| bytes.contains(&next)).cloned();
            let (bytes, region) = match found {
                Some(found) => found,
                None => match self.register(next, file).await {
                    Ok(found) => {
                        *self.guard.lock() = Some(reader.clone());
                        self.lent.lock().push(found.clone());
                        found
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a replica's memory cannot be registered: it is passed on in copies");
                        self.shared.only_copies.store(true, Ordering::Relaxed);
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
    async fn register(&self, from: u64, file: BorrowedFd<'_>) -> io::Result<Lent> {
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
