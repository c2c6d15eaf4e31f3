//! One-sided writes: the connection's peer writes a replica's bytes and CRCs into memory that is granted to it, and says so.
//!
//! Behind the grants everything is as for a local writer (`write_local`): one task here plays that writer, in this process,
//! and turns slices into packets whose data is in place. What it is lent is registered, in the connection's own domain, and
//! deregistered before a length is fixed. When memory is full, or cannot be registered, the peer writes to a buffer beside the replica instead, and
//! packets carry the data from there.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::Memory;
use hearth_fabric::local;
use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Region};
use hearth_fabric::stream;
use hearth_wire::data_transfer::{LocalGrant, PACKET_HEADER_BYTES_MAX, PipelineAck, Status, WriteBlock};
use hearth_wire::rdma_control::{ControlError, Grant, Slice, WriteMessage};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use crate::datanode::Datanode;
use crate::downstream::Timeouts;
use crate::metrics::Metrics;
use crate::ops::write_block;
use crate::session::{Session, SessionError};

/// Memory for the CRCs of slices that are under way: those of 32 MiB under one for each 512 bytes.
const CHECKSUM_BYTES: u64 = 256 << 10;

/// The buffer that stands in for a replica's memory when there is none.
const STAGING_BYTES: u64 = 1 << 20;

/// Slices under way at once: far more than there is memory for.
const PENDING_MAX: usize = 4096;

