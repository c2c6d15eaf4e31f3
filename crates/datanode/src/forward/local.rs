//! To the next datanode when it is on this machine: its replica's memory is lent to us as to a local writer (`ops/write_local`),
//! the bytes are copied there, and packets bring the CRCs. No byte goes through a socket.
//!
//! The bytes are copied by system calls: a file that somebody cuts meanwhile, theirs or ours, is an error then, and never the end of this
//! process. Of a replica here they are read straight to their place there, mapped, where that is in huge pages; else through a buffer that
//! the processor's cache holds.
//!
//! What memory is granted for goes so; the rest, which there is when the next datanode's memory is full, with its packet. So does what may be
//! there already: bytes that were acknowledged are never written over by others that nobody has checked yet. For that reason a pipeline that
//! goes on with a replica, in recovery or in an append, does not go this way.

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
use hearth_types::{ChecksumSpec, DatanodeId, DatanodeInfo};
use hearth_wire::data_transfer::{
    OpCode, Operation, PACKET_HEADER_BYTES_MAX, PacketHeader, PipelineAck, Stage, Status, UNKNOWN_SEQNO, WriteBlock,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::failures::RecentFailures;
use super::packets;
use super::{ForwardError, MirrorCloser, PacketData, SetupAnswer, read};
use crate::datanode::Datanode;
use crate::downstream::Timeouts;
use crate::metrics::Metrics;
use crate::ops::OpError;
use crate::peer_offers;
use crate::receiver::IN_PLACE_BYTES_MAX;
use crate::session::{Session, SessionError};

/// Copied at once.
const COPY_STEP_BYTES: usize = 128 << 10;

/// What is known of the datanodes of this machine.
#[derive(Default)]
pub struct LocalForwarding {
    here: LocalAddresses,
    failures: RecentFailures,
}

/// Why a datanode is not reached so.
#[derive(Debug, thiserror::Error)]
enum LocalConnectError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Connection(#[from] hearth_fabric::stream::Error),
    #[error("no answer in time")]
    TimedOut,
    #[error("another process than a datanode of this user, or of root, listens there")]
    WrongUser,
    #[error("another datanode listens there, or one that lends no memory")]
    WrongDatanode,
    #[error("it could not be asked where it listens: {0}")]
    Describe(OpError),
}

impl LocalForwarding {
    /// Whether `next` may be reached so at all: it is on this machine.
    pub fn can_reach(&self, datanode: &Datanode, next: &DatanodeId) -> bool {
        datanode.options.transfer.forward_local && self.here.contains(&next.ip)
    }

    /// Asks `next` to write, too. `None`: there is no such way to it.
    ///
    /// Errors: it was asked, and fails.
    pub async fn open(
        &self,
        datanode: &Arc<Datanode>,
        next: &DatanodeInfo,
        request: WriteBlock,
        timeouts: Timeouts,
    ) -> Result<Option<SetupAnswer<LocalMirror>>, OpError> {
        if request.stage != Stage::PipelineSetupCreate
            // Who writes into memory gets none on RAM_DISK.
            || request.allow_lazy_persist
            || !self.can_reach(datanode, &next.id)
        {
            return Ok(None);
        }
        let checksum = request.checksum;
        let mut session = match self.connect(datanode, &next.id, timeouts).await {
            Ok(Some(session)) => session,
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::debug!(datanode = %next.id, error = &error as &dyn std::error::Error, "no way through memory to the next datanode");
                self.failures.note(&next.id);
                datanode.peer_offers.forget(&next.id);
                return Ok(None);
            }
        };
        // Whoever asks again after a failure goes another way.
        let asked = ask(&mut session, request, timeouts).await.inspect_err(|_| self.failures.note(&next.id))?;
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
            metrics: datanode.metrics.clone(),
        };
        Ok(Some(SetupAnswer::Ready(LocalMirror { session, read_timeout: timeouts.read, shared: Arc::new(shared) })))
    }

    /// To its domain socket, if it has one.
    async fn connect(
        &self,
        datanode: &Arc<Datanode>,
        next: &DatanodeId,
        timeouts: Timeouts,
    ) -> Result<Option<Session>, LocalConnectError> {
        if self.failures.failed_recently(next) {
            return Ok(None);
        }
        let timeout = datanode.options.transfer.memory_connect_timeout;
        let about = datanode.peer_offers.get(datanode, next, timeout).await.map_err(LocalConnectError::Describe)?;
        let path = about.and_then(|about| about.offer.domain_socket.clone()).map(PathBuf::from);
        let Some(path) = path else { return Ok(None) };
        let connecting = self.connect_at(&path, datanode, next, timeouts);
        tokio::time::timeout(timeout, connecting).await.map_err(|_| LocalConnectError::TimedOut)?.map(Some)
    }

    /// A connection to whom it is meant for: a socket's path says nothing of who listens there now.
    async fn connect_at(
        &self,
        path: &Path,
        datanode: &Arc<Datanode>,
        next: &DatanodeId,
        timeouts: Timeouts,
    ) -> Result<Session, LocalConnectError> {
        let connection = local::connect(path).await?;
        let own = rustix::process::geteuid().as_raw();
        if !matches!(connection.peer(), PeerAddress::Process { uid, .. } if uid == own || uid == 0) {
            return Err(LocalConnectError::WrongUser);
        }
        let mut session = Session::new(Arc::new(connection), timeouts.write);
        let about = peer_offers::ask(datanode, &mut session, datanode.options.transfer.memory_connect_timeout).await?;
        match about {
            Some(about) if about.datanode == next.uuid && about.serves(OpCode::WriteLocal) => Ok(session),
            _ => Err(LocalConnectError::WrongDatanode),
        }
    }
}

