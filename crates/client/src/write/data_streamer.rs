//! Background task of a writer. It writes one block after the other, each over one or more pipelines.

use std::sync::Arc;

use hearth_protocol::trace::{self, Span};
use hearth_types::{DatanodeInfo, ExtendedBlock, LocatedBlock};
use tokio::sync::{MutexGuard, mpsc, watch};
use tokio::time::Instant;

use super::granted_memory::GrantedMemory;
use super::packet::{Packet, PacketPool};
use super::packet_sender::PacketSender;
use super::pipeline::{Ended, Pipeline, Unacknowledged};
use super::pipeline_set_up::Target;
use super::progress::Progress;
use super::written_file::{LastBlock, WriteStart, WrittenFile};
use crate::Error;
use crate::error::Failure;
use crate::session::Session;

pub(super) struct DataStreamer {
    pub(super) session: Arc<Session>,
    pub(super) file: Arc<WrittenFile>,
    pub(super) progress: watch::Sender<Progress>,
    pool: Arc<PacketPool>,
    /// The last block of the file when it was opened for append.
    append: Option<LocatedBlock>,
    /// The first block of the file, if it is allocated already.
    pub(super) first: Option<LocatedBlock>,
    /// The block that is being written had bytes before this writer opened it. Readers may have seen bytes that only
    /// its datanodes hold.
    pub(super) appended: bool,
    /// The last block written, with its final length.
    pub(super) previous: Option<ExtendedBlock>,
    /// The last packet acknowledged before the last recovery, and the number of recoveries since.
    pub(super) recovering: (i64, u32),
    /// Datanodes to which no pipeline could be set up, or that timed out as the first of one, with the time. Excluded
    /// from new blocks.
    excluded: Vec<(DatanodeInfo, Instant)>,
    /// Datanodes that failed during the block that is being written, or did not get a copy of it. Excluded from that
    /// block.
    pub(super) failed: Vec<DatanodeInfo>,
}

impl DataStreamer {
    pub(super) fn new(
        session: Arc<Session>,
        file: Arc<WrittenFile>,
        begin: WriteStart,
        pool: Arc<PacketPool>,
    ) -> (Self, watch::Receiver<Progress>) {
        let (progress, receiver) = watch::channel(Progress {
            acknowledged: -1,
            pipelines: 0,
            datanodes: Arc::default(),
            last: None,
            block: 0,
            granted_memory: GrantedMemory::Unknown,
            broken: false,
            failed: None,
        });
        let stream = Self {
            session,
            file,
            progress,
            pool,
            append: begin.append,
            first: begin.first,
            appended: false,
            previous: begin.previous,
            recovering: (-1, 0),
            excluded: Vec::new(),
            failed: Vec::new(),
        };
        (stream, receiver)
    }

    /// Processes `packets` until the writer drops its end. Returns the last block with its length, or `None` if there
    /// is no block.
    pub(super) async fn run(
        mut self,
        mut packets: mpsc::Receiver<Arc<Packet>>,
    ) -> Result<Option<ExtendedBlock>, Error> {
        let outcome = self.blocks(&mut packets).await;
        if let Err(error) = &outcome {
            tracing::debug!(path = %self.file.path, %error, "writing failed");
            self.progress.send_modify(|progress| progress.failed = Some(error.clone()));
            self.pool.close();
        }
        outcome
    }

    async fn blocks(&mut self, packets: &mut mpsc::Receiver<Arc<Packet>>) -> Result<Option<ExtendedBlock>, Error> {
        // An append that writes nothing must still close the block that the namenode opened for it.
        let mut last = self.append.as_ref().map(|block| block.block.clone()).or_else(|| self.previous.clone());
        while let Some(first) = packets.recv().await {
            let mut unacknowledged = Unacknowledged::new(first);
            self.failed.clear();
            let file = Arc::clone(&self.file);
            let last_block = file.last_block.lock().await;
            self.progress.send_modify(|progress| {
                progress.block += 1;
                progress.granted_memory = GrantedMemory::Unknown;
                progress.broken = false;
            });
            let mut span = Span::child("write block");
            let written = trace::within(span.context(), self.block(&mut unacknowledged, packets, last_block)).await;
            let block = written.inspect_err(|error| span.fail(error))?;
            if span.is_recording() {
                span.set("hdfs.block", block.to_string());
                span.set("hearth.bytes", block.length());
            }
            last = Some(block.clone());
            self.progress.send_modify(|progress| progress.last = last.clone());
            self.previous = Some(block);
        }
        Ok(last)
    }

