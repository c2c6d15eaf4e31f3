//! Forwards to the next DataNode on this machine. Its replica's memory is lent to this DataNode as to a local writer
//! (`ops/write_local`), the bytes are copied there, and packets carry the CRCs. No data byte passes through a socket.
//!
//! System calls copy the bytes, so that a file truncated during the copy, on either side, is an error and never kills
//! this process. Data of a replica here is read straight to its place there, through a mapping, if that memory is in
//! huge pages; otherwise through a buffer that fits the processor's cache.
//!
//! Only bytes for which memory is granted take this path. The rest, which occurs when the next DataNode's memory is
//! full, is sent with its packet. So are bytes that may already exist there: acknowledged bytes are never overwritten
//! by unchecked ones. For that reason a pipeline that continues a replica, in recovery or in an append, does not take
//! this path.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearth_blockstore::{DataSource, Mapping, ReplicaReader};
use hearth_fabric::local::{self, LocalAddresses};
use hearth_fabric::stream::PeerAddress;
use hearth_fabric::tcp;
use hearth_protocol::data_transfer::receive_grant;
use hearth_types::{ChecksumSpec, DatanodeId};
use hearth_wire::data_transfer::{
    OpCode, Operation, PACKET_HEADER_BYTES_MAX, PacketHeader, PipelineAck, Stage, Status, UNKNOWN_SEQNO, WriteBlock,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::failures::RecentFailures;
use super::packets;
use super::{ForwardError, MirrorCloser, NextDatanode, PacketData, SetupAnswer, read};
use crate::downstream::Timeouts;
use crate::grants::IN_PLACE_BYTES_MAX;
use crate::metrics::Metrics;
use crate::peer_offers::{self, DescribeError};
use crate::replica_service::ReplicaService;
use crate::session::{Session, SessionError};

/// Bytes copied at once.
const COPY_STEP_BYTES: usize = 128 << 10;

/// State of the connections to DataNodes on this machine.
#[derive(Default)]
pub struct LocalForwarding {
    here: LocalAddresses,
    failures: RecentFailures,
}

/// Reason why a DataNode cannot be reached on this path.
#[derive(Debug, thiserror::Error)]
enum LocalConnectError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Connection(#[from] hearth_fabric::stream::Error),
    #[error("no answer in time")]
    TimedOut,
    #[error("the process that listens there is not a datanode of this user or of root")]
    WrongUser,
    #[error("a different datanode listens there, or one that does not lend memory")]
    WrongDatanode,
    #[error("cannot request its domain socket path: {0}")]
    Describe(DescribeError),
}

impl LocalForwarding {
    /// Returns true if `next` may be reachable on this path, i.e. is on this machine.
    pub fn can_reach(&self, replicas: &ReplicaService, next: &DatanodeId) -> bool {
        replicas.options.current().forward_local && self.here.contains(&next.ip)
    }

    /// Requests a write from `next`. `None`: there is no such path to it.
    ///
    /// Errors: the request was sent and failed.
    pub async fn open(
        &self,
        next: NextDatanode<'_>,
        request: WriteBlock,
    ) -> Result<Option<SetupAnswer<LocalMirror>>, SessionError> {
        let NextDatanode { replicas, peer_offers, info, timeouts } = next;
        if request.stage != Stage::PipelineSetupCreate
            // A writer into memory gets no RAM_DISK storage.
            || request.allow_lazy_persist
            || !self.can_reach(replicas, &info.id)
        {
            return Ok(None);
        }
        let checksum = request.checksum;
        let mut session = match self.connect(next).await {
            Ok(Some(session)) => session,
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::debug!(datanode = %info.id, error = &error as &dyn std::error::Error, "cannot forward through the next datanode's memory");
                self.failures.note(&info.id, Instant::now());
                peer_offers.forget(&info.id);
                return Ok(None);
            }
        };
        // A retry after a failure takes another path.
        let asked =
            ask(&mut session, request, timeouts).await.inspect_err(|_| self.failures.note(&info.id, Instant::now()))?;
        let (granted, descriptor) = match asked {
            SetupAnswer::Ready(granted) => granted,
            SetupAnswer::Refused(answer) => return Ok(Some(SetupAnswer::Refused(answer))),
        };
        let shared = LocalMirrorState {
            memory: descriptor.map(File::from),
            grant: Mutex::new(GrantState { end: granted, more: granted > 0, awaited: 0 }),
            changed: Notify::new(),
            closed: Mutex::new(false),
            checksum,
            grant_timeout: timeouts.heartbeat,
            packets: packets::MirrorPacketSender::new(&session),
            metrics: replicas.metrics.clone(),
        };
        Ok(Some(SetupAnswer::Ready(LocalMirror { session, read_timeout: timeouts.read, shared: Arc::new(shared) })))
    }

    /// Connects to the domain socket of `next`, if it has one.
    async fn connect(&self, next: NextDatanode<'_>) -> Result<Option<Session>, LocalConnectError> {
        let NextDatanode { replicas, peer_offers, info, .. } = next;
        if self.failures.failed_recently(&info.id, Instant::now()) {
            return Ok(None);
        }
        let timeout = replicas.options.transfer.memory_connect_timeout;
        let about = peer_offers.get(replicas, &info.id, timeout).await.map_err(LocalConnectError::Describe)?;
        let path = about.and_then(|about| about.offer.domain_socket.clone()).map(PathBuf::from);
        let Some(path) = path else { return Ok(None) };
        let connecting = self.connect_at(&path, next);
        tokio::time::timeout(timeout, connecting).await.map_err(|_| LocalConnectError::TimedOut)?.map(Some)
    }

    /// Connects and checks the peer's identity, because a socket's path does not identify the process that listens
    /// there now.
    async fn connect_at(&self, path: &Path, next: NextDatanode<'_>) -> Result<Session, LocalConnectError> {
        let connection = local::connect(path).await?;
        let own = rustix::process::geteuid().as_raw();
        if !matches!(connection.peer(), PeerAddress::Process { uid, .. } if uid == own || uid == 0) {
            return Err(LocalConnectError::WrongUser);
        }
        let mut session = Session::new(Arc::new(connection), next.timeouts.write);
        let replicas = next.replicas;
        let about = peer_offers::ask(replicas, &mut session, replicas.options.transfer.memory_connect_timeout).await?;
        match about {
            Some(about) if about.datanode == next.info.id.uuid && about.serves(OpCode::WriteLocal) => Ok(session),
            _ => Err(LocalConnectError::WrongDatanode),
        }
    }
}