/// Has it write, too. Up to where memory is granted, and the descriptor to fill it with, when it does.
async fn ask(
    session: &mut Session,
    request: WriteBlock,
    timeouts: Timeouts,
) -> Result<SetupAnswer<(u64, Option<OwnedFd>)>, SessionError> {
    session.send(&Operation::WriteLocal(Box::new(request)).encode()).await?;
    let answer = session.receive_answer_alone(timeouts.read).await?;
    if answer.status != Status::Success {
        return Ok(SetupAnswer::Refused(Box::new(answer)));
    }
    Ok(SetupAnswer::Ready(receive_grant(&session.connection, timeouts.read).await?))
}

/// What the next datanode has granted.
struct GrantState {
    /// Bytes of the block that may be filled.
    end: u64,
    /// There may be more to come.
    more: bool,
    /// Packets that are not acknowledged. Grants come with acknowledgements.
    awaited: u64,
}

/// Both directions'.
struct LocalMirrorState {
    /// The replica's data file over there; `None`: it has no memory to give.
    memory: Option<File>,
    grant: Mutex<GrantState>,
    /// The grant has, or nothing more comes. Only the sender waits for it.
    changed: Notify,
    /// Nothing is put into that memory any more. Held while something is.
    closed: Mutex<bool>,
    checksum: ChecksumSpec,
    /// How long after what was sent last memory is waited for.
    grant_timeout: Duration,
    packets: packets::MirrorPacketSender,
    metrics: Arc<Metrics>,
}

/// Up from the next datanode.
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

    /// Ends it from another thread.
    pub fn closer(&self) -> MirrorCloser {
        MirrorCloser::Local(LocalCloser { connection: self.session.connection.clone(), shared: self.shared.clone() })
    }

    /// Nothing is lost when the future is dropped.
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

/// What ends a way through memory.
pub struct LocalCloser {
    connection: Arc<tcp::Connection>,
    shared: Arc<LocalMirrorState>,
}

impl LocalCloser {
    /// Nothing is put into the next datanode's memory any more on return. Waits for what is being put, a packet at most.
    pub fn close(self) {
        self.connection.shutdown();
        *self.shared.closed.lock() = true;
    }
}

/// Down to it.
pub struct LocalSender {
    shared: Arc<LocalMirrorState>,
    /// Bytes of the block that have gone down.
    sent: AtomicU64,
    /// When the last packet had: since then the next datanode has heard nothing.
    sent_at: Mutex<Instant>,
    /// Of the next datanode's memory, what has been granted up to now.
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

    /// Whether it is one of those that are put in place: of new bytes, whole chunks from its first on, with their CRCs.
    fn may_be_in_place(&self, header: &PacketHeader, crcs: &[u8]) -> bool {
        let checksum = self.shared.checksum;
        !header.is_heartbeat()
            && (1..=IN_PLACE_BYTES_MAX).contains(&(header.data_bytes as usize))
            && header.offset.is_multiple_of(u64::from(checksum.bytes_per_chunk.max(1)))
            && crcs.len() as u64 == checksum.checksum_bytes(header.data_bytes.into())
            && header.offset >= self.sent.load(Ordering::Relaxed)
    }

    /// Whether memory is granted up to byte `end` of the block. Waits for that while it can still come, but not for long: the next
    /// datanode hears nothing meanwhile, and would take that for our death. Without memory the bytes go with their packet.
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

    /// Copies a packet's bytes to their place. False: they cannot be put there, and go with the packet.
    ///
    /// Errors: only those of reading them here.
    fn write_in_place(&self, header: &PacketHeader, data: PacketData<'_>) -> Result<bool, ForwardError> {
        let Some(memory) = &self.shared.memory else { return Ok(false) };
        // False: it cannot be put there.
        let put = |bytes: &[u8], at| {
            let closed = self.shared.closed.lock();
            !*closed
                && memory
                    .write_all_at(bytes, at)
                    .inspect_err(|error| tracing::debug!(%error, "filling the next datanode's memory"))
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
    /// The same in one copy, of a replica in a file, to memory in huge pages. False: not so, or not all of them.
    fn read_in_place(&self, memory: &File, header: &PacketHeader, reader: &ReplicaReader) -> bool {
        let DataSource::File { file, offset } = reader.data() else { return false };
        let mut mapped = self.mapped.lock();
        if mapped.as_ref().is_none_or(|mapped| mapped.length() < header.end()) {
            let granted = self.shared.grant.lock().end;
            let has_huge_pages = Mapping::has_huge_pages(memory);
            *mapped = has_huge_pages.then(|| Mapping::for_receiving(memory, granted).ok()).flatten();
        }
        let Some(mapped) = mapped.as_ref().filter(|mapped| header.end() <= mapped.length()) else { return false };
        // A piece at a time: readers who wake wait for the end of a call.
        let mut at = header.offset;
        while at < header.end() {
            let bytes = (header.end() - at).min(COPY_STEP_BYTES as u64) as usize;
            let closed = self.shared.closed.lock();
            let read = || mapped.read_from(at, bytes, file, offset + at);
            if *closed
                || read().inspect_err(|error| tracing::debug!(%error, "reading to the next datanode's memory")).is_err()
            {
                return false;
            }
            at += bytes as u64;
        }
        true
    }
}
