//! Connection to the next DataNode of a pipeline: into its memory, on this machine or over a network, or by packets.
//! [`Forwarder`] sends data downstream, [`Mirror`] receives acknowledgements from there.

mod failures;
mod local;
mod one_sided;
mod packets;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use hearth_blockstore::{DataSource, ReplicaReader};
use hearth_fabric::tcp;
use hearth_protocol::one_sided_write::WriterError;
use hearth_types::{DatanodeId, DatanodeInfo};
use hearth_wire::data_transfer::{BlockOpResponse, PacketHeader, PipelineAck, WriteBlock};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use local::{LocalCloser, LocalForwarding, LocalMirror};
pub use one_sided::OneSidedForwarding;
use one_sided::OneSidedMirror;
pub use packets::PacketMirror;

use crate::downstream::Timeouts;
use crate::peer_offers::PeerOffers;
use crate::replica_service::ReplicaService;
use crate::session::SessionError;

/// Maximum time that a new owner of a replica waits until none of its data is in flight downstream.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why the next DataNode sent nothing, or could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("one-sided connection to the next datanode failed")]
    OneSided(#[from] WriterError),
}

impl MirrorError {
    /// Returns true if the next DataNode disconnected.
    pub fn is_disconnect(&self) -> bool {
        match self {
            Self::Session(error) => error.is_disconnect(),
            Self::OneSided(error) => matches!(error, WriterError::Connection(_)),
        }
    }
}

/// Result of requesting a write from the next DataNode.
pub enum SetupAnswer<M> {
    Ready(M),
    Refused(Box<BlockOpResponse>),
}

/// Paths into the memory of other DataNodes, and what those DataNodes offer.
pub struct Forwarding {
    pub peer_offers: PeerOffers,
    local: LocalForwarding,
    /// `None`: this DataNode has no network for one-sided access.
    one_sided: Option<Arc<OneSidedForwarding>>,
}

impl Forwarding {
    pub fn new(one_sided: Option<Arc<OneSidedForwarding>>) -> Self {
        Self { peer_offers: PeerOffers::default(), local: LocalForwarding::default(), one_sided }
    }

    /// Returns true if there may be a path into the memory of `next`.
    pub fn may_reach(&self, replicas: &ReplicaService, next: &DatanodeId) -> bool {
        self.one_sided.is_some() || self.local.can_reach(replicas, next)
    }

    /// Requests memory to write into from `next`, on this machine or over a network. `None`: there is no such path to
    /// it.
    ///
    /// `may_be_truncated`: another process can truncate the replica's file here at any time.
    ///
    /// Errors: the request was sent and failed.
    pub async fn open_memory(
        &self,
        replicas: &ReplicaService,
        next: &DatanodeInfo,
        request: WriteBlock,
        timeouts: Timeouts,
        may_be_truncated: bool,
    ) -> Result<Option<SetupAnswer<Mirror>>, MirrorError> {
        if let Some(opened) = self.open_memory_here(replicas, next, request.clone(), timeouts).await? {
            return Ok(Some(opened));
        }
        let Some(one_sided) = &self.one_sided else { return Ok(None) };
        let next = NextDatanode { replicas, peer_offers: &self.peer_offers, info: next, timeouts };
        let opened = one_sided.open(next, request, may_be_truncated).await?;
        Ok(opened.map(|opened| opened.map(Mirror::OneSided)))
    }

    /// Like `open_memory`, on this machine only.
    pub async fn open_memory_here(
        &self,
        replicas: &ReplicaService,
        next: &DatanodeInfo,
        request: WriteBlock,
        timeouts: Timeouts,
    ) -> Result<Option<SetupAnswer<Mirror>>, MirrorError> {
        let next = NextDatanode { replicas, peer_offers: &self.peer_offers, info: next, timeouts };
        let opened = self.local.open(next, request).await?;
        Ok(opened.map(|opened| opened.map(Mirror::Local)))
    }
}

/// The next DataNode, and what is needed to connect to it.
#[derive(Clone, Copy)]
struct NextDatanode<'a> {
    replicas: &'a ReplicaService,
    peer_offers: &'a PeerOffers,
    info: &'a DatanodeInfo,
    timeouts: Timeouts,
}

impl<M> SetupAnswer<M> {
    fn map<N>(self, to: impl FnOnce(M) -> N) -> SetupAnswer<N> {
        match self {
            Self::Ready(mirror) => SetupAnswer::Ready(to(mirror)),
            Self::Refused(answer) => SetupAnswer::Refused(answer),
        }
    }
}

