//! The way to the next datanode of a pipeline: into its memory, on this machine or over a network, or by packets. [`Forwarder`] goes
//! down, [`Mirror`] comes up.

mod failures;
mod local;
mod one_sided;
mod packets;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hearth_blockstore::{DataSource, ReplicaReader};
use hearth_fabric::tcp;
use hearth_protocol::one_sided_write::WriterError;
use hearth_types::DatanodeInfo;
use hearth_wire::data_transfer::{BlockOpResponse, PacketHeader, PipelineAck, WriteBlock};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use local::{LocalCloser, LocalForwarding, LocalMirror};
pub use one_sided::{OneSidedForwarding, OneSidedMirror};
pub use packets::PacketMirror;

use crate::datanode::Datanode;
use crate::downstream::Timeouts;
use crate::ops::OpError;
use crate::session::SessionError;

/// How long whoever takes a replica over waits until nothing of it is on its way downstream any more.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Why nothing came from the next datanode.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    OneSided(#[from] WriterError),
}

/// What came of asking the next datanode.
pub enum SetupAnswer<M> {
    Ready(M),
    Refused(Box<BlockOpResponse>),
}

/// Asks `next` for memory to write into, on this machine or over a network. `None`: there is no such way to it.
///
/// `may_be_truncated`: somebody else can shorten the replica's file here at any time.
///
/// Errors: it was asked, and fails.
pub async fn into_memory(
    datanode: &Arc<Datanode>,
    next: &DatanodeInfo,
    request: WriteBlock,
    timeouts: Timeouts,
    may_be_truncated: bool,
) -> Result<Option<SetupAnswer<Mirror>>, OpError> {
    if let Some(opened) = into_memory_here(datanode, next, request.clone(), timeouts).await? {
        return Ok(Some(opened));
    }
    let Some(one_sided) = &datanode.one_sided else { return Ok(None) };
    let opened = one_sided.forwarding.open(datanode, next, request, timeouts, may_be_truncated).await?;
    Ok(opened.map(|opened| opened.map(Mirror::OneSided)))
}

/// The same, on this machine only.
pub async fn into_memory_here(
    datanode: &Arc<Datanode>,
    next: &DatanodeInfo,
    request: WriteBlock,
    timeouts: Timeouts,
) -> Result<Option<SetupAnswer<Mirror>>, OpError> {
    let opened = datanode.local_forwarding.open(datanode, next, request, timeouts).await?;
    Ok(opened.map(|opened| opened.map(Mirror::Local)))
}

impl<M> SetupAnswer<M> {
    fn map<N>(self, to: impl FnOnce(M) -> N) -> SetupAnswer<N> {
        match self {
            Self::Ready(mirror) => SetupAnswer::Ready(to(mirror)),
            Self::Refused(answer) => SetupAnswer::Refused(answer),
        }
    }
}

/// The next datanode of the pipeline, ready for packets.
pub enum Mirror {
    Packets(PacketMirror),
    Local(LocalMirror),
    OneSided(OneSidedMirror),
}

impl Mirror {
    /// Silence that is borne; it covers everything further down.
    pub fn read_timeout(&self) -> Duration {
        match self {
            Self::Packets(mirror) => mirror.read_timeout,
            Self::Local(mirror) => mirror.read_timeout,
            Self::OneSided(mirror) => mirror.read_timeout,
        }
    }

    /// Nothing is lost when the future is dropped.
    pub async fn next_ack(&mut self) -> Result<PipelineAck, MirrorError> {
        match self {
            Self::Packets(mirror) => Ok(mirror.session.receive_ack(mirror.read_timeout).await?),
            Self::Local(mirror) => Ok(mirror.next_ack().await?),
            Self::OneSided(mirror) => Ok(mirror.next_ack().await?),
        }
    }

    /// Whether an acknowledgement has been received already, as far as that can be said.
    pub fn has_ack(&self) -> bool {
        match self {
            Self::Packets(mirror) => mirror.session.has_ack(),
            Self::Local(mirror) => mirror.session.has_ack(),
            Self::OneSided(_) => false,
        }
    }

    /// The block's end is acknowledged by everybody from there on.
    pub fn ended(&self) {
        if let Self::OneSided(mirror) = self {
            mirror.ended();
        }
    }

    /// What ends it from another thread.
    pub fn closer(&self) -> MirrorCloser {
        match self {
            Self::Packets(mirror) => MirrorCloser::Packets(mirror.session.connection.clone()),
            Self::Local(mirror) => mirror.closer(),
            Self::OneSided(mirror) => mirror.closer(),
        }
    }
}

/// Ends the way to the next datanode.
pub enum MirrorCloser {
    Packets(Arc<tcp::Connection>),
    Local(LocalCloser),
    OneSided(Arc<dyn hearth_fabric::one_sided::Connection>, tokio::runtime::Handle),
}

/// What is to be waited for.
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
                    // Who waited has given up.
                    let _ = over.send(());
                });
                PendingClose(Some(ending))
            }
        }
    }
}

impl PendingClose {
    /// Blocks until nothing reads the replica's memory for the next datanode any more; false: it may still be read.
    pub fn wait(&self) -> bool {
        let is_over = |ending: &mpsc::Receiver<()>| {
            // Without a sender it was over before.
            !matches!(ending.recv_timeout(END_TIMEOUT), Err(mpsc::RecvTimeoutError::Timeout))
        };
        self.0.as_ref().is_none_or(is_over)
    }
}

/// Where the data of a packet are.
#[derive(Clone, Copy)]
pub enum PacketData<'a> {
    Bytes(&'a [u8]),
    /// In the replica, at their place.
    Replica(&'a Arc<ReplicaReader>),
}

/// Down to the next datanode. When it breaks, receiving goes on: the client is told and decides.
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

/// `length` bytes of `all` from `at`.
///
/// Errors: `UnexpectedEof`: there are not so many.
fn part_of(all: &[u8], at: u64, length: u64) -> io::Result<&[u8]> {
    let part = all.get(at as usize..).and_then(|rest| rest.get(..length as usize));
    part.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Bytes of a replica that may still be growing.
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

/// Why a packet did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("it could not be read here: {0}")]
    Read(io::Error),
    #[error(transparent)]
    Connection(tcp::Error),
    #[error(transparent)]
    OneSided(#[from] WriterError),
    /// Of this datanode: the next one has no part in it.
    #[error("there is no memory here to pass it on from: {0}")]
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

    /// Whether `send` may be called: packets go down.
    pub fn accepts_batches(&self) -> bool {
        matches!(self.sender, MirrorSender::Packets(_))
    }

    /// Whether data goes on from its place in the replica here as well as from a buffer.
    pub fn accepts_in_place(&self) -> bool {
        matches!(self.sender, MirrorSender::Packets(_) | MirrorSender::Local(_))
    }

    /// Sends whole packets as they came. Only where packets go down.
    pub async fn send(&self, packets: &[u8]) {
        if self.is_broken() {
            return;
        }
        let MirrorSender::Packets(sender) = &self.sender else {
            unreachable!("who brings packets has them passed on as packets")
        };
        self.is_sending.store(true, Ordering::Release);
        // Reads nothing here.
        let _ = self.note(sender.send(packets).await);
    }

    /// Sends a packet.
    ///
    /// Errors: only those of this datanode: its data cannot be read, or there is no memory to pass it on from.
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

    /// For how long there was nothing to send down.
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