/// Sends the write request. Returns the granted offset and the descriptor of the memory to fill, if any.
async fn ask(
    session: &mut Session,
    request: WriteBlock,
    timeouts: Timeouts,
) -> Result<SetupAnswer<(u64, Option<OwnedFd>)>, SessionError> {
    session.send_operation(&Operation::WriteLocal(Box::new(request))).await?;
    let answer = session.receive_answer_alone(timeouts.read).await?;
    if answer.status != Status::Success {
        return Ok(SetupAnswer::Refused(Box::new(answer)));
    }
    Ok(SetupAnswer::Ready(receive_grant(&session.connection, timeouts.read).await?))
}

/// Memory that the next DataNode has granted.
struct GrantState {
    /// Offset in the block up to which it may be filled.
    end: u64,
    /// More grants may follow.
    more: bool,
    /// Number of unacknowledged packets. Grants arrive with acknowledgements.
    awaited: u64,
}

/// State shared by both directions.
struct LocalMirrorState {
    /// The replica's data file at the next DataNode; `None`: it has no memory to grant.
    memory: Option<File>,
    grant: Mutex<GrantState>,
    /// Notified when the grant changes, or no more will arrive. Only the sender waits for it.
    changed: Notify,
    /// True when no more data is written into that memory. Locked during each write.
    closed: Mutex<bool>,
    checksum: ChecksumSpec,
    /// Maximum wait for memory, from the last send.
    grant_timeout: Duration,
    packets: packets::MirrorPacketSender,
    metrics: Arc<Metrics>,
}

