//! Writing a file. The caller's bytes are cut into packets ([`packetizer`]) in reused memory ([`packet`]), summed while they
//! are in the processor's cache, and handed to a task of the file's own ([`data_streamer`]) that allocates blocks ([`block`]),
//! sends packets down the pipeline and awaits acknowledgements ([`pipeline`]), and recovers from failures ([`recovery`]).
//!
//! The way to the first datanode is a [`packet_sender`]: [`packets`] over TCP, or [`local_sender`], where the datanode lends the replica's own
//! memory and the caller's bytes go straight there ([`granted_memory`]), mapped where it has huge pages, from the second packet of a block on.

mod block;
mod data_streamer;
mod failed_paths;
mod granted_memory;
mod local_sender;
mod one_sided_sender;
mod packet;
mod packet_sender;
mod packetizer;
mod packets;
mod pipeline;
mod recovery;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hearth_types::{ExtendedBlock, LocatedBlock};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::file_system::Shared;
use crate::lease::{Leases, OpenFile};
use crate::{DataPath, Error, backoff};
use data_streamer::{DataStreamer, Progress};
pub(crate) use failed_paths::FailedPaths;
use granted_memory::{GrantedMemory, GrantedRange};
use packet::{Packet, PacketPool};
use packetizer::Packetizer;

/// What a writer needs to know of its file.
#[derive(Debug)]
pub(crate) struct WrittenFile {
    pub path: String,
    /// Survives renames, so that writing goes on when somebody else renames the file.
    pub inode: u64,
    pub replication: u16,
    pub block_size: u64,
    /// Set by the first flush.
    pub flushed: AtomicBool,
}

/// Where writing starts.
#[derive(Debug, Default)]
pub(crate) struct WriteStart {
    /// The last block, not full, that is to be continued.
    pub append: Option<LocatedBlock>,
    /// The last block, which the next one follows whatever its length.
    pub previous: Option<ExtendedBlock>,
    /// Bytes of the file.
    pub length: u64,
}

impl WrittenFile {
    pub(crate) fn new(path: String, inode: u64, replication: u16, block_size: u64) -> Self {
        Self { path, inode, replication, block_size, flushed: AtomicBool::new(false) }
    }
}

/// A file open for writing. Bytes are with the datanodes after `hflush`, on their disks after `hsync`; the file is whole
/// after `close`. Dropped without it, the file stays open until its lease runs out, and the lease is the client's: it is renewed as long as
/// the client writes any file.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    file: Arc<WrittenFile>,
    packetizer: Packetizer,
    pool: Arc<PacketPool>,
    packets: mpsc::Sender<Arc<Packet>>,
    /// Filled, and not yet handed to the task, in their order. Whoever drops a call half way leaves them here for the next one.
    outgoing: VecDeque<Packet>,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<Result<Option<ExtendedBlock>, Error>>,
    /// Sequence number of the last packet that was filled; -1 before the first.
    queued: i64,
    /// Bytes of the file in front of the current block.
    before_block: u64,
    /// Of the block being filled, from 1.
    block: u64,
    /// Whether a packet of that block was filled.
    begun: bool,
    /// The datanode's memory may come: it is waited for rather than to fill packets meanwhile.
    waits_for_memory: bool,
    /// Which pipelines (see [`Progress::pipelines`]) the namenode was told of by `fsync`.
    persisted: u64,
    /// hsync has been called: blocks that end from then on are on disk when they have.
    syncs: bool,
    open: OpenFile,
}

impl Writer {
    pub(crate) fn start(shared: Arc<Shared>, file: WrittenFile, begin: WriteStart, open: OpenFile) -> Self {
        let options = &shared.options;
        let file = Arc::new(file);
        let length = begin.length;
        let in_block = begin.append.as_ref().map_or(0, |block| block.block.length());
        let (data_bytes, placed_bytes) = (options.packet_data_bytes, options.placed_packet_bytes);
        let pool = PacketPool::new(options.packets_in_flight, data_bytes, placed_bytes, options.checksum);
        // The window is the pool's; empty packets are few, so the queue never holds a sender up for long.
        let (packets, receiver) = mpsc::channel(options.packets_in_flight + 4);
        let (streamer, progress) = DataStreamer::new(Arc::clone(&shared), Arc::clone(&file), begin, Arc::clone(&pool));
        let task = tokio::spawn(streamer.run(receiver));
        let waits_for_memory = shared.short_circuit.is_possible() && options.write_paths.contains(&DataPath::Local)
            || shared.one_sided.is_possible() && options.write_paths.contains(&DataPath::OneSided);
        Self {
            packetizer: Packetizer::new(file.block_size, options.checksum.bytes_per_chunk, in_block),
            shared,
            file,
            pool,
            packets,
            outgoing: VecDeque::new(),
            progress,
            task,
            queued: -1,
            before_block: length - in_block,
            block: 1,
            begun: false,
            waits_for_memory,
            persisted: 0,
            syncs: false,
            open,
        }
    }