/// The next DataNode of the pipeline, ready for packets.
pub enum Mirror {
    Packets(PacketMirror),
    Local(LocalMirror),
    OneSided(OneSidedMirror),
}

impl Mirror {
    /// Returns the maximum silence; it covers all DataNodes further downstream.
    pub fn read_timeout(&self) -> Duration {
        match self {
            Self::Packets(mirror) => mirror.read_timeout,
            Self::Local(mirror) => mirror.read_timeout,
            Self::OneSided(mirror) => mirror.read_timeout,
        }
    }

    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next_ack(&mut self) -> Result<PipelineAck, MirrorError> {
        match self {
            Self::Packets(mirror) => Ok(mirror.session.receive_ack(mirror.read_timeout).await?),
            Self::Local(mirror) => Ok(mirror.next_ack().await?),
            Self::OneSided(mirror) => Ok(mirror.next_ack().await?),
        }
    }

    /// Returns true if an acknowledgement is known to have been received already.
    pub fn has_ack(&self) -> bool {
        match self {
            Self::Packets(mirror) => mirror.session.has_ack(),
            Self::Local(mirror) => mirror.session.has_ack(),
            Self::OneSided(_) => false,
        }
    }

    /// Records that all DataNodes have acknowledged the end of the block.
    pub fn ended(&self) {
        if let Self::OneSided(mirror) = self {
            mirror.ended();
        }
    }

    /// Returns a handle that closes the connection from another thread.
    pub fn closer(&self) -> MirrorCloser {
        match self {
            Self::Packets(mirror) => MirrorCloser::Packets(mirror.session.connection.clone()),
            Self::Local(mirror) => mirror.closer(),
            Self::OneSided(mirror) => mirror.closer(),
        }
    }
}

/// Closes the connection to the next DataNode.
pub enum MirrorCloser {
    Packets(Arc<tcp::Connection>),
    Local(LocalCloser),
    OneSided(Arc<dyn hearth_fabric::one_sided::Connection>, tokio::runtime::Handle),
}

/// Handle to wait for the end of a close.
pub struct PendingClose(Option<mpsc::Receiver<()>>);

impl MirrorCloser {
    pub fn close(self) -> PendingClose {
        match self {
            Self::Packets(connection) => {
                connection.shutdown();
                PendingClose(None)
            }
            Self::Local(closer) => {
                closer.close();
                PendingClose(None)
            }
            Self::OneSided(connection, runtime) => {
                let (over, ending) = mpsc::channel();
                runtime.spawn(async move {
                    connection.close().await;
                    // The receiver has given up waiting.
                    let _ = over.send(());
                });
                PendingClose(Some(ending))
            }
        }
    }
}

impl PendingClose {
    /// Blocks until no transfer to the next DataNode reads the replica's memory. False: it may still be read.
    pub fn wait(&self) -> bool {
        let is_over = |ending: &mpsc::Receiver<()>| {
            // A dropped sender means that it had already ended.
            !matches!(ending.recv_timeout(END_TIMEOUT), Err(mpsc::RecvTimeoutError::Timeout))
        };
        self.0.as_ref().is_none_or(is_over)
    }
}