/// Receives acknowledgements from the next DataNode.
pub struct LocalMirror {
    pub session: Session,
    pub read_timeout: Duration,
    shared: Arc<LocalMirrorState>,
}

impl LocalMirror {
    pub fn sender(&self) -> LocalSender {
        let (sent, mapped, buffer) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        LocalSender { shared: self.shared.clone(), sent, sent_at: Mutex::new(Instant::now()), mapped, buffer }
    }

    /// Returns a handle that closes the connection from another thread.
    pub fn closer(&self) -> MirrorCloser {
        MirrorCloser::Local(LocalCloser { connection: self.session.connection.clone(), shared: self.shared.clone() })
    }

    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next_ack(&mut self) -> Result<PipelineAck, SessionError> {
        let received = self.session.receive_ack(self.read_timeout).await;
        let mut grant = self.shared.grant.lock();
        match &received {
            Ok(ack) => {
                if ack.seqno != UNKNOWN_SEQNO {
                    grant.awaited = grant.awaited.saturating_sub(1);
                }
                if let Some(told) = ack.granted {
                    grant.end = grant.end.max(told);
                    grant.more &= told != 0;
                }
            }
            Err(_) => grant.more = false,
        }
        drop(grant);
        self.shared.changed.notify_one();
        received
    }
}

/// Closes a path through memory.
pub struct LocalCloser {
    connection: Arc<tcp::Connection>,
    shared: Arc<LocalMirrorState>,
}

impl LocalCloser {
    /// Closes the connection. On return no more data is written into the next DataNode's memory. Waits for a write in
    /// progress, at most one packet.
    pub fn close(self) {
        self.connection.shutdown();
        *self.shared.closed.lock() = true;
    }
}

/// Sends data to the next DataNode.
pub struct LocalSender {
    shared: Arc<LocalMirrorState>,
    /// Bytes of the block that have been sent.
    sent: AtomicU64,
    /// Time of the last packet, after which the next DataNode has received nothing.
    sent_at: Mutex<Instant>,
    /// Mapping of the memory that the next DataNode has granted up to now.
    mapped: Mutex<Option<Mapping>>,
    buffer: Mutex<Vec<u8>>,
}

impl LocalSender {
    pub fn peer(&self) -> String {
        self.shared.packets.peer()
    }

    pub async fn send_packet(
        &self,
        header: &PacketHeader,
        crcs: &[u8],
        data: PacketData<'_>,
    ) -> Result<(), ForwardError> {
        let is_placed = self.may_be_in_place(header, crcs)
            && self.has_room(header.end()).await
            && self.write_in_place(header, data)?;
        self.sent.fetch_max(header.end(), Ordering::Relaxed);
        self.shared.grant.lock().awaited += 1;
        if is_placed {
            self.shared.metrics.record_local_forward(u64::from(header.data_bytes));
            let mut head = [0; PACKET_HEADER_BYTES_MAX];
            let head_bytes = header.encode_in_place(crcs.len(), &mut head);
            self.shared.packets.send_parts(&[&head[..head_bytes], crcs]).await?;
        } else {
            self.shared.packets.send_packet(header, crcs, data).await?;
        }
        *self.sent_at.lock() = Instant::now();
        Ok(())
    }