    pub fn path(&self) -> &str {
        &self.file.path
    }

    /// The file's number, which it keeps when it is renamed; 0 where the namenode does not say it.
    pub fn inode(&self) -> u64 {
        self.file.inode
    }

    /// Bytes of the file, those not yet sent included.
    pub fn position(&self) -> u64 {
        self.before_block + self.packetizer.in_block()
    }

    /// Takes all of `data`. Returns when the window has room for it, which says nothing of its having arrived. Dropped before, it has
    /// taken the bytes up to [`Writer::position`], and none of those are lost.
    pub async fn write(&mut self, mut data: &[u8]) -> Result<(), Error> {
        while !data.is_empty() {
            self.begin_packet().await?;
            let (count, packet) = self.packetizer.take(data).map_err(|error| self.granted_memory_error(error))?;
            data = &data[count..];
            self.send_filled(packet).await?;
        }
        Ok(())
    }

    /// Memory for the next bytes, never empty: the packet itself, so that a caller that reads from somewhere else needs
    /// no copy. Say with [`Writer::advance`] how much of it was filled.
    pub async fn space(&mut self) -> Result<&mut [u8], Error> {
        self.begin_packet().await?;
        Ok(self.packetizer.space())
    }

    /// The first `count` bytes of [`Writer::space`] are the file's next.
    pub async fn advance(&mut self, count: usize) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        let packet = self.packetizer.advance(count).map_err(|error| self.granted_memory_error(error))?;
        self.send_filled(packet).await
    }

    /// Sees to it that there is a packet to fill.
    async fn begin_packet(&mut self) -> Result<(), Error> {
        self.check()?;
        self.send_outgoing().await?;
        if !self.packetizer.needs_body() {
            return Ok(());
        }
        let granted_range = self.next_range().await?;
        let Some(body) = self.pool.take(granted_range).await else { return Err(self.failure().await) };
        self.packetizer.start(body).map_err(|error| self.granted_memory_error(error))
    }

    /// Where the next packet's bytes are put: in the datanode's memory, if it lends any. The first packet of a block is
    /// filled without that, since the block has no datanodes before it is sent.
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
                    let checksum = self.shared.options.checksum;
                    let granted_range =
                        granted_memory.range_at(self.packetizer.next_offset(), self.file.block_size, checksum);
                    // More comes with acknowledgements, and with nothing else.
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

    /// After bytes were added: sends the packet that they have filled, and ends the block that they have.
    async fn send_filled(&mut self, packet: Option<Packet>) -> Result<(), Error> {
        if let Some(packet) = packet {
            self.queue(packet);
        }
        if self.packetizer.block_full() {
            self.end_block(self.syncs);
        }
        self.send_outgoing().await
    }

    fn granted_memory_error(&self, source: std::io::Error) -> Error {
        Error::GrantedMemory { path: self.file.path.clone(), source: Arc::new(source) }
    }

    /// Returns when every byte written so far is in the memory of every datanode of the pipeline, where readers that
    /// open the file see it.
    pub async fn hflush(&mut self) -> Result<(), Error> {
        self.flush(false).await
    }

    /// As `hflush`, and on the disks of the datanodes; but for blocks that were full before it was called for the first time, which the
    /// datanodes write behind as they do without it. (Apache's client syncs only the block that is being written.)
    pub async fn hsync(&mut self) -> Result<(), Error> {
        self.flush(true).await
    }

    async fn flush(&mut self, sync: bool) -> Result<(), Error> {
        self.check()?;
        self.file.flushed.store(true, Ordering::Relaxed);
        self.syncs |= sync;
        // What a call that was dropped has left goes first: each would add to it.
        self.send_outgoing().await?;
        match self.packetizer.flush(sync) {
            Some(packet) => self.queue(packet),
            // Bytes that are out already but were never synced.
            None if sync && self.packetizer.in_block() > 0 => {
                let packet = self.packetizer.empty_sync();
                self.queue(packet);
            }
            None => {}
        }
        self.send_outgoing().await?;
        self.acknowledged(self.queued).await?;
        self.persist().await
    }

    /// Tells the namenode of the block, once for each pipeline, so that it and its length survive the namenode.
    async fn persist(&mut self) -> Result<(), Error> {
        let pipelines = self.progress.borrow().pipelines;
        if self.packetizer.in_block() == 0 || pipelines == self.persisted {
            return Ok(());
        }
        let namenode = &self.shared.namenode;
        namenode.fsync(&self.file.path, self.file.inode, &self.shared.client_name, self.packetizer.in_block()).await?;
        self.persisted = pipelines;
        Ok(())
    }

    /// Sends what is left, awaits the datanodes, and has the namenode close the file.
    ///
    /// Dropped half way, as by a time-out around it, it goes on by itself once there was room for what is left, and only the answer is lost.
    pub async fn close(mut self) -> Result<(), Error> {
        self.check()?;
        if let Some(packet) = self.packetizer.flush(false) {
            self.queue(packet);
        }
        if self.packetizer.in_block() > 0 {
            self.end_block(false);
        }
        self.send_outgoing().await?;
        let Self { shared, file, packets, task, open, .. } = self;
        // The task ends when it has worked off the queue.
        drop(packets);
        let path = file.path.clone();
        // In a task of its own: nobody else could write the file as long as this client writes others.
        let closing = tokio::spawn(async move {
            let last = task.await.map_err(|_| Error::WriterClosed { path: file.path.clone() })??;
            complete(&shared, &file, last).await?;
            open.closed();
            Ok::<_, Error>(())
        });
        closing.await.map_err(|_| Error::WriterClosed { path })?
    }

    fn end_block(&mut self, sync: bool) {
        self.before_block += self.packetizer.in_block();
        let packet = self.packetizer.end_block(sync);
        self.queue(packet);
        self.block += 1;
        self.begun = false;
    }

    /// The packet goes next, with [`Writer::hand_over`]. Nothing waits here: what a packet changes is changed whole.
    fn queue(&mut self, packet: Packet) {
        self.queued = packet.sequence;
        self.begun = true;
        self.outgoing.push_back(packet);
    }

    /// Hands what is filled to the task. Dropped while it waits for room, it has lost nothing.
    async fn send_outgoing(&mut self) -> Result<(), Error> {
        while !self.outgoing.is_empty() {
            let Ok(room) = self.packets.reserve().await else { return Err(self.failure().await) };
            if let Some(packet) = self.outgoing.pop_front() {
                room.send(Arc::new(packet));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        if self.open.lost() {
            return Err(Error::LeaseLost { path: self.file.path.clone() });
        }
        Leases::resume_renewal(&self.shared);
        match &self.progress.borrow().failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    async fn acknowledged(&mut self, sequence: i64) -> Result<(), Error> {
        let ready = self.progress.wait_for(|progress| progress.acknowledged >= sequence || progress.failed.is_some());
        let failed = match ready.await {
            Ok(progress) if progress.acknowledged >= sequence => return Ok(()),
            Ok(progress) => progress.failed.clone(),
            Err(_) => None,
        };
        Err(failed.unwrap_or_else(|| Error::WriterClosed { path: self.file.path.clone() }))
    }

    /// Why the task ended: it says so before it goes.
    async fn failure(&mut self) -> Error {
        let gone = Error::WriterClosed { path: self.file.path.clone() };
        match self.progress.wait_for(|progress| progress.failed.is_some()).await {
            Ok(progress) => progress.failed.clone().unwrap_or(gone),
            Err(_) => gone,
        }
    }
}

/// The first tenths of a second, in small steps: what Apache's client spends asleep.
const SOON_MS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Asks the namenode to close the file until the datanodes' reports of the last block have reached it.
async fn complete(shared: &Shared, file: &WrittenFile, last: Option<ExtendedBlock>) -> Result<(), Error> {
    let options = &shared.options;
    let mut delay = options.locate_following_delay;
    for attempt in 0..=options.locate_following_retries {
        let is_last = attempt == options.locate_following_retries;
        // The report is usually on its way: look soon at first, then at the pace of the configuration.
        let pauses_ms = if attempt == 0 && !is_last { &SOON_MS[..] } else { &[] };
        let (path, client) = (&file.path, &shared.client_name);
        if shared.namenode.complete_soon(path, file.inode, client, last.as_ref(), pauses_ms).await? {
            return Ok(());
        }
        if !is_last {
            tokio::time::sleep(delay).await;
            delay = backoff::doubled(delay, options.locate_following_delay_max);
        }
    }
    let block = last.map_or_else(|| "(none)".to_owned(), |block| block.to_string());
    Err(Error::NotComplete { path: file.path.clone(), block })
}
