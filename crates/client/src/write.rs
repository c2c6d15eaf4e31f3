//! Writing a file. [`create`] and [`append`] have the methods of [`crate::FileSystem`]. The caller's bytes are cut into
//! packets ([`packetizer`]) in reused memory ([`packet`]) and checksummed while they are in the processor's cache. A
//! task per file ([`data_streamer`]) allocates blocks ([`block`]), sends packets down the pipeline and awaits
//! acknowledgements ([`pipeline`]), and recovers from failures ([`recovery`]).
//!
//! A [`packet_sender`] is the path to the first datanode: either [`packets`] over TCP, or [`local_sender`], or
//! [`one_sided_sender`]. With [`local_sender`], the datanode lends the replica's own memory. From the second packet of
//! a block on, the caller's bytes go straight there ([`granted_memory`]). The memory is mapped if it has huge pages.

mod append;
mod block;
mod create;
mod data_streamer;
mod flush;
mod foreign_file;
mod granted_memory;
mod local_sender;
mod one_sided_sender;
mod packet;
mod packet_sender;
mod packetizer;
mod packets;
mod pipeline;
mod pipeline_set_up;
mod progress;
mod recovery;
#[cfg(test)]
mod tests;
mod written_file;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_protocol::trace::{self, Span};
use hearth_types::{DatanodeInfo, ExtendedBlock};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::error::Failure;
use crate::lease::OpenFile;
use crate::options::PacketOptions;
use crate::session::Session;
use crate::{DataPath, Error, backoff};
pub use create::CreateOptions;
use data_streamer::DataStreamer;
pub use flush::{FlushOptions, PendingFlush};
pub use foreign_file::ForeignFile;
use granted_memory::{GrantedMemory, GrantedRange};
use packet::{Packet, PacketPool};
use packetizer::Packetizer;
use progress::Progress;
use written_file::{WriteStart, WrittenFile};

/// A file open for writing. Bytes are with the datanodes after `hflush` and on their disks after `hsync`; the file is
/// complete after `close`. If the writer is dropped without `close`, the file stays open until its lease expires. The
/// lease belongs to the client, which renews it as long as it writes any file.
///
/// ```no_run
/// # async fn example(fs: hearth_client::FileSystem) -> Result<(), hearth_client::Error> {
/// use hearth_client::CreateOptions;
///
/// let mut writer = fs.create("/logs/today", CreateOptions::default()).await?;
/// writer.write(b"first line\n").await?;
/// // Readers see the line from now on.
/// writer.hflush().await?;
///
/// // Without a copy: the source fills the packet itself.
/// let space = writer.space().await?;
/// space[..4].copy_from_slice(b"more");
/// writer.advance(4).await?;
/// writer.close().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Writer {
    session: Arc<Session>,
    file: Arc<WrittenFile>,
    packetizer: Packetizer,
    pool: Arc<PacketPool>,
    packets: mpsc::Sender<Arc<Packet>>,
    /// Filled packets not yet handed to the task, in order. If a call is dropped before it completes, its packets stay
    /// here for the next call.
    outgoing: VecDeque<Packet>,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<Result<Option<ExtendedBlock>, Error>>,
    /// Sequence number of the last packet that was filled; -1 before the first.
    queued: i64,
    /// Bytes of the file before the current block.
    before_block: u64,
    /// Bytes of the block before the current one.
    last_block: u64,
    /// Number of the block being filled, counted from 1.
    block: u64,
    /// Set once a packet of that block was filled.
    begun: bool,
    /// The datanode may grant memory: the writer waits for the grant instead of filling packets until it arrives.
    waits_for_memory: bool,
    /// Number of pipelines (see [`Progress::pipelines`]) that `fsync` has reported to the namenode.
    persisted: Arc<AtomicU64>,
    /// `hsync` has been called: blocks that end from then on are on disk once they have ended.
    syncs: bool,
    /// Keeps the lease. `None`: another client does.
    open: Option<OpenFile>,
    /// Trace of the open file; empty if it is not sampled.
    span: Span,
}