    /// Returns true if a packet's data may be put in place: it must be new, begin on a chunk boundary and have its
    /// CRCs.
    fn may_be_in_place(&self, header: &PacketHeader, crcs: &[u8]) -> bool {
        let checksum = self.shared.checksum;
        !header.is_heartbeat()
            && (1..=IN_PLACE_BYTES_MAX).contains(&(header.data_bytes as usize))
            && header.offset.is_multiple_of(u64::from(checksum.bytes_per_chunk.max(1)))
            && crcs.len() as u64 == checksum.checksum_bytes(header.data_bytes.into())
            && header.offset >= self.sent.load(Ordering::Relaxed)
    }

    /// Returns true if memory is granted up to byte `end` of the block. Waits for a grant while one can still arrive,
    /// but only briefly: the next DataNode receives nothing in this time, and would take a long silence for a failure.
    /// Without memory the data is sent with its packet.
    async fn has_room(&self, end: u64) -> bool {
        if self.shared.memory.is_none() {
            return false;
        }
        let granted = async {
            loop {
                {
                    let grant = self.shared.grant.lock();
                    if end <= grant.end || !grant.more || grant.awaited == 0 {
                        return end <= grant.end;
                    }
                }
                self.shared.changed.notified().await;
            }
        };
        let until = *self.sent_at.lock() + self.shared.grant_timeout;
        timeout_at(until, granted).await.unwrap_or(false)
    }

    /// Copies a packet's bytes to their place. False: they cannot be put there, and must be sent with the packet.
    ///
    /// Errors: only those of reading the data here.
    fn write_in_place(&self, header: &PacketHeader, data: PacketData<'_>) -> Result<bool, ForwardError> {
        let Some(memory) = &self.shared.memory else { return Ok(false) };
        // False: the data cannot be put there.
        let put = |bytes: &[u8], at| {
            let closed = self.shared.closed.lock();
            !*closed
                && memory
                    .write_all_at(bytes, at)
                    .inspect_err(|error| tracing::debug!(%error, "cannot write into the next datanode's memory"))
                    .is_ok()
        };
        let reader = match data {
            PacketData::Bytes(bytes) => return Ok(put(bytes, header.offset)),
            PacketData::Replica(reader) => reader,
        };
        if self.read_in_place(memory, header, reader) {
            return Ok(true);
        }
        let mut buffer = self.buffer.lock();
        buffer.resize(COPY_STEP_BYTES, 0);
        let mut at = header.offset;
        while at < header.end() {
            let bytes = (header.end() - at).min(COPY_STEP_BYTES as u64) as usize;
            let piece = &mut buffer[..bytes];
            read(reader, at, piece).map_err(ForwardError::Read)?;
            if !put(piece, at) {
                return Ok(false);
            }
            at += bytes as u64;
        }
        Ok(true)
    }
    /// Like `write_in_place`, in one copy, for a replica in a file and memory in huge pages. False: this is not
    /// possible, or not all bytes were copied.
    fn read_in_place(&self, memory: &File, header: &PacketHeader, reader: &ReplicaReader) -> bool {
        let DataSource::File { file, offset } = reader.data() else { return false };
        let mut mapped = self.mapped.lock();
        if mapped.as_ref().is_none_or(|mapped| mapped.length() < header.end()) {
            let granted = self.shared.grant.lock().end;
            let has_huge_pages = Mapping::has_huge_pages(memory);
            *mapped = has_huge_pages.then(|| Mapping::for_receiving(memory, granted).ok()).flatten();
        }
        let Some(mapped) = mapped.as_ref().filter(|mapped| header.end() <= mapped.length()) else { return false };
        // One piece at a time, because other readers that wake up wait for the end of a system call.
        let mut at = header.offset;
        while at < header.end() {
            let bytes = (header.end() - at).min(COPY_STEP_BYTES as u64) as usize;
            let closed = self.shared.closed.lock();
            let read = || mapped.read_from(at, bytes, file, offset + at);
            if *closed
                || read()
                    .inspect_err(|error| tracing::debug!(%error, "cannot read into the next datanode's memory"))
                    .is_err()
            {
                return false;
            }
            at += bytes as u64;
        }
        true
    }
}
