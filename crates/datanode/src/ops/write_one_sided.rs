//! One-sided writes: the peer writes a replica's bytes and CRCs into memory that is granted to it, and sends a message
//! for each slice.
//!
//! Beyond the grants everything works as for a local writer (`write_local`): a task here acts as that writer, in this
//! process, and turns slices into packets whose data is in place. The memory that it is lent is registered in the
//! connection's own domain, and deregistered before a length is fixed. When memory is full or cannot be registered, the
//! peer writes to a buffer beside the replica instead, and packets carry the data from there.

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

/// Memory for the CRCs of slices in flight: those of 32 MiB with one CRC per 512 bytes.
const CHECKSUM_BYTES: u64 = 256 << 10;

/// Size of the buffer for the peer when a replica has no memory.
const STAGING_BYTES: u64 = 1 << 20;

/// Maximum number of slices in flight: far more than there is memory for.
const PENDING_MAX: usize = 4096;

/// Timeout for steps of a connection that need the peer.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum silence of a writer between two blocks.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum time that a new owner of a replica waits for the writer's connection to end.
const FENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why a writer's connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Connection(#[from] Error),
    #[error("the peer sent an invalid message: {0}")]
    Message(#[from] ControlError),
    #[error("the peer sent {0}")]
    Unexpected(&'static str),
    #[error("the write operation failed: {0}")]
    Inside(#[from] SessionError),
    #[error("the write operation failed: {0}")]
    Stream(#[from] stream::Error),
    #[error("cannot allocate memory for a writer: {0}")]
    Memory(#[from] std::io::Error),
    #[error("a task was interrupted")]
    Interrupted,
}

/// Shuts a writer out once a length is to be fixed.
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

    /// Shuts out the writer whose replica is taken over: closes the connection, waits until it has ended, then
    /// deregisters. Blocks, for at most `FENCE_TIMEOUT`. False: the peer might still write.
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

    /// Deregisters the memory after the block ended in order: all writes of the peer precede its last message. Its keys
    /// are invalid from here on.
    pub fn withdraw(&self) {
        let regions = std::mem::take(&mut *self.regions.lock());
        drop(regions);
    }

    /// Ends the fence after the peer announced its last write: it is granted no more memory, so there is no peer to
    /// shut out.
    fn end(&self) {
        self.withdraw();
        *self.closed.lock() = true;
    }
}

/// Serves a writer's connection: one block after the other.
///
/// `domain`: domain of this connection only.
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
            _ => return Err(WriteError::Unexpected("a slice without an open block")),
        }
    }
}

/// Buffer beside the replica that was granted to the peer. (The replica's own memory belongs to the fence only, which
/// decides when its keys end.)
struct Staged {
    /// Range of the block.
    bytes: Range<u64>,
    region: Arc<dyn Region>,
}

/// Connects a one-sided writer with the operation that serves it as a local writer.
struct Bridge {
    connection: Arc<dyn Connection>,
    domain: Arc<dyn Domain>,
    metrics: Arc<Metrics>,
    checksums: Arc<dyn Region>,
    fence: Arc<Fence>,
    /// The bridge's end of the operation's session.
    writer_end: Session,
    operation_end: Option<Session>,
    read_timeout: Duration,
    /// The replica's data file, if it was lent.
    file: Option<Arc<File>>,
    /// Offset up to which memory of either kind was granted.
    end: u64,
    /// The last buffer that was granted.
    staged: Option<Staged>,
    /// The replica has no more memory to grant.
    is_staging: bool,
    /// Slices that were forwarded and are not yet acknowledged: number and end.
    pending: VecDeque<(i64, u64)>,
    /// End of the last acknowledged slice.
    acknowledged: u64,
    bytes_per_chunk: u64,
    /// Block length announced by the writer; 0 if it announced none.
    block_length: u64,
    /// Minimum size of the first grant.
    first_grant_min: u64,
}