/// For steps of a connection that need the peer.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a writer may be silent between two blocks.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// How long whoever takes a replica over waits for the writer's connection to be over.
const FENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a writer's connection is given up.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Connection(#[from] Error),
    #[error("the peer sent what it may not: {0}")]
    Message(#[from] ControlError),
    #[error("the peer sent {0}")]
    Unexpected(&'static str),
    #[error("within the datanode: {0}")]
    Inside(#[from] SessionError),
    #[error("within the datanode: {0}")]
    Stream(#[from] stream::Error),
    #[error("memory for a writer: {0}")]
    Memory(#[from] std::io::Error),
    #[error("a task ended early")]
    Interrupted,
}

/// What keeps a writer from writing once a length is to be fixed.
pub struct Fence {
    connection: Arc<dyn Connection>,
    runtime: Handle,
    /// Memory of the replica that the peer can write to.
    regions: Mutex<Vec<Arc<dyn Region>>>,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Fence {
    fn new(connection: Arc<dyn Connection>) -> Arc<Self> {
        Arc::new(Self {
            connection,
            runtime: Handle::current(),
            regions: Mutex::default(),
            closed: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    /// The replica is taken from its writer: ends the connection, waits until it is over, then deregisters. Blocks, at most
    /// for `FENCE_TIMEOUT`; false: the peer might still write.
    pub fn close(self: &Arc<Self>) -> bool {
        if *self.closed.lock() {
            return true;
        }
        let this = self.clone();
        self.runtime.spawn(async move {
            this.connection.close().await;
            this.withdraw();
            *this.closed.lock() = true;
            this.changed.notify_all();
        });
        let mut over = self.closed.lock();
        while !*over {
            if self.changed.wait_for(&mut over, FENCE_TIMEOUT).timed_out() {
                return *over;
            }
        }
        true
    }

    /// The block has ended in order: all that the peer wrote came before its last message. Its keys are void from here.
    pub fn withdraw(&self) {
        let regions = std::mem::take(&mut *self.regions.lock());
        drop(regions);
    }

    /// The peer has said that it writes no more of the block, and is granted no more: there is nobody to shut out.
    fn end(&self) {
        self.withdraw();
        *self.closed.lock() = true;
    }
}

/// Serves a writer's connection: one block after the other.
///
/// `domain`: of this connection alone.
pub async fn serve(
    datanode: &Arc<Datanode>,
    connection: Arc<dyn Connection>,
    domain: Arc<dyn Domain>,
) -> Result<(), WriteError> {
    let failed = |source| Error::Register { bytes: CHECKSUM_BYTES, source };
    let memory = Arc::new(Memory::fresh(CHECKSUM_BYTES).map_err(failed)?);
    let checksums = domain.register(&memory, 0..CHECKSUM_BYTES, Access::RemoteWrite)?;
    loop {
        let message = connection.receive(IDLE_TIMEOUT).await?;
        match WriteMessage::decode(&message)? {
            WriteMessage::Open(request) => {
                let bridge = Bridge::new(datanode, &connection, &domain, &checksums, request.targets.len())?;
                bridge.run(datanode, *request).await?;
            }
            WriteMessage::Closed => {}
            _ => return Err(WriteError::Unexpected("a slice of no block")),
        }
    }
}

/// Memory that the peer was granted beside the replica's own. (That is the fence's alone: its keys end when the fence says so.)
struct Staged {
    /// Of the block.
    bytes: Range<u64>,
    region: Arc<dyn Region>,
}

/// Between a one-sided writer and the operation that serves it as a local one.
struct Bridge {
    connection: Arc<dyn Connection>,
    domain: Arc<dyn Domain>,
    metrics: Arc<Metrics>,
    checksums: Arc<dyn Region>,
    fence: Arc<Fence>,
    /// Our end of the operation's session.
    writer_end: Session,
    operation_end: Option<Session>,
    read_timeout: Duration,
    /// The replica's data file, as far as it was lent.
    file: Option<Arc<File>>,
    /// Up to where memory was granted, of either kind.
    end: u64,
    /// The last buffer that was granted.
    staged: Option<Staged>,
    /// The replica has no memory any more that could be granted.
    is_staging: bool,
    /// Slices that were passed on and are not acknowledged: number and end.
    pending: VecDeque<(i64, u64)>,
    /// Where the last one ended that is.
    acknowledged: u64,
    bytes_per_chunk: u64,
    /// As the writer says; 0 when it does not.
    block_length: u64,
    /// What is granted first, at least.
    first_grant_min: u64,
}

impl Bridge {
    /// `targets`: datanodes behind this one.
    fn new(
        datanode: &Datanode,
        connection: &Arc<dyn Connection>,
        domain: &Arc<dyn Domain>,
        checksums: &Arc<dyn Region>,
        targets: usize,
    ) -> Result<Self, WriteError> {
        let options = &datanode.options.transfer;
        // As whoever wrote the request waits for us: longer than the operation inside waits for the next datanode, so that it can say of
        // which one nothing came.
        let timeouts = Timeouts::new(options, u32::try_from(targets).unwrap_or(u32::MAX).saturating_add(1));
        let (writer_end, operation_end) = local::pair()?;
        Ok(Self {
            connection: connection.clone(),
            domain: domain.clone(),
            metrics: datanode.metrics.clone(),
            checksums: checksums.clone(),
            fence: Fence::new(connection.clone()),
            writer_end: Session::new(Arc::new(writer_end), options.write_timeout),
            operation_end: Some(Session::new(Arc::new(operation_end), options.write_timeout)),
            read_timeout: timeouts.read,
            file: None,
            end: 0,
            staged: None,
            is_staging: false,
            pending: VecDeque::new(),
            acknowledged: 0,
            bytes_per_chunk: 1,
            block_length: 0,
            first_grant_min: 0,
        })
    }

    /// One block, from its request to its last acknowledgement.
    async fn run(mut self, datanode: &Arc<Datanode>, request: WriteBlock) -> Result<(), WriteError> {
        let Some(mut session) = self.operation_end.take() else { return Err(WriteError::Interrupted) };
        let (start, fence) = (request.bytes_received_min, self.fence.clone());
        let rest = request.block.length().saturating_sub(start);
        self.first_grant_min = if rest == 0 { STAGING_BYTES } else { rest.min(STAGING_BYTES) };
        self.bytes_per_chunk = u64::from(request.checksum.bytes_per_chunk.max(1));
        self.block_length = request.block.length();
        let operation = {
            let (here, fence, is_copy) = (datanode.clone(), fence.clone(), !request.is_from_client());
            let operation = async move {
                let served = write_block::serve_one_sided(&here, &mut session, request, fence).await;
                if let Err(error) = &served {
                    let error: &dyn std::error::Error = error;
                    tracing::info!(error, "a one-sided write ended early");
                }
            };
            match is_copy {
                false => tokio::spawn(operation),
                // A copy gives way to what somebody waits for.
                true => datanode.streams.threads.spawn(operation).map_err(|_| WriteError::Interrupted)?,
            }
        };
        let bridged = self.bridge(start).await;
        // The operation ends with its session, if not by itself.
        self.writer_end.connection.shutdown();
        let ended = operation.await.map_err(|_| WriteError::Interrupted);
        fence.withdraw();
        bridged.and(ended)
    }

    async fn bridge(&mut self, start: u64) -> Result<(), WriteError> {
        let answer = self.writer_end.receive_answer_alone(self.read_timeout).await?;
        let refused = answer.status != Status::Success;
        let grant = if refused { None } else { Some(self.first_grant(start).await?) };
        let opened = WriteMessage::Opened { answer: Box::new(answer), grant };
        self.connection.send(opened.encode()?, PEER_TIMEOUT).await?;
        if refused {
            return Ok(());
        }
        let mut last = None;
        loop {
            // What is sent inside is small, and read there as it comes: neither side waits for the other for long.
            tokio::select! {
                message = self.connection.receive(self.read_timeout), if last.is_none() => {
                    match WriteMessage::decode(&message?)? {
                        WriteMessage::Slice(slice) => {
                            self.pass_on(&slice).await?;
                            last = slice.header.last.then_some(slice.header.seqno);
                        }
                        WriteMessage::Closed => {
                            self.fence.end();
                            return Ok(());
                        }
                        _ => return Err(WriteError::Unexpected("another message than a slice")),
                    }
                }
                ack = self.writer_end.receive_ack(self.read_timeout) => {
                    let ack = ack?;
                    let seqno = ack.seqno;
                    let message = self.acknowledged(ack, last.is_some()).await?;
                    self.connection.send(message.encode()?, PEER_TIMEOUT).await?;
                    if last == Some(seqno) {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn first_grant(&mut self, start: u64) -> Result<Grant, WriteError> {
        let mut bytes = [0; LocalGrant::BYTES];
        let (received, descriptors) =
            self.writer_end.connection.receive_with_descriptors(&mut bytes, self.read_timeout).await?;
        self.writer_end.connection.read_exact(&mut bytes[received..], self.read_timeout).await?;
        let LocalGrant(granted) = LocalGrant::decode(bytes);
        self.end = start;
        match descriptors.into_iter().next() {
            // Less than the writer's first slice may need would keep it waiting for ever.
            Some(descriptor)
                if granted.saturating_sub(start) >= self.first_grant_min && self.usable(granted) > start =>
            {
                self.file = Some(Arc::new(File::from(descriptor)));
                let end = self.usable(granted);
                match self.grant_memory(end).await? {
                    Some(grant) => Ok(grant),
                    None => self.grant_staging(),
                }
            }
            _ => self.grant_staging(),
        }
    }

    /// How much of memory up to `end` of the block is told the writer. Whole chunks only: a chunk that lay half in this memory and half in the
    /// next could have slices under way to both, and nobody could tell where they lie.
    fn usable(&self, end: u64) -> u64 {
        let is_whole_block = self.block_length != 0 && end >= self.block_length;
        if is_whole_block { end } else { end - end % self.bytes_per_chunk }
    }

    /// Memory of the replica up to `end` of the block, registered. `None`: it cannot be.
    async fn grant_memory(&mut self, end: u64) -> Result<Option<Grant>, WriteError> {
        let Some(file) = self.file.clone() else { return Ok(None) };
        let bytes = self.end..end;
        let domain = self.domain.clone();
        let registered = {
            let bytes = bytes.clone();
            tokio::task::spawn_blocking(move || register(&*domain, &file, bytes)).await
        };
        let region = match registered.map_err(|_| WriteError::Interrupted)? {
            Ok(region) => region,
            // The limits of this machine say nothing of the writer: there is the other way.
            Err(error) => {
                let peer = self.connection.peer();
                tracing::warn!(%peer, %error, "a replica's memory cannot be registered: its writer gets a buffer");
                return Ok(None);
            }
        };
        let grant = self.grant(bytes, &*region);
        self.fence.regions.lock().push(region);
        Ok(Some(grant))
    }

    /// A buffer for the next bytes of the block.
    fn grant_staging(&mut self) -> Result<Grant, WriteError> {
        self.is_staging = true;
        // Whole chunks: else the end of a block could be on its way into what is left of a buffer when the next one is granted, which
        // begins with the same chunk.
        self.end -= self.end % self.bytes_per_chunk;
        let length = match STAGING_BYTES / self.bytes_per_chunk * self.bytes_per_chunk {
            0 => STAGING_BYTES,
            whole => whole,
        };
        let region = match self.staged.take() {
            Some(staged) => staged.region,
            None => {
                let failed = |source| Error::Register { bytes: length, source };
                let memory = Arc::new(Memory::fresh(length).map_err(failed)?);
                self.domain.register(&memory, 0..length, Access::RemoteWrite)?
            }
        };
        // Where it begins is the peer's word. What would lie beyond the end of all blocks is granted in vain.
        let bytes = self.end..self.end.saturating_add(length);
        let grant = self.grant(bytes.clone(), &*region);
        self.staged = Some(Staged { bytes, region });
        Ok(grant)
    }

    fn grant(&mut self, bytes: Range<u64>, region: &dyn Region) -> Grant {
        let whole = region.remote();
        let skipped = whole.length - (bytes.end - bytes.start);
        // A mapping begins with a page, a grant anywhere.
        let data = whole.part(skipped, bytes.end - bytes.start).unwrap_or(whole);
        let grant = Grant { offset: bytes.start, data, checksums: self.checksums.remote() };
        self.end = bytes.end;
        grant
    }

    /// The slice as the packet of a local writer.
    async fn pass_on(&mut self, slice: &Slice) -> Result<(), WriteError> {
        let header = &slice.header;
        let memory = self.checksums.memory();
        let within = slice.checksums_at.checked_add(u64::from(slice.checksum_bytes));
        if within.is_none_or(|end| end > memory.length()) {
            return Err(WriteError::Unexpected("a slice whose CRCs are elsewhere"));
        }
        let mut sums = vec![0; slice.checksum_bytes as usize];
        memory.read(slice.checksums_at, &mut sums);
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let (from, end) = (header.offset, header.offset.saturating_add(u64::from(header.data_bytes)));
        if self.pending.len() == PENDING_MAX {
            return Err(WriteError::Unexpected("more slices than anybody has under way"));
        }
        self.pending.push_back((header.seqno, end));
        self.metrics.record_one_sided_write(u64::from(header.data_bytes));
        let holds = |staged: &&Staged| staged.bytes.start <= from && end <= staged.bytes.end && from < end;
        let staged = self.staged.as_ref().filter(holds);
        let timeout = self.writer_end.write_timeout;
        match staged {
            Some(staged) => {
                let mut data = vec![0; header.data_bytes as usize];
                staged.region.memory().read(from - staged.bytes.start, &mut data);
                let length = header.encode(sums.len(), &mut head);
                self.writer_end.connection.write_vectored(&[&head[..length], &sums, &data], false, timeout).await?;
            }
            None => {
                let length = header.encode_in_place(sums.len(), &mut head);
                self.writer_end.connection.write_vectored(&[&head[..length], &sums], false, timeout).await?;
            }
        }
        Ok(())
    }

    /// `is_over`: all slices have come. The replica may be finalized by now, and is lent to nobody any more.
    async fn acknowledged(&mut self, ack: PipelineAck, is_over: bool) -> Result<WriteMessage, WriteError> {
        if self.pending.front().is_some_and(|(seqno, _)| *seqno == ack.seqno)
            && let Some((_, end)) = self.pending.pop_front()
        {
            // A heartbeat has no bytes of its own, and says nothing of those before it.
            self.acknowledged = self.acknowledged.max(end);
        }
        let acknowledged = self.acknowledged;
        let grant = match ack.granted {
            _ if is_over => None,
            Some(0) => {
                self.is_staging = true;
                self.next_staging(acknowledged)?
            }
            Some(end) if self.usable(end) > self.end && !self.is_staging => {
                let end = self.usable(end);
                match self.grant_memory(end).await? {
                    Some(grant) => Some(grant),
                    None => {
                        self.is_staging = true;
                        self.next_staging(acknowledged)?
                    }
                }
            }
            _ if self.is_staging => self.next_staging(acknowledged)?,
            _ => None,
        };
        Ok(WriteMessage::Acknowledged { seqno: ack.seqno, replies: ack.replies, grant })
    }

    /// One buffer after the other, each when all that was granted before is used up and acknowledged, to its end: a writer sends a
    /// chunk again as it grows, and several such slices may be under way. Then nothing is on its way there any more.
    fn next_staging(&mut self, acknowledged: u64) -> Result<Option<Grant>, WriteError> {
        if acknowledged < self.end {
            return Ok(None);
        }
        self.end = acknowledged;
        self.grant_staging().map(Some)
    }
}

fn register(domain: &dyn Domain, file: &File, bytes: Range<u64>) -> Result<Arc<dyn Region>, WriteError> {
    const PAGE: u64 = 4096;
    let start = bytes.start / PAGE * PAGE;
    let descriptor: OwnedFd = file.try_clone()?.into();
    let memory = Arc::new(Memory::map(descriptor, start, bytes.end - start, true)?);
    Ok(domain.register(&memory, bytes.start - start..bytes.end - start, Access::RemoteWrite)?)
}