impl Writer {
    fn start(session: Arc<Session>, file: WrittenFile, begin: WriteStart, open: Option<OpenFile>, span: Span) -> Self {
        let options = &session.options.write;
        let PacketOptions { checksum, data_bytes, placed_bytes, in_flight } = options.packets;
        let file = Arc::new(file);
        let length = begin.length;
        let in_block = begin.append.as_ref().map_or(0, |block| block.block.length());
        let pool = PacketPool::new(in_flight, data_bytes, placed_bytes, checksum);
        // The pool bounds the window. Empty packets are few, so the queue never delays a sender for long.
        let (packets, receiver) = mpsc::channel(in_flight + 4);
        let (streamer, progress) = DataStreamer::new(Arc::clone(&session), Arc::clone(&file), begin, Arc::clone(&pool));
        let task = tokio::spawn(trace::within(span.context(), streamer.run(receiver)));
        let waits_for_memory = session.short_circuit.is_possible() && options.paths.contains(&DataPath::Local)
            || session.one_sided.is_possible() && options.paths.contains(&DataPath::OneSided);
        Self {
            packetizer: Packetizer::new(file.block_size, checksum.bytes_per_chunk, in_block),
            session,
            file,
            pool,
            packets,
            outgoing: VecDeque::new(),
            progress,
            task,
            queued: -1,
            before_block: length - in_block,
            last_block: 0,
            block: 1,
            begun: false,
            waits_for_memory,
            persisted: Arc::default(),
            syncs: false,
            open,
            span,
        }
    }

    /// Returns the absolute path at which the file was opened.
    pub fn path(&self) -> &str {
        &self.file.path
    }

    /// Returns the file's inode number, which it keeps when it is renamed; 0 if the namenode does not send it.
    pub fn inode(&self) -> u64 {
        self.file.inode
    }

    /// Returns the length of the file in bytes, including those not yet sent.
    pub fn position(&self) -> u64 {
        self.before_block + self.packetizer.in_block()
    }

    /// Writes all of `data`. Returns when the window has room for it, which does not mean that it has arrived. If the
    /// call is dropped earlier, the bytes up to [`Writer::position`] have been taken, and none of those are lost.
    pub async fn write(&mut self, mut data: &[u8]) -> Result<(), Error> {
        while !data.is_empty() {
            self.begin_packet().await?;
            let (count, packet) = self.packetizer.take(data).map_err(|error| self.granted_memory_error(error))?;
            data = &data[count..];
            self.send_filled(packet).await?;
        }
        Ok(())
    }

    /// Returns memory for the next bytes, never empty. It is the packet itself, so a caller that reads from another
    /// source needs no copy. Call [`Writer::advance`] with the number of bytes filled.
    pub async fn space(&mut self) -> Result<&mut [u8], Error> {
        self.begin_packet().await?;
        Ok(self.packetizer.space())
    }