    /// Writes the next block, or the rest of the last one. `last_block`: see [`WrittenFile::last_block`].
    async fn block(
        &mut self,
        unacknowledged: &mut Unacknowledged,
        packets: &mut mpsc::Receiver<Arc<Packet>>,
        last_block: MutexGuard<'_, LastBlock>,
    ) -> Result<ExtendedBlock, Error> {
        let append = self.append.take();
        self.appended = append.is_some();
        let pipeline = match append {
            Some(block) => self.continue_block(block, unacknowledged).await?,
            None => self.new_block(unacknowledged).await?,
        };
        drop(last_block);
        let written = self.write_block(pipeline, unacknowledged, packets).await?;
        written.ok_or_else(|| Failure::WriterClosed { path: self.file.path.clone() }.into())
    }

    /// Sends the block's packets, over as many pipelines as necessary. This is the only retry loop of a block. Returns
    /// `None` if the writer was dropped in the middle of the block.
    async fn write_block(
        &mut self,
        mut pipeline: Pipeline,
        unacknowledged: &mut Unacknowledged,
        packets: &mut mpsc::Receiver<Arc<Packet>>,
    ) -> Result<Option<ExtendedBlock>, Error> {
        loop {
            match pipeline.exchange(unacknowledged, packets, &self.progress, &self.session.counters).await {
                Ended::Whole { length } => {
                    // A writer may be idle here for long. It gives up the datanode's memory, all of which has been
                    // filled.
                    self.progress.send_modify(|progress| {
                        progress.granted_memory = GrantedMemory::Unknown;
                        progress.datanodes = Arc::default();
                    });
                    return Ok(Some(pipeline.block_with(length)));
                }
                Ended::WriterGone => return Ok(None),
                Ended::Failed(failure) => {
                    tracing::info!(path = %self.file.path, block = %pipeline.block(), %failure, "pipeline broke");
                    // Wakes a writer that waits for memory that will not be granted any more.
                    self.progress.send_modify(|progress| {
                        progress.granted_memory = GrantedMemory::Packets;
                        progress.broken = true;
                    });
                    match self.recover(pipeline, unacknowledged, failure).await? {
                        Some(recovered) => pipeline = recovered,
                        // The recovery itself closed the block: everything had been acknowledged but its end.
                        None => return Ok(self.previous.take()),
                    }
                }
            }
        }
    }

    pub(super) fn pipeline_ready(&self, packet_sender: &PacketSender, targets: &[Target]) {
        let names = || targets.iter().map(|target| target.datanode.id.transfer_address()).collect::<Vec<_>>();
        tracing::debug!(path = %self.file.path, by = %packet_sender.path(), datanodes = %names().join(","), "pipeline");
        self.progress.send_modify(|progress| {
            progress.pipelines += 1;
            progress.datanodes = targets.iter().map(|target| target.datanode.clone()).collect();
            progress.granted_memory = packet_sender.granted_memory();
        });
    }

    /// Returns true once the writer has flushed: readers may have seen bytes that only the pipeline's datanodes hold.
    pub(super) fn flushed(&self) -> bool {
        self.file.flushed.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn exclude(&mut self, datanode: DatanodeInfo) {
        self.excluded.push((datanode, Instant::now()));
    }

    /// Returns the datanodes to exclude from the next block.
    pub(super) fn excluded(&mut self) -> Vec<DatanodeInfo> {
        let expiry = self.session.options.write.exclude_expiry;
        self.excluded.retain(|(_, since)| since.elapsed() < expiry);
        self.excluded.iter().map(|(datanode, _)| datanode.clone()).collect()
    }
}
