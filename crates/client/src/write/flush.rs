//! Flushes that are awaited while the writer continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_protocol::trace::{self, SpanContext};
use tokio::sync::watch;

use super::progress::Progress;
use super::written_file::WrittenFile;
use crate::Error;
use crate::error::Failure;
use crate::session::Session;

/// What a flush does besides making the bytes visible to new readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushOptions {
    /// Also wait until the bytes are on the disks of the datanodes, like [`super::Writer::hsync`].
    pub sync: bool,
    /// End the block, even if it is not full.
    pub end_block: bool,
    /// Report the length of the block to the namenode, so that the file's status shows it. Without this, only the first
    /// flush of each pipeline does.
    pub update_length: bool,
}

/// A flush that [`super::Writer::begin_flush`] began. It is independent of the writer.
#[derive(Debug)]
#[must_use]
pub struct PendingFlush {
    pub(super) session: Arc<Session>,
    pub(super) file: Arc<WrittenFile>,
    pub(super) progress: watch::Receiver<Progress>,
    /// Shared with the writer.
    pub(super) persisted: Arc<AtomicU64>,
    /// Number of the last packet that this flush covers. -1 means none.
    pub(super) sequence: i64,
    /// Number of the last block that has bytes, and the number of its bytes that are flushed.
    pub(super) block: u64,
    pub(super) length: u64,
    /// The namenode is told about the block, if its pipeline is new.
    pub(super) persists: bool,
    /// The namenode is told the block's length in any case.
    pub(super) updates: bool,
    /// Span of the open file, for the call to the namenode.
    pub(super) trace: Option<SpanContext>,
}

impl PendingFlush {
    /// Waits until every datanode of the pipeline has the bytes, and the namenode has recorded the block.
    ///
    /// Cancel safety: if dropped, the bytes are still sent.
    pub async fn acknowledged(mut self) -> Result<(), Error> {
        acknowledged(&mut self.progress, self.sequence, &self.file.path).await?;
        self.persist().await
    }

    /// Reports the block and its length to the namenode, once per pipeline, so that both survive a restart of the
    /// namenode.
    async fn persist(self) -> Result<(), Error> {
        if !self.persists || self.length == 0 || !self.is_due() {
            return Ok(());
        }
        let file = Arc::clone(&self.file);
        // A task of its own: if this call is dropped, the next block still waits until the namenode has answered.
        let recorded = tokio::spawn(trace::within(self.trace, self.record_length()));
        recorded.await.map_err(|_| Failure::WriterClosed { path: file.path.clone() })?
    }

    /// Returns true if the namenode must record the block: no flush has done so since its pipeline was set up, or
    /// the caller wants it.
    fn is_due(&self) -> bool {
        self.updates || self.progress.borrow().pipelines != self.persisted.load(Ordering::Acquire)
    }

    async fn record_length(self) -> Result<(), Error> {
        let WrittenFile { path, inode, client_name, last_block, .. } = &*self.file;
        let mut last_block = last_block.lock().await;
        let (block, pipelines, failed) = {
            let progress = self.progress.borrow();
            (progress.block, progress.pipelines, progress.failed.clone())
        };
        // The allocation of a later block, and the end of the file, have recorded this one with its length.
        if block > self.block || last_block.is_closed {
            return failed.filter(|_| self.updates).map_or(Ok(()), Err);
        }
        let recorded = if last_block.recorded.0 == self.block { last_block.recorded.1 } else { 0 };
        let is_known = pipelines == self.persisted.load(Ordering::Acquire);
        // Another flush may have recorded the block while this one waited for it.
        if is_known && (!self.updates || self.length <= recorded) {
            return Ok(());
        }
        // Flushes end in any order, and Apache's namenode would make the block shorter.
        let length = self.length.max(recorded);
        self.session.namenode.fsync(path, *inode, client_name, length).await?;
        last_block.recorded = (self.block, length);
        self.persisted.store(pipelines, Ordering::Release);
        Ok(())
    }
}

/// Waits until all datanodes have acknowledged the packet of this number, and all before it.
pub(super) async fn acknowledged(
    progress: &mut watch::Receiver<Progress>,
    sequence: i64,
    path: &str,
) -> Result<(), Error> {
    let ready = progress.wait_for(|progress| progress.acknowledged >= sequence || progress.failed.is_some());
    let failed = match ready.await {
        Ok(progress) if progress.acknowledged >= sequence => return Ok(()),
        Ok(progress) => progress.failed.clone(),
        Err(_) => None,
    };
    Err(failed.unwrap_or_else(|| Failure::WriterClosed { path: path.to_owned() }.into()))
}