    /// Appends the first `count` bytes of [`Writer::space`] to the file.
    pub async fn advance(&mut self, count: usize) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        let packet = self.packetizer.advance(count).map_err(|error| self.granted_memory_error(error))?;
        self.send_filled(packet).await
    }

    /// Writes the bytes of `data` for which there is room at once, and returns their number. Returns 0 if
    /// [`Writer::begin_packet`] must be awaited first, or if `data` is empty. Does not wait. Must be called within a
    /// runtime.
    pub fn try_write(&mut self, data: &[u8]) -> Result<usize, Error> {
        if data.is_empty() || !self.try_send_outgoing()? || self.packetizer.needs_body() {
            return Ok(0);
        }
        let (count, packet) = self.packetizer.take(data).map_err(|error| self.granted_memory_error(error))?;
        self.queue_filled(packet);
        // What finds no room now goes with the next call.
        self.try_send_outgoing()?;
        Ok(count)
    }

    /// Waits until [`Writer::try_write`] has room. Cancel safe: if dropped, no packet is lost.
    pub async fn begin_packet(&mut self) -> Result<(), Error> {
        self.check()?;
        self.send_outgoing().await?;
        if !self.packetizer.needs_body() {
            return Ok(());
        }
        let granted_range = self.next_range().await?;
        let Some(body) = self.pool.take(granted_range).await else { return Err(self.failure().await) };
        self.packetizer.start(body).map_err(|error| self.granted_memory_error(error))
    }

    /// Returns the range where the next packet's bytes go: in the datanode's memory, if it lends any. The first packet
    /// of a block is filled without a range, because the block has no datanodes before that packet is sent.
    async fn next_range(&mut self) -> Result<Option<GrantedRange>, Error> {
        loop {
            let (block, granted_memory, broken, quiet, failed) = {
                let progress = self.progress.borrow_and_update();
                let quiet = progress.acknowledged >= self.queued;
                (progress.block, progress.granted_memory.clone(), progress.broken, quiet, progress.failed.clone())
            };
            if let Some(error) = failed {
                return Err(error);
            }
            match granted_memory {
                _ if block != self.block && !(self.waits_for_memory && self.begun) => return Ok(None),
                GrantedMemory::Unknown if !(self.waits_for_memory && self.begun) => return Ok(None),
                GrantedMemory::Packets if block == self.block => {
                    self.waits_for_memory &= broken;
                    return Ok(None);
                }
                GrantedMemory::Local { more, .. } | GrantedMemory::Remote { more, .. } if block == self.block => {
                    self.waits_for_memory = true;
                    let checksum = self.session.options.write.packets.checksum;
                    let granted_range =
                        granted_memory.range_at(self.packetizer.next_offset(), self.file.block_size, checksum);
                    // More memory is granted only by acknowledgements.
                    if granted_range.is_some() || !more || quiet {
                        return Ok(granted_range);
                    }
                }
                // Not known yet.
                _ => {}
            }
            if self.progress.changed().await.is_err() {
                return Err(self.failure().await);
            }
        }
    }

    /// Called after bytes were added: sends the packet if they filled it, and ends the block if they filled it.
    async fn send_filled(&mut self, packet: Option<Packet>) -> Result<(), Error> {
        self.queue_filled(packet);
        self.send_outgoing().await
    }

    fn queue_filled(&mut self, packet: Option<Packet>) {
        if let Some(packet) = packet {
            self.queue(packet);
        }
        if self.packetizer.block_full() {
            self.end_block(self.syncs);
        }
    }

    fn granted_memory_error(&self, source: std::io::Error) -> Error {
        Failure::GrantedMemory { path: self.file.path.clone(), source: Arc::new(source) }.into()
    }

    /// Returns when every byte written so far is in the memory of every datanode of the pipeline. Readers that open the
    /// file then see them.
    pub async fn hflush(&mut self) -> Result<(), Error> {
        self.flush(false).await
    }

    /// Like `hflush`, and also waits until the bytes are on the disks of the datanodes. This excludes blocks that were
    /// full before the first call: the datanodes write those behind, as they do without it. (Apache's client syncs only
    /// the block that is being written.)
    pub async fn hsync(&mut self) -> Result<(), Error> {
        self.flush(true).await
    }

    async fn flush(&mut self, sync: bool) -> Result<(), Error> {
        let options = FlushOptions { sync, ..FlushOptions::default() };
        self.begin_flush(options).await?.acknowledged().await
    }

    /// Like `hflush` or `hsync`, but returns when there is room for the bytes in the window. The result waits for the
    /// datanodes. The writer may continue to write before that.
    ///
    /// Cancel safety: if dropped, no byte is lost, and some may be sent.
    pub async fn begin_flush(&mut self, options: FlushOptions) -> Result<PendingFlush, Error> {
        let FlushOptions { sync, end_block, update_length } = options;
        self.check()?;
        self.file.flushed.store(true, Ordering::Relaxed);
        self.syncs |= sync;
        // Packets left by a dropped call go first, because each call would add to them.
        self.send_outgoing().await?;
        let in_block = self.packetizer.in_block();
        let (block, length) = if in_block > 0 { (self.block, in_block) } else { (self.block - 1, self.last_block) };
        let ends = end_block && in_block > 0;
        match self.packetizer.flush(sync) {
            Some(packet) => self.queue(packet),
            // Bytes that were sent already but never synced. The packet that ends a block syncs them too.
            None if sync && in_block > 0 && !ends => {
                let packet = self.packetizer.empty_sync();
                self.queue(packet);
            }
            None => {}
        }
        if ends {
            self.end_block(sync);
        }
        self.send_outgoing().await?;
        Ok(PendingFlush {
            session: Arc::clone(&self.session),
            file: Arc::clone(&self.file),
            progress: self.progress.clone(),
            persisted: Arc::clone(&self.persisted),
            sequence: self.queued,
            block,
            length,
            persists: update_length || in_block > 0,
            updates: update_length,
            trace: self.span.context(),
        })
    }

    /// Sends the remaining bytes, ends the block, and waits for the datanodes. [`Writer::close`] then only needs the
    /// namenode. Cancel safe: a call that was dropped can be repeated.
    pub async fn finish(&mut self) -> Result<(), Error> {
        self.send_rest().await?;
        flush::acknowledged(&mut self.progress, self.queued, &self.file.path).await?;
        // Another client may close the file now. A flush that was dropped may still wait to record a length.
        drop(self.file.last_block.lock().await);
        Ok(())
    }

    async fn send_rest(&mut self) -> Result<(), Error> {
        self.check()?;
        if let Some(packet) = self.packetizer.flush(false) {
            self.queue(packet);
        }
        if self.packetizer.in_block() > 0 {
            self.end_block(false);
        }
        self.send_outgoing().await
    }

    /// Returns the datanodes of the block that is being written, in the order of its pipeline. Empty before the first
    /// bytes of a block are sent, and after its end.
    pub fn pipeline(&self) -> Vec<DatanodeInfo> {
        self.progress.borrow().datanodes.to_vec()
    }

    /// Returns the last block that all datanodes have in full, with its length. `None` if this writer has written none.
    pub fn last_block(&self) -> Option<ExtendedBlock> {
        self.progress.borrow().last.clone()
    }

    /// Sends the remaining packets, awaits the datanodes, and has the namenode close the file.
    ///
    /// Cancel safety: if dropped, for example by a time-out, the close continues in the background once there was room
    /// for the remaining packets. Only the result is lost.
    pub async fn close(mut self) -> Result<(), Error> {
        self.send_rest().await?;
        let Self { session, file, packets, task, open, span, .. } = self;
        // The task ends when it has processed the queue.
        drop(packets);
        let path = file.path.clone();
        // Runs in its own task: the client keeps renewing the lease while it writes other files, so an unfinished close
        // would block all other writers of this file.
        let closing = tokio::spawn(async move {
            let mut span = span;
            let ended = task.await.map_err(|_| Error::from(Failure::WriterClosed { path: file.path.clone() }));
            let last = ended.and_then(|outcome| outcome).inspect_err(|error| span.fail(error))?;
            let mut last_block = file.last_block.lock().await;
            last_block.is_closed = true;
            let completing = trace::within(span.context(), complete(&session, &file, last)).await;
            completing.inspect_err(|error| span.fail(error))?;
            if let Some(open) = open {
                open.closed();
            }
            Ok::<_, Error>(())
        });
        closing.await.map_err(|_| Failure::WriterClosed { path })?
    }

    fn end_block(&mut self, sync: bool) {
        self.last_block = self.packetizer.in_block();
        self.before_block += self.last_block;
        let packet = self.packetizer.end_block(sync);
        self.queue(packet);
        self.block += 1;
        self.begun = false;
    }

    /// Queues `packet` for [`Writer::send_outgoing`]. Does not await, so the state changes atomically.
    fn queue(&mut self, packet: Packet) {
        self.queued = packet.sequence;
        self.begun = true;
        self.outgoing.push_back(packet);
    }

    /// Hands filled packets to the task. Cancel safe: if dropped while it waits for room, no packet is lost.
    pub(crate) async fn send_outgoing(&mut self) -> Result<(), Error> {
        while !self.outgoing.is_empty() {
            let Ok(room) = self.packets.reserve().await else { return Err(self.failure().await) };
            if let Some(packet) = self.outgoing.pop_front() {
                room.send(Arc::new(packet));
            }
        }
        Ok(())
    }

    /// Hands filled packets to the task as far as there is room. Returns false if some are left.
    pub(crate) fn try_send_outgoing(&mut self) -> Result<bool, Error> {
        self.check()?;
        while !self.outgoing.is_empty() {
            // A task that has ended is reported by `send_outgoing`.
            let Ok(room) = self.packets.try_reserve() else { return Ok(false) };
            if let Some(packet) = self.outgoing.pop_front() {
                room.send(Arc::new(packet));
            }
        }
        Ok(true)
    }

    fn check(&self) -> Result<(), Error> {
        if let Some(open) = &self.open {
            if open.lost() {
                return Err(Failure::LeaseLost { path: self.file.path.clone() }.into());
            }
            self.session.leases.resume_renewal();
        }
        match &self.progress.borrow().failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Returns the error that ended the task. The task publishes it before it ends.
    async fn failure(&mut self) -> Error {
        let gone = Failure::WriterClosed { path: self.file.path.clone() }.into();
        match self.progress.wait_for(|progress| progress.failed.is_some()).await {
            Ok(progress) => progress.failed.clone().unwrap_or(gone),
            Err(_) => gone,
        }
    }
}

/// Pauses of the first tenths of a second, in small steps. Apache's client sleeps for this time.
const SOON_MS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Asks the namenode to close the file until the datanodes' reports of the last block have reached it.
async fn complete(session: &Session, file: &WrittenFile, last: Option<ExtendedBlock>) -> Result<(), Error> {
    let retries = session.options.write.locate_following;
    let mut delay = retries.delay;
    for attempt in 0..=retries.retries {
        let is_last = attempt == retries.retries;
        // The report usually arrives soon: poll often at first, then at the configured interval.
        let pauses_ms = if attempt == 0 && !is_last { &SOON_MS[..] } else { &[] };
        let (path, client) = (&file.path, &file.client_name);
        if session.namenode.complete_soon(path, file.inode, client, last.as_ref(), pauses_ms).await? {
            return Ok(());
        }
        if !is_last {
            tokio::time::sleep(delay).await;
            delay = backoff::doubled(delay, retries.delay_max);
        }
    }
    let block = last.map_or_else(|| "(none)".to_owned(), |block| block.to_string());
    Err(Failure::NotComplete { path: file.path.clone(), block }.into())
}