impl Bridge {
    /// `targets`: number of DataNodes after this one.
    fn new(
        datanode: &Datanode,
        connection: &Arc<dyn Connection>,
        domain: &Arc<dyn Domain>,
        checksums: &Arc<dyn Region>,
        targets: usize,
    ) -> Result<Self, WriteError> {
        let options = &datanode.options.transfer;
        // Timeouts as if one DataNode more followed: longer than those of the operation inside, so that the operation
        // can report which DataNode sent nothing.
        let timeouts = Timeouts::new(options, u32::try_from(targets).unwrap_or(u32::MAX).saturating_add(1));
        let (writer_end, operation_end) = local::pair()?;
        Ok(Self {
            connection: connection.clone(),
            domain: domain.clone(),
            metrics: datanode.replicas.metrics.clone(),
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

    /// Serves one block, from its request to its last acknowledgement.
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
                    tracing::info!(error, "a one-sided write failed");
                }
            };
            match is_copy {
                false => tokio::spawn(operation),
                // A copy has lower priority than operations that a client waits for.
                true => datanode.streams.threads.spawn(operation).map_err(|_| WriteError::Interrupted)?,
            }
        };
        let bridged = self.bridge(start).await;
        // The operation ends with its session, unless it has already ended.
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
            // Messages inside the process are small and read as they arrive: neither side waits long for the other.
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
                        _ => return Err(WriteError::Unexpected("a message that is not a slice")),
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
            // A grant that is smaller than the writer's first slice would make the writer wait forever.
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

    /// Returns the part of the memory up to `end` of the block that is granted to the writer: whole chunks only. A
    /// chunk split between this memory and the next could have slices in flight to both, and its location would be
    /// ambiguous.
    fn usable(&self, end: u64) -> u64 {
        let is_whole_block = self.block_length != 0 && end >= self.block_length;
        if is_whole_block { end } else { end - end % self.bytes_per_chunk }
    }

    /// Registers memory of the replica up to `end` of the block. `None`: it cannot be registered.
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
            // The limits of this machine are not the writer's fault, and buffers remain as the other path.
            Err(error) => {
                let peer = self.connection.peer();
                tracing::warn!(%peer, %error, "cannot register a replica's memory; its writer uses a buffer");
                return Ok(None);
            }
        };
        let grant = self.grant(bytes, &*region);
        self.fence.regions.lock().push(region);
        Ok(Some(grant))
    }

    /// Grants a buffer for the next bytes of the block.
    fn grant_staging(&mut self) -> Result<Grant, WriteError> {
        self.is_staging = true;
        // Whole chunks only: otherwise the end of a block could be in flight to the rest of a buffer when the next
        // buffer is granted, which begins with the same chunk.
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
        // The peer chooses the start. A range beyond the end of all possible blocks is granted but unusable.
        let bytes = self.end..self.end.saturating_add(length);
        let grant = self.grant(bytes.clone(), &*region);
        self.staged = Some(Staged { bytes, region });
        Ok(grant)
    }

    fn grant(&mut self, bytes: Range<u64>, region: &dyn Region) -> Grant {
        let whole = region.remote();
        let skipped = whole.length - (bytes.end - bytes.start);
        // A mapping begins on a page boundary, a grant at any offset.
        let data = whole.part(skipped, bytes.end - bytes.start).unwrap_or(whole);
        let grant = Grant { offset: bytes.start, data, checksums: self.checksums.remote() };
        self.end = bytes.end;
        grant
    }

    /// Forwards the slice as the packet of a local writer.
    async fn pass_on(&mut self, slice: &Slice) -> Result<(), WriteError> {
        let header = &slice.header;
        let memory = self.checksums.memory();
        let within = slice.checksums_at.checked_add(u64::from(slice.checksum_bytes));
        if within.is_none_or(|end| end > memory.length()) {
            return Err(WriteError::Unexpected("a slice whose CRCs are outside their memory"));
        }
        let mut sums = vec![0; slice.checksum_bytes as usize];
        memory.read(slice.checksums_at, &mut sums);
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let (from, end) = (header.offset, header.offset.saturating_add(u64::from(header.data_bytes)));
        if self.pending.len() == PENDING_MAX {
            return Err(WriteError::Unexpected("too many slices in flight"));
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

    /// `is_over`: all slices have arrived. The replica may be finalized by now, and no more memory of it is granted.
    async fn acknowledged(&mut self, ack: PipelineAck, is_over: bool) -> Result<WriteMessage, WriteError> {
        if self.pending.front().is_some_and(|(seqno, _)| *seqno == ack.seqno)
            && let Some((_, end)) = self.pending.pop_front()
        {
            // A heartbeat has no bytes of its own, and acknowledges none before it.
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

    /// Returns the next buffer, once all memory granted before is used to its end and acknowledged. A writer sends a
    /// growing chunk repeatedly, and several such slices may be in flight; from that point on, none is in flight to the
    /// old memory.
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