/// Location of a packet's data.
#[derive(Clone, Copy)]
pub enum PacketData<'a> {
    Bytes(&'a [u8]),
    /// In the replica, at the packet's offset.
    Replica(&'a Arc<ReplicaReader>),
}

/// Sender to the next DataNode. When it breaks, receiving continues: the client is notified and decides.
pub struct Forwarder {
    sender: MirrorSender,
    broken: AtomicBool,
    pub broke: Notify,
    is_sending: AtomicBool,
    last_sent: Mutex<Instant>,
}

pub enum MirrorSender {
    Packets(packets::MirrorPacketSender),
    Local(Box<local::LocalSender>),
    OneSided(Box<one_sided::OneSidedSender>),
}

impl MirrorSender {
    pub fn new(mirror: &Mirror) -> Self {
        match mirror {
            Mirror::Packets(mirror) => Self::Packets(packets::MirrorPacketSender::new(&mirror.session)),
            Mirror::Local(mirror) => Self::Local(Box::new(mirror.sender())),
            Mirror::OneSided(mirror) => Self::OneSided(Box::new(mirror.sender())),
        }
    }

    pub async fn send_packet(
        &self,
        header: &PacketHeader,
        crcs: &[u8],
        data: PacketData<'_>,
    ) -> Result<(), ForwardError> {
        match self {
            Self::Packets(sender) => sender.send_packet(header, crcs, data).await,
            Self::Local(sender) => sender.send_packet(header, crcs, data).await,
            Self::OneSided(sender) => sender.send_packet(header, crcs, data).await,
        }
    }

    fn peer(&self) -> String {
        match self {
            Self::Packets(sender) => sender.peer(),
            Self::Local(sender) => sender.peer(),
            Self::OneSided(sender) => sender.peer(),
        }
    }
}

/// Returns `length` bytes of `all` from `at`.
///
/// Errors: `UnexpectedEof`: `all` is too short.
fn part_of(all: &[u8], at: u64, length: u64) -> io::Result<&[u8]> {
    let part = all.get(at as usize..).and_then(|rest| rest.get(..length as usize));
    part.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Reads bytes of a replica that may still be growing.
fn read(reader: &ReplicaReader, at: u64, into: &mut [u8]) -> io::Result<()> {
    match reader.data() {
        DataSource::Bytes(all) => {
            into.copy_from_slice(part_of(all, at, into.len() as u64)?);
            Ok(())
        }
        DataSource::File { file, offset } => {
            let (mut done, at) = (0, offset + at);
            while done < into.len() {
                match rustix::io::pread(file, &mut into[done..], at + done as u64) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(bytes) => done += bytes,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        }
    }
}

/// Reason why a packet was not forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("cannot read the replica: {0}")]
    Read(io::Error),
    #[error(transparent)]
    Connection(tcp::Error),
    #[error(transparent)]
    OneSided(#[from] WriterError),
    /// Failure in this DataNode; the next one is not at fault.
    #[error("no memory to forward it from: {0}")]
    Memory(hearth_fabric::one_sided::Error),
}

impl Forwarder {
    pub fn new(mirror: &Mirror) -> Self {
        Self {
            sender: MirrorSender::new(mirror),
            broken: AtomicBool::new(false),
            broke: Notify::new(),
            is_sending: AtomicBool::new(false),
            last_sent: Mutex::new(Instant::now()),
        }
    }

    /// Returns true if `send` may be called, i.e. data is sent as packets.
    pub fn accepts_batches(&self) -> bool {
        matches!(self.sender, MirrorSender::Packets(_))
    }

    /// Returns true if data can be sent from its place in the replica as well as from a buffer.
    pub fn accepts_in_place(&self) -> bool {
        matches!(self.sender, MirrorSender::Packets(_) | MirrorSender::Local(_))
    }

    /// Sends whole packets unchanged. Only for connections that use packets.
    pub async fn send(&self, packets: &[u8]) {
        if self.is_broken() {
            return;
        }
        let MirrorSender::Packets(sender) = &self.sender else {
            unreachable!("batches of packets are forwarded as packets")
        };
        self.is_sending.store(true, Ordering::Release);
        // This call reads nothing from the replica, so there is no error of this DataNode to return.
        let _ = self.note(sender.send(packets).await);
    }

    /// Sends a packet.
    ///
    /// Errors: only those of this DataNode: its data cannot be read, or it has no memory to forward it from.
    pub async fn send_packet(&self, header: &PacketHeader, crcs: &[u8], data: PacketData<'_>) -> io::Result<()> {
        if self.is_broken() {
            return Ok(());
        }
        self.is_sending.store(true, Ordering::Release);
        self.note(self.sender.send_packet(header, crcs, data).await)
    }

    fn note(&self, sent: Result<(), ForwardError>) -> io::Result<()> {
        self.is_sending.store(false, Ordering::Release);
        match sent {
            Ok(()) => *self.last_sent.lock() = Instant::now(),
            Err(ForwardError::Read(error)) => return Err(error),
            Err(ForwardError::Memory(error)) => return Err(io::Error::other(error)),
            Err(ForwardError::Connection(error)) => self.note_broken(&error),
            Err(ForwardError::OneSided(error)) => self.note_broken(&error),
        }
        Ok(())
    }

    /// Returns for how long there was nothing to send.
    pub fn idle(&self) -> Duration {
        if self.is_sending.load(Ordering::Acquire) { Duration::ZERO } else { self.last_sent.lock().elapsed() }
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    pub fn note_broken(&self, error: &(dyn std::error::Error + 'static)) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            let downstream = self.sender.peer();
            tracing::info!(%downstream, error, "lost the downstream datanode of a pipeline");
            self.broke.notify_one();
        }
    }
}
